//! Whether a task can have written a redo.
//!
//! The row is in a database that other programs may write to, and a redo is sent to Kafka unchanged, with ratchet's own
//! rights there. So it is compared with facts from outside the row: the topology's topics, the task's input, and the
//! transaction that the row names. A forged redo that passes can write only dead letters, audit records, results and
//! entries of this partition, like a program with write access to these topics.
//!
//! **Failure**: the task stops before any record is written to Kafka.

use crate::cluster::{self, Cluster, TopicId};
use crate::engine::context::Context;
use crate::engine::resume::Refusal;
use crate::engine::task::Task;
use crate::format::{
    KIND_IDENTITY, KIND_IDENTITY_DIGEST, OffsetMetadata, POSITION_KEY, PositionRecord, Redo, RedoRecord, Token,
};

/// The facts that a task's redos are compared with.
#[derive(Clone, Debug)]
pub struct RedoFacts<'a> {
    /// The topics that its transactions write to beside the changelog, and how many partitions each has.
    pub topics: Vec<(&'a str, i32)>,
    /// The transaction that the row names.
    pub token: Token,
    /// The input topic's id, and the input partition.
    pub input: (TopicId, i32),
    /// The rules' digest.
    pub rules_digest: &'a [u8; 32],
    /// The input's partition count.
    pub task_count: u32,
}

impl<'a> RedoFacts<'a> {
    /// The facts of a task whose row names the transaction `token`.
    pub fn of<C: Cluster>(context: &'a Context, task: &Task<C>, token: Token) -> Self {
        let (topology, known) = (&context.topology, &task.topics.facts);
        let topics = [
            (Some(&*topology.dead_letter), known.dead_letter_partitions),
            (topology.audit.as_deref(), known.audit_partitions),
            (context.results(), known.result_partitions),
        ];
        Self {
            topics: topics.into_iter().filter_map(|(topic, partitions)| Some((topic?, partitions))).collect(),
            token,
            input: (task.topics.input_id, task.input.partition),
            rules_digest: &context.rules_digest,
            task_count: known.task_count,
        }
    }

    /// Looks up a topic's present number of partitions if the redo names a partition beyond the known ones: the redo's
    /// writer may have started after partitions were added.
    pub fn refresh_partition_counts(
        &mut self,
        redo: &Redo<'_>,
        mut count: impl FnMut(&str) -> Result<Option<i32>, cluster::Error>,
    ) -> Result<(), cluster::Error> {
        for record in redo.records() {
            let RedoRecord::Topic { topic, partition, .. } = record else { continue };
            if let Some((_, known)) = self.topics.iter_mut().find(|(own, known)| *own == topic && partition >= *known) {
                *known = count(topic)?.unwrap_or(0);
            }
        }
        Ok(())
    }

    /// Refuses a redo that the task cannot have written.
    pub fn check(&self, redo: &Redo<'_>) -> Result<(), Refusal> {
        let mut records = redo.records().peekable();
        while let Some(record) = records.next() {
            let is_last = records.peek().is_none();
            match record {
                RedoRecord::Topic { topic, partition, .. } => self.check_topic(topic, partition)?,
                RedoRecord::Changelog { key: POSITION_KEY, value: Some(position) } if is_last => {
                    self.check_position(redo, position)?;
                }
                RedoRecord::Changelog { key, .. } if !is_entry_key(key) => {
                    return reject("it has a changelog record that is not an entry".to_owned());
                }
                RedoRecord::Changelog { .. } => {}
            }
        }
        Ok(())
    }

    fn check_topic(&self, topic: &str, partition: i32) -> Result<(), Refusal> {
        match self.topics.iter().find(|(own, _)| *own == topic) {
            Some((_, partitions)) if (0..*partitions).contains(&partition) => Ok(()),
            Some(_) => reject(format!("it writes to partition {partition} of {topic}, which does not exist")),
            None => reject(format!("it writes to the topic {topic:?}, to which this topology does not write")),
        }
    }

    fn check_position(&self, redo: &Redo<'_>, position: &[u8]) -> Result<(), Refusal> {
        let (position, _) = PositionRecord::decode_with_calls(position).map_err(Refusal::RedoUnreadable)?;
        let (input_id, partition) = self.input;
        if position.token != self.token || position.token.partition != partition {
            return reject(format!(
                "its position record belongs to the transaction {}, not {}",
                position.token, self.token
            ));
        }
        if position.input_id != input_id.0 {
            let found = TopicId(position.input_id);
            return reject(format!("its position record belongs to an input with the id {found}, not {input_id}"));
        }
        let end = position.processed.last().map(|&(_, end)| end);
        if end != Some(redo.next) || redo.began > redo.next {
            return reject(format!("its offsets, {} to {}, do not match its position record", redo.began, redo.next));
        }
        // The task would refuse to restore from a changelog with such a record.
        if position.rules_digest != *self.rules_digest {
            let [found, ours] = [&position.rules_digest, self.rules_digest].map(OffsetMetadata::short_digest);
            return Err(Refusal::OtherRules { found, ours });
        }
        if position.task_count != self.task_count {
            return Err(Refusal::Rescaled { known: position.task_count, found: self.task_count });
        }
        Ok(())
    }
}

fn reject<T>(reason: String) -> Result<T, Refusal> {
    Err(Refusal::RedoForeign { reason })
}

/// Whether this is the key of an entry.
fn is_entry_key(key: &[u8]) -> bool {
    matches!(key, [KIND_IDENTITY | KIND_IDENTITY_DIGEST, _, ..])
}

#[cfg(test)]
mod tests {
    //! Goal: a redo reaches Kafka only if the task itself can have written it.

    use super::*;
    use crate::format::{NO_TIME, RedoWriter, STORE_META_KEY};
    use crate::record::Headers;

    const TOKEN: Token = Token { lane: 1, transaction: 9, changelog_id: [7; 16], partition: 2 };

    fn facts() -> RedoFacts<'static> {
        let topics = vec![("shop.dead_letter", 1), ("shop.results", 4)];
        RedoFacts { topics, token: TOKEN, input: (TopicId([5; 16]), 2), rules_digest: &[3; 32], task_count: 4 }
    }

    fn position() -> PositionRecord {
        PositionRecord {
            token: TOKEN,
            owner: "ratchet.shop.1.0".to_owned(),
            input_id: [5; 16],
            processed: vec![(0, 77)],
            stream_time: NO_TIME,
            horizon: i64::MIN,
            rules_digest: [3; 32],
            generation: 1,
            task_count: 4,
            truncates: 0,
            scopes: Vec::new(),
        }
    }

    fn record_to(topic: &str, partition: i32) -> RedoRecord<'_> {
        let (headers, key, value) = (Headers::default(), None, Some(&b"{}"[..]));
        RedoRecord::Topic { topic, partition, timestamp: None, headers, key, value }
    }

    fn check(records: &[RedoRecord<'_>], position: &PositionRecord) -> Result<(), Refusal> {
        let mut writer = RedoWriter::default();
        writer.begin();
        records.iter().for_each(|record| writer.push(*record));
        writer.push(RedoRecord::Changelog { key: POSITION_KEY, value: Some(&position.encode()) });
        let bytes = writer.finish(70, 77);
        facts().check(&Redo::decode(bytes).unwrap())
    }

    fn reason(refused: Result<(), Refusal>) -> String {
        match refused {
            Err(Refusal::RedoForeign { reason }) => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn redo_of_the_task_passes() {
        let entries = [&[KIND_IDENTITY, 1][..], &[KIND_IDENTITY_DIGEST; 33]];
        let entries = entries.map(|key| RedoRecord::Changelog { key, value: None });
        let records = [&[record_to("shop.dead_letter", 0), record_to("shop.results", 3)][..], &entries].concat();
        assert_eq!(check(&records, &position()), Ok(()));
    }

    #[test]
    fn redo_that_writes_to_a_foreign_topic_is_refused() {
        for topic in ["payments", "ratchet.shop.orders.changelog", "ratchet.shop.control", "shop.dead_letter2", ""] {
            let reason = reason(check(&[record_to("shop.results", 0), record_to(topic, 0)], &position()));
            assert!(reason.contains(&format!("{topic:?}")), "{reason}");
        }
        for partition in [-1, 4, i32::MAX] {
            assert!(reason(check(&[record_to("shop.results", partition)], &position())).contains("does not exist"));
        }
    }

    #[test]
    fn partition_count_is_looked_up_again_if_a_redo_names_an_unknown_partition() {
        let mut writer = RedoWriter::default();
        writer.begin();
        [record_to("shop.results", 3), record_to("shop.results", 5), record_to("payments", 9)]
            .iter()
            .for_each(|record| writer.push(*record));
        writer.push(RedoRecord::Changelog { key: POSITION_KEY, value: Some(&position().encode()) });
        let bytes = writer.finish(70, 77).to_vec();
        let redo = Redo::decode(&bytes).unwrap();
        for (count, names_it) in [(Some(6), false), (Some(4), true), (None, true)] {
            let (mut facts, mut looked_up) = (facts(), Vec::new());
            let result = facts.refresh_partition_counts(&redo, |topic| {
                looked_up.push(topic.to_owned());
                Ok(count)
            });
            assert!(result.is_ok() && looked_up.iter().all(|topic| topic == "shop.results"), "{looked_up:?}");
            // The foreign topic is refused in any case, but the partition is checked first.
            assert_eq!(reason(facts.check(&redo)).contains("shop.results"), names_it, "{count:?}");
        }
    }

    #[test]
    fn redo_with_changelog_records_other_than_entries_is_refused() {
        let position_within = position().encode();
        for (key, value) in [
            (POSITION_KEY, Some(position_within.as_slice())),
            (POSITION_KEY, None),
            (STORE_META_KEY, Some(&b"meta"[..])),
            (&[KIND_IDENTITY], None),
            (&[], None),
        ] {
            let reason = reason(check(&[RedoRecord::Changelog { key, value }], &position()));
            assert!(reason.contains("not an entry"), "{key:?}: {reason}");
        }
    }

    #[test]
    fn redo_of_another_transaction_or_input_is_refused() {
        let with = |change: fn(&mut PositionRecord)| {
            let mut position = position();
            change(&mut position);
            check(&[], &position)
        };
        assert!(reason(with(|position| position.token.transaction = 8)).contains("belongs to the transaction"));
        assert!(reason(with(|position| position.token.partition = 3)).contains("belongs to the transaction"));
        assert!(reason(with(|position| position.input_id = [6; 16])).contains("belongs to an input"));
        for processed in [vec![], vec![(0, 78)], vec![(0, 77), (80, 90)]] {
            let refused = check(&[], &PositionRecord { processed, ..position() });
            assert!(reason(refused).contains("70 to 77"));
        }
        assert!(matches!(with(|position| position.rules_digest = [4; 32]), Err(Refusal::OtherRules { .. })));
        assert_eq!(with(|position| position.task_count = 3), Err(Refusal::Rescaled { known: 3, found: 4 }));
    }
}
