//! The faults by name: everything that is done to the engine on purpose. Each has to happen in at least one of a
//! hundred seeds of the profile that is meant for it (`hunt`).

use super::*;

pub const KILLED: &str = "an instance was killed";
pub const LEFT: &str = "an instance left";
pub const PANICKED: &str = "the engine panicked at one of its calls";
pub const POISONED: &str = "the engine panicked at a record";

pub const REQUEST_LOST: &str = "a request was lost on the wire";
pub const RESPONSE_LOST: &str = "a response was lost on the wire";
pub const REQUEST_LATE: &str = "a request was to arrive after its connection broke";
pub const REQUEST_SLOW: &str = "a request was slow on the wire";
pub const SILENT: &str = "a connection fell silent, but not at the end of a transaction";
pub const LEADERLESS: &str = "a partition lost its leader for a while";
pub const TRANSACTIONS_MOVED: &str = "the coordinator of transactions moved";
pub const GROUP_MOVED: &str = "the coordinator of the group moved";
pub const GROUP_FELL_BACK: &str = "the coordinator of the group moved, and had old offsets";

pub const STATEMENT_LOST: &str = "a statement to the database was lost";
pub const STATEMENT_UNANSWERED: &str = "a statement was carried out, but its answer was lost";
pub const STATEMENT_SLOW: &str = "a statement to the database was slow";
pub const NOT_SERIALIZED: &str = "the database could not serialize a transaction";
pub const COMMIT_SILENT: &str = "COMMIT was sent, and its connection fell silent";
pub const DEATH_UNNOTICED: &str = "the database did not learn that a process was dead";

pub const GATE_REQUEST_LOST: &str = "a question to a gate was lost";
pub const GATE_LATE: &str = "a question to a gate arrived late";
pub const GATE_SLOW: &str = "a gate's answer was slow";
pub const GATE_FORGOT: &str = "a gate forgot its marks";

pub const CALL_LOST: &str = "a request to the provider was lost";
pub const CALL_UNANSWERED: &str = "an answer of the provider was lost";
pub const CALL_LATE: &str = "a request to the provider was to arrive late";
pub const CALL_SLOW: &str = "a request to the provider was slow on its way";
pub const BUSY: &str = "the provider was busy";
pub const THROTTLED: &str = "the provider throttled";
pub const FAILED_BEFORE: &str = "the provider failed, and had not acted";
pub const FAILED_AFTER: &str = "the provider failed after it had acted";
pub const FAILED_FOR_GOOD: &str = "the provider failed, and remembered that under the key";
pub const FAILURE_REPEATED: &str = "the provider repeated a failure";
pub const DECLINED_AGAIN: &str = "the provider declined what it had done before";
pub const TOOK_LONG: &str = "the provider took long";
pub const NO_CONTROL: &str = "the control topic lost its leader for a while";

pub const HANDLER_PANICKED: &str = "a handler panicked";
pub const HANDLER_SLOW: &str = "a handler was slow";
pub const HANDLER_REFUSED: &str = "a handler refused a record after all its steps";
pub const STEP_REFUSED: &str = "a step of a handler was refused";
pub const ROW_LOST: &str = "a statement of a handler was lost";
pub const ROW_UNANSWERED: &str = "a statement of a handler was carried out, but its answer was lost";
pub const ROW_LATE: &str = "a statement of a handler was to arrive late";

/// All faults.
pub const FAULTS: &[Situation] = &[
    of("falling", KILLED, "the schedule does it"),
    of("falling", KILLED_BEFORE_STORE, "a process is killed after its commit was decided"),
    of("falling", KILLED_RESTORING, "a process is killed while it reads a changelog"),
    of("falling", "killed while a transaction was open", "the coordinator has one for an id of the killed process"),
    of("falling", "killed while a commit's markers were being written", "the coordinator has one in PrepareCommit"),
    of("falling", "an instance was frozen", "the schedule does it"),
    of("falling", LEFT, "the schedule does it"),
    of("falling", "a store lost commits in a crash", "the simulated disk goes back to an earlier state"),
    of("falling", WIPED, "the schedule does it when everything is read"),
    of("falling", PANICKED, "the schedule does it"),
    of("falling", POISONED, "the record says so"),
    of("falling", TASK_PANICKED, "the engine logs it"),
    of("falling", LANE_PANICKED, "the engine logs it"),
    of("falling", LANE_GIVEN_UP, "the engine logs it"),
    of("falling", WATCH_PANICKED, "the engine logs it"),
    of("wild", REQUEST_LOST, "the wire does it"),
    of("wild", RESPONSE_LOST, "the wire does it"),
    of("wild", REQUEST_LATE, "the wire does it"),
    of("wild", REQUEST_SLOW, "the wire does it"),
    of("wild", LEADERLESS, "the schedule does it"),
    of("wild", "a partition had no leader", "a response is NOT_LEADER_OR_FOLLOWER"),
    of("wild", TRANSACTIONS_MOVED, "the schedule does it"),
    of("wild", GROUP_MOVED, "the schedule does it"),
    of("wild", GROUP_FELL_BACK, "the schedule does it"),
    of("wild", MOVED_IN_COMMIT, "a request of a commit returns NOT_COORDINATOR"),
    of("wild", FELL_BACK, "the judge sees a lower offset than before, after the schedule moved the coordinator"),
    of("stormy", SILENT, "the wire does it"),
    of("stormy", "the end of a transaction was decided, but the response was lost", "the wire does it"),
    of("stormy", "the end of a transaction did not arrive, or not yet", "the wire does it"),
    of("stormy", "the end of a transaction arrived late", "EndTxn arrives after its connection broke"),
    of("stormy", LATE_OFFSETS, "TxnOffsetCommit arrives after its connection broke"),
    of("stormy", "the end of a transaction was decided, but its connection fell silent", "the wire does it"),
    of("sick", "a disk was full", "the schedule does it"),
    of("sick", "a store was damaged", "the schedule does it"),
    of("sick", "an old copy of a store was put back", "the schedule does it"),
    of("sick", "the folders of two stores were swapped", "the schedule does it"),
    of("sick", "a disk was lost", "the schedule does it"),
    of("upset", "the group was reset", "the schedule does it"),
    of("upset", "the group was deleted", "the schedule does it"),
    of("upset", "the changelog was truncated", "the schedule does it"),
    of("upset", "the changelog was recreated", "the schedule does it"),
    of("upset", "the changelog was deleted", "the schedule does it"),
    of("upset", "the changelog lost its last records", "the schedule does it"),
    of("upset", "the changelog lost its last records while tasks were running", "the schedule does it"),
    of("uprooted", "the input lost records that had been read", "the schedule does it"),
    of("uprooted", "the input lost unread records", "the schedule does it"),
    of("uprooted", "the input was recreated", "the schedule does it"),
    of("uprooted", "partitions were added to the input", "the schedule does it"),
    of("uprooted", "the group was set to the end of the input, skipping records", "the schedule does it"),
    of("odd", "a wall clock was set", "the schedule does it"),
    of("odd", "a transaction of the input was aborted", "the schedule does it"),
    of("odd", "the cleaner removed records of the changelog", "a compaction removes some"),
    of("swept", "the cleaner removed tombstones of the changelog", "a compaction removes some"),
    of("forgetful", "an instance was replaced by one of another release", "the schedule does it"),
    of("sunk", STATEMENT_LOST, "the link does it"),
    of("sunk", STATEMENT_UNANSWERED, "the link does it"),
    of("sunk", STATEMENT_SLOW, "the link does it"),
    of("sunk", COMMIT_LOST, "the link does it"),
    of("sunk", COMMIT_LATE, "the link does it"),
    of("sunk", COMMIT_UNANSWERED, "the link does it"),
    of("sunk", COMMIT_SILENT, "the link does it"),
    of("sunk", NOT_SERIALIZED, "the server says it"),
    of("sunk", DEATH_UNNOTICED, "the link does it"),
    of("sunk", "the database was down", "the schedule does it"),
    of("sunk", "a table of the database was missing", "the schedule does it"),
    of("sunk", "the database failed over and lost its last commits", "the schedule does it"),
    of("sunk", "an older backup of the database was restored", "the schedule does it"),
    of("gated", GATE_REQUEST_LOST, "the link does it"),
    of("gated", GATE_UNHEARD, "the link does it"),
    of("gated", GATE_LATE, "the link does it"),
    of("gated", GATE_SLOW, "the link does it"),
    of("gated", GATE_DOWN, "a question finds it down"),
    of("gated", GATE_FORGOT, "the schedule does it, and there are some"),
    of("called", CALL_LOST, "the link does it"),
    of("called", CALL_UNANSWERED, "the link does it"),
    of("called", CALL_LATE, "the link does it"),
    of("called", CALL_SLOW, "the link does it"),
    of("called", OUTAGE, "the schedule does it"),
    of("called", BUSY, "it answers 503"),
    of("called", THROTTLED, "it answers 429"),
    of("called", FAILED_BEFORE, "it answers 500"),
    of("called", FAILED_AFTER, "it answers 500"),
    of("called", FAILED_FOR_GOOD, "it answers 500"),
    of("called", FAILURE_REPEATED, "it answers 500 again under the same key"),
    of("called_unsure", DECLINED_AGAIN, "it answers 422, and has acted"),
    of("called", TOOK_LONG, "it answers after half of the time that an attempt may take, or later"),
    of("called", COMMANDED, "the schedule does it"),
    of("called", MET_BY_RECORD, "the schedule does it"),
    of("called", NO_CONTROL, "the schedule does it"),
    of("called_odd", VANISHED, "the schedule does it"),
    of("handled", HANDLER_PANICKED, "its function does it"),
    of("handled", HANDLER_SLOW, "its function does it"),
    of("handled", HANDLER_REFUSED, "its function does it"),
    of("handled", STEP_REFUSED, "the provider, the database or the function says it"),
    of("handled", STEP_DROPPED, "its function does it"),
    of("handled", ROW_LOST, "the link does it"),
    of("handled", ROW_UNANSWERED, "the link does it"),
    of("handled", ROW_LATE, "the link does it"),
];

/// The fault that a request on the wire meets; `None` without a fault, and for a fault that is counted once the request
/// is carried out.
pub fn of_wire(fate: Fate, what: &str) -> Option<&'static str> {
    match fate {
        Fate::Fine => None,
        Fate::Slow => Some(REQUEST_SLOW),
        Fate::RequestLost => Some(REQUEST_LOST),
        Fate::ResponseLost => Some(RESPONSE_LOST),
        Fate::Late => Some(REQUEST_LATE),
        Fate::Silenced if what == "end commit" => None,
        Fate::Silenced => Some(SILENT),
    }
}

/// The fault that a request to the provider meets.
pub fn of_call(fate: Fate) -> Option<&'static str> {
    match fate {
        Fate::Fine => None,
        Fate::Slow => Some(CALL_SLOW),
        Fate::RequestLost => Some(CALL_LOST),
        Fate::ResponseLost | Fate::Silenced => Some(CALL_UNANSWERED),
        Fate::Late => Some(CALL_LATE),
    }
}

/// The fault that a handler's statement to the database meets.
pub fn of_row(fate: Fate) -> Option<&'static str> {
    match fate {
        Fate::Fine | Fate::Slow => None,
        Fate::RequestLost => Some(ROW_LOST),
        Fate::ResponseLost | Fate::Silenced => Some(ROW_UNANSWERED),
        Fate::Late => Some(ROW_LATE),
    }
}
