//! Where no call is given up and nothing vanishes: whatever is new calls and ends, and its end is remembered, so that the
//! model knows at each record what has to come of it.

use std::collections::BTreeMap;

use crate::input::{Ends as Failing, Shape};
use crate::judge::model::{self, Verdict};
use crate::judge::{Case, Ruling, Seen, coverage, output, show};

use super::{Called, Effects, End, Found, see};

/// What is remembered, by identity.
pub(super) type Things = BTreeMap<Vec<u8>, Thing>;

/// What is remembered of a thing beside what the model does.
#[derive(Default)]
pub(super) struct Thing {
    /// What the call that was settled last has asked for.
    amount: Option<i64>,
    /// What a duplicate is answered with.
    answer: Option<Answer>,
    /// Whether its task has stopped at one of its records, or after it: none of its records is judged any more.
    is_stopped: bool,
}

/// What is known of a call that was settled.
struct Answer {
    /// What became of it.
    verdict: &'static str,
    /// The result, if it is done.
    result: Option<Seen>,
}

impl Called {
    pub(super) fn check_strict(
        &self,
        case: &Case<'_>,
        (found, verdict, is_stop): (Found<'_>, Verdict, bool),
        (things, effects): (&mut Things, &mut Effects),
        ruling: &mut Ruling,
    ) {
        let thing = things.entry(found.read.identity.clone()).or_default();
        if is_stop {
            ruling.see(coverage::STOPPED_AT_CALL);
            if verdict != Verdict::Forwarded || found.read.kind == model::Change::Tombstone {
                found.report("to stop at a record that calls", show(found.record()), ruling);
            }
        }
        if thing.is_stopped {
            return self.check_nothing(&found, "after the record at which its task has stopped", ruling);
        }
        match verdict {
            Verdict::Forwarded if found.read.kind == model::Change::Tombstone => {
                ruling.see(coverage::TOMBSTONE_PASSED);
                self.check_nothing(&found, "for a null value", ruling);
            }
            Verdict::Forwarded => self.check_new(case, (found, is_stop), (thing, effects), ruling),
            Verdict::Duplicate("version_equal" | "seen") => self.check_duplicate(&found, thing, ruling),
            Verdict::Duplicate(reason) | Verdict::Stale(reason) => self.check_nothing(&found, reason, ruling),
            Verdict::DeadLettered(_) => unreachable!("it was looked at before"),
        }
    }

    fn check_nothing(&self, found: &Found<'_>, why: &str, ruling: &mut Ruling) {
        if let Some(end) = found.end() {
            found.report(format!("nothing: {why}"), format!("{end:?} of {}", show(found.record())), ruling);
        }
    }

    /// A record that is new has called, and that has ended.
    fn check_new(
        &self,
        case: &Case<'_>,
        (found, is_stop): (Found<'_>, bool),
        (thing, effects): (&mut Thing, &mut Effects),
        ruling: &mut Ruling,
    ) {
        let Some(effect) = found.effect(self.calls.shape) else {
            return found.report("a record that calls", show(found.record()), ruling);
        };
        let is_declined = self.declines(found.record());
        let end = match found.end() {
            None if is_stop || found.is_behind_stop => {
                thing.is_stopped = true;
                effects.open.insert(effect);
                return;
            }
            None if self.calls.ends == Failing::Dropped && is_declined => End::Dropped,
            None => {
                let expected = "a result or a dead letter: it is new";
                return found.report(expected, format!("none for {}", show(found.record())), ruling);
            }
            Some(end) => end,
        };
        if is_stop {
            return found.report("no end of the call at which its task has stopped", format!("{end:?}"), ruling);
        }
        self.check_first(&found, &end, ruling);
        if thing.answer.is_some() && case.rules.retention_ms.is_some() {
            ruling.see(coverage::CALLED_ANEW);
        }
        match found.read.kind {
            model::Change::Truncate => ruling.see(coverage::TRUNCATE_CALLED),
            model::Change::Delete => ruling.see(coverage::DELETE_CALLED),
            _ if self.calls.shape == Shape::Epochs => ruling.see(coverage::CALLED_IN_EPOCHS),
            _ => {}
        }
        see(&end, ruling);
        let verdict = match &end {
            End::Done(_) => "done",
            End::Letter(reason) if reason == "in_doubt" => "in_doubt",
            End::Letter(_) | End::Dropped => "rejected",
        };
        let amount = found.amount();
        found.put(effect, end, effects);
        *thing = Thing { amount, answer: Some(Answer { verdict, result: found.result }), is_stopped: false };
    }

    fn check_first(&self, found: &Found<'_>, end: &End, ruling: &mut Ruling) {
        match end {
            End::Letter(reason) if !self.may_say(reason) => {
                found.report("another reason of a call", reason.clone(), ruling);
            }
            End::Done(_) => {
                let said = found.result.as_ref().and_then(|result| output::result_header(result, "verdict"));
                if said.as_deref() != Some("done") || found.is_repeated() {
                    found.report("the first result of a call that is done", format!("{said:?}"), ruling);
                }
            }
            End::Letter(_) | End::Dropped => {}
        }
    }

    /// A duplicate asks for the same as the first, or is a conflict; it gets what the first got, or nothing.
    fn check_duplicate(&self, found: &Found<'_>, thing: &Thing, ruling: &mut Ruling) {
        if thing.amount.is_some_and(|amount| Some(amount) != found.amount()) {
            ruling.see(coverage::CONFLICT);
            let letter = End::Letter("conflict".to_owned());
            let expected = Some(letter).filter(|_| self.calls.ends != Failing::Dropped);
            let may_be_open = found.is_behind_stop && found.end().is_none();
            if found.end() != expected && !may_be_open {
                let text = format!("{expected:?}, since another has asked for {:?}", thing.amount);
                found.report(text, format!("{:?} of {}", found.end(), show(found.record())), ruling);
            }
            return;
        }
        let Some(answer) = thing.answer.as_ref().filter(|_| self.calls.ends == Failing::Answered) else {
            return self.check_nothing(found, "a duplicate", ruling);
        };
        let Some(result) = found.result.as_ref().filter(|_| found.is_repeated()) else {
            return found.report(
                "the first one's result again",
                format!("{:?} of {}", found.end(), show(found.record())),
                ruling,
            );
        };
        let header = |result: &Seen, name: &str| output::result_header(result, name);
        let of = |result: &Seen| (header(result, "status"), header(result, "reason"), result.record.value.clone());
        let is_same = match &answer.result {
            Some(first) => of(first) == of(result),
            None => result.record.value.is_none() && header(result, "reason").is_some(),
        };
        if !is_same || header(result, "verdict").as_deref() != Some(answer.verdict) {
            let first = answer.result.as_ref().map(of);
            found.report(
                format!("{}, {first:?}, as the first one", answer.verdict),
                format!("{:?}, {:?}", header(result, "verdict"), of(result)),
                ruling,
            );
        }
        ruling.see(if answer.result.is_some() { coverage::ANSWERED } else { coverage::ANSWERED_FAILURE });
    }
}
