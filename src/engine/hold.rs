//! A task's hold on its store: the claim within this process, the opening, and what becomes of a store that cannot be
//! built upon.
//!
//! Such a store may be the last copy of what it remembers. So it is set aside ([`crate::state::aside`]), another is
//! built in its place, and it is removed only when that one is complete and the task goes on with it
//! ([`Held::settle`]). A refusal puts it back ([`Held::give_back`]). Of one that is only behind, and complete, a copy
//! stands aside in the same way, unless what it lacks is written as one. Killed in between, the process finds both when it
//! starts again, and goes on building: a store that was built names a transaction only once it is complete.

use crate::cluster::{Cluster, Settled};
use crate::format::{POSITION_KEY, PositionRecord};
use crate::mistakes::{self, Mistake};
use crate::state::{self, Claim, Store, aside};

use super::context::Context;
use super::crash;
use super::plan;
use super::restore::Setback;
use super::task::Task;

/// A store and the proof that nobody else in this process has it open. The store is dropped first.
pub struct Held {
    /// The store.
    pub store: Store,
    /// Whether what it holds is known to be all that was committed: this task has applied the last of it, and of its own
    /// nothing can have been committed since. Others cannot commit before this task's membership has ended, and with it
    /// the task.
    pub is_latest: bool,
    claim: Claim,
}

/// Opens the task's store, or another in place of one that is damaged; `None` while another lane holds it.
pub fn take<C: Cluster>(context: &Context, task: &mut Task<C>, settled: &Settled) -> Result<Option<Held>, Setback> {
    let Some(claim) = context.registry.try_claim(&task.dir) else { return Ok(None) };
    aside::recover(claim.path(), &context.memory)?;
    let opened = match task.damaged.take() {
        Some(reason) => Err(state::Error::Damaged { path: task.dir.clone(), reason }),
        None => Store::open(claim.path(), &context.memory),
    };
    match opened {
        Ok(store) => Ok(Some(Held::of(store, claim))),
        Err(state::Error::Damaged { reason, .. }) => {
            let held = replace(context, claim, settled.changelog_start, (&reason, false))?;
            tracing::error!(task = %task.input, reason, "store is damaged; rebuilding it from the changelog");
            Ok(Some(held))
        }
        Err(error) => Err(error.into()),
    }
}

impl Held {
    fn of(store: Store, claim: Claim) -> Self {
        Self { store, is_latest: false, claim }
    }

    /// Opens another store in place of this one, which cannot be built upon; it is to be examined like any. `from` is
    /// where the changelog begins, `partition` the task's.
    pub fn replace(self, context: &Context, from: i64, partition: i32, reason: &str) -> Result<Self, Setback> {
        let meta = self.store.meta()?;
        let is_whole = meta.is_some_and(|meta| meta.token.is_some() && meta.partition == partition);
        let Self { store, claim, .. } = self;
        drop(store);
        replace(context, claim, from, (reason, is_whole))
    }

    /// Keeps a copy of the store, which is complete, before it is loaded into.
    pub fn keep_copy(&self, context: &Context) -> Result<(), Setback> {
        let (dir, memory) = (self.claim.path(), &context.memory);
        if aside::stands_aside(dir, memory)? {
            // For the sake of this one, or of one like it: killed before that was removed, or before it was loaded into.
            aside::remove_aside(dir, memory)?;
        }
        aside::keep_copy(&self.store, dir, memory)?;
        crash::point(crash::Point::StoreSetAside);
        Ok(())
    }

    /// Up to where the store has applied the changelog, where that is known.
    pub fn changelog_offset(&self) -> Option<i64> {
        self.store.meta().ok().flatten().map(|meta| meta.changelog_offset)
    }

    /// Where in the changelog the store's position record stands, where that is known.
    pub fn position_offset(&self) -> Option<i64> {
        self.store.meta().ok().flatten()?.position_offset
    }

    /// The position record of the store that stands aside; `None` where there is none, or it cannot be read.
    pub fn former(&self, context: &Context) -> Result<Option<PositionRecord>, Setback> {
        if !aside::stands_aside(self.claim.path(), &context.memory)? {
            return Ok(None);
        }
        match Store::open(&aside::aside_of(self.claim.path()), &context.memory) {
            Ok(former) => {
                let position = former.get(POSITION_KEY).ok().flatten();
                Ok(position.and_then(|bytes| PositionRecord::decode(&bytes).ok()))
            }
            Err(state::Error::Damaged { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The store is complete, and says so: what stands aside is needed no more.
    pub fn settle(&self, context: &Context) -> Result<(), Setback> {
        if !aside::stands_aside(self.claim.path(), &context.memory)? {
            return Ok(());
        }
        self.store.flush()?;
        crash::point(crash::Point::BeforeAsideRemoved);
        Ok(aside::remove_aside(self.claim.path(), &context.memory)?)
    }

    /// The task is refused: what stands aside is put back into its place, unless the store that was built there is
    /// complete, and so the better one.
    pub fn give_back(self, context: &Context) -> Result<(), state::Error> {
        let Self { store, claim, .. } = self;
        let is_whole = store.meta().ok().flatten().is_some_and(|meta| meta.token.is_some());
        drop(store);
        if is_whole || !aside::stands_aside(claim.path(), &context.memory)? {
            return Ok(());
        }
        put_back(context, &claim)
    }
}

/// Opens another store where one cannot be built upon, for this reason: the one that stands aside, which may be better,
/// or else a new one. What cannot be built upon `is_whole` if it is the result of a transaction of this partition.
fn replace(context: &Context, claim: Claim, from: i64, (reason, is_whole): (&str, bool)) -> Result<Held, Setback> {
    let (dir, memory) = (claim.path(), &context.memory);
    if aside::stands_aside(dir, memory)? {
        if !is_whole {
            put_back(context, &claim)?;
            return Ok(Held::of(Store::open(dir, memory)?, claim));
        }
        // It was complete: what stood aside for its sake should have been removed.
        plan::check_rebuild(from, reason)?;
        aside::remove_aside(dir, memory)?;
    }
    plan::check_rebuild(from, reason)?;
    if mistakes::made(Mistake::StoreNotSetAside) {
        aside::remove_built(dir, memory)?;
    } else {
        aside::set_aside(dir, memory)?;
    }
    crash::point(crash::Point::StoreSetAside);
    Ok(Held::of(Store::open(dir, memory)?, claim))
}

/// Puts the store that stands aside into its place.
fn put_back(context: &Context, claim: &Claim) -> Result<(), state::Error> {
    aside::remove_built(claim.path(), &context.memory)?;
    crash::point(crash::Point::BeforePutBack);
    aside::put_back(claim.path(), &context.memory)
}
