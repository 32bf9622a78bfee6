//! Settlements: the outcomes of calls, and where their records go.

use super::Pen;
use crate::cluster::Cluster;
use crate::dedup::{Action, Reason, Verdict};
use crate::effect::call::{Kept, Outcome};
use crate::engine::calling::results::result_of;
use crate::engine::calling::window::{Called, HeardLast};
use crate::engine::failure::Failure;
use crate::format::{EntryRef, How, REASON_BYTES_MAX, Remembered, ResultRef, Settled, UnderWay};
use crate::record::Record;
use crate::sabotage::{self, Sabotage};

impl<C: Cluster> Pen<'_, '_, C> {
    /// Why the task stops before a record with this outcome, if it does.
    pub(super) fn stops(&self, record: &Record<'_>, called: &Called, outcome: Outcome) -> Option<String> {
        (self.action(outcome) == Action::Fail).then(|| {
            let Record { topic, partition, offset, .. } = record;
            let (reason, key) = (reason_of(outcome), on(outcome));
            format!(
                "{topic}:{partition}:{offset} is {}: {}; the topology says `{key}: fail`",
                reason.as_str(),
                said(called, outcome)
            )
        })
    }

    fn action(&self, outcome: Outcome) -> Action {
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
                // Other calls have succeeded meanwhile, so the record itself is at fault.
                OnUnavailable::Hold | OnUnavailable::DeadLetter => Action::DeadLetter,
            },
        }
    }

    /// Settles a call.
    pub(super) fn settle(
        &mut self,
        record: &Record<'_>,
        key: &[u8],
        called: &Called,
        outcome: Outcome,
        refused: Option<&str>,
    ) -> Result<(), Failure> {
        let is_refusal = called.heard.as_ref().and_then(|heard| heard.status).is_some_and(|status| status / 100 == 4);
        let outcome = match outcome {
            Outcome::InDoubt if is_refusal && sabotage::is_on(Sabotage::RejectedAfterAll) => Outcome::Rejected,
            outcome => outcome,
        };
        let reason = reason_of(outcome);
        let message = said(called, outcome);
        match self.action(outcome) {
            Action::DeadLetter => self.letter(record, called, reason, &message)?,
            Action::Forward => self.result(record, called, refused)?,
            Action::Drop | Action::Fail => {}
        }
        let former = self.remembered(key)?;
        let former = former.as_deref().map(|bytes| Remembered::decode(bytes).expect("it was judged against"));
        let entry = called.kept.entry.as_deref().expect("a record that calls has an entry");
        let entry = EntryRef::decode(entry).expect("just written");
        let how = how_of(called, outcome);
        // The outcomes of a handler's steps stay with its reservation: a duplicate goes on from there.
        let may_have_acted = called.call.may_have_acted() && !sabotage::is_on(Sabotage::LeftAlthoughActed);
        let stays = outcome == Outcome::Unavailable
            && !called.journal.is_empty()
            && !sabotage::is_on(Sabotage::GivenUpLosesJournal)
            && (may_have_acted || self.leave(record, key, called)?);
        let message = bounded(&message);
        match how {
            _ if stays => {}
            Some(how) => {
                let is_other = |other: &UnderWay<'_>| other.place != self.place(record) && called.journal.is_empty();
                if let Some(other) = former.and_then(|former| former.under_way).filter(is_other) {
                    self.overtaken(record, &other);
                }
                let place = Some(self.place(record));
                let fingerprint = Some(called.asks.fingerprint().to_bytes());
                let result = if how == How::Done { result_of(called) } else { Some(ResultRef::Reason(message)) };
                self.put(
                    key,
                    Remembered { settled: Some(Settled { entry, how, place, fingerprint, result }), under_way: None },
                );
                self.note(record, &called.kept);
            }
            None => self.forget(key, former, self.place(record)),
        }
        match outcome {
            Outcome::Done => {
                self.settled(record, Verdict::Forwarded, called.evaluation.decision.reason);
                self.outlet.added.settled.done += 1;
            }
            _ => self.settled(record, Verdict::Invalid, reason),
        }
        Ok(())
    }

    fn letter(&mut self, record: &Record<'_>, called: &Called, reason: Reason, message: &str) -> Result<(), Failure> {
        // All attempts, not only those that count towards giving up.
        let attempts = called.call.attempt().max(called.call.attempts()).to_string();
        let status = called.heard.as_ref().and_then(|heard| heard.status).map(|status| status.to_string());
        let mut more: Vec<(&str, &str)> = vec![("attempts", &attempts)];
        more.extend(called.asks.key().map(|key| ("key", key.as_str())));
        more.extend(status.as_deref().map(|status| ("status", status)));
        self.outlet.dead_letter(record, reason, message, &more)
    }
}

/// How a call with this outcome is remembered; `None` if it is not.
fn how_of(called: &Called, outcome: Outcome) -> Option<How> {
    match (called.call.kept(outcome), outcome) {
        (Kept::Done, _) => Some(How::Done),
        (Kept::Failed, Outcome::Conflict) => Some(How::Conflict),
        (Kept::Failed, Outcome::InDoubt) => Some(How::InDoubt),
        (Kept::Failed, _) => Some(How::Rejected),
        (Kept::GivenUp { first_at_ms }, _) => Some(How::GivenUp { first_at_ms }),
        (Kept::AsBefore, _) => None,
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

/// The topology's key that says what to do with this outcome.
fn on(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Done => "on_done",
        Outcome::Rejected => "on_rejected",
        Outcome::Conflict => "on_conflict",
        Outcome::InDoubt => "on_in_doubt",
        Outcome::Unavailable => "on_unavailable",
    }
}

/// A call's outcome in words, without anything from the body.
fn said(called: &Called, outcome: Outcome) -> String {
    let heard = match &called.heard {
        None => {
            "a former owner or an earlier attempt may have made the call, and its key is no longer honoured".to_owned()
        }
        Some(HeardLast { status: Some(status), message: None, .. }) => format!("the provider answered {status}"),
        Some(HeardLast { status: Some(status), message: Some(message), .. }) => {
            format!("the provider answered {status}: {message}")
        }
        Some(HeardLast { status: None, message, .. }) => {
            message.clone().unwrap_or_else(|| "the provider did not answer".to_owned())
        }
    };
    match outcome {
        Outcome::InDoubt => format!("it is not known whether it took effect: {heard}"),
        Outcome::Unavailable => format!("{} attempts have failed: {heard}", called.call.attempts()),
        Outcome::Done | Outcome::Rejected | Outcome::Conflict => heard,
    }
}

/// The beginning of a text: as much of it as may be remembered.
fn bounded(text: &str) -> &str {
    &text[..text.floor_char_boundary(REASON_BYTES_MAX)]
}
