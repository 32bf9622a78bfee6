//! Goal: whatever the network does, above all around the end of a transaction, when nobody can know whether it was
//! committed, nothing is lost or repeated, and once the network is well again the work continues.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::frames::{END_TXN, PRODUCE, TXN_OFFSET_COMMIT};
use crate::proxy::{Condition, Fault, Plan};
use crate::report::Report;
use crate::stage::{BROKER_RECOVERY_MAX, Stage};
use crate::three::{Three, lock};

const ROUNDS: usize = 5;
/// How long a fault lasts: longer than a session and a transaction.
const LASTS: Duration = Duration::from_secs(5);

/// Injects the fault again and again, with quiet times in between, in which everything has to make progress. `fault`
/// returns how often it has happened; the proxies count what they do around requests.
fn through(report: &mut Report, theme: &str, fault: impl Fn(&Three, &Stage, usize) -> u64) {
    let three = lock();
    three.reset();
    let mut stage = Stage::set(three.job(theme), 2);
    let before = three.fault_count();
    for round in 0..ROUNDS {
        report.injected(fault(&three, &stage, round));
        three.set_plan(None);
        three.set_condition(Condition::Clear);
        stage.recover(report, Instant::now(), BROKER_RECOVERY_MAX);
        stage.operators.iter_mut().for_each(|operator| operator.assert_running());
    }
    report.injected(three.fault_count() - before);
    stage.finish(report);
}

/// Does something around one in this many requests of a kind.
fn around(report: &mut Report, theme: &str, api_key: i16, one_in: u64, fault: Fault) {
    through(report, theme, |three, _, _| {
        three.set_plan(Some(Plan { api_key, one_in, fault }));
        sleep(LASTS);
        0
    });
}

pub fn cut_before_the_end(report: &mut Report) {
    around(report, "cut-before", END_TXN, 3, Fault::CutBefore);
}

pub fn cut_after_the_end(report: &mut Report) {
    around(report, "cut-after", END_TXN, 3, Fault::CutAfter);
}

/// Shorter than a transaction may be open.
pub fn late_end(report: &mut Report) {
    around(report, "late-end", END_TXN, 5, Fault::HoldBack(Duration::from_millis(1500)));
}

/// Longer than a transaction may be open.
pub fn very_late_end(report: &mut Report) {
    around(report, "very-late-end", END_TXN, 10, Fault::HoldBack(Duration::from_secs(5)));
}

/// The client has given up the connection; its request arrives when the next one may be in progress.
pub fn end_out_of_the_past(report: &mut Report) {
    around(report, "past-end", END_TXN, 5, Fault::DeliverLate(Duration::from_millis(700)));
}

pub fn offsets_out_of_the_past(report: &mut Report) {
    around(report, "past-offsets", TXN_OFFSET_COMMIT, 5, Fault::DeliverLate(Duration::from_millis(700)));
}

pub fn records_out_of_the_past(report: &mut Report) {
    around(report, "past-records", PRODUCE, 20, Fault::DeliverLate(Duration::from_millis(700)));
}

/// All brokers, and every other time only one; every third time the connections are reset at the end. If none can be
/// reached, nothing makes progress.
pub fn black_hole(report: &mut Report) {
    through(report, "black-hole", |three, stage, round| {
        if round % 2 == 0 {
            three.set_condition(Condition::BlackHole);
            assert_still(stage);
        } else {
            three.set_condition_at(round % 3, Condition::BlackHole);
            sleep(LASTS);
        }
        if round % 3 == 2 {
            three.reset();
        }
        1
    });
}

/// Takes as long as the fault lasts. The stage queries the brokers directly, not through the proxies.
fn assert_still(stage: &Stage) {
    const MOMENT: Duration = Duration::from_secs(1);
    // Brokers still finish what they have received.
    sleep(MOMENT);
    let before = stage.committed();
    sleep(2 * MOMENT);
    assert_eq!(stage.committed(), before, "something passed through the black hole");
    sleep(LASTS - 3 * MOMENT);
}

pub fn resets(report: &mut Report) {
    through(report, "resets", |three, _, _| {
        let (start, mut resets) = (Instant::now(), 0);
        while start.elapsed() < LASTS {
            three.reset();
            resets += 1;
            sleep(Duration::from_millis(300));
        }
        resets
    });
}

pub fn refused_connections(report: &mut Report) {
    through(report, "refusing", |three, _, _| {
        three.set_condition(Condition::Refusing);
        three.reset();
        sleep(LASTS);
        1
    });
}

/// Less than the load needs.
pub fn throttle(report: &mut Report) {
    const BYTES_PER_SECOND: u64 = 10_000;
    through(report, "throttle", |three, _, _| {
        three.set_condition(Condition::Throttled(BYTES_PER_SECOND));
        sleep(2 * LASTS);
        1
    });
}
