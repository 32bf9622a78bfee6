//! What a writer does without a broker: bounds, refusals, and what it reports. The rest is in `tests/sim/wire`.

use super::super::code;
use super::*;

fn open_writer(settings: WriteSettings) -> Writer {
    let mut writer = Writer::new("id", Arc::new(settings)).unwrap();
    writer.session.becomes(7, 0);
    writer.state = State::Idle;
    writer.begin().unwrap();
    writer
}

fn record(value: &[u8]) -> NewRecord<'_> {
    NewRecord { timestamp: 1, key: None, value: Some(value), headers: crate::record::Headers::default() }
}

const TICKET: Ticket = Ticket { number: 3, report: false };

#[test]
fn writer_accepts_no_more_than_it_may_hold() {
    let now = Instant::now();
    let mut writer = open_writer(WriteSettings { buffered_bytes_max: 10_000, batch_bytes: 900, ..Default::default() });
    let slot = writer.slot("t", 0);
    let mut taken = 0;
    while writer.send(TICKET, slot, &record(&[1; 100]), now).unwrap() {
        taken += 1;
        assert!(taken < 1_000, "the writer has no bound");
    }
    assert!(writer.held_bytes() <= 10_000 && writer.held_bytes() > 8_000, "{}", writer.held_bytes());
    assert_eq!(writer.in_flight(), taken);
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
    // No broker was asked to write the record, so none reports it either.
    writer.fail(WriteError::coded(WriteErrorKind::Refused, "adding t:0", code::TOPIC_AUTHORIZATION_FAILED));
    assert!(writer.in_flight() == 0 && !writer.has_failed(), "a caller that waits for deliveries would wait for ever");
}

#[test]
fn too_large_record_is_refused_and_the_transaction_goes_on() {
    let now = Instant::now();
    let mut writer = open_writer(WriteSettings { message_bytes_max: 500, ..Default::default() });
    let slot = writer.slot("t", 0);
    let refused = writer.send(TICKET, slot, &record(&[1; 500]), now).unwrap_err();
    assert_eq!((refused.kind, refused.code), (WriteErrorKind::Refused, Some(code::MESSAGE_TOO_LARGE)));
    assert_eq!(writer.send(TICKET, slot, &record(&[1; 300]), now), Ok(true), "the transaction is as it was");
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
        let group = Group { id: "group".to_owned(), generation, member: member.to_owned(), instance: None };
        writer.commit(vec![offset.clone()], group, now);
        assert_eq!(writer.outcome().unwrap().unwrap_err().kind, WriteErrorKind::Abort);
        assert!(matches!(writer.state, State::Open));
    }
}

#[test]
fn doubt_ends_only_a_version_1_writer() {
    for (is_v2, goes_on) in [(false, false), (true, true)] {
        let mut writer = open_writer(WriteSettings::default());
        writer.session.is_v2 = is_v2;
        assert!(writer.is_fit());
        writer.session.broke();
        assert_eq!(writer.is_fit(), goes_on);
        writer.state = State::Idle;
        assert_eq!(writer.begin().map_err(|error| error.kind).is_ok(), goes_on);
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
    assert!(!writer.is_fit());
}
