//! What can be tested without brokers. Everything else is in `tests/sim/wire`: single situations, and random trouble.

use std::time::{Duration, Instant};

use super::super::brokers::Leader;
use super::super::messages::fetch::Session;
use super::super::records::{BatchBuilder, BatchProducer, Codec, Error, Packer};
use super::chunk::{BufferedBytes, Heads};
use super::node::{Node, Target};
use super::slot::{Reported, Slot};
use super::{CONFIRMED_AFTER, FetchSettings, Fetched, Fetcher};
use crate::record::{Headers, TopicPartition};

/// A batch of `count` records at offset `base`.
fn batch(base: i64, count: i64) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    for _ in 0..count {
        builder.push(1, Some(b"key"), Some(&[7; 20]), Headers::default()).unwrap();
    }
    let seal = BatchProducer { producer_id: -1, producer_epoch: -1, base_sequence: -1, transactional: false };
    let mut bytes = builder.seal(seal, &mut Packer::new(Codec::None, None).unwrap());
    bytes[..8].copy_from_slice(&base.to_be_bytes());
    bytes[12..16].copy_from_slice(&4_i32.to_be_bytes());
    bytes
}

#[test]
fn heads_count_only_complete_batches() {
    let (first, second) = (batch(5, 3), batch(10, 2));
    let both = [first.clone(), second.clone()].concat();
    for length in 0..=both.len() {
        let heads = Heads::read(&both[..length], 6);
        let (bytes, next) = match length {
            _ if length < first.len() => (0, None),
            _ if length < both.len() => (first.len(), Some((8, 4))),
            _ => (both.len(), Some((12, 4))),
        };
        assert_eq!((heads.bytes, heads.next), (bytes, next), "{length} bytes");
        assert!(heads.error.is_none());
        let is_cut_off = length != 0 && length != first.len() && length != both.len();
        assert_eq!(heads.cut_off_bytes.is_some(), is_cut_off, "{length} bytes");
        if (12..first.len()).contains(&length) {
            assert_eq!(heads.cut_off_bytes, Some(first.len() as u64));
        }
    }
    // All of it is below the wanted offset.
    assert_eq!(Heads::read(&both, 12).next, None);
}

#[test]
fn batches_out_of_order_are_an_error_and_neither_counts() {
    let heads = Heads::read(&[batch(1, 4), batch(5, 3), batch(7, 2)].concat(), 1);
    assert_eq!((heads.bytes, heads.next), (batch(1, 4).len(), Some((5, 4))));
    assert_eq!(heads.error, Some(Error::OUT_OF_ORDER));
    let heads = Heads::read(&[batch(1 << 40, 4), batch(5, 3)].concat(), 1);
    assert_eq!((heads.bytes, heads.next, heads.error), (0, None, Some(Error::OUT_OF_ORDER)));
}

#[test]
fn greatest_possible_offset_does_not_overflow() {
    assert_eq!(Heads::read(&batch(i64::MAX - 2, 3), 0).next, Some((i64::MAX, 4)));
}

proptest::proptest! {
    #[test]
    fn reading_any_bytes_never_panics(bytes: Vec<u8>, at: usize, bit in 0_u8..8) {
        Heads::read(&bytes, 0);
        let mut batches = [batch(5, 3), batch(10, 2)].concat();
        let at = at % batches.len();
        batches[at] ^= 1 << bit;
        let heads = Heads::read(&batches, 5);
        assert!(heads.bytes <= batches.len());
    }
}

#[test]
fn empty_response_says_nothing_about_offsets_beyond_its_last_stable_one() {
    let (mut slot, began) = (Slot::new(TopicPartition::new("t", 0), 1_000), Instant::now());
    slot.begin(1, Some(Leader { node: 1, epoch: -1 }));
    let say = |slot: &mut Slot, stable| slot.reported = Some(Reported { high: stable, stable, start: 0 });
    say(&mut slot, 8);
    slot.note_gap(None, began, began);
    let later = began + CONFIRMED_AFTER;
    slot.note_gap(None, later, later);
    assert_eq!((slot.probe(), slot.next_offset), (Some(7), 0));
    // A former leader is back, with fewer records.
    say(&mut slot, 5);
    slot.note_gap(Some(7), later, later);
    assert_eq!((slot.probe(), slot.next_offset), (None, 0));
    say(&mut slot, 8);
    slot.note_gap(Some(7), later, later);
    assert_eq!((slot.probe(), slot.next_offset), (None, 8));
}

#[test]
fn response_counts_until_its_last_chunk_is_released() {
    let mut buffered_bytes = BufferedBytes::default();
    let (one, other) = (buffered_bytes.hold(100, 2), buffered_bytes.hold(30, 1));
    assert_eq!(buffered_bytes.bytes(), 130);
    buffered_bytes.release(one);
    assert_eq!(buffered_bytes.bytes(), 130);
    buffered_bytes.release(one);
    buffered_bytes.release(one);
    assert_eq!(buffered_bytes.bytes(), 30);
    buffered_bytes.release(other);
    buffered_bytes.hold(50, 0);
    assert_eq!(buffered_bytes.bytes(), 0);
}

#[test]
fn lost_session_is_reopened_at_once_but_only_the_first_time() {
    let (settings, now) = (FetchSettings::default(), Instant::now());
    let mut node = Node::new();
    node.session = Session { id: 7, epoch: 3 };
    node.lose_session(&settings, now);
    assert_eq!((node.session, node.retry_at), (Session { id: 7, epoch: 0 }, None));
    node.lose_session(&settings, now);
    assert!(node.retry_at > Some(now));
    node.succeed();
    assert_eq!(node.retry_at, None);
    node.fail(&settings, now);
    assert_eq!(node.retry_at, Some(now + settings.backoff));
}

#[test]
fn targets_that_differ_only_in_turn_are_the_same_to_the_broker() {
    let target = Target { name: TopicPartition::new("t", 0), turn: 1, offset: 5, leader_epoch: 2, bytes_max: 10 };
    assert!(target.is_same_to_broker(&Target { turn: 2, ..target.clone() }));
    assert!(!target.is_same_to_broker(&Target { offset: 6, ..target.clone() }));
    assert!(!target.is_same_to_broker(&Target { leader_epoch: 3, ..target.clone() }));
    assert!(!target.is_same_to_broker(&Target { bytes_max: 11, ..target.clone() }));
}

#[test]
fn waits_are_doubled_up_to_a_limit() {
    let settings = FetchSettings::default();
    let waits = [1, 2, 3, 30, u32::MAX].map(|failures| settings.backoff_after(failures));
    assert_eq!(waits, [20, 40, 80, 1_000, 1_000].map(Duration::from_millis));
}

#[test]
fn fetcher_can_move_to_a_lanes_thread() {
    fn moves<T: Send>() {}
    moves::<Fetcher>();
    moves::<Fetched>();
}
