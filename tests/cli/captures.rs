//! Goal: what `ratchet capture` writes is recognised wherever captured records are read, without an option; and what
//! `capture` and `replay --into` cannot do is said before a cluster is asked.

use super::Room;

fn captured(partition: i32, offset: i64, payload: &str) -> String {
    format!(
        r#"{{"capture":1,"topic":"payments","partition":{partition},"offset":{offset},"tstype":"create","ts":1764300001000,"headers":["trace","1"],"key":"k","payload":{payload}}}"#
    )
}

fn order(id: u32, version: i64) -> String {
    serde_json::Value::from(format!(r#"{{"order_id":{id},"operation":"charge","version":{version}}}"#)).to_string()
}

/// Two orders, one of them twice, and bytes that are no text.
fn lines() -> [String; 4] {
    [
        captured(0, 10, &order(1, 1)),
        captured(0, 11, &order(1, 1)),
        captured(3, 7, &order(2, 1)),
        captured(3, 8, r#"{"base64":"/wA="}"#),
    ]
}

#[test]
fn replay_recognises_a_capture_and_prints_its_lines_unchanged() {
    let room = Room::new();
    let lines = lines();
    for words in ["replay payments.yaml", "replay payments.yaml --envelope capture", "replay payments.yaml -"] {
        room.run_with(words, lines.join("\n")).ended(0).quietly().wrote(&[&lines[0], &lines[2]]);
    }
    let ran = room.run_with("replay payments.yaml --explain", lines.join("\n")).ended(0);
    assert!(
        ran.stdout.contains(r#""partition":3,"offset":8,"verdict":"invalid","reason":"value_malformed""#),
        "{ran:?}"
    );
}

#[test]
fn capture_names_its_topics_for_a_pattern() {
    let room = Room::new();
    let topology = "name: all\ninput: {pattern: '^pay'}\nidentity: [value.order_id]\noutput: {topic: out}\n";
    room.write("all.yaml", topology);
    room.run_with("replay all.yaml", lines().join("\n")).ended(0).wrote(&[&lines()[0], &lines()[2]]);
}

#[test]
fn capture_taken_for_values_is_what_was_asked_for() {
    let room = Room::new();
    let ran = room.run_with("replay payments.yaml --envelope none --explain", lines()[0].as_str()).ended(0);
    assert!(ran.stdout.contains(r#""partition":0,"offset":0,"verdict":"invalid""#), "{ran:?}");
}

#[test]
fn line_that_is_no_capture_is_named() {
    let room = Room::new();
    let input = format!("{}\n{}\n", lines()[0], r#"{"order_id":7}"#);
    room.run_with("replay payments.yaml", input).ended(2).said(&["standard input:2", "record of `ratchet capture`"]);
    let cut = &lines()[0][..100];
    room.run_with("replay payments.yaml --envelope capture", cut).ended(2).said(&["standard input:1", "EOF"]);
    let later = lines()[0].replace("\"capture\":1", "\"capture\":2");
    room.run_with("replay payments.yaml", later).ended(2).said(&["number 2", "later release"]);
}

#[test]
fn options_that_place_lines_conflict_with_a_capture() {
    let room = Room::new();
    for words in ["--partition 1", "--topic payments", "--envelope capture --partition 1"] {
        let words = format!("replay payments.yaml {words}");
        room.run_with(&words, lines()[0].as_str()).ended(2).said(&["--topic and --partition are for lines without"]);
    }
}

#[test]
fn infer_proposes_for_a_capture_what_replays_it_without_an_option() {
    let room = Room::new();
    let many: Vec<String> = (0..60).map(|n| captured(0, n, &order(n as u32 % 20, n / 20))).collect();
    room.write("captured.jsonl", many.join("\n"));
    let proposed = room.run("infer captured.jsonl").ended(0);
    assert!(proposed.stdout.contains("`ratchet replay THIS_FILE CAPTURE --summary > survivors`"), "{proposed:?}");
    room.write("proposed.yaml", &proposed.stdout);
    assert_eq!(room.run("replay proposed.yaml captured.jsonl").ended(0).stdout.lines().count(), 60);
}

#[test]
fn values_are_still_values() {
    let room = Room::new();
    let value = r#"{"capture":1,"order_id":7,"operation":"charge","version":1}"#;
    room.run_with("replay payments.yaml", value).ended(0).quietly().wrote(&[value]);
}

#[test]
fn options_of_into_are_checked_without_a_cluster() {
    let room = Room::new();
    room.write("captured.jsonl", lines().join("\n"));
    for words in ["--repartition", "--force"] {
        room.run(&format!("replay payments.yaml captured.jsonl {words}")).ended(2).said(&["--into"]);
    }
    room.run("replay payments.yaml captured.jsonl --into x --explain").ended(2).said(&["--into", "--explain"]);
    room.run("replay payments.yaml captured.jsonl --set http=off").ended(2).said(&["the source of schemas"]);
    let nowhere = "replay --into x captured.jsonl --set cluster=embedded --set embedded.dir=d";
    room.run(nowhere).ended(2).said(&["cluster: embedded"]);
    room.run("replay --into x captured.jsonl").ended(2).said(&["kafka.bootstrap.servers"]);
}

#[test]
fn places_and_keys_of_a_capture_are_checked_without_a_cluster() {
    let room = Room::new();
    for (words, said) in [
        ("--from yesterday", "2026-11-30T08:00:00Z"),
        ("--to 1.5", "a number of offsets before"),
        ("--key a --key-base64 YQ==", "cannot be used with"),
        ("--key-base64 a", "--key-base64"),
        ("--limit 0", "--limit"),
        ("--partition=-1", "--partition"),
    ] {
        room.run(&format!("capture payments {words}")).ended(2).said(&[said]).wrote(&[]);
    }
    room.run("capture").ended(2).said(&["<TOPIC>"]);
    room.run("capture payments").ended(2).said(&["kafka.bootstrap.servers"]).wrote(&[]);
}
