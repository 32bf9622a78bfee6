//! A lane's work with its topology's sink, apart from the commit itself: it claims rows, plays redos, and recovers from
//! transactions that the sink has not committed.
//!
//! Each task (an input partition's work) has a **row** in the sink. The row's **mark** names the owner's claim (by its
//! **epoch**: how often the row was claimed) and, by a **token**, the last transaction that the sink has committed for
//! the task. The task's last record in the changelog, the **position record**, has the token of the last transaction in
//! Kafka. The sink commits first. If it is one transaction ahead, the lane **plays** the row's **redo**: it writes to
//! Kafka everything that the transaction writes there for the task.
//!
//! `sabotage::is_on` says whether a test has switched on a deliberate fault.

use std::time::Duration;

use crate::cluster::{Cluster, Member};
use crate::effect::{ClaimedRow, CommitError, Error, ErrorKind, RowKey, RowMark};
use crate::engine::context::backoff;
use crate::engine::failure::{Cause, Undone};
use crate::engine::isolate::LaneParts;
use crate::engine::redoing::{self, RedoReplay};
use crate::engine::restore;
use crate::engine::resume::Refusal;
use crate::engine::rows::{RecordedTransaction, Relation, RowClaim, compare, covered_end, is_certain};
use crate::engine::setback::Setback;
use crate::engine::share::TaskId;
use crate::engine::sink_trouble::Wait;
use crate::engine::task::{Phase, Task};
use crate::engine::transact::AbortOutcome;
use crate::format::Token;
use crate::sabotage::{self, Sabotage};

use super::Lane;
use super::destination::Destination;

/// How often the rows of idle tasks are checked, to detect a database that went back in time.
const ROW_CHECK_INTERVAL: Duration = Duration::from_secs(60);
/// The longest wait before a row is claimed again: its owner may be gone by then.
const CLAIM_WAIT_MAX: Duration = Duration::from_secs(2);
/// Stands for the mark of a row that does not exist.
const NO_ROW: RowMark = RowMark { epoch: 0, token: None };

impl<C: Cluster> Lane<C> {
    /// Claims the row of a task whose store has everything that was committed, and compares it with the position
    /// record. Returns whether the task can work; if not, it is already in another phase of its recovery.
    pub(super) fn claim_row(&mut self, id: TaskId) -> Result<bool, Setback> {
        let Self { context, tasks, destination: Destination::Sink(sink), .. } = self else { return Ok(true) };
        let task = tasks.get_mut(&id).expect("listed by the caller");
        let key = row_key(context.topology.name.as_str(), task);
        let claimed = match sink.session.claim(&key, task.last.recorded_token.is_none()) {
            Ok(claimed) => claimed,
            Err(error) => {
                self.on_claim_failed(id, &error);
                return Ok(false);
            }
        };
        if let Some(task_sink) = task.destination.sink_mut() {
            task_sink.wait = task_sink.wait.and_then(Wait::claimed);
        }
        sink.on_success(context, tasks);
        let task = tasks.get_mut(&id).expect("looked at above");
        // No row, although the task has a transaction in the changelog.
        let Some(claimed) = claimed else { return self.on_difference(id, None) };
        let by_metadata = sabotage::is_on(Sabotage::RowComparedWithText);
        let metadata_token = task.last.commitment.as_ref().map(|known| &known.metadata.token);
        let recorded = RecordedTransaction {
            token: if by_metadata { metadata_token } else { task.last.recorded_token.as_ref() },
            end: covered_end(&task.committed),
            changelog_id: task.topics.changelog_id.0,
        };
        match compare(&claimed.row, recorded) {
            Relation::OneAhead if sabotage::is_on(Sabotage::RedoDecidedAnew) => {
                if let Some(task_sink) = task.destination.sink_mut() {
                    task_sink.claim = Some(RowClaim { key, mark: claimed.row.mark });
                }
                Ok(true)
            }
            Relation::Same => {
                task.destination.set_claim(RowClaim { key, mark: claimed.row.mark });
                // The task continues with this store: a former one that was set aside is not needed any more.
                if let Some(held) = &mut task.state.store {
                    held.remove_set_aside(context)?;
                }
                Ok(true)
            }
            Relation::OneAhead => {
                let (token, redo) = claimed.row.mark.token.zip(claimed.row.redo).expect("a row ahead has both");
                tracing::info!(
                    task = %task.input, %token,
                    "the sink has committed a transaction that Kafka has not: writing it to Kafka"
                );
                let redoing = RedoReplay::new(self.separate_transactor(), redo, token);
                let task = self.tasks.get_mut(&id).expect("looked at above");
                task.set_phase(Phase::Redoing(Box::new(redoing)));
                Ok(false)
            }
            Relation::Behind | Relation::Ahead => self.on_difference(id, Some(claimed)),
        }
    }

    /// Called when a row could not be claimed: schedules the next attempt, and logs an error that is permanent or has
    /// lasted for a long time, unless it was logged recently.
    fn on_claim_failed(&mut self, id: TaskId, error: &Error) {
        let Self { context, tasks, destination: Destination::Sink(sink), .. } = self else { return };
        let task = tasks.get_mut(&id).expect("listed by the caller");
        let (wait, now) = (backoff(task.trouble.attempts).min(CLAIM_WAIT_MAX), context.clock.monotonic());
        task.trouble.attempts += 1;
        let Some(task_sink) = task.destination.sink_mut() else { return };
        let claim_wait = Wait::of_claim(task_sink.wait, now);
        task_sink.wait = Some(claim_wait);
        let should_log = error.kind == ErrorKind::Permanent || claim_wait.is_long(now);
        match error.kind {
            _ if !(should_log && sink.logged_reasons.is_due(&error.message, now)) => {
                tracing::debug!(task = %task.input, reason = %error, "the sink's row is not claimed yet");
            }
            ErrorKind::Transient => {
                tracing::warn!(task = %task.input, reason = %error, "the sink's row is not claimed yet; trying again");
            }
            ErrorKind::Permanent => {
                tracing::error!(task = %task.input, reason = %error, "the sink's row cannot be claimed; trying again");
            }
        }
        task.set_phase(Phase::Claiming { until: now + wait });
        sink.report_waits(tasks);
    }

    /// Called when the row and the position record differ, and no redo explains that; `claimed` is `None` if there is
    /// no row at all. If two checks find the same difference and no other owner has claimed the row in between, the
    /// task must not continue. After the first check it restores, to check again.
    fn on_difference(&mut self, id: TaskId, claimed: Option<ClaimedRow>) -> Result<bool, Setback> {
        let task = self.tasks.get_mut(&id).expect("listed by the caller");
        let doubted = task.destination.sink().and_then(|task_sink| task_sink.doubted_mark.as_ref());
        let is_certain = match &claimed {
            Some(claimed) => is_certain(claimed, doubted),
            None => doubted == Some(&NO_ROW),
        };
        let token = claimed.as_ref().and_then(|claimed| claimed.row.mark.token);
        let or_nothing = |token: Option<Token>| token.map_or_else(|| "nothing".to_owned(), |token| token.to_string());
        let (row, recorded) = (or_nothing(token), or_nothing(task.last.recorded_token));
        if is_certain {
            let end = covered_end(&task.committed);
            let is_ahead = claimed.is_some_and(|claimed| {
                let (token, changelog_id) = (task.last.recorded_token.as_ref(), task.topics.changelog_id.0);
                compare(&claimed.row, RecordedTransaction { token, end, changelog_id }) == Relation::Ahead
            });
            let refusal =
                if is_ahead { Refusal::SinkAhead { row, recorded } } else { Refusal::SinkBehind { row, recorded } };
            return Err(refusal.into());
        }
        tracing::warn!(task = %task.input, row, recorded, "the sink's row and the changelog differ; checking again");
        if let Some(task_sink) = task.destination.sink_mut() {
            task_sink.doubted_mark = Some(claimed.map_or(NO_ROW, |claimed| claimed.row.mark));
        }
        self.restart(id);
        Ok(false)
    }

    /// Performs the next step of playing a redo; once Kafka has committed the redo, the task restores.
    pub(super) fn step_redo(&mut self, id: TaskId) {
        let Self { context, cluster, tasks, member, scratch, metrics, destination, .. } = self;
        let parts = &mut LaneParts { context, cluster, tasks, member, scratch, metrics, sink: destination.sink_mut() };
        match redoing::step(parts, id) {
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

    /// Called when the sink refuses some of the open transaction's records, and has committed nothing. Its tasks
    /// continue with the same records, except that `on_rejected` applies to the records that the sink has named.
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

    /// Called when the sink has not committed the open transaction, or its answer was lost. A task reads its records
    /// again if it is certain that nothing has changed for it and the error may be temporary; otherwise it restores.
    pub(super) fn on_undone(&mut self, undone: Undone) {
        self.note_undone(&undone);
        // A step is the part of the transaction that belongs to one task.
        let Undone { failed, tasks: step_tasks, rejected } = undone;
        let is_permanent = matches!(&failed, CommitError::Held(error) if error.kind == ErrorKind::Permanent);
        let fenced: Vec<TaskId> = match &failed {
            CommitError::Fenced(steps) => steps.iter().map(|step| step_tasks[*step]).collect(),
            _ => Vec::new(),
        };
        if is_permanent {
            // A transaction with more records may show whether a single record is the cause.
            self.transactor.end_bisect();
        }
        let aborted = self.abort_undone(failed.clone());
        self.note_rejected(rejected);
        for id in aborted.tasks() {
            let Some(task) = self.tasks.get_mut(&id) else { continue };
            if !aborted.ended {
                task.unsettle();
            }
            let may_read_again = match &failed {
                CommitError::Rejected(_) | CommitError::Refused(_) => false,
                CommitError::Fenced(_) => !fenced.contains(&id),
                // The task reads again once; if that fails, it restores after a pause.
                CommitError::Held(_) => !is_permanent && task.trouble.attempts == 0,
                CommitError::Unknown(_) => false,
            };
            if may_read_again && aborted.ended {
                task.trouble.attempts += u32::from(matches!(failed, CommitError::Held(_)));
                self.read_again(id);
            } else {
                self.restart(id);
            }
        }
    }

    /// Logs why the sink has not committed a transaction, unless that was logged recently, and notes which tasks wait
    /// for the sink.
    pub(super) fn note_undone(&mut self, undone: &Undone) {
        let Self { context, tasks, destination: Destination::Sink(sink), .. } = self else { return };
        let (topology, failed) = (&context.topology.name, &undone.failed);
        let error = match failed {
            CommitError::Held(error) => error,
            // The search for the refused records logs them.
            CommitError::Rejected(_) | CommitError::Refused(_) => {
                return tracing::debug!(topology, reason = %failed, "transaction aborted");
            }
            CommitError::Fenced(_) | CommitError::Unknown(_) => {
                return tracing::warn!(topology, reason = %failed, "transaction aborted");
            }
        };
        let now = context.clock.monotonic();
        for id in &undone.tasks {
            if let Some(task_sink) = tasks.get_mut(id).and_then(|task| task.destination.sink_mut()) {
                task_sink.wait = Some(Wait::of_commit(task_sink.wait, now));
            }
        }
        sink.report_waits(tasks);
        match error.kind {
            _ if !sink.logged_reasons.is_due(&error.message, now) => {
                tracing::debug!(topology, reason = %failed, "transaction aborted");
            }
            ErrorKind::Transient => tracing::warn!(topology, reason = %failed, "transaction aborted"),
            ErrorKind::Permanent => tracing::error!(topology, reason = %failed, "transaction aborted; trying again"),
        }
    }

    /// Aborts Kafka's half of a transaction whose commit has failed in the sink, or was not confirmed: none of its
    /// records was sent to Kafka.
    fn abort_undone(&mut self, failed: CommitError) -> AbortOutcome {
        let cause = Cause::Sink(Undone { failed, tasks: Vec::new(), rejected: Vec::new() });
        self.transactor.abort(&self.cluster, &cause, &self.metrics)
    }

    /// Notes the records that the sink refuses: `on_rejected` applies to them when they are read again.
    pub(super) fn note_rejected(&mut self, rejected: Vec<(TaskId, i64, String)>) {
        for (id, offset, message) in rejected {
            if let Some(task_sink) = self.tasks.get_mut(&id).and_then(|task| task.destination.sink_mut()) {
                task_sink.rejected.insert(offset, message);
            }
        }
    }

    /// Makes a task at work read again from its committed position. The records that it has read since had no effect.
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

    /// Checks the rows of idle tasks from time to time, to detect a database that goes back in time while no
    /// transaction uses it.
    pub(super) fn check_rows(&mut self, now: Duration) {
        let Self { tasks, transactor, destination: Destination::Sink(sink), .. } = self else { return };
        if transactor.is_open() || now.saturating_sub(sink.rows_checked_at) < ROW_CHECK_INTERVAL {
            return;
        }
        (sink.rows_checked_at, sink.is_tidying) = (now, true);
        let idle = tasks.iter().filter(|(_, task)| matches!(task.phase, Phase::Running));
        let claims: Vec<(TaskId, RowClaim)> =
            idle.filter_map(|(id, task)| Some((*id, task.destination.claim()?.clone()))).collect();
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

    /// Makes the sink remove some of the data that it no longer needs.
    pub(super) fn tidy(&mut self) {
        let Some(sink) = self.destination.sink_mut().filter(|sink| sink.is_tidying) else { return };
        sink.is_tidying = sink.session.tidy().unwrap_or_else(|error| {
            let now = self.context.clock.monotonic();
            if sink.logged_reasons.is_due(&error.message, now) {
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
