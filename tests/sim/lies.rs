//! Lies, by which the judge is judged as by [`ratchet::sabotage`]: what the cluster or the disk does to the engine that
//! would be the engine's own mistake if it did so itself. They are told by decorators, [`Liar`] and [`LyingDisk`]: neither
//! the engine nor the simulated client knows of any.

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
    /// an error of the store's disk is passed over
    StoreErrorIgnored,
    /// entries are looked for in the open transaction only
    StoreNotAsked,
    /// a store of another partition is built upon
    PartitionNotCompared,
    /// a store that cannot be built upon is removed before another is complete
    StoreNotSetAside,
    /// the epochs are no part of what a transaction writes
    EpochsNotWritten,
    /// where the input goes on is not recorded, if nothing before it was processed
    PositionNotRecorded,
    /// the position record comes first in its transaction
    PositionNotLast,
    /// entries go to another partition of the changelog
    ChangelogPartitionWrong,
    /// a forwarded record gets the present for its timestamp
    TimestampReplaced,
    /// the last offset is committed, not the one after it
    OffsetWithoutPlusOne,
    /// a transaction carries the offsets of only one of its tasks
    OffsetsOfOneTask,
    /// a transaction that has forwarded nothing carries no offsets
    OffsetsOnlyWithOutput,
    /// a commit whose outcome is unknown is taken for done
    UnknownTakenForCommit,
    /// an aborted transaction is never told to end
    AbortSkipped,
    /// where a transaction's changelog records come to stand is not looked at
    DeliveryNotCompared,
    /// the membership as it was first learnt is used for ever
    StaleGeneration,
    /// offsets are committed as by a member that has not joined
    UnjoinedMembership,
    /// lost partitions are worked on
    LostKept,
    /// after an abort reading goes on where it was
    ReadPositionKept,
    /// a takeover does not wait for pending offsets before it claims
    ClaimUnsettled,
    /// a takeover passes over the changelog's open transaction
    OpenTransactionPassed,
    /// a restore ends at the changelog's last stable offset
    RestoreToStableOffset,
    /// a restore waits for a record at the changelog's end
    RestoreToLastRecord,
    /// a restore reads another partition's changelog
    RestoreFromOtherPartition,
    /// a restore passes over tombstones
    TombstoneDropped,
    /// a store is rebuilt from a changelog that has lost its beginning
    TruncatedRebuilt,
    /// what looks like the future by the host's clock is set aside, whatever Kafka's time is
    KafkaTimeNotAsked,
    /// more ranges of offsets are kept than may be
    RangesUnbounded,
    /// more scopes of versions are kept than may be
    ScopesUnbounded,
}

thread_local! {
    static TOLD: Cell<Option<Lie>> = const { Cell::new(None) };
}

/// From now on tells this lie on this thread, and no other.
#[cfg(feature = "sabotage")]
pub fn tell(lie: Option<Lie>) {
    TOLD.set(lie);
}

/// Whether this lie is to be told.
pub fn is_told(lie: Lie) -> bool {
    TOLD.get() == Some(lie)
}
