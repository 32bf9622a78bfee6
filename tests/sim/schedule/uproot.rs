//! What people do to the input, and to where the group reads it on. What has to come of each stands at [`Upheaval`].

use crate::kafka::{Broker, Committed, Partition};
use crate::profile::Upheaval;
use crate::{input, judge};

use super::Run;

/// Where a group stands that nobody is a member of; `None` where nothing was committed, or something still may be.
fn committed(broker: &Broker, partition: &Partition) -> Option<Committed> {
    broker.groups.committed(input::GROUP, partition, true).ok().flatten()
}

impl Run<'_> {
    /// Removes records of the input that were read: of each partition up to what the group has committed.
    pub(super) fn trim(&mut self) {
        let mut state = self.world.lock();
        let state = &mut *state;
        for number in 0..self.profile.partitions {
            let partition = Partition::new(input::INPUT, number);
            // Not the stable one: what is pending is above it, or is aborted.
            let Ok(Some(read)) = state.broker.groups.committed(input::GROUP, &partition, false) else { continue };
            let upto = state.random.below(read.offset as u64 + 1) as i64;
            if self.ledger.remove(&mut state.broker, number, upto) > 0 {
                state.reach("the input lost records that were read");
            }
        }
    }

    pub(super) fn uproot(&mut self, upheaval: Upheaval) {
        let reached = match upheaval {
            Upheaval::GroupLatest => self.skip_to_the_end(),
            Upheaval::InputLost => self.lose_unread(),
            Upheaval::InputRecreated => self.recreate(),
            Upheaval::InputGrown => {
                let more = self.profile.partitions + 2;
                let mut state = self.world.lock();
                // Before anybody has begun it is as if it had had them all from the beginning.
                state.broker.topics.get(input::CHANGELOG).is_some().then(|| {
                    state.broker.topics.add_partitions(input::INPUT, more).expect("the input stays");
                    self.ledger.grow();
                    "the input was given more partitions"
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
            let Some(stood) = committed(&state.broker, &partition) else { continue };
            let end = state.broker.topics.log(&partition).map_or(0, |log| log.end());
            let latest = [(partition, Committed { offset: end, metadata: String::new() })];
            if state.broker.commit_offsets(&input::GROUP.into(), ("", -1), &latest).is_ok() {
                skipped += end - stood.offset;
                self.ledger.skip(number, stood.offset..end);
                // What is read from there on is a range of its own.
                let has_read = !stood.metadata.is_empty() && stood.offset > 0;
                if self.history.bounds.ranges_max == 1 && has_read && end > stood.offset {
                    self.history.lose(number);
                }
            }
        }
        (skipped > 0).then_some("the group was set to the input's end, and skipped records")
    }

    fn lose_unread(&mut self) -> Option<&'static str> {
        let mut state = self.world.lock();
        let state = &mut *state;
        let mut lost = false;
        for number in 0..self.profile.partitions {
            let partition = Partition::new(input::INPUT, number);
            // Where nothing was ever read, reading begins with what there is.
            let Some(stood) = committed(&state.broker, &partition) else { continue };
            let end = state.broker.topics.log(&partition).map_or(0, |log| log.end());
            let upto = state.random.below(end as u64 + 1) as i64;
            self.ledger.remove(&mut state.broker, number, upto);
            if upto > stood.offset {
                lost = true;
                self.history.lose(number);
            }
        }
        lost.then_some("the input lost records that were not read")
    }

    /// Not while a transaction is still being ended: what stands then is not all that has come out.
    fn recreate(&mut self) -> Option<&'static str> {
        let mut state = self.world.lock();
        let state = &mut *state;
        let partitions = self.profile.partitions;
        if state.broker.coordinator.is_busy() {
            return None;
        }
        let settings = state.broker.topics.get(input::INPUT)?.settings;
        // Partitions of which nothing was ever processed are read from the new topic's beginning.
        let of = |number: &i32| {
            committed(&state.broker, &Partition::new(input::INPUT, *number))
                .is_some_and(|found| !found.metadata.is_empty())
        };
        let processed: Vec<i32> = (0..partitions).filter(of).collect();
        processed.iter().for_each(|number| self.history.lose(*number));
        let stood = self.ledger.judge(&mut state.broker, |broker| judge::examine(broker, &mut self.history));
        self.ledger.close(&state.broker, &processed, stood);
        state.broker.delete_topic(input::INPUT).expect("it is there");
        state.broker.topics.create(input::INPUT, partitions, settings).expect("it is gone");
        Some("the input was recreated")
    }
}
