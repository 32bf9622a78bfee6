//! The life of a row under each preset. Goal: whatever a source's positions look like, the same story gets the same
//! verdicts: what is newer passes, what is older does not, a delete is final, and its tombstone follows once.

use ratchet::dedup::{Reason, Verdict};
use serde_json::{Value, json};

use Reason::{EpochChanged, First, Newer, SnapshotRead, TombstoneNotOwed, VersionEqual, VersionOlder};

use crate::docs::page_block;
use crate::task::{Given, Task, keyed, tombstone, value};

/// What happens to a row, at a position.
#[derive(Clone, Copy)]
enum Event {
    Read(u64),
    Change(u64),
    Delete(u64),
    Tombstone,
}

use Event::{Change, Delete, Read, Tombstone};

/// A Debezium event of row 1, with the fields from `position` added to its envelope.
fn debezium(event: Event, position: &dyn Fn(u64, bool) -> Value) -> Given {
    let key = json!({"id": 1});
    let (op, at) = match event {
        Read(at) => ("r", at),
        Change(at) => ("u", at),
        Delete(at) => ("d", at),
        Tombstone => return tombstone(key),
    };
    let row = json!({"id": 1, "at": at});
    let (before, after) = if op == "d" { (row, Value::Null) } else { (Value::Null, row) };
    let mut envelope =
        json!({"before": before, "after": after, "op": op, "source": {"name": "shop", "db": "d", "table": "t"}});
    let extra = position(at, op == "r");
    for (place, fields) in extra.as_object().expect("an object of objects") {
        for (name, field) in fields.as_object().expect("an object of objects") {
            envelope[place][name] = field.clone();
        }
    }
    keyed(key, envelope)
}

/// What ExtractNewRecordState turns it into, with the fields that the preset's notes name: those of `source` get the
/// prefix `__`, or `__source_` where the envelope has a field of that name.
fn flattened(event: Event, position: &dyn Fn(u64, bool) -> Value) -> Given {
    let given = debezium(event, position);
    let Some(bytes) = &given.value else { return given };
    let envelope: Value = serde_json::from_slice(bytes).expect("it was just written");
    let mut flat = if envelope["op"] == "d" { envelope["before"].clone() } else { envelope["after"].clone() };
    flat["__op"] = envelope["op"].clone();
    flat["__deleted"] = json!((envelope["op"] == "d").to_string());
    for (block, prefix) in [("source", "__"), ("transaction", "__transaction_")] {
        for (name, field) in envelope[block].as_object().into_iter().flatten() {
            let prefix = if name == "ts_ms" { "__source_" } else { prefix };
            flat[format!("{prefix}{name}")] = field.clone();
        }
    }
    keyed(json!({"id": 1}), flat)
}

/// The whole story, for presets with snapshots and tombstones that drop ties.
const STORY: [Event; 11] =
    [Read(1), Change(2), Change(2), Change(1), Read(2), Delete(4), Tombstone, Tombstone, Change(3), Read(3), Change(5)];

#[track_caller]
fn check_story(preset: &str, position: &dyn Fn(u64, bool) -> Value) {
    let expected = [
        First,
        Newer,
        VersionEqual,
        VersionOlder,
        SnapshotRead,
        Newer,
        Reason::Tombstone,
        TombstoneNotOwed,
        VersionOlder,
        SnapshotRead,
        Newer,
    ];
    for (form, of) in FORMS {
        let mut task = Task::of(&format!("preset: {preset}\n"));
        assert_eq!(task.reasons(STORY.map(|event| of(event, position))), expected, "{preset}{form}");
        // A read above everything known repairs the row once; the stream goes on above it.
        let after = [Read(6), Read(6), Change(5), Change(7)].map(|event| of(event, position));
        let repaired = [Newer, VersionEqual, VersionEqual, Newer];
        let lost = [SnapshotRead, SnapshotRead, VersionEqual, Newer];
        let is_repaired = REPAIRING.contains(&preset);
        assert_eq!(task.reasons(after), if is_repaired { repaired } else { lost }, "{preset}{form}");
    }
}

type Form = fn(Event, &dyn Fn(u64, bool) -> Value) -> Given;
const FORMS: [(&str, Form); 2] = [("", debezium), (", flattened", flattened)];

/// Presets by which a read counts by its position.
pub const REPAIRING: [&str; 7] = [
    "debezium-db2@2",
    "debezium-informix@2",
    "debezium-mariadb@3",
    "debezium-mysql@2",
    "debezium-oracle@3",
    "debezium-postgres@3",
    "debezium-sqlserver@2",
];

#[test]
fn debezium_postgres() {
    for preset in ["debezium-postgres@1", "debezium-postgres@2", "debezium-postgres@3"] {
        check_story(preset, &|at, _| json!({"source": {"lsn": 9_007_199_254_740_992 + at}}));
    }
}

/// The commit before the transaction decides before the position in the log.
#[test]
fn debezium_postgres_with_its_sequence() {
    check_story("debezium-postgres@2", &|at, is_read| {
        let lsn = if is_read { 9_007_199_254_740_992 + at } else { 9_007_199_254_740_900 - at };
        let commit = (!is_read).then(|| (9_007_199_254_740_992 + at).to_string());
        json!({"source": {"lsn": lsn, "sequence": json!([commit, lsn.to_string()]).to_string()}})
    });
}

/// The file's number decides before the position, and a snapshot belongs to no server.
#[test]
fn debezium_mysql_and_mariadb() {
    let mariadb = ["debezium-mariadb@1", "debezium-mariadb@2", "debezium-mariadb@3"];
    for preset in ["debezium-mysql@1", "debezium-mysql@2"].into_iter().chain(mariadb) {
        check_story(preset, &|at, is_read| {
            let file = format!("mysql-bin.{:06}", 999_997 + at);
            json!({"source": {"file": file, "pos": 100 - at, "row": 0, "server_id": if is_read { 0 } else { 7 }}})
        });
    }
}

#[test]
fn debezium_sqlserver() {
    for preset in ["debezium-sqlserver@1", "debezium-sqlserver@2"] {
        check_story(preset, &|at, is_read| {
            let commit = format!("00000027:00000ac0:{:04x}", 0xfffe + at);
            let change = if is_read { Value::Null } else { json!("00000027:00000ab0:0003") };
            json!({"source": {"commit_lsn": commit, "change_lsn": change, "event_serial_no": "2"}})
        });
    }
}

/// System change numbers are texts, beyond the precision of a double.
#[test]
fn debezium_oracle() {
    for preset in ["debezium-oracle@2", "debezium-oracle@3"] {
        check_story(preset, &|at, is_read| {
            let scn = (9_007_199_254_740_992 + at).to_string();
            // A read has no commit number: its `scn` stands in for it.
            let commit = if is_read { Value::Null } else { json!(scn) };
            json!({"source": {"commit_scn": commit, "scn": scn, "ssn": 1}})
        });
    }
}

/// Flink CDC writes 0 if it has no number: nothing orders such changes, and they pass.
#[test]
fn oracle_change_number_of_zero_is_none() {
    for zero in [json!("0"), json!(0)] {
        let change = |after: u64| {
            let source = json!({"name": "s", "db": "d", "commit_scn": zero, "scn": zero, "ts_ms": after});
            keyed(json!({"id": 1}), json!({"op": "u", "after": {"id": 1, "at": after}, "source": source}))
        };
        let mut task = Task::of("preset: debezium-oracle@2\n");
        assert_eq!(task.reasons([change(1), change(2)]), [Reason::VersionMissing; 2]);
    }
    let numbered = |commit: Value, scn: u64| {
        let source = json!({"name": "s", "db": "d", "commit_scn": commit, "scn": scn.to_string()});
        keyed(json!({"id": 1}), json!({"op": "u", "after": {"id": 1}, "source": source}))
    };
    let mut task = Task::of("preset: debezium-oracle@2\n");
    let none = task.reasons([numbered(json!("0"), 7), numbered(Value::Null, 7), numbered(json!("8"), 6)]);
    assert_eq!(none, [First, VersionEqual, Newer]);
}

/// All events of a transaction share one time and ordinal.
#[test]
fn mongodb_transaction_may_change_a_document_twice() {
    let change = |order: Option<u64>| {
        let source = json!({"name": "s", "rs": "rs0", "ts_ms": 1_681_879_044_000_u64, "ord": 3, "txnNumber": 1});
        let transaction = order.map(|order| json!({"id": "1", "total_order": order}));
        keyed(json!({"id": "1"}), json!({"op": "u", "source": source, "transaction": transaction}))
    };
    let numbered = "preset: debezium-mongodb@1
version:
  - {of: {first_of: [value.__source_ts_ms, value.source.ts_ms]}, as: integer, none: [0], required: true}
  - {of: {first_of: [value.__source_ord, value.__ord, value.source.ord]}, as: integer, none: [-1]}
  - {of: {first_of: [value.__transaction_total_order, value.transaction.total_order]}, as: integer}
";
    let twice = || [change(Some(1)), change(Some(2))];
    let mut task = Task::of(numbered);
    assert_eq!(task.reasons(twice()), [First, Newer]);
    assert_eq!(task.reasons(twice()), [VersionOlder, VersionEqual]);
    // Without the numbers they are one version: the preset's page says so, and what to do.
    let mut task = Task::of("preset: debezium-mongodb@1\n");
    assert_eq!(task.reasons([change(None), change(None)]), [First, VersionEqual]);
    let mut task = Task::of("preset: debezium-mongodb@1\non_equal: forward\n");
    assert_eq!(task.verdicts([change(None), change(None)]), [Verdict::Forwarded; 2]);
}

#[test]
fn debezium_mongodb() {
    check_story(
        "debezium-mongodb@1",
        &|at, _| json!({"source": {"ts_ms": 1_681_879_044_000_u64, "ord": at, "rs": "rs0"}}),
    );
}

#[test]
fn debezium_vitess() {
    check_story("debezium-vitess@1", &|at, _| {
        let rank = format!("{}", 22_345_678_901_234_567_890_u128 + u128::from(at));
        json!({
            "source": {"keyspace": "commerce", "shard": "-80"},
            "transaction": {"transaction_epoch": 0, "transaction_rank": rank, "total_order": 1},
        })
    });
}

#[test]
fn debezium_db2() {
    for preset in ["debezium-db2@1", "debezium-db2@2"] {
        check_story(preset, &|at, is_read| {
            let change = if is_read { Value::Null } else { json!("00000027:00000758:0003") };
            json!({"source": {"commit_lsn": format!("00000027:00000ac0:{:04x}", 8 + at), "change_lsn": change}})
        });
    }
}

#[test]
fn debezium_informix() {
    for preset in ["debezium-informix@1", "debezium-informix@2"] {
        check_story(preset, &|at, is_read| {
            let change = if is_read { json!("0") } else { json!("627404540485812") };
            json!({"source": {"commit_lsn": (627_404_540_760_619 + at).to_string(), "change_lsn": change, "ts_ms": at}})
        });
    }
}

#[test]
fn debezium_spanner() {
    check_story("debezium-spanner@1", &|at, _| {
        let transaction = format!("transaction-{at}");
        json!({"source": {"ts_ms": 1_670_955_531_785_u64 + at, "server_transaction_id": transaction, "sequence": "00000000", "mod_number": 0}})
    });
}

/// A change of the primary key is a delete, a tombstone and a create, at one position.
#[test]
fn primary_key_change_passes_whole_and_once() {
    let event = |id: i64, op: &str| {
        keyed(json!({"id": id}), json!({"op": op, "source": {"lsn": 30, "name": "shop", "db": "d"}}))
    };
    let change = || [event(1, "d"), tombstone(json!({"id": 1})), event(2, "c")];
    let mut task = Task::of("preset: debezium-postgres@2\n");
    assert_eq!(task.verdicts(change()), [Verdict::Forwarded; 3]);
    assert_eq!(task.verdicts(change()), [Verdict::Duplicate; 3]);
}

/// A floating-point key that changes from -0.0 to 0.0, which the connector treats as another key.
#[test]
fn negative_zero_is_another_key_than_zero() {
    let event = |id: f64, op: &str| {
        keyed(json!({"id": id}), json!({"op": op, "source": {"lsn": 30, "name": "shop", "db": "d"}}))
    };
    for (old, new) in [(-0.0, 0.0), (0.0, -0.0)] {
        let change = || [event(old, "d"), tombstone(json!({"id": old})), event(new, "c")];
        let mut task = Task::of("preset: debezium-postgres@2\n");
        assert_eq!(task.verdicts(change()), [Verdict::Forwarded; 3], "{old} to {new}");
        assert_eq!(task.verdicts(change()), [Verdict::Duplicate; 3], "{old} to {new}");
    }
}

/// A truncate passes once; older changes do not pass after it.
#[test]
fn truncate_passes_once_and_makes_older_changes_stale() {
    let source = |lsn: u64| json!({"name": "shop", "db": "d", "schema": "s", "table": "t", "lsn": lsn});
    let row = |id: i64, lsn: u64| keyed(json!({"id": id}), json!({"op": "c", "source": source(lsn)}));
    let truncate = || value(json!({"op": "t", "before": null, "after": null, "source": source(20)}));
    let mut task = Task::of("preset: debezium-postgres@2\n");
    let reasons = task.reasons([row(1, 10), truncate(), truncate(), row(2, 15), row(1, 10), row(3, 21)]);
    assert_eq!(reasons[..3], [First, First, VersionEqual]);
    assert_eq!(reasons[3..], [Reason::TableTruncated, Reason::TableTruncated, First]);
}

/// Failover and failback: the later server's data passes, and redelivered data of either stays old.
#[test]
fn failover_and_failback_lose_and_repeat_nothing() {
    let at = |server: u64, pos: u64| {
        let source = json!({"name": "shop", "server_id": server, "file": "mysql-bin.000003", "pos": pos, "row": 0});
        keyed(json!({"id": 1}), json!({"op": "u", "source": source}))
    };
    let mut task = Task::of("preset: debezium-mysql@1\n");
    assert_eq!(task.reasons([at(1, 500), at(2, 100), at(2, 200)]), [First, EpochChanged, Newer]);
    // what the first server had sent before comes again
    assert_eq!(task.verdicts([at(1, 400), at(1, 500)]), [Verdict::Stale, Verdict::Stale]);
    // it is the primary again, and beyond all that it had reached
    assert_eq!(task.reasons([at(1, 600), at(1, 700)]), [EpochChanged, Newer]);
    assert_eq!(task.verdicts([at(2, 200), at(1, 500)]), [Verdict::Stale, Verdict::Stale]);
}

/// The same event with its schema, without it, flattened, and in Avro's JSON has one identity and one version.
#[test]
fn all_forms_of_an_event_are_equivalent() {
    let plain = |lsn: u64| json!({"op": "u", "after": {"id": 1}, "source": {"name": "shop", "db": "d", "lsn": lsn}});
    let enveloped = |lsn: u64| json!({"schema": {"type": "struct"}, "payload": plain(lsn)});
    let flattened = |lsn: u64| json!({"id": 1, "__op": "u", "__name": "shop", "__db": "d", "__lsn": lsn});
    let avro = |lsn: u64| {
        json!({"op": "u", "after": {"shop.public.t.Value": {"id": 1}},
            "source": {"name": "shop", "db": "d", "lsn": {"long": lsn}}})
    };
    let forms: [&dyn Fn(u64) -> Value; 4] = [&plain, &enveloped, &flattened, &avro];
    for one in forms {
        for other in forms {
            let mut task = Task::of("preset: debezium-postgres@2\n");
            let given = [one(10), other(10), other(9), other(11)];
            let key = |nth| if nth == 0 { json!({"id": 1}) } else { json!({"schema": {}, "payload": {"id": 1}}) };
            let reasons = task.reasons(given.into_iter().enumerate().map(|(nth, value)| keyed(key(nth), value)));
            assert_eq!(reasons, [First, VersionEqual, VersionOlder, Newer]);
        }
    }
}

/// The story without snapshots and tombstones.
const SHORT: [Event; 6] = [Change(2), Change(2), Change(1), Delete(4), Change(3), Change(5)];

#[track_caller]
pub fn check_short_story(preset: &str, ties_pass: bool, record: impl Fn(bool, u64) -> Given) {
    let mut task = Task::of(&format!("preset: {preset}\n"));
    let verdicts = task.verdicts(SHORT.map(|event| match event {
        Change(at) | Read(at) => record(false, at),
        Delete(at) => record(true, at),
        Tombstone => unreachable!("there is none in it"),
    }));
    let tie = if ties_pass { Verdict::Forwarded } else { Verdict::Duplicate };
    let expected = [Verdict::Forwarded, tie, Verdict::Stale, Verdict::Forwarded, Verdict::Stale, Verdict::Forwarded];
    assert_eq!(verdicts, expected, "{preset}");
}

#[test]
fn maxwell() {
    for preset in ["maxwell@1", "maxwell@2"] {
        check_maxwell(preset);
    }
}

#[track_caller]
fn check_maxwell(preset: &str) {
    check_short_story(preset, false, |is_delete, at| {
        let kind = if is_delete { "delete" } else { "update" };
        let event = json!({"database": "d", "table": "t", "type": kind, "ts": 1_477_053_217, "xid": 23_396, "commit": true,
            "position": format!("master.000006:{}", 800_911 + at), "server_id": 23_042, "data": {"id": 1}});
        keyed(json!({"database": "d", "table": "t", "pk.id": 1}), event)
    });
}

/// The last row of a transaction has no offset in it, and is the newest.
#[test]
fn maxwell_the_last_row_of_a_transaction_is_its_newest() {
    let at = |offset: Value| {
        keyed(json!({"database": "d", "table": "t", "pk.id": 1}), {
            json!({"database": "d", "table": "t", "type": "update", "position": "master.000006:800911", "server_id": 1,
                "xoffset": offset, "data": {"id": 1}})
        })
    };
    let mut task = Task::of("preset: maxwell@2\n");
    assert_eq!(task.reasons([at(json!(0)), at(Value::Null), at(json!(1))]), [First, Newer, VersionOlder]);
}

#[test]
fn canal() {
    check_short_story("canal@1", true, |is_delete, at| {
        let kind = if is_delete { "DELETE" } else { "UPDATE" };
        value(json!({"database": "d", "table": "t", "type": kind, "isDdl": false, "pkNames": ["id"], "id": 9 - at,
            "es": 1_598_944_132_000_u64 + at, "ts": 1_598_944_132_000_u64 - at, "data": [{"id": "1"}]}))
    });
}

#[test]
fn oracle_goldengate() {
    check_short_story("ogg@2", false, |is_delete, at| {
        let (before, after) = if is_delete { (json!({"ID": 1}), Value::Null) } else { (Value::Null, json!({"ID": 1})) };
        value(
            json!({"table": "OGG.T", "op_type": if is_delete { "D" } else { "U" }, "pos": format!("{:020}", 142 + at),
            "op_ts": "2020-05-13 17:32:10.904000", "primary_keys": ["ID"], "before": before, "after": after}),
        )
    });
}

/// A position that looks like trail file -1 is no position, and the record passes.
#[test]
fn goldengate_position_in_an_unknown_file_is_none() {
    let at = |pos: Value| {
        value(json!({"table": "OGG.T", "op_type": "U", "pos": pos, "primary_keys": ["ID"], "after": {"ID": 1}}))
    };
    let mut task = Task::of("preset: ogg@2\n");
    let known = json!("00000000020000001391");
    let unknown = || at(json!("00000000-10000001391"));
    let reasons = task.reasons([unknown(), at(known.clone()), unknown(), at(known)]);
    let none = Reason::VersionMissing;
    assert_eq!(reasons, [none, First, none, VersionEqual]);
}

/// The messages are those of TiDB's documentation of TiCDC.
#[test]
fn ticdc() {
    check_short_story("ticdc@1", true, |is_delete, at| {
        let kind = if is_delete { "DELETE" } else { "UPDATE" };
        value(json!({"id": 0, "database": "test", "table": "tp_int", "pkNames": ["id"], "isDdl": false, "type": kind,
            "es": 1_639_633_141_221_u64, "ts": 1_639_633_142_960_u64, "sql": "", "data": [{"id": "2"}], "old": null,
            "_tidb": {"commitTs": 429_918_007_904_436_226_u64 + at}}))
    });
}

/// An event of the outbox router, with the header that holds its id.
fn outbox_event(id: &str, payload: &str) -> Given {
    Given { value: Some(payload.as_bytes().to_vec()), ..Given::default() }.key(json!("order-7")).header("id", id)
}

#[test]
fn debezium_outbox_forwards_each_event_once_whatever_it_holds() {
    let mut task = Task::of("preset: debezium-outbox@1\n");
    let events = [
        outbox_event("a", r#"{"order": 7}"#),
        outbox_event("b", "not JSON at all"),
        outbox_event("a", r#"{"order": 7}"#),
        outbox_event("a", r#"{"order": 8}"#),
        outbox_event("b", "not JSON at all"),
        value(json!({"order": 9})),
    ];
    let expected = [First, First, Reason::Seen, Reason::SeenOtherwise, Reason::Seen, Reason::IdentityMissing];
    assert_eq!(task.reasons(events), expected);
    assert_eq!(task.output.len(), 2);
}

/// A service in the middle of a chain reads inside the payload.
#[test]
fn debezium_outbox_payload_can_be_read_by_a_sink() {
    let text = page_block("debezium-outbox.md", "ShipmentOrdered");
    let mut task = Task::of(&text);
    let wrapped = r#"{"order_id": 7, "address": "here"}"#;
    assert_eq!(task.reasons([outbox_event("a", wrapped), outbox_event("a", wrapped)]), [First, Reason::Seen]);
}
