//! The steps through which a function does its work, each of which is done once.
//!
//! - here: a step is looked up in the journal, or acts once everything before it is committed
//! - `halt`: why no further step begins, and how a failed step ends the attempt
//! - `undoing`: undoing the work of a record that is rejected

use std::rc::Rc;
use std::sync::Arc;

use crossbeam_channel::Sender;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use super::super::call::StepOf;
use super::journal::{Next, Replay, is_name};
use super::progress::{End, Progress};
use super::settings::Settings;
use super::{Key, Reply, StepError, Transaction};
use crate::effect::postgres::steps::{Came, Pool};
use crate::effect::provider::{OwnedHow, OwnedStep, Request, Told, Work};
use crate::format::{RESULT_BYTES_MAX, Step, StepHow};
use crate::sabotage::{self, Sabotage};

mod halt;
mod undoing;

use halt::Halt;
use undoing::Undo;

const TOO_MUCH: &str =
    "there is no room for another step: a record's results may have at most 768 KiB; return less from the steps";

/// The steps of a function's work on one record.
///
/// A step's outcome is remembered before the next one begins: after a crash the function is run again, and steps that
/// are done return the same result as before without acting. Therefore:
///
/// - everything that has an effect must be in a step; the code around the steps may run any number of times
/// - a function must reach the same steps in the same order each time it is run for a record: clocks, random numbers
///   and anything else that changes must not decide which, unless they come from a step's result
/// - each step must have a name of its own within the function, of at most 255 bytes
///
/// Once a step has failed other than by a rejection, no other begins: `?` passes its error on, and the attempt ends.
pub struct Steps {
    work: Arc<Work>,
    request: Request,
    replay: Replay,
    /// Outcomes of steps that are not committed yet: those of the last one.
    pending: Vec<OwnedStep>,
    undo: Vec<(String, Undo)>,
    /// Whether the record is rejected: the steps now undo what was done.
    is_undoing: bool,
    halt: Option<Halt>,
    /// The step that has begun and not ended. A step whose future was dropped stays here.
    within: Option<String>,
    settings: Arc<Settings>,
    pool: Option<Rc<Pool>>,
    progress: Rc<Progress>,
    tell: Sender<Told>,
    committed: mpsc::UnboundedReceiver<i64>,
}

/// The parts of a run.
pub(super) struct Parts {
    pub work: Arc<Work>,
    pub request: Request,
    pub settings: Arc<Settings>,
    pub pool: Option<Rc<Pool>>,
    pub progress: Rc<Progress>,
    pub tell: Sender<Told>,
    pub committed: mpsc::UnboundedReceiver<i64>,
}

impl Steps {
    pub(super) fn new(parts: Parts) -> Self {
        let Parts { work, request, settings, pool, progress, tell, committed } = parts;
        let replay = Replay::of(Arc::clone(&request.journal));
        let (pending, undo, is_undoing, halt, within) = (Vec::new(), Vec::new(), false, None, None);
        Self {
            work,
            request,
            replay,
            pending,
            undo,
            is_undoing,
            halt,
            within,
            settings,
            pool,
            progress,
            tell,
            committed,
        }
    }

    /// Does something irrevocable in another system, with a key by which that system recognises a repetition: the key
    /// is the same for this record and step, however often it is tried. The result is remembered as JSON, up to 64 KiB.
    ///
    /// # Errors
    /// The error that `act` returns; [`StepError`] says what follows from it. A step that was rejected before is
    /// rejected again.
    pub async fn call<T, F>(&mut self, name: &str, act: F) -> Result<T, StepError>
    where
        T: Serialize + DeserializeOwned,
        F: AsyncFnOnce(Key) -> Result<T, StepError>,
    {
        self.step(name, async move |steps, is_marked| steps.act(name, is_marked, act).await).await
    }

    async fn act<T, F>(&mut self, name: &str, is_marked: bool, act: F) -> Result<T, StepError>
    where
        T: Serialize + DeserializeOwned,
        F: AsyncFnOnce(Key) -> Result<T, StepError>,
    {
        self.make_room()?;
        let is_unmarked = !is_marked && !sabotage::is_on(Sabotage::MarkNotWritten);
        if self.settings.key_window.is_none() && is_unmarked {
            self.pending.push(OwnedStep { name: name.to_owned(), how: OwnedHow::Begun });
        }
        self.commit().await?;
        if self
            .settings
            .key_window
            .is_some_and(|window| !window.allows_step(self.request.first_at_ms, (self.settings.clock)()))
        {
            return Err(self.halt(Halt::TooLate));
        }
        self.progress.is_acting(true);
        match act(self.key_of(name)).await {
            Ok(value) => {
                let result = self.written(name, &value)?;
                // A later run has to be able to read it.
                self.read::<T>(name, &result)?;
                self.pending.push(OwnedStep { name: name.to_owned(), how: OwnedHow::Done(result) });
                Ok(value)
            }
            Err(error) => Err(self.failed(name, error)),
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
        self.make_room()?;
        self.commit().await?;
        let Some(pool) = self.pool.clone() else {
            let words = format!("the step `{name}` needs a database: configure one with `Worker::postgres`");
            return Err(self.halt(Halt::Stops(words)));
        };
        let key = self.key_of(name);
        let topology = Arc::clone(&self.work.topology);
        let carried_out = pool
            .transact((&topology, name, key.as_str()), async move |transaction| match act(transaction).await {
                Ok(value) => match serde_json::to_vec(&value)? {
                    result if result.len() > RESULT_BYTES_MAX => Err(StepError::unknown(format!(
                        "its result has {} bytes as JSON, but at most {RESULT_BYTES_MAX} are remembered",
                        result.len()
                    ))),
                    result => Ok(Came::Done(result)),
                },
                Err(error) if error.is_rejected() => Ok(Came::Rejected(error.to_string())),
                Err(error) => Err(error),
            })
            .await;
        // If a commit was not answered, the next attempt finds out by the key.
        self.carried_out(name, carried_out.unwrap_or_else(|error| Err(StepError::again(error.message))))
    }

    /// Like [`Steps::transaction`], for any database: `carry_out` carries the step out under its key, unless that was
    /// done before, and returns its outcome.
    ///
    /// # Errors
    /// As for [`Steps::transaction`].
    #[cfg_attr(not(ratchet_internals), doc(hidden))]
    pub async fn transaction_by<T, F>(&mut self, name: &str, carry_out: F) -> Result<T, StepError>
    where
        T: Serialize + DeserializeOwned,
        F: AsyncFnOnce(Key) -> Result<Came, StepError>,
    {
        self.step(name, async move |steps, _| steps.transact_by(name, carry_out).await).await
    }

    async fn transact_by<T, F>(&mut self, name: &str, carry_out: F) -> Result<T, StepError>
    where
        T: Serialize + DeserializeOwned,
        F: AsyncFnOnce(Key) -> Result<Came, StepError>,
    {
        self.make_room()?;
        self.commit().await?;
        let came = carry_out(self.key_of(name)).await;
        self.carried_out(name, came)
    }

    /// Ends a step with the outcome of its transaction.
    fn carried_out<T: Serialize + DeserializeOwned>(
        &mut self,
        name: &str,
        came: Result<Came, StepError>,
    ) -> Result<T, StepError> {
        match came {
            Ok(Came::Rejected(reason)) => {
                // This is certain even after attempts that may have acted: nothing has happened.
                self.request.may_have_acted = false;
                Err(self.failed(name, StepError::rejected(reason)))
            }
            Ok(Came::Done(result)) => {
                let value = self.read(name, &result)?;
                self.pending.push(OwnedStep { name: name.to_owned(), how: OwnedHow::Done(result) });
                Ok(value)
            }
            Err(error) => Err(self.failed(name, error)),
        }
    }

    /// The key of the step of this name.
    fn key_of(&self, name: &str) -> Key {
        if sabotage::is_on(Sabotage::StepKeyOfAttempt) {
            return self.work.key_of(StepOf::Does(&format!("{name} {}", self.request.attempt)));
        }
        self.work.key_of(if self.is_undoing { StepOf::Undoes(name) } else { StepOf::Does(name) })
    }

    /// The function's outcome, once the steps that it has reported are committed.
    pub(super) async fn finish(mut self, came: Result<Reply, StepError>) -> End {
        let halted = match (self.halted(), came) {
            (Some(halt), _) => halt,
            (None, Ok(_)) if !self.replay.is_over() => Halt::Stops(self.replay.difference()),
            (None, Ok(reply)) => return End::Done(reply),
            (None, Err(error)) if error.is_rejected() => match self.undo_all(error.to_string()).await {
                Ok((reason, is_certain)) => return End::Rejected { reason, is_certain },
                Err(halt) => halt,
            },
            (None, Err(error)) => Halt::Failed(error),
        };
        // Steps that are done are committed, whatever follows.
        let halted = match self.commit().await {
            Ok(()) => halted,
            Err(_) => self.halted().unwrap_or(halted),
        };
        match halted {
            Halt::Failed(error) => End::Failed(error),
            Halt::InDoubt(words) => End::InDoubt(words),
            Halt::HalfDone(words) => End::HalfDone(words),
            Halt::TooLate => End::TooLate,
            Halt::Stops(words) => End::Stops(words),
        }
    }

    /// Lets a step act, or returns its outcome if that was recorded.
    async fn step<T, F>(&mut self, name: &str, act: F) -> Result<T, StepError>
    where
        T: DeserializeOwned,
        F: AsyncFnOnce(&mut Self, bool) -> Result<T, StepError>,
    {
        let is_marked = match self.begin(name)? {
            Next::Acts { is_marked } => is_marked,
            recorded => return self.recorded(name, recorded),
        };
        self.within = Some(name.to_owned());
        let came = act(self, is_marked).await;
        self.within = None;
        came
    }

    /// Begins a step. Returns its recorded outcome, or that it is to act.
    fn begin(&mut self, name: &str) -> Result<Next, StepError> {
        if let Some(halt) = self.halted() {
            return Err(halt.error());
        }
        // The names of steps that undo were checked when they were registered.
        if !self.is_undoing
            && let Some(words) = wrong_name(name, self.replay.has(name), "steps")
        {
            return Err(self.halt(Halt::Stops(words)));
        }
        match self.replay.next(name) {
            Next::Differs => {
                let words = self.replay.difference();
                Err(self.halt(Halt::Stops(words)))
            }
            next => Ok(next),
        }
    }

    /// The recorded outcome of a step.
    fn recorded<T: DeserializeOwned>(&mut self, name: &str, next: Next) -> Result<T, StepError> {
        match next {
            Next::Recorded(OwnedHow::Done(result)) => self.read(name, &result),
            Next::Recorded(OwnedHow::Rejected(reason)) => Err(StepError::rejected(reason)),
            next => unreachable!("{next:?} was recorded"),
        }
    }

    fn read<T: DeserializeOwned>(&mut self, name: &str, result: &[u8]) -> Result<T, StepError> {
        serde_json::from_slice(result).map_err(|error| {
            let words = format!(
                "what is remembered of the step `{name}` is not what the program reads now (line {}, column {}): run the \
                 program that has begun it, or have this one read that too",
                error.line(),
                error.column()
            );
            self.halt(Halt::Stops(words))
        })
    }

    fn written<T: Serialize>(&mut self, name: &str, value: &T) -> Result<Vec<u8>, StepError> {
        let result = serde_json::to_vec(value);
        let result = result.map_err(|error| {
            self.halt(Halt::Stops(format!("the result of the step `{name}` cannot be written as JSON: {error}")))
        })?;
        match Replay::takes(Step { name, how: StepHow::Done(&result) }) {
            true => Ok(result),
            false => Err(self.too_long(name, result.len())),
        }
    }

    fn too_long(&mut self, name: &str, bytes: usize) -> StepError {
        self.halt(Halt::Stops(format!(
            "what the step `{name}` gives has {bytes} bytes as JSON, and at most {RESULT_BYTES_MAX} are remembered: have it \
             give less"
        )))
    }

    /// Requires room for another step, and for those that undo the others, before it acts.
    fn make_room(&mut self) -> Result<(), StepError> {
        if self.replay.has_room(&self.pending) {
            return Ok(());
        }
        Err(self.halt(Halt::Stops(TOO_MUCH.to_owned())))
    }

    /// Waits until the outcomes of all steps are committed.
    async fn commit(&mut self) -> Result<(), StepError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let steps = std::mem::take(&mut self.pending);
        if !self.replay.push(&steps) {
            return Err(self.halt(Halt::Stops(TOO_MUCH.to_owned())));
        }
        let Request { number, attempt, .. } = self.request;
        // The receiver is gone if the lane is gone.
        let _ = self.tell.send(Told::Steps { number, attempt, steps });
        self.progress.waits();
        let Some(first_at_ms) = self.committed.recv().await else { return std::future::pending().await };
        self.progress.goes_on();
        (self.request.first_at_ms, self.request.may_have_acted) = (first_at_ms, false);
        Ok(())
    }
}

/// What is wrong with the name of a further step, if anything.
fn wrong_name(name: &str, is_taken: bool, of: &str) -> Option<String> {
    match is_name(name) {
        false => Some(format!("a step's name must have 1 to 255 bytes; one has {}", name.len())),
        true if is_taken => Some(format!("there are two {of} named `{name}`: each needs its own name")),
        true => None,
    }
}
