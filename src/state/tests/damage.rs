//! Goal: damaged files and a full disk are told apart, and a full disk loses nothing that was on the disk.

use std::fs;

use super::*;

/// A closed store with some tables; returns its contents.
fn filled(dir: &Path) -> Map {
    let mut store = Store::open(dir, &small_memory()).unwrap();
    for part in 0..3_usize {
        let mut overlay = Overlay::new();
        for n in 0..2000 {
            overlay.put(&entry_key(&format!("{part}-{n}")), Some(&[b'x'; 40]));
        }
        store.commit(&overlay, &meta(part)).unwrap();
        store.flush().unwrap();
    }
    contents(&store).unwrap()
}

fn files(dir: &Path, is_wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let mut found: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| is_wanted(path.file_name().unwrap().to_str().unwrap()));
    assert!(!found.is_empty());
    found
}

fn tables(dir: &Path) -> Vec<PathBuf> {
    files(dir, |name| name.ends_with(".sst"))
}

/// Opens the store and reads everything, like a lane.
fn read_all(dir: &Path) -> Result<Map, Error> {
    let store = Store::open(dir, &small_memory())?;
    store.meta()?;
    contents(&store)
}

/// Damages a store, and expects that the damage is reported, and that the store can be removed and is empty afterwards.
fn expect_damage_report(damage: impl Fn(&Path)) {
    let (_root, _state, dir) = task_dir();
    filled(&dir);
    damage(&dir);
    let error = read_all(&dir).unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error:?}");
    assert!(error.to_string().contains("rebuilt from the changelog"), "{error}");
    aside::remove_store(&dir, &small_memory()).unwrap();
    assert!(!dir.exists());
    assert_eq!(read_all(&dir), Ok(Map::new()));
}

#[test]
fn flipped_byte_in_a_table_is_damage() {
    expect_damage_report(|dir| {
        for path in tables(dir) {
            let mut bytes = fs::read(&path).unwrap();
            bytes[1000] ^= 1;
            fs::write(path, bytes).unwrap();
        }
    });
}

#[test]
fn shortened_table_is_damage() {
    expect_damage_report(|dir| {
        let path = &tables(dir)[0];
        fs::OpenOptions::new().write(true).open(path).unwrap().set_len(100).unwrap();
    });
}

#[test]
fn missing_table_is_damage() {
    expect_damage_report(|dir| fs::remove_file(&tables(dir)[0]).unwrap());
}

#[test]
fn missing_manifest_is_damage() {
    expect_damage_report(|dir| {
        files(dir, |name| name.starts_with("MANIFEST")).iter().for_each(|path| fs::remove_file(path).unwrap());
    });
}

#[test]
fn overwritten_manifest_is_damage() {
    expect_damage_report(|dir| {
        for path in files(dir, |name| name.starts_with("MANIFEST")) {
            fs::write(path, b"these are not the bytes of a manifest").unwrap();
        }
    });
}

#[test]
fn missing_current_file_is_damage_and_not_an_empty_store() {
    expect_damage_report(|dir| fs::remove_file(dir.join("CURRENT")).unwrap());
}

#[test]
fn entries_without_meta_are_damage() {
    let (_root, _state, dir) = task_dir();
    drop(Store::open(&dir, &small_memory()).unwrap());
    let db = rocksdb::DB::open(&rocksdb::Options::default(), &dir).unwrap();
    db.put(entry_key("a"), b"1").unwrap();
    drop(db);
    assert!(matches!(read_all(&dir), Err(Error::Damaged { .. })));
}

#[test]
fn meta_of_a_later_release_is_damage() {
    let (_root, _state, dir) = task_dir();
    drop(Store::open(&dir, &small_memory()).unwrap());
    let db = rocksdb::DB::open(&rocks_options(), &dir).unwrap();
    db.put(crate::format::STORE_META_KEY, [99, 1, 2]).unwrap();
    drop(db);
    let Err(Error::Damaged { reason, .. }) = read_all(&dir) else { panic!("the store must be rebuilt") };
    assert_eq!(reason, "a store's meta has format 99, this release reads 2");
}

#[test]
fn system_errors_are_distinguished() {
    use std::io::ErrorKind as K;
    let error_of = |kind: K| Error::from_io(Path::new("p"), &kind.into());
    assert!(matches!(error_of(K::StorageFull), Error::Full { .. }));
    assert!(matches!(error_of(K::QuotaExceeded), Error::Full { .. }));
    assert!(matches!(error_of(K::PermissionDenied), Error::NotWritable { .. }));
    assert!(matches!(error_of(K::ReadOnlyFilesystem), Error::NotWritable { .. }));
    assert!(matches!(error_of(K::TimedOut), Error::Io { .. }));
}

/// Limits the size of this process's files to 1 MiB: further writes fail as on a full disk.
fn limit_file_size() {
    let limit = libc::rlimit { rlim_cur: 1 << 20, rlim_max: 1 << 20 };
    // SAFETY: the struct outlives the call; the signal, which would end the process, is ignored.
    let failed = unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        libc::setrlimit(libc::RLIMIT_FSIZE, &limit)
    };
    assert_eq!(failed, 0);
}

/// Values that do not compress.
fn bulky(n: usize) -> Vec<u8> {
    (0..125).flat_map(|word| mix(n * 125 + word).to_be_bytes()).collect()
}

/// The entries of a commit: half of a write buffer, so that writing outpaces flushing.
const COMMIT_ENTRIES: usize = 500;

/// Commits new entries until there is no space.
fn commit_until_full(dir: &Path) {
    let mut store = Store::open(dir, &small_memory()).unwrap();
    let error = (1..40)
        .find_map(|n| {
            let mut overlay = Overlay::new();
            (0..COMMIT_ENTRIES)
                .for_each(|m| overlay.put(&entry_key(&format!("{n}-{m}")), Some(&bulky(n * COMMIT_ENTRIES + m))));
            store.commit(&overlay, &meta(n)).and_then(|()| if n % 20 == 0 { store.flush() } else { Ok(()) }).err()
        })
        .expect("twenty megabytes do not fit");
    assert!(matches!(error, Error::Full { .. }), "{error:?}");
    assert!(error.to_string().contains("free some space"), "{error}");
}

/// Loads one table file, for which there is no space.
fn load_until_full(dir: &Path) {
    let mut store = Store::open(dir, &small_memory()).unwrap();
    store.begin_load(&loading(0)).unwrap();
    store.set_ingest_bytes_min(0);
    let mut buffer = LoadBuffer::new();
    (0..10_000).for_each(|n| buffer.put(&entry_key(&n.to_string()), Some(&bulky(n))));
    store.load(buffer, loading(10_000)).unwrap();
    let error = store.finish_loads().unwrap_err();
    assert!(matches!(error, Error::Full { .. }), "{error:?}");
    let leftovers =
        |entry: std::io::Result<fs::DirEntry>| entry.unwrap().path().to_str().unwrap().ends_with(".load.tmp");
    assert!(!fs::read_dir(dir).unwrap().any(leftovers), "an unfinished table file still takes space");
}

fn expect_an_earlier_commit(dir: &Path) {
    let store = Store::open(dir, &small_memory()).unwrap();
    let at = store.meta().unwrap().map_or(0, |meta| offset(&meta));
    assert_eq!(contents(&store).unwrap().len(), at * COMMIT_ENTRIES);
}

fn expect_no_load(dir: &Path) {
    let store = Store::open(dir, &small_memory()).unwrap();
    assert_eq!(store.meta().unwrap(), Some(loading(0)));
    assert_eq!(contents(&store).unwrap(), Map::new());
}

#[test]
fn file_size_limit_is_reported_and_leaves_an_earlier_commit() {
    if let Some(dir) = child_dir() {
        limit_file_size();
        commit_until_full(&dir.join("commit"));
        return load_until_full(&dir.join("load"));
    }
    let dir = tempfile::tempdir().unwrap();
    let output =
        child("damage::file_size_limit_is_reported_and_leaves_an_earlier_commit", dir.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    expect_an_earlier_commit(&dir.path().join("commit"));
    expect_no_load(&dir.path().join("load"));
}

/// Ends within a minute, whatever RocksDB's background work was doing when the space ran out. That work waits for space
/// for ever, and so would a writer that RocksDB blocks.
#[test]
fn full_disk_is_reported_and_leaves_an_earlier_commit() {
    if let Some(dir) = child_dir() {
        for round in 0..5 {
            let dir = dir.join(round.to_string());
            commit_until_full(&dir);
            expect_an_earlier_commit(&dir);
            fs::remove_dir_all(&dir).unwrap();
        }
        load_until_full(&dir.join("load"));
        return expect_no_load(&dir.join("load"));
    }
    let dir = tempfile::tempdir().unwrap();
    let child = child("damage::full_disk_is_reported_and_leaves_an_earlier_commit", dir.path());
    // A small disk of its own that no other process sees: needs user namespaces, not root.
    let mut on_small_disk = Command::new("timeout");
    on_small_disk
        .args(["60", "unshare", "--mount", "--map-root-user", "sh", "-c"])
        .arg("mount -t tmpfs -o size=6m none \"$0\" && exec \"$@\"")
        .arg(dir.path())
        .arg(child.get_program())
        .args(child.get_args())
        .envs(child.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = on_small_disk.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{}: {stderr} (`make setup-test` says whether the system allows it)",
        output.status
    );
}
