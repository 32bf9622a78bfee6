//! Goal: a topology's own tests pass or fail as they should, and differences are reported.

mod sinks;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Difference, run_case};
use crate::capture::Form;
use crate::dedup::{self, Action, Format, Identity, IdentityPart, Reason, Rules, Verdict, Version};
use crate::topology::cases::{Expected, ExpectedEntry, Given, GivenRecord, TIMESTAMP_MS};
use crate::topology::{Destination, Input, Output, Start, TestCase, Topology};

fn path(text: &str) -> dedup::Path {
    dedup::Path::parse(text).unwrap()
}

fn payments() -> Topology {
    let identity = Identity::of_paths([path("value.id"), path("value.op")]);
    Topology {
        name: "payments".to_owned(),
        preset: None,
        input: Input::Topics(vec!["payments".to_owned()]),
        start: Start::Earliest,
        rules: Arc::new(Rules::new(identity, Some(Version::integer(path("value.v"))))),
        schemas: Default::default(),
        destination: Destination::Output(Output::to("payments.unique")),
        gate: None,
        dead_letter: "payments.dead_letter".to_owned(),
        audit: None,
        only_said_to_be_partitioned: false,
        tests: Vec::new(),
    }
}

fn given(value: &str) -> GivenRecord {
    GivenRecord {
        topic: None,
        partition: 0,
        offset: None,
        timestamp: Some(TIMESTAMP_MS),
        key: None,
        value: Some(value.as_bytes().to_vec()),
        headers: Vec::new(),
    }
}

fn case(given: Vec<GivenRecord>, expect: &[(Verdict, Option<Reason>)]) -> TestCase {
    TestCase {
        name: "a test".to_owned(),
        line: 7,
        given: Given::Records(given),
        expect: expect.iter().map(|&(verdict, reason)| Expected { verdict, reason, calls: None, key: None }).collect(),
        output: None,
        entries: Vec::new(),
        rows: None,
        answers: Vec::new(),
        attempts: Vec::new(),
        results: None,
    }
}

const FIRST: &str = r#"{"id":7,"op":"charge","v":1}"#;
const SECOND: &str = r#"{"id":7,"op":"charge","v":2}"#;

fn differences(topology: &Topology, case: &TestCase) -> Vec<Difference> {
    run_case(topology, Path::new("."), case).unwrap().differences
}

#[test]
fn expected_results_have_no_differences() {
    let mut case = case(
        vec![given(FIRST), given(FIRST), given(SECOND), given(FIRST)],
        &[
            (Verdict::Forwarded, None),
            (Verdict::Duplicate, Some(Reason::VersionEqual)),
            (Verdict::Forwarded, Some(Reason::Newer)),
            (Verdict::Stale, None),
        ],
    );
    case.output = Some(vec![0, 2]);
    case.entries = vec![ExpectedEntry { identity: r#"[7, "ch\u0061rge"]"#.to_owned(), version: Some("2".to_owned()) }];
    assert_eq!(differences(&payments(), &case), []);
}

#[test]
fn wrong_verdict_is_reported_with_its_explanation() {
    let case = case(vec![given(FIRST), given(SECOND)], &[(Verdict::Forwarded, None), (Verdict::Duplicate, None)]);
    let differences = differences(&payments(), &case);
    let [difference] = &differences[..] else { panic!("{differences:?}") };
    let text = difference.to_string();
    for part in
        ["record 1 (payments:0:1)", "expected duplicate", "got      forwarded (newer)", r#"[7,"charge"]"#, "version  2"]
    {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
}

#[test]
fn wrong_reason_is_a_difference_if_one_is_expected() {
    let of = |reason| differences(&payments(), &case(vec![given(FIRST)], &[(Verdict::Forwarded, reason)])).len();
    assert_eq!((of(None), of(Some(Reason::First)), of(Some(Reason::Newer))), (0, 0, 1));
}

#[test]
fn more_or_fewer_expectations_than_records_are_a_difference() {
    let case = case(vec![given(FIRST), given(FIRST)], &[(Verdict::Forwarded, None)]);
    assert_eq!(differences(&payments(), &case), [Difference::Count { given: 2, expected: 1 }]);
}

#[test]
fn outputs_and_entries_are_compared() {
    let mut case = case(vec![given(FIRST), given(FIRST)], &[(Verdict::Forwarded, None), (Verdict::Duplicate, None)]);
    case.output = Some(vec![0, 1]);
    let entry = |identity: &str, version: Option<&str>| ExpectedEntry {
        identity: identity.to_owned(),
        version: version.map(str::to_owned),
    };
    let wrong = entry(r#"[7,"charge"]"#, Some("2"));
    let missing = entry(r#"["7","charge"]"#, None);
    case.entries = vec![wrong.clone(), missing.clone(), entry(r#"[7,"charge"]"#, None)];
    assert_eq!(
        differences(&payments(), &case),
        [
            Difference::Output { expected: vec![0, 1], got: vec![0] },
            Difference::Entry { expected: wrong, got: vec!["1".to_owned()], remembered: vec![] },
            Difference::Entry {
                expected: missing,
                got: vec![],
                remembered: vec![r#"[7,"charge"] with version 1"#.to_owned()]
            },
        ]
    );
}

#[test]
fn entry_matches_in_whatever_order_its_fields_are_written() {
    let mut topology = payments();
    let rules = Arc::make_mut(&mut topology.rules);
    rules.identity = Identity { parts: vec![IdentityPart::Content(path("key"))] };
    rules.key_format = Format::Json;
    let of = |identity: &str| {
        let mut record = given(FIRST);
        record.key = Some(br#"{"line": 2, "order_id": 1}"#.to_vec());
        let mut case = case(vec![record], &[(Verdict::Forwarded, None)]);
        case.entries = vec![ExpectedEntry { identity: identity.to_owned(), version: Some("1".to_owned()) }];
        differences(&topology, &case)
    };
    assert_eq!(of(r#"[{"order_id":1,"line":2}]"#), []);
    assert_eq!(of(r#"[{"line":2.0,"order_id":1}]"#), []);
    let text = of(r#"[{"order_id":1}]"#)[0].to_string();
    assert!(
        text.ends_with("nothing is remembered of it, but\n           [{\"line\":2,\"order_id\":1}] with version 1"),
        "{text}"
    );
}

#[test]
fn few_of_many_remembered_identities_are_listed() {
    let value = |id: usize| given(&format!(r#"{{"id":{id},"op":"charge","v":1}}"#));
    let mut case = case((0..11).map(value).collect(), &[(Verdict::Forwarded, None); 11]);
    case.entries = vec![ExpectedEntry { identity: r#"[11,"charge"]"#.to_owned(), version: None }];
    let differences = differences(&payments(), &case);
    let [Difference::Entry { remembered, .. }] = &differences[..] else { panic!("{differences:?}") };
    assert_eq!((remembered.len(), remembered[8].as_str()), (9, "and 3 more"));
}

#[test]
fn version_beyond_double_precision_is_compared_exactly() {
    let of = |version: &str| {
        let mut case =
            case(vec![given(r#"{"id":1,"op":"x","v":36893488147419103233}"#)], &[(Verdict::Forwarded, None)]);
        let identity = r#"[1,"x"]"#.to_owned();
        case.entries = vec![ExpectedEntry { identity, version: Some(version.to_owned()) }];
        differences(&payments(), &case).len()
    };
    assert_eq!((of("36893488147419103233"), of("36893488147419103232")), (0, 1));
}

#[test]
fn test_may_expect_only_output_or_entries() {
    let mut case = case(vec![given(FIRST), given(FIRST)], &[]);
    case.output = Some(vec![0]);
    assert_eq!(differences(&payments(), &case), []);
}

#[test]
fn each_partition_of_each_topic_is_judged_separately() {
    let mut records = vec![given(FIRST), given(FIRST), given(FIRST), given(FIRST)];
    records[1].partition = 1;
    records[2].topic = Some("elsewhere".to_owned());
    let forwarded = (Verdict::Forwarded, Some(Reason::First));
    let case = case(records, &[forwarded, forwarded, forwarded, (Verdict::Duplicate, None)]);
    assert_eq!(differences(&payments(), &case), []);
}

#[test]
fn offsets_rise_in_each_partition_unless_they_are_given() {
    let mut records = vec![given(FIRST), given(SECOND), given(SECOND), given(FIRST)];
    records[1].offset = Some(5);
    records[3].offset = Some(5);
    let replayed = (Verdict::Duplicate, Some(Reason::Replayed));
    let case = case(
        records,
        &[
            (Verdict::Forwarded, None),
            (Verdict::Forwarded, None),
            (Verdict::Duplicate, Some(Reason::VersionEqual)),
            replayed,
        ],
    );
    assert_eq!(differences(&payments(), &case), []);
}

#[test]
fn wall_clock_is_the_latest_given_timestamp() {
    let mut records = vec![given(FIRST), given(SECOND)];
    records[1].timestamp = Some(i64::MAX / 2);
    let case = case(records, &[(Verdict::Forwarded, None), (Verdict::Forwarded, None)]);
    assert_eq!(differences(&payments(), &case), []);
}

#[test]
fn partition_is_not_judged_after_a_record_that_fails() {
    let mut topology = payments();
    Arc::make_mut(&mut topology.rules).actions.missing_identity = Action::Fail;
    let mut records = vec![given(FIRST), given("{}"), given(SECOND), given(FIRST)];
    records[3].partition = 1;
    let case = case(
        records,
        &[
            (Verdict::Forwarded, None),
            (Verdict::Invalid, Some(Reason::IdentityMissing)),
            (Verdict::Forwarded, None),
            (Verdict::Forwarded, None),
        ],
    );
    let differences = differences(&topology, &case);
    let [Difference::Record { number: 2, got: None, .. }] = &differences[..] else { panic!("{differences:?}") };
    assert!(differences[0].to_string().contains("the task had stopped"), "{}", differences[0]);
}

#[test]
fn records_may_come_from_a_file_next_to_the_topology() {
    let folder = tempfile::tempdir().unwrap();
    let kcat = r#"{"topic":"payments","partition":3,"offset":9,"ts":5,"key":null,"payload":"{}"}"#;
    std::fs::write(folder.path().join("values.jsonl"), format!("{FIRST}\n\n{FIRST}\n{{\n")).unwrap();
    std::fs::write(folder.path().join("kcat.jsonl"), kcat).unwrap();
    let own =
        r#"{"capture":1,"topic":"payments","partition":3,"offset":9,"ts":5,"key":null,"payload":{"base64":"/w=="}}"#;
    std::fs::write(folder.path().join("own.jsonl"), own).unwrap();
    let run = |file: &str, form, expect: &[(Verdict, Option<Reason>)]| {
        let mut case = case(Vec::new(), expect);
        case.given = Given::File { path: PathBuf::from(file), form };
        run_case(&payments(), folder.path(), &case)
    };
    let malformed = (Verdict::Invalid, Some(Reason::ValueMalformed));
    let expected = [(Verdict::Forwarded, None), (Verdict::Duplicate, None), malformed];
    assert_eq!(run("values.jsonl", None, &expected).unwrap().differences, []);
    let outcome = run("kcat.jsonl", Some(Form::Kcat), &[(Verdict::Invalid, Some(Reason::IdentityMissing))]).unwrap();
    assert_eq!(outcome.differences, []);
    assert_eq!(outcome.records[0].as_ref().unwrap().place, "payments:3:9");
    for form in [None, Some(Form::Capture)] {
        let outcome = run("own.jsonl", form, &[malformed]).unwrap();
        assert_eq!(outcome.differences, []);
        assert_eq!(outcome.records[0].as_ref().unwrap().place, "payments:3:9");
    }
    assert!(run("values.jsonl", Some(Form::Kcat), &[]).unwrap_err().text.contains("values.jsonl:1"));
    assert!(run("nowhere.jsonl", None, &[]).unwrap_err().text.contains("nowhere.jsonl"));
}

#[test]
fn record_for_a_pattern_needs_a_topic() {
    let mut topology = payments();
    topology.input = Input::Pattern { include: crate::topology::Pattern::parse("^pay").unwrap(), exclude: Vec::new() };
    let mut record = given(FIRST);
    let error = run_case(&topology, Path::new("."), &case(vec![record.clone()], &[])).unwrap_err();
    assert!(error.text.contains("`a test`: record 0 has no topic"), "{error}");
    record.topic = Some("payments.eu".to_owned());
    assert_eq!(differences(&topology, &case(vec![record], &[(Verdict::Forwarded, None)])), []);
}
