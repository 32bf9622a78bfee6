//! What PostgreSQL, Kafka, the group and people do, and what goes wrong.

use super::owner::Go;
use super::state::{BLANK, Change, Changelog, Committed, End, GONE, Kind, NOBODY, Pending, Phase, Row, State, Store};
use super::{Label, Postgres};
use crate::mistakes::Mistake;
use crate::search::Wrong;

/// The steps that a run may be spared: without them, everything comes to an end.
pub const FAULTS: &[&str] = &[
    KILLED,
    KILLED_WITH_DISK,
    MOVED,
    NEW_GENERATION,
    RESET,
    DELETED,
    COPIED,
    FAILED_OVER,
    RESTORED,
    TAIL_LOST,
    ANSWER_LOST,
    OUTCOME_LOST,
    CLAIM_LOST,
    STATEMENT_FAILS,
];
pub const KILLED: &str = "is killed";
pub const KILLED_WITH_DISK: &str = "is killed, and its disk is lost";
pub const MOVED: &str = "gets the partition from any owner";
pub const NEW_GENERATION: &str = "keeps the partition in a new generation";
pub const RESET: &str = "group: reset";
pub const DELETED: &str = "group: deleted";
pub const COPIED: &str = "Kafka: a late copy takes the group's offset back";
pub const FAILED_OVER: &str = "database: fails over, its last commit is lost";
pub const RESTORED: &str = "database: is restored from the backup";
pub const TAIL_LOST: &str = "Kafka: the changelog loses its last transaction";
pub const ANSWER_LOST: &str = "COMMIT's answer is lost; restores";
pub const OUTCOME_LOST: &str = "Kafka's answer is lost; restores";
pub const CLAIM_LOST: &str = "claims the row, the answer is lost";
pub const ROLLED_BACK: &str = "database: COMMIT answers ROLLBACK";
pub const STATEMENT_FAILS: &str = "step 3: a statement fails; COMMIT";

const fn outside(what: &'static str, token: u8) -> Label {
    Label { who: NOBODY, what, token }
}

impl State {
    /// A restore has read the changelog's end: it waits for what is open there.
    pub fn await_changelog(&mut self, who: u8) {
        let open = self.pending.iter_mut().flatten().filter(|one| one.in_changelog);
        open.for_each(|one| one.awaited |= 1 << who);
    }

    /// Whether something that was open when the changelog's end was read still is.
    pub fn awaits_changelog(&self, who: u8) -> bool {
        self.pending.iter().flatten().any(|one| one.in_changelog && one.awaited >> who & 1 == 1)
    }

    /// Initialises an id in its owner's place: what is open under it is aborted. Returns whether anything changes.
    pub fn fence(&mut self, id: u8, by: u8) -> bool {
        let mut changes = false;
        for one in &mut self.pending {
            if one.is_some_and(|one| one.id == id && one.end != End::Committed) {
                *one = None;
                changes = true;
            }
        }
        let owner = (id - 1) / 2;
        let uses = self.id_of(owner) == id;
        let owner_state = self.owner(owner);
        let is_alive = !matches!(owner_state.phase, Phase::Idle | Phase::Refused);
        if owner != by && is_alive && uses && !owner_state.fenced {
            owner_state.fenced = true;
            // It has asked, and will be told.
            if owner_state.phase == Phase::Ending && changes {
                owner_state.renewed ^= true;
                self.give_up(owner);
            }
            changes = true;
        }
        changes
    }
}

impl Postgres {
    pub(super) fn outside_steps(&self, state: &State, go: Go) {
        self.database(state, go);
        for at in 0..state.pending.len() {
            if let Some(one) = state.pending[at] {
                self.coordinator(state, at, one, go);
            }
        }
        for who in 0..self.owners {
            self.instance(state, who, go);
        }
        self.people(state, go);
        self.time(state, go);
    }

    /// PostgreSQL ends the open transaction.
    fn database(&self, state: &State, go: Go) {
        let Some(open) = state.open else { return };
        let mut to = *state;
        to.open = None;
        self.on_rolled_back(&mut to, open.who);
        go(outside("database: rolls back (time-out, connection lost)", open.change.token), to, None);
        if !open.sent {
            return;
        }
        let mut to = *state;
        to.open = None;
        if open.failed {
            if open.who != NOBODY {
                if self.errs(Mistake::TagIgnored) {
                    to.owner(open.who).phase = Phase::Kafka;
                } else {
                    self.try_again(&mut to, open.who);
                }
            }
            return go(outside(ROLLED_BACK, open.change.token), to, None);
        }
        to.keep_row();
        let change = open.change;
        let effects = self.identities(change.out) & !self.identities(change.past & !change.out);
        let wrong = (state.row.done & effects != 0).then_some("EFFECT TWICE");
        to.row.done |= effects;
        if open.hit {
            to.row.redo = change;
        }
        if open.who != NOBODY {
            let is_last = self.errs(Mistake::KafkaFirst);
            let owner = to.owner(open.who);
            owner.phase = if is_last { Phase::Ready } else { Phase::Kafka };
            if is_last {
                owner.change = Change::default();
            }
        }
        go(outside("database: commits", change.token), to, wrong);
    }

    /// The owner's database transaction is gone. After `COMMIT` was sent, it cannot know that.
    fn on_rolled_back(&self, state: &mut State, who: u8) {
        if who == NOBODY {
            return;
        }
        match state.owner(who).phase {
            Phase::Effects => self.try_again(state, who),
            _ => {
                self.keep_token(state, who);
                state.drop_to(who, Phase::Settle);
            }
        }
    }

    /// The batch again, under a new token.
    fn try_again(&self, state: &mut State, who: u8) {
        self.keep_token(state, who);
        let owner = state.owner(who);
        if self.errs(Mistake::HeldSkipped) {
            owner.offset = owner.change.offset;
        }
        (owner.phase, owner.change) = (Phase::Ready, Change::default());
    }

    /// Kafka ends a transaction: it decides, then each partition gets its marker.
    fn coordinator(&self, state: &State, at: usize, one: Pending, go: Go) {
        if one.end != End::Committed {
            let mut to = *state;
            to.pending[at] = None;
            if one.who != NOBODY {
                self.keep_token(&mut to, one.who);
                to.owner(one.who).renewed ^= true;
                to.give_up(one.who);
            }
            go(outside("Kafka: aborts", one.change.token), to, None);
        }
        if one.end == End::Asked {
            let mut to = *state;
            to.pending[at] = Some(Pending { who: NOBODY, end: End::Committed, ..one });
            let wrong = self.decide(&mut to, one);
            if one.who != NOBODY {
                to.owner(one.who).phase = Phase::Apply;
            }
            let wrong = if self.apart { wrong } else { wrong.or(self.mark_everywhere(&mut to, at, one)) };
            go(outside("Kafka: commits", one.change.token), to, wrong);
        }
        if one.end == End::Committed && one.in_changelog {
            let mut to = *state;
            let wrong = self.mark_changelog(&mut to, one);
            to.mark(at, |one| one.in_changelog = false);
            go(outside("Kafka: the changelog gets its marker", one.change.token), to, wrong);
        }
        if one.end == End::Committed && one.in_group {
            let mut to = *state;
            let wrong = self.mark_group(&mut to, one);
            to.mark(at, |one| one.in_group = false);
            go(outside("Kafka: the group gets its marker", one.change.token), to, wrong);
        }
    }

    fn mark_everywhere(&self, state: &mut State, at: usize, one: Pending) -> Option<Wrong> {
        state.pending[at] = None;
        let wrong = if one.in_changelog { self.mark_changelog(state, one) } else { None };
        wrong.or(self.mark_group(state, one))
    }

    fn decide(&self, state: &mut State, one: Pending) -> Option<Wrong> {
        if !one.kind.writes() {
            return None;
        }
        let change = one.change;
        let forgets = one.kind == Kind::Redo && self.errs(Mistake::RedoWithoutLetters);
        let letters = if forgets { 0 } else { change.out };
        let twice = state.letters & letters != 0;
        state.letters |= letters;
        let below = (1_u16 << change.offset) - 1;
        let skips = below as u8 & !change.past & self.all() != 0 && !state.went_forward;
        // What a changelog that has lost its tail leads to is its own matter.
        match () {
            () if twice && !self.is_lost_unseen(state) => Some("STEP 4 TWICE: a dead letter is written again"),
            () if state.went_changelog => None,
            () if skips => Some("RECORD LOST: the group's offset passes a record that was not processed"),
            () => None,
        }
    }

    /// Whether the changelog has lost its tail and the group's text does not tell, after a reset or a late copy: then
    /// the row is one ahead for all that anybody can know.
    fn is_lost_unseen(&self, state: &State) -> bool {
        let is_told = (state.resets, state.copies) == (self.faults.resets, self.faults.copies);
        state.went_changelog && !is_told
    }

    fn mark_changelog(&self, state: &mut State, one: Pending) -> Option<Wrong> {
        let change = one.change;
        let breaks = change.former != state.changelog.token && !state.went_changelog;
        state.changelog_before = state.changelog;
        state.changelog = Changelog { token: change.token, past: change.past };
        state.owners.iter_mut().for_each(|owner| owner.store.lacks = (owner.store.lacks + 1).min(2));
        breaks.then_some("CHAIN BROKEN: what Kafka got was decided on another state")
    }

    fn mark_group(&self, state: &mut State, one: Pending) -> Option<Wrong> {
        if one.late {
            return None;
        }
        let undone = state.is_forward && one.change.offset < self.records;
        state.group_before = state.group;
        let id = if one.kind == Kind::Release || !self.claims { 0 } else { one.id };
        state.group = Committed { offset: one.change.offset, token: one.change.token, id };
        undone.then_some("RESET UNDONE: the group's offset, set forward by hand, is taken back")
    }

    /// An instance dies, gets the partition, or is in a new generation.
    fn instance(&self, state: &State, who: u8, go: Go) {
        let owner = &state.owners[usize::from(who)];
        if owner.phase != Phase::Idle {
            for loses in [false, true] {
                let mut to = *state;
                to.drop_to(who, Phase::Idle);
                let dead = to.owner(who);
                (dead.renewed, dead.last) = (false, 0);
                if loses {
                    dead.store = Store { lacks: 2, ..Store::default() };
                }
                let what = if loses { KILLED_WITH_DISK } else { KILLED };
                if !loses || (self.faults.disks && owner.store.token != 0) {
                    go(Label { who, what, token: 0 }, to, None);
                }
            }
        }
        if state.current != who || owner.phase == Phase::Idle {
            let mut to = *state;
            to.current = who;
            to.drop_to(who, Phase::Settle);
            let holder = state.owners.get(usize::from(state.current));
            let is_free = holder.is_none_or(|holder| holder.phase == Phase::Idle);
            let what = if is_free { "gets the partition" } else { MOVED };
            go(Label { who, what, token: 0 }, to, None);
        }
        let is_under_way =
            matches!(owner.phase, Phase::Judged | Phase::Effects | Phase::Committing | Phase::Kafka | Phase::Written);
        if self.faults.failures && state.current == who && is_under_way && !owner.old {
            let mut to = *state;
            to.owner(who).old = true;
            go(Label { who, what: NEW_GENERATION, token: 0 }, to, None);
        }
    }

    /// Resets, deletes, late copies.
    fn people(&self, state: &State, go: Go) {
        if state.resets > 0 {
            for (what, offset) in [(RESET, self.reset_to()), (DELETED, GONE)] {
                let mut to = *state;
                to.resets -= 1;
                to.current = NOBODY;
                to.group = Committed { offset, token: BLANK, id: 0 };
                to.is_forward = offset == self.records;
                to.went_forward |= to.is_forward;
                to.pending.iter_mut().flatten().for_each(|one| one.late = true);
                go(outside(what, 0), to, None);
            }
        }
        if state.copies > 0 && state.group != state.group_before && state.group.token != BLANK {
            let mut to = *state;
            to.copies -= 1;
            to.is_forward = false;
            to.group = state.group_before;
            go(outside(COPIED, to.group.token), to, None);
        }
    }

    fn reset_to(&self) -> u8 {
        if self.faults.forwards { self.records } else { 0 }
    }

    /// Database and changelog go back in time.
    fn time(&self, state: &State, go: Go) {
        if state.backups > 0 {
            let mut to = *state;
            to.backups -= 1;
            to.backup = Some(state.row);
            go(outside("database: a backup is taken", state.row.redo.token), to, None);
        }
        let backs = [(FAILED_OVER, state.row_before)];
        let backs = backs.into_iter().chain([(RESTORED, state.backup)]);
        for (what, row) in backs {
            if let Some(row) = row.filter(|row| state.database_back > 0 && *row != state.row) {
                go(outside(what, row.redo.token), self.database_back(state, row), None);
            }
        }
        if state.changelog_back > 0 && state.changelog != state.changelog_before {
            let mut to = *state;
            to.changelog_back -= 1;
            to.went_changelog = true;
            to.changelog = state.changelog_before;
            for owner in &mut to.owners {
                let is_to_apply = owner.phase == Phase::Apply && owner.change.token == state.changelog.token;
                owner.store.beyond |= owner.store.lacks < 2 || is_to_apply;
            }
            go(outside(TAIL_LOST, to.changelog.token), to, None);
        }
    }

    fn database_back(&self, state: &State, row: Row) -> State {
        let mut to = *state;
        to.database_back -= 1;
        to.went_database = true;
        (to.row, to.row_before) = (row, None);
        if let Some(open) = to.open.take() {
            self.on_rolled_back(&mut to, open.who);
        }
        to
    }
}

impl State {
    /// A partition has its marker; the transaction is over with the last one.
    fn mark(&mut self, at: usize, marked: impl Fn(&mut Pending)) {
        self.pending[at] = self.pending[at].and_then(|mut one| {
            marked(&mut one);
            (one.in_changelog || one.in_group).then_some(one)
        });
    }
}
