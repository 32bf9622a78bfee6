//! The options of `ratchet replay`.

use std::path::PathBuf;

use crate::capture::Form;
use crate::cli::inputs::SettingArgs;

/// The form of a captured line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Envelope {
    /// Each line is a record's value
    None,
    /// Each line is what `kcat -J` prints: a record with its key, headers, offset and timestamp
    Kcat,
    /// Each line is what `ratchet capture` writes
    Capture,
}

impl Envelope {
    /// The form of such lines.
    pub fn form(self) -> Form {
        match self {
            Self::None => Form::Values,
            Self::Kcat => Form::Kcat,
            Self::Capture => Form::Capture,
        }
    }
}

const EXAMPLES: &str = "\
Examples:
  # one value a line: which would be forwarded?
  ratchet replay topologies/payments.yaml captured.jsonl > survivors.jsonl

  # why? one JSON object per record
  ratchet replay topologies/payments.yaml captured.jsonl --explain |
    jq -c 'select(.verdict != \"forwarded\")'

  # a real topic, with keys, headers, offsets and timestamps
  ratchet capture payments --config config/ratchet.yaml --out captured.jsonl
  ratchet replay topologies/payments.yaml captured.jsonl --summary > out

  # records with schemas of a registry
  ratchet replay topologies/payments.yaml captured.jsonl \\
    --set schema_registry.url=http://localhost:8081 > survivors.jsonl

  # put a capture back, as it was, into a topic to try things on
  ratchet replay --into payments.test captured.jsonl \\
    --config config/ratchet.yaml

Exit codes: 0 fine, 1 a record met `fail`, or writing failed, 2 the input is
wrong.";

const USAGE: &str = "\
ratchet replay [OPTIONS] <TOPOLOGY> [FILE]...
       ratchet replay [OPTIONS] --into <TOPIC> [TOPOLOGY] [FILE]...";

/// Options of `ratchet replay`.
#[derive(Debug, clap::Args)]
#[command(override_usage = USAGE, after_help = EXAMPLES)]
pub struct Args {
    /// The topology. With `--into` it may be left out, and then every record is put back, unjudged; the first path is
    /// the topology if its name ends in .yaml
    #[arg(value_name = "TOPOLOGY", required_unless_present = "into")]
    pub topology: Option<PathBuf>,

    /// Captured records, one a line; `-`, or no file, is standard input
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,

    /// The form of a line [default: capture, if the first line shows that `ratchet capture` wrote it; otherwise none]
    #[arg(long, value_enum)]
    pub envelope: Option<Envelope>,

    /// The topic of lines without an envelope [default: the topology's first]
    #[arg(long)]
    pub topic: Option<String>,

    /// The partition of lines without an envelope [default: 0]
    #[arg(long, value_parser = clap::value_parser!(i32).range(0..))]
    pub partition: Option<i32>,

    /// Instead of the survivors, print one JSON object per record: its topic, partition and offset, its verdict
    /// and reason, its identity, version, epoch and kind, what it was compared with, and for a sink what it causes there
    #[arg(long)]
    pub explain: bool,

    /// Print counts to standard error at the end, and hints where the rules look wrong. Takes memory for
    /// each identity, as judging does
    #[arg(long)]
    pub summary: bool,

    /// Instead of printing the survivors, write them into this topic, with their key, headers, timestamp and partition;
    /// without a topology, every record
    #[arg(long, value_name = "TOPIC", conflicts_with_all = ["explain", "topic", "partition"])]
    pub into: Option<String>,

    /// With `--into`: let keys decide on the partition, as Kafka's own clients do
    #[arg(long, requires = "into")]
    pub repartition: bool,

    /// With `--into`: write also to a topic that the records come from, whose readers get them again
    #[arg(long, requires = "into")]
    pub force: bool,

    #[command(flatten)]
    pub settings: SettingArgs,
}
