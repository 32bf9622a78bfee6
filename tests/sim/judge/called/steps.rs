//! What handlers have done, step by step: each as often as is promised, in order, each only once what is known of those
//! before it was committed; and undone, if the record was refused in the end, and only then.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::judge::history::Changelog;
use crate::judge::{Case, Ruling, bytes, coverage};
use crate::kafka::{Partition, Time};
use crate::provider::{Act, Begun, Known, Plan, Planned, undoes};

use super::reserved::{How, reserved_in};
use super::{Called, Effect, Effects, End, effect};

/// What was done for one effect, by step.
type Acts<'a> = BTreeMap<String, Vec<&'a Act>>;

/// An effect, and all that is known of it.
struct One<'a> {
    effect: &'a Effect,
    acts: &'a Acts<'a>,
    plan: Plan,
    table: &'a Partition,
}

/// The step that is asked for.
fn step(asked: &[u8]) -> Option<(String, Plan)> {
    let value: Value = serde_json::from_slice(asked).ok()?;
    Some((value["step"].as_str()?.to_owned(), Plan::of(value["of"].as_u64()?)))
}

impl Called {
    /// Each step has happened as often as is promised, and ends tell what was done.
    pub(super) fn check_steps(&self, case: &Case<'_>, effects: &Effects, ruling: &mut Ruling) {
        let table = Partition::new("the provider", 0);
        let mut all: BTreeMap<Effect, (Plan, Acts<'_>)> = BTreeMap::new();
        for act in &self.acts {
            let (Some(effect), Some((step, plan))) = (effect(&act.asked), step(&act.asked)) else {
                ruling.report(13, &table, None, "a step of a record", format!("{act:?}"));
                continue;
            };
            let (_, acts) = all.entry(effect).or_insert_with(|| (plan, Acts::default()));
            acts.entry(step).or_default().push(act);
        }
        for (effect, (plan, acts)) in &all {
            let one = One { effect, acts, plan: plan.clone(), table: &table };
            self.check_counts(&one, effects, ruling);
            match one.is_of_one() {
                true => one.check_undone(ruling),
                false => one.check_mixed(effects, ruling),
            }
            if !effects.ends.contains_key(effect) {
                match effects.open.contains(effect) {
                    true => ruling.see(coverage::DONE_UNSAID),
                    false => one.report(format!("an end of {effect:?}, which was begun"), ruling),
                }
            }
        }
        let none = Acts::default();
        for (effect, ends) in &effects.ends {
            for (end, asked) in ends.iter().zip(&effects.asked[effect]) {
                let acts = all.get(effect).map_or(&none, |(_, acts)| acts);
                let one = One { effect, acts, plan: Plan::of(*asked), table: &table };
                // What has vanished, or was given up, may have been refused under the key without a sign of it, and have asked
                // for something else.
                let has_vanished = effects.open.contains(effect) && self.calls.agreed.is_granted();
                let given_up = given_up(effects, effect);
                let is_told_of_other = has_vanished || given_up.iter().any(|amount| amount != asked);
                if !is_told_of_other {
                    self.check_end(&one, end, ruling);
                }
            }
        }
        self.check_known(effects, &all, ruling);
        self.begun.iter().for_each(|begun| check_begun(case, begun, ruling));
        self.check_late(effects, &table, ruling);
    }

    fn check_late(&self, effects: &Effects, table: &Partition, ruling: &mut Ruling) {
        for asked in &self.late {
            let is_right = effect(asked).is_some_and(|effect| self.may_be_late(&effect, &effects.open));
            if !is_right && self.calls.agreed.has_key() && !super::is_declined(asked) {
                let found = format!("one, for {}", String::from_utf8_lossy(asked));
                ruling.report(13, table, None, "no step under a key that is not honoured any more", found);
            }
        }
    }

    fn check_counts(&self, one: &One<'_>, effects: &Effects, ruling: &mut Ruling) {
        for (name, acts) in one.acts {
            let is_transaction = acts.iter().all(|act| is_transaction(act));
            let may_repeat =
                !is_transaction && (self.calls.agreed.repeats() || self.may_be_late(one.effect, &effects.open));
            // For records that ask for different things something else is looked at.
            let is_repeated = acts.iter().map(|act| amount(act)).collect::<BTreeSet<_>>().len() < acts.len();
            if is_repeated && !may_repeat {
                one.report(format!("the step `{name}` done once at most"), ruling);
            }
            if is_repeated {
                ruling.see(coverage::STEP_TWICE);
            }
        }
    }

    fn check_end(&self, one: &One<'_>, end: &End, ruling: &mut Ruling) {
        let refused_at = one.plan.refused_at();
        let done = |step: &Planned| one.acts.contains_key(step.name);
        match end {
            End::Done(_) => {
                let all = one.plan.steps.iter().all(|step| step.is_declined || done(step));
                let is_undone = one.plan.steps.iter().any(|step| one.acts.contains_key(&undoes(step.name)));
                if refused_at.is_some() || !all || is_undone {
                    one.report("all its steps done, and none undone, as the record is done".to_owned(), ruling);
                }
                if one.plan.steps.len() > 1 {
                    ruling.see(coverage::STEPS_DONE);
                }
            }
            End::Dropped => self.check_refused(one, ruling),
            End::Letter(reason) if reason == "rejected" => self.check_refused(one, ruling),
            End::Letter(reason) if reason == "in_doubt" => {
                let can_be = |step: &Planned| !step.is_transaction || step.undo == Some(false);
                // With keys nothing shows that nobody has begun another step before the function refuses.
                let by_function = self.calls.agreed.has_key() && one.plan.is_refused_at_end;
                if !by_function && !one.plan.steps.iter().any(can_be) {
                    one.report("no doubt where all steps are transactions".to_owned(), ruling);
                }
                let undoes = refused_at.is_some() && one.plan.steps.iter().any(|step| step.undo.is_some());
                if self.calls.agreed.repeats() && !undoes {
                    one.report("no doubt but about what undoes, where attempts are repeated".to_owned(), ruling);
                }
                // With keys nothing says whether a step has begun.
                let can_tell = self.is_undisturbed && !self.calls.agreed.has_key();
                if can_tell && !self.may_have_acted(one) {
                    one.report("no doubt about a call that has certainly not been made".to_owned(), ruling);
                }
            }
            End::Letter(_) => {}
        }
    }

    /// Whether the step that was begun last may have acted, as far as its function was told.
    fn may_have_acted(&self, one: &One<'_>) -> bool {
        let mut own = self.begun.iter().filter(|begun| effect(&begun.asked).as_ref() == Some(one.effect));
        let Some(last) = own.next_back() else { return false };
        let mut attempts = self.begun.iter().filter(|begun| begun.asked == last.asked);
        attempts.any(|begun| !begun.was_put_off)
    }

    /// Everything that was done is undone, if it can be.
    fn check_refused(&self, one: &One<'_>, ruling: &mut Ruling) {
        let Some(refused_at) = one.plan.refused_at() else {
            return one.report("no refusal of what nobody refuses".to_owned(), ruling);
        };
        for (at, step) in one.plan.steps.iter().enumerate() {
            let is_done = one.acts.contains_key(step.name);
            let is_due = at < refused_at && !step.is_declined;
            if is_done != is_due {
                one.report(
                    format!("`{}` {}, as the record is refused", step.name, if is_due { "done" } else { "not done" }),
                    ruling,
                );
            }
            if is_due && step.undo.is_some() {
                match one.acts.contains_key(&undoes(step.name)) {
                    true => ruling.see(coverage::UNDONE),
                    false => one.report(format!("`{}` undone, as the record is refused", step.name), ruling),
                }
            }
        }
    }

    /// All that know a step's outcome know the same, and it is true.
    fn check_known(&self, effects: &Effects, all: &BTreeMap<Effect, (Plan, Acts<'_>)>, ruling: &mut Ruling) {
        let table = Partition::new("the provider", 0);
        let mut known: BTreeMap<(Effect, String), BTreeSet<Known>> = BTreeMap::new();
        let of_begun = self.begun.iter().filter_map(|begun| Some((effect(&begun.asked)?, begun.known.clone())));
        let of_replies =
            effects.given.iter().flat_map(|(effect, all)| all.iter().map(|given| (effect.clone(), given.clone())));
        for (effect, all) in of_begun.chain(of_replies) {
            for (name, what) in all {
                known.entry((effect.clone(), name)).or_default().insert(what);
            }
        }
        for ((effect, name), what) in known {
            if what.len() > 1 {
                let expected = format!("one result of the step `{name}` of {effect:?}");
                ruling.report(13, &table, None, expected, format!("{what:?}"));
            }
            for one in &what {
                let Known::Done(result) = one else { continue };
                let acts =
                    all.get(&effect).and_then(|(_, acts)| acts.get(&name)).map(Vec::as_slice).unwrap_or_default();
                let is_so =
                    result == "null" && !acts.is_empty() || acts.iter().any(|act| act.serial.to_string() == *result);
                if !is_so {
                    let expected = format!("the step `{name}` of {effect:?} done as {result} says");
                    ruling.report(13, &table, None, expected, format!("{acts:?}"));
                }
            }
        }
    }
}

impl Plan {
    /// Whether a step, or what undoes one, is a transaction; `None` if there is none of this name.
    fn is_transaction(&self, name: &str) -> Option<bool> {
        self.steps.iter().find_map(|step| match step.undo {
            _ if step.name == name => Some(step.is_transaction),
            Some(is_transaction) if undoes(step.name) == name => Some(is_transaction),
            _ => None,
        })
    }
}

/// Whether what was done is a transaction of the database.
fn is_transaction(act: &Act) -> bool {
    step(&act.asked).is_some_and(|(name, plan)| plan.is_transaction(&name) == Some(true))
}

/// The amount of the record that something was done for.
fn amount(act: &Act) -> Option<u64> {
    let value: Value = serde_json::from_slice(&act.asked).ok()?;
    value["of"].as_u64()
}

/// The amounts of the records of an effect that were given up.
fn given_up(effects: &Effects, effect: &Effect) -> BTreeSet<u64> {
    let ends = effects.ends.get(effect).into_iter().flatten();
    let all = ends.zip(effects.asked.get(effect).into_iter().flatten());
    let is_given_up = |(end, _): &(&End, &u64)| **end == End::Letter("unavailable".to_owned());
    all.filter(is_given_up).map(|(_, amount)| *amount).collect()
}

impl One<'_> {
    /// Whether all was done for records that ask for the same.
    fn is_of_one(&self) -> bool {
        let mut amounts = self.acts.values().flatten().map(|act| amount(act));
        let first = amounts.next().flatten();
        amounts.all(|amount| amount == first)
    }

    /// Something was done for records that ask for different things. A transaction whose COMMIT was not answered may be given
    /// up as if it had not happened, and is then forgotten: the other record finds its row.
    fn check_mixed(&self, effects: &Effects, ruling: &mut Ruling) {
        let given_up = given_up(effects, self.effect);
        let of_transactions = |wanted: u64| {
            let mut acts = self.acts.values().flatten().filter(|act| amount(act) == Some(wanted));
            acts.all(|act| is_transaction(act))
        };
        let amounts: BTreeSet<u64> = self.acts.values().flatten().filter_map(|act| amount(act)).collect();
        let others = amounts.iter().filter(|amount| !given_up.contains(amount) || !of_transactions(**amount));
        if others.count() > 1 && !effects.open.contains(self.effect) {
            self.report("nothing done for two records that ask for different things".to_owned(), ruling);
        }
        ruling.see(coverage::ROW_OF_OTHER);
    }

    fn report(&self, expected: String, ruling: &mut Ruling) {
        ruling.report(13, self.table, None, expected, format!("{:?}: {:?}", self.effect, self.acts));
    }

    fn first(&self, name: &str) -> Option<Time> {
        self.acts.get(name)?.iter().map(|act| act.at).min()
    }

    /// What undoes a step is done only where the record is refused, once the step was done, and after all later steps are
    /// undone.
    fn check_undone(&self, ruling: &mut Ruling) {
        for (at, step) in self.plan.steps.iter().enumerate() {
            let Some(undone) = self.first(&undoes(step.name)) else { continue };
            if self.plan.refused_at().is_none() {
                self.report(format!("`{}` not undone, as nobody refuses the record", step.name), ruling);
            }
            if self.first(step.name).is_none_or(|done| done > undone) {
                self.report(format!("`{}` done before it is undone", step.name), ruling);
            }
            for later in &self.plan.steps[at + 1..] {
                let is_done = self.acts.contains_key(later.name);
                let is_undone = self.first(&undoes(later.name)).is_some_and(|first| first <= undone);
                if is_done && later.undo.is_some() && !is_undone {
                    self.report(format!("`{}` undone before `{}`", later.name, step.name), ruling);
                }
            }
        }
    }
}

/// A step begins only once all that is known of those before it is committed.
fn check_begun(case: &Case<'_>, begun: &Begun, ruling: &mut Ruling) {
    let value: Value = serde_json::from_slice(&begun.asked).unwrap_or_default();
    let key = bytes::identity_key(&[value["id"].clone()]);
    let version = value["version"].as_i64().map(|version| bytes::version(version.into()));
    let is_undo = value["step"].as_str().is_some_and(|step| step.starts_with(&undoes("")));
    // Without anything known it may go under a grant.
    if begun.known.is_empty() {
        return;
    }
    let is_decided = |producer: Option<i64>, offset: i64| {
        let opens = |(open, first): &(i64, i64)| Some(*open) == producer && *first <= offset;
        offset < begun.changelog_end && !begun.undecided.iter().any(opens)
    };
    let says = |value: &[u8]| {
        let Some(reserved) = reserved_in(value) else { return false };
        let is_version = version.as_ref().is_none_or(|version| reserved.entry.ends_with(version));
        let mut steps = reserved.journal.iter();
        let has = |(name, known): &(String, Known)| {
            steps.any(|step| {
                step.name == name
                    && match known {
                        Known::Done(result) => step.how == How::Done(result),
                        Known::Refused(reason) => step.how == How::Refused(reason),
                    }
            })
        };
        let is_known = begun.known.iter().all(has);
        is_version && is_known && (!is_undo || reserved.journal.iter().any(|step| step.name.is_empty()))
    };
    let is_in = |changelog: &Changelog| {
        let mut own = changelog.records.iter().filter(|(_, written)| written.record.key.as_deref() == Some(&*key));
        own.any(|(offset, written)| {
            is_decided(written.producer, *offset) && written.record.value.as_deref().is_some_and(says)
        })
    };
    if !case.history.changelogs(begun.partition).any(|(_, changelog)| is_in(changelog)) {
        let changelog = Partition::new(case.rules.changelog, begun.partition);
        let expected = format!("{} begun once {:?} are committed", String::from_utf8_lossy(&begun.asked), begun.known);
        ruling.report(13, &changelog, begun.changelog_end, expected, "they were not");
    }
}
