//! Systems that drop what is older than what they know.

use std::collections::BTreeMap;

use ratchet::dedup::{Reason, Verdict};
use serde_json::{Value, json};

use Verdict::{Duplicate, Forwarded, Invalid, Stale};

use crate::task::{Given, Task, keyed, value};

/// Rows with a sequence within a source, and deletes.
const ROWS: &str = "
input: {topics: [cdc], key_format: json}
identity: {content: key}
version: {of: value.seq, as: integer}
epoch: value.source
kinds: {of: value.op, delete: [delete]}
";

fn row(id: i64, op: &str, seq: i64) -> Given {
    keyed(json!({"id": id}), json!({"op": op, "source": "a", "seq": seq, "name": format!("{op}{id}")}))
}

fn names(task: &Task) -> BTreeMap<String, Value> {
    let table = task.table(|value| value["op"] == "delete");
    table.into_iter().map(|(key, value)| (key, value["name"].clone())).collect()
}

/// Hazelcast Jet, `CdcSinksTest`: `updateBeforeSync`-like orders; state per key is (source, sequence).
#[test]
fn hazelcast_jet_cdc_sinks_test_update_then_sync() {
    let mut task = Task::of(ROWS);
    assert_eq!(task.verdicts([row(1, "update", 2), row(1, "sync", 0)]), [Forwarded, Stale]);
    assert_eq!(names(&task)[r#"{"id":1}"#], "update1");
}

/// Hazelcast Jet, `CdcSinksTest`: a delete is a version like any other.
#[test]
fn hazelcast_jet_cdc_sinks_test_delete_then_insert() {
    let mut task = Task::of(ROWS);
    assert_eq!(task.verdicts([row(1, "delete", 3), row(1, "insert", 1)]), [Forwarded, Stale]);
    assert!(names(&task).is_empty());
}

/// Hazelcast Jet, `CdcSinksTest`: the changes of two keys, in reverse.
#[test]
fn hazelcast_jet_cdc_sinks_test_two_keys_reversed() {
    let mut task = Task::of(ROWS);
    task.verdicts([row(2, "delete", 3), row(1, "update", 2), row(2, "insert", 1), row(1, "sync", 0)]);
    assert_eq!(names(&task), BTreeMap::from([(r#"{"id":1}"#.to_owned(), json!("update1"))]));
}

/// Hazelcast Jet, `WriteCdcP`: another source's sequence restarts at 0 and is accepted.
#[test]
fn hazelcast_jet_write_cdc_p_the_source_changes() {
    let mut task = Task::of(ROWS);
    let after = keyed(json!({"id": 1}), json!({"op": "insert", "source": "b", "seq": 0, "name": "new"}));
    assert_eq!(task.reasons([row(1, "update", 7), after]), [Reason::First, Reason::EpochChanged]);
    assert_eq!(names(&task)[r#"{"id":1}"#], "new");
}

/// Hazelcast Jet compares with a strict `>`: an equal sequence is dropped, as it is here by default.
#[test]
fn hazelcast_jet_write_cdc_p_an_equal_sequence_is_dropped() {
    let mut task = Task::of(ROWS);
    assert_eq!(task.verdicts([row(1, "update", 2), row(1, "sync", 2)]), [Forwarded, Duplicate]);
}

/// The binlog position in one text, as in Hudi's `_event_seq`, but preceded by the file's name.
const BINLOG: &str = "
identity: value.id
version: {of: value.at, as: binlog}
";

fn at_binlog(at: &str) -> Given {
    let (file, position) = at.split_once('.').expect("FILE.POSITION");
    value(json!({"id": 1, "at": format!("mysql-bin.{file}:{position}")}))
}

#[track_caller]
fn hudi_mysql(current: &str, incoming: &str, replaces: bool) {
    let verdicts = Task::of(BINLOG).verdicts([at_binlog(current), at_binlog(incoming)]);
    assert_eq!(verdicts, [Forwarded, if replaces { Forwarded } else { Stale }], "{current} vs {incoming}");
}

/// Hudi, `TestMySqlDebeziumAvroPayload`: the file decides before the position.
#[test]
fn hudi_mysql_debezium_payload_a_later_file_stays() {
    hudi_mysql("2.100", "1.200", false);
    hudi_mysql("1.200", "2.100", true);
}

/// Hudi, `TestMySqlDebeziumAvroPayload` and apache/hudi#9475: positions are numbers. As text `"0.23"` would come after
/// `"0.123"`, and the change would be lost.
#[test]
fn hudi_mysql_debezium_payload_positions_are_numbers() {
    hudi_mysql("1.100", "1.50", false);
    hudi_mysql("0.23", "0.123", true);
    hudi_mysql("0.1", "0.10", true);
    hudi_mysql("0.10", "0.1", false);
}

/// Hudi, `TestMySqlDebeziumAvroPayload`: an equal position replaces. **Decided otherwise** by default: an equal version
/// is a redelivery far more often than a second change; `on_equal: forward` decides as Hudi does.
#[test]
fn hudi_mysql_debezium_payload_an_equal_position_replaces() {
    let twice = || [at_binlog("1.100"), at_binlog("1.100")];
    assert_eq!(Task::of(BINLOG).verdicts(twice()), [Forwarded, Duplicate]);
    assert_eq!(Task::of(&format!("{BINLOG}on_equal: forward\n")).verdicts(twice()), [Forwarded, Forwarded]);
}

/// Changes with a PostgreSQL position.
const LSN: &str = "
input: {topics: [cdc], key_format: json}
identity: {content: key}
version: {of: value.lsn, as: integer}
kinds: {of: value.op, delete: [d]}
";

fn at_lsn(op: &str, lsn: impl Into<Value>) -> Given {
    keyed(json!({"id": 1}), json!({"op": op, "lsn": lsn.into()}))
}

/// Hudi, `TestPostgresDebeziumAvroPayload`: 99 is stored.
#[test]
fn hudi_postgres_debezium_payload_merges_by_lsn() {
    let mut task = Task::of(LSN);
    let given = [at_lsn("c", 99), at_lsn("u", 98), at_lsn("u", 100)];
    assert_eq!(task.verdicts(given), [Forwarded, Stale, Forwarded]);
}

/// Hudi, `TestPostgresDebeziumAvroPayload`: a delete at 100 deletes, a late one at 98 is ignored.
#[test]
fn hudi_postgres_debezium_payload_deletes_have_their_version() {
    let mut task = Task::of(LSN);
    assert_eq!(task.verdicts([at_lsn("c", 99), at_lsn("d", 98), at_lsn("d", 100)]), [Forwarded, Stale, Forwarded]);
    assert!(task.table(|value| value["op"] == "d").is_empty());
}

/// Hudi, `TestPostgresDebeziumAvroPayload`: the stored position is null, and the incoming one wins.
#[test]
fn hudi_postgres_debezium_payload_null_stored() {
    let mut task = Task::of(LSN);
    assert_eq!(task.verdicts([at_lsn("c", Value::Null), at_lsn("u", 98)]), [Forwarded, Forwarded]);
}

/// Hudi, `TestPostgresDebeziumAvroPayload`: an incoming null is an error. **Decided otherwise** by default: a record
/// without a position (an incremental snapshot's) passes and changes nothing that is remembered;
/// `on_missing_version: dead_letter` or `fail` decides as Hudi does.
#[test]
fn hudi_postgres_debezium_payload_null_incoming() {
    let given = || [at_lsn("c", 99), at_lsn("u", Value::Null), at_lsn("u", 98)];
    assert_eq!(Task::of(LSN).verdicts(given()), [Forwarded, Forwarded, Stale]);
    let refusing = format!("{LSN}on_missing_version: dead_letter\n");
    assert_eq!(Task::of(&refusing).verdicts(given()), [Forwarded, Invalid, Stale]);
}

/// Hudi, composite ordering fields: (99, 7) over (99, 5) is new, (98, 100) is old.
#[test]
fn hudi_composite_ordering_fields() {
    let mut task = Task::of("identity: value.id\nversion: [{of: value.a, as: integer}, {of: value.b, as: integer}]\n");
    let given = [(99, 5), (99, 7), (98, 100)].map(|(a, b)| value(json!({"id": 1, "a": a, "b": b})));
    assert_eq!(task.verdicts(given), [Forwarded, Forwarded, Stale]);
}

/// Materialize, `github-5668.td`: Debezium's `source.sequence` of PostgreSQL, where null is lowest.
#[test]
fn materialize_github_5668_postgres_sequences() {
    let mut task = Task::of("identity: value.id\nversion: {of: value.sequence, as: sequence}\n");
    let sequences =
        [r#"[null,"3"]"#, r#"[null,"5"]"#, r#"[null,"7"]"#, r#"["8","4"]"#, r#"["8","6"]"#, r#"[null,"1"]"#];
    let verdicts = task.verdicts(sequences.map(|sequence| value(json!({"id": 1, "sequence": sequence}))));
    assert_eq!(verdicts, [Forwarded, Forwarded, Forwarded, Forwarded, Forwarded, Stale]);
}

/// Materialize, Debezium deduplication of PostgreSQL: (lsn, total order) of one key.
#[test]
fn materialize_postgres_lsn_and_total_order() {
    let mut task = Task::of(
        "identity: value.id\nversion: [{of: value.lsn, as: integer}, {of: value.transaction.total_order, as: integer}]\n",
    );
    let given = [(1, 0), (2, 1), (0, 0), (2, 0)];
    let given = given.map(|(lsn, order)| value(json!({"id": 1, "lsn": lsn, "transaction": {"total_order": order}})));
    assert_eq!(task.verdicts(given), [Forwarded, Forwarded, Stale, Stale]);
}

/// Materialize, Debezium deduplication of SQL Server: slots 1b, 1c, 1a.
#[test]
fn materialize_sql_server_slots() {
    let mut task = Task::of("identity: value.id\nversion: {of: value.change_lsn, as: hex}\n");
    let slots = ["00000025:00000728:001b", "00000025:00000728:001c", "00000025:00000728:001a"];
    let verdicts = task.verdicts(slots.map(|lsn| value(json!({"id": 1, "change_lsn": lsn}))));
    assert_eq!(verdicts, [Forwarded, Forwarded, Stale]);
}

/// Materialize, Debezium deduplication of several partitions: positions 3, 2, 1 on partitions 2, 1, 0 are all kept.
/// Here each partition has its own entries, and each row its own version.
#[test]
fn materialize_multi_partition() {
    let mut task = Task::of(BINLOG);
    let given = [("1.3", 2), ("1.2", 1), ("1.1", 0)].map(|(at, partition)| at_binlog(at).partition(partition));
    assert_eq!(task.verdicts(given), [Forwarded, Forwarded, Forwarded]);
}

/// Materialize, upsert envelope of Debezium: a duplicated update is one row; a deleted row returns when it is inserted
/// again, by a record that looks like an update.
#[test]
fn materialize_debezium_upsert() {
    let mut task = Task::of(LSN);
    let given = [at_lsn("u", 1), at_lsn("u", 1), at_lsn("d", 2), at_lsn("u", 3)];
    assert_eq!(task.verdicts(given), [Forwarded, Duplicate, Forwarded, Forwarded]);
    assert_eq!(task.table(|value| value["op"] == "d").len(), 1);
}

/// RisingWave, version column of several fields, where an equal version overwrites.
const VERSION_COLUMN: &str = "
identity: value.k
version: [{of: value.v1, as: integer}, {of: value.v2, as: integer}]
";

fn at_column(v1: i64, v2: i64) -> Given {
    value(json!({"k": 1, "v1": v1, "v2": v2}))
}

/// RisingWave, `version_column` of tables: (1,1), (2,1), (2,2), and (1,5) is ignored.
#[test]
fn risingwave_version_column_an_older_version_is_ignored() {
    let given = [at_column(1, 1), at_column(2, 1), at_column(2, 2), at_column(1, 5)];
    assert_eq!(Task::of(VERSION_COLUMN).verdicts(given), [Forwarded, Forwarded, Forwarded, Stale]);
}

/// RisingWave: an equal version overwrites. **Decided otherwise** by default; `on_equal: forward` decides likewise.
#[test]
fn risingwave_version_column_an_equal_version_overwrites() {
    let given = || [at_column(2, 2), at_column(2, 2)];
    assert_eq!(Task::of(VERSION_COLUMN).verdicts(given()), [Forwarded, Duplicate]);
    let overwriting = format!("{VERSION_COLUMN}on_equal: forward\n");
    assert_eq!(Task::of(&overwriting).verdicts(given()), [Forwarded, Forwarded]);
}

/// RisingWave: a version made of a timestamp, a text and an integer.
#[test]
fn risingwave_version_column_of_mixed_types() {
    let mut task = Task::of(
        "identity: value.k\nversion: [{of: value.t, as: timestamp}, {of: value.s, as: text}, {of: value.i, as: integer}]\n",
    );
    let given = [
        ("2024-01-01 00:00:00", "a", 2),
        ("2024-01-01T00:00:00Z", "b", 1),
        ("2024-01-01 00:00:00", "b", 10),
        ("2024-01-01 00:00:00", "b", 9),
        ("2023-12-31T23:59:59.999Z", "z", 99),
        ("2024-01-01 00:00:01", "", 0),
    ];
    let verdicts = task.verdicts(given.map(|(t, s, i)| value(json!({"k": 1, "t": t, "s": s, "i": i}))));
    assert_eq!(verdicts, [Forwarded, Forwarded, Forwarded, Stale, Stale, Forwarded]);
}

/// RisingWave rejects a boolean or JSON version column, and a table without the column, when the table is created. Here
/// the type is only known from the record, so the record is invalid; one without a version is forwarded unless
/// `on_missing_version` says otherwise (see [`hudi_postgres_debezium_payload_null_incoming`]).
#[test]
fn risingwave_version_column_of_no_order_is_an_error() {
    let of = |version: Value| value(json!({"k": 1, "v1": version, "v2": 1}));
    let mut task = Task::of(&format!("{VERSION_COLUMN}on_missing_version: dead_letter\n"));
    let reasons = task.reasons([of(json!(true)), of(json!({"a": 1})), value(json!({"k": 1}))]);
    assert_eq!(reasons, [Reason::VersionMalformed, Reason::VersionMalformed, Reason::VersionMissing]);
}

/// Paimon, `sequence.field` of two fields: null is lowest, element by element.
#[test]
fn paimon_sequence_field_nulls_are_lowest() {
    let of = |a: Value, b: Value| value(json!({"k": 1, "v1": a, "v2": b}));
    let mut task = Task::of(VERSION_COLUMN);
    let given = [of(Value::Null, json!(1)), of(json!(1), Value::Null), of(json!(1), json!(0))];
    assert_eq!(task.verdicts(given), [Forwarded, Forwarded, Forwarded]);
    assert_eq!(task.verdicts([of(json!(1), Value::Null), of(Value::Null, json!(9))]), [Stale, Stale]);
}

/// Paimon: of equal sequences the later arrival wins. **Decided otherwise** by default, as above.
#[test]
fn paimon_sequence_field_ties_by_arrival() {
    let given = || ["first", "second"].map(|name| value(json!({"k": 1, "v1": 1, "v2": 1, "name": name})));
    let mut task = Task::of(VERSION_COLUMN);
    task.verdicts(given());
    assert_eq!(task.values().last().expect("one was forwarded")["name"], "first");
    let mut task = Task::of(&format!("{VERSION_COLUMN}on_equal: forward\n"));
    task.verdicts(given());
    assert_eq!(task.values().last().expect("both were forwarded")["name"], "second");
}
