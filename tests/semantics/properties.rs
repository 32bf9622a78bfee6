//! What holds for any stream. Goal: reading again, reading in another order, and reading several partitions at once
//! change nothing in the final output.
//!
//! The rules here have totally ordered versions, deletes among them, and drop ties. What has no order cannot keep these
//! promises, and does not make them: records without a version always pass, a snapshot's reads and truncates depend on
//! what came before them, epochs on which of them came first.

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;
use ratchet::dedup::Verdict;
use serde_json::{Value, json};

use crate::task::{Given, Task, keyed, tombstone, value};

/// Changes and deletes of rows, with their tombstones.
const ROWS: &str = "
input: {topics: [cdc], key_format: json}
identity: {content: key}
version: [{of: value.file, as: integer}, {of: value.pos, as: integer}]
kinds: {of: value.op, delete: [d]}
on_null_value: follow_delete
";

/// The same, with a scope.
const SCOPED: &str = "
input: {topics: [cdc], key_format: json}
identity: {content: key}
version: [{of: value.file, as: integer}, {of: value.pos, as: integer}]
epoch: value.server
kinds: {of: value.op, delete: [d]}
on_null_value: follow_delete
";

/// One change: its row, server and version determine everything else, as in a log.
#[derive(Clone, Debug, PartialEq)]
struct Change {
    row: u8,
    server: u8,
    file: Option<u8>,
    pos: u8,
}

impl Change {
    fn is_delete(&self) -> bool {
        (self.pos ^ self.row).is_multiple_of(4)
    }

    fn given(&self) -> Given {
        let op = if self.is_delete() { "d" } else { "u" };
        let Change { row, server, file, pos } = self;
        keyed(json!({"id": row}), json!({"op": op, "id": row, "server": server, "file": file, "pos": pos}))
    }
}

fn change(servers: u8) -> impl Strategy<Value = Change> {
    (0..4_u8, 0..servers, prop::option::of(0..3_u8), 0..6_u8).prop_map(|(row, server, file, pos)| Change {
        row,
        server,
        file,
        pos,
    })
}

/// The records of changes; each delete is followed by its tombstone.
fn log(changes: &[Change]) -> Vec<Given> {
    let mut log = Vec::new();
    for change in changes {
        log.push(change.given());
        log.extend(change.is_delete().then(|| tombstone(json!({"id": change.row}))));
    }
    log
}

fn judged(topology: &str, records: impl IntoIterator<Item = Given>) -> Task {
    let mut task = Task::of(topology);
    task.verdicts(records);
    task
}

/// The output without offsets.
fn output(task: &Task) -> Vec<Given> {
    task.output.iter().map(|given| Given { offset: None, ..given.clone() }).collect()
}

fn table(task: &Task) -> BTreeMap<String, Value> {
    task.table(|value| value["op"] == "d")
}

/// A stream, and the places to stop at and read again.
fn with_stops(servers: u8) -> impl Strategy<Value = (Vec<Change>, Vec<prop::sample::Index>)> {
    (prop::collection::vec(change(servers), 1..24), prop::collection::vec(any::<prop::sample::Index>(), 1..4))
}

proptest! {
    /// The group is reset: the same offsets are read again from the start, at any moment.
    #[test]
    fn reading_any_prefix_again_changes_nothing((changes, stops) in with_stops(3)) {
        let log: Vec<_> = (0..).zip(log(&changes)).map(|(offset, given)| given.offset(offset)).collect();
        let once = judged(SCOPED, log.clone());
        let mut task = Task::of(SCOPED);
        for (at, given) in log.iter().enumerate() {
            task.give(given.clone());
            if stops.iter().any(|stop| stop.index(log.len()) == at) {
                let before = task.entries();
                let again = task.verdicts(log[..=at].iter().cloned());
                prop_assert!(again.iter().all(|verdict| *verdict == Verdict::Duplicate));
                prop_assert_eq!(task.entries(), before);
            }
        }
        prop_assert_eq!(&task.output, &once.output);
        prop_assert_eq!(task.entries(), once.entries());
    }

    /// The producer sends again: the same records at new offsets, from any place, at any moment. Output and entries
    /// stay the same, record for record.
    #[test]
    fn redelivery_forwards_nothing_new((changes, stops) in with_stops(1), from in any::<prop::sample::Index>()) {
        let log = log(&changes);
        let once = judged(ROWS, log.clone());
        let mut redelivered = Vec::new();
        for (at, given) in log.iter().enumerate() {
            redelivered.push(given.clone());
            if stops.iter().any(|stop| stop.index(log.len()) == at) {
                redelivered.extend_from_slice(&log[from.index(at + 1)..=at]);
            }
        }
        let task = judged(ROWS, redelivered);
        prop_assert_eq!(output(&task), output(&once));
        prop_assert_eq!(task.entries(), once.entries());
    }

    /// The same with servers taking turns, each continuing its own log: old data of any of them stays old.
    #[test]
    fn redelivery_across_epochs_forwards_nothing_new(
        changes in turns(),
        stops in prop::collection::vec(any::<prop::sample::Index>(), 1..4),
        from in any::<prop::sample::Index>(),
    ) {
        let log = log(&changes);
        let once = judged(SCOPED, log.clone());
        prop_assert_eq!(once.output.len(), log.len(), "the servers' changes in order should all pass");
        let mut redelivered = Vec::new();
        for (at, given) in log.iter().enumerate() {
            redelivered.push(given.clone());
            if stops.iter().any(|stop| stop.index(log.len()) == at) {
                redelivered.extend_from_slice(&log[from.index(at + 1)..=at]);
            }
        }
        let task = judged(SCOPED, redelivered);
        prop_assert_eq!(output(&task), output(&once));
    }

    /// Partitions are independent: however they are interleaved, each gives the same output.
    #[test]
    fn partitions_interleave_freely(
        partitions in prop::collection::vec(prop::collection::vec(change(3), 0..12), 2..4),
        turns in prop::collection::vec(any::<prop::sample::Index>(), 48),
    ) {
        let logs: Vec<Vec<Given>> = (0..).zip(&partitions)
            .map(|(number, changes)| log(changes).into_iter().map(|given| given.partition(number)).collect())
            .collect();
        let one_by_one = judged(SCOPED, logs.concat());
        let mut left: Vec<_> = logs.into_iter().map(Vec::into_iter).collect();
        let mut interleaved = Vec::new();
        for turn in turns {
            interleaved.extend(left[turn.index(partitions.len())].next());
        }
        interleaved.extend(left.into_iter().flatten());
        let mixed = judged(SCOPED, interleaved);
        let of = |task: &Task, number| -> Vec<Given> {
            task.output.iter().filter(|given| given.partition == number).cloned().collect()
        };
        for number in (0..).take(partitions.len()) {
            prop_assert_eq!(of(&mixed, number), of(&one_by_one, number));
        }
        prop_assert_eq!(mixed.entries(), one_by_one.entries());
    }

    /// Whatever the order in which a row's changes arrive, the last one is remembered.
    #[test]
    fn any_order_ends_at_the_same_entries((changes, shuffled) in shuffled()) {
        let records = |changes: &[Change]| changes.iter().map(Change::given).collect::<Vec<_>>();
        let clean = judged(ROWS, records(&changes));
        let other = judged(ROWS, records(&shuffled));
        prop_assert_eq!(clean.entries(), other.entries());
    }

    /// A shuffled stream with duplicates upserts to the same table as the clean one.
    #[test]
    fn shuffled_duplicated_stream_upserts_to_the_same_table((changes, shuffled) in shuffled()) {
        let mut in_order = changes.clone();
        in_order.sort_by_key(|change| (change.file, change.pos));
        in_order.dedup();
        let clean = judged(ROWS, log(&in_order));
        let other = judged(ROWS, shuffled.iter().map(Change::given));
        prop_assert_eq!(table(&other), table(&clean));
        let mut last: BTreeMap<String, Value> = BTreeMap::new();
        for change in &in_order {
            let key = json!({"id": change.row}).to_string();
            let value = change.given().value.and_then(|bytes| serde_json::from_slice(&bytes).ok());
            match value.filter(|_| !change.is_delete()) {
                Some(value) => last.insert(key, value),
                None => last.remove(&key),
            };
        }
        prop_assert_eq!(table(&clean), last);
    }

    /// Compared with the simplest model: the greatest version so far for each id.
    #[test]
    fn verdicts_are_those_of_a_plain_map(stream in prop::collection::vec((0..4_u8, prop::option::of(-3..4_i64)), 0..40)) {
        let mut task = Task::of("identity: value.id\nversion: {of: value.v, as: integer}\n");
        let mut greatest: HashMap<u8, i64> = HashMap::new();
        for (id, version) in stream {
            let verdict = task.give(value(json!({"id": id, "v": version}))).verdict;
            let expected = match (version, greatest.get(&id)) {
                (Some(version), Some(known)) if version < *known => Verdict::Stale,
                (Some(version), Some(known)) if version == *known => Verdict::Duplicate,
                _ => Verdict::Forwarded,
            };
            prop_assert_eq!(verdict, expected);
            if let (Some(version), Verdict::Forwarded) = (version, verdict) {
                greatest.insert(id, version);
            }
        }
    }
}

/// Servers that are the primary in turn: each change has the next position of its server's log. Which rows a server
/// changes, and whether another server has written them, is left to chance.
fn turns() -> impl Strategy<Value = Vec<Change>> {
    let turn = (0..3_u8, prop::collection::vec(0..4_u8, 1..7));
    prop::collection::vec(turn, 1..8).prop_map(|turns| {
        let mut reached = [0; 3];
        let mut changes = Vec::new();
        for (server, rows) in turns {
            for row in rows {
                reached[usize::from(server)] += 1;
                changes.push(Change { row, server, file: Some(0), pos: reached[usize::from(server)] });
            }
        }
        changes
    })
}

/// Changes, and the same shuffled with some of them repeated. `server` is always the same.
fn shuffled() -> impl Strategy<Value = (Vec<Change>, Vec<Change>)> {
    let changes = prop::collection::vec(change(1), 1..24);
    (changes, prop::collection::vec(any::<prop::sample::Index>(), 0..12)).prop_flat_map(|(changes, more)| {
        let mut all = changes.clone();
        all.extend(more.iter().map(|index| changes[index.index(changes.len())].clone()));
        (Just(changes), Just(all).prop_shuffle())
    })
}
