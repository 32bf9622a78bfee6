//! What goes wrong in a seed, and when: misfortunes, each complete in itself (an instance that crashes is started
//! again), so that each can be left out by its number.

use crate::database::Blow;
use crate::input;
use crate::kafka::{MS, SECOND, Time};
use crate::profile::{Profile, Release};
use crate::random::Random;

use super::{Fault, TROUBLE, upheaval};

/// Faults that happen together, or not at all.
pub(super) type Misfortune = Vec<(Time, Fault)>;

impl Fault {
    /// The instance concerned, if it is only one.
    fn instance(&self) -> Option<usize> {
        match self {
            Self::Crash(who)
            | Self::CrashInCommit(who, _)
            | Self::Freeze(who, _)
            | Self::Depart(who)
            | Self::Start(who) => Some(*who),
            Self::Replace(who) | Self::Return(who) => Some(*who),
            Self::Clock(who, _) | Self::Disk(who, _) | Self::Panic(who, _) => Some(*who),
            _ => None,
        }
    }

    /// Whether it can happen if only some of the instances exist.
    pub(super) fn concerns(&self, has: impl Fn(usize) -> bool) -> bool {
        self.instance().is_none_or(has)
    }
}

/// What all seeds of a profile have: instances start, at some time all is calm, and instances still down are started.
pub(super) fn frame(profile: &Profile, random: &mut Random) -> Misfortune {
    let mut faults: Misfortune =
        (0..profile.instances).map(|instance| (random.below(500 * MS), Fault::Start(instance))).collect();
    faults.push((if profile.is_troubled() { TROUBLE } else { SECOND }, Fault::Calm));
    let replaced = u64::from(profile.release.is_some());
    if profile.crashes + profile.departures + profile.disks + profile.panics + replaced > 0 {
        faults.extend((0..profile.instances).map(|instance| (TROUBLE + 4 * SECOND, Fault::Start(instance))));
    }
    faults
}

/// Draws everything that goes wrong.
#[expect(clippy::too_many_lines, reason = "one draw after the other")]
pub(super) fn draw(profile: &Profile, random: &mut Random) -> Vec<Misfortune> {
    let Profile { instances, crashes, freezes, departures, moves, compactions, clocks, partitions, .. } = *profile;
    let at = |random: &mut Random| random.between(300 * MS, TROUBLE - MS);
    let some = |random: &mut Random| random.below(instances as u64) as usize;
    let stops = profile.input.calls().is_some_and(|calls| calls.ends == input::Ends::Stops);
    let keeps_offsets = profile.upheaval.is_none() && !profile.goes_back && !stops;
    let mut all = Vec::new();
    for _ in 0..crashes {
        let (when, who) = (at(random), some(random));
        let back = when + random.below(3 * SECOND);
        // Drawn separately, so that other draws stay the same.
        let in_commit = random.clone().permille(150);
        let crash = if in_commit { Fault::CrashInCommit(who, back) } else { Fault::Crash(who) };
        all.push(vec![(when, crash), (back, Fault::Start(who))]);
    }
    for _ in 0..freezes {
        all.push(vec![(at(random), Fault::Freeze(some(random), random.between(50 * MS, 6 * SECOND)))]);
    }
    for _ in 0..departures {
        let (when, who) = (at(random), some(random));
        all.push(vec![(when, Fault::Depart(who)), (when + random.between(SECOND, 3 * SECOND), Fault::Start(who))]);
    }
    for _ in 0..moves {
        let length = random.between(20 * MS, 3 * SECOND);
        let fault = match random.below(3) {
            0 => Fault::TransactionsMove(length),
            // From a separate generator, so that other draws stay the same. After an upheaval the cause of old
            // offsets would be unclear, and a task that is refused would leave them as they are.
            1 if keeps_offsets && random.clone().permille(200) => Fault::GroupsFallBack(length),
            1 => Fault::GroupsMove(length),
            _ => {
                let partition = random.below(partitions as u64) as i32;
                // Of the changelog too; also drawn separately.
                let of = random.clone().below(2) as usize;
                Fault::Leaderless([input::OUTPUT, input::CHANGELOG][of], partition, length)
            }
        };
        all.push(vec![(at(random), fault)]);
    }
    for _ in 0..compactions {
        let (partition, rest) = (random.below(partitions as u64) as i32, random.below(8));
        all.push(vec![(at(random), Fault::Compact(partition, rest))]);
    }
    for _ in 0..clocks {
        const MINUTE: i64 = 60_000;
        let offset = [-20 * MINUTE, 20 * MINUTE, 2 * 24 * 60 * MINUTE][random.below(3) as usize];
        all.push(vec![(at(random), Fault::Clock(some(random), offset))]);
    }
    // From a separate generator, so that other draws stay the same.
    let mut separate = Random::new(random.clone().next());
    for _ in 0..profile.panics {
        let (when, who) = (at(&mut separate), some(&mut separate));
        let calls = separate.between(1, 200);
        all.push(vec![(when, Fault::Panic(who, calls))]);
    }
    if let Some(release) = profile.release {
        (0..instances).for_each(|who| replace(who, release, &mut separate, &mut all));
    }
    all.extend((0..profile.trims).map(|_| vec![(at(random), Fault::Trim)]));
    upheaval::draw(profile, random, &mut all);
    for _ in 0..profile.blows {
        all.push(vec![(at(random), Fault::Database(Blow::harmless(random)))]);
    }
    for _ in 0..profile.outages {
        all.push(vec![(at(random), Fault::Outage(random.between(10 * MS, 3 * SECOND)))]);
    }
    for _ in 0..profile.vanishings {
        let (partition, rest) = (random.below(partitions as u64) as i32, random.between(1, 8));
        all.push(vec![(at(random), Fault::Vanish(partition, rest))]);
    }
    // From a separate generator, so that other draws stay the same.
    let mut separate = Random::new(!random.clone().next());
    for _ in 0..profile.commands {
        all.push(vec![(at(&mut separate), Fault::Command(separate.next()))]);
        if separate.permille(100) {
            let length = separate.between(20 * MS, 3 * SECOND);
            all.push(vec![(at(&mut separate), Fault::Leaderless(input::CONTROL, 0, length))]);
        }
    }
    if profile.goes_back {
        all.push(vec![(random.between(SECOND, TROUBLE - SECOND), Fault::Database(Blow::losing(random)))]);
    }
    all
}

/// Replaces an instance by one of another release; one with other rules stays for a while only.
fn replace(who: usize, release: Release, random: &mut Random, all: &mut Vec<Misfortune>) {
    match release {
        Release::Retention(_) => {
            for _ in 0..[1, 1, 1, 2, 0][random.below(5) as usize] {
                let when = random.between(300 * MS, TROUBLE - MS);
                let back = when + random.between(SECOND / 2, 2 * SECOND);
                all.push(vec![(when, Fault::Replace(who)), (back, Fault::Start(who))]);
            }
        }
        Release::Rules if random.permille(700) => {
            let when = random.between(2 * SECOND, TROUBLE - 2 * SECOND);
            let there = when + random.below(SECOND);
            let back = there + random.between(SECOND, 3 * SECOND);
            let again = back + random.below(SECOND);
            let other = [(when, Fault::Replace(who)), (there, Fault::Start(who))];
            all.push(other.into_iter().chain([(back, Fault::Return(who)), (again, Fault::Start(who))]).collect());
        }
        Release::Rules => {}
    }
}

/// How long the administrator's changelog keeps tombstones. Less than some freezes last: an instance that wakes up in
/// the middle of a restore may have missed some, and keeps entries that have expired anyway.
pub(super) fn delete_retention(random: &mut Random) -> Time {
    random.between(SECOND, 3 * SECOND)
}
