//! `ratchet replay --into`: puts records back into a topic, as they were: key, value, headers, timestamp, and the partition.
//!
//! All files are read once before anything is written, so that a record that cannot be put back is found in time; standard
//! input cannot be read twice. Nothing is written to a topic that one of the records comes from, unless `--force` is given:
//! the topic's readers would get the record again.
//!
//! **Failure**: what was written before an error stays, and its count is in the message. Records are not written in a
//! transaction.

use std::path::{Path, PathBuf};

use super::args::{Args, Envelope};
use crate::capture::{self, Captured, Form, LineNumber, Lines};
use crate::cli::Failure;
use crate::cli::inputs::unreached;
use crate::cli::progress::RecordsBar;
use crate::cli::stderr::say;
use crate::cluster::kafka::{Appender, Kafka};
use crate::cluster::{Cluster as _, Error, ErrorKind, Message, TopicDescription, TopicOutline};
use crate::config::Config;
use crate::format::key_hash;
use crate::words::{agreeing, counted};

/// The endings of a topology's name.
const TOPOLOGY: [&str; 2] = ["yaml", "yml"];

/// A topic that records are put into.
pub struct Target {
    topic: String,
    partition_count: i32,
    repartition: bool,
    force: bool,
    appender: Appender,
    /// Records without a timestamp, or with 0, which librdkafka takes for none.
    undated: u64,
}

/// The topology, if one is given, and the files. With `--into` the first path is the topology only if it is named like one.
pub fn paths(args: &Args) -> (Option<&Path>, Vec<PathBuf>) {
    let is_topology = |path: &Path| {
        args.into.is_none() || path.extension().is_some_and(|ending| TOPOLOGY.iter().any(|known| ending == *known))
    };
    let (topology, file) = match &args.topology {
        Some(path) if is_topology(path) => (Some(path.as_path()), None),
        other => (None, other.clone()),
    };
    (topology, file.into_iter().chain(args.files.iter().cloned()).collect())
}

/// Puts all records of these files back.
pub fn run(args: &Args, topic: &str, files: &[PathBuf]) -> Result<(), Failure> {
    let mut target = Target::open(args, topic, files)?;
    let mut lines = Lines::open(files)?;
    let progress = RecordsBar::begin(lines.bytes_total(), false);
    let ended = each(args, &mut lines, Some(&progress), |place, captured| target.put(place, captured));
    progress.end();
    target.end(ended)
}

/// Passes each record to `visit`, with its place.
fn each(
    args: &Args,
    lines: &mut Lines,
    progress: Option<&RecordsBar>,
    mut visit: impl FnMut(LineNumber<'_>, &Captured) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let (mut line, mut captured) = (Vec::new(), Captured::default());
    let mut known = args.envelope.map(Envelope::form);
    while let Some(place) = lines.next(&mut line)? {
        let form = *known.get_or_insert_with(|| Form::of(&line));
        check_form(form, place)?;
        captured.read(form, &line).map_err(|error| capture::Error::not_of(form, place, &error))?;
        visit(place, &captured)?;
        if let Some(progress) = progress {
            progress.count(lines.bytes_read());
        }
    }
    Ok(())
}

/// Only whole records can be put into a topic.
pub fn check_form(form: Form, place: LineNumber<'_>) -> Result<(), Failure> {
    if form.is_whole() {
        return Ok(());
    }
    let text = format!("{place}: the line is a value, and `--into` takes whole records");
    let help = "give what `ratchet capture` has written, or add `--envelope kcat` for what `kcat -J` prints; a topology's \
                name ends in .yaml";
    Err(Failure::input(text, help))
}

impl Target {
    /// Opens the topic, after a look at all files that can be read twice.
    pub fn open(args: &Args, topic: &str, files: &[PathBuf]) -> Result<Self, Failure> {
        let (config, kafka) = args.settings.open_cluster()?;
        let Description { partition_count, stamps, batch_bytes_max } = describe(&config, &kafka, topic)?;
        let appender = kafka.appender(topic, batch_bytes_max).map_err(|error| unreached(&config, &error))?;
        let (topic, repartition, force) = (topic.to_owned(), args.repartition, args.force);
        let target = Self { topic, partition_count, repartition, force, appender, undated: 0 };
        let can_be_read_twice = |file: &PathBuf| file.metadata().is_ok_and(|found| found.is_file());
        if !files.is_empty() && files.iter().all(can_be_read_twice) {
            each(args, &mut Lines::open(files)?, None, |place, captured| target.partition(place, captured).map(drop))?;
        }
        if stamps {
            say(format_args!(
                "warning: the topic {} stamps its records itself (message.timestamp.type), so they lose their timestamps\n",
                target.topic
            ));
        }
        Ok(target)
    }

    /// Puts a record into the topic. It may be on its way for a while.
    pub fn put(&mut self, place: LineNumber<'_>, captured: &Captured) -> Result<(), Failure> {
        let partition = self.partition(place, captured)?;
        let record = captured.record();
        self.undated += u64::from(record.timestamp.is_none_or(|ms| ms == 0));
        let message = Message {
            topic: &self.topic,
            partition,
            key: record.key,
            value: record.value,
            headers: record.headers,
            timestamp: record.timestamp,
        };
        self.appender.send(&message).map_err(|error| failed(&error))
    }

    /// The partition that a record goes to.
    fn partition(&self, place: LineNumber<'_>, captured: &Captured) -> Result<i32, Failure> {
        let Self { topic, partition_count, .. } = self;
        if captured.topic == *topic && !self.force {
            return Err(Failure::input(
                format!("{place}: the record comes from {topic} itself, whose readers would get it again"),
                "name another topic, or add `--force`",
            ));
        }
        if self.repartition {
            // As Kafka's own clients do. Without a key a partition's records stay together, in order.
            let hash = captured.key.as_deref().map_or(captured.partition.unsigned_abs(), key_hash);
            return Ok((hash % partition_count.unsigned_abs()).cast_signed());
        }
        if !(0..*partition_count).contains(&captured.partition) {
            let has = counted(partition_count.unsigned_abs(), "partition");
            return Err(Failure::input(
                format!("{place}: the record is of partition {}, and the topic {topic} has {has}", captured.partition),
                "create it with as many, or add `--repartition`: then keys decide, as Kafka's own clients have it",
            ));
        }
        Ok(captured.partition)
    }

    /// Waits until all records are written, and reports their number. `ended` is the result of the replay.
    pub fn end(mut self, ended: Result<(), Failure>) -> Result<(), Failure> {
        let settled = self.appender.settle().map_err(|error| failed(&error));
        let written = self.appender.written();
        let (topic, records) = (&self.topic, counted(written, "record"));
        let ended = ended.and(settled);
        // A refusal before the first record was written needs no count.
        if ended.is_ok() || written > 0 {
            let at_least = if ended.is_ok() { "" } else { "at least " };
            say(format_args!("{topic}: {at_least}{records} {} written\n", agreeing(written, "was", "were")));
        }
        if self.undated > 0 {
            let undated = counted(self.undated, "record");
            let has = agreeing(self.undated, "has", "have");
            say(format_args!("note: {undated} {has} no timestamp, or 0, and got the time of writing\n"));
        }
        ended
    }
}

/// The facts about a topic to write to.
struct Description {
    partition_count: i32,
    /// Whether its brokers stamp records.
    stamps: bool,
    /// The largest batch that it takes.
    batch_bytes_max: Option<i64>,
}

/// Describes the topic; without the right to see its settings, only its number of partitions is known.
fn describe(config: &Config, kafka: &Kafka, topic: &str) -> Result<Description, Failure> {
    let brief =
        |TopicOutline { partition_count, .. }| Description { partition_count, stamps: false, batch_bytes_max: None };
    let full = |TopicDescription { partition_count, stamps, message_bytes_max, .. }| Description {
        partition_count,
        stamps,
        batch_bytes_max: Some(message_bytes_max),
    };
    let described = match kafka.describe_topic(topic) {
        Err(error) if error.is_denied() => kafka.describe_topic_briefly(topic).map(|found| found.map(brief)),
        described => described.map(|found| found.map(full)),
    };
    described.map_err(|error| unreached(config, &error))?.ok_or_else(|| {
        Failure::input(
            format!("the topic {topic:?} does not exist at {:?}", config.kafka.addresses()),
            "create it first, with as many partitions as the one that the records come from",
        )
    })
}

fn failed(error: &Error) -> Failure {
    match error.kind {
        ErrorKind::Refused => Failure::input(&error.message, "compare the record with the topic's settings and rights"),
        _ => {
            Failure::run_with_help(&error.message, "what was written stays: see what the topic has before another try")
        }
    }
}
