//! The store and its surroundings, against plain maps, crashes, damage and a full disk.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use ratchet_testkit::{folders, random};

use super::*;
use crate::format::{ChangelogOffset, KIND_IDENTITY, KIND_IDENTITY_DIGEST, POSITION_KEY, StoreMeta, Token};

mod crash;
mod damage;
mod dir;
mod flips;
mod load;
mod lookups;
mod memtable;
pub(super) mod model;
mod overlay;
mod set_aside;
mod simulated;

#[path = "../../tests/sim/disk/mod.rs"]
#[allow(dead_code, reason = "the simulation uses all of it")]
mod disk_in_memory;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// The environment variable with the folder for a child process, which runs this test binary, too.
const CHILD: &str = "RATCHET_STATE_TEST_CHILD";

fn small_memory() -> Memory {
    Memory::new(8 << 20)
}

fn rocks_options() -> rocksdb::Options {
    memory::RocksMemory::new(8 << 20, build::Builders::default()).options()
}

/// The meta of a store after `offset` changelog records.
fn meta(offset: usize) -> StoreMeta {
    let token = Token { lane: 1, transaction: offset as u64, changelog_id: [7; 16], partition: 3 };
    StoreMeta { token: Some(token), ..loading(offset) }
}

/// The meta of a store that is being restored.
fn loading(offset: usize) -> StoreMeta {
    StoreMeta {
        changelog_id: [7; 16],
        partition: 0,
        changelog_offset: ChangelogOffset(offset as i64),
        token: None,
        synced_at: 0,
        position_offset: None,
    }
}

fn offset(meta: &StoreMeta) -> usize {
    usize::try_from(meta.changelog_offset.0).unwrap()
}

fn entry_key(text: &str) -> Vec<u8> {
    [&[KIND_IDENTITY], text.as_bytes()].concat()
}

fn apply(map: &mut Map, key: &[u8], value: Option<&[u8]>) {
    match value {
        Some(value) => map.insert(key.to_owned(), value.to_owned()),
        None => map.remove(key),
    };
}

fn overlay_of(records: &[(&str, Option<&str>)]) -> Overlay {
    let mut overlay = Overlay::new();
    for (key, value) in records {
        overlay.put(&entry_key(key), value.map(str::as_bytes));
    }
    overlay
}

/// Everything in a store except its meta.
fn contents(store: &Store) -> Result<Map, Error> {
    let mut map = Map::new();
    let mut cursor = None;
    loop {
        cursor = store.scan(cursor.as_deref(), 100, |key, value| {
            map.insert(key.to_owned(), value.to_owned());
        })?;
        if cursor.is_none() {
            break;
        }
    }
    if let Some(position) = store.get(POSITION_KEY)? {
        map.insert(POSITION_KEY.to_owned(), position);
    }
    // A scan may miss keys that are not flushed.
    let is_entry = |key: &Vec<u8>| matches!(key[..], [KIND_IDENTITY..=KIND_IDENTITY_DIGEST, ..]);
    for key in store.keys_in_memory().into_iter().filter(is_entry) {
        if let Some(value) = store.get(&key)? {
            map.insert(key, value);
        }
    }
    Ok(map)
}

/// A command that runs this test binary as a child process, with the test `name` of this module, in `dir`.
fn child(name: &str, dir: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("state::tests::{name}"), "--nocapture", "--test-threads=1"]).env(CHILD, dir);
    command
}

/// The folder for this process, if it is a child process.
fn child_dir() -> Option<PathBuf> {
    std::env::var_os(CHILD).map(PathBuf::from)
}

/// A state folder with one task's folder in it.
fn task_dir() -> (tempfile::TempDir, StateSlot, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let state = StateSlot::lock(root.path()).unwrap();
    let dir = state.task_dir("payments", &crate::record::TopicPartition::new("orders", 3));
    (root, state, dir)
}

/// A pseudo-random number that depends only on `n`: it is the same in a parent and its child.
fn mix(n: usize) -> usize {
    random::mix(n as u64) as usize
}
