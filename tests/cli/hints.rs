//! Hints of `replay --summary` about single kinds of mistakes. Goal: each hint is given once a share of the records is
//! affected, names what was seen, and claims no cause that may be false; no hint is given if nothing is wrong.

use super::{PAYMENTS, Ran, Room};

/// A record as `kcat -J` prints it.
fn line(offset: usize, ts: i64, key: &str, payload: Option<&str>) -> String {
    serde_json::json!({"topic": "payments", "partition": 0, "offset": offset, "ts": ts, "key": key, "payload": payload})
        .to_string()
}

/// A payment with this version.
fn payment(id: usize, version: &str) -> String {
    format!(r#"{{"order_id":{id},"operation":"charge","version":{version}}}"#)
}

/// The summary of these payments by a topology, each a second after the one before.
#[track_caller]
fn summary(topology: &str, payments: &[String]) -> Ran {
    let room = Room::new();
    room.write("t.yaml", topology);
    let lines: Vec<String> = payments
        .iter()
        .enumerate()
        .map(|(offset, payment)| line(offset, 1_735_689_600_000 + 1_000 * offset as i64, "k", Some(payment)))
        .collect();
    room.run_with("replay t.yaml --envelope kcat --summary", lines.join("\n")).ended(0)
}

#[test]
fn positions_that_begin_again_get_a_hint_with_possible_causes() {
    let positions = [(1, 900), (2, 910), (3, 920), (1, 930), (1, 40), (2, 50), (3, 60), (1, 70)];
    let payments: Vec<String> = positions.iter().map(|(id, at)| payment(*id, &at.to_string())).collect();
    let ran = summary(PAYMENTS, &payments);
    let ran = ran.said(&[
        "hint: from payments:0:4 on, 4 records in a row have versions below those before, which had not come before, and 4 \
         of them were dropped as stale",
        "positions may have begun again there (a new replication slot",
        "write an `epoch` block",
    ]);
    ran.never_said("that is normal");
    // mere disorder, and what came before
    for positions in [
        [(1, 900), (2, 880), (3, 920), (1, 910), (2, 930), (3, 940)],
        [(1, 900), (2, 910), (3, 920), (1, 900), (2, 910), (3, 920)],
    ] {
        let payments: Vec<String> = positions.iter().map(|(id, at)| payment(*id, &at.to_string())).collect();
        summary(PAYMENTS, &payments).never_said("begun again");
    }
}

#[test]
fn units_that_change_in_mid_stream_get_a_hint() {
    let times = ["1735689600123", "1735689601123", "1735689700123456", "1735689900123"];
    let payments: Vec<String> = times.iter().map(|at| payment(1, at)).collect();
    for topology in [PAYMENTS.to_owned(), PAYMENTS.replace("as: integer", "as: timestamp, unit: ms")] {
        let ran =
            summary(&topology, &payments).said(&["hint: versions look like times in several units", "payments:0:2"]);
        ran.never_said("more than two days later");
    }
    let same: Vec<String> = (0..4).map(|n| payment(1, &format!("173568960{n}123"))).collect();
    summary(PAYMENTS, &same).never_said("several units");
}

#[test]
fn version_far_beyond_its_record_gets_a_hint() {
    let topology = PAYMENTS.replace("as: integer", "as: timestamp, unit: ms");
    let payments = [payment(1, "1735689600123"), payment(1, "32503680000000"), payment(2, "1735689601123")];
    summary(&topology, &payments).said(&["hint: 1 version is more than two days later", "payments:0:1", "3000-01-01"]);
    // the same for milliseconds that are read as an integer
    summary(PAYMENTS, &payments).said(&["hint: 1 version is more than two days later"]);
    let payments = [payment(1, "1735689600123"), payment(1, "1735689660123")];
    summary(&topology, &payments).never_said("two days");
}

#[test]
fn share_of_invalid_records_gets_a_hint_for_each_reason() {
    let mut payments: Vec<String> = (0..90).map(|id| payment(id, "1")).collect();
    payments.extend((0..5).map(|id| payment(id, "\"x\"")));
    payments.extend((0..5).map(|_| "\u{0}\u{0}\u{0}\u{0}\u{7}{}".to_owned()));
    summary(PAYMENTS, &payments).said(&[
        "hint: 5 of 100 records are invalid (version_malformed), the first because `value.version`",
        "hint: 5 of 100 records are invalid (value_malformed), the first because the value cannot be read as JSON",
        "as a schema registry's serializers write the number of a schema",
        "write `value_format: json_schema` under `input`",
    ]);
}

#[test]
fn decimals_in_base64_get_a_hint() {
    let revisions = ["\"AQ==\"", "\"Pw==\"", "\"1234\""];
    let payments: Vec<String> = revisions.iter().map(|revision| payment(1, revision)).collect();
    summary(PAYMENTS, &payments).said(&["hint: 2 versions look like bytes in base64", "decimal.handling.mode=string"]);
    let topology = PAYMENTS.replace("as: integer", "as: text");
    summary(&topology, &payments).said(&["hint: 2 versions look like bytes in base64"]);
    let words: Vec<String> = ["\"abcd\"", "\"abce\""].iter().map(|word| payment(1, word)).collect();
    summary(&topology, &words).never_said("base64");
}

#[test]
fn keys_as_bytes_are_not_advised_and_refused_at_once() {
    let room = Room::new();
    let preset = "name: t\npreset: debezium-postgres@2\ninput: {topics: [payments]}\noutput: {topic: out}\n";
    room.write("t.yaml", preset);
    let change = r#"{"after":{"id":1},"source":{"connector":"postgresql","name":"s","db":"d","lsn":5},"op":"c"}"#;
    let input = line(0, 1, "Struct{id=1}", Some(change));
    room.run_with("replay t.yaml --envelope kcat --summary", input.clone()).ended(0).said(&[
        "every record is invalid (key_malformed)",
        "as Kafka Connect's StringConverter writes a struct",
        "write `key_format: bytes` under `input`, and `identity: key`",
    ]);
    // what it says works, and half of it is refused with the other half
    room.write("t.yaml", preset.replace("[payments]", "[payments], key_format: bytes"));
    room.run("check t.yaml").ended(2).said(&["if keys are not JSON, write `identity: key` as well"]);
    let whole = preset.replace("[payments]", "[payments], key_format: bytes") + "identity: key\n";
    room.write("t.yaml", whole);
    room.run_with("replay t.yaml --envelope kcat --summary", input).ended(0).never_said("invalid (");
}

#[test]
fn nulls_of_rows_that_nothing_deleted_get_a_hint_beside_deletes() {
    let room = Room::new();
    room.write("t.yaml", "name: t\npreset: debezium-postgres@2\ninput: {topics: [payments]}\noutput: {topic: out}\n");
    let change = |op: &str, lsn: usize| {
        format!(
            r#"{{"after":{{"id":1}},"source":{{"connector":"postgresql","name":"s","db":"d","lsn":{lsn}}},"op":"{op}"}}"#
        )
    };
    let (one, two) = (r#"{"id":1}"#, r#"{"id":2}"#);
    let lines = [
        line(0, 1, one, Some(&change("d", 10))),
        line(1, 2, one, None),
        line(2, 3, one, None),
        line(3, 4, two, Some(&change("c", 20))),
        line(4, 5, two, None),
    ];
    room.run_with("replay t.yaml --envelope kcat --summary", lines.join("\n")).ended(0).said(&[
        "hint: 1 null value was not forwarded (`on_null_value: follow_delete`)",
        "no delete of the identity came before it",
    ]);
}

#[test]
fn line_that_is_nearly_a_record_of_kcat_gets_a_warning_with_its_number() {
    let room = Room::new();
    room.write("t.yaml", PAYMENTS);
    // quotes in the payload that are not escaped
    let lines =
        [payment(1, "1"), r#"{"topic":"payments","partition":0,"offset":0,"key":"k","payload":"{"a":1}"}"#.to_owned()];
    for options in ["", "--summary", "--explain"] {
        let ran = room.run_with(&format!("replay t.yaml {options}"), lines.join("\n")).ended(0);
        ran.said(&["warning: standard input:2 looks like a record of `kcat -J`, but is none (", "taken for a value"]);
    }
    room.run_with("replay t.yaml", payment(1, "1")).ended(0).never_said("looks like");
}

#[test]
fn conflicts_that_a_preset_forwards_need_no_change() {
    let room = Room::new();
    let preset = "name: t\npreset: debezium-postgres@3\ninput: {topics: [payments]}\noutput: {topic: out}\n";
    let lines = |field: &str| {
        let change = |name: &str| {
            format!(
                r#"{{"before":null,"after":{{"id":1,"{field}":"{name}"}},"source":{{"connector":"postgresql","name":"s","db":"d","lsn":5}},"op":"c"}}"#
            )
        };
        let key = r#"{"id":1}"#;
        [line(0, 1, key, Some(&change("a"))), line(1, 2, key, Some(&change("b")))].join("\n")
    };
    room.write("t.yaml", preset);
    let summary = |field: &str| room.run_with("replay t.yaml --envelope kcat --summary", lines(field)).ended(0);
    let calm = "Nothing has to be changed for them: `debezium-postgres@3` takes them for changes of their own that share a \
                position, and its `on_conflict: forward` passes them on";
    summary("name")
        .said(&[
            "hint: 1 record has an identity and a version that were seen, but with other contents (forwarded): first \
             payments:0:1",
            &format!("in `value.after.name`. {calm}"),
        ])
        .never_said("If they say different things")
        .never_said("as another part of");
    // a key may be that of several rows
    summary("line_id").said(&[
        calm,
        "If several rows have one key, `value.after.line_id` as another part of `identity` would tell them apart",
    ]);
    // what the topology itself says may be wrong
    for own in ["on_conflict: drop\n", "identity: value.after.id\non_null_value: forward\n", "contents: value\n"] {
        room.write("t.yaml", format!("{preset}{own}"));
        summary("name")
            .said(&["If they say different things, add what tells them apart", "`on_conflict` says what to do"])
            .never_said("Nothing has to be changed");
    }
}
