//! `ratchet test`: runs the tests that topologies contain, without a cluster.
//!
//! Each test's result goes to standard output, a line each, with the differences below it; counts and
//! everything else go to standard error.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::stderr::say;
use super::{Failure, inputs};
use crate::capture;
use crate::rehearsal::{Difference, Outcome, run_case};
use crate::topology::{self, Loaded, Offline, TestCase};
use crate::words::counted;

mod junit;

const EXAMPLES: &str = "\
Examples:
  ratchet test topologies/payments.yaml

  # all topologies of a folder, and a report for the build server
  ratchet test topologies --junit target/ratchet-tests.xml

  # only the tests whose name, or whose topology's name, contains this
  ratchet test topologies --only 'retried charge'

Exit codes: 0 all passed, 1 a test failed, 2 the input is wrong, or a test's
records cannot be read.";

/// Options of `ratchet test`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Topologies with `tests:` in them; a folder means the *.yaml in it, not deeper
    #[arg(required = true, value_name = "TOPOLOGY")]
    topologies: Vec<PathBuf>,

    /// Run only tests with this text in their own or their topology's name
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,

    /// Also write the results as JUnit XML
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
}

/// The tests of one topology, with their results.
struct Suite<'a> {
    topology: &'a str,
    path: &'a Path,
    ran: Vec<Ran<'a>>,
}

/// A test and its result.
struct Ran<'a> {
    case: &'a TestCase,
    /// An error if its records cannot be read.
    outcome: Result<Outcome, capture::Error>,
}

impl Ran<'_> {
    /// Why it did not pass, unindented; empty if it did.
    fn why_not(&self) -> String {
        match &self.outcome {
            Ok(outcome) => outcome.differences.iter().map(|difference| format!("{difference}\n")).collect(),
            Err(error) => format!("{}\n  help: {}\n", error.text, error.help),
        }
    }

    fn failed(&self) -> bool {
        self.outcome.as_ref().is_ok_and(|outcome| !outcome.passed())
    }

    /// Whether only what is remembered differs.
    fn differs_in_entries_alone(&self) -> bool {
        let is_entry = |difference: &Difference| matches!(difference, Difference::Entry { .. });
        self.outcome.as_ref().is_ok_and(|outcome| outcome.differences.iter().all(is_entry))
    }
}

/// Runs the tests. Fails unless all pass.
pub fn run(args: &Args) -> Result<(), Failure> {
    let loaded = topology::load_all(&args.topologies, &Offline)?;
    let mut stdout = io::stdout().lock();
    let mut suites = Vec::new();
    for Loaded { topology, warnings, path, .. } in &loaded {
        inputs::show_warnings(warnings);
        if topology.tests.is_empty() {
            say(format_args!("{}: {} has no tests\n", path.display(), topology.name));
        }
        let folder = path.parent().unwrap_or(Path::new(""));
        let mut suite = Suite { topology: &topology.name, path, ran: Vec::new() };
        for case in topology.tests.iter().filter(|case| is_wanted(args.only.as_deref(), &topology.name, &case.name)) {
            let ran = Ran { case, outcome: run_case(topology, folder, case) };
            print(&mut stdout, &line(&suite, &ran))?;
            suite.ran.push(ran);
        }
        suites.push(suite);
    }
    if let Some(file) = &args.junit {
        write_junit(file, &suites)?;
    }
    conclude(args, &suites)
}

/// Writes to standard output. If the reader goes away, the remaining tests still run: the exit code is their result.
fn print(stdout: &mut impl Write, text: &str) -> Result<(), Failure> {
    let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    match written.map_err(|error| Failure::output(&error)) {
        Err(Failure::ReaderGone) => Ok(()),
        result => result,
    }
}

fn is_wanted(only: Option<&str>, topology: &str, name: &str) -> bool {
    only.is_none_or(|text| name.contains(text) || topology.contains(text))
}

/// A test's line, with its differences below.
fn line(suite: &Suite<'_>, ran: &Ran<'_>) -> String {
    let Ran { case, outcome } = ran;
    let word = match outcome {
        Ok(outcome) if outcome.passed() => return format!("ok      {}: {}\n", suite.topology, case.name),
        Ok(_) => "FAILED",
        Err(_) => "ERROR ",
    };
    let mut text = format!("{word}  {}: {}  ({}:{})\n", suite.topology, case.name, suite.path.display(), case.line);
    for line in ran.why_not().lines() {
        // writing to a string never fails
        let _ = writeln!(text, "        {line}");
    }
    text
}

fn write_junit(file: &Path, suites: &[Suite<'_>]) -> Result<(), Failure> {
    let written = junit::report(suites).map_err(io::Error::other).and_then(|xml| fs::write(file, xml));
    written.map_err(|error| {
        Failure::run_with_help(format!("cannot write {}: {error}", file.display()), "give a file that can be written")
    })
}

/// Reports how many passed.
fn conclude(args: &Args, suites: &[Suite<'_>]) -> Result<(), Failure> {
    let all: Vec<_> = suites.iter().flat_map(|suite| &suite.ran).collect();
    let failed = all.iter().filter(|ran| ran.failed()).count();
    let errors: Vec<&str> = all.iter().filter_map(|ran| Some(ran.outcome.as_ref().err()?.text.as_str())).collect();
    if let Some(first) = errors.first() {
        let (count, all) = (errors.len(), all.len());
        let text = format!("{count} of {} could not be run, {failed} failed: {first}", counted(all, "test"));
        return Err(Failure::input(text, "a test's `file` is looked for in its topology's folder"));
    }
    if failed > 0 {
        let text = format!("{failed} of {} failed", counted(all.len(), "test"));
        let help = match all.iter().all(|ran| ran.differs_in_entries_alone()) {
            true => "`entries` takes what is remembered as it is listed above: `{identity: [...], version: ...}`",
            false => "`ratchet replay --explain` explains the verdict on any other record",
        };
        return Err(Failure::run_with_help(text, help));
    }
    match &args.only {
        Some(only) if all.is_empty() => {
            let text = format!("no test has `{only}` in its name, or in its topology's");
            Err(Failure::input(text, "leave `--only` out to run all tests"))
        }
        _ => {
            say(format_args!("{} passed\n", counted(all.len(), "test")));
            Ok(())
        }
    }
}
