//! The state folder.
//!
//! ```text
//! state_dir/                  0700 where ratchet made it
//!   .ratchet-state            the mark: ratchet may remove what is in the slots
//!   slot-0/                   0700; one process at a time
//!     lock                    locked for as long as the process lives
//!     payments/               a topology
//!       orders-3/             a task's store (topic and partition)
//!       orders-3.aside/       what stood there before, until the one above is complete: see `super::aside`
//! ```
//!
//! Two processes with one configuration take different slots. Nothing is ever removed but inside a slot of
//! a marked folder; a folder that holds something and is not marked is refused.

use std::ffi::CString;
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Error;
use super::stalls::Waiting;
use crate::lock::FileLock;
use crate::record::TopicPartition;

/// The file that marks a state folder.
const MARKER: &str = ".ratchet-state";
const MARKER_TEXT: &str = "This folder belongs to ratchet: it holds its stores, which can be rebuilt from the changelogs.\n\
    ratchet removes files in its slots. Keep nothing else here.\n";
/// How the name of a slot begins; its number follows.
const SLOT: &str = "slot-";
/// The file that holds a slot's lock.
const LOCK: &str = "lock";
/// What a freshly made file system may hold.
const LOST_AND_FOUND: &str = "lost+found";
/// How many processes can share a state folder.
const SLOTS_MAX: u32 = 256;
/// Only this user may look.
const MODE_DIR: u32 = 0o700;
const MODE_FILE: u32 = 0o600;

/// One process's slot of the state folder, locked until the last clone is dropped or the process ends.
#[derive(Clone, Debug)]
pub struct StateDir {
    slot: PathBuf,
    /// `None` for a slot that is on no disk.
    _lock: Option<Arc<FileLock>>,
}

impl StateDir {
    /// Takes the first slot of the state folder `root` that no other process has, making folder and slot
    /// where there are none. Slots keep their stores, so a process that starts again finds its own as long
    /// as the number of processes stays the same.
    pub fn lock(root: &Path) -> Result<Self, Error> {
        make_dir(root)?;
        let root = fs::canonicalize(root).map_err(|error| Error::from_io(root, &error))?;
        mark(&root)?;
        // Only now: a folder that is refused is left as it was.
        close_dir(&root)?;
        for number in 0..SLOTS_MAX {
            let slot = root.join(format!("{SLOT}{number}"));
            create_dir(&slot)?;
            let path = slot.join(LOCK);
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

    /// Takes all slots that the state folder `root` has, so that no process works with any store in it.
    pub fn lock_all(root: &Path) -> Result<Vec<FileLock>, Error> {
        let mut locks = Vec::new();
        for slot in (0..SLOTS_MAX).map(|number| root.join(format!("{SLOT}{number}"))) {
            if slot.is_dir() {
                let lock = FileLock::try_take(&slot.join(LOCK)).map_err(|error| Error::from_io(&slot, &error))?;
                locks.push(lock.ok_or(Error::InUse { path: slot })?);
            }
        }
        Ok(locks)
    }

    /// A slot that is on no disk.
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

/// A name as a file's name. Kafka's names are left as they are; what else a cluster may call a topic is
/// escaped, so that no name leads out of the slot.
pub(super) fn file_name(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for (at, byte) in name.bytes().enumerate() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-') || (byte == b'.' && at > 0) {
            out.push(char::from(byte));
        } else {
            write!(out, "%{byte:02X}").expect("a string takes all text");
        }
    }
    out
}

/// Whether a folder is named as a slot is.
fn is_slot(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.strip_prefix(SLOT).is_some_and(|number| number.parse::<u32>().is_ok())
}

/// Makes `dir` and what is missing above it, for this user only.
fn make_dir(dir: &Path) -> Result<(), Error> {
    DirBuilder::new().recursive(true).mode(MODE_DIR).create(dir).map_err(|error| Error::from_io(dir, &error))
}

/// Closes `dir` to other users if it is this user's; another's (a mounted volume) stays as it is.
fn close_dir(dir: &Path) -> Result<(), Error> {
    let failed = |error: io::Error| Error::from_io(dir, &error);
    let found = fs::metadata(dir).map_err(failed)?;
    // SAFETY: geteuid has no arguments, touches no memory and cannot fail.
    let user = unsafe { libc::geteuid() };
    if found.mode() & 0o777 != MODE_DIR && found.uid() == user {
        fs::set_permissions(dir, Permissions::from_mode(MODE_DIR)).map_err(failed)?;
    }
    Ok(())
}

/// Makes `dir`, a slot or a store, and sees to it that only this user may look into it.
pub(super) fn create_dir(dir: &Path) -> Result<(), Error> {
    make_dir(dir)?;
    close_dir(dir)
}

/// Marks `root` as a state folder if it is empty; refuses it if it holds something and is not marked.
fn mark(root: &Path) -> Result<(), Error> {
    let marker = root.join(MARKER);
    if marker.exists() {
        return Ok(());
    }
    for entry in fs::read_dir(root).map_err(|error| Error::from_io(root, &error))? {
        let entry = entry.map_err(|error| Error::from_io(root, &error))?;
        // The mark is looked for once more: another process may be making this folder at the same time,
        // and writes the mark before anything else.
        if entry.file_name() != LOST_AND_FOUND && !marker.exists() {
            return Err(Error::Foreign { root: root.to_owned() });
        }
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(MODE_FILE)
        .open(&marker)
        .map_err(|error| Error::from_io(&marker, &error))?;
    file.write_all(MARKER_TEXT.as_bytes()).map_err(|error| Error::from_io(&marker, &error))
}

/// The bytes that this user can still write to the disk that `dir` is on.
pub(super) fn free_bytes(dir: &Path) -> Result<u64, Error> {
    let failed = |error: io::Error| Error::from_io(dir, &error);
    let path = CString::new(dir.as_os_str().as_bytes()).map_err(|error| failed(error.into()))?;
    let mut found = MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: the path ends in a zero and outlives the call, and `found` has room for what is written.
    if unsafe { libc::statvfs(path.as_ptr(), found.as_mut_ptr()) } != 0 {
        return Err(failed(io::Error::last_os_error()));
    }
    // SAFETY: the call has succeeded, so it has filled the struct.
    let found = unsafe { found.assume_init() };
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Makes sure that `dir`, which exists, lies inside a slot of a marked state folder; says where it really
/// is. Links are followed first: what they lead to outside is not ours to remove.
pub(super) fn removable(dir: &Path) -> Result<PathBuf, Error> {
    let real = fs::canonicalize(dir).map_err(|error| Error::from_io(dir, &error))?;
    // Neither the folder itself nor a slot can be meant: the mark stands at least two folders above.
    if real.ancestors().skip(2).any(|above| above.join(MARKER).is_file()) {
        Ok(real)
    } else {
        Err(Error::Unmarked { path: dir.to_owned() })
    }
}

/// Renames a store's folder, on the disk too when this returns.
pub(super) fn rename(from: &Path, to: &Path) -> Result<(), Error> {
    removable(from)?;
    let _waiting = Waiting::for_disk(from, "rename");
    // Over a folder that holds something a rename fails: what stands aside is never overwritten.
    fs::rename(from, to).map_err(|error| Error::from_io(from, &error))?;
    from.parent().map_or(Ok(()), sync)
}

/// Brings what was renamed or made in a folder to the disk.
pub(super) fn sync(folder: &Path) -> Result<(), Error> {
    let _waiting = Waiting::for_disk(folder, "sync");
    let synced = fs::File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|error| Error::from_io(folder, &error))
}

/// The folders of a topology's tasks, in all slots of the state folder `root`.
pub(super) fn folders(root: &Path, topology: &str) -> Result<Vec<PathBuf>, Error> {
    let mut all = Vec::new();
    for slot in entries(root)? {
        if is_slot(&slot) {
            all.extend(entries(&slot.join(topology))?);
        }
    }
    Ok(all)
}

/// What is in a folder; nothing where there is none.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let failed = |error: io::Error| Error::from_io(folder, &error);
    let all = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        all => all.map_err(failed)?,
    };
    all.map(|entry| entry.map(|entry| entry.path()).map_err(failed)).collect()
}
