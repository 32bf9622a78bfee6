//! Changes that share a position, by the presets that tell them apart by their contents. Goal: each of them passes once, what
//! is sent again is dropped, and what has no order is not dropped.

use ratchet::dedup::Reason;
use serde_json::{Value, json};

use Reason::{First, Newer, VersionEqual, VersionOlder, VersionTied};

use crate::presets::{REPAIRING, check_short_story};
use crate::task::{Given, Task, keyed, load, value};

/// Two changes of one position that say other things both pass, once.
#[track_caller]
fn check_tie(preset: &str, mut record: impl FnMut(&str) -> Given) {
    let mut task = Task::of(&format!("preset: {preset}\n"));
    let reasons = ["a", "b", "a", "b"].map(|says| task.give(record(says)).reason);
    assert_eq!(reasons, [First, VersionTied, VersionEqual, VersionEqual], "{preset}");
    assert_eq!(task.output.len(), 2, "{preset}");
}

#[test]
fn newest_presets_forward_ties_once_and_know_each_that_is_sent_again() {
    let position = json!({"name": "shop", "db": "d", "table": "t", "commit_scn": "7", "scn": "7", "lsn": 7,
        "commit_lsn": "00000027:00000ac0:0007", "change_lsn": "00000027:00000ab0:0003", "event_serial_no": 1,
        "file": "mysql-bin.000007", "pos": 7, "row": 0, "server_id": 1});
    for preset in REPAIRING {
        let mut made_at = 0;
        check_tie(preset, |says| {
            let mut source = position.clone();
            if preset.contains("informix") {
                (source["commit_lsn"], source["change_lsn"]) = (json!("7"), json!("3"));
            }
            made_at += 1;
            let after = json!({"id": 1, "says": says});
            keyed(json!({"id": 1}), json!({"op": "u", "after": after, "source": source, "ts_ms": made_at}))
        });
    }
}

/// A message of canal-json from TiCDC, made at `ts`, of one row.
fn ticdc_change(kind: &str, commit: u64, ts: u64, row: Value) -> Given {
    value(
        json!({"id": 0, "database": "d", "table": "t", "pkNames": ["id"], "isDdl": false, "type": kind, "es": 1, "ts": ts,
        "sql": "", "data": [row], "old": null, "_tidb": {"commitTs": commit}}),
    )
}

/// TiCDC splits an update of a unique key into a delete and an insert of one commit.
fn split_update(commit: u64, ts: u64) -> [Given; 2] {
    let row = |name: &str| json!({"id": "2", "name": name});
    [ticdc_change("DELETE", commit, ts, row("old")), ticdc_change("INSERT", commit, ts, row("new"))]
}

#[test]
fn ticdc_by_its_contents() {
    check_short_story("ticdc@2", false, |is_delete, at| {
        let kind = if is_delete { "DELETE" } else { "UPDATE" };
        ticdc_change(kind, 429_918_007_904_436_226 + at, at, json!({"id": "2"}))
    });
}

/// `ts` is when the message was made: another one in each delivery.
#[test]
fn ticdc_forwards_both_halves_of_a_split_update_once() {
    let mut task = Task::of("preset: ticdc@2\n");
    assert_eq!(task.reasons([ticdc_change("INSERT", 6, 100, json!({"id": "2", "name": "old"}))]), [First]);
    assert_eq!(task.reasons(split_update(7, 101)), [Newer, VersionTied]);
    assert_eq!(task.reasons(split_update(7, 102)), [VersionEqual; 2]);
    assert_eq!(task.reasons(split_update(6, 103)), [VersionOlder; 2]);
    assert_eq!(task.output.len(), 3);
    // Two updates of one transaction, which end where the row was before.
    let updates = |ts| ["a", "b"].map(|name| ticdc_change("UPDATE", 8, ts, json!({"id": "2", "name": name})));
    assert_eq!(task.reasons(updates(104)), [Newer, VersionTied]);
    assert_eq!(task.reasons(updates(105)), [VersionEqual; 2]);
    assert_eq!(task.output.len(), 5);
    // The Debezium protocol's envelope has `ts_ms`.
    let debezium = |says: &str, made_at: u64| {
        let source = json!({"db": "d", "table": "t", "commit_ts": 9});
        keyed(
            json!({"id": 3}),
            json!({"op": "u", "after": {"id": 3, "says": says}, "source": source, "ts_ms": made_at}),
        )
    };
    let mut task = Task::of("preset: ticdc@2\n");
    let reasons = task.reasons([debezium("a", 1), debezium("b", 2), debezium("a", 3), debezium("b", 4)]);
    assert_eq!(reasons, [First, VersionTied, VersionEqual, VersionEqual]);
}

/// An identity of one's own without `rows`: what the preset compares of each row is compared of all rows together.
#[test]
fn own_identity_beside_a_preset_with_rows_forwards_nothing_twice() {
    let own = "identity: [value.database, value.table, value.data.0.id]\n";
    let mut task = Task::of(&format!("preset: ticdc@2\n{own}"));
    assert_eq!(task.reasons(split_update(7, 101)), [First, VersionTied]);
    assert_eq!(task.reasons(split_update(7, 102)), [VersionEqual; 2]);
    // The other alternatives of the contents are still there.
    let debezium = |made_at: u64| {
        let source = json!({"db": "d", "table": "t", "commit_ts": 9});
        keyed(json!({"id": 3}), json!({"op": "u", "after": {"id": 3}, "source": source, "ts_ms": made_at}))
    };
    let mut task = Task::of("preset: ticdc@2\nidentity: {content: key}\n");
    assert_eq!(task.reasons([debezium(1), debezium(2)]), [First, VersionEqual]);
    // Canal's `id` and `ts` differ between deliveries.
    let canal = |kind: &str, ts: u64| {
        value(json!({"database": "d", "table": "t", "type": kind, "isDdl": false, "pkNames": ["id"], "id": ts, "es": 7,
            "ts": ts, "data": [{"id": "1"}]}))
    };
    let mut task = Task::of(&format!("preset: canal@1\n{own}on_equal: drop\n"));
    let reasons = task.reasons([canal("INSERT", 1), canal("UPDATE", 2), canal("INSERT", 3), canal("UPDATE", 4)]);
    assert_eq!(reasons, [First, VersionTied, VersionEqual, VersionEqual]);
}

/// A row of a changefeed in the wrapped envelope; a delete has no row after it.
fn cockroach(after: Value, logical: u64) -> Given {
    keyed(json!([1]), json!({"after": after, "updated": format!("1700000000000000000.{logical:010}")}))
}

#[test]
fn cockroachdb() {
    check_short_story("cockroachdb@1", false, |is_delete, at| {
        cockroach(if is_delete { Value::Null } else { json!({"id": 1, "at": at}) }, at)
    });
    check_tie("cockroachdb@1", |says| cockroach(json!({"id": 1, "says": says}), 7));
    // What has no order or no key passes.
    let mut task = Task::of("preset: cockroachdb@1\n");
    let plain = || keyed(json!([1]), json!({"after": {"id": 1}}));
    let resolved = || value(json!({"resolved": "1700000000000000000.0000000000"}));
    let reasons = task.reasons([plain(), plain(), resolved(), resolved()]);
    let (none, keyless) = (Reason::VersionMissing, Reason::IdentityMissing);
    assert_eq!(reasons, [none, none, keyless, keyless]);
    assert_eq!(task.output.len(), 4);
}

/// Its deletes cannot be told from other changes by a field, so no copy of a table would be right.
#[test]
fn cockroachdb_refuses_to_keep_a_table() {
    let table = "preset: cockroachdb@1\nsink: {postgres: {url: 'postgres://db/shop', table: {name: t, key: [id]}}}\n";
    let refused = load(table).expect_err("no table can be kept").render(false);
    let words = "the records of cockroachdb have no field whose value says that a row was deleted, which `table` needs";
    assert!(refused.contains(words), "{refused}");
}

/// Changes of a compressed transaction share a position, and their numbers begin again with each statement.
#[test]
fn mysql_change_of_a_shared_position_is_older_by_its_number_and_tied_by_its_contents() {
    let at = |row: u64, says: &str| {
        let source = json!({"name": "shop", "server_id": 1, "file": "mysql-bin.000003", "pos": 500, "row": row});
        keyed(json!({"id": 1}), json!({"op": "u", "after": {"id": 1, "says": says}, "source": source}))
    };
    for preset in ["debezium-mysql@1", "debezium-mysql@2", "debezium-mariadb@3"] {
        let mut task = Task::of(&format!("preset: {preset}\n"));
        let reasons = task.reasons([at(2, "a"), at(0, "b"), at(2, "c"), at(2, "a")]);
        assert_eq!(reasons, [First, VersionOlder, VersionTied, VersionEqual], "{preset}");
    }
}

/// Records of the schema change topic are no rows: those of one position all pass, and again when they are sent again.
#[test]
fn mysql_schema_changes_pass_and_repeat() {
    let at = |ddl: &str, made_at: u64| {
        let source = json!({"name": "shop", "server_id": 1, "file": "mysql-bin.000003", "pos": 500, "row": 0});
        keyed(
            json!({"databaseName": "d"}),
            json!({"source": source, "ts_ms": made_at, "databaseName": "d", "ddl": ddl}),
        )
    };
    for preset in ["debezium-mysql@1", "debezium-mysql@2", "debezium-mariadb@1", "debezium-mariadb@3"] {
        let mut task = Task::of(&format!("preset: {preset}\n"));
        let reasons = task.reasons([at("CREATE TABLE a", 1), at("CREATE TABLE b", 2), at("CREATE TABLE b", 3)]);
        assert_eq!(reasons, [First, VersionTied, VersionTied], "{preset}");
    }
}
