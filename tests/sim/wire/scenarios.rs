//! Single situations of the fetcher: what it does about each, and when.

use std::time::Duration;

use kafka_protocol::messages::ApiKey;

use super::client::fetcher::{CONFIRMED_AFTER, FetchSettings, Trouble};
use super::client::records::{BoundedUnpacker, Codec, Unpack, UnpackError, Unpacked};
use super::kafka::Packing;
use super::rig::{Rig, named, partition, settings};
use crate::record::TopicPartition;

#[test]
fn batch_beyond_all_limits_is_read() {
    let limits = FetchSettings { max_bytes: 100, partition_max_bytes: 100, ..settings() };
    let mut rig = Rig::new(limits, 1);
    rig.write(0, 1, 5_000);
    rig.start(0, 0);
    rig.run(100);
    assert_eq!(rig.offsets, [(0, 0)]);
}

#[test]
fn batch_that_is_returned_cut_off_is_asked_for_with_more_up_to_a_limit() {
    let limits = FetchSettings { max_bytes: 100, partition_max_bytes: 100, batch_max_bytes: 6_000, ..settings() };
    let mut rig = Rig::new(limits, 1);
    rig.cluster.manners.cuts_first = true;
    rig.write(0, 1, 5_000);
    rig.write(0, 1, 7_000);
    rig.start(0, 0);
    rig.run(1_000);
    assert_eq!(rig.offsets, [(0, 0)]);
    let [(0, Trouble::TooLarge { offset: 1, bytes: 7_000.. })] = rig.troubles[..] else { panic!("{:?}", rig.troubles) };
    assert_eq!(rig.position(0), 1);
}

#[test]
fn gap_at_the_end_is_passed_once_it_was_confirmed() {
    let mut rig = Rig::new(settings(), 2);
    (0..3).for_each(|_| rig.write(0, 2, 10));
    rig.start(0, 0);
    rig.start(1, 0);
    rig.run(100);
    rig.write(0, 2, 10);
    // Before it was fetched.
    rig.clean(0, 8);
    let confirmed = CONFIRMED_AFTER.as_millis() as u64;
    rig.run(confirmed - 100);
    assert_eq!(rig.position(0), 6);
    rig.run(300);
    assert_eq!((rig.position(0), rig.fetcher.position_epoch(&partition(0))), (8, Some(0)));
    rig.write(0, 1, 10);
    rig.run(100);
    assert_eq!(rig.offsets.last(), Some(&(0, 8)));
}

#[test]
fn gap_at_the_end_is_passed_while_others_are_busy() {
    let mut rig = Rig::new(FetchSettings { max_bytes: 500, ..settings() }, 2);
    (0..2).for_each(|_| rig.write(0, 2, 10));
    rig.clean(0, 4);
    rig.start(0, 0);
    rig.start(1, 0);
    for _ in 0..3_000 {
        rig.write(1, 1, 400);
        rig.run(1);
    }
    assert_eq!(rig.position(0), 4);
    assert!(rig.offsets.len() > 1_000, "{}", rig.offsets.len());
}

#[test]
fn leader_that_hides_its_end_for_a_while_is_not_believed() {
    let mut rig = Rig::new(settings(), 1);
    rig.write(0, 3, 10);
    rig.cluster.lead(&named(0)).hides = true;
    rig.start(0, 0);
    rig.run(CONFIRMED_AFTER.as_millis() as u64 - 100);
    assert_eq!(rig.position(0), 0);
    rig.cluster.lead(&named(0)).hides = false;
    rig.run(1_000);
    assert_eq!(rig.offsets, [(0, 0), (0, 1), (0, 2)]);
}

#[test]
fn leader_that_hid_its_end_is_not_believed_because_its_answer_comes_late() {
    let mut rig = Rig::new(settings(), 1);
    rig.write(0, 3, 10);
    rig.cluster.lead(&named(0)).hides = true;
    rig.start(0, 0);
    rig.run(100);
    // It has said so once. What it says now is on its way for longer than it hides anything.
    rig.net.links.weather.delay_max = 4 * CONFIRMED_AFTER.as_micros() as u64;
    rig.write(0, 1, 10);
    rig.run(50);
    rig.cluster.lead(&named(0)).hides = false;
    rig.run(30_000);
    assert_eq!(rig.offsets, [(0, 0), (0, 1), (0, 2), (0, 3)]);
}

/// Three records were read of a leader that finds nothing at these offsets afterwards, as with a damaged index.
fn blind(offsets: std::ops::Range<i64>) -> Rig {
    let mut rig = Rig::new(settings(), 1);
    rig.write(0, 3, 10);
    rig.start(0, 0);
    rig.run(100);
    rig.cluster.manners.blind = offsets;
    rig.write(0, 2, 10);
    rig
}

#[test]
fn leader_that_finds_only_later_records_is_inconsistent() {
    let mut rig = blind(3..5);
    rig.write(0, 2, 10);
    rig.run(20_000);
    assert_eq!((rig.position(0), &rig.troubles[..]), (3, &[(0, Trouble::Inconsistent { offset: 3 })][..]));
}

#[test]
fn records_behind_a_gap_at_the_end_do_not_contradict_it() {
    let mut rig = blind(3..4);
    rig.run(100);
    rig.clean(0, 5);
    rig.write(0, 1, 10);
    rig.run(5_000);
    assert_eq!((rig.offsets.last(), rig.troubles.len()), (Some(&(0, 5)), 0));
}

#[test]
fn leader_that_finds_records_again_is_read_on() {
    let mut rig = blind(3..5);
    rig.write(0, 2, 10);
    rig.run(CONFIRMED_AFTER.as_millis() as u64 + 500);
    assert_eq!(rig.position(0), 3);
    rig.cluster.manners.blind = 0..0;
    rig.run(2_000);
    assert_eq!((rig.position(0), rig.troubles.len()), (7, 0));
}

#[test]
fn leader_that_points_to_another_replica_is_not_believed_to_be_empty() {
    let mut rig = Rig::new(settings(), 1);
    rig.write(0, 3, 10);
    rig.cluster.manners.prefers = 2;
    rig.start(0, 0);
    rig.run(5_000);
    assert_eq!(rig.position(0), 0);
    assert_eq!(rig.fetcher.refusal(&partition(0)).map(|(_, code)| code), Some(9));
}

#[test]
fn damaged_batch_is_trouble_after_what_is_before_it() {
    let mut rig = Rig::new(settings(), 2);
    (0..3).for_each(|_| rig.write(0, 2, 10));
    rig.write(1, 1, 10);
    rig.cluster.log(&named(0)).damage(2);
    rig.start(0, 0);
    rig.start(1, 0);
    rig.run(1_000);
    assert_eq!(rig.offsets.iter().filter(|(of, _)| *of == 0).count(), 2);
    assert!(matches!(rig.troubles[..], [(0, Trouble::Damaged { offset: 2, .. })]), "{:?}", rig.troubles);
    assert_eq!((rig.position(0), rig.position(1)), (2, 1));
    assert!(!rig.fetcher.is_reading(&partition(0)) && rig.fetcher.is_reading(&partition(1)));
}

fn deny(rig: &mut Rig, is_denied: bool) {
    rig.cluster.broker.topics.get_mut("t").unwrap().is_denied = is_denied;
}

#[test]
fn denied_topic_is_read_once_it_is_granted() {
    for is_denied_from_the_start in [true, false] {
        let mut rig = Rig::new(settings(), 1);
        rig.write(0, 1, 10);
        deny(&mut rig, is_denied_from_the_start);
        rig.start(0, 0);
        rig.run(if is_denied_from_the_start { 3_000 } else { 100 });
        deny(&mut rig, true);
        rig.write(0, 1, 10);
        rig.run(3_000);
        assert_eq!(rig.troubles, [(0, Trouble::Denied)]);
        deny(&mut rig, false);
        rig.start(0, rig.position(0));
        rig.run(3_000);
        assert_eq!(rig.offsets, [(0, 0), (0, 1)], "{:?} {:?}", rig.troubles, rig.fetcher);
        assert_eq!(rig.troubles.len(), 1);
    }
}

#[test]
fn missing_partition_is_trouble_after_a_while() {
    let mut rig = Rig::new(settings(), 1);
    rig.start(1, 0);
    rig.fetcher.start(&TopicPartition::new("none", 0), 0, None);
    rig.run(1_900);
    assert_eq!(rig.troubles, []);
    rig.run(1_500);
    assert_eq!(rig.troubles.len(), 2);
    assert!(rig.troubles.iter().all(|(_, trouble)| *trouble == Trouble::Missing));
}

#[test]
fn offset_beyond_the_log_is_trouble() {
    for offset in [0, 100] {
        let mut rig = Rig::new(settings(), 1);
        (0..3).for_each(|_| rig.write(0, 1, 10));
        rig.cluster.log(&named(0)).delete_before(1).unwrap();
        rig.start(0, offset);
        rig.run(2_000);
        assert_eq!(rig.troubles, [(0, Trouble::OffsetOutOfRange { offset })]);
    }
}

#[test]
fn start_behind_a_lost_tail_is_truncated() {
    let mut rig = Rig::new(settings(), 1);
    (0..4).for_each(|_| rig.write(0, 1, 10));
    rig.cluster.elect(&named(0), 1, Some(2), false);
    rig.cluster.broker.gossip_all();
    (0..4).for_each(|_| rig.write(0, 1, 10));
    rig.fetcher.start(&partition(0), 3, Some(0));
    rig.run(500);
    assert_eq!(rig.troubles, [(0, Trouble::Truncated { offset: 3, end: 2 })]);
    // Up to there, nothing is lost.
    rig.fetcher.start(&partition(0), 2, Some(0));
    rig.run(500);
    assert_eq!(rig.offsets, [(0, 2), (0, 3), (0, 4), (0, 5)]);
    // Of an epoch that nobody knows.
    rig.fetcher.start(&partition(0), 2, Some(9));
    rig.run(1_500);
    assert_eq!(rig.troubles.len(), 1);
    rig.run(2_000);
    assert_eq!(rig.troubles[1..], [(0, Trouble::UnknownEpoch { offset: 2, epoch: 9 })]);
}

/// Some brokers do not offer OffsetForLeaderEpoch: a restart must not stop there.
#[test]
fn broker_that_cannot_compare_epochs_is_read_unchecked() {
    let mut rig = Rig::new(settings(), 1);
    rig.cluster.manners.hidden = vec![ApiKey::OffsetForLeaderEpoch];
    (0..4).for_each(|_| rig.write(0, 1, 10));
    rig.fetcher.start(&partition(0), 2, Some(0));
    rig.run(500);
    assert_eq!((&rig.troubles[..], &rig.offsets[..]), (&[][..], &[(0, 2), (0, 3)][..]));
}

/// The message does not say why it is so: a broker may hide a request for any reason.
#[test]
fn broker_that_cannot_be_read_is_named_by_what_it_lacks() {
    let mut rig = Rig::new(settings(), 1);
    rig.cluster.manners.hidden = vec![ApiKey::Fetch];
    rig.write(0, 1, 10);
    rig.start(0, 0);
    rig.run(500);
    let [(0, trouble)] = rig.troubles[..] else { panic!("{:?}", rig.troubles) };
    assert_eq!(trouble.to_string(), "the partition's leader does not support the required version of Fetch");
}

#[test]
fn leader_that_does_not_know_its_successor_is_asked_again() {
    for learns in [true, false] {
        let mut rig = Rig::over(3, settings(), 1);
        rig.write(0, 2, 10);
        // The first broker, which led it, hears of nothing.
        rig.cluster.elect(&named(0), 2, None, true);
        rig.cluster.broker.gossip(2);
        rig.write(0, 2, 10);
        rig.cluster.broker.nodes.node(2).is_up = false;
        rig.cluster.broker.nodes.node(3).is_up = false;
        rig.fetcher.start(&partition(0), 4, Some(1));
        rig.run(1_500);
        assert_eq!((&rig.troubles[..], rig.position(0)), (&[][..], 4));
        if !learns {
            rig.run(3_000);
            assert_eq!(rig.troubles, [(0, Trouble::UnknownEpoch { offset: 4, epoch: 1 })]);
            continue;
        }
        rig.cluster.wake_all();
        rig.cluster.broker.gossip_all();
        rig.write(0, 1, 10);
        rig.run(3_000);
        assert_eq!((&rig.troubles[..], &rig.offsets[..]), (&[][..], &[(0, 4)][..]));
    }
}

#[test]
fn partition_is_read_on_where_its_leader_has_moved() {
    let mut rig = Rig::over(3, settings(), 1);
    rig.write(0, 2, 10);
    rig.start(0, 0);
    rig.run(200);
    for (to, unaware) in [(2, false), (3, true), (1, true)] {
        rig.cluster.elect(&named(0), to, None, unaware);
        rig.cluster.broker.gossip(to);
        rig.write(0, 2, 10);
        rig.run(500);
        rig.cluster.broker.gossip_all();
        rig.run(2_000);
    }
    let all: Vec<(i32, i64)> = (0..8).map(|offset| (0, offset)).collect();
    assert_eq!((&rig.offsets, &rig.troubles[..]), (&all, &[][..]));
    assert_eq!(rig.fetcher.position_epoch(&partition(0)), Some(3));
}

#[test]
fn what_is_buffered_is_bounded() {
    let bounds =
        FetchSettings { max_bytes: 10_000, partition_max_bytes: 5_000, buffered_bytes_max: 20_000, ..settings() };
    let mut rig = Rig::new(bounds, 3);
    for number in 0..3 {
        (0..100).for_each(|_| rig.write(number, 1, 1_000));
        rig.start(number, 0);
    }
    let until = rig.net.micros() + 3_000_000;
    let mut most = 0;
    while rig.net.micros() < until {
        rig.step();
        most = most.max(rig.fetcher.buffered_bytes());
    }
    assert!((10_000..31_000).contains(&most), "{most}");
    rig.run(3_000);
    assert_eq!(rig.offsets.len(), 300);
    assert_eq!(rig.fetcher.buffered_bytes(), 0);
}

#[test]
fn next_fetch_is_under_way_before_anything_is_handed_on() {
    let mut rig = Rig::new(settings(), 1);
    rig.write(0, 1, 10);
    rig.start(0, 0);
    while rig.fetcher.buffered_bytes() == 0 {
        rig.step();
    }
    let before = rig.cluster.manners.fetches;
    for _ in 0..10 {
        rig.net.pass(rig.net.micros() + 1_000);
        rig.net.step(&mut rig.brokers, &mut rig.cluster, &mut rig.random);
    }
    assert_eq!(
        (rig.cluster.manners.fetches.full, rig.cluster.manners.fetches.incremental),
        (before.full, before.incremental + 1)
    );
}

#[test]
fn more_is_on_its_way_while_it_is_there_and_was_asked_for() {
    let mut rig = Rig::new(FetchSettings { partition_max_bytes: 500, ..settings() }, 2);
    (0..20).for_each(|_| rig.write(0, 1, 400));
    rig.start(0, 0);
    // Nobody has said anything yet.
    assert!(!rig.has_more());
    while rig.position(0) == 0 {
        rig.run(1);
    }
    while rig.position(0) < 19 {
        assert!(rig.has_more(), "at {}", rig.position(0));
        rig.run(1);
    }
    rig.run(10);
    assert_eq!(rig.position(0), 20);
    assert!(!rig.has_more());
    // What is there of a partition that is not read is not on its way.
    (0..20).for_each(|_| rig.write(0, 1, 400));
    while rig.position(0) < 25 {
        rig.run(1);
    }
    assert!(rig.has_more());
    rig.fetcher.pause(&partition(0));
    assert!(!rig.has_more());
    // A leader that returns nothing may have nothing but a gap there.
    rig.clean(0, 40);
    rig.start(0, 30);
    rig.run(100);
    assert_eq!(rig.position(0), 30);
    assert!(!rig.has_more());
}

#[test]
fn nothing_is_on_its_way_that_was_not_asked_for_or_does_not_come() {
    let mut rig = Rig::new(FetchSettings { max_wait: Duration::from_secs(1), ..settings() }, 2);
    rig.write(0, 20, 10);
    rig.start(0, 0);
    rig.start(1, 0);
    rig.run(100);
    assert_eq!((rig.position(0), rig.has_more()), (20, false));
    // The broker waits for records of the other one, and is asked again when it has answered.
    rig.start(0, 5);
    for _ in 0..100 {
        rig.run(1);
        assert!(!rig.has_more());
    }
    rig.run(2_000);
    assert_eq!((rig.position(0), rig.has_more()), (20, false));
    let mut rig = Rig::new(FetchSettings { partition_max_bytes: 500, ..settings() }, 1);
    (0..20).for_each(|_| rig.write(0, 1, 400));
    rig.start(0, 0);
    while rig.position(0) == 0 {
        rig.run(1);
    }
    rig.net.links.weather.delay_max = 10_000_000;
    rig.run(140);
    assert!(rig.position(0) < 20 && !rig.has_more());
}

#[test]
fn nothing_is_on_its_way_from_a_leader_that_refuses() {
    let mut rig = Rig::new(FetchSettings { partition_max_bytes: 500, ..settings() }, 1);
    (0..20).for_each(|_| rig.write(0, 1, 400));
    rig.start(0, 0);
    while rig.position(0) == 0 {
        rig.run(1);
    }
    assert!(rig.has_more());
    rig.cluster.manners.prefers = 2;
    while rig.fetcher.refusal(&partition(0)).is_none() && rig.position(0) < 20 {
        rig.run(1);
    }
    assert!(rig.position(0) < 20 && !rig.has_more());
}

#[test]
fn session_goes_on_and_is_opened_anew_when_it_is_lost() {
    let mut rig = Rig::new(settings(), 3);
    for number in 0..3 {
        rig.write(number, 1, 10);
        rig.start(number, 0);
    }
    rig.run(500);
    let fetches = rig.cluster.manners.fetches;
    assert_eq!((fetches.full, fetches.alone), (1, 0));
    // Those that have changed: by then, each partition was named twice.
    assert!(fetches.incremental > 10 && fetches.named <= 9, "{fetches:?}");
    rig.cluster.manners.sessions(1).clear();
    rig.write(0, 1, 10);
    rig.run(500);
    assert_eq!(rig.cluster.manners.fetches.full, 2);
    assert_eq!(rig.offsets.len(), 4);
    // Without any session.
    rig.cluster.manners.sessions_max = 0;
    rig.cluster.manners.sessions(1).clear();
    (0..5).for_each(|_| rig.write(0, 1, 10));
    rig.run(500);
    assert_eq!(rig.offsets.len(), 9);
    assert!(rig.cluster.manners.fetches.full > 10);
}

/// Has no room, or never enough.
struct Tight(Option<UnpackError>);

impl Unpack for Tight {
    fn unpack(&mut self, codec: Codec, bytes: &[u8]) -> Result<Unpacked, UnpackError> {
        self.0.map_or_else(|| BoundedUnpacker::new(1 << 20).unpack(codec, bytes), Err)
    }
}

#[test]
fn batch_waits_for_room_to_be_unpacked_and_is_trouble_if_there_never_is() {
    let mut rig = Rig::new(settings(), 1);
    rig.write(0, 1, 10);
    rig.write_packed(0, 2, 1_000, Packing::Gzip);
    rig.start(0, 0);
    for _ in 0..1_000 {
        rig.step();
        rig.take(&mut Tight(Some(UnpackError::NoRoom)));
    }
    assert_eq!((&rig.offsets[..], rig.position(0)), (&[(0, 0)][..], 1));
    rig.take(&mut Tight(None));
    assert_eq!(rig.offsets, [(0, 0), (0, 1), (0, 2)]);
    rig.write_packed(0, 2, 1_000, Packing::Gzip);
    for _ in 0..1_000 {
        rig.step();
        rig.take(&mut Tight(Some(UnpackError::TooLarge)));
    }
    assert_eq!(rig.troubles, [(0, Trouble::UnpacksTooLarge { offset: 3 })]);
    assert_eq!(rig.position(0), 3);
}
