//! The progress of a walk through a store.

use crate::engine::long_work::Walks;

/// The sweeper's progress in a store.
#[derive(Clone, Debug, Default)]
pub struct Sweep {
    /// The last key examined, during a walk.
    pub(super) cursor: Option<Vec<u8>>,
    /// The stream time at which the last walk started.
    pub(super) walked_at: Option<i64>,
    /// Whether a walk is under way.
    pub(super) is_walking: bool,
    /// Progress reports on the walks.
    pub(super) walks: Walks,
}

impl Sweep {
    /// Starts again from the first key: the store may have changed under the cursor.
    pub fn reset(&mut self) {
        *self = Self { walks: std::mem::take(&mut self.walks), ..Self::default() };
    }
}
