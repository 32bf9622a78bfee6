//! From 11.4 on MariaDB writes a transaction's changes without positions, unless configured otherwise. Goal: whatever
//! Debezium does with that, `debezium-mariadb@2` drops no change silently, except where its page says so; and the
//! page's topology for such a server loses none.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use ratchet::dedup::{Action, Reason, Verdict};
use serde_json::{Value, json};

use Reason::{First, Newer, VersionEqual, VersionMalformed, VersionOlder};

use crate::docs::page_block;
use crate::task::{Given, Task, keyed};

const PRESET: &str = "preset: debezium-mariadb@2\n";

fn change(id: u64, (file, position, row): (u64, i64, usize), note: Value) -> Given {
    let file = format!("binlog.{file:06}");
    let source =
        json!({"name": "store", "server_id": 77, "db": "d", "table": "t", "file": file, "pos": position, "row": row});
    keyed(json!({"id": id}), json!({"op": "u", "after": {"id": id, "note": note}, "source": source}))
}

fn at(position: i64) -> Given {
    change(1, (7, position, 0), Value::Null)
}

#[test]
fn negative_position_is_invalid_and_changes_nothing() {
    let mut task = Task::of(PRESET);
    let reasons = task.reasons([at(-58), at(0), at(-58), at(300), at(-1), at(300), at(200)]);
    let malformed = VersionMalformed;
    assert_eq!(reasons, [malformed, First, malformed, Newer, malformed, VersionEqual, VersionOlder]);
    let decision = task.give(at(-58));
    assert_eq!((decision.verdict, decision.action), (Verdict::Invalid, Action::DeadLetter));
    // Version 1 keeps its meaning; its warning is about this.
    let mut first = Task::of("preset: debezium-mariadb@1\n");
    assert_eq!(first.reasons([at(-58), at(-58), at(300), at(-1)]), [First, VersionEqual, Newer, VersionOlder]);
}

#[test]
fn flattened_records_are_equivalent() {
    for names in [["__file", "__pos"], ["__source_file", "__source_pos"]] {
        for position in [json!(-58), json!("-58")] {
            let mut value = json!({"id": 1, "__op": "u", "__name": "store"});
            (value[names[0]], value[names[1]]) = (json!("binlog.000007"), position);
            assert_eq!(Task::of(PRESET).reasons([keyed(json!({"id": 1}), value)]), [VersionMalformed], "{names:?}");
        }
    }
}

/// Debezium's connector for MySQL reads MariaDB as well; its page has this block for it.
#[test]
fn mysql_pages_block_rejects_negative_positions() {
    let mut task = Task::of(&page_block("debezium-mysql.md", "min: 0"));
    assert_eq!(
        task.reasons([at(-58), at(300), at(-58), at(300)]),
        [VersionMalformed, First, VersionMalformed, VersionEqual]
    );
}

/// Maxwell subtracts the event's length from its end, too.
#[test]
fn negative_position_of_maxwell_is_invalid() {
    let row = |position: &str| {
        let key = json!({"database": "d", "table": "t", "pk.id": 1});
        keyed(key, json!({"database": "d", "table": "t", "type": "update", "position": position, "xoffset": 0}))
    };
    let reasons = Task::of("preset: maxwell@1\n").reasons([row("binlog.000007:-58"), row("binlog.000007:300")]);
    assert_eq!(reasons, [VersionMalformed, First]);
}

/// What Debezium does with an event that does not say where it ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Release {
    /// It subtracts the length from 0.
    Before332,
    /// It keeps the position of the event before: the one that begins the transaction.
    From332,
}

/// A transaction: its statements, each with the rows that it changes.
type Transaction = Vec<Vec<u64>>;

/// What happens in the server.
#[derive(Clone, Debug)]
enum Step {
    Commit(Transaction),
    /// It restarts, with `binlog_legacy_event_pos` or without.
    Restart(bool),
}

/// A delivered change, and whether its position is negative.
#[derive(Clone, Debug)]
struct Delivered {
    given: Given,
    is_negative: bool,
}

/// Every change in the binlog's order.
fn binlog(steps: &[Step], starts_legacy: bool, release: Release) -> Vec<Delivered> {
    let (mut file, mut position, mut is_legacy, mut all) = (7, 4, starts_legacy, Vec::new());
    for step in steps {
        let transaction = match step {
            Step::Restart(legacy) => {
                (file, position, is_legacy) = (file + 1, 4, *legacy);
                continue;
            }
            Step::Commit(transaction) => transaction,
        };
        let begun = position;
        position += 42;
        for (nth, rows) in transaction.iter().enumerate() {
            let length = 30 + 11 * rows.len() as i64 + nth as i64 % 2;
            let place = match release {
                _ if is_legacy => position,
                Release::Before332 => -length,
                Release::From332 => begun,
            };
            position += length;
            for (row, id) in rows.iter().enumerate() {
                let given = change(*id, (file, place, row), json!(all.len()));
                all.push(Delivered { given, is_negative: place < 0 });
            }
        }
        position += 31;
    }
    all
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let statement = prop::sample::subsequence(vec![0_u64, 1, 2], 1..=3);
    let transaction = prop::collection::vec(statement, 1..4);
    let step = prop_oneof![9 => transaction.prop_map(Step::Commit), 1 => any::<bool>().prop_map(Step::Restart)];
    prop::collection::vec(step, 2..25)
}

/// Where the connector is killed, and from where it delivers again.
fn lives() -> impl Strategy<Value = Vec<(prop::sample::Index, prop::sample::Index)>> {
    prop::collection::vec(any::<(prop::sample::Index, prop::sample::Index)>(), 0..4)
}

/// The numbers of the changes in the order of delivery.
fn deliveries(count: usize, lives: &[(prop::sample::Index, prop::sample::Index)]) -> Vec<usize> {
    let (mut all, mut next) = (Vec::new(), 0);
    for (killed, again) in lives {
        let killed = next.max(killed.index(count) + 1);
        all.extend(next..killed);
        next = again.index(killed);
    }
    all.extend(next..count);
    all
}

/// The last note of each row.
fn notes(given: impl IntoIterator<Item = Given>) -> BTreeMap<Vec<u8>, Value> {
    let value = |given: &Given| serde_json::from_slice::<Value>(given.value.as_deref().unwrap()).unwrap();
    given.into_iter().map(|given| (given.key.clone().unwrap(), value(&given)["after"]["note"].clone())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    /// Each change is forwarded when it first comes, or is invalid; none is forwarded twice.
    #[test]
    fn negative_positions_drop_no_change_silently(
        steps in steps(), legacy in any::<bool>(), lives in lives(),
    ) {
        let all = binlog(&steps, legacy, Release::Before332);
        prop_assume!(!all.is_empty());
        let (mut task, mut seen) = (Task::of(PRESET), 0);
        for number in deliveries(all.len(), &lives) {
            let Delivered { given, is_negative } = all[number].clone();
            let decision = task.give(given);
            let expected = match (is_negative, number >= seen) {
                (true, _) => Action::DeadLetter,
                (false, true) => Action::Forward,
                (false, false) => Action::Drop,
            };
            prop_assert_eq!(decision.action, expected, "change {} of {:?}: {:?}", number, &all, decision);
            prop_assert_eq!(decision.reason == VersionMalformed, is_negative);
            seen = seen.max(number + 1);
        }
    }

    /// The page's topology for a server without the setting, with Debezium from 3.3.2 on.
    #[test]
    fn pages_topology_loses_no_change_if_transactions_have_one_position(
        steps in steps(), legacy in any::<bool>(), lives in lives(),
    ) {
        let all = binlog(&steps, legacy, Release::From332);
        prop_assume!(!all.is_empty());
        let (mut task, mut seen) = (Task::of(&page_block("debezium-mariadb.md", "on_equal: forward")), 0);
        for number in deliveries(all.len(), &lives) {
            let decision = task.give(all[number].given.clone());
            prop_assert!(number < seen || decision.action == Action::Forward, "change {} of {:?}", number, &all);
            seen = seen.max(number + 1);
        }
        prop_assert_eq!(notes(task.output), notes(all.into_iter().map(|delivered| delivered.given)));
    }
}

/// The histories above are hard enough: with other rules, some of their good changes are dropped.
#[test]
fn good_changes_are_dropped_by_1_or_if_transactions_have_one_position() {
    let dropped = |preset: &str, release| {
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        let histories = (0..300).map(|_| steps().new_tree(&mut runner).expect("it always generates one").current());
        let verdicts = histories.flat_map(|steps| {
            let all = binlog(&steps, false, release).into_iter().map(|delivered| delivered.given);
            Task::of(preset).verdicts(all)
        });
        verdicts.filter(|verdict| matches!(verdict, Verdict::Stale | Verdict::Duplicate)).count()
    };
    assert_eq!(dropped(PRESET, Release::Before332), 0);
    let (by_1, by_2) = (dropped("preset: debezium-mariadb@1\n", Release::Before332), dropped(PRESET, Release::From332));
    assert!(by_1 > 500 && by_2 > 500, "{by_1} by 1, {by_2} by 2");
}
