//! Measures a task's store: looking up a batch's identities, applying a transaction, loading.
//!
//! `cargo bench --profile release --bench state`; one million entries, seconds to run.

use std::hint::black_box;
use std::path::Path;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use ratchet::format::{ContentsList, Digest, EntryRef};
use ratchet::state::{LoadBuffer, Memory, Overlay, Store};

#[path = "support/keys.rs"]
mod keys;
#[path = "support/position.rs"]
mod position;

use keys::key;
use position::{current, meta};
use random::mix;
use ratchet_testkit::random;

const KEYS: u64 = 1_000_000;
const LOOKUPS: u64 = 512;
const MEMORY_BYTES: u64 = 512 << 20;

fn value(n: u64) -> Vec<u8> {
    let version = n.to_be_bytes();
    let mut value = Vec::new();
    let mut contents = ContentsList::default();
    contents.push(Digest::new(n, 0, false));
    let entry = EntryRef {
        last_seen: n as i64,
        version: Some(&version),
        scope: None,
        from_read: false,
        streamed: None,
        owes_tombstone: false,
        key_hash: Some(1),
        contents: contents.as_contents(),
    };
    entry.encode(&mut value);
    value
}

fn buffer() -> LoadBuffer {
    let mut buffer = LoadBuffer::new();
    (0..KEYS).for_each(|n| buffer.put(&key(n), Some(&value(n))));
    buffer
}

fn loaded(dir: &Path, buffer: LoadBuffer) -> Store {
    let mut store = Store::open(dir, &Memory::new(MEMORY_BYTES)).expect("the folder is new");
    store.begin_load(&meta(None)).expect("there is space");
    store.load(buffer, meta(None)).expect("there is space");
    store.finish_loads().expect("there is space");
    store
}

/// Batches of ascending keys, numbered from `from` on.
fn batches(from: u64) -> Vec<Vec<[u8; 17]>> {
    let batch = |batch: u64| {
        let mut keys: Vec<_> = (0..LOOKUPS).map(|n| key(from + mix(batch * LOOKUPS + n) % KEYS)).collect();
        keys.sort_unstable();
        keys
    };
    (0..200).map(batch).collect()
}

fn lookups(c: &mut Criterion) {
    let dir = tempfile::tempdir().expect("a folder");
    let store = loaded(dir.path(), buffer());
    let mut group = c.benchmark_group("get_sorted of 512");
    group.throughput(Throughput::Elements(LOOKUPS));
    for (name, from, expected) in [("hit", 0, LOOKUPS as usize), ("miss", KEYS, 0)] {
        let batches = batches(from);
        let look = |batch: &[[u8; 17]]| {
            let keys: Vec<&[u8]> = batch.iter().map(<[u8; 17]>::as_slice).collect();
            let mut found = 0;
            store.get_sorted(&keys, |_, value| found += usize::from(value.is_some())).expect("it can be read");
            assert_eq!(found, expected);
        };
        // Everything into the block cache first: this does not measure the disk.
        batches.iter().for_each(|batch| look(batch));
        let mut batches = batches.iter().cycle();
        group.bench_function(name, |b| b.iter(|| look(batches.next().expect("it cycles"))));
    }
}

fn commits(c: &mut Criterion) {
    let mut group = c.benchmark_group("commit");
    for size in [100_u64, 10_000] {
        let dir = tempfile::tempdir().expect("a folder");
        let mut store = loaded(dir.path(), buffer());
        let mut next = KEYS;
        group.throughput(Throughput::Elements(size));
        group.bench_function(format!("{size} new entries"), |b| {
            b.iter_batched_ref(
                || {
                    let mut overlay = Overlay::new();
                    (next..next + size).for_each(|n| overlay.put(&key(n), Some(&value(n))));
                    next += size;
                    overlay
                },
                |overlay| store.commit(overlay, &current()).expect("there is space"),
                BatchSize::PerIteration,
            );
        });
    }
}

fn overlay(c: &mut Criterion) {
    let records: Vec<_> = (0..10_000).map(|n| (key(n), value(n))).collect();
    let mut overlay = Overlay::new();
    let mut group = c.benchmark_group("overlay");
    group.throughput(Throughput::Elements(records.len() as u64));
    group.bench_function("get and put of 10000", |b| {
        b.iter(|| {
            overlay.clear();
            for (key, value) in &records {
                black_box(overlay.get(key));
                overlay.put(key, Some(value));
            }
        });
    });
}

fn loads(c: &mut Criterion) {
    let mut group = c.benchmark_group("load");
    group.throughput(Throughput::Elements(KEYS)).sample_size(10);
    group.bench_function("1000000 into an empty store", |b| {
        b.iter_batched(
            || (tempfile::tempdir().expect("a folder"), buffer()),
            |(dir, buffer)| (loaded(dir.path(), buffer), dir),
            BatchSize::PerIteration,
        );
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(std::time::Duration::from_millis(500))
        .measurement_time(std::time::Duration::from_secs(3));
    targets = lookups, commits, overlay, loads
}
criterion_main!(benches);
