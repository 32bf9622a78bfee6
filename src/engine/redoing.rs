//! Plays redos: writes to Kafka the records of a transaction that only its sink has committed.
//!
//! The redo is played in a transaction of its own, under a transactional id of its own, so that a topic that does not
//! accept it holds up no other records. Nothing is decided again: the redo holds everything that the transaction writes
//! for this task, whatever the clock, the rules or the input are now. Then the task restores, and finds Kafka and its
//! row at the same transaction. Only a redo that the task can have written is played (`facts`).
//!
//! **Failure**: the transaction is aborted and the task restores, which finds the row one transaction ahead again. A
//! record that Kafka refuses for good stops the task: the sink has already committed the transaction, so it can no
//! longer be decided differently.

use crate::cluster::{self, Cluster, ErrorKind, Producer};
use crate::format::{OffsetMetadata, Redo, Token};

use super::changelog_loss;
use super::claims::Ownership;
use super::commitment::Commitment;
use super::context::Context;
use super::failure::Cause;
use super::isolate::LaneParts;
use super::resume::Refusal;
use super::setback::Setback;
use super::share::TaskId;
use super::task::{Phase, Task};
use super::transact::Transactor;

use std::time::Duration;

mod facts;
mod replay;

pub use replay::RedoReplay;

/// Performs the next step of a redo; never waits for a delivery. Returns whether Kafka has committed the redo.
pub fn step<C: Cluster>(parts: &mut LaneParts<'_, C>, id: TaskId) -> Result<bool, Setback> {
    let task = parts.tasks.get_mut(&id).expect("the lane steps its own tasks");
    if !matches!(task.phase, Phase::Redoing(_)) {
        return Ok(false);
    }
    let Phase::Redoing(mut redoing) = std::mem::replace(&mut task.phase, Phase::Waiting { until: Duration::ZERO })
    else {
        return Ok(false);
    };
    let stepped = if redoing.sent { finish(parts, id, &mut redoing) } else { send(parts, id, &mut redoing) };
    let task = parts.tasks.get_mut(&id).expect("still there");
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
    let aborted = redoing.transactor.abort(parts.cluster, &cause, parts.metrics);
    if let Some(loss) = changelog_loss::detect(parts.tasks, &aborted.delivered).pop()
        && let Cause::Refused(refusal) = loss.cause
    {
        return Err(refusal.into());
    }
    let refused = aborted.undelivered.into_iter().find(|failure| failure.refused);
    Err(refused.map_or(error, |failure| Refusal::RedoRefused { message: failure.message }.into()))
}

/// Claims the partition for the transactor's id and hands the records to its producer.
fn send<C: Cluster>(parts: &mut LaneParts<'_, C>, id: TaskId, redoing: &mut RedoReplay<C>) -> Result<bool, Setback> {
    let LaneParts { context, cluster, tasks, member, metrics, .. } = parts;
    let RedoReplay { transactor, redo, token, .. } = redoing;
    let redo = Redo::decode(redo).map_err(Refusal::RedoUnreadable)?;
    let mut facts = facts::RedoFacts::of(context, &tasks[&id], *token);
    facts.refresh_partition_counts(&redo, |topic| {
        Ok(cluster.describe_topic(topic)?.map(|described| described.partition_count))
    })?;
    facts.check(&redo)?;
    transactor.prepare(cluster)?;
    Ownership { context, tasks, member, transactor, metrics }.claim(id, |_| false)?;
    // From now on the store may lack a transaction that this task has committed, even if the store and the group name
    // the same transaction as their last.
    tasks.get_mut(&id).expect("the lane steps its own tasks").unsettle();
    let task = &tasks[&id];
    let from = task.state.store.as_ref().expect("a task whose row is claimed holds its store").applied.next;
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
fn finish<C: Cluster>(parts: &mut LaneParts<'_, C>, id: TaskId, redoing: &mut RedoReplay<C>) -> Result<bool, Setback> {
    let RedoReplay { transactor, redo, token, .. } = redoing;
    if transactor.has_failed() {
        // Waiting is useless: the client keeps the other records until they time out.
        return Err(cluster::Error::new(ErrorKind::Abort, "a record of the redo could not be delivered").into());
    }
    if transactor.in_flight() > 0 {
        return Ok(false);
    }
    let redo = Redo::decode(redo).map_err(Refusal::RedoUnreadable)?;
    let task = parts.tasks.get_mut(&id).expect("the lane steps its own tasks");
    let commitment = commitment(parts.context, task, (redo, *token), transactor);
    transactor.commit_redo(&commitment.to_commit(&task.input), parts.member, parts.metrics)?;
    task.last.commitment = Some(commitment);
    Ok(true)
}

/// The offset to commit: the end of the redo, if the group has no offset or the offset at which the redo's transaction
/// began. Otherwise an operator has reset the offset, or a late copy of a commit has moved it back, and it is kept.
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
