//! Goal: the faults that docs/guarantees.md names (except an unwritable output partition, which tests/kafka/faults.rs
//! covers), and more, injected into real Apache Kafka with real processes, most of them repeatedly and under load, end
//! with everything right, or with a refusal that says what to do; and how long the work is interrupted is bounded, and
//! measured.
//!
//! - `scenarios`: the list; `kills`, `network`, `brokers`, `apart`, `elections`, `disk`, `topics`, `crowd`, `records`:
//!   what they do
//! - `stage`: a job under load; `three`: three brokers behind proxies; `links`: proxies between them; `proxy`,
//!   `frames`: network faults
//! - `report`: a scenario's result; `page`: docs/dev/faults.md, written from the results; `console`: redirects what is
//!   printed
//!
//! Scenarios run one after the other, so that the times mean something. `make test` runs a few of them, briefly; `make
//! faults` runs all of them and writes docs/dev/faults.md, `make faults ARGS='broker kill'` those with one of these words
//! in their name (`=zombie` is that one alone), `ARGS=--list` names them. `RATCHET_TEST_SEED` repeats the random
//! choices. With `RATCHET_TEST_DATA_PATH=librdkafka` lanes are librdkafka's, and no results are kept: the page is
//! about the default. Logs are left in the target folder below `kafka-VERSION/runs`.
#![allow(
    clippy::disallowed_methods,
    reason = "the tests observe a running system from outside: they have a clock and may wait"
)]

use ratchet_testkit::{
    checker, cluster, commit, hostile, job, kafka, load, operator, pages, replicated, segment, until,
};

mod console;
mod frames;
mod links;
mod page;
mod proxy;
mod report;
mod stage;
mod three;

mod apart;
mod brokers;
mod crowd;
mod disk;
mod elections;
mod epochs;
mod kills;
mod network;
mod records;
mod scenarios;
mod topics;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use console::Console;
use report::Report;
use scenarios::{SCENARIOS, Scenario};

/// Every wait within a scenario is bounded; this is for a scenario that runs for ever all the same.
const SCENARIO_MAX: Duration = Duration::from_secs(10 * 60);

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let has_flag = |flag: &str| args.iter().any(|arg| arg == flag);
    if has_flag("--list") {
        SCENARIOS.iter().for_each(|scenario| println!("{}: {}", scenario.name, scenario.fault));
        return ExitCode::SUCCESS;
    }
    let is_thorough = has_flag("--all");
    let words: Vec<&String> = args.iter().filter(|arg| !arg.starts_with('-')).collect();
    let is_wanted = |scenario: &&Scenario| {
        (is_thorough || scenario.brief) && (words.is_empty() || words.iter().any(|word| scenario.is_called(word)))
    };
    let wanted: Vec<&'static Scenario> = SCENARIOS.iter().filter(is_wanted).collect();
    // Cargo passes its arguments to every test binary: those meant for others match nothing here.
    if wanted.is_empty() && is_thorough {
        eprintln!("no scenario has one of {words:?} in its name; --list names them");
        return ExitCode::FAILURE;
    }
    // The page is about what is the default.
    let keeps = is_thorough && kafka::is_on_the_wire();
    let failed = play_all(&wanted, is_thorough, keeps);
    // Even if some have failed: the page has to say so.
    if keeps {
        println!("{}", page::write());
    }
    if !failed.is_empty() {
        eprintln!("failed: {}", failed.join(", "));
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Runs the scenarios one after the other, printing a line each, and keeps their results if it should; returns the names
/// of those that failed.
fn play_all(wanted: &[&'static Scenario], is_thorough: bool, keeps: bool) -> Vec<&'static str> {
    let (start, mut played, mut failed) = (Instant::now(), 0, Vec::new());
    for (nth, scenario) in (1..).zip(wanted.iter().copied()) {
        let mut console = Console::begin(scenario.name);
        console.say(&format!("[{nth}/{}] {}: {} ... ", wanted.len(), scenario.name, scenario.fault));
        let began = Instant::now();
        let report = play(scenario, is_thorough);
        let took = began.elapsed().as_secs_f64();
        played = nth;
        match &report {
            Some(report) if !report.has_failed() => {
                console.say(&format!("{} ({took:.0} s)\n", report.summary()));
                if keeps {
                    report.keep(took);
                }
            }
            _ => {
                console.say(&format!("FAILED ({took:.0} s)\n"));
                console.show();
                if keeps {
                    report::forget(scenario.name);
                }
                failed.push(scenario.name);
            }
        }
        if report.is_none() {
            console.say(&format!("{} did not end within {SCENARIO_MAX:?}; no more are run\n", scenario.name));
            break;
        }
    }
    println!("{played} scenarios in {:.0} s, {} failed", start.elapsed().as_secs_f64(), failed.len());
    failed
}

/// Runs a scenario to its end, successful or not; `None` if it takes too long.
fn play(scenario: &'static Scenario, is_thorough: bool) -> Option<Report> {
    let (sender, receiver) = channel();
    let thread = std::thread::Builder::new().name(scenario.name.to_owned()).spawn(move || {
        let mut report = Report::new(scenario.name, is_thorough);
        // The panic has been printed.
        let is_through = catch_unwind(AssertUnwindSafe(|| (scenario.play)(&mut report))).is_ok();
        if !is_through {
            report.fail();
        }
        // The receiver is gone if it has taken too long.
        let _ = sender.send(report);
    });
    thread.expect("a thread can be started");
    receiver.recv_timeout(SCENARIO_MAX).ok()
}
