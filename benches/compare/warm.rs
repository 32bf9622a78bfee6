//! The broker's warm-up. A broker that was just started compiles its own code while it works: for the first half
//! minute that takes a third of its CPU time and more, at the contenders' expense.

use std::fs;
use std::time::{Duration, Instant};

use crate::contender::{COMMIT_MS, Contender};
use crate::failure::{Context as _, Outcome, fail};
use crate::generate::PARTITIONS;
use crate::part::Bench;
use crate::spec::{Spec, Work};

/// How long the broker is kept busy in each way.
const LENGTH: Duration = Duration::from_secs(20);
/// The transactions of contenders, and those that ratchet has at low load: the shorter they are, the more of the broker's
/// work is ending them.
const COMMITS_MS: [u64; 2] = [COMMIT_MS, 5];
/// How much longer it may take until the first commit.
const STALLED: Duration = Duration::from_secs(60);
/// How often the committed offsets are queried.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// Lets `floor-changelog` pass on an input of `records` records, again and again for [`LENGTH`], in each of
/// [`COMMITS_MS`]. Nothing is measured or kept.
pub fn broker(bench: &Bench, input: &str, records: u64) -> Outcome<()> {
    COMMITS_MS.into_iter().try_for_each(|commit_ms| broker_with(bench, input, records, commit_ms))
}

/// What [`broker`] does, for the page.
pub fn told() -> String {
    let ways = COMMITS_MS.map(|commit_ms| format!("for {} s with commits every {commit_ms} ms", LENGTH.as_secs()));
    ways.join(" and ")
}

fn broker_with(bench: &Bench, input: &str, records: u64, commit_ms: u64) -> Outcome<()> {
    bench.progress.say(format!("warming the broker up for {} s, commits every {commit_ms} ms", LENGTH.as_secs()));
    let until = Instant::now() + LENGTH;
    let mut topics = Vec::new();
    for number in 0.. {
        let name = format!("warm-{input}-{commit_ms}-{number}");
        // It passes on anything.
        let mut spec = Contender::FloorChangelog.spec(&bench.broker, &bench.folder, &name, Work::Ids, input);
        spec.commit_ms = commit_ms;
        pass(bench, &spec, records, until)?;
        fs::remove_dir_all(&spec.state_dir).context(spec.state_dir.display())?;
        topics.extend([spec.output, spec.changelog]);
        if Instant::now() >= until {
            break;
        }
    }
    // All at once at the end, since waiting for a deletion would leave the broker idle.
    bench.broker.delete(&topics.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Until everything is passed on, or the time is up. Waits for a first commit, since a process that was just started
/// does not handle signals yet.
fn pass(bench: &Bench, spec: &Spec, records: u64, until: Instant) -> Outcome<()> {
    bench.broker.create(&spec.output, PARTITIONS, &[])?;
    bench.broker.create(&spec.changelog, PARTITIONS, &[("cleanup.policy", "compact")])?;
    let watch = bench.broker.watch(&spec.group, &spec.input, PARTITIONS)?;
    let mut running = Contender::FloorChangelog.start(spec)?;
    loop {
        running.check()?;
        let done = watch.sum()?;
        if Instant::now() >= until + STALLED {
            fail!(
                "the broker takes too long to warm up: {done} of {records} records after {STALLED:?} more than planned"
            );
        }
        if done >= records || (done > 0 && Instant::now() >= until) {
            return running.stop().map(drop);
        }
        std::thread::sleep(ASK_EVERY);
    }
}
