//! Goal: what would settle a conflict is said where the two records show it, and nothing where they do not.

use super::*;
use crate::dedup::{Identity, Version};

fn path(text: &str) -> Path {
    Path::parse(text).unwrap()
}

fn rules(version: Option<&str>) -> Rules {
    Rules::new(Identity::of_paths([path("value.id")]), version.map(|version| Version::integer(path(version))))
}

fn advised(rules: &Rules, values: [&str; 2]) -> Option<String> {
    let [earlier, later] = values.map(|value| {
        let mut captured = Captured::default();
        captured.read_value(value.as_bytes());
        captured
    });
    let contrast = Contrast::of(rules, (&earlier, Some("change")), (&later, Some("change")));
    advice(rules, &contrast, &earlier, &later)
}

#[track_caller]
fn says(rules: &Rules, values: [&str; 2], words: &str) {
    let advice = advised(rules, values).unwrap_or_default();
    assert!(advice.contains(words), "{advice:?}");
}

#[test]
fn fields_of_the_delivery_are_left_out() {
    let values = [
        r#"{"id":1,"x":1,"sent_at":5,"a b":{"request_id":1}}"#,
        r#"{"id":1,"x":1,"sent_at":6,"a b":{"request_id":2}}"#,
    ];
    says(&rules(None), values, "`contents: {fingerprint: value, except: ['value.\"a b\".request_id', value.sent_at]}`");
    // what is left out already stays so
    let mut except = rules(None);
    let parts = vec![ContentsPart::Fingerprint { of: path("value"), except: vec![path("value.y")] }];
    except.contents = Some(Contents { parts });
    says(
        &except,
        [r#"{"id":1,"y":1,"sent_at":5}"#, r#"{"id":1,"y":2,"sent_at":6}"#],
        "By its name, `value.sent_at` may differ in each delivery of one thing: if it does, leave it out, with `contents: \
         {fingerprint: value, except: [value.y, value.sent_at]}`; if it does not, the records say different things",
    );
    // another field as well
    assert_eq!(advised(&rules(None), [r#"{"x":1,"sent_at":5}"#, r#"{"x":2,"sent_at":6}"#]), None);
}

#[test]
fn field_that_rises_orders_the_two() {
    let values = [r#"{"id":1,"v":1,"seq":5,"x":1}"#, r#"{"id":1,"v":1,"seq":6,"x":2}"#];
    says(&rules(Some("value.v")), values, "`value.seq` is greater in the later record: as another part of `version`");
    says(&rules(None), values, "as `version` it would order the two");
    let [first, second] = values;
    assert_eq!(advised(&rules(Some("value.v")), [second, first]), None);
    assert_eq!(advised(&rules(Some("value.seq")), values), None);
}

#[test]
fn id_tells_the_two_apart() {
    let values = [r#"{"id":1,"order_id":1,"x":1}"#, r#"{"id":1,"order_id":2,"x":1}"#];
    says(&rules(None), values, "They differ in `value.order_id`: as another part of `identity` it would");
    says(&rules(None), [r#"{"id":1,"operation":"pay"}"#, r#"{"id":1,"operation":"refund"}"#], "`value.operation`");
    // a row is updated more than once, and a thing returns to a state
    for field in ["operation", "status"] {
        let row = |word: &str| format!(r#"{{"id":1,"{field}":"{word}"}}"#);
        assert_eq!(advised(&rules(None), [&row("insert"), &row("update")]), None);
    }
}

#[test]
fn same_json_in_other_bytes_is_said_to_be_that() {
    let words = "compare what they mean: `contents: {fingerprint: value}`";
    says(&rules(None), [r#"{"id":1,"x":2.50}"#, r#"{"x": 2.5, "id": 1}"#], words);
    // numbers that a double does not hold may differ
    let values = [r#"{"id":1,"x":12345678901234567890.1}"#, r#"{"id":1,"x":12345678901234567890.2}"#];
    assert_eq!(advised(&rules(None), values), None);
}

#[test]
fn payload_beside_a_schema_is_looked_through_where_the_rules_do() {
    let values = [r#"{"schema":{},"payload":{"id":1,"seq":1}}"#, r#"{"schema":{},"payload":{"id":1,"seq":2}}"#];
    let wrapped = Rules { value_format: Format::ConnectJson, ..rules(None) };
    says(&wrapped, values, "`value.seq` is greater");
    says(&rules(None), values, "`value.payload.seq` is greater");
}
