//! A task's failures.

use std::time::Duration;

use crate::engine::failing::Failing;
use crate::engine::failure::Unprocessable;
use crate::engine::isolate::Quarantine;
use crate::engine::panics::Panics;

/// The failures of a task that it has not overcome yet.
#[derive(Default)]
pub struct Trouble {
    /// How many times in a row its restore or its transaction has failed.
    pub attempts: u32,
    /// How many times in a row a broker's response has led to a refusal that was doubted.
    pub doubted_refusals: u32,
    /// An offset, and how often in a row the record there could not be read.
    pub unreadable: (i64, u32),
    /// The record before which the next transaction stops the task for good, and why.
    pub refused_at: Option<(i64, Unprocessable)>,
    /// Its panics since it last got past the record at which it panicked.
    pub panics: Panics,
    /// Set while the task is isolated, since its output has failed.
    pub quarantine: Option<Quarantine>,
    /// If the task has stopped: whether a later start may succeed without any change.
    pub may_pass: bool,
    /// Detects failures that last: see [`Trouble::has_failed_too_long`].
    failing: Failing,
}

impl Trouble {
    /// The part that is kept when the task is recreated after a panic.
    pub fn after_panic(self) -> Self {
        let Self { attempts, panics, quarantine, failing, .. } = self;
        Self { attempts, panics, quarantine, failing, ..Self::default() }
    }

    /// The offset of the record before which the task must stop for good, and the reason; the task processes everything
    /// before it.
    pub fn planned_stop(&self) -> Option<(i64, String)> {
        let panicked = self.panics.stop_before().map(|at| (at, self.panics.to_string()));
        let refused = self.refused_at.as_ref().map(|(at, reason)| (*at, reason.to_string()));
        refused.into_iter().chain(panicked).min_by_key(|(at, _)| *at)
    }

    /// Called when everything before this offset is committed.
    pub fn on_commit(&mut self, next: i64) {
        self.attempts = 0;
        self.panics.on_commit(next);
        self.refused_at = self.refused_at.take().filter(|(at, _)| *at >= next);
    }

    /// Whether the task has failed for too long without a commit: see [`Failing::update`].
    pub fn has_failed_too_long(&mut self, is_at_work: bool, has_more: bool, now: Duration) -> bool {
        let failures = self.attempts + self.quarantine.as_ref().map_or(0, Quarantine::failures);
        self.failing.update(failures, is_at_work, has_more, now)
    }
}
