//! `ratchet infer`: proposes a topology for captured records.
//!
//! The topology goes to standard output, its last line being a comment with the verdicts on the records; what is unsure
//! goes to standard error.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::PathBuf;

use super::stderr::say;
use super::{Failure, inputs};
use crate::capture::Nearly;
use crate::infer::{self, Sample, Wanted, topic_of};

const EXAMPLES: &str = "\
Examples:
  # whole records, with keys, headers and partitions
  ratchet capture payments --config config/ratchet.yaml --out captured.jsonl
  ratchet infer captured.jsonl > topologies/payments.yaml

  # one value a line
  ratchet infer values.jsonl --topic payments > topologies/payments.yaml

  # records with schemas of a registry
  ratchet infer captured.jsonl \\
    --set schema_registry.url=http://localhost:8081 > topologies/payments.yaml

  # then see what it would do
  ratchet replay topologies/payments.yaml values.jsonl --summary > out

Exit codes: 0 a topology was proposed, 2 the input is wrong.";

/// Options of `ratchet infer`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Captured records, one a line: what `ratchet capture` writes or `kcat -J` prints, or values, plain or packed by gzip
    /// or zstd; `-`, or no file, is standard input
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,

    /// The topology's name [default: derived from the topic]
    #[arg(long)]
    name: Option<String>,

    /// The input topic [default: what the capture says, or the file's name]
    #[arg(long)]
    topic: Option<String>,

    /// The output topic [default: the input topic plus `.unique`]
    #[arg(long, value_name = "TOPIC")]
    output: Option<String>,

    /// Maximum number of records to look at
    #[arg(long, value_name = "NUMBER", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..))]
    records: u32,

    #[command(flatten)]
    settings: inputs::SettingArgs,
}

/// Proposes a topology.
pub fn run(args: &Args) -> Result<(), Failure> {
    let topic = args.topic.clone().unwrap_or_else(|| topic_of(&args.files));
    let waiting = args.settings.sources()?;
    let sample = Sample::read_with_schemas(&args.files, &topic, args.records as usize, &waiting.sources())?;
    inputs::without_schema(&waiting)?;
    if sample.records.is_empty() {
        return Err(Failure::input("the capture holds no record", "give records, one a line"));
    }
    if sample.looks_like_csv(&args.files) {
        // several fields that tabs separate
        if let Some((place, nearly @ Nearly::Console)) = &sample.nearly {
            return Err(Failure::input(format!("{place} {nearly}"), "give what `ratchet capture` writes"));
        }
        let text = "the capture looks like CSV: its lines are neither JSON nor captured records";
        return Err(Failure::input(
            text,
            "write one JSON object a line, as in `{\"id\": 1, \"name\": \"a\"}`, or capture the topic with `ratchet capture`",
        ));
    }
    let wanted = Wanted { name: args.name.clone(), topic: args.topic.clone(), output: args.output.clone() };
    let (mut proposal, tally) = infer::infer(&sample, &wanted)?;
    // writing to a string never fails
    let _ = writeln!(proposal.text, "# Replaying the records that were looked at with it: {tally}.");
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(proposal.text.as_bytes()).and_then(|()| stdout.flush());
    written.map_err(|error| Failure::output(&error))?;
    proposal.unsure.iter().for_each(|unsure| say(format_args!("unsure: {unsure}\n")));
    Ok(())
}
