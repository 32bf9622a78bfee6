//! What a writer does without a broker: bounds, refusals, and what it reports. The rest is in `tests/sim/wire`.

use super::super::code;
use super::*;

fn open_writer(settings: WriteSettings) -> Writer {
    let mut writer = Writer::new("id", Arc::new(settings)).unwrap();
    writer.session.set_identity(7, 0);
    writer.state = State::Idle;
    writer.begin().unwrap();
    writer
}

fn record(value: &[u8]) -> NewRecord<'_> {
    NewRecord { timestamp: 1, key: None, value: Some(value), headers: crate::record::Headers::default() }
}

const TICKET: Ticket = Ticket { number: 3, report: false };

#[test]
fn writer_holds_no_more_bytes_than_its_limit() {
    let now = Instant::now();
    let mut writer = open_writer(WriteSettings { buffered_bytes_max: 10_000, batch_bytes: 900, ..Default::default() });
    let slot = writer.slot("t", 0);
    let mut accepted = 0;
    while writer.send(TICKET, slot, &record(&[1; 100]), now).unwrap() {
        accepted += 1;
        assert!(accepted < 1_000, "the writer has no bound");
    }
    assert!(writer.held_bytes() <= 10_000 && writer.held_bytes() > 8_000, "{}", writer.held_bytes());
    assert_eq!(writer.in_flight(), accepted);
    // A record larger than the bound is accepted when nothing else is held.
    let mut writer = open_writer(WriteSettings { buffered_bytes_max: 10, ..Default::default() });
    let slot = writer.slot("t", 0);
    assert_eq!(writer.send(TICKET, slot, &record(&[1; 100]), now), Ok(true));
    assert_eq!(writer.send(TICKET, slot, &record(&[1; 100]), now), Ok(false));
}

#[test]
fn records_without_room_are_left_to_the_caller() {
    let now = Instant::now();
    let mut writer = open_writer(WriteSettings { buffered_bytes_max: 1_000, ..Default::default() });
    let slot = writer.slot("t", 0);
    let all = vec![(b"key".as_slice(), Some([1; 100].as_slice())); 50];
    let mut records = all.into_iter().peekable();
    assert_eq!(writer.send_all(3, slot, 1, &mut records, now), Ok(false));
    assert_eq!(writer.in_flight() + records.count(), 50);
}

#[test]
fn transaction_that_can_only_be_aborted_has_no_records_in_flight() {
    let now = Instant::now();
    let mut writer = open_writer(WriteSettings::default());
    let slot = writer.slot("t", 0);
    assert_eq!(writer.send(TICKET, slot, &record(&[1; 100]), now), Ok(true));
    assert_eq!(writer.in_flight(), 1);
    // The record was never sent, so no broker will report it.
    writer.fail(WriteError::coded(WriteErrorKind::Refused, "adding t:0", code::TOPIC_AUTHORIZATION_FAILED));
    assert!(writer.in_flight() == 0 && !writer.has_failed(), "a caller that waits for deliveries would wait for ever");
}

#[test]
fn too_large_record_is_refused_and_its_transaction_stays_open() {
    let now = Instant::now();
    let mut writer = open_writer(WriteSettings { message_bytes_max: 500, ..Default::default() });
    let slot = writer.slot("t", 0);
    let refused = writer.send(TICKET, slot, &record(&[1; 500]), now).unwrap_err();
    assert_eq!((refused.kind, refused.code), (WriteErrorKind::Refused, Some(code::MESSAGE_TOO_LARGE)));
    assert_eq!(writer.send(TICKET, slot, &record(&[1; 300]), now), Ok(true), "the transaction is still open");
    assert!(writer.trouble().is_none() && !writer.has_failed());
}

#[test]
fn unjoined_member_commits_nothing() {
    let now = Instant::now();
    let offset = Offset {
        partition: crate::record::TopicPartition::new("in", 0),
        offset: 1,
        leader_epoch: -1,
        metadata: String::new(),
    };
    for (generation, member) in [(-1, "member"), (3, "")] {
        let mut writer = open_writer(WriteSettings::default());
        let group = GroupMembership { id: "group".to_owned(), generation, member: member.to_owned(), instance: None };
        writer.commit(vec![offset.clone()], group, now);
        assert_eq!(writer.take_outcome().unwrap().unwrap_err().kind, WriteErrorKind::Abort);
        assert!(matches!(writer.state, State::Open));
    }
}

#[test]
fn lost_request_makes_only_a_version_1_writer_unusable() {
    for (is_v2, remains_usable) in [(false, false), (true, true)] {
        let mut writer = open_writer(WriteSettings::default());
        writer.session.is_v2 = is_v2;
        assert!(writer.is_usable());
        writer.session.note_lost_request();
        assert_eq!(writer.is_usable(), remains_usable);
        writer.state = State::Idle;
        assert_eq!(writer.begin().map_err(|error| error.kind).is_ok(), remains_usable);
    }
}

#[test]
fn gravest_trouble_is_kept() {
    let mut writer = open_writer(WriteSettings::default());
    for (kind, kept) in [
        (WriteErrorKind::Abort, WriteErrorKind::Abort),
        (WriteErrorKind::Fenced, WriteErrorKind::Fenced),
        (WriteErrorKind::Refused, WriteErrorKind::Fenced),
    ] {
        writer.fail(WriteError::new(kind, "for a test"));
        assert_eq!(writer.trouble().unwrap().kind, kept);
    }
    assert!(!writer.is_usable());
}
