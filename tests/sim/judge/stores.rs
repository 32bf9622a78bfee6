//! What stores hold after their process has ended, compared with the changelog's history.
//!
//! A store that names a transaction is the changelog folded up to that transaction, byte for byte. One that names
//! none is being restored: it may be ahead of its position, if one of its files was kept and the position was not,
//! but nothing in it is older than its position, and everything in it was committed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use rocksdb::{DB, IteratorMode, Options};

use crate::kafka::{Partition, Record};
use crate::stores::Stores;

use super::bytes::{self, POSITION_KEY, STORE_META_KEY, StoreMeta, Token};
use super::history::{Changelog, History};
use super::model::State;
use super::rules::Rules;
use super::{Ruling, coverage, partition, runs, text};

/// A store's content, including its meta.
#[derive(Clone)]
pub struct Held {
    /// The partition that its folder is named after; if folders were swapped, it holds another's.
    pub folder: Partition,
    /// Whether it is set aside while another is built in its place.
    pub is_aside: bool,
    pub state: State,
}

/// What an instance's stores held when a process started and when it had ended.
pub struct Life {
    pub before: Vec<Held>,
    pub after: Vec<Held>,
}

/// Reads an instance's stores, which nobody may have open, from their files: under the folder names of
/// src/state/dir.rs, and with RocksDB alone. Unreadable stores are left out.
pub fn read(stores: &Stores, rules: &Rules, partitions: i32) -> Vec<Held> {
    let mut all = Vec::new();
    for number in 0..partitions {
        let place = stores.slot().join(rules.name).join(format!("{}-{number}", rules.input));
        for (is_aside, dir) in [(false, place.clone()), (true, PathBuf::from(format!("{}.aside", place.display())))] {
            let folder = Partition::new(rules.input, number);
            let state: Option<State> = match stores {
                Stores::Simulated(disk) => {
                    let copy = disk.copy(&dir);
                    Some(copy.records().map(|(key, value)| (key.to_vec(), value.to_vec())).collect())
                }
                // Opening would create a missing folder.
                Stores::Real(..) if dir.exists() => read_real(&dir).ok(),
                Stores::Real(..) => None,
            };
            let state = state.filter(|state| !is_aside || !state.is_empty());
            all.extend(state.map(|state| Held { folder, is_aside, state }));
        }
    }
    all
}

/// Checks that what a store held when a process started is still there when it has ended, in its place or set aside:
/// unchanged, or with what was committed since, and the result of a transaction if it was one. A whole store in its
/// place is enough.
pub fn check_kept(lives: &[Life], history: &History, ruling: &mut Ruling) {
    for Life { before, after } in lives {
        let of = |all: &[Held], folder: &Partition, is_aside: bool| {
            all.iter().find(|held| held.folder == *folder && held.is_aside == is_aside).map(|held| held.state.clone())
        };
        for folder in before.iter().filter(|held| !held.is_aside).map(|held| &held.folder) {
            let Some(old) = of(before, folder, true).or_else(|| of(before, folder, false)) else { continue };
            // Another partition's store, after a swap, is not used, and goes once another was whole; that one may be
            // in a restore again.
            if meta_of(&old).is_none_or(|meta| meta.partition != folder.number) {
                continue;
            }
            let (built, set_aside) = (of(after, folder, false), of(after, folder, true));
            let is_whole = built.as_ref().and_then(meta_of).is_some_and(|meta| meta.token.is_some());
            if is_whole {
                continue;
            }
            let names_one = |state: &State| meta_of(state).is_some_and(|meta| meta.token.is_some());
            if names_one(&old) && !set_aside.as_ref().is_some_and(names_one) {
                let expected = "a store that is the result of a transaction, in its place or set aside";
                ruling.report(11, folder, None, expected, "neither, although there was one");
            }
            let lost = |now: &State| lost_of(&old, now, history);
            let missed = [built.unwrap_or_default(), set_aside.unwrap_or_default()].map(|now| lost(&now));
            if let [Some(key), Some(_)] = &missed {
                let expected = format!("{} in a store, until another is whole", text(Some(key)));
                ruling.report(11, folder, None, expected, "neither the store nor one set aside that holds it");
            }
        }
    }
}

fn meta_of(state: &State) -> Option<StoreMeta> {
    let meta = state.get(STORE_META_KEY)?.clone();
    runs::decoded(move || bytes::store_meta(&meta))
}

/// The offset up to which a store that is the result of a transaction has applied its changelog. If the changelog has
/// lost its last records, other records may have replaced those that the store had passed: it continues after its
/// position record.
fn applied(meta: &StoreMeta, changelog: &Changelog) -> i64 {
    let behind_position = meta.position_offset.filter(|_| changelog.cut.is_some()).map(|at| at + 1);
    behind_position.map_or(meta.changelog_offset, |behind| behind.min(meta.changelog_offset))
}

/// A key that was in the store and is gone, although nothing was committed in its place.
fn lost_of(old: &State, now: &State, history: &History) -> Option<Vec<u8>> {
    let partition = meta_of(old)?.partition;
    let was_committed = |key: &[u8], value: Option<&Vec<u8>>| {
        history.changelogs(partition).any(|(_, changelog)| {
            let is_it = |record: &Record| {
                record.key.as_deref() == Some(key) && record.value.as_deref() == value.map(Vec::as_slice)
            };
            changelog.is_cut || changelog.records.values().any(|written| is_it(&written.record))
        })
    };
    let entries = old.iter().filter(|(key, _)| key[..] != *STORE_META_KEY);
    let mut gone = entries.filter(|(key, value)| {
        let found = now.get(*key);
        found != Some(*value) && !was_committed(key, found)
    });
    gone.next().map(|(key, _)| key.clone())
}

fn read_real(dir: &Path) -> Result<State, rocksdb::Error> {
    let store = DB::open_for_read_only(&Options::default(), dir, false)?;
    store.iterator(IteratorMode::Start).map(|found| found.map(|(key, value)| (key.into(), value.into()))).collect()
}

/// Compares stores of any instances with what was committed.
pub fn judge(stores: Vec<Held>, history: &History, ruling: &mut Ruling) {
    let mut by_token: BTreeMap<Token, State> = BTreeMap::new();
    for Held { folder, mut state, .. } in stores {
        let Some(meta) = state.remove(STORE_META_KEY) else {
            if let Some(key) = state.keys().next() {
                ruling.report(5, &folder, None, "nothing in a store without a position", text(Some(key)));
            }
            continue;
        };
        let Some(meta) = runs::decoded(|| bytes::store_meta(&meta)) else {
            ruling.report(5, &folder, None, "a store's position", format!("{meta:02x?}"));
            continue;
        };
        let Some(changelog) = history.changelog(meta.partition, u128::from_be_bytes(meta.changelog_id)) else {
            let found = format!("partition {}, topic {:02x?}", meta.partition, meta.changelog_id);
            ruling.report(5, &folder, None, "a position in a changelog that existed", found);
            continue;
        };
        if changelog.is_cut {
            continue;
        }
        if history.tombstones_go {
            drop_swept(&mut state, (&meta, changelog));
        }
        let Some(token) = meta.token else {
            check_restoring(&folder, &meta, (&state, changelog), ruling);
            continue;
        };
        take_superseded(&mut state, (&meta, changelog));
        match by_token.get(&token) {
            Some(same) if *same != state => {
                let expected = format!("what another store of {} holds", token.text());
                ruling.report(9, &folder, None, expected, "other bytes");
            }
            Some(_) => {}
            None => drop(by_token.insert(token, state.clone())),
        }
        check_current(&folder, (&meta, token), (&state, changelog), ruling);
    }
}

/// Removes what has a tombstone below the store's position. If the cleaner removes tombstones early, a delayed
/// restore may have missed some: what they would have removed has expired and has no effect.
fn drop_swept(state: &mut State, (meta, changelog): (&StoreMeta, &Changelog)) {
    let is_swept = |key: &[u8], found: &[u8]| {
        let below = changelog.records.range(..meta.changelog_offset);
        let mut of = below.map(|(_, written)| &written.record).filter(|record| record.key.as_deref() == Some(key));
        of.any(|record| record.value.as_deref() == Some(found)) && of.any(|record| record.value.is_none())
    };
    let folded = fold(changelog, meta.changelog_offset);
    state.retain(|key, found| folded.contains_key(&key[..]) || !is_swept(key, found));
}

/// Adds what a restore missed because the cleaner had removed it, superseded by records after the store's position.
/// Only a restore that is delayed while another owner continues misses any, and the next to open its store reads those
/// records first.
fn take_superseded(state: &mut State, (meta, changelog): (&StoreMeta, &Changelog)) {
    let below = applied(meta, changelog);
    let later = changelog.records.range(below..).map(|(_, written)| written.record.key.as_deref().unwrap_or_default());
    let folded = fold(changelog, below);
    for key in later.collect::<BTreeSet<_>>() {
        if missed_superseded(changelog, below, key, state.get(key).map(Vec::as_slice)) {
            match folded.get(key) {
                Some((_, meant)) => drop(state.insert(key.to_vec(), meant.to_vec())),
                None => drop(state.remove(key)),
            }
        }
    }
}

/// A store that is the result of a transaction.
fn check_current(
    folder: &Partition,
    (meta, token): (&StoreMeta, Token),
    (state, changelog): (&State, &Changelog),
    ruling: &mut Ruling,
) {
    let is_of = |record: &Record| {
        let value = record.value.as_deref().filter(|_| record.key.as_deref() == Some(POSITION_KEY));
        value.is_some_and(|value| runs::decoded(|| bytes::position(value).token) == Some(token))
    };
    let Some(at) = changelog.records.iter().find(|(_, written)| is_of(&written.record)).map(|(at, _)| *at) else {
        let found = format!("{}, of which the changelog has no position record", token.text());
        return ruling.report(
            8,
            folder,
            meta.changelog_offset,
            "the result of a transaction that was committed",
            found,
        );
    };
    if let Some((passed, _)) = changelog.records.range(at + 1..applied(meta, changelog).max(at + 1)).next() {
        let expected = format!("a position up to {passed}, whose record is not in the store");
        ruling.report(5, folder, *passed, expected, format!("{}", meta.changelog_offset));
    }
    let folded = fold(changelog, at + 1);
    let folded: State = folded.into_iter().map(|(key, (_, value))| (key.to_vec(), value.to_vec())).collect();
    if let Some((key, meant, found)) = partition::first_difference(&folded, state) {
        let expected = format!("{} -> {meant:02x?} up to {}", text(Some(key)), token.text());
        ruling.report(5, folder, at, expected, format!("{found:02x?}"));
    }
}

/// A store that is being restored. If the changelog has lost its last records, those that replaced them need not be
/// in it.
fn check_restoring(
    folder: &Partition,
    meta: &StoreMeta,
    (state, changelog): (&State, &Changelog),
    ruling: &mut Ruling,
) {
    let mut found = Ruling::default();
    check_restored(folder, meta.changelog_offset, (state, changelog), &mut found);
    let cut = changelog.cut.filter(|cut| *cut < meta.changelog_offset && !found.violations.is_empty());
    if let Some(cut) = cut {
        let mut since = Ruling::default();
        check_restored(folder, cut, (state, changelog), &mut since);
        if since.violations.is_empty() {
            found = since;
        }
    }
    ruling.violations.extend(found.violations);
    found.seen.into_iter().for_each(|(situation, times)| *ruling.seen.entry(situation).or_default() += times);
}

/// A store that was restored up to an offset.
fn check_restored(folder: &Partition, below: i64, (state, changelog): (&State, &Changelog), ruling: &mut Ruling) {
    let base = fold(changelog, below);
    let mut later: BTreeMap<&[u8], Vec<Option<&[u8]>>> = BTreeMap::new();
    for (_, written) in changelog.records.range(below..) {
        let key = written.record.key.as_deref().unwrap_or_default();
        later.entry(key).or_default().push(written.record.value.as_deref());
    }
    let mut is_ahead = false;
    let keys = state.keys().map(Vec::as_slice).chain(base.keys().copied());
    for key in keys {
        let found = state.get(key).map(Vec::as_slice);
        let meant = base.get(key).map(|(_, value)| *value);
        if found == meant {
            continue;
        }
        if later.contains_key(key) && missed_superseded(changelog, below, key, found) {
            continue;
        }
        is_ahead = true;
        if !later.get(key).is_some_and(|values| values.contains(&found)) {
            let expected = format!("{} -> {meant:02x?}, or what was committed later", text(Some(key)));
            let invariant = if found.is_some() { 8 } else { 5 };
            ruling.report(invariant, folder, below, expected, format!("{found:02x?}"));
        }
    }
    if is_ahead {
        ruling.see(coverage::STORE_AHEAD);
    }
}

/// Whether the value that a restore up to an offset has for a key may predate the last record below: the cleaner
/// removed that record because a later one, not read yet, supersedes it.
fn missed_superseded(changelog: &Changelog, below: i64, key: &[u8], found: Option<&[u8]>) -> bool {
    let records = changelog.records.range(..below).rev().map(|(_, written)| written);
    let mut of = records.filter(|written| written.record.key.as_deref() == Some(key));
    let is_missing = of.next().is_some_and(|last| last.is_cleaned);
    is_missing && (found.is_none() || of.any(|written| written.record.value.as_deref() == found))
}

/// The changelog below an offset, folded: for each key its last offset and value.
fn fold(changelog: &Changelog, below: i64) -> BTreeMap<&[u8], (i64, &[u8])> {
    let mut folded = BTreeMap::new();
    for (offset, written) in changelog.records.range(..below) {
        let key = written.record.key.as_deref().unwrap_or_default();
        match written.record.value.as_deref() {
            Some(value) => folded.insert(key, (*offset, value)),
            None => folded.remove(key),
        };
    }
    folded
}
