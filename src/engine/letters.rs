//! What the log says of the records that a task has set aside in the dead letter topic: how many, why, and where the
//! first one stood. A line a task and interval at the most, so that a stream of them does not drown everything else, and
//! none is left out: whatever was committed is counted in one line or the next.

use std::time::Duration;

use crate::dedup::Reason;
use crate::record::{Record, TopicPartition};

/// At most one line in this time.
const INTERVAL: Duration = Duration::from_secs(60);

/// What to do about values that a schema registry's serializers have written.
const FRAMED_HELP: &str = "they look like a schema registry's (a zero byte, a schema's id, then Avro or the like), and \
    ratchet reads JSON: have it written as JSON, by a JsonConverter for instance; or identify records by bytes alone, \
    `identity: key`, or `identity: value` with `value_format: bytes`";

/// What is to be said of a task's dead letters.
#[derive(Debug, Default)]
pub struct Letters {
    /// Those that were committed and not spoken of yet.
    unsaid: SetAside,
    /// When something was said last, on the monotonic clock.
    said_at: Option<Duration>,
}

/// Records that were set aside.
#[derive(Debug, Default, PartialEq)]
pub struct SetAside {
    reasons: Vec<(Reason, u64)>,
    first: Option<First>,
    /// How many begin as a schema registry's serializers write them.
    framed: u64,
}

/// The first of them.
#[derive(Clone, Debug, PartialEq)]
struct First {
    offset: i64,
    message: String,
}

impl SetAside {
    /// Counts a record.
    pub fn add(&mut self, record: &Record<'_>, reason: Reason, message: &str) {
        self.count(reason, 1);
        self.framed += u64::from(is_framed(record, reason));
        if self.first.is_none() {
            self.first = Some(First { offset: record.offset, message: message.to_owned() });
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

    /// Forgets all.
    pub fn clear(&mut self) {
        self.reasons.clear();
        (self.first, self.framed) = (None, 0);
    }
}

impl Letters {
    /// A transaction is committed that has set these aside.
    pub fn settle(&mut self, committed: &mut SetAside) {
        let unsaid = &mut self.unsaid;
        committed.reasons.iter().for_each(|(reason, count)| unsaid.count(*reason, *count));
        unsaid.framed += committed.framed;
        if unsaid.first.is_none() {
            unsaid.first = committed.first.take();
        }
        committed.clear();
    }

    /// Says what there is to say, if it is time for that.
    pub fn say_if_due(&mut self, task: &TopicPartition, topic: &str, now: Duration) {
        if self.said_at.is_none_or(|said_at| now.saturating_sub(said_at) >= INTERVAL) {
            self.say(task, topic, now);
        }
    }

    /// Says what there is to say.
    pub fn say(&mut self, task: &TopicPartition, topic: &str, now: Duration) {
        let Some(First { offset, message }) = self.unsaid.first.take() else { return };
        let reasons: Vec<_> =
            self.unsaid.reasons.iter().map(|(reason, count)| format!("{} {count}", reason.as_str())).collect();
        let (records, framed, reasons) = (self.unsaid.records(), self.unsaid.framed, reasons.join(", "));
        let first = format!("{task}:{offset}");
        const SAID: &str = "records were set aside in the dead letter topic";
        match framed {
            0 => tracing::warn!(%task, records, reasons, first, reason = message, topic, "{SAID}"),
            _ => {
                tracing::warn!(%task, records, reasons, first, reason = message, topic, framed, help = FRAMED_HELP, "{SAID}");
            }
        }
        self.unsaid.clear();
        self.said_at = Some(now);
    }
}

/// Whether what could not be read begins as a schema registry's serializers write it: a zero byte, and four of an id.
fn is_framed(record: &Record<'_>, reason: Reason) -> bool {
    let part = match reason {
        Reason::ValueMalformed => record.value,
        Reason::KeyMalformed => record.key,
        _ => None,
    };
    part.is_some_and(|bytes| bytes.len() > 5 && bytes[0] == 0)
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

    fn unsaid(letters: &Letters) -> (u64, u64, Option<i64>) {
        let SetAside { first, framed, .. } = &letters.unsaid;
        (letters.unsaid.records(), *framed, first.as_ref().map(|first| first.offset))
    }

    #[test]
    fn all_that_was_committed_is_spoken_of_and_each_once() {
        let (mut letters, mut open, task) = (Letters::default(), SetAside::default(), TopicPartition::new("t", 0));
        let framed = [0, 0, 0, 0, 7, 2];
        for (offset, value) in [(5, &b"{"[..]), (6, &framed)] {
            open.add(&record(offset, value), Reason::ValueMalformed, "no JSON");
        }
        assert_eq!(unsaid(&letters), (0, 0, None), "nothing is committed yet");
        letters.settle(&mut open);
        open.add(&record(7, &framed), Reason::Late, "late");
        letters.settle(&mut open);
        assert_eq!(unsaid(&letters), (3, 1, Some(5)), "one that could be read is no registry's");
        letters.say_if_due(&task, "dead", Duration::ZERO);
        assert_eq!(unsaid(&letters), (0, 0, None));
        open.add(&record(8, b"{"), Reason::ValueMalformed, "no JSON");
        letters.settle(&mut open);
        letters.say_if_due(&task, "dead", INTERVAL - Duration::from_millis(1));
        assert_eq!(unsaid(&letters), (1, 0, Some(8)), "it waits for its time");
        letters.say_if_due(&task, "dead", INTERVAL);
        assert_eq!(unsaid(&letters), (0, 0, None));
        open.add(&record(9, b"{"), Reason::ValueMalformed, "no JSON");
        letters.settle(&mut open);
        letters.say(&task, "dead", INTERVAL);
        assert_eq!(unsaid(&letters), (0, 0, None), "it leaves");
    }

    #[test]
    fn a_registrys_frame_is_a_zero_byte_and_an_id_before_something() {
        for (bytes, framed) in
            [(&[0, 0, 0, 0, 7, 2][..], true), (&[0, 0, 0, 0, 7], false), (&[1, 0, 0, 0, 7, 2], false)]
        {
            assert_eq!(is_framed(&record(0, bytes), Reason::ValueMalformed), framed, "{bytes:?}");
        }
        let keyed = Record { key: Some(&[0, 0, 0, 0, 7, 2]), ..record(0, b"{}") };
        assert!(is_framed(&keyed, Reason::KeyMalformed) && !is_framed(&keyed, Reason::ValueMalformed));
    }
}
