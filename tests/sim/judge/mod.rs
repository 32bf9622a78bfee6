//! The judge: compares what a run was given with what it left in the cluster and on disks, and reports which
//! invariants of docs/guarantees.md are broken. It knows the input and the rules, and reads persisted bytes,
//! including record headers and store files, with the checker's own reader. It shares no rules, formats or decoding
//! code with the engine.
//!
//! | | invariant | where |
//! |---|---|---|
//! | 1 | the output is the model's, record for record, in order | `output` |
//! | 2 | the versions of an identity rise in the output, if nothing expires | `output` |
//! | 3 | each input record below the committed offset was forwarded, dropped or dead-lettered; none is missing | `output`, `offsets`, `runs` |
//! | 4 | a transaction is whole: one producer wrote all of it, its position record comes last, it wrote what its range changes, each committed offset is its end and names its token and its rules; committed offsets do not go back | `runs`, `output`, `offsets`, `history` |
//! | 5 | a store is the changelog folded up to its transaction, byte for byte; during a restore, nothing in it is older than its position | `stores` |
//! | 6 | the changelog folded is the model's state; processing does not continue on a recreated one | `partition` |
//! | 7 | owners follow one another: their transactions do not interleave, ranges and counts rise, and each is written by its owner's producer | `runs`, `partition` |
//! | 8 | everything in a store was committed | `stores` |
//! | 9 | stores of the same transaction are the same, however they were built | `stores` |
//! | 10 | everything is read in time, and nothing is left open | here |
//! | 11 | a refusal destroys nothing: what a store held stays until another is whole; a deleted changelog is not recreated | `stores`, here |
//! | 12 | a database holds each effect once, in order, by the transaction that the changelog names; rows and position records go through the same transactions; a task is refused for it only where something went back in time | `sunk` |
//! | 13 | a provider has done each effect as often as is promised; each record that calls has one end, and no other has any; results tell what was done; a handler's steps come in order, each once what is before it is committed | `called` |
//! | 14 | each partition carries out a command once, notes it in the transaction that acknowledges it, waits for calls that are open, and what comes after goes by it | `commands` |
//! | 15 | a gate drops only what another partition has passed on, or has set aside as unsendable; while it forgets nothing and everything is asked about, one partition passes a thing on | `gated` |
//!
//! Whatever happens, everything committed is judged: a refused task has read less, but what it did must be right. An
//! upheaval excuses only this: if the group was reset or deleted, its committed offset may go back or have no text;
//! if the changelog lost records, partitions whose tasks were refused need not be read.
//!
//! - `rules`, `model`, `epochs`: the required output; `history`: what was seen on the way; `runs`: a changelog split
//!   into transactions
//! - `partition`, `output`, `audit`, `offsets`, `stores`: the comparisons
//! - `coverage`: the situations that runs should reach; `heard`: those that the engine logs

use std::collections::BTreeMap;
use std::fmt;

use ratchet::dedup::Bounds;

use crate::kafka::{Broker, Partition, Record};

mod audit;
pub mod called;
mod commands;
pub mod coverage;
mod epochs;
mod gated;
pub mod heard;
mod history;
mod model;
mod offsets;
mod output;
mod partition;
mod rules;
mod runs;
pub mod stores;
mod sunk;

pub use called::Called;
pub use history::History;
#[cfg(test)]
use rules::SHOP;
pub use sunk::Sunk;

pub use ratchet_testkit::checker::bytes;
use rules::Rules;
pub use rules::rules;

#[cfg(test)]
mod tests;

/// A broken invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Its number in docs/guarantees.md.
    pub invariant: u8,
    pub partition: Partition,
    pub offset: Option<i64>,
    pub expected: String,
    pub found: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invariant {}, {:?}", self.invariant, self.partition)?;
        if let Some(offset) = self.offset {
            write!(f, " at offset {offset}")?;
        }
        write!(f, ": expected {}, found {}", self.expected, self.found)
    }
}

/// The judge's findings.
#[derive(Clone, Debug, Default)]
pub struct Ruling {
    pub violations: Vec<Violation>,
    /// Situations found in logs and stores, and how often.
    pub seen: BTreeMap<&'static str, u64>,
}

impl Ruling {
    pub fn report(
        &mut self,
        invariant: u8,
        partition: &Partition,
        offset: impl Into<Option<i64>>,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) {
        let (expected, found) = (expected.into(), found.into());
        self.violations.push(Violation {
            invariant,
            partition: partition.clone(),
            offset: offset.into(),
            expected,
            found,
        });
    }

    fn see(&mut self, situation: &'static str) {
        *self.seen.entry(situation).or_default() += 1;
    }

    /// The violations as messages.
    pub fn messages(&self) -> Vec<String> {
        self.violations.iter().map(Violation::to_string).collect()
    }
}

/// What is judged.
#[derive(Clone, Copy)]
struct Case<'a> {
    broker: &'a Broker,
    rules: &'static Rules,
    history: &'a History,
    /// How many partitions are read. If the input gains partitions, this stays the same.
    partitions: i32,
}

/// A record of a log, as a read_committed reader sees it.
struct Seen {
    offset: i64,
    producer: Option<i64>,
    record: Record,
}

impl<'a> Case<'a> {
    fn new(broker: &'a Broker, history: &'a History) -> Self {
        Self { broker, rules: history.rules, history, partitions: history.partitions }
    }

    /// All committed records of a partition.
    fn committed(&self, partition: &Partition) -> Vec<Seen> {
        let mut seen = Vec::new();
        if let Some(log) = self.broker.topics.log(partition) {
            log.examine(log.start(), |offset, producer, record, is_aborted| {
                if !is_aborted {
                    seen.push(Seen { offset, producer, record: record.clone() });
                }
            });
        }
        seen
    }

    /// What is unread, or hidden by an open transaction.
    fn lags(&self) -> Vec<(Partition, String, String)> {
        let mut lags = Vec::new();
        if self.broker.coordinator.has_markers() {
            let coordinator = Partition::new("__transaction_state", 0);
            lags.push((coordinator, "no markers to be written".to_owned(), "some".to_owned()));
        }
        for number in 0..self.partitions {
            let input = Partition::new(self.rules.input, number);
            let end = self.broker.topics.log(&input).map_or(0, |log| log.end());
            let committed = self.broker.groups.committed(self.rules.group, &input, true);
            let is_read = committed.as_ref().is_ok_and(|found| found.as_ref().map_or(0, |found| found.offset) == end);
            if !is_read {
                lags.push((input, format!("everything read, up to {end}"), format!("{committed:?}")));
            }
            let written = [self.rules.output, self.rules.changelog, self.rules.dead_letter];
            for topic in written.into_iter().chain(self.rules.audit) {
                let partition = Partition::new(topic, number);
                let Some(log) = self.broker.topics.log(&partition) else { continue };
                if log.stable_end() < log.end() {
                    let found = format!("a transaction open from {} on", log.stable_end());
                    lags.push((partition, format!("no open transaction below {}", log.end()), found));
                }
            }
        }
        if self.rules.calls {
            lags.extend(commands::lags(self));
        }
        lags
    }
}

/// Whether everything was read and nothing is pending.
pub fn is_drained(broker: &Broker, history: &History) -> bool {
    Case::new(broker, history).lags().is_empty()
}

/// What is late: unread, or left open. Call it when everything was read, or time is up.
pub fn liveness(broker: &Broker, history: &History) -> Vec<Violation> {
    let mut ruling = Ruling::default();
    let case = Case::new(broker, history);
    for (partition, expected, found) in case.lags() {
        let is_input = *partition.topic == *case.rules.input;
        let is_full = || is_input && partition::meets_bound(&case, partition.number).is_some();
        let is_excused = history.excuses(&partition)
            || history.sunk().is_some_and(|sunk| is_input && sunk.excuses(history, &partition))
            || history.called().is_some_and(|called| is_input && called.excuses(&partition))
            || history.was_refused(&partition) && is_full();
        if !is_excused {
            ruling.report(10, &partition, None, expected, found);
        }
    }
    ruling.violations
}

/// For each partition, the first record that would take the task beyond its bounds on history.
pub fn bounds_met(broker: &Broker, history: &History) -> Vec<(i32, i64)> {
    if history.bounds == Bounds::DEFAULT {
        return Vec::new();
    }
    let case = Case::new(broker, history);
    (0..case.partitions).filter_map(|number| Some((number, partition::meets_bound(&case, number)?))).collect()
}

/// Where a task stopped at a record that panics, or for which its bounds leave no room: a violation unless everything
/// before the record is committed, and the record is not. `None` if no task stopped.
pub fn stopped_at(broker: &Broker, history: &History, (number, offset): (i32, i64)) -> Option<Option<Violation>> {
    let case = Case::new(broker, history);
    let input = Partition::new(case.rules.input, number);
    if !history.was_refused(&input) {
        return None;
    }
    let before = case.committed(&input).iter().map(|seen| seen.offset).filter(|at| *at < offset).max();
    // Late requests and old coordinators may have set the offset back since.
    let committed = history.committed(number).map(|committed| committed.offset).max().unwrap_or(0);
    let is_right = (before.map_or(0, |before| before + 1)..=offset).contains(&committed);
    Some((!is_right).then(|| Violation {
        invariant: 10,
        partition: input,
        offset: Some(offset),
        expected: "the group's offset right before the record at which its task stopped".to_owned(),
        found: committed.to_string(),
    }))
}

/// What is wrong with what was committed. All markers must be written before.
pub fn examine(broker: &Broker, history: &mut History) -> Ruling {
    history.look(broker);
    let mut ruling = std::mem::take(&mut history.ruling);
    let case = Case::new(broker, history);
    let mut letters = output::Letters::read(&case, &mut ruling);
    let mut explanations = audit::Explanations::read(&case, &mut ruling);
    let mut results = sunk::Results::read(&case, &mut ruling);
    if let Some(called) = history.called().filter(|_| case.rules.calls) {
        called.check(&case, &mut letters, &mut ruling);
        letters.end(&mut ruling);
        return ruling;
    }
    let mut gated = gated::Gated::default();
    for number in 0..case.partitions {
        partition::check(&case, number, (&mut letters, &mut explanations, &mut results, &mut gated), &mut ruling);
    }
    if case.rules.gated {
        gated.end(&case, &mut ruling);
    }
    if let Some(sunk) = history.sunk() {
        sunk.check(&case, results, &mut ruling);
    }
    explanations.end(&mut ruling);
    letters.end(&mut ruling);
    if history.has_lost_changelog && broker.topics.get(case.rules.changelog).is_some() {
        let changelog = Partition::new(case.rules.changelog, 0);
        ruling.report(11, &changelog, None, "no changelog in place of the deleted one", "another one");
    }
    ruling
}

/// Bytes as text for a message.
fn text(bytes: Option<&[u8]>) -> String {
    bytes.map_or("null".to_owned(), |bytes| String::from_utf8_lossy(bytes).into_owned())
}

/// Maximum number of a value's bytes in a message.
const SHOWN_MAX: usize = 200;

/// A record as text for a message.
fn show(record: &Record) -> String {
    let Record { timestamp, key, value, headers } = record;
    let shown = value.as_deref().map(|value| &value[..value.len().min(SHOWN_MAX)]);
    let bytes = value.as_ref().map_or(0, |value| value.len());
    format!(
        "{} -> {} ({bytes} bytes) at {timestamp:?}, {} bytes of headers",
        text(key.as_deref()),
        text(shown),
        headers.len()
    )
}
