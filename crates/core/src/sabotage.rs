//! Sabotage tests the simulation's judge: one act is switched on, and the judge has to notice it.
//!
//! It exists only with the cargo feature `sabotage`, which only `make sim-mistakes` enables. Without the feature
//! [`is_on`] is `false` at compile time, and no trace of any act is left. With it nothing changes either, until an act
//! is switched on for a thread; the program cannot do that, and does not start.
//!
//! Anything that the cluster or the disk can do wrong instead of the engine is not sabotage, but a lie of the
//! simulation (`tests/sim/lies`).
//!
//! There is no act that keeps part of an aborted transaction, such as its writes, stream time, epochs or processed
//! offsets: what an open transaction would change is separate (`engine::share`), and dropped with it.

#[cfg(feature = "sabotage")]
use std::cell::Cell;

macro_rules! acts {
    ($($(#[doc = $meaning:literal])+ $name:ident,)+) => {
        /// A deliberate fault.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Sabotage {
            $($(#[doc = $meaning])+ $name,)+
        }

        impl Sabotage {
            /// All acts.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// What goes wrong, in words.
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => concat!($($meaning),+).trim_ascii(),)+
                }
            }
        }
    };
}

acts! {
    /// the store is written before Kafka has committed
    StoreBeforeCommit,
    /// what was looked up for one batch is used for the next
    LookUpsKept,
    /// records of one transaction do not see each other
    InBatchDuplicatesUnseen,
    /// a version that is known is taken for a newer one
    EqualVersionForwarded,
    /// contents are not compared, so that what ties is a duplicate
    ContentsIgnored,
    /// versions are compared across epochs
    EpochIgnored,
    /// the wall clock decides what expires
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
    /// a memtable that waits for its file is not asked
    FrozenNotAsked,
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
    /// a redo holds no dead letters, nor anything else for other topics than the changelog
    RedoWithoutLetters,
    /// a sink's row is compared with the text beside the group's offset
    RowComparedWithText,
    /// what a sink has committed and Kafka has not is decided anew, not played
    RedoDecidedAnew,
    /// records whose transaction the sink could not carry out are not read again
    HeldSkipped,
    /// a call goes before its reservation is written, and nothing is
    ReservationNotWritten,
    /// the key is another one for each attempt
    KeyOfAttempt,
    /// the group's offset is beyond a record that is not settled
    OffsetBeyondUnsettled,
    /// what is settled beyond the prefix is not listed
    BeyondNotListed,
    /// stream time is that of the last record read, settled or not
    StreamTimeBeyond,
    /// up to which offset calls may have gone is not written
    GrantNotWritten,
    /// a rejection counts although an attempt before may have acted
    RejectedAfterAll,
    /// attempts count while the provider is down
    LetterWhileDown,
    /// a failure that the provider repeats under its key counts as the result
    ReplayTakenForResult,
    /// two calls of one identity are under way at once
    TwoOfIdentity,
    /// a call goes before its reservation is committed
    ReservedAfterCall,
    /// the key is made of the record's place
    KeyOfPlace,
    /// whether the key's window has passed is not looked at before a request is sent
    WindowNotLookedAt,
    /// a reservation takes the place of what was settled
    ReservationOverSettlement,
    /// what a former owner has settled is from the future if this host's clock says so
    SettledNotDoubted,
    /// a handler's next step begins before the outcome of the step before is committed
    StepBeforeJournal,
    /// a handler that is run again by another owner begins at its first step
    JournalDropped,
    /// a handler goes on after an abort as if its steps were committed
    StepsKeptAfterAbort,
    /// a handler is run again while what it has told is being committed
    RunAgainInCommit,
    /// a step's key is another one for each attempt
    StepKeyOfAttempt,
    /// a step that is remembered gives what the first one has given
    ResultOfOtherStep,
    /// a step's refusal counts although an attempt before may have acted
    StepRefusedAfterAll,
    /// no mark is written before a step that calls without a key
    MarkNotWritten,
    /// the mark that a step begins is not looked at
    MarkUnread,
    /// the mark stays although the step has certainly not begun
    MarkLeft,
    /// a handler whose attempts are exhausted loses its journal
    GivenUpLosesJournal,
    /// what a handler leaves behind says that its next step has not begun, although it may have acted
    LeftAlthoughActed,
    /// that a handler has refused its record is not remembered before its steps are undone
    RefusalNotMarked,
    /// steps are undone in the order in which they were done
    UndoneInOrder,
    /// a command is carried out while a call of its identity is open
    CommandOverCall,
    /// that a command was carried out is not noted
    CommandNotNoted,
    /// a record is judged while a command about its identity is being committed
    JudgedOverCommand,
}

#[cfg(feature = "sabotage")]
thread_local! {
    /// The act that is on for this thread.
    static ON: Cell<Option<Sabotage>> = const { Cell::new(None) };
}

/// Switches on this act, and no other, for this thread.
#[cfg(feature = "sabotage")]
pub fn switch_on(act: Option<Sabotage>) {
    ON.set(act);
}

/// Whether this act is on.
#[cfg(feature = "sabotage")]
#[inline]
#[must_use]
pub fn is_on(act: Sabotage) -> bool {
    ON.get() == Some(act)
}

/// Whether this act is on: never.
#[cfg(not(feature = "sabotage"))]
#[inline]
#[must_use]
pub const fn is_on(_: Sabotage) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documentation_says_how_many_acts_there_are() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/dev/simulation.md");
        let text = std::fs::read_to_string(page).unwrap();
        let said = format!("{} acts of sabotage are built into the engine", Sabotage::ALL.len());
        assert!(text.split_whitespace().collect::<Vec<_>>().join(" ").contains(&said), "{page} does not say: {said}");
    }
}
