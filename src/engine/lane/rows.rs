//! A lane's work with its topology's sink, apart from the commit itself: claiming rows, playing redos, and recovering
//! from transactions that the sink has not committed.

use std::time::Duration;

use crate::cluster::{Cluster, Member};
use crate::effect::{Claimed, Error, ErrorKind, Failed, Mark, RowKey};
use crate::engine::context::backoff;
use crate::engine::failure::{Cause, Undone};
use crate::engine::isolate::Means;
use crate::engine::redoing::{self, Redoing};
use crate::engine::restore;
use crate::engine::resume::Refusal;
use crate::engine::rows::{Claim, Recorded, Relation, covered, is_certain, relate};
use crate::engine::setback::Setback;
use crate::engine::share::TaskId;
use crate::engine::sink_trouble::Wait;
use crate::engine::task::{Phase, Task};
use crate::engine::transact::Aborted;
use crate::sabotage::{self, Sabotage};

use super::Lane;
use super::ending::Ending;

/// How often the rows of idle tasks are checked, to notice a database that went back in time.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);
/// The longest wait before a row is claimed again: its owner may be gone by then.
const CLAIM_WAIT_MAX: Duration = Duration::from_secs(2);
/// The mark of a row that does not exist.
const NO_ROW: Mark = Mark { epoch: 0, token: None };

impl<C: Cluster> Lane<C> {
    /// Claims the row of a task whose store is current, and compares it with the changelog's position record. Returns
    /// whether the task can work; if not, the next step towards that is under way.
    pub(super) fn claim_row(&mut self, id: TaskId) -> Result<bool, Setback> {
        let Self { context, tasks, ending: Ending::Sink(sink), .. } = self else { return Ok(true) };
        let task = tasks.get_mut(&id).expect("listed by the caller");
        let key = row_key(context.topology.name.as_str(), task);
        let claimed = match sink.session.claim(&key, task.last.recorded.is_none()) {
            Ok(claimed) => claimed,
            Err(error) => {
                self.on_unclaimed(id, &error);
                return Ok(false);
            }
        };
        if let Some(own) = task.ending.sink_mut() {
            own.waits = own.waits.and_then(Wait::claimed);
        }
        sink.worked(context, tasks);
        let task = tasks.get_mut(&id).expect("looked at above");
        let Some(claimed) = claimed else { return self.on_difference(id, None) };
        let by_text = sabotage::is_on(Sabotage::RowComparedWithText);
        let text = task.last.commitment.as_ref().map(|known| &known.metadata.token);
        let recorded = Recorded {
            token: if by_text { text } else { task.last.recorded.as_ref() },
            end: covered(&task.committed),
            changelog_id: task.topics.changelog_id.0,
        };
        match relate(&claimed.row, recorded) {
            Relation::OneAhead if sabotage::is_on(Sabotage::RedoDecidedAnew) => {
                if let Some(own) = task.ending.sink_mut() {
                    own.claim = Some(Claim { key, mark: claimed.row.mark });
                }
                Ok(true)
            }
            Relation::Same => {
                task.ending.claimed(Claim { key, mark: claimed.row.mark });
                if let Some(held) = &mut task.state.held {
                    held.drop_former(context)?;
                }
                Ok(true)
            }
            Relation::OneAhead => {
                let (token, redo) = claimed.row.mark.token.zip(claimed.row.redo).expect("a row ahead has both");
                tracing::info!(
                    task = %task.input, %token,
                    "the sink has committed a transaction that Kafka has not: writing it to Kafka"
                );
                let redoing = Redoing::new(self.transactor_apart(), redo, token);
                let task = self.tasks.get_mut(&id).expect("looked at above");
                task.set_phase(Phase::Redoing(Box::new(redoing)));
                Ok(false)
            }
            Relation::Behind | Relation::Ahead => self.on_difference(id, Some(claimed)),
        }
    }

    /// A row could not be claimed: tries again later, and logs trouble that lasts, unless it was logged recently.
    fn on_unclaimed(&mut self, id: TaskId, error: &Error) {
        let Self { context, tasks, ending: Ending::Sink(sink), .. } = self else { return };
        let task = tasks.get_mut(&id).expect("listed by the caller");
        let (wait, now) = (backoff(task.trouble.attempts).min(CLAIM_WAIT_MAX), context.clock.monotonic());
        task.trouble.attempts += 1;
        let Some(own) = task.ending.sink_mut() else { return };
        let waits = Wait::of_claim(own.waits, now);
        own.waits = Some(waits);
        let is_worth_a_word = error.kind == ErrorKind::Lasting || waits.is_long(now);
        match error.kind {
            _ if !(is_worth_a_word && sink.said.is_due(&error.message, now)) => {
                tracing::debug!(task = %task.input, reason = %error, "the sink's row is not claimed yet");
            }
            ErrorKind::Passing => {
                tracing::warn!(task = %task.input, reason = %error, "the sink's row is not claimed yet; trying again");
            }
            ErrorKind::Lasting => {
                tracing::error!(task = %task.input, reason = %error, "the sink's row cannot be claimed; trying again");
            }
        }
        task.set_phase(Phase::Claiming { until: now + wait });
        sink.count_waits(tasks);
    }

    /// The row and Kafka differ by more than a redo; `claimed` is `None` if there is no row at all. If that is seen
    /// twice without anybody claiming the row in between, the task must not continue.
    fn on_difference(&mut self, id: TaskId, claimed: Option<Claimed>) -> Result<bool, Setback> {
        let task = self.tasks.get_mut(&id).expect("listed by the caller");
        let doubted = task.ending.sink().and_then(|own| own.doubted_row.as_ref());
        let is_certain = match &claimed {
            Some(claimed) => is_certain(claimed, doubted),
            None => doubted == Some(&NO_ROW),
        };
        let token = claimed.as_ref().and_then(|claimed| claimed.row.mark.token);
        let told = |token: Option<String>| token.unwrap_or_else(|| "nothing".to_owned());
        let (row, recorded) =
            (told(token.map(|token| token.to_string())), told(task.last.recorded.map(|token| token.to_string())));
        if is_certain {
            let end = covered(&task.committed);
            let is_ahead = claimed.is_some_and(|claimed| {
                let (token, changelog_id) = (task.last.recorded.as_ref(), task.topics.changelog_id.0);
                relate(&claimed.row, Recorded { token, end, changelog_id }) == Relation::Ahead
            });
            let refusal =
                if is_ahead { Refusal::SinkAhead { row, recorded } } else { Refusal::SinkBehind { row, recorded } };
            return Err(refusal.into());
        }
        tracing::warn!(task = %task.input, row, recorded, "the sink's row and the changelog differ; looking again");
        if let Some(own) = task.ending.sink_mut() {
            own.doubted_row = Some(claimed.map_or(NO_ROW, |claimed| claimed.row.mark));
        }
        self.restart(id);
        Ok(false)
    }

    /// Takes a redo one step further; once Kafka has committed it, the task restores.
    pub(super) fn step_redo(&mut self, id: TaskId) {
        let Self { context, cluster, tasks, member, scratch, metrics, ending, .. } = self;
        let means = &mut Means { context, cluster, tasks, member, scratch, metrics, sink: ending.sink_mut() };
        match redoing::step(means, id) {
            Ok(false) => self.restores.pending = true,
            Ok(true) => {
                let task = self.tasks.get_mut(&id).expect("stepped above");
                task.set_phase(Phase::Waiting { until: Duration::ZERO });
                self.restores.pending = true;
            }
            Err(setback) => {
                let task = self.tasks.get_mut(&id).expect("stepped above");
                restore::set_back(&self.context, task, &setback);
                self.restores.pending = true;
            }
        }
    }

    /// The sink refuses some of the open transaction's records, and has committed nothing. Its tasks go on with the
    /// same records, except that `on_rejected` applies to those that the sink has named.
    pub(super) fn on_refused(&mut self, undone: Undone) {
        let Undone { failed, rejected, .. } = undone;
        tracing::debug!(
            topology = self.context.topology.name, reason = %failed,
            "transaction aborted; trying again without the refused records, or with fewer at once"
        );
        let aborted = self.abort_undone(failed);
        self.note_rejected(rejected);
        for id in aborted.tasks() {
            match self.tasks.get_mut(&id) {
                Some(task) if aborted.ended => task.sweep.reset(),
                Some(task) => {
                    task.unsettle();
                    self.restart(id);
                }
                None => {}
            }
        }
    }

    /// The sink has not committed the open transaction, or its answer was lost. If nothing has changed for a task and
    /// the trouble may pass, it reads its records again; otherwise it restores.
    pub(super) fn on_undone(&mut self, undone: Undone) {
        self.note_undone(&undone);
        let Undone { failed, tasks: of_steps, rejected } = undone;
        let is_lasting = matches!(&failed, Failed::Held(error) if error.kind == ErrorKind::Lasting);
        let fenced: Vec<TaskId> = match &failed {
            Failed::Fenced(steps) => steps.iter().map(|step| of_steps[*step]).collect(),
            _ => Vec::new(),
        };
        if is_lasting {
            // Beside other records it may show whether a record is to blame.
            self.transactor.unite();
        }
        let aborted = self.abort_undone(failed.clone());
        self.note_rejected(rejected);
        for id in aborted.tasks() {
            let Some(task) = self.tasks.get_mut(&id) else { continue };
            if !aborted.ended {
                task.unsettle();
            }
            let may_read_again = match &failed {
                Failed::Rejected(_) | Failed::Refused(_) => false,
                Failed::Fenced(_) => !fenced.contains(&id),
                // Once; if it fails again, the task restores after a pause.
                Failed::Held(_) => !is_lasting && task.trouble.attempts == 0,
                Failed::Unknown(_) => false,
            };
            if may_read_again && aborted.ended {
                task.trouble.attempts += u32::from(matches!(failed, Failed::Held(_)));
                self.read_again(id);
            } else {
                self.restart(id);
            }
        }
    }

    /// Logs why the sink has not committed a transaction, unless that was logged recently, and notes which tasks wait
    /// for the sink.
    pub(super) fn note_undone(&mut self, undone: &Undone) {
        let Self { context, tasks, ending: Ending::Sink(sink), .. } = self else { return };
        let (topology, failed) = (&context.topology.name, &undone.failed);
        let error = match failed {
            Failed::Held(error) => error,
            // The records are found and set aside, which is logged there.
            Failed::Rejected(_) | Failed::Refused(_) => {
                return tracing::debug!(topology, reason = %failed, "transaction aborted");
            }
            Failed::Fenced(_) | Failed::Unknown(_) => {
                return tracing::warn!(topology, reason = %failed, "transaction aborted");
            }
        };
        let now = context.clock.monotonic();
        for id in &undone.tasks {
            if let Some(own) = tasks.get_mut(id).and_then(|task| task.ending.sink_mut()) {
                own.waits = Some(Wait::of_commit(own.waits, now));
            }
        }
        sink.count_waits(tasks);
        match error.kind {
            _ if !sink.said.is_due(&error.message, now) => {
                tracing::debug!(topology, reason = %failed, "transaction aborted");
            }
            ErrorKind::Passing => tracing::warn!(topology, reason = %failed, "transaction aborted"),
            ErrorKind::Lasting => tracing::error!(topology, reason = %failed, "transaction aborted; trying again"),
        }
    }

    /// Aborts Kafka's half of a transaction, before any of it was sent.
    fn abort_undone(&mut self, failed: Failed) -> Aborted {
        let cause = Cause::Sink(Undone { failed, tasks: Vec::new(), rejected: Vec::new() });
        self.transactor.abort(&self.cluster, &cause, &self.metrics)
    }

    /// Notes the records that the sink refuses: `on_rejected` applies to them when they are read again.
    pub(super) fn note_rejected(&mut self, rejected: Vec<(TaskId, i64, String)>) {
        for (id, offset, message) in rejected {
            if let Some(own) = self.tasks.get_mut(&id).and_then(|task| task.ending.sink_mut()) {
                own.rejected.insert(offset, message);
            }
        }
    }

    /// Lets a task at work read again from its committed position: nothing that it has read since has changed anything.
    pub(super) fn read_again(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get_mut(&id).filter(|task| matches!(task.phase, Phase::Running)) else { return };
        task.sweep.reset();
        if let Err(error) = self.member.start(&task.input, task.committed.next) {
            tracing::debug!(
                task = %task.input, reason = %error.message,
                "the task could not read its records again; it restores"
            );
            self.restart(id);
        }
    }

    /// Checks the rows of idle tasks from time to time, to notice a database that goes back in time while nothing
    /// happens.
    pub(super) fn look_at_rows(&mut self, now: Duration) {
        let Self { tasks, transactor, ending: Ending::Sink(sink), .. } = self else { return };
        if transactor.is_open() || now.saturating_sub(sink.looked_at) < LOOK_INTERVAL {
            return;
        }
        (sink.looked_at, sink.is_tidying) = (now, true);
        let idle = tasks.iter().filter(|(_, task)| matches!(task.phase, Phase::Running));
        let claims: Vec<(TaskId, Claim)> =
            idle.filter_map(|(id, task)| Some((*id, task.ending.claim()?.clone()))).collect();
        if claims.is_empty() {
            return;
        }
        let keys: Vec<RowKey> = claims.iter().map(|(_, claim)| claim.key.clone()).collect();
        match sink.session.look(&keys) {
            Ok(marks) => {
                for ((id, claim), mark) in claims.into_iter().zip(marks) {
                    if mark.as_ref() != Some(&claim.mark) {
                        tracing::warn!(
                            row = %claim.key,
                            "the sink's row has changed without this task; the task restores"
                        );
                        self.restart(id);
                    }
                }
            }
            Err(error) => tracing::debug!(reason = %error, "the sink's rows could not be read"),
        }
    }

    /// Lets the sink remove some of the data that it no longer needs.
    pub(super) fn tidy(&mut self) {
        let Some(sink) = self.ending.sink_mut().filter(|sink| sink.is_tidying) else { return };
        sink.is_tidying = sink.session.tidy().unwrap_or_else(|error| {
            let now = self.context.clock.monotonic();
            if sink.said.is_due(&error.message, now) {
                tracing::warn!(
                    topology = self.context.topology.name, reason = %error,
                    "old data in the sink could not be removed"
                );
            }
            false
        });
    }
}

/// The key of a task's row.
fn row_key<C: Cluster>(topology: &str, task: &Task<C>) -> RowKey {
    RowKey {
        topology: topology.into(),
        topic: task.input.topic.clone(),
        topic_id: task.topics.input_id.0,
        partition: task.input.partition,
    }
}
