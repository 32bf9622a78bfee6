//! Errors of stores and of the state folder, distinguished by what has to be done about them. A **slot** is the folder
//! of one process in the state folder; a store can be rebuilt from a topic, its **changelog**.
//!
//! RocksDB's C interface returns errors as text only, so they are distinguished by the words that its
//! `Status::ToString` and the operating system's `strerror` put into them.

use std::io;
use std::path::{Path, PathBuf};

/// An error of a store or the state folder.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Another process, or another lane of this one, has the store open.
    #[error("the store {} is in use by another process or lane; stop that one, or give this one a state folder of its own", .path.display())]
    InUse {
        /// The store's folder.
        path: PathBuf,
    },
    /// The store's files are incomplete or altered. The store can be wiped and rebuilt.
    #[error("the store {} is damaged ({reason}); it can be removed and is then rebuilt from the changelog", .path.display())]
    Damaged {
        /// The store's folder.
        path: PathBuf,
        /// The damage that was found.
        reason: String,
    },
    /// No space is left, or a quota or a limit on file sizes is reached. No commit is lost: the store keeps an earlier
    /// state, and the changelog has the later commits.
    #[error("no space for {} ({reason}); free some space on that disk or lift the quota", .path.display())]
    Full {
        /// The path that could not grow.
        path: PathBuf,
        /// The system's message.
        reason: String,
    },
    /// This process may not write to the path.
    #[error("{} cannot be written ({reason}); give it to the user that runs ratchet, or set another state_dir", .path.display())]
    NotWritable {
        /// The path that could not be written.
        path: PathBuf,
        /// The system's message.
        reason: String,
    },
    /// The state folder is not empty and does not have ratchet's marker.
    #[error("{} is not empty and is not a state folder of ratchet; set state_dir to an empty or a new folder", .root.display())]
    Foreign {
        /// The folder.
        root: PathBuf,
    },
    /// Every slot of the state folder is locked.
    #[error("all {slots} slots of the state folder {} are in use by other processes; stop some, or set another state_dir", .root.display())]
    NoSlot {
        /// The state folder.
        root: PathBuf,
        /// The number of slots.
        slots: u32,
    },
    /// The folder is not in a slot of a state folder that has ratchet's marker, and therefore is not removed.
    #[error("{} does not lie in a slot of a state folder of ratchet, so it is not removed; remove it by hand", .path.display())]
    Unmarked {
        /// The folder.
        path: PathBuf,
    },
    /// The changelog holds a key that only stores have: another program has written it.
    #[error(
        "the changelog of {} holds the key of a store's own position, which ratchet never writes there: another \
         program writes to the changelog; stop that program and give the topology a new name and a new output topic to begin anew",
        .path.display()
    )]
    ReservedKey {
        /// The store's folder.
        path: PathBuf,
    },
    /// Any other error of the disk or the operating system.
    #[error("{}: {reason}", .path.display())]
    Io {
        /// The path that was read or written.
        path: PathBuf,
        /// The system's message.
        reason: String,
    },
}

impl Error {
    /// Whether a later start may succeed although nobody has changed settings, permissions or topics: another process
    /// may have ended, or the disk may have space again.
    pub fn may_pass(&self) -> bool {
        !matches!(
            self,
            Self::NotWritable { .. } | Self::Foreign { .. } | Self::Unmarked { .. } | Self::ReservedKey { .. }
        )
    }

    /// A file system error at `path`.
    pub(super) fn from_io(path: &Path, error: &io::Error) -> Self {
        let (path, reason) = (path.to_owned(), error.to_string());
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                Self::Full { path, reason }
            }
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Self::NotWritable { path, reason },
            io::ErrorKind::NotADirectory => {
                Self::Io { path, reason: format!("{reason}; a folder is needed, set state_dir to one") }
            }
            _ => Self::Io { path, reason },
        }
    }

    /// A RocksDB error while opening the store at `path`.
    pub(super) fn from_opening(path: &Path, error: &rocksdb::Error) -> Self {
        match error.kind() {
            // An unknown table format, comparator or column family: files of another program, or of a later
            // RocksDB. They are unusable and can be rebuilt.
            rocksdb::ErrorKind::NotSupported | rocksdb::ErrorKind::InvalidArgument => {
                Self::Damaged { path: path.to_owned(), reason: error.as_ref().to_owned() }
            }
            _ => Self::from_rocksdb(path, error),
        }
    }

    /// A RocksDB error about the store at `path`.
    pub(super) fn from_rocksdb(path: &Path, error: &rocksdb::Error) -> Self {
        let path = path.to_owned();
        let reason = error.as_ref().to_owned();
        let contains_any = |phrases: &[&str]| phrases.iter().any(|phrase| reason.contains(phrase));
        match error.kind() {
            rocksdb::ErrorKind::Corruption => Self::Damaged { path, reason },
            _ if contains_any(&["No space left", "Disk quota exceeded", "File too large", "Space limit reached"]) => {
                Self::Full { path, reason }
            }
            _ if contains_any(&["lock hold by current process", "While lock file"]) => Self::InUse { path },
            _ if contains_any(&["Permission denied", "Read-only file system", "Operation not permitted"]) => {
                Self::NotWritable { path, reason }
            }
            // A file named in MANIFEST or CURRENT is missing.
            _ if contains_any(&["No such file or directory"]) => Self::Damaged { path, reason },
            _ if contains_any(&["Too many open files"]) => {
                Self::Io { path, reason: format!("{reason}; raise the limit of open files (ulimit -n)") }
            }
            _ => Self::Io { path, reason },
        }
    }
}
