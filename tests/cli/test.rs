//! `ratchet test`: the tests that are part of topologies.

use quick_junit::Report;

use super::{PAYMENTS, Room};

const PASSING: &str = r#"tests:
  - name: a retried charge is dropped
    given:
      - {value: {order_id: 7, operation: charge, version: 1}}
      - {value: {order_id: 7, operation: charge, version: 1}}
      - {value: {order_id: 7, operation: charge, version: 2}}
    expect: [forwarded, {verdict: duplicate, reason: version_equal}, forwarded]
    output: [0, 2]
    entries: [{identity: [7, charge], version: 2}]
  - name: an old version is stale
    given: [{value: {order_id: 7, operation: charge, version: 2}}, {value: {order_id: 7, operation: charge, version: 1}}]
    expect: [forwarded, stale]
"#;

const FAILING: &str = r#"tests:
  - name: a newer version is a duplicate
    given: [{value: {order_id: 7, operation: charge, version: 1}}, {value: {order_id: 7, operation: charge, version: 2}}]
    expect: [forwarded, duplicate]
    output: [0]
    entries: [{identity: [7, charge], version: 1}]
"#;

/// A room with a topology whose tests pass, and one with a failing test.
fn room() -> Room {
    let room = Room::new();
    room.write("good.yaml", PAYMENTS.replace("name: payments", "name: good") + PASSING);
    room.write("bad.yaml", PAYMENTS.replace("name: payments", "name: bad") + FAILING);
    room
}

#[test]
fn passing_tests_have_a_line_each() {
    room()
        .run("test good.yaml")
        .ended(0)
        .said(&["2 tests passed"])
        .wrote(&["ok      good: a retried charge is dropped", "ok      good: an old version is stale"]);
}

#[test]
fn failing_test_is_reported_with_its_place_and_differences() {
    let ran = room().run("test good.yaml bad.yaml").ended(1).said(&["1 of 3 tests failed"]);
    let lines: Vec<&str> = ran.stdout.lines().skip(2).collect();
    assert_eq!(lines[0], "FAILED  bad: a newer version is a duplicate  (bad.yaml:8)", "{}", ran.stdout);
    for line in [
        "        record 1 (payments:0:1)",
        "          expected duplicate",
        "          got      forwarded (newer): the version is greater than the one remembered",
        r#"          identity [7,"charge"]"#,
        "          version  2",
        "        output",
        "          expected records [0]",
        "          got      records [0, 1]",
        r#"        entry [7,"charge"]"#,
        "          expected one with version 1",
        "          got      one with version 2",
    ] {
        assert!(lines.contains(&line), "{line:?} is missing in\n{}", ran.stdout);
    }
}

#[test]
fn wrong_entry_is_reported_with_what_is_remembered() {
    let room = room();
    let tests = "tests: [{name: a, given: [{value: {order_id: 7, operation: charge, version: 1}}], expect: [forwarded], \
                 entries: [{identity: [charge, 7]}]}]\n";
    room.write("entry.yaml", PAYMENTS.to_owned() + tests);
    let ran = room.run("test entry.yaml").ended(1).said(&["`entries` takes what is remembered as it is listed above"]);
    assert!(!ran.stderr.contains("replay --explain"), "{}", ran.stderr);
    assert!(ran.stdout.contains("          [7,\"charge\"] with version 1\n"), "{}", ran.stdout);
}

#[test]
fn version_may_be_expected_as_it_was_given() {
    let room = room();
    let of = |kind: &str, given: &str, expected: &str| {
        let test = format!(
            "tests: [{{name: a, given: [{{value: {{order_id: 7, operation: c, version: {given}}}}}], expect: [forwarded], \
             entries: [{{identity: [7, c], version: {expected}}}]}}]\n"
        );
        room.write("kind.yaml", PAYMENTS.replace("as: integer", &format!("as: {kind}")) + &test);
        room.run("test kind.yaml")
    };
    for (kind, given, shown) in [
        ("hex", "00000027:00000758:0005", "'27:758:5'"),
        ("timestamp", "1577836800000", "2020-01-01T00:00:00Z"),
        ("decimal", "1.50", "1.5"),
        ("integer", "'007'", "7"),
        ("binlog", "mysql-bin.000003:154", "[3, 154]"),
        ("sequence", "'[null, \"24023128\"]'", "[null, 24023128]"),
    ] {
        of(kind, given, given).ended(0).said(&["1 test passed"]);
        of(kind, given, shown).ended(0);
    }
    let ran = of("hex", "00000027:00000758:0005", "00000027:00000758:0006").ended(1);
    assert!(ran.stdout.contains("got      one with version \"27:758:5\""), "{}", ran.stdout);
    of("hex", "00000027:00000758:0005", "3.5").ended(2).said(&["groups of hex digits, like 00000027:00000758:0005"]);
}

#[test]
fn tests_can_be_selected_by_name() {
    let room = room();
    room.run("test good.yaml bad.yaml --only retried").ended(0).wrote(&["ok      good: a retried charge is dropped"]);
    room.run("test good.yaml bad.yaml --only bad").ended(1);
    room.run("test good.yaml --only nowhere").ended(2).said(&["no test has `nowhere` in its name"]);
}

#[test]
fn topology_without_tests_is_reported_and_is_no_failure() {
    room()
        .run("test payments.yaml")
        .ended(0)
        .wrote(&[])
        .said(&["payments.yaml: payments has no tests", "0 tests passed"]);
}

#[test]
fn topology_with_mistakes_is_a_user_error() {
    let room = room();
    room.write("broken.yaml", PAYMENTS.replace("identity", "identiti"));
    room.run("test good.yaml broken.yaml").ended(2).wrote(&[]).said(&["broken.yaml:3:1"]);
}

#[test]
fn junit_report_can_be_parsed() {
    let room = room();
    room.run("test good.yaml bad.yaml payments.yaml --junit report.xml").ended(1);
    let xml = std::fs::read_to_string(room.path().join("report.xml")).unwrap();
    let report = Report::deserialize_from_str(&xml).unwrap();
    let suites: Vec<_> =
        report.test_suites.iter().map(|suite| (suite.name.as_str(), suite.tests, suite.failures)).collect();
    assert_eq!(suites, [("good", 2, 0), ("bad", 1, 1), ("payments", 0, 0)], "{xml}");
    assert!(xml.contains("expected duplicate") && xml.contains(r#"line="8""#), "{xml}");
    room.run("test good.yaml --junit no/such/folder/report.xml").ended(1).said(&["cannot write"]);
}

#[test]
fn records_are_read_from_a_file_beside_the_topology() {
    let room = room();
    let record = r#"{"order_id":7,"operation":"charge","version":1}"#;
    room.write("deeper/charges.jsonl", format!("{record}\n{record}\n"));
    let tests = "tests:\n  - {name: from a file, given: {file: charges.jsonl}, expect: [forwarded, duplicate]}\n";
    room.write("deeper/filed.yaml", PAYMENTS.to_owned() + tests);
    room.run("test deeper/filed.yaml").ended(0).wrote(&["ok      payments: from a file"]);
    room.write("deeper/filed.yaml", PAYMENTS.to_owned() + &tests.replace("charges", "refunds"));
    room.run("test deeper/filed.yaml").ended(2).said(&["refunds.jsonl"]);
}

#[test]
fn test_with_an_unreadable_file_is_an_error_and_others_run() {
    let room = room();
    let tests = "tests:\n  - {name: lost, given: {file: nowhere.jsonl}, expect: [forwarded]}\n";
    room.write("lost.yaml", PAYMENTS.replace("name: payments", "name: lost") + tests);
    let ran = room.run("test lost.yaml good.yaml bad.yaml --junit report.xml").ended(2);
    let ran = ran.said(&["1 of 4 tests could not be run, 1 failed", "nowhere.jsonl"]);
    for line in ["ERROR   lost: lost  (lost.yaml:8)", "ok      good: an old version is stale"] {
        assert!(ran.stdout.lines().any(|found| found == line), "{line} is missing in\n{}", ran.stdout);
    }
    assert!(ran.stdout.contains("FAILED  bad: "), "{}", ran.stdout);
    let xml = std::fs::read_to_string(room.path().join("report.xml")).unwrap();
    let report = Report::deserialize_from_str(&xml).unwrap();
    assert_eq!((report.tests, report.failures, report.errors), (4, 1, 1), "{xml}");
    assert!(xml.contains("<error"), "{xml}");
}

#[test]
fn exit_code_reports_failures_with_standard_output_closed() {
    let room = room();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut test = std::process::Command::new(env!("CARGO_BIN_EXE_ratchet"));
    test.args(["test", "good.yaml", "bad.yaml"]).current_dir(room.path()).stdout(writer);
    let output = test.stderr(std::process::Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("1 of 3 tests failed"));
}

#[test]
fn shipped_topologies_pass_their_tests() {
    let shipped = concat!("test ", env!("CARGO_MANIFEST_DIR"), "/topologies");
    let ran = room().run(shipped).ended(0);
    for topology in ["payments", "webhooks", "orders-changes"] {
        assert!(ran.stdout.contains(&format!("ok      {topology}: ")), "{}", ran.stdout);
    }
}
