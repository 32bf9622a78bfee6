//! Deliberate mistakes, by which the simulation's judge is judged: one is switched on, and the judge has to see it.
//!
//! Only with the cargo feature `mistakes`, which nothing but `make sim-mistakes` asks for. Without it [`made`] is
//! `false` when it is compiled, and nothing of any mistake is left. With it nothing is different either, until a
//! thread is told to make one; the program has no way to say so, and does not start.
//!
//! What the cluster or the disk can do in the engine's stead is no mistake here, but a lie of the simulation's
//! (`tests/sim/lies`).
//!
//! To keep something of a transaction that was aborted, its writes, stream time, epochs or what it had processed, is none
//! of them: what an open transaction would change is its own (`engine::share`), and goes when it goes.

#[cfg(feature = "mistakes")]
use std::cell::Cell;

macro_rules! mistakes {
    ($($(#[doc = $meaning:literal])+ $name:ident,)+) => {
        /// What is done wrongly.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Mistake {
            $($(#[doc = $meaning])+ $name,)+
        }

        impl Mistake {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// What is done wrongly, in words.
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => concat!($($meaning),+).trim_ascii(),)+
                }
            }
        }
    };
}

mistakes! {
    /// the store is written before Kafka has committed
    StoreBeforeCommit,
    /// what was looked up for one batch is used for the next
    LookUpsKept,
    /// records of one transaction do not see each other
    InBatchDuplicatesUnseen,
    /// a version that is known is taken for a newer one
    EqualVersionForwarded,
    /// versions are compared across epochs
    EpochIgnored,
    /// what expires is told by the wall clock
    SweepByWallClock,
    /// a task is let go while it is in the open transaction
    ReleasedInTransaction,
    /// a commit whose outcome is unknown is taken for an abort
    UnknownTakenForAbort,
    /// a producer is used on after a fence or a doubt
    ProducerUsedOn,
    /// tasks go on after an abort as if nothing had been
    TasksNotRestarted,
    /// what a transaction has committed is not noted for claims and releases
    CommitmentNotNoted,
    /// a load names the changelog's end before it is there
    LoadPositionAhead,
    /// of a key's records in a load the oldest counts
    LoadOldestWins,
    /// a store that is being restored has the committed token
    TokenInRestore,
    /// a store that has come as far as the group's offset is called current
    SourceOffsetAlone,
    /// a changelog that was recreated is adopted
    ChangelogAdopted,
    /// a store that is complete and behind is loaded into as it is
    WholeStoreLoadedInto,
    /// a changelog that is gone is created anew although the group has committed transactions of it
    ChangelogCreatedAnew,
    /// a store that stands beyond its changelog's end is worked on
    ChangelogEndNotCompared,
    /// a longer retention moves the horizon back
    HorizonMovedBack,
}

#[cfg(feature = "mistakes")]
thread_local! {
    /// What is done wrongly on this thread.
    static MADE: Cell<Option<Mistake>> = const { Cell::new(None) };
}

/// From now on does this wrongly on this thread, and nothing else.
#[cfg(feature = "mistakes")]
pub fn make(mistake: Option<Mistake>) {
    MADE.set(mistake);
}

/// Whether this is to be done wrongly.
#[cfg(feature = "mistakes")]
#[inline]
#[must_use]
pub fn made(mistake: Mistake) -> bool {
    MADE.get() == Some(mistake)
}

/// Whether this is to be done wrongly: never.
#[cfg(not(feature = "mistakes"))]
#[inline]
#[must_use]
pub const fn made(_: Mistake) -> bool {
    false
}
