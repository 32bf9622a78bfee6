//! Reads one partition, read_committed, by a client of its own that is in no group.
//!
//! Invariant: the position never passes a record that was not returned. Beyond the last record (markers,
//! compacted gaps) it moves when the broker's answer says that nothing more is there up to an offset
//! (librdkafka's end-of-partition event); that offset is never taken for the end of the partition.
//!
//! **Failure**: an offset that the partition does not have is [`Kind::Refused`]; a cluster that cannot be
//! reached is [`Kind::Retry`], and reading goes on by itself.

use std::sync::Arc;
use std::time::Duration;

use rdkafka::bindings as rd;

use super::batch::{Batch, Incoming};
use super::epochs::{Epochs, Stretches};
use super::errors::{Code, Failure};
use super::member::seek;
use super::native::{Client, Queue, Signal, Topic, c_string};
use super::properties::Properties;
use super::slots::{is_fetched_again, truncated, unknown_epoch, unreadable};
use crate::cluster::{self, Error, Kind};
use crate::record::TopicPartition;

/// How long the broker holds a fetch that finds nothing: what follows the last record is known this late.
const FETCH_WAIT_MS: &str = "10";

/// What a client needs of properties whose readers hear where nothing more is.
pub(super) fn telling_ends(properties: &Properties) -> Properties {
    properties.with("enable.partition.eof", "true").with("fetch.wait.max.ms", FETCH_WAIT_MS)
}

/// A partition's reader. See [`cluster::Reader`].
pub struct Reader {
    partition: TopicPartition,
    partitions: Arc<[TopicPartition]>,
    queue: Queue,
    topic: Topic,
    place: Place,
    epochs: Option<Arc<Epochs>>,
}

/// Where a reader stands, and what it has met there.
struct Place {
    position: i64,
    /// What was returned and is not noted yet, if it is to be.
    read: Option<Stretches>,
    trouble: Option<Error>,
    /// Whether librdkafka goes on behind the trouble, where nobody may.
    is_stuck: bool,
    /// Whether a broker has not known the epoch of the record before the position, which is not noted yet.
    is_epoch_unknown: bool,
}

impl Reader {
    /// Reads `partition` from `offset` on. What is read for a group is compared with the `epochs` that are known for it,
    /// and noted there.
    pub(super) fn open(
        properties: &Properties,
        partition: &TopicPartition,
        offset: i64,
        epochs: Option<Arc<Epochs>>,
    ) -> Result<Self, Error> {
        Self::on(&Client::new(&telling_ends(properties))?, partition, offset, epochs)
    }

    /// The same by a client that is there, with properties that are [`telling_ends`], and reads this partition nowhere else.
    pub(super) fn on(
        client: &Arc<Client>,
        partition: &TopicPartition,
        offset: i64,
        epochs: Option<Arc<Epochs>>,
    ) -> Result<Self, Error> {
        let queue = Queue::new(client);
        let what = || format!("reading {partition}");
        let topic = Topic::new(client, &c_string(&partition.topic)?).map_err(|failure| failure.plain(what()))?;
        // SAFETY: topic and queue are alive, and stay so until reading is stopped.
        let started =
            unsafe { rd::rd_kafka_consume_start_queue(topic.raw(), partition.partition, offset, queue.raw()) };
        if started != 0 {
            // SAFETY: reads the calling thread's last error.
            let code = unsafe { rd::rd_kafka_last_error() };
            let failure = Failure::of(code)
                .unwrap_or_else(|| Failure::new(Code::RD_KAFKA_RESP_ERR__FAIL, "it cannot be started"));
            return Err(failure.plain(what()));
        }
        let partitions = Arc::from([partition.clone()]);
        let read = epochs.is_some().then(Stretches::default);
        let place = Place { position: offset, read, trouble: None, is_stuck: false, is_epoch_unknown: false };
        let reader = Self { partition: partition.clone(), partitions, queue, topic, place, epochs };
        let known = reader.epochs.as_ref().and_then(|epochs| epochs.begin(partition, offset));
        if known.is_some() {
            seek(reader.queue.client(), partition, offset, known)?;
        }
        Ok(reader)
    }

    /// What the client tells of the cluster; the loss of one connection is its own business.
    fn serve(&self) -> Result<(), Error> {
        while let Some(event) = self.queue.client().next_event(Duration::ZERO) {
            if let Signal::Error(failure) = event.signal()
                && failure.code != Code::RD_KAFKA_RESP_ERR__TRANSPORT
            {
                return Err(failure.plain(format_args!("reading {}", self.partition)));
            }
        }
        Ok(())
    }
}

impl Place {
    /// Sorts a message of the partition; says whether it is to be returned.
    fn sort(&mut self, message: Incoming<'_>, partition: &TopicPartition) -> bool {
        if self.is_stuck {
            return false;
        }
        let Some(failure) = message.failure() else {
            let new = message.offset() >= self.position;
            self.position = self.position.max(message.offset() + 1);
            if let Some(read) = &mut self.read {
                read.read(message.offset(), message.epoch());
            }
            return new;
        };
        if failure.code == Code::RD_KAFKA_RESP_ERR__PARTITION_EOF {
            // Everything before this offset has come before this message.
            self.position = self.position.max(message.offset());
        } else if failure.is_unknown_epoch() {
            self.is_epoch_unknown = true;
        } else if failure.is_truncation() {
            self.trouble = Some(truncated(partition, self.position));
        } else if !is_fetched_again(&failure) {
            self.is_stuck = message.is_passed_over();
            self.trouble = Some(unreadable(partition, self.position, &failure));
        }
        false
    }

    fn take_trouble(&mut self) -> Option<Error> {
        if self.is_stuck { self.trouble.clone() } else { self.trouble.take() }
    }
}

impl cluster::Reader for Reader {
    type Batch = Batch;

    fn read(&mut self, batch: &mut Batch, records_max: usize, wait: Duration) -> Result<(), Error> {
        batch.clear();
        self.serve()?;
        if let Some(trouble) = self.place.take_trouble() {
            return Err(trouble);
        }
        let Self { partition, partitions, queue, place, epochs, .. } = self;
        batch.fill(queue, partitions, records_max, wait, |message| place.sort(message, partition).then_some(0));
        if let (Some(epochs), Some(read)) = (&epochs, &mut place.read) {
            epochs.note_read(partition, read);
        }
        if let (Some(epochs), true) = (&epochs, std::mem::take(&mut place.is_epoch_unknown)) {
            place.trouble = Some(unknown_epoch(epochs, partition, place.position, Kind::Abort));
        }
        // What came before the trouble is returned first.
        if !cluster::RecordBatch::is_empty(batch) {
            return Ok(());
        }
        self.place.take_trouble().map_or(Ok(()), Err)
    }

    fn position(&self) -> i64 {
        self.place.position
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // SAFETY: the topic is alive, and this partition of it was started.
        unsafe { rd::rd_kafka_consume_stop(self.topic.raw(), self.partition.partition) };
    }
}
