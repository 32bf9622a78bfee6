//! Goal: over hours of steady load on real Apache Kafka, with instances that come, go, are restarted and killed, and
//! brokers that are restarted and killed, nothing is lost, repeated or torn; nothing grows without bound; nothing
//! hangs. The judge is the checker that the other tests of real Kafka use: it shares no code with the program.
//!
//! - `plan`: how long, and how much of everything
//! - `stage`: three brokers and their controller, a job, its instances and its feed
//! - `turmoil`: what happens to them, each kind once in a round, in random order
//! - `watch`: observes all of it from outside every two seconds; prints a line of progress every ten
//! - `figures`: the results as a table, and whether something has grown
//! - `page`: docs/dev/soak.md, written after an hour or more
//!
//! `make soak HOURS=2` runs it. `RATCHET_TEST_SEED` repeats the random choices. With
//! `RATCHET_TEST_DATA_PATH=librdkafka` lanes are librdkafka's, and no page is written: it is about the default. Logs are
//! left in the target folder below `kafka-VERSION/runs`. The judge holds all records in memory: half a gigabyte for each
//! million of the input.
#![allow(
    clippy::disallowed_methods,
    reason = "the tests observe a running system from outside: they have a clock and may wait"
)]

use ratchet_testkit::{checker, job, kafka, load, operator, pages, replicated, until};

mod figures;
mod page;
mod plan;
mod stage;
mod turmoil;
mod watch;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Duration;

use figures::Figures;
use plan::Plan;
use stage::Stage;

/// How long setting up, draining and judging may take besides the soak itself; beyond that, something hangs.
const BESIDE_MAX: Duration = Duration::from_secs(30 * 60);

fn main() -> ExitCode {
    let plan = match Plan::from_environment() {
        Ok(plan) => plan,
        Err(mistake) => {
            eprintln!("{mistake}");
            return ExitCode::FAILURE;
        }
    };
    let limit = plan.duration + BESIDE_MAX;
    std::thread::spawn(move || {
        std::thread::sleep(limit);
        eprintln!("FAILED: the soak has not ended after {limit:?}");
        std::process::exit(1);
    });
    // The panic has been printed.
    let Ok(figures) = catch_unwind(AssertUnwindSafe(|| soak(&plan))) else {
        eprintln!("FAILED");
        return ExitCode::FAILURE;
    };
    let file = kafka::target_folder().join("soak.md");
    let table = figures.table();
    println!("\n{table}");
    if let Err(error) = std::fs::write(&file, &table) {
        eprintln!("{}: {error}", file.display());
    }
    let complaints = figures.complaints();
    if complaints.is_empty() {
        if plan.duration >= page::DURATION_MIN && kafka::is_on_the_wire() {
            println!("{}", page::write(&table));
        }
        return ExitCode::SUCCESS;
    }
    complaints.iter().for_each(|complaint| eprintln!("FAILED: {complaint}"));
    ExitCode::FAILURE
}

fn soak(plan: &Plan) -> Figures {
    let mut stage = Stage::set(plan);
    let watch = watch::begin(&stage, plan);
    let events = turmoil::make(&mut stage, plan, &watch);
    let (written, drained) = stage.drain();
    let watched = watch.end();
    let (errors, dirs) = (stage.errors_logged(), stage.state_dirs());
    let dirs: Vec<&std::path::Path> = dirs.iter().map(|dir| dir.as_path()).collect();
    let found = checker::check(&stage.job, &dirs);
    found.assert_each_fate();
    Figures { plan: plan.clone(), written, drained, events, watched, errors, found }
}
