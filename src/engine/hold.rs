//! A task's hold on its store: locking it within this process, opening it, and replacing a store that cannot be built
//! upon.
//!
//! Such a store may be the last copy of what it remembers. So it is set aside ([`crate::state::aside`]), another is
//! built in its place, and it is removed only when that one is complete and the task continues with it
//! ([`Held::drop_former`]). A refusal puts it back ([`Held::give_back`]). A complete store that is merely behind gets a
//! copy set aside in the same way, unless everything it lacks is written in one batch. If the process is killed in
//! between, it finds both when it restarts, and continues building: a rebuilt store names a transaction only once it
//! is complete.

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

/// A store and the proof that nobody else in this process has it open. The store is dropped before the lock.
pub struct Held {
    /// The store.
    pub store: Store,
    /// Whether it is known to hold everything that was committed: this task has applied the last of it, and nothing of
    /// its own can have been committed since. Others cannot commit before this task's membership has ended, and the
    /// task with it.
    pub is_latest: bool,
    /// How far the store has applied its changelog, once it was examined.
    pub applied: Applied,
    lock: StoreLock,
}

/// Opens the store in `dir` of the task that reads `input`; `None` while another lane holds it. A damaged store is replaced
/// by a new one: `damaged` says what an earlier reader found wrong with its files, and is cleared. `from` is the start of the
/// changelog.
pub fn take(
    context: &Context,
    (input, dir): (&TopicPartition, &Path),
    damaged: &mut Option<String>,
    from: ChangelogOffset,
) -> Result<Option<Held>, Setback> {
    let Some(lock) = context.registry.try_lock(dir) else { return Ok(None) };
    aside::recover(lock.path(), &context.memory)?;
    let opened = match damaged.take() {
        Some(reason) => Err(state::Error::Damaged { path: dir.to_owned(), reason }),
        None => Store::open(lock.path(), &context.memory),
    };
    match opened {
        Ok(store) => Ok(Some(Held::of(store, lock))),
        Err(state::Error::Damaged { reason, .. }) => {
            let held = replace(context, lock, from, (&reason, false))?;
            tracing::error!(task = %input, reason, "store is damaged; rebuilding it from the changelog");
            Ok(Some(held))
        }
        Err(error) => Err(error.into()),
    }
}

impl Held {
    fn of(store: Store, lock: StoreLock) -> Self {
        Self { store, is_latest: false, applied: Applied::default(), lock }
    }

    /// Opens another store in place of this one, which cannot be built upon; it has to be examined like any other.
    /// `from` is the changelog's start, `partition` the task's.
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
            // Whatever was set aside goes.
            store.flush()?;
        }
        drop(store);
        replace(context, lock, from, (reason, is_complete))
    }

    /// Keeps a copy of the store, which is complete, before a load changes it.
    pub fn keep_copy(&mut self, context: &Context) -> Result<(), Setback> {
        let (dir, memory) = (self.lock.path(), &context.memory);
        if aside::stands_aside(dir, memory)? {
            // An earlier one: the process was killed before it was removed, or before the load; or the sink's row was
            // not compared with this store, but every owner that has committed since has compared it.
            self.store.flush()?;
            aside::remove_aside(dir, memory)?;
        }
        aside::keep_copy(&mut self.store, dir, memory)?;
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

    /// The position record of the store that was set aside; `None` if there is none or it cannot be read.
    pub fn former(&self, context: &Context) -> Result<Option<PositionRecord>, Setback> {
        if !aside::stands_aside(self.lock.path(), &context.memory)? {
            return Ok(None);
        }
        match Store::open(&aside::aside_of(self.lock.path()), &context.memory) {
            Ok(former) => {
                let position = former.get(POSITION_KEY).ok().flatten();
                Ok(position.and_then(|bytes| PositionRecord::decode_either(&bytes).ok()))
            }
            Err(state::Error::Damaged { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The store is complete and says so: whatever is set aside is no longer needed.
    pub fn drop_former(&mut self, context: &Context) -> Result<(), Setback> {
        if !aside::stands_aside(self.lock.path(), &context.memory)? {
            return Ok(());
        }
        self.store.flush()?;
        crash::point(crash::Point::BeforeAsideRemoved);
        Ok(aside::remove_aside(self.lock.path(), &context.memory)?)
    }

    /// The task is refused: what was set aside is put back, unless the store built in its place is complete, and so the
    /// better one.
    pub fn give_back(self, context: &Context) -> Result<(), state::Error> {
        let Self { store, lock, .. } = self;
        let is_complete = store.meta().ok().flatten().is_some_and(|meta| meta.token.is_some());
        drop(store);
        if is_complete || !aside::stands_aside(lock.path(), &context.memory)? {
            return Ok(());
        }
        put_back(context, &lock)
    }
}

/// Opens another store in place of one that cannot be built upon for this `reason`: the one set aside, which may be
/// better, or else a new one. The unusable store `is_complete` if it is the result of a transaction of this partition.
fn replace(
    context: &Context,
    lock: StoreLock,
    from: ChangelogOffset,
    (reason, is_complete): (&str, bool),
) -> Result<Held, Setback> {
    let (dir, memory) = (lock.path(), &context.memory);
    if aside::stands_aside(dir, memory)? {
        if !is_complete {
            put_back(context, &lock)?;
            return Ok(Held::of(Store::open(dir, memory)?, lock));
        }
        // It was complete: the store set aside for it should have been removed.
        resume::check_rebuild(from, reason)?;
        aside::remove_aside(dir, memory)?;
    }
    resume::check_rebuild(from, reason)?;
    aside::set_aside(dir, memory)?;
    crash::point(crash::Point::StoreSetAside);
    Ok(Held::of(Store::open(dir, memory)?, lock))
}

/// Puts the store that was set aside back.
fn put_back(context: &Context, lock: &StoreLock) -> Result<(), state::Error> {
    aside::remove_built(lock.path(), &context.memory)?;
    crash::point(crash::Point::BeforePutBack);
    aside::put_back(lock.path(), &context.memory)
}
