//! Loads, lookups, scans and special cases of the store.

use proptest::prelude::*;

use super::*;
use crate::format::{KIND_IDENTITY_DIGEST, STORE_META_KEY};

fn holds_leftovers(dir: &Path) -> bool {
    std::fs::read_dir(dir).unwrap().any(|entry| entry.unwrap().path().to_str().unwrap().ends_with(".load.tmp"))
}

fn numbered(n: u32) -> Vec<u8> {
    entry_key(&format!("{n:06}"))
}

/// Loads 5,000 keys, each with a number as its value.
fn load_all(store: &mut Store, number: usize) {
    let mut buffer = LoadBuffer::new();
    (0..5000).for_each(|n| buffer.put(&numbered(n), Some(&[number as u8])));
    store.load(buffer, loading(number)).unwrap();
}

/// A store with the even numbers below 4000 as keys, half of them in table files.
fn store_of_even_keys(dir: &Path) -> Store {
    let mut store = Store::open(dir, &small_memory()).unwrap();
    for part in 0..4 {
        let mut overlay = Overlay::new();
        for n in (part * 1000..(part + 1) * 1000).step_by(2) {
            overlay.put(&numbered(n), Some(&n.to_be_bytes()));
        }
        store.commit(&overlay, &meta(part as usize)).unwrap();
        if part == 1 {
            store.flush().unwrap();
        }
    }
    store
}

#[test]
fn sorted_lookups_find_the_same_as_single_ones() {
    let dir = tempfile::tempdir().unwrap();
    let store = store_of_even_keys(dir.path());
    // More than one chunk, hits and misses, duplicate keys.
    let keys: Vec<_> = (0..1500).flat_map(|n| [numbered(n * 3), numbered(n * 3)]).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let mut seen = 0;
    store
        .get_sorted(&keys, |index, value| {
            assert_eq!(index, seen, "in order");
            assert_eq!(value.map(<[u8]>::to_owned), store.get(keys[index]).unwrap());
            seen += 1;
        })
        .unwrap();
    assert_eq!(seen, keys.len());
    store.get_sorted(&[], |_, _| panic!("nothing was looked up")).unwrap();
}

#[test]
fn scan_continues_where_it_stopped_and_shows_entries_only() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = store_of_even_keys(dir.path());
    let digest = [KIND_IDENTITY_DIGEST, 1];
    let mut overlay = Overlay::new();
    overlay.put(POSITION_KEY, Some(b"position"));
    overlay.put(&digest, Some(b"digest"));
    overlay.put(&[KIND_IDENTITY], Some(b"the shortest key"));
    store.commit(&overlay, &meta(9)).unwrap();
    store.flush().unwrap();
    let mut expected: Vec<_> = (0..4000).step_by(2).map(numbered).collect();
    expected.insert(0, vec![KIND_IDENTITY]);
    expected.push(digest.to_vec());
    for keys_max in [1, 7, 2002, 5000] {
        let (mut seen, mut cursor, mut calls) = (Vec::new(), None, 0);
        loop {
            let before = seen.len();
            cursor = store.scan(cursor.as_deref(), keys_max, |key, _| seen.push(key.to_owned())).unwrap();
            assert!(seen.len() - before <= keys_max);
            calls += 1;
            let Some(at) = &cursor else { break };
            assert_eq!(at, seen.last().unwrap());
        }
        assert_eq!(seen, expected);
        assert_eq!(calls, expected.len().div_ceil(keys_max), "a full last call returns no cursor");
    }
    // A cursor whose key was deleted meanwhile, and cursors outside the entries.
    assert_eq!(store.scan(Some(&numbered(1)), 1, |key, _| assert_eq!(key, numbered(2))).unwrap(), Some(numbered(2)));
    assert!(store.scan(Some(&[0]), 1, |key, _| assert_eq!(key, [KIND_IDENTITY])).unwrap().is_some());
    assert_eq!(store.scan(Some(&[0xff]), 1, |_, _| panic!("no entry is there")).unwrap(), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Loads as batches and as table files, one after the other or all pending at once, into an empty and into a
    /// filled store, reopened in the middle.
    #[test]
    fn loads_keep_the_last_record_of_each_key(
        before in proptest::collection::vec((0..30_u32, any::<u8>()), 0..30),
        wait in any::<bool>(),
        loads in proptest::collection::vec(
            (any::<bool>(), any::<bool>(), proptest::collection::vec((0..40_u32, proptest::option::of(any::<u8>())), 0..80)),
            1..4,
        ),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let memory = small_memory();
        let mut store = Store::open(dir.path(), &memory).unwrap();
        let mut expected = Map::new();
        let mut overlay = Overlay::new();
        for (key, value) in before {
            overlay.put(&numbered(key), Some(&[value]));
            apply(&mut expected, &numbered(key), Some(&[value]));
        }
        store.commit(&overlay, &meta(0)).unwrap();
        store.begin_load(&loading(0)).unwrap();
        for (number, (as_file, reopen, records)) in (1..).zip(loads) {
            let mut buffer = LoadBuffer::new();
            if reopen {
                store.finish_loads().unwrap();
                drop(store);
                store = Store::open(dir.path(), &memory).unwrap();
            }
            store.set_ingest_bytes_min(if as_file { 0 } else { usize::MAX });
            for (key, value) in &records {
                let value = value.as_ref().map(std::slice::from_ref);
                buffer.put(&numbered(*key), value);
                apply(&mut expected, &numbered(*key), value);
            }
            prop_assert_eq!(buffer.len(), records.len());
            store.load(buffer, loading(number)).unwrap();
            if wait {
                store.finish_loads().unwrap();
                prop_assert_eq!(store.meta().unwrap(), Some(loading(number)));
                prop_assert!(!holds_leftovers(dir.path()));
            }
        }
        store.finish_loads().unwrap();
        prop_assert_eq!(contents(&store).unwrap(), expected);
    }
}

#[test]
fn key_heads_have_the_same_order_as_keys() {
    let keys: [&[u8]; 7] = [b"", b"\0", b"\0\0", b"a", b"a\0", b"a\0b", b"aaaaaaaaaaaaaaaaaaaaaaa"];
    for a in keys {
        for b in keys {
            let heads = super::super::load::key_head(a).cmp(&super::super::load::key_head(b));
            assert_eq!(heads.then_with(|| a.cmp(b)), a.cmp(b));
        }
    }
}

#[test]
fn table_file_left_by_a_killed_load_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    drop(Store::open(dir.path(), &small_memory()).unwrap());
    let leftover = dir.path().join("7.load.tmp");
    std::fs::write(&leftover, b"half a table").unwrap();
    drop(Store::open(dir.path(), &small_memory()).unwrap());
    assert!(!leftover.exists());
}

#[test]
fn store_dropped_while_loading_keeps_only_ingested_loads() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..8 {
        let mut store = Store::open(dir.path(), &small_memory()).unwrap();
        store.set_ingest_bytes_min(0);
        store.begin_load(&loading(0)).unwrap();
        for number in 1..=6 {
            load_all(&mut store, number);
            if round % 2 == 0 {
                store.ingest_ready_loads().unwrap();
            }
        }
        let offset_before_drop = offset(&store.meta().unwrap().unwrap());
        drop(store);
        assert!(!holds_leftovers(dir.path()), "a builder has written after the store was dropped");
        let store = Store::open(dir.path(), &small_memory()).unwrap();
        // The meta of the last load may not have been flushed; the meta in the files is never ahead of the entries.
        let found = offset(&store.meta().unwrap().unwrap());
        assert!(found <= offset_before_drop, "{found} > {offset_before_drop}");
        let value = store.get(&numbered(1)).unwrap().map_or(0, |value| usize::from(value[0]));
        assert!(value >= found, "{value} < {found}: loads may be ahead of the meta, never behind");
        drop(store);
        std::fs::remove_dir_all(dir.path()).unwrap();
    }
}

#[test]
fn restarted_load_drops_pending_loads() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open(dir.path(), &small_memory()).unwrap();
    let load = |store: &mut Store, value: u8, to: usize| {
        let mut buffer = LoadBuffer::new();
        buffer.put(&numbered(1), Some(&[value]));
        store.load(buffer, loading(to)).unwrap();
    };
    store.begin_load(&loading(0)).unwrap();
    load(&mut store, 1, 1);
    store.begin_load(&loading(0)).unwrap();
    assert_eq!(store.ingest_ready_loads(), Ok(0));
    load(&mut store, 2, 2);
    store.finish_loads().unwrap();
    assert_eq!(store.get(&numbered(1)).unwrap(), Some(vec![2]));
    assert_eq!(store.meta().unwrap(), Some(loading(2)));
}

/// Regression: simulated time passed while a thread of a busy machine had not yet built a few records, and a seed of
/// the simulation did not end in time.
#[test]
fn load_is_built_when_submitted_if_there_are_no_builders() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open(dir.path(), &Memory::without_builders(8 << 20)).unwrap();
    store.set_ingest_bytes_min(0);
    store.begin_load(&loading(0)).unwrap();
    for number in 1..=20 {
        load_all(&mut store, number);
        assert_eq!(store.ingest_ready_loads(), Ok(0), "no load is pending");
    }
    let mut buffer = LoadBuffer::new();
    buffer.put(&numbered(1), None);
    store.load(buffer, loading(21)).unwrap();
    drop(store);
    assert!(!holds_leftovers(dir.path()));
}

#[test]
fn load_buffers_have_a_bounded_budget_and_release_it() {
    let memory = Memory::new(64 << 20);
    let mut buffers: Vec<_> = std::iter::from_fn(|| memory.load_buffer()).collect();
    assert!((2..=16).contains(&buffers.len()), "{}", buffers.len());
    let buffer = buffers.last_mut().unwrap();
    let mut records = 0;
    while buffer.has_room(1000) {
        (0..1000).for_each(|n| buffer.put(&numbered(records + n), Some(&[1; 20])));
        records += 1000;
    }
    assert!(records >= 50_000, "{records}");
    let allocated_bytes: usize = buffers.len() * buffers[0].allocated_bytes();
    assert!(allocated_bytes <= 32 << 20, "{allocated_bytes}");
    // A load pending in a store holds its share until it is ingested.
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open(dir.path(), &memory).unwrap();
    store.begin_load(&loading(0)).unwrap();
    store.load(buffers.pop().unwrap(), loading(1)).unwrap();
    store.finish_loads().unwrap();
    assert!(store.entries_estimate() >= u64::from(records));
    assert_eq!(store.get(&numbered(records - 1)).unwrap(), Some(vec![1; 20]));
    let buffer = memory.load_buffer();
    assert!(buffer.is_some() && memory.load_buffer().is_none());
}

#[test]
fn changelog_with_the_stores_own_key_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open(dir.path(), &small_memory()).unwrap();
    store.begin_load(&loading(0)).unwrap();
    let mut buffer = LoadBuffer::new();
    buffer.put(STORE_META_KEY, Some(&meta(5).encode()));
    buffer.put(&[0xff, 0xff], Some(b"a key behind it"));
    store.load(buffer, loading(1)).unwrap();
    assert!(matches!(store.finish_loads(), Err(Error::ReservedKey { .. })));
    assert_eq!(store.meta().unwrap(), Some(loading(0)));
}

#[test]
#[should_panic(expected = "a load begins with begin_load")]
fn load_into_a_store_that_looks_current_panics() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open(dir.path(), &small_memory()).unwrap();
    store.set_meta(&meta(1)).unwrap();
    let _ = store.load(LoadBuffer::new(), loading(2));
}

#[test]
fn many_small_stores_stay_small() {
    let dir = tempfile::tempdir().unwrap();
    let memory = Memory::new(64 << 20);
    let stores: Vec<_> = (0..64)
        .map(|n| {
            let mut store = Store::open(&dir.path().join(n.to_string()), &memory).unwrap();
            store.commit(&overlay_of(&[("a", Some("1"))]), &meta(1)).unwrap();
            store
        })
        .collect();
    let used_bytes = memory.used_bytes();
    assert!(used_bytes < 16 << 20, "{} stores with one entry each take {used_bytes} bytes", stores.len());
}

#[test]
fn state_that_does_not_grow_does_not_fill_the_cache() {
    let dir = tempfile::tempdir().unwrap();
    let memory = Memory::new(64 << 20);
    let mut store = Store::open(dir.path(), &memory).unwrap();
    for round in 0..30 {
        let mut overlay = Overlay::new();
        for n in 0..20_000 {
            overlay.put(&entry_key(&format!("{n:06}")), Some(format!("{round:0100}").as_bytes()));
        }
        store.commit(&overlay, &meta(round)).unwrap();
        store.flush().unwrap();
        assert_eq!(contents(&store).unwrap().len(), 20_000);
    }
    // There are 2 MB of entries, in several files until these are merged; all files ever written hold 60 MB.
    let used_bytes = memory.used_bytes();
    assert!(used_bytes < 32 << 20, "a state of 2 MB takes {used_bytes} bytes");
}
