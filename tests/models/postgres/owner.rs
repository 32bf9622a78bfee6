//! What an instance does: the restore, and a commit up to the database's.

use super::outside::{ANSWER_LOST, CLAIM_LOST, STATEMENT_FAILS};
use super::state::{BLANK, Change, FRESH, GONE, Kind, Open, Owner, Phase, Row, State, Store};
use super::{Label, Postgres};
use crate::mistakes::Mistake;
use crate::search::Wrong;

pub const ONE_AHEAD: &str = "compares: the row is one ahead";
pub const FENCED: &str = "step 2: no row, fenced; restores";
pub const LOOKED_AGAIN: &str = "looks again at the row: another is at work";
pub const SWEEPS: &str = "sweeps";
pub const REFUSED: &str = "looks again at the row: refused";
pub const REFUSED_CHANGELOG: &str = "refused: the changelog has lost records";

/// Where steps are reported.
pub type Go<'a> = &'a mut dyn FnMut(Label, State, Option<Wrong>);

impl Postgres {
    pub(super) fn owner_steps(&self, state: &State, who: u8, go: Go) {
        let owner = &state.owners[usize::from(who)];
        match owner.phase {
            Phase::Idle | Phase::Apply | Phase::Refused => {}
            Phase::Settle => self.settle(state, who, go),
            Phase::Read => self.read(state, who, go),
            Phase::Claim => self.claim(state, who, go),
            Phase::Compare => self.compare(state, who, go),
            Phase::LookAgain => self.look_again(state, who, go),
            Phase::LookAtRow => self.look_at_row(state, who, go),
            Phase::Ready => self.judge_batch(state, who, go),
            Phase::Judged => self.update(state, who, go),
            Phase::Effects => self.send_commit(state, who, go),
            Phase::Committing => self.lose_answer(state, who, go),
            Phase::Kafka => self.begin(state, who, go),
            Phase::Written => self.offer(state, who, go),
            Phase::Offered => self.ask(state, who, go),
            Phase::Ending => self.lose_outcome(state, who, go),
        }
        if owner.phase == Phase::Apply {
            self.apply(state, who, go);
        }
    }

    /// Fences the id that the group's text names, or waits until the group's offset is stable and reads it.
    fn settle(&self, state: &State, who: u8, go: Go) {
        let named = state.group.id;
        if named != 0 && named != state.id_of(who) {
            let mut to = *state;
            if to.fence(named, who) {
                go(Label { who, what: "fences the id that the group's text names", token: 0 }, to, None);
            }
        }
        let waits = state.pending.iter().flatten().any(|one| one.in_group);
        if waits && !self.errs(Mistake::Unsettled) {
            return;
        }
        let mut to = *state;
        to.await_changelog(who);
        let owner = to.owner(who);
        (owner.offset, owner.text, owner.named) = (state.group.offset, state.group.token, state.group.id);
        owner.phase = Phase::Read;
        go(Label { who, what: "reads the group's offset", token: state.group.token }, to, None);
    }

    /// Reads the changelog, once what was open at its end has settled.
    fn read(&self, state: &State, who: u8, go: Go) {
        if state.awaits_changelog(who) && !self.errs(Mistake::Unsettled) {
            return;
        }
        let mut to = *state;
        let owner = to.owner(who);
        let log = state.changelog;
        let held = self.is_held(owner, state);
        let is_trusted = self.errs(Mistake::StoreTrusted) && owner.store.token == owner.text;
        if (!held || owner.store.beyond) && !self.errs(Mistake::ChangelogAdopted) {
            // A text from before a reset says nothing of a changelog from after it: doubted, asked again.
            let is_text = (state.group.offset, state.group.token) == (owner.offset, owner.text);
            if !is_text && !owner.store.beyond {
                to.drop_to(who, Phase::Settle);
                return go(Label { who, what: "doubts what it has read; reads again", token: log.token }, to, None);
            }
            owner.phase = Phase::Refused;
            let wrong = (!state.went_changelog).then_some("FALSE REFUSAL: the changelog has lost nothing");
            return go(Label { who, what: REFUSED_CHANGELOG, token: log.token }, to, wrong);
        }
        // A store that ends with the changelog's last transaction is used as it is, another reads what it lacks.
        if owner.store.token != log.token && !is_trusted {
            owner.store = Store { token: log.token, past: log.past, lacks: 1, beyond: false };
        }
        owner.kafka = match owner.text {
            BLANK => owner.store.token,
            text if self.errs(Mistake::GroupText) => text,
            _ => owner.store.token,
        };
        if owner.offset == GONE {
            owner.offset = State::end_of(owner.store.past, self.records);
        }
        owner.phase = Phase::Claim;
        go(Label { who, what: "reads the position record", token: log.token }, to, None);
    }

    /// Whether the changelog holds the transaction that the group's text names: it is its last one, or it covers the
    /// record before the offset, or says that processing started there.
    fn is_held(&self, owner: &Owner, state: &State) -> bool {
        let log = state.changelog;
        let covers = |at: u8| log.past >> at & 1 == 1;
        let starts = || owner.offset == 0 && log.token != 0;
        owner.text == BLANK
            || owner.text == log.token
            || starts()
            || (owner.offset > 0 && covers(owner.offset - 1))
            || covers(owner.offset)
    }

    /// Raises the epoch, which waits for the holder of the row's lock, and reads the row.
    fn claim(&self, state: &State, who: u8, go: Go) {
        let mut to = *state;
        let what = if self.errs(Mistake::NoClaim) {
            "reads the row"
        } else if state.open.is_some() {
            return;
        } else {
            to.keep_row();
            to.row.epoch += 1;
            let mut lost = to;
            lost.drop_to(who, Phase::Settle);
            go(Label { who, what: CLAIM_LOST, token: to.row.redo.token }, lost, None);
            "claims the row"
        };
        let row = to.row;
        let owner = to.owner(who);
        (owner.epoch, owner.row, owner.phase) = (row.epoch, row, Phase::Compare);
        go(Label { who, what, token: row.redo.token }, to, None);
    }

    fn compare(&self, state: &State, who: u8, go: Go) {
        let mut to = *state;
        let owner = to.owner(who);
        let (row, kafka) = (owner.row, owner.kafka);
        let mut wrong = None;
        let what = if row.is_at(kafka) {
            owner.phase = Phase::Ready;
            if row.done != self.identities(owner.store.past) {
                wrong = Some("SILENT: the tokens are equal, and the effects are not those that Kafka knows of");
            }
            "compares: the row is where Kafka is"
        } else if row.is_after(kafka) || self.errs(Mistake::RedoUncompared) {
            self.take_redo(owner, row);
            ONE_AHEAD
        } else if self.errs(Mistake::NoSecondLook) {
            owner.phase = Phase::Refused;
            wrong = self.unjust(state);
            "compares: refused"
        } else {
            owner.phase = Phase::LookAgain;
            owner.row = if self.wary { row } else { Row::default() };
            to.await_changelog(who);
            "compares: neither; looks once more"
        };
        go(Label { who, what, token: kafka }, to, wrong);
    }

    fn take_redo(&self, owner: &mut Owner, row: Row) {
        if self.errs(Mistake::NoRedo) {
            owner.phase = Phase::Ready;
            owner.store.token = row.redo.token;
            return;
        }
        (owner.phase, owner.kind, owner.change) = (Phase::Kafka, Kind::Redo, row.redo);
        if self.errs(Mistake::RedoAnew) {
            let end = (owner.offset + self.batch_max).min(self.records);
            let (former, token) = (row.redo.former, row.redo.token);
            owner.change = self.batch(owner, end);
            (owner.change.former, owner.change.token) = (former, token);
        }
        // The group is not where the batch began: somebody has reset it, and its offset stays where it was put.
        let is_elsewhere = if self.errs(Mistake::RedoOverOldReset) {
            owner.text == BLANK
        } else {
            owner.offset != owner.change.start && !self.errs(Mistake::RedoOverReset)
        };
        if is_elsewhere {
            owner.change.offset = owner.offset;
        }
    }

    /// The second look at Kafka: settled, as the first one was.
    fn look_again(&self, state: &State, who: u8, go: Go) {
        if state.awaits_changelog(who) && !self.errs(Mistake::SecondLookUnsettled) {
            return;
        }
        let mut to = *state;
        let owner = to.owner(who);
        (owner.kafka, owner.phase) = (state.changelog.token, Phase::LookAtRow);
        go(Label { who, what: "looks again at the position record", token: state.changelog.token }, to, None);
    }

    fn look_at_row(&self, state: &State, who: u8, go: Go) {
        let mut to = *state;
        let owner = &state.owners[usize::from(who)];
        let fits = state.row.is_at(owner.kafka) || state.row.is_after(owner.kafka);
        let has_moved = self.wary && !state.row.is_at(owner.row.redo.token);
        if fits || has_moved || state.row.epoch != owner.epoch {
            to.drop_to(who, Phase::Settle);
            return go(Label { who, what: LOOKED_AGAIN, token: 0 }, to, None);
        }
        to.owner(who).phase = Phase::Refused;
        let label = Label { who, what: REFUSED, token: state.row.redo.token };
        go(label, to, self.unjust(state));
    }

    /// What is wrong with refusing now.
    fn unjust(&self, state: &State) -> Option<Wrong> {
        let went = state.went_database || state.went_changelog;
        (!went).then_some("FALSE REFUSAL: nothing has gone back in time")
    }

    /// Step 1, or what else an owner at work may do.
    fn judge_batch(&self, state: &State, who: u8, go: Go) {
        let owner = &state.owners[usize::from(who)];
        let has_moved = state.row.epoch != owner.epoch || !state.row.is_at(owner.store.token);
        if has_moved && !self.errs(Mistake::NoIdleLook) {
            let mut to = *state;
            to.drop_to(who, Phase::Settle);
            go(Label { who, what: "idle: looks at its row, which has changed", token: 0 }, to, None);
        }
        let has_work = owner.offset < self.records || state.sweeps > 0;
        let is_named = !self.claims || owner.text == BLANK || owner.named == state.id_of(who);
        let mut start = |kind, change: Change, what| {
            let mut to = *state;
            if kind == Kind::Work && change.out == 0 && change.offset == owner.offset {
                to.sweeps -= 1;
            }
            let next = to.owner(who);
            (next.kind, next.change) = (kind, change);
            let is_alone = change.out == 0 && change.offset == owner.offset && self.errs(Mistake::SweepWithoutRow);
            let to_kafka = !kind.writes() || is_alone || self.errs(Mistake::KafkaFirst);
            next.phase = if to_kafka { Phase::Kafka } else { Phase::Judged };
            if kind == Kind::Release {
                to.releases -= 1;
            }
            go(Label { who, what, token: change.token }, to, None);
        };
        if has_work && !is_named {
            return start(Kind::Claim, Change::default(), "claims the group's offset");
        }
        if state.releases > 0 && owner.text != BLANK && is_named {
            start(Kind::Release, Change::default(), "releases the group's offset");
        }
        for end in owner.offset + 1..=(owner.offset + self.batch_max).min(self.records) {
            start(Kind::Work, self.batch(owner, end), WORK[usize::from(end - owner.offset) - 1]);
        }
        if state.sweeps > 0 {
            start(Kind::Work, self.batch(owner, owner.offset), SWEEPS);
        }
    }

    /// What a batch that ends before a record changes.
    fn batch(&self, owner: &Owner, end: u8) -> Change {
        let read = ((1_u16 << end) - (1_u16 << owner.offset)) as u8;
        let mut past = owner.store.past | read;
        // An empty range of the position record: processing started there.
        if owner.offset == self.records && owner.store.past >> (self.records - 1) & 1 == 0 {
            past |= 1 << self.records;
        }
        let token = if owner.last == 0 { FRESH } else { owner.last };
        let out = read & !owner.store.past;
        Change { token, former: owner.store.token, start: owner.offset, offset: end, past, out }
    }

    /// Step 2: waits for the row's lock.
    fn update(&self, state: &State, who: u8, go: Go) {
        if state.open.is_some() {
            return;
        }
        let owner = &state.owners[usize::from(who)];
        let is_mine = self.errs(Mistake::EpochNotCompared) || state.row.epoch == owner.epoch;
        let is_former = self.errs(Mistake::TokenNotCompared) || state.row.is_at(owner.change.former);
        let hit = is_mine && is_former;
        let mut to = *state;
        if !hit && !self.errs(Mistake::CountsIgnored) {
            to.drop_to(who, Phase::Settle);
            return go(Label { who, what: FENCED, token: 0 }, to, None);
        }
        let differs = state.row.done != self.identities(owner.store.past);
        let wrong = (hit && differs && !self.errs(Mistake::KafkaFirst))
            .then_some("SILENT: step 2 has found its row, and the effects are not those that the store knows of");
        to.open = Some(Open { who, change: owner.change, hit, sent: false, failed: false });
        to.owner(who).phase = Phase::Effects;
        go(Label { who, what: "step 2: BEGIN, UPDATE, effects", token: owner.change.token }, to, wrong);
    }

    /// Step 3, pipelined: also after a statement that fails.
    fn send_commit(&self, state: &State, who: u8, go: Go) {
        for failed in [false, true] {
            let mut to = *state;
            let Some(open) = &mut to.open else { continue };
            (open.sent, open.failed) = (true, failed);
            to.owner(who).phase = Phase::Committing;
            let what = if failed { STATEMENT_FAILS } else { "step 3: COMMIT" };
            if !failed || self.faults.failures {
                go(Label { who, what, token: 0 }, to, None);
            }
        }
    }

    fn lose_answer(&self, state: &State, who: u8, go: Go) {
        let mut to = *state;
        self.keep_token(&mut to, who);
        to.drop_to(who, Phase::Settle);
        go(Label { who, what: ANSWER_LOST, token: 0 }, to, None);
    }

    /// By mistake, the next attempt has the token of this one.
    pub(super) fn keep_token(&self, state: &mut State, who: u8) {
        let owner = state.owner(who);
        if self.errs(Mistake::SameToken) && owner.kind == Kind::Work {
            owner.last = owner.change.token;
        }
    }
}

/// The names of step 1, by the size of the batch.
const WORK: [&str; 4] =
    ["step 1: judges 1 record", "step 1: judges 2 records", "step 1: judges 3 records", "step 1: judges 4 records"];
