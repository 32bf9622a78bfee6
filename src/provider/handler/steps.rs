//! The steps through which a function does its work, each of which is done once.
//!
//! - here: a step returns its recorded outcome, or acts once all earlier steps are committed
//! - `halt`: the reasons why no further step begins (a halt), and how a failed step ends the attempt
//! - `undoing`: the compensations, which undo the work for a record that is rejected
//!
//! The outcomes of steps are recorded in the record's **journal**; until they are committed there, they are pending. If
//! the other systems honour no keys, a step's **mark** is committed before the step acts: it may have happened.
//! `sabotage::is_on` says whether a test has switched on a deliberate fault.

use std::rc::Rc;
use std::sync::Arc;

use crossbeam_channel::Sender;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use super::journal::{NextStep, Replay, is_valid_name};
use super::progress::{Progress, RunOutcome};
use super::settings::Settings;
use super::{Key, Reply, StepError, Transaction};
use crate::effect::call::StepName;
use crate::effect::provider::{HandlerReport, OwnedStep, OwnedStepState, Request, Work};
use crate::format::{RESULT_BYTES_MAX, Step, StepState};
use crate::postgres::steps::{Pool, StepOutcome};
use crate::sabotage::{self, Sabotage};

mod halt;
mod undoing;

use halt::Halt;
use undoing::Compensation;

const JOURNAL_FULL: &str =
    "there is no room for another step: a record's results may have at most 768 KiB; return less from the steps";

/// The steps of a function's work on one record.
///
/// A step's outcome is remembered before the next one begins: after a crash the function is run again, and steps that
/// are done return the same result as before without acting. Therefore:
///
/// - every effect must be in a step; the code around the steps may run any number of times
/// - a function must reach the same steps in the same order each time it is run for a record: clocks, random numbers
///   and other values that change must not decide which steps run, unless they come from a step's result
/// - each step must have a name of its own within the function, of at most 255 bytes
///
/// Once a step has failed, except by a rejection, no other step begins: `?` passes its error on, and the attempt ends.
pub struct Steps {
    /// The record, and the parts of its steps' keys.
    work: Arc<Work>,
    /// The attempt.
    request: Request,
    replay: Replay,
    /// The entries for the journal (outcomes and marks) that are not reported for a commit yet.
    pending: Vec<OwnedStep>,
    /// The registered compensations, by name.
    compensations: Vec<(String, Compensation)>,
    /// Whether the record is rejected: the steps are compensations now.
    is_undoing: bool,
    /// The reason why no further step begins, if there is one.
    halt: Option<Halt>,
    /// The step that has begun and not ended. It remains set if the step's future was dropped.
    current_step: Option<String>,
    settings: Arc<Settings>,
    pool: Option<Rc<Pool>>,
    progress: Rc<Progress>,
    reports: Sender<HandlerReport>,
    /// Receives, after each commit of reported entries, the time from which the next step may act.
    commits: mpsc::UnboundedReceiver<i64>,
}

/// The parts of [`Steps`] that a run provides.
pub(super) struct Parts {
    pub work: Arc<Work>,
    pub request: Request,
    pub settings: Arc<Settings>,
    pub pool: Option<Rc<Pool>>,
    pub progress: Rc<Progress>,
    pub reports: Sender<HandlerReport>,
    pub commits: mpsc::UnboundedReceiver<i64>,
}

impl Steps {
    pub(super) fn new(parts: Parts) -> Self {
        let Parts { work, request, settings, pool, progress, reports, commits } = parts;
        let replay = Replay::of(Arc::clone(&request.journal));
        let (pending, compensations, is_undoing, halt, current_step) = (Vec::new(), Vec::new(), false, None, None);
        Self {
            work,
            request,
            replay,
            pending,
            compensations,
            is_undoing,
            halt,
            current_step,
            settings,
            pool,
            progress,
            reports,
            commits,
        }
    }

    /// Causes an effect in another system, with a key by which that system recognises a repetition: the key is the same
    /// in each attempt of this step for this record. The result is remembered as JSON, up to 64 KiB.
    ///
    /// # Errors
    /// The error that `act` returns; [`StepError`] documents its consequences. A step that was rejected before is
    /// rejected again.
    pub async fn call<T, F>(&mut self, name: &str, act: F) -> Result<T, StepError>
    where
        T: Serialize + DeserializeOwned,
        F: AsyncFnOnce(Key) -> Result<T, StepError>,
    {
        self.step(name, async move |steps, has_begun_mark| steps.act(name, has_begun_mark, act).await).await
    }

    /// Carries out a step, after everything before it is committed. `has_begun_mark`: the step's mark is recorded
    /// already.
    async fn act<T, F>(&mut self, name: &str, has_begun_mark: bool, act: F) -> Result<T, StepError>
    where
        T: Serialize + DeserializeOwned,
        F: AsyncFnOnce(Key) -> Result<T, StepError>,
    {
        self.check_room()?;
        let lacks_begun_mark = !has_begun_mark && !sabotage::is_on(Sabotage::MarkNotWritten);
        if self.settings.key_window.is_none() && lacks_begun_mark {
            self.pending.push(OwnedStep { name: name.to_owned(), state: OwnedStepState::Begun });
        }
        self.commit().await?;
        if self
            .settings
            .key_window
            .is_some_and(|window| !window.allows_step(self.request.first_attempt_at_ms, (self.settings.clock)()))
        {
            return Err(self.halt(Halt::TooLate));
        }
        self.progress.set_may_have_acted(true);
        match act(self.step_key(name)).await {
            Ok(value) => {
                let result = self.encode(name, &value)?;
                // A later run has to be able to read the result.
                self.decode::<T>(name, &result)?;
                self.pending.push(OwnedStep { name: name.to_owned(), state: OwnedStepState::Done(result) });
                Ok(value)
            }
            Err(error) => Err(self.fail_step(name, error)),
        }
    }

    /// Executes statements in one transaction of the worker's database ([`crate::Worker::postgres`]): **exactly once**,
    /// whatever happens, because the transaction also stores the step's key there. The result is remembered as JSON, up
    /// to 64 KiB.
    ///
    /// The transaction is committed if `act` returns `Ok`, and only then.
    ///
    /// # Errors
    /// The error that `act` returns, in which case nothing has happened; or the database cannot do it now.
    pub async fn transaction<T, F>(&mut self, name: &str, act: F) -> Result<T, StepError>
    where
        T: Serialize + DeserializeOwned,
        F: AsyncFnOnce(&Transaction<'_>) -> Result<T, StepError>,
    {
        self.step(name, async move |steps, _| steps.transact(name, act).await).await
    }

    async fn transact<T, F>(&mut self, name: &str, act: F) -> Result<T, StepError>
    where
        T: Serialize + DeserializeOwned,
        F: AsyncFnOnce(&Transaction<'_>) -> Result<T, StepError>,
    {
        self.check_room()?;
        self.commit().await?;
        let Some(pool) = self.pool.clone() else {
            let message = format!("the step `{name}` needs a database: configure one with `Worker::postgres`");
            return Err(self.halt(Halt::MustStopTask(message)));
        };
        let key = self.step_key(name);
        let topology = Arc::clone(&self.work.topology);
        let outcome = pool
            .transact((&topology, name, key.as_str()), async move |transaction| match act(transaction).await {
                Ok(value) => match serde_json::to_vec(&value)? {
                    result if result.len() > RESULT_BYTES_MAX => Err(StepError::unknown(format!(
                        "its result has {} bytes as JSON, but at most {RESULT_BYTES_MAX} are remembered",
                        result.len()
                    ))),
                    result => Ok(StepOutcome::Done(result)),
                },
                Err(error) if error.is_rejected() => Ok(StepOutcome::Rejected(error.to_string())),
                Err(error) => Err(error),
            })
            .await;
        // If the response to the commit was lost, the next attempt finds the outcome by the key.
        self.end_transaction(name, outcome.unwrap_or_else(|error| Err(StepError::again(error.message))))
    }

    /// Like [`Steps::transaction`], for any database: `carry_out` carries the step out under its key, unless the step
    /// was carried out before, and returns its outcome.
    ///
    /// # Errors
    /// As for [`Steps::transaction`].
    #[cfg_attr(not(ratchet_internals), doc(hidden))]
    pub async fn transaction_by<T, F>(&mut self, name: &str, carry_out: F) -> Result<T, StepError>
    where
        T: Serialize + DeserializeOwned,
        F: AsyncFnOnce(Key) -> Result<StepOutcome, StepError>,
    {
        self.step(name, async move |steps, _| steps.transact_by(name, carry_out).await).await
    }

    async fn transact_by<T, F>(&mut self, name: &str, carry_out: F) -> Result<T, StepError>
    where
        T: Serialize + DeserializeOwned,
        F: AsyncFnOnce(Key) -> Result<StepOutcome, StepError>,
    {
        self.check_room()?;
        self.commit().await?;
        let result = carry_out(self.step_key(name)).await;
        self.end_transaction(name, result)
    }

    /// Ends a step with the outcome of its transaction.
    fn end_transaction<T: Serialize + DeserializeOwned>(
        &mut self,
        name: &str,
        result: Result<StepOutcome, StepError>,
    ) -> Result<T, StepError> {
        match result {
            Ok(StepOutcome::Rejected(reason)) => {
                // Certain even after attempts that may have acted: the step has not happened.
                self.request.may_have_acted = false;
                Err(self.fail_step(name, StepError::rejected(reason)))
            }
            Ok(StepOutcome::Done(result)) => {
                let value = self.decode(name, &result)?;
                self.pending.push(OwnedStep { name: name.to_owned(), state: OwnedStepState::Done(result) });
                Ok(value)
            }
            Err(error) => Err(self.fail_step(name, error)),
        }
    }

    /// The key of the step of this name.
    fn step_key(&self, name: &str) -> Key {
        if sabotage::is_on(Sabotage::StepKeyOfAttempt) {
            return self.work.step_key(StepName::Action(&format!("{name} {}", self.request.attempt)));
        }
        self.work.step_key(if self.is_undoing { StepName::Compensation(name) } else { StepName::Action(name) })
    }

    /// The outcome of a run whose function has returned `result`. Runs the compensations if the function has rejected
    /// the record. Commits the pending entries first, unless the function has succeeded: then its record is settled at
    /// once.
    pub(super) async fn finish(mut self, result: Result<Reply, StepError>) -> RunOutcome {
        let halted = match (self.reason_to_halt(), result) {
            (Some(halt), _) => halt,
            (None, Ok(_)) if !self.replay.is_at_end() => Halt::MustStopTask(self.replay.difference_message()),
            (None, Ok(reply)) => return RunOutcome::Done(reply),
            (None, Err(error)) if error.is_rejected() => match self.compensate_all(error.to_string()).await {
                Ok((reason, certainly_not_done)) => return RunOutcome::Rejected { reason, certainly_not_done },
                Err(halt) => halt,
            },
            (None, Err(error)) => Halt::Failed(error),
        };
        // The outcomes of finished steps are committed, whatever the run's outcome.
        let halted = match self.commit().await {
            Ok(()) => halted,
            Err(_) => self.reason_to_halt().unwrap_or(halted),
        };
        match halted {
            Halt::Failed(error) => RunOutcome::Failed(error),
            Halt::InDoubt(message) => RunOutcome::InDoubt(message),
            Halt::HalfDone(message) => RunOutcome::HalfDone(message),
            Halt::TooLate => RunOutcome::TooLate,
            Halt::MustStopTask(reason) => RunOutcome::MustStopTask(reason),
        }
    }

    /// Lets a step act, or returns its recorded outcome if there is one. The second argument of `act` says whether
    /// the step's mark is recorded.
    async fn step<T, F>(&mut self, name: &str, act: F) -> Result<T, StepError>
    where
        T: DeserializeOwned,
        F: AsyncFnOnce(&mut Self, bool) -> Result<T, StepError>,
    {
        let has_begun_mark = match self.begin(name)? {
            NextStep::Acts { has_begun_mark } => has_begun_mark,
            recorded => return self.recorded(name, recorded),
        };
        self.current_step = Some(name.to_owned());
        let result = act(self, has_begun_mark).await;
        self.current_step = None;
        result
    }

    /// Begins a step. Returns its recorded outcome, or that it acts now.
    fn begin(&mut self, name: &str) -> Result<NextStep, StepError> {
        if let Some(halt) = self.reason_to_halt() {
            return Err(halt.error());
        }
        // The names of compensations were checked when they were registered.
        if !self.is_undoing
            && let Some(mistake) = name_mistake(name, self.replay.has_begun(name), "steps")
        {
            return Err(self.halt(Halt::MustStopTask(mistake)));
        }
        match self.replay.begin(name) {
            NextStep::Differs => {
                let message = self.replay.difference_message();
                Err(self.halt(Halt::MustStopTask(message)))
            }
            next => Ok(next),
        }
    }

    /// The recorded outcome of a step.
    fn recorded<T: DeserializeOwned>(&mut self, name: &str, next: NextStep) -> Result<T, StepError> {
        match next {
            NextStep::Recorded(OwnedStepState::Done(result)) => self.decode(name, &result),
            NextStep::Recorded(OwnedStepState::Rejected(reason)) => Err(StepError::rejected(reason)),
            next => unreachable!("{next:?} was recorded"),
        }
    }

    fn decode<T: DeserializeOwned>(&mut self, name: &str, result: &[u8]) -> Result<T, StepError> {
        serde_json::from_slice(result).map_err(|error| {
            let message = format!(
                "this program cannot read the remembered result of the step `{name}` (line {}, column {}): run the \
                 program that has begun the record, or make this one accept the remembered result",
                error.line(),
                error.column()
            );
            self.halt(Halt::MustStopTask(message))
        })
    }

    fn encode<T: Serialize>(&mut self, name: &str, value: &T) -> Result<Vec<u8>, StepError> {
        let result = serde_json::to_vec(value);
        let result = result.map_err(|error| {
            self.halt(Halt::MustStopTask(format!("the result of the step `{name}` cannot be written as JSON: {error}")))
        })?;
        match Replay::fits_empty_journal(Step { name, state: StepState::Done(&result) }) {
            true => Ok(result),
            false => Err(self.too_long(name, result.len())),
        }
    }

    fn too_long(&mut self, name: &str, bytes: usize) -> StepError {
        self.halt(Halt::MustStopTask(format!(
            "the result of the step `{name}` has {bytes} bytes as JSON, but at most {RESULT_BYTES_MAX} are remembered: \
             return less from the step"
        )))
    }

    /// Checks, before a step acts, that the journal has room for it and for the compensations.
    fn check_room(&mut self) -> Result<(), StepError> {
        if self.replay.has_room(&self.pending) {
            return Ok(());
        }
        Err(self.halt(Halt::MustStopTask(JOURNAL_FULL.to_owned())))
    }

    /// Reports the pending entries, and waits until they are committed.
    async fn commit(&mut self) -> Result<(), StepError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let steps = std::mem::take(&mut self.pending);
        if !self.replay.push(&steps) {
            return Err(self.halt(Halt::MustStopTask(JOURNAL_FULL.to_owned())));
        }
        let Request { number, attempt, .. } = self.request;
        // Fails if the lane is gone: then the run waits below until it is dropped.
        let _ = self.reports.send(HandlerReport::Steps { number, attempt, steps });
        self.progress.pause_timeout();
        let Some(first_attempt_at_ms) = self.commits.recv().await else { return std::future::pending().await };
        self.progress.restart_timeout();
        (self.request.first_attempt_at_ms, self.request.may_have_acted) = (first_attempt_at_ms, false);
        Ok(())
    }
}

/// The mistake in the name of a new step, if there is one.
fn name_mistake(name: &str, is_taken: bool, kind: &str) -> Option<String> {
    match is_valid_name(name) {
        false => Some(format!("a step's name must have 1 to 255 bytes; one has {}", name.len())),
        true if is_taken => Some(format!("there are two {kind} named `{name}`: each needs its own name")),
        true => None,
    }
}
