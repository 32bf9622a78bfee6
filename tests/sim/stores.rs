//! The storage of an instance's stores: a simulated disk in most seeds, RocksDB in some.

use std::path::PathBuf;
use std::sync::Arc;

use crate::disk::{Loads, Memtables, SimulatedDisk};
use ratchet::state::{Memory, StateSlot};
use tempfile::TempDir;

use crate::lies::LyingDisk;
use crate::random::Random;
use crate::world::State;

/// One seed in this many has real stores.
const REAL_EVERY: u64 = 32;
/// The memory that an instance's real stores share: far more than a few records take.
const MEMORY_BYTES: u64 = 64 << 20;

/// An instance's disk. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub enum Stores {
    /// Works without builder threads: no seed waits for another's, nor for a thread that the machine delays, since
    /// simulated time does not depend on this machine.
    Real(Arc<TempDir>, Memory),
    Simulated(SimulatedDisk),
}

/// Whether a seed's stores are in RocksDB.
pub fn are_real(seed: u64) -> bool {
    seed.is_multiple_of(REAL_EVERY)
}

impl Stores {
    /// An empty disk.
    pub fn of(seed: u64, random: &mut Random) -> Self {
        let loads = Loads {
            file_bytes_min: [0, 1 << 10, usize::MAX][random.below(3) as usize],
            one_read: random.permille(500),
            // From a separate generator, so that other draws stay the same.
            buffers_max: [0, 1, 2][Random::new(!seed).below(3) as usize],
        };
        if are_real(seed) {
            // In memory if possible: the machine itself does not crash here.
            let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
            Self::Real(Arc::new(folder.expect("a temporary folder")), Memory::without_builders(MEMORY_BYTES))
        } else {
            // From separate generators, so that other draws stay the same.
            let mut others = Random::new(seed.rotate_left(32));
            let bytes = [0, 1 << 10, 8 << 10, usize::MAX][others.below(4) as usize];
            let records = [20, 200, usize::MAX][others.below(3) as usize];
            Self::Simulated(SimulatedDisk::new(loads, Memtables { bytes, records }))
        }
    }

    pub fn state_slot(&self) -> StateSlot {
        match self {
            Self::Real(folder, _) => StateSlot::lock(folder.path()).expect("the folder is this seed's own"),
            Self::Simulated(disk) => disk.state_slot(),
        }
    }

    /// The folder of the stores, of the one process that uses the disk.
    pub fn slot(&self) -> PathBuf {
        match self {
            Self::Real(folder, _) => folder.path().join("slot-0"),
            Self::Simulated(disk) => disk.state_slot().path().to_owned(),
        }
    }

    pub fn memory(&self) -> Memory {
        match self {
            Self::Real(_, memory) => memory.clone(),
            Self::Simulated(disk) => Memory::with_disk(Arc::new(LyingDisk(Arc::new(disk.clone())))),
        }
    }

    /// How often a load had to wait for the buffer of another.
    pub fn turned_away(&self) -> u64 {
        match self {
            Self::Real(..) => 0,
            Self::Simulated(disk) => disk.turned_away(),
        }
    }

    /// The process dies: its last writes may be lost. Real stores are closed as the process is taken down, which
    /// writes everything.
    pub fn crash(&self, state: &mut State) {
        let Self::Simulated(disk) = self else { return };
        let mut lost = 0;
        disk.crash(|batches| {
            let kept = match state.random.below(4) {
                0 => 0,
                1 => batches,
                _ => state.random.below(batches as u64 + 1) as usize,
            };
            lost += batches - kept;
            kept
        });
        if lost > 0 {
            state.reach("a store lost commits in a crash");
        }
    }
}
