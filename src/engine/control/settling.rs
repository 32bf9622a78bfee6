//! How `ratchet settle` changes an entry, which is what is stored of an identity. An entry has two parts, one of which
//! may be missing: how the identity's last record was settled, and the reservation of a call, which counts as under
//! way.
//!
//! | state of the identity | `done`, `drop` | `retry` |
//! |---|---|---|
//! | unknown | no change | no change |
//! | it is done, and nothing is under way | no change | forgotten |
//! | it was dropped, and nothing is under way | `done`: settled as done; `drop`: no change | forgotten |
//! | anything else | settled accordingly, with nothing under way any more | forgotten |
//!
//! `retry` is refused if the sink is a handler. The entry holds the handler's journal, which records its steps: without
//! the journal, the handler would begin at its first step. As long as the provider honours a step's key, it would
//! return the former result, although the step may have been undone since; after that time it would do the step again.
//!
//! An identity settled manually has neither the place of a record nor a provider's result: every later record of that
//! identity and version is a duplicate. A forgotten identity is new: its next record calls.

use crate::format::{Acknowledgement, EntryRef, Error, How, ManualDecision, Outcome, Remembered, ResultRef, Settled};

/// The reason that is remembered for a call that an operator has dropped.
const DROPPED: &str = "dropped by hand: an operator decided that it will not be done";

/// How an entry changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The entry stays unchanged.
    Nothing,
    /// The entry is removed.
    Forget,
    /// The entry's new bytes.
    Put(Vec<u8>),
}

impl Change {
    /// The entry's new bytes; `None` if the entry is not written.
    pub fn new_entry(&self) -> Option<&[u8]> {
        match self {
            Self::Put(bytes) => Some(bytes),
            Self::Nothing | Self::Forget => None,
        }
    }
}

/// How `decision` changes the entry `former` at this stream time, and the command's acknowledgement. `is_handler`:
/// whether the sink is a handler.
pub fn settle(
    former: Option<&[u8]>,
    (decision, is_handler): (ManualDecision, bool),
    stream_time: i64,
) -> Result<(Change, Acknowledgement), Error> {
    let acknowledgement =
        |outcome: Outcome, was: Option<&str>| Acknowledgement { outcome, was: was.map(str::to_owned) };
    let Some(former) = former.map(Remembered::decode).transpose()? else {
        return Ok((Change::Nothing, acknowledgement(Outcome::Unknown, None)));
    };
    let was = Some(state_name(&former));
    let (how, result) = match decision {
        ManualDecision::Retry if is_handler => {
            return Ok((Change::Nothing, acknowledgement(Outcome::StepsWereDone, was)));
        }
        ManualDecision::Retry => return Ok((Change::Forget, acknowledgement(Outcome::Forgotten, was))),
        ManualDecision::Done => (How::Done, None),
        ManualDecision::Drop => (How::Dropped, Some(ResultRef::Reason(DROPPED))),
    };
    let is_settled_so = |settled: Settled<'_>| settled.how == How::Done || settled.how == how;
    if former.reservation.is_none() && former.settled.is_some_and(is_settled_so) {
        return Ok((Change::Nothing, acknowledgement(Outcome::Already, was)));
    }
    // The version of the call under way is newer than the settled one, or the same.
    let of_reserved = former.reservation.map(|reservation| (reservation.entry, reservation.fingerprint));
    let of_settled = former.settled.map(|settled| (settled.entry, settled.fingerprint));
    let (entry, fingerprint) = of_reserved.or(of_settled).expect("an entry has at least one of them");
    let entry = EntryRef { last_seen: entry.last_seen.max(stream_time), ..entry };
    let settled = Settled { entry, how, place: None, fingerprint, result };
    let mut bytes = Vec::new();
    Remembered { settled: Some(settled), reservation: None }.encode(&mut bytes);
    Ok((Change::Put(bytes), acknowledgement(Outcome::Settled, was)))
}

/// The name of an entry's state.
pub fn state_name(remembered: &Remembered<'_>) -> &'static str {
    match (remembered.reservation, remembered.settled) {
        (Some(_), _) => "under_way",
        (None, settled) => settled.map_or("nothing", |settled| settled.how.as_str()),
    }
}

#[cfg(test)]
mod tests {
    //! Goal: a command settles open calls, and nothing else; done calls stay done.

    use super::*;
    use crate::format::{Journal, NO_TIME, Place, Reservation};

    fn entry(version: &[u8]) -> EntryRef<'_> {
        EntryRef {
            last_seen: 50,
            version: Some(version),
            scope: None,
            from_read: false,
            streamed: None,
            owes_tombstone: false,
            key_hash: Some(7),
            contents: crate::format::Contents::NONE,
        }
    }

    fn settled(how: How) -> Settled<'static> {
        let place = Some(Place { topic_id: [5; 16], offset: 77 });
        Settled { how, place, fingerprint: Some([6; 20]), ..Settled::done(entry(&[0x81, 7])) }
    }

    fn reservation() -> Reservation<'static> {
        Reservation {
            entry: entry(&[0x81, 9]),
            place: Place { topic_id: [5; 16], offset: 78 },
            first_attempt_at_ms: 259,
            attempts: 3,
            may_have_acted: true,
            was_sent: true,
            fingerprint: Some([7; 20]),
            journal: Journal::default(),
        }
    }

    fn encoded(settled: Option<Settled<'static>>, reservation: Option<Reservation<'static>>) -> Vec<u8> {
        let mut bytes = Vec::new();
        Remembered { settled, reservation }.encode(&mut bytes);
        bytes
    }

    fn settle_entry(former: &[u8], decision: ManualDecision) -> (Change, Outcome, Option<String>) {
        let (change, Acknowledgement { outcome, was }) = settle(Some(former), (decision, false), 60).unwrap();
        (change, outcome, was)
    }

    fn put(change: Change) -> Vec<u8> {
        match change {
            Change::Put(bytes) => bytes,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn command_settles_an_open_call() {
        let given_up = How::GivenUp { first_attempt_at_ms: 1 };
        let open = [How::Rejected, How::Conflict, How::InDoubt, given_up];
        for how in open {
            let (change, outcome, was) = settle_entry(&encoded(Some(settled(how)), None), ManualDecision::Done);
            assert_eq!((outcome, was.as_deref()), (Outcome::Settled, Some(how.as_str())));
            let bytes = put(change);
            let now = Remembered::decode(&bytes).unwrap();
            let entry = EntryRef { last_seen: 60, ..entry(&[0x81, 7]) };
            let expected = Settled { entry, how: How::Done, place: None, ..settled(how) };
            assert_eq!(now, Remembered { settled: Some(expected), reservation: None });
        }
        let (change, outcome, was) =
            settle_entry(&encoded(Some(settled(How::Done)), Some(reservation())), ManualDecision::Drop);
        assert_eq!((outcome, was.as_deref()), (Outcome::Settled, Some("under_way")));
        let bytes = put(change);
        let now = Remembered::decode(&bytes).unwrap();
        let settled = now.settled.unwrap();
        assert_eq!((now.reservation, settled.how), (None, How::Dropped));
        assert_eq!(
            (settled.entry.version, settled.fingerprint),
            (Some(&[0x81, 9][..]), Some([7; 20])),
            "the newer version is kept"
        );
        assert_eq!(settled.result, Some(ResultRef::Reason(DROPPED)));
    }

    #[test]
    fn done_call_stays_done_and_dropped_call_can_become_done() {
        for decision in [ManualDecision::Done, ManualDecision::Drop] {
            let (change, outcome, was) = settle_entry(&encoded(Some(settled(How::Done)), None), decision);
            assert_eq!((change, outcome, was.as_deref()), (Change::Nothing, Outcome::Already, Some("done")));
        }
        let dropped = encoded(Some(settled(How::Dropped)), None);
        assert_eq!(settle_entry(&dropped, ManualDecision::Drop).1, Outcome::Already);
        assert_eq!(settle_entry(&dropped, ManualDecision::Done).1, Outcome::Settled, "`done` overrules a drop");
        // An entry of format 1 counts as done.
        let mut old = Vec::new();
        entry(&[0x81, 7]).encode(&mut old);
        assert_eq!(settle_entry(&old, ManualDecision::Drop).1, Outcome::Already);
    }

    #[test]
    fn retry_forgets_the_entry() {
        for former in [encoded(Some(settled(How::Done)), None), encoded(None, Some(reservation()))] {
            let (change, outcome, _) = settle_entry(&former, ManualDecision::Retry);
            assert_eq!((change, outcome), (Change::Forget, Outcome::Forgotten));
        }
    }

    #[test]
    fn retry_of_a_handlers_entry_changes_nothing() {
        let all = [How::Done, How::Rejected, How::InDoubt].map(|how| encoded(Some(settled(how)), None));
        for former in all.into_iter().chain([encoded(None, Some(reservation()))]) {
            let (change, Acknowledgement { outcome, was }) =
                settle(Some(&former), (ManualDecision::Retry, true), 60).unwrap();
            assert_eq!((change, outcome), (Change::Nothing, Outcome::StepsWereDone));
            assert_eq!(was.as_deref(), Some(state_name(&Remembered::decode(&former).unwrap())));
        }
        let doubted = encoded(Some(settled(How::InDoubt)), None);
        for decision in [ManualDecision::Done, ManualDecision::Drop] {
            let (_, Acknowledgement { outcome, .. }) = settle(Some(&doubted), (decision, true), 60).unwrap();
            assert_eq!(outcome, Outcome::Settled);
        }
    }

    #[test]
    fn command_about_an_unknown_identity_changes_nothing() {
        for decision in ManualDecision::ALL {
            let nothing = settle(None, (decision, true), NO_TIME).unwrap();
            assert_eq!(nothing, (Change::Nothing, Acknowledgement { outcome: Outcome::Unknown, was: None }));
        }
        settle(Some(&[9]), (ManualDecision::Retry, false), NO_TIME).unwrap_err();
    }
}
