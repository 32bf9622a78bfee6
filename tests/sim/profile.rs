//! What a seed is like: how large it is, and what goes wrong.

use ratchet::dedup::Bounds;
use ratchet::engine::limits::Limits;

use crate::input;
use crate::kafka::Protocol;
use crate::random::Random;
use crate::world::Wire;

/// What people do to the cluster. Each says what has to come of it (docs/guarantees.md, "Faults").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Upheaval {
    /// The group's offsets are set back. Reading starts there; what was processed before is a duplicate.
    GroupReset,
    /// The group's offsets are set to the input's end. Reading starts there: what was not read is never forwarded,
    /// all else as ever.
    GroupLatest,
    /// The group is deleted. The position record says where to go on, never `start`.
    GroupDeleted,
    /// The changelog loses its first records (DeleteRecords), and instances may lose their stores. A store that holds
    /// them goes on; one that would have to be rebuilt is refused.
    ChangelogTruncated,
    /// The changelog is deleted and created again. Refused.
    ChangelogRecreated,
    /// The changelog is deleted. Refused at each start, and not created anew, where anything was ever committed.
    ChangelogDeleted,
    /// The changelog loses its last records, as where a replica that lacked them becomes the leader. Refused where a
    /// transaction that was committed is among them: nothing is committed behind the gap, and no store is touched.
    ChangelogTailLost,
    /// The same while tasks are at work.
    ChangelogTailLostAtWork,
    /// The input is deleted and created again while nobody reads. Refused: nothing of the new one comes out, where
    /// anything of the former was ever processed.
    InputRecreated,
    /// The input loses records that were not read (DeleteRecords, retention). Refused, where they are missed: never
    /// is anything skipped silently.
    InputLost,
    /// The input is given more partitions while it is read. All tasks are refused, on whatever instance; who starts
    /// afterwards refuses to.
    InputGrown,
}

impl Upheaval {
    /// Those of the group and of the changelog.
    pub const OF_STATE: [Self; 7] = [
        Self::GroupReset,
        Self::GroupDeleted,
        Self::ChangelogTruncated,
        Self::ChangelogRecreated,
        Self::ChangelogDeleted,
        Self::ChangelogTailLost,
        Self::ChangelogTailLostAtWork,
    ];
    /// Those of what is read.
    pub const OF_INPUT: [Self; 4] = [Self::GroupLatest, Self::InputRecreated, Self::InputLost, Self::InputGrown];

    /// Whether something cannot be had back: to refuse is right then, and nothing else need come of it.
    pub fn is_loss(self) -> bool {
        match self {
            Self::GroupReset | Self::GroupLatest | Self::GroupDeleted => false,
            Self::ChangelogTruncated | Self::ChangelogRecreated | Self::ChangelogDeleted => true,
            Self::ChangelogTailLost | Self::ChangelogTailLostAtWork => true,
            Self::InputRecreated | Self::InputLost | Self::InputGrown => true,
        }
    }

    /// Whether all instances are down meanwhile.
    pub fn needs_rest(self) -> bool {
        !matches!(self, Self::InputGrown | Self::ChangelogTailLostAtWork)
    }
}

/// What a seed is like.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// What is read.
    pub input: input::Kind,
    /// Whether some records have headers, no key, or a value that cannot be decided on or not be sent.
    pub odd_records: bool,
    /// Whether there is always more to read: few records come at a time, and take their time, so that transactions stand
    /// open for long.
    pub laden: bool,
    pub partitions: i32,
    pub instances: usize,
    pub lanes: usize,
    pub records: u64,
    /// How many records a transaction has at the most, about.
    pub commit_records: usize,
    pub crashes: u64,
    pub freezes: u64,
    pub departures: u64,
    pub moves: u64,
    /// The cleaner passes over a partition of the changelog.
    pub compactions: u64,
    /// An instance's wall clock is set.
    pub clocks: u64,
    /// A store's disk has trouble.
    pub disks: u64,
    /// The engine panics somewhere, once.
    pub panics: u64,
    /// The engine panics whenever it forwards a certain record.
    pub poison: bool,
    /// The input loses records that were read, and only those (retention, DeleteRecords). Nothing may come of it.
    pub trims: u64,
    /// A later release of the topology; instances are replaced one by one, perhaps back again, and not all of them.
    pub release: Option<Release>,
    /// Something that people do to the cluster.
    pub upheaval: Option<Upheaval>,
    /// Whether reading begins at the input's end (`start: latest`), and the input is idle at first.
    pub latest: bool,
    /// Whether the input is written in transactions too, of which some are aborted.
    pub transactional: bool,
    /// Whether the changelog is an administrator's own, from which the cleaner removes tombstones soon.
    pub tombstones_go: bool,
    /// How much lanes do at once, and how much of a past is kept.
    pub limits: Limits,
    /// Which transaction protocol producers speak: librdkafka the first, other clients the second.
    pub protocol: Protocol,
    pub wire: Wire,
}

/// What another release of the topology has that is other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// The retention, milliseconds.
    Retention(i64),
    /// The rules: it knows no versions. Its instances are refused where the others have begun, and are there for a while.
    Rules,
}

/// Bounds of the lanes' work that are met; those of what is kept are as ever.
fn limits(random: &mut Random) -> Limits {
    let mut one_of = |all: [usize; 4]| all[random.below(4) as usize];
    let usual = Limits::USUAL;
    let poll_records_max = one_of([1, 5, usual.poll_records_max, usual.poll_records_max]);
    let loads_max = one_of([1, 2, usual.loads_max, usual.loads_max]);
    Limits {
        poll_records_max,
        loads_max,
        sweep_keys_max: one_of([1, 2, 5, usual.sweep_keys_max]),
        isolated_max: loads_max,
        isolated_records_max: one_of([1, 2, 5, usual.isolated_records_max]),
        lane_panics_max: one_of([1, 2, 5, 5]) as u32,
        // No simulated broker answers from before what it knows: nothing is right only because it was asked again.
        doubts_max: one_of([0, 0, 1, usual.doubts_max as usize]) as u32,
        kept: usual.kept,
    }
}

/// Draws a profile.
pub type Draw = fn(&mut Random) -> Profile;

/// All profiles by the names that people call them by.
pub const PROFILES: [(&str, Draw); 13] = [
    ("calm", Profile::calm),
    ("falling", Profile::falling),
    ("wild", Profile::wild),
    ("stormy", Profile::stormy),
    ("odd", Profile::odd),
    ("sick", Profile::sick),
    ("upset", Profile::upset),
    ("forgetful", Profile::forgetful),
    ("epochal", Profile::epochal),
    ("changing", Profile::changing),
    ("uprooted", Profile::uprooted),
    ("swept", Profile::swept),
    ("late", Profile::late),
];

impl Profile {
    /// Nothing goes wrong.
    pub fn calm(random: &mut Random) -> Self {
        // Drawn apart: all else is as it would be.
        let mut apart = Random::new(!random.clone().next());
        let commit_records = [1, 7, 100, 100][apart.below(4) as usize];
        Self {
            commit_records,
            limits: limits(&mut apart),
            input: input::Kind::Versions,
            odd_records: true,
            laden: false,
            partitions: random.between(2, 4) as i32,
            instances: 2,
            lanes: random.between(1, 2) as usize,
            records: random.between(50, 300),
            crashes: 0,
            freezes: 0,
            departures: 0,
            moves: 0,
            compactions: 0,
            clocks: 0,
            disks: 0,
            panics: 0,
            poison: false,
            trims: 0,
            release: None,
            upheaval: None,
            latest: false,
            transactional: false,
            tombstones_go: false,
            protocol: Protocol::V1,
            wire: Wire::default(),
        }
    }

    /// Whether anything goes wrong.
    pub fn is_troubled(&self) -> bool {
        let Wire { request_lost, answer_lost, late, slow, silenced } = self.wire;
        self.crashes + self.freezes + self.departures + self.moves + self.compactions + self.clocks + self.disks > 0
            || self.upheaval.is_some()
            || self.trims > 0
            || self.panics > 0
            || self.release.is_some()
            || self.poison
            || request_lost + answer_lost + late + slow + silenced > 0
    }

    /// Crashes, freezes and rebalances; the wire is fine.
    pub fn falling(random: &mut Random) -> Self {
        let (crashes, freezes, departures) = (random.below(4), random.below(4), random.below(3));
        let protocol = if random.permille(300) { Protocol::V2 } else { Protocol::V1 };
        // Drawn apart: all else is as it would be.
        let mut apart = Random::new(random.clone().next());
        let laden = apart.permille(400);
        let panics = if apart.permille(500) { apart.below(3) } else { 0 };
        // Alone, so that a task stops for the one record and for nothing else.
        let poison = panics == 0 && apart.permille(60);
        Self { laden, crashes, freezes, departures, panics, poison, protocol, ..Self::calm(random) }
    }

    /// All that and the wire.
    pub fn wild(random: &mut Random) -> Self {
        let moves = random.below(4);
        let mut upto = |most: u64| if random.permille(500) { random.below(most) } else { 0 };
        let wire =
            Wire { request_lost: upto(20), answer_lost: upto(20), late: upto(10), slow: upto(30), ..Wire::default() };
        Self { moves, wire, ..Self::falling(random) }
    }

    /// All that, with the cleaner at work, clocks that jump, and transactions in the input.
    pub fn odd(random: &mut Random) -> Self {
        let (compactions, clocks, transactional) = (random.below(12), random.below(3), random.permille(700));
        Self { compactions, clocks, transactional, ..Self::wild(random) }
    }

    /// Disks that are full, damaged, put back, swapped or lost, with all that of `wild`.
    pub fn sick(random: &mut Random) -> Self {
        let disks = random.between(1, 8);
        Self { disks, ..Self::wild(random) }
    }

    /// Groups and changelogs that are changed under it.
    pub fn upset(random: &mut Random) -> Self {
        let upheaval = Upheaval::OF_STATE[random.below(Upheaval::OF_STATE.len() as u64) as usize];
        Self { upheaval: Some(upheaval), poison: false, ..Self::sick(random) }
    }

    /// Inputs that are changed under it: trimmed, lost, grown, recreated, or left unread on purpose.
    pub fn uprooted(random: &mut Random) -> Self {
        let trims = random.below(5);
        let upheaval = random.permille(800).then(|| Upheaval::OF_INPUT[random.below(4) as usize]);
        let transactional = random.permille(500);
        // Drawn apart: all else is as it would be. One that skips records leaves a second range.
        let is_bounded = Random::new(random.clone().next()).permille(400) && upheaval == Some(Upheaval::GroupLatest);
        let drawn = Self { trims, upheaval, transactional, poison: false, ..Self::wild(random) };
        let ranges_max = if is_bounded { 1 } else { Bounds::USUAL.ranges_max };
        drawn.keeping(Bounds { ranges_max, ..Bounds::USUAL })
    }

    /// What `odd` has, with messages that are forgotten soon. To a clock that is behind by more than a tenth of the retention
    /// every record is of the future.
    pub fn forgetful(random: &mut Random) -> Self {
        // Drawn apart: all else is as it would be.
        let mut apart = Random::new(random.clone().next());
        let other = [200, 700, 2_000, 60_000][apart.below(4) as usize];
        let release = apart.permille(500).then_some(Release::Retention(other));
        let drawn = Self::odd(random);
        // An owner that remembers for longer may drop, and so pass, the record at which another one has stopped.
        let poison = drawn.poison && release.is_none();
        Self { input: input::Kind::Messages, release, poison, ..drawn }
    }

    /// All that of `wild`, with versions that begin again with each epoch.
    pub fn epochal(random: &mut Random) -> Self {
        // Drawn apart: all else is as it would be.
        let mut apart = Random::new(random.clone().next());
        let drawn = Self { input: input::Kind::Epochs, ..Self::wild(random) };
        match apart.below(4) {
            0 => drawn.keeping(Bounds { scopes_max: apart.between(1, 4) as usize, ..Bounds::USUAL }),
            1 => drawn.keeping(Bounds { segments_max: apart.between(1, 6) as usize, ..Bounds::USUAL }),
            _ => drawn,
        }
    }

    /// The same with other bounds of what is kept. A task that meets one stops, which is no mistake then: nothing else
    /// stops any.
    fn keeping(self, kept: Bounds) -> Self {
        let poison = self.poison && kept == Bounds::USUAL;
        Self { limits: Limits { kept, ..self.limits }, poison, ..self }
    }

    /// All that of `odd`, with changes of a table's rows.
    pub fn changing(random: &mut Random) -> Self {
        Self { input: input::Kind::Changes, ..Self::odd(random) }
    }

    /// What is forgotten soon is swept, and compacted away for good, on disks that go back to what they were: a store
    /// that may have missed tombstones is rebuilt.
    pub fn swept(random: &mut Random) -> Self {
        let compactions = random.between(6, 30);
        Self { input: input::Kind::Messages, tombstones_go: true, compactions, ..Self::sick(random) }
    }

    /// Inputs that are read from their end on, and groups that are lost before anything has come.
    pub fn late(random: &mut Random) -> Self {
        let upheaval = random.permille(800).then_some(Upheaval::GroupDeleted);
        Self { latest: true, upheaval, ..Self::wild(random) }
    }

    /// The profile of this name.
    pub fn named(name: &str) -> Option<Draw> {
        PROFILES.into_iter().find(|(known, _)| *known == name).map(|(_, draw)| draw)
    }

    /// A wire that is often down, to one process also for seconds.
    pub fn stormy(random: &mut Random) -> Self {
        // Drawn apart: all else is as it would be.
        let release = Random::new(random.clone().next()).permille(400).then_some(Release::Rules);
        let mut upto = |most: u64| random.below(most);
        let wire =
            Wire { request_lost: upto(60), answer_lost: upto(60), late: upto(120), slow: upto(100), silenced: upto(8) };
        Self { wire, release, ..Self::wild(random) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(draw: Draw) -> impl Iterator<Item = Profile> {
        (0..300).map(move |seed| draw(&mut Random::new(seed)))
    }

    #[test]
    fn all_but_the_calm_speak_both_protocols() {
        for (name, draw) in PROFILES.into_iter().filter(|(name, _)| *name != "calm") {
            for protocol in [Protocol::V1, Protocol::V2] {
                assert!(drawn(draw).any(|profile| profile.protocol == protocol), "{name} {protocol:?}");
            }
        }
    }

    #[test]
    fn every_upheaval_is_drawn() {
        for upheaval in Upheaval::OF_STATE.into_iter().chain(Upheaval::OF_INPUT) {
            let draws = [Profile::upset as Draw, Profile::uprooted as Draw];
            let found = draws.into_iter().flat_map(drawn).any(|profile| profile.upheaval == Some(upheaval));
            assert!(found, "{upheaval:?}");
        }
    }

    #[test]
    fn a_calm_profile_has_no_trouble() {
        assert!(drawn(Profile::calm).all(|profile| !profile.is_troubled()));
        assert!(drawn(Profile::swept).all(|profile| profile.is_troubled() && profile.clocks == 0));
    }
}
