//! What a function does its work by: steps, each of which is done once.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use crossbeam_channel::Sender;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use super::super::call::StepOf;
use super::error::Kind;
use super::journal::{Next, REJECTED, Replay, is_name};
use super::run::{End, Progress};
use super::{Key, Reply, Settings, StepError, Transaction};
use crate::effect::postgres::steps::{Came, Pool};
use crate::effect::provider::{OwnedHow, OwnedStep, Request, Told, Work};
use crate::format::{REASON_BYTES_MAX, RESULT_BYTES_MAX, Step, StepHow};
use crate::sabotage::{self, Sabotage};

type Undone<'a> = Pin<Box<dyn Future<Output = Result<(), StepError>> + 'a>>;

/// What undoes what was done: a step of this name.
type Undo = Box<dyn for<'a> FnOnce(&'a mut Steps, &'a str) -> Undone<'a>>;

/// Why no further step begins.
#[derive(Clone)]
enum Halt {
    Failed(StepError),
    InDoubt(String),
    /// What undoes the work was refused.
    HalfDone(String),
    TooLate,
    Stops(String),
}

/// The steps of a function's work on one record.
///
/// What a step has come to is remembered before the next one begins: after a crash the function is run again, and steps
/// that are done give what they gave, without doing anything. So
///
/// - everything that has an effect is in a step; what is around them may be run any number of times
/// - a function comes to the same steps in the same order, whenever it is run for a record: no clock, no random number and
///   nothing that changes decides about them, unless it is a step's result
/// - each step has a name of its own within the function, at most 255 bytes
///
/// Once a step has failed, no other begins: `?` hands its error on, and the attempt ends.
pub struct Steps {
    work: Arc<Work>,
    request: Request,
    replay: Replay,
    /// What steps have come to that is not committed: the last one's.
    pending: Vec<OwnedStep>,
    undo: Vec<(String, Undo)>,
    /// Whether the record is rejected: the steps are those that undo what was done.
    is_undoing: bool,
    halt: Option<Halt>,
    /// The step that has begun and not ended. One whose future was dropped stays here.
    within: Option<String>,
    settings: Arc<Settings>,
    pool: Option<Rc<Pool>>,
    progress: Rc<Progress>,
    tell: Sender<Told>,
    committed: mpsc::UnboundedReceiver<i64>,
}

/// What a run is made of.
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

    /// Calls whoever does something that cannot be taken back, with a key by which a repetition is recognised: the same
    /// for this record and step, however often it is tried. What it gives is remembered as JSON, up to 64 KiB.
    ///
    /// # Errors
    /// What `act` returns: [`StepError`] says what becomes of it. A step that was rejected before is rejected again.
    pub async fn call<T, F>(&mut self, name: &str, act: F) -> Result<T, StepError>
    where
        T: Serialize + DeserializeOwned,
        F: AsyncFnOnce(Key) -> Result<T, StepError>,
    {
        let is_marked = match self.begin(name)? {
            Next::Acts { is_marked } => is_marked,
            recorded => return self.recorded(name, recorded),
        };
        self.within = Some(name.to_owned());
        let came = self.act(name, is_marked, act).await;
        self.within = None;
        came
    }

    async fn act<T, F>(&mut self, name: &str, is_marked: bool, act: F) -> Result<T, StepError>
    where
        T: Serialize + DeserializeOwned,
        F: AsyncFnOnce(Key) -> Result<T, StepError>,
    {
        self.make_room()?;
        let is_unmarked = !is_marked && !sabotage::is_on(Sabotage::MarkNotWritten);
        if self.settings.window.is_none() && is_unmarked {
            self.pending.push(OwnedStep { name: name.to_owned(), how: OwnedHow::Begun });
        }
        self.commit().await?;
        if self
            .settings
            .window
            .is_some_and(|window| !window.allows_step(self.request.first_at_ms, (self.settings.clock)()))
        {
            return Err(self.halt(Halt::TooLate));
        }
        self.progress.is_acting(true);
        match act(self.key_of(name)).await {
            Ok(value) => {
                let result = self.written(name, &value)?;
                // A run after this one reads it.
                self.read::<T>(name, &result)?;
                self.pending.push(OwnedStep { name: name.to_owned(), how: OwnedHow::Done(result) });
                Ok(value)
            }
            Err(error) => Err(self.failed(name, error)),
        }
    }

    /// Carries statements out in one transaction of the worker's database ([`crate::Worker::postgres`]): **exactly once**,
    /// whatever happens, because the transaction also leaves the step's key there. What it gives is remembered as JSON, up
    /// to 64 KiB.
    ///
    /// The transaction is committed if `act` returns `Ok`, and only then.
    ///
    /// # Errors
    /// What `act` returns, where nothing has happened then; and a database that cannot do it now.
    pub async fn transaction<T, F>(&mut self, name: &str, act: F) -> Result<T, StepError>
    where
        T: Serialize + DeserializeOwned,
        F: AsyncFnOnce(&Transaction<'_>) -> Result<T, StepError>,
    {
        match self.begin(name)? {
            Next::Acts { .. } => {}
            recorded => return self.recorded(name, recorded),
        }
        self.within = Some(name.to_owned());
        let came = self.transact(name, act).await;
        self.within = None;
        came
    }

    async fn transact<T, F>(&mut self, name: &str, act: F) -> Result<T, StepError>
    where
        T: Serialize + DeserializeOwned,
        F: AsyncFnOnce(&Transaction<'_>) -> Result<T, StepError>,
    {
        self.make_room()?;
        self.commit().await?;
        let Some(pool) = self.pool.clone() else {
            let words = format!("the step `{name}` needs a database: name one with `Worker::postgres`");
            return Err(self.halt(Halt::Stops(words)));
        };
        let key = self.key_of(name);
        let topology = Arc::clone(&self.work.topology);
        let carried_out = pool
            .transact((&topology, name, key.as_str()), async move |transaction| match act(transaction).await {
                Ok(value) => match serde_json::to_vec(&value)? {
                    result if result.len() > RESULT_BYTES_MAX => Err(StepError::unknown(format!(
                        "what it gives has {} bytes as JSON, and at most {RESULT_BYTES_MAX} are remembered",
                        result.len()
                    ))),
                    result => Ok(Came::Done(result)),
                },
                Err(error) if error.is_rejected() => Ok(Came::Rejected(error.to_string())),
                Err(error) => Err(error),
            })
            .await;
        // A commit that was not answered is found by its key.
        self.carried_out(name, carried_out.unwrap_or_else(|error| Err(StepError::again(error.message))))
    }

    /// The same wherever the transactions are: `carry_out` carries the step out under its key, unless it was, and gives
    /// what it came to.
    ///
    /// # Errors
    /// As for [`Steps::transaction`].
    #[cfg_attr(not(ratchet_internals), doc(hidden))]
    pub async fn transaction_by<T, F>(&mut self, name: &str, carry_out: F) -> Result<T, StepError>
    where
        T: Serialize + DeserializeOwned,
        F: AsyncFnOnce(Key) -> Result<Came, StepError>,
    {
        match self.begin(name)? {
            Next::Acts { .. } => {}
            recorded => return self.recorded(name, recorded),
        }
        self.within = Some(name.to_owned());
        let came = self.transact_by(name, carry_out).await;
        self.within = None;
        came
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

    /// What the transaction of a step has come to.
    fn carried_out<T: Serialize + DeserializeOwned>(
        &mut self,
        name: &str,
        came: Result<Came, StepError>,
    ) -> Result<T, StepError> {
        match came {
            Ok(Came::Rejected(reason)) => {
                // Nothing has happened, whatever was attempted before.
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

    /// Says what undoes the steps so far, if a later one is rejected: then all of these are called in reverse order, as
    /// steps of their own, each with its own key. `name` is that step's: no other that undoes has it, but one that does
    /// something may.
    pub fn compensate<F>(&mut self, name: &str, undo: F)
    where
        F: AsyncFnOnce(Key) -> Result<(), StepError> + 'static,
    {
        self.register(name, Box::new(move |steps, name| Box::pin(steps.call(name, undo))));
    }

    /// The same in a transaction of the worker's database ([`Steps::transaction`]).
    pub fn compensate_by_transaction<F>(&mut self, name: &str, undo: F)
    where
        F: AsyncFnOnce(&Transaction<'_>) -> Result<(), StepError> + 'static,
    {
        self.register(name, Box::new(move |steps, name| Box::pin(steps.transaction(name, undo))));
    }

    /// The same wherever the transactions are ([`Steps::transaction_by`]).
    #[cfg_attr(not(ratchet_internals), doc(hidden))]
    pub fn compensate_by<F>(&mut self, name: &str, undo: F)
    where
        F: AsyncFnOnce(Key) -> Result<Came, StepError> + 'static,
    {
        self.register(name, Box::new(move |steps, name| Box::pin(steps.transaction_by(name, undo))));
    }

    fn register(&mut self, name: &str, undo: Undo) {
        // Now, and not once the record is refused and half of it is undone.
        let is_taken = self.undo.iter().any(|(other, _)| other == name);
        if let Some(words) = wrong_name(name, is_taken, "steps that undo,") {
            self.halt(Halt::Stops(words));
        }
        self.undo.push((name.to_owned(), undo));
    }

    /// The key of the step of this name that begins.
    fn key_of(&self, name: &str) -> Key {
        if sabotage::is_on(Sabotage::StepKeyOfAttempt) {
            return self.work.key_of(StepOf::Does(&format!("{name} {}", self.request.attempt)));
        }
        self.work.key_of(if self.is_undoing { StepOf::Undoes(name) } else { StepOf::Does(name) })
    }

    /// What the function has come to, once what it has told is committed.
    pub(super) async fn finish(mut self, came: Result<Reply, StepError>) -> End {
        let halted = match (self.halted(), came) {
            (Some(halt), _) => halt,
            (None, Ok(_)) if !self.replay.is_over() => Halt::Stops(self.replay.differs()),
            (None, Ok(reply)) => return End::Done(reply),
            (None, Err(error)) if error.is_rejected() => match self.reject(error.to_string()).await {
                Ok((reason, is_certain)) => return End::Rejected { reason, is_certain },
                Err(halt) => halt,
            },
            (None, Err(error)) => Halt::Failed(error),
        };
        // What is done stays done, whatever comes after it.
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

    /// Undoes what was done, as the function has rejected the record. Gives the reason, and whether it is certain that no
    /// step has acted but those that are remembered.
    async fn reject(&mut self, reason: String) -> Result<(String, bool), Halt> {
        let reason = reason[..reason.floor_char_boundary(REASON_BYTES_MAX)].to_owned();
        if self.replay.is_rejected() {
            self.replay.next(REJECTED);
        } else if !self.replay.is_over() {
            return Err(Halt::Stops(self.replay.differs()));
        } else {
            // What was remembered as refused, and was the end, is the end again.
            let was_refused = self.replay.ends_refused();
            self.commit().await.map_err(|error| self.halted().unwrap_or(Halt::Failed(error)))?;
            if self.request.may_have_acted && !was_refused {
                return Ok((reason, false));
            }
            let is_remembered = !self.replay.is_empty() || !self.undo.is_empty();
            if is_remembered && !sabotage::is_on(Sabotage::RefusalNotMarked) {
                let how = OwnedHow::Rejected(reason.clone());
                self.pending.push(OwnedStep { name: REJECTED.to_owned(), how });
            }
        }
        if sabotage::is_on(Sabotage::UndoneInOrder) {
            self.undo.reverse();
        }
        self.is_undoing = true;
        while let Some((name, undo)) = self.undo.pop() {
            if let Err(error) = undo(self, &name).await {
                let words = format!("what undoes the work (`{name}`) was refused: {error}; the work was: {reason}");
                return Err(match self.halted() {
                    // Whatever is done with what is in doubt, it would be refused again.
                    None | Some(Halt::InDoubt(_)) => Halt::HalfDone(words),
                    Some(halt) => halt,
                });
            }
        }
        match self.commit().await {
            Ok(()) if self.replay.is_over() => Ok((reason, true)),
            Ok(()) => Err(Halt::Stops(self.replay.differs())),
            Err(error) => Err(self.halted().unwrap_or(Halt::Failed(error))),
        }
    }

    /// Begins a step. Gives what was recorded of it, or that it acts.
    fn begin(&mut self, name: &str) -> Result<Next, StepError> {
        if let Some(halt) = self.halted() {
            return Err(halt.error());
        }
        // Those that undo were looked at when they were named.
        if !self.is_undoing
            && let Some(words) = wrong_name(name, self.replay.has(name), "steps")
        {
            return Err(self.halt(Halt::Stops(words)));
        }
        match self.replay.next(name) {
            Next::Differs => {
                let words = self.replay.differs();
                Err(self.halt(Halt::Stops(words)))
            }
            next => Ok(next),
        }
    }

    /// What was recorded of a step.
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
            self.halt(Halt::Stops(format!("what the step `{name}` gives cannot be written as JSON: {error}")))
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

    /// A step has failed. Gives the error to hand on.
    fn failed(&mut self, name: &str, error: StepError) -> StepError {
        match error.kind() {
            Kind::Rejected if self.request.may_have_acted && !sabotage::is_on(Sabotage::StepRefusedAfterAll) => {
                let words = format!("the step `{name}` was refused, and an attempt before may have done it: {error}");
                return self.halt(Halt::InDoubt(words));
            }
            Kind::Rejected => {
                self.progress.is_acting(false);
                let text = error.to_string();
                let how = OwnedHow::Rejected(text[..text.floor_char_boundary(REASON_BYTES_MAX)].to_owned());
                self.pending.push(OwnedStep { name: name.to_owned(), how });
                return error;
            }
            Kind::Again => self.progress.is_acting(false),
            Kind::Unknown => {}
        }
        self.halt(Halt::Failed(error))
    }

    /// Requires room for another step, and for what undoes the others, before it acts.
    fn make_room(&mut self) -> Result<(), StepError> {
        if self.replay.has_room(&self.pending) {
            return Ok(());
        }
        let words = "its steps have come to more than is remembered of a record (768 KiB): have them give less";
        Err(self.halt(Halt::Stops(words.to_owned())))
    }

    /// Why no further step begins, if none does.
    fn halted(&mut self) -> Option<Halt> {
        if let (None, Some(name)) = (&self.halt, &self.within) {
            let words = format!("the step `{name}` was begun, and its future was dropped: await it to its end");
            self.halt = Some(Halt::Failed(StepError::unknown(words)));
        }
        self.halt.clone()
    }

    /// No further step begins. Gives the error to hand on.
    fn halt(&mut self, halt: Halt) -> StepError {
        let error = halt.error();
        self.halt.get_or_insert(halt);
        error
    }

    /// Waits until everything that steps have come to is committed.
    async fn commit(&mut self) -> Result<(), StepError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let steps = std::mem::take(&mut self.pending);
        if !self.replay.push(&steps) {
            let words = "its steps have come to more than is remembered of a record (768 KiB): have them give less";
            return Err(self.halt(Halt::Stops(words.to_owned())));
        }
        let Request { number, attempt, .. } = self.request;
        // Whoever does not listen any more has abandoned this run.
        let _ = self.tell.send(Told::Steps { number, attempt, steps });
        self.progress.waits();
        let Some(first_at_ms) = self.committed.recv().await else { return std::future::pending().await };
        self.progress.goes_on();
        (self.request.first_at_ms, self.request.may_have_acted) = (first_at_ms, false);
        Ok(())
    }
}

/// What is wrong with the name of another one of these, if something is.
fn wrong_name(name: &str, is_taken: bool, of: &str) -> Option<String> {
    match is_name(name) {
        false => Some(format!("a step's name has from 1 to 255 bytes, and one has {}", name.len())),
        true if is_taken => Some(format!("there are two {of} `{name}`, and each needs a name of its own")),
        true => None,
    }
}

impl Halt {
    fn error(&self) -> StepError {
        match self {
            Self::Failed(error) => error.clone(),
            Self::InDoubt(words) | Self::HalfDone(words) | Self::Stops(words) => StepError::unknown(words.clone()),
            Self::TooLate => StepError::again("the window of the step's key has passed"),
        }
    }
}
