//! Goal: a partition has at most one owner, moves only after its owner has released it, and commits by
//! members outside the group's current generation never succeed.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::super::group::{Group, Served};
use super::*;

fn names(partitions: &[i32]) -> Vec<TopicPartition> {
    partitions.iter().map(|partition| tp("in", *partition)).collect()
}

#[test]
fn partitions_move_in_two_steps_and_only_if_needed() {
    let (_dir, cluster) = cluster();
    create(&cluster, "in", 4, &[]);
    let mut first = cluster.member("g", &[Arc::from("in")]).unwrap();
    assert_eq!(settle_in(&mut first), vec![GroupEvent::Assigned(names(&[0, 1, 2, 3]))]);
    let mut second = cluster.member("g", &[Arc::from("in")]).unwrap();
    assert_eq!(settle_in(&mut second), vec![], "a round waits for everyone");
    let mut batch = Batch::default();
    let event = first.poll(&mut batch, 10, LONG).unwrap().unwrap();
    assert_eq!(event, GroupEvent::Revoked(names(&[2, 3])));
    assert_eq!(first.poll(&mut batch, 10, NOT_AT_ALL).unwrap(), None, "not before the acknowledgement");
    assert_eq!(settle_in(&mut second), vec![GroupEvent::Assigned(vec![])], "they still belong to the first");
    accept(&mut first, &event);
    assert_eq!(settle_in(&mut first), vec![GroupEvent::Assigned(vec![])]);
    assert_eq!(settle_in(&mut second), vec![GroupEvent::Assigned(names(&[2, 3]))]);
    assert_eq!(settle_in(&mut first), vec![GroupEvent::Assigned(vec![])]);
    second.leave().unwrap();
    assert_eq!(settle_in(&mut first), vec![GroupEvent::Assigned(names(&[2, 3]))]);
}

#[test]
fn dropped_member_releases_all_and_wakes_those_waiting() {
    let (_dir, cluster) = cluster();
    create(&cluster, "in", 2, &[]);
    let first = joined(&cluster, "g", "in");
    let mut second = cluster.member("g", &[Arc::from("in")]).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(30));
            drop(first);
        });
        let event = second.poll(&mut Batch::default(), 10, LONG).unwrap();
        assert_eq!(event, Some(GroupEvent::Assigned(names(&[0, 1]))));
    });
}

#[test]
fn stale_generations_and_former_members_cannot_commit() {
    let (_dir, cluster) = cluster();
    create(&cluster, "in", 2, &[]);
    let mut first = cluster.member("g", &[Arc::from("in")]).unwrap();
    assert_eq!(first.metadata().unwrap_err().kind, ErrorKind::Abort, "it has not joined");
    settle_in(&mut first);
    let stale = first.metadata().unwrap();
    let mut second = cluster.member("g", &[Arc::from("in")]).unwrap();
    let mut producer = cluster.producer("p").unwrap();
    let mut commit = |metadata: Membership| {
        producer.begin().unwrap();
        producer.send(ticket(1), &message("in", 0, "k", None)).unwrap();
        let done = producer.commit(&[commit_at(&tp("in", 0), 1, "")], metadata);
        let _ = producer.abort();
        done.map_err(|e| e.kind)
    };
    assert_eq!(commit(stale.clone()), Ok(()), "a round that is not complete changes nothing");
    for _ in 0..3 {
        settle_in(&mut second);
        settle_in(&mut first);
    }
    assert_eq!(commit(stale), Err(ErrorKind::Abort), "an older generation");
    let left = second.metadata().unwrap();
    assert_eq!(commit(left.clone()), Ok(()));
    drop(second);
    assert_eq!(commit(left), Err(ErrorKind::Abort), "no longer a member");
    assert_eq!(pairs(&cluster, "in", 0).len(), 2);
}

#[test]
fn offsets_can_be_committed_while_partitions_are_being_revoked() {
    let (_dir, cluster) = cluster();
    create(&cluster, "in", 2, &[]);
    let mut first = joined(&cluster, "g", "in");
    let mut second = cluster.member("g", &[Arc::from("in")]).unwrap();
    settle_in(&mut second);
    let event = first.poll(&mut Batch::default(), 10, LONG).unwrap().unwrap();
    assert_eq!(event, GroupEvent::Revoked(names(&[1])));
    let mut producer = cluster.producer("p").unwrap();
    producer.begin().unwrap();
    producer.commit(&[commit_at(&tp("in", 1), 0, "last")], first.metadata().unwrap()).unwrap();
    accept(&mut first, &event);
    let committed = cluster.committed("g", &names(&[1]), LONG).unwrap();
    assert_eq!(committed[0].as_ref().unwrap().metadata, "last");
}

#[test]
fn expelled_member_loses_all_and_rejoins() {
    let (_dir, cluster) = cluster();
    create(&cluster, "in", 2, &[]);
    let mut member = joined(&cluster, "g", "in");
    let stale = member.metadata().unwrap();
    assert_eq!(cluster.expel_members("g").unwrap(), 1);
    assert_eq!(member.metadata().unwrap_err().kind, ErrorKind::Abort);
    let mut producer = cluster.producer("p").unwrap();
    producer.begin().unwrap();
    assert_eq!(producer.commit(&[], stale).unwrap_err().kind, ErrorKind::Abort);
    let events = settle_in(&mut member);
    assert_eq!(events, vec![GroupEvent::Lost(names(&[0, 1])), GroupEvent::Assigned(names(&[0, 1]))]);
    producer.commit(&[], member.metadata().unwrap()).unwrap();
}

#[test]
fn expulsion_is_reported_after_a_pending_event_is_acknowledged() {
    let (_dir, cluster) = cluster();
    create(&cluster, "in", 1, &[]);
    let mut member = cluster.member("g", &[Arc::from("in")]).unwrap();
    let mut batch = Batch::default();
    let event = member.poll(&mut batch, 1, LONG).unwrap().unwrap();
    cluster.expel_members("g").unwrap();
    assert_eq!(member.poll(&mut batch, 1, NOT_AT_ALL).unwrap(), None);
    accept(&mut member, &event);
    let events = settle_in(&mut member);
    assert_eq!(events, vec![GroupEvent::Lost(names(&[0])), GroupEvent::Assigned(names(&[0]))]);
    assert_eq!(member.accept_assigned(&[]).unwrap_err().kind, ErrorKind::Refused, "there was no event");
}

#[test]
fn created_or_deleted_topic_rebalances_its_subscribers() {
    let (_dir, cluster) = cluster();
    let mut member = cluster.member("g", &[Arc::from("in")]).unwrap();
    assert_eq!(settle_in(&mut member), vec![GroupEvent::Assigned(vec![])]);
    create(&cluster, "in", 1, &[]);
    assert_eq!(settle_in(&mut member), vec![GroupEvent::Assigned(names(&[0]))]);
    cluster.delete_topic("in").unwrap();
    assert_eq!(settle_in(&mut member)[0], GroupEvent::Revoked(names(&[0])));
}

#[test]
fn member_reads_its_partitions_in_turn_from_their_start_offsets() {
    let (_dir, cluster) = cluster();
    create(&cluster, "in", 2, &[]);
    for partition in 0..2 {
        let values: Vec<String> = (0..10).map(|n| n.to_string()).collect();
        let messages: Vec<_> = values.iter().map(|value| message("in", partition, "k", Some(value))).collect();
        cluster.append("in", partition, &messages).unwrap();
    }
    let mut member = joined(&cluster, "g", "in");
    let mut batch = Batch::default();
    let mut seen = [0i64; 2];
    let mut turns = Vec::new();
    for _ in 0..10 {
        assert_eq!(member.poll(&mut batch, 2, LONG).unwrap(), None);
        for index in 0..batch.len() {
            let record = batch.record(index);
            let partition = record.partition as usize;
            assert_eq!(record.offset, seen[partition]);
            seen[partition] += 1;
            turns.push(record.partition);
            assert_eq!(batch.partitions()[batch.partition_index(index)], tp("in", record.partition));
        }
    }
    assert_eq!(seen, [10, 10]);
    assert_eq!(turns[..8], [0, 0, 1, 1, 0, 0, 1, 1]);
    assert_eq!((member.position(&tp("in", 1)), member.end(&tp("in", 1))), (Some(10), Some(10)));
    member.start(&tp("in", 1), 8).unwrap();
    member.pause(&tp("in", 0)).unwrap();
    assert_eq!(member.position(&tp("in", 1)), None, "before the first read");
    member.poll(&mut batch, 100, LONG).unwrap();
    assert_eq!((batch.len(), batch.record(0).offset), (2, 8));
    assert_eq!(member.start(&tp("in", 5), 0).unwrap_err().kind, ErrorKind::Refused);
}

#[derive(Clone, Debug)]
enum Step {
    Join,
    Leave(usize),
    Serve(usize),
    Acknowledge(usize),
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// In whatever order members join, leave, are served and acknowledge: never two owners, and in the end a
    /// balanced assignment of everything.
    #[test]
    fn assignment_has_at_most_one_owner_and_becomes_balanced(
        steps in prop::collection::vec(
            prop_oneof![
                1 => Just(Step::Join),
                1 => (0..8usize).prop_map(Step::Leave),
                6 => (0..8usize).prop_map(Step::Serve),
                6 => (0..8usize).prop_map(Step::Acknowledge),
            ],
            0..200,
        ),
        count in 1..9i32,
    ) {
        let mut sim = Sim { group: Group::default(), members: Vec::new(), next: 0, count };
        for step in steps {
            match step {
                Step::Join if sim.members.len() < 5 => sim.join(),
                Step::Leave(n) if n < sim.members.len() => {
                    let (id, ..) = sim.members.remove(n);
                    prop_assert!(sim.group.leave(id));
                }
                Step::Serve(n) if n < sim.members.len() => sim.serve(n),
                Step::Acknowledge(n) if n < sim.members.len() => sim.acknowledge(n),
                _ => {}
            }
        }
        if sim.members.is_empty() {
            sim.join();
        }
        for _ in 0..20 {
            for n in 0..sim.members.len() {
                sim.serve(n);
                sim.acknowledge(n);
            }
        }
        let loads: Vec<usize> = sim.members.iter().map(|(_, _, owned)| owned.len()).collect();
        prop_assert_eq!(loads.iter().sum::<usize>(), count as usize);
        prop_assert!(loads.iter().max().unwrap() - loads.iter().min().unwrap() <= 1);
    }
}

/// Members as they see themselves: id, the event delivered to them, what they own.
struct Sim {
    group: Group,
    members: Vec<(u64, Option<GroupEvent>, BTreeSet<TopicPartition>)>,
    next: u64,
    count: i32,
}

impl Sim {
    fn join(&mut self) {
        self.next += 1;
        self.group.join(self.next, &[Arc::from("in")]);
        self.members.push((self.next, None, BTreeSet::new()));
    }

    fn serve(&mut self, n: usize) {
        let (id, pending, _) = &self.members[n];
        let count = self.count;
        match self.group.serve(*id, |_| Some(count)) {
            Served::Event(event) => {
                assert!(pending.is_none());
                if let GroupEvent::Assigned(partitions) = &event {
                    for partition in partitions {
                        assert!(self.members.iter().all(|(.., owned)| !owned.contains(partition)), "two owners");
                    }
                    self.members[n].2.extend(partitions.iter().cloned());
                }
                self.members[n].1 = Some(event);
            }
            Served::Pending => assert!(pending.is_some()),
            Served::Idle => assert!(pending.is_none()),
            Served::Unknown => panic!("a member is unknown"),
        }
    }

    fn acknowledge(&mut self, n: usize) {
        let (id, pending, owned) = &mut self.members[n];
        match pending.take() {
            Some(GroupEvent::Assigned(_)) => assert!(self.group.acknowledge(*id, true)),
            Some(GroupEvent::Revoked(partitions) | GroupEvent::Lost(partitions)) => {
                owned.retain(|partition| !partitions.contains(partition));
                assert!(self.group.acknowledge(*id, false));
            }
            None => assert!(!self.group.acknowledge(*id, true)),
        }
    }
}

#[test]
fn member_can_extend_reduce_and_drop_its_subscription() {
    let (_dir, cluster) = cluster();
    create(&cluster, "in", 2, &[]);
    create(&cluster, "more", 1, &[]);
    let mut member = cluster.member("g", &[]).unwrap();
    assert_eq!(settle_in(&mut member), vec![GroupEvent::Assigned(vec![])]);
    member.subscribe(&[Arc::from("in")]).unwrap();
    assert_eq!(settle_in(&mut member), vec![GroupEvent::Assigned(names(&[0, 1]))]);
    member.subscribe(&[Arc::from("in"), Arc::from("more")]).unwrap();
    assert_eq!(settle_in(&mut member), vec![GroupEvent::Assigned(vec![tp("more", 0)])], "nothing is taken away");
    member.subscribe(&[Arc::from("more")]).unwrap();
    assert_eq!(settle_in(&mut member)[0], GroupEvent::Revoked(names(&[0, 1])));
    member.subscribe(&[]).unwrap();
    assert_eq!(settle_in(&mut member)[0], GroupEvent::Revoked(vec![tp("more", 0)]));
}
