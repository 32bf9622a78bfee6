//! Measures a large state: millions of entries in four stores are loaded as in a restore, then looked up: half of the
//! lookups hits, only hits, only misses; and a small state for comparison, in the same process. Also times opening and
//! closing, and shows the process's memory at each step.
//!
//! `cargo bench --profile release --bench large`. `RATCHET_BENCH_ENTRIES` (default 50,000,000),
//! `RATCHET_BENCH_MEMORY_MIB` (default 1024), `RATCHET_BENCH_LOOKUPS` (default 2,000,000),
//! `RATCHET_BENCH_DIR` (default the system's folder for temporary files) set the amount of work. With
//! `RATCHET_BENCH_KEEP=1` the loaded state stays in that folder, and the next run of as many entries looks up there
//! what is in it: nothing is loaded, and nothing is written.
#![expect(clippy::disallowed_methods, reason = "a benchmark measures with the machine's clocks")]

use std::path::Path;
use std::time::{Duration, Instant};

use ratchet::state::{LoadBuffer, Memory, Overlay, Store};

#[path = "support/entry.rs"]
mod entry;
#[path = "support/keys.rs"]
mod keys;
#[path = "support/position.rs"]
mod position;
#[path = "support/process.rs"]
mod process;

use entry::{entry, setting};
use keys::key;
use position::{current, meta};
use process::{cpu, status_mib};
use random::mix;
use ratchet_testkit::random;

const STORES: u64 = 4;
const SMALL_ENTRIES: u64 = 1_000_000;
const LOOKUPS: u64 = 512;
/// How many entries a transaction writes, in the rounds that also write.
const COMMIT_ENTRIES: u64 = 10_000;

fn measured<T>(what: &str, per: u64, run: impl FnOnce() -> T) -> T {
    let (started, used) = (Instant::now(), cpu());
    let done = run();
    let (wall, used) = (started.elapsed(), cpu().saturating_sub(used));
    let ns = |time: Duration| time.as_nanos() as f64 / per as f64;
    println!(
        "{what:44} {:8.3} s {:8.3} M/s {:7.0} ns wall {:7.0} ns CPU; RSS {} MiB, at most {} MiB",
        wall.as_secs_f64(),
        per as f64 / wall.as_secs_f64() / 1e6,
        ns(wall),
        ns(used),
        status_mib("VmRSS:"),
        status_mib("VmHWM:"),
    );
    done
}

/// Fills the stores as restores do that take turns, a slice each.
fn load(stores: &mut [Store], memory: &Memory, entries: u64) {
    let mut buffers: Vec<Option<LoadBuffer>> = stores.iter().map(|_| None).collect();
    let mut bytes = Vec::new();
    let mut next = 0;
    stores.iter_mut().for_each(|store| store.begin_load(&meta(None)).expect("there is space"));
    while next < entries {
        for (at, store) in stores.iter_mut().enumerate() {
            store.ingest_ready_loads().expect("there is space");
            if buffers[at].as_ref().is_some_and(|buffer| !buffer.has_room(2048)) {
                store.load(buffers[at].take().expect("seen"), meta(None)).expect("there is space");
            }
            while buffers[at].is_none() {
                buffers[at] = memory.load_buffer();
                store.ingest_ready_loads().expect("there is space");
            }
            let buffer = buffers[at].as_mut().expect("made above");
            for n in next..(next + 2048).min(entries) {
                entry(n, None, &mut bytes);
                if n % STORES == at as u64 {
                    buffer.put(&key(n), Some(&bytes));
                }
            }
        }
        next += 2048;
    }
    for (store, buffer) in stores.iter_mut().zip(buffers) {
        store.load(buffer.expect("made above"), meta(None)).expect("there is space");
        store.finish_loads().expect("there is space");
        store.set_meta(&current()).expect("there is space");
    }
}

/// Which keys are looked up.
#[derive(Clone, Copy)]
enum Wanted {
    Hits,
    Misses,
    /// As many of both.
    Both,
}

/// Looks up keys in sorted batches, one store after the other; with `written`, also commits new ones from that number on.
fn look(stores: &mut [Store], (entries, wanted): (u64, Wanted), seed: u64, lookups: u64, mut written: Option<u64>) {
    let (mut found, mut expected) = (0, 0);
    let mut bytes = Vec::new();
    let mut overlays: Vec<Overlay> = stores.iter().map(|_| Overlay::new()).collect();
    for batch in 0..lookups / LOOKUPS {
        let at = batch % STORES;
        let mut number = |n: u64| {
            let random = mix(seed.wrapping_add(batch * LOOKUPS + n));
            let known = random % (entries / STORES) * STORES + at;
            let is_hit = match wanted {
                Wanted::Hits => true,
                Wanted::Misses => false,
                Wanted::Both => n.is_multiple_of(2),
            };
            expected += u64::from(is_hit);
            if is_hit { known } else { known + (1 << 40) }
        };
        let mut keys: Vec<_> = (0..LOOKUPS).map(|n| key(number(n))).collect();
        keys.sort_unstable();
        let keys: Vec<&[u8]> = keys.iter().map(<[u8; 17]>::as_slice).collect();
        let store = &mut stores[at as usize];
        store.get_sorted(&keys, |_, value| found += u64::from(value.is_some())).expect("it can be read");
        if let Some(next) = &mut written {
            let overlay = &mut overlays[at as usize];
            for n in *next..*next + LOOKUPS / 2 {
                entry(n, None, &mut bytes);
                overlay.put(&key(n), Some(&bytes));
            }
            *next += LOOKUPS / 2;
            if overlay.len() as u64 >= COMMIT_ENTRIES {
                store.commit(overlay, &current()).expect("there is space");
                overlay.clear();
            }
        }
    }
    assert_eq!(found, expected, "those that exist are there");
}

fn open(dir: &Path, memory: &Memory) -> Vec<Store> {
    (0..STORES).map(|at| Store::open(&dir.join(at.to_string()), memory).expect("it can be opened")).collect()
}

/// Times hits, misses and both, some rounds each.
fn rounds(stores: &mut [Store], entries: u64, lookups: u64) {
    for round in 3..6 {
        for (wanted, what) in
            [(Wanted::Both, "lookups"), (Wanted::Hits, "lookups, hits"), (Wanted::Misses, "lookups, misses")]
        {
            measured(what, lookups, || look(stores, (entries, wanted), (round << 40) + wanted as u64, lookups, None));
        }
    }
}

fn run(dir: &Path, entries: u64, memory_bytes: u64, lookups: u64) {
    println!("{entries} entries in {STORES} stores, memory {} MiB", memory_bytes >> 20);
    let memory = Memory::new(memory_bytes);
    let mut stores = open(dir, &memory);
    let both = (entries, Wanted::Both);
    if stores[0].meta().expect("it can be read").is_some() {
        measured("lookups at once", lookups, || look(&mut stores, both, 1, lookups, None));
        rounds(&mut stores, entries, lookups);
        return;
    }
    measured("load", entries, || load(&mut stores, &memory, entries));
    measured("lookups at once", lookups, || look(&mut stores, both, 1, lookups, None));
    measured("lookups, again", lookups, || look(&mut stores, both, 2, lookups, None));
    measured("compactions finished", entries, || wait_for_compactions(&stores));
    rounds(&mut stores, entries, lookups);
    if keeps() {
        return;
    }
    measured("lookups and half as many new entries", lookups, || {
        look(&mut stores, both, 7 << 40, lookups, Some(1 << 50))
    });
    measured("flushed and closed", STORES, || {
        stores.iter_mut().for_each(|store| store.flush().expect("there is space"));
        stores.clear();
    });
    stores = measured("opened, meta read", STORES, || {
        let stores = open(dir, &memory);
        stores.iter().for_each(|store| assert_eq!(store.meta().expect("it can be read"), Some(current())));
        stores
    });
    measured("first lookups", LOOKUPS * STORES, || look(&mut stores, both, 9 << 40, LOOKUPS * STORES, None));
    measured("closed", STORES, || stores.clear());
}

fn keeps() -> bool {
    setting("RATCHET_BENCH_KEEP", 0) == 1
}

/// Waits until compactions seem to have ended: the stores' size does not change, and hardly any CPU time is used.
fn wait_for_compactions(stores: &[Store]) {
    let mut before = (0, cpu());
    loop {
        std::thread::sleep(Duration::from_millis(500));
        let now = (stores.iter().map(Store::bytes).sum::<u64>(), cpu());
        if now.0 == before.0 && now.1 - before.1 < Duration::from_millis(20) {
            return println!("{} MiB on disk", now.0 >> 20);
        }
        before = now;
    }
}

fn main() {
    let entries = setting("RATCHET_BENCH_ENTRIES", 50_000_000);
    let lookups = setting("RATCHET_BENCH_LOOKUPS", 2_000_000);
    let memory_bytes = setting("RATCHET_BENCH_MEMORY_MIB", 1024) << 20;
    let root = std::env::var_os("RATCHET_BENCH_DIR").map_or_else(std::env::temp_dir, Into::into);
    if keeps() {
        let dir = root.join(format!("large-{entries}"));
        std::fs::create_dir_all(&dir).expect("a folder");
        return run(&dir, entries, memory_bytes, lookups);
    }
    for entries in [SMALL_ENTRIES, entries] {
        let dir = tempfile::tempdir_in(&root).expect("a folder");
        run(dir.path(), entries, memory_bytes, lookups);
    }
}
