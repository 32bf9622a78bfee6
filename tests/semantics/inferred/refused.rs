//! Ids that are given up because of a few records. Goal: `infer` says which field it was, how many records agree, where the
//! first is that does not, and what to write if the field is the identity all the same; and nothing where there is another
//! reason.

use super::*;

fn payment(id: &str, amount: u32) -> String {
    format!(r#"{{"payment_id":"{id}","amount":{amount}}}"#)
}

#[track_caller]
fn of_all(values: &[String]) -> (Proposal, Tally) {
    of_values(&values.iter().map(String::as_str).collect::<Vec<_>>())
}

#[track_caller]
fn tells_of_none(proposal: &Proposal) {
    let text = format!("{}{}", unwrapped(proposal), proposal.unsure.join("\n"));
    assert!(!text.contains("not proposed") && !text.contains("would identify the records"), "{text}");
}

#[test]
fn id_that_one_record_contradicts_is_named_with_that_record() {
    let values =
        [payment("p1", 5), payment("p2", 7), payment("p1", 5), payment("p3", 5), payment("p2", 8), payment("p3", 5)];
    let (proposal, _) = of_all(&values);
    has(
        &proposal,
        &[
            "value.payment_id is not proposed as the identity: 2 records have the id of an earlier record and say the same, but 1 \
             says something else. The first is in:0:4, which differs from in:0:1 in value.amount. If that is a mistake, and \
             value.payment_id identifies a thing all the same, write `identity: value.payment_id`, and with `on_conflict` \
             what becomes of such a record",
            "No other field was found that identifies a record",
        ],
    );
    doubts(
        &proposal,
        "value.payment_id would identify the records, but 1 record has the id of an earlier record and says something else: the first \
         is in:0:4, which differs from in:0:1 in value.amount",
    );
}

#[test]
fn id_that_repeats_only_in_a_contradiction_is_named() {
    let mut values: Vec<String> = (0..19).map(|id| payment(&format!("p{id}"), 5)).collect();
    values.push(payment("p7", 6));
    let (proposal, _) = of_all(&values);
    has(
        &proposal,
        &[
            "value.payment_id is not proposed as the identity: 1 record has the id of an earlier record and says something else, and \
           none says the same. The first is in:0:19, which differs from in:0:7 in value.amount.",
        ],
    );
}

#[test]
fn key_that_one_record_contradicts_is_named() {
    let record = |key: &str, celsius: u32| value(&format!(r#"{{"celsius":{celsius}}}"#)).key(key);
    let (proposal, _) = proposed(&[record("a", 1), record("b", 2), record("a", 1), record("b", 3), record("c", 3)]);
    has(
        &proposal,
        &[
            "key is not proposed as the identity: 1 record has the id of an earlier record and says the same, but 1 says something else. \
           The first is in:0:3, which differs from in:0:1 in value.celsius.",
            "write `identity: key`",
        ],
    );
}

#[test]
fn version_that_one_change_shares_with_another_is_named() {
    let row = |id: u32, version: u32, name: &str| format!(r#"{{"id":{id},"version":{version},"name":"{name}"}}"#);
    let values = [row(1, 1, "a"), row(1, 2, "b"), row(2, 1, "c"), row(1, 2, "d"), row(2, 1, "c")];
    let (proposal, _) = of_all(&values);
    has(
        &proposal,
        &[
            "value.id with the version value.version is not proposed as the identity: 1 record has the id of an earlier record and \
             says the same, but 1 says something else. The first is in:0:3, which differs from in:0:1 in value.name.",
            "write `identity: value.id`, `version: {of: value.version, as: integer}`, and with `on_conflict`",
        ],
    );
}

#[test]
fn id_that_needs_a_second_field_because_of_one_record_is_named() {
    let event = |id: u32, kind: &str| format!(r#"{{"event_id":{id},"type":"{kind}"}}"#);
    let values = [event(1, "a"), event(2, "a"), event(1, "a"), event(2, "a"), event(2, "b")];
    let (proposal, _) = of_all(&values);
    has(
        &proposal,
        &[
            "\nidentity: [value.event_id, value.type]\n",
            "value.event_id is not proposed as the identity: 2 records have the id of an earlier record and say the same, but 1 says \
             something else. The first is in:0:4, which differs from in:0:3 in value.type.",
        ],
    );
    // as often as not it is a thing with several events
    let (proposal, _) = of_all(&[event(1, "a"), event(1, "a"), event(1, "b")]);
    tells_of_none(&proposal);
}

#[test]
fn id_of_another_thing_is_not_told() {
    let order = |id: u32, customer: u32| format!(r#"{{"order_id":{id},"customer_id":{customer},"amount":{id}}}"#);
    tells_of_none(&of_all(&[order(1, 1), order(2, 2), order(3, 3), order(4, 1), order(1, 1)]).0);
    // a sensor, each of whose records is a report
    let report = |at: u32| format!(r#"{{"sensor_id":"a","celsius":{at}}}"#);
    tells_of_none(&of_all(&(0..12).map(report).collect::<Vec<_>>()).0);
}

#[test]
fn event_of_the_cloud_that_contradicts_another_is_named() {
    let values = [cloud_event("1", r#"{"a":1}"#), cloud_event("1", r#"{"a":2}"#), cloud_event("2", r#"{"a":1}"#)];
    let (proposal, _) = of_all(&values);
    doubts(&proposal, "the first is in:0:1, which differs from in:0:0 in value.data.a");
}
