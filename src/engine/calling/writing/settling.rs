//! Settlements: the outcomes of calls, and where their records go.

use super::Pen;
use crate::cluster::Cluster;
use crate::dedup::{Action, Reason, Verdict};
use crate::effect::call::{Kept, Outcome};
use crate::engine::calling::results::result_of;
use crate::engine::calling::window::{Called, LastAnswer};
use crate::engine::failure::Failure;
use crate::format::{EntryRef, How, REASON_BYTES_MAX, Remembered, ResultRef, Settled, UnderWay};
use crate::record::Record;
use crate::sabotage::{self, Sabotage};
use crate::words::{agreeing, counted};

impl<C: Cluster> Pen<'_, '_, C> {
    /// Why the task stops before a record with this outcome, if it does.
    pub(super) fn reason_to_stop(&self, record: &Record<'_>, called: &Called, outcome: Outcome) -> Option<String> {
        (self.action_for(outcome) == Action::Fail).then(|| {
            let Record { topic, partition, offset, .. } = record;
            let (reason, key) = (reason_of(outcome), key_of_action(outcome));
            format!(
                "{topic}:{partition}:{offset} is {}: {}; the topology says `{key}: fail`",
                reason.as_str(),
                self.describe(called, outcome)
            )
        })
    }

    /// A call's outcome in words, without anything from the body.
    fn describe(&self, called: &Called, outcome: Outcome) -> String {
        let answer = match &called.last_answer {
            None => {
                let why = match self.terms.policy.key {
                    Some(_) => "the call's key is no longer honoured",
                    None => "the provider honours no keys",
                };
                format!("a former owner or an earlier attempt may have made the call, and {why}")
            }
            Some(LastAnswer { status: Some(status), message: None, .. }) => format!("the provider answered {status}"),
            Some(LastAnswer { status: Some(status), message: Some(message), .. }) => {
                format!("the provider answered {status}: {message}")
            }
            Some(LastAnswer { status: None, message, .. }) => {
                message.clone().unwrap_or_else(|| "the provider did not answer".to_owned())
            }
        };
        match outcome {
            Outcome::InDoubt => format!("it is not known whether it took effect: {answer}"),
            Outcome::Unavailable => {
                let attempts = called.call.attempts();
                let have = agreeing(attempts, "has", "have");
                format!("{} {have} failed: {answer}", counted(attempts, "attempt"))
            }
            Outcome::Done | Outcome::Rejected | Outcome::Conflict => answer,
        }
    }

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
                // Other calls have succeeded meanwhile, so the record itself is at fault.
                OnUnavailable::Hold | OnUnavailable::DeadLetter => Action::DeadLetter,
            },
        }
    }

    /// Settles a call. `kafka_refusal`: Kafka's message, if it has refused the settlement before.
    pub(super) fn settle(
        &mut self,
        record: &Record<'_>,
        key: &[u8],
        called: &Called,
        outcome: Outcome,
        kafka_refusal: Option<&str>,
    ) -> Result<(), Failure> {
        let is_4xx = called.last_answer.as_ref().and_then(|heard| heard.status).is_some_and(|status| status / 100 == 4);
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
        let how = how_of(called, outcome);
        let may_have_acted = called.call.may_have_acted() && !sabotage::is_on(Sabotage::LeftAlthoughActed);
        // The outcomes of a handler's steps stay with its reservation: a duplicate goes on from there.
        let keeps_journal = outcome == Outcome::Unavailable
            && !called.journal.is_empty()
            && !sabotage::is_on(Sabotage::GivenUpLosesJournal);
        let stays_reserved = match keeps_journal && !may_have_acted {
            true => self.leave_reservation(record, key, called)?,
            false => keeps_journal,
        };
        let message = bounded(&message);
        match how {
            _ if stays_reserved => {}
            Some(how) => {
                let is_other = |other: &UnderWay<'_>| other.place != self.place_of(record) && called.journal.is_empty();
                if let Some(other) = former.and_then(|former| former.under_way).filter(is_other) {
                    self.report_overtaken(record, &other);
                }
                let place = Some(self.place_of(record));
                let fingerprint = Some(called.asks.fingerprint().to_bytes());
                let result = if how == How::Done { result_of(called) } else { Some(ResultRef::Reason(message)) };
                self.put_remembered(
                    key,
                    Remembered { settled: Some(Settled { entry, how, place, fingerprint, result }), under_way: None },
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

    /// Makes the record of a call a dead letter.
    fn dead_letter(
        &mut self,
        record: &Record<'_>,
        called: &Called,
        reason: Reason,
        message: &str,
    ) -> Result<(), Failure> {
        // All attempts, not only those that count towards giving up.
        let attempts = called.call.attempt().max(called.call.attempts()).to_string();
        let status = called.last_answer.as_ref().and_then(|heard| heard.status).map(|status| status.to_string());
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
fn key_of_action(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Done => "on_done",
        Outcome::Rejected => "on_rejected",
        Outcome::Conflict => "on_conflict",
        Outcome::InDoubt => "on_in_doubt",
        Outcome::Unavailable => "on_unavailable",
    }
}

/// The beginning of a text: as much of it as may be remembered.
fn bounded(text: &str) -> &str {
    &text[..text.floor_char_boundary(REASON_BYTES_MAX)]
}
