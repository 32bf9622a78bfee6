//! The reader and transactor of an isolated task, and the reason for its isolation.

use std::time::Duration;

use crate::cluster::{self, Cluster, ErrorKind};
use crate::engine::bisect::Bisect;
use crate::engine::context::Context;
use crate::engine::failure::Cause;
use crate::engine::transact::Transactor;
use crate::observe::LaneMetrics;
use crate::record::TopicPartition;

/// Why a task is isolated, and up to which offset. It outlives the task's restores.
#[derive(Clone, Debug)]
pub struct Quarantine {
    /// The task returns once it has committed up to this source offset.
    pub(super) until: i64,
    /// How many records one transaction may have.
    pub(super) bisect: Bisect,
    /// A record that the cluster refuses for good, and the cluster's message.
    pub unsendable: Option<(i64, String)>,
    /// How many attempts in a row have failed.
    pub(super) attempts: u32,
    /// When the next attempt is due, on the monotonic clock.
    pub(super) retry_at: Duration,
}

impl Quarantine {
    /// The quarantine of a task whose records up to `until` were in a transaction that could not be delivered.
    pub fn new(context: &Context, until: i64, refused: bool) -> Self {
        let limit = context.limits.isolated_records_max;
        let mut bisect = Bisect::new(limit);
        if refused {
            bisect.on_refused(limit);
        }
        Self { until, bisect, unsendable: None, attempts: 0, retry_at: Duration::ZERO }
    }

    /// Called when the cluster has refused some of the `attempted` records; `last` holds the offset of the last record
    /// and the cluster's message. A single record is the one sought; otherwise the next attempt has half as many
    /// records.
    pub(super) fn on_refused(&mut self, attempted: usize, last: (i64, String)) {
        match attempted {
            1 => self.unsendable = Some(last),
            _ => self.bisect.on_refused(attempted),
        }
    }

    /// Whether the next attempt is due.
    pub fn is_attempt_due(&self, now: Duration) -> bool {
        now >= self.retry_at
    }

    /// How many attempts in a row have failed.
    pub fn failures(&self) -> u32 {
        self.attempts
    }
}

/// An isolated task's work: its own reader and transactor.
pub struct IsolatedWork<C: Cluster> {
    pub(super) transactor: Transactor<C>,
    pub(super) reader: C::Reader,
    pub(super) batch: C::Batch,
    /// How many of the batch's records were processed.
    pub(super) processed_count: usize,
    /// How many of these are in the last transaction.
    pub(super) attempted: usize,
    /// Since when no record has arrived, on the monotonic clock.
    pub(super) idle_since: Option<Duration>,
    /// Whether a sealed transaction is waiting for its deliveries.
    pub(super) sealed: bool,
}

impl<C: Cluster> IsolatedWork<C> {
    /// The work of a task that continues at `next`, which `group` has committed.
    pub fn new(
        cluster: &C,
        group: &str,
        (input, next): (&TopicPartition, i64),
        transactor: Transactor<C>,
    ) -> Result<Self, cluster::Error> {
        let reader = cluster.reader_for(group, input, next)?;
        let batch = C::Batch::default();
        Ok(Self { transactor, reader, batch, processed_count: 0, attempted: 0, idle_since: None, sealed: false })
    }

    /// Aborts the open transaction, so that the next owner need not wait for its timeout.
    pub fn abandon(&mut self, cluster: &C, metrics: &LaneMetrics) {
        if self.transactor.is_open() {
            let cause = Cause::Cluster(cluster::Error::new(ErrorKind::Abort, "the task is released"));
            self.transactor.abort(cluster, &cause, metrics);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn search_keeps_its_size_once_a_record_is_found() {
        let mut quarantine =
            Quarantine { until: 0, bisect: Bisect::new(500), unsendable: None, attempts: 0, retry_at: Duration::ZERO };
        quarantine.on_refused(80, (79, "too large".to_owned()));
        assert_eq!((quarantine.bisect.records_max(), &quarantine.unsendable), (40, &None));
        // The reader returned only one record.
        quarantine.on_refused(1, (12, "too large".to_owned()));
        assert_eq!((quarantine.bisect.records_max(), quarantine.unsendable), (40, Some((12, "too large".to_owned()))));
    }
}
