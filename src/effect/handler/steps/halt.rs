//! Why no further step begins in an attempt, and how that ends it.

use super::super::StepError;
use super::super::error::Kind;
use super::Steps;
use crate::effect::provider::{OwnedHow, OwnedStep};
use crate::format::REASON_BYTES_MAX;
use crate::sabotage::{self, Sabotage};

/// Why no further step begins.
#[derive(Clone)]
pub(super) enum Halt {
    Failed(StepError),
    InDoubt(String),
    /// A step that undoes the work was refused.
    HalfDone(String),
    TooLate,
    Stops(String),
}

impl Steps {
    /// Ends a failed step. Returns the error to pass on.
    pub(super) fn failed(&mut self, name: &str, error: StepError) -> StepError {
        match error.kind() {
            Kind::Rejected if self.request.may_have_acted && !sabotage::is_on(Sabotage::StepRefusedAfterAll) => {
                let words = format!("the step `{name}` was refused, but an earlier attempt may have done it: {error}");
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

    /// Why no further step begins; `None` if one may begin.
    pub(super) fn halted(&mut self) -> Option<Halt> {
        if let (None, Some(name)) = (&self.halt, &self.within) {
            let words =
                format!("the future of the step `{name}` was dropped before it had finished: await it to completion");
            self.halt = Some(Halt::Failed(StepError::unknown(words)));
        }
        self.halt.clone()
    }

    /// Lets no further step begin. Returns the error to pass on.
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
            Self::InDoubt(words) | Self::HalfDone(words) | Self::Stops(words) => StepError::unknown(words.clone()),
            Self::TooLate => StepError::again("the window of the step's key has passed"),
        }
    }
}
