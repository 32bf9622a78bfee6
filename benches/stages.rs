//! A batch's way through a lane without Kafka, stage by stage: the records' fields are read, their entries looked up
//! in the store, then each is decided on and remembered in the overlay.
//!
//! `cargo bench --profile release --bench stages`. The store holds a million entries; of ten records, two are
//! known to the store, two repeat one of their own batch, and six are new.

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ratchet::dedup::{
    Action, Evaluator, Identity, Memory as Remembers, Path as FieldPath, Progress, Reader, Reading, Rules, Subject,
    Version,
};
use ratchet::record::{Headers, Record};
use ratchet::state::{LoadBuffer, Memory, Overlay, Store, key_head};

#[path = "support/position.rs"]
mod position;

use position::meta;

const KNOWN: u64 = 1_000_000;
/// How many records a lane takes in one poll.
const BATCH: u64 = 4096;
const BATCHES: u64 = 16;
const MEMORY_BYTES: u64 = 512 << 20;
const TIMESTAMP: i64 = 1_723_456_789_000;

fn rules() -> Arc<Rules> {
    let path = |text: &str| FieldPath::parse(text).expect("a path");
    Arc::new(Rules::new(Identity::of_paths([path("value.event_id")]), Some(Version::integer(path("value.version")))))
}

/// A value of 160 bytes with the identity `id`.
fn value(id: u64) -> String {
    let mut value = format!(r#"{{"event_id":{id},"account":"{:08}","version":7,"kind":"charge","note":""#, id % 1000);
    value.extend(std::iter::repeat_n('x', 158 - value.len()));
    value + "\"}"
}

/// The identities of a batch. Those below [`KNOWN`] are in the store.
fn identities(batch: u64) -> impl Iterator<Item = u64> {
    let scattered = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    (batch * BATCH..(batch + 1) * BATCH).map(move |n| match n % 10 {
        0 | 5 => scattered(n) % KNOWN,
        4 | 9 => KNOWN + scattered(n - 1),
        _ => KNOWN + scattered(n),
    })
}

fn record(value: &str, offset: i64) -> Record<'_> {
    let (value, timestamp) = (Some(value.as_bytes()), Some(TIMESTAMP));
    Record { topic: "payments", partition: 0, offset, timestamp, key: Some(b"key"), value, headers: Headers::default() }
}

/// A batch's stages, as in `engine::judge`.
struct Stages {
    rules: Arc<Rules>,
    reader: Reader,
    progress: Progress,
    overlay: Overlay,
    arena: Vec<u8>,
    readings: Vec<Reading>,
    order: Vec<(u128, usize)>,
    stored: Vec<Option<Vec<u8>>>,
    evaluator: Evaluator,
}

/// The entry of a record's identity from the overlay, or else from the store.
struct Remembered<'a> {
    overlay: &'a Overlay,
    stored: Option<&'a [u8]>,
}

impl<'a> Remembers<'a> for Remembered<'a> {
    fn identity(&self, _row: usize, key: &[u8]) -> Option<&'a [u8]> {
        self.overlay.get(key).unwrap_or(self.stored)
    }

    fn table(&self, _row: usize, _key: &[u8]) -> Option<&'a [u8]> {
        None
    }
}

impl Stages {
    fn new() -> Self {
        let rules = rules();
        Self {
            reader: Reader::new(Arc::clone(&rules)),
            rules,
            progress: Progress::default(),
            overlay: Overlay::new(),
            arena: Vec::new(),
            readings: Vec::new(),
            order: Vec::new(),
            stored: Vec::new(),
            evaluator: Evaluator::default(),
        }
    }

    fn read(&mut self, values: &[String]) {
        self.arena.clear();
        self.readings.clear();
        for (value, offset) in values.iter().zip(0..) {
            self.readings.push(self.reader.read(&record(value, offset), &mut self.arena));
        }
    }

    fn look_up(&mut self, store: &Store) -> usize {
        let Self { arena, readings, order, stored, .. } = self;
        // Each reading has one row.
        let key = |at: usize| &arena[readings[at].rows()[0].key.clone()];
        order.clear();
        order.extend((0..readings.len()).map(|at| (key_head(key(at)), at)));
        order.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| key(a.1).cmp(key(b.1))));
        let keys: Vec<&[u8]> = order.iter().map(|&(_, at)| key(at)).collect();
        stored.clear();
        stored.resize(readings.len(), None);
        let mut found = 0;
        let keep = |at: usize, value: Option<&[u8]>| {
            found += usize::from(value.is_some());
            stored[order[at].1] = value.map(<[u8]>::to_vec);
        };
        store.get_sorted(&keys, keep).expect("it can be read");
        found
    }

    /// Returns how many are forwarded.
    fn decide(&mut self, values: &[String]) -> usize {
        let Self { rules, progress, overlay, arena, readings, stored, evaluator, .. } = self;
        let mut forwarded = 0;
        for (((value, offset), reading), stored) in values.iter().zip(0..).zip(readings.iter()).zip(stored.iter()) {
            let record = record(value, offset);
            let subject = Subject { record: &record, reading: Some(reading), arena };
            let memory = Remembered { overlay, stored: stored.as_deref() };
            let evaluated = evaluator.evaluate((rules, TIMESTAMP), progress, subject, &memory, || true);
            let evaluation = evaluated.expect("an entry").expect("the clock is certain");
            evaluator.remember(progress, subject, |_, key, entry| overlay.put(key, Some(entry)));
            forwarded += usize::from(evaluation.decision.action == Action::Forward);
        }
        forwarded
    }
}

/// A store that knows the first million identities.
fn store(dir: &Path) -> Store {
    let mut stages = Stages::new();
    let mut buffer = LoadBuffer::new();
    for id in 0..KNOWN {
        stages.overlay.clear();
        let values = [value(id)];
        stages.read(&values);
        stages.stored = vec![None];
        assert_eq!(stages.decide(&values), 1);
        stages.overlay.iter().for_each(|(key, entry)| buffer.put(key, entry));
    }
    let mut store = Store::open(dir, &Memory::new(MEMORY_BYTES)).expect("the folder is new");
    store.begin_load(&meta(None)).expect("there is space");
    store.load(buffer, meta(None)).expect("there is space");
    store.finish_loads().expect("there is space");
    store
}

fn stages(criterion: &mut Criterion) {
    let dir = tempfile::tempdir().expect("a folder");
    let store = store(dir.path());
    let batches: Vec<Vec<String>> = (0..BATCHES).map(|batch| identities(batch).map(value).collect()).collect();
    let mut stages = Stages::new();
    let mut group = criterion.benchmark_group("a batch of 4096 records");
    group.throughput(Throughput::Elements(BATCH));
    // Checks the mix, and brings all of it into the block cache.
    for batch in &batches {
        stages.overlay.clear();
        stages.read(batch);
        let (found, forwarded) = (stages.look_up(&store), stages.decide(batch));
        assert!(
            (700..900).contains(&found) && (2300..2600).contains(&forwarded),
            "{found} found, {forwarded} forwarded"
        );
    }
    // Each stage needs the results of the one before, so each figure includes the earlier stages.
    let mut turns = batches.iter().cycle();
    let mut next = || black_box(turns.next().expect("it cycles"));
    group.bench_function("read", |bencher| bencher.iter(|| stages.read(next())));
    group.bench_function("read and look up", |bencher| {
        bencher.iter(|| {
            stages.read(next());
            stages.look_up(&store)
        });
    });
    group.bench_function("read, look up, decide and remember", |bencher| {
        bencher.iter(|| {
            let batch = next();
            stages.overlay.clear();
            stages.read(batch);
            stages.look_up(&store);
            stages.decide(batch)
        });
    });
    group.finish();
}

criterion_group!(benches, stages);
criterion_main!(benches);
