//! Compares a store and an overlay with a plain map, under all calls that a lane makes and under crashes. A list takes
//! the changelog's place: after each crash the store is restored from it, as the engine would do.

use proptest::prelude::*;

use super::folders::{copy_as_it_is, folder};
use super::*;
use crate::state::tests::disk_in_memory::{Loads, Memtables, SimulatedDisk};

type Records = Vec<(Vec<u8>, Option<Vec<u8>>)>;

#[derive(Clone, Debug)]
enum Op {
    Put(Vec<u8>, Option<Vec<u8>>),
    Commit,
    Abort,
    Flush,
    Reopen,
    /// The process dies; and `restore_crashes` more times while the store is being restored, in loads of
    /// `chunk` records.
    Crash {
        chunk: usize,
        as_file: bool,
        restore_crashes: usize,
        /// How many unflushed writes a simulated disk keeps, modulo the number that there are.
        keeps: usize,
    },
    /// The store is restored from the first record on, although it is intact.
    LoadAll {
        chunk: usize,
        as_file: bool,
    },
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => (0..12_u8).prop_map(|n| vec![KIND_IDENTITY, n]),
        2 => (0..4_u8).prop_map(|n| vec![crate::format::KIND_IDENTITY_DIGEST, n]),
        1 => Just(POSITION_KEY.to_vec()),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let value = proptest::option::weighted(0.7, proptest::collection::vec(any::<u8>(), 0..30));
    prop_oneof![
        30 => (key(), value).prop_map(|(key, value)| Op::Put(key, value)),
        8 => Just(Op::Commit),
        2 => Just(Op::Abort),
        3 => Just(Op::Flush),
        1 => Just(Op::Reopen),
        3 => (1..20_usize, any::<bool>(), 0..3_usize, any::<usize>()).prop_map(|(chunk, as_file, restore_crashes, keeps)| {
            Op::Crash { chunk, as_file, restore_crashes, keeps }
        }),
        1 => (1..20_usize, any::<bool>()).prop_map(|(chunk, as_file)| Op::LoadAll { chunk, as_file }),
    ]
}

/// The engine's view: one store, the changelog that the store can be restored from, and the number of changelog records
/// that must survive a crash.
struct World {
    copies: usize,
    memory: Memory,
    /// The simulated disk, if it is one.
    disk: Option<SimulatedDisk>,
    store: Option<Store>,
    overlay: Overlay,
    changelog: Records,
    flushed: usize,
    /// Whether each memtable becomes a file.
    has_table_files: bool,
    /// Dropped last: if its folder is gone, RocksDB retries writes for a second.
    root: tempfile::TempDir,
}

impl World {
    fn new(disk: Option<SimulatedDisk>, Memtables { bytes, records }: Memtables, has_table_files: bool) -> Self {
        let root = folder();
        let real = || Memory::with_memtables(8 << 20, bytes, records);
        let memory = disk.as_ref().map_or_else(real, SimulatedDisk::memory);
        let store = Some(Store::open(&root.path().join("0"), &memory).unwrap());
        let (overlay, changelog) = (Overlay::new(), Vec::new());
        Self { root, copies: 0, memory, disk, store, overlay, changelog, flushed: 0, has_table_files }
    }

    fn store(&mut self) -> &mut Store {
        self.store.as_mut().unwrap()
    }

    fn state_at(&self, offset: usize) -> Map {
        let mut map = Map::new();
        self.changelog[..offset].iter().for_each(|(key, value)| apply(&mut map, key, value.as_deref()));
        map
    }

    fn run(&mut self, op: Op) {
        match op {
            Op::Put(key, value) => {
                self.overlay.put(&key, value.as_deref());
                assert_eq!(self.overlay.get(&key), Some(value.as_deref()));
            }
            Op::Commit => self.commit(),
            Op::Abort => self.overlay.clear(),
            Op::Flush => {
                self.store().flush().unwrap();
                self.flushed = self.changelog.len();
            }
            Op::Reopen => {
                let dir = self.store().path().to_owned();
                self.reopen(&dir);
                self.flushed = self.changelog.len();
                self.check_current();
            }
            Op::Crash { chunk, as_file, restore_crashes, keeps } => {
                self.crash(keeps);
                self.restore(chunk, as_file, restore_crashes, keeps);
            }
            Op::LoadAll { chunk, as_file } => {
                self.store().begin_load(&loading(0)).unwrap();
                self.flushed = 0;
                self.restore(chunk, as_file, 0, 0);
            }
        }
    }

    fn commit(&mut self) {
        let written = self.overlay.iter().map(|(key, value)| (key.to_owned(), value.map(<[u8]>::to_owned)));
        self.changelog.extend(written);
        let meta = meta(self.changelog.len());
        let file_bytes_min = if self.has_table_files { 0 } else { usize::MAX };
        self.store().set_ingest_bytes_min(file_bytes_min);
        self.store.as_mut().unwrap().commit(&self.overlay, &meta).unwrap();
        self.overlay.clear();
        self.check_current();
    }

    fn check_current(&mut self) {
        let expected = self.state_at(self.changelog.len());
        assert_eq!(contents(self.store()).unwrap(), expected);
        let keys: Vec<_> = (0..14).map(|n| [KIND_IDENTITY, n]).collect();
        let keys: Vec<&[u8]> = keys.iter().map(<[u8; 2]>::as_slice).collect();
        let check = |index: usize, value: Option<&[u8]>| {
            assert_eq!(value, expected.get(keys[index]).map(Vec::as_slice));
        };
        self.store().get_sorted(&keys, check).unwrap();
        if let Some(meta) = self.store().meta().unwrap() {
            assert_eq!(offset(&meta), self.changelog.len());
            assert!(meta.token.is_some());
        }
    }

    /// Continues with the store in its current state on the disk, and checks that nothing promised is lost.
    fn crash(&mut self, keeps: usize) {
        let mut dir = self.store().path().to_owned();
        match &self.disk {
            Some(disk) => disk.crash(|batches| keeps % (batches + 1)),
            None => {
                self.copies += 1;
                let copy = self.root.path().join(self.copies.to_string());
                copy_as_it_is(&dir, &copy);
                dir = copy;
            }
        }
        self.overlay.clear();
        self.reopen(&dir);
        let Some(meta) = self.store().meta().unwrap() else {
            assert_eq!(self.flushed, 0, "a flushed commit is gone");
            assert_eq!(contents(self.store()).unwrap(), Map::new());
            return;
        };
        assert!(offset(&meta) >= self.flushed, "a flushed commit is gone");
        if meta.token.is_some() {
            assert_eq!(contents(self.store()).unwrap(), self.state_at(offset(&meta)), "not a state after a commit");
        }
    }

    fn reopen(&mut self, dir: &Path) {
        // The previous store is closed first, which flushes its writes to its own folder.
        self.store = None;
        self.store = Some(Store::open(dir, &self.memory).unwrap());
    }

    /// Reads the changelog from the store's offset to its end.
    fn restore(&mut self, chunk: usize, as_file: bool, mut crashes: usize, keeps: usize) {
        let mut at = self.store().meta().unwrap().as_ref().map_or(0, offset);
        self.store().begin_load(&loading(at)).unwrap();
        while at < self.changelog.len() {
            self.store().set_ingest_bytes_min(if as_file { 0 } else { usize::MAX });
            let to = self.changelog.len().min(at + chunk);
            let mut buffer = LoadBuffer::new();
            self.changelog[at..to].iter().for_each(|(key, value)| buffer.put(key, value.as_deref()));
            self.store().load(buffer, loading(to)).unwrap();
            at = to;
            if crashes > 0 {
                // A crash loses pending loads; ingested loads are on the disk.
                self.store().finish_loads().unwrap();
                crashes -= 1;
                self.flushed = 0;
                self.crash(keeps);
                let meta = self.store().meta().unwrap().unwrap();
                assert_eq!(meta.token, None, "a store that was killed while loading looks current");
                at = offset(&meta);
            }
        }
        self.store().finish_loads().unwrap();
        self.store().set_meta(&meta(at)).unwrap();
        self.check_current();
    }
}

fn run_all(mut world: World, ops: Vec<Op>) {
    for op in ops {
        world.run(op);
    }
    world.run(Op::Commit);
}

fn memtables() -> impl Strategy<Value = Memtables> {
    let sizes = (prop_oneof![Just(0), 100..2000_usize, Just(usize::MAX)], prop_oneof![1..30_usize, Just(usize::MAX)]);
    sizes.prop_map(|(bytes, records)| Memtables { bytes, records })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn store_is_always_the_state_after_some_commit(
        ops in proptest::collection::vec(op(), 1..60),
        memtables in memtables(),
        has_table_files: bool,
    ) {
        run_all(World::new(None, memtables, has_table_files), ops);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn simulated_store_is_always_the_state_after_some_commit(
        ops in proptest::collection::vec(op(), 1..60),
        one_read: bool,
        memtables in memtables(),
        has_table_files: bool,
    ) {
        let disk = SimulatedDisk::new(Loads { one_read, ..Loads::default() }, memtables);
        run_all(World::new(Some(disk), memtables, has_table_files), ops);
    }
}
