//! Lies, which test the judge as [`ratchet::sabotage`] does: cluster or disk do something to the engine that would be
//! the engine's own bug if it did so itself. The decorators [`Liar`] and [`LyingDisk`] tell them, and the brokers
//! (`net`) those that a client would notice: neither the engine nor the client knows of any.

use std::cell::Cell;

mod cluster;
mod disk;

pub use cluster::Liar;
pub use disk::LyingDisk;

macro_rules! lies {
    ($(#[doc = $meaning:literal] $name:ident,)+) => {
        /// What is done wrongly.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Lie {
            $(#[doc = $meaning] $name,)+
        }

        #[cfg(feature = "sabotage")]
        impl Lie {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// What is done wrongly, in words.
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => $meaning.trim_ascii(),)+
                }
            }
        }
    };
}

lies! {
    /// the store's position is written before its entries
    MetaBeforeEntries,
    /// an error of the store's disk is ignored
    StoreErrorIgnored,
    /// entries are looked up in the open transaction only
    StoreNotAsked,
    /// a store of another partition is used
    PartitionNotCompared,
    /// an unusable store is removed before another is complete
    StoreNotSetAside,
    /// the epochs are missing from what a transaction writes
    EpochsNotWritten,
    /// the input's position is not recorded if nothing before it was processed
    PositionNotRecorded,
    /// the position record comes first in its transaction
    PositionNotLast,
    /// entries go to another partition of the changelog
    ChangelogPartitionWrong,
    /// a forwarded record gets the current time as its timestamp
    TimestampReplaced,
    /// the last offset is committed, not the one after it
    OffsetWithoutPlusOne,
    /// a transaction carries the offsets of only one of its tasks
    OffsetsOfOneTask,
    /// a transaction that has read nothing carries no offsets
    SweepWithoutOffsets,
    /// a commit with an unknown outcome is taken for done
    UnknownTakenForCommit,
    /// an aborted transaction is never ended
    AbortSkipped,
    /// the offsets at which a transaction's changelog records are written are not checked
    DeliveryNotCompared,
    /// the first known membership is used for ever
    StaleGeneration,
    /// offsets are committed as if by a member that has not joined
    UnjoinedMembership,
    /// processing continues on lost partitions
    LostKept,
    /// a call's settlement is committed without fencing, even if its task has another owner by then
    SettledUnconditionally,
    /// a lane that has lost its tasks settles what it has called, as if they were still its own
    SettledByZombie,
    /// a lane that has lost its tasks commits their handlers' journals, as if the tasks were still its own
    JournaledByZombie,
    /// after an abort, reading continues where it was
    ReadPositionKept,
    /// a takeover does not wait for pending offsets before it claims
    ClaimUnsettled,
    /// a takeover ignores the changelog's open transaction
    OpenTransactionPassed,
    /// a restore ends at the changelog's last stable offset
    RestoreToStableOffset,
    /// a restore waits for a record at the changelog's end
    RestoreToLastRecord,
    /// a restore reads the changelog of another partition
    RestoreFromOtherPartition,
    /// a restore ignores tombstones
    TombstoneDropped,
    /// a store is rebuilt from a changelog that has lost its beginning
    TruncatedRebuilt,
    /// a record that seems to be from the future by the host's clock is set aside, whatever Kafka's time is
    KafkaTimeNotAsked,
    /// a database does not compare a row's epoch and token before it writes it
    RowNotCompared,
    /// a transaction that causes nothing in the database does not write the row
    SweepWithoutRow,
    /// Kafka commits before the database does
    KafkaBeforeSink,
    /// a row is compared with the changelog before Kafka has settled
    RowBeforeSettled,
    /// a database's answer to COMMIT is not looked at: a failed transaction counts as committed
    TagIgnored,
    /// a gate takes a partition's own mark for another's
    OwnMarkUnknown,
    /// a gate reads marks before it leaves them, not in one step
    MarksNotAtOnce,
    /// a step's transaction leaves no row
    StepRowNotKept,
    /// a handler that was abandoned goes on, as if what it tells were committed
    AbandonedGoesOn,
    /// more ranges of offsets are kept than the bound
    RangesUnbounded,
    /// more scopes of versions are kept than the bound
    ScopesUnbounded,
}

thread_local! {
    static TOLD: Cell<Option<Lie>> = const { Cell::new(None) };
}

/// From now on this lie, and no other, is told on this thread.
#[cfg(feature = "sabotage")]
pub fn tell(lie: Option<Lie>) {
    TOLD.set(lie);
}

/// Whether this lie is told on this thread.
pub fn is_told(lie: Lie) -> bool {
    TOLD.get() == Some(lie)
}
