//! Goal: a changelog deleted by mistake leads to a refusal and nothing worse: no new one is created in its place, and
//! every store stays as it was. The stores are then the last copy, and the changelog can be rebuilt from them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::checker::{Fate, check, read_store};
use crate::cluster::Fresh;
use crate::job::Job;
use crate::load::things;
use crate::operator::{Operator, Options};
use crate::rebuild::{once_empty, rebuild};
use crate::until::{DEADLINE, within};

/// The table files of all stores below a state folder, byte for byte.
fn tables(state: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut folders = vec![state.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("it is there").map(|entry| entry.expect("it is there")) {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "sst") {
                all.insert(path.clone(), fs::read(&path).expect("nobody works with it"));
            }
        }
    }
    assert!(!all.is_empty(), "{} has no store", state.display());
    all
}

/// The folder of a partition's store.
fn store(job: &Job, state: &Path, partition: i32) -> PathBuf {
    state.join("slot-0").join(&job.name).join(format!("{}-{partition}", job.input))
}

/// Lets an operator drain the input, if it is not drained yet, and stops it.
fn drain(job: &Job, label: &str) -> Operator {
    let mut operator = Operator::start(job, label);
    operator.await_ready(DEADLINE);
    job.await_drained(DEADLINE);
    operator.stop();
    operator
}

/// A user's mistake.
fn delete_changelog(job: &Job) {
    job.kafka.delete(&job.changelog());
    within(DEADLINE, "the changelog to be gone", || job.kafka.partitions(&job.changelog()).is_none().then_some(()));
}

#[test]
fn deleted_changelog_is_not_recreated_and_no_store_is_touched() {
    let job = Job::new("last-copy", 2);
    let send = |version| job.send(things(0, 0..200, version).chain(things(1, 200..400, version)));
    // Each operator has owned both partitions, and the first is ahead of the second.
    let states = [("a", 1), ("b", 2), ("a", 3)].map(|(label, version)| {
        send(version);
        drain(&job, label).state_dir().to_owned()
    });
    delete_changelog(&job);
    let before = states.clone().map(|state| tables(&state));
    for label in ["a", "b", "a"] {
        let mut operator = Operator::start(&job, label);
        operator.await_error(&["does not exist", &job.changelog(), "has committed", "ratchet changelog rebuild"]);
        assert_eq!(operator.await_exit(DEADLINE).code(), Some(2));
    }
    assert_eq!(job.kafka.partitions(&job.changelog()), None, "a changelog was created in its place");
    // Nor if somebody creates it by hand.
    job.kafka.create(&job.changelog(), 2, &[("cleanup.policy", "compact")]);
    for label in ["a", "b"] {
        let operator = Operator::start(&job, label);
        for partition in 0..2 {
            let task = format!("{}:{partition}", job.input);
            operator.await_error(&["task stopped", &task, "recreated"]);
        }
    }
    assert_eq!(states.map(|state| tables(&state)), before, "a store has changed");
    assert_eq!(job.output().len(), 1200);
}

#[test]
fn store_is_kept_when_group_and_changelog_are_gone() {
    let mut job = Job::new("last-word", 1);
    // At the end it starts afresh.
    job.topology.push(format!("output: {{topic: {}, existing: append}}", job.output));
    job.send(things(0, 0..100, 1));
    let state = drain(&job, "a").state_dir().to_owned();
    job.kafka.delete_group(&job.group());
    delete_changelog(&job);
    let before = tables(&state);
    let mut operator = Operator::start(&job, "a");
    operator.await_error(&[
        "does not exist",
        "stores hold its former contents",
        &store(&job, &state, 0).display().to_string(),
    ]);
    assert_eq!(operator.await_exit(DEADLINE).code(), Some(2));
    // One created by hand turns out to be empty when a store is to be rebuilt from it.
    job.kafka.create(&job.changelog(), 1, &[("cleanup.policy", "compact")]);
    let operator = Operator::start(&job, "a");
    operator.await_error(&["task stopped", "a store of this input remembers"]);
    drop(operator);
    let crashing = Options { crash_at: Some("before_put_back"), ..Options::default() };
    Operator::start_with(&job, "a", &crashing).await_crash();
    assert!(!store(&job, &state, 0).exists(), "it was not killed in between");
    let operator = Operator::start(&job, "a");
    operator.await_error(&["task stopped", "a store of this input remembers"]);
    assert_eq!(tables(&state), before);
    drop(operator);
    // With the store gone, as the refusal advises, there is nothing left to forget.
    fs::remove_dir_all(state.join("slot-0").join(&job.name)).expect("nobody works with it");
    drain(&job, "a");
    assert_eq!(job.output().len(), 200);
}

/// Swaps the stores of both partitions, so that neither can be built upon.
fn swapped(job: &Job, state: &Path) -> [PathBuf; 2] {
    let [zero, one] = [0, 1].map(|partition| store(job, state, partition));
    let between = zero.with_file_name("between");
    for (from, to) in [(&zero, &between), (&one, &zero), (&between, &one)] {
        fs::rename(from, to).expect("a folder can be renamed beside itself");
    }
    [zero, one]
}

/// The folder of the store that was set aside for the one in this folder.
fn aside_path(store: &Path) -> PathBuf {
    format!("{}.aside", store.display()).into()
}

#[test]
fn store_set_aside_returns_when_its_replacement_is_damaged() {
    let job = Job::new("damaged-beside", 2);
    job.send(things(0, 0..300, 1).chain(things(1, 300..600, 1)));
    let state = drain(&job, "a").state_dir().to_owned();
    let stores = swapped(&job, &state);
    let before = stores.each_ref().map(|store| read_store(store));
    let crash = |point| {
        let crashing = Options { crash_at: Some(point), ..Options::default() };
        Operator::start_with(&job, "a", &crashing).await_crash();
    };
    crash("during_restore");
    let beside: Vec<usize> = (0..2).filter(|&n| aside_path(&stores[n]).exists()).collect();
    assert!(!beside.is_empty(), "none was set aside");
    for &n in &beside {
        fs::remove_file(stores[n].join("CURRENT")).expect("it was being built");
    }
    // The damaged store gives way to the one set aside, which is never removed for it.
    crash("before_put_back");
    for &n in &beside {
        let (aside, back) = (aside_path(&stores[n]), &stores[n]);
        let found = if aside.exists() { read_store(&aside) } else { read_store(back) };
        assert!(found == before[n], "{} has changed", back.display());
    }
    job.send(things(0, 0..300, 1).chain(things(1, 300..600, 1)));
    drain(&job, "a");
    assert!(stores.iter().all(|store| !aside_path(store).exists()), "a store is still set aside");
    let found = check(&job, &[&state]);
    assert_eq!((found.count(Fate::Forwarded), found.count(Fate::Duplicate)), (600, 600), "{found:?}");
    assert_eq!(found.stores_current, 2, "{found:?}");
}

#[test]
fn replaced_store_is_removed_only_once_the_other_is_complete() {
    let job = Job::new("replaced", 2);
    job.send(things(0, 0..300, 1).chain(things(1, 300..600, 1)));
    let state = drain(&job, "a").state_dir().to_owned();
    for (round, crash_at) in ["store_set_aside", "during_restore", "before_aside_removed"].into_iter().enumerate() {
        let [zero, one] = swapped(&job, &state);
        job.send(things(0, 0..300, 1).chain(things(1, 300..600, 1)));
        let before = [&zero, &one].map(|folder| read_store(folder));
        let crashing = Options { crash_at: Some(crash_at), ..Options::default() };
        let mut operator = Operator::start_with(&job, "a", &crashing);
        operator.await_line(&["crash drill: killing"], DEADLINE);
        operator.await_crash();
        // Files and folders may have changed, by a compaction or a rename; what a store holds has not.
        let all = fs::read_dir(zero.parent().expect("it is the topology's")).expect("it is there");
        let folders = all.map(|entry| entry.expect("it is there").path()).filter(|path| path.join("CURRENT").exists());
        let after: Vec<_> = folders.map(|folder| read_store(&folder)).collect();
        assert!(before.iter().all(|store| after.contains(store)), "{crash_at}");
        let operator = drain(&job, "a");
        for partition in 0..2 {
            assert!(!aside_path(&store(&job, &state, partition)).exists(), "{crash_at}: {}", operator.tail());
        }
        let found = check(&job, &[&state]);
        assert_eq!((found.count(Fate::Forwarded), found.count(Fate::Duplicate)), (600, 600 * (round + 1)), "{found:?}");
        assert_eq!(found.stores_current, 2, "{found:?}");
    }
}

#[test]
fn changelog_rebuilt_from_stores_continues_without_duplicate_or_loss() {
    let mut job = Job::new("rebuilt", 3);
    job.compacted = true;
    // More entries than one transaction takes in the first partition, some in the second, none in the third.
    job.send(things(0, 0..12_000, 1).chain(things(1, 12_000..12_100, 1)));
    let state = drain(&job, "a").state_dir().to_owned();
    delete_changelog(&job);
    // The third partition's store has nothing to lose.
    let stores = || [0, 1].map(|partition| tables(&store(&job, &state, partition)));
    let before = stores();
    // A missing store is a reason to refuse.
    let holder = job.path("elsewhere");
    let (code, said) = rebuild(&job, &holder, &[], None);
    assert!(code == Some(2) && said.contains(":0: no store is at") && said.contains(":1: no store is at"), "{said}");
    assert_eq!(job.kafka.partitions(&job.changelog()), None, "the rebuild had begun");
    // Killed half way, and run again.
    let (code, said) = rebuild(&job, &state, &[], Some("during_rebuild:2"));
    assert_eq!(code, None, "it was not killed: {said}");
    let operator = Operator::start(&job, "a");
    operator.await_error(&["task stopped", &format!("{}:0", job.input), "ratchet changelog rebuild"]);
    drop(operator);
    let (code, said) = once_empty(&job, &state);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("12000 entries; its input continues at offset 12000"), "{said}");
    assert!(said.contains("nothing was ever processed"), "{said}");
    let (code, said) = rebuild(&job, &state, &[], None);
    assert!(code == Some(0) && said.contains("kept: its changelog holds everything that is known about it"), "{said}");
    assert_eq!(stores(), before, "a store has changed");
    job.send(things(0, 0..12_000, 1).chain(things(1, 12_000..12_200, 1)).chain(things(2, 20_000..20_100, 1)));
    let operator = drain(&job, "a");
    operator.await_line(&["task resumes", &format!("{}:0", job.input)], DEADLINE);
    // An empty disk restores all of it.
    job.send(things(0, 0..12_000, 2));
    let fresh = drain(&job, "b");
    let found = check(&job, &[operator.state_dir(), fresh.state_dir()]);
    assert_eq!((found.count(Fate::Forwarded), found.count(Fate::Duplicate)), (24_300, 12_100), "{found:?}");
}

#[test]
fn changelog_is_not_rebuilt_beside_a_running_instance_or_over_records() {
    let mut job = Job::new("not-rebuilt", 2);
    job.compacted = true;
    job.send(things(0, 0..100, 1).chain(things(1, 100..200, 1)));
    let mut operator = Operator::start(&job, "a");
    job.await_drained(DEADLINE);
    let state = operator.state_dir().to_owned();
    let (code, said) = rebuild(&job, &state, &[], None);
    assert!(code == Some(1) && said.contains("is in use"), "{said}");
    let is_refused = |state: &Path, words: &[&str]| {
        let (code, said) = rebuild(&job, state, &[], None);
        assert!(code == Some(2) && words.iter().all(|words| said.contains(words)), "{words:?}: {said}");
    };
    is_refused(&job.path("elsewhere"), &["has members", "stop all instances"]);
    operator.stop();
    delete_changelog(&job);
    job.kafka.create(&job.changelog(), 2, &[("cleanup.policy", "compact")]);
    job.kafka.send(&job.changelog(), [Fresh::new(1, "another's", "words")]);
    is_refused(&state, &[":1:0 holds a record that the store does not", "delete the topic"]);
    job.kafka.delete_compacted_records(&job.changelog(), &[0, 1]);
    is_refused(&state, &[":1 begins at offset 1", "delete the topic"]);
    delete_changelog(&job);
    let (code, said) = rebuild(&job, &state, &[], None);
    assert_eq!(code, Some(0), "{said}");
    drain(&job, "a");
    assert_eq!(check(&job, &[&state]).count(Fate::Forwarded), 200);
}

#[test]
fn without_group_the_furthest_store_is_used_only_if_asked_for() {
    let mut job = Job::new("rebuilt-alone", 1);
    job.compacted = true;
    job.send(things(0, 0..100, 1));
    let state = drain(&job, "a").state_dir().to_owned();
    job.kafka.delete_group(&job.group());
    delete_changelog(&job);
    let (code, said) = rebuild(&job, &state, &[], None);
    assert!(code == Some(2) && said.contains("--without-group") && said.contains("to offset 100"), "{said}");
    let (code, said) = rebuild(&job, &state, &["--without-group"], None);
    assert_eq!(code, Some(0), "{said}");
    job.send(things(0, 0..200, 1));
    drain(&job, "a");
    let found = check(&job, &[&state]);
    assert_eq!((found.count(Fate::Forwarded), found.count(Fate::Duplicate)), (200, 100), "{found:?}");
}

#[test]
fn deletion_of_a_grown_changelog_is_advised_only_if_stores_hold_it_all() {
    let mut job = Job::new("grown-last-copy", 2);
    job.compacted = true;
    let send = |version| job.send(things(0, 0..100, version).chain(things(1, 100..200, version)));
    send(1);
    drain(&job, "a");
    send(2);
    let mut operator = Operator::start(&job, "a");
    job.await_drained(DEADLINE);
    // The last writes are not on its disk.
    operator.kill();
    let state = operator.state_dir().to_owned();
    job.kafka.add_partitions(&job.changelog(), 3);
    let is_kept = |state: &Path, words: &[&str]| {
        let (code, said) = once_empty(&job, state);
        assert!(code == Some(2) && words.iter().all(|words| said.contains(words)), "{words:?}: {said}");
        assert!(said.contains("has 3 partitions") && said.contains("do not delete the topic"), "{said}");
        assert!(!said.contains("run this command again"), "{said}");
    };
    is_kept(&job.path("elsewhere"), &[":0: no store is at", ":1: no store is at", "there is no other store either"]);
    is_kept(&state, &[":0: no store is at", ":1: no store is at", "slot-0"]);
    let operator = Operator::start(&job, "a");
    operator.await_error(&["added to it by hand", "ratchet changelog rebuild", "not without a copy"]);
    drop(operator);
    // Nor without a group: the changelog counts, and no store holds what it holds.
    job.kafka.delete_group(&job.group());
    let (code, said) = rebuild(&job, &state, &["--without-group"], None);
    assert!(
        code == Some(2) && said.contains("do not delete the topic") && said.contains(":0: its changelog holds"),
        "{said}"
    );
    assert_eq!(job.kafka.partitions(&job.changelog()), Some(3));
}

#[test]
fn grown_changelog_is_rebuilt_once_it_is_deleted() {
    let mut job = Job::new("grown-rebuilt", 2);
    job.compacted = true;
    job.send(things(0, 0..100, 1).chain(things(1, 100..200, 1)));
    let state = drain(&job, "a").state_dir().to_owned();
    job.kafka.add_partitions(&job.changelog(), 3);
    let (one, elsewhere) = (store(&job, &state, 1), job.path("one"));
    fs::rename(&one, &elsewhere).expect("nobody works with it");
    let (code, said) = rebuild(&job, &state, &[], None);
    assert!(
        code == Some(2) && said.contains("do not delete the topic") && said.contains(":1: no store is at"),
        "{said}"
    );
    assert!(!said.contains(":0: "), "{said}");
    fs::rename(&elsewhere, &one).expect("nobody works with it");
    let before = tables(&state);
    let (code, said) = rebuild(&job, &state, &[], None);
    let words = [
        "has 3 partitions",
        "each partition has a store",
        "copy all state folders, delete the topic, and run this command again",
    ];
    assert!(code == Some(2) && words.iter().all(|words| said.contains(words)), "{said}");
    assert_eq!(job.kafka.partitions(&job.changelog()), Some(3), "the changelog was deleted");
    delete_changelog(&job);
    let (code, said) = rebuild(&job, &state, &[], None);
    assert!(code == Some(0) && said.contains("100 entries; its input continues at offset 100"), "{said}");
    assert_eq!(tables(&state), before, "a store has changed");
    job.send(things(0, 0..150, 1).chain(things(1, 150..300, 1)));
    drain(&job, "a");
    let found = check(&job, &[&state]);
    assert_eq!((found.count(Fate::Forwarded), found.count(Fate::Duplicate)), (350, 150), "{found:?}");
}

#[test]
fn changelog_without_the_groups_last_transaction_is_refused() {
    let mut job = Job::new("not-held", 1);
    job.compacted = true;
    job.send(things(0, 0..100, 1));
    let state = drain(&job, "a").state_dir().to_owned();
    let (code, said) = rebuild(&job, &state, &[], None);
    assert!(code == Some(0) && said.contains("kept: its changelog holds"), "{said}");
    // Pretend that the group has committed one more.
    let (offset, text) = job.kafka.group(&job.group()).committed(&job.input, 0).expect("it has committed");
    let mut parts: Vec<String> = text.split('.').map(str::to_owned).collect();
    let transaction = u64::from_str_radix(&parts[1], 16).expect("its number");
    parts[1] = format!("{:x}", transaction + 1);
    job.kafka.group(&job.group()).set(&job.input, 0, offset + 1, &parts.join("."));
    let operator = Operator::start(&job, "a");
    operator.await_error(&["does not hold the transaction", "ratchet changelog rebuild", "not without a copy"]);
    drop(operator);
    let (code, said) = once_empty(&job, &state);
    let words = ["has lost records of partition 0", "do not delete the topic", ":0: no store is at"];
    assert!(code == Some(2) && words.iter().all(|words| said.contains(words)), "{said}");
}
