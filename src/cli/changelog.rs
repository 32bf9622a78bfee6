//! `ratchet changelog rebuild`: rebuilds a deleted changelog from the stores.

use std::io;

use super::effects::named;
use super::stderr::say;
use super::{Failure, inputs};
use crate::cluster::ErrorKind;
use crate::engine;
use crate::engine::rebuild::{Error, rebuild};
use crate::observe::logs;

const EXAMPLES: &str = "\
Examples:
  # stop all instances first
  ratchet changelog rebuild payments topologies --from-store \\
    --config config/ratchet.yaml

It reads the stores below `state_dir`, in all its slots. If instances ran on
several machines, bring their slots into one folder first, each under its own
number. After a failure, run it again: it continues where it was.
Exit codes: 0 written, or nothing to write, 1 it failed, 2 it was refused, and
nothing was written.";

const REBUILD: &str = "\
Examples:
  ratchet changelog rebuild payments topologies --from-store \\
    --config config/ratchet.yaml

  # the group is gone too, and no other machine has got further
  ratchet changelog rebuild payments topologies --from-store \\
    --config config/ratchet.yaml --without-group";

/// Options of `ratchet changelog`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Rebuild a changelog that is gone
    Rebuild(Rebuild),
}

/// Options of `ratchet changelog rebuild`.
#[derive(Debug, clap::Args)]
#[command(after_help = REBUILD)]
struct Rebuild {
    /// The topology whose changelog it is
    #[arg(value_name = "NAME")]
    name: String,

    #[command(flatten)]
    inputs: inputs::Inputs,

    /// Rebuild it from the stores in the configured state folder, each partition from the store that is at the
    /// transaction that the group has committed
    #[arg(long, required = true)]
    from_store: bool,

    /// If the group has no offset, or one without a transaction, trust the store that has got furthest; what
    /// another machine forwarded beyond it is forwarded again
    #[arg(long)]
    without_group: bool,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<(), Failure> {
    let Command::Rebuild(args) = &args.command;
    let (loaded, config) = inputs::load(&args.inputs)?;
    let drill = std::env::var("RATCHET_CRASH_AT").ok();
    engine::crash::arm(drill.as_deref(), None)
        .map_err(|words| Failure::input(words, "unset RATCHET_CRASH_AT unless this is a crash drill"))?;
    // Text for people, whatever format the configuration sets for a job's log.
    logs::init(logs::Format::Text, &config.log.level, io::stderr)
        .map_err(|error| Failure::input(error.to_string(), "set `log.level`"))?;
    let topology = named(&loaded, &args.name)?;
    let done = rebuild(&config, topology, args.without_group).map_err(failure)?;
    for one in done {
        say(format_args!("{}: {}\n", one.input, one.description));
    }
    Ok(())
}

fn failure(error: Error) -> Failure {
    match error {
        Error::Refused(reasons) => {
            let help = "nothing that counts was written; docs/operations.md has the ways out under \"A changelog that is \
                        gone\" and \"A changelog that cannot be used\"";
            Failure::input(reasons.join("\n"), help)
        }
        Error::Cluster(error) if error.kind == ErrorKind::Refused => {
            Failure::input(error.message, "see Rights in docs/operations.md")
        }
        error => Failure::run_with_help(error.to_string(), "run the command again: it continues where it was"),
    }
}
