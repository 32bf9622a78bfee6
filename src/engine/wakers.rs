//! Wakes waiting lanes for changes that their members do not report: the run ends, or topics are created, deleted or
//! changed. The code that makes such a change then wakes the lanes.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::cluster::Waker;

/// The wakers of a topology's lanes. Each lane holds the strong reference to its own waker.
#[derive(Default)]
pub struct Wakers(Mutex<Vec<Weak<dyn Fn() + Send + Sync>>>);

impl Wakers {
    /// Adds the waker of a lane.
    pub fn add(&self, waker: &Waker) {
        let mut wakers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        wakers.retain(|waker| waker.strong_count() > 0);
        wakers.push(Arc::downgrade(waker));
    }

    /// Wakes all lanes.
    pub fn wake(&self) {
        let wakers = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        wakers.iter().filter_map(Weak::upgrade).for_each(|waker| waker());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn lane_is_woken_until_its_waker_is_dropped() {
        let wakers = Wakers::default();
        let counts = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
        let waker = |index: usize| -> Waker {
            let count = Arc::clone(&counts[index]);
            Arc::new(move || _ = count.fetch_add(1, Ordering::Relaxed))
        };
        let (first, second) = (waker(0), waker(1));
        wakers.add(&first);
        wakers.add(&second);
        wakers.wake();
        drop(first);
        wakers.wake();
        assert_eq!([0, 1].map(|index| counts[index].load(Ordering::Relaxed)), [1, 2]);
        wakers.add(&second);
        assert_eq!(wakers.0.lock().unwrap().len(), 2, "the dropped waker is forgotten");
    }
}
