//! Deliberate mistakes, by which the simulation's judge is judged: one is switched on, and the judge has to see it.
//!
//! Only with the cargo feature `mistakes`, which nothing but `make sim-mistakes` asks for. Without it [`made`] is
//! `false` when it is compiled, and nothing of any mistake is left. With it nothing is different either, until a
//! thread is told to make one; the program has no way to say so, and does not start.
//!
//! Some stand in what the simulation has in place of `cluster::kafka`, which is not part of what it runs.
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
    /// the store's position is written before its entries
    MetaBeforeEntries,
    /// an error of the store's disk is passed over
    StoreErrorIgnored,
    /// the epochs are no part of what a transaction writes
    EpochsNotWritten,
    /// what was looked up for one batch is used for the next
    LookUpsKept,
    /// records of one transaction do not see each other
    InBatchDuplicatesUnseen,
    /// entries are looked for in the open transaction only
    StoreNotAsked,
    /// a version that is known is taken for a newer one
    EqualVersionForwarded,
    /// versions are compared across epochs
    EpochIgnored,
    /// a forwarded record gets the present for its timestamp
    TimestampReplaced,
    /// the last offset is committed, not the one after it
    OffsetWithoutPlusOne,
    /// a transaction carries the offsets of only one of its tasks
    OffsetsOfOneTask,
    /// a transaction that has only swept or passed markers carries no offsets
    SweepWithoutOffsets,
    /// what expires is told by the wall clock
    SweepByWallClock,
    /// a restore passes over tombstones
    TombstoneDropped,
    /// the position record comes first in its transaction
    PositionNotLast,
    /// entries go to another partition of the changelog
    ChangelogPartitionWrong,
    /// the membership as it was first learnt is used for ever
    StaleGeneration,
    /// offsets are committed as by a member that has not joined
    UnjoinedMembership,
    /// lost partitions are worked on
    LostKept,
    /// a task is let go while it is in the open transaction
    ReleasedInTransaction,
    /// a commit whose outcome is unknown is taken for an abort
    UnknownTakenForAbort,
    /// a commit whose outcome is unknown is taken for done
    UnknownTakenForCommit,
    /// a producer is used on after a fence or a doubt
    ProducerUsedOn,
    /// an aborted transaction is never told to end
    AbortSkipped,
    /// tasks go on after an abort as if nothing had been
    TasksNotRestarted,
    /// after an abort reading goes on where it was
    ReadPositionKept,
    /// what a transaction has committed is not noted for claims and releases
    CommitmentNotNoted,
    /// a takeover does not wait for pending offsets before it claims
    ClaimUnsettled,
    /// a takeover passes over the changelog's open transaction
    OpenTransactionPassed,
    /// a restore ends at the changelog's last stable offset
    RestoreToStableOffset,
    /// a restore waits for a record at the changelog's end
    RestoreToLastRecord,
    /// a load names the changelog's end before it is there
    LoadPositionAhead,
    /// of a key's records in a load the oldest counts
    LoadOldestWins,
    /// a restore reads another partition's changelog
    RestoreFromOtherPartition,
    /// a store that is being restored has the committed token
    TokenInRestore,
    /// a store that has come as far as the group's offset is called current
    SourceOffsetAlone,
    /// a store of another partition is built upon
    PartitionNotCompared,
    /// a changelog that was recreated is adopted
    ChangelogAdopted,
    /// a store is rebuilt from a changelog that has lost its beginning
    TruncatedRebuilt,
    /// a store that cannot be built upon is removed before another is complete
    StoreNotSetAside,
    /// a store that is complete and behind is loaded into as it is
    WholeStoreLoadedInto,
    /// a changelog that is gone is created anew although the group has committed transactions of it
    ChangelogCreatedAnew,
    /// where the input goes on is not recorded, if nothing before it was processed
    PositionNotRecorded,
    /// a store that stands beyond its changelog's end is worked on
    ChangelogEndNotCompared,
    /// where a transaction's changelog records come to stand is not looked at
    DeliveryNotCompared,
    /// a longer retention moves the horizon back
    HorizonMovedBack,
    /// more ranges of offsets are kept than may be
    RangesUnbounded,
    /// more scopes of versions are kept than may be
    ScopesUnbounded,
    /// what looks like the future by the host's clock is set aside, and Kafka's time not asked for
    KafkaTimeNotAsked,
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
