//! Goal: logs, offsets and transactions together, and places that are unreachable for a while.

use super::super::{MS, Protocol, SECOND, Settings};
use super::*;

fn broker() -> (Broker, Identity) {
    let mut broker = Broker::new(Protocol::V1);
    let settings = Settings { compacted: false, delete_retention: 0, message_bytes_max: 1000, stamps: false };
    broker.topics.create("out", 2, settings).unwrap();
    let (producer, epoch) = broker.init_producer(&"id".into(), SECOND).unwrap();
    (broker, Identity { id: "id".into(), producer, epoch })
}

fn record(size: usize) -> Record {
    Record { value: Some(vec![0; size].into()), ..Record::default() }
}

fn out(number: i32) -> Partition {
    Partition::new("out", number)
}

/// KIP-98: what a transaction wrote to a partition becomes visible when the marker there is written.
#[test]
fn each_marker_makes_only_its_own_partition_visible() {
    let (mut broker, who) = broker();
    let group: Arc<str> = "group".into();
    broker.add_partitions(&who, &[out(0), out(1)]).unwrap();
    broker.produce(&who, &out(0), 0, &[record(1)]).unwrap();
    broker.produce(&who, &out(1), 0, &[record(1)]).unwrap();
    broker.add_offsets(&who, &group).unwrap();
    let committed = Committed { offset: 3, metadata: "m".to_owned() };
    broker.commit_offsets_transactional(&who, &group, ("", -1), &[(out(0), committed.clone())]).unwrap();
    broker.end_transaction(&who, true).unwrap();
    assert_eq!(broker.fetch_offset("group", &out(0), true), Err(Code::UnstableOffsetCommit));
    let markers = broker.markers();
    assert_eq!(markers.len(), 3);
    assert!(broker.write_marker(&markers[0]));
    assert_eq!(broker.ends(&out(0), Isolation::Committed), Ok((0, 2)));
    assert_eq!(broker.ends(&out(1), Isolation::Committed), Ok((0, 0)));
    assert_eq!(broker.ends(&out(1), Isolation::Uncommitted), Ok((0, 1)));
    markers[1..].iter().for_each(|marker| assert!(broker.write_marker(marker)));
    assert_eq!(broker.fetch_offset("group", &out(0), true), Ok(Some(committed)));
}

/// KIP-890 part 1: a batch that arrives after its transaction was aborted does not start another one.
#[test]
fn late_batch_is_rejected() {
    let (mut broker, who) = broker();
    broker.add_partitions(&who, &[out(0)]).unwrap();
    broker.end_transaction(&who, false).unwrap();
    assert_eq!(broker.produce(&who, &out(0), 0, &[record(1)]), Err(Code::NotEnoughReplicas));
    broker.markers().iter().for_each(|marker| assert!(broker.write_marker(marker)));
    assert_eq!(broker.produce(&who, &out(0), 0, &[record(1)]), Err(Code::InvalidTxnState));
    assert_eq!(broker.ends(&out(0), Isolation::Committed), Ok((0, 1)), "only the marker is there");
}

/// The reason for KIP-890: with the first protocol, late requests of an earlier transaction form one of their own,
/// and set the group's offsets back.
#[test]
fn late_requests_commit_earlier_offsets_again() {
    let (mut broker, who) = broker();
    let group: Arc<str> = "group".into();
    let commit = |broker: &mut Broker, offset: i64, late: bool| {
        let committed = Committed { offset, metadata: offset.to_string() };
        broker.late = late;
        broker.add_offsets(&who, &group).unwrap();
        broker.commit_offsets_transactional(&who, &group, ("", -1), &[(out(0), committed.clone())]).unwrap();
        broker.end_transaction(&who, true).unwrap();
        broker.late = false;
        broker.markers().iter().for_each(|marker| assert!(broker.write_marker(marker)));
        committed
    };
    let (former, last) = (commit(&mut broker, 3, true), commit(&mut broker, 5, false));
    let is_repeated = |broker: &Broker, of: &Committed| broker.groups.repeated_by("group", &out(0), of).is_some();
    assert!(!is_repeated(&broker, &former), "the first commit is the transaction's own");
    assert_eq!(commit(&mut broker, 3, true), former);
    assert_eq!(broker.fetch_offset("group", &out(0), true), Ok(Some(former.clone())));
    assert_eq!([is_repeated(&broker, &former), is_repeated(&broker, &last)], [true, false]);
}

/// Protocol guide: NOT_COORDINATOR and NOT_LEADER_OR_FOLLOWER are temporary; markers wait for the leader.
#[test]
fn unreachable_places_come_back() {
    let (mut broker, who) = broker();
    broker.add_partitions(&who, &[out(0)]).unwrap();
    broker.produce(&who, &out(0), 0, &[record(1)]).unwrap();
    broker.end_transaction(&who, true).unwrap();
    broker.take_away(Role::Leader(out(0)), 5 * MS);
    broker.take_away(Role::TransactionCoordinator, 5 * MS);
    assert_eq!(broker.end_transaction(&who, true), Err(Code::NotCoordinator));
    assert_eq!(broker.ends(&out(0), Isolation::Committed), Err(Code::NotLeaderOrFollower));
    let marker = broker.markers().remove(0);
    assert!(!broker.write_marker(&marker));
    broker.now = 5 * MS;
    assert!(broker.write_marker(&marker));
    assert_eq!(broker.end_transaction(&who, true), Ok((who.producer, 0)));
}

/// `max.message.bytes`, `LogValidator`: the content of a batch can be rejected.
#[test]
fn too_large_and_keyless_records_are_rejected() {
    let (mut broker, who) = broker();
    let compacted = Settings { compacted: true, delete_retention: 0, message_bytes_max: 1000, stamps: false };
    broker.topics.create("table", 1, compacted).unwrap();
    let table = Partition::new("table", 0);
    broker.add_partitions(&who, &[out(0), table.clone()]).unwrap();
    assert_eq!(broker.produce(&who, &out(0), 0, &[record(2000)]), Err(Code::RecordTooLarge));
    assert_eq!(broker.produce(&who, &table, 0, &[record(1)]), Err(Code::InvalidRecord));
    assert_eq!(broker.add_partitions(&who, &[out(7)]), Err(Code::UnknownTopicOrPartition));
}

/// KIP-516: the same name, another topic; `OffsetMetadataManager.onPartitionsDeleted`: its offsets are gone.
#[test]
fn recreated_topic_has_a_new_id_and_no_offsets() {
    let (mut broker, _) = broker();
    let settings = broker.topics.get("out").unwrap().settings;
    let former = broker.topics.get("out").unwrap().id;
    let committed = Committed { offset: 3, metadata: String::new() };
    broker.commit_offsets(&"group".into(), ("", -1), &[(out(0), committed)]).unwrap();
    assert_eq!(broker.topics.create("out", 1, settings), Err(Code::TopicAlreadyExists));
    broker.delete_topic("out").unwrap();
    assert_eq!(broker.fetch_offset("group", &out(0), true), Ok(None));
    broker.topics.create("out", 1, settings).unwrap();
    assert_ne!(broker.topics.get("out").unwrap().id, former);
}
