//! What a store may do wrong, to see whether the schedules see it.

/// A mistake. That a lease is extended for everybody that asks does no harm here, and is left to the stores' suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// An answer is remembered from every sender: what almost all others do.
    CompleteByKeyAlone,
    /// A reservation is given back by everybody that asks for it.
    ReleaseByKeyAlone,
    /// A lease that is extended ends all the same.
    LeaseNotExtended,
    /// A lease that lasts is taken over.
    LeaseIgnored,
    /// It is looked whether a request is reserved, and reserved some moments later.
    LookedThenReserved,
    /// An answer is said to be remembered, and is not.
    AnswerLost,
    /// An answer replaces the one that is there.
    AnswerReplaced,
    /// A request whose lease is over is taken over where nobody may.
    DoubtIgnored,
    /// What is answered is forgotten when it is given back.
    AnswerReleased,
    /// An answer is remembered for ever.
    NeverForgotten,
    /// What is to be forgotten stays where it is.
    NotTidied,
    /// What is not to be forgotten yet is removed.
    TidiedTooSoon,
    /// An answer is removed when its reservation would have been.
    TidiedByOldTime,
    /// What is to be forgotten by one clock is removed by another one.
    TidiedByAnotherClock,
    /// A store that finds another one at work says that it is not available.
    BusyIsDown,
    /// An answer is said to be remembered before it is on the disk.
    AnswerNotSynced,
    /// So is a reservation that nobody may take over.
    DoubtNotSynced,
}

impl Mistake {
    /// Whether this is how it shows, where it could be taken for another one.
    pub fn is_seen_by(self, wrong: &str) -> bool {
        let says = |words: &[&str]| words.iter().any(|words| wrong.contains(words));
        match self {
            Self::NeverForgotten => says(&["it is remembered beyond its time"]),
            Self::NotTidied => says(&["are still there"]),
            Self::TidiedTooSoon | Self::TidiedByOldTime | Self::TidiedByAnotherClock | Self::AnswerNotSynced => {
                says(&["it was answered, and is carried out again", "two answers"])
            }
            Self::BusyIsDown => says(&["it is passed on, and the store answers"]),
            Self::DoubtNotSynced => says(&["it may have been carried out, and is again"]),
            _ => true,
        }
    }
}

pub const MISTAKES: [Mistake; 17] = [
    Mistake::CompleteByKeyAlone,
    Mistake::ReleaseByKeyAlone,
    Mistake::LeaseNotExtended,
    Mistake::LeaseIgnored,
    Mistake::LookedThenReserved,
    Mistake::AnswerLost,
    Mistake::AnswerReplaced,
    Mistake::DoubtIgnored,
    Mistake::AnswerReleased,
    Mistake::NeverForgotten,
    Mistake::NotTidied,
    Mistake::TidiedTooSoon,
    Mistake::TidiedByOldTime,
    Mistake::TidiedByAnotherClock,
    Mistake::BusyIsDown,
    Mistake::AnswerNotSynced,
    Mistake::DoubtNotSynced,
];
