//! What distinguishes one moment from another.

use super::{Calls, Faults};
use crate::search::Wrong;

/// How many records there may be.
pub const RECORDS: usize = 4;
/// How many identities, and how many effects.
pub const IDENTITIES: usize = 3;

/// How many scopes.
pub const SCOPES: usize = 3;

/// A version, with the number that the position record gives its scope: of two scopes, the later one is newer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version {
    pub scope: u8,
    pub number: u8,
}

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
    pub version: Version,
    /// Whose it is; `None` for a record of another topic, one that does not come any more, and a person.
    pub record: Option<u8>,
    /// When it was last seen, in stream time.
    pub seen: u8,
    /// What was answered; 0 if nothing is known.
    pub result: u8,
}

/// A reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reservation {
    pub version: Version,
    /// The record's place.
    pub record: u8,
    /// Whether the record was one of a topic that is gone.
    pub is_of_old_topic: bool,
    /// When a request may have left first.
    pub first: u8,
}

impl Reservation {
    /// Whether it is this record's.
    pub fn is_of(&self, record: u8) -> bool {
        self.record == record && !self.is_of_old_topic
    }
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
    /// When a request may have left first; `None` if the next transaction is to say that.
    pub first: Option<u8>,
    pub attempts: u8,
    pub acted: Acted,
    /// What was answered.
    pub result: u8,
    /// Whether the provider has answered anything since its first attempt, and whether an attempt has failed while the
    /// provider was up.
    pub is_answering: bool,
    pub has_failed: bool,
}

/// What an instance remembers of a record that it was answered for before it had to restore, or lost the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answered {
    Done { result: u8 },
    Rejected,
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
    /// The number of each scope.
    pub scopes: [Option<u8>; SCOPES],
    /// The records of the open transaction, and when it was begun.
    pub writing: u8,
    pub begun: u8,
    /// Whether that transaction may renew its grants.
    pub renews: bool,
    /// Whether the provider is taken to be down.
    pub is_holding: bool,
    /// What outlives a restore, and the loss of the task: answers, and requests that are still under way.
    pub answered: [Option<Answered>; RECORDS],
    pub under_way: u8,
    /// Only by mistake: a command was carried out, and is not yet acknowledged; it is noted nowhere else.
    pub owes: bool,
    pub obeyed: bool,
}

/// A command, and what became of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Order {
    pub is_given: bool,
    /// Whether the position record says that it was carried out.
    pub is_noted: bool,
    pub times_obeyed: u8,
    pub times_acknowledged: u8,
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
    pub scopes: [Option<u8>; SCOPES],
    /// Up to where calls may have gone without a reservation, and since when.
    pub granted: u8,
    pub since: u8,
    /// The group's offset.
    pub offset: u8,
    pub owners: [Owner; 2],
    /// Requests whose sender is gone, by record.
    pub orphans: [u8; RECORDS],
    /// What the provider did, by effect, and when it saw each key, with the result.
    pub acts: [u8; IDENTITIES],
    pub keys: [Option<(u8, u8)>; RECORDS],
    pub is_down: bool,
    /// How often each effect may happen: once, and once more whenever it was written that it is called again.
    pub allowed: [u8; IDENTITIES],
    /// What became of each record, and what was written for it: 0 if nothing was.
    pub verdicts: [Option<Verdict>; RECORDS],
    pub results: [u8; RECORDS],
    /// The first result that was written for each effect.
    pub firsts: [u8; IDENTITIES],
    pub order: Order,
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
    pub revocations: u8,
    pub downs: u8,
    pub vanish: u8,
}

impl Left {
    fn of(faults: &Faults) -> Self {
        let Faults { kills, freezes, resets, answers, commits, stops, revocations, downs, vanish, .. } = *faults;
        Self { kills, freezes, resets, answers, commits, stops, revocations, downs, vanish }
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
            scopes: [Some(0), None, None],
            granted: 0,
            since: 0,
            offset: 0,
            owners: [Owner::default(); 2],
            orphans: [0; RECORDS],
            acts: [0; IDENTITIES],
            keys: [None; RECORDS],
            is_down: false,
            allowed: [1; IDENTITIES],
            verdicts: [None; RECORDS],
            results: [0; RECORDS],
            firsts: [0; IDENTITIES],
            order: Order::default(),
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

    /// The owner is gone; its requests that are under way go on without it.
    pub fn die(&mut self, who: u8) {
        let owner = std::mem::take(self.owner_mut(who));
        for (at, slot) in owner.slots.iter().enumerate() {
            let requests = u8::from(slot.local == Local::Sent) + (owner.under_way >> at & 1);
            self.orphans[at] = (self.orphans[at] + requests).min(2);
        }
    }

    /// The owner forgets the task but for what it was answered, and for its requests that are under way.
    pub fn lose(&mut self, who: u8, knows_rejections: bool) {
        let mut left = Owner::default();
        let owner = *self.owner(who);
        (left.answered, left.under_way) = (owner.answered, owner.under_way);
        for (at, slot) in owner.slots.iter().enumerate() {
            match slot.local {
                Local::Decided(Outcome::Done) => left.answered[at] = Some(Answered::Done { result: slot.result }),
                Local::Decided(Outcome::Rejected) if knows_rejections => left.answered[at] = Some(Answered::Rejected),
                Local::Settled => left.answered[at] = None,
                Local::Sent if owner.under_way >> at & 1 == 1 => self.orphans[at] = (self.orphans[at] + 1).min(2),
                Local::Sent => left.under_way |= 1 << at,
                _ => {}
            }
        }
        *self.owner_mut(who) = left;
    }

    /// Forgets what nobody asks for any more, so that moments that differ in nothing else are one: answers for records
    /// that are settled, and whatever a former owner knows but for its calls.
    pub fn forget(&mut self) {
        for owner in &mut self.owners {
            for (at, answered) in owner.answered.iter_mut().enumerate() {
                if at < usize::from(self.prefix) || self.list >> at & 1 == 1 {
                    *answered = None;
                }
            }
            if owner.is_current || owner.run == Run::Down {
                continue;
            }
            for slot in &mut owner.slots {
                if !matches!(slot.local, Local::Ready | Local::Sent | Local::Decided(_)) {
                    *slot = Slot::default();
                }
            }
            let Owner { run, slots, is_holding, answered, under_way, .. } = *owner;
            *owner = Owner { run, slots, is_holding, answered, under_way, ..Owner::default() };
        }
    }

    /// Whether a request is under way anywhere.
    pub fn has_requests(&self) -> bool {
        let is_sent = |slot: &Slot| slot.local == Local::Sent;
        self.orphans.iter().any(|&count| count > 0)
            || self.owners.iter().any(|owner| owner.under_way != 0 || owner.slots.iter().any(is_sent))
    }
}
