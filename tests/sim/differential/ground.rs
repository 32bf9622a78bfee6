//! What scripts need besides `ratchet::cluster`'s traits: time, administrators, and other people's clients.

use ratchet::record::TopicPartition;

/// A key and a value.
pub type Pair<'a> = (Option<&'a str>, Option<&'a str>);

/// The cluster underneath.
pub trait Ground {
    /// A script's name of a topic, group or transactional id, made unique to the script.
    fn name(&self, name: &str) -> String;
    fn now_ms(&self) -> u64;
    fn pause(&self, ms: u64);

    /// Writes records outside any transaction, one by one.
    fn write(&self, to: &TopicPartition, records: &[Pair<'_>]);
    /// What a read_uncommitted reader sees, from the start.
    fn read_uncommitted(&self, from: &TopicPartition) -> Vec<(i64, Option<String>)>;
    /// First offset, last stable offset, end.
    fn bounds(&self, of: &TopicPartition) -> [i64; 3];

    fn delete_records(&self, of: &TopicPartition, upto: i64);
    fn delete_topic(&self, topic: &str);
    fn grow(&self, topic: &str, partitions: i32);
    /// Makes sure that the cleaner passes over everything below `upto`.
    fn compact(&self, of: &TopicPartition, upto: i64);
    /// Deletes a group; returns whether it was deleted.
    fn delete_group(&self, group: &str) -> bool;
    /// Commits an offset as a client that is no member; returns whether it was accepted.
    fn set_offset(&self, group: &str, of: &TopicPartition, offset: i64, text: &str) -> bool;

    /// Opens a transaction of another client.
    fn foreign_begin(&mut self, id: &str);
    fn foreign_write(&mut self, id: &str, to: &TopicPartition, record: Pair<'_>);
    /// Adds an offset to it, as a client that has not joined the group.
    fn foreign_offset(&mut self, id: &str, group: &str, of: &TopicPartition, offset: i64, text: &str);
    fn foreign_end(&mut self, id: &str, commit: bool);
}
