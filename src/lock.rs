//! A lock on a file, for as long as a process, or a part of it, uses a folder.
//!
//! It belongs to the open file, so a second opening within the process is refused like one from outside, and
//! the kernel lets go of it when the process ends, however it ends.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// A lock that is held.
#[derive(Debug)]
pub struct FileLock {
    file: File,
}

impl FileLock {
    /// Takes the lock on the file at `path`, making the file (0600) where there is none. `None` where another
    /// holds it.
    pub fn try_take(path: &Path) -> io::Result<Option<Self>> {
        let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self { file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

impl Drop for FileLock {
    /// Closing the file is not enough: a child process that is just being started holds it open, until it
    /// has become another program.
    fn drop(&mut self) {
        // An error leaves the lock to be let go of with the file.
        let _ = self.file.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_let_go_of_even_while_a_duplicate_of_its_file_is_open() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let lock = FileLock::try_take(&path).unwrap().expect("nobody has it");
        let as_a_starting_child_has_it = lock.file.try_clone().unwrap();
        assert!(FileLock::try_take(&path).unwrap().is_none());
        drop(lock);
        assert!(FileLock::try_take(&path).unwrap().is_some());
        drop(as_a_starting_child_has_it);
    }
}
