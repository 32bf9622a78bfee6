//! What a provider has done, compared with the input and with what Kafka has (invariant 13): each effect as often as its
//! topology promises, one end for each record that calls and none for any other, and results that tell what was done.
//!
//! A record that is new calls. How that ends is in the cluster: a result, or a dead letter with its reason. Where no call
//! is ever given up, all that is remembered follows from that (`strict`). What was tried as often as it may be may or may
//! not be remembered, and so may what has vanished from the input, or what somebody has decided by hand: the task alone
//! knows (`unsure`). So commands are given only where calls are given up.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::input::{By, Calls, Ends as Failing, RESULTS, Shape};
use crate::kafka::{Partition, Record};
use crate::provider::{Act, Begun, Kind, Known, Plan, Server, is_declined};

use super::commands::{self, Decided, Decision, Judged};
use super::model::{self, Model};
use super::output::Letters;
use super::{Case, Ruling, Seen, bytes, coverage, offsets, output, runs, show};

mod reserved;
mod steps;
mod strict;
mod unsure;

pub use reserved::{reserved_in, settled_in};
use strict::Things;
use unsure::Guesses;

/// What a provider has done by the end.
pub struct Called {
    calls: Calls,
    acts: Vec<Act>,
    /// Requests under keys that were not honoured any more.
    late: Vec<Vec<u8>>,
    /// The steps of handlers that have begun.
    begun: Vec<Begun>,
    /// Whether no instance was disturbed in its work, but asked to leave.
    is_undisturbed: bool,
    /// Whether it was down at times, and nothing else was wrong with it or its wire.
    is_reliable: bool,
    /// The inputs whose tasks have stopped at a call, since their topology wants that.
    stopped: BTreeSet<String>,
}

/// A thing and its version.
type Effect = (String, i64);
/// The results by the places that they name.
type Results = BTreeMap<(i32, i64), Seen>;

/// How a record's call has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    /// It is done; the number that the provider's answer tells.
    Done(Option<u64>),
    /// It is a dead letter, for this reason.
    Letter(String),
    /// It was rejected, and dropped.
    Dropped,
}

/// All that there is of a record that makes no dead letter by itself.
struct Found<'a> {
    by: By,
    number: i32,
    source: &'a Seen,
    read: model::Read,
    letter: Option<String>,
    result: Option<Seen>,
    /// Whether it comes after the record at which its task has stopped.
    is_behind_stop: bool,
}

/// What is known of effects beside what the provider has done.
#[derive(Default)]
struct Effects {
    /// How the calls for each have ended.
    ends: BTreeMap<Effect, Vec<End>>,
    /// The amounts of the records of these, in the same order.
    asked: BTreeMap<Effect, Vec<u64>>,
    /// What handlers have given back for each: what they know of their steps.
    given: BTreeMap<Effect, Vec<Vec<(String, Known)>>>,
    /// Those that may have happened though nobody says so: of records that have vanished, or that come after the one at
    /// which their task has stopped.
    open: BTreeSet<Effect>,
    /// What somebody has decided by hand.
    decided: Decided,
}

/// Stream time, horizon and truncates after the records before an offset: the least, as far as that is unsure, and the
/// most.
struct Times {
    after: i64,
    least: i64,
    most: (i64, i64, u64),
}

impl Called {
    pub fn of(server: &Server, calls: Calls) -> Self {
        let (acts, late, begun) = (server.acts().to_vec(), server.late.clone(), server.begun().to_vec());
        let (is_reliable, is_undisturbed) = (server.is_reliable, false);
        Self { calls, acts, late, begun, is_undisturbed, is_reliable, stopped: BTreeSet::new() }
    }

    /// The same, if no instance was disturbed in its work.
    pub fn undisturbed(self, is_undisturbed: bool) -> Self {
        Self { is_undisturbed, ..self }
    }

    /// With the inputs whose tasks have stopped at a call.
    pub fn after_stops(self, stopped: BTreeSet<String>) -> Self {
        Self { stopped, ..self }
    }

    /// Whether a partition need not be read further: its task has stopped at a call.
    pub fn excuses(&self, input: &Partition) -> bool {
        self.calls.ends == Failing::Stops && self.stopped.contains(&format!("{input:?}"))
    }

    /// Compares everything.
    pub(super) fn check(&self, case: &Case<'_>, letters: &mut Letters, ruling: &mut Ruling) {
        let mut results = results(case, ruling);
        let mut effects = Effects::default();
        for number in 0..case.partitions {
            self.check_partition(case, number, (letters, &mut results, &mut effects), ruling);
        }
        if let Some(((number, offset), _)) = results.first_key_value() {
            let input = Partition::new(case.rules.input, *number);
            ruling.report(13, &input, *offset, "no result of a record that makes no call", "one");
        }
        match self.calls.by {
            By::Http => self.check_acts(&effects, ruling),
            By::Handler => self.check_steps(case, &effects, ruling),
        }
    }

    /// The records of a partition have ended as they should, and position records go with them.
    fn check_partition(
        &self,
        case: &Case<'_>,
        number: i32,
        (letters, results, effects): (&mut Letters, &mut Results, &mut Effects),
        ruling: &mut Ruling,
    ) {
        let input = Partition::new(case.rules.input, number);
        let changelog = Partition::new(case.rules.changelog, number);
        let mut all = Vec::new();
        for (_, kept) in case.history.changelogs(number) {
            all.extend(runs::of(kept, &changelog, ruling));
        }
        runs::check_order(&all, &changelog, case.history.had_reset(), ruling);
        let records = case.committed(&input);
        offsets::check(case, (&input, &records), &all, ruling);
        let stop = self.stop(case, (&input, &records), &all);
        let changes = commands::check(case, number, &all, &mut effects.decided, ruling);
        let mut judged = Vec::new();

        let mut model = Model::new(case.rules);
        let (mut things, mut guesses) = (Things::default(), Guesses::default());
        let mut times = vec![Times { after: i64::MIN, least: -1, most: of(&model) }];
        for source in &records {
            let since = source.record.timestamp.unwrap_or(i64::MAX);
            let was_disbelieved = letters.says(number, source.offset, "timestamp_in_future");
            let wall_ms = case.history.wall_ms(case.broker, since);
            let verdict = model.apply(source.offset, &source.record, wall_ms, was_disbelieved);
            let letter = letters.take_reason(number, source, ruling);
            let result = results.remove(&(number, source.offset));
            let is_gone = case.history.is_gone(number, source.offset);
            let least = times.last().map_or(-1, |times| times.least);
            let is_believed = verdict != model::Verdict::DeadLettered("timestamp_in_future");
            let timestamp = source.record.timestamp.filter(|_| is_believed && !is_gone);
            let least = least.max(timestamp.unwrap_or(-1));
            times.push(Times { after: source.offset, least, most: of(&model) });
            let is_behind_stop = stop.is_some_and(|stop| source.offset > stop);
            let has_ended = letter.is_some() || result.is_some();
            if let model::Verdict::DeadLettered(reason) = verdict {
                let may_be_open = (is_behind_stop || is_gone) && !has_ended;
                if !may_be_open && (letter.as_deref() != Some(reason) || result.is_some()) {
                    let found = format!("{letter:?}, a result: {}", result.is_some());
                    ruling.report(3, &input, source.offset, format!("a dead letter: {reason}"), found);
                }
                continue;
            }
            let Ok(read) = model::read(case.rules, &source.record) else {
                ruling.report(13, &input, source.offset, "a record that was read", show(&source.record));
                continue;
            };
            if let (Some(letter), Some(result)) = (&letter, &result) {
                let found = format!("{letter:?} and {}", show(&result.record));
                ruling.report(13, &input, source.offset, "one end of a call", found);
                continue;
            }
            let found = Found { by: self.calls.by, number, source, read, letter, result, is_behind_stop };
            judged.push(found.judged(is_gone));
            match self.calls.ends.gives_up() {
                true if is_gone && !has_ended => guesses.miss(found, effects),
                true => self.check_unsure(found, (&mut guesses, effects), ruling),
                false => {
                    let is_stop = stop == Some(source.offset);
                    self.check_strict(case, (found, verdict, is_stop), (&mut things, effects), ruling);
                }
            }
        }
        check_times(&all, (&times, &changelog), ruling);
        commands::check_after(case, number, (&all, &changes), &judged, ruling);
    }

    /// The record at which a partition's task has stopped, if that is where it is.
    fn stop(&self, case: &Case<'_>, (input, records): (&Partition, &[Seen]), runs: &[runs::Run<'_>]) -> Option<i64> {
        let committed = case.broker.groups.committed(case.rules.group, input, true).ok()?;
        let next = committed.map_or(0, |committed| committed.offset);
        // A reset may have set the group's offset back.
        let next = runs.iter().map(runs::Run::end).fold(next, i64::max);
        let first = records.iter().map(|record| record.offset).find(|offset| *offset >= next);
        first.filter(|_| self.excuses(input))
    }

    /// Each effect has happened as often as is promised, and results tell what was done.
    fn check_acts(&self, effects: &Effects, ruling: &mut Ruling) {
        let Effects { ends, open, .. } = effects;
        let table = Partition::new("the provider", 0);
        let mut acts: BTreeMap<Effect, Vec<&Act>> = BTreeMap::new();
        for act in &self.acts {
            if let Some(effect) = effect(&act.asked) {
                acts.entry(effect).or_default().push(act);
            }
        }
        for (effect, done) in &acts {
            let new = ends.get(effect).map_or(0, Vec::len) + usize::from(open.contains(effect));
            let acts_max = self.acts_max(new).saturating_add(effects.forgotten(effect));
            if done.len() > acts_max && !self.may_be_late(effect, open) {
                let expected = format!("{effect:?} done {acts_max} times at most");
                ruling.report(13, &table, None, expected, format!("{done:?}"));
            }
            if done.len() > 1 {
                ruling.see(coverage::ACTED_TWICE);
            }
            if !ends.contains_key(effect) {
                match open.contains(effect) {
                    true => ruling.see(coverage::DONE_UNSAID),
                    // What never ended was never to be done.
                    false => {
                        let expected = format!("an end of {effect:?}, which was done");
                        ruling.report(13, &table, None, expected, format!("{done:?}"));
                    }
                }
            }
        }
        for (effect, ends) in ends {
            let done = acts.get(effect).map(Vec::as_slice).unwrap_or_default();
            self.check_said(effect, (ends, done, effects.forgotten(effect) > 0), (&table, ruling));
        }
        for asked in &self.late {
            // What was declined has done nothing, and is asked for afresh.
            let is_right = |effect: &Effect| self.may_be_late(effect, open) || effects.forgotten(effect) > 0;
            let is_right = is_declined(asked) || effect(asked).as_ref().is_some_and(is_right);
            if !is_right && self.calls.agreed.has_key() {
                let found = format!("one, for {}", String::from_utf8_lossy(asked));
                ruling.report(13, &table, None, "no request under a key that is not honoured any more", found);
            }
        }
    }

    /// What the ends of an effect say is what was done; of what somebody has had forgotten, what was done since.
    fn check_said(
        &self,
        effect: &Effect,
        (ends, done, is_forgotten): (&[End], &[&Act], bool),
        (table, ruling): (&Partition, &mut Ruling),
    ) {
        let mut serials = BTreeSet::new();
        for end in ends {
            let is_right = match end {
                // Without a key each record is done on its own.
                End::Done(serial) if !self.calls.agreed.has_key() && !serials.insert(*serial) => false,
                End::Done(serial) => done.iter().any(|act| Some(act.serial) == *serial),
                End::Letter(reason) if reason == "rejected" => done.is_empty() || is_forgotten,
                End::Dropped => done.is_empty(),
                End::Letter(_) => true,
            };
            if !is_right {
                ruling.report(13, table, None, format!("{effect:?} done as {end:?} says"), format!("{done:?}"));
            }
            if matches!(end, End::Letter(reason) if reason == "in_doubt") && !done.is_empty() {
                ruling.see(coverage::DOUBTED_AND_DONE);
            }
        }
    }

    /// Whether nobody will ever do what a record asks for.
    fn declines(&self, record: &Record) -> bool {
        let value = record.value.as_deref().unwrap_or_default();
        match self.calls.by {
            By::Http => is_declined(value),
            By::Handler => Plan::of_value(value).refused_at().is_some(),
        }
    }

    /// Whether somebody declines part of what a record asks for.
    fn may_decline(&self, record: &Record) -> bool {
        let value = record.value.as_deref().unwrap_or_default();
        let is_of_work = || Plan::of_value(value).steps.iter().any(|step| step.is_declined);
        self.declines(record) || self.calls.by == By::Handler && is_of_work()
    }

    /// How often an effect may be done that this many records are new for.
    fn acts_max(&self, new: usize) -> usize {
        match self.calls.shape {
            _ if self.calls.agreed.repeats() => usize::MAX,
            // A record that goes on with the call of another is new, too.
            Shape::Versions | Shape::Epochs => 1,
            // A snapshot's read and a change may have one version; a message that is forgotten is new again.
            Shape::Changes | Shape::Messages => new.max(1),
        }
    }

    /// Whether a key may be used when it is not honoured any more: where that is wanted; where what is new has the key of
    /// what was forgotten, or of a snapshot's read; and, which is a limit that stays, where a call without a reservation
    /// of its own has vanished from the input, and its duplicate comes too late.
    fn may_be_late(&self, effect: &Effect, open: &BTreeSet<Effect>) -> bool {
        let is_new_again = matches!(self.calls.shape, Shape::Changes | Shape::Messages);
        match self.calls.agreed {
            Kind::Renewed => true,
            Kind::Granted => is_new_again || open.contains(effect),
            Kind::Reserved | Kind::Keyless | Kind::Again => is_new_again,
        }
    }

    /// Whether a dead letter of a call that was new may have this reason.
    fn may_say(&self, reason: &str) -> bool {
        match reason {
            "rejected" => !matches!(self.calls.ends, Failing::Dropped | Failing::Stops),
            // Half-done work that is refused its end is in doubt where other attempts are repeated, too.
            "in_doubt" if self.calls.agreed.repeats() => self.calls.by == By::Handler,
            "in_doubt" => self.calls.ends != Failing::Stops,
            "unavailable" => self.calls.ends.gives_up(),
            _ => false,
        }
    }
}

fn of(model: &Model<'_>) -> (i64, i64, u64) {
    (model.stream_time, model.horizon, model.truncates)
}

/// Position records have the times of the prefix that they end.
fn check_times(runs: &[runs::Run<'_>], (times, changelog): (&[Times], &Partition), ruling: &mut Ruling) {
    let mut end = 0;
    for run in runs {
        // Reading that starts again further back moves nothing.
        end = run.end().max(end);
        let Some(Times { least, most, .. }) = times.iter().rfind(|times| times.after < end) else { continue };
        let runs::Run { at, position, .. } = run;
        let found = (position.stream_time, position.horizon, position.truncates);
        let is_right = match *least == most.0 {
            true => found == *most,
            false => (*least..=most.0).contains(&found.0),
        };
        if !is_right {
            let expected = format!("stream time, horizon and truncates at its end {end}, {most:?}");
            ruling.report(4, changelog, *at, expected, format!("{found:?}"));
        }
    }
}

/// What a request or a record's value is about.
fn effect(bytes: &[u8]) -> Option<Effect> {
    let value: Value = serde_json::from_slice(bytes).ok()?;
    effect_of(&value["id"], &value)
}

fn effect_of(id: &Value, value: &Value) -> Option<Effect> {
    // A truncate's is its table.
    let id = id.as_str().unwrap_or("table");
    let id = value.get("epoch").map_or(id.to_owned(), |epoch| format!("{id} in {epoch}"));
    let version = value.get("version").map_or(Some(0), Value::as_i64)?;
    Some((id, version))
}

impl Effects {
    /// What somebody has decided about an identity.
    fn by_hand(&self, identity: &[u8]) -> Decision {
        self.decided.get(identity).copied().unwrap_or_default()
    }

    /// How often the thing of an effect was forgotten on command: that is why it may be done again.
    fn forgotten(&self, (id, _): &Effect) -> usize {
        self.by_hand(&bytes::identity_key(&[Value::from(id.as_str())])).forgotten
    }
}

impl Found<'_> {
    fn record(&self) -> &Record {
        &self.source.record
    }

    fn input(&self) -> Partition {
        Partition::new(crate::input::INPUT, self.number)
    }

    fn effect(&self, shape: Shape) -> Option<Effect> {
        let value: Value = serde_json::from_slice(self.record().value.as_deref()?).ok()?;
        let key: Value = match shape {
            Shape::Changes => {
                self.record().key.as_deref().and_then(|key| serde_json::from_slice(key).ok()).unwrap_or_default()
            }
            Shape::Versions | Shape::Epochs | Shape::Messages => Value::Null,
        };
        match shape {
            Shape::Changes => effect_of(&key["id"], &value),
            _ => effect_of(&value["id"], &value),
        }
    }

    /// What its request asks for beside its thing and version.
    fn amount(&self) -> Option<i64> {
        let value: Value = serde_json::from_slice(self.record().value.as_deref()?).ok()?;
        value["amount"].as_i64()
    }

    /// How its call has ended, if there is any sign of it.
    fn end(&self) -> Option<End> {
        match (&self.letter, &self.result) {
            (Some(reason), _) => Some(End::Letter(reason.clone())),
            (None, Some(result)) => Some(End::Done(serial(result))),
            (None, None) => None,
        }
    }

    /// What a command about its identity has to do with it.
    fn judged(&self, is_gone: bool) -> Judged {
        let (offset, key, version) = (self.source.offset, self.read.identity.clone(), self.read.version);
        // What asks for something else is no call.
        let has_called = self.end().is_some_and(|end| end != End::Letter("conflict".to_owned()));
        Judged { offset, key, version, has_called, is_gone }
    }

    /// Notes that this is the end of an effect.
    fn put(&self, effect: Effect, end: End, effects: &mut Effects) {
        effects.asked.entry(effect.clone()).or_default().push(self.amount().unwrap_or_default().unsigned_abs());
        let result = self.result.as_ref().filter(|_| self.by == By::Handler && !self.is_repeated());
        if let Some(given) = result.and_then(given) {
            effects.given.entry(effect.clone()).or_default().push(given);
        }
        effects.ends.entry(effect).or_default().push(end);
    }

    /// Whether its result is one that was written before.
    fn is_repeated(&self) -> bool {
        self.result.as_ref().is_some_and(|result| output::result_header(result, "repeated").is_some())
    }

    fn report(&self, expected: impl Into<String>, found: impl Into<String>, ruling: &mut Ruling) {
        ruling.report(13, &self.input(), self.source.offset, expected, found);
    }
}

/// Counts how a call has ended.
fn see(end: &End, ruling: &mut Ruling) {
    match end {
        End::Letter(reason) if reason == "in_doubt" => ruling.see(coverage::IN_DOUBT),
        End::Letter(reason) if reason == "rejected" => ruling.see(coverage::DECLINED),
        End::Dropped => ruling.see(coverage::DROPPED),
        End::Letter(_) | End::Done(_) => {}
    }
}

/// What a handler knows of its steps at its end.
fn given(result: &Seen) -> Option<Vec<(String, Known)>> {
    let value: Value = serde_json::from_slice(result.record.value.as_deref()?).ok()?;
    let given = value["given"].as_object()?;
    Some(given.iter().map(|(name, result)| (name.clone(), Known::Done(result.to_string()))).collect())
}

/// The number that a result tells.
fn serial(result: &Seen) -> Option<u64> {
    let value: Value = serde_json::from_slice(result.record.value.as_deref()?).ok()?;
    value["serial"].as_u64()
}

/// The results by the places that they name.
fn results(case: &Case<'_>, ruling: &mut Ruling) -> Results {
    let count = case.broker.topics.get(RESULTS).map_or(0, |topic| topic.logs.len() as i32);
    let mut all = BTreeMap::new();
    for partition in (0..count).map(|number| Partition::new(RESULTS, number)) {
        for seen in case.committed(&partition) {
            let header = |name: &str| output::result_header(&seen, name).and_then(|text| text.parse::<i64>().ok());
            let (Some(number), Some(at)) = (header("partition"), header("offset")) else {
                ruling.report(13, &partition, seen.offset, "headers that name a record", show(&seen.record));
                continue;
            };
            if all.contains_key(&(number as i32, at)) {
                ruling.report(13, &partition, seen.offset, "one result of a record", format!("two of {number}:{at}"));
            }
            all.insert((number as i32, at), seen);
        }
    }
    all
}
