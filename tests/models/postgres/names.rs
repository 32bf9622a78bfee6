//! Equal moments are equal states: tokens and epochs are numbered anew, what can no longer matter is forgotten.

use super::state::{BLANK, Change, FRESH, Owner, Phase, Row, State, Store};

/// Numbers tokens in the order in which they are met, epochs by rank.
pub fn renumber(state: &mut State) {
    forget(state);
    // No two of them have the same id.
    state.pending.sort_by_key(|one| one.map_or(u8::MAX, |one| one.id));
    renumber_tokens(state);
    renumber_epochs(state);
}

fn forget(state: &mut State) {
    if state.copies == 0 {
        state.group_before = state.group;
    }
    if state.changelog_back == 0 {
        state.changelog_before = state.changelog;
        state.owners.iter_mut().for_each(|owner| owner.store.lacks = 1);
    }
    if state.database_back == 0 {
        state.row_before = None;
        state.backup = None;
    }
    let reads: u8 = (0..state.owners.len())
        .filter(|who| matches!(state.owners[*who].phase, Phase::Read | Phase::LookAgain))
        .fold(0, |all, who| all | 1 << who);
    state.pending.iter_mut().flatten().for_each(|one| one.awaited &= reads);
    for who in 0..state.owners.len() {
        let id = state.id_of(who as u8);
        let is_released = state.releases == 0;
        let is_held = is_referred_to(state, state.owners[who].store.token);
        forget_of_owner(&mut state.owners[who], id, is_released, is_held);
    }
}

fn forget_of_owner(owner: &mut Owner, id: u8, never_releases: bool, is_held: bool) {
    if !matches!(owner.phase, Phase::Compare | Phase::LookAgain | Phase::LookAtRow) {
        owner.row = Row::default();
    }
    if !matches!(owner.phase, Phase::Claim | Phase::Compare | Phase::LookAtRow) {
        owner.kafka = 0;
    }
    match owner.phase {
        Phase::Idle | Phase::Settle | Phase::Read => {
            owner.renewed &= owner.phase != Phase::Idle;
            // Nothing will ever end with that transaction again: such a store is as good as none.
            if !is_held && !owner.store.beyond {
                owner.store = Store { lacks: owner.store.lacks, ..Store::default() };
            }
        }
        _ => {
            if owner.named != id {
                owner.named = 0;
            } else if owner.text != BLANK && never_releases {
                owner.text = owner.store.token;
            }
        }
    }
}

/// Whether anything but stores knows of a token.
fn is_referred_to(state: &State, token: u8) -> bool {
    let rows = [Some(state.row), state.row_before, state.backup];
    let logs = [state.changelog.token, state.changelog_before.token, state.group.token, state.group_before.token];
    let mut known = state.pending.iter().flatten().map(|one| one.change.token);
    logs.contains(&token)
        || known.any(|known| known == token)
        || rows.iter().flatten().any(|row| row.redo.token == token || row.redo.former == token)
        || state.open.is_some_and(|open| open.change.token == token || open.change.former == token)
        || state.owners.iter().any(|owner| [owner.text, owner.kafka, owner.last, owner.change.token].contains(&token))
}

struct Tokens {
    known: [u8; 256],
    next: u8,
}

impl Tokens {
    fn token(&mut self, token: &mut u8) {
        let known = &mut self.known[usize::from(*token)];
        if *known == FRESH {
            *known = self.next;
            self.next += 1;
        }
        *token = *known;
    }

    fn change(&mut self, change: &mut Change) {
        self.token(&mut change.token);
        self.token(&mut change.former);
    }
}

fn renumber_tokens(state: &mut State) {
    let mut tokens = Tokens { known: [FRESH; 256], next: 1 };
    tokens.known[0] = 0;
    tokens.known[usize::from(BLANK)] = BLANK;
    tokens.token(&mut state.changelog.token);
    tokens.change(&mut state.row.redo);
    tokens.token(&mut state.group.token);
    tokens.token(&mut state.group_before.token);
    tokens.token(&mut state.changelog_before.token);
    state.row_before.iter_mut().for_each(|row| tokens.change(&mut row.redo));
    state.backup.iter_mut().for_each(|row| tokens.change(&mut row.redo));
    state.open.iter_mut().for_each(|open| tokens.change(&mut open.change));
    for owner in &mut state.owners {
        tokens.token(&mut owner.store.token);
        tokens.token(&mut owner.text);
        tokens.token(&mut owner.kafka);
        tokens.token(&mut owner.last);
        tokens.change(&mut owner.row.redo);
        tokens.change(&mut owner.change);
    }
    state.pending.iter_mut().flatten().for_each(|one| tokens.change(&mut one.change));
}

/// Keeps what epochs are equal, and the distances that a database which went back may make good.
fn renumber_epochs(state: &mut State) {
    let rows = [Some(state.row), state.row_before, state.backup];
    let lowest = rows.iter().flatten().map(|row| row.epoch).min().unwrap_or_default();
    let mut all: Vec<u8> = rows.iter().flatten().map(|row| row.epoch).collect();
    all.extend(state.owners.iter().flat_map(|owner| [owner.epoch, owner.row.epoch]));
    all.retain(|epoch| *epoch >= lowest);
    all.sort_unstable();
    all.dedup();
    let mut names = [0_u8; 256];
    let (mut name, mut before) = (1, lowest);
    for epoch in all {
        name += (epoch - before).min(2);
        before = epoch;
        names[usize::from(epoch)] = name;
    }
    let rename = |epoch: &mut u8| *epoch = names[usize::from(*epoch)];
    rename(&mut state.row.epoch);
    state.row_before.iter_mut().for_each(|row| rename(&mut row.epoch));
    state.backup.iter_mut().for_each(|row| rename(&mut row.epoch));
    for owner in &mut state.owners {
        rename(&mut owner.epoch);
        rename(&mut owner.row.epoch);
    }
}
