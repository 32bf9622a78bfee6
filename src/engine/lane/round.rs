//! What a lane with a provider does outside its transaction: it enqueues the records that were read, handles answers,
//! judges records, and sends the calls that are authorised.
//!
//! Each task at work (on an input partition) has a **window**: the records that it has read and not yet **settled**,
//! that is, whose outcomes are not committed. To **judge** a record is to decide whether it calls the provider.
//!
//! Nothing here waits for the open transaction: the lane continues during a commit ([`Deferred`]). A record whose
//! identity has an earlier record in the transaction is judged only after the commit, once the earlier record is
//! settled. A call is sent only if an earlier commit authorised it.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::cluster::{self, Cluster, GroupEvent, Member, RecordBatch};
use crate::effect::call::CoveringGrant;
use crate::engine::calling::Calling;
use crate::engine::calling::judging::{self, JudgingContext};
use crate::engine::context::Context;
use crate::engine::failure::Failure;
use crate::engine::judge::is_certainly_future;
use crate::engine::panics::caught;
use crate::engine::process::Scratch;
use crate::engine::share::TaskId;
use crate::engine::task::Tasks;
use crate::topology::sink::Terms;

use super::sorting::sort_by_task;

/// The parts of a lane that its records and calls need in a round (a step of the lane, the commit included).
pub(super) struct Round<'a, C: Cluster> {
    pub context: &'a Context,
    /// The topology's settings for calls.
    pub terms: &'a Terms,
    pub calling: &'a mut Calling,
    pub scratch: &'a mut Scratch,
    pub batch: &'a mut C::Batch,
    /// The indices of the batch's records, by task.
    pub indices_by_task: &'a mut Vec<(TaskId, Vec<usize>)>,
    pub tasks: &'a mut Tasks<C>,
    pub member: &'a mut C::Member,
}

/// The events and failures during a commit that have to be handled after it.
#[derive(Default)]
pub(super) struct Deferred {
    /// The event or error that ended reading. Nothing more is read before it is handled.
    pub polled: Option<Result<GroupEvent, cluster::Error>>,
    /// Failures of single tasks.
    pub failures: Vec<Failure>,
}

impl Deferred {
    /// Whether there is nothing to handle, so that reading and calling continue.
    fn is_empty(&self) -> bool {
        self.polled.is_none() && self.failures.is_empty()
    }
}

impl<C: Cluster> Round<'_, C> {
    /// Puts the batch into the windows of the tasks at work, and pauses the partitions of full windows. Returns the
    /// failures.
    ///
    /// This includes tasks that the open transaction stops: if it is aborted, their windows continue, and must miss no
    /// record.
    pub fn enqueue(&mut self) -> Vec<Failure> {
        sort_by_task(self.batch, self.indices_by_task, self.tasks, |_, task| task.is_running());
        let (indices_by_task, mut failures) = (std::mem::take(self.indices_by_task), Vec::new());
        for (id, indices) in indices_by_task.iter().filter(|(_, indices)| !indices.is_empty()) {
            failures.extend(self.enqueue_records_of(*id, indices).err());
        }
        self.scratch.judge.in_progress = None;
        *self.indices_by_task = indices_by_task;
        failures
    }

    fn enqueue_records_of(&mut self, id: TaskId, indices: &[usize]) -> Result<(), Failure> {
        let Self { context, tasks, batch, scratch, member, .. } = self;
        let Some(task) = tasks.get_mut(&id) else { return Ok(()) };
        // The window is put back even after a panic: its calls have to be withdrawn.
        let Some(mut window) = task.destination.take_window() else { return Ok(()) };
        let result = caught(|| {
            let Some(work) = task.work() else { return };
            let wall_ms = context.clock.wall_ms();
            // While the window waits for a schema, later records are skipped; the partition is read again from the
            // record that needs the schema.
            let indices = if window.awaited_schema.is_some() { &[] } else { indices };
            for &index in indices {
                let record = batch.record(index);
                let judge = &mut scratch.judge;
                judge.in_progress = Some(record.offset);
                crate::engine::crash::record(record.topic, record.partition, record.offset);
                let pushed = window.push_record(
                    (&record, &task.input.topic),
                    (&context.rules, &task.committed.progress, wall_ms),
                    || judge.key(&record),
                    || is_certainly_future::<C>(context, &work, &record),
                );
                if let Err(schema) = pushed {
                    tracing::debug!(task = %task.input, offset = record.offset, "the task waits for {schema}");
                    window.awaited_schema = Some((schema, context.clock.monotonic()));
                    break;
                }
            }
        });
        let is_full = window.len() >= context.limits.window_records_max || window.bytes() >= context.commit.bytes_max;
        let must_pause = is_full || window.awaited_schema.is_some();
        if must_pause && !window.is_paused && member.pause(&task.input).is_ok() {
            window.is_paused = true;
        }
        if window.awaited_schema.is_some() {
            task.report.awaits_schema(true, false);
        }
        task.destination.put_window(window);
        result.map_err(|panic| Failure::panicked(id, scratch.in_progress(), panic))
    }

    /// Judges the records of a task's window that can be judged.
    pub fn judge(&mut self, id: TaskId) -> Result<(), Failure> {
        let Self { context, terms, calling, tasks, scratch, .. } = self;
        let Some(mut window) = tasks.get_mut(&id).and_then(|task| task.destination.take_window()) else {
            return Ok(());
        };
        let judged = match tasks[&id].work() {
            None => Ok(Ok(())),
            Some(work) => {
                // A grant authorises the calls of all records before an offset, without reservations of their own.
                let last_grant = work.task.committed.calls.grants.last().copied();
                let former_grants_end = window.former_grants_end();
                let grant_of = |offset: i64| {
                    let granted = last_grant.filter(|granted| offset < granted.to)?;
                    Some(CoveringGrant { since_ms: granted.since_ms, is_from_former_owner: offset < former_grants_end })
                };
                let Calling { numbers, work_renderer, judging_buffers, .. } = &mut **calling;
                let (judge, now) = (&mut scratch.judge, Calling::now(context));
                let judging_context = &mut JudgingContext { context, terms, judge, work_renderer, numbers, now };
                caught(|| judging::judge(judging_context, judging_buffers, (id, &work), &mut window, grant_of))
            }
        };
        tasks.get_mut(&id).expect("looked at above").destination.put_window(window);
        judged.unwrap_or_else(|panic| Err(Failure::panicked(id, scratch.in_progress(), panic)))
    }

    /// Sends the calls that are ready. An earlier commit authorised them, so the outcome of the open transaction does
    /// not matter.
    pub fn send(&mut self) {
        self.calling.send(self.context, self.terms, self.tasks);
    }

    /// Continues with records and calls during a commit; waits at most `wait` if there is nothing to do. Outcomes that
    /// become known meanwhile are written by the next transaction.
    pub fn work_during_commit(&mut self, deferred: &mut Deferred, wait: Duration) {
        let records_max = self.calling.read_limit(self.terms, self.context.limits.poll_records_max);
        let can_read = deferred.is_empty();
        if can_read {
            deferred.polled = self.member.poll(self.batch, records_max, wait).transpose();
            if !self.batch.is_empty() {
                self.enqueue_meanwhile(deferred);
            }
        }
        if !can_read || records_max == 0 {
            self.context.clock.wait(wait, &AtomicBool::new(false));
        }
        self.calling.handle_events(self.context, self.terms, self.tasks);
        // No call begins once partitions are about to leave, or are gone, or a task has failed.
        if deferred.is_empty() {
            self.send();
        }
    }

    /// Enqueues the batch, and judges the windows of its tasks. In the other windows no more records can be judged:
    /// records wait there for earlier records of their identities, and no record is settled during a commit.
    fn enqueue_meanwhile(&mut self, deferred: &mut Deferred) {
        deferred.failures.extend(self.enqueue());
        let with_records = |(id, indices): &(TaskId, Vec<usize>)| (!indices.is_empty()).then_some(*id);
        let ids: Vec<TaskId> = self.indices_by_task.iter().filter_map(with_records).collect();
        for id in ids {
            deferred.failures.extend(self.judge(id).err());
        }
    }
}
