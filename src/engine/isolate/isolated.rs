//! The means of an isolated task, and the reason for its isolation.

use std::time::Duration;

use crate::cluster::{self, Cluster, ErrorKind};
use crate::engine::bisect::Bisect;
use crate::engine::context::Context;
use crate::engine::failure::Cause;
use crate::engine::transact::Transactor;
use crate::observe::LaneMetrics;
use crate::record::TopicPartition;

/// Why and until where a task is isolated. Survives its restores.
#[derive(Clone, Debug)]
pub struct Quarantine {
    /// The task returns once it has committed up to this source offset.
    pub(super) until: i64,
    /// How many records are tried in one transaction.
    pub(super) bisect: Bisect,
    /// A record that the cluster refuses for good, and the cluster's message.
    pub unsendable: Option<(i64, String)>,
    pub(super) attempts: u32,
    pub(super) retry_at: Duration,
}

impl Quarantine {
    /// For a task whose records up to `until` were in a transaction that could not be delivered.
    pub fn new(context: &Context, until: i64, refused: bool) -> Self {
        let most = context.limits.isolated_records_max;
        let mut bisect = Bisect::new(most);
        if refused {
            bisect.on_refused(most);
        }
        Self { until, bisect, unsendable: None, attempts: 0, retry_at: Duration::ZERO }
    }

    /// The cluster has refused some of the `tried` records; `last` holds the offset of the last one and the cluster's
    /// message. A record that was tried alone is found; otherwise half as many are tried next.
    pub(super) fn refused(&mut self, tried: usize, last: (i64, String)) {
        match tried {
            1 => self.unsendable = Some(last),
            _ => self.bisect.on_refused(tried),
        }
    }

    /// Whether it is time for the next try.
    pub fn may_try(&self, now: Duration) -> bool {
        now >= self.retry_at
    }

    /// How many tries in a row have failed.
    pub fn failures(&self) -> u32 {
        self.attempts
    }
}

/// An isolated task's means.
pub struct Isolated<C: Cluster> {
    pub(super) transactor: Transactor<C>,
    pub(super) reader: C::Reader,
    pub(super) batch: C::Batch,
    /// How many of the batch's records were processed.
    pub(super) taken: usize,
    /// How many of those are in the last transaction.
    pub(super) tried: usize,
    /// Since when there has been nothing to read.
    pub(super) idle_since: Option<Duration>,
    /// Whether a sealed transaction is waiting for its deliveries.
    pub(super) sealed: bool,
}

impl<C: Cluster> Isolated<C> {
    /// The means to continue at `next`, which `group` has committed.
    pub fn new(
        cluster: &C,
        group: &str,
        (input, next): (&TopicPartition, i64),
        transactor: Transactor<C>,
    ) -> Result<Self, cluster::Error> {
        let reader = cluster.reader_for(group, input, next)?;
        let batch = C::Batch::default();
        Ok(Self { transactor, reader, batch, taken: 0, tried: 0, idle_since: None, sealed: false })
    }

    /// Aborts the open transaction, so that nobody has to wait for its timeout.
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
        quarantine.refused(80, (79, "too large".to_owned()));
        assert_eq!((quarantine.bisect.records_max(), &quarantine.unsendable), (40, &None));
        // The reader returned only one record.
        quarantine.refused(1, (12, "too large".to_owned()));
        assert_eq!((quarantine.bisect.records_max(), quarantine.unsendable), (40, Some((12, "too large".to_owned()))));
    }
}
