//! The state folder: markers, slots, locks, modes, and what may be removed.

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use super::*;
use crate::record::TopicPartition;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn folders_are_created_for_this_user_only() {
    let above = tempfile::tempdir().unwrap();
    let root = above.path().join("new/state");
    let state = StateSlot::lock(&root).unwrap();
    let dir = state.task_dir("payments", &TopicPartition::new("shop.orders", 3));
    assert!(dir.ends_with("slot-0/payments/shop.orders-3"), "{}", dir.display());
    let store = Store::open(&dir, &small_memory()).unwrap();
    for path in [&root, state.path(), dir.parent().unwrap(), store.path()] {
        assert_eq!(mode(path), 0o700, "{}", path.display());
    }
}

#[test]
fn empty_folder_is_accepted_and_closed_to_others() {
    let root = tempfile::tempdir().unwrap();
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(root.path().join("lost+found")).unwrap();
    StateSlot::lock(root.path()).unwrap();
    assert_eq!(mode(root.path()), 0o700);
    StateSlot::lock(root.path()).unwrap();
}

#[test]
fn foreign_folder_is_rejected_and_left_unchanged() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("thesis.txt"), "years of work").unwrap();
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let error = StateSlot::lock(root.path()).unwrap_err();
    assert!(matches!(error, Error::Foreign { .. }), "{error:?}");
    assert!(error.to_string().contains("set state_dir to an empty or a new folder"), "{error}");
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
    assert_eq!(mode(root.path()), 0o755);
}

#[test]
fn file_in_place_of_the_folder_is_an_error() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(matches!(StateSlot::lock(&file), Err(Error::Io { .. })));
    assert!(matches!(StateSlot::lock(&file.join("below")), Err(Error::Io { .. })));
}

#[test]
fn names_of_topics_and_topologies_do_not_lead_out_of_the_slot() {
    let root = tempfile::tempdir().unwrap();
    let state = StateSlot::lock(root.path()).unwrap();
    for (topic, expected) in [("..", "%2E.-0"), ("../x", "%2E.%2Fx-0"), ("a.b_c-D", "a.b_c-D-0"), ("ä", "%C3%A4-0")] {
        let dir = state.task_dir("..", &TopicPartition::new(topic, 0));
        assert_eq!(dir, state.path().join("%2E.").join(expected));
    }
}

#[test]
fn each_process_gets_its_own_slot() {
    let root = tempfile::tempdir().unwrap();
    let first = StateSlot::lock(root.path()).unwrap();
    let second = StateSlot::lock(root.path()).unwrap();
    assert!(first.path().ends_with("slot-0") && second.path().ends_with("slot-1"));
    let clone = first.clone();
    drop(first);
    assert!(StateSlot::lock(root.path()).unwrap().path().ends_with("slot-2"), "a clone holds the slot");
    drop(clone);
    assert!(StateSlot::lock(root.path()).unwrap().path().ends_with("slot-0"));
}

#[test]
fn processes_that_start_together_all_get_a_slot() {
    let above = tempfile::tempdir().unwrap();
    let root = above.path().join("state");
    let claimed: Vec<_> = std::thread::scope(|scope| {
        let starts: Vec<_> = (0..8).map(|_| scope.spawn(|| StateSlot::lock(&root).unwrap())).collect();
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    });
    let slots: std::collections::BTreeSet<_> = claimed.iter().map(|state| state.path().to_owned()).collect();
    assert_eq!(slots.len(), 8);
}

/// Takes a slot, opens a store in it, prints `holding`, and waits to be killed.
fn hold(root: &Path) {
    let state = StateSlot::lock(root).unwrap();
    let _store = Store::open(&state.task_dir("t", &TopicPartition::new("a", 0)), &small_memory()).unwrap();
    println!("\nholding");
    std::thread::sleep(std::time::Duration::from_secs(600));
}

#[test]
fn process_holds_its_slot_and_stores_until_it_ends() {
    if let Some(root) = child_dir() {
        return hold(&root);
    }
    let root = tempfile::tempdir().unwrap();
    let mut holder = child("dir::process_holds_its_slot_and_stores_until_it_ends", root.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = holder.stdout.take().unwrap();
    let mut output = Vec::new();
    while !output.ends_with(b"holding\n") {
        let mut byte = [0];
        stdout.read_exact(&mut byte).unwrap();
        output.push(byte[0]);
    }
    let second = StateSlot::lock(root.path()).unwrap();
    assert!(second.path().ends_with("slot-1"));
    let holders_store = root.path().join("slot-0/t/a-0");
    let error = Store::open(&holders_store, &small_memory()).unwrap_err();
    assert!(matches!(error, Error::InUse { .. }), "{error:?}");
    assert!(matches!(aside::remove_store(&holders_store, &small_memory()), Err(Error::InUse { .. })));
    assert!(holders_store.join("CURRENT").exists());

    holder.kill().unwrap();
    holder.wait().unwrap();
    assert!(StateSlot::lock(root.path()).unwrap().path().ends_with("slot-0"));
    Store::open(&holders_store, &small_memory()).unwrap();
}

#[test]
fn open_store_is_in_use_under_every_path_to_it() {
    let (_root, _state, dir) = task_dir();
    let _store = Store::open(&dir, &small_memory()).unwrap();
    let other_name = dir.parent().unwrap().join(".").join(dir.file_name().unwrap());
    assert!(matches!(Store::open(&other_name, &small_memory()), Err(Error::InUse { .. })));
    assert!(matches!(aside::remove_store(&other_name, &small_memory()), Err(Error::InUse { .. })));
}

#[test]
fn nothing_is_removed_outside_a_slot() {
    let (root, state, dir) = task_dir();
    drop(Store::open(&dir, &small_memory()).unwrap());
    let outside = tempfile::tempdir().unwrap();
    drop(Store::open(&outside.path().join("a/b/c"), &small_memory()).unwrap());
    let link = dir.with_file_name("link");
    std::os::unix::fs::symlink(outside.path().join("a/b/c"), &link).unwrap();
    for refused in [root.path(), state.path(), &outside.path().join("a/b/c"), &link] {
        assert!(
            matches!(aside::remove_store(refused, &small_memory()), Err(Error::Unmarked { .. })),
            "{}",
            refused.display()
        );
        assert!(refused.exists());
    }
    aside::remove_store(&dir, &small_memory()).unwrap();
    assert!(!dir.exists());
    aside::remove_store(&dir, &small_memory()).unwrap();
}

/// Gives up root's rights, if this process has them, and expects that the folder cannot be locked.
fn expect_unwritable(root: &Path) {
    // SAFETY: plain system calls that touch no memory; this process does nothing afterwards but the check.
    unsafe {
        if libc::geteuid() == 0 {
            assert_eq!(libc::setgid(65_534), 0);
            assert_eq!(libc::setuid(65_534), 0);
        }
    }
    let error = StateSlot::lock(root).unwrap_err();
    assert!(matches!(error, Error::NotWritable { .. }), "{error:?}");
    assert!(error.to_string().contains("set another state_dir"), "{error}");
}

#[test]
fn unwritable_folder_is_reported() {
    if let Some(root) = child_dir() {
        return expect_unwritable(&root);
    }
    let above = tempfile::tempdir().unwrap();
    fs::set_permissions(above.path(), fs::Permissions::from_mode(0o555)).unwrap();
    let root = above.path().join("state");
    let child = child("dir::unwritable_folder_is_reported", &root).output().unwrap();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
}
