//! Goal: a bit that has flipped in a closed store never makes it say something else than what was written: the store is
//! damaged, or it is that of an earlier commit, from which the changelog is read again, or the bit does not matter.

use std::sync::Arc;

use ratchet_testkit::flips::{self, Outcome};

use super::*;

const PARTS: usize = 4;
const KEYS: usize = 1_200;

/// The records of a part: some are new, some overwrite or delete what earlier ones have written.
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

/// A closed store, and what it held after each commit.
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

/// Opens a store, reads all of it in each way, writes to it, and reads it once more.
fn look(dir: &Path, states: &[Map]) -> Result<Outcome, Error> {
    let mut store = Store::open(dir, &small_memory())?;
    let Some(at) = store.meta()?.as_ref().map(offset) else {
        let is_empty = contents(&store)?.is_empty();
        return Ok(if is_empty { Outcome::Earlier } else { Outcome::Wrong("entries of no commit".into()) });
    };
    let Some(state) = states.get(at) else { return Ok(Outcome::Wrong(format!("a commit {at}"))) };
    if contents(&store)? != *state {
        return Ok(Outcome::Wrong(format!("not what was there after commit {at}")));
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
        (false, _) => Outcome::Wrong("what was written after it was opened is not there".into()),
        (true, true) => Outcome::Same,
        (true, false) => Outcome::Earlier,
    })
}

#[test]
fn flipped_bits_of_a_store_are_noticed_or_do_not_matter() {
    let folder = flips::scratch();
    let states = Arc::new(filled(folder.path()));
    let tally = flips::play("store", 150, folder.path(), move |dir| match look(dir, &states) {
        Ok(outcome) => outcome,
        Err(error @ Error::Damaged { .. }) => Outcome::Noticed(error.to_string()),
        Err(error) => Outcome::Wrong(format!("it is not rebuilt: {error:?}")),
    });
    let noticed = |kind: &str| tally.contains_key(&(kind.to_owned(), "noticed".to_owned()));
    assert!(noticed("sst") && noticed("MANIFEST"), "{tally:?}");
}

/// Where the records of a store's MANIFEST begin, which are shorter than a block.
fn records_of_manifest(dir: &Path) -> (PathBuf, Vec<usize>) {
    let path = dir.join(std::fs::read_to_string(dir.join("CURRENT")).unwrap().trim_end());
    let (bytes, mut at, mut begins) = (std::fs::read(&path).unwrap(), 0, Vec::new());
    while at < bytes.len() {
        begins.push(at);
        at += 7 + usize::from(u16::from_le_bytes([bytes[at + 4], bytes[at + 5]]));
    }
    (path, begins)
}

/// RocksDB would never return from the kind of a record that only reused logs have, and would take a length beyond the end
/// for a record that a crash has cut off.
#[test]
fn damage_of_a_manifest_that_rocksdb_does_not_see_is_noticed() {
    let folder = flips::scratch();
    filled(folder.path());
    let (path, begins) = records_of_manifest(folder.path());
    let (whole, last) = (std::fs::read(&path).unwrap(), *begins.last().unwrap());
    let of_kinds = begins[1..].iter().map(|at| (*at, at + 6, 4));
    let of_lengths = [(last, last + 5, 0x80)];
    for (begin, byte, bit) in of_kinds.chain(of_lengths) {
        let mut bytes = whole.clone();
        bytes[byte] ^= bit;
        std::fs::write(&path, bytes).unwrap();
        let Err(Error::Damaged { reason, .. }) = Store::open(folder.path(), &small_memory()) else {
            panic!("the damage at {begin} is not seen");
        };
        assert!(reason.ends_with(&format!("is damaged at byte {begin}")), "{reason}");
    }
    std::fs::write(&path, whole).unwrap();
    assert!(Store::open(folder.path(), &small_memory()).is_ok());
}
