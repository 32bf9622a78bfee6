//! Goal: a store, group or topic that only looks like the right one is recognised, and either brought up to date or
//! refused with what to do.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::checker::{Fate, check};
use crate::job::Job;
use crate::kafka::remove_folder;
use crate::load::{now_ms, thing, things};
use crate::operator::Operator;
use crate::until::{DEADLINE, within};

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("the run's folder is writable");
    for entry in std::fs::read_dir(from).expect("a folder").flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("a file");
        }
    }
}

/// Runs an operator until the input is drained, and stops it.
fn drain(job: &Job, label: &str) -> Operator {
    let mut operator = Operator::start(job, label);
    job.await_drained(DEADLINE);
    operator.stop();
    operator
}

/// Copies a store, then processes more: the job, its state folder and the copy.
fn with_old_copy(theme: &str) -> (Job, PathBuf, PathBuf) {
    let job = Job::new(theme, 1);
    job.send(things(0, 0..100, 1));
    let first = drain(&job, "a");
    let (state, copy) = (first.state_dir().to_owned(), job.path("copy"));
    copy_folder(&state, &copy);
    job.send(things(0, 100..200, 1));
    drain(&job, "a");
    (job, state, copy)
}

fn put_back(copy: &Path, state: &Path) {
    remove_folder(state);
    copy_folder(copy, state);
}

#[test]
fn old_copy_of_a_store_is_brought_up_to_date() {
    let (job, state, copy) = with_old_copy("old-copy");
    put_back(&copy, &state);
    job.send(things(0, 0..200, 1));
    drain(&job, "a");
    let found = check(&job, &[&state]);
    assert_eq!((found.count(Fate::Forwarded), found.count(Fate::Duplicate)), (200, 200), "{found:?}");
}

#[test]
fn group_reset_to_an_old_stores_offset_brings_no_duplicates() {
    let (job, state, copy) = with_old_copy("reset-to-copy");
    put_back(&copy, &state);
    job.kafka.group(&job.group()).set(&job.input, 0, 100, "");
    let operator = drain(&job, "a");
    operator.await_line(&["the group was reset"], DEADLINE);
    job.send(things(0, 0..300, 1));
    drain(&job, "a");
    let found = check(&job, &[&state]);
    assert_eq!((found.count(Fate::Forwarded), found.count(Fate::Duplicate)), (300, 200), "{found:?}");
}

#[test]
fn swapped_state_folders_are_not_trusted() {
    let job = Job::new("swapped", 2);
    // The same number on both, so that the offsets are equal.
    job.send(things(0, 0..100, 1).chain(things(1, 100..200, 1)));
    let first = drain(&job, "a");
    let folder = first.state_dir().join("slot-0").join(&job.name);
    let [zero, one] = [0, 1].map(|p| folder.join(format!("{}-{p}", job.input)));
    assert!(
        zero.exists() && one.exists(),
        "the stores are not where docs/dev/architecture.md says: {}",
        zero.display()
    );
    let aside = folder.join("aside");
    for (from, to) in [(&zero, &aside), (&one, &zero), (&aside, &one)] {
        std::fs::rename(from, to).expect("a folder can be renamed beside itself");
    }
    job.send(things(0, 0..100, 1).chain(things(1, 100..200, 1)));
    let second = drain(&job, "a");
    second.await_line(&["store cannot be built upon"], DEADLINE);
    let found = check(&job, &[second.state_dir()]);
    assert_eq!((found.count(Fate::Forwarded), found.count(Fate::Duplicate)), (200, 200), "{found:?}");
    assert_eq!(found.stores_current, 2, "{found:?}");
}

#[test]
fn recreated_input_of_the_same_length_is_refused() {
    let job = Job::new("recreated", 1);
    job.send(things(0, 0..100, 1));
    drain(&job, "a");
    let (committed, metadata) = job.kafka.committed(&job.group(), &job.input, 0).expect("it has committed");
    job.kafka.delete(&job.input);
    job.kafka.create(&job.input, 1, &[]);
    job.send(things(0, 1000..1150, 1));
    // Kafka forgets the offsets of a deleted topic; with them back it looks as before.
    job.kafka.group(&job.group()).set(&job.input, 0, committed, &metadata);
    let operator = Operator::start(&job, "a");
    operator.await_error(&[&job.input, "recreated", "new name"]);
    assert_eq!(job.output().len(), 100, "nothing of another topic's records may be forwarded");
    assert_eq!(job.committed(), [100]);
}

#[test]
fn topics_recreated_under_a_running_task_are_noticed() {
    for recreate in [|job: &Job| job.input.clone(), Job::changelog] {
        let job = Job::new("recreated-running", 1);
        let operator = Operator::start(&job, "a");
        job.send(things(0, 0..10, 1));
        job.await_drained(DEADLINE);
        let (topic, settings) = (recreate(&job), [("cleanup.policy", "compact")]);
        job.kafka.delete(&topic);
        job.kafka.create(&topic, 1, if topic == job.input { &[] } else { &settings });
        operator.await_error(&[&job.input, "recreated", "new name"]);
        assert_eq!(job.output().len(), 10);
    }
}

#[test]
fn deleted_or_recreated_changelog_is_noticed_on_a_fresh_disk() {
    // ratchet creates a missing one; somebody may have done so before.
    for recreated in [false, true] {
        let job = Job::new(&format!("no-changelog-{recreated}"), 1);
        job.send(things(0, 0..100, 1));
        let first = drain(&job, "a");
        remove_folder(first.state_dir());
        job.kafka.delete(&job.changelog());
        if recreated {
            job.kafka.create(&job.changelog(), 1, &[("cleanup.policy", "compact")]);
        }
        job.send(things(0, 0..200, 1));
        let second = Operator::start(&job, "a");
        second.await_error(&[&job.input, "changelog", "new name"]);
        assert_eq!(job.output().len(), 100, "without its state it may not forward anything");
        assert_eq!(job.committed(), [100]);
    }
}

#[test]
fn deleted_group_resumes_at_its_last_offset() {
    let mut job = Job::new("no-group", 1);
    job.topology.push(format!("input: {{topics: [{}], value_format: json, start: latest}}", job.input));
    let mut first = Operator::start(&job, "a");
    first.await_ready(DEADLINE);
    job.send(things(0, 0..100, 1));
    job.await_drained(DEADLINE);
    first.stop();
    // With `start: latest` these would be lost if only the group's offset counted.
    job.send(things(0, 100..200, 1));
    job.kafka.delete_group(&job.group());
    let second = drain(&job, "a");
    second.await_line(&["the group has no offset any more"], DEADLINE);
    let found = check(&job, &[second.state_dir()]);
    assert_eq!(found.count(Fate::Forwarded), 200, "{found:?}");
}

#[test]
fn first_start_on_an_idle_input_is_remembered_without_the_group() {
    let mut job = Job::new("no-group-idle", 1);
    job.starts_late = true;
    job.topology.push(format!("input: {{topics: [{}], value_format: json, start: latest}}", job.input));
    job.send(things(0, 0..50, 1));
    let mut first = Operator::start(&job, "a");
    within(DEADLINE, "the start to be committed", || (job.committed() == [50]).then_some(()));
    first.stop();
    assert!(job.output().is_empty());
    job.kafka.delete_group(&job.group());
    // They arrived while nothing ran, and only the position record says that they are to be read.
    job.send(things(0, 100..200, 1));
    let second = drain(&job, "a");
    second.await_line(&["the group has no offset any more"], DEADLINE);
    let found = check(&job, &[second.state_dir()]);
    assert_eq!(found.count(Fate::Forwarded), 100, "{found:?}");
}

#[test]
fn group_reset_to_earliest_forwards_nothing_even_after_expiry() {
    let job = Job::new("reset", 1).with_retention(Duration::from_secs(60));
    let start = now_ms() - 600_000;
    // Ten minutes of one thing a second, each seen again both before and after it expires.
    let minute = |m: i64| {
        (0..60).map(move |second| {
            thing(0, &format!("thing-{}", second % 20), m * 60 + second + 1).at(start + (m * 60 + second) * 1000)
        })
    };
    job.send((0..5).flat_map(minute));
    job.send((0..60).map(|id| thing(0, &format!("once-{id}"), 1).at(start + 300_000 + id * 1000)));
    job.send((6..9).flat_map(minute));
    let mut first = drain(&job, "a");
    let forwarded = job.output().len();
    assert!(first.printed().contains("task starts afresh"), "{}", first.tail());
    let group = job.kafka.group(&job.group());
    let end = job.committed()[0];
    for wiped in [false, true] {
        if wiped {
            first.kill_and_wipe();
        }
        group.set(&job.input, 0, 0, "");
        let again = drain(&job, "a");
        again.await_line(&["the group was reset"], DEADLINE);
        assert_eq!(job.output().len(), forwarded, "reading the input again forwarded something (wiped: {wiped})");
        assert_eq!(job.committed(), [end]);
    }
    // It still works.
    job.send([thing(0, "thing-0", 10_000)]);
    let last = drain(&job, "a");
    assert_eq!(job.output().len(), forwarded + 1);
    let found = check(&job, &[last.state_dir()]);
    assert!(found.swept > 0, "the sweeper removed nothing: {found:?}");
}

#[test]
fn two_processes_sharing_a_state_folder_take_one_slot_each() {
    let job = Job::new("one-folder", 2);
    let shared = job.path("shared-state");
    let options = crate::operator::Options::default();
    let mut one = Operator::start_in(&job, "one", &shared, &options);
    let mut two = Operator::start_in(&job, "two", &shared, &options);
    within(DEADLINE, "both to work", || {
        job.send([thing(0, "x", now_ms()), thing(1, "y", now_ms())]);
        let owners = job.owners();
        (owners.iter().all(Option::is_some) && owners[0] != owners[1]).then_some(())
    });
    job.await_drained(DEADLINE);
    // Frozen, and signalled before it thaws, the other one takes nothing over in between.
    two.freeze();
    one.stop();
    two.terminate();
    two.thaw();
    assert_eq!(two.await_exit(DEADLINE).code(), Some(0), "{}", two.tail());
    assert_eq!(check(&job, &[&shared]).stores_current, 2);
}
