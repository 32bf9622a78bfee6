//! `ratchet check`: every mistake at once, or what the topologies amount to.

use std::fmt::Write;
use std::path::PathBuf;

use super::stderr::say;
use super::{Failure, inputs};
use crate::dedup::Retention;
use crate::topology::{self, Loaded, Process, Topology};
use crate::yaml::units::show_duration_ms;

const EXAMPLES: &str = "\
Examples:
  ratchet check topologies/payments.yaml

  # all topologies of a folder, and the configuration they are to run with
  ratchet check topologies --config config/ratchet.yaml

Exit codes: 0 no mistakes (there may be warnings), 2 mistakes.";

/// Options of `ratchet check`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Topologies; a folder means the *.yaml in it, not deeper
    #[arg(required = true, value_name = "TOPOLOGY")]
    topologies: Vec<PathBuf>,

    /// The worker's configuration, to be checked as well
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Tells what is wrong, or what was understood.
pub fn run(args: &Args) -> Result<(), Failure> {
    let (loaded, config) = match &args.config {
        Some(config) => inputs::load(&args.topologies, Some(config), &[]).map(|(loaded, read)| (loaded, Some(read)))?,
        None => (topology::load_all(&args.topologies, &Process)?, None),
    };
    for Loaded { topology, warnings, path, .. } in &loaded {
        inputs::show_warnings(warnings);
        say(format_args!("{}: fine\n{}", path.display(), summary(topology)));
    }
    if let (Some(config), Some(read)) = (&args.config, &config) {
        inputs::show_warnings(&read.warnings);
        say(format_args!("{}: fine\n", config.display()));
    }
    Ok(())
}

/// What a topology amounts to, a line each.
fn summary(topology: &Topology) -> String {
    let rules = &topology.rules;
    let identity: Vec<_> = rules.identity.parts.iter().map(ToString::to_string).collect();
    let version = rules.version.as_ref();
    let outputs: Vec<_> = topology.input.named().iter().map(|topic| topology.output_topic(topic)).collect();
    let changelogs: Vec<_> = topology.input.named().iter().map(|topic| topology.changelog(topic)).collect();
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        // writing to a string never fails
        let _ = writeln!(text, "  {name:<12} {value}");
    };
    line("name", &topology.name);
    line("input", &format!("{}, from the {} record", topology.input, topology.start.as_str()));
    line("formats", &format!("key {}, value {}", rules.key_format, rules.value_format));
    line("identity", &identity.join(" + "));
    line("version", &version.map_or("none: whatever was seen is dropped".to_owned(), |version| version.to_string()));
    line("retention", &retention(rules.retention));
    line("output", &outputs.join(", "));
    line("dead letter", &topology.dead_letter);
    line("group", &topology.group());
    line("changelog", &changelogs.join(", "));
    text
}

/// A retention as it can be written in a topology.
fn retention(retention: Retention) -> String {
    match retention {
        Retention::Forever => "forever".to_owned(),
        Retention::For { ms } => show_duration_ms(ms),
    }
}
