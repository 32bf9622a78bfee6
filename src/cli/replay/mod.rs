//! `ratchet replay`: the engine's decisions on captured records, without a cluster.
//!
//! Each partition of the capture is judged by its own model: the evaluator that defines what the engine must
//! output. Survivors go to standard output unchanged, byte for byte, or into a topic ([`into`]).

use std::collections::BTreeSet;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::progress::RecordsBar;
use super::stderr::say;
use super::{Failure, inputs};
use crate::capture::{self, Captured, Form, LineNumber, Lines, Nearly, looks_like_kcat};
use crate::dedup::{Action, Decision, Decoder, Reason};
use crate::record::Record;
use crate::registry::Waiting;
use crate::rehearsal::{Answer, Explanation, Partitions, Rehearser};
use crate::topology::{self, Input, Offline};

mod advice;
mod args;
mod conflicts;
mod explain;
mod hints;
mod into;
mod seen;
mod summary;
mod unfound;
mod watch;

pub use args::Args;
use args::Envelope;
use explain::explained;
use into::Target;
use seen::{Seen, captured as copied};
use summary::Summary;

/// How many lines that are taken for values are looked at, whether they are nearly whole records.
const LINES_LOOKED_AT: i64 = 1000;

/// Replays the records.
pub fn run(args: &Args) -> Result<(), Failure> {
    let form = args.envelope.map(Envelope::form);
    if let Some(form) = form {
        check_place(args, form)?;
    }
    let (topology, files) = into::paths(args);
    let Some(topology) = topology else {
        return into::run(args, args.into.as_deref().unwrap_or_default(), &files);
    };
    let mut loaded = topology::load(topology, &Offline)?;
    if args.into.is_none() && !loaded.topology.rules.reads_schemas() && args.settings.are_given() {
        let text = "--config and --set name the cluster that `--into` writes to and the source of schemas, and this replay \
                    needs neither";
        return Err(Failure::input(text, "leave them out, or name a topic with `--into`"));
    }
    let waiting = args.settings.give_schemas(&mut loaded.topology)?;
    let mut lines = Lines::open(&files)?;
    let mut replay = Replay::new(args, loaded.topology, waiting);
    // do not make anybody type a line only to reject it
    if replay.needs_topic && form.is_none_or(|form| !form.is_whole()) && files.is_empty() && io::stdin().is_terminal() {
        return Err(without_topic(b""));
    }
    if let Some(topic) = &args.into {
        return replay_into(&mut replay, Target::open(args, topic, &files)?, &mut lines);
    }
    let progress = RecordsBar::begin(lines.bytes_total(), true);
    let mut output = io::BufWriter::new(io::stdout().lock());
    let ended = replay.run(&mut lines, &mut Survivors::Printed(&mut output), &progress);
    let flushed = output.flush().map_err(|error| Failure::output(&error));
    progress.end();
    let ended = ended.and(flushed);
    if !matches!(ended, Err(Failure::ReaderGone)) {
        replay.report_end();
    }
    ended
}

/// Writes the survivors into a topic.
fn replay_into(replay: &mut Replay, mut target: Target, lines: &mut Lines) -> Result<(), Failure> {
    let progress = RecordsBar::begin(lines.bytes_total(), false);
    let ended = replay.run(lines, &mut Survivors::Put(&mut target), &progress);
    progress.end();
    let ended = target.end(ended);
    replay.report_end();
    ended
}

/// Where survivors go.
enum Survivors<'a> {
    Printed(&'a mut dyn Write),
    Put(&'a mut Target),
}

impl Survivors<'_> {
    /// Passes on what was written so far, as before waiting for the next line.
    fn flush(&mut self) -> Result<(), Failure> {
        match self {
            Self::Printed(output) => output.flush().map_err(|error| Failure::output(&error)),
            Self::Put(_) => Ok(()),
        }
    }
}

/// The options that place lines are only for lines without an envelope.
fn check_place(args: &Args, form: Form) -> Result<(), Failure> {
    if !form.is_whole() || (args.topic.is_none() && args.partition.is_none()) {
        return Ok(());
    }
    let whose = if form == Form::Kcat { "kcat's names" } else { "those of `ratchet capture` name" };
    let text = format!("--topic and --partition are for lines without an envelope: {whose} topic and partition");
    Err(Failure::input(text, "leave them out"))
}

/// The input is a pattern, and neither the lines, of which this is the first, nor an option names the topic: says what to
/// add.
fn without_topic(first: &[u8]) -> Failure {
    if looks_like_kcat(first) {
        let text = "the topology reads topics by a pattern, and the first line looks like what `kcat -J` prints";
        Failure::input(text, "add `--envelope kcat`: the lines name their topic")
    } else {
        let text = "the topology reads topics by a pattern, and lines without an envelope do not name theirs";
        Failure::input(text, "name it with `--topic`")
    }
}

/// The place of a line without an envelope.
struct Position {
    topic: String,
    partition: i32,
    offset: i64,
}

/// A replay in progress.
struct Replay {
    /// The form of the lines; `None` until the first one shows it.
    form: Option<Form>,
    /// Whether an option names the place of lines.
    is_placed: bool,
    /// Whether lines without an envelope lack a topic.
    needs_topic: bool,
    /// Whether survivors go into a topic.
    puts: bool,
    explain: bool,
    topology: topology::Topology,
    partitions: Partitions,
    rehearser: Rehearser,
    /// The sources of schemas, which wait for them.
    waiting: Arc<Waiting>,
    /// Decodes records that have schemas, for the summary; `None` if it needs no decoding.
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
            form: args.envelope.map(Envelope::form),
            is_placed: args.topic.is_some() || args.partition.is_some(),
            puts: args.into.is_some(),
            needs_topic: args.topic.is_none() && matches!(topology.input, Input::Pattern { .. }),
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

    /// Judges every line, and passes on survivors or explanations.
    fn run(&mut self, lines: &mut Lines, survivors: &mut Survivors<'_>, progress: &RecordsBar) -> Result<(), Failure> {
        let mut line = Vec::new();
        let mut captured = Captured::default();
        loop {
            // somebody may be following a capture as it grows
            if lines.may_wait() {
                survivors.flush()?;
                progress.update(lines.bytes_read());
            }
            let Some(place) = lines.next(&mut line)? else { break };
            self.read(&line, place, &mut captured, progress)?;
            self.judge(&line, place, &captured, survivors)?;
            progress.count(lines.bytes_read());
        }
        // there was no line that could have named a topic
        if self.needs_topic && self.form.is_none() { Err(without_topic(b"")) } else { Ok(()) }
    }

    /// The form of the lines, of which this is one.
    fn form_of(&mut self, line: &[u8]) -> Result<Form, Failure> {
        let is_first = self.form.is_none() || self.next.offset == 0;
        let form = self.form.unwrap_or_else(|| Form::of(line));
        if is_first && form == Form::Values && self.needs_topic {
            return Err(without_topic(line));
        }
        if self.form.is_none() && form.is_whole() && self.is_placed {
            let text = "--topic and --partition are for lines without an envelope, and the first line is one of `ratchet \
                        capture`, which names topic and partition";
            return Err(Failure::input(text, "leave them out"));
        }
        self.form = Some(form);
        Ok(form)
    }

    fn read(
        &mut self,
        line: &[u8],
        place: LineNumber<'_>,
        captured: &mut Captured,
        progress: &RecordsBar,
    ) -> Result<(), Failure> {
        let form = self.form_of(line)?;
        if self.puts {
            into::check_form(form, place)?;
        }
        match form {
            form @ (Form::Kcat | Form::Capture) => {
                captured.read(form, line).map_err(|error| capture::Error::not_of(form, place, &error))?;
            }
            Form::Values => {
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

    fn judge(
        &mut self,
        line: &[u8],
        place: LineNumber<'_>,
        captured: &Captured,
        survivors: &mut Survivors<'_>,
    ) -> Result<(), Failure> {
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
        match survivors {
            Survivors::Printed(output) if self.explain => {
                let made = self.rehearser.made();
                let called = (self.rehearser.has_sink() && made.is_none()).then(|| self.rehearser.called());
                let explained = explained(&record, &decision, &explanation, called.as_deref(), made);
                writeln!(output, "{explained}").map_err(|error| Failure::output(&error))?;
            }
            _ if decision.action != Action::Forward => {}
            Survivors::Printed(output) => {
                let written = output.write_all(line).and_then(|()| output.write_all(b"\n"));
                written.map_err(|error| Failure::output(&error))?;
            }
            Survivors::Put(target) => target.put(place, captured)?,
        }
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

/// A copy of a record with its key and value decoded to JSON, if they have schemas and can be decoded.
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
