//! The one way back: start, takeover, abort, fence, lost partition, unknown outcome all come through here.
//!
//! A task settles (nobody else can write any more), claims its store, and, unless the store is the result of
//! the committed transaction already, reads the changelog from the store's position to the end that was read
//! once everything was settled. The lane's other tasks go on meanwhile: each call does a bounded slice.

use std::time::Duration;

use crate::cluster::{self, Cluster, Inquiry, Kind, Settled, Settling};
use crate::format::{CHANGELOG_LOST, OffsetMetadata, POSITION_KEY, PositionRecord, Token};
use crate::mistakes::{self, Mistake};
use crate::state::{self, LoadBuffer, Store};

use super::claims::Commitment;
use super::context::{Context, backoff};
use super::hold::{self, Held};
use super::load::{self, Loading, Progress};
use super::plan::{self, Origin, Own, Refusal, Standing};
use super::task::{Phase, Position, Task};
use crate::topology::Start;

/// How long the store's former holder in this process may take to let go of it.
const CLAIM_WAIT: Duration = Duration::from_secs(30);

/// What a slice has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slice {
    /// Nothing could be done yet.
    Waiting,
    /// Something was done, and more is to be.
    Worked,
    /// The store is current and the position known.
    Ready,
}

/// Why a restore cannot go on.
#[derive(Debug)]
pub enum Setback {
    /// Never: a person has to do something.
    Refused(String),
    /// Likewise, if brokers go on saying so.
    Doubted(String),
    /// A right is missing: never, unless it was there before.
    Denied(String),
    /// The store cannot be used as it is: another is to be built in its place.
    Damaged(String),
    /// Not now.
    Later(String),
}

impl From<cluster::Error> for Setback {
    fn from(error: cluster::Error) -> Self {
        match error.kind {
            Kind::Refused if error.right => Self::Denied(error.message),
            Kind::Refused => Self::Refused(error.message),
            Kind::Retry | Kind::Abort | Kind::Fenced | Kind::Unknown => Self::Later(error.message),
        }
    }
}

impl From<state::Error> for Setback {
    fn from(error: state::Error) -> Self {
        match error {
            state::Error::Damaged { reason, .. } => Self::Damaged(reason),
            // It stays in the changelog: a second reading would find it again.
            error @ state::Error::ReservedKey { .. } => Self::Refused(error.to_string()),
            error => Self::Later(error.to_string()),
        }
    }
}

impl From<Refusal> for Setback {
    fn from(refusal: Refusal) -> Self {
        let reason = refusal.to_string();
        if refusal.is_doubtful() { Self::Doubted(reason) } else { Self::Refused(reason) }
    }
}

/// Takes a task one slice further, from whatever phase of its restore it is in. Where `may_load` is false,
/// other tasks have the memory for loads.
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
            task.restored = false;
            task.set_phase(Phase::Settling(cluster.settle(inquiry(context, task))));
            Ok(Slice::Worked)
        }
        Phase::Settling(settling) => match settling.poll() {
            None => Ok(Slice::Waiting),
            Some(answer) => {
                let settled = Box::new(answer?);
                task.set_phase(Phase::Claiming { settled, deadline: now + CLAIM_WAIT });
                Ok(Slice::Worked)
            }
        },
        Phase::Claiming { settled, deadline } => {
            let (settled, deadline) = (settled.clone(), *deadline);
            // Before the store is touched.
            plan::check_committed(&settled, own(context, task))?;
            if task.held.is_none() {
                task.held = hold::take(context, task, &settled)?;
                // Its former holder may have read on to where the changelog has grown since it settled: aborted, of course.
                let stands = task.held.as_ref().and_then(Held::changelog_offset);
                if stands.is_some_and(|stands| stands != CHANGELOG_LOST && stands > settled.changelog_end) {
                    task.set_phase(Phase::Settling(cluster.settle(inquiry(context, task))));
                    return Ok(Slice::Worked);
                }
            }
            match &task.held {
                Some(_) => begin(context, cluster, task, *settled, may_load),
                None if now < deadline => Ok(Slice::Waiting),
                None => Err(Setback::Later("the store is still open in another lane of this process".to_owned())),
            }
        }
        Phase::Loading(_) => match load::step(context, task, batch)? {
            Progress::Waiting => Ok(Slice::Waiting),
            Progress::Worked => Ok(Slice::Worked),
            Progress::Loaded { settled, position, position_offset, rest } => {
                task.position_offset = position_offset;
                finish(context, task, &settled, (position, rest))
            }
        },
        Phase::Running | Phase::Queued { .. } | Phase::Isolated(_) | Phase::Failed => Ok(Slice::Waiting),
    }
}

/// What a task asks before all else.
pub fn inquiry<C: Cluster>(context: &Context, task: &Task<C>) -> Inquiry {
    Inquiry {
        fencing: context.fencing(),
        asks_time: task.present.asks(),
        is_doubted: task.doubted > 0,
        looks_from: task.held.as_ref().and_then(Held::position_offset),
        ..Inquiry::of(&context.topology.group(), &task.input, &task.changelog)
    }
}

/// Sends the task back to the beginning of its restore after a setback, or stops it.
pub fn set_back<C: Cluster>(context: &Context, task: &mut Task<C>, setback: &Setback) {
    // After an error of its disk a store is opened anew.
    let held = task.held.take();
    match setback {
        Setback::Refused(reason) => return stop(context, task, held, reason),
        Setback::Doubted(reason) if task.doubted >= context.limits.doubts_max => {
            return stop(context, task, held, reason);
        }
        Setback::Denied(reason) if !context.proven.has(&task.input.topic) => return stop(context, task, held, reason),
        // Whether another may be built in its place is known when the task has settled again.
        Setback::Damaged(reason) => {
            task.damaged = Some(reason.clone());
            task.attempts += 1;
        }
        // However long other trouble has lasted: a refusal is not to be late for it.
        Setback::Doubted(reason) => {
            let wait = backoff(task.doubted);
            task.doubted += 1;
            tracing::warn!(task = %task.input, reason, retry_in_ms = wait.as_millis() as u64, "restore doubted; asking again");
            task.rewind();
            return task.set_phase(Phase::Waiting { until: context.clock.monotonic() + wait });
        }
        Setback::Later(reason) | Setback::Denied(reason) => {
            let wait = backoff(task.attempts);
            task.attempts += 1;
            tracing::warn!(task = %task.input, reason, retry_in_ms = wait.as_millis() as u64, "restore set back");
        }
    }
    let wait = task.attempts.checked_sub(1).map_or(Duration::ZERO, backoff);
    task.rewind();
    task.set_phase(Phase::Waiting { until: context.clock.monotonic() + wait });
}

/// Stops a task that is refused; the store that it `held` is put back as it was.
pub fn stop<C: Cluster>(context: &Context, task: &mut Task<C>, held: Option<Held>, reason: &str) {
    if let Some(Err(error)) = held.map(|held| held.give_back(context)) {
        tracing::error!(
            task = %task.input, reason = %error,
            "the store was not put back into its place; it is when the task begins again"
        );
    }
    task.fail(reason);
}

/// What the task knows of itself.
fn own<'a, C: Cluster>(context: &'a Context, task: &Task<C>) -> Own<'a> {
    Own {
        rules_digest: &context.rules_digest,
        task_count: task.topics.task_count,
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
    task.input_id = settled.input_id;
    task.input_end = settled.input_end;
    task.changelog_id = settled.changelog_id;
    let committed = committed_token(&settled)?;
    let wall_ms = context.clock.wall_ms();
    let held = task.held.as_mut().expect("claimed before");
    let meta = held.store.meta()?;
    let standing = plan::examine(
        &settled,
        task.input.partition,
        (meta.as_ref(), held.is_latest),
        committed.as_ref(),
        wall_ms,
        task.topics.delete_retention_ms,
    );
    task.position_offset = meta.as_ref().and_then(|meta| meta.position_offset);
    let is_own = meta.as_ref().is_some_and(|meta| plan::is_of(meta, &settled, task.input.partition));
    // Before another is built in its place, for its age, say.
    if is_own && !matches!(standing, Standing::Beyond { .. }) && !is_witnessed(task, &settled)? {
        // Only an open store tells where to look.
        task.set_phase(Phase::Settling(cluster.settle(inquiry(context, task))));
        return Ok(Slice::Worked);
    }
    let held = task.held.as_ref().expect("claimed before");
    let reached = mistakes::made(Mistake::SourceOffsetAlone) && has_reached(&held.store, &settled)?;
    let standing = if reached { Standing::Current } else { standing };
    let (from, synced_at) = match standing {
        Standing::Current => {
            let offset = meta.map_or(settled.changelog_start, |meta| meta.changelog_offset);
            return finish(context, task, &settled, (offset, None));
        }
        Standing::Beyond { stands: CHANGELOG_LOST, .. } => return Err(Refusal::ChangelogTailLost.into()),
        Standing::Beyond { stands, end } => return Err(Refusal::ChangelogShrunk { stands, end }.into()),
        // Other tasks have the memory for loads. Nothing was done to the store yet.
        _ if !may_load => return Ok(Slice::Waiting),
        Standing::Behind { from, synced_at } => (from, synced_at),
        Standing::Unusable { from, reason } => {
            let held = task.held.take().expect("looked at above");
            task.held = Some(held.replace(context, from, task.input.partition, &reason)?);
            tracing::warn!(task = %task.input, reason, "store cannot be built upon; rebuilding it from the changelog");
            // Examined like any.
            return Ok(Slice::Worked);
        }
    };
    if from >= settled.changelog_end {
        return finish(context, task, &settled, (from, None));
    }
    let is_whole = meta.is_some_and(|meta| meta.token.is_some()) && !mistakes::made(Mistake::WholeStoreLoadedInto);
    if !is_whole {
        let token = committed.filter(|_| mistakes::made(Mistake::TokenInRestore));
        let meta = task.store_meta((from, task.position_offset), token, synced_at);
        task.held.as_mut().expect("claimed before").store.begin_load(&meta)?;
    }
    task.restored = true;
    tracing::info!(task = %task.input, from, to = settled.changelog_end, "restoring the store from the changelog");
    task.metrics.restore_remaining(settled.changelog_end - from);
    let stands = (from, task.position_offset);
    let loading = Loading::new(context, cluster, &task.changelog, settled, stands, (synced_at, is_whole))?;
    task.set_phase(Phase::Loading(Box::new(loading)));
    Ok(Slice::Worked)
}

/// Whether the changelog was looked at for what the store has applied, if there is anything to be seen.
fn is_witnessed<C: Cluster>(task: &Task<C>, settled: &Settled) -> Result<bool, Setback> {
    let held = (settled.changelog_start, settled.changelog_end);
    let Some(at) = task.position_offset.filter(|at| (held.0..held.1).contains(at)) else { return Ok(true) };
    let Some(seen) = settled.seen.as_ref().filter(|seen| seen.from == at) else { return Ok(false) };
    let store = &task.held.as_ref().expect("claimed before").store;
    plan::check_witness(seen, store.get(POSITION_KEY)?.as_deref())?;
    Ok(true)
}

/// A deliberate mistake's question: whether the store has come as far as the group's offset.
fn has_reached(store: &Store, settled: &Settled) -> Result<bool, Setback> {
    let position = position_record(store)?;
    let end = position.and_then(|position| position.processed.last().map(|&(_, end)| end));
    Ok(end.zip(settled.committed.as_ref()).is_some_and(|(end, committed)| end >= committed.offset))
}

/// The token beside the committed offset; `None` where the group was reset, deleted, or never committed.
fn committed_token(settled: &Settled) -> Result<Option<Token>, Setback> {
    let Some(committed) = &settled.committed else { return Ok(None) };
    let metadata = OffsetMetadata::parse(&committed.metadata).map_err(Refusal::of_metadata)?;
    Ok(metadata.map(|metadata| metadata.token))
}

/// The position record that the store holds.
fn position_record(store: &Store) -> Result<Option<PositionRecord>, Setback> {
    let Some(bytes) = store.get(POSITION_KEY)? else { return Ok(None) };
    Ok(Some(PositionRecord::decode(&bytes).map_err(Refusal::of_record)?))
}

/// The store holds what the changelog holds below an offset, but for the `rest`: learns from the position record where
/// the input goes on, and only then writes.
///
/// Of a task that was held up while another owner went on, the cleaner may have removed what it was about to read, as
/// superseded: its store lacks that and is named all the same. It is never built upon without what superseded it, since
/// a store is current only where the changelog ends with it.
fn finish<C: Cluster>(
    context: &Context,
    task: &mut Task<C>,
    settled: &Settled,
    (changelog_offset, rest): (i64, Option<LoadBuffer>),
) -> Result<Slice, Setback> {
    let held = task.held.as_mut().expect("claimed before");
    let position = match rest.as_ref().and_then(|rest| rest.last(POSITION_KEY)) {
        Some(bytes) => bytes.map(PositionRecord::decode).transpose().map_err(Refusal::of_record)?,
        None => position_record(&held.store)?,
    };
    if position.is_none() {
        plan::check_former(settled, task.input.partition, held.former(context)?.as_ref())?;
    }
    let resumption = plan::resume(settled, position.as_ref(), own(context, task))?;
    let token = position.as_ref().map(|position| position.token);
    let meta = task.store_meta((changelog_offset, task.position_offset), token, context.clock.wall_ms());
    let held = task.held.as_mut().expect("claimed before");
    match rest {
        Some(rest) => held.store.apply(rest, &meta)?,
        None => held.store.set_meta(&meta)?,
    }
    held.settle(context)?;
    task.changelog_offset = changelog_offset;
    task.doubted = 0;
    task.unsettled = false;
    task.commitment = settled.committed.as_ref().and_then(Commitment::read);
    task.present.learn(settled.changelog_time);
    task.committed = Position { next: resumption.next, progress: resumption.progress };
    task.rewind();
    task.metrics.restore_remaining(0);
    let next = resumption.next;
    match resumption.origin {
        Origin::Fresh => {
            // A beginning at the end is committed at once: what comes before the first commit must not be skipped.
            task.commit_start = context.topology.start == Start::Latest;
            tracing::info!(task = %task.input, next, "task begins anew");
        }
        Origin::Committed => tracing::info!(task = %task.input, next, "task resumes"),
        Origin::Reset if settled.committed.as_ref().is_some_and(|committed| committed.offset < next) => {
            // Committed also if nothing follows, so that the group stands at an offset that is there.
            task.commit_start = true;
            tracing::warn!(
                task = %task.input, next,
                "the group was reset to before where the input begins: reading from there; all that is gone was processed"
            );
        }
        Origin::Reset => {
            // Where people have set it: the position record says so before the group can be lost.
            task.commit_start = task.commitment.is_none();
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
