//! Reads partitions on the wire (ratchet's own client): a fetcher, which decides what to request, with its connections.
//!
//! Reading passes one offset after the other, but not every offset has a record to return: markers (which end
//! transactions), aborted records and the gaps that compaction has left are passed over.
//!
//! The next request to a broker is sent before the records of its last response are returned, so that the broker works
//! on it while the caller processes these records.
//!
//! Invariant: if partitions are read for a consumer group, the leader epochs (KIP-320) of all passed offsets are
//! recorded for the group before the records are returned.
//!
//! **Failure**: the reason why a partition cannot be read is [`Trouble`] in [`wire`](super::super::wire); most of its
//! errors are built by `unreadable`, as on librdkafka's data path. A rejected login or certificate is
//! [`ErrorKind::Refused`]; brokers that cannot be reached are [`ErrorKind::Retry`], reported at intervals.

use std::collections::HashMap;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::descriptions;
use super::super::epochs::{EpochRanges, Epochs};
use super::super::unpack::Budgeted;
use super::super::unreadable;
use super::super::wire::brokers::Brokers;
use super::super::wire::code;
use super::super::wire::fetcher::{FetchSettings, Fetcher, Trouble};
use super::super::wire::records;
use super::batch::Batch;
use super::client_settings::ClientSettings;
use super::network::Network;
use super::trouble::{AcceptedLogins, Outage};
use crate::cluster::{Detail, Error, ErrorKind, RecordBatch as _};
use crate::record::TopicPartition;

/// How long all brokers may be unreachable before this is reported.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// How long to wait for records once offsets without a record to return were passed, such as those of markers. Several
/// markers may arrive in this time, and the caller then commits the new position once, not once for each marker.
const MARKERS_WAIT: Duration = Duration::from_millis(20);
/// The shortest time between two reports during one outage of the brokers.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// A fetcher with its connections.
pub struct FetchClient {
    network: Box<dyn Network>,
    brokers: Brokers,
    fetcher: Fetcher,
    /// Unpacks compressed batches within the process's memory budget.
    unpack: Budgeted,
    outage: Outage,
    /// Whether the bell (see [`FetchClient::wake_by`]) rang while no call was waiting.
    has_rung: bool,
    /// For partitions that have lost records that had been read: the offset up to which they were read.
    truncated: HashMap<TopicPartition, i64>,
    /// When an outage of all brokers was last reported.
    last_report_at: Option<Instant>,
}

impl FetchClient {
    /// Starts without partitions. Once a login was accepted, later refusals of it are not reported.
    pub fn new(client: &ClientSettings, settings: &Arc<FetchSettings>, accepted: &AcceptedLogins) -> Self {
        let (network, brokers) = client.open();
        let fetcher = Fetcher::new(Arc::clone(settings));
        let outage = Outage::new(accepted);
        let truncated = HashMap::new();
        Self { network, brokers, fetcher, unpack: Budgeted, outage, has_rung: false, truncated, last_report_at: None }
    }

    /// Ends a wait whenever `bell` is readable: another thread rings it by writing to its other end.
    pub fn wake_by(&mut self, bell: UnixStream) {
        self.network.wake_by(bell);
    }

    /// Reads `partition` from `offset` on. `epoch_before` is the leader epoch of the record before `offset`, if known:
    /// the client then first asks the broker whether the partition still holds the records that were read up to
    /// `offset`. Fails at once if an earlier attempt found that it does not: a new one would find the same.
    pub fn start(&mut self, partition: &TopicPartition, offset: i64, epoch_before: Option<i32>) -> Result<(), Error> {
        if epoch_before.is_some() && self.truncated.get(partition) == Some(&offset) {
            return Err(unreadable::truncated(partition, offset));
        }
        let now = self.network.now();
        self.truncated.remove(partition);
        self.fetcher.start(partition, offset, epoch_before);
        self.send_requests(now);
        Ok(())
    }

    /// Stops reading `partition` until it is started again.
    pub fn pause(&mut self, partition: &TopicPartition) {
        self.fetcher.pause(partition);
    }

    /// Forgets `partition`.
    pub fn remove(&mut self, partition: &TopicPartition) {
        self.truncated.remove(partition);
        self.fetcher.remove(partition);
    }

    /// The offset after the returned records of `partition`, and after the markers and gaps that were passed.
    pub fn position(&self, partition: &TopicPartition) -> Option<i64> {
        self.fetcher.position(partition)
    }

    /// The last known high watermark of `partition`.
    pub fn high_watermark(&self, partition: &TopicPartition) -> Option<i64> {
        self.fetcher.high_watermark(partition)
    }

    /// How long ago the broker from which `partition` is fetched last responded; `None` without such a broker or
    /// response.
    pub fn heard_ago(&self, partition: &TopicPartition) -> Option<Duration> {
        self.fetcher.last_response_at(partition).map(|at| self.network.now().saturating_duration_since(at))
    }

    /// Whether records that are known to exist are on their way.
    pub fn has_more(&self) -> bool {
        self.fetcher.has_more(self.network.now())
    }

    /// Replaces the records in `batch` by up to `records_max` records that have arrived, waiting up to `wait` for the
    /// first one. The leader epochs of the passed offsets are recorded in `epochs`. Returns early when the bell rings,
    /// and soon if only offsets without a record to return were passed.
    pub fn poll(
        &mut self,
        batch: &mut Batch,
        records_max: usize,
        wait: Duration,
        epochs: Option<&Epochs>,
    ) -> Result<(), Error> {
        let began = self.network.now();
        // A caller that requests no records does not wait.
        let mut until = if records_max == 0 { began } else { began + wait };
        let mut now = began;
        let mut has_waited = false;
        loop {
            self.fetcher.poll(&mut self.brokers, now);
            batch.fill(|fetched| self.fetcher.take(records_max, &mut self.unpack, fetched, now));
            if let Some(epochs) = epochs {
                record_epochs(epochs, batch);
            }
            if !batch.is_empty() {
                // Further records are requested before these are processed.
                self.send_requests(now);
                return Ok(());
            }
            if let Some((partition, trouble)) = self.fetcher.next_trouble() {
                return Err(self.error_of(&partition, trouble));
            }
            if !batch.fetched().passed().is_empty() {
                until = until.min(now + MARKERS_WAIT);
            }
            if has_waited && now >= until {
                return self.check_brokers(now);
            }
            let next = self.fetcher.next_tick().map_or(until, |tick| tick.min(until));
            let wait = if self.has_rung { Duration::ZERO } else { next.saturating_duration_since(now) };
            let rang = self.network.drive(&mut self.brokers, wait) | std::mem::take(&mut self.has_rung);
            now = self.network.now();
            has_waited = true;
            if rang {
                return Ok(());
            }
        }
    }

    /// Sends the requests that are due.
    fn send_requests(&mut self, now: Instant) {
        self.fetcher.poll(&mut self.brokers, now);
        // This call does not wait: a ring ends the next wait instead.
        self.has_rung |= self.network.drive(&mut self.brokers, Duration::ZERO);
    }

    /// Fails if no broker can be reached, or none accepts this client, but only once per [`REPORT_INTERVAL`].
    fn check_brokers(&mut self, now: Instant) -> Result<(), Error> {
        let Self { brokers, outage, last_report_at, .. } = self;
        let Some(duration) = outage.duration(brokers, now) else {
            *last_report_at = None;
            return Ok(());
        };
        if last_report_at.is_some_and(|at| now.saturating_duration_since(at) < REPORT_INTERVAL) {
            return Ok(());
        }
        let error = match (outage.trouble(brokers, now), brokers.failure()) {
            (Some(trouble), _) => Error::new(ErrorKind::Refused, format!("reading: {trouble}")),
            (None, Some(reason)) if duration >= SILENCE_MAX => {
                Error::new(ErrorKind::Retry, format!("reading: no broker can be reached: {reason}"))
            }
            _ => return Ok(()),
        };
        *last_report_at = Some(now);
        Err(error)
    }

    fn error_of(&mut self, partition: &TopicPartition, trouble: Trouble) -> Error {
        if let Trouble::Truncated { offset, .. } | Trouble::UnknownEpoch { offset, .. } = trouble {
            self.truncated.insert(partition.clone(), offset);
        }
        error(partition, self.position(partition).unwrap_or_default(), trouble)
    }
}

/// The error for a partition that cannot be read beyond this position.
fn error(partition: &TopicPartition, position: i64, trouble: Trouble) -> Error {
    let failed = || format!("{}: {trouble}", unreadable::reading(partition, position));
    match trouble {
        Trouble::OffsetOutOfRange { offset } => {
            let why = descriptions::of_broker(code::OFFSET_OUT_OF_RANGE).unwrap_or_default();
            unreadable::out_of_range(partition, offset, why)
        }
        Trouble::Truncated { offset, .. } | Trouble::UnknownEpoch { offset, .. } => {
            unreadable::truncated(partition, offset)
        }
        Trouble::UnpacksTooLarge { offset } => unreadable::too_large_unpacked(partition, offset),
        Trouble::TooLarge { offset, bytes } => unreadable::too_large_fetched(partition, offset, bytes),
        // All replicas have the batch in this old format, so no other replica would help. Any other unknown format
        // means a damaged head.
        Trouble::Damaged { offset, what: what @ records::Error::Magic(0 | 1) } => {
            let message = format!("{partition} cannot be read at offset {offset}: {what}");
            Error::new(ErrorKind::Refused, message).of(partition)
        }
        Trouble::Damaged { .. } => unreadable::damaged(partition, position, trouble),
        Trouble::Inconsistent { offset } => {
            let message = format!(
                "{partition} cannot be read at offset {offset}: its leader returns nothing there but does return a \
                 later record. The leader's offset index may be damaged: make another replica the leader"
            );
            Error::new(ErrorKind::Refused, message).with(Some(Detail::Damaged)).of(partition)
        }
        Trouble::Denied => unreadable::denied(partition, position, trouble),
        Trouble::Missing => Error::new(ErrorKind::Refused, failed()).with(Some(Detail::Missing)).of(partition),
        Trouble::Unsupported { .. } => Error::new(ErrorKind::Refused, failed()).of(partition),
    }
}

/// Records the leader epochs of the passed offsets for the group.
fn record_epochs(epochs: &Epochs, batch: &Batch) {
    let fetched = batch.fetched();
    for (index, partition) in fetched.partitions().iter().enumerate() {
        let mut ranges = EpochRanges::default();
        for passed in fetched.passed().iter().filter(|passed| passed.partition == index) {
            ranges.passed(passed.first, passed.next, passed.leader_epoch);
        }
        epochs.note_read(partition, &mut ranges);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `may_pass` says whether a restart alone may help; the exit code of a run tells this to its supervisor.
    #[test]
    fn permanently_unreadable_batch_is_distinguished_from_a_damaged_one() {
        let partition = TopicPartition::new("in", 3);
        let damaged = |what| Trouble::Damaged { offset: 7, what };
        for (trouble, may_pass, words) in [
            (damaged(records::Error::Damaged("its checksum is wrong")), true, "damaged on the brokers"),
            (damaged(records::Error::Magic(77)), true, "damaged on the brokers"),
            (Trouble::Inconsistent { offset: 7 }, true, "make another replica the leader"),
            (damaged(records::Error::Magic(1)), false, "data_path: librdkafka"),
            (Trouble::TooLarge { offset: 7, bytes: 200 }, false, "has 200 bytes, more than receive.message.max.bytes"),
            (Trouble::UnpacksTooLarge { offset: 7 }, false, "more than the"),
        ] {
            let error = error(&partition, 7, trouble);
            assert_eq!((error.kind, error.may_pass()), (ErrorKind::Refused, may_pass), "{trouble:?}");
            assert!(
                error.message.contains("in:3 cannot be read at offset 7") && error.message.contains(words),
                "{error}"
            );
            assert_eq!(error.partition, Some(partition.clone()));
        }
    }
}
