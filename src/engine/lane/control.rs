//! Carries out commands for a lane's tasks. A task is the work of one input partition. A command is an operator's
//! decision about a call (`ratchet settle`), sent through the topology's control topic.
//!
//! Each task **passes** each command once, in the topic's order, whether it carries the command out or not. The open
//! transaction holds the command's change to an **entry** (what is remembered of an identity), the acknowledgement, and
//! in the task's position the offset after the command: the command is then **noted**. Other records of the topic are
//! not noted: that the task has passed them is kept in memory only ([`CommandProgress`]), so a restart may read them
//! again.
//!
//! A **window** holds the records that a task has read and not yet settled; a task at work has one.
//! `sabotage::is_on` says whether a test has switched on a deliberate fault.
//!
//! [`CommandProgress`]: crate::engine::control::CommandProgress

use std::time::Duration;

use crate::cluster::{Cluster, ErrorKind, Message, Producer, Ticket};
use crate::engine::calling::Windows;
use crate::engine::calling::window::Window;
use crate::engine::capacity::Added;
use crate::engine::control::ControlTopicBounds;
use crate::engine::control::commands::{ACKNOWLEDGEMENT_TICKET, PassedCommand, ReceivedCommand};
use crate::engine::control::settling::{self, Change};
use crate::engine::crash;
use crate::engine::failure::Failure;
use crate::engine::share::TaskId;
use crate::engine::task::Task;
use crate::format::{Acknowledgement, Command, Control, Instruction, Outcome, Remembered};
use crate::record::Headers;
use crate::sabotage::{self, Sabotage};
use crate::topology::sink::Sink;

use super::Lane;
use super::destination::{CallsDestination, Destination};

/// The most commands that a task passes in one round (a step of the lane).
const PASSED_MAX: usize = 100;

/// What has happened to a task's next command.
enum Execution {
    /// The open transaction has the command's change, if any, and its acknowledgement.
    Done,
    /// The command waits for a call, or until the control topic is looked up again; or its task is not at work.
    Waits,
    /// The cluster refuses the acknowledgement, with this message.
    Refused(String),
}

/// The entry that a command is about.
enum FoundEntry {
    /// The identity's entry, if there is one.
    Entry(Option<Vec<u8>>),
    /// The command has to wait.
    Waits,
}

impl<C: Cluster> Lane<C> {
    /// Carries out the commands of the active tasks. Must be called after the windows were judged: a record judged in
    /// this round is settled before a command about its identity is carried out.
    pub(super) fn apply_commands(&mut self) {
        let Self { context, tasks, destination: Destination::Calls(calls), cluster, .. } = self else { return };
        let CallsDestination { calling, commands, .. } = &mut **calls;
        let now = context.clock.monotonic();
        let Some(bounds) = context.control_topic.bounds().filter(|bounds| commands.take_due(bounds, now)) else {
            return;
        };
        let offsets = tasks.values().filter_map(|task| next_command_offset(task, &bounds));
        let Some(next) = offsets.min() else { return calling.metrics.commands_waiting(0) };
        commands.read(cluster, &bounds, next, now);
        let active = tasks.active_tasks();
        let mut waiting = 0;
        for id in active {
            match self.apply_commands_of(id, &bounds, now) {
                Ok(waits) => waiting += usize::from(waits),
                Err(failure) => {
                    self.abort_and_restore(failure);
                    return self.restart_if_running(id);
                }
            }
        }
        if let Some(calls) = self.destination.calls_mut() {
            calls.calling.metrics.commands_waiting(waiting);
        }
    }

    /// Carries out a task's commands. Returns whether the next command has to wait.
    fn apply_commands_of(&mut self, id: TaskId, bounds: &ControlTopicBounds, now: Duration) -> Result<bool, Failure> {
        for _ in 0..PASSED_MAX {
            let Self { tasks, transactor, destination: Destination::Calls(calls), .. } = self else { return Ok(false) };
            let commands = &mut calls.commands;
            let Some(task) = tasks.get_mut(&id) else { return Ok(false) };
            let Some(next_committed) = next_command_offset(task, bounds) else { return Ok(false) };
            let noted = transactor.share(id).and_then(|share| share.position.calls.control);
            let next = next_committed.max(bounds.next_after(noted));
            let Some(received) = commands.commands_from(next).next().cloned() else {
                // No command is left. If the task has passed none in the open transaction, it has passed everything
                // that was read; otherwise that is certain only once the transaction is committed.
                if let Some(window) = task.destination.window_mut().filter(|_| commands.is_empty_from(next_committed)) {
                    let next = commands.read_to().max(next_committed);
                    window.commands.passed = Some(Control { topic_id: bounds.id.0, next });
                }
                return Ok(false);
            };
            match self.carry_out(id, bounds, &received)? {
                Execution::Done => {}
                Execution::Waits => return Ok(true),
                Execution::Refused(reason) => {
                    let topology = &self.context.topology.name;
                    tracing::warn!(topology, reason, "a command waits because it cannot be acknowledged");
                    self.destination.calls_mut().into_iter().for_each(|calls| calls.commands.postpone(now));
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Carries out a task's next command in the open transaction, which is begun if necessary.
    fn carry_out(
        &mut self,
        id: TaskId,
        bounds: &ControlTopicBounds,
        received: &ReceivedCommand,
    ) -> Result<Execution, Failure> {
        let instruction = match &received.command {
            Err(error) => Err((Outcome::NotUnderstood, error.to_string())),
            // The control topic may have been recreated since it was last looked up.
            Ok(Command { topic_id, .. }) if *topic_id != bounds.id.0 && bounds.looked_up_at <= received.lookup_at => {
                return Ok(Execution::Waits);
            }
            Ok(Command { topic_id, .. }) if *topic_id != bounds.id.0 => {
                Err((Outcome::Elsewhere, "the command was given through another control topic".to_owned()))
            }
            Ok(Command { instruction: Instruction::Settle { identity_key, decision }, .. }) => {
                Ok((identity_key, *decision))
            }
        };
        let former = match &instruction {
            Ok((identity_key, _)) => match self.find_entry(id, identity_key)? {
                FoundEntry::Entry(entry) => entry,
                FoundEntry::Waits => return Ok(Execution::Waits),
            },
            Err(_) => None,
        };
        self.claim_partition(id)?;
        let Self { context, tasks, transactor, destination: Destination::Calls(calls), .. } = self else {
            return Ok(Execution::Waits);
        };
        let commands = &mut calls.commands;
        let Some(work) = tasks.get(&id).and_then(Task::work) else { return Ok(Execution::Waits) };
        let Some(window) = work.task.destination.window() else { return Ok(Execution::Waits) };
        let is_handler = matches!(context.topology.sink(), Some(Sink::Handler(_)));
        let (change, acknowledgement) = match &instruction {
            Ok((_, decision)) => settling::settle(former.as_deref(), (*decision, is_handler), window.stream_time())
                .unwrap_or_else(|error| not_carried_out(Outcome::NotUnderstood, &error.to_string(), received)),
            Err((outcome, reason)) => not_carried_out(*outcome, reason, received),
        };
        let (share, producer) = transactor.enlist(context, id, &work.task.committed).map_err(Failure::cluster)?;
        let key = received.id.key_of_acknowledgement(&work.task.input.topic, work.task.input.partition);
        let value = acknowledgement.encode();
        let message = Message {
            topic: &commands.topic().topic,
            partition: commands.topic().partition,
            key: Some(key.as_bytes()),
            value: Some(&value),
            headers: Headers::default(),
            timestamp: None,
        };
        let bytes = message.held_bytes();
        match producer.send(Ticket { number: ACKNOWLEDGEMENT_TICKET, report: false }, &message) {
            Ok(()) => {}
            Err(error) if error.kind == ErrorKind::Refused => return Ok(Execution::Refused(error.message)),
            Err(error) => return Err(Failure::cluster(error)),
        }
        let identity_key = instruction.ok().map(|(key, _)| key).filter(|_| change != Change::Nothing);
        if let Some(key) = identity_key {
            share.overlay.put(key, change.new_entry());
        }
        let (offset, outcome) = (received.offset, acknowledgement.outcome);
        let passed = PassedCommand { task: id, offset, identity: identity_key.cloned(), outcome };
        commands.passed.push(passed);
        let noted = Some(Control { topic_id: bounds.id.0, next: offset + 1 });
        let is_noted = !sabotage::is_on(Sabotage::CommandNotNoted);
        if is_noted {
            share.position.calls.control = noted;
        }
        let task = &work.task.input;
        let command = received.id.key();
        tracing::info!(%task, command, ?outcome, was = acknowledgement.was, "carrying out a command");
        transactor.add(Added { bytes, ..Added::default() });
        crash::point(crash::Point::AfterCommand);
        if let Some(window) = tasks.get_mut(&id).and_then(|task| task.destination.window_mut()).filter(|_| !is_noted) {
            window.commands.passed = noted;
        }
        Ok(Execution::Done)
    }

    /// An identity's entry, the open transaction's writes included, unless a command about it has to wait.
    fn find_entry(&self, id: TaskId, identity: &[u8]) -> Result<FoundEntry, Failure> {
        let Some(work) = self.tasks.get(&id).and_then(Task::work) else { return Ok(FoundEntry::Waits) };
        let Some(window) = work.task.destination.window() else { return Ok(FoundEntry::Waits) };
        if window.is_open(identity) && !sabotage::is_on(Sabotage::CommandOverCall) {
            return Ok(FoundEntry::Waits);
        }
        let entry = match self.transactor.share(id).and_then(|share| share.overlay.get(identity)) {
            Some(written) => written.map(<[u8]>::to_vec),
            None => work.store.get(identity).map_err(|error| Failure::state(id, error))?,
        };
        let reservation = entry.as_deref().and_then(|bytes| Remembered::decode(bytes).ok()?.reservation);
        let will_continue = reservation.is_some_and(|reservation| {
            reservation.place.topic_id == work.task.topics.input_id.0 && window.will_judge(reservation.place.offset)
        });
        Ok(if will_continue { FoundEntry::Waits } else { FoundEntry::Entry(entry) })
    }

    /// After a commit: counts its commands. If one of them has changed the entry of a record that would stop its task,
    /// that record is judged again.
    pub(super) fn on_commands_committed(&mut self) {
        let Self { tasks, destination: Destination::Calls(calls), transactor, .. } = self else { return };
        let CallsDestination { calling, commands, .. } = &mut **calls;
        if transactor.is_open() {
            return;
        }
        for PassedCommand { task, offset, identity, outcome } in std::mem::take(&mut commands.passed) {
            let Some(task) = tasks.get_mut(&task) else { continue };
            // Not noted in the committed position: the transaction was aborted.
            if task.committed.calls.control.is_none_or(|noted| noted.next <= offset) {
                continue;
            }
            commands.on_commit();
            calling.metrics.command(outcome as usize);
            if let (Some(window), Some(identity)) = (task.destination.window_mut(), identity) {
                window.judge_again(&identity);
            }
            crash::point(crash::Point::AfterAcknowledgement);
        }
    }

    /// Whether a task that would stop waits for commands first: a command may remove the reason.
    pub(super) fn awaits_commands(&self, id: TaskId) -> bool {
        let now = self.context.clock.monotonic();
        let Some(task) = self.tasks.get(&id) else { return false };
        let Some(window) = task.destination.window() else { return false };
        window.commands.may_have_more(self.context.control_topic.bounds().as_ref(), task.committed.calls.control, now)
    }
}

/// The next offset of the control topic for a task, without what the open transaction notes; `None` if the task is not
/// at work.
fn next_command_offset<C: Cluster>(task: &Task<C>, bounds: &ControlTopicBounds) -> Option<i64> {
    let window: &Window = task.destination.window()?;
    Some(window.commands.next(bounds, task.committed.calls.control))
}

/// No change, and the acknowledgement of a command that is not carried out.
fn not_carried_out(outcome: Outcome, reason: &str, received: &ReceivedCommand) -> (Change, Acknowledgement) {
    tracing::warn!(command = received.id.key(), reason, "a command was not carried out");
    (Change::Nothing, Acknowledgement { outcome, was: None })
}
