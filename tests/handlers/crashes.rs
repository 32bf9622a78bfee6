//! Goal: whatever dies and whenever, each step acts once, and the result is what the steps gave (a resumable handler with
//! recovery points).

use std::time::Duration;

use crate::handlers::work::{RECOVERY, Work};
use crate::provider::Move;

const KEYED: &str = "honoured_for: 24h";
const STEPS: [&str; 3] = ["authorise", "capture", "receipt"];
/// In the middle of steps, between them, before and after settlements.
const POINTS: [&str; 6] =
    ["after_step:1", "after_step:25", "before_submit:9", "after_answer:3", "after_commit:4", "after_sends:5"];

fn payments(ids: std::ops::Range<usize>) -> impl Iterator<Item = (usize, String)> {
    ids.map(|id| (id, format!("{{\"id\":\"o-{id}\",\"amount\":{id}}}")))
}

/// Each payment's three steps have acted once, and its result is made of what they gave.
#[track_caller]
fn assert_paid_once(work: &Work, count: usize) {
    let (ends, acts, receipts) = (work.ends(), work.acts(), work.provider.receipts());
    for id in (0..count).map(|id| format!("o-{id}")) {
        let targets = STEPS.map(|step| format!("/{step}/{id}"));
        assert_eq!(targets.each_ref().map(|target| acts.get(target)), [Some(&1); 3], "{id}");
        let [one, two, three] = targets.each_ref().map(|target| receipts[target].replace('"', "\\\""));
        let paid = format!("{{\"authorisation\":\"{one}\",\"capture\":\"{two}\",\"receipt\":\"{three}\"}}");
        assert_eq!(ends[&id].results, [("done".to_owned(), paid)], "{id}");
        assert!(ends[&id].letters.is_empty(), "{id}: {:?}", ends[&id]);
    }
    assert_eq!(acts.len(), 3 * count);
}

/// A row of the pattern: a program that dies at any point goes on after the steps that are done.
#[test]
fn resumable_handler_with_recovery_points() {
    for point in POINTS {
        let work = Work::of("payment", &[KEYED], Vec::new());
        work.provider.always(Move::receipt().late(Duration::from_millis(20)));
        work.send(payments(0..30).chain(payments(0..10)));
        let mut first = work.start("a", Some(point));
        first.await_crash();
        first.kill_and_wipe();
        let mut heir = work.start("b", None);
        work.send(payments(0..30));
        assert_paid_once(&work, 30);
        heir.stop();
    }
}

#[test]
fn steps_that_fail_are_tried_again_alone() {
    let work = Work::of("payment", &[KEYED], Vec::new()).answering_duplicates();
    for id in 0..6 {
        let moves = [Move::answer(500), Move::act().unheard(), Move::reset(), Move::answer(503)];
        work.provider.script(&format!("/{}/o-{id}", STEPS[id % 3]), moves);
    }
    work.send(payments(0..6));
    let mut operator = work.start("a", None);
    let ends = work.ends();
    for id in 0..6 {
        for step in STEPS {
            let acts = work.acts();
            assert_eq!(
                acts.get(&format!("/{step}/o-{id}")),
                Some(&1),
                "{step} of {id}: {:?}",
                ends[&format!("o-{id}")]
            );
        }
    }
    // Only the step that failed was asked for again.
    let seen = work.provider.seen();
    let asked = |target: &str| seen.iter().filter(|seen| seen.target == target).count();
    for id in 0..6 {
        assert_eq!(STEPS.map(|step| asked(&format!("/{step}/o-{id}"))), {
            let mut expected = [1; 3];
            expected[id % 3] = 5;
            expected
        });
    }
    // A duplicate gets what the first one got.
    work.send(payments(2..3));
    let ends = work.ends();
    let [first, second] = &ends["o-2"].results[..] else { panic!("{ends:?}") };
    assert_eq!(first, second);
    operator.stop();
}

#[test]
fn without_keys_a_step_that_may_have_acted_is_in_doubt_and_others_are_not() {
    for point in ["after_step:20", "before_submit:9", "after_commit:6"] {
        let work = Work::of("payment", &["on_in_doubt: dead_letter", "in_flight: 4"], Vec::new());
        work.provider.always(Move::receipt().late(Duration::from_millis(20)));
        work.send(payments(0..30));
        let mut first = work.start("a", Some(point));
        first.await_crash();
        first.kill_and_wipe();
        let mut heir = work.start("b", None);
        let (ends, acts) = (work.ends(), work.acts());
        let mut doubted = 0;
        for id in (0..30).map(|id| format!("o-{id}")) {
            let end = &ends[&id];
            assert_eq!(end.results.len() + end.letters.len(), 1, "{id}: {end:?}");
            assert!(
                STEPS.iter().all(|step| acts.get(&format!("/{step}/{id}")).copied().unwrap_or_default() <= 1),
                "{id}"
            );
            match &end.letters[..] {
                [] => assert!(STEPS.iter().all(|step| acts.contains_key(&format!("/{step}/{id}"))), "{id}"),
                [reason] => {
                    assert_eq!(reason, "in_doubt");
                    doubted += 1;
                }
                _ => unreachable!(),
            }
        }
        println!("{point}: {doubted} of 30 in doubt");
        // Those that were under way.
        assert!(doubted <= 4, "{point}: {doubted} are in doubt");
        heir.stop();
    }
}

#[test]
fn program_that_is_stopped_leaves_nothing_in_doubt() {
    let work = Work::of("payment", &["on_in_doubt: dead_letter"], Vec::new());
    work.provider.always(Move::receipt().late(Duration::from_millis(50)));
    work.send(payments(0..40));
    let mut first = work.start("a", None);
    crate::until::within(RECOVERY, "some to be paid", || (work.acts().len() > 20).then_some(()));
    first.stop();
    let mut heir = work.start("b", None);
    let (ends, acts) = (work.ends(), work.acts());
    assert!(ends.values().all(|end| end.results.len() == 1 && end.letters.is_empty()), "{ends:?}");
    assert!(acts.len() == 120 && acts.values().all(|acts| *acts == 1), "{acts:?}");
    heir.stop();
}
