//! How a topic was delivered: what came again, and what came out of the log's order.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::Value;

use crate::cluster::Stored;
use crate::database::Database;
use crate::replica::payload;

#[derive(Default)]
pub struct History {
    /// The positions of snapshots.
    pub snapshots: HashSet<Vec<u64>>,
    /// Changes that had been delivered before.
    pub redelivered: usize,
    /// Those of them that had another `sequence` before.
    pub otherwise: usize,
    /// Changes with a position below that of the row's previous change.
    pub falls: usize,
    /// Truncates, and those of them that had been delivered before.
    pub truncates: (usize, usize),
}

impl History {
    /// The history of a table's topic.
    pub fn of(topic: &BTreeMap<i32, Vec<Stored>>, database: &dyn Database) -> History {
        let mut history = History::default();
        let (mut first, mut latest) = (HashMap::new(), HashMap::new());
        for (key, change) in changes(topic) {
            let (source, position) = (&change["source"], database.position(&change["source"]));
            if change["op"] == "r" {
                history.snapshots.insert(position);
                continue;
            }
            let is_truncate = usize::from(change["op"] == "t");
            history.truncates.0 += is_truncate;
            // The previous commit, if the connector knows it.
            let sequence = source["sequence"].as_str().map(str::to_owned);
            match first.entry((key.clone(), position.clone(), change["op"].to_string())) {
                Entry::Occupied(delivered) => {
                    history.redelivered += 1;
                    history.otherwise += usize::from(*delivered.get() != sequence);
                    history.truncates.1 += is_truncate;
                }
                Entry::Vacant(new) => {
                    new.insert(sequence);
                    let before = latest.insert(key, position.clone());
                    history.falls += usize::from(before.is_some_and(|before| position < before));
                }
            }
        }
        history
    }
}

/// The changes in a topic with their keys, without null values.
pub fn changes(topic: &BTreeMap<i32, Vec<Stored>>) -> impl Iterator<Item = (Option<Vec<u8>>, Value)> {
    let records = topic.values().flatten();
    records.filter_map(|record| Some((record.key.clone(), payload(record.value.as_deref()?))))
}
