//! The transactional ids under which this process writes.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// The transactional ids in use in this process: it never fences its own ids.
#[derive(Clone, Debug, Default)]
pub struct Ids(Arc<Mutex<BTreeSet<String>>>);

impl Ids {
    /// Counts `id` as in use until the returned value is dropped.
    pub fn register(&self, id: &str) -> InUse {
        self.with(|ids| ids.insert(id.to_owned()));
        InUse { ids: self.clone(), id: id.to_owned() }
    }

    /// The ids in use.
    pub fn in_use(&self) -> Vec<String> {
        self.with(|ids| ids.iter().cloned().collect())
    }

    fn with<T>(&self, access: impl FnOnce(&mut BTreeSet<String>) -> T) -> T {
        access(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// An id in use.
#[derive(Debug)]
pub struct InUse {
    ids: Ids,
    id: String,
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.ids.with(|ids| ids.remove(&self.id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_is_in_use_until_dropped() {
        let ids = Ids::default();
        let (a, b) = (ids.register("a"), ids.register("b"));
        assert_eq!(ids.in_use(), ["a", "b"]);
        drop(a);
        assert_eq!(ids.in_use(), ["b"]);
        drop(b);
        assert!(ids.in_use().is_empty());
    }
}
