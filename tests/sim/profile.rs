//! What a seed is like: how large it is, and what goes wrong.

use crate::input;
use crate::random::Random;
use crate::world::Wire;

/// What is done to the cluster while all instances are down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Upheaval {
    /// The group's offsets are set back.
    GroupReset,
    /// The group is deleted.
    GroupDeleted,
    /// The changelog loses its first records (DeleteRecords), and instances may lose their stores.
    ChangelogTruncated,
    /// The changelog is deleted and created again.
    ChangelogRecreated,
}

impl Upheaval {
    /// Whether the state cannot be had back: to refuse is right then, and nothing else need come of it.
    pub fn is_loss(self) -> bool {
        matches!(self, Self::ChangelogTruncated | Self::ChangelogRecreated)
    }
}

/// Draws a profile.
pub type Draw = fn(&mut Random) -> Profile;

/// What a seed is like.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// What is read.
    pub input: input::Kind,
    pub partitions: i32,
    pub instances: usize,
    pub lanes: usize,
    pub records: u64,
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
    /// Something happens to the cluster while all instances are down.
    pub upheaval: Option<Upheaval>,
    /// Whether the input is written in transactions too, of which some are aborted.
    pub transactional: bool,
    pub wire: Wire,
}

impl Profile {
    /// Nothing goes wrong.
    pub fn calm(random: &mut Random) -> Self {
        Self {
            input: input::Kind::Versions,
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
            upheaval: None,
            transactional: false,
            wire: Wire::default(),
        }
    }

    /// Whether anything goes wrong.
    pub fn is_troubled(&self) -> bool {
        let Wire { request_lost, answer_lost, late, repeated, slow, .. } = self.wire;
        self.crashes + self.freezes + self.departures + self.moves + self.compactions + self.clocks + self.disks > 0
            || self.upheaval.is_some()
            || request_lost + answer_lost + late + repeated + slow > 0
    }

    /// Crashes, freezes and rebalances; the wire is fine.
    pub fn falling(random: &mut Random) -> Self {
        let (crashes, freezes, departures) = (random.below(4), random.below(4), random.below(3));
        Self { crashes, freezes, departures, ..Self::calm(random) }
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

    /// Groups and topics that are changed under it.
    pub fn upset(random: &mut Random) -> Self {
        let upheaval =
            [Upheaval::GroupReset, Upheaval::GroupDeleted, Upheaval::ChangelogTruncated, Upheaval::ChangelogRecreated]
                [random.below(4) as usize];
        Self { upheaval: Some(upheaval), ..Self::sick(random) }
    }

    /// What `odd` has, with messages that are forgotten soon. Clocks stay right: to one that is behind by more than a
    /// tenth of the retention every record is of the future.
    pub fn forgetful(random: &mut Random) -> Self {
        Self { input: input::Kind::Messages, clocks: 0, ..Self::odd(random) }
    }

    /// All that of `wild`, with versions that begin again with each epoch.
    pub fn epochal(random: &mut Random) -> Self {
        Self { input: input::Kind::Epochs, ..Self::wild(random) }
    }

    /// The profile of this name.
    pub fn named(name: &str) -> Option<Draw> {
        let named: [(&str, Draw); 9] = [
            ("calm", Self::calm),
            ("falling", Self::falling),
            ("wild", Self::wild),
            ("stormy", Self::stormy),
            ("odd", Self::odd),
            ("sick", Self::sick),
            ("upset", Self::upset),
            ("forgetful", Self::forgetful),
            ("epochal", Self::epochal),
        ];
        named.into_iter().find(|(known, _)| *known == name).map(|(_, draw)| draw)
    }

    /// A wire that is often down.
    pub fn stormy(random: &mut Random) -> Self {
        let mut upto = |most: u64| random.below(most);
        let wire =
            Wire { request_lost: upto(60), answer_lost: upto(60), late: upto(120), slow: upto(100), ..Wire::default() };
        Self { wire, ..Self::wild(random) }
    }

    /// Any of them.
    pub fn drawn(random: &mut Random) -> Self {
        match random.below(10) {
            0 => Self::calm(random),
            1..5 => Self::falling(random),
            _ => Self::wild(random),
        }
    }
}
