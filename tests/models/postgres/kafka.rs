//! What an instance does in Kafka: step 4, redos, claims and releases of the group's offset, and step 5.

use super::outside::OUTCOME_LOST;
use super::owner::Go;
use super::state::{BLANK, Change, End, Kind, NOBODY, Pending, Phase, State};
use super::{Label, Postgres};
use crate::mistakes::Mistake;

pub const ANOTHER_GENERATION: &str = "Kafka: another generation; aborts, restores";
pub const CLAIMED: &str = "the group's offset is claimed";
pub const RELEASED: &str = "the group's offset is released; leaves";

impl Postgres {
    /// Step 4, or another Kafka transaction: begins it and writes to the changelog.
    pub(super) fn begin(&self, state: &State, who: u8, go: Go) {
        let mut to = *state;
        let owner = &state.owners[usize::from(who)];
        let id = state.id_of(who);
        if owner.fenced {
            return self.on_fenced(state, who, go);
        }
        // A redo is its player's transaction: the group's text has to name the player first.
        if self.claims && owner.kind == Kind::Redo && owner.text != BLANK && owner.named != id {
            to.owner(who).kind = Kind::Claim;
            return go(Label { who, what: "claims the group's offset for a redo", token: 0 }, to, None);
        }
        if owner.kind.writes() && owner.store.beyond && !self.errs(Mistake::ChangelogAdopted) {
            self.keep_token(&mut to, who);
            to.give_up(who);
            return go(Label { who, what: "step 4: the changelog has lost records; restores", token: 0 }, to, None);
        }
        if state.pending.iter().flatten().any(|one| one.id == id) {
            return self.take_id(state, who, go);
        }
        let Some(free) = state.pending.iter().position(Option::is_none) else { return };
        let writes = owner.kind.writes();
        let change =
            if writes { owner.change } else { Change { token: owner.text, offset: owner.offset, ..Change::default() } };
        if !writes && !self.is_member(state, who) {
            to.give_up(who);
            return go(Label { who, what: "Kafka: another generation; restores", token: 0 }, to, None);
        }
        to.pending[free] = Some(Pending {
            who,
            id,
            kind: owner.kind,
            change,
            in_changelog: writes,
            in_group: !writes,
            end: End::Open,
            late: false,
            awaited: 0,
        });
        to.owner(who).phase = if writes { Phase::Written } else { Phase::Offered };
        let what = match owner.kind {
            Kind::Work => "step 4: writes dead letters and changelog",
            Kind::Redo => "redo: writes dead letters and changelog",
            Kind::Claim => "claim of the group's offset: sent",
            Kind::Release => "release of the group's offset: sent",
        };
        go(Label { who, what, token: change.token }, to, None);
    }

    /// Taking its id ends what an earlier incarnation has left open under it; what is decided has to end by itself.
    fn take_id(&self, state: &State, who: u8, go: Go) {
        let mut to = *state;
        let id = state.id_of(who);
        let mine = |one: &&mut Option<Pending>| one.is_some_and(|one| one.id == id && one.end != End::Committed);
        if let Some(one) = to.pending.iter_mut().find(mine) {
            *one = None;
            go(Label { who, what: "takes its id: aborts what was open under it", token: 0 }, to, None);
        }
    }

    /// Whether the group takes the owner's offsets: the generation is that of step 1.
    fn is_member(&self, state: &State, who: u8) -> bool {
        let owner = &state.owners[usize::from(who)];
        (state.current == who && !owner.old) || self.errs(Mistake::LaterGeneration)
    }

    fn on_fenced(&self, state: &State, who: u8, go: Go) {
        let mut to = *state;
        self.keep_token(&mut to, who);
        to.owner(who).renewed ^= true;
        to.give_up(who);
        go(Label { who, what: "Kafka: its id is fenced; takes another one, restores", token: 0 }, to, None);
    }

    /// Step 4: the offsets, with the group's generation.
    pub(super) fn offer(&self, state: &State, who: u8, go: Go) {
        if state.owners[usize::from(who)].fenced {
            return self.on_fenced(state, who, go);
        }
        let mut to = *state;
        let mine = |one: &&mut Option<Pending>| one.is_some_and(|one| one.who == who);
        let Some(pending) = to.pending.iter_mut().find(mine) else { return };
        if !self.is_member(state, who) {
            *pending = None;
            self.keep_token(&mut to, who);
            to.give_up(who);
            return go(Label { who, what: ANOTHER_GENERATION, token: 0 }, to, None);
        }
        pending.iter_mut().for_each(|one| one.in_group = true);
        to.owner(who).phase = Phase::Offered;
        go(Label { who, what: "step 4: sends the offsets", token: 0 }, to, None);
    }

    pub(super) fn ask(&self, state: &State, who: u8, go: Go) {
        if state.owners[usize::from(who)].fenced {
            return self.on_fenced(state, who, go);
        }
        let mut to = *state;
        to.pending.iter_mut().flatten().filter(|one| one.who == who).for_each(|one| one.end = End::Asked);
        to.owner(who).phase = Phase::Ending;
        go(Label { who, what: "step 4: asks for the commit", token: 0 }, to, None);
    }

    /// The owner never uses that id's producer again.
    pub(super) fn lose_outcome(&self, state: &State, who: u8, go: Go) {
        let mut to = *state;
        self.keep_token(&mut to, who);
        to.owner(who).renewed ^= true;
        to.drop_to(who, Phase::Settle);
        go(Label { who, what: OUTCOME_LOST, token: 0 }, to, None);
    }

    /// Step 5, once Kafka has answered.
    pub(super) fn apply(&self, state: &State, who: u8, go: Go) {
        let mut to = *state;
        let id = state.id_of(who);
        let owner = to.owner(who);
        let change = owner.change;
        let what = match owner.kind {
            Kind::Claim => {
                owner.named = id;
                let is_redo = change.token != 0;
                (owner.kind, owner.phase) =
                    if is_redo { (Kind::Redo, Phase::Kafka) } else { (Kind::Work, Phase::Ready) };
                CLAIMED
            }
            Kind::Release => {
                to.drop_to(who, Phase::Idle);
                to.current = if state.current == who { NOBODY } else { state.current };
                RELEASED
            }
            Kind::Work | Kind::Redo => {
                owner.store.token = change.token;
                if owner.kind == Kind::Work || !self.errs(Mistake::RedoNotStored) {
                    owner.store.past = change.past;
                }
                owner.store.lacks = owner.store.lacks.saturating_sub(1);
                (owner.offset, owner.text, owner.named) = (change.offset, change.token, id);
                owner.last = 0;
                let is_first = owner.kind == Kind::Work && self.errs(Mistake::KafkaFirst);
                owner.phase = if is_first { Phase::Judged } else { Phase::Ready };
                owner.kind = Kind::Work;
                if !is_first {
                    owner.change = Change::default();
                }
                "step 5: applies to the store"
            }
        };
        go(Label { who, what, token: change.token }, to, None);
    }
}
