//! A task's failures.

use std::time::Duration;

use crate::engine::failing::Failing;
use crate::engine::failure::Unprocessable;
use crate::engine::isolate::Quarantine;
use crate::engine::panics::Panics;

/// What has gone wrong with a task and is not behind it yet.
#[derive(Default)]
pub struct Trouble {
    /// How many times in a row the way back has failed.
    pub attempts: u32,
    /// How many times in a row the task was refused because of a broker's response and asked again.
    pub doubted: u32,
    /// An offset, and how often in a row the record there could not be read.
    pub unreadable: (i64, u32),
    /// The record before which the next transaction stops the task for good, and why.
    pub refused_at: Option<(i64, Unprocessable)>,
    /// Its panics since it last got past the record in question.
    pub panics: Panics,
    /// Set while the output has failed this task.
    pub quarantine: Option<Quarantine>,
    /// Whether a later start may get beyond why the task has stopped, if it has.
    pub may_pass: bool,
    /// Whether it fails for too long: see [`Trouble::lasts`].
    failing: Failing,
}

impl Trouble {
    /// What stays of it when the task is recreated after a panic.
    pub fn after_panic(self) -> Self {
        let Self { attempts, panics, quarantine, failing, .. } = self;
        Self { attempts, panics, quarantine, failing, ..Self::default() }
    }

    /// The record before which the task is to stop for good, and why; everything before it is processed.
    pub fn stops_before(&self) -> Option<(i64, String)> {
        let panicked = self.panics.stop_before().map(|at| (at, self.panics.to_string()));
        let refused = self.refused_at.as_ref().map(|(at, reason)| (*at, reason.to_string()));
        refused.into_iter().chain(panicked).min_by_key(|(at, _)| *at)
    }

    /// Everything before this offset is committed.
    pub fn pass(&mut self, next: i64) {
        self.attempts = 0;
        self.panics.pass(next);
        self.refused_at = self.refused_at.take().filter(|(at, _)| *at >= next);
    }

    /// Whether the task has failed for too long without a commit: see [`Failing::note`].
    pub fn lasts(&mut self, is_at_work: bool, has_more: bool, now: Duration) -> bool {
        let failures = self.attempts + self.quarantine.as_ref().map_or(0, Quarantine::failures);
        self.failing.note(failures, is_at_work, has_more, now)
    }
}
