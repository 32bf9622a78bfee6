//! The end of a transaction, in the order that exactly-once depends on.
//!
//! First come the forwarded records, then each task's changelog writes (the last one per key) with its position record
//! as the very last, then the offsets of every task in the transaction, then the commit; only after Kafka has confirmed
//! it are overlay and position written to each task's store. With a sink, nothing is sent at first: each task's records
//! are collected in a redo, which the sink commits together with the effects; then the redo is sent (see `sink`).
//!
//! A task is the work of one input partition. Its **share** is all that the transaction changes for it: the **overlay**
//! has the changelog records, the **position record** says how far the input is processed. A **token** names a
//! transaction of a task. To **seal** a transaction is to send its last records; a sink commits before that.
//! `sabotage::is_on` says whether a test has switched on a deliberate fault.

use std::time::Duration;

use crate::cluster::{Cluster, Expected, Member, Message, Producer, Ticket};
use crate::engine::commitment::Commitment;
use crate::engine::context::Context;
use crate::engine::crash;
use crate::engine::failure::Failure;
use crate::engine::hold::Applied;
use crate::engine::resume::Refusal;
use crate::engine::share::Share;
use crate::engine::task::{Task, Tasks};
use crate::format::{ChangelogOffset, OffsetMetadata, POSITION_KEY, PositionRecord, Token};
use crate::observe::{LaneMetrics, TransactionResult};
use crate::record::Headers;
use crate::sabotage::{self, Sabotage};

use super::outcome::CommitOutcome;
use super::sink::{self, LaneSink};
use super::{Transactor, delivered, mark_unknown_outcome, send};

/// The work that the caller, a lane, does while it waits for a commit: called again and again, it should return within
/// the given time.
pub type CommitCallback<'a, C> = &'a mut dyn FnMut(&mut Tasks<C>, Duration);

impl<C: Cluster> Transactor<C> {
    /// Sends the changelog records of every task in the transaction, each task's position record last. If there is a
    /// sink, it commits first, and no record is sent before that.
    pub fn seal(
        &mut self,
        context: &Context,
        tasks: &mut Tasks<C>,
        member: &C::Member,
        lane_sink: Option<&mut LaneSink>,
    ) -> Result<(), Failure> {
        let Some((open, producer)) = self.open.as_mut().zip(self.producer.as_mut()) else { return Ok(()) };
        let owner = producer.id().to_owned();
        for share in &mut open.shares {
            let id = share.task;
            let task = tasks.get(&id).expect("a task leaves only between transactions");
            let processed = share.position.progress.processed.add_range(task.committed.next, share.position.next);
            processed.map_err(|error| Failure::refused(id, error.into()))?;
            let token = Token {
                lane: self.lane_id,
                transaction: self.transaction_count,
                changelog_id: task.topics.changelog_id.0,
                partition: task.input.partition,
            };
            share.token = Some(token);
            let position = task
                .position_record(&share.position, token, (&owner, context.rules_digest))
                .encode_with(&share.position.calls);
            if !PositionRecord::is_readable(&position) {
                return Err(Failure::refused(id, Refusal::PositionUnreadable { bytes: position.len() }));
            }
            if lane_sink.is_some() {
                share.position_record = position;
                continue;
            }
            producer.expect(id, expected(task, share.overlay.len() + 1));
            send::changelog(producer, id, &task.topics.changelog, &share.overlay).map_err(Failure::cluster)?;
            let last = Message {
                topic: &task.topics.changelog.topic,
                partition: task.topics.changelog.partition,
                key: Some(POSITION_KEY),
                value: Some(&position),
                headers: Headers::default(),
                timestamp: None,
            };
            producer.send(Ticket { number: id, report: true }, &last).map_err(Failure::cluster)?;
            share.overlay.put(POSITION_KEY, Some(&position));
        }
        if let Some(lane_sink) = lane_sink {
            // The proof of membership for Kafka's commit. It is taken before the sink commits: if the lane loses the
            // partition after that, the proof is outdated, and Kafka refuses the commit.
            open.membership = Some(member.metadata().map_err(Failure::cluster)?);
            sink::commit(context, &mut open.shares, tasks, lane_sink)?;
            crash::point(crash::Point::AfterSink);
            for share in &mut open.shares {
                let redo = sink::committed_redo(share)
                    .map_err(|error| Failure::refused(share.task, Refusal::RedoUnreadable(error)))?;
                let task = &tasks[&share.task];
                producer.expect(share.task, expected(task, redo.changelog_records()));
                send::redo(producer, share.task, &task.topics.changelog, redo).map_err(Failure::cluster)?;
                share.overlay.put(POSITION_KEY, Some(&share.position_record));
            }
        }
        crash::point(crash::Point::AfterSends);
        Ok(())
    }

    /// Commits a sealed transaction and applies it to the stores. After a cluster error no store has changed, and
    /// [`Transactor::abort`] must follow. A store's error affects its task alone and is part of the outcome, since the
    /// transaction is committed.
    pub fn commit(
        &mut self,
        context: &Context,
        tasks: &mut Tasks<C>,
        membership: C::Metadata,
        metrics: &LaneMetrics,
        callback: Option<CommitCallback<'_, C>>,
    ) -> Result<CommitOutcome, Failure> {
        let Some((open, producer)) = self.open.as_mut().zip(self.producer.as_mut()) else {
            return Ok(CommitOutcome::default());
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
        open.end_requested = true;
        let ended = match callback {
            None => producer.commit(&offsets, membership),
            Some(callback) => producer.commit_while(&offsets, membership, &mut |wait| callback(tasks, wait)),
        };
        mark_unknown_outcome(ended).map_err(Failure::cluster)?;
        crash::point(crash::Point::AfterCommit);
        // If a refused record is being searched for, the next transaction may have more records.
        self.bisect.on_success();
        metrics.commit(context.clock.monotonic().saturating_sub(started));
        metrics.transaction(TransactionResult::Committed);
        metrics.dead_letters(open.added.dead_letters);
        metrics.epoch_changes(open.added.epoch_changes);
        let settled = open.added.settled;
        let delivered = delivered(producer);
        let shares = self.open.take().map(|open| open.shares).unwrap_or_default();
        let mut committed = CommitOutcome { settled, ..CommitOutcome::default() };
        for (mut share, commitment) in shares.into_iter().zip(commitments) {
            let id = share.task;
            let task = tasks.get_mut(&id).expect("looked at above");
            if !sabotage::is_on(Sabotage::CommitmentNotNoted) {
                task.last.commitment = Some(commitment);
            }
            let offsets = delivered.iter().filter(|(number, _)| *number == id).map(|(_, offset)| *offset).collect();
            committed.failures.extend(apply_share(context, task, &mut share, offsets).err());
            committed.stops.extend(share.stop.take().map(|stop| (id, stop)));
            self.spare_shares.push(share);
        }
        // Bounds the memory that ended shares keep for their next use.
        Share::trim_spares(&mut self.spare_shares, context.commit.bytes_max / 2);
        Ok(committed)
    }
}

/// The expected place of a transaction's `count` changelog records of a task: all of them, behind the records that the
/// task's store has applied. Anywhere else, the changelog has lost records, and the commit fails.
fn expected<C: Cluster>(task: &Task<C>, count: usize) -> Expected {
    let held = task.state.store.as_ref().expect("a task at work holds its store");
    Expected { from: held.applied.next.0, count }
}

/// Sabotage: writes shares to the stores before they are committed.
fn write_early<C: Cluster>(context: &Context, tasks: &mut Tasks<C>, shares: &[Share]) {
    for share in shares {
        let Some(task) = tasks.get_mut(&share.task) else { continue };
        let Some(applied) = task.state.store.as_ref().map(|held| held.applied) else { continue };
        let meta = task.store_meta(applied, share.token, context.clock.wall_ms());
        let _ = task.state.store.as_mut().map(|held| held.store.commit(&share.overlay, &meta));
    }
}

/// The offset that the open transaction commits for a task, and the metadata beside it.
fn commitment(context: &Context, share: &Share, owner: &str) -> Commitment {
    let metadata = OffsetMetadata {
        token: share.token.expect("the transaction is sealed"),
        digest: OffsetMetadata::short_digest(&context.rules_digest),
        owner: Some(owner.to_owned()),
    };
    Commitment { offset: share.position.next, metadata }
}

/// Applies a committed share to the task's store. `delivered` holds the changelog offsets of its first and its last
/// record, as far as their deliveries were reported; the last one is the position record.
///
/// - If both are known, the store knows how far it has applied the changelog, and where the position record is.
/// - If only one of two is known, the store does not know where the position record is. The changelog counts as applied
///   up to the known offset.
/// - If no offset is known, the changelog counts as applied only as far as before. A restore from there has the same
///   result.
fn apply_share<C: Cluster>(
    context: &Context,
    task: &mut Task<C>,
    share: &mut Share,
    delivered: Vec<ChangelogOffset>,
) -> Result<(), Failure> {
    let former = task.state.store.as_ref().expect("a task at work holds its store").applied;
    let last = delivered.iter().copied().max();
    let applied = Applied {
        next: last.map_or(former.next, |offset| former.next.max(offset.next())),
        // A single record is both first and last.
        position: last.filter(|_| delivered.len() == share.overlay.len().min(2)),
    };
    let wall_ms = context.clock.wall_ms();
    let meta = task.store_meta(applied, share.token, wall_ms);
    let held = task.state.store.as_mut().expect("looked at above");
    crash::point(crash::Point::DuringStoreWrite);
    let written = held.store.commit(&share.overlay, &meta);
    (held.is_latest, held.applied) = (written.is_ok(), applied);
    task.take_committed(share, wall_ms);
    written.map_err(|error| Failure::state(share.task, error))
}
