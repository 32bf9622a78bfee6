//! A judged record, from which counts and findings are made.

use crate::capture::Captured;
use crate::dedup::Decision;
use crate::record::Record;
use crate::rehearsal::Explanation;

/// A judged record.
pub struct Seen<'a> {
    /// The record.
    pub record: &'a Record<'a>,
    /// Its verdict, reason and action.
    pub decision: &'a Decision,
    /// What was read of it.
    pub explanation: &'a Explanation,
    /// Its version's bytes, which sort as versions do within an epoch.
    pub version: Option<&'a [u8]>,
}

impl Seen<'_> {
    /// The record's place, `topic:partition:offset`.
    pub fn place(&self) -> String {
        format!("{}:{}:{}", self.record.topic, self.record.partition, self.record.offset)
    }
}

/// A copy of a record.
pub fn captured(record: &Record<'_>) -> Captured {
    let mut captured = Captured {
        topic: record.topic.to_owned(),
        partition: record.partition,
        offset: record.offset,
        timestamp: record.timestamp,
        key: record.key.map(<[u8]>::to_vec),
        value: record.value.map(<[u8]>::to_vec),
        ..Captured::default()
    };
    captured.headers.extend(record.headers);
    captured
}
