//! Goal: every valid RFC 3339 text is read as a version, exactly, and every other text is refused for its true reason.

use super::Room;

const ACCOUNTS: &str = "\
name: accounts
input: {topics: [accounts], value_format: json}
identity: value.id
version: {of: value.at, as: timestamp}
output: {topic: accounts.clean}
partitioned_by_identity: true
";

/// The reasons for the verdicts on records of one account with these times, in this order.
fn reasons(times: &[&str]) -> Vec<String> {
    let room = Room::new();
    room.write("accounts.yaml", ACCOUNTS);
    let lines: String = times.iter().map(|at| format!("{{\"id\":1,\"at\":\"{at}\"}}\n")).collect();
    room.write("records.jsonl", lines);
    let ran = room.run("replay accounts.yaml records.jsonl --explain").ended(0);
    let reason = |line: &str| {
        let explained: serde_json::Value = serde_json::from_str(line).unwrap();
        explained["reason"].as_str().unwrap().to_owned()
    };
    ran.stdout.lines().map(reason).collect()
}

/// As IBM's Data Replication writes Db2's TIMESTAMP(12).
#[test]
fn twelve_digits_after_the_point_are_compared() {
    let day = "2019-06-18 12:00:00";
    let times = [".123456000000", ".123456000001", ".123456000000", ".123456000001", ".123456000002"];
    let times: Vec<String> = times.iter().map(|fraction| format!("{day}{fraction}")).collect();
    let times: Vec<&str> = times.iter().map(String::as_str).collect();
    assert_eq!(reasons(&times), ["first", "newer", "version_older", "version_equal", "newer"]);
}

#[test]
fn every_form_of_rfc_3339_is_read() {
    let times = [
        "2016-12-31t23:59:59z",
        "2016-12-31T23:59:60Z",
        "2017-01-01T01:00:00.000000000000000000001+01:00",
        "2017-01-01T00:00:00.000000000000000000002Z",
        "9999-12-31T23:59:59Z",
        "9999-12-31T23:59:59.9999999999Z",
    ];
    // The second is the same moment, written differently.
    assert_eq!(reasons(&times), ["first", "version_tied", "newer", "newer", "newer", "newer"]);
}

#[test]
fn what_is_no_time_is_refused_for_its_reason() {
    let room = Room::new();
    room.write("accounts.yaml", ACCOUNTS);
    for (at, words) in [
        ("2019-02-30T12:00:00Z".to_owned(), "neither RFC 3339".to_owned()),
        (format!("2019-02-28T12:00:00.{}Z", "1".repeat(400)), "has 400 digits, more than the limit of 300".to_owned()),
    ] {
        room.write("records.jsonl", format!("{{\"id\":1,\"at\":\"{at}\"}}\n"));
        let ran = room.run("replay accounts.yaml records.jsonl --explain").ended(0);
        assert!(ran.stdout.contains(&words), "{words}: {}", ran.stdout);
    }
}
