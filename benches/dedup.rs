//! Times reading a record and deciding on it: a 160-byte JSON event by two of its fields, and a change event of
//! Debezium for PostgreSQL by the rules of its preset. Asserts first that none of this allocates.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ratchet::dedup::{Evaluator, Identity, Memory, Path, Progress, Reader, Rules, Subject, Version, evaluate};
use ratchet::format::{ContentsList, Digest, EntryRef};
use ratchet::record::{Headers, Record};
use ratchet::topology;
use ratchet::yaml::Process;

/// The system's allocator, counting allocations.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// 160 bytes each.
const NUMBERS: &str = r#"{"order_id":48151623,"version":1723456789012,"operation":"charge","amount":"129.95","currency":"EUR","customer":{"id":7741,"country":"DE"},"note":"second try."}"#;
const TEXTS: &str = r#"{"operation":"charge","order_id":"ord-48151623","customer":{"id":7741,"name":"M\u00fcller"},"currency":"EUR","amount":129.95,"version":"1723456789012","x":"yz"}"#;

/// A change event of 1.5 KB, and the same with its schema.
const ENVELOPE: &str = include_str!("debezium/envelope.json");
const ENVELOPE_WITH_SCHEMA: &str = include_str!("debezium/envelope_with_schema.json");
const KEY: &str = r#"{"order_id":48151623}"#;
const KEY_WITH_SCHEMA: &str = r#"{"schema":{"type":"struct","fields":[{"type":"int64","optional":false,"field":"order_id"}],"optional":false,"name":"shop.public.orders.Key"},"payload":{"order_id":48151623}}"#;

fn record(value: &str) -> Record<'_> {
    Record {
        topic: "payments",
        partition: 0,
        offset: 42,
        timestamp: Some(1_723_456_789_000),
        key: Some(b"ord-48151623"),
        value: Some(value.as_bytes()),
        headers: Headers::default(),
    }
}

fn rules(identity: &[&str], version: Option<&str>) -> Arc<Rules> {
    let path = |text: &&str| Path::parse(text).expect("a path");
    let identity = Identity::of_paths(identity.iter().map(path));
    Arc::new(Rules::new(identity, version.map(|of| Version::integer(path(&of)))))
}

/// The rules of the preset for Debezium's PostgreSQL connector, with the destinations' defaults for a topic.
fn debezium() -> Arc<Rules> {
    let file = FilePath::new(env!("CARGO_MANIFEST_DIR")).join("topologies/inventory-cdc.yaml");
    topology::load(&file, &Process).expect("a topology without mistakes").topology.rules
}

/// Everything that the engine uses of `dedup` for one record, except looking up its entry.
struct Judge {
    rules: Arc<Rules>,
    reader: Reader,
    evaluator: Evaluator,
    progress: Progress,
    arena: Vec<u8>,
    entry: Vec<u8>,
}

/// A memory with a single entry, or none.
struct Known<'a>(Option<&'a [u8]>);

impl<'a> Memory<'a> for Known<'a> {
    fn identity(&self, _row: usize, _key: &[u8]) -> Option<&'a [u8]> {
        self.0
    }

    fn table(&self, _row: usize, _key: &[u8]) -> Option<&'a [u8]> {
        None
    }
}

impl Judge {
    fn new(rules: Arc<Rules>) -> Self {
        let reader = Reader::new(Arc::clone(&rules));
        let (evaluator, progress, arena, entry) = Default::default();
        Self { rules, reader, evaluator, progress, arena, entry }
    }

    /// Returns whether there is something to remember, and puts it into `entry`.
    fn judge(&mut self, record: &Record<'_>, known: Option<&[u8]>) -> bool {
        let Self { rules, reader, evaluator, progress, arena, entry } = self;
        arena.clear();
        entry.clear();
        let reading = evaluate::read(progress, record.offset, || reader.read(record, arena));
        let subject = Subject { record, reading: reading.as_ref(), arena };
        let rules = (&**rules, 1_723_456_789_500);
        let evaluated = evaluator.evaluate(rules, progress, subject, &Known(known), || true);
        let evaluation = evaluated.expect("an entry").expect("the clock is certain");
        assert!(evaluation.rejection.is_none(), "refused");
        evaluator.remember(progress, subject, |_, _, bytes| entry.extend_from_slice(bytes));
        !entry.is_empty()
    }
}

fn judging(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("read_and_decide_160_bytes");
    group.throughput(Throughput::Elements(1));
    let mut known = Vec::new();
    let mut contents = ContentsList::default();
    contents.push(Digest::new(1, 0, false));
    let entry = EntryRef {
        last_seen: 1,
        version: Some(b"\x81\x01"),
        scope: None,
        from_read: false,
        streamed: None,
        owes_tombstone: false,
        key_hash: None,
        contents: contents.as_contents(),
    };
    entry.encode(&mut known);
    let known = Some(known.as_slice());
    let cases = [
        ("numbers_new", NUMBERS, rules(&["value.order_id"], Some("value.version")), None),
        ("numbers_newer", NUMBERS, rules(&["value.order_id"], Some("value.version")), known),
        ("texts_newer", TEXTS, rules(&["value.order_id"], Some("value.version")), known),
        ("composite_newer", NUMBERS, rules(&["value.order_id", "value.operation"], Some("value.version")), known),
        ("key_only", NUMBERS, rules(&["key"], None), None),
    ];
    for (name, value, rules, entry) in cases {
        assert_eq!(value.len(), 160);
        let mut judge = Judge::new(rules);
        let record = record(value);
        judge.judge(&record, entry);
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        (0..1000).for_each(|_| {
            black_box(judge.judge(black_box(&record), entry));
        });
        assert_eq!(ALLOCATIONS.load(Ordering::Relaxed), before, "{name} allocates");
        group.bench_function(name, |bencher| bencher.iter(|| judge.judge(black_box(&record), black_box(entry))));
    }
    group.finish();
}

fn envelopes(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("read_and_decide_debezium");
    group.throughput(Throughput::Elements(1));
    for (name, key, value) in
        [("envelope", KEY, ENVELOPE), ("envelope_with_schema", KEY_WITH_SCHEMA, ENVELOPE_WITH_SCHEMA)]
    {
        let mut judge = Judge::new(debezium());
        let record = Record { key: Some(key.as_bytes()), ..record(value) };
        assert!(judge.judge(&record, None));
        let entry = judge.entry.clone();
        let mut known = Vec::new();
        EntryRef { version: Some(b"\x81\x01"), ..EntryRef::decode(&entry).expect("an entry") }.encode(&mut known);
        let known = known.as_slice();
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        (0..1000).for_each(|_| {
            black_box(judge.judge(black_box(&record), Some(known)));
        });
        assert_eq!(ALLOCATIONS.load(Ordering::Relaxed), before, "{name} allocates");
        group.bench_function(name, |bencher| bencher.iter(|| judge.judge(black_box(&record), black_box(Some(known)))));
    }
    group.finish();
}

/// Parsing into a tree, for comparison.
fn tree(criterion: &mut Criterion) {
    for (name, value) in [("serde_json_value_160_bytes", NUMBERS), ("serde_json_value_envelope", ENVELOPE)] {
        criterion.bench_function(name, |bencher| {
            bencher.iter(|| serde_json::from_str::<serde_json::Value>(black_box(value)).is_ok());
        });
    }
}

criterion_group!(benches, judging, envelopes, tree);
criterion_main!(benches);
