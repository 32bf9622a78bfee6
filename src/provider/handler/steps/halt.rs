//! The reasons why no further step begins in an attempt, and how they end the attempt.
//!
//! The outcomes of a handler's steps are recorded in a journal; a new attempt has to reach the same steps again, in the
//! same order. `sabotage::is_on` says whether a test has switched on a deliberate fault.

use super::super::StepError;
use super::super::error::Kind;
use super::Steps;
use crate::effect::provider::{OwnedStep, OwnedStepState};
use crate::format::REASON_BYTES_MAX;
use crate::sabotage::{self, Sabotage};

/// The reason why no further step begins. The strings are messages for people.
#[derive(Clone)]
pub(super) enum Halt {
    /// A step has failed, or the function has returned an error; another attempt may follow.
    Failed(StepError),
    /// A step was rejected, but an earlier attempt may have done it.
    InDoubt(String),
    /// The record is rejected, and a compensation, which should have undone a step, was rejected too.
    HalfDone(String),
    /// The step's idempotency key may expire at the provider before a request under it would end.
    TooLate,
    /// The handler's code does not fit the recorded steps, or breaks a rule of steps. Another attempt would end in the
    /// same way, so the task stops before the record, until another version of the code runs or an operator decides.
    MustStopTask(String),
}

impl Steps {
    /// Ends a failed step. Returns the error for the function.
    pub(super) fn fail_step(&mut self, name: &str, error: StepError) -> StepError {
        match error.kind() {
            // `may_have_acted`: an earlier attempt may have acted in a step whose outcome is not recorded.
            Kind::Rejected if self.request.may_have_acted && !sabotage::is_on(Sabotage::StepRefusedAfterAll) => {
                let message =
                    format!("the step `{name}` was refused, but an earlier attempt may have done it: {error}");
                return self.halt(Halt::InDoubt(message));
            }
            Kind::Rejected => {
                self.progress.set_may_have_acted(false);
                let text = error.to_string();
                let state = OwnedStepState::Rejected(text[..text.floor_char_boundary(REASON_BYTES_MAX)].to_owned());
                self.pending.push(OwnedStep { name: name.to_owned(), state });
                return error;
            }
            Kind::Again => self.progress.set_may_have_acted(false),
            Kind::Unknown => {}
        }
        self.halt(Halt::Failed(error))
    }

    /// The reason why no further step begins; `None` if a step may begin. Detects, too, that the current step's future
    /// was dropped before its end.
    pub(super) fn reason_to_halt(&mut self) -> Option<Halt> {
        if let (None, Some(name)) = (&self.halt, &self.current_step) {
            let message =
                format!("the future of the step `{name}` was dropped before it had finished: await it to completion");
            self.halt = Some(Halt::Failed(StepError::unknown(message)));
        }
        self.halt.clone()
    }

    /// Prevents further steps. If there is a reason already, that reason remains. Returns the error for the function.
    pub(super) fn halt(&mut self, halt: Halt) -> StepError {
        let error = halt.error();
        self.halt.get_or_insert(halt);
        error
    }
}

impl Halt {
    pub(super) fn error(&self) -> StepError {
        match self {
            Self::Failed(error) => error.clone(),
            Self::InDoubt(message) | Self::HalfDone(message) | Self::MustStopTask(message) => {
                StepError::unknown(message.clone())
            }
            Self::TooLate => StepError::again("the window of the step's key has passed"),
        }
    }
}
