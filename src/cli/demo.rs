//! `ratchet demo`: a run, a crash and a recovery on the embedded cluster, in seconds.
//!
//! The same job processes the same sample twice: once undisturbed; and once it is killed by SIGKILL
//! mid-transaction, loses its state folder, and restarts with nothing but the topics. Then the two
//! outputs are compared, partition by partition, byte for byte.
//!
//! The operator is `ratchet run` itself, as a child process (see [`operator`]). All numbers shown are
//! its own counts or read from the topics. The story goes to standard output, the progress bar to
//! standard error.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::Failure;
use crate::cluster;

mod check;
mod operator;
mod sample;
mod screen;
mod site;

use check::{Comparison, compare};
use operator::{Counts, Ended, Job, Operator, Program};
use screen::{Screen, count, per_second, seconds, size};
use site::{JobState, Site};

const EXAMPLES: &str = "\
Examples:
  ratchet demo

  # with more records; keeps the topics, stores and logs
  ratchet demo --records 2000000 --dir /tmp/demo

Exit codes: 0 the outputs are equal, 1 they are not or the run failed,
2 the input is wrong.";

/// How many records the sample has by default.
const RECORDS_DEFAULT: u64 = 200_000;
/// With fewer, hardly anything would precede the transaction that is killed.
const RECORDS_MIN: u64 = 50_000;
const RECORDS_MAX: u64 = 50_000_000;
/// About how many transactions a run should take; large batches may make it fewer.
const TRANSACTIONS: u64 = 40;

/// Options of `ratchet demo`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Keep topics, stores, configuration and logs in this folder, which must be new or empty
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,

    /// How many change events to write to the sample topic, 50,000 to 50,000,000
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = RECORDS_DEFAULT,
        value_parser = clap::value_parser!(u64).range(RECORDS_MIN..=RECORDS_MAX)
    )]
    records: u64,
}

/// Why the demo ended early, or with the wrong result.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("{0}")]
    Cluster(#[from] cluster::Error),
    #[error("{0}")]
    Operator(#[from] operator::Error),
    #[error("{what} {}: {source}", .path.display())]
    Folder { what: &'static str, path: PathBuf, source: io::Error },
    #[error("{} is not empty; choose a new folder, or leave --dir out", .0.display())]
    Occupied(PathBuf),
    #[error("the sample that ships with the program cannot be read: {0}")]
    Sample(#[from] serde_json::Error),
    #[error("cannot write to standard output: {0}")]
    Output(#[from] io::Error),
    #[error("the run counted {counted} records instead of {expected}")]
    Miscounted { counted: u64, expected: u64 },
    #[error("the output differs from that of the undisturbed run; the folder {} is kept", .0.display())]
    Differs(PathBuf),
}

/// Runs the demo. Fails unless the outputs are equal.
pub fn run(args: &Args) -> Result<(), Failure> {
    let program = Program::this().map_err(|error| Failure::run(&error))?;
    tell_in_folder(args, program).map_err(|error| match error {
        Error::Output(error) => Failure::output(&error),
        Error::Occupied(_) => Failure::input(error.to_string(), "the demo needs an empty folder"),
        error => Failure::run(&error),
    })
}

/// Tells the story in the given folder, or in a temporary one.
fn tell_in_folder(args: &Args, mut operator: impl Operator) -> Result<(), Error> {
    let folder_error = |what, path: &Path| {
        let path = path.to_owned();
        move |source| Error::Folder { what, path, source }
    };
    let (dir, temporary) = match &args.dir {
        Some(dir) => {
            fs::create_dir_all(dir).map_err(folder_error("cannot create the folder", dir))?;
            let mut entries = fs::read_dir(dir).map_err(folder_error("cannot read the folder", dir))?;
            if entries.next().is_some() {
                return Err(Error::Occupied(dir.clone()));
            }
            (dir.clone(), None)
        }
        None => {
            let temporary = tempfile::Builder::new().prefix("ratchet-demo-").tempdir();
            let temporary = temporary.map_err(folder_error("cannot create a folder in", &std::env::temp_dir()))?;
            (temporary.path().to_owned(), Some(temporary))
        }
    };
    let mut screen = Screen::new(io::stdout());
    let result = Story { dir: &dir, records: args.records, screen: &mut screen, operator: &mut operator }.tell();
    if let (Err(Error::Differs(_)), Some(temporary)) = (&result, temporary) {
        // Kept for inspection, as the message says.
        let _ = temporary.keep();
    } else if result.is_ok() && args.dir.is_some() {
        screen.line(format_args!("Topics, stores, configuration and logs are in {}.", dir.display()))?;
    }
    result
}

/// The story, and what it needs.
struct Story<'a, O, W> {
    dir: &'a Path,
    records: u64,
    screen: &'a mut Screen<W>,
    operator: &'a mut O,
}

impl<O: Operator, W: Write> Story<'_, O, W> {
    fn tell(&mut self) -> Result<(), Error> {
        let started = now();
        let undisturbed = Site::make(&self.dir.join("undisturbed"), self.commit_records())?;
        let killed = Site::make(&self.dir.join("killed"), self.commit_records())?;
        self.load(&[&undisturbed, &killed])?;
        let transactions = self.run_undisturbed(&undisturbed)?;
        // About in the middle; the two runs need not have the same transactions.
        let progress = self.run_and_kill(&killed, (transactions / 2).max(1))?;
        self.run_again(&killed, &progress)?;
        self.check(&undisturbed, &killed)?;
        let took = seconds(started.elapsed());
        self.screen.line(format_args!("\nNothing lost, nothing twice, nothing out of order. {took} in all."))?;
        Ok(())
    }

    /// How many records a transaction has: few enough that the run can be killed in the middle.
    fn commit_records(&self) -> u64 {
        (self.records / TRANSACTIONS).max(1)
    }

    fn load(&mut self, sites: &[&Site]) -> Result<(), Error> {
        self.screen.line(format_args!(
            "A topic of change events: {} records on {} partitions, the sample that ships with ratchet and\n\
             more of its kind, with duplicates and late versions among them.",
            count(self.records),
            sample::PARTITIONS
        ))?;
        let bar = self.screen.bar("written", self.records * sites.len() as u64);
        for (index, site) in sites.iter().enumerate() {
            let before = self.records * index as u64;
            site.load(self.records, |loaded| bar.set_position(before + loaded))?;
        }
        bar.finish_and_clear();
        Ok(())
    }

    /// Runs the job with a bar that starts at `before`.
    fn operate(&mut self, site: &Site, before: u64, fatal_transaction: Option<u64>) -> Result<Ended, Error> {
        let bar = self.screen.bar("in", self.records);
        bar.set_position(before);
        let job = Job { site, expected: self.records - before, fatal_transaction };
        let ended = self.operator.run(&job, &mut |counts: &Counts| {
            bar.set_position(before + counts.total());
            let (forwarded, duplicate, stale) = (count(counts.forwarded), count(counts.duplicate), count(counts.stale));
            bar.set_message(format!("in: {forwarded} forwarded, {duplicate} duplicates, {stale} stale"));
        });
        bar.finish_and_clear();
        Ok(ended?)
    }

    /// Returns how many transactions it took.
    fn run_undisturbed(&mut self, site: &Site) -> Result<u64, Error> {
        self.screen.line(format_args!("\n1  The job, undisturbed"))?;
        let ended = self.operate(site, 0, None)?;
        self.show_counts(&ended)?;
        self.expect_count(&ended, self.records)?;
        Ok(ended.counts.transactions)
    }

    fn run_and_kill(&mut self, site: &Site, fatal_transaction: u64) -> Result<JobState, Error> {
        self.screen.line(format_args!("\n2  The same job over the same records, killed (SIGKILL) mid-transaction"))?;
        self.operate(site, 0, Some(fatal_transaction))?;
        let progress = site.progress()?;
        self.screen.line(format_args!(
            "   committed until then: {} records in, {} forwarded; what its open transaction held is discarded",
            count(progress.processed),
            count(progress.forwarded)
        ))?;
        let removed = site.remove_state()?;
        self.screen.line(format_args!("   its state folder is removed ({})", size(removed)))?;
        Ok(progress)
    }

    fn run_again(&mut self, site: &Site, progress: &JobState) -> Result<(), Error> {
        self.screen.line(format_args!("\n3  Started again, with nothing but the topics"))?;
        let ended = self.operate(site, progress.processed, None)?;
        let restored = &ended.restored;
        self.screen.line(format_args!(
            "   store rebuilt from the changelog: {} records in {}{}",
            count(restored.records),
            seconds(restored.took),
            per_second(restored.records, restored.took)
        ))?;
        self.show_counts(&ended)?;
        self.expect_count(&ended, self.records - progress.processed)
    }

    fn show_counts(&mut self, ended: &Ended) -> Result<(), Error> {
        let Counts { forwarded, duplicate, stale, other, .. } = ended.counts;
        let total = ended.counts.total();
        let other = if other > 0 { format!(", {} other", count(other)) } else { String::new() };
        self.screen.line(format_args!(
            "   {} records in: {} forwarded, {} duplicates, {} stale{other}; {}{}",
            count(total),
            count(forwarded),
            count(duplicate),
            count(stale),
            seconds(ended.took),
            per_second(total, ended.took)
        ))?;
        Ok(())
    }

    fn expect_count(&self, ended: &Ended, expected: u64) -> Result<(), Error> {
        let counted = ended.counts.total();
        if counted == expected { Ok(()) } else { Err(Error::Miscounted { counted, expected }) }
    }

    fn check(&mut self, undisturbed: &Site, killed: &Site) -> Result<(), Error> {
        self.screen.line(format_args!("\n4  Is its output the one of the undisturbed run?"))?;
        let (undisturbed, killed) = (undisturbed.open()?, killed.open()?);
        let mut equal = true;
        for partition in 0..sample::PARTITIONS {
            let compared = compare(&undisturbed, &killed, sample::OUTPUT, partition)?;
            equal &= matches!(compared, Comparison::Equal { .. });
            self.screen.line(format_args!("   partition {partition}: {compared}"))?;
        }
        if equal { Ok(()) } else { Err(Error::Differs(self.dir.to_owned())) }
    }
}

/// The current time, for durations that are shown and for the child's deadlines.
#[expect(clippy::disallowed_methods, reason = "the command line is the edge at which the real clock is read")]
fn now() -> Instant {
    Instant::now()
}

/// Waits before the child is polled again.
#[expect(clippy::disallowed_methods, reason = "waits for a process, in no lane")]
fn pause(length: Duration) {
    std::thread::sleep(length);
}

#[cfg(test)]
mod tests;
