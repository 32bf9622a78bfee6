//! Reads one partition, read_committed, with its own client, which is in no group.
//!
//! Invariant: the position never passes a record that was not returned. Beyond the last record (markers,
//! compacted gaps) it advances when a broker's response shows that no further record precedes an offset
//! (librdkafka's end-of-partition event); that offset is never taken for the end of the partition.
//!
//! **Failure**: an offset that the partition does not have is [`ErrorKind::Refused`]; a cluster that cannot be
//! reached is [`ErrorKind::Retry`], and reading resumes when the cluster can be reached.

use std::sync::Arc;
use std::time::Duration;

use super::epochs::{EpochRanges, Epochs};
use super::errors::Code;
use super::native::{Batch, Client, Consuming, Incoming, Signal, c_string};
use super::properties::Properties;
use super::seek::seek;
use super::slots::{is_fetched_again, unknown_epoch, unreadable};
use super::unreadable::truncated;
use crate::cluster::{self, Error, ErrorKind};
use crate::record::TopicPartition;

/// How long a broker delays the response to a fetch without records, and so the end-of-partition event.
const FETCH_WAIT_MS: &str = "10";

/// The properties of a client whose readers get end-of-partition events.
pub(super) fn with_eof_events(properties: &Properties) -> Properties {
    properties.with("enable.partition.eof", "true").with("fetch.wait.max.ms", FETCH_WAIT_MS)
}

/// A partition's reader. See [`cluster::Reader`].
pub struct Reader {
    partition: TopicPartition,
    partitions: Arc<[TopicPartition]>,
    consuming: Consuming,
    state: ReadState,
    epochs: Option<Arc<Epochs>>,
}

/// A reader's position, and the errors at it.
struct ReadState {
    position: i64,
    /// The returned ranges that are not recorded yet; `None` if they need not be recorded.
    read_ranges: Option<EpochRanges>,
    error: Option<Error>,
    /// Whether librdkafka reads on after the error, although no later record may be returned.
    is_stuck: bool,
    /// Whether a broker did not know the epoch of the record before the position, which is not recorded yet.
    is_epoch_unknown: bool,
}

impl Reader {
    /// Reads `partition` from `offset` on. Records that are read for a group are checked against the group's known
    /// `epochs`, and their own epochs are recorded there.
    pub(super) fn open(
        properties: &Properties,
        partition: &TopicPartition,
        offset: i64,
        epochs: Option<Arc<Epochs>>,
    ) -> Result<Self, Error> {
        Self::with_client(&Client::new(&with_eof_events(properties))?, partition, offset, epochs)
    }

    /// Like [`Reader::open`], with an existing client, whose properties are [`with_eof_events`] and which does not yet
    /// read this partition.
    pub(super) fn with_client(
        client: &Arc<Client>,
        partition: &TopicPartition,
        offset: i64,
        epochs: Option<Arc<Epochs>>,
    ) -> Result<Self, Error> {
        let consuming = Consuming::begin(client, &c_string(&partition.topic)?, partition.partition, offset)
            .map_err(|failure| failure.plain(format!("reading {partition}")))?;
        let partitions = Arc::from([partition.clone()]);
        let read_ranges = epochs.is_some().then(EpochRanges::default);
        let state = ReadState { position: offset, read_ranges, error: None, is_stuck: false, is_epoch_unknown: false };
        let reader = Self { partition: partition.clone(), partitions, consuming, state, epochs };
        let known = reader.epochs.as_ref().and_then(|epochs| epochs.begin(partition, offset));
        if known.is_some() {
            seek(reader.consuming.queue().client(), partition, offset, known)?;
        }
        Ok(reader)
    }

    /// Handles the client's events; librdkafka itself handles the loss of one connection.
    fn serve(&self) -> Result<(), Error> {
        while let Some(event) = self.consuming.queue().client().next_event(Duration::ZERO) {
            if let Signal::Error(failure) = event.signal()
                && failure.code != Code::RD_KAFKA_RESP_ERR__TRANSPORT
            {
                return Err(failure.plain(format_args!("reading {}", self.partition)));
            }
        }
        Ok(())
    }
}

impl ReadState {
    /// Processes a message of the partition; returns whether it is a record that has to be returned.
    fn accept(&mut self, message: Incoming<'_>, partition: &TopicPartition) -> bool {
        if self.is_stuck {
            return false;
        }
        let Some(failure) = message.failure() else {
            let new = message.offset() >= self.position;
            self.position = self.position.max(message.offset() + 1);
            if let Some(read) = &mut self.read_ranges {
                read.read(message.offset(), message.epoch());
            }
            return new;
        };
        if failure.code == Code::RD_KAFKA_RESP_ERR__PARTITION_EOF {
            // All records before this offset came before this message.
            self.position = self.position.max(message.offset());
        } else if failure.is_unknown_epoch() {
            self.is_epoch_unknown = true;
        } else if failure.is_truncation() {
            self.error = Some(truncated(partition, self.position));
        } else if !is_fetched_again(&failure) {
            self.is_stuck = message.is_passed_over();
            self.error = Some(unreadable(partition, self.position, &failure));
        }
        false
    }

    fn take_error(&mut self) -> Option<Error> {
        if self.is_stuck { self.error.clone() } else { self.error.take() }
    }
}

impl Reader {
    /// See [`cluster::Reader::read`].
    pub(super) fn read(&mut self, batch: &mut Batch, records_max: usize, wait: Duration) -> Result<(), Error> {
        batch.clear();
        self.serve()?;
        if let Some(error) = self.state.take_error() {
            return Err(error);
        }
        let Self { partition, partitions, consuming, state, epochs } = self;
        batch.fill(consuming.queue(), partitions, records_max, wait, |message| {
            state.accept(message, partition).then_some(0)
        });
        if let (Some(epochs), Some(read)) = (&epochs, &mut state.read_ranges) {
            epochs.note_read(partition, read);
        }
        if let (Some(epochs), true) = (&epochs, std::mem::take(&mut state.is_epoch_unknown)) {
            state.error = Some(unknown_epoch(epochs, partition, state.position, ErrorKind::Abort));
        }
        // Records before the error are returned first.
        if !cluster::RecordBatch::is_empty(batch) {
            return Ok(());
        }
        self.state.take_error().map_or(Ok(()), Err)
    }

    /// See [`cluster::Reader::position`].
    pub(super) fn position(&self) -> i64 {
        self.state.position
    }
}
