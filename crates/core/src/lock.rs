//! A file lock, held for as long as a process, or a part of it, uses a folder.
//!
//! It belongs to the open file, so opening the file a second time within the process is refused just like from outside,
//! and the kernel releases it when the process ends, however it ends.

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
    /// Locks the file at `path`, which is created (0600) if there is none. `None` if another holder has it.
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
    /// Closing the file is not enough: a child process that is just being started keeps it open until its exec.
    fn drop(&mut self) {
        // After an error the lock is released with the file.
        let _ = self.file.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_is_released_even_while_a_duplicate_of_its_file_is_open() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let lock = FileLock::try_take(&path).unwrap().expect("nobody has it");
        let held_by_a_starting_child = lock.file.try_clone().unwrap();
        assert!(FileLock::try_take(&path).unwrap().is_none());
        drop(lock);
        assert!(FileLock::try_take(&path).unwrap().is_some());
        drop(held_by_a_starting_child);
    }
}
