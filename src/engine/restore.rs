//! The restore, the only recovery: start, takeover, abort, fence, lost partition and unknown outcome all lead here.
//!
//! A task settles (no other owner can write any more) and locks its store. Unless the store already is the result of
//! the committed transaction, the task then reads the changelog from the store's position to the end, which was
//! determined when the task settled. The lane's other tasks continue meanwhile: each call does a bounded slice of the
//! work.

use std::time::Duration;

use crate::cluster::{Cluster, Inquiry, Settled, Settling};
use crate::format::{CHANGELOG_LOST, Calls, ChangelogOffset, OffsetMetadata, POSITION_KEY, PositionRecord, Token};
use crate::sabotage::{self, Sabotage};
use crate::state::{self, LoadBuffer, Store};

use super::commitment::Commitment;
use super::context::{Context, backoff};
use super::former_rules::changes;
use super::hold::{self, Applied, LockedStore};
use super::load::{LoadStep, Loading};
use super::resume::{self, Origin, Refusal, StoreStatus, TaskFacts};
use super::setback::{Consequence, Setback};
use super::share::Position;
use super::task::{Phase, Task};
use crate::topology::Start;

/// How long the store's former holder in this process may take to release it.
const LOCK_WAIT: Duration = Duration::from_secs(30);

/// The result of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slice {
    /// There was nothing to do yet.
    Waiting,
    /// The restore has progressed, and there is more to do.
    Worked,
    /// The store is current and the position known.
    Ready,
}

/// Advances a task's restore by one slice, whatever its phase. If `may_load` is false, other tasks are using all the
/// memory for loads.
pub fn step<C: Cluster>(
    context: &Context,
    cluster: &C,
    task: &mut Task<C>,
    batch: &mut C::Batch,
    may_load: bool,
) -> Result<Slice, Setback> {
    let now = context.clock.monotonic();
    match &mut task.phase {
        Phase::Waiting { until } if now < *until => Ok(Slice::Waiting),
        Phase::Waiting { .. } => {
            task.state.is_restored = false;
            task.set_phase(Phase::Settling(cluster.settle(inquiry(context, task))));
            Ok(Slice::Worked)
        }
        Phase::Settling(settling) => match settling.poll() {
            None => Ok(Slice::Waiting),
            Some(result) => {
                let settled = Box::new(result?);
                task.set_phase(Phase::Locking { settled, deadline: now + LOCK_WAIT });
                Ok(Slice::Worked)
            }
        },
        Phase::Locking { settled, deadline } => {
            let (settled, deadline) = (settled.clone(), *deadline);
            // This is checked before the store is touched.
            resume::check_committed(&settled, task_facts(context, task))?;
            if task.state.store.is_none() {
                task.state.store = hold::open(
                    context,
                    (&task.input, &task.state.dir),
                    &mut task.state.damage,
                    settled.changelog_start,
                )?;
                // The store's former holder may have restored beyond the end with which this task has settled.
                let store_offset = task.state.store.as_ref().and_then(LockedStore::changelog_offset);
                if store_offset
                    .is_some_and(|store_offset| store_offset != CHANGELOG_LOST && store_offset > settled.changelog_end)
                {
                    task.set_phase(Phase::Settling(cluster.settle(inquiry(context, task))));
                    return Ok(Slice::Worked);
                }
            }
            match &task.state.store {
                Some(_) => begin(context, cluster, task, *settled, may_load),
                None if now < deadline => Ok(Slice::Waiting),
                None => Err(Setback::StillOpen),
            }
        }
        Phase::Loading(loading) => {
            let locked_store = task.state.store.as_mut().expect("locked before");
            match loading.step(
                context,
                locked_store,
                (&task.topics.changelog, &task.input),
                &task.report.metrics,
                batch,
            )? {
                LoadStep::Waiting => Ok(Slice::Waiting),
                LoadStep::Worked => Ok(Slice::Worked),
                LoadStep::Loaded { settled, applied, rest } => finish(context, task, &settled, (applied, rest)),
            }
        }
        Phase::Claiming { until } if now >= *until => Ok(Slice::Ready),
        Phase::Claiming { .. } | Phase::Redoing(_) => Ok(Slice::Waiting),
        Phase::Held(_) | Phase::Running | Phase::Queued { .. } | Phase::Isolated(_) | Phase::Failed => {
            Ok(Slice::Waiting)
        }
    }
}

/// The inquiry that starts a task's restore.
pub fn inquiry<C: Cluster>(context: &Context, task: &Task<C>) -> Inquiry {
    Inquiry {
        fencing: context.fencing(),
        wants_time: task.present.needs_kafka_time(),
        is_doubted: task.trouble.doubted_refusals > 0,
        looks_from: task.state.store.as_ref().and_then(LockedStore::position_offset),
        ..Inquiry::of(&context.topology.group(), &task.input, &task.topics.changelog)
    }
}

/// Restarts the task's restore after a setback, or stops the task.
pub fn set_back<C: Cluster>(context: &Context, task: &mut Task<C>, setback: &Setback) {
    // After a disk error the store is reopened.
    let locked_store = task.state.store.take();
    let reason = match setback {
        Setback::Refusal(refusal @ Refusal::OtherRules { found, .. }) => {
            let root = context.state_slot.path();
            let root = root.parent().unwrap_or(root);
            format!("the rules have changed: {}. {refusal}", changes(root, &context.topology, found))
        }
        setback => setback.to_string(),
    };
    let may_pass = setback.may_pass();
    match setback.consequence() {
        Consequence::Stop => return stop(context, task, locked_store, (&reason, may_pass)),
        // A response that brokers have repeated this often is believed, so an operator has to act.
        Consequence::AskAgain if task.trouble.doubted_refusals >= context.limits.doubts_max => {
            return stop(context, task, locked_store, (&reason, may_pass));
        }
        Consequence::StopUnlessProven if !context.proven.has(&task.input.topic) => {
            return stop(context, task, locked_store, (&reason, may_pass));
        }
        // Whether another store may replace it is known once the task has settled again.
        Consequence::Rebuild => {
            if let Setback::State(state::Error::Damaged { reason, .. }) = setback {
                task.state.damage = Some(reason.clone());
            }
            task.trouble.attempts += 1;
        }
        // The wait does not depend on other failures: they must not delay a refusal.
        Consequence::AskAgain => {
            let wait = backoff(task.trouble.doubted_refusals);
            task.trouble.doubted_refusals += 1;
            let retry_in_ms = wait.as_millis() as u64;
            tracing::warn!(task = %task.input, reason, retry_in_ms, "restore doubted; repeating the queries");
            return task.set_phase(Phase::Waiting { until: context.clock.monotonic() + wait });
        }
        Consequence::TryAgain | Consequence::StopUnlessProven => {
            let wait = backoff(task.trouble.attempts);
            task.trouble.attempts += 1;
            tracing::warn!(task = %task.input, reason, retry_in_ms = wait.as_millis() as u64, "restore set back");
        }
    }
    let wait = task.trouble.attempts.checked_sub(1).map_or(Duration::ZERO, backoff);
    task.set_phase(Phase::Waiting { until: context.clock.monotonic() + wait });
}

/// Stops a task for this reason; `may_pass` is whether a later start may succeed. The store that was set aside, if any,
/// is put back.
pub fn stop<C: Cluster>(
    context: &Context,
    task: &mut Task<C>,
    locked_store: Option<LockedStore>,
    (reason, may_pass): (&str, bool),
) {
    if let Some(Err(error)) = locked_store.map(|locked_store| locked_store.put_back_set_aside(context)) {
        tracing::error!(
            task = %task.input, reason = %error,
            "the store was not put back; it will be when the task next starts"
        );
    }
    task.fail(reason, may_pass);
}

/// The facts about the task that the decisions need.
fn task_facts<'a, C: Cluster>(context: &'a Context, task: &Task<C>) -> TaskFacts<'a> {
    TaskFacts {
        rules_digest: &context.rules_digest,
        task_count: task.topics.facts.task_count,
        start: context.topology.start,
        bounds: &context.limits.kept,
    }
}

/// Decides whether the store has to be loaded, and begins the load.
fn begin<C: Cluster>(
    context: &Context,
    cluster: &C,
    task: &mut Task<C>,
    settled: Settled,
    may_load: bool,
) -> Result<Slice, Setback> {
    task.topics.input_id = settled.input_id;
    task.topics.input_end = settled.input_end;
    task.topics.changelog_id = settled.changelog_id;
    let committed = committed_token(&settled)?;
    let wall_ms = context.clock.wall_ms();
    let locked_store = task.state.store.as_mut().expect("locked before");
    let meta = locked_store.store.meta()?;
    let status = resume::examine_store(
        &settled,
        task.input.partition,
        (meta.as_ref(), locked_store.is_latest),
        committed.as_ref(),
        wall_ms,
        task.topics.facts.delete_retention_ms,
    );
    let position = meta.as_ref().and_then(|meta| meta.position_offset);
    let is_own = meta.as_ref().is_some_and(|meta| resume::is_store_of(meta, &settled, task.input.partition));
    // This is checked before another store replaces it, because it is too old, for example.
    if is_own
        && !matches!(status, StoreStatus::Beyond { .. })
        && !is_witnessed(&locked_store.store, position, &settled)?
    {
        // The offset to inspect is known only once the store is open.
        task.set_phase(Phase::Settling(cluster.settle(inquiry(context, task))));
        return Ok(Slice::Worked);
    }
    let locked_store = task.state.store.as_ref().expect("locked before");
    let is_treated_as_current =
        sabotage::is_on(Sabotage::SourceOffsetAlone) && has_reached(&locked_store.store, &settled)?;
    let status = if is_treated_as_current { StoreStatus::Current } else { status };
    let (from, synced_at) = match status {
        StoreStatus::Current => {
            let next = meta.map_or(settled.changelog_start, |meta| meta.changelog_offset);
            return finish(context, task, &settled, (Applied { next, position }, None));
        }
        StoreStatus::Beyond { applied: CHANGELOG_LOST, .. } => return Err(Refusal::ChangelogTailLost.into()),
        StoreStatus::Beyond { applied, end } => return Err(Refusal::ChangelogShrunk { applied, end }.into()),
        // Other tasks are using the memory for loads. The store has not been touched yet.
        _ if !may_load => return Ok(Slice::Waiting),
        StoreStatus::Behind { from, synced_at } => (from, synced_at),
        StoreStatus::Unusable { from, reason } => {
            let locked_store = task.state.store.take().expect("looked at above");
            task.state.store = Some(locked_store.replace(context, from, task.input.partition, &reason)?);
            tracing::warn!(task = %task.input, reason, "store cannot be built upon; rebuilding it from the changelog");
            // The next slice examines it like any other store.
            return Ok(Slice::Worked);
        }
    };
    let applied = Applied { next: from, position };
    if from >= settled.changelog_end {
        return finish(context, task, &settled, (applied, None));
    }
    let is_complete = meta.is_some_and(|meta| meta.token.is_some()) && !sabotage::is_on(Sabotage::WholeStoreLoadedInto);
    if !is_complete {
        let token = committed.filter(|_| sabotage::is_on(Sabotage::TokenInRestore));
        let meta = task.store_meta(applied, token, synced_at);
        task.state.store.as_mut().expect("locked before").store.begin_load(&meta)?;
    }
    task.state.is_restored = true;
    tracing::info!(task = %task.input, from = from.0, to = settled.changelog_end.0, "restoring the store from the changelog");
    task.report.metrics.restore_remaining(settled.changelog_end.since(from));
    let loading = Loading::new(context, cluster, &task.topics.changelog, settled, applied, (synced_at, is_complete))?;
    task.set_phase(Phase::Loading(Box::new(loading)));
    Ok(Slice::Worked)
}

/// Whether the changelog was checked for the transaction that the store has applied last, if such a check is possible.
fn is_witnessed(store: &Store, position: Option<ChangelogOffset>, settled: &Settled) -> Result<bool, Setback> {
    let retained = settled.changelog_start..settled.changelog_end;
    let Some(at) = position.filter(|at| retained.contains(at)) else { return Ok(true) };
    let Some(seen) = settled.seen.as_ref().filter(|seen| seen.from == at) else { return Ok(false) };
    resume::check_witness(seen, store.get(POSITION_KEY)?.as_deref())?;
    Ok(true)
}

/// For a sabotage: whether the store has processed the input up to the group's offset.
fn has_reached(store: &Store, settled: &Settled) -> Result<bool, Setback> {
    let position = position_record(store)?;
    let end = position.and_then(|(position, _)| position.processed.last().map(|&(_, end)| end));
    Ok(end.zip(settled.committed.as_ref()).is_some_and(|(end, committed)| end >= committed.offset))
}

/// The token in the metadata of the committed offset; `None` if the group was reset, deleted, or has never committed.
fn committed_token(settled: &Settled) -> Result<Option<Token>, Setback> {
    let Some(committed) = &settled.committed else { return Ok(None) };
    let metadata = OffsetMetadata::parse(&committed.metadata).map_err(Refusal::of_metadata)?;
    Ok(metadata.map(|metadata| metadata.token))
}

/// The position record in the store, with the state of calls in it.
fn position_record(store: &Store) -> Result<Option<(PositionRecord, Calls)>, Setback> {
    let Some(bytes) = store.get(POSITION_KEY)? else { return Ok(None) };
    Ok(Some(PositionRecord::decode_with_calls(&bytes).map_err(Refusal::of_record)?))
}

/// Finishes a restore. The store holds the contents of the changelog below an offset, except for the `rest`. The
/// position record decides where the input continues; only then is the store written.
///
/// If a task is delayed while another owner continues, the log cleaner may remove superseded records that it was about
/// to read: its store lacks them but still has a transaction's token. It is never built upon without the records that
/// superseded them, since a store is current only if the changelog ends with its transaction.
fn finish<C: Cluster>(
    context: &Context,
    task: &mut Task<C>,
    settled: &Settled,
    (applied, rest): (Applied, Option<LoadBuffer>),
) -> Result<Slice, Setback> {
    let locked_store = task.state.store.as_mut().expect("locked before");
    let position = match rest.as_ref().and_then(|rest| rest.last(POSITION_KEY)) {
        Some(bytes) => bytes.map(PositionRecord::decode_with_calls).transpose().map_err(Refusal::of_record)?,
        None => position_record(&locked_store.store)?,
    };
    let (position, calls) = position.unzip();
    if position.is_none() {
        resume::check_former_store(settled, task.input.partition, locked_store.former_position(context)?.as_ref())?;
    }
    let resumption = resume::resumption(settled, position.as_ref(), task_facts(context, task))?;
    let resumption = resumption.with_calls(calls.unwrap_or_default())?;
    let token = position.as_ref().map(|position| position.token);
    let meta = task.store_meta(applied, token, context.clock.wall_ms());
    let locked_store = task.state.store.as_mut().expect("locked before");
    match rest {
        Some(rest) => locked_store.store.apply(rest, &meta)?,
        None => locked_store.store.set_meta(&meta)?,
    }
    // With a sink, the row may still show that the changelog has lost records that the former store holds.
    if context.sink.is_none() {
        locked_store.remove_set_aside(context)?;
    }
    locked_store.applied = applied;
    task.trouble.doubted_refusals = 0;
    task.last.unsettled = false;
    task.last.commitment = settled.committed.as_ref().and_then(Commitment::read);
    task.last.group_offset = settled.committed.as_ref().map(|found| found.offset);
    task.last.recorded_token = token;
    task.destination.drop_claim();
    task.present.learn(settled.changelog_time);
    let skipped = i64::from(sabotage::is_on(Sabotage::HeldSkipped) && task.destination.is_waiting());
    let next = resumption.next + skipped;
    task.committed = Position { next, progress: resumption.progress, calls: resumption.calls };
    task.report.metrics.restore_remaining(0);
    match resumption.origin {
        Origin::Fresh => {
            // A start at the end is committed at once: records that arrive before the first commit must not be skipped.
            task.last.commit_start = context.topology.start == Start::Latest;
            tracing::info!(task = %task.input, next, "task starts afresh");
        }
        // This is logged at each attempt while the task waits for its sink.
        Origin::Committed if task.destination.is_waiting() => tracing::debug!(task = %task.input, next, "task resumes"),
        Origin::Committed => tracing::info!(task = %task.input, next, "task resumes"),
        Origin::Reset if settled.committed.as_ref().is_some_and(|committed| committed.offset < next) => {
            // The start is committed even if no record follows, so that the group's offset exists.
            task.last.commit_start = true;
            tracing::warn!(
                task = %task.input, next,
                "the group was reset to an offset before the input's first record: reading from that record; all removed \
                 records were processed"
            );
        }
        Origin::Reset => {
            // An operator has set the offset: the position record has to contain it before the group can be lost.
            task.last.commit_start = task.last.commitment.is_none();
            tracing::warn!(
                task = %task.input, next, processed = ?task.committed.progress.processed.as_pairs(),
                "the group was reset: reading from its offset; records that were processed before are not forwarded again"
            );
        }
        Origin::GroupDeleted => tracing::warn!(
            task = %task.input, next,
            "the group has no offset any more: resuming from the changelog's position record"
        ),
    }
    Ok(Slice::Ready)
}
