//! `ratchet infer`: captured records in, a topology out that loads and does something sensible to them.

use super::{Ran, Room};

/// Infers a topology from these lines, writes it as `proposed.yaml`, and checks it.
#[track_caller]
fn proposed(room: &Room, lines: &str, options: &str) -> Ran {
    room.write("captured.jsonl", lines);
    let ran = room.run(&format!("infer captured.jsonl {options}")).ended(0);
    room.write("proposed.yaml", &ran.stdout);
    room.run("check proposed.yaml").ended(0);
    ran
}

/// How many of the captured lines come out.
#[track_caller]
fn survivors(room: &Room, options: &str) -> usize {
    room.run(&format!("replay proposed.yaml captured.jsonl {options}")).ended(0).stdout.lines().count()
}

const CHARGES: &str = r#"{"order_id":7,"operation":"charge","amount":5}
{"order_id":7,"operation":"charge","amount":5}
{"order_id":7,"operation":"refund","amount":5}
"#;

#[test]
fn a_proposal_stands_on_standard_output_with_its_reasons_and_loads_as_it_is() {
    let room = Room::new();
    let ran = proposed(&room, CHARGES, "");
    for line in [
        "name: captured",
        "input: {topics: [captured]}",
        "identity: [value.order_id, value.operation]",
        "output: {topic: captured.unique}",
        "# Replaying the records that were looked at with it: 2 forwarded, 1 duplicate, 0 stale, 0 invalid.",
    ] {
        assert!(ran.stdout.lines().any(|found| found == line), "{line} is missing in\n{}", ran.stdout);
    }
    assert!(ran.stdout.contains("# value.order_id is in all 3 records, always an integer"), "{}", ran.stdout);
    assert_eq!(survivors(&room, ""), 2);
    ran.said(&["unsure: the lines are values only", "say it by `--topic`"]);
}

#[test]
fn names_can_be_said() {
    let room = Room::new();
    let ran = proposed(&room, CHARGES, "--name charges --topic payments --output payments.once");
    for line in ["name: charges", "input: {topics: [payments]}", "output: {topic: payments.once}"] {
        assert!(ran.stdout.lines().any(|found| found == line), "{line} is missing in\n{}", ran.stdout);
    }
}

#[test]
fn kcats_envelope_is_recognised_and_keys_and_partitions_are_looked_at() {
    let room = Room::new();
    let samples = concat!(env!("CARGO_MANIFEST_DIR"), "/topologies/samples/orders.jsonl");
    let ran = proposed(&room, &std::fs::read_to_string(samples).unwrap(), "");
    for line in [
        "input: {topics: [orders.changes]}",
        "identity: [value.order_id]",
        "version: {of: value.version, as: integer}",
        "partitioned_by_identity: true",
    ] {
        assert!(ran.stdout.lines().any(|found| found == line), "{line} is missing in\n{}", ran.stdout);
    }
    assert_eq!(survivors(&room, "--envelope kcat"), 151);
    ran.quietly();
}

#[test]
fn standard_input_is_read_where_no_file_is_given() {
    let ran = Room::new().run_with("infer", CHARGES).ended(0);
    assert!(ran.stdout.contains("input: {topics: [captured]}"), "{}", ran.stdout);
}

#[test]
fn no_more_records_are_looked_at_than_was_said() {
    let ran = Room::new().run_with("infer --records 2", CHARGES).ended(0);
    assert!(ran.stdout.starts_with("# Proposed by `ratchet infer` from 2 records, the first of"), "{}", ran.stdout);
}

#[test]
fn nothing_to_look_at_is_an_error_of_the_user() {
    let room = Room::new();
    room.run_with("infer", "\n\n").ended(2).wrote(&[]).said(&["the capture holds no record"]);
    room.run("infer nowhere.jsonl").ended(2).wrote(&[]).said(&["nowhere.jsonl"]);
    room.run_with("infer --records 0", CHARGES).ended(2);
}
