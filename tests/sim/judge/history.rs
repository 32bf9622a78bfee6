//! What was seen of the cluster during a seed: everything ever committed to the changelogs, which the cleaner and
//! people remove later, and how the committed offsets moved.

use std::collections::{BTreeMap, BTreeSet};

use ratchet::dedup::Bounds;

use crate::kafka::{Broker, Committed, Partition, Record, Repeater};
use crate::profile::Upheaval;

use super::bytes::{self, POSITION_KEY};
use super::rules::Rules;
use super::{Called, Ruling, Sunk, runs};

/// A record and its writer.
#[derive(Clone, Debug)]
pub struct Written {
    /// The producer, if it was a transactional one.
    pub producer: Option<i64>,
    pub record: Record,
    /// The cleaner has removed it: readers of the changelog no longer see it.
    pub is_cleaned: bool,
}

/// Everything ever committed to one partition of one changelog.
#[derive(Clone, Debug, Default)]
pub struct Changelog {
    pub records: BTreeMap<i64, Written>,
    next: i64,
    /// It was deleted, or lost its last records, while it had an open transaction, whose outcome cannot be known.
    pub is_cut: bool,
    /// From here on it has lost committed transactions; nothing may be committed after that.
    pub lost_from: Option<i64>,
    /// Offsets of records committed nevertheless.
    behind_loss: Vec<i64>,
    /// The offset after the last position record that was lost.
    lost_end: i64,
    /// Where its last records were cut off.
    pub cut: Option<i64>,
}

impl Changelog {
    /// Where a transaction was committed at offsets whose former records a store has applied. Beyond those offsets, a
    /// changelog that was written to after the loss shows no sign of it.
    pub fn overwritten(&self) -> Option<i64> {
        self.behind_loss.first().copied().filter(|first| *first < self.lost_end)
    }

    fn names(&self, token: &str) -> bool {
        self.records.values().any(|written| {
            let record = &written.record;
            let value = record.value.clone().filter(|_| record.key.as_deref() == Some(POSITION_KEY));
            let found = value.and_then(|value| runs::decoded(move || bytes::position(&value).token.text()));
            found.is_some_and(|found| found == token)
        })
    }
}

/// Up to where a position record says that the input was processed.
fn end_of(written: &Written) -> Option<i64> {
    let record = &written.record;
    let value = record.value.clone().filter(|_| record.key.as_deref() == Some(POSITION_KEY))?;
    runs::decoded(move || bytes::position(&value).processed.last().map(|range| range.1)).flatten()
}

/// The offsets seen committed by the group for one partition of the input.
struct Commits {
    input: Partition,
    /// The last one seen; `None` if people have changed it since.
    last: Option<Committed>,
    /// Each offset and text once, in the order first seen.
    seen: Vec<Committed>,
}

/// What was seen.
pub struct History {
    pub rules: &'static Rules,
    /// How many partitions the input had at first.
    pub partitions: i32,
    /// By partition and topic id; ids rise.
    changelogs: BTreeMap<(i32, u128), Changelog>,
    /// Whether tombstones may be removed from the changelog before every restore has seen them.
    pub tombstones_go: bool,
    /// Whether reading starts at the end of the input.
    pub starts_latest: bool,
    /// The retention of a later release, and its owners.
    pub release: (Option<i64>, BTreeSet<String>),
    /// Bounds on the history that a task keeps: it stops before it exceeds them.
    pub bounds: Bounds,
    upheavals: BTreeSet<Upheaval>,
    /// By partition number.
    committed: Vec<Commits>,
    /// How far ahead a clock was set, milliseconds.
    ahead_ms: i64,
    /// The inputs whose tasks were stopped.
    refused: BTreeSet<String>,
    /// The input's partitions that have lost something for good.
    lost: BTreeSet<i32>,
    /// Those whose changelogs have lost their last records.
    tails: BTreeSet<i32>,
    sunk: Option<Sunk>,
    called: Option<Called>,
    /// Whether the gate has forgotten nothing, if there is one.
    pub gate_kept_all: bool,
    /// Records of the input, by partition and offset, that have left a mark too late: they were known by then as passed on
    /// elsewhere.
    pub gate_strays: BTreeSet<(i32, i64)>,
    /// Records of the input, by partition and offset, that were perhaps not read: they have vanished, or were skipped.
    gone: BTreeSet<(i32, i64)>,
    /// Whether an instance was refused at its start.
    pub start_refused: bool,
    /// Whether the changelog was deleted although the group had committed transactions in it, or the output had
    /// records.
    pub has_lost_changelog: bool,
    /// Violations found on the way.
    pub ruling: Ruling,
}

impl History {
    pub fn new(rules: &'static Rules, partitions: i32) -> Self {
        let of = |number: i32| Commits { input: Partition::new(rules.input, number), last: None, seen: Vec::new() };
        Self {
            rules,
            partitions,
            changelogs: BTreeMap::new(),
            tombstones_go: false,
            starts_latest: false,
            release: (None, BTreeSet::new()),
            bounds: Bounds::DEFAULT,
            upheavals: BTreeSet::new(),
            committed: (0..partitions).map(of).collect(),
            ahead_ms: 0,
            refused: BTreeSet::new(),
            lost: BTreeSet::new(),
            tails: BTreeSet::new(),
            start_refused: false,
            has_lost_changelog: false,
            ruling: Ruling::default(),
            sunk: None,
            called: None,
            gate_kept_all: false,
            gate_strays: BTreeSet::new(),
            gone: BTreeSet::new(),
        }
    }

    /// What the database holds, if the topology ends in one.
    pub fn sinks_into(&mut self, sunk: Option<Sunk>) {
        self.sunk = sunk;
    }

    /// What the provider has done, if the topology calls one.
    pub fn calls(&mut self, called: Option<Called>) {
        self.called = called;
    }

    /// These records of a partition were perhaps not read, and never will be.
    pub fn miss(&mut self, number: i32, offsets: impl IntoIterator<Item = i64>) {
        self.gone.extend(offsets.into_iter().map(|offset| (number, offset)));
    }

    /// Whether a record was perhaps not read, and never will be.
    pub fn is_gone(&self, number: i32, offset: i64) -> bool {
        self.gone.contains(&(number, offset))
    }

    pub fn called(&self) -> Option<&Called> {
        self.called.as_ref()
    }

    pub fn sunk(&self) -> Option<&Sunk> {
        self.sunk.as_ref()
    }

    /// Records what is new. Call it now and then, and before anything is removed from a changelog.
    pub fn look(&mut self, broker: &Broker) {
        if let Some(topic) = broker.topics.get(self.rules.changelog) {
            for (number, log) in topic.logs.iter().enumerate() {
                let kept = self.changelogs.entry((number as i32, topic.id)).or_default();
                let mut aborted = 0;
                let next = log.examine(kept.next, |offset, producer, record, is_aborted| {
                    if is_aborted {
                        aborted += u64::from(record.value.is_none());
                    } else if kept.lost_from.is_some() {
                        kept.behind_loss.push(offset);
                    } else {
                        kept.records.insert(offset, Written { producer, record: record.clone(), is_cleaned: false });
                    }
                });
                kept.next = next;
                (0..aborted).for_each(|_| self.ruling.see(super::coverage::SWEEP_ABORTED));
            }
        }
        for Commits { input, last, seen } in &mut self.committed {
            let Ok(Some(found)) = broker.groups.committed(self.rules.group, input, false) else { continue };
            if last.as_ref() == Some(&found) {
                continue;
            }
            let back = last.as_ref().filter(|last| found.offset < last.offset);
            if let Some(Committed { offset: before, .. }) = back {
                match broker.groups.repeated_by(self.rules.group, input, &found) {
                    Some(Repeater::LateRequests) => self.ruling.see(super::coverage::REPEATED),
                    Some(Repeater::Coordinator) => self.ruling.see(super::coverage::FELL_BACK),
                    None => {
                        let expected = format!("no committed offset below {before}, which was committed before");
                        self.ruling.report(4, input, found.offset, expected, format!("{found:?}"));
                    }
                }
            }
            if !seen.contains(&found) {
                seen.push(found.clone());
            }
            *last = Some(found);
        }
    }

    /// The cleaner has compacted a changelog, just after [`Self::look`].
    pub fn cleaned(&mut self, broker: &Broker) {
        let Some(topic) = broker.topics.get(self.rules.changelog) else { return };
        for (number, log) in topic.logs.iter().enumerate() {
            let Some(kept) = self.changelogs.get_mut(&(number as i32, topic.id)) else { continue };
            let mut there = BTreeSet::new();
            log.examine(0, |offset, _, _, _| {
                there.insert(offset);
            });
            for (_, written) in kept.records.iter_mut().filter(|(offset, _)| !there.contains(*offset)) {
                written.is_cleaned = true;
            }
        }
    }

    /// Something is about to be done to the cluster.
    pub fn before(&mut self, upheaval: Upheaval, broker: &Broker) {
        self.look(broker);
        self.upheavals.insert(upheaval);
        match upheaval {
            Upheaval::GroupReset | Upheaval::GroupDeleted | Upheaval::InputRecreated => {
                self.committed.iter_mut().for_each(|commits| commits.last = None);
            }
            Upheaval::ChangelogRecreated | Upheaval::ChangelogDeleted => {
                let has_text = |commits: &Commits| commits.last.as_ref().is_some_and(|last| !last.metadata.is_empty());
                // If nothing was committed yet, an output with records still counts as begun.
                let output = broker.topics.get(self.rules.output);
                let is_written = output.is_some_and(|topic| topic.logs.iter().any(|log| log.end() > log.start()));
                let has_begun = is_written || self.committed.iter().any(has_text);
                self.has_lost_changelog = upheaval == Upheaval::ChangelogDeleted && has_begun;
                let Some(topic) = broker.topics.get(self.rules.changelog) else { return };
                for (number, log) in topic.logs.iter().enumerate() {
                    let kept = self.changelogs.entry((number as i32, topic.id)).or_default();
                    kept.is_cut = log.stable_end() < log.end();
                }
            }
            Upheaval::ChangelogTruncated | Upheaval::ChangelogTailLost | Upheaval::ChangelogTailLostAtWork => {}
            Upheaval::GroupLatest | Upheaval::InputLost | Upheaval::InputGrown => {}
        }
    }

    /// A partition of the changelog is about to lose everything from `cut` on; the cut splits no transaction. Returns
    /// whether anything lost was a committed transaction with records.
    pub fn lose_tail(&mut self, broker: &Broker, number: i32, cut: i64) -> bool {
        let Some(topic) = broker.topics.get(self.rules.changelog) else { return false };
        let kept = self.changelogs.entry((number, topic.id)).or_default();
        let end_of = |(_, written): (&i64, &Written)| end_of(written);
        let before = kept.records.range(..cut).filter_map(end_of).next_back();
        let mut lost = kept.records.range(cut..).filter_map(end_of).peekable();
        let is_lost = lost.peek().is_some();
        // A transaction of the sweeper's leaves no trace in the group's offset.
        let is_swept = is_lost && lost.all(|end| Some(end) == before);
        kept.is_cut |= is_swept;
        kept.lost_from = (is_lost && !is_swept).then_some(cut);
        kept.cut = Some(cut);
        let is_position = |(_, written): &(&i64, &Written)| written.record.key.as_deref() == Some(POSITION_KEY);
        kept.lost_end = kept.records.range(cut..).rfind(is_position).map_or(cut, |(offset, _)| offset + 1);
        kept.next = kept.next.min(cut);
        self.tails.insert(number);
        self.lost.insert(number);
        is_lost && !is_swept
    }

    /// For a changelog that has lost its last records, its former content is unknown if a transaction that was open
    /// at the loss was committed later, or if it has grown again to where stores are.
    pub fn forgive_tails(&mut self) {
        for number in &self.tails {
            let seen = self.committed.iter().filter(|commits| commits.input.number == *number);
            let seen = seen.flat_map(|commits| &commits.seen);
            let tokens: Vec<&str> = seen.filter_map(|committed| committed.metadata.split(' ').nth(1)).collect();
            for (_, kept) in self.changelogs.range_mut((*number, 0)..=(*number, u128::MAX)) {
                kept.is_cut |= !kept.behind_loss.is_empty() || tokens.iter().any(|token| !kept.names(token));
            }
        }
    }

    /// How long this owner remembers an identity.
    pub fn retention_ms(&self, owner: &str) -> Option<i64> {
        let (later, owners) = &self.release;
        if owners.contains(owner) { *later } else { self.rules.retention_ms }
    }

    /// A clock was set this far from the right time.
    pub fn clock_set(&mut self, offset_ms: i64) {
        self.ahead_ms = self.ahead_ms.max(offset_ms);
    }

    /// The lowest and the highest time at which a record that existed from `since` on may have been judged. A single
    /// clock that is behind decides nothing; one that is ahead may.
    pub fn wall_ms(&self, broker: &Broker, since: i64) -> (i64, i64) {
        let now = broker.wall_ms();
        (since.min(now), now + self.ahead_ms)
    }

    pub fn had(&self, upheaval: Upheaval) -> bool {
        self.upheavals.contains(&upheaval)
    }

    /// Whether a task may have been refused for good.
    pub fn had_loss(&self) -> bool {
        self.upheavals.iter().any(|upheaval| upheaval.is_loss())
    }

    /// Whether the changelog may hold less than the state.
    pub fn had_changelog_loss(&self) -> bool {
        Upheaval::OF_STATE.into_iter().any(|upheaval| upheaval.is_loss() && self.had(upheaval))
    }

    /// Whether people have set the group's offsets.
    pub fn had_reset(&self) -> bool {
        self.had(Upheaval::GroupReset) || self.had(Upheaval::GroupLatest)
    }

    /// This partition of the input, or its changelog, has lost something for good: its task may be refused.
    pub fn lose(&mut self, number: i32) {
        self.lost.insert(number);
    }

    /// The engine logged that tasks were stopped, for these inputs as `topic:number`.
    pub fn refused(&mut self, inputs: BTreeSet<String>) {
        self.refused.extend(inputs);
    }

    /// Whether a partition's task was stopped.
    pub fn was_refused(&self, input: &Partition) -> bool {
        self.refused.contains(&format!("{input:?}"))
    }

    /// Whether a partition need not be read to its end: its task was refused because of a loss; or the input gained
    /// partitions, and the task or an instance at its start was refused; or the changelog was deleted, and an
    /// instance was refused at its start.
    pub fn excuses(&self, partition: &Partition) -> bool {
        let is_refused = self.start_refused || self.was_refused(partition);
        let is_grown = self.had(Upheaval::InputGrown) && is_refused;
        let has_no_changelog = self.has_lost_changelog && self.start_refused;
        let has_no_reader = (is_grown || has_no_changelog) && *partition.topic == *self.rules.input;
        has_no_reader || self.lost.contains(&partition.number) && self.was_refused(partition)
    }

    /// Everything seen committed by the group for a partition of the input.
    pub fn committed(&self, partition: i32) -> impl Iterator<Item = &Committed> {
        self.committed.iter().filter(move |commits| commits.input.number == partition).flat_map(|commits| &commits.seen)
    }

    /// A partition's changelogs in order: more than one if the topic was recreated.
    pub fn changelogs(&self, partition: i32) -> impl Iterator<Item = (u128, &Changelog)> {
        let of = self.changelogs.range((partition, 0)..=(partition, u128::MAX));
        of.map(|((_, id), changelog)| (*id, changelog))
    }

    pub fn changelog(&self, partition: i32, id: u128) -> Option<&Changelog> {
        self.changelogs.get(&(partition, id))
    }
}
