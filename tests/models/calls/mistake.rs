//! What the protocol could do wrong.

/// What can be done wrong on purpose. Those from [`Mistake::NoList`] to [`Mistake::NoLookAtWindow`] leave out a sentence
/// of the design that was found to be needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// A settlement is written by the instance that made the call.
    ZombieSettles,
    /// The reservation is written after the call.
    ReservedAfter,
    /// The key is made of the attempt.
    KeyOfAttempt,
    /// The key is made of the record's coordinates.
    KeyOfCoordinates,
    /// The group's offset is that of the last settled record.
    OffsetBeyond,
    /// Calls of one identity are under way at once.
    TwoAtOnce,
    /// An identity that is reserved counts as done.
    ReservedIsDone,
    /// A call whose attempts are exhausted is remembered as settled.
    ExhaustedIsDone,
    /// A record that comes again is a duplicate of itself.
    ItselfIsDuplicate,
    /// A record that comes again is called again.
    ItselfIsNew,
    /// Coordinates are compared without the topic's id.
    NoTopicId,
    /// Where no key is honoured, an ambiguous answer is tried again though nobody has asked for that.
    AmbiguousAgain,
    /// A call in doubt is tried again also where the key is no longer honoured.
    RetryAfterWindow,
    /// The position record does not list what is settled beyond its offset.
    NoList,
    /// Calls without a reservation are not preceded by a grant: the record's age decides.
    NoGrant,
    /// Stream time beyond the settled prefix is committed.
    StreamTimeBeyond,
    /// A reservation whose record does not come is waited for.
    NoAdoption,
    /// A reservation overwrites what was settled.
    ReservationOverSettlement,
    /// A stop leaves behind what was reserved and never sent.
    NoRelease,
    /// A call that is exhausted is forgotten, though an attempt may have acted.
    ExhaustedForgotten,
    /// A rejection counts although an attempt before it may have acted.
    RejectedAfterAll,
    /// The key's window is not looked at when a request is sent.
    NoLookAtWindow,
    /// A call in doubt that is to be made again is given up as in doubt once its key's window has passed.
    RetryInDoubt,
    /// A call that is made again beyond its key's window keeps the time of its first attempt.
    RetryKeepsFirst,
    /// A call that is made again beyond its key's window is not reserved again before.
    RetryUnreserved,
    /// A rejection that was heard before the task was lost settles its record afterwards, as `Done` does.
    RejectionOutlives,
    /// The time of grants is renewed though what a former owner was granted is not settled.
    RenewedForFormer,
    /// The time of grants is renewed though a call is under way.
    RenewedForSent,
    /// A stop or a revocation leaves a grant that reaches beyond what may have been called.
    GrantLeft,
    /// A revocation takes back the grant of calls that are still under way.
    ShrunkToNothing,
    /// A stop or a revocation takes back what a former owner was granted.
    ShrunkBelowFormer,
    /// A call that may begin because of what a transaction settles is made though the transaction is aborted.
    CalledAhead,
    /// The window stays after a transaction of unknown outcome.
    KeptAfterUnknown,
    /// A transaction that is aborted leaves its reservations as if they were written.
    AbortedIsReserved,
    /// A scope starts beyond the settled prefix.
    NoBarrier,
    /// A scope is written with the settlement of the record that starts it, and not with its reservation.
    ScopeWithSettlement,
    /// A reservation that a newer version begins over is not kept as given up.
    ReservationDropped,
    /// A revocation releases what may have been sent.
    SentReleased,
    /// A revocation leaves behind what was reserved and never sent.
    RevokedUnreleased,
    /// A stop leaves behind what is decided and not settled.
    DecidedLeft,
    /// Attempts count while the provider is down.
    LetterWhileDown,
    /// An answer that is heard while a call is under way shows that the provider was up when that call failed.
    AliveSinceSent,
    /// Time counts while a call is held that was never sent.
    HeldTimeCounts,
    /// Nothing is sent while the provider is taken to be down.
    NoProbe,
    /// A command is acknowledged after the transaction that it is carried out in.
    AcknowledgedApart,
    /// The position record does not say which commands were carried out.
    CommandNotNoted,
    /// A command is carried out while a call of its identity is open.
    CommandOverCall,
    /// A command is carried out over a reservation whose record is still to be read.
    CommandOverReservation,
    /// A result is not remembered.
    ResultNotKept,
    /// A result is written when it is answered, before the settlement.
    ResultAhead,
}
