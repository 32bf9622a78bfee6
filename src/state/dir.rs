//! The state folder.
//!
//! ```text
//! state_dir/                  0700, unless it belongs to another user
//!   .ratchet-state            the marker: ratchet may remove what is in the slots
//!   slot-0/                   0700; the stores of one process
//!     lock                    locked while the process lives
//!     payments/               a topology
//!       orders-3/             a task's store (topic and partition)
//!       orders-3.aside/       its predecessor, until the one above is complete: see `super::aside`
//! ```
//!
//! Two processes with the same configuration take different slots. Nothing is ever removed except inside a slot of
//! a folder that has the marker; a folder without the marker is rejected unless it is empty.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Error;
use super::stalls::DiskCall;
use crate::folder;
use crate::lock::FileLock;
use crate::record::TopicPartition;

/// The file that marks a state folder.
const MARKER_FILE: &str = ".ratchet-state";
const MARKER_TEXT: &str = "This folder belongs to ratchet: it holds its stores, which can be rebuilt from the changelogs.\n\
    ratchet removes files in its slots. Keep nothing else here.\n";
/// Prefix of a slot's name; its number follows.
const SLOT_PREFIX: &str = "slot-";
/// The file that holds a slot's lock.
const LOCK_FILE: &str = "lock";
/// A folder that a new file system may contain.
const LOST_AND_FOUND: &str = "lost+found";
/// Maximum number of processes that can share a state folder.
const SLOTS_MAX: u32 = 256;
/// Accessible to this user only.
const FILE_MODE: u32 = 0o600;

/// One process's slot of the state folder, locked until the last clone is dropped or the process ends.
#[derive(Clone, Debug)]
pub struct StateSlot {
    slot: PathBuf,
    /// `None` for a slot that is not on a disk, as in a simulation.
    _lock: Option<Arc<FileLock>>,
}

impl StateSlot {
    /// Takes the first slot of the state folder `root` that no other process has, creating folder and slot if
    /// necessary. Slots keep their stores, so a restarted process finds its own stores as long as the number of
    /// processes stays the same.
    pub fn lock(root: &Path) -> Result<Self, Error> {
        folder::make(root).map_err(|error| Error::from_io(root, &error))?;
        let root = fs::canonicalize(root).map_err(|error| Error::from_io(root, &error))?;
        mark(&root)?;
        // Only now: a folder that `mark` rejects is left unchanged.
        folder::close(&root).map_err(|error| Error::from_io(&root, &error))?;
        for number in 0..SLOTS_MAX {
            let slot = root.join(format!("{SLOT_PREFIX}{number}"));
            create_dir(&slot)?;
            let path = slot.join(LOCK_FILE);
            match FileLock::try_take(&path) {
                Ok(Some(lock)) => return Ok(Self { slot, _lock: Some(Arc::new(lock)) }),
                Ok(None) => {}
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOLCK | libc::EOPNOTSUPP)) => {
                    let reason = format!("{error}; this file system has no locks, set state_dir to a local disk");
                    return Err(Error::Io { path, reason });
                }
                Err(error) => return Err(Error::from_io(&path, &error)),
            }
        }
        Err(Error::NoSlot { root, slots: SLOTS_MAX })
    }

    /// Locks all existing slots of the state folder `root`, so that no process uses any store in it.
    pub fn lock_all(root: &Path) -> Result<Vec<FileLock>, Error> {
        let mut locks = Vec::new();
        for slot in (0..SLOTS_MAX).map(|number| root.join(format!("{SLOT_PREFIX}{number}"))) {
            if slot.is_dir() {
                let lock = FileLock::try_take(&slot.join(LOCK_FILE)).map_err(|error| Error::from_io(&slot, &error))?;
                locks.push(lock.ok_or(Error::InUse { path: slot })?);
            }
        }
        Ok(locks)
    }

    /// A slot that is not on a disk, and so is not locked: for a simulation.
    pub fn unlocked(slot: PathBuf) -> Self {
        Self { slot, _lock: None }
    }

    /// The slot's folder.
    pub fn path(&self) -> &Path {
        &self.slot
    }

    /// The folder of the store of `topology`'s task for `partition`.
    pub fn task_dir(&self, topology: &str, partition: &TopicPartition) -> PathBuf {
        let task = format!("{}-{}", file_name(&partition.topic), partition.partition);
        self.slot.join(file_name(topology)).join(task)
    }
}

/// A file name for a topology or a topic. Characters that Kafka allows in names are unchanged, except a dot at the
/// start; all others are escaped. So no name leads out of the slot.
pub(super) fn file_name(name: &str) -> String {
    let mut escaped = String::with_capacity(name.len());
    for (index, byte) in name.bytes().enumerate() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-') || (byte == b'.' && index > 0) {
            escaped.push(char::from(byte));
        } else {
            write!(escaped, "%{byte:02X}").expect("a string takes all text");
        }
    }
    escaped
}

/// Whether this is the path of a slot, by its name.
fn is_slot(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.strip_prefix(SLOT_PREFIX).is_some_and(|number| number.parse::<u32>().is_ok())
}

/// Creates `dir`, a slot or a store, accessible to this user only.
pub(super) fn create_dir(dir: &Path) -> Result<(), Error> {
    folder::make(dir).and_then(|()| folder::close(dir)).map_err(|error| Error::from_io(dir, &error))
}

/// Writes the marker into `root`, unless it is there already. An error if `root` has no marker and is not empty.
fn mark(root: &Path) -> Result<(), Error> {
    let marker = root.join(MARKER_FILE);
    if marker.exists() {
        return Ok(());
    }
    for entry in fs::read_dir(root).map_err(|error| Error::from_io(root, &error))? {
        let entry = entry.map_err(|error| Error::from_io(root, &error))?;
        // The marker is checked again: another process may be creating this folder at the same time,
        // and writes the marker before anything else.
        if entry.file_name() != LOST_AND_FOUND && !marker.exists() {
            return Err(Error::Foreign { root: root.to_owned() });
        }
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(FILE_MODE)
        .open(&marker)
        .map_err(|error| Error::from_io(&marker, &error))?;
    file.write_all(MARKER_TEXT.as_bytes()).map_err(|error| Error::from_io(&marker, &error))
}

/// The free space for this user on the disk of `dir`, in bytes.
pub(super) fn free_bytes(dir: &Path) -> Result<u64, Error> {
    folder::free_bytes(dir).map_err(|error| Error::from_io(dir, &error))
}

/// Checks that `dir`, which must exist, is inside a slot of a state folder with the marker; returns its path without
/// symbolic links. Links are followed first, so that no folder outside the state folder is removed.
pub(super) fn removable_path(dir: &Path) -> Result<PathBuf, Error> {
    let real_path = fs::canonicalize(dir).map_err(|error| Error::from_io(dir, &error))?;
    // The marker must be at least two folders above: `dir` is neither the state folder itself nor a slot.
    if real_path.ancestors().skip(2).any(|ancestor| ancestor.join(MARKER_FILE).is_file()) {
        Ok(real_path)
    } else {
        Err(Error::Unmarked { path: dir.to_owned() })
    }
}

/// Renames a store's folder, durably when this returns.
pub(super) fn rename(from: &Path, to: &Path) -> Result<(), Error> {
    removable_path(from)?;
    let _call = DiskCall::begin(from, "rename");
    // Renaming onto a folder that is not empty fails, so a store that was set aside is never overwritten.
    fs::rename(from, to).map_err(|error| Error::from_io(from, &error))?;
    from.parent().map_or(Ok(()), sync)
}

/// Makes renamed and created files in a folder durable.
pub(super) fn sync(folder: &Path) -> Result<(), Error> {
    let _call = DiskCall::begin(folder, "sync");
    let synced = fs::File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|error| Error::from_io(folder, &error))
}

/// The folders of a topology's tasks, in all slots of the state folder `root`; `topology` is the topology's folder
/// name.
pub(super) fn task_folders(root: &Path, topology: &str) -> Result<Vec<PathBuf>, Error> {
    let mut folders = Vec::new();
    for slot in entries(root)? {
        if is_slot(&slot) {
            folders.extend(entries(&slot.join(topology))?);
        }
    }
    Ok(folders)
}

/// The paths of the files and folders in a folder; none if it does not exist.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let to_error = |error: io::Error| Error::from_io(folder, &error);
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(to_error)?,
    };
    entries.map(|entry| entry.map(|entry| entry.path()).map_err(to_error)).collect()
}
