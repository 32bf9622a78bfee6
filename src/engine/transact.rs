//! A transaction: its tasks, its bounds and its abort. `commit` holds its last steps and their order, `sink` the part
//! that a sink commits before Kafka does, `send` the sending of changelog records.
//!
//! A task is the work of one input partition. Its **share** of a transaction ([`Share`]) is everything that the
//! transaction changes for it. To **fence** a transactional id is to end whatever is open under it, and to shut out the
//! producer that has used it. `sabotage::is_on` says whether a test has switched on a deliberate fault.

use std::time::Duration;

use crate::cluster::{self, Cluster, DeliveryFailure, ErrorKind, Expected, Member, OffsetCommit, Producer};
use crate::format::{ChangelogOffset, Redo};
use crate::observe::{LaneMetrics, TransactionResult};
use crate::record::TopicPartition;
use crate::sabotage::{self, Sabotage};

use super::bisect::Bisect;
use super::capacity::{Added, Capacity};
use super::context::Context;
use super::failure::{Cause, Failure};
use super::ids::{Ids, InUse};
use super::share::{Position, Share, TaskId};

mod commit;
mod outcome;
mod send;
mod sink;

pub use commit::CommitCallback;
pub use outcome::{AbortOutcome, CommitOutcome};
pub use sink::LaneSink;

/// Records of this many bytes are read at once, even if the transaction has less room left.
const READ_BYTES_MIN: usize = 64 << 10;

/// The most records in a transaction that a sink commits: as many as a lane reads at once. Larger transactions are
/// hardly faster, keep rows locked for longer, and make the lane wait longer while the sink finds the records that it
/// refuses.
const SINK_RECORDS_MAX: usize = 4_096;

/// A transactional producer and the transaction that may be open on it.
pub struct Transactor<C: Cluster> {
    transactional_id: String,
    /// How often the id was renewed. A partition without a leader delays the end of an aborted transaction, and until
    /// then the broker blocks the id; even with a leader the end takes half a second. So every producer but the first
    /// uses a new id.
    renewals: u32,
    /// The transactional ids in use in this process, which it never fences.
    ids: Ids,
    /// Keeps this transactor's id among them.
    in_use: Option<InUse>,
    /// Random for each start of a lane. With the count of transactions, it makes each transaction's token unique.
    lane_id: u64,
    transaction_count: u64,
    producer: Option<C::Producer>,
    open: Option<OpenTransaction<C::Metadata>>,
    /// Limits a transaction's records while the sink refuses a record that it cannot name.
    bisect: Bisect,
    /// Shares of ended transactions, at most one per task, whose memory is reused. Together they take at most half the
    /// bytes that a transaction's records may take.
    spare_shares: Vec<Share>,
}

/// An open transaction.
struct OpenTransaction<M> {
    /// Whether its commit was requested. A request without a response may still arrive, and must not commit the
    /// producer's next transaction.
    end_requested: bool,
    /// When it began, on the monotonic clock.
    since: Duration,
    shares: Vec<Share>,
    /// The tasks without a share: the transaction only commits their offsets, to change the owner in the metadata, or
    /// plays a redo.
    without_share: Vec<TaskId>,
    /// The records and bytes that it holds so far.
    added: Added,
    /// With a sink: the proof, from before the sink's commit, that the group's member may commit.
    membership: Option<M>,
}

impl<C: Cluster> Transactor<C> {
    /// A transactor without a producer yet.
    pub fn new(transactional_id: String, lane_id: u64, ids: Ids) -> Self {
        let (in_use, producer, open, spare_shares) = Default::default();
        let (renewals, transaction_count, bisect) = (0, 0, Bisect::new(usize::MAX));
        Self {
            transactional_id,
            renewals,
            ids,
            in_use,
            lane_id,
            transaction_count,
            producer,
            open,
            bisect,
            spare_shares,
        }
    }

    /// Creates a producer if there is none.
    pub fn prepare(&mut self, cluster: &C) -> Result<(), cluster::Error> {
        if self.producer.is_none() {
            self.in_use = Some(self.ids.register(&self.id()));
            let opened = cluster.producer(&self.id());
            if opened.as_ref().is_err_and(|error| error.kind != ErrorKind::Refused) {
                self.renewals += 1;
            }
            self.producer = Some(opened?);
        }
        Ok(())
    }

    /// The transactional id in use.
    pub fn id(&self) -> String {
        match self.renewals {
            0 => self.transactional_id.clone(),
            renewals => format!("{}-r{renewals}", self.transactional_id),
        }
    }

    /// Whether a transaction is open.
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Sabotage: removes `task` from the open transaction but leaves its records in it.
    pub(in crate::engine) fn forget(&mut self, task: TaskId) {
        if let Some(open) = &mut self.open {
            open.shares.retain(|share| share.task != task);
        }
    }

    /// Frees the memory kept for a task that leaves.
    pub fn free_spare(&mut self, task: TaskId) {
        self.spare_shares.retain(|share| share.task != task);
    }

    /// Whether `task` is in the open transaction.
    pub fn includes(&self, task: TaskId) -> bool {
        let is_without_share = |open: &OpenTransaction<_>| open.without_share.contains(&task);
        self.share(task).is_some() || self.open.as_ref().is_some_and(is_without_share)
    }

    /// What the open transaction would change for `task`, if the task is in it.
    pub fn share(&self, task: TaskId) -> Option<&Share> {
        self.open.as_ref()?.shares.iter().find(|share| share.task == task)
    }

    /// Whether the open transaction has reached a bound of time, records or bytes.
    pub fn is_due(&self, context: &Context) -> bool {
        let Some(open) = &self.open else { return false };
        let age = context.clock.monotonic().saturating_sub(open.since);
        age >= Duration::from_millis(context.commit.interval_ms) || self.is_full(context)
    }

    /// Whether a transaction is open and has no room left.
    pub fn is_full(&self, context: &Context) -> bool {
        let room = self.room(context);
        self.is_open() && (room.records == 0 || room.bytes == 0)
    }

    /// The room left in the open transaction, or in the next one.
    pub fn room(&self, context: &Context) -> Capacity {
        let used = self.open.as_ref().map(|open| open.added).unwrap_or_default();
        let sink_max = if context.sink.is_some() { SINK_RECORDS_MAX } else { usize::MAX };
        let records_max = context.commit.records_max.min(self.bisect.records_max()).min(sink_max);
        let bytes_max = context.commit.bytes_max;
        let bytes = bytes_max.saturating_sub(used.bytes);
        Capacity {
            records: records_max.saturating_sub(used.records),
            bytes,
            read_bytes: bytes.max(READ_BYTES_MIN.min(bytes_max)),
        }
    }

    /// Opens a transaction if none is open and adds `task`, whose committed position is `committed`. Returns its share
    /// and the producer to write with.
    pub fn enlist(
        &mut self,
        context: &Context,
        task: TaskId,
        committed: &Position,
    ) -> Result<(&mut Share, &mut C::Producer), cluster::Error> {
        if self.open.is_none() {
            self.begin(context, Vec::new(), false)?;
        }
        let Self { open, producer, spare_shares, .. } = self;
        let (open, producer) = open.as_mut().zip(producer.as_mut()).expect("just opened");
        let index = open.shares.iter().position(|share| share.task == task).unwrap_or_else(|| {
            // The task's own last share, whose memory fits its transactions.
            let former = spare_shares.iter().position(|share| share.task == task);
            let mut share = former.map(|former| spare_shares.swap_remove(former)).unwrap_or_default();
            share.begin(task, committed);
            open.shares.push(share);
            open.shares.len() - 1
        });
        Ok((&mut open.shares[index], producer))
    }

    fn begin(
        &mut self,
        context: &Context,
        without_share: Vec<TaskId>,
        end_requested: bool,
    ) -> Result<(), cluster::Error> {
        debug_assert!(self.open.is_none(), "one transaction at a time");
        self.producer().begin()?;
        self.transaction_count += 1;
        let since = context.clock.monotonic();
        let (shares, added, membership) = Default::default();
        self.open = Some(OpenTransaction { end_requested, since, shares, without_share, added, membership });
        Ok(())
    }

    /// Commits these tasks' offsets in a separate transaction that writes nothing else; none may be open. After an
    /// error, [`Transactor::abort`] must follow.
    pub fn commit_offsets(
        &mut self,
        context: &Context,
        without_share: Vec<TaskId>,
        offsets: &[OffsetCommit],
        member: &C::Member,
        metrics: &LaneMetrics,
    ) -> Result<(), cluster::Error> {
        let membership = member.metadata()?;
        self.begin(context, without_share, true)?;
        mark_unknown_outcome(self.producer().commit(offsets, membership))?;
        self.open = None;
        metrics.transaction(TransactionResult::Committed);
        Ok(())
    }

    /// Begins a transaction that plays a redo for `task`: it writes to Kafka what a transaction that only the sink has
    /// committed would have written. None may be open. The brokers must append its changelog records at offset `from`
    /// or beyond, and lose none of them. After an error, [`Transactor::abort`] must follow.
    pub fn begin_redo(
        &mut self,
        context: &Context,
        task: TaskId,
        (changelog, from): (&TopicPartition, ChangelogOffset),
        redo: Redo<'_>,
    ) -> Result<(), cluster::Error> {
        self.begin(context, vec![task], false)?;
        self.producer().expect(task, Expected { from: from.0, count: redo.changelog_records() });
        send::redo(self.producer(), task, changelog, redo)
    }

    /// Commits the transaction that plays a redo. After an error, [`Transactor::abort`] must follow.
    pub fn commit_redo(
        &mut self,
        offset: &OffsetCommit,
        member: &C::Member,
        metrics: &LaneMetrics,
    ) -> Result<(), cluster::Error> {
        let membership = member.metadata()?;
        if let Some(open) = &mut self.open {
            open.end_requested = true;
        }
        mark_unknown_outcome(self.producer().commit(std::slice::from_ref(offset), membership))?;
        self.open = None;
        metrics.transaction(TransactionResult::Committed);
        Ok(())
    }

    /// Limits the next transactions to half the open transaction's records, until the sink has named the record that it
    /// refuses. Returns whether that is possible.
    pub fn start_bisect(&mut self) -> bool {
        let records = self.open.as_ref().map_or(0, |open| open.added.records);
        if records > 1 {
            self.bisect.on_refused(records);
        }
        records > 1
    }

    /// Ends the search for a refused record: the next transactions may be as large as usual.
    pub fn end_bisect(&mut self) {
        self.bisect.end();
    }

    /// How long a new transaction would have to wait before it begins; zero if one is open.
    pub fn begins_in(&self) -> Duration {
        let producer = self.producer.as_ref().filter(|_| self.open.is_none());
        producer.map_or(Duration::ZERO, Producer::begins_in)
    }

    /// Whether there is a producer to write with.
    pub fn is_prepared(&self) -> bool {
        self.producer.is_some()
    }

    /// The producer to write with; it must be prepared.
    pub fn producer(&mut self) -> &mut C::Producer {
        self.producer.as_mut().expect("prepared before a transaction begins")
    }

    /// Adds a batch's counts to those of the open transaction.
    pub fn add(&mut self, added: Added) {
        if let Some(open) = &mut self.open {
            open.added.records += added.records;
            open.added.bytes += added.bytes;
            open.added.dead_letters += added.dead_letters;
            open.added.epoch_changes += added.epoch_changes;
            open.added.settled += added.settled;
        }
    }

    /// Lets the producer send due records and handle responses while the lane itself sends and commits nothing.
    pub fn serve(&mut self) {
        self.producer.iter_mut().for_each(Producer::serve);
    }

    /// How many records are not delivered yet.
    pub fn in_flight(&self) -> usize {
        self.producer.as_ref().map_or(0, Producer::in_flight)
    }

    /// Whether a delivery has failed: the transaction can no longer be committed.
    pub fn has_failed(&self) -> bool {
        self.producer.as_ref().is_some_and(Producer::has_failed)
    }

    /// The tasks that stop before a record once the open transaction is committed.
    pub fn stopping_tasks(&self) -> Vec<TaskId> {
        let shares = self.open.iter().flat_map(|open| &open.shares);
        shares.filter(|share| share.stop.is_some()).map(|share| share.task).collect()
    }

    /// Proof that the group's member may commit the open transaction; with a sink, from before the sink committed.
    pub fn membership(&mut self, member: &C::Member) -> Result<C::Metadata, Failure> {
        let before = self.open.as_mut().and_then(|open| open.membership.take());
        before.map_or_else(|| member.metadata().map_err(Failure::cluster), Ok)
    }

    /// Aborts the transaction, whatever its state. If the producer cannot be used afterwards, it is dropped, any
    /// transaction that it may have left open is fenced, and the next producer has another transactional id.
    pub fn abort(&mut self, cluster: &C, cause: &Cause, metrics: &LaneMetrics) -> AbortOutcome {
        let open = self.open.take();
        let was_open = open.is_some();
        let end_requested = open.as_ref().is_some_and(|open| open.end_requested);
        let (shares, without_share) = open.map(|open| (open.shares, open.without_share)).unwrap_or_default();
        let Some(mut producer) = self.producer.take() else {
            let (undelivered, delivered) = (Vec::new(), Vec::new());
            return AbortOutcome { shares, without_share, ended: true, never_commits: true, undelivered, delivered };
        };
        let undelivered = undelivered(&mut producer);
        let is_state_known = match cause {
            Cause::Cluster(error) => matches!(error.kind, ErrorKind::Abort | ErrorKind::Refused | ErrorKind::Retry),
            Cause::State(_) | Cause::Sink(_) | Cause::Refused(_) | Cause::RefusedAt(..) => true,
            // The producer's state may be half changed.
            Cause::Panicked { .. } => false,
        };
        if was_open {
            metrics.transaction(if is_state_known { TransactionResult::Aborted } else { TransactionResult::Unknown });
        }
        let ended = is_state_known && (!was_open || producer.abort().is_ok());
        let delivered = delivered(&mut producer);
        // A producer that could not even begin is not used again: it would keep failing, even after the cause, such as
        // a missing right, is fixed.
        let could_begin = was_open || !matches!(cause, Cause::Cluster(_));
        // With this error the cluster promises that the commit never takes effect.
        let is_aborted = matches!(cause, Cause::Cluster(error) if error.kind == ErrorKind::Abort);
        let never_commits = ended && (!end_requested || is_aborted);
        let is_usable = ended && could_begin && (!end_requested || producer.is_usable()) && undelivered.is_empty();
        if is_usable || sabotage::is_on(Sabotage::ProducerUsedOn) {
            producer.take_failures();
            self.producer = Some(producer);
            return AbortOutcome { shares, without_share, ended: true, never_commits, undelivered, delivered };
        }
        drop(producer);
        self.in_use = None;
        // Fenced even if no transaction is known to be open: retried requests of earlier transactions may still arrive,
        // and begin or even commit one of them again under a producer epoch that is still valid.
        cluster.fence(&self.id());
        self.renewals += 1;
        AbortOutcome { shares, without_share, ended: false, never_commits, undelivered, delivered }
    }
}

/// Turns the error of a failed commit into [`ErrorKind::Unknown`], unless the commit has certainly had no effect
/// (`Abort`) or the producer was fenced. A fenced commit may have taken effect, too.
fn mark_unknown_outcome(committed: Result<(), cluster::Error>) -> Result<(), cluster::Error> {
    match committed {
        Err(error) if matches!(error.kind, ErrorKind::Abort | ErrorKind::Fenced) => Err(error),
        Err(error) => Err(cluster::Error { kind: ErrorKind::Unknown, ..error }),
        Ok(()) => Ok(()),
    }
}

/// The delivery reports: the offsets of changelog records, by task.
fn delivered<P: Producer>(producer: &mut P) -> Vec<(TaskId, ChangelogOffset)> {
    producer.take_delivered().into_iter().map(|(number, offset)| (number, ChangelogOffset(offset))).collect()
}

/// See [`AbortOutcome::undelivered`].
fn undelivered<P: Producer>(producer: &mut P) -> Vec<DeliveryFailure> {
    let mut by_task: Vec<DeliveryFailure> = Vec::new();
    for failure in producer.take_failures() {
        match by_task.iter_mut().find(|former| former.number == failure.number) {
            Some(former) if former.refused || !failure.refused => {}
            Some(former) => *former = failure,
            None => by_task.push(failure),
        }
    }
    by_task
}
