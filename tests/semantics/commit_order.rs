//! PostgreSQL's changes come in commit order, in which their log positions do not always rise. Goal: with
//! `debezium-postgres@2` every change is forwarded when it first comes, and dropped when it comes again, whatever waits
//! for what, and wherever the connector restarts.

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use ratchet::dedup::{Action, Reason, Verdict};
use serde_json::{Value, json};

use Reason::{First, Newer, TombstoneNotOwed, VersionEqual, VersionOlder};

use crate::task::{Given, Task, keyed, tombstone};

const PRESET: &str = "preset: debezium-postgres@2\n";

/// A change of row 1 at `lsn`, with this `sequence`.
fn change(op: &str, sequence: Value, lsn: u64) -> Given {
    row(1, op, sequence, lsn)
}

fn row(id: u64, op: &str, sequence: Value, lsn: u64) -> Given {
    let source = json!({"name": "shop", "db": "d", "schema": "s", "table": "t", "sequence": sequence, "lsn": lsn});
    keyed(json!({"id": id}), json!({"op": op, "after": {"id": id}, "source": source}))
}

/// As Debezium writes it since 1.7: the last commit, and the change.
fn sequence(commit: Option<u64>, lsn: u64) -> Value {
    let text = |number: u64| json!(number.to_string());
    json!(json!([commit.map(text), text(lsn)]).to_string())
}

/// One transaction updates row 1 (100), another one inserts it and waits (110), the first one deletes it (120) and
/// commits (130); 90 is the commit before.
fn an_insert_that_waited(sequence: impl Fn(u64, u64) -> Value) -> [Given; 4] {
    [
        change("u", sequence(90, 100), 100),
        change("d", sequence(90, 120), 120),
        tombstone(json!({"id": 1})),
        change("c", sequence(130, 110), 110),
    ]
}

#[test]
fn insert_that_waited_for_a_deleted_key_is_kept() {
    let history = || an_insert_that_waited(|commit, lsn| sequence(Some(commit), lsn));
    let mut task = Task::of(PRESET);
    assert_eq!(task.reasons(history()), [First, Newer, Reason::Tombstone, Newer]);
    assert_eq!(task.reasons(history()), [VersionOlder, VersionOlder, TombstoneNotOwed, VersionEqual]);
    // Version 1 keeps its meaning; its warning is about this.
    let mut first = Task::of("preset: debezium-postgres@1\n");
    assert_eq!(first.reasons(history()), [First, Newer, Reason::Tombstone, VersionOlder]);
}

/// Debezium 1.5 and 1.6 repeat the last commit in the second element.
#[test]
fn releases_that_repeat_the_commit_keep_the_order() {
    let repeated = |commit: u64, _| sequence(Some(commit), commit);
    let mut task = Task::of(PRESET);
    assert_eq!(task.reasons(an_insert_that_waited(repeated)), [First, Newer, Reason::Tombstone, Newer]);
    // Within one transaction `lsn` decides: the second element does not say.
    let mut task = Task::of(PRESET);
    let twice = || [change("u", repeated(90, 0), 100), change("u", repeated(90, 0), 105)];
    assert_eq!(task.reasons(twice()), [First, Newer]);
    assert_eq!(task.reasons(twice()), [VersionOlder, VersionEqual]);
}

/// Without a sequence (releases before 1.5, flattened records without it) only the log's order is known.
#[test]
fn without_a_sequence_the_order_of_the_log_decides() {
    for nothing in [Value::Null, json!("[]"), json!("[null,null]")] {
        let mut task = Task::of(PRESET);
        let given = [change("u", nothing.clone(), 100), change("u", nothing.clone(), 100), change("u", nothing, 99)];
        assert_eq!(task.reasons(given), [First, VersionEqual, VersionOlder]);
    }
}

#[test]
fn flattened_records_are_equivalent() {
    let flat = |names: [&str; 2], commit: Option<u64>, lsn: u64| {
        let mut value = json!({"id": 1, "__op": "u", "__name": "shop", "__db": "d"});
        (value[names[0]], value[names[1]]) = (json!(lsn), sequence(commit, lsn));
        keyed(json!({"id": 1}), value)
    };
    for names in [["__lsn", "__sequence"], ["__source_lsn", "__source_sequence"]] {
        let mut task = Task::of(PRESET);
        let given =
            [flat(names, Some(90), 120), flat(names, Some(130), 110), change("u", sequence(Some(130), 110), 110)];
        assert_eq!(task.reasons(given), [First, Newer, VersionEqual], "{names:?}");
    }
}

/// A connector that restarts within its first transaction takes the last change for the previous commit.
#[test]
fn first_transaction_is_recognised_after_a_restart_within_it() {
    let at = |commit: Option<u64>, lsn: u64| change("u", sequence(commit, lsn), lsn);
    let mut task = Task::of(PRESET);
    assert_eq!(task.reasons([at(None, 100), at(None, 120)]), [First, Newer]);
    // It had stored its offsets at 110, at another row's change.
    assert_eq!(task.reasons([at(Some(110), 120), at(Some(110), 130)]), [VersionEqual, Newer]);
    assert_eq!(task.reasons([at(None, 100), at(None, 120), at(None, 130)]), [VersionOlder, VersionOlder, VersionEqual]);
}

#[test]
fn reads_without_a_position_pass_and_change_nothing() {
    let mut task = Task::of(PRESET);
    let read = || {
        let source = json!({"name": "shop", "db": "d", "sequence": sequence(Some(130), 130), "lsn": null});
        keyed(json!({"id": 1}), json!({"op": "r", "after": {"id": 1}, "source": source}))
    };
    let streamed = || change("u", sequence(Some(130), 110), 110);
    let reasons = task.reasons([streamed(), read(), streamed(), read()]);
    assert_eq!(reasons, [First, Reason::VersionMissing, VersionEqual, Reason::VersionMissing]);
}

/// A truncate waits for every transaction that has changed its table, and later ones wait for the truncate.
#[test]
fn truncates_and_messages_are_identified_by_the_same_positions() {
    let truncate = |commit, lsn| Given { key: None, ..row(0, "t", sequence(commit, lsn), lsn) };
    let message = |commit, lsn| row(9, "m", sequence(commit, lsn), lsn);
    let mut task = Task::of(PRESET);
    let given = [
        row(1, "c", sequence(Some(90), 80), 80),
        truncate(Some(100), 110),
        truncate(Some(100), 110),
        row(1, "c", sequence(Some(90), 80), 80),
        row(2, "c", sequence(Some(90), 85), 85),
        row(3, "c", sequence(Some(120), 105), 105),
    ];
    let truncated = Reason::TableTruncated;
    assert_eq!(task.reasons(given), [First, First, VersionEqual, truncated, truncated, First]);
    let messages = [message(None, 200), message(Some(150), 200), message(Some(200), 200), message(Some(200), 210)];
    assert_eq!(task.reasons(messages), [First, Reason::Seen, Reason::Seen, First]);
}

/// A transaction as a connector delivers it: its changes (row, whether it is a delete, position), and the position of
/// its commit.
#[derive(Clone, Debug)]
struct Transaction {
    changes: Vec<(u64, bool, u64)>,
    committed: u64,
}

/// A database with concurrent transactions.
#[derive(Default)]
struct Database {
    position: u64,
    open: Vec<Open>,
    /// In commit order.
    done: Vec<Transaction>,
    rows: [bool; ROWS],
    waits: usize,
}

#[derive(Debug, Default)]
struct Open {
    number: usize,
    changes: Vec<(u64, bool, u64)>,
    /// The key it waits for, and the number of the transaction that holds it.
    waits: Option<(u64, usize)>,
}

const ROWS: usize = 3;

impl Database {
    fn write(&mut self, by: usize, row: u64, is_delete: bool) {
        self.position += 7;
        self.open[by].changes.push((row, is_delete, self.position));
    }

    fn last_of(&self, by: usize, row: u64) -> Option<bool> {
        self.open[by].changes.iter().rev().find(|(changed, ..)| *changed == row).map(|(_, is_delete, _)| *is_delete)
    }

    /// One step of one of up to three transactions: a change, a wait, or its commit.
    fn step(&mut self, number: usize, who: usize, row: u64, what: u8) {
        if self.open.len() < 3 && what.is_multiple_of(3) {
            self.open.push(Open { number, ..Open::default() });
        }
        let Some(by) = who.checked_rem(self.open.len()) else { return };
        if self.open[by].waits.is_some() {
            return;
        }
        if what > 7 {
            return self.commit(by);
        }
        let is_there = self.last_of(by, row).map_or(self.rows[row as usize], |deleted| !deleted);
        // A transaction that waits for a key has written its row, but does not hold the key.
        let holds = |open: &Open| open.waits.is_none_or(|(key, _)| key != row);
        let has_changed = |&other: &usize| other != by && self.last_of(other, row).is_some();
        let holder = (0..self.open.len()).filter(has_changed).find(|&other| holds(&self.open[other]));
        match holder {
            None => self.write(by, row, is_there && what > 4),
            // The row goes to the log before the wait. Only one waits at a time, and never for one that waits itself.
            Some(other) if self.open[other].waits.is_none() => {
                let (holder, waited) = (self.open[other].number, self.open.iter().any(|open| open.waits.is_some()));
                if !waited {
                    self.write(by, row, false);
                    self.open[by].waits = Some((row, holder));
                }
            }
            Some(_) => {}
        }
    }

    fn commit(&mut self, by: usize) {
        let Open { number, changes, .. } = self.open.remove(by);
        for (row, is_delete, _) in &changes {
            self.rows[*row as usize] = !is_delete;
        }
        // The waiting one continues if the key is now free; otherwise it violates the index and is rolled back.
        let waiting = |open: &Open| open.waits.is_some_and(|(_, holder)| holder == number);
        if let Some(at) = self.open.iter().position(waiting) {
            let (row, _) = self.open[at].waits.take().expect("it waits");
            if self.rows[row as usize] {
                self.open.remove(at);
            } else {
                self.waits += 1;
            }
        }
        if !changes.is_empty() {
            self.position += 3;
            self.done.push(Transaction { changes, committed: self.position });
        }
    }
}

/// Where a connector restarts.
#[derive(Clone, Copy, Debug)]
enum Again {
    /// Behind the change with this number, whose offsets it had stored.
    Behind(usize),
    /// At a delivered transaction, from a slot that survived while the offsets were lost.
    WithoutOffsets(usize),
}

/// The changes as delivered after that restart: the previous transaction is known by its commit, if there is one.
fn delivered(done: &[Transaction], again: Option<Again>) -> Vec<(usize, Given)> {
    let (mut all, mut number) = (Vec::new(), 0);
    let mut stored: Option<u64> = None;
    for (nth, transaction) in done.iter().enumerate() {
        let before = nth.checked_sub(1).map(|before| done[before].committed);
        for (row_changed, is_delete, lsn) in &transaction.changes {
            let commit = match again {
                // In the very first transaction no commit is stored, and it takes the change for one.
                Some(Again::Behind(_)) => before.or(stored),
                Some(Again::WithoutOffsets(first)) if first == nth => None,
                _ => before,
            };
            let is_left_out = match again {
                None => false,
                Some(Again::Behind(last)) => number <= last,
                Some(Again::WithoutOffsets(first)) => nth < first,
            };
            if !is_left_out {
                let op = if *is_delete { "d" } else { "u" };
                all.push((number, row(*row_changed, op, sequence(commit, *lsn), *lsn)));
            } else if nth == 0 {
                stored = Some(*lsn);
            }
            number += 1;
        }
    }
    all
}

/// How many transactions are complete once this many changes were delivered.
fn whole(done: &[Transaction], changes: usize) -> usize {
    let ends = done.iter().scan(0, |end, transaction| {
        *end += transaction.changes.len();
        Some(*end)
    });
    ends.take_while(|end| *end <= changes).count()
}

type Steps = Vec<(usize, u64, u8)>;

fn play(steps: &Steps) -> Database {
    let mut database = Database { position: 1000, ..Database::default() };
    for (number, (who, row, what)) in steps.iter().enumerate() {
        database.step(number, *who, *row, *what);
    }
    database
}

fn steps() -> impl Strategy<Value = Steps> {
    prop::collection::vec((0..3_usize, 0..ROWS as u64, 0..11_u8), 20..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn each_change_is_forwarded_once_despite_waits_and_restarts(
        steps in steps(),
        lives in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<bool>()), 1..6),
    ) {
        let done = play(&steps).done;
        let count: usize = done.iter().map(|transaction| transaction.changes.len()).sum();
        prop_assume!(count > 1);
        let mut task = Task::of(PRESET);
        let (mut seen, mut again) = (0, None);
        for (end, begin, without_offsets) in lives {
            // Up to some change, at least one of them new; then it is killed.
            let end = seen.max(end.index(count)) + 1;
            for (number, given) in delivered(&done, again).into_iter().take_while(|(number, _)| *number < end) {
                let decision = task.give(given);
                let is_new = number >= seen;
                prop_assert_eq!(
                    decision.action == Action::Forward, is_new,
                    "change {} of {:?}, after {:?}: {:?}", number, &done, again, decision
                );
                seen = seen.max(number + 1);
            }
            let whole = whole(&done, seen);
            // Losing the offsets within a transaction is another matter: see the page.
            let is_between = done[..whole].iter().map(|transaction| transaction.changes.len()).sum::<usize>() == seen;
            again = Some(match without_offsets && is_between && whole > 0 {
                true => Again::WithoutOffsets(begin.index(whole)),
                false => Again::Behind(begin.index(seen)),
            });
            if seen == count {
                break;
            }
        }
    }
}

/// The histories above are hard enough: by the log's order alone, some of their good changes are dropped.
#[test]
fn by_log_order_good_changes_are_dropped() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut waits, mut dropped) = (0, 0);
    for _ in 0..300 {
        let steps = steps().new_tree(&mut runner).expect("it always generates one").current();
        let database = play(&steps);
        let mut task = Task::of("preset: debezium-postgres@1\n");
        let verdicts = task.verdicts(delivered(&database.done, None).into_iter().map(|(_, given)| given));
        waits += database.waits;
        dropped += verdicts.iter().filter(|verdict| **verdict == Verdict::Stale).count();
    }
    assert!(waits > 100 && dropped > 50, "{waits} waits, {dropped} dropped");
}
