//! Goal: a process that is killed by SIGKILL at any moment leaves a store with exactly the state after some commit, or
//! one marked as being restored, which a restore repairs. The store's position record matches its meta.

use std::io::Read;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use super::*;

/// More than the number of records by which the child's loads can be ahead of the meta.
const AHEAD_MAX: usize = 10_000;
/// The most rounds until both situations must have occurred.
const ROUNDS_MAX: usize = 60;
const ROUNDS_MIN: usize = 8;

/// The changelog's record at `offset`: one of 2000 keys, every fifth a delete.
fn record(offset: usize) -> (Vec<u8>, Option<Vec<u8>>) {
    let random = mix(offset);
    let value = (!random.is_multiple_of(5)).then(|| offset.to_be_bytes().repeat(1 + random % 40));
    (entry_key(&(random / 5 % 2000).to_string()), value)
}

/// The position record after `offset` records.
fn position(offset: usize) -> Vec<u8> {
    offset.to_be_bytes().to_vec()
}

fn state_at(offset: usize) -> Map {
    let mut map = Map::new();
    (0..offset).map(record).for_each(|(key, value)| apply(&mut map, &key, value.as_deref()));
    if offset > 0 {
        map.insert(POSITION_KEY.to_owned(), position(offset));
    }
    map
}

fn commit(store: &mut Store, from: usize, to: usize) {
    let mut overlay = Overlay::new();
    (from..to).map(record).for_each(|(key, value)| overlay.put(&key, value.as_deref()));
    overlay.put(POSITION_KEY, Some(&position(to)));
    store.commit(&overlay, &meta(to)).unwrap();
}

fn load(store: &mut Store, from: usize, to: usize) {
    store.set_ingest_bytes_min(if mix(from).is_multiple_of(2) { 0 } else { usize::MAX });
    let mut buffer = LoadBuffer::new();
    (from..to).map(record).for_each(|(key, value)| buffer.put(&key, value.as_deref()));
    buffer.put(POSITION_KEY, Some(&position(to)));
    store.load(buffer, loading(to)).unwrap();
}

/// Commits and loads for ever, and prints each offset that was flushed.
fn write_until_killed(dir: &Path) {
    let mut store = Store::open(dir, &small_memory()).unwrap();
    let mut at = store.meta().unwrap().as_ref().map_or(0, offset);
    loop {
        let length = 1 + mix(at) % 500;
        match mix(at) % 8 {
            0 => {
                store.begin_load(&loading(at)).unwrap();
                for from in (at..at + 4 * length).step_by(length) {
                    load(&mut store, from, from + length);
                    // Some loads are ingested while others are pending.
                    store.ingest_ready_loads().unwrap();
                }
                store.finish_loads().unwrap();
                at += 4 * length;
                store.set_meta(&meta(at)).unwrap();
            }
            1 => {
                store.flush().unwrap();
                println!("flushed {at}");
                commit(&mut store, at, at + length);
                at += length;
            }
            _ => {
                commit(&mut store, at, at + length);
                at += length;
            }
        }
    }
}

fn last_flushed(output: &str) -> usize {
    output.lines().rev().find_map(|line| line.strip_prefix("flushed ")?.parse().ok()).unwrap_or(0)
}

#[test]
fn killed_store_is_whole_or_marked_as_being_restored() {
    if let Some(dir) = child_dir() {
        return write_until_killed(&dir);
    }
    let dir = tempfile::tempdir().unwrap();
    let (mut whole, mut restoring) = (0, 0);
    for round in 0..ROUNDS_MAX {
        let mut child = child("crash::killed_store_is_whole_or_marked_as_being_restored", dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        thread::sleep(Duration::from_millis(60 + (mix(round) % 150) as u64));
        child.kill().unwrap();
        let mut output = String::new();
        child.stdout.take().unwrap().read_to_string(&mut output).unwrap();
        child.wait().unwrap();

        let mut store = Store::open(dir.path(), &small_memory()).unwrap();
        let Some(found) = store.meta().unwrap() else {
            assert_eq!(contents(&store).unwrap(), Map::new());
            continue;
        };
        let at = offset(&found);
        assert!(at >= last_flushed(&output), "a flushed commit is gone");
        if found.token.is_some() {
            whole += 1;
            assert_eq!(found, meta(at));
            assert!(contents(&store).unwrap() == state_at(at), "not the state after commit {at}");
        } else {
            restoring += 1;
            assert_eq!(store.get(POSITION_KEY).unwrap(), (at > 0).then(|| position(at)), "does not match the meta");
            store.begin_load(&loading(at)).unwrap();
            load(&mut store, at, at + AHEAD_MAX / 2);
            load(&mut store, at + AHEAD_MAX / 2, at + AHEAD_MAX);
            store.finish_loads().unwrap();
            store.set_meta(&meta(at + AHEAD_MAX)).unwrap();
            assert!(contents(&store).unwrap() == state_at(at + AHEAD_MAX), "restoring from {at} did not repair it");
        }
        if whole >= 2 && restoring >= 2 && round >= ROUNDS_MIN {
            return;
        }
    }
    panic!("in {ROUNDS_MAX} rounds the store was found whole {whole} times, in a restore {restoring} times");
}
