//! Deliberate mistakes that test the simulation's judges: the judges have to detect each of them.
//!
//! They correspond to the engine's mistakes in `crates/core/src/sabotage.rs`. The wire's own simulation detects all of
//! them; the engine's simulation detects those that are visible between a lane and a single broker. They exist only in
//! tests and with the feature `sabotage`; otherwise `is_on` is `false` at compile time.

macro_rules! mistakes {
    ($($(#[doc = $group:literal])+ $list:ident { $($(#[doc = $meaning:literal])+ $name:ident,)+ })+) => {
        /// A deliberate mistake.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Mistake {
            $($($(#[doc = $meaning])+ $name,)+)+
        }

        impl Mistake {
            $($(#[doc = $group])+
            pub const $list: &[Self] = &[$(Self::$name),+];)+

            /// What goes wrong, in words.
            pub fn meaning(self) -> &'static str {
                match self {
                    $($(Self::$name => concat!($($meaning),+).trim_ascii(),)+)+
                }
            }
        }
    };
}

mistakes! {
    /// Mistakes of the fetcher.
    FETCHER {
        /// Aborted records are passed on.
        AbortedPassedOn,
        /// The last batch of a response is taken although it was cut off.
        StartedBatchTaken,
        /// A marker is taken for a record.
        MarkerAsRecord,
        /// Leaders' epochs are neither compared nor sent.
        LeaderEpochIgnored,
        /// A response is taken for whatever is wanted now.
        ResponseMatchedWrongly,
        /// The position moves by a batch that was cut off.
        StartedBatchPassed,
        /// What was buffered is used after the partition was started anew.
        BufferedUsedAfterRestart,
        /// A response without records of a partition, beside those of others, counts as the end of it.
        EmptinessBelieved,
    }
    /// Mistakes of the writer.
    WRITER {
        /// After a batch was sent again, the next one has its sequence.
        SequenceNotRaised,
        /// The epoch that the end of a transaction gives is not taken.
        FormerEpoch,
        /// The epoch is not raised after an abort that leaves sequences open.
        EpochNotRaised,
        /// A batch that got no answer is sent again under another sequence.
        TwoSequences,
        /// Offsets are committed without the member's generation.
        NoGeneration,
        /// A partition is taken for added because it was in the transaction before.
        AddedBefore,
        /// The answer to a request is taken for that to another one.
        WrongAnswer,
        /// What was sent last is sent again first, and without waiting for the others.
        LastFirst,
        /// An end of a transaction that got no answer is taken for a success.
        UnknownIsSuccess,
        /// What stands behind a refused batch is sent and committed.
        RefusedIsSkipped,
        /// Transactions go on after a request of one got no answer.
        DoubtIgnored,
        /// The end is requested while records are under way.
        EndBeforeFlush,
        /// A commit that got no answer is taken for an abort.
        UnknownIsAbort,
    }
}

#[cfg(any(test, feature = "sabotage"))]
thread_local! {
    /// The mistake that this thread makes.
    static ACTIVE: std::cell::Cell<Option<Mistake>> = const { std::cell::Cell::new(None) };
}

/// Makes this mistake, and no other, on this thread.
#[cfg(any(test, feature = "sabotage"))]
pub fn switch_on(mistake: Option<Mistake>) {
    ACTIVE.set(mistake);
}

/// Whether this mistake is made on this thread.
#[cfg(any(test, feature = "sabotage"))]
pub(super) fn is_on(mistake: Mistake) -> bool {
    ACTIVE.get() == Some(mistake)
}

/// Whether this mistake is made: never.
#[cfg(not(any(test, feature = "sabotage")))]
pub(super) const fn is_on(_: Mistake) -> bool {
    false
}
