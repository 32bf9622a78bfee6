//! Goal: the same calls have the same results on the simulated disk and on RocksDB, and the simulated disk's faults are
//! the same as the real ones, which `damage` tests.

use std::ops::Range;

use proptest::prelude::*;

use super::*;
use crate::format::KIND_IDENTITY_DIGEST;
use crate::state::tests::disk_in_memory::{Loads, Memtables, SimulatedDisk};

type Records = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// A call, or several that belong together.
#[derive(Clone, Debug)]
enum Op {
    Commit(Records),
    SetMeta { is_loading: bool },
    BeginLoad,
    Load { records: Records, as_file: bool },
    FinishLoads,
    Apply(Records),
    KeepCopy,
    Flush,
    SetAside,
    PutBack,
    PutBackOver,
    RemoveAside,
    Recover,
    Reopen,
    WipeWhileOpen,
    Wipe,
    OpenTwice,
    GetSorted(Vec<Vec<u8>>),
    Scan { after: Option<Vec<u8>>, keys_max: usize },
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    let entry =
        |kind: u8, ids: Range<u8>| proptest::collection::vec(ids, 0..3).prop_map(move |id| [vec![kind], id].concat());
    prop_oneof![
        8 => entry(KIND_IDENTITY, 0..5),
        2 => entry(KIND_IDENTITY_DIGEST, 0..3),
        1 => Just(POSITION_KEY.to_vec()),
        1 => Just(vec![KIND_IDENTITY_DIGEST + 1]),
    ]
}

fn records() -> impl Strategy<Value = Records> {
    let value = proptest::option::weighted(0.7, proptest::collection::vec(any::<u8>(), 0..30));
    proptest::collection::vec((key(), value), 0..12)
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => records().prop_map(Op::Commit),
        2 => any::<bool>().prop_map(|is_loading| Op::SetMeta { is_loading }),
        3 => Just(Op::BeginLoad),
        6 => (records(), any::<bool>()).prop_map(|(records, as_file)| Op::Load { records, as_file }),
        2 => Just(Op::FinishLoads),
        2 => records().prop_map(Op::Apply),
        2 => Just(Op::KeepCopy),
        2 => Just(Op::Flush),
        2 => Just(Op::SetAside),
        1 => Just(Op::PutBack),
        1 => Just(Op::PutBackOver),
        1 => Just(Op::RemoveAside),
        1 => Just(Op::Recover),
        2 => Just(Op::Reopen),
        1 => Just(Op::WipeWhileOpen),
        1 => Just(Op::Wipe),
        1 => Just(Op::OpenTwice),
        4 => proptest::collection::vec(key(), 0..9).prop_map(Op::GetSorted),
        4 => (proptest::option::of(key()), 1..9_usize).prop_map(|(after, keys_max)| Op::Scan { after, keys_max }),
    ]
}

/// An error's kind: messages and folders differ.
fn kind(error: &Error) -> String {
    format!("{error:?}").split(' ').next().unwrap_or_default().to_owned()
}

/// A store and what is needed to reopen it.
struct Side {
    memory: Memory,
    dir: PathBuf,
    store: Option<Store>,
    calls: usize,
    is_loading: bool,
}

impl Side {
    fn new(memory: Memory, dir: PathBuf) -> Self {
        let store = Some(Store::open(&dir, &memory).unwrap());
        Self { memory, dir, store, calls: 0, is_loading: false }
    }

    /// Makes the call, and describes everything observable.
    #[expect(clippy::too_many_lines, reason = "one arm for each operation")]
    fn run(&mut self, op: &Op) -> String {
        self.calls += 1;
        let (at, is_loading) = (self.calls, self.is_loading);
        let store = self.store.as_mut().unwrap();
        let outcome = match op {
            Op::Commit(records) => {
                let mut overlay = Overlay::new();
                records.iter().for_each(|(key, value)| overlay.put(key, value.as_deref()));
                self.is_loading = false;
                format!("{:?}", store.commit(&overlay, &meta(at)))
            }
            Op::SetMeta { is_loading } => {
                self.is_loading &= is_loading;
                format!("{:?}", store.set_meta(&if *is_loading { loading(at) } else { meta(at) }))
            }
            Op::BeginLoad => {
                self.is_loading = true;
                format!("{:?}", store.begin_load(&loading(at)))
            }
            Op::Load { records, as_file } if is_loading => {
                store.set_ingest_bytes_min(if *as_file { 0 } else { usize::MAX });
                let mut buffer = LoadBuffer::new();
                records.iter().for_each(|(key, value)| buffer.put(key, value.as_deref()));
                let loaded = store.load(buffer, loading(at));
                // It is not specified when a load is ready, so all loads are finished.
                format!("{loaded:?} {:?}", store.finish_loads())
            }
            Op::FinishLoads | Op::Load { .. } => format!("{:?} {:?}", store.finish_loads(), store.ingest_ready_loads()),
            Op::Apply(records) => {
                let mut buffer = LoadBuffer::new();
                records.iter().for_each(|(key, value)| buffer.put(key, value.as_deref()));
                self.is_loading = false;
                format!("{:?}", store.apply(buffer, &meta(at)))
            }
            Op::KeepCopy => {
                let copy_result = aside::copy_aside(store, &self.dir, &self.memory);
                format!("{:?} {:?}", copy_result.map_err(|_| "refused"), aside::is_set_aside(&self.dir, &self.memory))
            }
            Op::Flush => format!("{:?}", store.flush()),
            Op::SetAside | Op::PutBack | Op::PutBackOver | Op::RemoveAside | Op::Recover => {
                self.store = None;
                let (dir, memory) = (&self.dir, &self.memory);
                let result = match op {
                    Op::SetAside => aside::set_aside(dir, memory),
                    Op::PutBack => aside::remove_store(dir, memory).and_then(|()| aside::put_back(dir, memory)),
                    // Fails: an existing store is not overwritten.
                    Op::PutBackOver => aside::put_back(dir, memory),
                    Op::RemoveAside => aside::remove_aside(dir, memory),
                    // As if the process was killed before a successor was begun.
                    _ => aside::set_aside(dir, memory).and_then(|()| aside::recover(dir, memory)),
                };
                let outcome = format!("{:?} {:?}", result.map_err(|_| "refused"), aside::is_set_aside(dir, memory));
                self.store = Some(Store::open(&self.dir, &self.memory).unwrap());
                let meta = self.store().meta().unwrap();
                self.is_loading = meta.is_some_and(|meta| meta.token.is_none());
                outcome
            }
            Op::Reopen => {
                self.store = None;
                self.store = Some(Store::open(&self.dir, &self.memory).unwrap());
                // The meta says whether the store is being restored.
                let meta = self.store().meta().unwrap();
                self.is_loading = meta.is_some_and(|meta| meta.token.is_none());
                String::new()
            }
            Op::WipeWhileOpen => kind(&aside::remove_store(&self.dir, &self.memory).unwrap_err()),
            Op::Wipe => {
                self.store = None;
                aside::remove_store(&self.dir, &self.memory).unwrap();
                aside::remove_store(&self.dir, &self.memory).unwrap();
                self.store = Some(Store::open(&self.dir, &self.memory).unwrap());
                self.is_loading = false;
                String::new()
            }
            Op::OpenTwice => kind(&Store::open(&self.dir, &self.memory).unwrap_err()),
            Op::GetSorted(keys) => {
                let mut keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
                keys.sort_unstable();
                let mut found = Vec::new();
                let lookup_result = store.get_sorted(&keys, |at, value| found.push((at, value.map(<[u8]>::to_vec))));
                format!("{lookup_result:?} {found:?}")
            }
            Op::Scan { after, keys_max } => {
                let mut seen = Vec::new();
                let next =
                    store.scan(after.as_deref(), *keys_max, |key, value| seen.push((key.to_vec(), value.to_vec())));
                format!("{next:?} {seen:?}")
            }
        };
        format!(
            "{outcome} {:?} {:?} {:?}",
            self.store().meta(),
            contents(self.store()),
            self.store().get(&[KIND_IDENTITY_DIGEST + 1])
        )
    }

    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn simulated_store_behaves_like_rocksdb(ops in proptest::collection::vec(op(), 1..50)) {
        let (_root, _state, dir) = task_dir();
        let mut real = Side::new(small_memory(), dir);
        let disk = SimulatedDisk::new(Loads::default(), Memtables::UNBOUNDED);
        let mut simulated = Side::new(disk.memory(), PathBuf::from("/simulated/payments/orders-3"));
        for op in &ops {
            prop_assert_eq!(simulated.run(op), real.run(op), "{:?}", op);
        }
    }
}

/// A disk to which each commit is written at once, though not flushed.
fn disk_without_memtables() -> SimulatedDisk {
    let loads = Loads { file_bytes_min: usize::MAX, ..Loads::default() };
    SimulatedDisk::new(loads, Memtables { bytes: 0, records: usize::MAX })
}

/// An open store with three commits, of which the first was flushed.
fn three_commits(disk: &SimulatedDisk, dir: &Path) -> Store {
    let mut store = Store::open(dir, &disk.memory()).unwrap();
    for number in 1..=3 {
        store.commit(&overlay_of(&[(&number.to_string(), Some("it"))]), &meta(number)).unwrap();
        if number == 1 {
            store.flush().unwrap();
        }
    }
    store
}

fn committed_number(disk: &SimulatedDisk, dir: &Path) -> usize {
    let store = Store::open(dir, &disk.memory()).unwrap();
    let at = store.meta().unwrap().as_ref().map_or(0, offset);
    assert_eq!(contents(&store).unwrap().len(), at, "the state is not that after commit {at}");
    at
}

#[test]
fn crash_undoes_the_chosen_number_of_unflushed_commits() {
    for kept_commits in 0..=2 {
        let (disk, dir) = (disk_without_memtables(), Path::new("a"));
        let mut store = three_commits(&disk, dir);
        disk.crash(|batches| {
            assert_eq!(batches, 2);
            kept_commits
        });
        // The dead process's further calls have no effect.
        store.set_meta(&meta(9)).unwrap();
        assert!(store.flush().is_err());
        assert_eq!(committed_number(&disk, dir), 1 + kept_commits);
        drop(store);
        assert_eq!(committed_number(&disk, dir), 1 + kept_commits);
    }
}

#[test]
fn table_files_survive_a_crash_and_are_ahead_of_the_meta() {
    let (disk, dir) = (SimulatedDisk::new(Loads::default(), Memtables::UNBOUNDED), Path::new("a"));
    let mut store = Store::open(dir, &disk.memory()).unwrap();
    store.begin_load(&loading(0)).unwrap();
    for number in 1..=2 {
        let mut buffer = LoadBuffer::new();
        buffer.put(&entry_key(&number.to_string()), Some(b"it"));
        store.load(buffer, loading(number)).unwrap();
    }
    assert_eq!(store.ingest_ready_loads().unwrap(), 2, "no load is ready at once");
    store.finish_loads().unwrap();
    disk.crash(|_| 0);
    drop(store);
    let store = Store::open(dir, &disk.memory()).unwrap();
    assert_eq!(store.meta().unwrap(), Some(loading(0)));
    assert_eq!(contents(&store).unwrap().len(), 2);
}

#[test]
fn full_disk_is_reported_and_leaves_an_earlier_commit() {
    let (disk, dir) = (disk_without_memtables(), Path::new("a"));
    let mut store = three_commits(&disk, dir);
    disk.set_full(Some(1));
    // One write reaches the disk, two tables are pending in memory, and there is no room for a fourth.
    (0..3).for_each(|_| store.set_meta(&meta(3)).unwrap());
    assert!(matches!(store.set_meta(&meta(3)), Err(Error::Full { .. })));
    assert!(matches!(store.flush(), Err(Error::Full { .. })));
    drop(store);
    assert!(matches!(Store::open(dir, &disk.memory()), Err(Error::Full { .. })));
    disk.set_full(None);
    assert_eq!(committed_number(&disk, dir), 1);
}

#[test]
fn damage_is_reported_on_open_or_read_and_gone_after_a_wipe() {
    let (disk, dir) = (SimulatedDisk::new(Loads::default(), Memtables::UNBOUNDED), Path::new("a"));
    assert!(!disk.damage(dir, 0), "there is no store to damage");
    drop(three_commits(&disk, dir));
    assert!(disk.damage(dir, 3));
    let store = Store::open(dir, &disk.memory()).unwrap();
    assert_eq!(store.get(&entry_key("1")), Ok(Some(b"it".to_vec())));
    for _ in 0..2 {
        assert!(matches!(store.get(&entry_key("1")), Err(Error::Damaged { .. })));
    }
    drop(store);
    assert!(matches!(Store::open(dir, &disk.memory()), Err(Error::Damaged { .. })));
    aside::remove_store(dir, &disk.memory()).unwrap();
    assert_eq!(committed_number(&disk, dir), 0);
}

#[test]
fn copy_of_a_simulated_store_has_only_flushed_commits() {
    let (disk, dir) = (SimulatedDisk::new(Loads::default(), Memtables::UNBOUNDED), Path::new("a"));
    let store = three_commits(&disk, dir);
    let copy = disk.copy(dir);
    drop(store);
    assert_eq!(disk.folders(), [dir.to_owned()]);
    assert_eq!(committed_number(&disk, dir), 3);
    disk.put_back(dir, copy);
    assert_eq!(committed_number(&disk, dir), 1);
}
