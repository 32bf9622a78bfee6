//! What the schedule does for the judge: looks on the way, and the end.

use ratchet::state::simulated::StoreCopy;

use crate::input;
use crate::instance::Instance;
use crate::judge::{self, Ruling, coverage, heard};
use crate::kafka::Partition;
use crate::stores::Stores;

use super::{Choices, Outcome, Run};

/// In so many of a thousand seeds all stores are wiped once all is read, and have to be restored.
const WIPES: u64 = 250;
/// More markers than are ever to be written at once.
const MARKERS_MAX: usize = 10_000;

impl Run<'_> {
    /// Looks at what is new; says whether everything was read.
    pub(super) fn look(&mut self) -> bool {
        let state = self.world.lock();
        self.history.look(&state.broker);
        judge::is_drained(&state.broker, &self.history)
    }

    /// Wipes all stores, in some seeds, once: what is restored then is judged in the end. A record more for each
    /// partition shows that it was. `false`: not in this seed, or not again.
    pub(super) fn wipe(&mut self) -> bool {
        let are_simulated = self.stores.iter().all(|stores| matches!(stores, Stores::Simulated(_)));
        if self.wiped || self.history.had_loss() || !are_simulated || !self.world.lock().random.permille(WIPES) {
            return false;
        }
        self.wiped = true;
        for who in 0..self.instances.len() {
            self.kill(who);
            if let Stores::Simulated(disk) = &self.stores[who] {
                disk.folders().iter().for_each(|folder| disk.put_back(folder, StoreCopy::default()));
            }
        }
        for who in 0..self.instances.len() {
            self.instances[who] = Some(Instance::start(&self.world, self.plan, &self.stores[who]));
        }
        self.world.lock().reach(coverage::WIPED);
        self.feed_all();
        true
    }

    /// A record more for each partition.
    pub(super) fn feed_all(&mut self) {
        let mut state = self.world.lock();
        let now = state.now();
        for number in 0..self.profile.partitions {
            let sent = self.sent[number as usize];
            let record = input::record(self.profile.input, &mut self.feeding, number, sent, now);
            let log = state.broker.topics.log_mut(&Partition::new(input::INPUT, number));
            log.expect("the input stays").append([record]);
        }
    }

    /// The judge's word on what stands in the cluster.
    pub(super) fn judge(&mut self) -> Ruling {
        let mut state = self.world.lock();
        let state = &mut *state;
        let heard = heard::take();
        self.history.refused(heard.refused);
        heard.seen.into_iter().for_each(|(situation, times)| *state.reached.entry(situation).or_default() += times);
        let late = judge::liveness(&state.broker, &self.history);
        // Where the time is over: what is decided becomes visible everywhere.
        for _ in 0..MARKERS_MAX {
            let Some(marker) = state.broker.markers().into_iter().next() else { break };
            state.broker.write_marker(&marker);
        }
        let mut ruling = self.ledger.judge(&mut state.broker, |broker| judge::examine(broker, &mut self.history));
        ruling.violations.extend(late);
        ruling
    }

    /// What the seed has come to: all are taken down, and what their stores hold is judged too.
    pub(super) fn conclude(mut self, mut ruling: Ruling) -> Outcome {
        let (trace, took, mut reached, choices) = {
            let mut state = self.world.lock();
            state.resolve_unknown();
            let choices = Choices {
                misfortunes: self.misfortunes,
                wire: std::mem::take(&mut state.troubles),
                instances: self.profile.instances as u64,
                records: self.profile.records,
            };
            (state.trace(), state.now(), std::mem::take(&mut state.reached), choices)
        };
        self.end();
        judge::stores::judge(std::mem::take(&mut self.held), &self.history, &mut ruling);
        let wrong = ruling.told();
        ruling.seen.into_iter().for_each(|(situation, times)| *reached.entry(situation).or_default() += times);
        Outcome { wrong, trace, took, reached, choices }
    }
}
