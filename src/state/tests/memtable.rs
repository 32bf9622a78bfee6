//! Goal: lookups see memtables and files as one, frozen tables reach the disk whole, and the budget bounds all
//! memtables.

use std::sync::Arc;

use super::*;
use crate::state::memtable::Memtable;
use crate::state::tests::disk_in_memory::{Loads, Memtables, SimulatedDisk};

const MANY: usize = usize::MAX;
const UNBOUNDED: MemtableBounds = MemtableBounds { total: MANY, table: MANY..=MANY };

fn commit(store: &mut Store, at: usize, records: &[(&str, Option<&str>)]) {
    store.commit(&overlay_of(records), &meta(at)).unwrap();
}

fn look_up(store: &Store, keys: &[&str]) -> Vec<(usize, Option<String>)> {
    let keys: Vec<Vec<u8>> = keys.iter().map(|key| entry_key(key)).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let mut found = Vec::new();
    let text = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap();
    store.get_sorted(&keys, |at, value| found.push((at, value.map(text)))).unwrap();
    found
}

/// The meta on the disk, which a crash would leave.
fn on_disk(store: &Store, memory: &Memory) -> Option<StoreMeta> {
    meta_of(&*memory.disk().open_to_read(store.path()).unwrap()?)
}

fn meta_of(files: &dyn crate::state::disk::Read) -> Option<StoreMeta> {
    files.get(crate::format::STORE_META_KEY).unwrap().map(|bytes| StoreMeta::decode(&bytes).unwrap())
}

#[test]
fn newest_value_wins_wherever_it_is() {
    let (_root, _state, dir) = task_dir();
    let memory = Memory::with_memtables(8 << 20, MANY, MANY);
    let mut store = Store::open(&dir, &memory).unwrap();
    commit(&mut store, 1, &[("a", Some("1")), ("b", Some("1")), ("c", Some("1")), ("d", Some("1")), ("f", Some("1"))]);
    store.flush().unwrap();
    commit(&mut store, 2, &[("b", Some("2")), ("c", None), ("e", Some("2"))]);
    store.flush().unwrap();
    commit(&mut store, 3, &[("a", None), ("e", Some("3"))]);
    let found = look_up(&store, &["a", "b", "c", "d", "d", "e", "f", "g"]);
    let value = |text: &str| Some(text.to_owned());
    let expected = [None, value("2"), None, value("1"), value("1"), value("3"), value("1"), None];
    assert_eq!(found, expected.into_iter().enumerate().collect::<Vec<_>>());
    // All of these keys are in memory.
    assert_eq!(look_up(&store, &["a", "e"]), [(0, None), (1, value("3"))]);
    let mut seen = Vec::new();
    store.scan(None, 10, |key, value| seen.push((key.to_vec(), value.to_vec()))).unwrap();
    let entry = |key: &str, value: &str| (entry_key(key), value.as_bytes().to_vec());
    assert_eq!(seen, [entry("b", "2"), entry("d", "1"), entry("e", "3"), entry("f", "1")]);
}

#[test]
fn full_memtable_reaches_the_disk_as_a_whole() {
    let (_root, _state, dir) = task_dir();
    for (bytes, records) in [(1 << 10, MANY), (MANY, 40)] {
        let memory = Memory::with_memtables(8 << 20, bytes, records);
        let mut store = Store::open(&dir, &memory).unwrap();
        store.set_ingest_bytes_min(0);
        let mut disk_offset = 0;
        for at in 1..=200 {
            // The hot key is the same in each commit: it fills a table only by the number of changelog records.
            commit(&mut store, at, &[("hot", Some(&at.to_string())), (&at.to_string(), Some("x"))]);
            // A file may be gone before it is opened: files are merged in the background.
            if let Some(found) = store.meta_in_files().unwrap() {
                disk_offset = offset(&found);
                assert!(disk_offset <= at && found == meta(disk_offset), "{found:?}");
            }
        }
        assert!(disk_offset > 100, "only {disk_offset} of 200 commits are on the disk");
        drop(store);
        let files = memory.disk().open_to_read(&dir).unwrap().unwrap();
        assert!(offset(&meta_of(&*files).unwrap()) >= disk_offset);
        drop(files);
        aside::remove_store(&dir, &memory).unwrap();
    }
}

#[test]
fn begun_flush_ends_without_another_flush() {
    let (_root, _state, dir) = task_dir();
    let memory = Memory::with_memtables(8 << 20, MANY, MANY);
    let mut store = Store::open(&dir, &memory).unwrap();
    store.set_ingest_bytes_min(0);
    commit(&mut store, 1, &[("a", Some("1"))]);
    store.begin_flush().unwrap();
    let mut at = 1;
    while store.meta_in_files().unwrap().is_none() {
        at += 1;
        commit(&mut store, at, &[("b", Some("2"))]);
        std::thread::yield_now();
    }
    assert_eq!(store.meta_in_files().unwrap(), Some(meta(1)));
    assert_eq!(store.meta().unwrap(), Some(meta(at)));
}

#[test]
fn frozen_memtables_do_not_pile_up_while_the_disk_is_full() {
    let (disk, dir) = (SimulatedDisk::new(Loads::default(), Memtables::UNBOUNDED), Path::new("a"));
    let memory = disk.memory();
    let mut store = Store::open(dir, &memory).unwrap();
    disk.set_full(Some(0));
    for at in 1..=20 {
        commit(&mut store, at, &[("hot", Some(&at.to_string()))]);
        // Lanes do this at intervals.
        let _ = if at.is_multiple_of(2) { store.begin_flush() } else { store.flush() };
    }
    // The active table, and two pending ones.
    assert!(store.keys_in_memory().len() <= 3, "{} tables", store.keys_in_memory().len());
    disk.set_full(None);
    store.flush().unwrap();
    assert_eq!(on_disk(&store, &memory), Some(meta(20)));
    assert_eq!(look_up(&store, &["hot"]), [(0, Some("20".to_owned()))]);
}

#[test]
fn load_overwrites_commits_that_were_in_memory() {
    let (_root, _state, dir) = task_dir();
    let memory = Memory::with_memtables(8 << 20, MANY, MANY);
    let mut store = Store::open(&dir, &memory).unwrap();
    commit(&mut store, 1, &[("a", Some("1")), ("b", Some("1"))]);
    store.begin_load(&loading(1)).unwrap();
    assert_eq!(on_disk(&store, &memory), Some(loading(1)));
    let mut buffer = LoadBuffer::new();
    buffer.put(&entry_key("a"), Some(b"2"));
    store.load(buffer, loading(2)).unwrap();
    store.finish_loads().unwrap();
    store.set_meta(&meta(2)).unwrap();
    commit(&mut store, 3, &[("c", Some("3"))]);
    let value = |text: &str| Some(text.to_owned());
    assert_eq!(look_up(&store, &["a", "b", "c"]), [(0, value("2")), (1, value("1")), (2, value("3"))]);
}

#[test]
fn memtables_share_the_budget_and_release_it() {
    let reported_bytes = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let reported = Arc::clone(&reported_bytes);
    let note_used = move |used| reported.store(used, std::sync::atomic::Ordering::Relaxed);
    let budget = Arc::new(MemtableBudget::new(
        MemtableBounds { total: 64 << 10, table: 1 << 10..=16 << 10 },
        UNBOUNDED,
        note_used,
    ));
    let filled = |records: usize| {
        let mut memtable = Memtable::new(Arc::clone(&budget));
        let mut at = 0;
        while !memtable.is_full() && at < records {
            at += 1;
            memtable.put(&overlay_of(&[(&format!("{at:0100}"), Some("1"))]), &meta(at));
        }
        (memtable, at)
    };
    let (one, alone) = filled(MANY);
    let others: Vec<_> = (0..15).map(|_| filled(MANY)).collect();
    let together = others.last().expect("there are some").1;
    assert!(together * 4 < alone, "{together} records if 16 memtables share the budget, {alone} if one has it");
    let sum = one.bytes() + others.iter().map(|(memtable, _)| memtable.bytes()).sum::<usize>();
    assert_eq!((budget.used_bytes(), reported_bytes.load(std::sync::atomic::Ordering::Relaxed)), (sum, sum));
    drop((one, others));
    assert_eq!((budget.used_bytes(), reported_bytes.load(std::sync::atomic::Ordering::Relaxed)), (0, 0));
}

#[test]
fn memtables_share_the_bound_on_changelog_records() {
    let records = MemtableBounds { total: 1_000, table: 100..=600 };
    let budget = Arc::new(MemtableBudget::new(MemtableBounds { total: MANY, table: MANY..=MANY }, records, |_| {}));
    let mut stores = Vec::new();
    for expected in [600, 500, 333] {
        stores.push(Memtable::new(Arc::clone(&budget)));
        let memtable = stores.last_mut().expect("just added");
        let mut at = 0;
        while !memtable.is_full() {
            at += 1;
            memtable.put(&overlay_of(&[("hot", Some("1"))]), &meta(at));
        }
        assert_eq!(at, expected);
    }
    // However many stores there are, each may fill a table to the minimum.
    stores.extend((0..50).map(|_| Memtable::new(Arc::clone(&budget))));
    let last = stores.last_mut().expect("there are some");
    (1..100).for_each(|at| last.put(&overlay_of(&[("hot", Some("1"))]), &meta(at)));
    assert!(!last.is_full());
    last.put(&overlay_of(&[("hot", Some("1"))]), &meta(100));
    assert!(last.is_full());
}

#[test]
fn last_ingested_memtable_stays_as_a_cache_while_there_is_memory() {
    for (budget_bytes, is_kept) in [(MANY, true), (0, false)] {
        let budget =
            Arc::new(MemtableBudget::new(MemtableBounds { total: budget_bytes, table: 0..=MANY }, UNBOUNDED, |_| {}));
        let mut memtable = Memtable::new(budget);
        for at in 1..=3 {
            memtable.put(&overlay_of(&[("key", Some(&at.to_string()))]), &meta(at));
            assert_eq!(memtable.freeze().map(|frozen| frozen.meta().clone()), Some(meta(at)));
            assert_eq!(memtable.meta(), Some(&meta(at)), "it is not in the files yet");
            memtable.set_pending(0);
            assert_eq!(memtable.meta(), None, "it is in the files");
        }
        let expected = is_kept.then_some(Some(&b"3"[..]));
        assert_eq!(memtable.get(&entry_key("key")), expected);
        assert_eq!(memtable.keys().len(), usize::from(is_kept));
        assert_eq!(memtable.len(), 0, "nothing is in memory alone");
    }
}
