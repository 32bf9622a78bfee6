//! The part of a transaction that a sink commits, before Kafka does.
//!
//! A task is the work of one input partition; its **share** is all that the transaction changes for it. The task's
//! **redo** is everything that the transaction writes to Kafka for it. The sink stores the redo in the task's **row**,
//! in the same transaction that carries out the **effects** of the task's records; the redo is sent to Kafka only after
//! that commit. So an owner that finds the row one transaction ahead of Kafka writes exactly what was decided.
//!
//! A sink may have an **inbox**, a table of identities that several programs can share: it carries out no effects for a
//! record if the inbox already has it, or a newer record of its identity.
//! `sabotage::is_on` says whether a test has switched on a deliberate fault.

use std::time::Duration;

use crate::cluster::Cluster;
use crate::dedup::{Reason, Verdict};
use crate::effect::{Answer, CommitError, Effects, RedoBuilder, Session, Sink, Step};
use crate::engine::context::Context;
use crate::engine::failure::{Cause, Failure, Undone};
use crate::engine::rows::RowClaim;
use crate::engine::share::{AwaitedRecord, Share, TaskId};
use crate::engine::sink_trouble::LoggedReasons;
use crate::engine::task::{Task, Tasks};
use crate::format::{Error, POSITION_KEY, Redo, RedoRecord, RedoWriter};
use crate::observe::{Outcomes, SinkMetrics};
use crate::record::Headers;
use crate::sabotage::{self, Sabotage};

/// A lane's access to its topology's sink.
pub struct LaneSink {
    /// Its session with the sink.
    pub session: Box<dyn Session>,
    /// The sink's metrics.
    pub metrics: SinkMetrics,
    /// The errors that were logged since the sink last worked.
    pub logged_reasons: LoggedReasons,
    /// When the rows of idle tasks were last checked, on the monotonic clock.
    pub rows_checked_at: Duration,
    /// Whether the sink may have more data to remove.
    pub is_tidying: bool,
}

impl LaneSink {
    /// Access to `sink`; `now` is the time on the monotonic clock.
    pub fn of(context: &Context, sink: &dyn Sink, now: Duration) -> Self {
        let metrics = context.metrics.sink(&context.topology.name, sink.kind());
        Self {
            session: sink.session(),
            metrics,
            logged_reasons: LoggedReasons::default(),
            rows_checked_at: now,
            is_tidying: false,
        }
    }

    /// Reports whether any of the lane's tasks waits for the sink. Returns whether no task waits.
    pub fn report_waits<C: Cluster>(&mut self, tasks: &Tasks<C>) -> bool {
        let waits = tasks.values().any(|task| task.destination.is_waiting());
        self.metrics.held(waits);
        !waits
    }

    /// Called when an operation has succeeded: if no task waits for the sink any more, logs that it works again.
    pub fn on_success<C: Cluster>(&mut self, context: &Context, tasks: &Tasks<C>) {
        if self.report_waits(tasks) && self.logged_reasons.forget() {
            tracing::info!(topology = context.topology.name, "the sink works again");
        }
    }
}

/// Commits the effects of these shares in the sink, with their rows and redos. None of their records has been sent to
/// Kafka yet.
pub(super) fn commit<C: Cluster>(
    context: &Context,
    shares: &mut [Share],
    tasks: &mut Tasks<C>,
    lane_sink: &mut LaneSink,
) -> Result<(), Failure> {
    let began = context.clock.monotonic();
    let effects: Vec<Effects> = shares.iter_mut().map(|share| std::mem::take(&mut share.effects)).collect();
    let claims: Vec<RowClaim> = shares.iter().map(|share| row_claim(&tasks[&share.task]).clone()).collect();
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
    // The sink gets each task's redo from here before it commits.
    let mut redos = Redos { context, shares, in_inbox: 0 };
    let committed = lane_sink.session.commit(&steps, &mut redos);
    let in_inbox = redos.in_inbox;
    let records = effects.iter().map(|effects| effects.len() as u64).sum::<u64>();
    let undone = committed.err().map(|failed| to_undone(failed, shares, &effects));
    for (share, effects) in shares.iter_mut().zip(effects) {
        share.effects = effects;
    }
    if let Some(undone) = undone {
        return Err(Failure { task: None, cause: Cause::Sink(undone) });
    }
    let took = context.clock.monotonic().saturating_sub(began);
    // Counted once committed: if the transaction is undone, the next one rejects them again.
    let rejected = shares.iter().map(|share| share.tally.count(Reason::Rejected)).sum();
    lane_sink.metrics.committed(took, Outcomes { done: records - in_inbox, in_inbox, rejected });
    for share in shares.iter() {
        let task = tasks.get_mut(&share.task).expect("a task leaves only between transactions");
        if let Some(task_sink) = task.destination.sink_mut() {
            task_sink.on_commit(share.token);
        }
    }
    lane_sink.on_success(context, tasks);
    Ok(())
}

fn row_claim<C: Cluster>(task: &Task<C>) -> &RowClaim {
    task.destination.claim().expect("a task at work has claimed its row")
}

/// The failed commit: its tasks, and the records that the sink refuses.
fn to_undone(failed: CommitError, shares: &[Share], effects: &[Effects]) -> Undone {
    let tasks: Vec<TaskId> = shares.iter().map(|share| share.task).collect();
    let rejected = match &failed {
        CommitError::Rejected(rejected) => rejected
            .iter()
            .map(|record| {
                let offset = effects[record.step].get(record.effect).offset();
                (tasks[record.step], offset, record.message.clone())
            })
            .collect(),
        _ => Vec::new(),
    };
    Undone { failed, tasks, rejected }
}

/// Completes the redos of a transaction's shares.
struct Redos<'a> {
    context: &'a Context,
    shares: &'a mut [Share],
    /// How many records were in the inbox already.
    in_inbox: u64,
}

impl RedoBuilder for Redos<'_> {
    fn redo(&mut self, step: usize, answers: &[Answer]) -> Vec<u8> {
        let share = &mut self.shares[step];
        for (awaited, answer) in std::mem::take(&mut share.awaited).iter().zip(answers) {
            match answer {
                Answer::Done(rows) => {
                    // The rows that the record's statements have returned go to the topic for results.
                    let value = format!("[{}]", rows.join(","));
                    add_topic_record(share, awaited, (self.context.results(), awaited.partitions[0]), value.as_bytes());
                }
                Answer::InInbox => {
                    // The record is a duplicate: the sink's inbox has it.
                    self.in_inbox += 1;
                    share.tally.change((Verdict::Forwarded, awaited.reason), (Verdict::Duplicate, Reason::InInbox));
                    let audit = self.context.topology.audit.as_deref();
                    add_topic_record(share, awaited, (audit, awaited.partitions[1]), &awaited.explanation);
                }
            }
        }
        let Share { overlay, redo, position_record, position, start_offset, .. } = share;
        for (key, value) in overlay.iter() {
            redo.push(RedoRecord::Changelog { key, value });
        }
        redo.push(RedoRecord::Changelog { key: POSITION_KEY, value: Some(position_record) });
        let redo = redo.finish(*start_offset, position.next).to_vec();
        if sabotage::is_on(Sabotage::RedoWithoutLetters) { without_topic_records(&redo) } else { redo }
    }
}

/// Sabotage: a redo with its changelog records alone.
fn without_topic_records(redo: &[u8]) -> Vec<u8> {
    let redo = Redo::decode(redo).expect("just written");
    let mut writer = RedoWriter::default();
    writer.begin();
    for record in redo.records().filter(|record| matches!(record, RedoRecord::Changelog { .. })) {
        writer.push(record);
    }
    writer.finish(redo.began, redo.next).to_vec()
}

/// Adds to the share's redo the record that reports the sink's answer, if there is a topic for it.
fn add_topic_record(share: &mut Share, awaited: &AwaitedRecord, (topic, partition): (Option<&str>, i32), value: &[u8]) {
    let Some(topic) = topic else { return };
    let (headers, timestamp) = (Headers::default(), awaited.timestamp);
    let (key, value) = (awaited.key.as_deref(), Some(value));
    share.redo.push(RedoRecord::Topic { topic, partition, timestamp, headers, key, value });
}

/// The redo that a share was committed with.
pub(super) fn committed_redo(share: &Share) -> Result<Redo<'_>, Error> {
    Redo::decode(share.redo.as_bytes())
}
