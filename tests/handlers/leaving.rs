//! Goal: a program that is stopped while a step takes longer than it waits for leaves that step to the next owner, who
//! does it again under its key; without one it is in doubt, and nothing else is.

use std::time::{Duration, Instant};

use crate::handlers::work::Work;
use crate::provider::Move;
use crate::until::{DEADLINE, within};

/// Longer than a stop waits.
const LONG: Duration = Duration::from_secs(24);

/// Payments of which one is at its second step, for long, when the program is told to stop.
fn stopped(lines: &[&str]) -> Work {
    let mut work = Work::of("payment", lines, Vec::new());
    work.job.topology[0] = work.job.topology[0].replace("timeout: 5s", "timeout: 40s");
    work.provider.script("/capture/o-0", [Move::receipt().late(LONG)]);
    let payment = |id: usize| (id, format!("{{\"id\":\"o-{id}\",\"amount\":5}}"));
    work.send((0..4).map(payment));
    let mut first = work.start("a", None);
    within(DEADLINE, "the others to be paid", || (work.acts().len() == 3 * 3 + 2).then_some(()));
    let since = Instant::now();
    // SIGTERM ends it cleanly, and in time.
    first.stop();
    // It has waited, and not for the step.
    assert!(since.elapsed() > Duration::from_secs(15) && since.elapsed() < LONG, "{:?}", since.elapsed());
    work
}

fn asked(work: &Work, target: &str) -> usize {
    work.provider.seen().iter().filter(|seen| seen.target == target).count()
}

#[test]
fn step_that_outlasts_a_stop_is_done_again_under_its_key() {
    let work = stopped(&["honoured_for: 24h"]);
    let mut heir = work.start("b", None);
    let ends = work.ends();
    assert!((0..4).all(|id| ends[&format!("o-{id}")].results.len() == 1), "{ends:?}");
    assert!(ends.values().all(|end| end.letters.is_empty()), "{ends:?}");
    let acts = work.acts();
    assert!(acts.len() == 12 && acts.values().all(|acts| *acts == 1), "{acts:?}");
    // What was committed before is not asked for again.
    let steps = ["authorise", "capture", "receipt"].map(|step| asked(&work, &format!("/{step}/o-0")));
    assert_eq!(steps, [1, 2, 1]);
    heir.stop();
}

#[test]
fn step_that_outlasts_a_stop_is_in_doubt_without_a_key() {
    let work = stopped(&["on_in_doubt: dead_letter"]);
    let mut heir = work.start("b", None);
    let (ends, acts) = (work.ends(), work.acts());
    assert_eq!((&ends["o-0"].letters[..], ends["o-0"].results.len()), (&["in_doubt".to_owned()][..], 0), "{ends:?}");
    assert!((1..4).all(|id| ends[&format!("o-{id}")].results.len() == 1), "{ends:?}");
    assert!(acts.values().all(|acts| *acts == 1) && !acts.contains_key("/receipt/o-0"), "{acts:?}");
    assert_eq!(asked(&work, "/capture/o-0"), 1);
    heir.stop();
}
