//! The results of taking some fields as identity and version.
//!
//! A record repeats another if both have the same fields, without those of the delivery (`sent_at`, `attempt`). If they also
//! differ in a time, or in a request's id, the record is counted separately, as alike, since it may be another event.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

use super::fields::Table;
use super::names;

/// The result of taking some fields as identity and version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trial {
    /// Records that would be dropped although no earlier record says the same.
    pub lost: usize,
    /// Records that would be dropped and repeat an earlier record.
    pub caught: usize,
    /// Records that would be dropped and differ from an earlier one only in fields that may belong to the delivery.
    pub alike: usize,
    /// Changes whose version was greater than the one before.
    pub rises: usize,
    /// Changes whose version was less.
    pub falls: usize,
    /// Changes that have the version of an earlier one, and say something else.
    pub shared: usize,
    /// Records with a greater version that repeat an earlier record, but not the one just before them.
    pub returns: usize,
    /// Records that have all of the fields.
    pub rows: usize,
}

/// What is known of an identity.
struct Entry {
    highest: i128,
    contents: HashSet<u64>,
    /// The versions at which each core was first seen.
    cores: HashMap<u64, i128>,
    /// The cores that were seen at each version.
    versions: HashMap<i128, HashSet<u64>>,
    last: u64,
}

impl Table {
    /// Tries these fields as the identity, and this one as the version. Rows that lack one of them are skipped.
    pub fn trial(&self, identity: &[usize], version: Option<usize>) -> Trial {
        let mut trial = Trial::default();
        let mut entries: HashMap<u64, Entry> = HashMap::new();
        for row in 0..self.rows {
            let Some(key) = self.key(identity, row, true) else { continue };
            let order = match version {
                None => 0,
                Some(version) => match self.fields[version].values[row].and_then(|cell| cell.order) {
                    Some(order) => order,
                    None => continue,
                },
            };
            trial.rows += 1;
            let (content, core) = (self.contents[row], self.cores[row]);
            match entries.get_mut(&key) {
                Some(entry) => entry.add(&mut trial, order, content, core),
                None => {
                    let (contents, cores) = (HashSet::from([content]), HashMap::from([(core, order)]));
                    let versions = HashMap::from([(order, HashSet::from([core]))]);
                    entries.insert(key, Entry { highest: order, contents, cores, versions, last: core });
                }
            }
        }
        trial
    }

    /// Records whose content, without what these fields hold and without what may be of the delivery, an earlier record
    /// of their partition has: `(records, of how many)`.
    pub fn alike_without(&self, identity: &[usize]) -> (usize, usize) {
        let mut seen = HashSet::new();
        let others: Vec<usize> = (0..self.fields.len())
            .filter(|&field| {
                let of = &self.fields[field];
                let is_left_out = names::is_of_delivery(&of.name) || names::may_be_of_delivery(&of.name);
                of.path.source == crate::dedup::Source::Value && !identity.contains(&field) && !is_left_out
            })
            .collect();
        if others.is_empty() {
            return (0, self.rows);
        }
        let alike = (0..self.rows).filter(|&row| !seen.insert(self.hash_of(&others, row))).count();
        (alike, self.rows)
    }
}

impl Entry {
    /// Counts another record of the identity.
    fn add(&mut self, trial: &mut Trial, order: i128, content: u64, core: u64) {
        let is_new = self.contents.insert(content);
        let known = self.cores.get(&core).copied();
        let of_version = self.versions.entry(order).or_default();
        trial.shared += usize::from(of_version.insert(core) && of_version.len() > 1);
        match order.cmp(&self.highest) {
            Ordering::Greater => {
                self.highest = order;
                trial.rises += 1;
                trial.returns += usize::from(known.is_some() && core != self.last);
            }
            _ if !is_new => trial.caught += 1,
            Ordering::Equal if known.is_some() => trial.alike += 1,
            Ordering::Equal => trial.lost += 1,
            Ordering::Less if known == Some(order) => trial.alike += 1,
            Ordering::Less => trial.falls += 1,
        }
        self.cores.entry(core).or_insert(order);
        self.last = core;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::infer::fields::tests::{field, table};

    #[test]
    fn trial_counts_lost_and_caught_records() {
        let table = table(&[
            r#"{"id":1,"v":1,"x":"a"}"#,
            r#"{"id":1,"v":1,"x":"a","sent_at":5}"#,
            r#"{"id":1,"v":2,"x":"b"}"#,
            r#"{"id":1,"v":2,"x":"c"}"#,
            r#"{"id":1,"v":1,"x":"d"}"#,
            r#"{"id":2,"v":1,"x":"a"}"#,
            r#"{"v":1,"x":"a"}"#,
        ]);
        let (id, v) = (field(&table, "value.id"), field(&table, "value.v"));
        let with = table.trial(&[id], Some(v));
        assert_eq!(with, Trial { lost: 1, caught: 1, rises: 1, falls: 1, shared: 2, rows: 6, ..Trial::default() });
        let without = table.trial(&[id], None);
        assert_eq!(without, Trial { lost: 3, caught: 1, shared: 3, rows: 6, ..Trial::default() });
    }

    #[test]
    fn record_that_differs_only_in_a_time_or_a_request_is_alike() {
        let table = table(&[
            r#"{"id":1,"timestamp":10,"request_id":"a","x":1}"#,
            r#"{"id":1,"timestamp":11,"request_id":"b","x":1}"#,
            r#"{"id":2,"timestamp":12,"request_id":"c","x":1}"#,
            r#"{"id":2,"timestamp":13,"request_id":"d","x":2}"#,
        ]);
        let id = field(&table, "value.id");
        assert_eq!(table.trial(&[id], None), Trial { lost: 1, alike: 1, shared: 1, rows: 4, ..Trial::default() });
    }

    #[test]
    fn time_of_the_sending_rises_when_a_record_comes_again() {
        let table = table(&[
            r#"{"id":1,"time":10,"x":"a"}"#,
            r#"{"id":1,"time":11,"x":"b"}"#,
            r#"{"id":1,"time":12,"x":"a"}"#,
            r#"{"id":1,"time":13,"x":"b"}"#,
        ]);
        let trial = table.trial(&[field(&table, "value.id")], Some(field(&table, "value.time")));
        assert_eq!((trial.rises, trial.returns, trial.lost), (3, 2, 0));
    }
}
