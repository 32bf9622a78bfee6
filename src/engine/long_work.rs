//! Reports on long-running work: a log line every [`LOG_INTERVAL`] for each task that restores or is swept, and
//! metrics at every slice.

use std::time::Duration;

use crate::observe::{Pace, TaskMetrics};
use crate::record::TopicPartition;

/// How often a task's long-running work is logged.
pub const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// A restore's progress, in changelog offsets.
#[derive(Debug)]
pub struct Restoring {
    pace: Pace,
    logged: Duration,
}

impl Restoring {
    /// A restore that starts now.
    pub fn begin(now: Duration, remaining: i64) -> Self {
        Self { pace: Pace::begin(now, count(remaining)), logged: now }
    }

    /// Reports that `done` offsets were passed since the start, and that `remaining` are left.
    pub fn report(&mut self, now: Duration, done: i64, remaining: i64, task: &TopicPartition, metrics: &TaskMetrics) {
        self.pace.at(now, count(done), count(remaining));
        metrics.restoring(&self.pace);
        if self.is_due(now) {
            tracing::info!(
                task = %task,
                done = self.pace.done(),
                remaining = self.pace.remaining(),
                records_per_second = self.pace.per_second().map(|rate| rate as u64),
                ready_in_s = self.pace.left().map(|left| left.as_secs()),
                "still restoring the store"
            );
        }
    }

    /// Whether a line is due. Other code logs the first line at the start, and the last line at the end.
    fn is_due(&mut self, now: Duration) -> bool {
        let is_due = now.saturating_sub(self.logged) >= LOG_INTERVAL && self.pace.remaining() > 0;
        if is_due {
            self.logged = now;
        }
        is_due
    }
}

/// The walks of a task's sweeper, counted in entries.
#[derive(Clone, Debug, Default)]
pub struct Walks {
    walk: Option<Walk>,
    /// The walks that have ended since the last line that reported ended walks.
    ended: EndedWalks,
    /// When the last line was logged.
    logged: Option<Duration>,
}

/// A walk under way.
#[derive(Clone, Debug)]
struct Walk {
    pace: Pace,
    removed: u64,
    /// Whether a line has reported the walk.
    is_logged: bool,
}

/// The totals of walks that have ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct EndedWalks {
    walks: u64,
    walked: u64,
    removed: u64,
    took: Duration,
}

/// The result of a slice of a walk.
#[derive(Clone, Copy, Debug)]
pub struct WalkSlice {
    /// Entries examined.
    pub walked: u64,
    /// How many of them are expired and therefore removed.
    pub removed: u64,
    /// The estimated number of entries left to examine; `None` if the walk has ended.
    pub remaining: Option<u64>,
}

/// A log line.
#[derive(Debug, PartialEq)]
enum Line {
    Walking { walked: u64, removed: u64, remaining: u64, per_second: Option<u64>, done_in_s: Option<u64> },
    Ended(EndedWalks),
}

impl Walks {
    /// Starts a walk from the first key. An unfinished walk is abandoned.
    pub fn begin(&mut self, now: Duration, remaining: u64) {
        self.walk = Some(Walk { pace: Pace::begin(now, remaining), removed: 0, is_logged: false });
    }

    /// Entries that the current walk has examined.
    pub fn walked(&self) -> u64 {
        self.walk.as_ref().map_or(0, |walk| walk.pace.done())
    }

    /// Records a slice of the walk, and logs the line that is due, if any.
    pub fn report(&mut self, now: Duration, slice: WalkSlice, task: &TopicPartition, metrics: &TaskMetrics) {
        let Some(walk) = &mut self.walk else { return };
        walk.removed += slice.removed;
        walk.pace.at(now, walk.pace.done() + slice.walked, slice.remaining.unwrap_or(0));
        metrics.walked(slice.walked, &walk.pace);
        match self.line(now, slice.remaining.is_none()) {
            None => {}
            Some(Line::Walking { walked, removed, remaining, per_second, done_in_s }) => tracing::info!(
                task = %task, walked, removed, remaining, entries_per_second = per_second, done_in_s,
                "still looking for expired entries"
            ),
            Some(Line::Ended(EndedWalks { walks, walked, removed, took })) => tracing::info!(
                task = %task, walks, walked, removed, took_ms = took.as_millis() as u64,
                "looked for expired entries"
            ),
        }
    }

    /// The line that is due, if any.
    fn line(&mut self, now: Duration, has_ended: bool) -> Option<Line> {
        let line = if has_ended { self.end(now) } else { self.under_way(now) };
        if line.is_some() {
            self.logged = Some(now);
        }
        line
    }

    /// The line about a long walk, which is reported like a restore.
    fn under_way(&mut self, now: Duration) -> Option<Line> {
        let walk = self.walk.as_mut()?;
        let began = now.saturating_sub(walk.pace.took());
        if now.saturating_sub(self.logged.unwrap_or(began).max(began)) < LOG_INTERVAL {
            return None;
        }
        walk.is_logged = true;
        Some(Line::Walking {
            walked: walk.pace.done(),
            removed: walk.removed,
            remaining: walk.pace.remaining(),
            per_second: walk.pace.per_second().map(|rate| rate as u64),
            done_in_s: walk.pace.left().map(|left| left.as_secs()),
        })
    }

    /// Ends the walk, and returns the line that is due. Walks that follow each other closely share a line: the
    /// retention may be short, or old records may be read fast.
    fn end(&mut self, now: Duration) -> Option<Line> {
        let walk = self.walk.take()?;
        self.ended.walks += 1;
        self.ended.walked += walk.pace.done();
        self.ended.removed += walk.removed;
        self.ended.took += walk.pace.took();
        let is_due = self.logged.is_none_or(|logged| now.saturating_sub(logged) >= LOG_INTERVAL);
        let is_due = self.ended.walked > 0 && (is_due || walk.is_logged);
        is_due.then(|| Line::Ended(std::mem::take(&mut self.ended)))
    }
}

/// A distance between offsets as a count. It is negative only if a topic was recreated under the reader.
fn count(offsets: i64) -> u64 {
    u64::try_from(offsets).unwrap_or(0)
}

#[cfg(test)]
mod tests;
