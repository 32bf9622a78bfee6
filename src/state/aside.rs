//! Sets stores aside while their successors are built.
//!
//! A task's store can be rebuilt from a topic, the changelog. A store that cannot be used any further is renamed before
//! a new one is built in its place, and is removed only once the new store is complete: until then it may hold the last
//! copy of its entries. Before a restore **loads** the changelog's records (writes them in bulk) into a complete store
//! that is merely behind, a copy of the store is set aside.
//!
//! ```text
//! orders-3/             the store in use, or being built
//! orders-3.aside/       its predecessor; names of tasks' folders end in a number, so there is no conflict
//! orders-3.aside.tmp/   a copy that RocksDB is making, or that a killed process has left unfinished
//! ```
//!
//! Renaming is atomic: after a kill at any moment, each store is whole in one of the two places. The caller holds the
//! lock on the store's folder and, except for [`copy_aside`], has closed the store.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::{Error, Memory, Store};

/// The suffix of the folder of a store that was set aside.
pub(super) const ASIDE_SUFFIX: &str = ".aside";

/// The folder to which the store in `dir` is renamed, or copied, when it is set aside.
pub fn aside_path(dir: &Path) -> PathBuf {
    let mut path = OsString::from(dir);
    path.push(ASIDE_SUFFIX);
    path.into()
}

/// Whether the store of `dir`, or a copy of it, is set aside.
pub fn is_set_aside(dir: &Path, memory: &Memory) -> Result<bool, Error> {
    memory.disk().exists(&aside_path(dir))
}

/// Sets the store in `dir` aside. Fails if another store is already set aside for `dir`.
pub fn set_aside(dir: &Path, memory: &Memory) -> Result<(), Error> {
    memory.disk().rename(dir, &aside_path(dir))
}

/// Sets a copy of the open store in `dir` aside. Fails if another store is already set aside for `dir`.
pub fn copy_aside(store: &mut Store, dir: &Path, memory: &Memory) -> Result<(), Error> {
    store.copy(&aside_path(dir))?;
    sync_parent(dir, memory)
}

/// Moves the store that was set aside back to `dir`, which must not exist.
pub fn put_back(dir: &Path, memory: &Memory) -> Result<(), Error> {
    memory.disk().rename(&aside_path(dir), dir)
}

/// Cleans up after a process that was killed: puts a store back if no successor was begun, and removes an unfinished
/// copy.
pub fn recover(dir: &Path, memory: &Memory) -> Result<(), Error> {
    memory.disk().remove_unfinished(&aside_path(dir))?;
    if is_set_aside(dir, memory)? && !memory.disk().exists(dir)? { put_back(dir, memory) } else { Ok(()) }
}

/// Removes the store in `dir`, whatever its state, so that the store that was set aside can be put back.
pub fn remove_store(dir: &Path, memory: &Memory) -> Result<(), Error> {
    wipe(dir, memory)
}

/// Removes the store that was set aside for `dir`. The store in `dir` must be complete and on the disk.
pub fn remove_aside(dir: &Path, memory: &Memory) -> Result<(), Error> {
    sync_parent(dir, memory)?;
    wipe(&aside_path(dir), memory)
}

/// Removes a store with its folder; succeeds if the folder does not exist. Fails while the store is open, and outside a
/// slot (the folder of one process) of a state folder that has ratchet's marker.
pub(super) fn wipe(dir: &Path, memory: &Memory) -> Result<(), Error> {
    memory.disk().wipe(dir)
}

/// Makes the existence of the folder `dir` durable.
fn sync_parent(dir: &Path, memory: &Memory) -> Result<(), Error> {
    dir.parent().map_or(Ok(()), |parent| memory.disk().sync(parent))
}
