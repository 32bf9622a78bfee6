//! Goal: the settled prefix, and the ranges settled beyond it, are correct in whatever order records are settled.

use super::*;
use crate::dedup::{Decision, Identity, Kept, Reason, Retention};
use crate::effect::call;
use crate::effect::provider::{OwnedStep, Payload};
use crate::engine::calling::writing::Portion;
use crate::engine::share::Position;
use crate::format::Calls;
use crate::record::Headers;

fn rules() -> Rules {
    Rules { retention: Retention::For { ms: 1_000 }, ..Rules::new(Identity::of_paths([]), None) }
}

fn position(next: i64, beyond: &[(i64, i64)]) -> Position {
    let calls = Calls { beyond: beyond.to_vec(), ..Calls::default() };
    Position { next, progress: Progress::default(), calls }
}

/// Pushes a record with this offset and timestamp.
fn push(window: &mut Window, offset: i64, timestamp: i64) {
    let record = Record {
        topic: "orders",
        partition: 0,
        offset,
        timestamp: Some(timestamp),
        key: Some(b"key"),
        value: None,
        headers: Headers::default(),
    };
    let (topic, rules) = (Arc::from("orders"), rules());
    window
        .push_record((&record, &topic), (&rules, &Progress::default(), 10_000), || Ok(Some(vec![1])), || true)
        .unwrap();
}

pub(in crate::engine::calling) fn window(beyond: &[(i64, i64)], offsets: impl IntoIterator<Item = i64>) -> Window {
    let mut window = Window::new(&position(0, beyond));
    offsets.into_iter().for_each(|offset| push(&mut window, offset, offset * 10));
    window
}

/// Marks the records at these offsets as settled by the open transaction.
fn write(window: &mut Window, offsets: &[i64]) {
    for offset in offsets {
        let at = window.find(*offset).expect("the record is in the window");
        window.slot_mut(at).stage = SlotStage::Judged(Box::new(JudgedRecord {
            evaluation: Decision::by_call_rule(crate::dedup::Action::Drop, Reason::Seen).into(),
            kept: Kept::default(),
            message: String::new(),
            explanation: Vec::new(),
            repeats_result: false,
            is_written: true,
        }));
    }
}

fn policy() -> Policy {
    Policy {
        key: None,
        reserve: crate::effect::call::Reserve::Always,
        on_in_doubt: crate::effect::call::OnInDoubt::DeadLetter,
        on_unavailable: crate::effect::call::OnUnavailable::Hold,
        retry: crate::effect::call::Retry {
            first: Duration::ZERO,
            factor: 1,
            max: Duration::ZERO,
            jitter: crate::effect::call::Jitter::None,
            attempts: 1,
        },
        answers: crate::effect::call::Answers::default(),
    }
}

fn end(window: &mut Window, is_committed: bool) {
    let policy = policy();
    let now = Now { wall_ms: 0, monotonic: Duration::ZERO };
    match is_committed {
        true => _ = window.on_commit(&policy, now, &mut |_| 0),
        false => window.on_abort(&policy, now, &mut |_| 0),
    }
}

fn settle(window: &mut Window, offsets: &[i64]) {
    write(window, offsets);
    end(window, true);
}

/// The end of the settled prefix, stream time at that end, and the ranges settled beyond it.
fn after_commit(window: &Window) -> (i64, i64, Vec<(i64, i64)>) {
    let PositionAfterCommit { next, times, beyond } = window.position_after_commit();
    (next, times.stream_time, beyond)
}

#[test]
fn prefix_ends_before_the_first_record_that_is_not_settled() {
    let mut window = window(&[], 0..6);
    settle(&mut window, &[3, 1]);
    assert_eq!(after_commit(&window), (0, -1, vec![(1, 2), (3, 4)]));
    settle(&mut window, &[0]);
    assert_eq!((after_commit(&window), window.len()), ((2, 10, vec![(3, 4)]), 4));
    settle(&mut window, &[2]);
    assert_eq!(after_commit(&window), (4, 30, vec![]));
    settle(&mut window, &[5, 4]);
    assert!(window.is_empty() && window.bytes() == 0);
    assert_eq!(after_commit(&window), (6, 50, vec![]));
}

#[test]
fn position_after_commit_includes_the_settlements_of_the_open_transaction() {
    let mut window = window(&[], 0..4);
    write(&mut window, &[0, 2]);
    assert_eq!((after_commit(&window), window.len()), ((1, 0, vec![(2, 3)]), 4));
    end(&mut window, false);
    assert_eq!((after_commit(&window), window.len()), ((0, -1, vec![]), 4), "the abort undoes everything");
    settle(&mut window, &[0, 2]);
    assert_eq!((after_commit(&window), window.len()), ((1, 0, vec![(2, 3)]), 3));
}

#[test]
fn settled_ranges_span_gaps_in_the_input_but_no_unsettled_records() {
    // There is no record at the offsets in between, and there never will be.
    let mut window = window(&[], [0, 4, 9, 12]);
    settle(&mut window, &[4, 9]);
    assert_eq!(after_commit(&window), (0, -1, vec![(4, 10)]));
    settle(&mut window, &[12]);
    assert_eq!(after_commit(&window), (0, -1, vec![(4, 13)]));
    settle(&mut window, &[0]);
    assert_eq!(after_commit(&window), (13, 120, vec![]));
}

#[test]
fn records_settled_by_former_owners_are_skipped_and_move_stream_time() {
    let mut window = window(&[(1, 3), (6, 8)], 0..4);
    assert_eq!(window.len(), 4);
    assert_eq!(after_commit(&window), (0, -1, vec![(1, 3), (6, 8)]));
    settle(&mut window, &[0]);
    assert_eq!(after_commit(&window), (3, 20, vec![(6, 8)]));
    settle(&mut window, &[3]);
    assert_eq!((after_commit(&window), window.is_empty()), ((4, 30, vec![(6, 8)]), true));
    (4..9).for_each(|offset| push(&mut window, offset, offset * 10));
    assert_eq!(after_commit(&window), (4, 30, vec![(6, 8)]));
    settle(&mut window, &[4, 5]);
    assert_eq!(after_commit(&window), (8, 70, vec![]));
}

#[test]
fn record_that_leaves_the_window_without_a_transaction_makes_a_transaction_due() {
    let mut window = window(&[(1, 3)], [0, 1, 2]);
    write(&mut window, &[0]);
    // The committed position was written before the records at 1 and 2 were read: they were read during the commit.
    let committed = position(1, &[(1, 3)]);
    end(&mut window, true);
    assert!(Portion::All.is_due_in(&window, &committed), "the next transaction moves the offset");
    assert!(!Portion::All.is_due_in(&window, &position(3, &[])), "only once");
}

#[test]
fn grants_cover_the_record_at_which_the_task_stops() {
    use crate::engine::calling::grants;
    use crate::format::Grant;
    let mut window = window(&[], [0, 1, 2]);
    let mut committed = position(0, &[]);
    committed.calls.grants = vec![Grant { to: 10, since_ms: 7 }];
    assert_eq!(grants::shortened_end(&window, &committed), Some(i64::MIN), "nothing was called");
    // The record was called, but the transaction with its reservation was aborted.
    window.slot_mut(1).stage = SlotStage::MustStopTask("in doubt".to_owned());
    end(&mut window, false);
    assert_eq!(grants::shortened_end(&window, &committed), Some(2));
    let policy = Policy {
        key: call::KeyWindow::new(Duration::from_hours(1), Duration::from_secs(1), Duration::ZERO),
        reserve: call::Reserve::Auto,
        ..policy()
    };
    let next = grants::next(&policy, &window, &committed, 20, 100).expect("there is a grant");
    assert_eq!(next.since_ms, 7, "the time of the grant is not renewed");
}

#[test]
fn range_that_begins_in_a_gap_is_kept_until_it_is_read() {
    let mut window = window(&[(2, 9)], [0, 5]);
    assert_eq!(after_commit(&window), (0, -1, vec![(5, 6), (6, 9)]));
    settle(&mut window, &[0]);
    assert_eq!(after_commit(&window), (6, 50, vec![(6, 9)]));
}

#[test]
fn records_from_the_future_do_not_move_stream_time() {
    let mut window = window(&[], [0]);
    push(&mut window, 1, i64::MAX);
    push(&mut window, 2, 20);
    assert!(matches!(window.slot(1).timestamp_check, TimestampCheck::Future(_)));
    assert_eq!(window.slot(1).times, window.slot(0).times);
    settle(&mut window, &[0, 1]);
    assert_eq!(after_commit(&window), (2, 0, vec![]));
}

#[test]
fn record_that_may_be_from_the_future_waits_for_the_cluster() {
    let mut window = window(&[], []);
    let record = Record {
        topic: "orders",
        partition: 0,
        offset: 0,
        timestamp: Some(i64::MAX),
        key: None,
        value: None,
        headers: Headers::default(),
    };
    let (topic, rules) = (Arc::from("orders"), rules());
    window.push_record((&record, &topic), (&rules, &Progress::default(), 0), || Ok(None), || false).unwrap();
    assert_eq!(window.slot(0).timestamp_check, TimestampCheck::SeemsFuture);
}

#[test]
fn settled_record_that_may_be_from_the_future_waits_for_the_cluster_too() {
    const LATER: i64 = 10_000_000;
    // The former owner's clock was correct, and it believed the record at offset 1. This owner's clock is behind.
    let mut window = Window::new(&position(0, &[(1, 2)]));
    let push = |window: &mut Window, (offset, timestamp): (i64, i64), wall_ms: i64, is_certainly_future: bool| {
        let key: Option<&[u8]> = None;
        let (topic, partition, timestamp) = ("orders", 0, Some(timestamp));
        let record = Record { topic, partition, offset, timestamp, key, value: None, headers: Headers::default() };
        let (topic, rules) = (Arc::from("orders"), rules());
        window
            .push_record(
                (&record, &topic),
                (&rules, &Progress::default(), wall_ms),
                || Ok(None),
                || is_certainly_future,
            )
            .unwrap();
    };
    [(0, 100), (1, LATER), (2, 110)].into_iter().for_each(|record| push(&mut window, record, 100, false));
    settle(&mut window, &[0]);
    assert!(window.slot(0).needs_kafka_time() && window.slot(0).offset() == 1);
    assert_eq!(after_commit(&window), (1, 100, vec![(1, 2)]), "stream time behind it is not known");
    // This owner's clock is correct again.
    let mut window = Window::new(&position(1, &[(1, 2)]));
    push(&mut window, (1, LATER), LATER, false);
    assert_eq!((after_commit(&window), window.is_empty()), ((2, LATER, vec![]), true));
    // Or the cluster says that the record is from the future: then the former owner made it a dead letter.
    let mut window = Window::new(&position(1, &[(1, 2)]));
    push(&mut window, (1, LATER), 100, true);
    assert_eq!((after_commit(&window), window.is_empty()), ((2, -1, vec![]), true));
}

#[test]
fn input_order_permits_settling_up_to_the_first_unsettled_record() {
    let mut window = window(&[(1, 2)], 0..4);
    assert_eq!(window.last_in_order(), usize::MAX, "records may be settled in any order");
    window = window.with_input_order(true);
    assert_eq!(window.last_in_order(), 0);
    write(&mut window, &[0]);
    assert_eq!(window.last_in_order(), 2, "a former owner has settled the next record");
    write(&mut window, &[2]);
    assert_eq!(window.last_in_order(), 3);
    end(&mut window, true);
    assert_eq!((window.last_in_order(), window.slot(0).offset()), (0, 3));
}

#[test]
fn prefix_moves_over_offsets_without_records() {
    let mut window = window(&[], [0]);
    settle(&mut window, &[0]);
    window.advance_to(7);
    assert_eq!((after_commit(&window), window.read_to()), ((7, 0, vec![]), 7));
    // The prefix does not move past a record that waits.
    push(&mut window, 7, 70);
    window.advance_to(9);
    assert_eq!(after_commit(&window), (7, 0, vec![]));
}

#[test]
#[should_panic(expected = "came after")]
fn record_pushed_out_of_order_panics() {
    window(&[], [3, 3]);
}

/// Settles as many of these records as permitted in one transaction, which Kafka refuses if it contains the record at
/// offset 5. Returns the offsets in the transaction.
fn try_to_settle(window: &mut Window, offsets: std::ops::Range<i64>) -> Vec<i64> {
    let mut offsets_written = Vec::new();
    for offset in offsets {
        if let Some(at) = window.find(offset)
            && window.may_settle(at)
        {
            write(window, &[offset]);
            offsets_written.push(offset);
        }
    }
    let is_refused = offsets_written.contains(&5);
    if is_refused {
        assert!(window.on_refused("too large"));
    }
    end(window, !is_refused);
    offsets_written
}

#[test]
fn record_that_kafka_refuses_is_found_among_many() {
    let mut window = window(&[], 0..16);
    let mut transactions: Vec<Vec<i64>> = Vec::new();
    while !matches!(window.slot(window.find(5).unwrap()).refusal, RefusalState::Refused(_)) {
        transactions.push(try_to_settle(&mut window, 0..12));
    }
    let expected = [(0..12).collect(), (0..6).collect(), vec![0, 1, 2], vec![3, 4, 5], vec![3], vec![4], vec![5]];
    assert_eq!(transactions, expected);
    let at = window.find(5).unwrap();
    assert_eq!(window.slot(at).refusal, RefusalState::Refused("too large".to_owned()));
    // The record is refused again, although it is alone and reduced.
    let other = window.find(6).unwrap();
    write(&mut window, &[5]);
    assert!(!window.may_settle(other), "the refused record is settled alone");
    assert!(window.on_refused("too large"));
    end(&mut window, false);
    assert!(matches!(window.slot(at).stage, SlotStage::MustStopTask(_)));
    assert!(window.may_settle(other), "the search is over");
    settle(&mut window, &[6, 7]);
    assert_eq!(after_commit(&window), (5, 40, vec![(6, 8)]));
}

#[test]
fn batch_that_is_refused_as_a_whole_is_settled_in_smaller_batches() {
    let mut window = window(&[], 0..8);
    write(&mut window, &[0, 1, 2, 3]);
    assert!(window.on_refused("the batch is too large"));
    end(&mut window, false);
    for (offsets, later) in [([0, 1], false), ([2, 3], false)] {
        assert_eq!(window.may_settle(window.find(6).unwrap()), later, "before {offsets:?}");
        settle(&mut window, &offsets);
    }
    assert!(window.may_settle(window.find(6).unwrap()));
}

const NOW: Now = Now { wall_ms: 7, monotonic: Duration::ZERO };

/// Gives the record at this offset a handler's call that is under way.
pub(in crate::engine::calling) fn handled(window: &mut Window, offset: i64) {
    let at = window.find(offset).expect("the record is in the window");
    let work = crate::effect::provider::Work {
        topology: "t".into(),
        topic: "orders".into(),
        partition: 0,
        offset,
        timestamp: None,
        key: None,
        value: None,
        decoded: None,
        headers: Vec::new(),
        identity: vec![1],
        epoch: None,
        version: None,
        fingerprint: call::Fingerprint::from_bytes([0; call::FINGERPRINT_BYTES]),
    };
    let (call, _) = call::begin(&policy(), None, NOW);
    let mut called = CalledRecord {
        call,
        number: 5,
        send_at: Duration::ZERO,
        ended_at: None,
        payload: Payload::Handler(Arc::new(work)),
        journal: Arc::default(),
        reported_steps: None,
        evaluation: Decision::by_call_rule(crate::dedup::Action::Forward, Reason::First).into(),
        kept: Kept::default(),
        last_response: None,
        is_written: false,
        is_released: false,
    };
    for event in [Event::Written { since_ms: 3 }, Event::Committed, Event::Dispatch] {
        called.apply_event(&policy(), event, NOW, &mut |_| 0);
    }
    window.slot_mut(at).stage = SlotStage::Called(Box::new(called));
}

fn called(window: &mut Window, offset: i64) -> &mut CalledRecord {
    let at = window.find(offset).expect("the record is in the window");
    let SlotStage::Called(called) = &mut window.slot_mut(at).stage else { panic!("the slot holds no call") };
    called
}

#[test]
fn handler_continues_once_its_steps_are_committed() {
    let step = OwnedStep { name: "charge".to_owned(), state: crate::effect::provider::OwnedStepState::Begun };
    let mut window = window(&[], 0..1);
    handled(&mut window, 0);
    called(&mut window, 0).reported_steps = Some(ReportedSteps { steps: vec![step.clone()], written_ms: None });
    assert!(called(&mut window, 0).has_unwritten_steps() && !called(&mut window, 0).is_ready());
    let commit = |window: &mut Window| window.on_commit(&policy(), NOW, &mut |_| 0).resumed_handlers;
    // A transaction without the steps releases nothing.
    assert_eq!(commit(&mut window), []);
    called(&mut window, 0).reported_steps.as_mut().unwrap().written_ms = Some(9);
    assert!(!called(&mut window, 0).has_unwritten_steps());
    end(&mut window, false);
    assert!(
        called(&mut window, 0).has_unwritten_steps() && called(&mut window, 0).journal.is_empty(),
        "the abort undoes everything"
    );
    called(&mut window, 0).reported_steps.as_mut().unwrap().written_ms = Some(11);
    assert_eq!(commit(&mut window), [(5, 11)]);
    let called = called(&mut window, 0);
    assert_eq!(called.journal.as_journal().steps().collect::<Vec<_>>(), [step.as_step()]);
    assert_eq!((called.call.first_attempt_at_ms(), called.reported_steps.is_none()), (Some(11), true));
}

#[test]
fn release_is_due_once_unless_its_transaction_is_aborted() {
    let mut window = window(&[], 0..1);
    handled(&mut window, 0);
    let event = Event::Withdrawn { attempt: 1 };
    called(&mut window, 0).apply_event(&policy(), event, NOW, &mut |_| 0);
    let due = |window: &Window| Portion::Releases.due_slots(window).count();
    assert_eq!(
        (due(&window), Portion::All.due_slots(&window).count()),
        (1, 0),
        "the call was reserved, and no attempt has acted"
    );
    called(&mut window, 0).is_released = true;
    assert_eq!(due(&window), 0);
    // If releases take several transactions, each is written only once.
    end(&mut window, true);
    assert_eq!((due(&window), after_commit(&window).0), (0, 0), "a release settles nothing");
    end(&mut window, false);
    assert_eq!(due(&window), 1, "the abort undoes everything");
}

#[test]
fn command_sees_open_identities_and_records_not_yet_judged() {
    let mut window = window(&[(6, 8)], 0..4);
    assert!(!window.is_open(&[1]), "nothing is judged yet");
    let unjudged = |window: &Window| (0..10).filter(|offset| window.will_judge(*offset)).collect::<Vec<_>>();
    assert_eq!(unjudged(&window), [0, 1, 2, 3, 4, 5, 8, 9], "a former owner has settled two records");
    write(&mut window, &[1]);
    assert!(window.is_open(&[1]) && !window.is_open(&[2]));
    assert_eq!(unjudged(&window), [0, 2, 3, 4, 5, 8, 9], "the open record is already judged");
    end(&mut window, true);
    assert!(!window.is_open(&[1]));
    assert_eq!(window.stream_time(), 30, "stream time after all records that were read");
    // The task stops before a record, and a command settles that record.
    let stops = |window: &mut Window| window.slot_mut(0).stage = SlotStage::MustStopTask("in doubt".to_owned());
    stops(&mut window);
    assert!(!window.is_open(&[1]) && !window.will_judge(0));
    window.judge_again(&[2]);
    assert!(matches!(window.slot(0).stage, SlotStage::MustStopTask(_)), "the record has another identity");
    window.needs_processing = false;
    window.judge_again(&[1]);
    assert!(matches!(window.slot(0).stage, SlotStage::Unjudged) && window.needs_processing);
}
