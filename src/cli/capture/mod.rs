//! `ratchet capture`: writes the records of a topic to a file, byte for byte, for `infer`, `replay` and `test`.
//!
//! It reads outside of any group and commits nothing. It ends at the ends that the partitions had when it began: while the
//! topic is written to, it does not follow. SIGINT and SIGTERM end it early, with a file that is whole.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::Failure;
use super::inputs::{SettingArgs, refused, unreached};
use super::progress::RecordsBar;
use super::stderr::say;
use crate::capture::write_capture;
use crate::cluster::kafka::{Isolation, Kafka, Scan, Scanner, Span};
use crate::cluster::{self, Cluster as _};
use crate::config::Config;
use crate::record::{Record, TopicPartition};
use crate::words::counted;
use crate::worker::signals;

mod output;
mod place;

use output::Output;
use place::At;

/// How long to wait for a record before looking whether to stop.
const WAIT: Duration = Duration::from_millis(100);
/// Maximum number of partitions that are named in a message.
const NAMED_MAX: usize = 8;

const EXAMPLES: &str = "\
Examples:
  ratchet capture payments --config config/ratchet.yaml --out captured.jsonl

  # what topology would fit, and what would it do?
  ratchet infer captured.jsonl > topologies/payments.yaml
  ratchet replay topologies/payments.yaml captured.jsonl --summary > out

  # the last two hours of a partition, packed
  ratchet capture payments --set kafka.bootstrap.servers=localhost:9092 \\
    --partition 3 --from -2h --out captured.jsonl.zst

  # the records of one order
  ratchet capture payments --config config/ratchet.yaml --key order-7 |
    jq '.payload | fromjson'

A place for `--from` and `--to` is an offset (1200), a number of offsets before
the end (-1000), a time (2026-11-30T08:00:00Z), a time before now (-10m, -2d),
`earliest` or `latest`.
Exit codes: 0 captured, 1 it failed, 2 the input is wrong.";

/// Options of `ratchet capture`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The topic
    #[arg(value_name = "TOPIC")]
    topic: String,

    #[command(flatten)]
    settings: SettingArgs,

    /// The file to write, packed if its name ends in `.gz` or `.zst`; it must not exist [default: standard output]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Where each partition begins
    #[arg(long, value_name = "PLACE", default_value = "earliest", allow_hyphen_values = true)]
    from: At,

    /// Where each partition ends: before this place, at the latest at its end as of now
    #[arg(long, value_name = "PLACE", default_value = "latest", allow_hyphen_values = true)]
    to: At,

    /// A partition; may be repeated [default: all]
    #[arg(long = "partition", value_name = "NUMBER", value_parser = clap::value_parser!(i32).range(0..))]
    partitions: Vec<i32>,

    /// Maximum number of records, of all partitions together
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,

    /// Only records with this key
    #[arg(long, value_name = "TEXT", conflicts_with = "key_base64")]
    key: Option<String>,

    /// The same for a key that is no text, in base64
    #[arg(long, value_name = "BASE64", value_parser = from_base64)]
    key_base64: Option<Key>,

    /// Also records of transactions that were aborted or are open
    #[arg(long)]
    uncommitted: bool,
}

/// A key's bytes.
#[derive(Clone, Debug)]
struct Key(Vec<u8>);

fn from_base64(text: &str) -> Result<Key, String> {
    BASE64_STANDARD.decode(text).map(Key).map_err(|error| error.to_string())
}

/// Captures the records.
pub fn run(args: &Args) -> Result<(), Failure> {
    let (config, kafka) = args.settings.open_cluster()?;
    let partitions = partitions(&config, &kafka, args)?;
    let isolation = if args.uncommitted { Isolation::Uncommitted } else { Isolation::Committed };
    let scanner = kafka.scanner(isolation).map_err(|error| refused(&error))?;
    let found = spans(&kafka, &scanner, &partitions, args).map_err(|error| refused(&error))?;
    let spans: Vec<Span> = found.iter().map(|(span, _)| span.clone()).collect();
    let output = Output::open(args.out.as_deref())?;
    // From here on a signal is only a request, so the file is completed.
    let stop = Arc::new(AtomicBool::new(false));
    signals::watch(Arc::clone(&stop)).map_err(|error| Failure::run(&error))?;
    let key = args.key.as_ref().map(|key| key.as_bytes().to_vec());
    let key = key.or_else(|| args.key_base64.as_ref().map(|key| key.0.clone()));
    let mut capture = Capture { output, lines: Vec::new(), written: 0, limit: args.limit.unwrap_or(u64::MAX), key };
    let offsets: u64 = spans.iter().map(|span| (span.to - span.from).unsigned_abs()).sum();
    let mut scan = scanner.scan(spans);
    let progress = RecordsBar::begin(Some(offsets), args.out.is_none());
    let ended = capture.run(&mut scan, &stop, &progress);
    progress.end();
    match ended {
        Ok(end) => {
            capture.output.finish()?;
            let what = format!("{} of {}", counted(capture.written, "record"), args.topic);
            tell(args, &what, end, &scan, &found);
            Ok(())
        }
        Err(failure) => {
            if let Some(partial) = capture.output.abandon() {
                say(format_args!("{} has what was captured until then, and is not complete\n", partial.display()));
            }
            Err(failure)
        }
    }
}

/// The partitions to capture.
fn partitions(config: &Config, kafka: &Kafka, args: &Args) -> Result<Vec<TopicPartition>, Failure> {
    let topic = args.topic.as_str();
    let outline = kafka.describe_topic_briefly(topic).map_err(|error| unreached(config, &error))?;
    let Some(outline) = outline else {
        return Err(Failure::input(
            format!("the topic {topic:?} does not exist at {:?}", config.kafka.addresses()),
            "correct its name, or `bootstrap.servers` under `kafka:` in the configuration; a topic that ratchet may not \
             describe does not exist for it either",
        ));
    };
    let count = outline.partition_count;
    let mut numbers = if args.partitions.is_empty() { (0..count).collect() } else { args.partitions.clone() };
    numbers.sort_unstable();
    numbers.dedup();
    if let Some(beyond) = numbers.iter().find(|number| **number >= count) {
        let has = counted(count.unsigned_abs(), "partition");
        return Err(Failure::input(
            format!("the topic {topic:?} has {has}, and no partition {beyond}"),
            format!("name partitions from 0 to {}", count - 1),
        ));
    }
    let topic: Arc<str> = topic.into();
    Ok(numbers.into_iter().map(|number| TopicPartition::new(Arc::clone(&topic), number)).collect())
}

/// What is captured of each partition; and its end (high watermark), if a transaction is open before that, so that
/// committed records end sooner.
fn spans(
    kafka: &Kafka,
    scanner: &Scanner,
    partitions: &[TopicPartition],
    args: &Args,
) -> Result<Vec<(Span, Option<i64>)>, cluster::Error> {
    let now = wall_ms();
    let mut ends = Vec::with_capacity(partitions.len());
    for partition in partitions {
        // In this order: a transaction that ends in between does not seem to be open.
        let (_, end) = kafka.bounds(partition)?;
        ends.push((scanner.bounds(partition)?, end));
    }
    let [from, to] = [args.from, args.to].map(|at| match at.time(now) {
        Some(ms) => scanner.offsets_at(partitions, ms),
        None => Ok(vec![None; partitions.len()]),
    });
    let spans = partitions.iter().zip(ends).zip(from?).zip(to?).map(|(((partition, (bounds, end)), from), to)| {
        let (from, to) = (args.from.offset(bounds, from), args.to.offset(bounds, to));
        let is_cut = to == bounds.1 && bounds.1 < end;
        (Span { partition: partition.clone(), from, to: to.max(from) }, is_cut.then_some(end))
    });
    Ok(spans.collect())
}

/// How a capture has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Everything was read.
    All,
    /// As many records as were wanted are captured.
    Limit,
    /// A signal came.
    Signal,
}

/// A capture in progress.
struct Capture {
    output: Output,
    /// Lines to write.
    lines: Vec<u8>,
    /// How many records were captured.
    written: u64,
    limit: u64,
    /// The key of the records that are captured; `None` for all.
    key: Option<Vec<u8>>,
}

impl Capture {
    fn run(&mut self, scan: &mut Scan, stop: &AtomicBool, progress: &RecordsBar) -> Result<End, Failure> {
        loop {
            let more = scan.step(WAIT, |record, is_stamped| {
                if self.take(record, is_stamped) {
                    progress.add();
                }
            });
            self.output.write(&self.lines)?;
            self.lines.clear();
            progress.update(scan.passed());
            let more = more.map_err(|error| refused(&error))?;
            if self.written >= self.limit {
                return Ok(End::Limit);
            }
            if !more {
                return Ok(End::All);
            }
            if stop.load(Ordering::Relaxed) {
                return Ok(End::Signal);
            }
        }
    }

    /// Captures a record if it is wanted.
    fn take(&mut self, record: &Record<'_>, is_stamped: bool) -> bool {
        let is_wanted = self.written < self.limit && self.key.as_deref().is_none_or(|key| record.key == Some(key));
        if is_wanted {
            write_capture(record, is_stamped, &mut self.lines);
            self.written += 1;
        }
        is_wanted
    }
}

/// Says what was captured, and what was not.
fn tell(args: &Args, what: &str, end: End, scan: &Scan, found: &[(Span, Option<i64>)]) {
    let unread: Vec<String> = match end {
        End::Signal => scan.unread().map(|span| format!("{} from {} on", span.partition, span.from)).collect(),
        End::All | End::Limit => Vec::new(),
    };
    let how = match end {
        End::All => String::new(),
        End::Limit => ", the first ones that were read (`--limit`)".to_owned(),
        End::Signal => format!(", interrupted: not read are {}", named(&unread)),
    };
    match &args.out {
        Some(out) => say(format_args!("{}: {what}{how}\n", out.display())),
        // The reader of the records can count them.
        None if end == End::All && !io::stderr().is_terminal() => {}
        None => say(format_args!("{what}{how}\n")),
    }
    let open: Vec<String> = found
        .iter()
        .filter_map(|(span, end)| Some(format!("{} from {} to {}", span.partition, span.to, (*end)?)))
        .collect();
    if !open.is_empty() {
        say(format_args!(
            "note: transactions were open, and what lies behind their beginnings is left out: {}; `--uncommitted` \
             captures it\n",
            named(&open)
        ));
    }
}

fn named(all: &[String]) -> String {
    let more = match all.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}{more}", all[..all.len().min(NAMED_MAX)].join(", "))
}

/// The wall clock, in milliseconds since the epoch, for places that are times before now.
#[expect(clippy::disallowed_methods, reason = "the command line is the edge at which the real clock is read")]
fn wall_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
