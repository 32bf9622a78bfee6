//! Goal: a store that was set aside stays whole, in one of its two places, until it is removed.

use std::fs;

use super::*;
use crate::record::TopicPartition;

/// Builds a store in place of the one set aside.
fn build_store(dir: &Path, records: &[(&str, Option<&str>)], at: usize) {
    let mut store = Store::open(dir, &small_memory()).unwrap();
    store.commit(&overlay_of(records), &meta(at)).unwrap();
}

fn contents_of(dir: &Path) -> Map {
    contents(&Store::open(dir, &small_memory()).unwrap()).unwrap()
}

#[test]
fn store_set_aside_is_put_back_unchanged() {
    let (_root, _state, dir) = task_dir();
    let memory = small_memory();
    build_store(&dir, &[("a", Some("1"))], 1);
    let before = contents_of(&dir);
    aside::set_aside(&dir, &memory).unwrap();
    assert!(!dir.exists() && aside::is_set_aside(&dir, &memory).unwrap());
    build_store(&dir, &[("b", Some("2"))], 2);
    assert!(aside::set_aside(&dir, &memory).is_err(), "the store set aside first is not overwritten");
    assert!(aside::put_back(&dir, &memory).is_err(), "the successor is not overwritten");
    aside::recover(&dir, &memory).unwrap();
    assert_ne!(contents_of(&dir), before, "the successor stays in place while both stores exist");
    aside::remove_store(&dir, &memory).unwrap();
    aside::recover(&dir, &memory).unwrap();
    assert_eq!(contents_of(&dir), before);
    assert!(!aside::is_set_aside(&dir, &memory).unwrap());
}

#[test]
fn copy_equals_the_store_and_is_independent_of_it() {
    let (_root, _state, dir) = task_dir();
    let memory = small_memory();
    build_store(&dir, &[("a", Some("1")), ("b", Some("1"))], 1);
    let before = contents_of(&dir);
    // As left by a process that was killed while it made a copy.
    let unfinished = dir.with_file_name(format!("{}.aside.tmp", dir.file_name().unwrap().to_str().unwrap()));
    fs::create_dir(&unfinished).unwrap();
    fs::write(unfinished.join("000007.sst"), "half of it").unwrap();
    aside::recover(&dir, &memory).unwrap();
    assert!(!unfinished.exists());
    let mut store = Store::open(&dir, &memory).unwrap();
    aside::copy_aside(&mut store, &dir, &memory).unwrap();
    assert!(aside::copy_aside(&mut store, &dir, &memory).is_err(), "the first copy is never overwritten");
    store.commit(&overlay_of(&[("a", Some("2")), ("b", None)]), &meta(2)).unwrap();
    drop(store);
    assert_eq!(contents_of(&aside::aside_path(&dir)), before);
    aside::remove_store(&dir, &memory).unwrap();
    aside::recover(&dir, &memory).unwrap();
    assert_eq!(contents_of(&dir), before);
}

#[test]
fn only_the_store_set_aside_is_removed() {
    let (_root, _state, dir) = task_dir();
    let memory = small_memory();
    build_store(&dir, &[("a", Some("1"))], 1);
    aside::set_aside(&dir, &memory).unwrap();
    build_store(&dir, &[("b", Some("2"))], 2);
    let expected = contents_of(&dir);
    aside::remove_aside(&dir, &memory).unwrap();
    aside::remove_aside(&dir, &memory).unwrap();
    assert_eq!(contents_of(&dir), expected);
    assert!(!aside::aside_path(&dir).exists());
}

#[test]
fn stores_outside_a_state_folder_are_not_set_aside_or_put_back() {
    let (outside, memory) = (tempfile::tempdir().unwrap(), small_memory());
    let dir = outside.path().join("a/b/c");
    build_store(&dir, &[("a", Some("1"))], 1);
    let before = contents_of(&dir);
    assert!(matches!(aside::set_aside(&dir, &memory), Err(Error::Unmarked { .. })));
    assert!(!aside::aside_path(&dir).exists());
    fs::rename(&dir, aside::aside_path(&dir)).unwrap();
    assert!(matches!(aside::put_back(&dir, &memory), Err(Error::Unmarked { .. })));
    assert!(!dir.exists());
    assert_eq!(contents_of(&aside::aside_path(&dir)), before);
}

#[test]
fn survey_finds_stores_in_all_slots_and_changes_nothing() {
    let (root, state, dir) = task_dir();
    let second = StateSlot::lock(root.path()).unwrap();
    let other = second.task_dir("payments", &TopicPartition::new("orders", 0));
    let dotted = state.task_dir("payments", &TopicPartition::new("orders.new", 3));
    for (at, dir) in [&dir, &other, &dotted].into_iter().enumerate() {
        build_store(dir, &[("a", Some("1")), ("b", Some("2")), ("c", None)], at);
    }
    aside::set_aside(&dir, &small_memory()).unwrap();
    let _open = Store::open(&other, &small_memory()).unwrap();
    // As left by a process that was killed before it created the store's files.
    fs::create_dir(&dir).unwrap();
    let listed = |folder: &Path| {
        let mut all: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        all.sort();
        all.into_iter().map(|path| (path.clone(), fs::metadata(&path).unwrap().len())).collect::<Vec<_>>()
    };
    let before = listed(&aside::aside_path(&dir));
    let found = Survey::of(&state, &small_memory()).stores("payments", "orders").unwrap();
    let paths: Vec<_> = found.iter().map(|found| found.path.clone()).collect();
    let real = |dir: &Path| fs::canonicalize(dir).unwrap();
    assert_eq!(paths, [real(&dir), real(&aside::aside_path(&dir)), real(&other)]);
    assert_eq!(found.iter().map(|found| found.partition).collect::<Vec<_>>(), [3, 3, 0]);
    assert!(found[0].open().unwrap().is_none(), "it was never written to");
    for (found, at) in [(&found[1], 0), (&found[2], 1)] {
        let store = found.open().unwrap().expect("it was written to");
        assert_eq!(store.meta().unwrap(), Some(meta(at)));
        assert_eq!(store.get(&entry_key("a")).unwrap(), Some(b"1".to_vec()));
        let mut keys = Vec::new();
        let mut cursor = None;
        while let Some(last) = store.scan(cursor.as_deref(), 1, |key, _| keys.push(key.to_vec())).unwrap() {
            cursor = Some(last);
        }
        assert_eq!(keys, [entry_key("a"), entry_key("b")]);
    }
    assert_eq!(listed(&aside::aside_path(&dir)), before);
    assert!(Survey::of_folder(&root.path().join("none")).stores("payments", "orders").unwrap().is_empty());
}
