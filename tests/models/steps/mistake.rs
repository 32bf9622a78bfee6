//! What the protocol could do wrong.

/// What can be done wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// A step begins before the result of the one before it is written.
    JournalLate,
    /// A result is left out of the journal although another step follows.
    ResultLeftOut,
    /// A former owner's journal is written.
    NotFenced,
    /// The run goes on after a transaction of unknown outcome, as if it were committed.
    KeptAfterUnknown,
    /// A run that begins anew sees what the one before knew, whether it is committed or not.
    RunSeesUncommitted,
    /// What an attempt may have done is forgotten with a journal that is not committed.
    ClearedUncommitted,
    /// The key's window begins anew with a journal that is not committed.
    RenewedUncommitted,
    /// The key's window never begins anew. Harmless.
    NotRenewed,
    /// The key's window begins anew when a handler is given up.
    RenewedByGivingUp,
    /// The key's window goes on when a handler is given up whose next step has certainly not begun.
    KeptByGivingUp,
    /// The key's window is not looked at when a call begins.
    NoLookAtWindow,
    /// A call in doubt that is to be made again is given up as in doubt once its key's window has passed.
    RetryInDoubt,
    /// A call that is made again beyond its key's window keeps it.
    RetryKeepsFirst,
    /// Whether a call is in doubt is looked at when its record is judged, and not when it begins.
    DoubtWhenJudged,
    /// A run that fails leaves nothing behind that may act.
    FailedIsFresh,
    /// A handler that is given up loses its journal.
    GivenUpLosesJournal,
    /// A newer version that begins over a journal leaves the older one as if it were at its first step.
    OvertakenAtFirstStep,
    /// A handler that is given up counts as failed.
    GivenUpIsFailed,
    /// No mark is written before a call without a key.
    NoMark,
    /// The mark is not looked at.
    MarkUnread,
    /// A mark stays though what it stands for has certainly not begun.
    MarkLeft,
    /// A revocation takes back what is reserved for a record that was not judged.
    UnjudgedReleased,
    /// A revocation takes back the mark of a call that is under way.
    BegunReleased,
    /// A rejection is recorded although an attempt before it may have acted.
    RejectedAfterAll,
    /// It is not recorded that a handler is finally rejected.
    NoMarker,
    /// Something is undone before the rejection is committed.
    UndoneUnwritten,
    /// The steps are undone in their order.
    UndoneInOrder,
    /// The steps are undone although the rejection is in doubt.
    UndoneInDoubt,
    /// What undoes a step counts as done when it is rejected.
    UndoRejectedIsDone,
    /// What undoes a step is not recorded.
    UndoneUnrecorded,
    /// A transaction leaves no row.
    NoRow,
    /// A transaction that is rejected leaves no row.
    RejectedWithoutRow,
    /// A row is removed although a former owner may still come.
    RowRemovedEarly,
}
