//! Goal: every fault that docs/guarantees.md speaks of, made on real Apache Kafka with real processes, again and
//! again and under load, ends with everything right, or with a refusal that says what to do; and how long the work
//! stands still is bounded, and measured.
//!
//! - `scenarios`: the list; `kills`, `network`, `brokers`, `disk`, `topics`, `crowd`, `records`: what they do
//! - `stage`: a job under load; `three`: three brokers behind proxies; `proxy`, `frames`: what networks do
//! - `report`: what was found, as JSON lines in the target folder and as a table
//!
//! One scenario after the other, so that the times mean something. `make faults` runs all of them,
//! `make faults ARGS='broker kill'` those with one of these words in their name, `ARGS=--list` names them.
//! `RATCHET_TEST_SEED` repeats the random choices. Logs are left in the target folder below `kafka-4.1.0/runs`.
#![allow(
    clippy::disallowed_methods,
    reason = "the tests look at a running system from outside: they have a clock and may wait"
)]

#[path = "../support/checker/mod.rs"]
mod checker;
#[path = "../support/cluster/mod.rs"]
mod cluster;
#[path = "../support/hostile.rs"]
mod hostile;
#[path = "../support/job.rs"]
mod job;
#[path = "../support/kafka/mod.rs"]
mod kafka;
#[path = "../support/load.rs"]
mod load;
#[path = "../support/operator.rs"]
mod operator;
#[path = "../support/random.rs"]
mod random;
#[path = "../support/screen.rs"]
#[allow(dead_code, reason = "operators are looked at by their logs here")]
mod screen;
#[path = "../support/until.rs"]
mod until;

mod frames;
mod proxy;
mod report;
mod stage;
mod three;

mod brokers;
mod crowd;
mod disk;
mod kills;
mod network;
mod records;
mod scenarios;
mod topics;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use report::Report;
use scenarios::{SCENARIOS, Scenario};

/// Every wait within a scenario is bounded; this is for the scenario that goes on for ever in spite of that.
const SCENARIO_MAX: Duration = Duration::from_secs(15 * 60);

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().any(|arg| arg == "--list") {
        SCENARIOS.iter().for_each(|scenario| println!("{}: {}", scenario.name, scenario.fault));
        return ExitCode::SUCCESS;
    }
    let words: Vec<&String> = args.iter().filter(|arg| !arg.starts_with('-')).collect();
    let is_wanted = |scenario: &&Scenario| words.is_empty() || words.iter().any(|word| scenario.name.contains(*word));
    let wanted: Vec<&Scenario> = SCENARIOS.iter().filter(is_wanted).collect();
    if wanted.is_empty() {
        eprintln!("no scenario has one of {words:?} in its name; --list names them");
        return ExitCode::FAILURE;
    }
    let (file, mut reports) = (report::file(), Vec::new());
    report::begin(&file);
    for (nth, scenario) in (1..).zip(wanted.iter().copied()) {
        println!("\n=== {nth} of {}: {} ({})", wanted.len(), scenario.name, scenario.fault);
        let Some(report) = play(scenario) else {
            eprintln!("{} went on for more than {SCENARIO_MAX:?}", scenario.name);
            reports.push(Report::new(scenario.name, scenario.fault));
            break;
        };
        report::add(&file, &report);
        reports.push(report);
    }
    println!("\n{}", report::table(&reports));
    println!("{} holds the same as JSON lines", file.display());
    let failed: Vec<&str> = reports.iter().filter(|report| report.has_failed()).map(|report| report.name).collect();
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    eprintln!("failed: {}", failed.join(", "));
    ExitCode::FAILURE
}

/// Plays a scenario to its end, whatever that is; `None` where it has none.
fn play(scenario: &'static Scenario) -> Option<Report> {
    let (sender, receiver) = channel();
    let start = Instant::now();
    let thread = std::thread::Builder::new().name(scenario.name.to_owned()).spawn(move || {
        let mut report = Report::new(scenario.name, scenario.fault);
        // What went wrong was printed where it did.
        let is_through = catch_unwind(AssertUnwindSafe(|| (scenario.play)(&mut report))).is_ok();
        if !is_through {
            report.fail();
        }
        // Nobody listens any more once it has taken too long.
        let _ = sender.send(report);
    });
    thread.expect("a thread can be started");
    match receiver.recv_timeout(SCENARIO_MAX) {
        Ok(report) => {
            println!("=== {} took {:.0?}: {:?}", scenario.name, start.elapsed(), report.ending);
            Some(report)
        }
        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => None,
    }
}
