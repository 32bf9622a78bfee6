//! The places in which two documents differ.

use serde_json::Value;

/// A place in a document: the names on the way to it. Lists have no names: one that differs does so as a whole.
pub type Place = Vec<String>;

/// The places in which two documents differ, in the order in which the first has them, then the second; a single empty
/// one if nothing within them can be named.
pub fn differences(a: &Value, b: &Value) -> Vec<Place> {
    let mut places = Vec::new();
    collect(a, b, &mut Vec::new(), &mut places);
    places
}

fn collect(a: &Value, b: &Value, place: &mut Place, places: &mut Vec<Place>) {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let names = a.keys().chain(b.keys().filter(|name| !a.contains_key(*name)));
            for name in names {
                place.push(name.clone());
                match (a.get(name), b.get(name)) {
                    (Some(a), Some(b)) => collect(a, b, place, places),
                    _ => places.push(place.clone()),
                }
                place.pop();
            }
        }
        _ if a == b => {}
        _ => places.push(place.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(a: &str, b: &str) -> Vec<String> {
        let [a, b] = [a, b].map(|text| serde_json::from_str(text).unwrap());
        differences(&a, &b).into_iter().map(|place| place.join("/")).collect()
    }

    #[test]
    fn fields_are_named_and_lists_differ_as_a_whole() {
        assert_eq!(of(r#"{"a":{"b":1,"c":2},"d":[1]}"#, r#"{"a":{"b":1,"c":3},"d":[2],"e":0}"#), ["a/c", "d", "e"]);
        assert_eq!(of(r#"{"a":null}"#, "{}"), ["a"]);
        assert_eq!(of(r#"{"a":{"b":1}}"#, r#"{"a":1}"#), ["a"]);
        assert_eq!(of(r#"{"a":1}"#, r#"{"a":1}"#), [""; 0]);
        assert_eq!(of("1", "2"), [""]);
    }
}
