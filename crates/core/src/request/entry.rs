//! The rules by which a request's entry changes: pure, on a store's own clock.
//!
//! A store that can run Rust applies these functions; one that cannot says the same in its own language, and one suite
//! of tests compares all of them with these.
//!
//! **Order of the questions.** Whether a key stands for another request is asked first: a client that mixes up its keys
//! must hear that also while the first request is under way. Then whether it was answered, and only then whether
//! somebody is at work.

use std::time::Duration;

use super::operator::{Decision, ListedRequest, RequestStatus, Settled};
use super::{Answer, AnswerBody, Fingerprint, Found, Id, OnInDoubt, Reservation, StillHeld, Token, Wanted};
use crate::format::request::{RequestEntry, RequestState};

/// What is to be done with an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It stays as it is.
    None,
    /// This is written in its place.
    Put(RequestEntry),
    /// It is removed.
    Remove,
}

/// The entry, if it is still remembered.
pub fn current(entry: Option<&RequestEntry>, now_ms: i64) -> Option<&RequestEntry> {
    entry.filter(|entry| entry.remembered_until_ms > now_ms)
}

/// The moment `length` after `now_ms`.
pub fn after(now_ms: i64, length: Duration) -> i64 {
    now_ms.saturating_add(i64::try_from(length.as_millis()).unwrap_or(i64::MAX))
}

/// A request is to be carried out. `run` names the process, where its end ends its leases.
pub fn reserve(entry: Option<&RequestEntry>, wanted: &Wanted, run: [u8; 16], now_ms: i64) -> (Found, Change) {
    let put = |taken_over| {
        let lease_until_ms = after(now_ms, wanted.lease);
        let entry = RequestEntry {
            token: wanted.held.token.0,
            fingerprint: wanted.fingerprint.0,
            remembered_until_ms: after(now_ms, wanted.retention).max(lease_until_ms),
            state: RequestState::Reserved { lease_until_ms, run },
        };
        (Found::Reserved { taken_over }, Change::Put(entry))
    };
    let Some(entry) = current(entry, now_ms) else { return put(false) };
    if Fingerprint(entry.fingerprint) != wanted.fingerprint {
        return (Found::OtherRequest, Change::None);
    }
    match &entry.state {
        RequestState::Answered(answer) => (Found::Answered(answer.clone()), Change::None),
        // The answer to the first try was lost.
        RequestState::Reserved { .. } if Token(entry.token) == wanted.held.token => put(false),
        RequestState::Reserved { lease_until_ms, run: holder } => match wanted.on_in_doubt {
            _ if is_at_work(*lease_until_ms, *holder, run, now_ms) => (Found::InProgress, Change::None),
            OnInDoubt::Run => put(true),
            OnInDoubt::Refuse => (Found::InDoubt, Change::None),
        },
    }
}

/// Whether somebody has a lease that lasts.
fn is_at_work(lease_until_ms: i64, holder: [u8; 16], run: [u8; 16], now_ms: i64) -> bool {
    lease_until_ms > now_ms && holder == run
}

/// The holder goes on working.
pub fn extend(entry: Option<&RequestEntry>, held: Reservation, lease: Duration, now_ms: i64) -> (StillHeld, Change) {
    let Some(entry) = held_by(entry, held, now_ms) else { return (StillHeld::Fenced, Change::None) };
    let RequestState::Reserved { run, .. } = entry.state else { return (StillHeld::Yes, Change::None) };
    let lease_until_ms = after(now_ms, lease);
    let state = RequestState::Reserved { lease_until_ms, run };
    (
        StillHeld::Yes,
        Change::Put(RequestEntry {
            remembered_until_ms: entry.remembered_until_ms.max(lease_until_ms),
            state,
            ..entry.clone()
        }),
    )
}

/// The holder has an answer: it replaces the reservation, or an earlier answer whose body was cut off.
pub fn complete(
    entry: Option<&RequestEntry>,
    held: Reservation,
    answer: &Answer,
    retention: Duration,
    now_ms: i64,
) -> (StillHeld, Change) {
    let Some(entry) = held_by(entry, held, now_ms) else { return (StillHeld::Fenced, Change::None) };
    match &entry.state {
        RequestState::Answered(Answer { body: AnswerBody::Whole(_) | AnswerBody::Digest { .. }, .. }) => {
            (StillHeld::Yes, Change::None)
        }
        RequestState::Answered(_) | RequestState::Reserved { .. } => {
            let (remembered_until_ms, state) = (after(now_ms, retention), RequestState::Answered(answer.clone()));
            (StillHeld::Yes, Change::Put(RequestEntry { remembered_until_ms, state, ..entry.clone() }))
        }
    }
}

/// The holder has not carried it out, or wants it to be carried out again.
pub fn release(entry: Option<&RequestEntry>, held: Reservation, now_ms: i64) -> (StillHeld, Change) {
    match held_by(entry, held, now_ms) {
        Some(RequestEntry { state: RequestState::Reserved { .. }, .. }) => (StillHeld::Yes, Change::Remove),
        // It has done so in between: a result that the service itself has written stays.
        Some(_) | None => (StillHeld::Fenced, Change::None),
    }
}

/// The request of an entry as it is listed, if it is still remembered.
pub fn listed_request(id: Id, entry: &RequestEntry, run: [u8; 16], now_ms: i64) -> Option<ListedRequest> {
    let entry = current(Some(entry), now_ms)?;
    let (state, lease_until_ms) = match entry.state {
        RequestState::Answered(_) => (RequestStatus::Answered, None),
        RequestState::Reserved { lease_until_ms, run: holder } => {
            let is_at_work = is_at_work(lease_until_ms, holder, run, now_ms);
            (if is_at_work { RequestStatus::UnderWay } else { RequestStatus::InDoubt }, Some(lease_until_ms))
        }
    };
    Some(ListedRequest { id, state, lease_until_ms, remembered_until_ms: entry.remembered_until_ms })
}

/// Applies an operator's decision on a request, under a new token.
pub fn settle(
    entry: Option<&RequestEntry>,
    decision: &Decision,
    token: Token,
    run: [u8; 16],
    now_ms: i64,
) -> (Settled, Change) {
    let Some(entry) = current(entry, now_ms) else { return (Settled::Unknown, Change::None) };
    match (&entry.state, decision) {
        (RequestState::Reserved { lease_until_ms, run: holder }, _)
            if is_at_work(*lease_until_ms, *holder, run, now_ms) =>
        {
            (Settled::UnderWay { lease_until_ms: *lease_until_ms }, Change::None)
        }
        (RequestState::Answered(_), Decision::Answer(_)) => (Settled::AlreadyAnswered, Change::None),
        (RequestState::Answered(_), Decision::Forget) => (Settled::Forgotten(RequestStatus::Answered), Change::Remove),
        (RequestState::Reserved { .. }, Decision::Forget) => {
            (Settled::Forgotten(RequestStatus::InDoubt), Change::Remove)
        }
        (RequestState::Reserved { .. }, Decision::Answer(answer)) => {
            let state = RequestState::Answered(answer.clone());
            (Settled::Answered, Change::Put(RequestEntry { token: token.0, state, ..entry.clone() }))
        }
    }
}

/// The entry, if it is this holder's.
fn held_by(entry: Option<&RequestEntry>, held: Reservation, now_ms: i64) -> Option<&RequestEntry> {
    current(entry, now_ms).filter(|entry| Token(entry.token) == held.token)
}
