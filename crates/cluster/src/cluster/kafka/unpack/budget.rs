//! How much unpacked data may be in memory at once, and who has reserved it.
//!
//! Invariant: at most the bound is held, plus an eighth of it for each thread. A thread may reserve that much even
//! if others hold everything: what a partition has fetched and cannot pass on does not block the others for ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What librdkafka allocates for a record besides its bytes.
pub(in super::super) const RECORD_OVERHEAD_BYTES: u64 = 400;
/// A thread that holds nothing may always reserve this fraction of the bound.
const PARTS: u64 = 8;

/// The process's budget: unlimited until ratchet opens a cluster, so that clients of other code alone are not bounded.
pub(super) static BUDGET: Budget = Budget::new();

thread_local! {
    /// What the batches unpacked by this thread hold.
    static OWN: Arc<AtomicU64> = Arc::default();
}

/// Why a batch was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Rejection {
    /// It unpacks to more than the whole budget.
    TooLarge,
    /// Others hold too much of the budget at present.
    NoRoom,
}

/// The memory budget for unpacked data.
pub(super) struct Budget {
    max: AtomicU64,
    held: AtomicU64,
}

impl Budget {
    const fn new() -> Self {
        Self { max: AtomicU64::new(u64::MAX), held: AtomicU64::new(0) }
    }

    /// Sets the bound.
    pub fn allow(&self, bytes: u64) {
        self.max.store(bytes, Ordering::Relaxed);
    }

    /// The bound.
    pub fn max(&self) -> u64 {
        self.max.load(Ordering::Relaxed)
    }
}

/// A part of the budget, released when dropped, on whichever thread.
#[derive(Debug)]
pub(super) struct Reservation {
    budget: &'static Budget,
    own: Arc<AtomicU64>,
    bytes: u64,
}

impl std::fmt::Debug for Budget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Budget")
    }
}

impl Reservation {
    /// Nothing yet, from the process's budget.
    pub fn new() -> Self {
        Self::of(&BUDGET, OWN.with(Arc::clone))
    }

    fn of(budget: &'static Budget, own: Arc<AtomicU64>) -> Self {
        Self { budget, own, bytes: 0 }
    }

    /// The maximum of a reservation.
    pub fn max(&self) -> u64 {
        self.budget.max()
    }

    /// Reserves more.
    pub fn add(&mut self, bytes: u64) -> Result<(), Rejection> {
        let (max, wanted) = (self.max(), self.bytes.saturating_add(bytes));
        if wanted > max {
            return Err(Rejection::TooLarge);
        }
        let held = self.budget.held.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        let own = self.own.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        self.bytes = wanted;
        if held > max && own > max / PARTS {
            self.release(bytes);
            return Err(Rejection::NoRoom);
        }
        Ok(())
    }

    /// Releases `bytes` of it, or all of it if that is less.
    pub fn release(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.budget.held.fetch_sub(bytes, Ordering::Relaxed);
        self.own.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.release(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(max: u64) -> &'static Budget {
        let budget = Box::leak(Box::new(Budget::new()));
        budget.allow(max);
        budget
    }

    #[test]
    fn batch_beyond_the_budget_differs_from_one_without_room_now() {
        let budget = budget(800);
        let (mut first, mut second) =
            (Reservation::of(budget, Arc::default()), Reservation::of(budget, Arc::default()));
        assert_eq!(first.add(801), Err(Rejection::TooLarge));
        assert_eq!(first.add(800), Ok(()));
        assert_eq!(first.add(1), Err(Rejection::TooLarge));
        assert_eq!(second.add(101), Err(Rejection::NoRoom));
        drop(first);
        assert_eq!(second.add(101), Ok(()));
        second.release(u64::MAX);
        assert_eq!(budget.held.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn small_batch_fits_even_if_others_hold_the_whole_budget() {
        let budget = budget(800);
        let mut all = Reservation::of(budget, Arc::default());
        all.add(800).unwrap();
        let own = Arc::default();
        let (mut first, mut second) =
            (Reservation::of(budget, Arc::clone(&own)), Reservation::of(budget, Arc::clone(&own)));
        assert_eq!(first.add(60), Ok(()));
        assert_eq!(second.add(60), Err(Rejection::NoRoom), "together they are more than an eighth");
        assert_eq!(second.add(40), Ok(()));
    }
}
