//! What the handles of one embedded cluster share: the state in memory, and the only way to write.
//!
//! Two locks, always taken in this order: `writer`, held while records, offsets or topics are written,
//! from the checks until the result is visible; and `state`, held briefly and never during
//! a write to the disk, so that readers do not wait for a sync. A query whose result a commit may be
//! changing (committed offsets, a takeover's) takes the writer lock and so waits for that commit.
//!
//! **Failure**: after a failed write to the folder, it is uncertain what a later start will find there.
//! The write returns [`ErrorKind::Unknown`], and from then on everything is refused until the process
//! restarts and reads what is really there.

use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rocksdb::WriteBatch;

use super::buffer::Buffer;
use super::clock::now;
use super::disk::{ByName, Disk, random_seed};
use super::layout::{self, OffsetMeta};
use super::membership::Membership;
use super::options::Options;
use super::state::State;
use super::topics::{Topic, check_group, check_name};
use crate::cluster::{CommittedOffset, Error, ErrorKind, OffsetCommit, TopicId};
use crate::record::TopicPartition;

/// Shared by all handles.
pub(super) struct Broker {
    pub disk: Disk,
    pub options: Options,
    writer: Mutex<()>,
    state: Mutex<State>,
    changed: Condvar,
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
        let (disk, folder) = Disk::open(dir, options.seed.unwrap_or_else(random_seed))?;
        let mut topics = ByName::new();
        for stored in disk.topics()? {
            let topic = Topic::from_stored(&stored)?;
            topics.insert(stored.name, topic);
        }
        let state = State::new(folder, topics);
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
        let left = deadline.saturating_duration_since(now());
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
