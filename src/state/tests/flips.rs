//! Goal: a flipped bit in a closed store never changes what is read from it. Either the damage is reported, or the
//! store has the state after an earlier commit, from which the changelog is read again, or the bit does not matter.

use std::sync::Arc;

use ratchet_testkit::flips::{self, Outcome};

use super::*;

const PARTS: usize = 4;
const KEYS: usize = 1_200;

/// The records of a part: some have new keys, some overwrite or delete keys of earlier parts.
fn records(part: usize) -> impl Iterator<Item = (Vec<u8>, Option<Vec<u8>>)> {
    (0..KEYS / 2).map(move |n| {
        let random = mix(part * KEYS + n);
        let value = (!random.is_multiple_of(7)).then(|| random.to_be_bytes().repeat(1 + random % 6));
        (entry_key(&(random / 7 % KEYS).to_string()), value)
    })
}

fn commit(store: &mut Store, states: &mut Vec<Map>, part: usize) -> Result<(), Error> {
    let (mut overlay, mut state) = (Overlay::new(), states.last().cloned().unwrap_or_default());
    let position = (POSITION_KEY.to_vec(), Some(part.to_be_bytes().to_vec()));
    for (key, value) in records(part).chain([position]) {
        overlay.put(&key, value.as_deref());
        apply(&mut state, &key, value.as_deref());
    }
    states.push(state);
    store.commit(&overlay, &meta(part))?;
    store.flush()
}

/// Fills a store, closes it, and returns its contents after each commit.
fn filled(dir: &Path) -> Vec<Map> {
    let mut states = Vec::new();
    for part in 0..PARTS {
        let mut store = Store::open(dir, &small_memory()).unwrap();
        // Some parts become table files of their own.
        store.set_ingest_bytes_min(if part % 2 == 0 { 0 } else { usize::MAX });
        commit(&mut store, &mut states, part).unwrap();
    }
    states
}

/// Opens a store, reads all of it by scan and by lookups, writes to it, and reads it again.
fn check_store(dir: &Path, states: &[Map]) -> Result<Outcome, Error> {
    let mut store = Store::open(dir, &small_memory())?;
    let Some(at) = store.meta()?.as_ref().map(offset) else {
        let is_empty = contents(&store)?.is_empty();
        return Ok(if is_empty { Outcome::Earlier } else { Outcome::Wrong("entries without a commit".into()) });
    };
    let Some(state) = states.get(at) else { return Ok(Outcome::Wrong(format!("there was no commit {at}"))) };
    if contents(&store)? != *state {
        return Ok(Outcome::Wrong(format!("not the state after commit {at}")));
    }
    let mut keys: Vec<_> = (0..KEYS * 2).map(|n| entry_key(&n.to_string())).collect();
    keys.sort();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let mut wrong = None;
    store.get_sorted(&keys, |n, value| {
        if value != state.get(keys[n]).map(Vec::as_slice) {
            wrong = Some(format!("{:?} is {value:?}", String::from_utf8_lossy(keys[n])));
        }
    })?;
    if let Some(wrong) = wrong {
        return Ok(Outcome::Wrong(wrong));
    }
    let mut later = states[..=at].to_vec();
    for part in at + 1..at + 3 {
        commit(&mut store, &mut later, part)?;
    }
    drop(store);
    let store = Store::open(dir, &small_memory())?;
    let is_later = store.meta()?.as_ref().map(offset) == Some(at + 2) && Some(&contents(&store)?) == later.last();
    Ok(match (is_later, at + 1 == states.len()) {
        (false, _) => Outcome::Wrong("commits after the store was reopened are missing".into()),
        (true, true) => Outcome::Same,
        (true, false) => Outcome::Earlier,
    })
}

#[test]
fn flipped_bits_of_a_store_are_noticed_or_do_not_matter() {
    let folder = flips::scratch();
    let states = Arc::new(filled(folder.path()));
    let tally = flips::play("store", 150, folder.path(), move |dir| match check_store(dir, &states) {
        Ok(outcome) => outcome,
        Err(error @ Error::Damaged { .. }) => Outcome::Noticed(error.to_string()),
        Err(error) => Outcome::Wrong(format!("the error does not cause a rebuild: {error:?}")),
    });
    let noticed = |kind: &str| tally.contains_key(&(kind.to_owned(), "noticed".to_owned()));
    assert!(noticed("sst") && noticed("MANIFEST"), "{tally:?}");
}

/// The path of a store's MANIFEST, and the start of each of its records, which are shorter than a block.
fn records_of_manifest(dir: &Path) -> (PathBuf, Vec<usize>) {
    let path = dir.join(std::fs::read_to_string(dir.join("CURRENT")).unwrap().trim_end());
    let (bytes, mut at, mut record_starts) = (std::fs::read(&path).unwrap(), 0, Vec::new());
    while at < bytes.len() {
        record_starts.push(at);
        at += 7 + usize::from(u16::from_le_bytes([bytes[at + 4], bytes[at + 5]]));
    }
    (path, record_starts)
}

/// RocksDB would never return from a record of a kind that only reused logs have, and would take a record whose length
/// exceeds the file for one that a crash has cut off.
#[test]
fn manifest_damage_that_rocksdb_misses_is_reported() {
    let folder = flips::scratch();
    filled(folder.path());
    let (path, record_starts) = records_of_manifest(folder.path());
    let (whole, last) = (std::fs::read(&path).unwrap(), *record_starts.last().unwrap());
    let kind_flips = record_starts[1..].iter().map(|at| (*at, at + 6, 4));
    let length_flips = [(last, last + 5, 0x80)];
    for (record_start, byte, bit) in kind_flips.chain(length_flips) {
        let mut bytes = whole.clone();
        bytes[byte] ^= bit;
        std::fs::write(&path, bytes).unwrap();
        let Err(Error::Damaged { reason, .. }) = Store::open(folder.path(), &small_memory()) else {
            panic!("the damage at {record_start} is not reported");
        };
        assert!(reason.ends_with(&format!("is damaged at byte {record_start}")), "{reason}");
    }
    std::fs::write(&path, whole).unwrap();
    assert!(Store::open(folder.path(), &small_memory()).is_ok());
}
