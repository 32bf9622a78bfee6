//! Goal: whatever the network does, above all around the end of a transaction, where it cannot be known whether it
//! was committed, nothing is lost or repeated, and when it is well again the work goes on.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::frames::{END_TXN, PRODUCE, TXN_OFFSET_COMMIT};
use crate::proxy::{Deed, Plan, Weather};
use crate::report::Report;
use crate::stage::{BROKER_RECOVERY_MAX, Stage};
use crate::three::{Three, lock};

const ROUNDS: usize = 5;
/// For how long a fault lasts: longer than a session and a transaction.
const LASTS: Duration = Duration::from_secs(5);

/// Lets the fault happen again and again, with quiet times between, in which everything has to go on. `fault` answers
/// how often it has happened; what is done around requests is counted by the proxies.
fn through(report: &mut Report, theme: &str, fault: impl Fn(&Three, &Stage, usize) -> u64) {
    let three = lock();
    three.reset();
    let mut stage = Stage::set(three.job(theme), 2);
    let before = three.deeds();
    for round in 0..ROUNDS {
        report.injected(fault(&three, &stage, round));
        three.set_plan(None);
        three.set_weather(Weather::Clear);
        stage.recover(report, Instant::now(), BROKER_RECOVERY_MAX);
        stage.operators.iter_mut().for_each(|operator| operator.assert_running());
    }
    report.injected(three.deeds() - before);
    stage.finish(report);
}

/// Does something around one in so many requests of a kind.
fn around(report: &mut Report, theme: &str, api_key: i16, one_in: u64, deed: Deed) {
    through(report, theme, |three, _, _| {
        three.set_plan(Some(Plan { api_key, one_in, deed }));
        sleep(LASTS);
        0
    });
}

pub fn cut_before_the_end(report: &mut Report) {
    around(report, "cut-before", END_TXN, 3, Deed::CutBefore);
}

pub fn cut_after_the_end(report: &mut Report) {
    around(report, "cut-after", END_TXN, 3, Deed::CutAfter);
}

/// Shorter than a transaction may be open.
pub fn a_late_end(report: &mut Report) {
    around(report, "late-end", END_TXN, 5, Deed::HoldBack(Duration::from_millis(1500)));
}

/// Longer than a transaction may be open.
pub fn a_very_late_end(report: &mut Report) {
    around(report, "very-late-end", END_TXN, 10, Deed::HoldBack(Duration::from_secs(5)));
}

/// The client has given the connection up; its request comes when the next one may be at work.
pub fn an_end_out_of_the_past(report: &mut Report) {
    around(report, "past-end", END_TXN, 5, Deed::DeliverLate(Duration::from_millis(700)));
}

pub fn offsets_out_of_the_past(report: &mut Report) {
    around(report, "past-offsets", TXN_OFFSET_COMMIT, 5, Deed::DeliverLate(Duration::from_millis(700)));
}

pub fn records_out_of_the_past(report: &mut Report) {
    around(report, "past-records", PRODUCE, 20, Deed::DeliverLate(Duration::from_millis(700)));
}

/// All brokers, and every other time only one; every third time connections end with it. Where none can be reached,
/// nothing goes on.
pub fn a_black_hole(report: &mut Report) {
    through(report, "black-hole", |three, stage, round| {
        if round % 2 == 0 {
            three.set_weather(Weather::BlackHole);
            assert_still(stage);
        } else {
            three.set_weather_at(round % 3, Weather::BlackHole);
            sleep(LASTS);
        }
        if round % 3 == 2 {
            three.reset();
        }
        1
    });
}

/// Takes as long as the fault lasts. The stage asks the brokers themselves, past the proxies.
fn assert_still(stage: &Stage) {
    const MOMENT: Duration = Duration::from_secs(1);
    // What brokers had at hand they still end.
    sleep(MOMENT);
    let before = stage.committed();
    sleep(2 * MOMENT);
    assert_eq!(stage.committed(), before, "something has passed through the black hole");
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
        three.set_weather(Weather::Refusing);
        three.reset();
        sleep(LASTS);
        1
    });
}

/// Less than the load.
pub fn a_throttle(report: &mut Report) {
    const BYTES_PER_SECOND: u64 = 10_000;
    through(report, "throttle", |three, _, _| {
        three.set_weather(Weather::Throttled(BYTES_PER_SECOND));
        sleep(2 * LASTS);
        1
    });
}
