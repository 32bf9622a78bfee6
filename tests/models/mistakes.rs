//! What can be done wrong on purpose. Each mistake alone, in a small world, gives a trace: so the search would have
//! noticed if the protocol had it.

mod traces;

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// Step 4 comes before the database's commit.
    KafkaFirst,
    /// A row that is one ahead is accepted, and Kafka never gets what it lacks.
    NoRedo,
    /// The redo holds the changelog's records and not the dead letters.
    RedoWithoutLetters,
    /// The row is compared with the group's text where there is one.
    GroupText,
    /// The group's offset and the changelog are read before they have settled.
    Unsettled,
    /// A row that is one ahead has its batch judged again, in place of the redo.
    RedoAnew,
    /// The redo is played whatever its former token is.
    RedoUncompared,
    /// A redo commits its own offset where somebody has reset the group.
    RedoOverReset,
    /// A redo commits its own offset unless the group's text is blank.
    RedoOverOldReset,
    /// A redo is not applied to the store, only its token is.
    RedoNotStored,
    /// Step 2 does not compare the token.
    TokenNotCompared,
    /// Step 2 does not compare the epoch.
    EpochNotCompared,
    /// A transaction that only changes memory goes to Kafka alone.
    SweepWithoutRow,
    /// Step 4 takes the generation of its own time: the group has moved on, and the member with it.
    LaterGeneration,
    /// Whatever `COMMIT` answers counts as committed.
    TagIgnored,
    /// A batch that failed is passed over.
    HeldSkipped,
    /// Step 2 goes on although it has found no row.
    CountsIgnored,
    /// A row that fits nothing is refused at once.
    NoSecondLook,
    /// The second look reads a changelog that has not settled.
    SecondLookUnsettled,
    /// A restore reads the row and does not raise the epoch.
    NoClaim,
    /// An attempt that follows one of unknown outcome has the same token.
    SameToken,
    /// A store whose token is the one in the group's text is taken as current, and the position record read from it.
    StoreTrusted,
    /// An idle owner does not look at its row.
    NoIdleLook,
    /// A changelog that lacks what the group's text names, or what a store has applied, is continued.
    ChangelogAdopted,
    /// Lanes: a redo holds what the lane's transaction wrote for all its tasks.
    LaneWideRedo,
    /// Lanes: after a database commit of unknown outcome one task restores, the others try again.
    OneRestores,
    /// Lanes: after a Kafka commit of unknown outcome one task restores, the others take it as failed.
    OneRestoresFromKafka,
    /// Lanes: where step 2 finds no row for one task, the transaction goes on for all.
    NoRollback,
    /// Lanes: rows are locked in the order in which their tasks were touched.
    AnyOrder,
    /// Lanes: a claim waits for a row's lock inside the lane's own open transaction.
    ClaimInside,
}
