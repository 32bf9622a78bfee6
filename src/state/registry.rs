//! Which stores this process has open, so that two lanes never open one at once.
//!
//! RocksDB's own lock would refuse the second one, too, but as an error in the middle of an opening; here
//! a lane can ask, and ask again until the former holder has let go.

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

    /// The right to open the store at `path`, as [`super::StateDir::task_dir`] names it; `None` while
    /// another has it.
    pub fn try_lock(&self, path: &Path) -> Option<StoreLock> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.insert(path.to_owned()).then(|| StoreLock { registry: self.clone(), path: path.to_owned() })
    }
}

/// The right to open one store; given back when dropped, so it has to outlive the store.
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
