//! Damaged files, a full disk: each is told apart, and none loses what was on the disk.

use std::fs;
use std::io::Write as _;

use super::*;

/// A store with some tables, closed, and the paths of its files by what they end or begin with.
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

fn files(dir: &Path, wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let mut found: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| wanted(path.file_name().unwrap().to_str().unwrap()));
    assert!(!found.is_empty());
    found
}

fn tables(dir: &Path) -> Vec<PathBuf> {
    files(dir, |name| name.ends_with(".sst"))
}

/// What a lane would meet: opening, and reading everything.
fn look(dir: &Path) -> Result<Map, Error> {
    let store = Store::open(dir, &small_memory())?;
    store.meta()?;
    contents(&store)
}

/// Damages a store by `harm`; it must be reported as damaged, must be removable, and new afterwards.
fn reports_damage(harm: impl Fn(&Path)) {
    let (_root, _state, dir) = task_dir();
    filled(&dir);
    harm(&dir);
    let error = look(&dir).unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error:?}");
    assert!(error.to_string().contains("rebuilt from the changelog"), "{error}");
    Store::wipe(&dir).unwrap();
    assert!(!dir.exists());
    assert_eq!(look(&dir), Ok(Map::new()));
}

#[test]
fn a_flipped_byte_in_a_table_is_damage() {
    reports_damage(|dir| {
        for path in tables(dir) {
            let mut bytes = fs::read(&path).unwrap();
            bytes[1000] ^= 1;
            fs::write(path, bytes).unwrap();
        }
    });
}

#[test]
fn a_shortened_table_is_damage() {
    reports_damage(|dir| {
        let path = &tables(dir)[0];
        fs::OpenOptions::new().write(true).open(path).unwrap().set_len(100).unwrap();
    });
}

#[test]
fn a_missing_table_is_damage() {
    reports_damage(|dir| fs::remove_file(&tables(dir)[0]).unwrap());
}

#[test]
fn a_missing_manifest_is_damage() {
    reports_damage(|dir| {
        files(dir, |name| name.starts_with("MANIFEST")).iter().for_each(|path| fs::remove_file(path).unwrap());
    });
}

#[test]
fn a_manifest_of_other_bytes_is_damage() {
    reports_damage(|dir| {
        for path in files(dir, |name| name.starts_with("MANIFEST")) {
            fs::write(path, b"these are not the bytes of a manifest, by far").unwrap();
        }
    });
}

#[test]
fn a_missing_current_is_damage_and_not_an_empty_store() {
    reports_damage(|dir| fs::remove_file(dir.join("CURRENT")).unwrap());
}

#[test]
fn entries_without_meta_are_damage() {
    let (_root, _state, dir) = task_dir();
    drop(Store::open(&dir, &small_memory()).unwrap());
    let db = rocksdb::DB::open(&rocksdb::Options::default(), &dir).unwrap();
    db.put(entry_key("a"), b"1").unwrap();
    drop(db);
    assert!(matches!(look(&dir), Err(Error::Damaged { .. })));
}

#[test]
fn meta_of_a_later_release_is_not_guessed_at() {
    let (_root, _state, dir) = task_dir();
    drop(Store::open(&dir, &small_memory()).unwrap());
    let db = rocksdb::DB::open(&small_memory().options(), &dir).unwrap();
    db.put(crate::format::STORE_META_KEY, [99, 1, 2]).unwrap();
    drop(db);
    assert!(matches!(look(&dir), Err(Error::Damaged { .. })));
}

#[test]
fn errors_of_the_system_are_told_apart() {
    use std::io::ErrorKind as K;
    let of = |kind: K| Error::from_io(Path::new("p"), &kind.into());
    assert!(matches!(of(K::StorageFull), Error::Full { .. }));
    assert!(matches!(of(K::QuotaExceeded), Error::Full { .. }));
    assert!(matches!(of(K::PermissionDenied), Error::NotWritable { .. }));
    assert!(matches!(of(K::ReadOnlyFilesystem), Error::NotWritable { .. }));
    assert!(matches!(of(K::TimedOut), Error::Io { .. }));
}

/// Makes files of more than a megabyte impossible for this process: as a full disk, each write fails.
fn limit_file_size() {
    let limit = libc::rlimit { rlim_cur: 1 << 20, rlim_max: 1 << 20 };
    // SAFETY: the struct outlives the call; the signal, which would end the process, is ignored.
    let failed = unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        libc::setrlimit(libc::RLIMIT_FSIZE, &limit)
    };
    assert_eq!(failed, 0);
}

/// Commits until there is no space: by write batches, then by one load as a table file.
fn fill_up(dir: &Path) {
    limit_file_size();
    let value = |n: usize| (0..125).flat_map(|word| mix(n * 125 + word).to_be_bytes()).collect::<Vec<_>>();
    let mut store = Store::open(dir, &small_memory()).unwrap();
    let error = (1..100)
        .find_map(|n| {
            let mut overlay = Overlay::new();
            (0..100).for_each(|m| overlay.put(&entry_key(&format!("{n}-{m}")), Some(&value(n * 100 + m))));
            store.commit(&overlay, &meta(n)).and_then(|()| if n % 20 == 0 { store.flush() } else { Ok(()) }).err()
        })
        .expect("ten megabytes do not fit");
    assert!(matches!(error, Error::Full { .. }), "{error:?}");
    assert!(error.to_string().contains("free some space"), "{error}");
    drop(store);

    let dir = dir.join("load");
    let mut store = Store::open(&dir, &small_memory()).unwrap();
    store.begin_load(&loading(0)).unwrap();
    store.set_ingest_bytes_min(0);
    let mut buffer = LoadBuffer::new();
    (0..5000).for_each(|n| buffer.put(&entry_key(&n.to_string()), Some(&value(n))));
    let error = store.load(&mut buffer, &loading(5000)).unwrap_err();
    assert!(matches!(error, Error::Full { .. }), "{error:?}");
    assert!(!dir.join("load.tmp").exists(), "half a table file takes the space that is missing");
}

#[test]
fn a_full_disk_is_said_and_leaves_an_earlier_commit() {
    if let Some(dir) = child_dir() {
        return fill_up(&dir);
    }
    let dir = tempfile::tempdir().unwrap();
    let output = child("damage::a_full_disk_is_said_and_leaves_an_earlier_commit", dir.path()).output().unwrap();
    std::io::stderr().write_all(&output.stderr).unwrap();
    assert!(output.status.success());
    let store = Store::open(dir.path(), &small_memory()).unwrap();
    let at = store.meta().unwrap().map_or(0, |meta| offset(&meta));
    assert_eq!(contents(&store).unwrap().len(), at * 100);
    let store = Store::open(&dir.path().join("load"), &small_memory()).unwrap();
    assert_eq!(store.meta().unwrap(), Some(loading(0)));
}
