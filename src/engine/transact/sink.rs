//! The part of a transaction that a sink commits, before Kafka does.
//!
//! A task's redo is everything that the transaction writes to Kafka for it. The sink stores the redo in the task's row,
//! in the same transaction that carries out the effects, and only once that is committed is the redo sent to Kafka. So
//! an owner that finds the row one transaction ahead of Kafka plays exactly what was decided.

use std::time::Duration;

use crate::cluster::Cluster;
use crate::dedup::{Reason, Verdict};
use crate::effect::{Answer, Complete, Effects, Failed, Session, Sink, Step};
use crate::engine::context::Context;
use crate::engine::failure::{Cause, Failure, Undone};
use crate::engine::rows::Claim;
use crate::engine::share::{Asked, Share, TaskId};
use crate::engine::sink_trouble::Said;
use crate::engine::task::{Task, Tasks};
use crate::format::{Error, POSITION_KEY, Redo, RedoRecord, RedoWriter};
use crate::observe::{Outcomes, SinkMetrics};
use crate::record::Headers;
use crate::sabotage::{self, Sabotage};

/// A lane's access to its topology's sink.
pub struct OpenSink {
    /// Its session.
    pub session: Box<dyn Session>,
    /// Where counts go.
    pub metrics: SinkMetrics,
    /// What was logged about its trouble.
    pub said: Said,
    /// When the rows of idle tasks were last looked at, on the monotonic clock.
    pub looked_at: Duration,
    /// Whether the sink may have more to tidy up.
    pub is_tidying: bool,
}

impl OpenSink {
    /// Access to `sink`, opened `now` by the monotonic clock.
    pub fn of(context: &Context, sink: &dyn Sink, now: Duration) -> Self {
        let metrics = context.metrics.sink(&context.topology.name, sink.kind());
        Self { session: sink.session(), metrics, said: Said::default(), looked_at: now, is_tidying: false }
    }

    /// Reports the lane as waiting for the sink if any of its tasks does. Returns whether none does.
    pub fn count_waits<C: Cluster>(&mut self, tasks: &Tasks<C>) -> bool {
        let waits = tasks.values().any(|task| task.ending.waits());
        self.metrics.held(waits);
        !waits
    }

    /// An operation has succeeded: if no task waits for the sink any more, logs that it works again.
    pub fn worked<C: Cluster>(&mut self, context: &Context, tasks: &Tasks<C>) {
        if self.count_waits(tasks) && self.said.forget() {
            tracing::info!(topology = context.topology.name, "the sink works again");
        }
    }
}

/// Lets the sink commit these shares' effects, with their rows and redos. Nothing of them has been sent to Kafka yet.
pub(super) fn commit<C: Cluster>(
    context: &Context,
    shares: &mut [Share],
    tasks: &mut Tasks<C>,
    through: &mut OpenSink,
) -> Result<(), Failure> {
    let began = context.clock.monotonic();
    let effects: Vec<Effects> = shares.iter_mut().map(|share| std::mem::take(&mut share.effects)).collect();
    let claims: Vec<Claim> = shares.iter().map(|share| claim(&tasks[&share.task]).clone()).collect();
    let steps: Vec<Step<'_>> = shares
        .iter()
        .zip(&claims)
        .zip(&effects)
        .map(|((share, claim), effects)| Step {
            key: &claim.key,
            mark: &claim.mark,
            token: share.token.expect("the transaction is sealed"),
            next: share.position.next,
            effects,
        })
        .collect();
    let mut redos = Redos { context, shares, in_inbox: 0 };
    let committed = through.session.commit(&steps, &mut redos);
    let in_inbox = redos.in_inbox;
    let records = effects.iter().map(|effects| effects.len() as u64).sum::<u64>();
    let undone = committed.err().map(|failed| undone(failed, shares, &effects));
    for (share, effects) in shares.iter_mut().zip(effects) {
        share.effects = effects;
    }
    if let Some(undone) = undone {
        return Err(Failure { task: None, cause: Cause::Sink(undone) });
    }
    let took = context.clock.monotonic().saturating_sub(began);
    // Counted once committed: if the transaction is undone, the next one rejects them again.
    let rejected = shares.iter().map(|share| share.tally.count(Reason::Rejected)).sum();
    through.metrics.committed(took, Outcomes { done: records - in_inbox, in_inbox, rejected });
    for share in shares.iter() {
        let task = tasks.get_mut(&share.task).expect("a task leaves only between transactions");
        if let Some(own) = task.ending.sink_mut() {
            own.committed(share.token);
        }
    }
    through.worked(context, tasks);
    Ok(())
}

fn claim<C: Cluster>(task: &Task<C>) -> &Claim {
    task.ending.claim().expect("a task at work has claimed its row")
}

/// What the failed commit means for the tasks and records that were in it.
fn undone(failed: Failed, shares: &[Share], effects: &[Effects]) -> Undone {
    let tasks: Vec<TaskId> = shares.iter().map(|share| share.task).collect();
    let rejected = match &failed {
        Failed::Rejected(rejected) => rejected
            .iter()
            .map(|of| (tasks[of.step], effects[of.step].get(of.effect).offset(), of.message.clone()))
            .collect(),
        _ => Vec::new(),
    };
    Undone { failed, tasks, rejected }
}

/// Completes the redos of a transaction's shares.
struct Redos<'a> {
    context: &'a Context,
    shares: &'a mut [Share],
    in_inbox: u64,
}

impl Complete for Redos<'_> {
    fn redo(&mut self, step: usize, answers: &[Answer]) -> Vec<u8> {
        let share = &mut self.shares[step];
        for (asked, answer) in std::mem::take(&mut share.asked).iter().zip(answers) {
            match answer {
                Answer::Done(rows) => {
                    let value = format!("[{}]", rows.join(","));
                    write(share, asked, (self.context.results(), asked.partitions[0]), value.as_bytes());
                }
                Answer::InInbox => {
                    // A duplicate after all.
                    self.in_inbox += 1;
                    share.tally.change((Verdict::Forwarded, asked.reason), (Verdict::Duplicate, Reason::InInbox));
                    let audit = self.context.topology.audit.as_deref();
                    write(share, asked, (audit, asked.partitions[1]), &asked.explanation);
                }
            }
        }
        let Share { overlay, redo, sealed, position, began, .. } = share;
        for (key, value) in overlay.iter() {
            redo.push(RedoRecord::Changelog { key, value });
        }
        redo.push(RedoRecord::Changelog { key: POSITION_KEY, value: Some(sealed) });
        let redo = redo.finish(*began, position.next).to_vec();
        if sabotage::is_on(Sabotage::RedoWithoutLetters) { without_letters(&redo) } else { redo }
    }
}

/// Sabotage: a redo with the changelog's records alone.
fn without_letters(redo: &[u8]) -> Vec<u8> {
    let redo = Redo::decode(redo).expect("just written");
    let mut writer = RedoWriter::default();
    writer.begin();
    for record in redo.records().filter(|record| matches!(record, RedoRecord::Changelog { .. })) {
        writer.push(record);
    }
    writer.finish(redo.began, redo.next).to_vec()
}

/// Adds to the share's redo what follows from the sink's answer about a record, if there is a topic for it.
fn write(share: &mut Share, asked: &Asked, (topic, partition): (Option<&str>, i32), value: &[u8]) {
    let Some(topic) = topic else { return };
    let (headers, timestamp) = (Headers::default(), asked.timestamp);
    let (key, value) = (asked.key.as_deref(), Some(value));
    share.redo.push(RedoRecord::Topic { topic, partition, timestamp, headers, key, value });
}

/// The redo that a share was committed with.
pub(super) fn committed(share: &Share) -> Result<Redo<'_>, Error> {
    Redo::decode(share.redo.as_bytes())
}
