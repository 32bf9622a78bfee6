//! Lookups in a state that is larger than the cache.

use rocksdb::perf::{PerfContext, PerfMetric, PerfStatsLevel, set_perf_stats};

use super::*;

const KEYS: usize = 300_000;
const BATCH: usize = 512;

/// A store in table files, several times as large as the cache, and what is in it.
fn large(dir: &Path, memory: &Memory) -> (Store, Map) {
    let identity = |n: usize| mix(n).to_be_bytes().repeat(2);
    let map: Map = (0..KEYS).map(|n| ([&[KIND_IDENTITY], &identity(n)[..]].concat(), vec![n as u8; 100])).collect();
    let mut store = Store::open(dir, memory).unwrap();
    store.set_ingest_bytes_min(0);
    store.begin_load(&loading(0)).unwrap();
    for part in 0..4 {
        let mut buffer = LoadBuffer::new();
        map.iter().skip(part).step_by(4).for_each(|(key, value)| buffer.put(key, Some(value)));
        store.load(buffer, loading(part)).unwrap();
    }
    store.finish_loads().unwrap();
    store.set_meta(&meta(4)).unwrap();
    assert!(store.bytes() > 4 * (8 << 20), "{} bytes", store.bytes());
    (store, map)
}

/// Looks up keys, which ascend, and checks what is found.
fn check_lookups(store: &Store, map: &Map, keys: &[&[u8]]) {
    let mut visited = 0;
    let check = |at: usize, value: Option<&[u8]>| {
        assert_eq!(value, map.get(keys[at]).map(Vec::as_slice), "{:?}", keys[at]);
        visited += 1;
    };
    store.get_sorted(keys, check).unwrap();
    assert_eq!(visited, keys.len());
}

/// Keys are found whether their lookup fills the cache or not.
#[test]
fn keys_are_found_in_a_state_larger_than_the_cache() {
    let folder = tempfile::tempdir().unwrap();
    let (store, map) = large(&folder.path().join("store"), &small_memory());
    let unknown_key = |key: &[u8]| [key, &[0]].concat();
    for round in 0..3 {
        let mut keys: Vec<Vec<u8>> = map.keys().skip(round).step_by(7).cloned().collect();
        keys.extend(map.keys().skip(round).step_by(11).map(|key| unknown_key(key)));
        keys.sort_unstable();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        keys.chunks(BATCH).for_each(|keys| check_lookups(&store, &map, keys));
    }
}

/// Most lookups leave a full cache unchanged: the next lookup reads the same blocks again.
#[test]
fn most_lookups_in_a_large_state_evict_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (store, map) = large(&folder.path().join("store"), &small_memory());
    let all: Vec<&[u8]> = map.keys().map(Vec::as_slice).collect();
    all.chunks(BATCH).for_each(|keys| check_lookups(&store, &map, keys));
    let cold: Vec<&[u8]> = all.iter().copied().step_by(KEYS / 30).collect();
    set_perf_stats(PerfStatsLevel::EnableCount);
    let reads = || {
        let mut context = PerfContext::default();
        context.reset();
        cold.iter().for_each(|key| check_lookups(&store, &map, &[key]));
        context.metric(PerfMetric::BlockReadCount)
    };
    let (first, second) = (reads(), reads());
    assert!(first > 15 && second > 15, "{first} blocks are read at first, and {second} the second time");
}

/// Blocks that are read again and again are soon cached, although the cache is full of other blocks.
#[test]
fn hot_keys_of_a_large_state_are_soon_cached() {
    let folder = tempfile::tempdir().unwrap();
    let (store, map) = large(&folder.path().join("store"), &small_memory());
    let all: Vec<&[u8]> = map.keys().map(Vec::as_slice).collect();
    all.chunks(BATCH).for_each(|keys| check_lookups(&store, &map, keys));
    let hot: Vec<&[u8]> = all.iter().copied().step_by(KEYS / 30).collect();
    let reads = || {
        let mut context = PerfContext::default();
        context.reset();
        check_lookups(&store, &map, &hot);
        context.metric(PerfMetric::BlockReadCount)
    };
    set_perf_stats(PerfStatsLevel::EnableCount);
    let first = reads();
    assert!(first > 15, "{first} blocks are read at first: the cache holds other blocks");
    let later: Vec<u64> = (0..64)
        .map(|round| {
            // Other keys compete for the cache.
            let others: Vec<&[u8]> = all.iter().copied().skip(round + 1).step_by(10_007).collect();
            check_lookups(&store, &map, &others);
            reads()
        })
        .collect();
    let last: u64 = later[48..].iter().sum();
    assert!(last < 32, "{later:?} blocks are read later");
}
