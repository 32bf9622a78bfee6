//! The schedule's part of judging: checks on the way, and at the end.

use std::sync::atomic::Ordering;

use crate::disk::StoreCopy;

use crate::input;
use crate::instance::Instance;
use crate::judge::{self, Called, Ruling, Sunk, coverage, heard};
use crate::kafka::{Partition, SECOND, Time};
use crate::profile::Release;
use crate::stores::Stores;
use crate::world::State;

use super::{Choices, Outcome, RECOVERY, Run, TROUBLE};

/// In how many of a thousand seeds all stores are wiped after everything is read, and must be restored.
const WIPES: u64 = 250;
/// How long nothing is written between the first wipe and the second: longer than a restore takes.
const REST: Time = 15 * SECOND;
/// More markers than ever have to be written at once.
const MARKERS_MAX: usize = 10_000;

impl Run<'_> {
    /// Records what is new; returns whether everything was read.
    pub(super) fn look(&mut self) -> bool {
        let state = self.world.lock();
        self.history.look(&state.broker);
        judge::is_drained(&state.broker, &self.history)
    }

    /// Wipes all stores, twice, in some seeds. Nothing is written after the first wipe, so the restored stores are
    /// taken down as they are and judged at the end; after the second, one more record for each partition shows that
    /// it was restored. `false`: not in this seed, or not again.
    pub(super) fn wipe(&mut self) -> bool {
        let now = self.world.lock().now();
        match self.ledger.wiped_at {
            Some(at) if now < at + REST => true,
            Some(_) => {
                self.ledger.wiped_at = None;
                self.wipe_all();
                self.world.lock().reach(coverage::WIPED);
                self.feed_all();
                true
            }
            None if self.is_to_wipe(now) => {
                self.wiped = true;
                self.ledger.wiped_at = Some(now);
                self.wipe_all();
                true
            }
            None => false,
        }
    }

    /// Whether to start wiping: there must be time for two restores, and an instance to do them.
    fn is_to_wipe(&self, now: Time) -> bool {
        let are_simulated = self.stores.iter().all(|stores| matches!(stores, Stores::Simulated(_)));
        let can_restore =
            are_simulated && !self.history.had_loss() && !self.profile.goes_back && !self.at_work().is_empty();
        let is_time = !self.wiped && now < TROUBLE + RECOVERY / 2;
        can_restore && is_time && self.world.lock().random.permille(WIPES)
    }

    /// The instances that are running and were not asked to leave.
    fn at_work(&self) -> Vec<usize> {
        let stays = |instance: &Instance| !instance.stop.load(Ordering::Relaxed);
        (0..self.instances.len()).filter(|who| self.instances[*who].as_ref().is_some_and(stays)).collect()
    }

    /// Kills all instances, wipes all stores, and restarts the instances that were running.
    fn wipe_all(&mut self) {
        let at_work = self.at_work();
        for who in 0..self.instances.len() {
            self.kill(who);
            if let Stores::Simulated(disk) = &self.stores[who] {
                disk.folders().iter().for_each(|folder| disk.put_back(folder, StoreCopy::default()));
            }
        }
        for who in at_work {
            self.start(who);
        }
    }

    /// What the provider has done so far, if there is one.
    pub(super) fn called(&self, state: &State) -> Option<Called> {
        // A fence has tasks restored, and their calls doubted. So has a group that goes on while an owner that leaves waits
        // for its coordinator: what it would say of calls that were not made is refused.
        let is_late = [coverage::FENCED, coverage::STALE].iter().any(|what| state.reached.contains_key(what));
        let is_undisturbed = self.profile.is_undisturbed() && !is_late;
        let called = |calls| Called::of(&state.provider, calls).undisturbed(is_undisturbed);
        self.profile.input.calls().map(called)
    }

    /// Adds one more record to each partition.
    pub(super) fn feed_all(&mut self) {
        let mut state = self.world.lock();
        let now = state.now();
        for number in 0..self.profile.partitions {
            let sent = self.sent[number as usize];
            let record = input::record(&self.profile, &mut self.feeding, number, sent, now);
            let log = state.broker.topics.log_mut(&Partition::new(input::INPUT, number));
            log.expect("the input stays").append([record]);
        }
    }

    /// Judges the state of the cluster.
    pub(super) fn judge(&mut self) -> Ruling {
        let mut state = self.world.lock();
        let state = &mut *state;
        let heard = heard::take();
        self.history.refused(heard.refused);
        self.history.start_refused |= heard.start_refused;
        let now = state.now();
        state.database.advance(now);
        let (behind, ahead) = (heard.behind, heard.ahead);
        let sunk = self.profile.input.sink().map(|kind| Sunk::of(&state.database, kind, self.profile.partitions));
        self.history.sinks_into(sunk.map(|sunk| sunk.after_refusals(behind, ahead)));
        self.history.gate_kept_all = self.profile.gate.flushes == 0;
        self.history.gate_strays = std::mem::take(&mut state.gate.strays);
        state.provider.advance(now);
        let reached = std::mem::take(&mut state.provider.reached);
        let of_judge = heard.seen.into_iter();
        of_judge.chain(reached).for_each(|(what, times)| *state.reached.entry(what).or_default() += times);
        let called = self.called(state).map(|called| called.after_stops(heard.at_calls));
        self.history.calls(called);
        let mut late = judge::liveness(&state.broker, &self.history);
        for violation in &mut late {
            let said = heard.last.get(&format!("{:?}", violation.partition)).map_or("nothing", String::as_str);
            violation.found.push_str(&format!("; its task has said {said}"));
        }
        let full = judge::bounds_met(&state.broker, &self.history);
        let full = full.into_iter().filter_map(|place| judge::stopped_at(&state.broker, &self.history, place));
        let full: Vec<_> = full.flatten().collect();
        let poisoned = self.poison.and_then(|place| judge::stopped_at(&state.broker, &self.history, place));
        if poisoned.as_ref().is_some_and(Option::is_none) && late.is_empty() {
            state.reach(coverage::POISON_STOPPED);
        }
        // If time was up, make all that is decided visible.
        for _ in 0..MARKERS_MAX {
            let Some(marker) = state.broker.markers().into_iter().next() else { break };
            state.broker.write_marker(&marker);
        }
        let later = state.memory.owners(|process| state.processes[process].release > 0);
        let retention_ms = match self.profile.release {
            Some(Release::Retention(ms)) => Some(ms),
            Some(Release::Rules) | None => self.history.rules.retention_ms,
        };
        self.history.release = (retention_ms, later.map(ToString::to_string).collect());
        self.history.look(&state.broker);
        self.history.forgive_tails();
        let mut ruling = self.ledger.judge(&mut state.broker, |broker| judge::examine(broker, &mut self.history));
        self.ledger.check_refused(|input| self.history.was_refused(input), &mut ruling);
        let is_stopped = |input: &Partition| self.history.was_refused(input) || self.history.start_refused;
        self.ledger.check_stopped(self.profile.partitions, is_stopped, &mut ruling);
        self.ledger.check_acts(state.provider.acts(), &mut ruling);
        ruling.violations.extend(late);
        ruling.violations.extend(full);
        ruling.violations.extend(poisoned.flatten());
        let input = Partition::new(input::INPUT, 0);
        heard.panics.into_iter().for_each(|words| ruling.report(10, &input, None, "no panic", words));
        ruling
    }

    /// The seed's outcome: all instances are killed, and what their stores hold is judged too.
    pub(super) fn conclude(mut self, mut ruling: Ruling) -> Outcome {
        self.world.lock().resolve_unknown();
        let mut outcome = self.outcome();
        self.end();
        judge::stores::judge(std::mem::take(&mut self.held), &self.history, &mut ruling);
        judge::stores::check_kept(&self.lives, &self.history, &mut ruling);
        outcome.wrong = ruling.messages();
        let turned_away = self.stores.iter().map(Stores::turned_away).sum();
        if turned_away > 0 {
            outcome.reached.insert(coverage::TURNED_AWAY, turned_away);
        }
        ruling.seen.into_iter().for_each(|(situation, times)| *outcome.reached.entry(situation).or_default() += times);
        outcome
    }

    /// The outcome of a seed that panicked: it reports only that.
    pub(super) fn panicked(self, words: String) -> Outcome {
        Outcome { wrong: vec![words], ..self.outcome() }
    }

    /// The outcome, apart from what is wrong.
    fn outcome(&self) -> Outcome {
        let mut state = self.world.lock();
        let choices = Choices {
            misfortunes: self.misfortunes,
            wire: std::mem::take(&mut state.troubles),
            instances: self.profile.instances as u64,
            records: self.profile.records,
        };
        let reached = std::mem::take(&mut state.reached);
        let (trace, took, recovery) = (state.trace(), state.now(), self.recovery);
        Outcome { wrong: Vec::new(), trace, took, recovery, reached, choices }
    }
}
