//! The stores that this process has open: prevents two of its lanes (threads that process partitions) from opening the
//! same store.
//!
//! RocksDB's own lock would prevent that too, but with an error in the middle of opening. Here a lane can check, and
//! check again until the previous holder has released the lock.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The stores that are open in this process. Cheap to clone; all clones are the same registry.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    open: Arc<Mutex<HashSet<PathBuf>>>,
}

impl Registry {
    /// An empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Locks the store at `path`, as returned by [`super::StateSlot::task_dir`]; `None` while another lane holds the
    /// lock.
    pub fn try_lock(&self, path: &Path) -> Option<StoreLock> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.insert(path.to_owned()).then(|| StoreLock { registry: self.clone(), path: path.to_owned() })
    }
}

/// The lock on one store. Dropping it releases the lock, so it has to outlive the store.
#[derive(Debug)]
pub struct StoreLock {
    registry: Registry,
    path: PathBuf,
}

impl StoreLock {
    /// The store's folder.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for StoreLock {
    fn drop(&mut self) {
        self.registry.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.path);
    }
}
