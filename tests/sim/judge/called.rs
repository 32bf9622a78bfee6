//! What a provider has done, compared with the input and with what Kafka has (invariant 13): each effect as often as its
//! topology promises, one end for each record that calls and none for any other, and results that tell what was done.
//!
//! A record that is new calls. How that ends is in the cluster: a result, or a dead letter with its reason. What was
//! tried as often as it may be may or may not be remembered, which is known to the task alone.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::input::RESULTS;
use crate::kafka::Partition;
use crate::provider::{Act, Kind, Server, is_declined};

use super::model::{self, Model};
use super::output::Letters;
use super::{Case, Ruling, Seen, coverage, offsets, output, runs, show};

/// What a provider has done by the end.
pub struct Called {
    pub kind: Kind,
    acts: Vec<Act>,
    /// Requests under keys that were not honoured any more.
    late: u64,
    /// Whether it was down at times, and nothing else was wrong with it or its wire.
    is_reliable: bool,
}

/// A thing and its version.
type Effect = (String, i64);
/// How the calls for each effect have ended.
type Ends = BTreeMap<Effect, Vec<End>>;
/// The results by the places that they name.
type Results = BTreeMap<(i32, i64), Seen>;
/// What is remembered, by identity.
type Things = BTreeMap<Vec<u8>, Known>;

/// How a record's call has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    /// It is done; the number that the provider's answer tells.
    Done(Option<u64>),
    /// It is a dead letter, for this reason.
    Letter(String),
}

/// What the model remembers of a thing.
#[derive(Clone, Copy, Default)]
struct Known {
    version: Option<i128>,
    /// The version that was tried as often as it may be.
    unsure: Option<i128>,
}

impl Called {
    pub fn of(server: &Server, kind: Kind) -> Self {
        Self { kind, acts: server.acts().to_vec(), late: server.late, is_reliable: server.is_reliable }
    }

    /// Compares everything.
    pub(super) fn check(&self, case: &Case<'_>, letters: &mut Letters, ruling: &mut Ruling) {
        let mut results = results(case, ruling);
        let mut ends = Ends::new();
        for number in 0..case.partitions {
            self.check_partition(case, number, (letters, &mut results, &mut ends), ruling);
        }
        if let Some(((number, offset), _)) = results.first_key_value() {
            let input = Partition::new(case.rules.input, *number);
            ruling.report(13, &input, *offset, "no result of a record that makes no call", "one");
        }
        self.check_acts(&ends, ruling);
    }

    /// The records of a partition have ended as they should, and position records go with them.
    fn check_partition(
        &self,
        case: &Case<'_>,
        number: i32,
        (letters, results, ends): (&mut Letters, &mut Results, &mut Ends),
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

        let mut model = Model::new(case.rules);
        let mut known = Things::new();
        // Stream time after the last record before an offset.
        let mut times: Vec<(i64, i64)> = vec![(i64::MIN, model.stream_time)];
        for source in &records {
            let since = source.record.timestamp.unwrap_or(i64::MAX);
            let was_disbelieved = letters.says(number, source.offset, "timestamp_in_future");
            let wall_ms = case.history.wall_ms(case.broker, since);
            let verdict = model.apply(source.offset, &source.record, wall_ms, was_disbelieved);
            times.push((source.offset, model.stream_time));
            let letter = letters.take_reason(number, source, ruling);
            let result = results.remove(&(number, source.offset));
            if let model::Verdict::DeadLettered(reason) = verdict {
                let is_right = letter.as_deref() == Some(reason) && result.is_none();
                if !is_right {
                    let found = format!("{letter:?}, a result: {}", result.is_some());
                    ruling.report(3, &input, source.offset, format!("a dead letter: {reason}"), found);
                }
                continue;
            }
            let end = match (letter, result) {
                (None, None) => None,
                (Some(reason), None) => Some(End::Letter(reason)),
                (None, Some(result)) => Some(End::Done(serial(&result))),
                (letter, Some(result)) => {
                    let found = format!("{letter:?} and {}", show(&result.record));
                    ruling.report(13, &input, source.offset, "one end of a call", found);
                    continue;
                }
            };
            self.check_end(case, (&input, source), end, (&mut known, ends), ruling);
        }
        let mut end = 0;
        for run in &all {
            // Reading that starts again further back moves nothing.
            end = run.end().max(end);
            let before = times.iter().rev().find(|(offset, _)| *offset < end).map_or(-1, |(_, time)| *time);
            if run.position.stream_time != before {
                let expected = format!("the stream time at its end {end}, {before}");
                ruling.report(4, &changelog, run.at, expected, format!("{}", run.position.stream_time));
            }
        }
    }

    fn check_end(
        &self,
        case: &Case<'_>,
        (input, source): (&Partition, &Seen),
        end: Option<End>,
        (known, ends): (&mut Things, &mut Ends),
        ruling: &mut Ruling,
    ) {
        let Ok(model::Read { identity, version: Some(version), .. }) = model::read(case.rules, &source.record) else {
            return ruling.report(13, input, source.offset, "a record that was read", show(&source.record));
        };
        let remembered = known.entry(identity).or_default();
        let is_new = remembered.version.is_none_or(|before| version > before);
        let (must, may) = match remembered.unsure {
            _ if !is_new => (false, false),
            None => (true, true),
            Some(unsure) => (version >= unsure, true),
        };
        match &end {
            None if must => {
                let expected = "a result or a dead letter: it is new";
                return ruling.report(13, input, source.offset, expected, format!("none for {}", show(&source.record)));
            }
            Some(end) if !may => {
                let expected = format!("nothing: {:?} is known", remembered.version);
                return ruling.report(13, input, source.offset, expected, format!("{end:?}"));
            }
            _ => {}
        }
        let Some(end) = end else { return };
        match &end {
            End::Letter(reason) if reason == "unavailable" => {
                // What is declined after an attempt that may have acted is asked for again where that is wanted.
                let is_declined = is_declined(source.record.value.as_deref().unwrap_or_default());
                if self.is_reliable && !is_declined {
                    let expected = "no dead letter because the provider is down";
                    ruling.report(13, input, source.offset, expected, reason.clone());
                }
                ruling.see(coverage::GIVEN_UP);
                remembered.unsure = remembered.unsure.max(Some(version));
            }
            End::Letter(reason) if !["rejected", "in_doubt", "conflict"].contains(&&reason[..]) => {
                ruling.report(13, input, source.offset, "a reason of a call", reason.clone());
            }
            _ => {
                remembered.version = remembered.version.max(Some(version));
                remembered.unsure = remembered.unsure.filter(|unsure| *unsure > version);
            }
        }
        if let End::Letter(reason) = &end {
            match reason.as_str() {
                "in_doubt" => ruling.see(coverage::IN_DOUBT),
                "rejected" => ruling.see(coverage::DECLINED),
                _ => {}
            }
        }
        if let Some(effect) = effect(source.record.value.as_deref().unwrap_or_default()) {
            ends.entry(effect).or_default().push(end);
        }
    }

    /// Each effect has happened as often as is promised, and results tell what was done.
    fn check_acts(&self, ends: &Ends, ruling: &mut Ruling) {
        let table = Partition::new("the provider", 0);
        let mut acts: BTreeMap<Effect, Vec<&Act>> = BTreeMap::new();
        for act in &self.acts {
            if let Some(effect) = effect(&act.asked) {
                acts.entry(effect).or_default().push(act);
            }
        }
        for (effect, done) in &acts {
            if done.len() > 1 {
                if !self.kind.repeats() {
                    ruling.report(13, &table, None, format!("{effect:?} done once"), format!("{done:?}"));
                }
                ruling.see(coverage::ACTED_TWICE);
            }
        }
        for (effect, ends) in ends {
            let done = acts.get(effect).map(Vec::as_slice).unwrap_or_default();
            for end in ends {
                let is_right = match end {
                    End::Done(serial) => done.iter().any(|act| Some(act.serial) == *serial),
                    End::Letter(reason) if reason == "rejected" => done.is_empty(),
                    End::Letter(_) => true,
                };
                if !is_right {
                    ruling.report(13, &table, None, format!("{effect:?} done as {end:?} says"), format!("{done:?}"));
                }
                if matches!(end, End::Letter(reason) if reason == "in_doubt") && !done.is_empty() {
                    ruling.see(coverage::DOUBTED_AND_DONE);
                }
            }
        }
        // What never ended was never to be done.
        for (effect, done) in acts.iter().filter(|(effect, _)| !ends.contains_key(*effect)) {
            ruling.report(13, &table, None, format!("an end of {effect:?}, which was done"), format!("{done:?}"));
        }
        if self.late > 0 && self.kind.has_key() {
            let found = format!("{} requests under keys that are not honoured any more", self.late);
            ruling.report(13, &table, None, "no request after a key's window", found);
        }
    }
}

/// What a request or a record is about.
fn effect(bytes: &[u8]) -> Option<Effect> {
    let value: Value = serde_json::from_slice(bytes).ok()?;
    Some((value["id"].as_str()?.to_owned(), value["version"].as_i64()?))
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
