//! `ratchet replay`: the engine's decisions on captured records, without a cluster.
//!
//! Each partition of the capture is judged by its own model: the evaluator that defines what the engine must
//! output. Survivors go to standard output unchanged, byte for byte.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::stderr::say;
use super::{Failure, inputs};
use crate::capture::{self, Captured, Form, LineNumber, Lines, Nearly, looks_like_kcat};
use crate::dedup::{Action, Decision, Decoder, Reason};
use crate::record::Record;
use crate::registry::Waiting;
use crate::rehearsal::{Answer, Explanation, Partitions, Rehearser};
use crate::topology::{self, Input, Offline};

mod advice;
mod conflicts;
mod explain;
mod hints;
mod progress;
mod seen;
mod summary;
mod unfound;
mod watch;

use explain::explained;
use progress::ReplayBar;
use seen::{Seen, captured as copied};
use summary::Summary;

/// How many lines that are taken for values are looked at, whether they are nearly whole records.
const LINES_LOOKED_AT: i64 = 1000;

/// The form of a captured line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Envelope {
    /// Each line is a record's value
    None,
    /// Each line is what `kcat -J` prints: a record with its key, headers, offset and timestamp
    Kcat,
}

const EXAMPLES: &str = "\
Examples:
  # one value a line: which would be forwarded?
  ratchet replay topologies/payments.yaml captured.jsonl > survivors.jsonl

  # why? one JSON object per record
  ratchet replay topologies/payments.yaml captured.jsonl --explain |
    jq -c 'select(.verdict != \"forwarded\")'

  # records of a schema registry
  ratchet replay topologies/payments.yaml captured.jsonl --envelope kcat \\
    --set schema_registry.url=http://localhost:8081 > survivors.jsonl

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

    /// The topic of lines without an envelope [default: the topology's first]
    #[arg(long)]
    topic: Option<String>,

    /// The partition of lines without an envelope [default: 0]
    #[arg(long, value_parser = clap::value_parser!(i32).range(0..))]
    partition: Option<i32>,

    /// Instead of the survivors, print one JSON object per record: its topic, partition and offset, its verdict
    /// and reason, its identity, version, epoch and kind, what it was compared with, and for a sink what it causes there
    #[arg(long)]
    explain: bool,

    /// Print counts to standard error at the end, and hints where the rules look wrong. Takes memory for
    /// each identity, as judging does
    #[arg(long)]
    summary: bool,

    #[command(flatten)]
    schemas: inputs::SchemaArgs,
}

/// Replays the records.
pub fn run(args: &Args) -> Result<(), Failure> {
    if args.envelope == Envelope::Kcat && (args.topic.is_some() || args.partition.is_some()) {
        let text = "--topic and --partition are for lines without an envelope: kcat's names topic and partition";
        return Err(Failure::input(text, "leave them out"));
    }
    let mut loaded = topology::load(&args.topology, &Offline)?;
    let waiting = args.schemas.give(&mut loaded.topology)?;
    let mut lines = Lines::open(&args.files)?;
    if args.envelope == Envelope::None && args.topic.is_none() && matches!(loaded.topology.input, Input::Pattern { .. })
    {
        return Err(without_topic(args, &mut lines)?);
    }
    let progress = ReplayBar::begin(lines.bytes_total());
    let mut replay = Replay::new(args, loaded.topology, waiting);
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

/// The input is a pattern, and neither the lines nor an option names the topic: says what to add.
fn without_topic(args: &Args, lines: &mut Lines) -> Result<Failure, Failure> {
    let mut first = Vec::new();
    // do not make anybody type a line only to reject it
    if !args.files.is_empty() || !io::stdin().is_terminal() {
        lines.next(&mut first)?;
    }
    Ok(if looks_like_kcat(&first) {
        let text = "the topology reads topics by a pattern, and the first line looks like what `kcat -J` prints";
        Failure::input(text, "add `--envelope kcat`: the lines name their topic")
    } else {
        let text = "the topology reads topics by a pattern, and lines without an envelope do not name theirs";
        Failure::input(text, "name it with `--topic`")
    })
}

/// The place of a line without an envelope.
struct Position {
    topic: String,
    partition: i32,
    offset: i64,
}

/// A replay in progress.
struct Replay {
    envelope: Envelope,
    explain: bool,
    topology: topology::Topology,
    partitions: Partitions,
    rehearser: Rehearser,
    /// Where the schemas come from that records name.
    waiting: Arc<Waiting>,
    /// What writes records as JSON for the summary; `None` if they are no others.
    decoder: Option<Decoder>,
    /// The place of the next line without an envelope.
    next: Position,
    summary: Option<Summary>,
    /// Whether it was said that a line is nearly a whole record.
    is_warned: bool,
    /// Topics of the capture that the topology does not read.
    foreign: BTreeSet<String>,
}

impl Replay {
    fn new(args: &Args, topology: topology::Topology, waiting: Arc<Waiting>) -> Self {
        let topic = args.topic.clone().or_else(|| topology.input.named().first().cloned()).unwrap_or_default();
        Self {
            envelope: args.envelope,
            explain: args.explain,
            partitions: Partitions::new(&topology.rules, &topology.schemas),
            rehearser: Rehearser::new(&topology),
            waiting,
            decoder: (args.summary && topology.rules.reads_schemas())
                .then(|| Decoder::new(&topology.rules, &topology.schemas)),
            next: Position { topic, partition: args.partition.unwrap_or(0), offset: 0 },
            summary: args.summary.then(|| {
                let reasons = [Reason::IdentityMissing, Reason::VersionMissing, Reason::VersionMalformed];
                let said = reasons.map(|reason| topology.hint(reason));
                Summary::new(&topology.rules, said).decided_by(conflicts::preset_that_forwards(&topology))
            }),
            is_warned: false,
            foreign: BTreeSet::new(),
            topology,
        }
    }

    /// Judges every line, and writes survivors or explanations to `output`.
    fn run(&mut self, lines: &mut Lines, output: &mut impl Write, progress: &ReplayBar) -> Result<(), Failure> {
        let mut line = Vec::new();
        let mut captured = Captured::default();
        loop {
            // somebody may be following a capture as it grows
            if lines.may_wait() {
                output.flush().map_err(|error| Failure::output(&error))?;
                progress.update(lines.bytes_read());
            }
            let Some(place) = lines.next(&mut line)? else { return Ok(()) };
            self.read(&line, place, &mut captured, progress)?;
            self.judge(&line, &captured, output)?;
            progress.count(lines.bytes_read());
        }
    }

    fn read(
        &mut self,
        line: &[u8],
        place: LineNumber<'_>,
        captured: &mut Captured,
        progress: &ReplayBar,
    ) -> Result<(), Failure> {
        match self.envelope {
            Envelope::Kcat => {
                captured.read_kcat(line).map_err(|error| capture::Error::not_of(Form::Kcat, place, &error))?
            }
            Envelope::None => {
                // malformed JSON too: the topology says what to do with it, as in a run
                captured.read_value(line);
                if self.summary.is_none() && self.next.offset == 0 && looks_like_kcat(line) {
                    // the summary has its own hint, based on more lines
                    progress.above(|| {
                        say("warning: the first line looks like what `kcat -J` prints, and was taken for a value: add \
                             `--envelope kcat`\n")
                    });
                }
                if !self.is_warned
                    && self.next.offset < LINES_LOOKED_AT
                    && let Some(nearly) = Nearly::of(line)
                {
                    self.is_warned = true;
                    progress.above(|| {
                        say(format_args!("warning: {place} {nearly}, and was taken for a value: {}\n", Nearly::HELP));
                    });
                }
                if let Some(summary) = &mut self.summary {
                    summary.add_line(line);
                }
                let Position { topic, partition, offset } = &mut self.next;
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
        let decision = self.rehearser.judge(model, &record, wall_ms(), Answer::Done);
        inputs::without_schema(&self.waiting)?;
        if !self.topology.input.contains(record.topic) && !self.foreign.contains(record.topic) {
            self.foreign.insert(record.topic.to_owned());
        }
        let needs_explanation = self.explain || self.summary.is_some() || decision.action == Action::Fail;
        let explanation =
            if needs_explanation { Explanation::of(model, &self.topology) } else { Explanation::default() };
        if let Some(summary) = &mut self.summary {
            let version = model.version_bytes();
            let decoded = self.decoder.as_mut().map(|decoder| decoded(decoder, &record));
            let shown = decoded.as_ref().map(Captured::record);
            let record = shown.as_ref().unwrap_or(&record);
            summary.add(&Seen { record, decision: &decision, explanation: &explanation, version });
        }
        let written = if self.explain {
            let made = self.rehearser.made();
            let called = (self.rehearser.has_sink() && made.is_none()).then(|| self.rehearser.called());
            writeln!(output, "{}", explained(&record, &decision, &explanation, called.as_deref(), made))
        } else if decision.action == Action::Forward {
            output.write_all(line).and_then(|()| output.write_all(b"\n"))
        } else {
            Ok(())
        };
        written.map_err(|error| Failure::output(&error))?;
        if decision.action == Action::Fail {
            Err(stopped(&self.topology, captured, &decision, &explanation))
        } else {
            Ok(())
        }
    }

    /// Prints warnings, and the summary if it was asked for.
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

/// A copy of a record with its key and its value as JSON, if they are read by schemas and can be.
fn decoded(decoder: &mut Decoder, record: &Record<'_>) -> Captured {
    let mut copy = copied(record);
    if let Ok(Some(key)) = decoder.key(record) {
        copy.key = Some(key.bytes.to_vec());
    }
    if let Ok(Some(value)) = decoder.value(record) {
        copy.value = Some(value.bytes.to_vec());
    }
    copy
}

/// The failure for a record for which the topology says `fail`.
fn stopped(
    topology: &topology::Topology,
    captured: &Captured,
    decision: &Decision,
    explanation: &Explanation,
) -> Failure {
    let Captured { topic, partition, offset, .. } = captured;
    let meaning = topology.meaning(decision.reason);
    let message = explanation.rejection.as_deref().unwrap_or(&meaning);
    let text = format!("the task stops at {topic}:{partition}:{offset} ({}): {message}", decision.reason);
    Failure::run_with_help(
        text,
        "the topology says `fail` for such a record; with `drop` or `dead_letter` the task would continue",
    )
}

/// The wall clock, in milliseconds since the epoch; only used to recognise timestamps in the far future.
#[expect(clippy::disallowed_methods, reason = "the command line is the edge at which the real clock is read")]
fn wall_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
