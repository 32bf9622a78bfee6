//! The situations that runs should reach, by name. A big run fails if one was never reached; every run prints how
//! often each was.
//!
//! Most are counted where they happen (`State::reach`, called by `world`, `schedule`, `client` and `stores`), some by
//! the judge from logs and stores, and some from the engine's log (`heard`). Those that are faults are in `faults`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::kafka::{Code, Committed, MS, Partition, State as Transaction, Target};
use crate::world::{Fate, State};

pub mod faults;

use faults::FAULTS;

/// From this many seeds of a profile on, they must reach every situation of the profile.
pub const BIG: u64 = 5_000;
/// The same for seeds of all profiles together, but for what is rare: what is left occurs at least eight times in this
/// many.
pub const BIG_OF_ALL: u64 = 10_000;
/// The same with what is rare, which occurs ten to thirty times in this many.
const BIG_OF_RARE: u64 = 100_000;

pub const KILLED_BEFORE_STORE: &str = "killed between a commit and its store write";
pub const STALE: &str = "a stale member's transaction was rejected";
pub const FENCED: &str = "a producer was fenced";
pub const KILLED_RESTORING: &str = "killed during a restore";
pub const FENCED_RESTORING: &str = "a producer was fenced during a restore";
pub const REBALANCED_RESTORING: &str = "a rebalance came during a restore";
pub const REVOKED_OPEN: &str = "partitions were revoked with a transaction open";
pub const LOST_OPEN: &str = "partitions were lost with a transaction open";
pub const UNKNOWN_COMMIT: &str = "an unknown outcome was a commit";
pub const UNKNOWN_ABORT: &str = "an unknown outcome was an abort";
pub const SECOND_ZOMBIE: &str = "a second zombie's transaction was rejected";
pub const LATE_OFFSETS: &str = "the offsets of a transaction arrived late";
pub const REPEATED: &str = "late requests set committed offsets back to an earlier transaction's";
pub const FELL_BACK: &str = "a new coordinator returned old offsets";
pub const MOVED_IN_COMMIT: &str = "the coordinator moved during a commit";
pub const TIMED_OUT: &str = "a transaction timed out";
pub const MARKER_PENDING: &str = "a takeover found markers that were not written yet";
pub const CLAIM_FAILED: &str = "a claim was aborted";
pub const RELEASE_FAILED: &str = "a release was aborted";
pub const SWEEP_ABORTED: &str = "a sweeper's tombstone was aborted";
pub const STORE_AHEAD: &str = "a store was ahead of its position";
pub const EPOCH_CHANGED: &str = "a transaction knew more than one epoch";
pub const REFUSED: &str = "a task was refused";
pub const FULL_AT_COMMIT: &str = "a disk was full at a commit";
pub const DAMAGE_MET: &str = "a damaged store was found";
pub const TWO_RELEASES: &str = "a partition was taken over by an instance of another release";
pub const OTHER_RULES_REFUSED: &str = "an instance with other rules was refused at its start";
pub const TAIL_MISSED: &str = "the loss of a changelog's last records was detected";
pub const TAIL_REGROWN: &str = "the loss was detected after the changelog had grown again";
pub const RANGES_MET: &str = "a task stopped for too many ranges of offsets";
pub const SCOPES_MET: &str = "a task stopped for too many scopes of versions";
pub const SEGMENTS_MET: &str = "a task stopped because scopes took turns too often";
pub const TURNED_AWAY: &str = "a load waited for the buffer of another";
pub const REBUILT: &str = "an unusable store was rebuilt";
pub const ISOLATED: &str = "a task whose output failed was isolated";
pub const RESET_MET: &str = "a reset of the group was detected";
pub const DELETED_MET: &str = "a deletion of the group was detected";
pub const LOSS_REFUSED: &str = "processing did not continue after an irrecoverable loss";
pub const TASK_PANICKED: &str = "a task panicked and was restarted";
pub const LANE_PANICKED: &str = "a lane panicked and was restarted";
pub const LANE_GIVEN_UP: &str = "a lane was given up after too many panics";
pub const WATCH_PANICKED: &str = "the watch panicked and was restarted";
pub const POISON_STOPPED: &str = "a record that panics stopped its own task and no other";
pub const CLOCK_DOUBTED: &str = "a task waited until its host's clock was right";
pub const MARKER_READ: &str = "Kafka's time was that of a changelog's last marker";
pub const WIPED: &str = "all stores were wiped and restored";

pub const CLAIM_WAITED: &str = "a claim of a row waited for another's transaction";
pub const STATEMENT_WAITED: &str = "a statement waited for another transaction's lock";
pub const COMMIT_LOST: &str = "COMMIT did not arrive at the database";
pub const COMMIT_LATE: &str = "COMMIT arrived after its client had given it up";
pub const COMMIT_UNANSWERED: &str = "COMMIT was carried out, but its answer was lost";
pub const RECORD_REFUSED: &str = "the database refused records, and named them";
pub const REFUSED_AT_COMMIT: &str = "the database refused a transaction as it committed";
pub const ROW_FENCED: &str = "a transaction was fenced by a row";
pub const KILLED_IN_SINK: &str = "killed while a transaction was open in the database";
pub const KILLED_AFTER_SINK: &str = "killed between the database's commit and Kafka's";
pub const REDO_PLAYED: &str = "a redo was played";
pub const REDO_WITH_LETTERS: &str = "a redo with dead letters was played";
pub const SINK_BEHIND: &str = "a task was refused because the database was behind Kafka";
pub const SINK_AHEAD: &str = "a task was refused because Kafka was behind the database";
pub const IN_INBOX: &str = "the inbox had a record that was new to its task";
pub const SET_ASIDE_BY_SINK: &str = "a record that the database refuses was set aside";
pub const RETURNED: &str = "what a statement returned was written to Kafka";
pub const DONE_AGAIN: &str = "the database lost only what Kafka did not have, and it was done again";

pub const GATE_DROPPED: &str = "a gate dropped what another partition had passed on";
pub const GATE_OWN: &str = "a gate had the mark of an attempt that came to nothing";
pub const GATE_UNHEARD: &str = "a gate left marks, but its answer was lost";
pub const GATE_DOWN: &str = "a gate was down";
pub const GATE_TAKEN_BACK: &str = "the mark of a record that the output rejects was taken back";

pub const SENT_MEANWHILE: &str = "a call was sent while its lane's transaction was being committed";
pub const TOO_LATE: &str = "a request was not written, since its key's window was ending";
pub const GIVEN_UP: &str = "a call was given up after all its attempts";
pub const IN_DOUBT: &str = "a call was in doubt, and went to the dead letters";
pub const DOUBTED_AND_DONE: &str = "a call in doubt had happened";
pub const DECLINED: &str = "the provider declined what it was asked for";
pub const ACTED_TWICE: &str = "the provider acted twice, as the topology allows";
pub const OUTAGE: &str = "the provider was down";
pub const CONFLICT: &str = "a duplicate asked for something else";
/// Too rare to be listed.
pub const CONFLICT_FOUND: &str = "the provider knew a key from another request";
pub const WENT_ON: &str = "a record went on with a call that was given up, or whose record has vanished";
pub const ANSWERED: &str = "a duplicate was answered with the first one's result";
pub const ANSWERED_FAILURE: &str = "a duplicate was answered with why the first one failed";
pub const DROPPED: &str = "a call that was rejected was dropped";
pub const STOPPED_AT_CALL: &str = "a task stopped at a call that was rejected or in doubt";
pub const CALLED_ANEW: &str = "a message that had expired was called for again";
pub const CALLED_IN_EPOCHS: &str = "a call was made for a version of an epoch";
pub const TRUNCATE_CALLED: &str = "a call was made for a truncate";
pub const DELETE_CALLED: &str = "a call was made for a delete";
pub const TOMBSTONE_PASSED: &str = "a null value after a delete made no call";
pub const VANISHED: &str = "records vanished from the input, read or not";
pub const DONE_UNSAID: &str = "a call was done whose record has vanished, or comes after its task's stop";
pub const ABANDONED: &str = "a handler was abandoned in the midst of its work";
pub const RUN_AGAIN: &str = "a handler went on after steps that were done";
pub const OVERDUE: &str = "a step of a handler has taken too long";
pub const STEP_DROPPED: &str = "a handler has not waited for a step to its end";
pub const DROPPED_IN_COMMIT: &str = "the same, while what it had told was being committed";
pub const STEP_TWICE: &str = "a step was done twice, as the topology allows";
pub const STEPS_DONE: &str = "a handler has done several steps";
/// Too rare to be listed.
pub const ROW_OF_OTHER: &str = "a handler found the row of work that asked for something else";
pub const UNDONE: &str = "a step was undone, since a later one was refused";
pub const COMMANDED: &str = "somebody gave a command";
pub const MET_BY_RECORD: &str = "a record came while a command about its identity was being carried out";
pub const SETTLED_BY_HAND: &str = "a call was settled by hand";
pub const FORGOTTEN_BY_HAND: &str = "what was known of a call was forgotten by hand";

/// A situation.
pub struct Situation {
    pub name: &'static str,
    /// How it is recognised.
    pub how: &'static str,
    /// The profile whose seeds should reach it.
    pub by: &'static str,
    /// Whether it is missed too often by [`BIG_OF_ALL`] seeds of all profiles.
    is_rare: bool,
}

const fn of(by: &'static str, name: &'static str, how: &'static str) -> Situation {
    Situation { name, how, by, is_rare: false }
}

const fn rare(by: &'static str, name: &'static str, how: &'static str) -> Situation {
    Situation { name, how, by, is_rare: true }
}

/// The situations that follow from faults and from the input.
const MET: &[Situation] = &[
    of("falling", "an owner was fenced by its successor", "a settling task initialises the id in the offset's text"),
    of("falling", FENCED, "a response is PRODUCER_FENCED or INVALID_PRODUCER_EPOCH"),
    of("falling", STALE, "TxnOffsetCommit returns ILLEGAL_GENERATION or UNKNOWN_MEMBER_ID"),
    of("falling", SECOND_ZOMBIE, "the same, for a second process"),
    of("falling", "partitions were revoked", "a member is notified"),
    of("falling", REVOKED_OPEN, "the same while an id of the process has a transaction open"),
    of("falling", "partitions were lost", "a member's session has ended, or it is notified"),
    of("falling", LOST_OPEN, "the same while an id of the process has a transaction open"),
    of("falling", "a takeover found an open transaction on the changelog", "its last stable offset is below the end"),
    of("falling", "a takeover found pending offsets", "the stable fetch returns UNSTABLE_OFFSET_COMMIT"),
    of("falling", MARKER_PENDING, "the same while the marker of a decided transaction is not written"),
    of("falling", REBALANCED_RESTORING, "a member gains or loses partitions while its process reads a changelog"),
    of("falling", POISON_STOPPED, "the judge finds the group's offset before it, and all other partitions read"),
    of("wild", FENCED_RESTORING, "a producer is fenced while its process reads a changelog"),
    of("wild", TIMED_OUT, "the coordinator's scan ends one"),
    of("wild", ISOLATED, "the engine logs it"),
    of("wild", "a record without a value was read", "the judge's model reads one"),
    of("wild", "an unreadable record was set aside", "the judge's model sets one aside"),
    of("wild", "a record with headers was forwarded", "the judge's model forwards one"),
    of("wild", "a record that the output rejects was set aside", "the judge's model does it"),
    of("wild", STORE_AHEAD, "a store being restored holds what was committed after its position"),
    of("changing", "a change from before its table's truncate was dropped", "the judge's model drops one"),
    of("changing", "a snapshot's read lost to a change", "the judge's model drops one"),
    of("changing", "a tombstone without its delete was dropped", "the judge's model drops one"),
    of("changing", "a drop was explained", "the judge finds it in the audit topic"),
    of("changing", "the drop of a record processed before was explained", "the judge finds it in the audit topic"),
    of("stormy", "a commit's outcome stayed unknown", "the producer's call ends without a response"),
    of("stormy", UNKNOWN_COMMIT, "the same, and the coordinator committed in the end"),
    of("stormy", UNKNOWN_ABORT, "the same, and the coordinator aborted in the end, or never decided"),
    of("stormy", CLAIM_FAILED, "a commit of offsets only that names an owner fails"),
    of("stormy", RELEASE_FAILED, "a commit of offsets only that names no owner fails"),
    of("sick", FULL_AT_COMMIT, "the engine logs it between a commit and its next wait"),
    of("sick", DAMAGE_MET, "the engine logs it"),
    of("sick", REBUILT, "the engine logs it"),
    of("upset", RESET_MET, "the engine logs it"),
    of("upset", DELETED_MET, "the engine logs it"),
    of("upset", TAIL_MISSED, "the engine logs it"),
    rare("upset", TAIL_REGROWN, "the engine logs it"),
    of("upset", REFUSED, "the engine logs it"),
    of("upset", LOSS_REFUSED, "not everything is read after a loss"),
    of("odd", "a record from the far future was set aside", "the judge's model does it"),
    of("odd", MARKER_READ, "a takeover asks brokers that do not name the latest timestamp"),
    of("forgetful", CLOCK_DOUBTED, "the engine logs it"),
    of("forgetful", TWO_RELEASES, "position records of one partition name owners of both"),
    of("stormy", OTHER_RULES_REFUSED, "its preflight reports it"),
    of("forgetful", SWEEP_ABORTED, "an aborted changelog record has no value"),
    of("uprooted", RANGES_MET, "the engine logs it"),
    of("epochal", SCOPES_MET, "the engine logs it"),
    of("epochal", SEGMENTS_MET, "the engine logs it"),
    of("falling", TURNED_AWAY, "the simulated disk counts it"),
    of("epochal", EPOCH_CHANGED, "a position record names several scopes"),
    of("sunk", CLAIM_WAITED, "the row is locked as a claim arrives"),
    of("sunk", STATEMENT_WAITED, "a row is locked as a statement arrives"),
    of("sunk", RECORD_REFUSED, "the driver says it"),
    of("sunk", REFUSED_AT_COMMIT, "the driver says it"),
    of("sunk", ROW_FENCED, "the driver says it"),
    of("sunk", KILLED_IN_SINK, "a process is killed while a connection of its own has one"),
    of("sunk", KILLED_AFTER_SINK, "a process is killed after COMMIT, and before its end of Kafka's transaction"),
    of("sunk", REDO_PLAYED, "a position record is written by another producer than its owner's"),
    of("sunk", REDO_WITH_LETTERS, "the same, and the producer has written dead letters of it"),
    of("sunk", SET_ASIDE_BY_SINK, "the judge's model does it"),
    of("sunk", SINK_BEHIND, "the engine logs it"),
    of("sunk", DONE_AGAIN, "the judge finds the same transactions in both, although some were lost"),
    of("shared", IN_INBOX, "the judge finds it explained"),
    of("returned", RETURNED, "the judge finds it in the topic for results"),
    of("gated", GATE_DROPPED, "the judge misses it in the output of one partition, and finds it in another's"),
    of("gated", GATE_OWN, "it answers so"),
    of("gated", GATE_TAKEN_BACK, "it is asked to"),
    of("called", DECLINED, "the judge finds its dead letter"),
    of("called", IN_DOUBT, "the judge finds its dead letter"),
    of("called", DOUBTED_AND_DONE, "the same, and the provider has acted"),
    of("called", GIVEN_UP, "the judge finds its dead letter"),
    of("called", ACTED_TWICE, "the provider's books say so"),
    of("called", SETTLED_BY_HAND, "the judge finds it acknowledged"),
    of("called", FORGOTTEN_BY_HAND, "the judge finds it acknowledged"),
    of("called", SENT_MEANWHILE, "the driver sends it within the producer's commit"),
    rare("called", TOO_LATE, "the driver finds the window over before it writes"),
    of("called_odd", CONFLICT, "the judge finds its dead letter, or none where conflicts are dropped"),
    of("called_odd", WENT_ON, "the judge finds its end"),
    of("called_odd", ANSWERED, "the judge finds it in the topic for results"),
    of("called_odd", ANSWERED_FAILURE, "the judge finds it in the topic for results"),
    of("called_odd", DROPPED, "the judge finds no end of a record that the provider declines"),
    of("called_odd", STOPPED_AT_CALL, "the engine logs it, and the group's offset is before it"),
    of("called_odd", CALLED_ANEW, "the judge's model forgets it, and its call ends"),
    of("called_odd", CALLED_IN_EPOCHS, "the judge finds its end"),
    of("called_odd", TRUNCATE_CALLED, "the judge finds its end"),
    of("called_odd", DELETE_CALLED, "the judge finds its end"),
    of("called_odd", TOMBSTONE_PASSED, "the judge's model forwards one"),
    of("called_odd", DONE_UNSAID, "the provider's books say so, and the judge finds no end"),
    of("handled", ABANDONED, "its lane does it"),
    of("handled", RUN_AGAIN, "an attempt begins with a journal"),
    of("handled", OVERDUE, "its task gives the attempt up"),
    of("handled", DROPPED_IN_COMMIT, "its attempt is over before its lane says that it goes on"),
    of("handled", STEP_TWICE, "the provider's books say so"),
    of("handled", STEPS_DONE, "the judge finds the end of a record with several"),
    of("handled", UNDONE, "the same of a record that was refused"),
];

/// All situations.
pub fn situations() -> impl Iterator<Item = &'static Situation> {
    FAULTS.iter().chain(MET)
}

/// The situations of a profile that its seeds have not reached.
pub fn missing(kind: &str, reached: &BTreeMap<&'static str, u64>) -> Vec<&'static str> {
    let wanted = situations().filter(|situation| situation.by == kind);
    wanted.map(|situation| situation.name).filter(|name| !reached.contains_key(name)).collect()
}

/// The situations that this many seeds of all profiles in turn have not reached, and should have.
pub fn missing_of_all(seeds: u64, reached: &BTreeMap<&'static str, u64>) -> Vec<&'static str> {
    let wanted = situations().filter(|situation| !situation.is_rare || seeds >= BIG_OF_RARE);
    wanted.map(|situation| situation.name).filter(|name| !reached.contains_key(name)).collect()
}

/// Every listed situation with its count, then any others that were counted.
pub fn report(reached: &BTreeMap<&'static str, u64>) -> Vec<String> {
    let line = |name: &str, how: &str| {
        let times = reached.get(name).copied().unwrap_or_default();
        if how.is_empty() { format!("{times:>8} times {name}") } else { format!("{times:>8} times {name}: {how}") }
    };
    let listed = situations().map(|situation| line(situation.name, situation.how));
    let is_listed = |name: &str| situations().any(|situation| situation.name == name);
    let others = reached.keys().filter(|name| !is_listed(name)).map(|name| line(name, ""));
    listed.chain(others).collect()
}

/// Every listed situation with its count, and the percentage of its profile's seeds that reached it, as tables: of the
/// faults, and of the others.
pub fn table(reached: &BTreeMap<&'static str, u64>, percent: impl Fn(&Situation) -> f64) -> String {
    let row = |situation: &Situation| {
        let Situation { name, how, by, .. } = situation;
        let (times, percent) = (reached.get(name).copied().unwrap_or_default(), percent(situation));
        format!("| {name} | {how} | `{by}` | {times} | {percent:.1} % |\n")
    };
    let rows = |all: &[Situation]| -> String { all.iter().map(row).collect() };
    let head = |what: &str| {
        format!("| {what} | how it is recognised | meant for | times | of its seeds |\n|---|---|---|---:|---:|\n")
    };
    format!("{}{}\n{}{}", head("fault"), rows(FAULTS), head("situation"), rows(MET))
}

/// What a world remembers to recognise situations.
#[derive(Default)]
pub struct Memory {
    /// Which process opened a producer with each transactional id.
    owners: BTreeMap<Arc<str>, usize>,
    /// How many changelogs each process is reading.
    readers: BTreeMap<usize, u64>,
    /// The processes whose sink has committed what Kafka has not.
    sunk: BTreeSet<usize>,
    /// How many decided commits each process has no response to yet.
    decided: BTreeMap<usize, u64>,
    /// Processes whose transactions were rejected for a stale membership.
    zombies: Vec<usize>,
    /// Transactions whose commit had an unknown outcome: their ids and numbers.
    unknown: Vec<(Arc<str>, usize)>,
}

impl Memory {
    pub fn opened(&mut self, id: &Arc<str>, process: usize) {
        self.owners.insert(id.clone(), process);
    }

    /// The transactional ids of producers opened by processes for which `is_one` returns true.
    pub fn owners(&self, is_one: impl Fn(usize) -> bool) -> impl Iterator<Item = &Arc<str>> {
        self.owners.iter().filter(move |(_, process)| is_one(**process)).map(|(id, _)| id)
    }

    pub fn starts_reading(&mut self, process: usize) {
        *self.readers.entry(process).or_default() += 1;
    }

    pub fn stops_reading(&mut self, process: usize) {
        if let Some(readers) = self.readers.get_mut(&process) {
            *readers = readers.saturating_sub(1);
        }
    }

    /// Whether a process is reading a changelog.
    pub fn is_restoring(&self, process: usize) -> bool {
        self.readers.get(&process).is_some_and(|readers| *readers > 0)
    }

    /// A process's sink has committed; Kafka follows.
    pub fn sunk(&mut self, process: usize) {
        self.sunk.insert(process);
    }

    /// A process begins anew, or Kafka has followed.
    pub fn sinks(&mut self, process: usize) {
        self.sunk.remove(&process);
    }

    /// A commit was decided; its process has no response yet.
    pub fn decide(&mut self, process: usize) {
        *self.decided.entry(process).or_default() += 1;
    }

    /// Whether a commit of this process was decided whose response has not arrived.
    pub fn has_decided(&self, process: usize) -> bool {
        self.decided.get(&process).is_some_and(|decided| *decided > 0)
    }

    /// The response has arrived.
    pub fn responded(&mut self, process: usize) {
        if let Some(decided) = self.decided.get_mut(&process) {
            *decided = decided.saturating_sub(1);
        }
    }

    pub fn unknown(&mut self, id: &Arc<str>, number: usize) {
        self.unknown.push((id.clone(), number));
    }
}

impl State {
    /// Whether a process has a transaction in this state.
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
        if self.memory.has_decided(process) {
            self.reach(KILLED_BEFORE_STORE);
        }
        if self.memory.is_restoring(process) {
            self.reach(KILLED_RESTORING);
        }
        if self.database.has_open(process) {
            self.reach(KILLED_IN_SINK);
        }
        if self.memory.sunk.remove(&process) {
            self.reach(KILLED_AFTER_SINK);
        }
        self.memory.readers.remove(&process);
        self.memory.decided.remove(&process);
        if !self.database.knows(process) {
            return;
        }
        let vanishing = self.database.troubles.vanishing;
        if self.random.permille(vanishing) {
            return self.reach(faults::DEATH_UNNOTICED);
        }
        let at = self.now() + self.random.between(1, MS);
        self.database.hang_up(process, at);
    }

    /// A member is notified that this many partitions come or go.
    pub fn rebalanced(&mut self, process: usize, partitions: usize) {
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

    /// A takeover has to wait for something at `at`.
    pub fn takeover_met(&mut self, what: &'static str, at: &Target) {
        self.reach(what);
        if self.broker.coordinator.markers().iter().any(|marker| marker.target == *at) {
            self.reach(MARKER_PENDING);
        }
    }

    /// A request has returned an error.
    pub fn rejected(&mut self, process: usize, what: &str, code: Code) {
        let is_commit = matches!(what, "add offsets" | "commit offsets" | "end commit");
        match code {
            Code::ProducerFenced | Code::InvalidProducerEpoch => {
                self.reach(FENCED);
                if self.memory.is_restoring(process) {
                    self.reach(FENCED_RESTORING);
                }
            }
            Code::IllegalGeneration | Code::UnknownMemberId if what == "commit offsets" => {
                self.reach(STALE);
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

    /// A commit has failed. Without records, it was a claim or a release.
    pub fn commit_failed(&mut self, has_records: bool, offsets: &[(Partition, Committed)]) {
        if has_records {
            return;
        }
        if let Some((_, first)) = offsets.first() {
            let is_release = first.metadata.ends_with(" released");
            self.reach(if is_release { RELEASE_FAILED } else { CLAIM_FAILED });
        }
    }

    /// Counts what became of the commits with an unknown outcome, after the run.
    pub fn resolve_unknown(&mut self) {
        for (id, number) in std::mem::take(&mut self.memory.unknown) {
            let was_commit = self.broker.coordinator.decision(&id, number) == Some(true);
            self.reach(if was_commit { UNKNOWN_COMMIT } else { UNKNOWN_ABORT });
        }
    }
}
