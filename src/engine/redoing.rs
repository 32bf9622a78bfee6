//! Plays redos: writes to Kafka the half of a transaction that its sink has committed and Kafka has not.
//!
//! The redo is played in a transaction of its own, under a transactional id of its own, so that a topic that does not
//! accept it holds up no other records. Nothing is decided again: the redo holds everything that the transaction writes
//! for this task, and a changed clock, other rules or a compacted input change none of it. Then the task restores, and
//! finds Kafka and its row at the same transaction. Only a redo that the task can have written is played (`own`).
//!
//! **Failure**: the transaction is aborted and the task restores, which finds the row one ahead again. A record that
//! Kafka refuses for good stops the task: the sink has already committed the transaction, so it can no longer be
//! decided differently.

use crate::cluster::{self, Cluster, ErrorKind, Producer};
use crate::format::{OffsetMetadata, Redo, Token};

use super::changelog_loss;
use super::claims::Ownership;
use super::commitment::Commitment;
use super::context::Context;
use super::failure::Cause;
use super::isolate::Means;
use super::resume::Refusal;
use super::setback::Setback;
use super::share::TaskId;
use super::task::{Phase, Task};
use super::transact::Transactor;

use std::time::Duration;

mod own;
mod played;

pub use played::Redoing;

/// Takes a redo one step further; never waits for a delivery. Returns whether Kafka has committed it.
pub fn step<C: Cluster>(means: &mut Means<'_, C>, id: TaskId) -> Result<bool, Setback> {
    let task = means.tasks.get_mut(&id).expect("the lane steps its own tasks");
    if !matches!(task.phase, Phase::Redoing(_)) {
        return Ok(false);
    }
    let Phase::Redoing(mut redoing) = std::mem::replace(&mut task.phase, Phase::Waiting { until: Duration::ZERO })
    else {
        return Ok(false);
    };
    let stepped = if redoing.sent { finish(means, id, &mut redoing) } else { send(means, id, &mut redoing) };
    let task = means.tasks.get_mut(&id).expect("still there");
    let error = match stepped {
        Ok(false) => {
            task.phase = Phase::Redoing(redoing);
            return Ok(false);
        }
        Ok(true) => {
            tracing::info!(
                task = %task.input, token = %redoing.token,
                "the transaction that the sink had committed is now in Kafka too"
            );
            return Ok(true);
        }
        Err(setback) => setback,
    };
    task.unsettle();
    let cause = match &error {
        Setback::Cluster(error) => Cause::Cluster(error.clone()),
        _ => Cause::Cluster(cluster::Error::new(ErrorKind::Abort, error.to_string())),
    };
    let aborted = redoing.transactor.abort(means.cluster, &cause, means.metrics);
    if let Some(fallen_back) = changelog_loss::detect(means.tasks, &aborted.delivered).pop()
        && let Cause::Refused(refusal) = fallen_back.cause
    {
        return Err(refusal.into());
    }
    let refused = aborted.undelivered.into_iter().find(|failure| failure.refused);
    Err(refused.map_or(error, |failure| Refusal::RedoRefused { message: failure.message }.into()))
}

/// Claims the partition for the transactor's id and hands the records to its producer.
fn send<C: Cluster>(means: &mut Means<'_, C>, id: TaskId, redoing: &mut Redoing<C>) -> Result<bool, Setback> {
    let Means { context, cluster, tasks, member, metrics, .. } = means;
    let Redoing { transactor, redo, token, .. } = redoing;
    let redo = Redo::decode(redo).map_err(Refusal::RedoUnreadable)?;
    let mut own = own::Own::of(context, &tasks[&id], *token);
    own.learn(&redo, |topic| Ok(cluster.describe_topic(topic)?.map(|described| described.partition_count)))?;
    own.check(&redo)?;
    transactor.prepare(cluster)?;
    Ownership { context, tasks, member, transactor, metrics }.claim(id, |_| false)?;
    // From here on the store may lack a transaction that this task has committed, even if the group names the store's
    // last transaction as its own last.
    tasks.get_mut(&id).expect("the lane steps its own tasks").unsettle();
    let task = &tasks[&id];
    let from = task.state.held.as_ref().expect("a task whose row is claimed holds its store").applied.next;
    match transactor.begin_redo(context, id, (&task.topics.changelog, from), redo) {
        Err(error) if error.kind == ErrorKind::Refused => Err(Refusal::RedoRefused { message: error.message }.into()),
        begun => {
            begun?;
            redoing.sent = true;
            Ok(false)
        }
    }
}

/// Commits once everything is delivered; fails as soon as a delivery has failed.
fn finish<C: Cluster>(means: &mut Means<'_, C>, id: TaskId, redoing: &mut Redoing<C>) -> Result<bool, Setback> {
    let Redoing { transactor, redo, token, .. } = redoing;
    if transactor.has_failed() {
        // No use waiting: the client keeps the other records until they time out.
        return Err(cluster::Error::new(ErrorKind::Abort, "a record of the redo could not be delivered").into());
    }
    if transactor.in_flight() > 0 {
        return Ok(false);
    }
    let redo = Redo::decode(redo).map_err(Refusal::RedoUnreadable)?;
    let task = means.tasks.get_mut(&id).expect("the lane steps its own tasks");
    let commitment = commitment(means.context, task, (redo, *token), transactor);
    transactor.commit_redo(&commitment.to_commit(&task.input), means.member, means.metrics)?;
    task.last.commitment = Some(commitment);
    Ok(true)
}

/// The group's next offset: the end of the redo, if the group has no offset or the one at which the redo's transaction
/// began. Otherwise somebody has reset it, or a late copy of a commit has moved it back, and it stays as it is.
fn commitment<C: Cluster>(
    context: &Context,
    task: &Task<C>,
    (redo, token): (Redo<'_>, Token),
    transactor: &mut Transactor<C>,
) -> Commitment {
    let metadata = OffsetMetadata {
        token,
        digest: OffsetMetadata::short_digest(&context.rules_digest),
        owner: Some(transactor.producer().id().to_owned()),
    };
    let offset = task.last.group_offset.filter(|offset| *offset != redo.began).unwrap_or(redo.next);
    Commitment { offset, metadata }
}
