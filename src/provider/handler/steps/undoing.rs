//! Compensations, which undo a function's work: they are registered as the work is done, and run in reverse order once
//! the record is rejected, each as a step of its own.
//!
//! Each attempt runs the function again. `replay` is the journal, which has the steps that earlier attempts have
//! recorded, and the function's position in it. A [`Halt`] says why no further step begins. A [`Sabotage`] is a
//! deliberate fault, which only simulations switch on.

use std::future::Future;
use std::pin::Pin;

use super::super::journal::REJECTION_MARK;
use super::super::{Key, StepError, Transaction};
use super::halt::Halt;
use super::{Steps, name_mistake};
use crate::effect::provider::{OwnedStep, OwnedStepState};
use crate::format::REASON_BYTES_MAX;
use crate::postgres::steps::StepOutcome;
use crate::sabotage::{self, Sabotage};

type CompensationFuture<'a> = Pin<Box<dyn Future<Output = Result<(), StepError>> + 'a>>;

/// A compensation: runs as the step of the given name.
pub(super) type Compensation = Box<dyn for<'a> FnOnce(&'a mut Steps, &'a str) -> CompensationFuture<'a>>;

impl Steps {
    /// Registers a compensation, which undoes the steps so far, in case the record is rejected later: then all
    /// compensations run in reverse order, each as a step of its own with its own key. `name` is that step's name: no
    /// other compensation may have it, but a step that does something may.
    pub fn compensate<F>(&mut self, name: &str, compensation: F)
    where
        F: AsyncFnOnce(Key) -> Result<(), StepError> + 'static,
    {
        self.register(name, Box::new(move |steps, name| Box::pin(steps.call(name, compensation))));
    }

    /// Registers a compensation as [`Steps::compensate`] does, but one that runs in a transaction of the worker's
    /// database ([`Steps::transaction`]).
    pub fn compensate_by_transaction<F>(&mut self, name: &str, compensation: F)
    where
        F: AsyncFnOnce(&Transaction<'_>) -> Result<(), StepError> + 'static,
    {
        self.register(name, Box::new(move |steps, name| Box::pin(steps.transaction(name, compensation))));
    }

    /// Registers a compensation as [`Steps::compensate`] does, but one that is carried out under its key in any
    /// database ([`Steps::transaction_by`]).
    #[cfg_attr(not(ratchet_internals), doc(hidden))]
    pub fn compensate_by<F>(&mut self, name: &str, compensation: F)
    where
        F: AsyncFnOnce(Key) -> Result<StepOutcome, StepError> + 'static,
    {
        self.register(name, Box::new(move |steps, name| Box::pin(steps.transaction_by(name, compensation))));
    }

    fn register(&mut self, name: &str, compensation: Compensation) {
        // The name is checked now, rather than once the record is rejected and half of its work is undone.
        let is_taken = self.compensations.iter().any(|(other, _)| other == name);
        if let Some(message) = name_mistake(name, is_taken, "compensations") {
            self.halt(Halt::MustStopTask(message));
        }
        self.compensations.push((name.to_owned(), compensation));
    }

    /// Runs all compensations, after the function has rejected the record. Returns the reason, and whether the work is
    /// certainly not done: only the recorded steps have acted, and the compensations have run. `false`: an earlier
    /// attempt may have acted beyond the recorded steps, and no compensation was run.
    pub(super) async fn compensate_all(&mut self, reason: String) -> Result<(String, bool), Halt> {
        let reason = reason[..reason.floor_char_boundary(REASON_BYTES_MAX)].to_owned();
        if self.replay.is_at_rejection() {
            // An earlier attempt has rejected the record here: its compensations continue.
            self.replay.begin(REJECTION_MARK);
        } else if !self.replay.is_at_end() {
            // An earlier attempt has recorded another step here, instead of a rejection.
            return Err(Halt::MustStopTask(self.replay.difference_message()));
        } else {
            // If the last recorded step was rejected, and the function ends there now, each attempt since has ended
            // there too, and has not acted.
            let was_rejected = self.replay.ends_with_rejection();
            self.commit().await.map_err(|error| self.reason_to_halt().unwrap_or(Halt::Failed(error)))?;
            if self.request.may_have_acted && !was_rejected {
                return Ok((reason, false));
            }
            // The rejection is recorded as an entry of its own, unless there is nothing to undo and nothing recorded.
            let is_recorded = !self.replay.is_empty() || !self.compensations.is_empty();
            if is_recorded && !sabotage::is_on(Sabotage::RefusalNotMarked) {
                let state = OwnedStepState::Rejected(reason.clone());
                self.pending.push(OwnedStep { name: REJECTION_MARK.to_owned(), state });
            }
        }
        if sabotage::is_on(Sabotage::UndoneInOrder) {
            self.compensations.reverse();
        }
        self.is_undoing = true;
        while let Some((name, compensation)) = self.compensations.pop() {
            if let Err(error) = compensation(self, &name).await {
                let message =
                    format!("the compensation `{name}` was refused: {error}; the record had been rejected: {reason}");
                return Err(match self.reason_to_halt() {
                    // Another attempt, as with `on_in_doubt: retry`, would be refused again.
                    None | Some(Halt::InDoubt(_)) => Halt::HalfDone(message),
                    Some(halt) => halt,
                });
            }
        }
        match self.commit().await {
            Ok(()) if self.replay.is_at_end() => Ok((reason, true)),
            Ok(()) => Err(Halt::MustStopTask(self.replay.difference_message())),
            Err(error) => Err(self.reason_to_halt().unwrap_or(Halt::Failed(error))),
        }
    }
}
