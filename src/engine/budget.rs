//! The budget: the only place where `memory` is divided.
//!
//! | share | for |
//! |---|---|
//! | 5/8 | the stores: blocks, memtables, and the buffers of loads; blocks are evicted for the others |
//! | 1/8 | records that members have fetched and lanes have not yet taken, over all lanes |
//! | 1/8 | records that restores have fetched and not yet taken, over all loads of all lanes; records that isolated tasks have fetched, and their transactions |
//! | 1/8 | open transactions: overlays, and records being sent, over all lanes |
//!
//! No other memory of a process grows with its state or its input: code, stacks, connections, the table of
//! partitions, one fetch response per broker and lane. The unpacked size of the batches in these responses has a bound
//! of its own.

use crate::cluster::Queues;
use crate::config::Commit;

use super::capacity::Capacity;
use super::limits::Limits;

/// How many tasks of a lane load at once.
const LOADS_MAX: u64 = Limits::DEFAULT.loads_max as u64;
/// How many isolated tasks of a lane are active at once.
const ISOLATED_MAX: u64 = Limits::DEFAULT.isolated_max as u64;
/// The parts of a lane's share for loads and isolated tasks: two for each of their readers, and one for an isolated
/// task's transaction.
const READ_PARTS: u64 = 2 * (LOADS_MAX + ISOLATED_MAX) + ISOLATED_MAX;
/// The number of shares that the memory is divided into.
const SHARES: u64 = 8;
/// The stores' shares.
const STORES_SHARES: u64 = 5;
/// Half of a transaction's share is for its records' bytes, the other half for the overhead of each record.
const TRANSACTION_PARTS: u64 = 2;

/// The division of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// The memory that all stores of the process share.
    pub stores_bytes: u64,
    /// The memory that the reading clients may hold.
    pub queues: Queues,
    /// The memory that a lane's open transaction may hold.
    lane_bytes: u64,
    /// The memory that an isolated task's transaction may hold.
    isolated_bytes: u64,
}

impl Budget {
    /// Divides `memory_bytes` among the stores and `lanes`, the number of all lanes of the process. The unpacked size
    /// of compressed batches is not included.
    pub fn new(memory_bytes: u64, unpacked_bytes: u64, lanes: usize) -> Self {
        let share = memory_bytes / SHARES;
        let lane_bytes = share / lanes.max(1) as u64;
        Self {
            stores_bytes: share * STORES_SHARES,
            queues: Queues { member_bytes: lane_bytes, reader_bytes: 2 * lane_bytes / READ_PARTS, unpacked_bytes },
            lane_bytes,
            isolated_bytes: lane_bytes / READ_PARTS,
        }
    }

    /// The bounds of a lane's transaction, as configured or lower if the memory does not suffice, and the room in an
    /// isolated task's transaction. `overhead_bytes` is the memory of a record besides its own bytes (see
    /// [`crate::cluster::Cluster::record_overhead_bytes`]).
    pub fn transaction_bounds(&self, commit: Commit, overhead_bytes: u64) -> (Commit, Capacity) {
        let capped = |max: usize, room: u64| usize::try_from(room).map_or(max, |room| max.min(room.max(1)));
        let bounds = |bytes: u64| {
            let part = bytes / TRANSACTION_PARTS;
            (capped(commit.records_max, part / overhead_bytes.max(1)), capped(commit.bytes_max, part))
        };
        let (records_max, bytes_max) = bounds(self.lane_bytes);
        let (records, bytes) = bounds(self.isolated_bytes);
        (Commit { records_max, bytes_max, ..commit }, Capacity::of(records, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT: Commit = Commit { interval_ms: 200, spacing_ms: 5, records_max: 100_000, bytes_max: 64 << 20 };
    const UNBOUNDED: Commit = Commit { records_max: usize::MAX, bytes_max: usize::MAX, ..COMMIT };

    #[test]
    fn shares_add_up_to_the_memory_and_no_more() {
        for memory in [64 << 20, 512 << 20, 1 << 30, 11 << 30_u64] {
            for lanes in [1, 2, 4, 64] {
                let budget = Budget::new(memory, 0, lanes);
                for overhead_bytes in [384, 1024] {
                    let (commit, room) = budget.transaction_bounds(UNBOUNDED, overhead_bytes);
                    let lane_bytes = budget.queues.member_bytes
                        + budget.queues.reader_bytes * (LOADS_MAX + ISOLATED_MAX)
                        + (room.records as u64 * overhead_bytes + room.bytes as u64) * ISOLATED_MAX
                        + commit.records_max as u64 * overhead_bytes
                        + commit.bytes_max as u64;
                    let all = budget.stores_bytes + lane_bytes * lanes as u64;
                    assert!(all <= memory, "{all} > {memory}");
                    assert!(all > memory / 10 * 9, "{all} of {memory} are given");
                }
            }
        }
    }

    #[test]
    fn configured_bounds_are_never_raised() {
        assert_eq!(Budget::new(64 << 30, 0, 2).transaction_bounds(COMMIT, 1024).0, COMMIT);
        let small = Budget::new(64 << 20, 0, 4);
        let bounds = |overhead_bytes| small.transaction_bounds(COMMIT, overhead_bytes).0;
        assert_eq!(bounds(1024), Commit { records_max: 1024, bytes_max: 1 << 20, ..COMMIT });
        assert_eq!(bounds(384), Commit { records_max: 2730, bytes_max: 1 << 20, ..COMMIT });
    }
}
