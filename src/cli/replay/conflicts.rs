//! Records with an identity and a version that were seen, but with other contents: the fact that exposes nearly every rule
//! that is too coarse. The first is remembered with the record that it conflicts with, and what differs between them.
//!
//! Memory: the values that were passed on, up to [`VALUES_BYTES_MAX`] bytes and [`VALUES_MAX`] identities. Beyond that a
//! conflict is counted, and what it conflicts with may not be named.

use std::collections::HashMap;
use std::fmt;

use serde_json::Value;

use super::summary::Seen;
use crate::dedup::{Action, Reason};

/// Maximum bytes of the values that are kept to compare with.
const VALUES_BYTES_MAX: usize = 256 << 20;
/// Maximum number of identities whose value is kept.
const VALUES_MAX: usize = 1_000_000;
/// Maximum number of fields that are named.
const NAMED_MAX: usize = 5;

/// The conflicts seen so far.
#[derive(Debug, Default)]
pub struct Conflicts {
    /// The last value that was passed on, by topic, partition and identity.
    values: HashMap<(String, i32, String), Kept>,
    bytes: usize,
    /// How many were forwarded, and how many were not.
    forwarded: u64,
    held_back: u64,
    has_version: bool,
    first: Option<Example>,
}

#[derive(Debug)]
struct Kept {
    offset: i64,
    version: Option<String>,
    value: Vec<u8>,
}

/// The first conflict.
#[derive(Debug)]
struct Example {
    place: String,
    identity: String,
    version: Option<String>,
    action: Action,
    /// The record that it conflicts with.
    other: Option<Other>,
}

#[derive(Debug)]
struct Other {
    place: String,
    /// The fields that differ; empty if the values are no JSON objects.
    fields: Vec<String>,
    /// How many more differ.
    more: usize,
}

impl Conflicts {
    /// Notes a judged record.
    pub fn add(&mut self, seen: &Seen<'_>) {
        let Seen { record, decision, explanation, .. } = seen;
        let Some(identity) = &explanation.identity else { return };
        let is_conflict = matches!(decision.reason, Reason::VersionTied | Reason::SeenOtherwise);
        let key = (record.topic.to_owned(), record.partition, identity.clone());
        if is_conflict {
            self.has_version |= decision.reason == Reason::VersionTied;
            let count = if decision.action == Action::Forward { &mut self.forwarded } else { &mut self.held_back };
            *count += 1;
            if self.first.is_none() {
                let kept = self.values.get(&key).filter(|kept| kept.version == explanation.version);
                let other = kept.map(|kept| {
                    let (fields, more) = differences(&kept.value, record.value.unwrap_or_default());
                    Other { place: place(record.topic, record.partition, kept.offset), fields, more }
                });
                self.first = Some(Example {
                    place: place(record.topic, record.partition, record.offset),
                    identity: identity.clone(),
                    version: explanation.version.clone(),
                    action: decision.action,
                    other,
                });
            }
        }
        if let (Action::Forward, Some(value), None) = (decision.action, record.value, &self.first) {
            self.keep(key, Kept { offset: record.offset, version: explanation.version.clone(), value: value.to_vec() });
        }
    }

    /// Keeps a value, if there is room.
    fn keep(&mut self, key: (String, i32, String), kept: Kept) {
        let former = self.values.get(&key).map(|former| former.value.len());
        let bytes = self.bytes - former.unwrap_or(0) + kept.value.len();
        if bytes <= VALUES_BYTES_MAX && (former.is_some() || self.values.len() < VALUES_MAX) {
            self.bytes = bytes;
            self.values.insert(key, kept);
        } else if former.is_some() {
            // Nothing is kept rather than a value that was followed by another.
            self.bytes -= former.unwrap_or(0);
            self.values.remove(&key);
        }
    }
}

impl fmt::Display for Conflicts {
    /// One hint, or nothing.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(first) = &self.first else { return Ok(()) };
        let records = self.forwarded + self.held_back;
        let (noun, have) = if records == 1 { ("record", "has") } else { ("records", "have") };
        let what = if self.has_version { "an identity and a version that were" } else { "an identity that was" };
        write!(f, "hint: {records} {noun} {have} {what} seen, but with other contents")?;
        match (self.forwarded, self.held_back) {
            (_, 0) => write!(f, " (forwarded)")?,
            (0, _) => write!(f, " (not forwarded)")?,
            (forwarded, held_back) => write!(f, " ({forwarded} forwarded, {held_back} not)")?,
        }
        write!(f, ": first {}, identity {}", first.place, first.identity)?;
        if let Some(version) = &first.version {
            write!(f, ", version {version}")?;
        }
        match &first.other {
            Some(Other { place, fields, more }) if !fields.is_empty() => {
                write!(f, ", which differs from {place} in {}", fields.join(", "))?;
                if *more > 0 {
                    write!(f, " and {more} more")?;
                }
            }
            Some(Other { place, .. }) => write!(f, ", which differs from {place}")?,
            None => {}
        }
        let coarse = if self.has_version { "`version` or `identity`" } else { "`identity`, or a `version`" };
        writeln!(
            f,
            ". If they say different things, add what tells them apart to {coarse}; if a field differs in each delivery of \
             one thing, leave it out: `contents: {{fingerprint: value, except: [...]}}`. `on_conflict` says what to do with \
             such records, and is `{}` here",
            first.action
        )
    }
}

fn place(topic: &str, partition: i32, offset: i64) -> String {
    format!("{topic}:{partition}:{offset}")
}

/// The paths of the fields in which two values differ, at most [`NAMED_MAX`], and how many more there are.
fn differences(a: &[u8], b: &[u8]) -> (Vec<String>, usize) {
    let (Ok(a), Ok(b)) = (serde_json::from_slice::<Value>(a), serde_json::from_slice::<Value>(b)) else {
        return (Vec::new(), 0);
    };
    let mut paths = Vec::new();
    collect(&a, &b, "value", &mut paths);
    if paths == ["`value`"] {
        return (Vec::new(), 0);
    }
    let more = paths.len().saturating_sub(NAMED_MAX);
    paths.truncate(NAMED_MAX);
    (paths, more)
}

fn collect(a: &Value, b: &Value, path: &str, paths: &mut Vec<String>) {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let names = a.keys().chain(b.keys().filter(|name| !a.contains_key(*name)));
            for name in names {
                let (a, b) = (a.get(name).unwrap_or(&Value::Null), b.get(name).unwrap_or(&Value::Null));
                collect(a, b, &step(path, name), paths);
            }
        }
        _ if a == b => {}
        _ => paths.push(format!("`{path}`")),
    }
}

/// The path of a field, with quotes where the name needs them.
fn step(path: &str, name: &str) -> String {
    let is_plain = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    if is_plain { format!("{path}.{name}") } else { format!("{path}.{}", Value::from(name)) }
}

#[cfg(test)]
mod tests {
    //! Goal: the hint names the conflict, the record it conflicts with, and what differs; and nothing that is not so.

    use super::*;
    use crate::dedup::{Decision, Verdict};
    use crate::record::Record;
    use crate::rehearsal::Explanation;

    fn add(conflicts: &mut Conflicts, offset: i64, value: &str, (reason, action): (Reason, Action)) {
        let record = Record {
            topic: "orders",
            partition: 2,
            offset,
            timestamp: None,
            key: None,
            value: Some(value.as_bytes()),
            headers: Default::default(),
        };
        let decision = Decision { verdict: Verdict::Duplicate, reason, action, ..Decision::REPLAYED };
        let version = (reason != Reason::SeenOtherwise).then(|| "5".to_owned());
        let explanation = Explanation { identity: Some("[7]".to_owned()), version, ..Explanation::default() };
        conflicts.add(&Seen { record: &record, decision: &decision, explanation: &explanation, version: None });
    }

    const FIRST: (Reason, Action) = (Reason::First, Action::Forward);

    #[test]
    fn hint_names_both_records_and_what_differs() {
        let mut conflicts = Conflicts::default();
        add(&mut conflicts, 3, r#"{"id":7,"a":{"b":1,"c":2},"at":1,"x y":0}"#, FIRST);
        assert_eq!(conflicts.to_string(), "");
        add(&mut conflicts, 4, r#"{"id":7,"a":{"b":1,"c":3},"at":1,"new":0}"#, (Reason::VersionTied, Action::Drop));
        add(&mut conflicts, 5, r#"{"id":8}"#, (Reason::VersionTied, Action::Forward));
        let hint = conflicts.to_string();
        let expected = "hint: 2 records have an identity and a version that were seen, but with other contents (1 \
                        forwarded, 1 not): first orders:2:4, identity [7], version 5, which differs from orders:2:3 in \
                        `value.a.c`, `value.\"x y\"`, `value.new`. If they say different things";
        assert!(hint.starts_with(expected), "{hint}");
        assert!(hint.contains("is `drop` here"), "{hint}");
    }

    #[test]
    fn hint_without_a_record_to_compare_with_names_none() {
        let mut conflicts = Conflicts::default();
        add(&mut conflicts, 4, "{}", (Reason::SeenOtherwise, Action::DeadLetter));
        let hint = conflicts.to_string();
        let expected = "hint: 1 record has an identity that was seen, but with other contents (not forwarded): first \
                        orders:2:4, identity [7]. If";
        assert!(hint.starts_with(expected), "{hint}");
    }

    #[test]
    fn many_differences_are_counted_and_other_values_are_not_taken_apart() {
        let fields = |value: u8| (0..9).map(|n| format!("\"f{n}\":{value}")).collect::<Vec<_>>().join(",");
        let (named, more) =
            differences(format!("{{{}}}", fields(0)).as_bytes(), format!("{{{}}}", fields(1)).as_bytes());
        assert_eq!((named.len(), more), (NAMED_MAX, 4));
        assert_eq!(differences(b"1", b"2"), (Vec::new(), 0));
        assert_eq!(differences(b"no JSON", b"{}"), (Vec::new(), 0));
        assert_eq!(differences(br#"[{"a":1}]"#, br#"[{"a":2}]"#), (Vec::new(), 0));
    }
}
