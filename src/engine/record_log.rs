//! Log lines about records that need attention: dead letters, and dropped records whose contents were new. A line
//! contains the number of records, the reasons, and the place of the first record. There is at most one line per task,
//! fate and interval, so that many such records do not flood the log; the lines together count every committed record.

use std::time::Duration;

use crate::dedup::Reason;
use crate::encodings::behind_registry_prefix;
use crate::record::{Record, TopicPartition};

/// The least time between two lines of one log.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The help for values written by a schema registry's serializers.
const FRAMED_HELP: &str = "they look as if a schema registry's serializer had written them (a zero byte, a schema's \
    id, then Avro or the like), but this topology reads JSON: name their format, `value_format: avro` (or `protobuf`, \
    `json_schema`, `auto`), and the registry, `schema_registry.url`; or identify records by their bytes, with \
    `identity: key`, or with `identity: value` and `value_format: bytes`";

/// Words of the rejection of a key or a value that is not JSON, in a format without schemas.
const READ_AS_JSON: &str = "cannot be read as JSON";

/// The help for records that were dropped although their contents were new.
const CONFLICT_HELP: &str = "if they are other events, add what tells them apart to `identity` or `version`, or write \
    `on_conflict: forward`; if a field differs in each delivery, leave it out with `contents: {fingerprint: value, except: \
    [...]}`; an `audit` topic lists them, and `ratchet replay --summary` names the fields that differ";

/// A task's records that are not logged yet.
#[derive(Debug)]
pub struct RecordLog {
    letters: Log,
    conflicts: Log,
}

/// The records that an open transaction adds once it is committed.
#[derive(Debug, Default)]
pub struct NotedRecords {
    /// The records that go to the dead letter topic.
    pub letters: Noted,
    /// The records that are dropped although their contents are new.
    pub conflicts: Noted,
}

impl NotedRecords {
    /// Drops all counts.
    pub fn clear(&mut self) {
        self.letters.clear();
        self.conflicts.clear();
    }
}

impl Default for RecordLog {
    fn default() -> Self {
        Self { letters: Log::of(Fate::DeadLetter), conflicts: Log::of(Fate::DroppedConflict) }
    }
}

impl RecordLog {
    /// Adds the records of a committed transaction.
    pub fn add(&mut self, committed: &mut NotedRecords) {
        self.letters.add(&mut committed.letters);
        self.conflicts.add(&mut committed.conflicts);
    }

    /// Logs the unlogged records, as far as lines are due. `topic` is the dead letter topic.
    pub fn log_if_due(&mut self, task: &TopicPartition, topic: &str, now: Duration) {
        self.letters.log_if_due(task, topic, now);
        self.conflicts.log_if_due(task, topic, now);
    }

    /// Logs the unlogged records, if there are any.
    pub fn log(&mut self, task: &TopicPartition, topic: &str, now: Duration) {
        self.letters.log(task, topic, now);
        self.conflicts.log(task, topic, now);
    }
}

/// The fate of the records in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// They went to the dead letter topic.
    DeadLetter,
    /// They were dropped although their contents were new.
    DroppedConflict,
}

/// A task's records of one fate that are not logged yet.
#[derive(Debug)]
struct Log {
    fate: Fate,
    /// The records that are committed and not logged yet.
    unlogged: Noted,
    /// When the last line was logged, on the monotonic clock.
    logged_at: Option<Duration>,
}

/// Records of one fate.
#[derive(Debug, Default, PartialEq)]
pub struct Noted {
    reasons: Vec<(Reason, u64)>,
    first: Option<FirstRecord>,
    /// How many records look like the output of a schema registry's serializers.
    framed: u64,
}

/// The first record of one fate.
#[derive(Clone, Debug, PartialEq)]
struct FirstRecord {
    offset: i64,
    message: String,
}

impl Noted {
    /// Counts a record.
    pub fn add(&mut self, record: &Record<'_>, reason: Reason, message: &str) {
        self.count(reason, 1);
        self.framed += u64::from(is_framed(record, reason) && message.contains(READ_AS_JSON));
        if self.first.is_none() {
            self.first = Some(FirstRecord { offset: record.offset, message: message.to_owned() });
        }
    }

    fn count(&mut self, reason: Reason, count: u64) {
        match self.reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, counted)) => *counted += count,
            None => self.reasons.push((reason, count)),
        }
    }

    fn records(&self) -> u64 {
        self.reasons.iter().map(|(_, count)| count).sum()
    }

    /// Drops all counts.
    pub fn clear(&mut self) {
        self.reasons.clear();
        (self.first, self.framed) = (None, 0);
    }
}

impl Log {
    /// A log of records of this fate.
    fn of(fate: Fate) -> Self {
        Self { fate, unlogged: Noted::default(), logged_at: None }
    }

    /// Adds the records of a committed transaction.
    fn add(&mut self, committed: &mut Noted) {
        let unlogged = &mut self.unlogged;
        committed.reasons.iter().for_each(|(reason, count)| unlogged.count(*reason, *count));
        unlogged.framed += committed.framed;
        if unlogged.first.is_none() {
            unlogged.first = committed.first.take();
        }
        committed.clear();
    }

    /// Logs the unlogged records, if a line is due.
    fn log_if_due(&mut self, task: &TopicPartition, topic: &str, now: Duration) {
        if self.logged_at.is_none_or(|logged_at| now.saturating_sub(logged_at) >= LOG_INTERVAL) {
            self.log(task, topic, now);
        }
    }

    /// Logs the unlogged records, if there are any.
    fn log(&mut self, task: &TopicPartition, topic: &str, now: Duration) {
        let Some(FirstRecord { offset, message }) = self.unlogged.first.take() else { return };
        let reasons: Vec<_> =
            self.unlogged.reasons.iter().map(|(reason, count)| format!("{} {count}", reason.as_str())).collect();
        let (records, framed, reasons) = (self.unlogged.records(), self.unlogged.framed, reasons.join(", "));
        let first = format!("{task}:{offset}");
        const LETTERS: &str = "records were set aside in the dead letter topic";
        match (self.fate, framed) {
            (Fate::DeadLetter, 0) => {
                tracing::warn!(%task, records, reasons, first, reason = message, topic, "{LETTERS}");
            }
            (Fate::DeadLetter, _) => {
                tracing::warn!(%task, records, reasons, first, reason = message, topic, framed, help = FRAMED_HELP, "{LETTERS}");
            }
            (Fate::DroppedConflict, _) => {
                tracing::warn!(
                    %task, records, reasons, first, reason = message, help = CONFLICT_HELP,
                    "records were dropped although their contents were not those seen before"
                );
            }
        }
        self.unlogged.clear();
        self.logged_at = Some(now);
    }
}

/// Whether a malformed part starts like the output of a schema registry's serializers: with a zero byte and a four-byte
/// id.
fn is_framed(record: &Record<'_>, reason: Reason) -> bool {
    let part = match reason {
        Reason::ValueMalformed => record.value,
        Reason::KeyMalformed => record.key,
        _ => None,
    };
    part.is_some_and(|bytes| behind_registry_prefix(bytes).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Headers;

    fn record(offset: i64, value: &[u8]) -> Record<'_> {
        Record {
            topic: "t",
            partition: 0,
            offset,
            timestamp: None,
            key: None,
            value: Some(value),
            headers: Headers::default(),
        }
    }

    fn unlogged(letters: &Log) -> (u64, u64, Option<i64>) {
        let Noted { first, framed, .. } = &letters.unlogged;
        (letters.unlogged.records(), *framed, first.as_ref().map(|first| first.offset))
    }

    #[test]
    fn every_committed_dead_letter_is_logged_exactly_once() {
        let (mut letters, mut open, task) = (Log::of(Fate::DeadLetter), Noted::default(), TopicPartition::new("t", 0));
        let framed = [0, 0, 0, 0, 7, 2];
        for (offset, value) in [(5, &b"{"[..]), (6, &framed)] {
            open.add(&record(offset, value), Reason::ValueMalformed, "the value cannot be read as JSON: it is none");
        }
        assert_eq!(unlogged(&letters), (0, 0, None), "nothing is committed yet");
        letters.add(&mut open);
        open.add(&record(7, &framed), Reason::Late, "late");
        open.add(&record(7, &framed), Reason::ValueMalformed, "the value is not a record of schema 7: it ends early");
        letters.add(&mut open);
        assert_eq!(unlogged(&letters), (4, 1, Some(5)), "records of a format with schemas are not counted as framed");
        letters.log_if_due(&task, "dead", Duration::ZERO);
        assert_eq!(unlogged(&letters), (0, 0, None));
        open.add(&record(8, b"{"), Reason::ValueMalformed, "no JSON");
        letters.add(&mut open);
        letters.log_if_due(&task, "dead", LOG_INTERVAL - Duration::from_millis(1));
        assert_eq!(unlogged(&letters), (1, 0, Some(8)), "the next line is not due yet");
        letters.log_if_due(&task, "dead", LOG_INTERVAL);
        assert_eq!(unlogged(&letters), (0, 0, None));
        open.add(&record(9, b"{"), Reason::ValueMalformed, "no JSON");
        letters.add(&mut open);
        letters.log(&task, "dead", LOG_INTERVAL);
        assert_eq!(unlogged(&letters), (0, 0, None), "the task leaves");
    }

    #[test]
    fn registry_frame_is_a_zero_byte_and_an_id_before_a_payload() {
        for (bytes, framed) in
            [(&[0, 0, 0, 0, 7, 2][..], true), (&[0, 0, 0, 0, 7], false), (&[1, 0, 0, 0, 7, 2], false)]
        {
            assert_eq!(is_framed(&record(0, bytes), Reason::ValueMalformed), framed, "{bytes:?}");
        }
        let keyed = Record { key: Some(&[0, 0, 0, 0, 7, 2]), ..record(0, b"{}") };
        assert!(is_framed(&keyed, Reason::KeyMalformed) && !is_framed(&keyed, Reason::ValueMalformed));
    }
}
