//! Undoing a function's work: compensations are registered as the work is done, and run in reverse order once the
//! record is rejected, each as a step of its own.

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

/// A compensation: runs as the step of the given name.
pub(super) type Undo = Box<dyn for<'a> FnOnce(&'a mut Steps, &'a str) -> Undone<'a>>;

impl Steps {
    /// Registers what undoes the steps so far, in case the record is rejected later: then all compensations are called
    /// in reverse order, as steps of their own, each with its own key. `name` is that step's name: no other
    /// compensation may have it, but a step that does something may.
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

    /// The same for any database ([`Steps::transaction_by`]).
    #[cfg_attr(not(ratchet_internals), doc(hidden))]
    pub fn compensate_by<F>(&mut self, name: &str, undo: F)
    where
        F: AsyncFnOnce(Key) -> Result<Came, StepError> + 'static,
    {
        self.register(name, Box::new(move |steps, name| Box::pin(steps.transaction_by(name, undo))));
    }

    fn register(&mut self, name: &str, undo: Undo) {
        // Checked now, not when the record has been rejected and half of it is undone.
        let is_taken = self.undo.iter().any(|(other, _)| other == name);
        if let Some(words) = wrong_name(name, is_taken, "compensations") {
            self.halt(Halt::Stops(words));
        }
        self.undo.push((name.to_owned(), undo));
    }

    /// Undoes what was done, after the function has rejected the record. Returns the reason, and whether it is certain
    /// that only the remembered steps have acted.
    pub(super) async fn reject(&mut self, reason: String) -> Result<(String, bool), Halt> {
        let reason = reason[..reason.floor_char_boundary(REASON_BYTES_MAX)].to_owned();
        if self.replay.is_rejected() {
            self.replay.next(REJECTED);
        } else if !self.replay.is_over() {
            return Err(Halt::Stops(self.replay.differs()));
        } else {
            // If the function ends at a recorded refusal, earlier attempts ended there too: none has acted since.
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
                let words =
                    format!("the compensation `{name}` was refused: {error}; the record had been rejected: {reason}");
                return Err(match self.halted() {
                    // Whatever `on_in_doubt` says, it would be refused again.
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
