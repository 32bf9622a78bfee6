//! Where calls are given up, records vanish, or somebody decides by hand: what is remembered of them is the task's own
//! knowledge, and the record after them shows it.

use std::collections::{BTreeMap, BTreeSet};

use crate::input::{By, Ends as Failing, Shape};
use crate::judge::{Ruling, coverage, show};

use super::{Called, Effect, Effects, End, Found, see};

/// What may be remembered.
#[derive(Default)]
pub(super) struct Guesses {
    things: BTreeMap<Vec<u8>, Known>,
    /// What was asked for, by effect.
    asked: BTreeMap<Effect, BTreeSet<i64>>,
}

/// What is known of a thing.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    version: Option<i128>,
    /// What the call for it has asked for.
    amount: Option<i64>,
    /// The highest version that was tried as often as it may be, or may have been called before it vanished.
    unsure: Option<i128>,
}

impl Guesses {
    /// A record has vanished and left no trace: it may have been called, or not.
    pub(super) fn miss(&mut self, found: Found<'_>, effects: &mut Effects) {
        let (effect, amount) = (found.effect(Shape::Versions), found.amount());
        let known = self.things.entry(found.read.identity).or_default();
        if found.read.version > known.version {
            known.unsure = known.unsure.max(found.read.version);
            if let Some(effect) = effect {
                self.asked.entry(effect.clone()).or_default().extend(amount);
                effects.open.insert(effect);
            }
        }
    }
}

impl Called {
    pub(super) fn check_unsure(
        &self,
        found: Found<'_>,
        (guesses, effects): (&mut Guesses, &mut Effects),
        ruling: &mut Ruling,
    ) {
        let (Some(version), Some(effect)) = (found.read.version, found.effect(self.calls.shape)) else {
            return found.report("a record with a version", show(found.record()), ruling);
        };
        let (end, amount) = (found.end(), found.amount());
        let others = guesses.asked.entry(effect.clone()).or_default();
        let may_conflict = others.iter().any(|other| Some(*other) != amount);
        others.extend(amount);
        let by_hand = effects.by_hand(&found.read.identity);
        let known = guesses.things.entry(found.read.identity.clone()).or_default();
        let is_conflict = end == Some(End::Letter("conflict".to_owned()));
        if known.version == Some(version) && by_hand.forgotten == 0 {
            let asks_otherwise = known.amount != amount;
            // What was given up, or has vanished, may stand in its place.
            let is_covered = known.unsure.is_some();
            let is_right = match asks_otherwise {
                true => is_conflict || (end.is_none() && is_covered),
                false => end.is_none(),
            };
            if !is_right {
                let expected = if asks_otherwise { "a conflict" } else { "nothing: it is known" };
                found.report(expected, format!("{end:?} of {}", show(found.record())), ruling);
            }
            if is_conflict {
                ruling.see(coverage::CONFLICT);
            }
            return;
        }
        if is_conflict && self.calls.by == By::Handler {
            // It would be done with the steps of what asked for something else, and was not finished.
            if known.unsure.is_none_or(|unsure| unsure < version) || !may_conflict {
                found.report(
                    "no conflict with what is not known",
                    format!("{end:?} of {}, with {known:?}", show(found.record())),
                    ruling,
                );
            }
            return ruling.see(coverage::CONFLICT);
        }
        let is_new = known.version.is_none_or(|before| version > before);
        // What was given up may be settled by then.
        let must =
            is_new && known.unsure.is_none_or(|unsure| version > unsure || version == unsure && by_hand.settled == 0);
        let Some(end) = end else {
            if must {
                let expected = "a result or a dead letter: it is new";
                found.report(expected, format!("none for {}", show(found.record())), ruling);
            }
            return;
        };
        if !is_new && by_hand.forgotten == 0 || found.is_repeated() {
            let expected = format!("nothing: {:?} is known", known.version);
            return found.report(expected, format!("{end:?}"), ruling);
        }
        if known.unsure == Some(version) {
            ruling.see(coverage::WENT_ON);
        }
        self.check_reason((&found, &end, may_conflict), ruling);
        match &end {
            End::Letter(reason) if reason == "unavailable" => {
                ruling.see(coverage::GIVEN_UP);
                known.unsure = known.unsure.max(Some(version));
            }
            _ => {
                // An older one that was forgotten is new.
                (known.version, known.amount) =
                    if is_new { (Some(version), amount) } else { (known.version, known.amount) };
                known.unsure = known.unsure.filter(|unsure| *unsure > version);
            }
        }
        see(&end, ruling);
        found.put(effect, end, effects);
    }

    fn check_reason(&self, (found, end, may_conflict): (&Found<'_>, &End, bool), ruling: &mut Ruling) {
        let End::Letter(reason) = end else { return };
        if reason == "conflict" && may_conflict {
            return ruling.see(coverage::CONFLICT_FOUND);
        }
        if !self.may_say(reason) {
            return found.report("another reason of a call", reason.clone(), ruling);
        }
        // What is declined after an attempt that may have acted is asked for again where that is wanted. A call that has
        // two attempts may meet the provider's end and its next one, and find it up in between.
        let is_declined = self.may_decline(found.record());
        let is_patient = self.calls.ends == Failing::Usual;
        // So is what asks for something else than the attempt that may have acted.
        if reason == "unavailable" && self.is_reliable && is_patient && !is_declined && !may_conflict {
            found.report("no dead letter because the provider is down", reason.clone(), ruling);
        }
    }
}
