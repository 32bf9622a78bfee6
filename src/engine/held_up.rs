//! Reports other producers' transactions that hold up an input: a reader of committed records cannot read beyond the
//! first open transaction. A transaction that neither its producer nor a timeout ends, as brokers before Kafka 3.6 may
//! leave behind, would hold up a task silently for ever.
//!
//! If no transaction is the reason, readable records do not arrive, for example because brokers refuse each fetch. Then
//! the task is starved, and its instance is not ready.
//!
//! The lanes record the offsets of their tasks while there is more to read ([`HeldUp::record`]). For tasks that have
//! been stuck for a long time, the watch checks whether a transaction is the reason.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::cluster::Cluster;
use crate::record::TopicPartition;

/// How long a task is stuck before the reason is looked up: the default timeout of producers' transactions.
const STUCK_MIN: Duration = Duration::from_secs(60);
/// A task that was not recorded for this long no longer belongs to this process.
const FORGET_AFTER: Duration = Duration::from_secs(10);
/// The least interval between two lookups of one task.
const LOOKUP_INTERVAL: Duration = Duration::from_secs(30);
/// The least interval between two log lines about one task.
const LOG_INTERVAL: Duration = Duration::from_secs(600);
/// How long a lookup may take: the watch waits for it, and the end of the process waits for the watch. A leader that is
/// down does not respond.
const LOOKUP_WAIT: Duration = Duration::from_secs(1);

/// The tasks that are stuck although there is more to read.
#[derive(Default)]
pub struct HeldUp(Mutex<BTreeMap<TopicPartition, Stuck>>);

/// A stuck task. All times are on the monotonic clock.
#[derive(Clone, Copy, Debug)]
struct Stuck {
    next: i64,
    since: Duration,
    recorded_at: Duration,
    looked_up_at: Option<Duration>,
    logged_at: Option<Duration>,
    /// Whether the last lookup found no transaction. The transaction may just have ended, so the next lookup decides.
    is_suspected: bool,
    /// Whether it was found that no transaction is the reason.
    is_starved: bool,
}

impl HeldUp {
    fn stuck_tasks(&self) -> MutexGuard<'_, BTreeMap<TopicPartition, Stuck>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the offset at which a task waits for records that exist but do not arrive; `None` if it is not waiting.
    /// Returns whether the task is starved.
    pub fn record(&self, partition: &TopicPartition, next: Option<i64>, now: Duration) -> bool {
        let mut stuck_tasks = self.stuck_tasks();
        let Some(next) = next else {
            stuck_tasks.remove(partition);
            return false;
        };
        match stuck_tasks.get_mut(partition).filter(|stuck| stuck.next == next) {
            Some(stuck) => {
                stuck.recorded_at = now;
                stuck.is_starved
            }
            None => {
                let stuck = Stuck {
                    next,
                    since: now,
                    recorded_at: now,
                    looked_up_at: None,
                    logged_at: None,
                    is_suspected: false,
                    is_starved: false,
                };
                stuck_tasks.insert(partition.clone(), stuck);
                false
            }
        }
    }

    /// Whether the task is recorded as waiting for records that exist.
    #[cfg(test)]
    pub fn is_recorded(&self, partition: &TopicPartition) -> bool {
        self.stuck_tasks().contains_key(partition)
    }

    /// The stuck task to look up now: of the tasks that are due, the one whose last lookup is longest ago.
    fn next_due(&self, now: Duration) -> Option<(TopicPartition, Stuck)> {
        let mut stuck_tasks = self.stuck_tasks();
        stuck_tasks.retain(|_, stuck| now.saturating_sub(stuck.recorded_at) < FORGET_AFTER);
        let has_passed = |at: Option<Duration>, interval| at.is_none_or(|at| now.saturating_sub(at) >= interval);
        let is_due = |stuck: &Stuck| {
            now.saturating_sub(stuck.since) >= STUCK_MIN
                && has_passed(stuck.looked_up_at, LOOKUP_INTERVAL)
                && has_passed(stuck.logged_at, LOG_INTERVAL)
        };
        let due = stuck_tasks.iter_mut().filter(|(_, stuck)| is_due(stuck));
        let (partition, stuck) = due.min_by_key(|(_, stuck)| stuck.looked_up_at)?;
        stuck.looked_up_at = Some(now);
        Some((partition.clone(), *stuck))
    }

    /// Records that a lookup has found no transaction. Returns whether the previous lookup had found no
    /// transaction, either.
    fn suspect(&self, partition: &TopicPartition) -> bool {
        let mut stuck_tasks = self.stuck_tasks();
        stuck_tasks.get_mut(partition).is_some_and(|stuck| std::mem::replace(&mut stuck.is_suspected, true))
    }

    fn mark_logged(&self, partition: &TopicPartition, now: Duration, is_starved: bool) {
        if let Some(stuck) = self.stuck_tasks().get_mut(partition) {
            (stuck.logged_at, stuck.is_starved, stuck.is_suspected) = (Some(now), is_starved, is_starved);
        }
    }
}

/// Looks up one stuck task. Logs the open transaction that holds it up or, if two lookups find no such transaction, that
/// no records arrive.
pub fn check<C: Cluster>(cluster: &C, held_up: &HeldUp, now: Duration) {
    let Some((partition, stuck)) = held_up.next_due(now) else { return };
    match cluster.open_transaction(&partition, LOOKUP_WAIT) {
        Ok(Some(open)) if open <= stuck.next => {
            held_up.mark_logged(&partition, now, false);
            log(&partition, open, now.saturating_sub(stuck.since));
        }
        // Only brokers in other processes can withhold records.
        Ok(_) if C::IS_SHARED && held_up.suspect(&partition) => {
            held_up.mark_logged(&partition, now, true);
            tracing::warn!(
                task = %partition,
                offset = stuck.next,
                stood_s = now.saturating_sub(stuck.since).as_secs(),
                "the task waits: the input continues and no open transaction precedes it, but no records arrive; look \
                 for errors of Fetch in the brokers' logs"
            );
        }
        Ok(_) => tracing::debug!(task = %partition, "the task is stuck, but not behind a transaction"),
        Err(error) => {
            tracing::debug!(task = %partition, reason = %error.message, "could not look up why the task is stuck")
        }
    }
}

fn log(partition: &TopicPartition, offset: i64, stuck_for: Duration) {
    tracing::warn!(
        task = %partition,
        offset,
        stood_s = stuck_for.as_secs(),
        "the task waits: a transaction of a producer of the input has been open there for a long time. It ends by its producer's \
         transaction.timeout.ms, 15 min at most unless brokers allow more; one that hangs for good is found by \
         kafka-transactions.sh find-hanging --topic {} --partition {}, and ended by its abort",
        partition.topic,
        partition.partition
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// The number of tasks, at most one, that are looked up now.
    fn lookups(held_up: &HeldUp, at: u32) -> usize {
        usize::from(held_up.next_due(SECOND * at).is_some())
    }

    #[test]
    fn stuck_task_is_looked_up_at_intervals() {
        let (held_up, partition) = (HeldUp::default(), TopicPartition::new("in", 0));
        let mut looked_up_at = Vec::new();
        for at in 0..130 {
            held_up.record(&partition, Some(7), SECOND * at);
            if lookups(&held_up, at) > 0 {
                looked_up_at.push(at);
            }
        }
        assert_eq!(looked_up_at, [60, 90, 120]);
        held_up.mark_logged(&partition, SECOND * 130, false);
        for at in 130..=740 {
            held_up.record(&partition, Some(7), SECOND * at);
            assert_eq!(lookups(&held_up, at), usize::from(at == 730), "at {at}");
        }
    }

    #[test]
    fn task_is_starved_until_it_moves() {
        let (held_up, partition) = (HeldUp::default(), TopicPartition::new("in", 0));
        assert!(!held_up.record(&partition, Some(7), SECOND));
        held_up.mark_logged(&partition, SECOND, true);
        assert!(held_up.record(&partition, Some(7), SECOND * 2));
        assert!(!held_up.record(&partition, Some(8), SECOND * 3));
        held_up.mark_logged(&partition, SECOND * 3, true);
        assert!(!held_up.record(&partition, None, SECOND * 4) && !held_up.record(&partition, Some(8), SECOND * 5));
    }

    /// A transaction may have ended just before a lookup.
    #[test]
    fn task_is_starved_only_if_two_lookups_find_no_transaction() {
        let (held_up, partition) = (HeldUp::default(), TopicPartition::new("in", 0));
        held_up.record(&partition, Some(7), SECOND);
        assert_eq!([(); 2].map(|()| held_up.suspect(&partition)), [false, true]);
        held_up.mark_logged(&partition, SECOND, false);
        assert!(!held_up.suspect(&partition), "a transaction was found in between");
        held_up.record(&partition, Some(8), SECOND);
        assert!(!held_up.suspect(&partition), "the task has moved");
    }

    #[test]
    fn task_that_moves_leaves_or_drains_is_not_looked_up() {
        let held_up = HeldUp::default();
        let [moves, goes, reads] = [0, 1, 2].map(|partition| TopicPartition::new("in", partition));
        for at in 0..100 {
            held_up.record(&moves, Some(i64::from(at / 30)), SECOND * at);
            if at < 50 {
                held_up.record(&goes, Some(7), SECOND * at);
            }
            held_up.record(&reads, (at != 59).then_some(7), SECOND * at);
            assert_eq!(lookups(&held_up, at), 0, "at {at}");
        }
        assert_eq!(held_up.stuck_tasks().len(), 2, "a task that has left is forgotten");
    }

    #[test]
    fn stuck_tasks_are_looked_up_one_at_a_time_in_turn() {
        let held_up = HeldUp::default();
        let stuck_tasks: Vec<_> = (0..40).map(|partition| TopicPartition::new("in", partition)).collect();
        let mut looked_up = Vec::new();
        for at in (0..220).step_by(2) {
            for partition in &stuck_tasks {
                held_up.record(partition, Some(7), SECOND * at);
            }
            looked_up.extend(held_up.next_due(SECOND * at).map(|(partition, _)| partition));
        }
        // There are more tasks than can be looked up before the first is due again, but no task is skipped.
        assert_eq!(looked_up, [&stuck_tasks[..], &stuck_tasks[..]].concat());
    }
}
