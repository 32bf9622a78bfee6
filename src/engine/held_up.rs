//! Tells of transactions of others that hold up an input: nobody who reads committed records gets beyond the first one that
//! is open, whatever is written behind it. One that its producer neither ends nor times out, as brokers before Kafka 3.6
//! may leave behind, would hold a task up in silence, for good.
//!
//! The lanes note where their tasks stand with more to be read ahead of them ([`HeldUp::note`]); the watch asks of those
//! that have stood for long whether it is a transaction that they stand before.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::cluster::Cluster;
use crate::record::TopicPartition;

use super::context::Context;

/// How long a task stands before it is asked why: as long as producers let a transaction be open by default.
const STANDS_MIN: Duration = Duration::from_secs(60);
/// What was not noted for so long is no task's of this process any more.
const NOTED_MAX: Duration = Duration::from_secs(10);
/// How often it is asked about one task.
const ASK_INTERVAL: Duration = Duration::from_secs(30);
/// How often it is told of one task.
const TELL_INTERVAL: Duration = Duration::from_secs(600);
/// How long an answer may take: the watch waits for it, and the end of the process for the watch. A leader that is gone
/// gives none.
const PATIENCE: Duration = Duration::from_secs(1);

/// The tasks that stand with more to be read ahead of them.
#[derive(Default)]
pub struct HeldUp(Mutex<BTreeMap<TopicPartition, Stands>>);

#[derive(Clone, Copy, Debug)]
struct Stands {
    next: i64,
    since: Duration,
    noted: Duration,
    asked: Option<Duration>,
    told: Option<Duration>,
}

impl HeldUp {
    fn all(&self) -> MutexGuard<'_, BTreeMap<TopicPartition, Stands>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the offset at which a task waits for what is there and does not come; `None` for one that does not wait.
    pub fn note(&self, partition: &TopicPartition, next: Option<i64>, now: Duration) {
        let mut all = self.all();
        let Some(next) = next else {
            all.remove(partition);
            return;
        };
        match all.get_mut(partition).filter(|stands| stands.next == next) {
            Some(stands) => stands.noted = now,
            None => {
                let stands = Stands { next, since: now, noted: now, asked: None, told: None };
                all.insert(partition.clone(), stands);
            }
        }
    }

    /// The task to be asked about now, and where it stands since when: of those that are due, the one that was not asked
    /// about for longest.
    fn due(&self, now: Duration) -> Option<(TopicPartition, Stands)> {
        let mut all = self.all();
        all.retain(|_, stands| now.saturating_sub(stands.noted) < NOTED_MAX);
        let passed = |at: Option<Duration>, interval| at.is_none_or(|at| now.saturating_sub(at) >= interval);
        let is_due = |stands: &Stands| {
            now.saturating_sub(stands.since) >= STANDS_MIN
                && passed(stands.asked, ASK_INTERVAL)
                && passed(stands.told, TELL_INTERVAL)
        };
        let due = all.iter_mut().filter(|(_, stands)| is_due(stands));
        let (partition, stands) = due.min_by_key(|(_, stands)| stands.asked)?;
        stands.asked = Some(now);
        Some((partition.clone(), *stands))
    }

    fn told(&self, partition: &TopicPartition, now: Duration) {
        if let Some(stands) = self.all().get_mut(partition) {
            stands.told = Some(now);
        }
    }
}

/// Asks about one task that has stood for long, and tells of it where it stands before a transaction.
pub fn look<C: Cluster>(cluster: &C, context: &Context) {
    let now = context.clock.monotonic();
    let Some((partition, stands)) = context.held_up.due(now) else { return };
    match cluster.open_transaction(&partition, PATIENCE) {
        Ok(Some(open)) if open <= stands.next => {
            context.held_up.told(&partition, now);
            tell(&partition, open, now.saturating_sub(stands.since));
        }
        Ok(_) => tracing::debug!(task = %partition, "it stands, and before no transaction"),
        Err(error) => tracing::debug!(task = %partition, reason = %error.message, "not asked why it stands"),
    }
}

fn tell(partition: &TopicPartition, offset: i64, stood: Duration) {
    tracing::warn!(
        task = %partition,
        offset,
        stood_s = stood.as_secs(),
        "the task waits: a transaction of a producer of the input has been open there for long. It ends by its producer's \
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
    fn who_stands_for_long_is_asked_about_now_and_then() {
        let (held_up, partition) = (HeldUp::default(), TopicPartition::new("in", 0));
        let mut asked = Vec::new();
        for at in 0..130 {
            held_up.note(&partition, Some(7), SECOND * at);
            if due(&held_up, at) > 0 {
                asked.push(at);
            }
        }
        assert_eq!(asked, [60, 90, 120]);
        held_up.told(&partition, SECOND * 130);
        for at in 130..=740 {
            held_up.note(&partition, Some(7), SECOND * at);
            assert_eq!(due(&held_up, at), usize::from(at == 730), "at {at}");
        }
    }

    #[test]
    fn who_moves_or_goes_or_has_read_all_is_not_asked_about() {
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
    fn one_is_asked_about_at_a_time_and_all_in_turn() {
        let held_up = HeldUp::default();
        let all: Vec<_> = (0..40).map(|partition| TopicPartition::new("in", partition)).collect();
        let mut asked = Vec::new();
        for at in (0..220).step_by(2) {
            all.iter().for_each(|partition| held_up.note(partition, Some(7), SECOND * at));
            asked.extend(held_up.due(SECOND * at).map(|(partition, _)| partition));
        }
        // More than can be asked about in the time after which one is due again: nobody is left out for that.
        assert_eq!(asked, [&all[..], &all[..]].concat());
    }
}
