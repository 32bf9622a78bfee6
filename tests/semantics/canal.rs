//! Canal's flat messages: which rule keeps what. Goal: what the source's page says of its topologies is true, whatever
//! waits for what, and wherever Canal restarts.

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use ratchet::dedup::{Action, Reason, Verdict};
use serde_json::{Value, json};

use Reason::{First, Newer, Seen, VersionEqual, VersionMissing, VersionOlder};

use crate::docs::page_block;
use crate::task::{Given, Task, value};

const PRESET: &str = "preset: canal@1\n";
const SERVER: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";

/// The page's topology that identifies records by their content.
fn by_content() -> String {
    page_block("canal.md", "{fingerprint: value")
}

/// The page's topology that orders transactions by their place in the binlog.
fn by_transaction() -> String {
    page_block("canal.md", "value.gtid")
}

/// A row's change: its transaction (numbered in commit order from 1), the second its statement started, and old and new
/// state.
#[derive(Clone, Debug, PartialEq)]
struct Change {
    transaction: usize,
    second: u64,
    row: u64,
    from: Option<char>,
    to: Option<char>,
}

impl Change {
    /// Its record. `sent` counts deliveries: two fields change with it, and say nothing about the change.
    fn record(&self, sent: u64) -> Given {
        let row = |status: Option<char>| json!({"id": self.row.to_string(), "status": status.map(String::from)});
        let (kind, data, old) = match (self.from, self.to) {
            (None, to) => ("INSERT", row(to), Value::Null),
            (from, None) => ("DELETE", row(from), Value::Null),
            (from, to) => ("UPDATE", row(to), json!([{"status": from.map(String::from)}])),
        };
        let executed = if self.transaction == 1 { "1".to_owned() } else { format!("1-{}", self.transaction) };
        value(json!({
            "id": sent, "ts": 1_700_000_000_000 + sent * 40, "es": self.second * 1000, "isDdl": false,
            "database": "shop", "table": "orders", "pkNames": ["id"], "type": kind,
            "data": [data], "old": old, "gtid": format!("{SERVER}:{executed}"),
        }))
    }
}

fn change(transaction: usize, second: u64, from: char, to: char) -> Change {
    Change { transaction, second, row: 1, from: Some(from), to: Some(to) }
}

fn sent(changes: &[Change]) -> impl Iterator<Item = Given> + '_ {
    changes.iter().zip(1..).map(|(change, sent)| change.record(sent))
}

/// A statement of second 10 waits for a row that a transaction changes in second 11 and then releases.
#[test]
fn statement_that_waited_is_kept_only_by_its_transaction() {
    let history = [change(1, 11, 'a', 'b'), change(2, 10, 'b', 'c')];
    assert_eq!(Task::of(PRESET).reasons(sent(&history)), [First, VersionOlder]);
    assert_eq!(Task::of(&by_content()).reasons(sent(&history)), [First, First]);
    let mut task = Task::of(&by_transaction());
    assert_eq!(task.reasons(sent(&history)), [First, Newer]);
    assert_eq!(task.reasons(sent(&history)), [VersionOlder, VersionEqual]);
}

/// There and back and there again in one transaction of one second looks the same as there and back, with the first
/// redelivered: only what changes with each delivery differs. So no rule is right for both.
#[test]
fn repeated_change_and_redelivery_may_look_the_same() {
    let [there, back] = [change(1, 10, 'a', 'b'), change(1, 10, 'b', 'a')];
    let history = [there.clone(), back, there];
    // By content the third is lost if it is a change; by transaction it is forwarded twice if it is a redelivery.
    assert_eq!(Task::of(&by_content()).reasons(sent(&history)), [First, First, Seen]);
    assert_eq!(Task::of(&by_transaction()).verdicts(sent(&history)), [Verdict::Forwarded; 3]);
}

/// With several servers, a gap in the set, or no set at all, records pass.
#[test]
fn incomparable_transactions_pass() {
    let of = |gtid: Value| {
        let mut record: Value = serde_json::from_slice(&change(7, 10, 'a', 'b').record(1).value.unwrap()).unwrap();
        record["gtid"] = gtid;
        value(record)
    };
    let mut task = Task::of(&by_transaction());
    let known = || of(json!(format!("{SERVER}:1-7")));
    let others = [json!(""), Value::Null, json!(format!("{SERVER}:1-3,4e11fa47-71ca-11e1-9e33-c80aa9429562:1-2"))];
    assert_eq!(task.reasons([known()]), [First]);
    assert_eq!(task.reasons(others.map(of)), [VersionMissing; 3]);
    assert_eq!(task.reasons([known(), of(json!(format!("{SERVER}:1-6")))]), [VersionEqual, VersionOlder]);
    // As numbers of any length: 10 is after 9.
    assert_eq!(
        task.reasons(["10", "9", "100"].map(|last| of(json!(format!("{SERVER}:1-{last}"))))),
        [Newer, VersionOlder, Newer]
    );
}

/// A step: the row it changes, how long its statement waited, what it does, whether a transaction ends before it, and
/// whether a second has passed.
type Steps = Vec<(u64, u64, u8, bool, bool)>;

fn steps() -> impl Strategy<Value = Steps> {
    prop::collection::vec((0..2_u64, 0..3_u64, any::<u8>(), any::<bool>(), any::<bool>()), 2..40)
}

/// The changes in commit order, which is the order Canal sends them in.
fn play(steps: &Steps) -> Vec<Change> {
    let (mut transaction, mut second) = (1, 100);
    let mut rows = [None; 2];
    let mut done = Vec::new();
    for &(row, waited, what, ends, passes) in steps {
        transaction += usize::from(ends && !done.is_empty());
        second += u64::from(passes);
        let from = rows[row as usize];
        let others = [None, Some('a'), Some('b')].into_iter().filter(|state| *state != from);
        let to = others.clone().nth(what as usize % 2).expect("there are two");
        rows[row as usize] = to;
        done.push(Change { transaction, second: second - waited, row, from, to });
    }
    done
}

/// For each run of Canal: how far it gets, and where the next one starts.
type Lives = Vec<(prop::sample::Index, prop::sample::Index)>;

fn lives() -> impl Strategy<Value = Lives> {
    prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 1..6)
}

/// The numbers of the changes in the order sent; each with whether it is sent for the first time.
fn deliveries(count: usize, lives: &Lives) -> Vec<(usize, bool)> {
    let (mut seen, mut begin, mut all) = (0, 0, Vec::new());
    for (end, again) in lives {
        let end = seen.max(end.index(count)) + 1;
        all.extend((begin..end.min(count)).map(|number| (number, number >= seen)));
        seen = end.min(count);
        begin = again.index(seen);
        if seen == count {
            break;
        }
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// By transaction, no change is lost, and a redelivery is forwarded again only if it belongs to the row's newest
    /// transaction.
    #[test]
    fn by_transaction_no_change_is_lost(steps in steps(), lives in lives()) {
        let done = play(&steps);
        let mut task = Task::of(&by_transaction());
        let mut newest = [0; 2];
        for (sent, (number, is_new)) in (1..).zip(deliveries(done.len(), &lives)) {
            let change = &done[number];
            let newest = &mut newest[change.row as usize];
            let decision = task.give(change.record(sent));
            let passes = is_new || change.transaction == *newest;
            prop_assert_eq!(decision.action == Action::Forward, passes, "{:?} of {:?}: {:?}", change, &done, decision);
            *newest = change.transaction.max(*newest);
        }
    }

    /// By content, no record is forwarded twice, and a change is lost only if the same transaction has made the same
    /// change to the same row before, within one second.
    #[test]
    fn by_content_nothing_is_forwarded_twice(steps in steps(), lives in lives()) {
        let done = play(&steps);
        let mut task = Task::of(&by_content());
        for (sent, (number, is_new)) in (1..).zip(deliveries(done.len(), &lives)) {
            let change = &done[number];
            let decision = task.give(change.record(sent));
            let passes = is_new && !done[..number].contains(change);
            prop_assert_eq!(decision.action == Action::Forward, passes, "{:?} of {:?}: {:?}", change, &done, decision);
        }
    }
}

/// The histories above are hard enough: by the statements' times, some of their good changes are dropped.
#[test]
fn by_statement_time_good_changes_are_dropped() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut changes, mut dropped) = (0, 0);
    for _ in 0..300 {
        let done = play(&steps().new_tree(&mut runner).expect("it always generates one").current());
        let verdicts = Task::of(PRESET).verdicts(sent(&done));
        changes += done.len();
        dropped += verdicts.iter().filter(|verdict| **verdict == Verdict::Stale).count();
    }
    assert!(changes > 3000 && dropped > 300, "{dropped} of {changes} dropped");
}
