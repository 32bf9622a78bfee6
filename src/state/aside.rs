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
//! the claim on the store's folder, and has the store closed.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::memory::Place;
use super::rocks::Rocks;
use super::simulated::Simulated;
use super::stalls::Waiting;
use super::{Error, Memory, Store, dir};

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
    exists(&aside_of(dir), memory)
}

/// Sets the store in `dir` aside. None may stand there.
pub fn set_aside(dir: &Path, memory: &Memory) -> Result<(), Error> {
    rename(dir, &aside_of(dir), memory)
}

/// Keeps a copy of the store in `dir`, which is open, aside. None may stand there.
pub fn keep_copy(store: &Store, dir: &Path, memory: &Memory) -> Result<(), Error> {
    store.copy(&aside_of(dir))?;
    match (memory.place(), dir.parent()) {
        (Place::Rocks(_), Some(parent)) => sync(parent),
        _ => Ok(()),
    }
}

/// Puts the store that stands aside of `dir` into its place, where there is none any more.
pub fn put_back(dir: &Path, memory: &Memory) -> Result<(), Error> {
    rename(&aside_of(dir), dir, memory)
}

/// Puts a store back that was set aside by a process that was killed before it began another; removes what is left of a
/// copy that was not made to its end.
pub fn recover(dir: &Path, memory: &Memory) -> Result<(), Error> {
    if let Place::Rocks(_) = memory.place() {
        remove_unfinished(&aside_of(dir))?;
    }
    if stands_aside(dir, memory)? && !exists(dir, memory)? { put_back(dir, memory) } else { Ok(()) }
}

/// Removes the store in `dir`, in whatever state it is, so that the one set aside can be put back.
pub fn remove_built(dir: &Path, memory: &Memory) -> Result<(), Error> {
    wipe(dir, memory)
}

/// Removes the store that stands aside of `dir`: the one in `dir` is complete, and on the disk.
pub fn remove_aside(dir: &Path, memory: &Memory) -> Result<(), Error> {
    if let (Place::Rocks(_), Some(parent)) = (memory.place(), dir.parent()) {
        sync(parent)?;
    }
    wipe(&aside_of(dir), memory)
}

/// Removes a store with its folder; fine if there is none. Refused outside a slot of a marked state folder, and while
/// anybody has it open.
pub(super) fn wipe(dir: &Path, memory: &Memory) -> Result<(), Error> {
    match memory.place() {
        Place::Rocks(_) => Rocks::wipe(dir),
        Place::Simulated(disk) => Simulated::wipe(disk, dir),
    }
}

/// Removes the folder that RocksDB makes a copy in before it gets its name.
fn remove_unfinished(copy: &Path) -> Result<(), Error> {
    let mut path = OsString::from(copy);
    path.push(".tmp");
    let path = PathBuf::from(path);
    if !path.try_exists().map_err(|error| Error::from_io(&path, &error))? {
        return Ok(());
    }
    let path = dir::removable(&path)?;
    fs::remove_dir_all(&path).map_err(|error| Error::from_io(&path, &error))
}

fn exists(dir: &Path, memory: &Memory) -> Result<bool, Error> {
    match memory.place() {
        Place::Rocks(_) => dir.try_exists().map_err(|error| Error::from_io(dir, &error)),
        Place::Simulated(disk) => Ok(Simulated::exists(disk, dir)),
    }
}

fn rename(from: &Path, to: &Path, memory: &Memory) -> Result<(), Error> {
    match memory.place() {
        Place::Rocks(_) => {
            let failed = |error: io::Error| Error::from_io(from, &error);
            dir::removable(from)?;
            let _waiting = Waiting::for_disk(from, "rename");
            // Over a folder that holds something a rename fails: what stands aside is never overwritten.
            fs::rename(from, to).map_err(failed)?;
            from.parent().map_or(Ok(()), sync)
        }
        Place::Simulated(disk) => Simulated::rename(disk, from, to),
    }
}

/// Brings what was renamed or made in a folder to the disk.
fn sync(folder: &Path) -> Result<(), Error> {
    let _waiting = Waiting::for_disk(folder, "sync");
    let synced = fs::File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|error| Error::from_io(folder, &error))
}
