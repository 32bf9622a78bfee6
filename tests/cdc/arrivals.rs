//! What has arrived in a table's topic so far.

use std::collections::HashSet;

use crate::cluster::{Follower, Kafka};
use crate::replica::payload;

pub struct Arrivals {
    follower: Follower,
    /// The first column of the key.
    column: &'static str,
    /// All records.
    pub count: usize,
    /// Reads of snapshots among them.
    pub reads: usize,
    /// The values of that column.
    pub ids: HashSet<i64>,
}

impl Arrivals {
    /// Of a topic whose records' keys begin with this column.
    pub fn of(kafka: &Kafka, topic: &str, column: &'static str) -> Arrivals {
        Arrivals { follower: kafka.follow(topic), column, count: 0, reads: 0, ids: HashSet::new() }
    }

    pub fn look(&mut self) {
        for record in self.follower.look() {
            let id = record.key.as_deref().and_then(|key| payload(key)[self.column].as_i64());
            self.ids.extend(id);
            self.count += 1;
            self.reads += usize::from(record.value.is_some_and(|value| payload(&value)["op"] == "r"));
        }
    }
}
