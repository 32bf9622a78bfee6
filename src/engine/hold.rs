//! A task's hold on its store: locks the store within this process, opens it, and replaces a store that cannot be
//! updated from the changelog.
//!
//! Such a store may be the only copy of its contents. So it is set aside ([`crate::state::aside`]), another is built in
//! its place, and the former store is removed only when the new one is complete and the task continues with it
//! ([`LockedStore::remove_set_aside`]). A refusal puts it back ([`LockedStore::put_back_set_aside`]). For a complete
//! store that is merely behind, a copy is set aside in the same way, unless everything that it lacks is written in one
//! batch. If the process is killed in between, it finds both stores when it restarts, and continues to build: a rebuilt
//! store names a transaction only once it is complete.

use std::path::Path;

use crate::format::{ChangelogOffset, POSITION_KEY, PositionRecord};
use crate::record::TopicPartition;
use crate::state::{self, Store, StoreLock, aside};

use super::context::Context;
use super::crash;
use super::resume;
use super::setback::Setback;

/// How far a store has applied its changelog.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// The next changelog offset to read.
    pub next: ChangelogOffset,
    /// Where the store's position record is in the changelog, if known.
    pub position: Option<ChangelogOffset>,
}

/// A store and the lock that keeps other tasks in this process from opening it. The store is dropped before the lock.
pub struct LockedStore {
    /// The store.
    pub store: Store,
    /// Whether the store is known to hold everything that was committed: this task has applied its last transaction,
    /// and none of its own can have been committed since. Other owners cannot commit before this task's membership has
    /// ended, which also ends the task.
    pub is_latest: bool,
    /// How far the store has applied its changelog, after it was examined.
    pub applied: Applied,
    lock: StoreLock,
}

/// Opens the store in `dir` of the task that reads `input`; `None` while another lane holds it. A damaged store is
/// replaced by a new one: `damage` describes the damage that an earlier reader found in its files, and is cleared.
/// `from` is the start of the changelog.
pub fn open(
    context: &Context,
    (input, dir): (&TopicPartition, &Path),
    damage: &mut Option<String>,
    from: ChangelogOffset,
) -> Result<Option<LockedStore>, Setback> {
    let Some(lock) = context.registry.try_lock(dir) else { return Ok(None) };
    aside::recover(lock.path(), &context.memory)?;
    let opened = match damage.take() {
        Some(reason) => Err(state::Error::Damaged { path: dir.to_owned(), reason }),
        None => Store::open(lock.path(), &context.memory),
    };
    match opened {
        Ok(store) => Ok(Some(LockedStore::of(store, lock))),
        Err(state::Error::Damaged { reason, .. }) => {
            let held = replace(context, lock, from, (&reason, false))?;
            tracing::error!(task = %input, reason, "store is damaged; rebuilding it from the changelog");
            Ok(Some(held))
        }
        Err(error) => Err(error.into()),
    }
}

impl LockedStore {
    fn of(store: Store, lock: StoreLock) -> Self {
        Self { store, is_latest: false, applied: Applied::default(), lock }
    }

    /// Opens another store in place of this one, which cannot be updated; the new store has to be examined like any
    /// other. `from` is the changelog's start, `partition` the task's partition.
    pub fn replace(
        self,
        context: &Context,
        from: ChangelogOffset,
        partition: i32,
        reason: &str,
    ) -> Result<Self, Setback> {
        let meta = self.store.meta()?;
        let is_complete = meta.is_some_and(|meta| meta.token.is_some() && meta.partition == partition);
        let Self { mut store, lock, .. } = self;
        if is_complete {
            // This store replaces the one set aside, which is removed next: it must be durable first.
            store.flush()?;
        }
        drop(store);
        replace(context, lock, from, (reason, is_complete))
    }

    /// Keeps a copy of the store, which is complete, before a load changes it.
    pub fn copy_aside(&mut self, context: &Context) -> Result<(), Setback> {
        let (dir, memory) = (self.lock.path(), &context.memory);
        if aside::is_set_aside(dir, memory)? {
            // An earlier copy: the process was killed before it was removed, or before the load; or the sink's row was
            // not compared with this store, but every owner that has committed since has compared it.
            self.store.flush()?;
            aside::remove_aside(dir, memory)?;
        }
        aside::copy_aside(&mut self.store, dir, memory)?;
        crash::point(crash::Point::StoreSetAside);
        Ok(())
    }

    /// How far the store has applied the changelog, if known.
    pub fn changelog_offset(&self) -> Option<ChangelogOffset> {
        self.store.meta().ok().flatten().map(|meta| meta.changelog_offset)
    }

    /// Where the store's position record is in the changelog, if known.
    pub fn position_offset(&self) -> Option<ChangelogOffset> {
        self.store.meta().ok().flatten()?.position_offset
    }

    /// The position record of the store that was set aside; `None` if no store is set aside or the record
    /// cannot be read.
    pub fn former_position(&self, context: &Context) -> Result<Option<PositionRecord>, Setback> {
        if !aside::is_set_aside(self.lock.path(), &context.memory)? {
            return Ok(None);
        }
        match Store::open(&aside::aside_path(self.lock.path()), &context.memory) {
            Ok(former) => {
                let position = former.get(POSITION_KEY).ok().flatten();
                Ok(position.and_then(|bytes| PositionRecord::decode_either(&bytes).ok()))
            }
            Err(state::Error::Damaged { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes the store that was set aside, if there is one: this store is complete.
    pub fn remove_set_aside(&mut self, context: &Context) -> Result<(), Setback> {
        if !aside::is_set_aside(self.lock.path(), &context.memory)? {
            return Ok(());
        }
        self.store.flush()?;
        crash::point(crash::Point::BeforeAsideRemoved);
        Ok(aside::remove_aside(self.lock.path(), &context.memory)?)
    }

    /// Puts back the store that was set aside, since the task is refused; unless the store built in its place is
    /// complete, and so the better one.
    pub fn put_back_set_aside(self, context: &Context) -> Result<(), state::Error> {
        let Self { store, lock, .. } = self;
        let is_complete = store.meta().ok().flatten().is_some_and(|meta| meta.token.is_some());
        drop(store);
        if is_complete || !aside::is_set_aside(lock.path(), &context.memory)? {
            return Ok(());
        }
        put_back(context, &lock)
    }
}

/// Opens another store in place of one that cannot be updated for this `reason`: the one set aside, which may be
/// better, or else a new one. The unusable store `is_complete` if it is the result of a transaction of this partition.
fn replace(
    context: &Context,
    lock: StoreLock,
    from: ChangelogOffset,
    (reason, is_complete): (&str, bool),
) -> Result<LockedStore, Setback> {
    let (dir, memory) = (lock.path(), &context.memory);
    if aside::is_set_aside(dir, memory)? {
        if !is_complete {
            put_back(context, &lock)?;
            return Ok(LockedStore::of(Store::open(dir, memory)?, lock));
        }
        // The unusable store was complete: the store set aside for it should have been removed.
        resume::check_rebuild(from, reason)?;
        aside::remove_aside(dir, memory)?;
    }
    resume::check_rebuild(from, reason)?;
    aside::set_aside(dir, memory)?;
    crash::point(crash::Point::StoreSetAside);
    Ok(LockedStore::of(Store::open(dir, memory)?, lock))
}

/// Puts back the store that was set aside.
fn put_back(context: &Context, lock: &StoreLock) -> Result<(), state::Error> {
    aside::remove_store(lock.path(), &context.memory)?;
    crash::point(crash::Point::BeforePutBack);
    aside::put_back(lock.path(), &context.memory)
}
