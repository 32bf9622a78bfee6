//! Goal: what is proposed for records of many kinds loads, and gives sensible verdicts.

use super::{Sample, Tally, Wanted, infer, load};
use crate::capture::{Captured, Form};
use crate::dedup::Verdict;

fn sample(values: &[&str]) -> Sample {
    let mut sample = Sample::default();
    for (number, value) in values.iter().enumerate() {
        let mut captured = Captured { topic: "shop.orders".to_owned(), offset: number as i64, ..Captured::default() };
        captured.read_value(value.as_bytes());
        sample.add(captured);
    }
    sample
}

/// The proposal's text, and its verdicts on the sample.
#[track_caller]
fn proposed(sample: &Sample) -> (String, Tally) {
    let Ok((proposal, tally)) = infer(sample, &Wanted::default()) else {
        panic!(
            "not loadable:\n{}",
            super::propose(sample, &Wanted::default(), super::Needed::default(), &super::Ties::default()).text
        )
    };
    (proposal.text, tally)
}

#[test]
fn business_events_get_a_composite_identity_that_finds_duplicates() {
    let (text, tally) = proposed(&sample(&[
        r#"{"order_id":7,"operation":"charge","amount":5}"#,
        r#"{"order_id":7,"operation":"charge","amount":5}"#,
        r#"{"order_id":7,"operation":"refund","amount":5}"#,
    ]));
    assert!(text.contains("\nidentity: [value.order_id, value.operation]\n"), "{text}");
    assert!(text.contains("name: shop-orders\n") && text.contains("output: {topic: shop.orders.unique}\n"), "{text}");
    assert_eq!(tally.to_string(), "2 forwarded, 1 duplicate, 0 stale, 0 invalid");
}

#[test]
fn odd_names_are_quoted_and_cannot_end_a_comment() {
    let (text, tally) = proposed(&sample(&[
        "{\"event, id\\n\\nevil: true\":1,\"evil\\nx_id\":\"a\"}",
        "{\"event, id\\n\\nevil: true\":2,\"evil\\nx_id\":\"b\"}",
    ]));
    assert!(!text.contains("\nevil"), "{text}");
    assert_eq!(tally.of_verdict(Verdict::Forwarded), 2, "{text}");
}

#[test]
fn values_that_are_not_json_are_identified_by_their_bytes() {
    let (text, tally) = proposed(&sample(&["a b", "a b", "c d"]));
    assert!(text.contains("value_format: bytes") && text.contains("identity: value\n"), "{text}");
    assert_eq!(tally.to_string(), "2 forwarded, 1 duplicate, 0 stale, 0 invalid");
}

#[test]
fn callers_names_are_used() {
    let wanted =
        Wanted { name: Some("mine".to_owned()), topic: Some("in-1".to_owned()), output: Some("out-1".to_owned()) };
    let Ok((proposal, _)) = infer(&sample(&[r#"{"id":1}"#]), &wanted) else { panic!("not loadable") };
    for line in ["name: mine\n", "input: {topics: [in-1]}\n", "output: {topic: out-1}\n"] {
        assert!(proposal.text.contains(line), "{}", proposal.text);
    }
    assert!(load(&proposal.text).is_ok());
}

#[test]
fn identities_on_several_partitions_are_reported() {
    let kcat = |partition: i32, id: u32| Captured {
        topic: "in".to_owned(),
        partition,
        value: Some(format!(r#"{{"event_id":"{id}"}}"#).into_bytes()),
        ..Captured::default()
    };
    let of = |places: &[(i32, u32)]| {
        let mut sample = Sample { form: Form::Kcat, ..Sample::default() };
        places.iter().for_each(|&(partition, id)| sample.add(kcat(partition, id)));
        let Ok((proposal, _)) = infer(&sample, &Wanted::default()) else { panic!("not loadable") };
        (proposal.text.contains("partitioned_by_identity: true"), proposal.unsure.join("\n"))
    };
    assert!(of(&[(0, 1), (1, 2), (1, 2)]).0);
    let (said, unsure) = of(&[(0, 1), (1, 1), (1, 2)]);
    assert!(!said && unsure.contains("1 identity is on several partitions"), "{unsure}");
}

#[test]
fn conflicts_that_would_be_dropped_are_counted_and_doubted() {
    // two changes of one millisecond, and the first again
    let change = |name: &str| format!(r#"{{"id":1,"name":"{name}","__op":"u","__source_ts_ms":5,"__ts_ms":6}}"#);
    let values = [change("a"), change("b"), change("a")];
    let sample = sample(&values.each_ref().map(String::as_str));
    let topology = |action: &str| {
        let text = format!(
            "name: t\ninput: {{topics: [shop.orders]}}\nidentity: value.id\nversion: {{of: value.__source_ts_ms, as: \
             integer}}\ncontents: {{flattened: value}}\non_conflict: {action}\noutput: {{topic: out}}\n"
        );
        load(&text).unwrap_or_else(|diagnostics| panic!("{}", diagnostics.render(false)))
    };
    let doubts = |action: &str| {
        let (topology, mut proposal) = (topology(action), super::Proposal::default());
        let tally = Tally::of(&sample, &topology);
        super::doubts::add(&mut proposal, &sample, &topology, &tally);
        (tally.unlike().0, proposal.unsure.join("\n"))
    };
    let (count, doubt) = doubts("drop");
    assert_eq!(count, 1);
    assert!(
        doubt.contains(
            "1 of 3 records would be dropped as duplicates although they say something else than all before with the same \
             identity"
        ),
        "{doubt}"
    );
    assert_eq!(doubts("forward"), (0, String::new()));
}

#[test]
fn topic_of_schema_changes_is_left_out() {
    let record = |topic: &str, value: &str| Captured {
        topic: topic.to_owned(),
        value: Some(value.as_bytes().to_vec()),
        key: Some(br#"{"id":1}"#.to_vec()),
        ..Captured::default()
    };
    let ddl = r#"{"source":{"connector":"mariadb","file":"b.1","pos":4},"ts_ms":1,"databaseName":"d","ddl":"CREATE TABLE t (id INT)","tableChanges":[]}"#;
    let change = r#"{"before":null,"after":{"id":1},"source":{"connector":"mariadb","name":"s","db":"d","table":"t","server_id":1,"file":"b.1","pos":9,"row":0},"op":"c"}"#;
    let of = |records: &[(&str, &str)]| {
        let mut sample = Sample { form: Form::Kcat, ..Sample::default() };
        records.iter().for_each(|(topic, value)| sample.add(record(topic, value)));
        sample.leave_out_schema_changes();
        let (text, tally) = proposed(&sample);
        (text, tally.to_string())
    };
    let (text, tally) = of(&[("s", ddl), ("s", ddl), ("s.d.t", change)]);
    assert!(text.contains("input: {topics: [s.d.t]}\n") && text.contains("preset: debezium-mariadb"), "{text}");
    assert!(text.contains("# `s` (2 records) is left out: Debezium writes schema changes (DDL) there"), "{text}");
    assert_eq!(tally, "1 forwarded, 0 duplicate, 0 stale, 0 invalid");
    // a topic that also holds changes of rows stays, and a capture of nothing else too
    for records in [[("s", ddl), ("s", change)], [("s", ddl), ("s", ddl)]] {
        let (text, _) = of(&records);
        assert!(text.contains("input: {topics: [s]") && !text.contains("left out"), "{text}");
    }
}
