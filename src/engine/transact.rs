//! A transaction from begin to commit: whose records are in it, when it ends, and the order of its steps.
//!
//! The order is the promise. First come the forwarded records, then each task's changelog writes (the last one per
//! identity) with its position record as the very last, then the offsets of every task touched, then the commit; only
//! after Kafka has confirmed it do overlay and position go into each task's store. With a sink, all that goes to Kafka is
//! kept as redos until the sink has committed them together with the effects: see `sink`.

use std::time::Duration;

use crate::cluster::{self, Cluster, DeliveryFailure, ErrorKind, Member, Message, OffsetCommit, Producer, Ticket};
use crate::format::{ChangelogOffset, OffsetMetadata, POSITION_KEY, PositionRecord, Redo, Token};
use crate::observe::{LaneMetrics, TransactionResult};
use crate::record::{Headers, TopicPartition};
use crate::sabotage::{self, Sabotage};
use crate::state::Overlay;

use super::claims::{Commitment, Ids, InUse};
use super::context::Context;
use super::crash;
use super::failure::{Cause, Failure};
use super::hold::Applied;
use super::output::Added;
use super::process::Capacity;
use super::resume::Refusal;
use super::share::{Position, Share, TaskId};
use super::task::{Task, Tasks};

mod outcome;
mod sink;

pub use outcome::{Aborted, Committed};
pub use sink::OpenSink;

/// Records of this many bytes are read at once, even if the transaction has less room left.
const READ_BYTES_MIN: usize = 64 << 10;

/// Records in a transaction that a sink commits: as many as a lane reads at once. Larger ones are hardly faster, rows
/// stay locked for longer, and the lane waits while the sink looks for those that it refuses.
const SINK_RECORDS_MAX: usize = 4_096;

/// A transactional producer and the transaction that may be open on it.
pub struct Transactor<C: Cluster> {
    transactional_id: String,
    /// How often the id was renewed. A partition without a leader delays the end of an aborted transaction, and until
    /// then the broker blocks the id; with a leader it still takes half a second. So every producer but the first uses
    /// a new id.
    renewals: u32,
    ids: Ids,
    in_use: Option<InUse>,
    /// Random for each start of a lane; together with the count of transactions it makes up tokens.
    lane: u64,
    transactions: u64,
    producer: Option<C::Producer>,
    open: Option<Open<C::Metadata>>,
    /// How many records a transaction may have while the sink refuses something that it cannot name.
    records_max: usize,
    /// The shares of ended transactions, at most one of each task, whose memory is reused: not more than half of what
    /// a transaction's records may take.
    spare: Vec<Share>,
}

/// The open transaction.
struct Open<M> {
    /// Whether its end was requested. A request without a response may still arrive, and must not hit the producer's
    /// next transaction.
    ending: bool,
    since: Duration,
    shares: Vec<Share>,
    /// The tasks for which it only commits an owner beside the offset.
    named: Vec<TaskId>,
    added: Added,
    /// The membership as it was before the sink began to commit.
    membership: Option<M>,
}

/// What a lane does while a transaction is being committed, again and again: it should return within the time that it is
/// given.
pub type Meanwhile<'a, C> = &'a mut dyn FnMut(&mut Tasks<C>, Duration);

impl<C: Cluster> Transactor<C> {
    /// A transactor without a producer yet.
    pub fn new(transactional_id: String, lane: u64, ids: Ids) -> Self {
        let (in_use, producer, open, spare) = Default::default();
        let (renewals, transactions, records_max) = (0, 0, usize::MAX);
        Self { transactional_id, renewals, ids, in_use, lane, transactions, producer, open, records_max, spare }
    }

    /// Creates a producer if there is none.
    pub fn prepare(&mut self, cluster: &C) -> Result<(), cluster::Error> {
        if self.producer.is_none() {
            self.in_use = Some(self.ids.take(&self.id()));
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
    pub fn release(&mut self, task: TaskId) {
        self.spare.retain(|share| share.task != task);
    }

    /// Whether `task` is in the open transaction.
    pub fn touches(&self, task: TaskId) -> bool {
        let is_named = |open: &Open<_>| open.named.contains(&task);
        self.share(task).is_some() || self.open.as_ref().is_some_and(is_named)
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

    /// Whether the open transaction has no room left.
    pub fn is_full(&self, context: &Context) -> bool {
        let room = self.room(context);
        self.is_open() && (room.records == 0 || room.bytes == 0)
    }

    /// The room left in the open transaction, or in the next one.
    pub fn room(&self, context: &Context) -> Capacity {
        let used = self.open.as_ref().map(|open| open.added).unwrap_or_default();
        let of_sink = if context.sink.is_some() { SINK_RECORDS_MAX } else { usize::MAX };
        let records_max = context.commit.records_max.min(self.records_max).min(of_sink);
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
    pub fn touch(
        &mut self,
        context: &Context,
        task: TaskId,
        committed: &Position,
    ) -> Result<(&mut Share, &mut C::Producer), cluster::Error> {
        if self.open.is_none() {
            self.begin(context, Vec::new(), false)?;
        }
        let Self { open, producer, spare, .. } = self;
        let (open, producer) = open.as_mut().zip(producer.as_mut()).expect("just opened");
        let at = open.shares.iter().position(|share| share.task == task).unwrap_or_else(|| {
            // The task's own, which is as large as its transactions are.
            let own = spare.iter().position(|share| share.task == task);
            let mut share = own.map(|own| spare.swap_remove(own)).unwrap_or_default();
            share.begin(task, committed);
            open.shares.push(share);
            open.shares.len() - 1
        });
        Ok((&mut open.shares[at], producer))
    }

    fn begin(&mut self, context: &Context, named: Vec<TaskId>, ending: bool) -> Result<(), cluster::Error> {
        debug_assert!(self.open.is_none(), "one transaction at a time");
        self.producer().begin()?;
        self.transactions += 1;
        let since = context.clock.monotonic();
        let (shares, added, membership) = Default::default();
        self.open = Some(Open { ending, since, shares, named, added, membership });
        Ok(())
    }

    /// Commits these tasks' offsets in a separate transaction that writes nothing else; none may be open. After an
    /// error, [`Transactor::abort`] must follow.
    pub fn commit_offsets(
        &mut self,
        context: &Context,
        named: Vec<TaskId>,
        offsets: &[OffsetCommit],
        member: &C::Member,
        metrics: &LaneMetrics,
    ) -> Result<(), cluster::Error> {
        let membership = member.metadata()?;
        self.begin(context, named, true)?;
        as_outcome(self.producer().commit(offsets, membership))?;
        self.open = None;
        metrics.transaction(TransactionResult::Committed);
        Ok(())
    }

    /// Begins a transaction that plays a redo for `task`; none may be open. Its changelog records belong at `from` or
    /// beyond. After an error, [`Transactor::abort`] must follow.
    pub fn begin_redo(
        &mut self,
        context: &Context,
        task: TaskId,
        (changelog, from): (&TopicPartition, ChangelogOffset),
        redo: Redo<'_>,
    ) -> Result<(), cluster::Error> {
        self.begin(context, vec![task], false)?;
        self.producer().expect_from(task, from.0);
        sink::send(self.producer(), task, changelog, redo)
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
            open.ending = true;
        }
        as_outcome(self.producer().commit(std::slice::from_ref(offset), membership))?;
        self.open = None;
        metrics.transaction(TransactionResult::Committed);
        Ok(())
    }

    /// The next transactions have half as many records as the open one, until the sink has named the one that it refuses.
    /// Says whether that is possible.
    pub fn divide(&mut self) -> bool {
        let records = self.open.as_ref().map_or(0, |open| open.added.records);
        if records > 1 {
            self.records_max = records / 2;
        }
        records > 1
    }

    /// The next transactions have as many records as they may have at most.
    pub fn unite(&mut self) {
        self.records_max = usize::MAX;
    }

    /// For how long a transaction would have to wait before it begins; none, if one is open.
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
        self.producer.as_mut().expect("prepared before a transaction is begun")
    }

    /// Adds a batch's counts.
    pub fn add(&mut self, added: Added) {
        if let Some(open) = &mut self.open {
            open.added.records += added.records;
            open.added.bytes += added.bytes;
            open.added.dead_letters += added.dead_letters;
            open.added.epoch_changes += added.epoch_changes;
            open.added.settled += added.settled;
        }
    }

    /// Has the producer send what is due and take what brokers have said, while nothing is sent or committed.
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

    /// Sends the changelog writes of every task in it, each task's position record last. Where there is a sink, it
    /// commits first, and nothing was sent before.
    pub fn seal(
        &mut self,
        context: &Context,
        tasks: &mut Tasks<C>,
        member: &C::Member,
        through: Option<&mut OpenSink>,
    ) -> Result<(), Failure> {
        let Some((open, producer)) = self.open.as_mut().zip(self.producer.as_mut()) else { return Ok(()) };
        let owner = producer.id().to_owned();
        for share in &mut open.shares {
            let id = share.task;
            let task = tasks.get(&id).expect("a task leaves only between transactions");
            let processed = share.position.progress.processed.add_range(task.committed.next, share.position.next);
            processed.map_err(|error| Failure::refused(id, error.into()))?;
            let token = Token {
                lane: self.lane,
                transaction: self.transactions,
                changelog_id: task.changelog_id.0,
                partition: task.input.partition,
            };
            share.token = Some(token);
            let position = task
                .position_record(&share.position, token, (&owner, context.rules_digest))
                .encode_with(&share.position.calls);
            if !PositionRecord::is_readable(&position) {
                return Err(Failure::refused(id, Refusal::PositionUnreadable { bytes: position.len() }));
            }
            // At or beyond everything the store has applied; otherwise records there were lost.
            let held = task.held.as_ref().expect("a task at work holds its store");
            producer.expect_from(id, held.applied.next.0);
            if through.is_some() {
                share.sealed = position;
                continue;
            }
            send_changelog(producer, id, &task.changelog, &share.overlay).map_err(Failure::cluster)?;
            let last = Message {
                topic: &task.changelog.topic,
                partition: task.changelog.partition,
                key: Some(POSITION_KEY),
                value: Some(&position),
                headers: Headers::default(),
                timestamp: None,
            };
            producer.send(Ticket { number: id, report: true }, &last).map_err(Failure::cluster)?;
            share.overlay.put(POSITION_KEY, Some(&position));
        }
        if let Some(through) = through {
            // As of before: whoever has lost the partition since must not commit.
            open.membership = Some(member.metadata().map_err(Failure::cluster)?);
            sink::commit(context, &mut open.shares, tasks, through)?;
            crash::point(crash::Point::AfterSink);
            for share in &mut open.shares {
                let redo = sink::committed(share)
                    .map_err(|error| Failure::refused(share.task, Refusal::RedoUnreadable(error)))?;
                sink::send(producer, share.task, &tasks[&share.task].changelog, redo).map_err(Failure::cluster)?;
                share.overlay.put(POSITION_KEY, Some(&share.sealed));
            }
        }
        crash::point(crash::Point::AfterSends);
        Ok(())
    }

    /// The tasks that stop before a record once the open transaction is committed.
    pub fn stopping(&self) -> Vec<TaskId> {
        let shares = self.open.iter().flat_map(|open| &open.shares);
        shares.filter(|share| share.stop.is_some()).map(|share| share.task).collect()
    }

    /// What proves that the group's member may commit the open transaction: as of before the sink has, if there is one.
    pub fn membership(&mut self, member: &C::Member) -> Result<C::Metadata, Failure> {
        let before = self.open.as_mut().and_then(|open| open.membership.take());
        before.map_or_else(|| member.metadata().map_err(Failure::cluster), Ok)
    }

    /// Commits a sealed transaction and applies it to the stores. After a cluster error nothing was applied, and
    /// [`Transactor::abort`] must follow. A store's error is its task's alone and is part of the result, since the
    /// transaction is committed.
    pub fn commit(
        &mut self,
        context: &Context,
        tasks: &mut Tasks<C>,
        membership: C::Metadata,
        metrics: &LaneMetrics,
        meanwhile: Option<Meanwhile<'_, C>>,
    ) -> Result<Committed, Failure> {
        let Some((open, producer)) = self.open.as_mut().zip(self.producer.as_mut()) else {
            return Ok(Committed::default());
        };
        let started = context.clock.monotonic();
        let mut offsets = Vec::with_capacity(open.shares.len());
        let mut commitments = Vec::with_capacity(open.shares.len());
        for share in &open.shares {
            let task = tasks.get(&share.task).expect("a lane commits only what it owns");
            let commitment = commitment(context, share, producer.id());
            offsets.push(commitment.to_commit(&task.input));
            commitments.push(commitment);
        }
        if sabotage::is_on(Sabotage::StoreBeforeCommit) {
            write_early(context, tasks, &open.shares);
        }
        open.ending = true;
        let ended = match meanwhile {
            None => producer.commit(&offsets, membership),
            Some(go_on) => producer.commit_while(&offsets, membership, &mut |wait| go_on(tasks, wait)),
        };
        as_outcome(ended).map_err(Failure::cluster)?;
        crash::point(crash::Point::AfterCommit);
        self.records_max = self.records_max.saturating_mul(2);
        metrics.commit(context.clock.monotonic().saturating_sub(started));
        metrics.transaction(TransactionResult::Committed);
        metrics.dead_letters(open.added.dead_letters);
        metrics.epoch_changes(open.added.epoch_changes);
        let settled = open.added.settled;
        let delivered = delivered(producer);
        let shares = self.open.take().map(|open| open.shares).unwrap_or_default();
        let mut committed = Committed { settled, ..Committed::default() };
        for (mut share, commitment) in shares.into_iter().zip(commitments) {
            let id = share.task;
            let task = tasks.get_mut(&id).expect("looked at above");
            if !sabotage::is_on(Sabotage::CommitmentNotNoted) {
                task.commitment = Some(commitment);
            }
            let offsets = delivered.iter().filter(|(number, _)| *number == id).map(|(_, offset)| *offset).collect();
            committed.failures.extend(apply(context, task, &mut share, offsets).err());
            committed.stops.extend(share.stop.take().map(|stop| (id, stop)));
            self.spare.push(share);
        }
        Share::keep_last(&mut self.spare, context.commit.bytes_max / 2);
        Ok(committed)
    }

    /// Ends the transaction without effect, whatever its state. Unless the producer is then still fit for use, it is
    /// dropped, anything it may have left open is fenced, and the next one has another id.
    pub fn abort(&mut self, cluster: &C, cause: &Cause, metrics: &LaneMetrics) -> Aborted {
        let open = self.open.take();
        let was_open = open.is_some();
        let ending = open.as_ref().is_some_and(|open| open.ending);
        let (shares, named) = open.map(|open| (open.shares, open.named)).unwrap_or_default();
        let Some(mut producer) = self.producer.take() else {
            let (undelivered, delivered) = (Vec::new(), Vec::new());
            return Aborted { shares, named, ended: true, never_commits: true, undelivered, delivered };
        };
        let undelivered = undelivered(&mut producer);
        let known = match cause {
            Cause::Cluster(error) => matches!(error.kind, ErrorKind::Abort | ErrorKind::Refused | ErrorKind::Retry),
            Cause::State(_) | Cause::Sink(_) | Cause::Refused(_) | Cause::RefusedAt(..) => true,
            // The producer's memory may be half changed.
            Cause::Panicked { .. } => false,
        };
        if was_open {
            metrics.transaction(if known { TransactionResult::Aborted } else { TransactionResult::Unknown });
        }
        let ended = known && (!was_open || producer.abort().is_ok());
        let delivered = delivered(&mut producer);
        // A producer that could not even begin would keep failing, even after the cause, such as a missing right, is
        // fixed.
        let could_begin = was_open || !matches!(cause, Cause::Cluster(_));
        // What a commit promises that fails in this way.
        let is_off = matches!(cause, Cause::Cluster(error) if error.kind == ErrorKind::Abort);
        let never_commits = ended && (!ending || is_off);
        let is_fit = ended && could_begin && (!ending || producer.is_fit()) && undelivered.is_empty();
        if is_fit || sabotage::is_on(Sabotage::ProducerUsedOn) {
            producer.take_failures();
            self.producer = Some(producer);
            return Aborted { shares, named, ended: true, never_commits, undelivered, delivered };
        }
        drop(producer);
        self.in_use = None;
        // Even if nothing is known to be open: retried requests of its earlier transactions may still arrive, and would
        // begin, or even commit, one of them again under an epoch that nobody has ended.
        cluster.fence(&self.id());
        self.renewals += 1;
        Aborted { shares, named, ended: false, never_commits, undelivered, delivered }
    }
}

/// A commit that neither succeeded nor was cleanly aborted may have happened; so may one that was fenced.
fn as_outcome(committed: Result<(), cluster::Error>) -> Result<(), cluster::Error> {
    match committed {
        Err(error) if matches!(error.kind, ErrorKind::Abort | ErrorKind::Fenced) => Err(error),
        Err(error) => Err(cluster::Error { kind: ErrorKind::Unknown, ..error }),
        Ok(()) => Ok(()),
    }
}

/// Sabotage: writes to the stores what is not committed yet.
fn write_early<C: Cluster>(context: &Context, tasks: &mut Tasks<C>, shares: &[Share]) {
    for share in shares {
        let Some(task) = tasks.get_mut(&share.task) else { continue };
        let Some(applied) = task.held.as_ref().map(|held| held.applied) else { continue };
        let meta = task.store_meta(applied, share.token, context.clock.wall_ms());
        let _ = task.held.as_mut().map(|held| held.store.commit(&share.overlay, &meta));
    }
}

/// The reported changelog offsets.
fn delivered<P: Producer>(producer: &mut P) -> Vec<(TaskId, ChangelogOffset)> {
    producer.take_delivered().into_iter().map(|(number, offset)| (number, ChangelogOffset(offset))).collect()
}

/// See [`Aborted::undelivered`].
fn undelivered<P: Producer>(producer: &mut P) -> Vec<DeliveryFailure> {
    let mut of_tasks: Vec<DeliveryFailure> = Vec::new();
    for failure in producer.take_failures() {
        match of_tasks.iter_mut().find(|known| known.number == failure.number) {
            Some(known) if known.refused || !failure.refused => {}
            Some(known) => *known = failure,
            None => of_tasks.push(failure),
        }
    }
    of_tasks
}

/// Sends a task's changelog records; the offset of the first is reported ([`super::changelog_loss`]).
fn send_changelog<P: Producer>(
    producer: &mut P,
    id: TaskId,
    changelog: &TopicPartition,
    overlay: &Overlay,
) -> Result<(), cluster::Error> {
    let mut entries = overlay.iter();
    let Some((key, value)) = entries.next() else { return Ok(()) };
    let first = Message {
        topic: &changelog.topic,
        partition: changelog.partition,
        key: Some(key),
        value,
        headers: Headers::default(),
        timestamp: None,
    };
    producer.send(Ticket { number: id, report: true }, &first)?;
    producer.send_all(id, changelog, entries)
}

/// What the open transaction commits for a task.
fn commitment(context: &Context, share: &Share, owner: &str) -> Commitment {
    let metadata = OffsetMetadata {
        token: share.token.expect("the transaction is sealed"),
        digest: OffsetMetadata::short_digest(&context.rules_digest),
        owner: Some(owner.to_owned()),
    };
    Commitment { offset: share.position.next, metadata }
}

/// Applies what Kafka has committed to the task's store. `delivered` holds the changelog offsets of its first and its
/// last record, which is the position record. If one report is missing, the store does not know where that is; if both
/// are, it keeps its former position, from which it can be restored just as well.
fn apply<C: Cluster>(
    context: &Context,
    task: &mut Task<C>,
    share: &mut Share,
    delivered: Vec<ChangelogOffset>,
) -> Result<(), Failure> {
    let former = task.held.as_ref().expect("a task at work holds its store").applied;
    let last = delivered.iter().copied().max();
    let applied = Applied {
        next: last.map_or(former.next, |offset| former.next.max(offset.next())),
        // A single record is both first and last.
        position: last.filter(|_| delivered.len() == share.overlay.len().min(2)),
    };
    let wall_ms = context.clock.wall_ms();
    let meta = task.store_meta(applied, share.token, wall_ms);
    let held = task.held.as_mut().expect("looked at above");
    crash::point(crash::Point::DuringStoreWrite);
    let written = held.store.commit(&share.overlay, &meta);
    (held.is_latest, held.applied) = (written.is_ok(), applied);
    task.take_committed(share, wall_ms);
    written.map_err(|error| Failure::state(share.task, error))
}
