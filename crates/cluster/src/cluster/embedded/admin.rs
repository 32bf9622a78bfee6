//! Administration of a cluster: creating and deleting topics, loading samples, trimming logs,
//! resetting groups, and reading everything for a check.

use std::sync::Arc;

use rocksdb::WriteBatch;

use super::batch::StoredRecord;
use super::broker::Broker;
use super::buffer::{Buffer, Taken};
use super::error::refused;
use super::layout::{self, OffsetMeta, PartitionMeta, TopicMeta};
use super::state::State;
use super::topics::{self, Settings, Topic};
use super::{Embedded, Settled};
use crate::cluster::{Cluster, CommittedOffset, Error, Inquiry, Message, NewTopic, Seen, SeenRecord, TopicId};
use crate::format::ChangelogOffset;
use crate::record::TopicPartition;

impl Embedded {
    /// Appends records outside any transaction, all of them or none, and returns the offset after the
    /// last. A topic that does not exist is created with the default partition count. The messages' own
    /// `topic` and `partition` are ignored.
    pub fn append(&self, topic: &str, partition: i32, messages: &[Message<'_>]) -> Result<i64, Error> {
        if self.describe_topic(topic)?.is_none() {
            let partition_count = self.broker.options.partition_count;
            self.create_topic(&NewTopic { name: topic, partition_count, replication_factor: 1, settings: &[] })?;
        }
        let mut buffer = Buffer::default();
        for message in messages {
            let message = Message { topic, partition, ..*message };
            if let Taken::Failed(why) = buffer.push(&message, (self.broker.options.now_ms)(), || self.broker.state())? {
                return Err(refused(why));
            }
        }
        let given = self.broker.commit(&buffer, None, |_| Ok(()))?;
        self.broker.compact_due(&buffer);
        match given.last() {
            Some(last) => Ok(last + 1),
            None => self.end(topic, partition),
        }
    }

    /// The offset after a partition's last record.
    pub fn end(&self, topic: &str, partition: i32) -> Result<i64, Error> {
        self.broker.state()?.find(topic, partition).map(|(_, meta)| meta.end)
    }

    /// The first retained offset of a partition.
    pub fn start(&self, topic: &str, partition: i32) -> Result<i64, Error> {
        self.broker.state()?.find(topic, partition).map(|(_, meta)| meta.start)
    }

    /// All records of a partition, in order, in memory: for checks.
    pub fn read_all(&self, topic: &str, partition: i32) -> Result<Vec<StoredRecord>, Error> {
        let (state, mut records) = (self.broker.state()?, Vec::new());
        let (id, meta) = state.find(topic, partition)?;
        let mut scan = self.broker.disk.scan(id, partition, meta.start, meta.end);
        drop(state);
        scan.forward(|offset, bytes| {
            records.push(StoredRecord::new(offset, &layout::decode_record(bytes)?));
            Ok(true)
        })?;
        Ok(records)
    }

    /// The topics' names, in order.
    pub fn topics(&self) -> Result<Vec<Arc<str>>, Error> {
        let mut names: Vec<_> = self.broker.state()?.topics.keys().cloned().collect();
        names.sort();
        Ok(names)
    }

    /// Deletes a topic, its records, and what groups have committed for it. Its readers get an error.
    pub fn delete_topic(&self, topic: &str) -> Result<(), Error> {
        self.broker.delete_topic(topic)
    }

    /// Removes the records of a partition before `offset`, as Kafka's DeleteRecords does.
    pub fn delete_records(&self, topic: &str, partition: i32, offset: i64) -> Result<(), Error> {
        self.broker.delete_records(topic, partition, offset)
    }

    /// Compacts a partition of a compacted topic now, however little it has grown.
    pub fn compact(&self, topic: &str, partition: i32) -> Result<(), Error> {
        let (id, _) = self.broker.state()?.find(topic, partition)?;
        self.broker.compact(&TopicPartition::new(topic, partition), id, |_| true)
    }

    /// Sets or removes what a group has committed for a partition; refused while the group has members.
    pub fn reset_offset(
        &self,
        group: &str,
        partition: &TopicPartition,
        committed: Option<CommittedOffset>,
    ) -> Result<(), Error> {
        topics::check_group(group)?;
        topics::check_name(&partition.topic)?;
        let writing = self.broker.writing();
        self.broker.state()?.check_empty(group)?;
        let key = layout::offset_key(group, &partition.topic, partition.partition);
        let mut batch = WriteBatch::default();
        match committed {
            Some(CommittedOffset { offset, metadata }) => {
                batch.put(key, layout::encode(&OffsetMeta { offset, metadata }));
            }
            None => batch.delete(key),
        }
        self.broker.write(&writing, batch)
    }

    /// Removes everything that a group has committed; refused while the group has members.
    pub fn delete_group(&self, group: &str) -> Result<(), Error> {
        topics::check_group(group)?;
        let writing = self.broker.writing();
        self.broker.state()?.check_empty(group)?;
        let prefix = layout::group_prefix(group);
        let mut batch = WriteBatch::default();
        batch.delete_range(prefix.clone(), layout::after(&prefix));
        self.broker.write(&writing, batch)?;
        self.broker.state()?.groups.remove(group);
        Ok(())
    }

    /// Expels all members of a group, as brokers do after a session timeout:
    /// their partitions are free at once, their commits fail, and their next event is
    /// [`crate::cluster::GroupEvent::Lost`]. Returns how many there were.
    pub fn expel_members(&self, group: &str) -> Result<usize, Error> {
        let mut state = self.broker.state()?;
        let Some(group) = state.groups.get_mut(group) else { return Ok(0) };
        let ids = group.member_ids();
        for id in &ids {
            group.leave(*id);
        }
        self.broker.notify();
        Ok(ids.len())
    }
}

impl Broker {
    pub(super) fn create_topic(&self, topic: &NewTopic<'_>) -> Result<(), Error> {
        topics::check_name(topic.name)?;
        topics::check_partition_count(topic.partition_count)?;
        let settings = Settings::parse(topic.settings.iter().map(|(name, value)| (*name, value.as_str())))?;
        let writing = self.writing();
        let mut folder = {
            let state = self.state()?;
            if state.topics.contains_key(topic.name) {
                return Ok(());
            }
            state.folder.clone()
        };
        let meta = TopicMeta {
            id: topics::next_id(&folder),
            partition_count: topic.partition_count,
            settings: topic.settings.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect(),
        };
        folder.topics_created += 1;
        let mut batch = WriteBatch::default();
        batch.put(layout::folder_meta_key(), layout::encode(&folder));
        batch.put(layout::topic_key(topic.name), layout::encode(&meta));
        for partition in 0..meta.partition_count {
            batch.put(layout::partition_key(TopicId(meta.id), partition), layout::encode(&PartitionMeta::default()));
        }
        self.write(&writing, batch)?;
        let mut state = self.state()?;
        state.folder = folder;
        state.topics.insert(Arc::from(topic.name), Topic::new(&meta, settings));
        state.topic_changed(topic.name);
        self.notify();
        Ok(())
    }

    fn delete_topic(&self, name: &str) -> Result<(), Error> {
        let writing = self.writing();
        let id = self.state()?.topic(name)?.id;
        let mut batch = WriteBatch::default();
        batch.delete(layout::topic_key(name));
        batch.delete_range(layout::partition_key(id, 0), layout::partition_key(id, i32::MAX));
        batch.delete_range(layout::record_key(id, 0, 0), layout::record_key(id, i32::MAX, 0));
        self.disk.each(&layout::offsets_prefix(), |key, _| {
            if layout::topic_of(key) == Some(name) {
                batch.delete(key);
            }
            Ok(())
        })?;
        // Removed from memory first: nobody may look for records that are being removed.
        let mut state = self.state()?;
        state.topics.remove(name);
        state.topic_changed(name);
        drop(state);
        self.notify();
        self.write(&writing, batch)
    }

    fn delete_records(&self, topic: &str, partition: i32, offset: i64) -> Result<(), Error> {
        let writing = self.writing();
        let mut state = self.state()?;
        let (id, mut meta) = state.find(topic, partition)?;
        if offset > meta.end {
            let end = meta.end;
            return Err(refused(format!(
                "{topic}:{partition} ends at {end}, records before {offset} cannot be deleted"
            )));
        }
        let from = meta.start;
        meta.start = meta.start.max(offset);
        meta.records = meta.records.saturating_sub(u64::try_from(meta.start - from).unwrap_or(0));
        // Published first: nobody may look for records that are being removed.
        state.publish(&TopicPartition::new(topic, partition), id, &meta);
        drop(state);
        let mut batch = WriteBatch::default();
        batch.delete_range(layout::record_key(id, partition, from), layout::record_key(id, partition, meta.start));
        batch.put(layout::partition_key(id, partition), layout::encode(&meta));
        self.write(&writing, batch)
    }

    pub(super) fn settled(&self, inquiry: &Inquiry) -> Result<Settled, Error> {
        let Inquiry { group, input, changelog, .. } = inquiry;
        let writing = self.writing();
        let committed = self.committed(&writing, group, input)?;
        let state = self.state()?;
        let (input_id, input_meta) = state.find(&input.topic, input.partition)?;
        let (changelog_id, changelog_meta) = state.find(&changelog.topic, changelog.partition)?;
        let seen = inquiry.looks_from.map(|from| self.look(changelog, changelog_id, (&changelog_meta, from)));
        Ok(Settled {
            committed,
            input_id,
            input_start: input_meta.start,
            input_end: input_meta.end,
            changelog_id,
            changelog_start: ChangelogOffset(changelog_meta.start),
            changelog_end: ChangelogOffset(changelog_meta.end),
            changelog_time: None,
            seen: seen.transpose()?,
        })
    }

    /// The first record of a partition from an offset on; the caller makes sure that nothing is removed meanwhile.
    fn look(
        &self,
        of: &TopicPartition,
        id: TopicId,
        (meta, from): (&PartitionMeta, ChangelogOffset),
    ) -> Result<Seen, Error> {
        let mut first = None;
        if (meta.start..meta.end).contains(&from.0) {
            self.disk.scan(id, of.partition, from.0, meta.end).forward(|offset, encoded| {
                let layout::Parts { key, value, .. } = layout::decode_record(encoded)?;
                let [key, value] = [key, value].map(|part| part.map(<[u8]>::to_vec));
                first = Some(SeenRecord { offset: ChangelogOffset(offset), key, value });
                Ok(false)
            })?;
        }
        Ok(Seen { from, first })
    }
}

impl State {
    /// A partition and its topic's id.
    fn find(&self, topic: &str, partition: i32) -> Result<(TopicId, PartitionMeta), Error> {
        let partition = TopicPartition::new(topic, partition);
        let id = self.topic_of(&partition)?.id;
        Ok((id, self.meta(&partition, id)?))
    }

    fn topic_changed(&mut self, topic: &str) {
        for group in self.groups.values_mut() {
            group.topic_changed(topic);
        }
    }

    fn check_empty(&self, group: &str) -> Result<(), Error> {
        match self.groups.get(group) {
            Some(known) if !known.is_empty() => {
                Err(refused(format!("group {group} has members: stop the job before its offsets are changed")))
            }
            _ => Ok(()),
        }
    }
}
