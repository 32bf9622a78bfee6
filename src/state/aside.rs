//! Stores that cannot be built upon: each is set aside, beside its folder, before another is built in its place, and
//! removed only once that one is complete. Until then it may be the last copy of what it remembers. Of one that is built
//! upon, and was complete, a copy stands there for as long.
//!
//! ```text
//! orders-3/             the store that is worked with, or built
//! orders-3.aside/       the one that stood there before; none has a name like it, as tasks' folders end in a number
//! orders-3.aside.tmp/   a copy that is being made (RocksDB's name for it), or was when the process was killed
//! ```
//!
//! Renaming is at once: killed at any moment, whole stores are found in one place or the other. Whoever calls holds
//! the lock on the store's folder, and has the store closed.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::{Error, Memory, Store};

/// What the name of a folder ends in that holds a store set aside.
pub(super) const SUFFIX: &str = ".aside";

/// The folder for the store in `dir` once it is set aside.
pub fn aside_of(dir: &Path) -> PathBuf {
    let mut path = OsString::from(dir);
    path.push(SUFFIX);
    path.into()
}

/// Whether a store stands aside of `dir`.
pub fn stands_aside(dir: &Path, memory: &Memory) -> Result<bool, Error> {
    memory.disk().exists(&aside_of(dir))
}

/// Sets the store in `dir` aside. None may stand there.
pub fn set_aside(dir: &Path, memory: &Memory) -> Result<(), Error> {
    memory.disk().rename(dir, &aside_of(dir))
}

/// Keeps a copy of the store in `dir`, which is open, aside. None may stand there.
pub fn keep_copy(store: &Store, dir: &Path, memory: &Memory) -> Result<(), Error> {
    store.copy(&aside_of(dir))?;
    sync_above(dir, memory)
}

/// Puts the store that stands aside of `dir` into its place, where there is none any more.
pub fn put_back(dir: &Path, memory: &Memory) -> Result<(), Error> {
    memory.disk().rename(&aside_of(dir), dir)
}

/// Puts a store back that was set aside by a process that was killed before it began another; removes what is left of a
/// copy that was not made to its end.
pub fn recover(dir: &Path, memory: &Memory) -> Result<(), Error> {
    memory.disk().remove_unfinished(&aside_of(dir))?;
    if stands_aside(dir, memory)? && !memory.disk().exists(dir)? { put_back(dir, memory) } else { Ok(()) }
}

/// Removes the store in `dir`, in whatever state it is, so that the one set aside can be put back.
pub fn remove_built(dir: &Path, memory: &Memory) -> Result<(), Error> {
    wipe(dir, memory)
}

/// Removes the store that stands aside of `dir`: the one in `dir` is complete, and on the disk.
pub fn remove_aside(dir: &Path, memory: &Memory) -> Result<(), Error> {
    sync_above(dir, memory)?;
    wipe(&aside_of(dir), memory)
}

/// Removes a store with its folder; fine if there is none. Refused outside a slot of a marked state folder, and while
/// anybody has it open.
pub(super) fn wipe(dir: &Path, memory: &Memory) -> Result<(), Error> {
    memory.disk().wipe(dir)
}

/// Brings to the disk that there is a store in `dir`.
fn sync_above(dir: &Path, memory: &Memory) -> Result<(), Error> {
    dir.parent().map_or(Ok(()), |parent| memory.disk().sync(parent))
}
