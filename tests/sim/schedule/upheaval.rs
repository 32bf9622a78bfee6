//! Faults of instances' disks, and what people do to groups and changelogs. What they do to inputs is in `uproot`.

use std::path::PathBuf;

use crate::disk::StoreCopy;

use crate::input;
use crate::kafka::{Committed, MS, Partition, SECOND, Time};
use crate::profile::{Profile, Upheaval};
use crate::random::Random;
use crate::stores::Stores;
use crate::world::{State, Wire};

use super::misfortunes::Misfortune;
use super::{Fault, Run};

/// A fault of an instance's disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Disk {
    /// The disk is full; each store accepts this many more writes.
    Full(u32),
    /// There is space again.
    Space,
    /// A store is damaged, which shows after this many reads.
    Damage(u32),
    /// The stores are copied.
    Copy,
    /// Copies of stores, perhaps another instance's, are put in place; the process dies.
    PutBack(usize),
    /// The folders of two stores are swapped; the process dies.
    Swap,
    /// The disk is lost with everything on it, and the process dies.
    Lose,
}

/// Copies of an instance's stores.
pub(super) type Copies = Vec<(PathBuf, StoreCopy)>;

/// How long all instances are down: longer than the group waits for members.
const DOWN: Time = 4 * SECOND;

/// Draws the disk faults, and the time of the upheaval.
pub(super) fn draw(profile: &Profile, random: &mut Random, all: &mut Vec<Misfortune>) {
    let some = |random: &mut Random| random.below(profile.instances as u64) as usize;
    for _ in 0..profile.disks {
        let (who, when) = (some(random), random.between(300 * MS, 6 * SECOND));
        let back = when + random.between(10 * MS, 2 * SECOND);
        let on = |at: Time, disk: Disk| (at, Fault::Disk(who, disk));
        let mut one = match random.below(8) {
            0..2 => {
                all.push(vec![on(when, Disk::Full(random.below(6) as u32)), on(back, Disk::Space)]);
                continue;
            }
            2..4 => {
                all.push(vec![on(when, Disk::Damage(random.below(12) as u32))]);
                continue;
            }
            4..6 => {
                let whose = if random.permille(800) { who } else { some(random) };
                vec![on(when, Disk::Copy), on(back, Disk::PutBack(whose))]
            }
            6 => vec![on(back, Disk::Swap)],
            _ => vec![on(back, Disk::Lose)],
        };
        one.push((back + random.below(SECOND), Fault::Start(who)));
        all.push(one);
    }
    let Some(upheaval) = profile.upheaval else { return };
    let when = random.between(SECOND, 3 * SECOND);
    if !upheaval.needs_rest() {
        all.push(vec![(when, Fault::Upheaval(upheaval))]);
        return;
    }
    // Other starts during that time are delayed.
    for (at, fault) in all.iter_mut().flatten() {
        if (when..when + DOWN).contains(at) && matches!(fault, Fault::Start(_)) {
            *at += DOWN;
        }
    }
    let mut one = vec![(when, Fault::Stop), (when + DOWN, Fault::Upheaval(upheaval))];
    one.extend((0..profile.instances).map(|who| (when + DOWN + random.below(SECOND), Fault::Start(who))));
    all.push(one);
}

impl Run<'_> {
    pub(super) fn inflict_on_disk(&mut self, who: usize, what: Disk) {
        if matches!(what, Disk::PutBack(_) | Disk::Swap | Disk::Lose) {
            self.kill(who);
        }
        let Stores::Simulated(disk) = &self.stores[who] else { return };
        let folders = disk.folders();
        let mut state = self.world.lock();
        match what {
            Disk::Full(writes) => {
                state.reach("a disk was full");
                disk.set_full(Some(writes));
            }
            Disk::Space => disk.set_full(None),
            Disk::Damage(reads) if !folders.is_empty() => {
                let folder = &folders[state.random.below(folders.len() as u64) as usize];
                if disk.damage(folder, reads) {
                    state.reach("a store was damaged");
                }
            }
            Disk::Copy => {
                self.copies[who] = folders.into_iter().map(|folder| (folder.clone(), disk.copy(&folder))).collect();
            }
            Disk::PutBack(whose) => {
                for (folder, copy) in &self.copies[whose] {
                    state.reach("an old copy of a store was put back");
                    disk.put_back(folder, copy.clone());
                }
            }
            Disk::Swap if folders.len() > 1 => {
                state.reach("the folders of two stores were swapped");
                let (first, second) = (disk.copy(&folders[0]), disk.copy(&folders[1]));
                disk.put_back(&folders[0], second);
                disk.put_back(&folders[1], first);
            }
            Disk::Lose => {
                state.reach("a disk was lost");
                folders.iter().for_each(|folder| disk.put_back(folder, StoreCopy::default()));
            }
            Disk::Damage(_) | Disk::Swap => {}
        }
    }

    /// Runs while no instance is up, unless [`Upheaval::needs_rest`] says otherwise: the group is empty, and only
    /// dead processes have open transactions.
    #[expect(clippy::too_many_lines, reason = "one arm for each fault")]
    pub(super) fn overturn(&mut self, upheaval: Upheaval) {
        self.history.before(upheaval, &self.world.lock().broker);
        if Upheaval::OF_INPUT.contains(&upheaval) {
            return self.uproot(upheaval);
        }
        let mut state = self.world.lock();
        let changelog = |number: i32| Partition::new(input::CHANGELOG, number);
        let partitions = 0..self.profile.partitions;
        let reached = match upheaval {
            Upheaval::GroupReset => {
                let mut reached = 0;
                for partition in partitions.map(|number| Partition::new(input::INPUT, number)) {
                    let Ok(Some(committed)) = state.broker.groups.committed(input::GROUP, &partition, false) else {
                        continue;
                    };
                    let offset = state.random.below(committed.offset as u64 + 1) as i64;
                    let reset = [(partition, Committed { offset, metadata: String::new() })];
                    let result = state.broker.commit_offsets(&input::GROUP.into(), ("", -1), &reset);
                    reached += u64::from(result.is_ok());
                }
                (reached > 0).then_some("the group was reset")
            }
            Upheaval::GroupDeleted => state.broker.groups.delete(input::GROUP).ok().map(|()| "the group was deleted"),
            Upheaval::ChangelogTruncated => {
                let mut removed = 0;
                for number in partitions {
                    let partition = changelog(number);
                    let upto = state.broker.topics.log(&partition).map_or(0, |log| log.stable_end());
                    let upto = state.random.below(upto as u64 + 1) as i64;
                    if let Some(log) = state.broker.topics.log_mut(&partition) {
                        log.delete_before(upto).expect("it is below the end");
                    }
                    if upto > 0 {
                        removed += upto;
                        self.history.lose(number);
                    }
                }
                (removed > 0).then_some("the changelog was truncated")
            }
            Upheaval::ChangelogTailLost | Upheaval::ChangelogTailLostAtWork => {
                let mut lost = 0;
                for number in partitions {
                    let State { broker, random, .. } = &mut *state;
                    let Some(log) = broker.topics.log(&changelog(number)) else { continue };
                    // Mostly near the end.
                    let seams = log.seams();
                    let cut = seams[seams.len() - 1 - random.below(seams.len().min(8) as u64) as usize];
                    if cut < log.end() && random.permille(700) {
                        lost += i64::from(self.history.lose_tail(broker, number, cut));
                        broker.topics.log_mut(&changelog(number)).expect("checked above").lose_tail(cut);
                    }
                }
                (lost > 0).then_some(match upheaval {
                    Upheaval::ChangelogTailLost => "the changelog lost its last records",
                    _ => "the changelog lost its last records while tasks were running",
                })
            }
            Upheaval::ChangelogRecreated => {
                let ends = |number: &i32| state.broker.topics.log(&changelog(*number)).map_or(0, |log| log.end());
                partitions.filter(|number| ends(number) > 0).for_each(|number| self.history.lose(number));
                let settings = state.broker.topics.get(input::CHANGELOG).map(|topic| topic.settings);
                settings.map(|settings| {
                    state.broker.delete_topic(input::CHANGELOG).expect("it exists");
                    let created = state.broker.topics.create(input::CHANGELOG, self.profile.partitions, settings);
                    created.expect("it was deleted");
                    "the changelog was recreated"
                })
            }
            Upheaval::ChangelogDeleted => {
                let ends = |number: &i32| state.broker.topics.log(&changelog(*number)).map_or(0, |log| log.end());
                partitions.filter(|number| ends(number) > 0).for_each(|number| self.history.lose(number));
                state.broker.delete_topic(input::CHANGELOG).ok().map(|()| "the changelog was deleted")
            }
            of_input => unreachable!("{of_input:?} is handled above"),
        };
        if let Some(situation) = reached {
            state.reach(situation);
        }
    }

    /// Nothing goes wrong any more, disks have space, and clocks are right. After an upheaval, or if offsets went
    /// back, each partition gets one more record: without any, nobody has to commit.
    pub(super) fn calm_down(&mut self) {
        for stores in &self.stores {
            if let Stores::Simulated(disk) = stores {
                disk.set_full(None);
            }
        }
        self.world.lock().wire = Wire::default();
        self.world.lock().database.troubles.calm_down();
        self.world.lock().provider.calm_down();
        self.world.lock().processes.iter_mut().for_each(|process| process.wall_offset_ms = 0);
        if self.profile.upheaval.is_some() || self.profile.goes_back || self.fell_back {
            self.feed_all();
        }
    }
}
