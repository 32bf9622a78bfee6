//! Reports other producers' transactions that hold up an input: nobody who reads committed records gets beyond the
//! first open one, whatever follows it. A transaction that neither its producer nor a timeout ends, as brokers before
//! Kafka 3.6 may leave behind, would hold up a task silently for good.
//!
//! Where no transaction is the reason, records that everybody may read do not arrive, as when brokers refuse each fetch:
//! the task is starved, and its instance not ready.
//!
//! The lanes note which offset their tasks are at while there is more to read ([`HeldUp::note`]); for those that have
//! been stuck for long, the watch checks whether a transaction is the reason.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::cluster::Cluster;
use crate::record::TopicPartition;

/// How long a task is stuck before the reason is looked up: as long as producers by default keep a transaction open.
const STUCK_MIN: Duration = Duration::from_secs(60);
/// A task that was not noted for this long no longer belongs to this process.
const NOTED_MAX: Duration = Duration::from_secs(10);
/// How often one task is looked up.
const LOOKUP_INTERVAL: Duration = Duration::from_secs(30);
/// How often one task is logged.
const LOG_INTERVAL: Duration = Duration::from_secs(600);
/// How long the lookup may take: the watch waits for it, and the end of the process for the watch. A leader that is
/// gone does not answer.
const LOOKUP_WAIT: Duration = Duration::from_secs(1);

/// The tasks that are stuck with more to read.
#[derive(Default)]
pub struct HeldUp(Mutex<BTreeMap<TopicPartition, Stuck>>);

#[derive(Clone, Copy, Debug)]
struct Stuck {
    next: i64,
    since: Duration,
    noted: Duration,
    looked_up: Option<Duration>,
    logged: Option<Duration>,
    /// Whether the last lookup found no transaction. It may have ended just then: the next lookup counts.
    is_suspected: bool,
    /// Whether no transaction is the reason.
    is_starved: bool,
}

impl HeldUp {
    fn all(&self) -> MutexGuard<'_, BTreeMap<TopicPartition, Stuck>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the offset at which a task waits for records that exist and do not arrive; `None` if it is not waiting.
    /// Whether it was found that no transaction is the reason.
    pub fn note(&self, partition: &TopicPartition, next: Option<i64>, now: Duration) -> bool {
        let mut all = self.all();
        let Some(next) = next else {
            all.remove(partition);
            return false;
        };
        match all.get_mut(partition).filter(|stuck| stuck.next == next) {
            Some(stuck) => {
                stuck.noted = now;
                stuck.is_starved
            }
            None => {
                let stuck = Stuck {
                    next,
                    since: now,
                    noted: now,
                    looked_up: None,
                    logged: None,
                    is_suspected: false,
                    is_starved: false,
                };
                all.insert(partition.clone(), stuck);
                false
            }
        }
    }

    /// The task to look up now, with its offset and since when it is stuck: of those that are due, the one whose last
    /// lookup is longest ago.
    fn due(&self, now: Duration) -> Option<(TopicPartition, Stuck)> {
        let mut all = self.all();
        all.retain(|_, stuck| now.saturating_sub(stuck.noted) < NOTED_MAX);
        let passed = |at: Option<Duration>, interval| at.is_none_or(|at| now.saturating_sub(at) >= interval);
        let is_due = |stuck: &Stuck| {
            now.saturating_sub(stuck.since) >= STUCK_MIN
                && passed(stuck.looked_up, LOOKUP_INTERVAL)
                && passed(stuck.logged, LOG_INTERVAL)
        };
        let due = all.iter_mut().filter(|(_, stuck)| is_due(stuck));
        let (partition, stuck) = due.min_by_key(|(_, stuck)| stuck.looked_up)?;
        stuck.looked_up = Some(now);
        Some((partition.clone(), *stuck))
    }

    /// A lookup has found no transaction. Whether the one before it had not, either.
    fn suspect(&self, partition: &TopicPartition) -> bool {
        let mut all = self.all();
        all.get_mut(partition).is_some_and(|stuck| std::mem::replace(&mut stuck.is_suspected, true))
    }

    fn logged(&self, partition: &TopicPartition, now: Duration, is_starved: bool) {
        if let Some(stuck) = self.all().get_mut(partition) {
            (stuck.logged, stuck.is_starved, stuck.is_suspected) = (Some(now), is_starved, is_starved);
        }
    }
}

/// Looks up one task that is stuck, and logs it if a transaction is the reason.
pub fn check<C: Cluster>(cluster: &C, held_up: &HeldUp, now: Duration) {
    let Some((partition, stuck)) = held_up.due(now) else { return };
    match cluster.open_transaction(&partition, LOOKUP_WAIT) {
        Ok(Some(open)) if open <= stuck.next => {
            held_up.logged(&partition, now, false);
            log(&partition, open, now.saturating_sub(stuck.since));
        }
        // Only brokers that others use can refuse to hand records out.
        Ok(_) if C::IS_SHARED && held_up.suspect(&partition) => {
            held_up.logged(&partition, now, true);
            tracing::warn!(
                task = %partition,
                offset = stuck.next,
                stood_s = now.saturating_sub(stuck.since).as_secs(),
                "the task waits: the input goes on and no open transaction is in front, but nothing arrives; look for errors of \
                 Fetch in the brokers' logs"
            );
        }
        Ok(_) => tracing::debug!(task = %partition, "it is stuck, but behind no transaction"),
        Err(error) => tracing::debug!(task = %partition, reason = %error.message, "could not look up why it is stuck"),
    }
}

fn log(partition: &TopicPartition, offset: i64, stood: Duration) {
    tracing::warn!(
        task = %partition,
        offset,
        stood_s = stood.as_secs(),
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

    fn due(held_up: &HeldUp, at: u32) -> usize {
        usize::from(held_up.due(SECOND * at).is_some())
    }

    #[test]
    fn stuck_task_is_looked_up_at_intervals() {
        let (held_up, partition) = (HeldUp::default(), TopicPartition::new("in", 0));
        let mut looked_up = Vec::new();
        for at in 0..130 {
            held_up.note(&partition, Some(7), SECOND * at);
            if due(&held_up, at) > 0 {
                looked_up.push(at);
            }
        }
        assert_eq!(looked_up, [60, 90, 120]);
        held_up.logged(&partition, SECOND * 130, false);
        for at in 130..=740 {
            held_up.note(&partition, Some(7), SECOND * at);
            assert_eq!(due(&held_up, at), usize::from(at == 730), "at {at}");
        }
    }

    #[test]
    fn task_is_starved_until_it_moves() {
        let (held_up, partition) = (HeldUp::default(), TopicPartition::new("in", 0));
        assert!(!held_up.note(&partition, Some(7), SECOND));
        held_up.logged(&partition, SECOND, true);
        assert!(held_up.note(&partition, Some(7), SECOND * 2));
        assert!(!held_up.note(&partition, Some(8), SECOND * 3));
        held_up.logged(&partition, SECOND * 3, true);
        assert!(!held_up.note(&partition, None, SECOND * 4) && !held_up.note(&partition, Some(8), SECOND * 5));
    }

    /// A transaction may have ended just before one lookup.
    #[test]
    fn task_is_starved_only_if_two_lookups_find_no_transaction() {
        let (held_up, partition) = (HeldUp::default(), TopicPartition::new("in", 0));
        held_up.note(&partition, Some(7), SECOND);
        assert_eq!([(); 2].map(|()| held_up.suspect(&partition)), [false, true]);
        held_up.logged(&partition, SECOND, false);
        assert!(!held_up.suspect(&partition), "a transaction was found in between");
        held_up.note(&partition, Some(8), SECOND);
        assert!(!held_up.suspect(&partition), "it has moved");
    }

    #[test]
    fn task_that_moves_leaves_or_drains_is_not_looked_up() {
        let held_up = HeldUp::default();
        let [moves, goes, reads] = [0, 1, 2].map(|partition| TopicPartition::new("in", partition));
        for at in 0..100 {
            held_up.note(&moves, Some(i64::from(at / 30)), SECOND * at);
            if at < 50 {
                held_up.note(&goes, Some(7), SECOND * at);
            }
            held_up.note(&reads, (at != 59).then_some(7), SECOND * at);
            assert_eq!(due(&held_up, at), 0, "at {at}");
        }
        assert_eq!(held_up.all().len(), 2, "nothing stays of what has gone");
    }

    #[test]
    fn stuck_tasks_are_looked_up_one_at_a_time_in_turn() {
        let held_up = HeldUp::default();
        let all: Vec<_> = (0..40).map(|partition| TopicPartition::new("in", partition)).collect();
        let mut looked_up = Vec::new();
        for at in (0..220).step_by(2) {
            for partition in &all {
                held_up.note(partition, Some(7), SECOND * at);
            }
            looked_up.extend(held_up.due(SECOND * at).map(|(partition, _)| partition));
        }
        // More than can be looked up before the first is due again: none is left out because of that.
        assert_eq!(looked_up, [&all[..], &all[..]].concat());
    }
}
