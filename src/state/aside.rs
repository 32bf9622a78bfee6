//! Stores that cannot be built upon: each is set aside, beside its folder, before another is built in its place, and
//! removed only once that one is complete. Until then it may be the last copy of what it remembers. Of a complete store
//! that is built upon, a copy is kept aside in the meantime.
//!
//! ```text
//! orders-3/             the store in use, or being built
//! orders-3.aside/       its predecessor; no task's folder has such a name, as they end in a number
//! orders-3.aside.tmp/   a copy being made (RocksDB's name for it), or left unfinished when the process was killed
//! ```
//!
//! Renaming is atomic: after a kill at any moment, whole stores are found in one place or the other. The caller holds
//! the lock on the store's folder, and has the store closed.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::{Error, Memory, Store};

/// Suffix of a folder that holds a store set aside.
pub(super) const SUFFIX: &str = ".aside";

/// The folder in which the store in `dir` is set aside.
pub fn aside_of(dir: &Path) -> PathBuf {
    let mut path = OsString::from(dir);
    path.push(SUFFIX);
    path.into()
}

/// Whether there is a store set aside for `dir`.
pub fn stands_aside(dir: &Path, memory: &Memory) -> Result<bool, Error> {
    memory.disk().exists(&aside_of(dir))
}

/// Sets the store in `dir` aside. There must be none set aside yet.
pub fn set_aside(dir: &Path, memory: &Memory) -> Result<(), Error> {
    memory.disk().rename(dir, &aside_of(dir))
}

/// Keeps a copy of the store in `dir`, which is open, aside. There must be none set aside yet.
pub fn keep_copy(store: &mut Store, dir: &Path, memory: &Memory) -> Result<(), Error> {
    store.copy(&aside_of(dir))?;
    sync_above(dir, memory)
}

/// Moves the store that was set aside back to `dir`, where there must be none.
pub fn put_back(dir: &Path, memory: &Memory) -> Result<(), Error> {
    memory.disk().rename(&aside_of(dir), dir)
}

/// Puts back a store set aside by a process that was killed before it started another; removes an unfinished
/// copy.
pub fn recover(dir: &Path, memory: &Memory) -> Result<(), Error> {
    memory.disk().remove_unfinished(&aside_of(dir))?;
    if stands_aside(dir, memory)? && !memory.disk().exists(dir)? { put_back(dir, memory) } else { Ok(()) }
}

/// Removes the store in `dir`, in whatever state, so that the one set aside can be put back.
pub fn remove_built(dir: &Path, memory: &Memory) -> Result<(), Error> {
    wipe(dir, memory)
}

/// Removes the store set aside for `dir`: the one in `dir` is complete, and on the disk.
pub fn remove_aside(dir: &Path, memory: &Memory) -> Result<(), Error> {
    sync_above(dir, memory)?;
    wipe(&aside_of(dir), memory)
}

/// Removes a store with its folder; succeeds if there is none. Refused outside a slot of a marked state folder, and
/// while it is open.
pub(super) fn wipe(dir: &Path, memory: &Memory) -> Result<(), Error> {
    memory.disk().wipe(dir)
}

/// Makes the existence of the folder `dir` durable.
fn sync_above(dir: &Path, memory: &Memory) -> Result<(), Error> {
    dir.parent().map_or(Ok(()), |parent| memory.disk().sync(parent))
}
