//! Writes settlements: stores the outcomes of calls, and sends their results or dead letters.
//!
//! The **settlement** of a call replaces its **reservation**, which says that the call may have been sent, and which
//! holds a handler's **journal**: the outcomes of its steps. `kept` is the state that a record leaves behind.
//! `sabotage::is_on` says whether a test has switched on a deliberate fault.

use super::SlotWriter;
use crate::cluster::Cluster;
use crate::dedup::{Action, Reason, Verdict};
use crate::effect::call::{Outcome, RememberedOutcome};
use crate::engine::calling::results::result_of;
use crate::engine::calling::window::{CalledRecord, LastResponse};
use crate::engine::failure::Failure;
use crate::format::{EntryRef, How, REASON_BYTES_MAX, Remembered, Reservation, ResultRef, Settled};
use crate::record::Record;
use crate::sabotage::{self, Sabotage};
use crate::words::{agreeing, counted};

impl<C: Cluster> SlotWriter<'_, '_, C> {
    /// The reason why the task stops before a record with this outcome, if it does.
    pub(super) fn stop_reason(&self, record: &Record<'_>, called: &CalledRecord, outcome: Outcome) -> Option<String> {
        (self.action_for(outcome) == Action::Fail).then(|| {
            let Record { topic, partition, offset, .. } = record;
            let (reason, key) = (reason_of(outcome), action_key(outcome));
            format!(
                "{topic}:{partition}:{offset} is {}: {}; the topology says `{key}: fail`",
                reason.as_str(),
                self.describe(called, outcome)
            )
        })
    }

    /// A description of a call's outcome, which contains nothing from the response body.
    fn describe(&self, called: &CalledRecord, outcome: Outcome) -> String {
        let response = match &called.last_response {
            None => {
                let why = match self.terms.policy.key {
                    Some(_) => "the call's key is no longer honoured",
                    None => "the provider honours no keys",
                };
                format!("a former owner or an earlier attempt may have made the call, and {why}")
            }
            Some(LastResponse { status: Some(status), message: None, .. }) => format!("the provider answered {status}"),
            Some(LastResponse { status: Some(status), message: Some(message), .. }) => {
                format!("the provider answered {status}: {message}")
            }
            Some(LastResponse { status: None, message, .. }) => {
                message.clone().unwrap_or_else(|| "the provider did not answer".to_owned())
            }
        };
        match outcome {
            Outcome::InDoubt => format!("it is not known whether it took effect: {response}"),
            Outcome::Unavailable => {
                let attempts = called.call.attempts();
                let have = agreeing(attempts, "has", "have");
                format!("{} {have} failed: {response}", counted(attempts, "attempt"))
            }
            Outcome::Done | Outcome::Rejected | Outcome::Conflict => response,
        }
    }

    /// The topology's action on a record whose call has this outcome.
    fn action_for(&self, outcome: Outcome) -> Action {
        use crate::effect::call::{OnInDoubt, OnUnavailable};
        match outcome {
            Outcome::Done => Action::Forward,
            Outcome::Rejected => self.terms.on_rejected,
            Outcome::Conflict => self.terms.on_conflict,
            Outcome::InDoubt => match self.terms.policy.on_in_doubt {
                OnInDoubt::Fail => Action::Fail,
                OnInDoubt::DeadLetter | OnInDoubt::Retry => Action::DeadLetter,
            },
            Outcome::Unavailable => match self.terms.policy.on_unavailable {
                OnUnavailable::Fail => Action::Fail,
                // With `Hold`, other calls have succeeded meanwhile, so the record itself is at fault.
                OnUnavailable::Hold | OnUnavailable::DeadLetter => Action::DeadLetter,
            },
        }
    }

    /// Settles a call. `kafka_refusal`: Kafka's message, if it has refused the settlement before.
    pub(super) fn settle(
        &mut self,
        record: &Record<'_>,
        key: &[u8],
        called: &CalledRecord,
        outcome: Outcome,
        kafka_refusal: Option<&str>,
    ) -> Result<(), Failure> {
        let is_4xx =
            called.last_response.as_ref().and_then(|response| response.status).is_some_and(|status| status / 100 == 4);
        let outcome = match outcome {
            Outcome::InDoubt if is_4xx && sabotage::is_on(Sabotage::RejectedAfterAll) => Outcome::Rejected,
            outcome => outcome,
        };
        let reason = reason_of(outcome);
        let message = self.describe(called, outcome);
        match self.action_for(outcome) {
            Action::DeadLetter => self.dead_letter(record, called, reason, &message)?,
            Action::Forward => self.write_result(record, called, kafka_refusal)?,
            Action::Drop | Action::Fail => {}
        }
        let former = self.remembered(key)?;
        let former = former.as_deref().map(|bytes| Remembered::decode(bytes).expect("it was judged against"));
        let entry = called.kept.entry.as_deref().expect("a record that calls has an entry");
        let entry = EntryRef::decode(entry).expect("just written");
        let how = settlement_kind(called, outcome);
        let may_have_acted = called.call.may_have_acted() && !sabotage::is_on(Sabotage::LeftAlthoughActed);
        // The outcomes of a handler's steps stay with its reservation: a duplicate continues after these steps.
        let keeps_journal = outcome == Outcome::Unavailable
            && !called.journal.is_empty()
            && !sabotage::is_on(Sabotage::GivenUpLosesJournal);
        // If no further step can have acted, the reservation is written again to say so.
        let stays_reserved = match keeps_journal && !may_have_acted {
            true => self.leave_reservation(record, key, called)?,
            false => keeps_journal,
        };
        let message = truncated(&message);
        match how {
            _ if stays_reserved => {}
            Some(how) => {
                let is_other =
                    |other: &Reservation<'_>| other.place != self.place_of(record) && called.journal.is_empty();
                if let Some(other) = former.and_then(|former| former.reservation).filter(is_other) {
                    self.report_overtaken(record, &other);
                }
                let place = Some(self.place_of(record));
                let fingerprint = Some(called.payload.fingerprint().to_bytes());
                let result = if how == How::Done { result_of(called) } else { Some(ResultRef::Reason(message)) };
                self.put_remembered(
                    key,
                    Remembered { settled: Some(Settled { entry, how, place, fingerprint, result }), reservation: None },
                );
                self.note_progress(record, &called.kept);
            }
            None => self.forget_reservation(key, former, self.place_of(record)),
        }
        match outcome {
            Outcome::Done => {
                self.count_settled(record, Verdict::Forwarded, called.evaluation.decision.reason);
                self.outlet.added.settled.done += 1;
            }
            _ => self.count_settled(record, Verdict::Invalid, reason),
        }
        Ok(())
    }

    /// Sends the record of a call to the dead letter topic.
    fn dead_letter(
        &mut self,
        record: &Record<'_>,
        called: &CalledRecord,
        reason: Reason,
        message: &str,
    ) -> Result<(), Failure> {
        // This counts all attempts, not only those that count towards the limit.
        let attempts = called.call.attempt().max(called.call.attempts()).to_string();
        let status =
            called.last_response.as_ref().and_then(|response| response.status).map(|status| status.to_string());
        let mut extra_headers: Vec<(&str, &str)> = vec![("attempts", &attempts)];
        extra_headers.extend(called.payload.key().map(|key| ("key", key.as_str())));
        extra_headers.extend(status.as_deref().map(|status| ("status", status)));
        self.outlet.dead_letter(record, reason, message, &extra_headers)
    }
}

/// How a call with this outcome is remembered; `None` if it is forgotten, so that the identity's last settlement
/// remains.
fn settlement_kind(called: &CalledRecord, outcome: Outcome) -> Option<How> {
    match (called.call.remembered_outcome(outcome), outcome) {
        (RememberedOutcome::Done, _) => Some(How::Done),
        (RememberedOutcome::Failed, Outcome::Conflict) => Some(How::Conflict),
        (RememberedOutcome::Failed, Outcome::InDoubt) => Some(How::InDoubt),
        (RememberedOutcome::Failed, _) => Some(How::Rejected),
        (RememberedOutcome::GivenUp { first_attempt_at_ms }, _) => Some(How::GivenUp { first_attempt_at_ms }),
        (RememberedOutcome::AsBefore, _) => None,
    }
}

fn reason_of(outcome: Outcome) -> Reason {
    match outcome {
        Outcome::Done => Reason::First,
        Outcome::Rejected => Reason::Rejected,
        Outcome::Conflict => Reason::Conflict,
        Outcome::InDoubt => Reason::InDoubt,
        Outcome::Unavailable => Reason::Unavailable,
    }
}

/// The topology's key for the action on this outcome.
fn action_key(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Done => "on_done",
        Outcome::Rejected => "on_rejected",
        Outcome::Conflict => "on_conflict",
        Outcome::InDoubt => "on_in_doubt",
        Outcome::Unavailable => "on_unavailable",
    }
}

/// The beginning of a text, at most as long as a stored reason may be.
fn truncated(text: &str) -> &str {
    &text[..text.floor_char_boundary(REASON_BYTES_MAX)]
}
