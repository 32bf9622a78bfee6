//! The output and the dead letters, compared with what the model makes of the input.

use std::collections::BTreeMap;

use crate::kafka::{Partition, Record};

use super::partition::Forward;
use super::{Case, Ruling, Seen, model, show};

/// The output holds the forwarded records in order, each written by its transaction's producer.
pub fn check(case: &Case<'_>, number: i32, forwards: &[Forward<'_>], ruling: &mut Ruling) {
    let output = Partition::new(case.rules.output, number);
    let written = case.committed(&output);
    check_versions(case, &output, &written, ruling);
    for (found, meant) in written.iter().zip(forwards) {
        let source = meant.source;
        if found.record != source.record {
            let expected = format!("{} of input offset {}", show(&source.record), source.offset);
            return ruling.report(1, &output, found.offset, expected, show(&found.record));
        }
        if found.producer.is_none() || found.producer != meant.producer {
            let expected = format!("input offset {} written by producer {:?}", source.offset, meant.producer);
            ruling.report(4, &output, found.offset, expected, format!("{:?}", found.producer));
        }
    }
    if let Some(missing) = forwards.get(written.len()) {
        let expected = format!("{} of input offset {}", show(&missing.source.record), missing.source.offset);
        let found = format!("{} records, not {}", written.len(), forwards.len());
        ruling.report(3, &output, None, expected, found);
    }
    if let Some(surplus) = written.get(forwards.len()) {
        let expected = format!("no more than {} records", forwards.len());
        ruling.report(1, &output, surplus.offset, expected, show(&surplus.record));
    }
}

/// If nothing expires and there are no epochs or snapshots, the versions of an identity rise; without versions, each
/// identity comes once.
fn check_versions(case: &Case<'_>, output: &Partition, written: &[Seen], ruling: &mut Ruling) {
    if case.rules.retention_ms.is_some() || case.rules.epoch.is_some() || case.rules.has_changes {
        return;
    }
    let mut latest: BTreeMap<Vec<u8>, Option<i128>> = BTreeMap::new();
    for Seen { offset, record, .. } in written {
        let Ok(model::Read { identity, version, .. }) = model::read(case.rules, record) else { continue };
        if case.rules.version.is_some() && version.is_none() {
            continue;
        }
        if let Some(before) = latest.insert(identity, version).filter(|before| *before >= version) {
            ruling.report(2, output, *offset, format!("a version above {before:?}"), show(record));
        }
    }
}

/// The dead letters, to be matched one by one.
pub struct Letters {
    topic: &'static str,
    /// By the partition and offset that they name: their own partition, the reason, and the letter.
    by_place: BTreeMap<(i32, i64), (Partition, String, Seen)>,
}

impl Letters {
    pub fn read(case: &Case<'_>, ruling: &mut Ruling) -> Self {
        let topic = case.rules.dead_letter;
        let mut by_place = BTreeMap::new();
        let count = case.broker.topics.get(topic).map_or(0, |topic| topic.logs.len() as i32);
        for partition in (0..count).map(|number| Partition::new(topic, number)) {
            for letter in case.committed(&partition) {
                let offset = letter.offset;
                let header = |name: &str| header(&letter, name);
                let number = |name: &str| header(name).and_then(|text| text.parse::<i64>().ok());
                let named = (header("topic"), number("partition"), number("offset"), header("reason"));
                let (Some(from), Some(of), Some(at), Some(reason)) = named else {
                    ruling.report(
                        3,
                        &partition,
                        offset,
                        "headers that name a record and a reason",
                        show(&letter.record),
                    );
                    continue;
                };
                if from != case.rules.input {
                    ruling.report(3, &partition, offset, format!("letters from {}", case.rules.input), from);
                    continue;
                }
                if by_place.insert((of as i32, at), (partition.clone(), reason, letter)).is_some() {
                    ruling.report(2, &partition, offset, "one letter for a record", format!("another for {of}:{at}"));
                }
            }
        }
        Self { topic, by_place }
    }

    /// Whether a record has a letter with this reason.
    pub fn says(&self, number: i32, offset: i64, reason: &str) -> bool {
        self.by_place.get(&(number, offset)).is_some_and(|(_, found, _)| found == reason)
    }

    /// A record must have a letter with this reason, written by its transaction's producer.
    pub fn take(&mut self, number: i32, source: &Seen, (reason, producer): (&str, Option<i64>), ruling: &mut Ruling) {
        let topic = Partition::new(self.topic, number);
        let Some((partition, found, letter)) = self.by_place.remove(&(number, source.offset)) else {
            let expected = format!("a letter for input offset {}, {reason}", source.offset);
            return ruling.report(3, &topic, None, expected, "none");
        };
        if found != reason || !is_copy(&letter.record, &source.record, reason) {
            let expected = format!("{reason}: {}", show(&source.record));
            ruling.report(1, &partition, letter.offset, expected, format!("{found}: {}", show(&letter.record)));
        }
        if letter.producer.is_none() || letter.producer != producer {
            let expected = format!("the letter of input offset {} written by producer {producer:?}", source.offset);
            ruling.report(4, &partition, letter.offset, expected, format!("{:?}", letter.producer));
        }
    }

    /// The reason of a record's letter, if it has one; the letter is a copy of it.
    pub fn take_reason(&mut self, number: i32, source: &Seen, ruling: &mut Ruling) -> Option<String> {
        let (partition, reason, letter) = self.by_place.remove(&(number, source.offset))?;
        if !is_copy(&letter.record, &source.record, &reason) {
            let expected = format!("{reason}: {}", show(&source.record));
            ruling.report(1, &partition, letter.offset, expected, show(&letter.record));
        }
        Some(reason)
    }

    /// A partition's letters cannot be judged.
    pub fn forgive(&mut self, number: i32) {
        self.by_place.retain(|(of, _), _| *of != number);
    }

    /// There are no other letters.
    pub fn end(self, ruling: &mut Ruling) {
        for ((number, offset), (partition, reason, letter)) in self.by_place {
            let found = format!("one for {number}:{offset}, {reason}");
            ruling.report(1, &partition, letter.offset, "no letter for a record that is fine or was not read", found);
        }
    }
}

/// Whether a letter is the record plus headers, all of them ratchet's. It has the record's timestamp, unless that may
/// be what is wrong.
fn is_copy(letter: &Record, source: &Record, reason: &str) -> bool {
    let is_added = |headers: &[u8]| headers_of(headers).iter().all(|(name, _)| name.starts_with(b"__ratchet.errors."));
    (&letter.key, &letter.value) == (&source.key, &source.value)
        && letter.headers.strip_prefix(&source.headers[..]).is_some_and(is_added)
        && (letter.timestamp == source.timestamp || matches!(reason, "timestamp_in_future" | "unsendable"))
}

/// A header of a dead letter.
fn header(letter: &Seen, name: &str) -> Option<String> {
    last_header(letter, &format!("__ratchet.errors.{name}"))
}

/// A header of a result.
pub fn result_header(result: &Seen, name: &str) -> Option<String> {
    last_header(result, &format!("__ratchet.result.{name}"))
}

fn last_header(seen: &Seen, name: &str) -> Option<String> {
    let all = headers_of(&seen.record.headers);
    let (_, value) = all.into_iter().rfind(|(found, _)| *found == name.as_bytes())?;
    value.map(|value| String::from_utf8_lossy(value).into_owned())
}

/// Headers as the simulated cluster stores them: for each its name and value, each after its length; a length of all
/// ones means a null value.
fn headers_of(mut bytes: &[u8]) -> Vec<(&[u8], Option<&[u8]>)> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let name = take_counted(&mut bytes).expect("every header has a name");
        all.push((name, take_counted(&mut bytes)));
    }
    all
}

/// Takes a length and that many bytes off the front.
fn take_counted<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = bytes.split_first_chunk::<4>().expect("a length");
    let length = Some(u32::from_le_bytes(*length)).filter(|length| *length != u32::MAX);
    let (taken, rest) = rest.split_at(length.unwrap_or_default() as usize);
    *bytes = rest;
    length.map(|_| taken)
}
