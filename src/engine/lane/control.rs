//! Lets a lane's tasks carry out commands. The open transaction holds a command's change, its acknowledgement, and the
//! note that the task has passed it.

use std::time::Duration;

use crate::cluster::{Cluster, ErrorKind, Message, Producer, Ticket};
use crate::engine::calling::window::Window;
use crate::engine::capacity::Added;
use crate::engine::control::View;
use crate::engine::control::orders::{ACKNOWLEDGEMENT, CarriedOut, GivenCommand};
use crate::engine::control::settling::{self, Change};
use crate::engine::crash;
use crate::engine::failure::Failure;
use crate::engine::share::TaskId;
use crate::engine::task::Task;
use crate::format::{Acknowledgement, Command, Control, Order, Outcome, Remembered};
use crate::record::Headers;
use crate::sabotage::{self, Sabotage};
use crate::topology::sink::Sink;

use super::Lane;
use super::ending::{CallsEnding, Ending};

/// The most commands that a task carries out in one round.
const CARRIED_OUT_MAX: usize = 100;

/// What happens to a task's next command.
enum Next {
    /// It is carried out in the open transaction.
    Done,
    /// It waits: for a call, or for the next look at the control topic. Or its task is not at work.
    Waits,
    /// It could not be acknowledged.
    Refused(String),
}

/// What a command finds of its identity.
enum Found {
    /// The identity's entry, if there is one.
    Entry(Option<Vec<u8>>),
    /// The command has to wait.
    Waits,
}

impl<C: Cluster> Lane<C> {
    /// Lets the tasks at work carry out their commands. To be called after the windows were judged: a record judged in
    /// this round is settled before a command about its identity is carried out.
    pub(super) fn apply_commands(&mut self) {
        let Self { context, tasks, ending: Ending::Calls(calls), cluster, .. } = self else { return };
        let CallsEnding { calling, orders, .. } = &mut **calls;
        let now = context.clock.monotonic();
        let Some(view) = context.commands.view().filter(|view| orders.is_due(view, now)) else { return };
        let nexts = tasks.values().filter_map(|task| next_of(task, &view));
        let Some(next) = nexts.min() else { return calling.metrics.commands_waiting(0) };
        orders.read(cluster, &view, next, now);
        let at_work: Vec<TaskId> =
            tasks.iter().filter(|(_, task)| task.ending.window().is_some()).map(|(id, _)| *id).collect();
        let mut waiting = 0;
        for id in at_work {
            match self.apply_commands_of(id, &view, now) {
                Ok(waits) => waiting += usize::from(waits),
                Err(failure) => {
                    self.abort_and_restore(failure);
                    return self.restart_running(id);
                }
            }
        }
        if let Some(calls) = self.ending.calls_mut() {
            calls.calling.metrics.commands_waiting(waiting);
        }
    }

    /// Lets a task carry out its commands. Returns whether the next one has to wait.
    fn apply_commands_of(&mut self, id: TaskId, view: &View, now: Duration) -> Result<bool, Failure> {
        for _ in 0..CARRIED_OUT_MAX {
            let Self { tasks, transactor, ending: Ending::Calls(calls), .. } = self else { return Ok(false) };
            let orders = &mut calls.orders;
            let Some(task) = tasks.get_mut(&id) else { return Ok(false) };
            let Some(committed) = next_of(task, view) else { return Ok(false) };
            let noted = transactor.share(id).and_then(|share| share.position.calls.control);
            let next = committed.max(view.next_after(noted));
            let Some(given) = orders.commands_from(next).next().cloned() else {
                // Commands passed in the open transaction count only once that is committed.
                if let Some(window) = task.ending.window_mut().filter(|_| orders.is_empty_from(committed)) {
                    let next = orders.read_to().max(committed);
                    window.commands.passed = Some(Control { topic_id: view.id.0, next });
                }
                return Ok(false);
            };
            match self.carry_out(id, view, &given)? {
                Next::Done => {}
                Next::Waits => return Ok(true),
                Next::Refused(reason) => {
                    let topology = &self.context.topology.name;
                    tracing::warn!(topology, reason, "a command waits because it cannot be acknowledged");
                    self.ending.calls_mut().into_iter().for_each(|calls| calls.orders.put_off(now));
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Carries out a task's next command in the open transaction, which is begun if necessary.
    fn carry_out(&mut self, id: TaskId, view: &View, given: &GivenCommand) -> Result<Next, Failure> {
        let order = match &given.command {
            Err(error) => Err((Outcome::NotUnderstood, error.to_string())),
            // The control topic may have been recreated since it was last looked up.
            Ok(Command { topic_id, .. }) if *topic_id != view.id.0 && view.looked_up_at <= given.seen_at => {
                return Ok(Next::Waits);
            }
            Ok(Command { topic_id, .. }) if *topic_id != view.id.0 => {
                Err((Outcome::Elsewhere, "the command was given through another control topic".to_owned()))
            }
            Ok(Command { order: Order::Settle { identity, by_hand }, .. }) => Ok((identity, *by_hand)),
        };
        let former = match &order {
            Ok((identity, _)) => match self.find_entry(id, identity)? {
                Found::Entry(entry) => entry,
                Found::Waits => return Ok(Next::Waits),
            },
            Err(_) => None,
        };
        self.claim(id)?;
        let Self { context, tasks, transactor, ending: Ending::Calls(calls), .. } = self else {
            return Ok(Next::Waits);
        };
        let orders = &mut calls.orders;
        let Some(work) = tasks.get(&id).and_then(Task::work) else { return Ok(Next::Waits) };
        let Some(window) = work.task.ending.window() else { return Ok(Next::Waits) };
        let has_steps = matches!(context.topology.sink(), Some(Sink::Handler(_)));
        let (change, acknowledged) = match &order {
            Ok((_, by_hand)) => settling::settle(former.as_deref(), (*by_hand, has_steps), window.stream_time())
                .unwrap_or_else(|error| not_done(Outcome::NotUnderstood, &error.to_string(), given)),
            Err((outcome, reason)) => not_done(*outcome, reason, given),
        };
        let (share, producer) = transactor.touch(context, id, &work.task.committed).map_err(Failure::cluster)?;
        let key = given.id.key_of_acknowledgement(&work.task.input.topic, work.task.input.partition);
        let value = acknowledged.encode();
        let message = Message {
            topic: &orders.topic().topic,
            partition: orders.topic().partition,
            key: Some(key.as_bytes()),
            value: Some(&value),
            headers: Headers::default(),
            timestamp: None,
        };
        let bytes = message.held_bytes();
        match producer.send(Ticket { number: ACKNOWLEDGEMENT, report: false }, &message) {
            Ok(()) => {}
            Err(error) if error.kind == ErrorKind::Refused => return Ok(Next::Refused(error.message)),
            Err(error) => return Err(Failure::cluster(error)),
        }
        let identity = order.ok().map(|(identity, _)| identity).filter(|_| change != Change::Nothing);
        match (identity, &change) {
            (Some(identity), Change::Put(bytes)) => share.overlay.put(identity, Some(bytes)),
            (Some(identity), _) => share.overlay.put(identity, None),
            (None, _) => {}
        }
        let outcome = acknowledged.outcome;
        let carried_out = CarriedOut { task: id, offset: given.offset, identity: identity.cloned(), outcome };
        orders.carried_out.push(carried_out);
        let noted = Some(Control { topic_id: view.id.0, next: given.offset + 1 });
        let is_noted = !sabotage::is_on(Sabotage::CommandNotNoted);
        if is_noted {
            share.position.calls.control = noted;
        }
        let task = &work.task.input;
        tracing::info!(%task, command = given.id.key(), ?outcome, was = acknowledged.was, "carrying out a command");
        transactor.add(Added { bytes, ..Added::default() });
        crash::point(crash::Point::AfterCommand);
        if let Some(window) = tasks.get_mut(&id).and_then(|task| task.ending.window_mut()).filter(|_| !is_noted) {
            window.commands.passed = noted;
        }
        Ok(Next::Done)
    }

    /// An identity's entry, the open transaction's writes included, unless a command about it has to wait.
    fn find_entry(&self, id: TaskId, identity: &[u8]) -> Result<Found, Failure> {
        let Some(work) = self.tasks.get(&id).and_then(Task::work) else { return Ok(Found::Waits) };
        let Some(window) = work.task.ending.window() else { return Ok(Found::Waits) };
        if window.is_open(identity) && !sabotage::is_on(Sabotage::CommandOverCall) {
            return Ok(Found::Waits);
        }
        let entry = match self.transactor.share(id).and_then(|share| share.overlay.get(identity)) {
            Some(written) => written.map(<[u8]>::to_vec),
            None => work.store.get(identity).map_err(|error| Failure::state(id, error))?,
        };
        let under_way = entry.as_deref().and_then(|bytes| Remembered::decode(bytes).ok()?.under_way);
        let goes_on = under_way.is_some_and(|reservation| {
            reservation.place.topic_id == work.task.topics.input_id.0 && window.will_judge(reservation.place.offset)
        });
        Ok(if goes_on { Found::Waits } else { Found::Entry(entry) })
    }

    /// After a commit: counts its commands. If one of them has changed the entry of a record that would stop its task,
    /// that record is judged again.
    pub(super) fn commands_committed(&mut self) {
        let Self { tasks, ending: Ending::Calls(calls), transactor, .. } = self else { return };
        let CallsEnding { calling, orders, .. } = &mut **calls;
        if transactor.is_open() {
            return;
        }
        for CarriedOut { task, offset, identity, outcome } in std::mem::take(&mut orders.carried_out) {
            let Some(task) = tasks.get_mut(&task) else { continue };
            if task.committed.calls.control.is_none_or(|noted| noted.next <= offset) {
                continue;
            }
            orders.on_commit();
            calling.metrics.command(outcome as usize);
            if let (Some(window), Some(identity)) = (task.ending.window_mut(), identity) {
                window.judge_again(&identity);
            }
            crash::point(crash::Point::AfterAcknowledgement);
        }
    }

    /// Whether a task that would stop waits for commands first: one of them may settle the reason.
    pub(super) fn awaits_commands(&self, id: TaskId) -> bool {
        let now = self.context.clock.monotonic();
        let Some(task) = self.tasks.get(&id) else { return false };
        let Some(window) = task.ending.window() else { return false };
        window.commands.may_have_more(self.context.commands.view().as_ref(), task.committed.calls.control, now)
    }
}

/// The next offset of the control topic for a task at work.
fn next_of<C: Cluster>(task: &Task<C>, view: &View) -> Option<i64> {
    let window: &Window = task.ending.window()?;
    Some(window.commands.next(view, task.committed.calls.control))
}

/// No change, and the acknowledgement of a command that is not carried out.
fn not_done(outcome: Outcome, reason: &str, given: &GivenCommand) -> (Change, Acknowledgement) {
    tracing::warn!(command = given.id.key(), reason, "a command was not carried out");
    (Change::Nothing, Acknowledgement { outcome, was: None })
}
