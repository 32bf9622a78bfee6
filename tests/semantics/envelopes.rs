//! Forms in which sources wrap and leave out things. Goal: what a record says is found in every one of them, and what
//! cannot be found is refused by its true reason.

use ratchet::capture::{Captured, Form};
use ratchet::dedup::{Reason, Verdict};
use ratchet::infer::{Proposal, Sample, Tally, Wanted, infer};
use serde_json::{Value, json};

use Reason::{First, IdentityMissing, Newer, VersionEqual, VersionMalformed, VersionMissing, VersionOlder};

use crate::docs::page_block;
use crate::task::{Given, Task, keyed, load, tombstone, value};

/// What `infer` proposes for these records, as `kcat` captures them.
#[track_caller]
fn proposed(records: &[Given]) -> (Proposal, Tally) {
    let mut sample = Sample { form: Form::Kcat, ..Sample::default() };
    for (offset, given) in records.iter().enumerate() {
        let Given { key, value, headers, timestamp, partition, .. } = given.clone();
        let offset = offset as i64;
        let is_stamped = false;
        sample.add(Captured { topic: "in".to_owned(), partition, offset, timestamp, is_stamped, key, value, headers });
    }
    infer(&sample, &Wanted::default()).unwrap_or_else(|diagnostics| panic!("{}", diagnostics.render(false)))
}

#[track_caller]
fn has(proposal: &Proposal, words: &[&str]) {
    let text = proposal.text.replace("\n# ", " ");
    for words in words {
        assert!(text.contains(words), "no {words:?} in\n{}\n{:#?}", proposal.text, proposal.unsure);
    }
}

/// Forwarded, duplicates, stale, invalid.
fn verdicts(tally: &Tally) -> [usize; 4] {
    [Verdict::Forwarded, Verdict::Duplicate, Verdict::Stale, Verdict::Invalid].map(|of| tally.of_verdict(of))
}

/// As Apicurio Registry's ExtJsonConverter writes it.
fn beside_number(number: u32, payload: &Value) -> Value {
    json!({"schemaId": number, "payload": payload})
}

fn postgres(schema: u32, lsn: u64, name: &str) -> Given {
    let source = json!({"connector": "postgresql", "name": "shop", "db": "d", "schema": "s", "table": "t", "lsn": lsn});
    let event = json!({"before": null, "after": {"id": 1, "name": name}, "op": "u", "source": source});
    keyed(beside_number(3, &json!({"id": 1})), beside_number(schema, &event))
}

#[test]
fn payload_beside_a_schemas_number_is_read_like_one_beside_a_schema() {
    let changes = || [postgres(48, 20, "b"), postgres(48, 10, "a"), postgres(48, 20, "b"), postgres(49, 30, "c")];
    let mut task = Task::of("preset: debezium-postgres@3\n");
    assert_eq!(task.reasons(changes()), [First, VersionOlder, VersionEqual, Newer]);
    let (proposal, tally) = proposed(&changes());
    has(&proposal, &["preset: debezium-postgres@3"]);
    assert_eq!(verdicts(&tally), [2, 1, 1, 0], "{}", proposal.text);
}

/// Maxwell's row with its key.
fn maxwell(position: u32, x: u32) -> Given {
    let event = json!({"database": "shop", "table": "a", "type": "update", "ts": 1_491_742_023, "xid": 1, "commit": true,
        "position": format!("bin.035446:{position}"), "server_id": 7, "data": {"id": 1, "x": x}});
    keyed(json!({"database": "shop", "table": "a", "pk.id": 1}), event)
}

/// Maxwell's DDL, whose key is no JSON and whose server is not named.
fn maxwell_ddl(kind: &str, position: u32) -> Given {
    let event = json!({"type": kind, "database": "shop", "table": "a", "ts": 1_491_742_030_000_u64, "sql": "alter",
        "position": format!("bin.035446:{position}")});
    Given { key: Some(b"2f7cb3c6-6f0e-4c44-93e1-1d2f4a0e9b11".to_vec()), ..value(event) }
}

#[test]
fn maxwells_ddl_passes_and_disturbs_no_order() {
    let records = || {
        [
            maxwell(100, 1),
            maxwell_ddl("table-alter", 200),
            maxwell(300, 2),
            maxwell(100, 1),
            maxwell_ddl("table-alter", 200),
            maxwell_ddl("database-create", 350),
            maxwell(400, 3),
            maxwell(300, 2),
        ]
    };
    let mut task = Task::of("preset: maxwell@2\n");
    let expected = [First, IdentityMissing, Newer, VersionOlder, IdentityMissing, IdentityMissing, Newer, VersionOlder];
    assert_eq!(task.reasons(records()), expected);
    assert_eq!(task.output.len(), 6);
    assert_eq!(task.entries().len(), 1, "DDL is not remembered");
    // Under the rules of before, it is a dead letter.
    let mut former = Task::of("preset: maxwell@1\n");
    assert_eq!(former.give(maxwell_ddl("table-alter", 200)).reason, Reason::KeyMalformed);
    let (proposal, tally) = proposed(&records());
    has(&proposal, &["preset: maxwell@2"]);
    assert!(!proposal.text.contains("identity: key"), "{}", proposal.text);
    assert_eq!(verdicts(&tally), [6, 0, 2, 0], "{}", proposal.text);
}

#[test]
fn topic_of_nothing_but_maxwells_ddl_is_named() {
    let (proposal, _) = proposed(&[maxwell_ddl("table-create", 100), maxwell_ddl("table-drop", 200)]);
    has(&proposal, &["2 of 2 values are change events of Maxwell", "preset: maxwell@2"]);
}

/// A row of GoldenGate's formatter `json_row`.
fn ogg_row(op: &str, pos: u32, flag: u32, keys: Option<&str>) -> Given {
    let mut row = json!({"table": "TEST.WMS", "op_type": op, "op_ts": "2017-12-12 09:47:44.349517",
        "current_ts": "2017-12-12T17:47:50.415000", "pos": format!("{pos:020}"), "id": 16, "flag": flag});
    if let Some(keys) = keys {
        row["primary_keys"] = json!([keys]);
    }
    value(row)
}

#[test]
fn goldengates_rows_are_named_and_ordered() {
    for keys in [None, Some("id")] {
        let mut again = ogg_row("U", 4268, 2, keys);
        again.value = again.value.map(|bytes| String::from_utf8(bytes).unwrap().replace("17:47:50", "18:00:00").into());
        let records = || {
            [ogg_row("I", 3880, 1, keys), ogg_row("U", 4268, 2, keys), again.clone(), ogg_row("D", 4376, 2, keys)]
                .into_iter()
                .chain([ogg_row("I", 3880, 1, keys)])
                .collect::<Vec<_>>()
        };
        let (proposal, tally) = proposed(&records());
        has(&proposal, &["rows of Oracle GoldenGate (`format=json_row`)", "preset: ogg@2"]);
        assert_eq!(verdicts(&tally), [3, 1, 1, 0], "{}", proposal.text);
    }
    let mut task = Task::of(&page_block("ogg.md", "format=json_row"));
    let row = |op, pos| ogg_row(op, pos, 1, Some("id"));
    let reasons = task.reasons([row("I", 1), row("U", 2), row("U", 1), row("D", 3), row("D", 3)]);
    assert_eq!(reasons, [First, Newer, VersionOlder, Newer, VersionEqual]);
    // The preset alone refuses such rows, and says what they are.
    let topology = load("preset: ogg@2\n").unwrap().topology;
    let refused = Task::of("preset: ogg@2\n").give(row("I", 1));
    assert_eq!((refused.verdict, refused.reason), (Verdict::Invalid, IdentityMissing));
    assert!(topology.hint(IdentityMissing).is_some_and(|hint| hint.contains("json_row")));
}

/// A message of TiCDC's Simple protocol; the field names and types are those of its documentation.
fn ticdc(kind: &str, commit: u64, build: u64) -> Given {
    let mut message = json!({"version": 1, "type": kind, "commitTs": commit, "buildTs": build});
    let row = json!({"id": "1", "name": "John", "age": commit.to_string()});
    if matches!(kind, "INSERT" | "UPDATE" | "DELETE") {
        message["database"] = json!("simple");
        message["table"] = json!("user");
        message["tableID"] = json!(148);
        message["schemaVersion"] = json!(447_984_074_911_121_426_u64);
        message[if kind == "DELETE" { "old" } else { "data" }] = row;
    } else if kind != "WATERMARK" {
        message["tableSchema"] = json!({"schema": "simple", "table": "user", "tableID": 148});
    }
    value(message)
}

#[test]
fn ticdcs_simple_protocol_is_named_and_ordered() {
    let records = || {
        vec![
            ticdc("BOOTSTRAP", 0, 1),
            ticdc("INSERT", 10, 2),
            ticdc("WATERMARK", 11, 3),
            ticdc("UPDATE", 20, 4),
            ticdc("ALTER", 25, 5),
            // sent again after a restart, and written anew
            ticdc("BOOTSTRAP", 0, 6),
            ticdc("INSERT", 10, 7),
            ticdc("UPDATE", 20, 8),
            ticdc("ALTER", 25, 8),
            ticdc("WATERMARK", 11, 9),
            // an update of a unique key, in two
            ticdc("DELETE", 30, 10),
            ticdc("INSERT", 30, 11),
        ]
    };
    let (proposal, tally) = proposed(&records());
    has(&proposal, &["12 of 12 values are messages of TiCDC's Simple protocol", "value.old.id"]);
    assert_eq!(verdicts(&tally), [8, 3, 1, 0], "{}", proposal.text);
    let mut task = Task::of(&page_block("ticdc.md", "name: products-simple"));
    let forwarded = task.verdicts(records()).into_iter().map(|verdict| verdict == Verdict::Forwarded);
    let expected = [true, true, true, true, true, true, false, false, false, false, true, true];
    assert_eq!(forwarded.collect::<Vec<_>>(), expected);
}

#[test]
fn hex_position_with_an_empty_group_is_refused_for_that() {
    let mut task = Task::of("identity: value.id\nversion: {of: value.lsn, as: hex}\n");
    for (lsn, words) in [
        ("0000001c::0003", "has nothing in group 2 of its 3"),
        ("00000a:  :0003", "has nothing in group 2 of its 3"),
        ("0000001c:", "has nothing in group 2 of its 2"),
        ("", "is empty"),
        ("0000001x::3", "is not text of groups of hex digits"),
    ] {
        assert_eq!(task.give(value(json!({"id": 1, "lsn": lsn}))).reason, VersionMalformed, "{lsn}");
        let (model, _) = task.partition(0);
        let rejection = model.rejection().map(|rejection| rejection.message.clone()).unwrap_or_default();
        assert!(rejection.contains(words), "{lsn}: {rejection}");
    }
}

/// A row without its position, which is in a header, and the null in place of a deleted one.
fn with_header(id: u32, lsn: u64, name: Option<&str>) -> Given {
    let key = json!({"id": id});
    let given = name.map_or_else(|| tombstone(key.clone()), |name| keyed(key.clone(), json!({"id": id, "name": name})));
    given.header("__op", if name.is_some() { "u" } else { "d" }).header("__lsn", &lsn.to_string())
}

#[test]
fn null_value_is_judged_as_a_delete_by_what_its_headers_say() {
    let rules = "input: {topics: [in], key_format: json}\nidentity: {content: key}\n\
                 version: {of: header.__lsn, as: integer}\non_null_value: delete\n";
    let mut task = Task::of(rules);
    let records = || {
        vec![
            with_header(1, 10, Some("a")),
            with_header(1, 30, None),
            with_header(1, 20, Some("b")),
            with_header(1, 30, None),
            with_header(1, 40, Some("c")),
            with_header(1, 30, None),
            with_header(2, 50, None),
        ]
    };
    let expected = [First, Newer, VersionOlder, VersionEqual, Newer, VersionOlder, First];
    assert_eq!(task.reasons(records()), expected);
    // One without the header has no version, like any record.
    assert_eq!(task.give(tombstone(json!({"id": 1}))).reason, VersionMissing);
    let (proposal, tally) = proposed(&records());
    has(&proposal, &["on_null_value: delete", "header.__lsn"]);
    assert_eq!(verdicts(&tally), [4, 1, 2, 0], "{}", proposal.text);
    // Without a version of its own it would be dropped: the key was seen, and says something else.
    for version in ["", "version: {of: value.v, as: integer}\n"] {
        let rules = format!("identity: key\n{version}on_null_value: delete\n");
        let Err(refused) = load(&rules) else { panic!("nothing orders a null") };
        assert!(refused.render(false).contains("`delete` needs a `version` that is not only read from the value"));
    }
    // It has nothing to be identified by but key and headers.
    let Err(refused) = load("identity: value.id\non_null_value: delete\n") else { panic!("nothing identifies a null") };
    assert!(refused.render(false).contains("`delete` needs an identity that is not read from the value"));
    // Without the header on the nulls, they cannot be ordered.
    let plain: Vec<Given> =
        records().into_iter().map(|it| if it.value.is_none() { tombstone(json!({"id": 1})) } else { it }).collect();
    assert!(!proposed(&plain).0.text.contains("on_null_value: delete"));
}

#[test]
fn record_about_no_row_is_told_by_a_header_alone() {
    let rules = "identity: key\nversion: {of: header.v, as: integer}\nkinds: {of: header.type, delete: [d], none: [ddl]}\n\
                 on_missing: forward\n";
    let of = |word: &str, version: &str| keyed(json!(1), json!("x")).header("type", word).header("v", version);
    assert_eq!(Task::of(rules).reasons([of("ddl", "9"), of("u", "5")]), [IdentityMissing, First]);
}

#[test]
fn repetition_that_the_contents_show_is_no_doubt() {
    for (name, _, records) in crate::real::histories() {
        let (proposal, _) = proposed(&records);
        let said = proposal.unsure.join("\n");
        assert!(!said.contains("although they say something else"), "{name}: {said}");
    }
}
