//! What records cost in stores alone, as lanes use them: a batch's identities are looked up, what is new is written to
//! the transaction's overlay, and every so many records it is committed. Updates of a million keys with rising
//! versions, UUIDs of which a fifth repeat one of the last thousand, and numbers that rise, of which a fifth repeat, too.
//!
//! `cargo bench --profile release --bench memtable`; some 20 s. `RATCHET_BENCH_RECORDS` (default 4,000,000),
//! `RATCHET_BENCH_MEMORY_MIB` (default 640, what stores get of 1 GiB), `RATCHET_BENCH_ROUNDS` (default 3),
//! `RATCHET_BENCH_WORK` (`versions`, `uuids` or `numbers`; default all), `RATCHET_BENCH_DIR` (default the system's
//! folder for temporary files) set the amount of work.
#![expect(clippy::disallowed_methods, reason = "a benchmark measures with the machine's clocks")]

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use ratchet::format::KIND_IDENTITY;
use ratchet::state::{Memory, Overlay, Store, key_head};

#[path = "support/entry.rs"]
mod entry;
#[path = "support/position.rs"]
mod position;
#[path = "support/process.rs"]
mod process;
#[path = "support/uuid.rs"]
mod uuid;

use entry::{entry, setting};
use position::current;
use process::{cpu, status_mib, thread_cpu};
use random::mix;
use ratchet_testkit::random;
use uuid::Uuid;

/// As in the program.
#[cfg(feature = "program")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const STORES: usize = 4;
const KEYS: u64 = 1_000_000;
/// Records of one store in a batch.
const BATCH: u64 = 1_024;
/// Batches of one store in a transaction.
const BATCHES: u64 = 10;
/// How far back a repeated record may be.
const BACK: u64 = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Versions,
    Uuids,
    Numbers,
}

impl Work {
    const ALL: [Self; 3] = [Self::Versions, Self::Uuids, Self::Numbers];

    fn name(self) -> &'static str {
        match self {
            Self::Versions => "versions",
            Self::Uuids => "uuids",
            Self::Numbers => "numbers",
        }
    }

    /// The identity's number of a store's record number `n`, and whether it is a repeat.
    fn number(self, n: u64) -> (u64, bool) {
        let is_repeat = n % 5 == 4;
        let number = match (self, is_repeat) {
            (Self::Versions, _) => mix(n) % (KEYS / STORES as u64),
            (_, false) => n - n / 5,
            (_, true) => (n - n / 5).saturating_sub(1 + mix(n) % BACK),
        };
        (number, is_repeat && self != Self::Versions)
    }

    /// Appends the key of a store's identity.
    fn key(self, store: usize, number: u64, key: &mut Vec<u8>) {
        let id = number * STORES as u64 + store as u64;
        let text = &mut Text(key);
        text.0.push(KIND_IDENTITY);
        let written = match self {
            Self::Versions => write!(text, "{id:08}"),
            Self::Uuids => write!(text, "{}", Uuid(id)),
            Self::Numbers => write!(text, "{id}"),
        };
        written.expect("a vector takes all text");
    }
}

struct Text<'a>(&'a mut Vec<u8>);

impl std::fmt::Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

/// A batch's identities, made before anything is measured.
struct Batch {
    bytes: Vec<u8>,
    /// Where each key is, in the order of records.
    keys: Vec<(usize, usize)>,
    fresh: u64,
}

impl Batch {
    fn new(work: Work, store: usize, number: u64) -> Self {
        let mut batch = Self { bytes: Vec::new(), keys: Vec::new(), fresh: 0 };
        for n in number * BATCH..(number + 1) * BATCH {
            let (number, is_repeat) = work.number(n);
            let start = batch.bytes.len();
            work.key(store, number, &mut batch.bytes);
            batch.keys.push((start, batch.bytes.len()));
            batch.fresh += u64::from(!is_repeat);
        }
        batch
    }

    fn key(&self, at: usize) -> &[u8] {
        let (start, end) = self.keys[at];
        &self.bytes[start..end]
    }
}

/// What a lane does with a store.
struct Task {
    store: Store,
    overlay: Overlay,
    order: Vec<(u128, usize)>,
    known: Vec<bool>,
    value: Vec<u8>,
}

impl Task {
    /// Looks a batch up, and writes what is new; returns how many those are.
    fn take(&mut self, work: Work, batch: &Batch, first: u64) -> u64 {
        let Self { store, overlay, order, known, value: bytes, .. } = self;
        order.clear();
        order.extend((0..batch.keys.len()).map(|at| (key_head(batch.key(at)), at)));
        order.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| batch.key(a.1).cmp(batch.key(b.1))));
        let keys: Vec<&[u8]> = order.iter().map(|&(_, at)| batch.key(at)).collect();
        known.clear();
        known.resize(keys.len(), false);
        store.get_sorted(&keys, |at, value| known[order[at].1] = value.is_some()).expect("it can be read");
        let mut fresh = 0;
        for (at, n) in (first..).take(batch.keys.len()).enumerate() {
            let key = batch.key(at);
            if work == Work::Versions || !(overlay.get(key).is_some() || known[at]) {
                let version = n.to_be_bytes();
                entry(n, (work == Work::Versions).then_some(&version[..]), bytes);
                overlay.put(key, Some(bytes));
                fresh += 1;
            }
        }
        fresh
    }
}

fn open(dir: &Path, memory: &Memory) -> Vec<Task> {
    let task = |number: usize| {
        let store = Store::open(&dir.join(number.to_string()), memory).expect("it can be opened");
        let (overlay, order, known) = (Overlay::new(), Vec::new(), Vec::new());
        Task { store, overlay, order, known, value: Vec::new() }
    };
    (0..STORES).map(task).collect()
}

/// What a run takes.
struct Times {
    wall: Duration,
    /// CPU time of the lane's thread.
    lane: Duration,
    /// CPU time of the process, until the stores are closed.
    process: Duration,
    closing: Duration,
}

/// The next batches of all stores, a transaction's.
fn batches(work: Work, round: u64) -> Vec<(usize, u64, Batch)> {
    let of_round = |batch: u64| (0..STORES).map(move |store| (store, round * BATCHES + batch));
    let batch = |(store, number): (usize, u64)| (store, number * BATCH, Batch::new(work, store, number));
    (0..BATCHES).flat_map(of_round).map(batch).collect()
}

fn run(work: Work, records: u64, memory_bytes: u64, root: &Path) -> Times {
    let dir = tempfile::tempdir_in(root).expect("a folder");
    let mut tasks = open(dir.path(), &Memory::new(memory_bytes));
    let (mut wall, mut lane, mut apart) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
    let used = cpu();
    for round in 0..records / (BATCH * BATCHES * STORES as u64) {
        let making = thread_cpu();
        let batches = batches(work, round);
        let (began, working) = (Instant::now(), thread_cpu());
        apart += working - making;
        for (store, first, batch) in &batches {
            let fresh = tasks[*store].take(work, batch, *first);
            assert_eq!(fresh, batch.fresh, "{work:?}: record {first} of store {store} or one that follows");
        }
        for task in &mut tasks {
            task.store.commit(&task.overlay, &current()).expect("there is space");
            task.overlay.clear();
        }
        wall += began.elapsed();
        lane += thread_cpu() - working;
    }
    let began = Instant::now();
    tasks.clear();
    Times { wall, lane, process: cpu() - used - apart, closing: began.elapsed() }
}

fn main() {
    let records = setting("RATCHET_BENCH_RECORDS", 4_000_000);
    let memory_bytes = setting("RATCHET_BENCH_MEMORY_MIB", 640) << 20;
    let root = std::env::var_os("RATCHET_BENCH_DIR").map_or_else(std::env::temp_dir, Into::into);
    let wanted = std::env::var("RATCHET_BENCH_WORK").ok();
    for round in 1..=setting("RATCHET_BENCH_ROUNDS", 3) {
        for work in Work::ALL.into_iter().filter(|work| wanted.as_ref().is_none_or(|wanted| wanted == work.name())) {
            let times = run(work, records, memory_bytes, &root);
            let us = |time: Duration| time.as_nanos() as f64 / records as f64 / 1e3;
            println!(
                "{round} {:8} {records} records: {:5.2} us, CPU of the lane {:5.2} us, of the process {:5.2} us; closed in \
                 {:4} ms; at most {} MiB",
                work.name(),
                us(times.wall),
                us(times.lane),
                us(times.process),
                times.closing.as_millis(),
                status_mib("VmHWM:"),
            );
        }
    }
}
