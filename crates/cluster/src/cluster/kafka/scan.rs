//! Reads ranges of offsets of a topic's partitions, outside of any group: nothing is committed, and no consumer is
//! disturbed.
//!
//! Several partitions are read side by side, by one client. An end is an offset, not a record: markers, compacted gaps and
//! records of aborted transactions count as read ([`super::reader`]), so a partition that ends with them ends.
//!
//! **Failure**: an offset that a partition no longer has is [`ErrorKind::Refused`]. Temporary errors are retried until
//! nothing was read for [`SILENCE_MAX`].

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::errors::Code;
use super::native::{Batch, Client, List};
use super::properties::Properties;
use super::reader::{Reader, with_eof_events};
use super::settle::{RESPONSE_MAX, watermarks};
use crate::cluster::{Error, ErrorKind, RecordBatch as _};
use crate::record::{Record, TopicPartition};

/// How many partitions are read at the same time: each has a queue of its own.
const AT_ONCE_MAX: usize = 32;
/// How many records of a partition are returned before it is the next one's turn.
const RECORDS_AT_ONCE: usize = 500;
/// How long nothing may be read before reading fails.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// How long a query about a partition is repeated.
const QUERY_MAX: Duration = Duration::from_secs(30);
/// Pause between two queries.
const QUERY_PAUSE: Duration = Duration::from_millis(100);

/// Which records are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// Records of committed transactions, and records outside of transactions.
    Committed,
    /// All records.
    Uncommitted,
}

/// A client that reads topics outside of any group.
pub struct Scanner {
    client: Arc<Client>,
}

/// A range of a partition's offsets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The partition.
    pub partition: TopicPartition,
    /// The first offset.
    pub from: i64,
    /// The offset after the last one.
    pub to: i64,
}

/// Partitions that are being read.
pub struct Scan {
    client: Arc<Client>,
    waiting: VecDeque<Span>,
    reading: Vec<Reading>,
    /// How many offsets were passed in partitions that are done.
    done: u64,
    batch: Batch,
    progress_at: Instant,
    /// The last error that was retried.
    last_error: Option<Error>,
    /// The partition to wait for next.
    turn: usize,
}

struct Reading {
    span: Span,
    reader: Reader,
}

impl Reading {
    /// The offset after all that was read, at most the span's end.
    fn position(&self) -> i64 {
        self.reader.position().clamp(self.span.from, self.span.to)
    }
}

impl Scanner {
    /// A client with a reader's properties; it connects in the background.
    pub(super) fn open(reader: &Properties, isolation: Isolation) -> Result<Self, Error> {
        let level = match isolation {
            Isolation::Committed => "read_committed",
            Isolation::Uncommitted => "read_uncommitted",
        };
        let client = Client::new(&with_eof_events(reader).with("isolation.level", level))?;
        Ok(Self { client })
    }

    /// A partition's first offset and its end. If only committed records are read, the end is the last stable offset.
    pub fn bounds(&self, partition: &TopicPartition) -> Result<(i64, i64), Error> {
        persist(|| watermarks(&self.client, partition, RESPONSE_MAX))
    }

    /// The offset of the first record in each partition with this timestamp, in milliseconds since the epoch, or a later
    /// one; `None` for a partition without such a record.
    pub fn offsets_at(&self, partitions: &[TopicPartition], ms: i64) -> Result<Vec<Option<i64>>, Error> {
        let what = "querying the offsets at a time";
        let found = persist(|| {
            let list = List::of(partitions, ms)?;
            let failure = self.client.offsets_at(&list, RESPONSE_MAX);
            // Some partitions may have no response in time: they have errors of their own.
            let failure = failure.filter(|failure| failure.code != Code::RD_KAFKA_RESP_ERR__PARTIAL);
            match failure.or_else(|| list.failure().map(|(_, failure)| failure)) {
                None => Ok(list),
                Some(failure) => Err(self.client.explain(failure).plain(what)),
            }
        })?;
        let of = |partition: &TopicPartition| found.iter().find(|element| element.partition() == *partition);
        Ok(partitions.iter().map(|wanted| of(wanted).map(|found| found.offset()).filter(|at| *at >= 0)).collect())
    }

    /// Starts to read these ranges.
    pub fn scan(&self, spans: Vec<Span>) -> Scan {
        Scan {
            client: Arc::clone(&self.client),
            waiting: spans.into_iter().filter(|span| span.from < span.to).collect(),
            reading: Vec::new(),
            done: 0,
            batch: Batch::default(),
            progress_at: Instant::now(),
            last_error: None,
            turn: 0,
        }
    }
}

impl Scan {
    /// Reads what is there, waiting up to `wait` if nothing is; passes each record to `visit`, and whether the broker has
    /// set its timestamp. Returns whether there may be more.
    pub fn step(&mut self, wait: Duration, mut visit: impl FnMut(&Record<'_>, bool)) -> Result<bool, Error> {
        while self.reading.len() < AT_ONCE_MAX
            && let Some(span) = self.waiting.pop_front()
        {
            let reader = Reader::with_client(&self.client, &span.partition, span.from, None)?;
            self.reading.push(Reading { span, reader });
        }
        let before = self.passed();
        for index in 0..self.reading.len() {
            self.read(index, Duration::ZERO, &mut visit)?;
        }
        if self.passed() == before && !self.reading.is_empty() {
            self.turn = (self.turn + 1) % self.reading.len();
            self.read(self.turn, wait, &mut visit)?;
        }
        if self.passed() > before {
            (self.progress_at, self.last_error) = (Instant::now(), None);
        } else if self.progress_at.elapsed() >= SILENCE_MAX {
            return Err(self.silence());
        }
        let done = &mut self.done;
        self.reading.retain(|Reading { span, reader }| {
            let is_read = reader.position() >= span.to;
            *done += if is_read { (span.to - span.from).unsigned_abs() } else { 0 };
            !is_read
        });
        Ok(!self.reading.is_empty() || !self.waiting.is_empty())
    }

    /// How many offsets were passed, of all partitions together.
    pub fn passed(&self) -> u64 {
        let of = |reading: &Reading| (reading.position() - reading.span.from).unsigned_abs();
        self.done + self.reading.iter().map(of).sum::<u64>()
    }

    /// The ranges that are left to read.
    pub fn unread(&self) -> impl Iterator<Item = Span> {
        let rest = |reading: &Reading| Span { from: reading.position(), ..reading.span.clone() };
        self.reading.iter().map(rest).chain(self.waiting.iter().cloned())
    }

    fn read(&mut self, index: usize, wait: Duration, visit: &mut impl FnMut(&Record<'_>, bool)) -> Result<(), Error> {
        let Self { reading, batch, last_error, .. } = self;
        let Reading { span, reader } = &mut reading[index];
        match reader.read(batch, RECORDS_AT_ONCE, wait) {
            Err(error) if error.kind != ErrorKind::Retry => return Err(error.of(&span.partition)),
            Err(error) => *last_error = Some(error),
            Ok(()) => {}
        }
        for index in 0..batch.len() {
            let record = batch.record(index);
            if record.offset < span.to {
                visit(&record, batch.is_stamped(index));
            }
        }
        Ok(())
    }

    fn silence(&self) -> Error {
        let at =
            self.unread().next().map_or_else(String::new, |span| format!("{} at offset {}", span.partition, span.from));
        let why = self.last_error.as_ref().map_or_else(String::new, |error| format!(" ({error})"));
        let message = format!("reading {at}: nothing came for {} s{why}", SILENCE_MAX.as_secs());
        Error::new(ErrorKind::Retry, message)
    }
}

/// Repeats a query while its error may pass.
fn persist<T>(mut query: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    let deadline = Instant::now() + QUERY_MAX;
    loop {
        match query() {
            Err(error) if error.kind == ErrorKind::Retry && Instant::now() < deadline => {
                std::thread::sleep(QUERY_PAUSE);
            }
            answer => return answer,
        }
    }
}
