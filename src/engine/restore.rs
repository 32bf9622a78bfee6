//! The one way back: start, takeover, abort, fence, lost partition and unknown outcome all lead here.
//!
//! A task settles (nobody else can write any more), locks its store and, unless the store already is the result of the
//! committed transaction, reads the changelog from the store's position to its end, which is read once everything has
//! settled. The lane's other tasks continue meanwhile: each call does a bounded slice.

use std::time::Duration;

use crate::cluster::{Cluster, Inquiry, Settled, Settling};
use crate::format::{CHANGELOG_LOST, Calls, ChangelogOffset, OffsetMetadata, POSITION_KEY, PositionRecord, Token};
use crate::sabotage::{self, Sabotage};
use crate::state::{self, LoadBuffer, Store};

use super::commitment::Commitment;
use super::context::{Context, backoff};
use super::former_rules::changes;
use super::hold::{self, Applied, Held};
use super::load::{LoadStep, Loading};
use super::resume::{self, Origin, Own, Refusal, Standing};
use super::setback::{Setback, Then};
use super::share::Position;
use super::task::{Phase, Task};
use crate::topology::Start;

/// How long the store's former holder in this process may take to release it.
const LOCK_WAIT: Duration = Duration::from_secs(30);

/// The result of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slice {
    /// Nothing could be done yet.
    Waiting,
    /// Something was done, and there is more to do.
    Worked,
    /// The store is current and the position known.
    Ready,
}

/// Takes a task one slice further, whatever phase of its restore it is in. If `may_load` is false, other tasks are
/// using all the memory for loads.
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
            task.state.restored = false;
            task.set_phase(Phase::Settling(cluster.settle(inquiry(context, task))));
            Ok(Slice::Worked)
        }
        Phase::Settling(settling) => match settling.poll() {
            None => Ok(Slice::Waiting),
            Some(answer) => {
                let settled = Box::new(answer?);
                task.set_phase(Phase::Locking { settled, deadline: now + LOCK_WAIT });
                Ok(Slice::Worked)
            }
        },
        Phase::Locking { settled, deadline } => {
            let (settled, deadline) = (settled.clone(), *deadline);
            // Before the store is touched.
            resume::check_committed(&settled, own(context, task))?;
            if task.state.held.is_none() {
                task.state.held = hold::take(
                    context,
                    (&task.input, &task.state.dir),
                    &mut task.state.damaged,
                    settled.changelog_start,
                )?;
                // Its former holder may have restored beyond the end that this task has settled with.
                let stands = task.state.held.as_ref().and_then(Held::changelog_offset);
                if stands.is_some_and(|stands| stands != CHANGELOG_LOST && stands > settled.changelog_end) {
                    task.set_phase(Phase::Settling(cluster.settle(inquiry(context, task))));
                    return Ok(Slice::Worked);
                }
            }
            match &task.state.held {
                Some(_) => begin(context, cluster, task, *settled, may_load),
                None if now < deadline => Ok(Slice::Waiting),
                None => Err(Setback::StillOpen),
            }
        }
        Phase::Loading(loading) => {
            let held = task.state.held.as_mut().expect("locked before");
            match loading.step(context, held, (&task.topics.changelog, &task.input), &task.report.metrics, batch)? {
                LoadStep::Waiting => Ok(Slice::Waiting),
                LoadStep::Worked => Ok(Slice::Worked),
                LoadStep::Loaded { settled, applied, rest } => finish(context, task, &settled, (applied, rest)),
            }
        }
        Phase::Claiming { until } if now >= *until => Ok(Slice::Ready),
        Phase::Claiming { .. } | Phase::Redoing(_) => Ok(Slice::Waiting),
        Phase::Gated | Phase::Running | Phase::Queued { .. } | Phase::Isolated(_) | Phase::Failed => Ok(Slice::Waiting),
    }
}

/// The inquiry that starts a task's restore.
pub fn inquiry<C: Cluster>(context: &Context, task: &Task<C>) -> Inquiry {
    Inquiry {
        fencing: context.fencing(),
        wants_time: task.present.asks(),
        is_doubted: task.trouble.doubted > 0,
        looks_from: task.state.held.as_ref().and_then(Held::position_offset),
        ..Inquiry::of(&context.topology.group(), &task.input, &task.topics.changelog)
    }
}

/// Sends the task back to the beginning of its restore after a setback, or stops it.
pub fn set_back<C: Cluster>(context: &Context, task: &mut Task<C>, setback: &Setback) {
    // After a disk error the store is reopened.
    let held = task.state.held.take();
    let reason = match setback {
        Setback::Refusal(refusal @ Refusal::OtherRules { found, .. }) => {
            let root = context.state_dir.path();
            let root = root.parent().unwrap_or(root);
            format!("the rules have changed: {}. {refusal}", changes(root, &context.topology, found))
        }
        setback => setback.to_string(),
    };
    let may_pass = setback.may_pass();
    match setback.then() {
        Then::Stop => return stop(context, task, held, (&reason, may_pass)),
        // An answer that brokers have repeated this often is believed, so somebody has to look at it.
        Then::AskAgain if task.trouble.doubted >= context.limits.doubts_max => {
            return stop(context, task, held, (&reason, may_pass));
        }
        Then::StopUnlessProven if !context.proven.has(&task.input.topic) => {
            return stop(context, task, held, (&reason, may_pass));
        }
        // Whether another may be built in its place is known once the task has settled again.
        Then::Rebuild => {
            if let Setback::State(state::Error::Damaged { reason, .. }) = setback {
                task.state.damaged = Some(reason.clone());
            }
            task.trouble.attempts += 1;
        }
        // However long other trouble has lasted: that must not delay a refusal.
        Then::AskAgain => {
            let wait = backoff(task.trouble.doubted);
            task.trouble.doubted += 1;
            tracing::warn!(task = %task.input, reason, retry_in_ms = wait.as_millis() as u64, "restore doubted; asking again");
            return task.set_phase(Phase::Waiting { until: context.clock.monotonic() + wait });
        }
        Then::TryAgain | Then::StopUnlessProven => {
            let wait = backoff(task.trouble.attempts);
            task.trouble.attempts += 1;
            tracing::warn!(task = %task.input, reason, retry_in_ms = wait.as_millis() as u64, "restore set back");
        }
    }
    let wait = task.trouble.attempts.checked_sub(1).map_or(Duration::ZERO, backoff);
    task.set_phase(Phase::Waiting { until: context.clock.monotonic() + wait });
}

/// Stops a task for this reason, which may pass or not; the store that it `held` is put back.
pub fn stop<C: Cluster>(context: &Context, task: &mut Task<C>, held: Option<Held>, (reason, may_pass): (&str, bool)) {
    if let Some(Err(error)) = held.map(|held| held.give_back(context)) {
        tracing::error!(
            task = %task.input, reason = %error,
            "the store was not put back; it will be when the task next starts"
        );
    }
    task.fail(reason, may_pass);
}

/// What the task knows about itself.
fn own<'a, C: Cluster>(context: &'a Context, task: &Task<C>) -> Own<'a> {
    Own {
        rules_digest: &context.rules_digest,
        task_count: task.topics.facts.task_count,
        start: context.topology.start,
        bounds: &context.limits.kept,
    }
}

/// Decides what the store needs.
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
    let held = task.state.held.as_mut().expect("locked before");
    let meta = held.store.meta()?;
    let standing = resume::examine(
        &settled,
        task.input.partition,
        (meta.as_ref(), held.is_latest),
        committed.as_ref(),
        wall_ms,
        task.topics.facts.delete_retention_ms,
    );
    let position = meta.as_ref().and_then(|meta| meta.position_offset);
    let is_own = meta.as_ref().is_some_and(|meta| resume::is_of(meta, &settled, task.input.partition));
    // Before another is built in its place, because it is too old, for example.
    if is_own && !matches!(standing, Standing::Beyond { .. }) && !is_witnessed(&held.store, position, &settled)? {
        // Where to look is known only once the store is open.
        task.set_phase(Phase::Settling(cluster.settle(inquiry(context, task))));
        return Ok(Slice::Worked);
    }
    let held = task.state.held.as_ref().expect("locked before");
    let reached = sabotage::is_on(Sabotage::SourceOffsetAlone) && has_reached(&held.store, &settled)?;
    let standing = if reached { Standing::Current } else { standing };
    let (from, synced_at) = match standing {
        Standing::Current => {
            let next = meta.map_or(settled.changelog_start, |meta| meta.changelog_offset);
            return finish(context, task, &settled, (Applied { next, position }, None));
        }
        Standing::Beyond { applied: CHANGELOG_LOST, .. } => return Err(Refusal::ChangelogTailLost.into()),
        Standing::Beyond { applied, end } => return Err(Refusal::ChangelogShrunk { applied, end }.into()),
        // Other tasks are using the memory for loads. The store has not been touched yet.
        _ if !may_load => return Ok(Slice::Waiting),
        Standing::Behind { from, synced_at } => (from, synced_at),
        Standing::Unusable { from, reason } => {
            let held = task.state.held.take().expect("looked at above");
            task.state.held = Some(held.replace(context, from, task.input.partition, &reason)?);
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
        task.state.held.as_mut().expect("locked before").store.begin_load(&meta)?;
    }
    task.state.restored = true;
    tracing::info!(task = %task.input, from = from.0, to = settled.changelog_end.0, "restoring the store from the changelog");
    task.report.metrics.restore_remaining(settled.changelog_end.since(from));
    let loading = Loading::new(context, cluster, &task.topics.changelog, settled, applied, (synced_at, is_complete))?;
    task.set_phase(Phase::Loading(Box::new(loading)));
    Ok(Slice::Worked)
}

/// Whether the changelog was checked for what the store has applied, if there is anything to check.
fn is_witnessed(store: &Store, position: Option<ChangelogOffset>, settled: &Settled) -> Result<bool, Setback> {
    let held = settled.changelog_start..settled.changelog_end;
    let Some(at) = position.filter(|at| held.contains(at)) else { return Ok(true) };
    let Some(seen) = settled.seen.as_ref().filter(|seen| seen.from == at) else { return Ok(false) };
    resume::check_witness(seen, store.get(POSITION_KEY)?.as_deref())?;
    Ok(true)
}

/// For a sabotage: whether the store has come as far as the group's offset.
fn has_reached(store: &Store, settled: &Settled) -> Result<bool, Setback> {
    let position = position_record(store)?;
    let end = position.and_then(|(position, _)| position.processed.last().map(|&(_, end)| end));
    Ok(end.zip(settled.committed.as_ref()).is_some_and(|(end, committed)| end >= committed.offset))
}

/// The token beside the committed offset; `None` where the group was reset, deleted, or never committed.
fn committed_token(settled: &Settled) -> Result<Option<Token>, Setback> {
    let Some(committed) = &settled.committed else { return Ok(None) };
    let metadata = OffsetMetadata::parse(&committed.metadata).map_err(Refusal::of_metadata)?;
    Ok(metadata.map(|metadata| metadata.token))
}

/// The position record in the store, and what it says about calls.
fn position_record(store: &Store) -> Result<Option<(PositionRecord, Calls)>, Setback> {
    let Some(bytes) = store.get(POSITION_KEY)? else { return Ok(None) };
    Ok(Some(PositionRecord::decode_with_calls(&bytes).map_err(Refusal::of_record)?))
}

/// The store holds what the changelog holds below an offset, except for the `rest`. Takes from the position record
/// where the input continues, and only then writes.
///
/// If a task is held up while another owner continues, the cleaner may remove superseded records that it was about to
/// read: its store lacks them but carries a transaction's token all the same. It is never built upon without what
/// superseded them, since a store is current only if the changelog ends with its transaction.
fn finish<C: Cluster>(
    context: &Context,
    task: &mut Task<C>,
    settled: &Settled,
    (applied, rest): (Applied, Option<LoadBuffer>),
) -> Result<Slice, Setback> {
    let held = task.state.held.as_mut().expect("locked before");
    let position = match rest.as_ref().and_then(|rest| rest.last(POSITION_KEY)) {
        Some(bytes) => bytes.map(PositionRecord::decode_with_calls).transpose().map_err(Refusal::of_record)?,
        None => position_record(&held.store)?,
    };
    let (position, calls) = position.unzip();
    if position.is_none() {
        resume::check_former(settled, task.input.partition, held.former(context)?.as_ref())?;
    }
    let resumption = resume::resumption(settled, position.as_ref(), own(context, task))?;
    let resumption = resumption.with_calls(calls.unwrap_or_default())?;
    let token = position.as_ref().map(|position| position.token);
    let meta = task.store_meta(applied, token, context.clock.wall_ms());
    let held = task.state.held.as_mut().expect("locked before");
    match rest {
        Some(rest) => held.store.apply(rest, &meta)?,
        None => held.store.set_meta(&meta)?,
    }
    // With a sink, the row may yet say that the changelog has lost what the former store knows.
    if context.sink.is_none() {
        held.drop_former(context)?;
    }
    held.applied = applied;
    task.trouble.doubted = 0;
    task.last.unsettled = false;
    task.last.commitment = settled.committed.as_ref().and_then(Commitment::read);
    task.last.group_offset = settled.committed.as_ref().map(|found| found.offset);
    task.last.recorded = token;
    task.ending.unclaim();
    task.present.learn(settled.changelog_time);
    let skipped = i64::from(sabotage::is_on(Sabotage::HeldSkipped) && task.ending.waits());
    let next = resumption.next + skipped;
    task.committed = Position { next, progress: resumption.progress, calls: resumption.calls };
    task.report.metrics.restore_remaining(0);
    match resumption.origin {
        Origin::Fresh => {
            // A start at the end is committed at once: records that arrive before the first commit must not be skipped.
            task.last.commit_start = context.topology.start == Start::Latest;
            tracing::info!(task = %task.input, next, "task starts afresh");
        }
        // At each try, while its sink keeps it waiting.
        Origin::Committed if task.ending.waits() => tracing::debug!(task = %task.input, next, "task resumes"),
        Origin::Committed => tracing::info!(task = %task.input, next, "task resumes"),
        Origin::Reset if settled.committed.as_ref().is_some_and(|committed| committed.offset < next) => {
            // Committed even if nothing follows, so that the group is at an offset that exists.
            task.last.commit_start = true;
            tracing::warn!(
                task = %task.input, next,
                "the group was reset to before where the input begins: reading from there; all that is gone was processed"
            );
        }
        Origin::Reset => {
            // Set by an operator: the position record has to say so before the group can be lost.
            task.last.commit_start = task.last.commitment.is_none();
            tracing::warn!(
                task = %task.input, next, processed = ?task.committed.progress.processed.as_pairs(),
                "the group was reset: reading from its offset; what was processed before is not forwarded again"
            );
        }
        Origin::GroupDeleted => tracing::warn!(
            task = %task.input, next,
            "the group has no offset any more: resuming from the changelog's position record"
        ),
    }
    Ok(Slice::Ready)
}
