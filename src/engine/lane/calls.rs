//! A lane's round with its topology's provider: enqueue the records that were read, handle answers, judge records,
//! write the settlements and reservations that are due, commit, and send the calls that the commit authorised.
//!
//! - A **window** holds, in **slots**, the records that a task (an input partition's work) has read and not yet
//!   settled. A task that is at work has one.
//! - To **judge** a record is to decide whether it calls the provider. A record is **settled** once its outcome is
//!   committed; its slot is removed once all records before it are settled, too.
//! - Before a call is sent, its **reservation** is committed, or a grant for all records before an offset: either says
//!   that the call may have happened. To **release** a reservation is to remove it, because the call certainly has not
//!   happened.
//! - A **handler** is a user's function in place of a provider; its work is done in steps.
//! - A **command** is an operator's decision about a call (see `control`).
//!
//! `sabotage::is_on` says whether a test has switched on a deliberate fault.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::cluster::{self, Cluster, DeliveryFailure, Member};
use crate::engine::calling::window::{SlotStage, Window};
use crate::engine::calling::writing::{self, Portion, SlotWriter};
use crate::engine::calling::{Calling, Windows};
use crate::engine::capacity::Added;
use crate::engine::failure::Failure;
use crate::engine::output::Outlet;
use crate::engine::panics::caught;
use crate::engine::present::FutureSuspicion;
use crate::engine::share::{Stop, TaskId};
use crate::engine::task::{Task, Tasks};
use crate::sabotage::{self, Sabotage};

use super::destination::{CallsDestination, Destination};
use super::held::SCHEMA_PATIENCE;
use super::round::{Deferred, Round};
use super::{BUSY_WAIT, Lane};

/// The longest time that a stop of the lane, or a revocation of partitions, waits for calls in flight. The rest of a
/// clean end takes time, too.
const DRAIN_MAX: Duration = Duration::from_secs(20);
/// How much longer than a call's timeout a stop or a revocation waits.
const DRAIN_MARGIN: Duration = Duration::from_secs(1);

/// How many transactions may fail to release reservations before the lane gives up: the group's generation may be
/// stale, for example.
const FRUITLESS_RELEASES_MAX: usize = 3;
/// How long a lane with calls under way waits for records before it handles answers.
const ANSWER_WAIT: Duration = Duration::from_millis(1);

impl<C: Cluster> Windows for Tasks<C> {
    fn window(&mut self, id: TaskId) -> Option<&mut Window> {
        self.get_mut(&id)?.destination.window_mut()
    }

    fn active_tasks(&self) -> Vec<TaskId> {
        self.iter().filter(|(_, task)| task.destination.window().is_some()).map(|(id, _)| *id).collect()
    }
}

impl<C: Cluster> Lane<C> {
    /// How long an idle lane with calls may wait for records before a call or an answer is due.
    pub(super) fn calls_idle_wait(&self, calling: &Calling) -> Duration {
        if self.tasks.values().any(|task| task.destination.window().is_some_and(|window| window.needs_processing)) {
            return self.write_delay().min(BUSY_WAIT);
        }
        if calling.under_way() > 0 {
            return ANSWER_WAIT;
        }
        let ready = self.tasks.values().filter_map(|task| task.destination.window()?.next_send()).min();
        let now = self.context.clock.monotonic();
        let common_wait = self.common_idle_wait();
        calling.next_send(ready).map_or(common_wait, |at| at.saturating_sub(now).min(common_wait))
    }

    /// How long the next transaction is delayed: until it can begin, or until it is worth its cost.
    fn write_delay(&self) -> Duration {
        let begins_in = self.transactor.begins_in();
        match &self.destination {
            // Only for HTTP: a handler keeps its slot while its step waits for a commit.
            Destination::Calls(calls) if !self.transactor.is_open() && self.context.topology.http().is_some() => {
                begins_in.max(calls.calling.write_delay(&calls.terms, self.context.clock.monotonic()))
            }
            _ => begins_in,
        }
    }

    /// The lane's records and calls, without its transaction.
    pub(super) fn round(&mut self) -> Option<Round<'_, C>> {
        let Self { context, destination, scratch, batch, indices_by_task, tasks, member, .. } = self;
        let CallsDestination { terms, calling, .. } = destination.calls_mut()?;
        Some(Round { context, terms, calling, scratch, batch, indices_by_task, tasks, member })
    }

    /// Puts the batch into its tasks' windows, and pauses the partitions of full windows.
    pub(super) fn enqueue(&mut self) {
        let Some(mut round) = self.round() else { return };
        let failures = round.enqueue();
        failures.into_iter().for_each(|failure| self.abort_and_restore(failure));
    }

    /// Handles answers, judges the records that can be judged, and writes what is due into the open transaction. If a
    /// transaction should not begin yet, a later round writes.
    pub(super) fn process_windows(&mut self) {
        let Self { context, tasks, destination: Destination::Calls(calls), .. } = self else { return };
        calls.calling.handle_events(context, &calls.terms, tasks);
        let active = tasks.active_tasks();
        let can_write = self.write_delay().is_zero();
        for id in active {
            let needs_processing =
                self.tasks.window(id).is_some_and(|window| std::mem::take(&mut window.needs_processing));
            if !needs_processing {
                continue;
            }
            let processed = self.judge_window(id).and_then(|()| match can_write {
                true => self.write_window(id, Portion::All).and_then(|()| self.stop_before_future_record(id)),
                false => {
                    self.tasks.window(id).into_iter().for_each(|window| window.needs_processing = true);
                    Ok(())
                }
            });
            if let Err(failure) = processed {
                self.abort_and_restore(failure);
                return self.restart_if_running(id);
            }
        }
    }

    fn judge_window(&mut self, id: TaskId) -> Result<(), Failure> {
        self.round().map_or(Ok(()), |mut round| round.judge(id))
    }

    /// Writes the due part of a window into its task's share of the open transaction.
    fn write_window(&mut self, id: TaskId, portion: Portion) -> Result<(), Failure> {
        let Some(task) = self.tasks.get(&id) else { return Ok(()) };
        let is_due = |window: &Window| portion.is_due_in(window, &task.committed);
        if !task.destination.window().is_some_and(is_due) {
            return Ok(());
        }
        self.claim_partition(id)?;
        let Self { context, tasks, transactor, scratch, destination: Destination::Calls(calls), .. } = self else {
            return Ok(());
        };
        let CallsDestination { terms, calling, .. } = &mut **calls;
        let Some(mut window) = tasks.get_mut(&id).and_then(|task| task.destination.take_window()) else {
            return Ok(());
        };
        let room = transactor.room(context).bytes;
        let mut added = Added::default();
        let written = match tasks[&id].work() {
            None => Ok(Ok(())),
            Some(work) => match transactor.enlist(context, id, &work.task.committed) {
                Err(error) => Ok(Err(Failure::cluster(error))),
                Ok((share, producer)) => {
                    let (headers, added, work) = (&mut scratch.headers, &mut added, &work);
                    let outlet = &mut Outlet { context, work, share, producer, headers, added };
                    let writer = &mut SlotWriter { outlet, terms, now: Calling::now(context) };
                    caught(|| writing::write(writer, &mut window, portion, |bytes| bytes < room))
                }
            },
        };
        // Some slots may not have been written, for lack of room for example.
        let has_more = portion.has_due_slot(&window);
        window.needs_processing |= has_more;
        calling.transaction_ended_at = None;
        tasks.get_mut(&id).expect("looked at above").destination.put_window(window);
        transactor.add(added);
        written.unwrap_or_else(|panic| Err(Failure::panicked(id, self.scratch.in_progress(), panic)))
    }

    /// The tasks in the open transaction that have windows: these need its outcome ([`Lane::report_outcome`]).
    pub(super) fn tasks_awaiting_outcome(&self) -> Vec<TaskId> {
        let is_included =
            |id: &TaskId, task: &Task<C>| task.destination.window().is_some() && self.transactor.includes(*id);
        self.tasks.iter().filter(|(id, task)| is_included(id, task)).map(|(id, _)| *id).collect()
    }

    /// Reports the outcome of the transaction to the windows of these tasks: committed, or certainly not committed.
    pub(super) fn report_outcome(&mut self, ids: Vec<TaskId>, is_committed: bool) {
        let Self { context, tasks, destination: Destination::Calls(calls), .. } = self else { return };
        for id in ids {
            if let Some(window) = tasks.window(id) {
                calls.calling.on_transaction_end(context, &calls.terms.policy, window, is_committed);
            }
        }
    }

    /// If Kafka has refused one of a task's records, makes its window search for that record. Returns whether the
    /// window can continue.
    pub(super) fn search_for_refused_record(&mut self, id: TaskId, undelivered: Option<&DeliveryFailure>) -> bool {
        let Some(failure) = undelivered.filter(|failure| failure.refused) else { return true };
        let Some(window) = self.tasks.window(id) else { return false };
        let can_continue = window.on_refused(&failure.message);
        if let Some(task) = self.tasks.get(&id) {
            tracing::warn!(
                task = %task.input, reason = %failure.message,
                "a topic refuses a record of this task's transaction"
            );
        }
        can_continue
    }

    /// Sends the calls that are ready.
    pub(super) fn send_calls(&mut self) {
        self.round().into_iter().for_each(|mut round| round.send());
    }

    /// Commits the open transaction; reading and calling continue meanwhile.
    pub(super) fn commit_while_calling(&mut self) -> Result<(), cluster::Error> {
        let mut deferred = Deferred::default();
        // During a commit, the slots in the transaction keep later records of their identities from being judged. An
        // identity that a command has changed has no slot, and its records must not be judged before the commit
        // either: so the lane does nothing else during such a commit.
        let has_passed_commands = self.destination.calls().is_some_and(|calls| calls.commands.has_passed())
            && !sabotage::is_on(Sabotage::JudgedOverCommand);
        if let Err(failure) = self.finish_deferring((!has_passed_commands).then_some(&mut deferred)) {
            self.abort_and_restore(failure);
        }
        let now = self.context.clock.monotonic();
        if let Some(calls) = self.destination.calls_mut() {
            calls.calling.transaction_ended_at.get_or_insert(now);
        }
        self.on_commands_committed();
        for failure in deferred.failures {
            let id = failure.task;
            self.abort_and_restore(failure);
            id.into_iter().for_each(|id| self.restart_if_running(id));
        }
        match deferred.polled {
            None => Ok(()),
            Some(Ok(event)) => self.on_event(event),
            Some(Err(error)) => self.on_poll_error(error),
        }
    }

    /// Resumes the partitions of windows that have room again, and stops the tasks that have to stop.
    pub(super) fn resume_or_stop_reading(&mut self) {
        for id in self.tasks.active_tasks() {
            self.resume_partition(id);
            self.stop_before_first_record(id);
        }
    }

    fn resume_partition(&mut self, id: TaskId) {
        let Self { context, tasks, member, .. } = self;
        let Some(task) = tasks.get_mut(&id) else { return };
        let Some(window) = task.destination.window_mut() else { return };
        if let Some((schema, since)) = window.awaited_schema {
            let waited = context.clock.monotonic().saturating_sub(since);
            let is_pending = context.topology.schemas.is_pending(&schema);
            task.report.awaits_schema(is_pending, is_pending && waited >= SCHEMA_PATIENCE);
            if is_pending {
                return;
            }
        } else if !window.is_paused {
            return;
        }
        let has_room =
            window.len() <= context.limits.window_records_max / 2 && window.bytes() <= context.commit.bytes_max / 2;
        if !has_room {
            return;
        }
        match member.start(&task.input, window.read_to()) {
            Ok(()) => (window.is_paused, window.awaited_schema) = (false, None),
            Err(error) => {
                tracing::debug!(
                    task = %task.input, reason = %error.message,
                    "reading the partition could not be resumed; the task is restored"
                );
                self.restart(id);
            }
        }
    }

    /// Stops a task before the first record of its window, if the task must stop there, no call of the task is under
    /// way, no command is awaited that may remove the reason, and everything before the record is committed.
    fn stop_before_first_record(&mut self, id: TaskId) {
        if self.transactor.includes(id) {
            return;
        }
        let Some(task) = self.tasks.get(&id) else { return };
        let Some(window) = task.destination.window().filter(|window| !window.is_empty()) else { return };
        if window.settled_end() > task.committed.next {
            return;
        }
        let slot = window.slot(0);
        match &slot.stage {
            SlotStage::MustStopTask(reason) if !window.is_calling() && !self.awaits_commands(id) => {
                let (reason, input) = (reason.clone(), task.input.clone());
                if let Err(error) = self.member.pause(&input) {
                    tracing::debug!(task = %input, reason = %error.message, "the partition could not be paused");
                }
                self.drop_window(id);
                if let Some(task) = self.tasks.get_mut(&id) {
                    task.fail(&reason, false);
                }
            }
            _ => {}
        }
    }

    /// If the first record of a task's window seems to be from the future by this host's clock, makes the task stop
    /// before it: adds the stop to the task's share of the open transaction (its changes there), even if the share
    /// writes nothing else. Kafka stamps the end of that transaction, and the task's restore learns Kafka's time from
    /// the stamp.
    fn stop_before_future_record(&mut self, id: TaskId) -> Result<(), Failure> {
        let Some(task) = self.tasks.get(&id) else { return Ok(()) };
        let Some(window) = task.destination.window().filter(|window| !window.is_empty()) else { return Ok(()) };
        let slot = window.slot(0);
        if !slot.needs_kafka_time() {
            return Ok(());
        }
        let mut suspicion = FutureSuspicion {
            offset: slot.offset(),
            timestamp: slot.record.record().timestamp.unwrap_or_default(),
            known_end: window.read_to(),
        };
        let position = window.position_after_commit();
        self.member.end(&task.input).into_iter().for_each(|end| suspicion.extend_to(end));
        if let Some(share) = self.enlist(id)? {
            position.write_to(&mut share.position);
            share.stop = Some(Stop::SeemsFuture(suspicion));
        }
        Ok(())
    }

    /// Ends these tasks' calls before the tasks leave: withdraws calls that are not in flight, waits for the others,
    /// settles the answered ones, and releases reservations of calls that were never sent.
    pub(super) fn drain_calls(&mut self, ids: &[TaskId]) {
        let Destination::Calls(calls) = &self.destination else { return };
        let deadline = self.context.clock.monotonic() + (calls.terms.timeout + DRAIN_MARGIN).min(DRAIN_MAX);
        self.withdraw(ids);
        let never_stop = AtomicBool::new(false);
        loop {
            self.write_and_commit(ids, Portion::Settlements);
            let is_calling = ids.iter().any(|id| self.tasks.window(*id).is_some_and(|window| window.is_calling()));
            if !is_calling || self.context.clock.monotonic() >= deadline {
                break;
            }
            self.context.clock.wait(BUSY_WAIT, &never_stop);
            let Self { context, tasks, destination: Destination::Calls(calls), .. } = self else { return };
            calls.calling.handle_events(context, &calls.terms, tasks);
        }
        self.stop_handlers(ids);
        self.release_reservations(ids);
    }

    /// Settles answered calls, and releases reservations of calls that were never sent, in as many transactions as
    /// necessary. Gives up after `FRUITLESS_RELEASES_MAX` transactions that left as many slots due as before.
    fn release_reservations(&mut self, ids: &[TaskId]) {
        let (mut remaining, mut fruitless) = (usize::MAX, 0);
        loop {
            self.write_and_commit(ids, Portion::Releases);
            let windows = ids.iter().filter_map(|id| self.tasks.get(id)?.destination.window());
            let due = windows.map(|window| Portion::Releases.due_slots(window).count()).sum();
            fruitless += usize::from(due >= remaining);
            if due == 0 || fruitless == FRUITLESS_RELEASES_MAX {
                return;
            }
            remaining = due;
        }
    }

    fn stop_handlers(&mut self, ids: &[TaskId]) {
        let Self { context, tasks, destination: Destination::Calls(calls), .. } = self else { return };
        for id in ids {
            if let Some(window) = tasks.window(*id) {
                calls.calling.stop_handlers(context, &calls.terms, window);
            }
        }
    }

    fn withdraw(&mut self, ids: &[TaskId]) {
        let Self { context, tasks, destination: Destination::Calls(calls), .. } = self else { return };
        for id in ids {
            if let Some(window) = tasks.window(*id) {
                calls.calling.withdraw(context, &calls.terms, window);
            }
        }
    }

    /// Writes the due part of these tasks' windows, and commits it.
    fn write_and_commit(&mut self, ids: &[TaskId], portion: Portion) {
        for id in ids {
            if let Err(failure) = self.write_window(*id, portion) {
                self.abort_and_restore(failure);
                self.restart_if_running(*id);
            }
        }
        self.commit();
    }
}
