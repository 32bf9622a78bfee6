//! Turns versions and identities that a person has written as JSON into bytes that can be compared.

use std::sync::Arc;

use crate::record::{Headers, Record};

use super::identity::push_content;
use super::json::{Tape, TokenKind};
use super::path::{Path, Source};
use super::reader::{Reader, Reading, Rejection};
use super::rules::{Identity, Rules, Version, VersionPart};
use super::vocabulary::{Reason, VersionKind};

/// The field that the version is read from; messages name it.
const FIELD: &str = "version";

/// The bytes of a version written as JSON: each part as a record has it, or as [`super::explain::version`] shows it;
/// several parts as an array. `None` for null, and where so much is missing that a record would have none.
pub fn version(json: &str, rules: &Rules) -> Result<Option<Vec<u8>>, Rejection> {
    let Some(version) = &rules.version else {
        let rejected = || Rejection::new(Reason::VersionMissing, "the rules have no version");
        return if json.trim() == "null" { Ok(None) } else { Err(rejected()) };
    };
    let malformed = |what: String| Rejection::new(Reason::VersionMalformed, what);
    let mut tape = Tape::default();
    tape.read(json.as_bytes()).map_err(|error| malformed(format!("`{FIELD}` cannot be read as JSON: {error}")))?;
    let (root, count) = (tape.token(0), version.parts.len());
    if root.kind == TokenKind::Null {
        return Ok(None);
    }
    let written: Vec<usize> = match count {
        1 => vec![0],
        _ if root.kind == TokenKind::Array && root.count == count => tape.elements(0).collect(),
        _ => {
            let what = format!("`{FIELD}` must be a list of {count} values: this topology's version has {count} parts");
            return Err(malformed(what));
        }
    };
    let parts = version.parts.iter().zip(written);
    let parts: Vec<String> = parts.map(|(part, at)| part_json(part.kind, &tape, at, json)).collect();
    let value = if count == 1 { parts.concat() } else { format!("[{}]", parts.join(",")) };
    read(&format!("{{\"{FIELD}\":{value}}}"), version, rules)
}

/// An identity written as JSON, whether by a person or by [`super::explain::identity`], encoded like content: the order
/// of fields, whitespace, and how texts and numbers are spelt do not matter. `None` for anything but JSON.
pub fn identity(json: &str) -> Option<Vec<u8>> {
    let mut tape = Tape::default();
    tape.read(json.as_bytes()).ok()?;
    let mut bytes = Vec::new();
    push_content(&tape, json.as_bytes(), 0, &mut Vec::new(), &mut bytes).ok()?;
    Some(bytes)
}

/// The version of a record with this value, with the version's parts below [`FIELD`].
fn read(value: &str, version: &Version, rules: &Rules) -> Result<Option<Vec<u8>>, Rejection> {
    let path = |source: Source, steps: Vec<String>| Path { source, steps };
    let place = |index: usize| match version.parts.len() {
        1 => path(Source::Value, vec![FIELD.to_owned()]),
        _ => path(Source::Value, vec![FIELD.to_owned(), index.to_string()]),
    };
    let part = |(index, part): (usize, &VersionPart)| VersionPart { of: vec![place(index)], ..part.clone() };
    let version = Version { parts: version.parts.iter().enumerate().map(part).collect() };
    let mut version_only = Rules::new(Identity::of_paths([path(Source::Offset, Vec::new())]), Some(version));
    version_only.limits = rules.limits;
    let record = Record {
        topic: "",
        partition: 0,
        offset: 0,
        timestamp: None,
        key: None,
        value: Some(value.as_bytes()),
        headers: Headers::default(),
    };
    let mut arena = Vec::new();
    match Reader::new(Arc::new(version_only)).read(&record, &mut arena) {
        Reading::Rejected(Rejection { reason, message }) => {
            Err(Rejection::new(reason, message.replace(&format!("`value.{FIELD}"), &format!("`{FIELD}"))))
        }
        reading => Ok(reading.rows().first().and_then(|row| row.version.clone()).map(|range| arena[range].to_vec())),
    }
}

/// A part as a record would have it: a binlog's position may be written without its base name, as it is displayed.
fn part_json(kind: VersionKind, tape: &Tape, at: usize, document: &str) -> String {
    if kind == VersionKind::Binlog && tape.token(at).kind == TokenKind::Array {
        let numbers: Vec<String> = tape.elements(at).map(|at| scalar_json(tape, at, document)).collect();
        return format!("\"binlog.{}\"", numbers.join(":"));
    }
    if tape.token(at).kind == TokenKind::Array {
        let elements: Vec<String> = tape.elements(at).map(|at| scalar_json(tape, at, document)).collect();
        return format!("[{}]", elements.join(","));
    }
    scalar_json(tape, at, document)
}

/// A scalar as it was written; an empty object, which is never part of a version, for anything else.
fn scalar_json(tape: &Tape, at: usize, document: &str) -> String {
    let text = || String::from_utf8_lossy(tape.bytes(at, document.as_bytes()));
    match tape.token(at).kind {
        TokenKind::Null => "null".to_owned(),
        TokenKind::Bool(value) => value.to_string(),
        TokenKind::Number => text().into_owned(),
        TokenKind::Text | TokenKind::Escaped => serde_json::Value::from(text()).to_string(),
        TokenKind::Array | TokenKind::Object => "{}".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    //! Goal: a version, whether written as in a record or as displayed, gives the bytes that the record gives; anything
    //! else is rejected with the expected form.

    use super::*;
    use crate::dedup::explain;
    use crate::dedup::vocabulary::{MissingPart, TimeUnit};

    fn rules(kinds: &[VersionKind]) -> Rules {
        let part = |&kind: &VersionKind| VersionPart::new(Path::parse("value.v").unwrap(), kind);
        let version = Version { parts: kinds.iter().map(part).collect() };
        Rules::new(Identity::of_paths([Path::parse("value.id").unwrap()]), Some(version))
    }

    #[test]
    fn version_is_read_as_given_and_as_displayed() {
        use VersionKind::{Binlog, Decimal, Hex, Integer, Sequence, Text, Timestamp};
        for (kinds, given, shown) in [
            (&[Integer][..], r#""0036893488147419103232""#, "36893488147419103232"),
            (&[Decimal], "1.50e1", "15"),
            (&[Text], r#""caf\u00e9""#, r#""café""#),
            (&[Timestamp], "1577836800000", r#""2020-01-01T00:00:00Z""#),
            (&[Timestamp], r#""2020-01-01T01:00:00+01:00""#, r#""2020-01-01T00:00:00Z""#),
            (&[Hex], r#""00000027:00000758:0005""#, r#""27:758:5""#),
            (&[Sequence], r#""[null, \"24023128\"]""#, "[null,24023128]"),
            (&[Binlog], r#""mysql-bin.000003:154""#, "[3,154]"),
            (&[Binlog, Integer], r#"["mysql-bin.000003", "154"]"#, "[[3],154]"),
            (&[Integer, Integer], "[null, 7]", "[null,7]"),
        ] {
            let rules = rules(kinds);
            let bytes = version(given, &rules).unwrap().expect(given);
            assert_eq!(explain::version(&bytes, &rules), shown, "{given}");
            assert_eq!(version(shown, &rules).unwrap(), Some(bytes), "{shown}");
        }
        assert_eq!(version("null", &rules(&[Integer])), Ok(None));
        assert_eq!(version("[null, null]", &rules(&[Integer, Integer])), Ok(None));
    }

    #[test]
    fn identity_is_the_same_however_it_is_written() {
        let bytes = identity(r#"[{"order_id": 1, "line": 2}, "café"]"#);
        assert!(bytes.is_some());
        for same in [r#"[{"line":2.0,"order_id":1},"caf\u00e9"]"#, r#"[{"line":0,"order_id":1e0,"line":2},"café"]"#] {
            assert_eq!(identity(same), bytes, "{same}");
        }
        for other in [r#"[{"line":"2","order_id":1},"café"]"#, r#"["café",{"line":2,"order_id":1}]"#] {
            assert_ne!(identity(other), bytes, "{other}");
        }
        assert_eq!(identity("[1"), None);
    }

    #[test]
    fn part_keeps_its_unit_and_its_missing_values() {
        let mut rules = rules(&[VersionKind::Timestamp, VersionKind::Integer]);
        let parts = &mut rules.version.as_mut().unwrap().parts;
        parts[0].unit = TimeUnit::Seconds;
        parts[1].missing = MissingPart::Highest;
        parts[1].none = vec![crate::dedup::Scalar::Number(crate::dedup::Number::parse("0").unwrap())];
        let bytes = version("[1577836800, 0]", &rules).unwrap().unwrap();
        assert_eq!(explain::version(&bytes, &rules), r#"["2020-01-01T00:00:00Z",null]"#);
        assert!(bytes > version("[1577836800, 5]", &rules).unwrap().unwrap());
    }

    #[test]
    fn malformed_version_is_rejected_with_the_expected_form() {
        let rejected = |json: &str, kinds: &[VersionKind]| version(json, &rules(kinds)).unwrap_err().message;
        assert!(
            rejected(r#""seven""#, &[VersionKind::Integer]).contains("`version`, the version, is neither a JSON int")
        );
        assert!(
            rejected(r#"[1, "x"]"#, &[VersionKind::Integer, VersionKind::Hex]).contains("`version.1`, the version")
        );
        assert!(rejected("7", &[VersionKind::Integer, VersionKind::Integer]).contains("must be a list of 2 values"));
        assert!(rejected(r#"{"a":1}"#, &[VersionKind::Sequence]).contains("JSON array"));
        assert!(rejected("[[1]]", &[VersionKind::Sequence]).contains("JSON array"));
        let none = Rules::new(Identity::of_paths([Path::parse("key").unwrap()]), None);
        assert_eq!(
            (version("7", &none).unwrap_err().reason, version("null", &none)),
            (Reason::VersionMissing, Ok(None))
        );
    }
}
