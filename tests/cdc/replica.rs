//! What a consumer makes of a topic: a table in which the last record of a key wins. It notes whenever a row goes back
//! in time, which shows in the rows' revisions, since these only rise in the source.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::avro;
use crate::cluster::Stored;

/// A table built from change events.
#[derive(Default)]
pub struct Replica {
    pub rows: BTreeMap<String, Value>,
    /// Rows that were replaced by an older state.
    pub went_back: Vec<String>,
    /// Deleted rows that reappeared in a state from before their delete.
    pub came_back: Vec<String>,
    /// Rows that were removed by the delete of an older state.
    pub vanished: Vec<String>,
    /// Null values without a delete before them, and deletes without a null value after them.
    pub stray_tombstones: Vec<String>,
    /// The greatest revision of each key so far.
    newest: BTreeMap<String, i64>,
    /// Keys whose last record is a delete.
    owing: BTreeSet<String>,
}

impl Replica {
    /// The table that results from a topic's records.
    pub fn of(topic: &BTreeMap<i32, Vec<Stored>>) -> Replica {
        let mut replica = Replica::default();
        // A key's records are in one partition, so the order of the partitions does not matter.
        for record in topic.values().flatten() {
            replica.apply(record);
        }
        replica.stray_tombstones.extend(replica.owing.iter().map(|key| format!("{key}: no null value at the end")));
        replica
    }

    fn apply(&mut self, record: &Stored) {
        let key = payload(record.key.as_deref().expect("a change of a row has a key")).to_string();
        let Some(value) = &record.value else {
            if !self.owing.remove(&key) {
                self.stray_tombstones.push(format!("{key} at offset {}: a null value", record.offset));
            }
            self.rows.remove(&key);
            return;
        };
        if self.owing.remove(&key) {
            self.stray_tombstones
                .push(format!("{key} at offset {}: a change where a null value was due", record.offset));
        }
        let change = payload(value);
        let now = self.rows.get(&key).map(revision);
        if change["after"].is_null() {
            // Where the log holds only the key of a deleted row, the connector leaves the other columns empty.
            let deleted = revision(&change["before"]);
            if let Some(now) = now.filter(|&now| 0 < deleted && deleted < now) {
                self.vanished.push(format!("{key} at offset {}: {now}, by a delete of {deleted}", record.offset));
            }
            self.rows.remove(&key);
            self.owing.insert(key);
            return;
        }
        let new = revision(&change["after"]);
        let newest = self.newest.entry(key.clone()).or_default();
        match now {
            Some(now) if new < now => self.went_back.push(format!("{key} at offset {}: {now} to {new}", record.offset)),
            None if new <= *newest => self.came_back.push(format!("{key} at offset {}: {new}", record.offset)),
            _ => {}
        }
        *newest = new.max(*newest);
        self.rows.insert(key, change["after"].clone());
    }
}

/// The event in a converter's JSON, with or without its schema, or in Avro behind an id.
pub fn payload(bytes: &[u8]) -> Value {
    if let [0, id @ ..] = bytes {
        return avro::decoded(id);
    }
    let mut value: Value = serde_json::from_slice(bytes).expect("the converter writes JSON");
    if value.get("schema").is_some() { value["payload"].take() } else { value }
}

fn revision(row: &Value) -> i64 {
    row["revision"].as_i64().unwrap_or(0)
}
