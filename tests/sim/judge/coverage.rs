//! The situations that runs mean to reach, by name. A big run fails where one was never reached; every run prints how
//! often each was.
//!
//! Most are counted where they come about (`State::reach`, called by `world`, `schedule`, `client` and `stores`), some
//! by the judge out of logs and stores, some by what the engine says (`heard`).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::kafka::{Code, Committed, Partition, State as Transaction, Target};
use crate::world::State;

/// From so many seeds of a kind on, all that the kind has to reach is asked for.
pub const BIG: u64 = 5_000;
/// The same of seeds of all kinds together: the rarest situation comes some thirty times in as many.
pub const BIG_OF_ALL: u64 = 10_000;

pub const KILLED_BEFORE_STORE: &str = "killed between a commit and its store write";
pub const KILLED_RESTORING: &str = "killed during a restore";
pub const FENCED_RESTORING: &str = "a producer was fenced during a restore";
pub const REBALANCED_RESTORING: &str = "a rebalance came during a restore";
pub const REVOKED_OPEN: &str = "partitions were revoked with a transaction open";
pub const LOST_OPEN: &str = "partitions were lost with a transaction open";
pub const UNKNOWN_COMMIT: &str = "an unknown outcome was a commit";
pub const UNKNOWN_ABORT: &str = "an unknown outcome was an abort";
pub const SECOND_ZOMBIE: &str = "a second zombie's transaction was refused";
pub const LATE_OFFSETS: &str = "offsets of a transaction came late";
pub const REPEATED: &str = "late requests took committed offsets back to a former transaction's";
pub const FELL_BACK: &str = "a coordinator came back with old offsets, and showed them";
pub const MOVED_IN_COMMIT: &str = "a coordinator moved in a commit";
pub const TIMED_OUT: &str = "a transaction timed out";
pub const MARKER_PENDING: &str = "a takeover met markers that were not written yet";
pub const CLAIM_FAILED: &str = "a claim was aborted";
pub const RELEASE_FAILED: &str = "a release was aborted";
pub const SWEEP_ABORTED: &str = "a sweeper's tombstone was aborted";
pub const STORE_AHEAD: &str = "a store was ahead of its position";
pub const EPOCH_CHANGED: &str = "a transaction knew more than one epoch";
pub const REFUSED: &str = "a task was refused";
pub const FULL_AT_COMMIT: &str = "a disk was full at a commit";
pub const DAMAGE_MET: &str = "a damaged store was met";
pub const TWO_RELEASES: &str = "a partition was taken over by another release";
pub const OTHER_RULES_REFUSED: &str = "an instance with other rules was refused at its start";
pub const TAIL_MISSED: &str = "a changelog that had lost its last records was met";
pub const TAIL_REGROWN: &str = "a changelog that had lost its last records, and had grown again, was met";
pub const RANGES_MET: &str = "a task stopped for too many ranges of offsets";
pub const SCOPES_MET: &str = "a task stopped for too many scopes of versions";
pub const SEGMENTS_MET: &str = "a task stopped for too many turns of scopes";
pub const TURNED_AWAY: &str = "a load waited for another's buffer";
pub const REBUILT: &str = "a store that could not be built upon was rebuilt";
pub const ISOLATED: &str = "a task whose output failed went on alone";
pub const RESET_MET: &str = "a reset group was met";
pub const DELETED_MET: &str = "a deleted group was met";
pub const LOSS_REFUSED: &str = "what could not be had back was not gone on from";
pub const TASK_PANICKED: &str = "a task panicked and was made anew";
pub const LANE_PANICKED: &str = "a lane panicked and was made anew";
pub const LANE_GIVEN_UP: &str = "a lane was given up that had panicked too often";
pub const WATCH_PANICKED: &str = "the watch panicked and began anew";
pub const POISON_STOPPED: &str = "a record that panics stopped its task, and no other";
pub const CLOCK_DOUBTED: &str = "a task waited until its host's clock was right";
pub const WIPED: &str = "all stores were wiped and restored";

/// A situation.
pub struct Situation {
    pub name: &'static str,
    /// How it is recognised.
    pub how: &'static str,
    /// The profile whose seeds have to reach it.
    pub by: &'static str,
}

const fn of(by: &'static str, name: &'static str, how: &'static str) -> Situation {
    Situation { name, how, by }
}

/// All of them.
pub const SITUATIONS: &[Situation] = &[
    of("falling", KILLED_BEFORE_STORE, "a process is killed that asked for a commit which was decided"),
    of("falling", KILLED_RESTORING, "a process is killed that reads a changelog"),
    of(
        "falling",
        "killed while a transaction was open",
        "the coordinator has one open for an id of the killed process",
    ),
    of("falling", "killed while a commit's markers were being written", "the coordinator has one in PrepareCommit"),
    of("falling", "an instance was frozen", "the schedule does it"),
    of("falling", "an owner was fenced by its successor", "a settling task initialises the id that the text names"),
    of("falling", "a producer was fenced", "PRODUCER_FENCED or INVALID_PRODUCER_EPOCH is answered"),
    of("falling", "a stale member's transaction was refused", "TxnOffsetCommit is answered by a stale generation"),
    of("falling", SECOND_ZOMBIE, "the same, and it was another process's before"),
    of("falling", "partitions were revoked", "a member is told so"),
    of("falling", REVOKED_OPEN, "the same while an id of the process has a transaction open"),
    of("falling", "partitions were lost", "a member's session has ended, or it was told so"),
    of("falling", LOST_OPEN, "the same while an id of the process has a transaction open"),
    of("falling", "a takeover met an open transaction on the changelog", "its last stable offset is below the end"),
    of("falling", "a takeover met pending offsets", "the stable fetch is answered UNSTABLE_OFFSET_COMMIT"),
    of("falling", MARKER_PENDING, "the same while a decided transaction has its marker there to be written"),
    of("falling", REBALANCED_RESTORING, "a member is told of partitions while its process reads a changelog"),
    of("falling", "a crash took commits back from a store", "the simulated disk falls back"),
    of("falling", WIPED, "the schedule does it when all is drained"),
    of("falling", TASK_PANICKED, "the engine says so"),
    of("falling", LANE_PANICKED, "the engine says so"),
    of("falling", LANE_GIVEN_UP, "the engine says so"),
    of("falling", WATCH_PANICKED, "the engine says so"),
    of("falling", POISON_STOPPED, "the judge finds the group before it, and all other partitions drained"),
    of("wild", FENCED_RESTORING, "a producer is fenced while its process reads a changelog"),
    of("wild", TIMED_OUT, "a scan of the coordinator's has ended one"),
    of("wild", ISOLATED, "the engine says so"),
    of("wild", MOVED_IN_COMMIT, "a request of a commit is answered NOT_COORDINATOR"),
    of("wild", FELL_BACK, "the judge sees a lesser offset than before, and the schedule did it"),
    of("wild", "a partition had no leader", "NOT_LEADER_OR_FOLLOWER is answered"),
    of("wild", "a record without a value was met", "the judge's model meets one"),
    of("wild", "a record that cannot be read was met", "the judge's model sets one aside"),
    of("wild", "a record with headers was forwarded", "the judge's model forwards one"),
    of("wild", "a record that the output refuses was set aside", "the judge's model does it"),
    of("wild", STORE_AHEAD, "a store in a restore holds what was committed behind its position"),
    of("changing", "a change from before its table's truncate was dropped", "the judge's model drops one"),
    of("changing", "a snapshot's read lost to a change", "the judge's model drops one"),
    of("changing", "a tombstone without its delete was dropped", "the judge's model drops one"),
    of("changing", "a drop was explained", "the judge finds it in the audit topic"),
    of("changing", "a record that was processed before was explained", "the judge finds it in the audit topic"),
    of("stormy", "the end of a transaction was decided, and the answer lost", "the wire does it"),
    of("stormy", "the end of a transaction did not arrive, or not yet", "the wire does it"),
    of("stormy", "the end of a transaction came late", "EndTxn arrives after its connection broke"),
    of("stormy", LATE_OFFSETS, "TxnOffsetCommit arrives after its connection broke"),
    of("stormy", "the end of a transaction was decided, and its connection fell silent", "the wire does it"),
    of("stormy", "a commit's outcome stayed unknown", "the producer's call ends without an answer"),
    of("stormy", UNKNOWN_COMMIT, "the same, and the coordinator has decided so in the end"),
    of("stormy", UNKNOWN_ABORT, "the same, and the coordinator has decided so in the end, or never"),
    of("stormy", CLAIM_FAILED, "a commit fails that carries offsets only, naming an owner"),
    of("stormy", RELEASE_FAILED, "a commit fails that carries offsets only, naming nobody"),
    of("sick", "a disk was full", "the schedule does it"),
    of("sick", FULL_AT_COMMIT, "the engine says so between a commit and whatever it waits for next"),
    of("sick", "a store was damaged", "the schedule does it"),
    of("sick", DAMAGE_MET, "the engine says so"),
    of("sick", REBUILT, "the engine says so"),
    of("sick", "an old copy of a store was put back", "the schedule does it"),
    of("sick", "the folders of two stores were swapped", "the schedule does it"),
    of("sick", "a disk was lost", "the schedule does it"),
    of("upset", "the group was reset", "the schedule does it"),
    of("upset", RESET_MET, "the engine says so"),
    of("upset", "the group was deleted", "the schedule does it"),
    of("upset", DELETED_MET, "the engine says so"),
    of("upset", "the changelog was truncated", "the schedule does it"),
    of("upset", "the changelog was recreated", "the schedule does it"),
    of("upset", "the changelog was deleted", "the schedule does it"),
    of("upset", "the changelog lost its last records", "the schedule does it"),
    of("upset", "the changelog lost its last records while tasks were at work", "the schedule does it"),
    of("upset", TAIL_MISSED, "the engine says so"),
    of("upset", TAIL_REGROWN, "the engine says so"),
    of("upset", REFUSED, "the engine says so"),
    of("upset", LOSS_REFUSED, "not everything is read after such a loss"),
    of("uprooted", "the input lost records that were read", "the schedule does it"),
    of("uprooted", "the input lost records that were not read", "the schedule does it"),
    of("uprooted", "the input was recreated", "the schedule does it"),
    of("uprooted", "the input was given more partitions", "the schedule does it"),
    of("uprooted", "the group was set to the input's end, and skipped records", "the schedule does it"),
    of("odd", "a wall clock was set", "the schedule does it"),
    of("odd", "a record of the far future was set aside", "the judge's model does it"),
    of("forgetful", CLOCK_DOUBTED, "the engine says so"),
    of("forgetful", "an instance was replaced by one of another release", "the schedule does it"),
    of("forgetful", TWO_RELEASES, "position records of one partition name owners of both"),
    of("stormy", OTHER_RULES_REFUSED, "its preflight says so"),
    of("odd", "a transaction of the input was aborted", "the schedule does it"),
    of("odd", "the cleaner removed records of the changelog", "a pass finds some"),
    of("swept", "the cleaner removed tombstones of the changelog", "a pass finds some"),
    of("forgetful", SWEEP_ABORTED, "an aborted record of the changelog has no value"),
    of("uprooted", RANGES_MET, "the engine says so"),
    of("epochal", SCOPES_MET, "the engine says so"),
    of("epochal", SEGMENTS_MET, "the engine says so"),
    of("falling", TURNED_AWAY, "the simulated disk counts it"),
    of("epochal", EPOCH_CHANGED, "a position record has several scopes"),
];

/// What seeds of a kind had to reach and have not.
pub fn missing(kind: &str, reached: &BTreeMap<&'static str, u64>) -> Vec<&'static str> {
    let wanted = SITUATIONS.iter().filter(|situation| situation.by == kind);
    wanted.map(|situation| situation.name).filter(|name| !reached.contains_key(name)).collect()
}

/// Every situation of the list with its count, and what was counted beside.
pub fn report(reached: &BTreeMap<&'static str, u64>) -> Vec<String> {
    let line = |name: &str, how: &str| {
        let times = reached.get(name).copied().unwrap_or_default();
        if how.is_empty() { format!("{times:>8} times {name}") } else { format!("{times:>8} times {name}: {how}") }
    };
    let listed = SITUATIONS.iter().map(|situation| line(situation.name, situation.how));
    let is_listed = |name: &str| SITUATIONS.iter().any(|situation| situation.name == name);
    let beside = reached.keys().filter(|name| !is_listed(name)).map(|name| line(name, ""));
    listed.chain(beside).collect()
}

/// Every situation of the list with its count, as a table.
pub fn table(reached: &BTreeMap<&'static str, u64>) -> String {
    let row = |Situation { name, how, by }: &Situation| {
        format!("| {name} | {how} | `{by}` | {} |\n", reached.get(name).copied().unwrap_or_default())
    };
    let rows: String = SITUATIONS.iter().map(row).collect();
    format!("| situation | how it is recognised | meant for | times |\n|---|---|---|---:|\n{rows}")
}

/// What a world remembers so that situations can be told.
#[derive(Default)]
pub struct Memory {
    /// Which process has opened a producer of each transactional id.
    owners: BTreeMap<Arc<str>, usize>,
    /// How many changelogs each process reads.
    readers: BTreeMap<usize, u64>,
    /// How many commits of each process were decided and are not answered yet.
    decided: BTreeMap<usize, u64>,
    /// Processes whose transactions were refused for a stale membership.
    zombies: Vec<usize>,
    /// The transactions whose commits' outcome stayed unknown: their ids and numbers.
    unknown: Vec<(Arc<str>, usize)>,
}

impl Memory {
    pub fn opened(&mut self, id: &Arc<str>, process: usize) {
        self.owners.insert(id.clone(), process);
    }

    /// The transactional ids whose producers were opened by processes of which `is_one` says so.
    pub fn owners(&self, is_one: impl Fn(usize) -> bool) -> impl Iterator<Item = &Arc<str>> {
        self.owners.iter().filter(move |(_, process)| is_one(**process)).map(|(id, _)| id)
    }

    pub fn reads(&mut self, process: usize) {
        *self.readers.entry(process).or_default() += 1;
    }

    pub fn reads_no_more(&mut self, process: usize) {
        if let Some(readers) = self.readers.get_mut(&process) {
            *readers = readers.saturating_sub(1);
        }
    }

    /// Whether a process reads a changelog.
    pub fn is_restoring(&self, process: usize) -> bool {
        self.readers.get(&process).is_some_and(|readers| *readers > 0)
    }

    /// A commit was decided, and its process will be told.
    pub fn decide(&mut self, process: usize) {
        *self.decided.entry(process).or_default() += 1;
    }

    /// It was told.
    pub fn answer(&mut self, process: usize) {
        if let Some(decided) = self.decided.get_mut(&process) {
            *decided = decided.saturating_sub(1);
        }
    }

    pub fn unknown(&mut self, id: &Arc<str>, number: usize) {
        self.unknown.push((id.clone(), number));
    }
}

impl State {
    /// Whether a process has a transaction standing so.
    pub fn has(&self, process: usize, state: Transaction) -> bool {
        let mut ids = self.memory.owners.iter().filter(|(_, owner)| **owner == process);
        ids.any(|(id, _)| self.broker.coordinator.state(id) == Some(state))
    }

    /// A process is about to be killed.
    pub fn killed(&mut self, process: usize) {
        if self.has(process, Transaction::Ongoing) {
            self.reach("killed while a transaction was open");
        }
        if self.has(process, Transaction::PrepareCommit) {
            self.reach("killed while a commit's markers were being written");
        }
        if self.memory.decided.get(&process).is_some_and(|decided| *decided > 0) {
            self.reach(KILLED_BEFORE_STORE);
        }
        if self.memory.is_restoring(process) {
            self.reach(KILLED_RESTORING);
        }
        self.memory.readers.remove(&process);
        self.memory.decided.remove(&process);
    }

    /// A member is told of so many partitions that come or go.
    pub fn told(&mut self, process: usize, partitions: usize) {
        if partitions > 0 && self.memory.is_restoring(process) {
            self.reach(REBALANCED_RESTORING);
        }
    }

    /// A process gives partitions back.
    pub fn revoked(&mut self, process: usize) {
        self.reach("partitions were revoked");
        if self.has(process, Transaction::Ongoing) {
            self.reach(REVOKED_OPEN);
        }
    }

    /// A process has lost partitions.
    pub fn lost(&mut self, process: usize) {
        self.reach("partitions were lost");
        if self.has(process, Transaction::Ongoing) {
            self.reach(LOST_OPEN);
        }
    }

    /// A takeover has to wait for something at one of these places.
    pub fn takeover_met(&mut self, what: &'static str, at: &Target) {
        self.reach(what);
        if self.broker.coordinator.markers().iter().any(|marker| marker.target == *at) {
            self.reach(MARKER_PENDING);
        }
    }

    /// A request was answered with an error.
    pub fn refused(&mut self, process: usize, what: &str, code: Code) {
        let is_commit = matches!(what, "add offsets" | "commit offsets" | "end commit");
        match code {
            Code::ProducerFenced | Code::InvalidProducerEpoch => {
                self.reach("a producer was fenced");
                if self.memory.is_restoring(process) {
                    self.reach(FENCED_RESTORING);
                }
            }
            Code::IllegalGeneration | Code::UnknownMemberId if what == "commit offsets" => {
                self.reach("a stale member's transaction was refused");
                if !self.memory.zombies.contains(&process) {
                    self.memory.zombies.push(process);
                    if self.memory.zombies.len() == 2 {
                        self.reach(SECOND_ZOMBIE);
                    }
                }
            }
            Code::NotCoordinator if is_commit => self.reach(MOVED_IN_COMMIT),
            Code::NotLeaderOrFollower => self.reach("a partition had no leader"),
            _ => {}
        }
    }

    /// A commit has failed. With no records in it, it was a claim or a release.
    pub fn commit_failed(&mut self, has_records: bool, offsets: &[(Partition, Committed)]) {
        if has_records {
            return;
        }
        if let Some((_, first)) = offsets.first() {
            let is_release = first.metadata.ends_with(" released");
            self.reach(if is_release { RELEASE_FAILED } else { CLAIM_FAILED });
        }
    }

    /// What became of the commits whose outcome was unknown, once all is over.
    pub fn resolve_unknown(&mut self) {
        for (id, number) in std::mem::take(&mut self.memory.unknown) {
            let was_commit = self.broker.coordinator.decision(&id, number) == Some(true);
            self.reach(if was_commit { UNKNOWN_COMMIT } else { UNKNOWN_ABORT });
        }
    }
}
