//! What distinguishes one moment from another.

use super::{Calls, Faults};
use crate::search::Wrong;

/// How many records there may be.
pub const RECORDS: usize = 4;
/// How many identities, and how many effects.
pub const IDENTITIES: usize = 3;

/// What was settled last of an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Settled {
    Done,
    Failed,
    /// Given up, though an attempt may have acted, first at this time.
    GivenUp {
        first: u8,
    },
}

/// A settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Settlement {
    pub what: Settled,
    pub version: u8,
    /// Whose it is; `None` for a record of another topic.
    pub record: Option<u8>,
    /// When it was last seen, in stream time.
    pub seen: u8,
}

/// A reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reservation {
    pub version: u8,
    /// The record's place.
    pub record: u8,
    /// Whether the record was one of a topic that is gone.
    pub is_of_old_topic: bool,
    /// When a request may have left first.
    pub first: u8,
}

/// What is remembered of an identity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Entry {
    pub settled: Option<Settlement>,
    pub reserved: Option<Reservation>,
}

/// What an answer, or a judgement, means for a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    Done,
    Rejected,
    InDoubt,
    Exhausted,
    Duplicate,
    Stale,
    Invalid,
    Late,
}

/// How far an owner is with a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Local {
    #[default]
    New,
    /// The position record has to say first that calls may go.
    Ungranted,
    /// The reservation has to be written first.
    Unreserved,
    /// It waits for another's reservation.
    Waiting,
    Ready,
    Sent,
    /// To be settled.
    Decided(Outcome),
    Settled,
}

/// Whether an attempt may have acted, as far as its owner knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Acted {
    #[default]
    No,
    /// The one that is under way.
    Now,
    /// One before.
    Before,
}

/// A record in an owner's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Slot {
    pub local: Local,
    pub first: u8,
    pub attempts: u8,
    pub acted: Acted,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Run {
    #[default]
    Down,
    Live,
    Frozen,
}

/// An instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Owner {
    pub run: Run,
    /// Whether its group generation is the current one.
    pub is_current: bool,
    /// Where it began to read.
    pub start: u8,
    /// Stream time there.
    pub time: u8,
    /// What was granted before it began.
    pub granted_before: u8,
    pub slots: [Slot; RECORDS],
}

/// What the provider recognises requests by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    None,
    Records,
    Effects,
}

/// What became of a record, for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    Settled(Outcome),
    /// It vanished from the input before it was settled.
    Gone,
}

/// A moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub now: u8,
    pub entries: [Entry; IDENTITIES],
    /// The position record: the end of the settled prefix, what is settled beyond it, stream time at the prefix's end.
    pub prefix: u8,
    pub list: u8,
    pub time: u8,
    /// Up to where calls may have gone without a reservation, and since when.
    pub granted: u8,
    pub since: u8,
    /// The group's offset.
    pub offset: u8,
    pub owners: [Owner; 2],
    /// Requests whose sender is gone, by record.
    pub orphans: [u8; RECORDS],
    /// What the provider did, by effect, and when it saw each key.
    pub acts: [u8; IDENTITIES],
    pub keys: [Option<u8>; RECORDS],
    /// What became of each record, and what was written for it.
    pub verdicts: [Option<Verdict>; RECORDS],
    pub letters: [u8; RECORDS],
    pub results: [u8; RECORDS],
    /// The records of which a request has left.
    pub sent: u8,
    /// The first record that is still in the input.
    pub input: u8,
    /// What may still go wrong.
    pub left: Left,
    pub wrong: Option<Wrong>,
}

/// How often something may still go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Left {
    pub kills: u8,
    pub freezes: u8,
    pub resets: u8,
    pub answers: u8,
    pub commits: u8,
    pub stops: u8,
    pub vanish: u8,
}

impl Left {
    fn of(faults: &Faults) -> Self {
        let Faults { kills, freezes, resets, answers, commits, stops, vanish, .. } = *faults;
        Self { kills, freezes, resets, answers, commits, stops, vanish }
    }
}

impl State {
    pub fn new(world: &Calls) -> Self {
        let mut entries = [Entry::default(); IDENTITIES];
        entries[0] = world.before.unwrap_or_default();
        Self {
            now: 0,
            entries,
            prefix: 0,
            list: 0,
            time: 0,
            granted: 0,
            since: 0,
            offset: 0,
            owners: [Owner::default(); 2],
            orphans: [0; RECORDS],
            acts: [0; IDENTITIES],
            keys: [None; RECORDS],
            verdicts: [None; RECORDS],
            letters: [0; RECORDS],
            results: [0; RECORDS],
            sent: 0,
            input: 0,
            left: Left::of(&world.faults),
            wrong: None,
        }
    }

    /// Notes what is wrong, if nothing was before.
    pub fn fail(&mut self, wrong: Wrong) {
        self.wrong.get_or_insert(wrong);
    }

    pub fn owner(&self, who: u8) -> &Owner {
        &self.owners[usize::from(who)]
    }

    pub fn owner_mut(&mut self, who: u8) -> &mut Owner {
        &mut self.owners[usize::from(who)]
    }

    pub fn slot(&self, who: u8, at: u8) -> &Slot {
        &self.owner(who).slots[usize::from(at)]
    }

    pub fn slot_mut(&mut self, who: u8, at: u8) -> &mut Slot {
        &mut self.owner_mut(who).slots[usize::from(at)]
    }

    pub fn entry(&mut self, identity: u8) -> &mut Entry {
        &mut self.entries[usize::from(identity)]
    }

    /// The owner's requests that are under way go on without it.
    pub fn orphan(&mut self, who: u8) {
        for at in 0..RECORDS {
            if self.owners[usize::from(who)].slots[at].local == Local::Sent {
                self.orphans[at] = (self.orphans[at] + 1).min(2);
            }
        }
    }

    /// Whether a request is under way anywhere.
    pub fn has_requests(&self) -> bool {
        let is_sent = |slot: &Slot| slot.local == Local::Sent;
        self.orphans.iter().any(|&count| count > 0)
            || self.owners.iter().any(|owner| owner.run != Run::Down && owner.slots.iter().any(is_sent))
    }
}

impl Calls {
    /// What is wrong once everything was worked through.
    pub(super) fn judge_end(&self, state: &State) -> Option<Wrong> {
        for (at, record) in self.records.iter().enumerate() {
            let acts = state.acts[usize::from(record.effect)];
            let of = |other: usize| (self.records[other].effect == record.effect).then_some(state.verdicts[other])?;
            match state.verdicts[at] {
                None => return Some("SKIPPED: everything is past a record that was never settled"),
                Some(Verdict::Settled(Outcome::Done)) if acts == 0 => {
                    return Some("NOT ACTED: a record is done, nobody did it");
                }
                Some(Verdict::Settled(Outcome::Duplicate | Outcome::Stale)) if acts == 0 => {
                    let is_final = |verdict| {
                        matches!(
                            verdict,
                            Verdict::Gone | Verdict::Settled(Outcome::Rejected | Outcome::InDoubt | Outcome::Exhausted)
                        )
                    };
                    let newer =
                        |other: &super::Record| other.identity == record.identity && other.version > record.version;
                    let is_excused = (0..self.records.len()).filter_map(of).any(is_final)
                        || self.records.iter().any(newer)
                        || self.before.is_some();
                    if !is_excused {
                        return Some("NOT ACTED: a record counts as a duplicate of what never happened");
                    }
                }
                _ => {}
            }
        }
        None
    }
}
