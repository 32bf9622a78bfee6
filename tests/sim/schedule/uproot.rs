//! What people do to the input, and to the offset where the group continues. The required outcomes are at
//! [`Upheaval`].

use crate::judge::coverage;
use crate::kafka::{Broker, Committed, Partition};
use crate::profile::Upheaval;
use crate::{input, judge};

use super::Run;

/// The offset of a group without members; `None` if nothing was committed, or something still may be.
fn committed(broker: &Broker, partition: &Partition) -> Option<Committed> {
    broker.groups.committed(input::GROUP, partition, true).ok().flatten()
}

impl Run<'_> {
    /// Removes input records that were read: from each partition, up to what the group has committed.
    pub(super) fn trim(&mut self) {
        let mut state = self.world.lock();
        let state = &mut *state;
        for number in 0..self.profile.partitions {
            let partition = Partition::new(input::INPUT, number);
            // The plain fetch: a pending offset is higher, or will be aborted.
            let Ok(Some(read)) = state.broker.groups.committed(input::GROUP, &partition, false) else { continue };
            let upto = state.random.below(read.offset as u64 + 1) as i64;
            if self.ledger.remove(&mut state.broker, number, upto) > 0 {
                state.reach("the input lost records that had been read");
            }
        }
    }

    /// Compacts a partition of the input up to its last records, whether the others were read or not.
    pub(super) fn vanish(&mut self, number: i32, rest: u64) {
        let mut state = self.world.lock();
        let now = state.now();
        let gone = self.ledger.compact(&mut state.broker, number, (rest, now));
        if !gone.is_empty() {
            state.reach(coverage::VANISHED);
        }
        self.history.miss(number, gone);
    }

    pub(super) fn uproot(&mut self, upheaval: Upheaval) {
        let reached = match upheaval {
            Upheaval::GroupLatest => self.skip_to_the_end(),
            Upheaval::InputLost => self.lose_unread(),
            Upheaval::InputRecreated => self.recreate(),
            Upheaval::InputGrown => {
                let more = self.profile.partitions + 2;
                let mut state = self.world.lock();
                // Before anybody has started, the input might as well have had them from the beginning.
                state.broker.topics.get(input::CHANGELOG).is_some().then(|| {
                    state.broker.topics.add_partitions(input::INPUT, more).expect("the input stays");
                    self.ledger.grow();
                    "partitions were added to the input"
                })
            }
            other => unreachable!("{other:?} does nothing to the input"),
        };
        if let Some(situation) = reached {
            self.world.lock().reach(situation);
        }
    }

    fn skip_to_the_end(&mut self) -> Option<&'static str> {
        let mut state = self.world.lock();
        let mut skipped = 0;
        for number in 0..self.profile.partitions {
            let partition = Partition::new(input::INPUT, number);
            let Some(current) = committed(&state.broker, &partition) else { continue };
            let end = state.broker.topics.log(&partition).map_or(0, |log| log.end());
            let latest = [(partition, Committed { offset: end, metadata: String::new() })];
            if state.broker.commit_offsets(&input::GROUP.into(), ("", -1), &latest).is_ok() {
                skipped += end - current.offset;
                match self.profile.input.calls() {
                    None => self.ledger.skip(number, current.offset..end),
                    // Some of them may have been called.
                    Some(_) => self.history.miss(number, current.offset..end),
                }
                // What is read from there on is a separate range.
                let has_read = !current.metadata.is_empty() && current.offset > 0;
                if self.history.bounds.ranges_max == 1 && has_read && end > current.offset {
                    self.history.lose(number);
                }
            }
        }
        (skipped > 0).then_some("the group was set to the end of the input, skipping records")
    }

    fn lose_unread(&mut self) -> Option<&'static str> {
        let mut state = self.world.lock();
        let state = &mut *state;
        let mut lost = false;
        for number in 0..self.profile.partitions {
            let partition = Partition::new(input::INPUT, number);
            // If nothing was ever read, reading starts with what there is.
            let Some(current) = committed(&state.broker, &partition) else { continue };
            let end = state.broker.topics.log(&partition).map_or(0, |log| log.end());
            let upto = state.random.below(end as u64 + 1) as i64;
            self.ledger.remove(&mut state.broker, number, upto);
            if upto > current.offset {
                lost = true;
                self.history.lose(number);
            }
        }
        lost.then_some("the input lost unread records")
    }

    /// Does nothing while a transaction is open or ending: the output would not be complete.
    fn recreate(&mut self) -> Option<&'static str> {
        let mut state = self.world.lock();
        let state = &mut *state;
        let partitions = self.profile.partitions;
        if state.broker.coordinator.is_busy() {
            return None;
        }
        let settings = state.broker.topics.get(input::INPUT)?.settings;
        // Partitions from which nothing was ever processed are read from the start of the new topic.
        let of = |number: &i32| {
            committed(&state.broker, &Partition::new(input::INPUT, *number))
                .is_some_and(|found| !found.metadata.is_empty())
        };
        let processed: Vec<i32> = (0..partitions).filter(of).collect();
        processed.iter().for_each(|number| self.history.lose(*number));
        if self.profile.input.calls().is_some() {
            // Nobody says any more how what was called and is not settled has ended.
            for number in 0..partitions {
                let partition = Partition::new(input::INPUT, number);
                let settled = committed(&state.broker, &partition).map_or(0, |found| found.offset);
                let end = state.broker.topics.log(&partition).map_or(0, |log| log.end());
                self.history.miss(number, settled..end);
            }
            let now = state.broker.now;
            state.provider.advance(now);
            let called = self.called(state);
            self.history.calls(called);
            self.ledger.note_acts(state.provider.acts());
        }
        let ruling = self.ledger.judge(&mut state.broker, |broker| judge::examine(broker, &mut self.history));
        self.ledger.close(&state.broker, &processed, ruling);
        state.broker.delete_topic(input::INPUT).expect("it exists");
        state.broker.topics.create(input::INPUT, partitions, settings).expect("it was deleted");
        Some("the input was recreated")
    }
}
