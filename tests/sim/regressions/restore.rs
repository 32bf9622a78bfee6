//! A restore step by step, beside owners that write when the script says so.

use std::collections::BTreeMap;
use std::time::Duration;

use ratchet::cluster::Kind;
use ratchet::dedup::{Bounds, Epochs};
use ratchet::engine::fallback;
use ratchet::engine::restore::{self, Slice};
use ratchet::engine::task::{Phase, Task, Tasks};
use ratchet::engine::trouble::Cause;
use ratchet::format::{Reached, Scope, Segment};
use ratchet::observe::Metrics;
use ratchet::state::Store;

use crate::client::{Batch, Sim};
use crate::driver::alone;
use crate::input::{CHANGELOG, GROUP};
use crate::kafka::{Code, MS, Place, SECOND};

use super::site::{Lane, Restored, Site, entry, reason_of};

/// An instance that came back from a freeze restored what it no longer owned, and read on into the next owner's
/// transaction: its store named a transaction and held a part of another, or its tasks stopped, as the changelog did
/// not end in the transaction that the group had committed when they began.
#[test]
fn a_restore_ends_where_the_changelog_ended_when_it_began() {
    // A transaction that one read takes to its end, and one that takes several. How much a read brings is the seed's:
    // one that brings what was there before, and no more, shows nothing.
    for (entries, seed) in [1, 5_000].into_iter().flat_map(|entries| (0..16).map(move |seed| (entries, seed))) {
        let (restored, expected) = alone(seed, move |process| {
            let site = Site::new(process);
            let first = site.commit(1, &[entry(0, 1), entry(1, 1)]);
            let mut task = site.settled();
            let end = site.changelog_end();
            let later: Vec<_> = (0..entries).map(|thing| entry(thing, 2)).collect();
            site.commit(2, &later);
            site.restore(&mut task);
            let expected = Restored {
                entries: BTreeMap::from([entry(0, 1), entry(1, 1)]),
                position: Some(first),
                named: Some(first),
                offsets: [end; 2],
            };
            (Restored::of(&task), expected)
        });
        assert_eq!(restored, expected, "{entries} entries, seed {seed}");
    }
}

/// Late copies of a transaction's requests committed its offset once more. The task that was taken over then was
/// refused, and where its store was as old, it went on from there and forwarded again what came after.
#[test]
fn an_offset_that_went_back_is_gone_on_from_with_all_that_the_changelog_holds() {
    for seed in 0..16 {
        let (restored, next, processed) = alone(seed, move |process| {
            let site = Site::new(process);
            site.commit(1, &[entry(0, 1)]);
            site.leave_a_store();
            let committed = site.committed();
            let last = site.commit(2, &[entry(1, 2)]);
            site.commit_again(committed);
            let mut task = site.settled();
            site.restore(&mut task);
            let restored = Restored::of(&task);
            assert_eq!((restored.position, restored.named), (Some(last), Some(last)), "seed {seed}");
            (restored.entries, task.committed.next, task.committed.progress.processed.as_pairs().to_vec())
        });
        assert_eq!(restored, BTreeMap::from([entry(0, 1), entry(1, 2)]), "seed {seed}");
        assert_eq!((next, &processed[..]), (1, &[(0, 2)][..]), "what was processed is known, seed {seed}");
    }
}

/// A commit's outcome was not known, and the group's coordinator came back with the offset of the transaction before.
/// The task took its store, which was of that very transaction, for all there was, and forwarded once more.
#[test]
fn what_a_commit_of_unknown_outcome_has_written_is_read_before_it_is_gone_on() {
    for seed in 0..16 {
        let (restored, processed) = alone(seed, move |process| {
            let site = Site::new(process);
            site.commit(1, &[entry(0, 1)]);
            let mut task = site.settled();
            site.restore(&mut task);
            let mut lane = Lane::with(&site, task);
            lane.commit(2, entry(1, 2)).expect("nothing goes wrong");
            // Its markers are written meanwhile.
            process.sleep(SECOND);
            let producer = lane.transactor.producer().identity();
            // Once the offsets are there, the transaction is committed, and nobody says so.
            let (watch, input) = (process.clone(), site.input.clone());
            process.spawn(move || {
                while watch.lock().broker.fetch_offset(GROUP, &input, true) != Err(Code::UnstableOffsetCommit) {
                    watch.sleep(MS / 100);
                }
                let (away, broker) = (watch.now() + 60 * SECOND, &mut watch.lock().broker);
                broker.end_transaction(&producer, true).expect("it is open");
                broker.take_away(Place::TransactionCoordinator, away);
            });
            let trouble = lane.commit(3, entry(2, 3)).expect_err("nobody answers");
            let Cause::Cluster(error) = &trouble.cause else { panic!("{:?}", trouble.cause) };
            assert_eq!(error.kind, Kind::Unknown, "seed {seed}: {error}");
            let aborted = lane.transactor.abort(&site.sim, &trouble.cause, &Metrics::new().lane("shop"));
            assert!(!aborted.ended, "seed {seed}");
            assert_eq!(process.lock().broker.groups.fall_back(GROUP), 1);
            assert_eq!(site.committed().offset, 2, "seed {seed}");

            let mut task = lane.tasks.remove(&0).expect("it was not taken away");
            task.unsettle();
            task.rewind();
            task.set_phase(Phase::Waiting { until: Duration::ZERO });
            site.restore(&mut task);
            (Restored::of(&task), task.committed.progress.processed.as_pairs().to_vec())
        });
        assert_eq!(restored.entries, BTreeMap::from([entry(0, 1), entry(1, 2), entry(2, 3)]), "seed {seed}");
        assert_eq!(processed, [(0, 3)], "seed {seed}");
    }
}

/// A store that had applied more than the changelog held was taken for useless and emptied: the last copy of what the
/// changelog had lost went with it, and instances whose stores had not come so far would have gone on without.
#[test]
fn a_changelog_that_has_lost_its_last_records_is_refused_and_the_store_stays_as_it_is() {
    for seed in 0..4 {
        let (refusal, looks, before, after) = alone(seed, move |process| {
            let site = Site::new(process);
            site.commit(1, &[entry(0, 1)]);
            let end = site.changelog_end();
            site.commit(2, &[entry(1, 2)]);
            let mut former = site.settled();
            site.restore(&mut former);
            let before = Restored::of(&former);
            drop(former);
            process.lock().broker.topics.log_mut(&site.changelog).expect("it is there").lose_tail(end);

            let mut task = site.begun();
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
            let store = Store::open(&task.dir, &site.context.memory).expect("a disk");
            (refusal.expect("it was waited for"), looks, before, Restored::of_store(&store, task.changelog_offset))
        });
        for words in ["its last records were lost", "is left as it is", "new output topic"] {
            assert!(refusal.contains(words), "{words:?} is missing: {refusal}");
        }
        // A broker that does not know yet that it leads no more may have answered.
        assert!(looks > 1, "it was refused at once, seed {seed}");
        assert_eq!((&after.entries, after.position, after.named), (&before.entries, before.position, before.named));
        assert_eq!(after.entries, BTreeMap::from([entry(0, 1), entry(1, 2)]), "seed {seed}");
    }
}

/// A changelog that had lost its tail and had grown again, to where a store stood or beyond, was taken for the one that the
/// store was made from: what it had lost was known to this store alone, and to no other that was built from it.
#[test]
fn a_changelog_that_has_lost_its_tail_and_has_grown_again_is_refused_and_the_store_stays_as_it_is() {
    type Grow = fn(&Site<'_>);
    let regrown: [(&str, Grow); 3] = [
        ("as long as before", |site| site.abort(7, 2)),
        ("longer, and nothing of it committed", |site| site.abort(7, 9)),
        ("longer, by one who has gone on without", |site| {
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
            let (before, stood) = (site.on_disk(), site.changelog_end());
            process.lock().broker.topics.log_mut(&site.changelog).expect("it is there").lose_tail(end);
            grow(&site);
            assert!(site.changelog_end() >= stood, "it has not grown");
            (site.refused(&mut site.begun()), before, site.on_disk(), end)
        });
        let words = format!("the position record at offset {} is gone", lost + 1);
        for words in [&words, "is left as it is", "new output topic"] {
            assert!(refusal.contains(words), "{how}, seed {seed}: {words:?} is missing: {refusal}");
        }
        assert!(!before.is_empty() && before == after, "{how}, seed {seed}");
    }
}

/// Whoever has gone on without what was lost, and the store that knows it is too old to be read up: it was set aside, and
/// removed once another was complete.
#[test]
fn an_old_store_that_knows_what_was_lost_is_refused_and_stays_as_it_is() {
    let (refusal, before, after) = alone(1, |process| {
        let site = Site::new(process);
        site.commit(1, &[entry(0, 1)]);
        let end = site.changelog_end();
        site.commit(2, &[entry(1, 2)]);
        site.leave_a_store();
        let before = site.on_disk();
        process.lock().broker.topics.log_mut(&site.changelog).expect("it is there").lose_tail(end);
        site.commit(3, &[entry(3, 3)]);
        site.commit(4, &[entry(4, 4)]);
        process.lock().processes.iter_mut().for_each(|process| process.wall_offset_ms = 7 * 24 * 3600 * 1000);
        (site.refused(&mut site.begun()), before, site.on_disk())
    });
    assert!(refusal.contains("is gone") && refusal.contains("is left as it is"), "{refusal}");
    assert!(!before.is_empty() && before == after);
}

/// The store stands behind what was taken back. The changelog has lost that, and nothing else, and holds what was committed
/// since in its place: the store was gone on with from where it stood, and knew nothing of it.
#[test]
fn what_was_committed_where_something_was_taken_back_is_restored() {
    for seed in 0..4 {
        let (restored, last) = alone(seed, move |process| {
            let site = Site::new(process);
            site.commit(1, &[entry(0, 1)]);
            let end = site.changelog_end();
            site.abort(7, 9);
            site.leave_a_store();
            let stood = site.changelog_end();
            process.lock().broker.topics.log_mut(&site.changelog).expect("it is there").lose_tail(end);
            site.commit(2, &[entry(1, 2), entry(2, 2)]);
            let last = site.commit(3, &(3..12).map(|n| entry(n, 3)).collect::<Vec<_>>());
            assert!(site.changelog_end() > stood, "it has not grown");
            let mut task = site.begun();
            site.restore(&mut task);
            (Restored::of(&task), last)
        });
        assert_eq!((restored.position, restored.named), (Some(last), Some(last)), "seed {seed}");
        let first = [entry(0, 1), entry(1, 2), entry(2, 2)];
        assert_eq!(restored.entries, first.into_iter().chain((3..12).map(|n| entry(n, 3))).collect(), "seed {seed}");
    }
}

/// The same of a store that was written to in mid-restore, and has lost the rest in a crash.
#[test]
fn what_was_committed_where_a_restore_has_passed_over_is_restored() {
    for seed in 0..4 {
        let (meta, restored, last) = alone(seed, move |process| {
            let site = Site::new(process);
            site.commit(1, &[entry(0, 1)]);
            let end = site.changelog_end();
            site.abort(7, 9);
            let mut task = site.settled();
            site.restore(&mut task);
            // All but what the end of the restore has written.
            site.disk.crash(|batches| batches - 1);
            drop(task);
            let task = site.begun();
            let meta = Store::open(&task.dir, &site.context.memory).expect("a disk").meta().expect("a disk");
            process.lock().broker.topics.log_mut(&site.changelog).expect("it is there").lose_tail(end);
            site.commit(2, &[entry(1, 2), entry(2, 2)]);
            let last = site.commit(3, &(3..12).map(|n| entry(n, 3)).collect::<Vec<_>>());
            let mut task = site.begun();
            site.restore(&mut task);
            (meta.expect("the load has left one"), Restored::of(&task), last)
        });
        assert!(meta.token.is_none() && meta.position_offset.is_some(), "not in mid-restore: {meta:?}");
        assert_eq!((restored.position, restored.named), (Some(last), Some(last)), "seed {seed}");
        let first = [entry(0, 1), entry(1, 2), entry(2, 2)];
        assert_eq!(restored.entries, first.into_iter().chain((3..12).map(|n| entry(n, 3))).collect(), "seed {seed}");
    }
}

/// Where the record that is looked for was superseded, and the cleaner has removed it, nothing is lost.
#[test]
fn a_store_whose_position_record_was_compacted_away_goes_on() {
    for seed in 0..4 {
        let (restored, last) = alone(seed, move |process| {
            let site = Site::new(process);
            site.commit(1, &[entry(0, 1)]);
            site.leave_a_store();
            site.commit(2, &[entry(1, 2)]);
            let last = site.commit(3, &[entry(1, 3)]);
            let (end, now) = (site.changelog_end(), process.now());
            process.lock().broker.topics.log_mut(&site.changelog).expect("it is there").compact(end, now, 0);
            let mut task = site.begun();
            site.restore(&mut task);
            (Restored::of(&task), last)
        });
        assert_eq!((restored.position, restored.named), (Some(last), Some(last)), "seed {seed}");
        assert_eq!(restored.entries, BTreeMap::from([entry(0, 1), entry(1, 3)]), "seed {seed}");
    }
}

/// What a restore had brought into files was there after a crash, and where the store stood was not: with a changelog that
/// had lost the rest meanwhile there was nothing left to read, and whatever part of it the store held was gone on with.
#[test]
fn a_store_ahead_of_its_position_is_not_whole_where_the_changelog_has_lost_the_rest() {
    let refusal = alone(1, |process| {
        let site = Site::new(process);
        site.commit(1, &[entry(0, 1)]);
        site.commit(2, &[entry(1, 2)]);
        let mut task = site.settled();
        site.restore(&mut task);
        site.disk.crash(|_| 0);
        drop(task);
        process.lock().broker.topics.log_mut(&site.changelog).expect("it is there").lose_tail(0);
        site.refused(&mut site.begun())
    });
    assert!(refusal.contains("does not hold the transaction"), "{refusal}");
}

/// A store that could not be built upon was emptied before it was known that its task could go on, and it was the last
/// copy.
#[test]
fn a_refusal_leaves_the_store_as_it_was_wherever_it_comes() {
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
                    broker.delete_topic(CHANGELOG).expect("it is there");
                    broker.topics.create(CHANGELOG, 1, settings).expect("it is gone");
                    if is_group_lost {
                        broker.groups.delete(GROUP).expect("nobody is in it");
                    }
                }
                let refusal = site.refused(&mut site.begun());
                (before, site.on_disk(), refusal)
            });
            assert!(refusal.contains(words), "seed {seed}: {refusal}");
            assert!(!before.is_empty() && before == after, "seed {seed}: {words}");
        }
    }
}

/// A position record grew until it could be written and not be read: its task stood for good, at each start.
#[test]
fn a_position_record_that_could_not_be_read_is_refused_before_anything_is_sent() {
    let (trouble, end) = alone(1, |process| {
        let site = Site::new(process);
        site.commit(1, &[entry(0, 1)]);
        let mut task = site.settled();
        site.restore(&mut task);
        let reached = (0..43_700).map(|offset| Reached { offset, version: vec![1] }).collect();
        let scope = Scope { bytes: vec![4], segments: vec![Segment { above: None, began: 0 }], reached };
        task.pending.progress.epochs = Epochs::from_scopes(vec![scope], &Bounds::USUAL);
        let mut lane = Lane::with(&site, task);
        let end = site.changelog_end();
        let trouble = lane.commit(2, entry(1, 2)).expect_err("it could not be read");
        assert_eq!(lane.transactor.in_flight(), 0, "nothing is on its way");
        (trouble, site.changelog_end() - end)
    });
    let Cause::Refused(reason) = &trouble.cause else { panic!("{:?}", trouble.cause) };
    assert!(reason.contains("could not be read back") && reason.contains("`epoch`"), "{reason}");
    assert_eq!((trouble.task, end), (Some(0), 0));
}

/// Only the first of them was: the others went on behind what was lost.
#[test]
fn every_task_of_a_transaction_whose_changelog_has_fallen_back_is_refused() {
    let refused = alone(1, |process| {
        let site = Site::new(process);
        let mut tasks: Tasks<Sim> = (0..4).map(|id| (id, site.begun())).collect();
        tasks.values_mut().for_each(|task| task.changelog_offset = 9);
        // Of the third nothing is known; to the fourth nothing has happened.
        let troubles = fallback::told(&mut tasks, &[(0, 5), (1, 8), (1, 12), (3, 9)]);
        troubles.into_iter().map(|trouble| (trouble.task, trouble.cause.to_string())).collect::<Vec<_>>()
    });
    let of: Vec<_> = refused.iter().map(|(task, _)| *task).collect();
    assert_eq!(of, [Some(0), Some(1)], "{refused:?}");
    assert!(refused[0].1.contains("behind offset 5") && refused[1].1.contains("behind offset 8"), "{refused:?}");
}

/// One that is current waited until those that had to read their changelogs had done so.
#[test]
fn a_store_that_is_current_does_not_wait_for_others_loads() {
    for seed in 0..4 {
        let phases = alone(seed, move |process| {
            let site = Site::new(process);
            site.commit(1, &[entry(0, 1)]);
            site.leave_a_store();
            // As long as others have the memory for loads.
            let step = |mut task: Task<Sim>| {
                let slice = |task: &mut Task<Sim>| {
                    process.sleep(MS);
                    let stepped = restore::step(&site.context, &site.sim, task, &mut Batch::default(), false);
                    stepped.expect("nothing stands in the way of the restore")
                };
                // It is examined many times, and settled long before the last.
                (0..200).map(|_| slice(&mut task)).find(|slice| *slice == Slice::Ready)
            };
            let current = step(site.begun());
            // One that lacks something waits, and nothing is done to it.
            site.commit(2, &[entry(1, 2)]);
            let before = site.on_disk();
            let behind = step(site.begun());
            (current, behind, before == site.on_disk())
        });
        assert_eq!(phases, (Some(Slice::Ready), None, true), "seed {seed}");
    }
}

/// A lane that was out of its group without knowing wrote, aborted and restored up to the end of that, while another lane
/// of its process, which had settled before, waited for the store. Where the store stood beyond what that one knew of the
/// changelog, it was taken for one whose changelog had lost its tail, and the partition stood still.
#[test]
fn a_store_whose_former_holder_has_read_on_is_gone_on_with() {
    for seed in 0..16 {
        let (restored, expected) = alone(seed, move |process| {
            let site = Site::new(process);
            let last = site.commit(1, &[entry(0, 1)]);
            let mut former = site.settled();
            site.restore(&mut former);
            let mut task = site.begun();
            while !matches!(task.phase, Phase::Claiming { .. }) {
                site.step(&mut task);
            }
            assert_eq!(site.step(&mut task), Slice::Waiting, "the other one has the store");
            site.abort(2, 1);
            former.rewind();
            former.set_phase(Phase::Waiting { until: Duration::ZERO });
            site.restore(&mut former);
            drop(former);
            site.restore(&mut task);
            let expected = Restored {
                entries: BTreeMap::from([entry(0, 1)]),
                position: Some(last),
                named: Some(last),
                offsets: [site.changelog_end(); 2],
            };
            (Restored::of(&task), expected)
        });
        assert_eq!(restored, expected, "seed {seed}");
    }
}
