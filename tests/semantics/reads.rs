//! The effect of snapshots' reads on a table, in captures of real connectors: a second snapshot mid-stream, after
//! changes that no other record shows, and an incremental one. Goal: reads repair rows, and a repetition does not undo
//! that; the exceptions are listed exactly.

use std::collections::BTreeMap;

use ratchet::dedup::Action;
use serde_json::Value;

use crate::real;
use crate::task::{Given, Task};

/// The order that was changed while the connector had lost its offsets: only the second snapshot shows its last revision.
const CHANGED_UNSEEN: i64 = 7;
/// The order that was changed after the incremental snapshot had read it.
const CHANGED_AFTER_READ: i64 = 1;

/// The records of a capture's orders.
fn orders(capture: &str) -> Vec<Given> {
    let of_orders = |name: &str| name.starts_with(capture) && name.ends_with(".orders");
    let mut found: Vec<_> = real::histories().into_iter().filter(|(name, ..)| of_orders(name)).collect();
    assert_eq!(found.len(), 1, "histories of {capture}'s orders");
    found.remove(0).2
}

/// The number of each record that is forwarded.
fn forwarded(task: &mut Task, records: Vec<Given>) -> Vec<usize> {
    let decisions = records.into_iter().map(|given| task.give(given).action);
    decisions.enumerate().filter(|(_, action)| *action == Action::Forward).map(|(nth, _)| nth).collect()
}

/// A topology by this preset, with this word for reads.
fn topology(preset: &str, reads: &str) -> String {
    format!(
        "name: orders
preset: {preset}
input: {{topics: [shop.orders]}}
output: {{topic: orders.clean}}
kinds:
  of: value.op
  delete: [d]
  read: [r]
  reads: {reads}
  truncate: [t]
  table: [value.source.db, value.source.table]
"
    )
}

/// The revision of each order in the output's table.
fn revisions(task: &Task) -> BTreeMap<i64, i64> {
    let payload = |value: &Value| value.get("payload").unwrap_or(value).clone();
    let table = task.table(|value| payload(value)["op"] == "d");
    let number = |value: &Value| value.as_i64().expect("a number");
    let row = |value: &Value| (number(&payload(value)["after"]["id"]), number(&payload(value)["after"]["revision"]));
    table.values().map(row).collect()
}

/// The table after everything was given once, and after all of it was sent again.
fn twice(capture: &str, preset: &str, reads: &str) -> [BTreeMap<i64, i64>; 2] {
    let mut task = Task::of(&topology(preset, reads));
    [(); 2].map(|()| {
        for given in orders(capture) {
            task.give(given);
        }
        revisions(&task)
    })
}

const BOTH: [(&str, &str); 2] = [("postgres", "debezium-postgres@2"), ("mariadb", "debezium-mariadb@2")];

#[test]
fn a_second_snapshots_reads_repair_a_row_by_their_version_and_lose_otherwise() {
    for (capture, preset) in BOTH {
        let ([right, _], [old, _]) = (twice(capture, preset, "by_version"), twice(capture, preset, "lose"));
        assert_eq!(right[&CHANGED_UNSEEN], 19, "{capture}");
        assert_eq!(old[&CHANGED_UNSEEN], 13, "{capture}");
        let differing = right.iter().filter(|(id, revision)| old.get(id) != Some(revision)).count();
        assert_eq!((differing, right.len()), (1, old.len()), "{capture}: {right:?}, {old:?}");
    }
}

/// MariaDB's reads all have a position.
#[test]
fn what_is_sent_again_brings_no_row_back_where_reads_have_positions() {
    for reads in ["by_version", "lose"] {
        let [once, again] = twice("mariadb", "debezium-mariadb@2", reads);
        assert_eq!(once, again, "{reads}");
    }
}

/// The page on snapshots warns of it.
#[test]
fn an_incremental_read_without_a_position_brings_an_older_row_back_when_it_is_sent_again() {
    let [once, again] = twice("postgres", "debezium-postgres@2", "by_version");
    let of = |id| (once[&id], again[&id]);
    assert_eq!((of(CHANGED_AFTER_READ), of(CHANGED_UNSEEN)), ((20, 16), (19, 13)));
    let differing = once.iter().filter(|(id, revision)| again.get(id) != Some(revision)).count();
    assert_eq!((differing, once.len()), (2, again.len()), "{once:?}, {again:?}");
}

/// The newest presets alone, as their pages write them: the reads repair the copy, and all of it sent again is known.
#[test]
fn newest_presets_repair_the_copy_and_forward_nothing_that_is_sent_again() {
    for (capture, preset) in [("postgres", "debezium-postgres@3"), ("mariadb", "debezium-mariadb@3")] {
        let mut task = Task::of(&format!("name: orders\npreset: {preset}\n"));
        assert!(!forwarded(&mut task, orders(capture)).is_empty());
        let once = revisions(&task);
        assert_eq!((once[&CHANGED_AFTER_READ], once[&CHANGED_UNSEEN]), (20, 19), "{capture}");
        assert_eq!(forwarded(&mut task, orders(capture)), [0; 0], "{capture}");
        let again = revisions(&task);
        assert_eq!(once, again, "{capture}");
        // From any place on, too: a connector that restarts sends the end of the topic again.
        for from in (0..orders(capture).len()).step_by(7) {
            let tail = orders(capture).split_off(from);
            assert_eq!(forwarded(&mut task, tail), [0; 0], "{capture} from {from} on");
        }
    }
}

/// The whole copy is that of the reads by their version, which other presets have by hand.
#[test]
fn newest_presets_copy_what_reads_by_version_copy() {
    for (capture, newest, before) in [
        ("postgres", "debezium-postgres@3", "debezium-postgres@2"),
        ("mariadb", "debezium-mariadb@3", "debezium-mariadb@2"),
    ] {
        let mut task = Task::of(&format!("name: orders\npreset: {newest}\n"));
        task.reasons(orders(capture));
        let [by_hand, _] = twice(capture, before, "by_version");
        assert_eq!(revisions(&task), by_hand, "{capture}");
    }
}
