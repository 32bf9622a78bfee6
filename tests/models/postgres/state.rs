//! What distinguishes one moment of a task from another.

use super::Faults;

/// In place of an owner.
pub const NOBODY: u8 = 9;
/// The token of a text that says nothing: never committed, reset, deleted.
pub const BLANK: u8 = 255;
/// A group without an offset.
pub const GONE: u8 = 255;
/// A token that was taken in this step.
pub const FRESH: u8 = 200;

/// What one of the task's transactions changes. Redo and step 4 are the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Change {
    /// Its token; 0 is none.
    pub token: u8,
    /// The token before.
    pub former: u8,
    /// The group's offset at which its batch began.
    pub start: u8,
    /// The group's next offset.
    pub offset: u8,
    /// All records processed after it, as a set.
    pub past: u8,
    /// Those of them that were decided in it.
    pub out: u8,
}

/// The position row, and the effects that are in the database with it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Row {
    /// Raised by each claim.
    pub epoch: u8,
    /// Token, former token, and what Kafka is to get.
    pub redo: Change,
    /// The identities that have had their effect, as a set.
    pub done: u8,
}

impl Row {
    /// Whether its transaction is the one with this token.
    pub fn is_at(&self, token: u8) -> bool {
        self.redo.token == token
    }

    /// Whether its transaction is the next one after that with this token.
    pub fn is_after(&self, token: u8) -> bool {
        self.redo.token != 0 && self.redo.former == token
    }
}

/// The open database transaction that holds the row's lock.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Open {
    /// Who waits for its answers.
    pub who: u8,
    pub change: Change,
    /// Whether step 2 has found the row.
    pub hit: bool,
    /// Whether `COMMIT` was sent.
    pub sent: bool,
    /// Whether a statement has failed.
    pub failed: bool,
}

/// What a Kafka transaction is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Kind {
    /// Step 4.
    #[default]
    Work,
    /// A redo.
    Redo,
    /// Offsets only: names the owner's transactional id beside the offset.
    Claim,
    /// Offsets only: names nobody.
    Release,
}

impl Kind {
    /// Whether it writes to the changelog.
    pub fn writes(self) -> bool {
        matches!(self, Self::Work | Self::Redo)
    }
}

/// How far the end of a Kafka transaction has come.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum End {
    Open,
    /// The request to commit is on its way.
    Asked,
    /// The coordinator has decided; markers are on their way.
    Committed,
}

/// A Kafka transaction that has not ended everywhere.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pending {
    /// Who waits for its answers.
    pub who: u8,
    /// Its transactional id.
    pub id: u8,
    pub kind: Kind,
    pub change: Change,
    /// Whether it is open in the changelog.
    pub in_changelog: bool,
    /// Whether it is open in the group.
    pub in_group: bool,
    pub end: End,
    /// Whether the group was reset since: then its offset no longer counts.
    pub late: bool,
    /// Which owners' restores began after it had written to the changelog, as a set: they wait for it.
    pub awaited: u8,
}

/// The group's committed offset and the text beside it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Committed {
    pub offset: u8,
    pub token: u8,
    /// The transactional id that is named; 0 is nobody.
    pub id: u8,
}

/// What the changelog holds, by its last position record.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Changelog {
    pub token: u8,
    pub past: u8,
}

/// An instance's local store, which outlives it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Store {
    pub token: u8,
    pub past: u8,
    /// How many of the changelog's transactions it lacks, and one more; 0 if it is ahead of the last marker.
    pub lacks: u8,
    /// Whether it has applied what the changelog has lost.
    pub beyond: bool,
}

/// What an owner is about to do or waits for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Phase {
    /// Dead, or without the partition.
    #[default]
    Idle,
    /// Restore: the group's offset has to be stable.
    Settle,
    /// Restore: the changelog has to be settled up to its end.
    Read,
    /// Restore: the row is to be claimed.
    Claim,
    /// Restore: row and position record are to be compared.
    Compare,
    /// Second look: the changelog.
    LookAgain,
    /// Second look: the row.
    LookAtRow,
    Ready,
    /// Step 1 is done.
    Judged,
    /// Step 2 is done.
    Effects,
    /// `COMMIT` was sent.
    Committing,
    /// A Kafka transaction is to begin: step 4, a redo, a claim, a release.
    Kafka,
    /// It has written to the changelog.
    Written,
    /// It has sent its offsets.
    Offered,
    /// Its commit was requested.
    Ending,
    /// It is committed; step 5 is next.
    Apply,
    /// The task is stopped.
    Refused,
}

/// An instance.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Owner {
    pub phase: Phase,
    pub kind: Kind,
    /// Whether the group's generation has changed since step 1.
    pub old: bool,
    /// Which of its two transactional ids it uses.
    pub renewed: bool,
    /// Whether another has fenced that id.
    pub fenced: bool,
    /// The epoch of its claim.
    pub epoch: u8,
    /// Token and id of the group's text, as it knows them.
    pub text: u8,
    pub named: u8,
    /// The next offset to read.
    pub offset: u8,
    /// The token in the position record, as read.
    pub kafka: u8,
    /// The row, as claimed.
    pub row: Row,
    /// The transaction under way.
    pub change: Change,
    /// By mistake only: the token of the attempt before.
    pub last: u8,
    /// What it remembers, too, when it is at work.
    pub store: Store,
}

/// A moment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct State {
    /// Who has the partition.
    pub current: u8,
    pub group: Committed,
    /// The commit before, which a late copy brings back.
    pub group_before: Committed,
    pub changelog: Changelog,
    pub changelog_before: Changelog,
    /// The records whose dead letters and audit are written, as a set.
    pub letters: u8,
    pub pending: [Option<Pending>; 3],
    pub row: Row,
    pub open: Option<Open>,
    /// Before the last commit.
    pub row_before: Option<Row>,
    pub backup: Option<Row>,
    pub owners: [Owner; 3],
    pub resets: u8,
    pub copies: u8,
    pub sweeps: u8,
    pub releases: u8,
    pub database_back: u8,
    pub backups: u8,
    pub changelog_back: u8,
    pub went_database: bool,
    pub went_changelog: bool,
    /// Whether the group was set forward at any time.
    pub went_forward: bool,
    /// Whether it has to be there still.
    pub is_forward: bool,
}

impl State {
    /// Nothing has happened.
    pub fn new(faults: &Faults) -> Self {
        let never = Committed { offset: GONE, token: BLANK, id: 0 };
        let store = Store { lacks: 1, ..Store::default() };
        Self {
            current: NOBODY,
            group: never,
            group_before: never,
            changelog: Changelog::default(),
            changelog_before: Changelog::default(),
            letters: 0,
            pending: [None; 3],
            row: Row::default(),
            open: None,
            row_before: None,
            backup: None,
            owners: [Owner { store, ..Owner::default() }; 3],
            resets: faults.resets,
            copies: faults.copies,
            sweeps: faults.sweeps,
            releases: faults.releases,
            database_back: faults.database_back,
            backups: faults.backups,
            changelog_back: faults.changelog_back,
            went_database: false,
            went_changelog: false,
            went_forward: false,
            is_forward: false,
        }
    }

    pub fn owner(&mut self, who: u8) -> &mut Owner {
        &mut self.owners[usize::from(who)]
    }

    /// The token of Kafka's last committed transaction that has written to the changelog: its marker may be on its way.
    pub fn decided(&self) -> u8 {
        let on_its_way = |one: &&Pending| one.end == End::Committed && one.in_changelog;
        self.pending.iter().flatten().find(on_its_way).map_or(self.changelog.token, |one| one.change.token)
    }

    /// The transactional id that an owner uses.
    pub fn id_of(&self, who: u8) -> u8 {
        1 + 2 * who + u8::from(self.owners[usize::from(who)].renewed)
    }

    /// What an owner has asked for goes on without it.
    pub fn detach(&mut self, who: u8) {
        self.open.iter_mut().filter(|open| open.who == who).for_each(|open| open.who = NOBODY);
        for one in self.pending.iter_mut().flatten() {
            one.awaited &= !(1 << who);
            if one.who == who {
                one.who = NOBODY;
            }
        }
    }

    /// The owner drops everything but its store.
    pub fn drop_to(&mut self, who: u8, phase: Phase) {
        self.detach(who);
        let owner = self.owner(who);
        // A token is remembered by mistake only, see `owner`.
        *owner = Owner { phase, renewed: owner.renewed, store: owner.store, last: owner.last, ..Owner::default() };
    }

    /// The owner sees that it has lost: it restores, or leaves if the partition is another's.
    pub fn give_up(&mut self, who: u8) {
        let phase = if self.current == who { Phase::Settle } else { Phase::Idle };
        self.drop_to(who, phase);
    }

    /// Remembers the row as it is before the database commits.
    pub fn keep_row(&mut self) {
        self.row_before = Some(self.row);
    }

    /// The end of what an instance without a committed offset goes on from.
    pub fn end_of(past: u8, records: u8) -> u8 {
        (0..records).rev().find(|at| past >> at & 1 == 1).map_or(0, |last| last + 1)
    }
}
