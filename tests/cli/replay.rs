//! `ratchet replay`: captured records in, survivors or explanations out.

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use super::{PAYMENTS, Room};

const RECORDS: &str = r#"{"order_id":7,"operation":"charge","version":1}
{"order_id":7,"operation":"charge","version":1}
{"version": 2, "operation":"charge", "order_id":7}

{"order_id":7,"operation":"charge","version":1}
{"order_id":7,"operation":"refund","version":36893488147419103233}
{"order_id":7,"operation":"refund","version":36893488147419103232}
{"operation":"refund","version":9}
"#;

const SURVIVORS: [&str; 3] = [
    r#"{"order_id":7,"operation":"charge","version":1}"#,
    r#"{"version": 2, "operation":"charge", "order_id":7}"#,
    r#"{"order_id":7,"operation":"refund","version":36893488147419103233}"#,
];

fn kcat(partition: i32, offset: i64, ts: i64, payload: &str) -> String {
    let payload = serde_json::Value::from(payload);
    format!(
        r#"{{"topic":"payments","partition":{partition},"offset":{offset},"tstype":"create","ts":{ts},"broker":1,"headers":["trace","1"],"key":"k","payload":{payload}}}"#
    )
}

fn gzip(text: &str) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packed.write_all(text.as_bytes()).unwrap();
    packed.finish().unwrap()
}

fn order(id: u32, version: i64) -> String {
    format!(r#"{{"order_id":{id},"operation":"charge","version":{version}}}"#)
}

#[test]
fn survivors_are_printed_byte_for_byte() {
    let room = Room::new();
    room.write("records.jsonl", RECORDS);
    room.run("replay payments.yaml records.jsonl").ended(0).quietly().wrote(&SURVIVORS);
}

#[test]
fn standard_input_is_read_without_a_file_or_for_a_dash() {
    let room = Room::new();
    room.run_with("replay payments.yaml", RECORDS).ended(0).wrote(&SURVIVORS);
    room.run_with("replay payments.yaml -", RECORDS).ended(0).wrote(&SURVIVORS);
}

#[test]
fn several_files_are_one_input() {
    let room = Room::new();
    room.write("a.jsonl", order(1, 1) + "\n" + &order(2, 1));
    room.write("b.jsonl", order(1, 1) + "\n" + &order(3, 1));
    let input = order(4, 1);
    room.run_with("replay payments.yaml a.jsonl - b.jsonl", input).ended(0).wrote(&[
        &order(1, 1),
        &order(2, 1),
        &order(4, 1),
        &order(3, 1),
    ]);
}

#[test]
fn explain_prints_one_object_for_each_record() {
    let room = Room::new();
    room.write("records.jsonl", RECORDS);
    let ran = room.run("replay payments.yaml records.jsonl --explain --partition 4").ended(0).quietly();
    let expected = [
        r#"{"topic":"payments","partition":4,"offset":0,"verdict":"forwarded","reason":"first","identity":[7,"charge"],"version":1,"#,
        r#"{"topic":"payments","partition":4,"offset":1,"verdict":"duplicate","reason":"version_equal","identity":[7,"charge"],"version":1,"#,
        r#"{"topic":"payments","partition":4,"offset":2,"verdict":"forwarded","reason":"newer","identity":[7,"charge"],"version":2,"#,
        r#"{"topic":"payments","partition":4,"offset":3,"verdict":"stale","reason":"version_older","identity":[7,"charge"],"version":1,"#,
        r#"{"topic":"payments","partition":4,"offset":4,"verdict":"forwarded","reason":"first","identity":[7,"refund"],"version":36893488147419103233,"#,
        r#"{"topic":"payments","partition":4,"offset":5,"verdict":"stale","reason":"version_older","identity":[7,"refund"],"version":36893488147419103232,"#,
        r#"{"topic":"payments","partition":4,"offset":6,"verdict":"invalid","reason":"identity_missing","identity":null,"version":null,"#,
    ];
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!(lines.len(), expected.len());
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.starts_with(expected), "{line}");
        let keys: serde_json::Value = serde_json::from_str(line).unwrap();
        for key in ["epoch", "kind", "against"] {
            assert!(keys.get(key).is_some(), "{key} is missing in {line}");
        }
    }
}

#[test]
fn topic_of_plain_lines_can_be_given() {
    let room = Room::new();
    let ran = room.run_with("replay payments.yaml --explain --topic elsewhere", order(1, 1)).ended(0);
    assert!(ran.stdout.starts_with(r#"{"topic":"elsewhere","partition":0,"#), "{}", ran.stdout);
    ran.said(&["`elsewhere`", "payments does not read"]);
}

#[test]
fn summary_goes_to_standard_error() {
    let room = Room::new();
    room.write("records.jsonl", RECORDS);
    room.run("replay payments.yaml records.jsonl --summary").ended(0).wrote(&SURVIVORS).said(&[
        "records 7",
        "forwarded 3 first 2, newer 1",
        "duplicate 1 version_equal 1",
        "stale 2 version_older 2",
        "invalid 1 identity_missing 1",
        "identities on several partitions of a topic: not known, the lines name no partitions",
    ]);
}

#[test]
fn kcat_envelopes_are_read_and_printed_unchanged() {
    let room = Room::new();
    let lines = [kcat(0, 10, 1_000, &order(1, 1)), kcat(0, 11, 1_001, &order(1, 1)), kcat(0, 12, 1_002, &order(1, 2))];
    room.run_with("replay payments.yaml --envelope kcat", lines.join("\n"))
        .ended(0)
        .quietly()
        .wrote(&[&lines[0], &lines[2]]);
}

#[test]
fn partitions_are_judged_separately_and_shared_identities_counted() {
    let room = Room::new();
    let lines = [kcat(0, 0, 1_000, &order(1, 1)), kcat(1, 0, 1_000, &order(1, 1)), kcat(1, 1, 1_000, &order(2, 1))];
    let ran = room.run_with("replay payments.yaml --envelope kcat --summary", lines.join("\n")).ended(0);
    assert_eq!(ran.stdout.lines().count(), 3);
    ran.said(&["identities on several partitions of a topic: 1"]);
}

#[test]
fn repeated_offset_is_reported_as_replayed() {
    let room = Room::new();
    let lines = [kcat(0, 5, 1_000, &order(1, 1)), kcat(0, 5, 1_000, &order(1, 1))];
    let ran = room.run_with("replay payments.yaml --envelope kcat --explain", lines.join("\n")).ended(0);
    assert!(
        ran.stdout.lines().last().unwrap().contains(r#""verdict":"duplicate","reason":"replayed""#),
        "{}",
        ran.stdout
    );
}

#[test]
fn expiry_goes_by_the_captured_timestamps() {
    let room = Room::new();
    room.write("seen.yaml", PAYMENTS.replace("version: {of: value.version, as: integer}", "retention: 1h"));
    let hour = 3_600_000;
    let lines =
        [kcat(0, 0, hour, &order(1, 1)), kcat(0, 1, 2 * hour, &order(1, 1)), kcat(0, 2, 4 * hour, &order(1, 1))];
    let ran = room.run_with("replay seen.yaml --envelope kcat --explain", lines.join("\n")).ended(0);
    let reasons: Vec<_> =
        ran.stdout.lines().map(|line| line.split(r#""reason":""#).nth(1).unwrap().split('"').next().unwrap()).collect();
    assert_eq!(reasons, ["first", "seen", "expired"]);
}

#[test]
fn null_and_malformed_payloads_are_judged_by_the_topology() {
    let room = Room::new();
    let null = kcat(0, 0, 1_000, "").replace(r#""payload":"""#, r#""payload":null"#);
    let lines = [null, kcat(0, 1, 1_000, "{\"order_id\":")];
    let ran = room.run_with("replay payments.yaml --envelope kcat --explain", lines.join("\n")).ended(0);
    assert!(
        ran.stdout.contains(r#""reason":"null_value""#) && ran.stdout.contains(r#""reason":"value_malformed""#),
        "{}",
        ran.stdout
    );
}

/// A topology of change events.
const ORDERS: &str = "\
name: orders
preset: debezium-postgres@2
input: {pattern: '^shop\\.', exclude: ['\\.tmp$']}
output: {topic: 'clean.{topic}'}
";

/// A change event of a row as PostgreSQL's connector writes it; a null value if there is no operation.
fn change(offset: i64, id: u32, op: Option<&str>, lsn: u64) -> String {
    let value = op.map(|op| {
        let source = r#""connector":"postgresql","name":"shop","db":"shop","schema":"public","table":"orders""#;
        format!(
            r#"{{"before":null,"after":{{"id":{id}}},"source":{{{source},"lsn":{lsn}}},"op":"{op}","ts_ms":{offset}}}"#
        )
    });
    let value = serde_json::Value::from(value);
    format!(
        r#"{{"topic":"shop.orders","partition":0,"offset":{offset},"ts":{},"key":"{{\"id\":{id}}}","payload":{value}}}"#,
        1_000 + offset
    )
}

#[test]
fn change_events_are_explained_with_kind_epoch_and_known_version() {
    let room = Room::new();
    room.write("orders.yaml", ORDERS);
    let lines = [
        change(0, 7, Some("r"), 100),
        change(1, 7, Some("u"), 300),
        change(2, 7, Some("u"), 200),
        change(3, 7, Some("r"), 400),
        change(4, 7, Some("d"), 500),
        change(5, 7, None, 0),
        change(6, 7, None, 0),
    ];
    let ran = room.run_with("replay orders.yaml --envelope kcat --explain", lines.join("\n")).ended(0).quietly();
    let explained: Vec<serde_json::Value> =
        ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let lines: Vec<String> = explained
        .iter()
        .map(|line| {
            let text = |key: &str| line[key].as_str().unwrap().to_owned();
            let against = &line["against"]["version"];
            format!("{} {} {} {} {against}", text("verdict"), text("reason"), text("kind"), line["version"])
        })
        .collect();
    assert_eq!(
        lines,
        [
            "forwarded first read [100,100] null",
            "forwarded newer change [300,300] [100,100]",
            "stale version_older change [200,200] [300,300]",
            "stale snapshot_read read [400,400] [300,300]",
            "forwarded newer delete [500,500] [300,300]",
            "forwarded tombstone tombstone null [500,500]",
            "duplicate tombstone_not_owed tombstone null [500,500]",
        ]
    );
    let epoch = serde_json::json!(["shop", "shop", 1]);
    assert_eq!(explained[2]["epoch"], epoch);
    assert_eq!(explained[2]["against"], serde_json::json!({"version": [300, 300], "epoch": epoch, "last_seen": 1_001}));
    assert!(ran.stdout.starts_with(
        r#"{"topic":"shop.orders","partition":0,"offset":0,"verdict":"forwarded","reason":"first","identity":["#
    ));
}

#[test]
fn null_values_that_are_deletes_get_a_hint() {
    let room = Room::new();
    room.write("orders.yaml", ORDERS);
    let lines = [change(0, 7, Some("c"), 100), change(1, 7, None, 0)];
    room.run_with("replay orders.yaml --envelope kcat --summary", lines.join("\n")).ended(0).said(&[
        "epochs: 1: [\"shop\",\"shop\",1]",
        "hint: 1 null value was not forwarded (`on_null_value: follow_delete`)",
        "write `on_null_value: forward`",
    ]);
}

#[test]
fn plain_lines_for_a_pattern_need_a_topic() {
    let room = Room::new();
    room.write("orders.yaml", ORDERS);
    room.run_with("replay orders.yaml", "{}").ended(2).wrote(&[]).said(&["reads topics by a pattern", "`--topic`"]);
    room.run_with("replay orders.yaml", "{}").never_said("--envelope");
    room.run_with("replay orders.yaml --topic shop.orders", "{}").ended(0).quietly().wrote(&["{}"]);
    let ran = room.run_with("replay orders.yaml --topic shop.orders.tmp", "{}").ended(0);
    ran.said(&["`shop.orders.tmp`", "orders does not read"]);
}

#[test]
fn forgotten_envelope_is_reported_for_a_pattern_too() {
    let room = Room::new();
    room.write("orders.yaml", ORDERS);
    let ran = room.run_with("replay orders.yaml", change(0, 7, Some("c"), 100)).ended(2).wrote(&[]);
    ran.said(&["looks like what `kcat -J` prints", "add `--envelope kcat`"]).never_said("--topic");
    // a compressed capture is checked as well
    room.write("packed.jsonl", gzip(&change(0, 7, Some("c"), 100)));
    room.run("replay orders.yaml packed.jsonl").ended(2).said(&["add `--envelope kcat`"]);
    room.run("replay orders.yaml --envelope kcat packed.jsonl").ended(0).wrote(&[&change(0, 7, Some("c"), 100)]);
}

#[test]
fn compressed_captures_are_read_or_their_format_is_named() {
    let room = Room::new();
    room.write("records.gz", gzip(RECORDS));
    room.run("replay payments.yaml records.gz").ended(0).quietly().wrote(&SURVIVORS);
    room.run_with("replay payments.yaml", gzip(RECORDS)).ended(0).wrote(&SURVIVORS);
    room.write("records.bz2", b"BZh91AY&SY");
    let ran = room.run("replay payments.yaml records.bz2").ended(2).wrote(&[]);
    ran.said(&["records.bz2 is compressed (bzip2)", "unpack it first"]);
    let packed = gzip(RECORDS);
    room.write("torn.gz", &packed[..packed.len() / 2]);
    room.run("replay payments.yaml torn.gz").ended(2).said(&["cannot read torn.gz"]);
}

#[test]
fn malformed_line_is_judged_by_the_topology_as_in_a_run() {
    let room = Room::new();
    room.write("torn.jsonl", order(2, 1) + "\n\n{\"order_id\": 3,\n" + &order(4, 1));
    let ran = room.run("replay payments.yaml torn.jsonl --summary").ended(0);
    ran.wrote(&[&order(2, 1), &order(4, 1)]).said(&["invalid 1 value_malformed 1"]);
    room.write("strict.yaml", PAYMENTS.to_owned() + "on_invalid: fail\n");
    let ran = room.run("replay strict.yaml torn.jsonl").ended(1).wrote(&[&order(2, 1)]);
    ran.said(&["the task stops at payments:0:1 (value_malformed)"]);
}

#[test]
fn values_of_format_bytes_may_hold_anything() {
    let room = Room::new();
    room.write("bytes.yaml", "name: lines\ninput: {topics: [lines], value_format: bytes}\nidentity: value\noutput: {topic: lines.unique}\npartitioned_by_identity: true\n");
    room.run_with("replay bytes.yaml", "no json\n{\nno json\n").ended(0).quietly().wrote(&["no json", "{"]);
}

#[test]
fn kcat_envelope_without_the_option_is_noticed() {
    let room = Room::new();
    let ran = room.run_with("replay payments.yaml --summary", kcat(0, 0, 1_000, &order(1, 1))).ended(0);
    ran.said(&["hint: the lines look like what `kcat -J` prints: add `--envelope kcat`"]);
}

#[test]
fn presets_word_on_records_without_an_identity_is_the_advice() {
    let room = Room::new();
    room.write("ddl.yaml", "name: ddl\npreset: maxwell@2\ninput: {topics: [maxwell]}\noutput: {topic: out}\n");
    let line = r#"{"type":"table-alter","database":"shop","table":"orders","sql":"alter table orders add c int"}"#;
    let ran = room.run_with("replay ddl.yaml --summary", line).ended(0);
    let ran = ran
        .said(&["hint: 1 of 1 record has no identity (identity_missing)", "it is about no row, and passes each time"]);
    assert!(!ran.stderr.contains("change `identity`"), "{}", ran.stderr);
}

#[test]
fn summary_counts_signs_of_unfit_rules() {
    let room = Room::new();
    // versions that all of the topic shares, like positions in a log
    let lines = [order(1, 5), order(2, 3), order(3, 4), order(1, 5), order(2, 6)];
    room.run_with("replay payments.yaml --summary", lines.join("\n")).ended(0).said(&[
        "duplicates: 20.0 %",
        "versions below the highest of their partition: 2 (payments:0 2); below their identity's own: 0",
        "hint: versions fall within partitions 2 times, and within an identity 0 times: that is normal",
        "would have dropped 2 good records",
    ]);
}

#[test]
fn redelivered_input_is_not_blamed_on_the_rules() {
    let room = Room::new();
    let once: Vec<String> = (0..10).flat_map(|id| (1..5).map(move |version| order(id, version))).collect();
    let thrice = [once.clone(), once.clone(), once].concat();
    let captured = |offset: &dyn Fn(usize) -> usize| {
        let line = |(number, value): (usize, &String)| kcat(0, offset(number) as i64, 1_000, value);
        thrice.iter().enumerate().map(line).collect::<Vec<_>>().join("\n")
    };
    let command = "replay payments.yaml --envelope kcat --summary";
    for (lines, hint) in [
        (
            captured(&|number| number),
            "(0 with an offset that was there before, 80 with the key, value and headers of a record",
        ),
        (
            captured(&|number| number % 40),
            "(80 with an offset that was there before, 0 with the key, value and headers of",
        ),
    ] {
        let ran = room.run_with(command, lines).ended(0);
        assert!(!ran.stderr.contains("may be") && !ran.stderr.contains("may not be"), "{}", ran.stderr);
        ran.said(&["hint: 80 of 120 records came again", hint, "nothing has to be changed"]);
    }
}

/// A stream of change events whose source restarts at earlier positions; each redelivered record has a new time of
/// sending, as after a connector's crash.
fn redelivered_changes() -> Vec<String> {
    let change = |id: u32, version: i64, sent_at: usize| {
        format!(r#"{{"order_id":{id},"operation":"charge","version":{version},"sent_at":{sent_at}}}"#)
    };
    // positions in a log: they rise for each row, and within the partition except for a late row now and then
    let once: Vec<(u32, i64)> =
        (0..60).map(|n| (n % 5, i64::from(10 * n) - if n % 10 == 9 { 15 } else { 0 })).collect();
    let again = [&once[..40], &once[10..50], &once[20..]].concat();
    again.iter().enumerate().map(|(number, &(id, version))| change(id, version, number)).collect()
}

#[test]
fn falling_versions_of_redelivered_records_are_not_blamed_on_the_rules() {
    let room = Room::new();
    let lines = redelivered_changes();
    let ran = room.run_with("replay payments.yaml --summary", lines.join("\n")).ended(0);
    // only redelivered records are stale: otherwise no version falls within an identity
    let stale = ran.stderr.lines().find(|line| line.starts_with("stale")).unwrap().to_owned();
    assert!(!stale.contains(" 0"), "{stale}");
    let ran = ran.never_said("may not be what rises").never_said("rarely");
    ran.said(&["within an identity 0 times", "were redelivered", "nothing has to be changed"]);
}

#[test]
fn falling_versions_of_new_records_get_a_hint_with_both_counts() {
    let room = Room::new();
    // each identity's versions fall every other time, and never to one that it had before
    let lines: Vec<String> =
        (0..60).map(|n| order(n % 3, if n / 3 % 2 == 0 { 1_000 + i64::from(n) } else { i64::from(n) })).collect();
    let ran = room.run_with("replay payments.yaml --summary", lines.join("\n")).ended(0);
    ran.said(&[
        "hint: versions fall within an identity 30 times, and between identities 0 times",
        "may not be what rises",
    ]);
}

#[test]
fn unfit_rules_get_a_hint() {
    let room = Room::new();
    room.write("coarse.yaml", PAYMENTS.replace("[value.order_id, value.operation]", "value.operation"));
    room.write("nowhere.yaml", PAYMENTS.replace("value.version", "value.revision"));
    room.write("absent.yaml", PAYMENTS.replace("value.order_id", "value.id"));
    room.write("misspelt.yaml", format!("{PAYMENTS}\ncontents: value.operatoin\n"));
    let except = "contents: {fingerprint: value, except: [value.versoin, value.version]}";
    room.write("misspelt-exception.yaml", format!("{PAYMENTS}\n{except}\n"));
    let lines: Vec<String> = (0..40).map(|id| order(id, 1)).collect();
    for (topology, hint) in [
        (
            "coarse",
            "hint: over half of the records are dropped, most of them as duplicates: `identity` may be too coarse",
        ),
        ("nowhere", "hint: no record has a version"),
        ("absent", "hint: 40 of 40 records have no identity (identity_missing)"),
        ("misspelt", "hint: no record has `value.operatoin`, which `contents` names: nothing of it is compared"),
        ("misspelt-exception", "hint: no record has `value.versoin`, which `except` names: nothing is left out for it"),
    ] {
        room.run_with(&format!("replay {topology}.yaml --summary"), lines.join("\n")).ended(0).said(&[hint]);
    }
    let ran = room.run_with("replay payments.yaml --summary", lines.join("\n")).ended(0);
    assert!(!ran.stderr.contains("hint"), "{}", ran.stderr);
}

#[test]
fn line_without_the_kcat_envelope_is_reported_with_advice() {
    let room = Room::new();
    let ran = room.run_with("replay payments.yaml --envelope kcat", order(1, 1)).ended(2).wrote(&[]);
    ran.said(&["standard input:1", "missing field `topic`", "leave `--envelope` out"]);
}

#[test]
fn unknown_envelope_lists_the_known_ones() {
    Room::new().run("replay payments.yaml --envelope kat").ended(2).said(&["'kat'", "kcat"]);
}

#[test]
fn topic_and_partition_conflict_with_an_envelope() {
    Room::new().run_with("replay payments.yaml --envelope kcat --partition 1", "").ended(2).said(&["--partition"]);
    Room::new().run_with("replay payments.yaml --partition -1", "").ended(2);
}

#[test]
fn missing_file_is_a_user_error() {
    let room = Room::new();
    room.run("replay payments.yaml nowhere.jsonl").ended(2).wrote(&[]).said(&["nowhere.jsonl"]);
    room.run("replay nowhere.yaml").ended(2).said(&["nowhere.yaml"]);
}

#[test]
fn record_that_the_topology_fails_on_ends_the_replay() {
    let room = Room::new();
    room.write("strict.yaml", PAYMENTS.to_owned() + "on_missing: fail\n");
    let input = [order(1, 1), r#"{"operation":"refund"}"#.to_owned(), order(2, 1)].join("\n");
    let ran = room.run_with("replay strict.yaml --summary", input).ended(1).wrote(&[&order(1, 1)]);
    ran.said(&["the task stops at payments:0:1 (identity_missing)", "`fail`", "records 2"]);
}

#[test]
fn empty_input_gives_empty_output() {
    Room::new().run_with("replay payments.yaml", "").ended(0).quietly().wrote(&[]);
}

#[test]
fn closed_standard_output_ends_the_replay_quietly() {
    let room = Room::new();
    let lines: String = (0..200_000).map(|id| order(id, 1) + "\n").collect();
    let path = room.write("many.jsonl", lines);
    let mut replay = Command::new(env!("CARGO_BIN_EXE_ratchet"))
        .args(["replay", "payments.yaml", path.to_str().unwrap(), "--summary"])
        .current_dir(room.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 16];
    replay.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let output = replay.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(&first, br#"{"order_id":0,"o"#);
}

#[test]
fn growing_capture_is_followed() {
    let room = Room::new();
    let mut replay = Command::new(env!("CARGO_BIN_EXE_ratchet"))
        .args(["replay", "payments.yaml"])
        .current_dir(room.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut input, mut output) = (replay.stdin.take().unwrap(), replay.stdout.take().unwrap());
    for id in 0..3 {
        let line = order(id, 1) + "\n";
        input.write_all(line.as_bytes()).unwrap();
        let mut survivor = vec![0; line.len()];
        // would block for ever if survivors waited for a full buffer
        output.read_exact(&mut survivor).unwrap();
        assert_eq!(survivor, line.as_bytes());
    }
    drop(input);
    assert!(replay.wait().unwrap().success());
}

#[test]
fn colours_and_bars_are_only_for_terminals() {
    let room = Room::new();
    room.write("records.jsonl", RECORDS);
    let ran = room.run("replay payments.yaml records.jsonl --summary").ended(0);
    assert!(!ran.stderr.contains('\u{1b}') && !ran.stdout.contains('\u{1b}'), "{ran:?}");
}
