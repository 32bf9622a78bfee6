//! What undoes a function's work: named as the work is done, and done in reverse once the record is rejected, each as a
//! step of its own.

use std::future::Future;
use std::pin::Pin;

use super::super::journal::REJECTED;
use super::super::{Key, StepError, Transaction};
use super::halt::Halt;
use super::{Steps, wrong_name};
use crate::effect::postgres::steps::Came;
use crate::effect::provider::{OwnedHow, OwnedStep};
use crate::format::REASON_BYTES_MAX;
use crate::sabotage::{self, Sabotage};

type Undone<'a> = Pin<Box<dyn Future<Output = Result<(), StepError>> + 'a>>;

/// What undoes what was done: a step of this name.
pub(super) type Undo = Box<dyn for<'a> FnOnce(&'a mut Steps, &'a str) -> Undone<'a>>;

impl Steps {
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

    /// Undoes what was done, as the function has rejected the record. Gives the reason, and whether it is certain that no
    /// step has acted but those that are remembered.
    pub(super) async fn reject(&mut self, reason: String) -> Result<(String, bool), Halt> {
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
}
