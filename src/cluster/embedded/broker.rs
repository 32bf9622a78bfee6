//! What the handles of one embedded cluster share: the state in memory, and the only way to write.
//!
//! Two locks, always taken in this order: `writer`, held by whoever writes records, offsets or topics,
//! from the checks until the result is visible; and `state`, held briefly and never during
//! a write to the disk, so that readers do not wait for a sync. A query whose result a commit may be
//! changing (committed offsets, a takeover's) takes the writer lock and so waits for that commit.
//!
//! **Failure**: after a failed write to the folder, it is uncertain what a later start will find there.
//! The write returns [`ErrorKind::Unknown`], and from then on everything is refused until the process
//! restarts and reads what is really there.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use rocksdb::WriteBatch;

use super::buffer::Buffer;
use super::disk::{ByName, Disk};
use super::group::Group;
use super::layout::{self, FolderMeta, OffsetMeta, PartitionMeta};
use super::topics::{Topic, check_group, check_name};
use super::{Membership, Options};
use crate::cluster::{CommittedOffset, Error, ErrorKind, OffsetCommit, TopicId};
use crate::record::TopicPartition;
use crate::words::counted;

/// Shared by all handles.
pub(super) struct Broker {
    pub disk: Disk,
    pub options: Options,
    writer: Mutex<()>,
    state: Mutex<State>,
    changed: Condvar,
}

/// The state in memory.
pub(super) struct State {
    pub folder: FolderMeta,
    pub topics: ByName<Topic>,
    pub groups: HashMap<String, Group>,
    /// The epoch of each transactional id with a live producer.
    pub producers: HashMap<String, u64>,
    /// The last number given to a member or to a producer.
    last_number: u64,
    /// Why the cluster is broken, if it is.
    broken: Option<String>,
}

/// The right to write, held from the checks until the result is visible.
pub(super) struct Writing<'a> {
    _guard: MutexGuard<'a, ()>,
}

/// The part of a transaction that is not records.
pub(super) struct Offsets<'a> {
    pub commits: &'a [OffsetCommit],
    pub membership: &'a Membership,
}

impl Broker {
    pub fn open(dir: &Path, options: Options) -> Result<Self, Error> {
        let (disk, folder) = Disk::open(dir, options.seed.unwrap_or_else(super::disk::random_seed))?;
        let mut topics = ByName::new();
        for stored in disk.topics()? {
            let topic = Topic::from_stored(&stored)?;
            topics.insert(stored.name, topic);
        }
        let state =
            State { folder, topics, groups: HashMap::new(), producers: HashMap::new(), last_number: 0, broken: None };
        Ok(Self { disk, options, writer: Mutex::new(()), state: Mutex::new(state), changed: Condvar::new() })
    }

    /// The state, unless the cluster is broken. A thread that panicked while holding the lock left the state
    /// consistent: it is changed only after everything that can fail.
    pub fn state(&self) -> Result<MutexGuard<'_, State>, Error> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match &state.broken {
            None => Ok(state),
            Some(why) => Err(Error::new(ErrorKind::Refused, format!("{why}; repair the folder, then restart"))),
        }
    }

    /// The right to write, once its present holder is done.
    pub fn writing(&self) -> Writing<'_> {
        Writing { _guard: self.writer.lock().unwrap_or_else(PoisonError::into_inner) }
    }

    /// Wakes everyone who waits for records or for their group.
    pub fn notify(&self) {
        self.changed.notify_all();
    }

    /// Waits for a change until `deadline`; returns the state again, and whether there is time left.
    pub fn wait<'a>(
        &self,
        state: MutexGuard<'a, State>,
        deadline: Instant,
    ) -> Result<(MutexGuard<'a, State>, bool), Error> {
        let left = deadline.saturating_duration_since(super::now());
        if left.is_zero() {
            return Ok((state, false));
        }
        let (state, _) = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
        match &state.broken {
            None => Ok((state, true)),
            Some(why) => Err(Error::new(ErrorKind::Refused, format!("{why}; repair the folder, then restart"))),
        }
    }

    /// Writes `batch`, and breaks the cluster if that fails.
    pub fn write(&self, _: &Writing<'_>, batch: WriteBatch) -> Result<(), Error> {
        self.disk.write(batch).inspect_err(|e| {
            self.state.lock().unwrap_or_else(PoisonError::into_inner).broken = Some(e.message.clone());
            self.notify();
        })
    }

    /// Appends the buffered records and commits the offsets, all or nothing, unless `check` rejects it
    /// given the state under the writer lock. Returns each record's offset, in the buffer's order.
    pub fn commit(
        &self,
        buffer: &Buffer,
        offsets: Option<&Offsets<'_>>,
        check: impl FnOnce(&State) -> Result<(), Error>,
    ) -> Result<Vec<i64>, Error> {
        let writing = self.writing();
        let mut metas = {
            let state = self.state()?;
            check(&state)?;
            buffer.partitions().map(|(p, id)| state.meta(p, id)).collect::<Result<Vec<_>, _>>()?
        };
        let ids: Vec<(&TopicPartition, TopicId)> = buffer.partitions().collect();
        let mut batch = WriteBatch::default();
        let mut given = Vec::with_capacity(buffer.len());
        for (slot, bytes) in buffer.records() {
            let ((partition, id), meta) = (ids[slot], &mut metas[slot]);
            batch.put(layout::record_key(id, partition.partition, meta.end), bytes);
            given.push(meta.end);
            meta.end += 1;
            meta.records += 1;
        }
        for ((partition, id), meta) in ids.iter().zip(&metas) {
            batch.put(layout::partition_key(*id, partition.partition), layout::encode(meta));
        }
        if let Some(offsets) = offsets {
            offsets.put(&mut batch);
        }
        if !batch.is_empty() {
            self.write(&writing, batch)?;
        }
        let mut state = self.state()?;
        for ((partition, id), meta) in ids.iter().zip(&metas) {
            state.publish(partition, *id, meta);
        }
        drop(state);
        self.notify();
        Ok(given)
    }

    /// What `group` has committed. Needs the writer lock, so that no commit is in progress.
    pub fn committed(
        &self,
        _: &Writing<'_>,
        group: &str,
        partition: &TopicPartition,
    ) -> Result<Option<CommittedOffset>, Error> {
        check_group(group)?;
        check_name(&partition.topic)?;
        let key = layout::offset_key(group, &partition.topic, partition.partition);
        let Some(bytes) = self.disk.get(&key)? else { return Ok(None) };
        let OffsetMeta { offset, metadata } = layout::decode("a committed offset", &bytes)?;
        Ok(Some(CommittedOffset { offset, metadata }))
    }
}

impl Offsets<'_> {
    fn put(&self, batch: &mut WriteBatch) {
        for OffsetCommit { partition, committed } in self.commits {
            let key = layout::offset_key(&self.membership.group, &partition.topic, partition.partition);
            let value = OffsetMeta { offset: committed.offset, metadata: committed.metadata.clone() };
            batch.put(key, layout::encode(&value));
        }
    }
}

impl State {
    /// A number that no member or producer of this process has had.
    pub fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// The topic, or an error that names it.
    pub fn topic(&self, name: &str) -> Result<&Topic, Error> {
        self.topics.get(name).ok_or_else(|| refused(format!("topic {name} does not exist: create it first")))
    }

    /// The topic, if it has this partition.
    pub fn topic_of(&self, partition: &TopicPartition) -> Result<&Topic, Error> {
        let topic = self.topic(&partition.topic)?;
        if topic.partition(partition.partition).is_none() {
            let (name, count) = (&partition.topic, topic.partition_count());
            return Err(refused(format!(
                "topic {name} has {}, there is no partition {}",
                counted(count, "partition"),
                partition.partition
            )));
        }
        Ok(topic)
    }

    /// A partition's metadata, as long as the topic still has this id.
    pub fn meta(&self, partition: &TopicPartition, id: TopicId) -> Result<PartitionMeta, Error> {
        match self.topics.get(&partition.topic) {
            Some(topic) if topic.id == id => match topic.partition(partition.partition) {
                Some(known) => Ok(known.meta),
                None => Err(refused(format!("{partition} does not exist"))),
            },
            Some(_) => Err(refused(format!("topic {} was deleted and created again", partition.topic))),
            None => Err(refused(format!("topic {} was deleted", partition.topic))),
        }
    }

    /// Makes written records visible.
    pub fn publish(&mut self, partition: &TopicPartition, id: TopicId, meta: &PartitionMeta) {
        if let Some(topic) = self.topics.get_mut(&partition.topic)
            && topic.id == id
            && let Some(known) = topic.partition_mut(partition.partition)
        {
            known.meta = *meta;
        }
    }

    /// Registers a reader, because of the tombstones that it has not seen yet.
    pub fn watch(&mut self, partition: &TopicPartition, position: &Arc<AtomicI64>) {
        if let Some(known) = self.topics.get_mut(&partition.topic).and_then(|t| t.partition_mut(partition.partition)) {
            known.readers.retain(|reader| reader.strong_count() > 0);
            known.readers.push(Arc::downgrade(position));
        }
    }

    /// Rejects a commit that its group would reject.
    pub fn check_membership(&self, membership: &Membership) -> Result<(), Error> {
        let group = self.groups.get(&membership.group);
        let unknown = || Err("the group has no members (unknown member)".to_owned());
        group
            .map_or_else(unknown, |group| group.check_commit(membership.member, membership.generation))
            .map_err(|why| Error::new(ErrorKind::Abort, format!("group {}: {why}", membership.group)))
    }
}

/// The lowest position of the live readers, `i64::MAX` if there are none.
pub(super) fn lowest_position(readers: &[Weak<AtomicI64>]) -> i64 {
    readers.iter().filter_map(Weak::upgrade).map(|at| at.load(Ordering::Acquire)).min().unwrap_or(i64::MAX)
}

/// An error that a person has to deal with.
pub(super) fn refused(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Refused, message)
}
