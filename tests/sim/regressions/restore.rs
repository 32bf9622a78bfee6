//! A restore step by step, while other owners write as scripted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ratchet::cluster::ErrorKind;
use ratchet::dedup::{Bounds, Epochs};
use ratchet::engine::changelog_loss;
use ratchet::engine::failure::Cause;
use ratchet::engine::restore::{self, Slice};
use ratchet::engine::task::{Phase, Task, Tasks};
use ratchet::format::{ChangelogOffset, Reached, Scope, Segment};
use ratchet::observe::Metrics;
use ratchet::state::Store;

use crate::client::{Batch, Sim};
use crate::database::{Database, Kind};
use crate::driver::alone;
use crate::input::{CHANGELOG, GROUP};
use crate::kafka::{Code, MS, Role, SECOND};

use super::site::{Lane, Restored, Site, entry, reason_of};

/// An instance that came back from a freeze restored what it no longer owned, and read on into the next owner's
/// transaction: its store named one transaction and held part of another, or its tasks stopped because the changelog
/// did not end in the transaction that the group had committed when they started.
#[test]
fn restore_ends_where_the_changelog_ended_at_its_start() {
    // A transaction that a single read covers, and one that takes several. The seed decides how much a read returns:
    // one that returns exactly what was there before shows nothing.
    for (entries, seed) in [1, 5_000].into_iter().flat_map(|entries| (0..16).map(move |seed| (entries, seed))) {
        let (restored, expected) = alone(seed, move |process| {
            let site = Site::new(process);
            let first = site.commit(1, &[entry(0, 1), entry(1, 1)]);
            let mut task = site.settled_task();
            let end = site.changelog_end();
            let later: Vec<_> = (0..entries).map(|thing| entry(thing, 2)).collect();
            site.commit(2, &later);
            site.restore(&mut task);
            let expected = Restored {
                entries: BTreeMap::from([entry(0, 1), entry(1, 1)]),
                position: Some(first),
                named: Some(first),
                offsets: (ChangelogOffset(end), Some(ChangelogOffset(end))),
            };
            (Restored::of(&task), expected)
        });
        assert_eq!(restored, expected, "{entries} entries, seed {seed}");
    }
}

/// Late copies of a transaction's requests committed its offset again. The task that was taken over then was refused;
/// or, if its store was as old, it continued from there and forwarded the later records again.
#[test]
fn task_resumes_from_an_older_offset_with_the_whole_changelog() {
    for seed in 0..16 {
        let (restored, next, processed) = alone(seed, move |process| {
            let site = Site::new(process);
            site.commit(1, &[entry(0, 1)]);
            site.leave_a_store();
            let committed = site.committed();
            let last = site.commit(2, &[entry(1, 2)]);
            site.commit_again(committed);
            let mut task = site.settled_task();
            site.restore(&mut task);
            let restored = Restored::of(&task);
            assert_eq!((restored.position, restored.named), (Some(last), Some(last)), "seed {seed}");
            (restored.entries, task.committed.next, task.committed.progress.processed.as_pairs().to_vec())
        });
        assert_eq!(restored, BTreeMap::from([entry(0, 1), entry(1, 2)]), "seed {seed}");
        assert_eq!((next, &processed[..]), (1, &[(0, 2)][..]), "processed records are known, seed {seed}");
    }
}

/// A commit's outcome was unknown, and the group's new coordinator returned the offset of the transaction before. The
/// task took its store, which was at that very transaction, for complete, and forwarded records again.
#[test]
fn commit_of_unknown_outcome_is_restored_before_the_task_continues() {
    for seed in 0..16 {
        let (restored, processed) = alone(seed, move |process| {
            let site = Site::new(process);
            site.commit(1, &[entry(0, 1)]);
            let mut task = site.settled_task();
            site.restore(&mut task);
            let mut lane = Lane::with(&site, task);
            lane.commit(2, entry(1, 2)).expect("no faults are injected");
            // Let its markers be written.
            process.sleep(SECOND);
            let producer = lane.transactor.producer().identity();
            // Once the offsets are there, commit the transaction without a response.
            let (watch, input) = (process.clone(), site.input.clone());
            process.spawn(move || {
                while watch.lock().broker.fetch_offset(GROUP, &input, true) != Err(Code::UnstableOffsetCommit) {
                    watch.sleep(MS / 100);
                }
                let (away, broker) = (watch.now() + 60 * SECOND, &mut watch.lock().broker);
                broker.end_transaction(&producer, true).expect("it is open");
                broker.take_away(Role::TransactionCoordinator, away);
            });
            let failure = lane.commit(3, entry(2, 3)).expect_err("there is no response");
            let Cause::Cluster(error) = &failure.cause else { panic!("{:?}", failure.cause) };
            assert_eq!(error.kind, ErrorKind::Unknown, "seed {seed}: {error}");
            let aborted = lane.transactor.abort(&site.sim, &failure.cause, &Metrics::new().lane("shop"));
            assert!(!aborted.ended, "seed {seed}");
            assert_eq!(process.lock().broker.groups.fall_back(GROUP), 1);
            assert_eq!(site.committed().offset, 2, "seed {seed}");

            let mut task = lane.tasks.remove(&0).expect("it is still there");
            task.unsettle();
            task.set_phase(Phase::Waiting { until: Duration::ZERO });
            site.restore(&mut task);
            (Restored::of(&task), task.committed.progress.processed.as_pairs().to_vec())
        });
        assert_eq!(restored.entries, BTreeMap::from([entry(0, 1), entry(1, 2), entry(2, 3)]), "seed {seed}");
        assert_eq!(processed, [(0, 3)], "seed {seed}");
    }
}

/// A store that had applied more than the changelog held was considered useless and emptied: the last copy of what
/// the changelog had lost was gone, and instances with older stores would have continued without it.
#[test]
fn changelog_that_lost_its_tail_is_refused_and_the_store_kept() {
    for seed in 0..4 {
        let (refusal, looks, before, after) = alone(seed, move |process| {
            let site = Site::new(process);
            site.commit(1, &[entry(0, 1)]);
            let end = site.changelog_end();
            site.commit(2, &[entry(1, 2)]);
            let mut former = site.settled_task();
            site.restore(&mut former);
            let before = Restored::of(&former);
            drop(former);
            process.lock().broker.topics.log_mut(&site.changelog).expect("it exists").lose_tail(end);

            let mut task = site.new_task();
            let (mut refusal, mut looks) = (None, 0);
            while refusal.is_none() {
                process.sleep(MS);
                let Err(setback) = restore::step(&site.context, &site.sim, &mut task, &mut Batch::default(), true)
                else {
                    continue;
                };
                looks += 1;
                restore::set_back(&site.context, &mut task, &setback);
                if matches!(task.phase, Phase::Failed) {
                    refusal = Some(reason_of(setback));
                }
            }
            assert!(matches!(task.phase, Phase::Failed));
            let store = Store::open(&task.state.dir, &site.context.memory).expect("a disk");
            (refusal.expect("it was waited for"), looks, before, Restored::of_store(&store, None))
        });
        for words in ["its last records were lost", "is left as it is", "new output topic"] {
            assert!(refusal.contains(words), "{words:?} is missing: {refusal}");
        }
        // A broker that does not know yet that it lost leadership may have responded.
        assert!(looks > 1, "it was refused at once, seed {seed}");
        assert_eq!((&after.entries, after.position, after.named), (&before.entries, before.position, before.named));
        assert_eq!(after.entries, BTreeMap::from([entry(0, 1), entry(1, 2)]), "seed {seed}");
    }
}

/// A changelog that had lost its tail and then grown to where a store was, or beyond, was taken for the one that the
/// store was built from: what was lost was in this store alone, and in no other built later.
#[test]
fn changelog_that_regrew_after_a_loss_is_refused_and_the_store_kept() {
    type Grow = fn(&Site<'_>);
    let regrown: [(&str, Grow); 3] = [
        ("as long as before", |site| site.abort(7, 2)),
        ("longer, and nothing of it committed", |site| site.abort(7, 9)),
        ("longer, by an owner that continued without it", |site| {
            site.commit(3, &[entry(3, 3)]);
            site.commit(4, &[entry(4, 4)]);
        }),
    ];
    for ((how, grow), seed) in regrown.into_iter().flat_map(|how| (0..4).map(move |seed| (how, seed))) {
        let (refusal, before, after, lost) = alone(seed, move |process| {
            let site = Site::new(process);
            site.commit(1, &[entry(0, 1)]);
            let end = site.changelog_end();
            site.commit(2, &[entry(1, 2)]);
            site.leave_a_store();
            let (before, old_end) = (site.on_disk(), site.changelog_end());
            process.lock().broker.topics.log_mut(&site.changelog).expect("it exists").lose_tail(end);
            grow(&site);
            assert!(site.changelog_end() >= old_end, "it has not grown");
            (site.refused(&mut site.new_task()), before, site.on_disk(), end)
        });
        let words = format!("the position record at offset {} is gone", lost + 1);
        for words in [&words, "is left as it is", "new output topic"] {
            assert!(refusal.contains(words), "{how}, seed {seed}: {words:?} is missing: {refusal}");
        }
        assert!(!before.is_empty() && before == after, "{how}, seed {seed}");
    }
}

/// An owner has continued without what was lost, and the store that holds it is too old to catch up: it was set
/// aside, and removed once another was complete.
#[test]
fn old_store_with_lost_records_is_refused_and_kept() {
    let (refusal, before, after) = alone(1, |process| {
        let site = Site::new(process);
        site.commit(1, &[entry(0, 1)]);
        let end = site.changelog_end();
        site.commit(2, &[entry(1, 2)]);
        site.leave_a_store();
        let before = site.on_disk();
        process.lock().broker.topics.log_mut(&site.changelog).expect("it exists").lose_tail(end);
        site.commit(3, &[entry(3, 3)]);
        site.commit(4, &[entry(4, 4)]);
        process.lock().processes.iter_mut().for_each(|process| process.wall_offset_ms = 7 * 24 * 3600 * 1000);
        (site.refused(&mut site.new_task()), before, site.on_disk())
    });
    assert!(refusal.contains("is gone") && refusal.contains("is left as it is"), "{refusal}");
    assert!(!before.is_empty() && before == after);
}

/// The store is past an aborted transaction. The changelog has lost only that, and holds later commits in its place:
/// the store continued from where it was, and missed them.
#[test]
fn records_committed_in_place_of_aborted_ones_are_restored() {
    for seed in 0..4 {
        let (restored, last) = alone(seed, move |process| {
            let site = Site::new(process);
            site.commit(1, &[entry(0, 1)]);
            let end = site.changelog_end();
            site.abort(7, 9);
            site.leave_a_store();
            let old_end = site.changelog_end();
            process.lock().broker.topics.log_mut(&site.changelog).expect("it exists").lose_tail(end);
            site.commit(2, &[entry(1, 2), entry(2, 2)]);
            let last = site.commit(3, &(3..12).map(|n| entry(n, 3)).collect::<Vec<_>>());
            assert!(site.changelog_end() > old_end, "it has not grown");
            let mut task = site.new_task();
            site.restore(&mut task);
            (Restored::of(&task), last)
        });
        assert_eq!((restored.position, restored.named), (Some(last), Some(last)), "seed {seed}");
        let first = [entry(0, 1), entry(1, 2), entry(2, 2)];
        assert_eq!(restored.entries, first.into_iter().chain((3..12).map(|n| entry(n, 3))).collect(), "seed {seed}");
    }
}

/// The same, with a store that a crash has left in the middle of a restore.
#[test]
fn records_committed_where_an_interrupted_restore_had_read_are_restored() {
    for seed in 0..4 {
        let (meta, restored, last) = alone(seed, move |process| {
            let site = Site::new(process);
            site.commit(1, &[entry(0, 1)]);
            let end = site.changelog_end();
            site.abort(7, 9);
            let mut task = site.settled_task();
            site.restore(&mut task);
            // All but what the end of the restore wrote.
            site.disk.crash(|batches| batches - 1);
            drop(task);
            let task = site.new_task();
            let meta = Store::open(&task.state.dir, &site.context.memory).expect("a disk").meta().expect("a disk");
            process.lock().broker.topics.log_mut(&site.changelog).expect("it exists").lose_tail(end);
            site.commit(2, &[entry(1, 2), entry(2, 2)]);
            let last = site.commit(3, &(3..12).map(|n| entry(n, 3)).collect::<Vec<_>>());
            let mut task = site.new_task();
            site.restore(&mut task);
            (meta.expect("the restore has left one"), Restored::of(&task), last)
        });
        assert!(meta.token.is_none() && meta.position_offset.is_some(), "not in the middle of a restore: {meta:?}");
        assert_eq!((restored.position, restored.named), (Some(last), Some(last)), "seed {seed}");
        let first = [entry(0, 1), entry(1, 2), entry(2, 2)];
        assert_eq!(restored.entries, first.into_iter().chain((3..12).map(|n| entry(n, 3))).collect(), "seed {seed}");
    }
}

/// If the record that is looked for was superseded and the cleaner has removed it, nothing is lost.
#[test]
fn store_whose_position_record_was_compacted_away_is_used() {
    for seed in 0..4 {
        let (restored, last) = alone(seed, move |process| {
            let site = Site::new(process);
            site.commit(1, &[entry(0, 1)]);
            site.leave_a_store();
            site.commit(2, &[entry(1, 2)]);
            let last = site.commit(3, &[entry(1, 3)]);
            let (end, now) = (site.changelog_end(), process.now());
            process.lock().broker.topics.log_mut(&site.changelog).expect("it exists").compact(end, now, 0);
            let mut task = site.new_task();
            site.restore(&mut task);
            (Restored::of(&task), last)
        });
        assert_eq!((restored.position, restored.named), (Some(last), Some(last)), "seed {seed}");
        assert_eq!(restored.entries, BTreeMap::from([entry(0, 1), entry(1, 3)]), "seed {seed}");
    }
}

/// After a crash, records that a restore had put into files were there, and the store's position was not: with a
/// changelog that had lost the rest meanwhile there was nothing left to read, and the task continued with whatever
/// part the store held.
#[test]
fn store_ahead_of_its_position_is_refused_after_a_changelog_loss() {
    let refusal = alone(1, |process| {
        let site = Site::new(process);
        site.commit(1, &[entry(0, 1)]);
        site.commit(2, &[entry(1, 2)]);
        let mut task = site.settled_task();
        site.restore(&mut task);
        site.disk.crash(|_| 0);
        drop(task);
        process.lock().broker.topics.log_mut(&site.changelog).expect("it exists").lose_tail(0);
        site.refused(&mut site.new_task())
    });
    assert!(refusal.contains("does not hold the transaction"), "{refusal}");
}

/// A store that could not be built upon was emptied before it was known whether its task could continue, and it was
/// the last copy.
#[test]
fn refusal_leaves_the_store_unchanged() {
    for (is_group_lost, words) in [(false, "the changelog was recreated"), (true, "holds no transaction")] {
        for seed in 0..4 {
            let (before, after, refusal) = alone(seed, move |process| {
                let site = Site::new(process);
                site.commit(1, &[entry(0, 1), entry(1, 1)]);
                site.leave_a_store();
                let before = site.on_disk();
                {
                    let broker = &mut process.lock().broker;
                    let settings = broker.topics.get(CHANGELOG).expect("it was created").settings;
                    broker.delete_topic(CHANGELOG).expect("it exists");
                    broker.topics.create(CHANGELOG, 1, settings).expect("it was deleted");
                    if is_group_lost {
                        broker.groups.delete(GROUP).expect("it is empty");
                    }
                }
                let refusal = site.refused(&mut site.new_task());
                (before, site.on_disk(), refusal)
            });
            assert!(refusal.contains(words), "seed {seed}: {refusal}");
            assert!(!before.is_empty() && before == after, "seed {seed}: {words}");
        }
    }
}

/// A position record grew until it could be written but not read: its task was stuck, at each start.
#[test]
fn unreadable_position_record_is_refused_before_anything_is_sent() {
    let (failure, end) = alone(1, |process| {
        let site = Site::new(process);
        site.commit(1, &[entry(0, 1)]);
        let mut task = site.settled_task();
        site.restore(&mut task);
        let reached = (0..43_700).map(|offset| Reached { offset, version: vec![1] }).collect();
        let scope = Scope { bytes: vec![4], segments: vec![Segment { above: None, began: 0 }], reached };
        task.committed.progress.epochs = Epochs::from_scopes(vec![scope], &Bounds::DEFAULT);
        let mut lane = Lane::with(&site, task);
        let end = site.changelog_end();
        let failure = lane.commit(2, entry(1, 2)).expect_err("it would be unreadable");
        assert_eq!(lane.transactor.in_flight(), 0, "nothing is on its way");
        (failure, site.changelog_end() - end)
    });
    let Cause::Refused(refusal) = &failure.cause else { panic!("{:?}", failure.cause) };
    let reason = refusal.to_string();
    assert!(reason.contains("could not be read back") && reason.contains("`epoch`"), "{reason}");
    assert_eq!((failure.task, end), (Some(0), 0));
}

/// Only the first of them was refused: the others continued past what was lost.
#[test]
fn every_task_whose_changelog_has_fallen_back_is_refused() {
    let refused = alone(1, |process| {
        let site = Site::new(process);
        let task = |id| {
            let mut task = site.new_task();
            task.state.dir = task.state.dir.with_file_name(format!("another {id}"));
            while task.state.store.is_none() {
                site.step(&mut task);
            }
            task.state.store.as_mut().expect("just locked").applied.next = ChangelogOffset(9);
            (id, task)
        };
        let mut tasks: Tasks<Sim> = (0..4).map(task).collect();
        // Nothing is known about the third, and nothing has happened to the fourth.
        let failures = changelog_loss::detect(
            &mut tasks,
            &[(0, 5), (1, 8), (1, 12), (3, 9)].map(|(id, at)| (id, ChangelogOffset(at))),
        );
        failures.into_iter().map(|failure| (failure.task, failure.cause.to_string())).collect::<Vec<_>>()
    });
    let of: Vec<_> = refused.iter().map(|(task, _)| *task).collect();
    assert_eq!(of, [Some(0), Some(1)], "{refused:?}");
    assert!(refused[0].1.contains("behind offset 5") && refused[1].1.contains("behind offset 8"), "{refused:?}");
}

/// A current store waited until those that had to read their changelogs were done.
#[test]
fn current_store_does_not_wait_for_other_loads() {
    for seed in 0..4 {
        let phases = alone(seed, move |process| {
            let site = Site::new(process);
            site.commit(1, &[entry(0, 1)]);
            site.leave_a_store();
            // While others hold the memory for loads.
            let step = |mut task: Task<Sim>| {
                let slice = |task: &mut Task<Sim>| {
                    process.sleep(MS);
                    let stepped = restore::step(&site.context, &site.sim, task, &mut Batch::default(), false);
                    stepped.expect("nothing hinders the restore")
                };
                // It is checked many times, and settled long before the last.
                (0..200).map(|_| slice(&mut task)).find(|slice| *slice == Slice::Ready)
            };
            let current = step(site.new_task());
            // One that is behind waits, and is not touched.
            site.commit(2, &[entry(1, 2)]);
            let before = site.on_disk();
            let behind = step(site.new_task());
            (current, behind, before == site.on_disk())
        });
        assert_eq!(phases, (Some(Slice::Ready), None, true), "seed {seed}");
    }
}

/// A lane that had left its group without knowing it wrote, aborted and restored up to the end of that, while another
/// lane of its process, which had settled before, waited for the store. The store was then beyond the changelog's end as
/// the second lane knew it, which looked like a changelog that had lost its tail, and the partition stood still.
#[test]
fn a_store_whose_former_holder_has_read_on_is_gone_on_with() {
    for seed in 0..16 {
        let (restored, expected) = alone(seed, move |process| {
            let site = Site::new(process);
            let last = site.commit(1, &[entry(0, 1)]);
            let mut former = site.settled_task();
            site.restore(&mut former);
            let mut task = site.new_task();
            while !matches!(task.phase, Phase::Locking { .. }) {
                site.step(&mut task);
            }
            assert_eq!(site.step(&mut task), Slice::Waiting, "the other one has the store");
            site.abort(2, 1);
            former.set_phase(Phase::Waiting { until: Duration::ZERO });
            site.restore(&mut former);
            drop(former);
            site.restore(&mut task);
            let end = site.changelog_end();
            let expected = Restored {
                entries: BTreeMap::from([entry(0, 1)]),
                position: Some(last),
                named: Some(last),
                offsets: (ChangelogOffset(end), Some(ChangelogOffset(end))),
            };
            (Restored::of(&task), expected)
        });
        assert_eq!(restored, expected, "seed {seed}");
    }
}

/// A store set aside stayed until the sink's row was compared, and a redo had the task restore once more before that. A
/// copy of the new store was to take the other's place, and the disk was full: the other was gone already, and the new
/// store's end was in memory alone.
#[test]
fn store_set_aside_stays_until_the_one_built_upon_it_is_on_the_disk() {
    for seed in 0..4 {
        let (named, last) = alone(seed, move |process| {
            let mut site = Site::new(process);
            site.context.sink = Some(Arc::new(Database { process: process.clone(), kind: Kind::Position }));
            let first = site.commit(1, &[entry(0, 1)]);
            site.leave_a_store();
            let last = site.commit(2, &[entry(1, 2)]);
            let mut task = site.settled_task();
            site.restore(&mut task);
            // By a redo, for example.
            site.commit(3, &[entry(2, 3)]);
            site.disk.set_full(Some(3));
            task.unsettle();
            task.set_phase(Phase::Waiting { until: Duration::ZERO });
            let setback = loop {
                process.sleep(MS);
                match restore::step(&site.context, &site.sim, &mut task, &mut Batch::default(), true) {
                    Err(setback) => break setback.to_string(),
                    Ok(slice) => assert_ne!(slice, Slice::Ready, "the disk is full"),
                }
            };
            assert!(setback.contains("no space"), "{setback}");
            site.disk.crash(|_| 0);
            drop(task);
            site.disk.set_full(None);
            let folders = site.disk.folders().into_iter();
            let metas =
                folders.map(|dir| Store::open(&dir, &site.context.memory).expect("a disk").meta().expect("a disk"));
            let named: Vec<_> = metas.filter_map(|meta| meta?.token).collect();
            (named, [first, last])
        });
        assert!(named.iter().any(|token| last.contains(token)), "seed {seed}: {named:?}");
    }
}
