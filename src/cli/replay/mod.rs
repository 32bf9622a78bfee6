//! `ratchet replay`: the engine's decisions over captured records, without a cluster.
//!
//! Every partition of the capture is judged by a model of its own, the evaluator that the engine's
//! output is defined to equal. Survivors go to standard output in the form they came in, byte for byte.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use super::Failure;
use super::stderr::say;
use crate::capture::{self, Captured, Lines, Place, looks_like_kcat};
use crate::dedup::{Action, Decision, Reason};
use crate::rehearsal::{Partitions, Told};
use crate::topology::{self, Input, Process};

mod explain;
mod hints;
mod progress;
mod summary;

use explain::explanation;
use progress::Progress;
use summary::{Seen, Summary};

/// The form of a captured line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Envelope {
    /// Each line is a record's value
    None,
    /// Each line is what `kcat -J` prints: a record with its key, headers, place and timestamp
    Kcat,
}

const EXAMPLES: &str = "\
Examples:
  # one value a line: which would come out?
  ratchet replay topologies/payments.yaml captured.jsonl > survivors.jsonl

  # why? one JSON object a record
  ratchet replay topologies/payments.yaml captured.jsonl --explain |
    jq -c 'select(.verdict != \"forwarded\")'

  # a real topic, with keys, headers, offsets and timestamps
  kcat -b localhost:9092 -t payments -C -e -J |
    ratchet replay topologies/payments.yaml --envelope kcat --summary > out

Exit codes: 0 fine, 1 a record met `fail`, 2 the input is wrong.";

/// Options of `ratchet replay`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The topology
    #[arg(value_name = "TOPOLOGY")]
    topology: PathBuf,

    /// Captured records, one a line; `-`, or no file, is standard input
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,

    /// The form of a line
    #[arg(long, value_enum, default_value_t = Envelope::None)]
    envelope: Envelope,

    /// The topic that lines without an envelope are of [default: the topology's first]
    #[arg(long)]
    topic: Option<String>,

    /// The partition that lines without an envelope are of [default: 0]
    #[arg(long, value_parser = clap::value_parser!(i32).range(0..))]
    partition: Option<i32>,

    /// Print one JSON object a record instead of the survivors: where it stood, its verdict, the reason,
    /// its identity, version, epoch and kind, and what it was compared with
    #[arg(long)]
    explain: bool,

    /// Print counts to standard error when done, and hints where the rules look wrong. Takes memory for
    /// each identity, as judging does
    #[arg(long)]
    summary: bool,
}

/// Replays the records.
pub fn run(args: &Args) -> Result<(), Failure> {
    if args.envelope == Envelope::Kcat && (args.topic.is_some() || args.partition.is_some()) {
        let text = "--topic and --partition are for lines without an envelope: kcat's says where a record stood";
        return Err(Failure::input(text, "leave them out"));
    }
    let loaded = topology::load(&args.topology, &Process)?;
    let mut lines = Lines::open(&args.files)?;
    if args.envelope == Envelope::None && args.topic.is_none() && matches!(loaded.topology.input, Input::Pattern { .. })
    {
        return Err(without_topic(args, &mut lines)?);
    }
    let progress = Progress::begin(lines.bytes_total());
    let mut replay = Replay::new(args, loaded.topology);
    let mut output = io::BufWriter::new(io::stdout().lock());
    let ended = replay.run(&mut lines, &mut output, &progress);
    let flushed = output.flush().map_err(|error| Failure::output(&error));
    progress.end();
    let ended = ended.and(flushed);
    if !matches!(ended, Err(Failure::ReaderGone)) {
        replay.report_end();
    }
    ended
}

/// Lines of which nobody says of which topic they are, though a pattern may mean several.
fn without_topic(args: &Args, lines: &mut Lines) -> Result<Failure, Failure> {
    let mut first = Vec::new();
    // nobody is asked to type a line only to be told that it is of no use
    if !args.files.is_empty() || !io::stdin().is_terminal() {
        lines.next(&mut first)?;
    }
    Ok(if looks_like_kcat(&first) {
        let text = "the topology reads topics by a pattern, and the first line looks like what `kcat -J` prints";
        Failure::input(text, "add `--envelope kcat`: the lines say of which topic they are")
    } else {
        let text = "the topology reads topics by a pattern, and lines without an envelope do not say theirs";
        Failure::input(text, "say it by `--topic`")
    })
}

/// Where a line stands that says nothing of it itself.
struct Stands {
    topic: String,
    partition: i32,
    offset: i64,
}

/// A replay under way.
struct Replay {
    envelope: Envelope,
    explain: bool,
    topology: topology::Topology,
    partitions: Partitions,
    /// Where the next line without an envelope stands.
    next: Stands,
    summary: Option<Summary>,
    /// Topics of the capture that the topology does not read.
    foreign: BTreeSet<String>,
}

impl Replay {
    fn new(args: &Args, topology: topology::Topology) -> Self {
        let topic = args.topic.clone().or_else(|| topology.input.named().first().cloned()).unwrap_or_default();
        Self {
            envelope: args.envelope,
            explain: args.explain,
            partitions: Partitions::new(&topology.rules),
            next: Stands { topic, partition: args.partition.unwrap_or(0), offset: 0 },
            summary: args.summary.then(|| {
                let said = [Reason::VersionMissing, Reason::VersionMalformed].map(|reason| topology.hint(reason));
                Summary::new(&topology.rules, said)
            }),
            foreign: BTreeSet::new(),
            topology,
        }
    }

    /// Judges every line, and writes survivors or explanations to `output`.
    fn run(&mut self, lines: &mut Lines, output: &mut impl Write, progress: &Progress) -> Result<(), Failure> {
        let mut line = Vec::new();
        let mut captured = Captured::default();
        loop {
            // whoever follows a capture as it grows shall see what it has come to
            if lines.may_wait() {
                output.flush().map_err(|error| Failure::output(&error))?;
                progress.tell(lines.bytes_read());
            }
            let Some(place) = lines.next(&mut line)? else { return Ok(()) };
            self.read(&line, place, &mut captured, progress)?;
            self.judge(&line, &captured, output)?;
            progress.at(lines.bytes_read());
        }
    }

    fn read(
        &mut self,
        line: &[u8],
        place: Place<'_>,
        captured: &mut Captured,
        progress: &Progress,
    ) -> Result<(), Failure> {
        match self.envelope {
            Envelope::Kcat => captured.read_kcat(line).map_err(|error| capture::Error::not_kcat(place, &error))?,
            Envelope::None => {
                // whatever it is: malformed JSON is the topology's to judge, as in a run
                captured.read_value(line);
                if self.summary.is_none() && self.next.offset == 0 && looks_like_kcat(line) {
                    // the summary has a hint of its own, from all lines
                    progress.above(|| {
                        say("warning: the first line looks like what `kcat -J` prints, and was taken for a value: add \
                             `--envelope kcat`\n")
                    });
                }
                if let Some(summary) = &mut self.summary {
                    summary.add_line(line);
                }
                let Stands { topic, partition, offset } = &mut self.next;
                captured.topic.clone_from(topic);
                (captured.partition, captured.offset) = (*partition, *offset);
                *offset += 1;
            }
        }
        Ok(())
    }

    fn judge(&mut self, line: &[u8], captured: &Captured, output: &mut impl Write) -> Result<(), Failure> {
        let record = captured.record();
        let model = self.partitions.model(record.topic, record.partition);
        let decision = model.judge(&record, wall_ms());
        if !self.topology.input.contains(record.topic) && !self.foreign.contains(record.topic) {
            self.foreign.insert(record.topic.to_owned());
        }
        let is_told = self.explain || self.summary.is_some() || decision.action == Action::Fail;
        let told = if is_told { Told::of(model, &self.topology) } else { Told::default() };
        if let Some(summary) = &mut self.summary {
            let version = model.version_bytes();
            summary.add(&Seen { record: &record, decision: &decision, told: &told, version });
        }
        let written = if self.explain {
            writeln!(output, "{}", explanation(&record, &decision, &told))
        } else if decision.action == Action::Forward {
            output.write_all(line).and_then(|()| output.write_all(b"\n"))
        } else {
            Ok(())
        };
        written.map_err(|error| Failure::output(&error))?;
        if decision.action == Action::Fail { Err(stopped(&self.topology, captured, &decision, &told)) } else { Ok(()) }
    }

    /// Tells the counts, if they were asked for, and what deserves a warning.
    fn report_end(&self) {
        for topic in &self.foreign {
            say(format_args!(
                "warning: records of `{topic}` were judged as well, which {} does not read\n",
                self.topology.name
            ));
        }
        if let Some(summary) = &self.summary {
            say(summary);
        }
    }
}

/// A record for which the topology says `fail`.
fn stopped(topology: &topology::Topology, captured: &Captured, decision: &Decision, told: &Told) -> Failure {
    let Captured { topic, partition, offset, .. } = captured;
    let meaning = topology.meaning(decision.reason);
    let message = told.refusal.as_deref().unwrap_or(&meaning);
    let text = format!("the task stops at {topic}:{partition}:{offset} ({}): {message}", decision.reason);
    Failure::run_with_help(text, "the topology says `fail` for such a record; `drop` or `dead_letter` would go on")
}

/// The wall clock, in milliseconds since the epoch: by it a timestamp in the far future is told, nothing else.
#[expect(clippy::disallowed_methods, reason = "the command line is the edge at which the real clock is read")]
fn wall_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
