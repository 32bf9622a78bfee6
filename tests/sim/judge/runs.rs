//! Splits a changelog into transactions, and checks that they follow one another as they should under a sequence of
//! owners.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{UnwindSafe, catch_unwind};

use crate::kafka::{Partition, Record};

use super::Ruling;
use super::bytes::{self, POSITION_KEY, Position};
use super::history::Changelog;

/// One transaction's records, and its position record.
pub struct Run<'a> {
    /// The offset of the position record.
    pub at: i64,
    pub producer: Option<i64>,
    pub position: Position,
    /// The records before it.
    pub written: Vec<(i64, &'a Record)>,
}

impl Run<'_> {
    /// Where the input continues.
    pub fn end(&self) -> i64 {
        self.position.processed.last().map_or(0, |range| range.1)
    }

    /// The highest processed offset.
    fn highest(&self) -> i64 {
        self.position.processed.iter().map(|range| range.1).max().unwrap_or(0)
    }

    /// Whether everything between these offsets was processed.
    fn covers(&self, from: i64, to: i64) -> bool {
        from >= to || self.position.processed.iter().any(|range| range.0 <= from && to <= range.1)
    }
}

/// What the checker's reader makes of bytes; `None` if it panics.
pub fn decoded<T>(decode: impl FnOnce() -> T + UnwindSafe) -> Option<T> {
    catch_unwind(decode).ok()
}

/// The transactions of a partition of the changelog, by their position records.
pub fn of<'a>(changelog: &'a Changelog, partition: &Partition, ruling: &mut Ruling) -> Vec<Run<'a>> {
    let mut runs = Vec::new();
    let mut unfinished: BTreeMap<Option<i64>, Vec<(i64, &Record)>> = BTreeMap::new();
    for (&offset, written) in &changelog.records {
        let (producer, record) = (written.producer, &written.record);
        if producer.is_none() {
            ruling.report(4, partition, offset, "records of transactions only", "one outside of any");
        }
        if record.key.as_deref() != Some(POSITION_KEY) {
            unfinished.entry(producer).or_default().push((offset, record));
            continue;
        }
        let mine = unfinished.remove(&producer).unwrap_or_default();
        if let Some(first) = unfinished.values().flatten().map(|(offset, _)| *offset).min() {
            let found = format!("at {offset} the position record of producer {producer:?}, and others are not done");
            ruling.report(7, partition, first, "one owner's transaction after the other's", found);
        }
        let value = record.value.as_deref().unwrap_or_default();
        match decoded(|| bytes::position(value)) {
            Some(position) => runs.push(Run { at: offset, producer, position, written: mine }),
            None => ruling.report(4, partition, offset, "a position record", format!("{value:02x?}")),
        }
    }
    if let Some(first) = unfinished.values().flatten().map(|(offset, _)| *offset).min() {
        ruling.report(4, partition, first, "a position record after every record", "none");
    }
    runs
}

/// Each range continues where the one before ended, under the same rules; each lane counts upwards, and no token is
/// used twice.
pub fn check_order(runs: &[Run<'_>], partition: &Partition, was_reset: bool, ruling: &mut Ruling) {
    let mut tokens = BTreeSet::new();
    let mut latest: BTreeMap<u64, u64> = BTreeMap::new();
    for Run { at, position, .. } in runs {
        let token = position.token;
        if !tokens.insert(token) {
            ruling.report(7, partition, *at, "each token once", format!("{} again", token.text()));
            continue;
        }
        let before = latest.insert(token.lane, token.transaction);
        if before >= Some(token.transaction) {
            let expected = format!("transactions of lane {:x} above {before:?}", token.lane);
            ruling.report(7, partition, *at, expected, format!("{}", token.transaction));
        }
    }
    for pair in runs.windows(2) {
        let [before, after] = pair else { continue };
        if after.position.rules_digest != before.position.rules_digest {
            let expected = format!("the rules {:02x?}, as before", before.position.rules_digest);
            ruling.report(4, partition, after.at, expected, format!("{:02x?}", after.position.rules_digest));
        }
        if after.highest() < before.highest() || !holds(&after.position.processed, &before.position.processed) {
            let expected = format!("more than {:?}, which was processed before", before.position.processed);
            ruling.report(7, partition, after.at, expected, format!("{:?}", after.position.processed));
        } else if !after.covers(before.end(), after.end()) && !was_reset {
            let expected = format!("to continue from {}", before.end());
            ruling.report(3, partition, after.at, expected, format!("{:?}", after.position.processed));
        }
    }
}

/// Whether `more` contains all of `less`.
fn holds(more: &[(i64, i64)], less: &[(i64, i64)]) -> bool {
    less.iter()
        .filter(|(from, to)| from < to)
        .all(|(from, to)| more.iter().any(|(start, end)| start <= from && to <= end))
}

/// Whether any of the ranges contains an offset.
pub fn contains(ranges: &[(i64, i64)], offset: i64) -> bool {
    ranges.iter().any(|(from, to)| (*from..*to).contains(&offset))
}
