//! How keys are read where an identity is the whole key.

use serde_json::Value;

use super::draft::Draft;
use super::sample::Sample;
use super::shape;
use crate::capture::guesses;
use crate::words::{agreeing, counted};

/// Why keys cannot be compared as JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoJson {
    /// Some are structs in the form of Connect's `StringConverter`.
    Structs(usize),
    /// Some are not JSON.
    Malformed(usize),
    /// Some are bare numbers that are not written as plain integers, so that several texts are one number.
    Numbers(usize),
}

/// Why the keys have to be taken as bytes; `None` if they can be read as JSON.
pub fn need_bytes(sample: &Sample) -> Option<NoJson> {
    // Decoded keys are JSON, always in the same form.
    if sample.formats[0].is_some() {
        return None;
    }
    // Maxwell's DDL has a random text as its key, and the preset does not look at it.
    let is_ddl = |value: &Value| value.as_object().is_some_and(shape::is_maxwell_ddl);
    let of_rows = sample.records.iter().filter(|observed| !observed.value.as_ref().is_some_and(is_ddl));
    let keyed = of_rows.filter_map(|observed| Some((observed, observed.captured.key.as_deref()?)));
    let (mut structs, mut malformed, mut numbers) = (0, 0, 0);
    for (observed, bytes) in keyed.filter(|(_, bytes)| !bytes.is_empty()) {
        match &observed.key {
            None if guesses::is_struct_text(bytes) => structs += 1,
            None => malformed += 1,
            // the bytes, not the tree, which has lost how the number was written
            Some(key) if key.is_number() => numbers += usize::from(!is_plain_integer(bytes)),
            Some(_) => {}
        }
    }
    [
        (structs, NoJson::Structs(structs)),
        (malformed, NoJson::Malformed(malformed)),
        (numbers, NoJson::Numbers(numbers)),
    ]
    .into_iter()
    .find_map(|(count, why)| (count > 0).then_some(why))
}

/// Whether this is the only text for its number.
fn is_plain_integer(bytes: &[u8]) -> bool {
    let digits = bytes.strip_prefix(b"-").unwrap_or(bytes);
    digits.iter().all(u8::is_ascii_digit) && (digits[0] != b'0' || bytes == b"0")
}

/// Writes the identity that takes keys as bytes, and its reason.
pub fn propose_bytes(body: &mut Draft, sample: &Sample) {
    let why = match need_bytes(sample) {
        Some(NoJson::Structs(structs)) => {
            let (records, are) = (counted(structs, "record"), agreeing(structs, "is a struct", "are structs"));
            format!(
                "The key of {records} {are} as text (`Struct{{id=1}}`) and no JSON, which Kafka Connect's StringConverter \
                 writes: keys are taken as bytes."
            )
        }
        Some(NoJson::Malformed(malformed)) => {
            format!("The key of {} is not JSON: keys are taken as bytes.", counted(malformed, "record"))
        }
        Some(NoJson::Numbers(numbers)) => {
            format!(
                "The key of {} is a bare number with more than one form: read as JSON, 1.1 and 1.10 would be one. Keys are \
                 taken as bytes.",
                counted(numbers, "record")
            )
        }
        None => "Keys cannot be read as JSON: they are taken as bytes.".to_owned(),
    };
    body.comment(&why);
    body.line("identity: key");
    body.line("partitioned_by_identity: true");
    body.unsure
        .push("keys are compared by their bytes: one thing whose key is written in two ways would be two".to_owned());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::{Captured, Form};

    fn needed(keys: &[&str]) -> Option<NoJson> {
        let mut sample = Sample { form: Form::Kcat, ..Sample::default() };
        for key in keys {
            let (key, value) = (Some(key.as_bytes().to_vec()), Some(b"{}".to_vec()));
            sample.add(Captured { key, value, ..Captured::default() });
        }
        need_bytes(&sample)
    }

    #[test]
    fn keys_that_are_no_plain_json_need_bytes() {
        assert_eq!(needed(&[r#"{"id":1}"#, "7", "-7", "0", r#""a""#, ""]), None);
        assert_eq!(needed(&["Struct{id=1}", "7"]), Some(NoJson::Structs(1)));
        assert_eq!(needed(&["abc", "007"]), Some(NoJson::Malformed(2)));
        assert_eq!(needed(&["1.1", "1.10", "1e1", "2"]), Some(NoJson::Numbers(3)));
    }
}
