//! Deliberate mistakes of the wire (this client for Kafka) that test the simulation's judges, which check what the
//! client has done: the judges have to detect each mistake.
//!
//! The engine's mistakes, in `crates/core/src/sabotage.rs`, are their counterpart. The wire's own simulation detects
//! all of the wire's mistakes; the engine's simulation detects those that are visible between a lane (one thread that
//! reads and writes) and a single broker. Mistakes can be made only in tests or with the feature `sabotage`; otherwise
//! `is_on` is `false` at compile time.

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
        /// The last batch of a response is used although it is truncated.
        StartedBatchTaken,
        /// A transaction marker is passed on as a record.
        MarkerAsRecord,
        /// Leader epochs are neither compared nor sent.
        LeaderEpochIgnored,
        /// A response is applied although the partition's position has changed since the request.
        ResponseMatchedWrongly,
        /// The position advances past a truncated batch.
        StartedBatchPassed,
        /// Buffered records are used after the partition was restarted.
        BufferedUsedAfterRestart,
        /// A partition counts as read to its end if a response contains records of other partitions only.
        EmptinessBelieved,
    }
    /// Mistakes of the writer.
    WRITER {
        /// After a batch was resent, the next batch does not advance the sequence number.
        SequenceNotRaised,
        /// The epoch in the response to the end of a transaction is ignored.
        FormerEpoch,
        /// The epoch is not raised after an abort with batches that are not in the log.
        EpochNotRaised,
        /// A batch that received no response is resent with a different sequence number.
        TwoSequences,
        /// Offsets are committed without the member's generation.
        NoGeneration,
        /// A partition counts as added to the transaction because it was in the previous one.
        AddedBefore,
        /// A response is matched with a different request.
        WrongAnswer,
        /// The last batch is resent first, without waiting for the other batches.
        LastFirst,
        /// A request to end a transaction that received no response counts as successful.
        UnknownIsSuccess,
        /// The batches after a refused batch are sent and committed.
        RefusedIsSkipped,
        /// New transactions begin although a request of an earlier transaction received no response.
        DoubtIgnored,
        /// The end of a transaction is requested while records are still being sent.
        EndBeforeFlush,
        /// A commit request that received no response counts as an abort.
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
