//! The command line: its commands, their options, output and exit codes.
//!
//! - standard output carries data (survivors, explanations, completions), standard error everything else
//! - exit codes: 0 fine, 1 the run failed, 2 the user's input is wrong
//! - a command ends quietly if the reader of its output goes away (`| head`)
//!
//! Each command has a module with its options (`Args`) and a function that runs it.

use clap::{Parser, Subcommand};

use crate::worker::exit;

mod capture;
mod changelog;
mod check;
mod completions;
mod demo;
mod effects;
mod failure;
mod infer;
mod inputs;
mod listing;
mod progress;
mod proxy;
mod replay;
mod requests;
mod run;
mod schema;
mod settle;
mod stderr;
mod test;

pub use failure::Failure;

const EXAMPLES: &str = "\
Examples:
  # is this topology right?
  ratchet check topologies/payments.yaml

  # what would it do to the records of a topic?
  ratchet capture payments --config config/ratchet.yaml --out captured.jsonl
  ratchet replay topologies/payments.yaml captured.jsonl --explain

  # do it
  ratchet run topologies/payments.yaml --config config/ratchet.yaml

Exit codes: 0 fine, 1 the run failed, 2 the input is wrong.
Standard output carries data, standard error everything else.";

/// An idempotent receiver for Kafka: drops records that were seen before or are older than what was seen,
/// forwards the rest exactly once
#[derive(Debug, Parser)]
#[command(name = "ratchet", version, after_help = EXAMPLES, max_term_width = 110, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run topologies until stopped
    Run(run::Args),
    /// Find every mistake in topologies and configuration, without a cluster
    Check(check::Args),
    /// Run the tests that topologies contain, without a cluster
    Test(test::Args),
    /// Show what a topology does to captured records, without a cluster
    Replay(replay::Args),
    /// Propose a topology for captured records, with its reasons
    Infer(infer::Args),
    /// Write the records of a topic to a file, byte for byte
    Capture(capture::Args),
    /// Rebuild a deleted changelog from the stores
    Changelog(changelog::Args),
    /// List calls that are not known to have succeeded
    Effects(effects::Args),
    /// Decide by hand what has become of a call
    Settle(settle::Args),
    /// Stand in front of an HTTP service: a repeated request gets the first answer
    Proxy(proxy::Args),
    /// List HTTP requests in doubt, and decide by hand what has become of one
    Requests(requests::Args),
    /// Show a run, a crash and a recovery on the embedded cluster
    Demo(demo::Args),
    /// Write the JSON Schema of topologies, or of a proxy's file, for editors
    Schema(schema::Args),
    /// Write completions for a shell
    Completions(completions::Args),
}

/// Runs the command, and ends the process.
pub fn main() -> ! {
    exit::end(outcome())
}

/// Runs the command, and returns the exit code.
fn outcome() -> u8 {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // clap returns help and version as errors too, with code 0 and for standard output
        Err(error) => {
            // fails only if standard output is closed
            let _ = error.print();
            return u8::try_from(error.exit_code()).unwrap_or(failure::RUN_FAILED);
        }
    };
    match cli.command.run() {
        Ok(()) => failure::FINE,
        Err(failure) => failure.report(),
    }
}

impl Command {
    fn run(&self) -> Result<(), Failure> {
        match self {
            Self::Run(args) => run::run(args),
            Self::Check(args) => check::run(args),
            Self::Test(args) => test::run(args),
            Self::Replay(args) => replay::run(args),
            Self::Infer(args) => infer::run(args),
            Self::Capture(args) => capture::run(args),
            Self::Changelog(args) => changelog::run(args),
            Self::Effects(args) => effects::run(args),
            Self::Settle(args) => settle::run(args),
            Self::Proxy(args) => proxy::run(args),
            Self::Requests(args) => requests::run(args),
            Self::Demo(args) => demo::run(args),
            Self::Schema(args) => schema::run(args),
            Self::Completions(args) => completions::run(args),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::Cli;

    #[test]
    fn clap_finds_no_mistake_in_the_command_line() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_shows_examples() {
        for command in Cli::command().get_subcommands().chain([&Cli::command()]) {
            let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(examples.contains("ratchet "), "{} has no examples", command.get_name());
            // a command that wraps cannot be copied
            assert!(examples.lines().all(|line| line.len() <= 79), "{} has long lines", command.get_name());
        }
    }
}
