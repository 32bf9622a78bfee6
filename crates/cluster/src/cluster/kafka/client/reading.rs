//! Reads partitions on the wire: a fetcher and its connections.
//!
//! The next request to a broker is sent before its last answer is returned, so that it answers while the caller works.
//!
//! Invariant: the epochs known for the group cover all returned records.
//!
//! **Failure**: what keeps a partition from being read is [`Trouble`] in [`wire`](super::super::wire); its error has
//! librdkafka's wording. A rejected login or certificate is [`ErrorKind::Refused`]; brokers that cannot be reached are
//! [`ErrorKind::Retry`], reported at intervals.

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
use super::connecting::ClientSettings;
use super::network::Network;
use super::trouble::{Accepted, Loneliness};
use crate::cluster::{Detail, Error, ErrorKind, RecordBatch as _};
use crate::record::TopicPartition;

/// How long no broker may be reached before that is reported.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// How long to wait for more once positions have moved over markers alone, so that several markers share a commit.
const MARKERS_WAIT: Duration = Duration::from_millis(20);
/// How long the same trouble is not reported again.
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// Reads partitions.
pub struct Reading {
    network: Box<dyn Network>,
    brokers: Brokers,
    fetcher: Fetcher,
    unpack: Budgeted,
    loneliness: Loneliness,
    /// Whether the bell has rung while no call waited.
    has_rung: bool,
    /// The offsets at which partitions have lost records that had been read.
    truncated: HashMap<TopicPartition, i64>,
    /// When it was last reported that no broker can be asked.
    reported: Option<Instant>,
}

impl Reading {
    /// Starts without partitions. Once a login was accepted, a refused one is not reported.
    pub fn new(client: &ClientSettings, settings: &Arc<FetchSettings>, accepted: &Accepted) -> Self {
        let (network, brokers) = client.open();
        let fetcher = Fetcher::new(Arc::clone(settings));
        let loneliness = Loneliness::new(accepted);
        let truncated = HashMap::new();
        Self { network, brokers, fetcher, unpack: Budgeted, loneliness, has_rung: false, truncated, reported: None }
    }

    /// Ends a wait whenever `bell` is readable.
    pub fn wake_by(&mut self, bell: UnixStream) {
        self.network.wake_by(bell);
    }

    /// Reads `partition` from `offset` on; the broker first compares the epoch of the record before, if it is known.
    /// Fails at once if the partition was found to have lost records before this offset: it has not got them back.
    pub fn start(&mut self, partition: &TopicPartition, offset: i64, epoch_before: Option<i32>) -> Result<(), Error> {
        if epoch_before.is_some() && self.truncated.get(partition) == Some(&offset) {
            return Err(unreadable::truncated(partition, offset));
        }
        let now = self.network.now();
        self.truncated.remove(partition);
        self.fetcher.start(partition, offset, epoch_before, now);
        self.ask(now);
        Ok(())
    }

    /// Stops reading `partition` until the next start.
    pub fn pause(&mut self, partition: &TopicPartition) {
        self.fetcher.pause(partition);
    }

    /// Forgets `partition`.
    pub fn remove(&mut self, partition: &TopicPartition) {
        self.truncated.remove(partition);
        self.fetcher.remove(partition);
    }

    /// The offset after everything returned of `partition`, markers and gaps included.
    pub fn position(&self, partition: &TopicPartition) -> Option<i64> {
        self.fetcher.position(partition)
    }

    /// The last known end of `partition`.
    pub fn end(&self, partition: &TopicPartition) -> Option<i64> {
        self.fetcher.high_watermark(partition)
    }

    /// How long ago the broker from which `partition` is fetched last answered; `None` without such a broker or answer.
    pub fn heard_ago(&self, partition: &TopicPartition) -> Option<Duration> {
        self.fetcher.last_response_at(partition).map(|at| self.network.now().saturating_duration_since(at))
    }

    /// Whether records that are known to exist are on their way.
    pub fn has_more(&self) -> bool {
        self.fetcher.has_more(self.network.now())
    }

    /// Replaces the records in `batch` by those that have arrived, up to `records_max`, waiting up to `wait` for a
    /// first one. Offsets that were passed are recorded in `epochs`. Ends early when the bell rings, and soon if only
    /// markers or gaps were passed.
    pub fn poll(
        &mut self,
        batch: &mut Batch,
        records_max: usize,
        wait: Duration,
        epochs: Option<&Epochs>,
    ) -> Result<(), Error> {
        let began = self.network.now();
        // A caller that wants no records waits for none.
        let mut until = if records_max == 0 { began } else { began + wait };
        let mut now = began;
        let mut has_waited = false;
        loop {
            self.fetcher.poll(&mut self.brokers, now);
            batch.fill(|fetched| self.fetcher.take(records_max, &mut self.unpack, fetched, now));
            if let Some(epochs) = epochs {
                note(epochs, batch);
            }
            if !batch.is_empty() {
                // More is requested before these records are processed.
                self.ask(now);
                return Ok(());
            }
            if let Some((partition, trouble)) = self.fetcher.next_trouble() {
                return Err(self.error(&partition, trouble));
            }
            if !batch.fetched().passed().is_empty() {
                until = until.min(now + MARKERS_WAIT);
            }
            if has_waited && now >= until {
                return self.check(now);
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
    fn ask(&mut self, now: Instant) {
        self.fetcher.poll(&mut self.brokers, now);
        // A ring ends the next wait, since this call does not wait.
        self.has_rung |= self.network.drive(&mut self.brokers, Duration::ZERO);
    }

    /// Fails if no broker can be reached, or none accepts this client; reported at intervals.
    fn check(&mut self, now: Instant) -> Result<(), Error> {
        let Self { brokers, loneliness, reported, .. } = self;
        let Some(lasts) = loneliness.lasts(brokers, now) else {
            *reported = None;
            return Ok(());
        };
        if reported.is_some_and(|at| now.saturating_duration_since(at) < REPORT_EVERY) {
            return Ok(());
        }
        let error = match (loneliness.trouble(brokers, now), brokers.failure()) {
            (Some(trouble), _) => Error::new(ErrorKind::Refused, format!("reading: {trouble}")),
            (None, Some(reason)) if lasts >= SILENCE_MAX => {
                Error::new(ErrorKind::Retry, format!("reading: no broker can be reached: {reason}"))
            }
            _ => return Ok(()),
        };
        *reported = Some(now);
        Err(error)
    }

    fn error(&mut self, partition: &TopicPartition, trouble: Trouble) -> Error {
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
        // All replicas have it in this format. Any other format means a damaged head.
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

/// Records the passed offsets in the group's epochs.
fn note(epochs: &Epochs, batch: &Batch) {
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

    /// The run's exit code says whether a restart alone may help.
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
