//! `tests`: a topology's own tests, as they were written.

use std::path::PathBuf;

use crate::dedup::path::Number;
use crate::dedup::{Reason, Verdict};
use crate::topology::cases::TIMESTAMP_MS;
use crate::yaml::read::Keys;
use crate::yaml::{Field, Fields, Node, Place, Placed, Shape, Text, Value};

use super::choices;
use super::paths::SpecReader;

/// What may stand in a test.
pub const CASE: Keys<'static> = Keys { known: &["name", "given", "expect", "output", "entries"], later: &[] };
/// What may stand in `given` where it is a mapping.
pub const GIVEN_FILE: Keys<'static> = Keys { known: &["file", "envelope"], later: &[] };
/// What may stand in a given record.
pub const RECORD: Keys<'static> =
    Keys { known: &["value", "key", "headers", "timestamp", "topic", "partition", "offset"], later: &[] };
/// What may stand in an expectation that is a mapping.
pub const EXPECTED: Keys<'static> = Keys { known: &["verdict", "reason"], later: &[] };
/// What may stand in an expected entry.
pub const ENTRY: Keys<'static> = Keys { known: &["identity", "version"], later: &[] };
/// How a file's lines may be wrapped.
pub const ENVELOPES: &[&str] = &["kcat"];

const TESTS: Shape<'static> = Shape {
    what: "a list of tests",
    example: "tests: [{name: a retry is dropped, given: [{value: {id: 1}}], expect: [forwarded]}]",
};
const EXPECT: Shape<'static> =
    Shape { what: "a list of verdicts, one for each record", example: "expect: [forwarded, duplicate]" };

/// A test as it was written.
#[derive(Debug)]
pub struct CaseSpec {
    pub name: Option<Placed<Text>>,
    pub line: usize,
    /// `None` where it could not be read.
    pub given: Option<GivenSpec>,
    pub expect: Vec<Expectation>,
    /// Whether [`CaseSpec::expect`] is all that was written.
    pub expect_whole: bool,
    pub expect_place: Place,
    pub output: Option<Vec<Placed<usize>>>,
    pub entries: Vec<EntrySpec>,
}

/// An expected entry, as JSON.
#[derive(Debug)]
pub struct EntrySpec {
    pub identity: String,
    pub version: Option<Placed<String>>,
}

/// A verdict, and the reason where one is named.
#[derive(Clone, Copy, Debug)]
pub struct Expectation {
    pub verdict: Verdict,
    pub reason: Option<Reason>,
}

/// A test's records.
#[derive(Debug)]
pub enum GivenSpec {
    Records(Vec<RecordSpec>),
    File { path: PathBuf, kcat: bool },
}

/// A given record.
#[derive(Debug)]
pub struct RecordSpec {
    pub place: Place,
    pub topic: Option<Placed<Text>>,
    pub partition: i32,
    pub offset: Option<Placed<i64>>,
    pub timestamp: Option<i64>,
    pub key: Payload,
    pub value: Payload,
    pub headers: Vec<(String, Option<Vec<u8>>)>,
}

/// A key or a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    Null,
    /// A text: those bytes, or the JSON of it, as the format is.
    Text(String),
    /// JSON, whatever the format is.
    Json(String),
}

impl SpecReader<'_, '_> {
    /// The tests, as far as they could be read.
    pub fn tests(&mut self, field: &Field<'_>) -> Vec<CaseSpec> {
        let items = self.reader.list(field, TESTS).unwrap_or_default();
        items.iter().filter_map(|item| self.case(item)).collect()
    }

    fn case(&mut self, field: &Field<'_>) -> Option<CaseSpec> {
        let keys = self.reader.fields(field, CASE, TESTS)?;
        let name = Shape { what: "a text", example: "name: a retried charge is dropped" };
        let (line, _) = self.reader.file.line_column(field.node.place.start);
        let named = keys.require("name", name.example, self.reader).and_then(|field| self.reader.text(field, name));
        let given = keys.require("given", "given: [{value: {id: 1}}]", self.reader).and_then(|field| self.given(field));
        let expect = keys.require("expect", EXPECT.example, self.reader);
        let items = expect.and_then(|field| self.reader.list(field, EXPECT)).unwrap_or_default();
        let expected: Vec<_> = items.iter().filter_map(|item| self.expectation(item)).collect();
        let entries = keys.get("entries").map(|field| self.entries(field)).unwrap_or_default();
        Some(CaseSpec {
            name: named,
            line,
            given,
            expect_whole: !items.is_empty() && expected.len() == items.len(),
            expect: expected,
            expect_place: expect.map_or(field.place(), Field::place),
            output: keys.get("output").and_then(|field| self.output(field)),
            entries,
        })
    }

    fn given(&mut self, field: &Field<'_>) -> Option<GivenSpec> {
        let shape = Shape {
            what: "a list of records, or a file",
            example: "given: [{value: {id: 1}}]` or `given: {file: records.jsonl}",
        };
        if let Value::Mapping(_) = &field.node.value {
            let keys = self.reader.fields(field, GIVEN_FILE, shape)?;
            let example = "given: {file: records.jsonl, envelope: kcat}";
            let file = keys.require("file", example, self.reader)?;
            let file = self.reader.text(file, Shape { what: "a file's path", example });
            let words: Vec<_> = ENVELOPES.iter().map(|word| (*word, ())).collect();
            let envelope = keys.get("envelope").map(|field| self.reader.choice(field, &words, &[]));
            let kcat = envelope.is_some();
            return Some(GivenSpec::File { path: PathBuf::from(file?.value.reveal()), kcat });
        }
        let items = self.reader.list(field, shape)?;
        let records: Vec<_> = items.iter().filter_map(|item| self.record(item)).collect();
        (records.len() == items.len()).then_some(GivenSpec::Records(records))
    }

    fn record(&mut self, field: &Field<'_>) -> Option<RecordSpec> {
        let shape = Shape { what: "a record", example: "given: [{key: k, value: {id: 1}}]" };
        let keys = self.reader.fields(field, RECORD, shape)?;
        let key = self.payload(keys.get("key"));
        let value = self.payload(keys.get("value"));
        let headers = keys.get("headers").map_or(Some(Vec::new()), |field| self.headers(field));
        let topic = keys
            .get("topic")
            .map(|field| self.reader.text(field, Shape { what: "a topic", example: "topic: payments" }));
        let partition = self.number(&keys, "partition", "partition: 0").map(|read| read.map(|number| number.value));
        let offset = self.number(&keys, "offset", "offset: 0");
        let timestamp = keys.get("timestamp").map_or(Some(Some(TIMESTAMP_MS)), |field| self.timestamp(field));
        Some(RecordSpec {
            place: field.place(),
            topic: topic.map_or(Some(None), |read| read.map(Some))?,
            partition: partition.map_or(Some(0), |read| read.and_then(|number| i32::try_from(number).ok()))?,
            offset: offset.map_or(Some(None), |read| read.map(Some))?,
            timestamp: timestamp?,
            key: key?,
            value: value?,
            headers: headers?,
        })
    }

    /// A whole number from 0; `Some(None)` where it could not be read.
    fn number(&mut self, keys: &Fields<'_>, key: &str, example: &str) -> Option<Option<Placed<i64>>> {
        let field = keys.get(key)?;
        let most = if key == "partition" { i64::from(i32::MAX) } else { i64::MAX };
        let shape = Shape { what: "a whole number from 0", example };
        Some(self.reader.parsed(field, shape, |text| text.parse().ok().filter(|number| (0..=most).contains(number))))
    }

    /// A record's timestamp; `null` is that of a record without one.
    fn timestamp(&mut self, field: &Field<'_>) -> Option<Option<i64>> {
        if field.node.is_null() {
            return Some(None);
        }
        let shape = Shape { what: "a time or milliseconds", example: "timestamp: 2026-01-01T00:00:00Z" };
        let time = |text: &str| match text.parse::<i64>() {
            Ok(ms) => Some(ms).filter(|ms| *ms >= 0),
            Err(_) => text.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_millisecond),
        };
        self.reader.parsed(field, shape, time).map(|time| Some(time.value))
    }

    fn payload(&mut self, field: Option<&Field<'_>>) -> Option<Payload> {
        let Some(field) = field.filter(|field| !field.node.is_null()) else { return Some(Payload::Null) };
        match &field.node.value {
            Value::Scalar { plain, .. } => {
                let mut json = String::new();
                let text = self.json_text(field, field.node)?;
                Some(match *plain && write_plain(&text, &mut json) {
                    true => Payload::Json(json),
                    false => Payload::Text(text),
                })
            }
            _ => self.json(field, field.node).map(Payload::Json),
        }
    }

    /// A value as JSON, its numbers with their exact text.
    fn json(&mut self, field: &Field<'_>, node: &Node) -> Option<String> {
        let mut out = String::new();
        self.write_json(field, node, &mut out)?;
        Some(out)
    }

    fn write_json(&mut self, field: &Field<'_>, node: &Node, out: &mut String) -> Option<()> {
        match &node.value {
            Value::Scalar { .. } if node.is_null() => out.push_str("null"),
            Value::Scalar { plain, .. } => {
                let text = self.json_text(field, node)?;
                if !(*plain && write_plain(&text, out)) {
                    out.push_str(&quoted(&text));
                }
            }
            Value::List(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    out.push_str(if index == 0 { "" } else { "," });
                    self.write_json(field, item, out)?;
                }
                out.push(']');
            }
            Value::Mapping(entries) => {
                out.push('{');
                for (index, entry) in entries.iter().enumerate() {
                    out.push_str(if index == 0 { "" } else { "," });
                    out.push_str(&quoted(&entry.key));
                    out.push(':');
                    self.write_json(field, &entry.node, out)?;
                }
                out.push('}');
            }
        }
        Some(())
    }

    /// A scalar's text, which may be empty here.
    fn json_text(&mut self, field: &Field<'_>, node: &Node) -> Option<String> {
        if matches!(&node.value, Value::Scalar { text, .. } if text.is_empty()) {
            return Some(String::new());
        }
        let shape = Shape { what: "a value", example: "{value: {id: 1}}" };
        self.reader.text(&field.item(node), shape).map(|text| text.value.reveal().to_owned())
    }

    fn headers(&mut self, field: &Field<'_>) -> Option<Vec<(String, Option<Vec<u8>>)>> {
        let shape = Shape { what: "a mapping of texts", example: "headers: {delivery-id: a1}" };
        let Value::Mapping(entries) = &field.node.value else {
            self.reader.wrong(field, shape);
            return None;
        };
        let read = |this: &mut Self, node: &Node| match &node.value {
            _ if node.is_null() => Some(None),
            Value::Scalar { .. } => this.json_text(field, node).map(|text| Some(text.into_bytes())),
            _ => {
                this.reader.wrong(&field.item(node), shape);
                None
            }
        };
        let headers: Vec<_> =
            entries.iter().filter_map(|entry| Some((entry.key.clone(), read(self, &entry.node)?))).collect();
        (headers.len() == entries.len()).then_some(headers)
    }

    fn expectation(&mut self, field: &Field<'_>) -> Option<Expectation> {
        let verdicts = choices(Verdict::ALL, Verdict::as_str);
        let Value::Mapping(_) = &field.node.value else {
            return self
                .reader
                .choice(field, &verdicts, &[])
                .map(|read| Expectation { verdict: read.value, reason: None });
        };
        let example = "{verdict: stale, reason: version_older}";
        let keys = self.reader.fields(field, EXPECTED, Shape { what: "a verdict", example })?;
        let verdict =
            keys.require("verdict", example, self.reader).and_then(|field| self.reader.choice(field, &verdicts, &[]));
        let reason =
            keys.get("reason").map(|field| self.reader.choice(field, &choices(Reason::ALL, Reason::as_str), &[]));
        Some(Expectation {
            verdict: verdict?.value,
            reason: reason.map_or(Some(None), |read| read.map(Some))?.map(|read| read.value),
        })
    }

    /// Numbers of given records; an empty list says that none comes out.
    fn output(&mut self, field: &Field<'_>) -> Option<Vec<Placed<usize>>> {
        let shape = Shape { what: "a list of numbers of given records, from 0", example: "output: [0, 2]" };
        if matches!(&field.node.value, Value::List(items) if items.is_empty()) {
            return Some(Vec::new());
        }
        let items = self.reader.list(field, shape)?;
        let numbers: Vec<_> =
            items.iter().filter_map(|item| self.reader.parsed(item, shape, |text| text.parse().ok())).collect();
        (numbers.len() == items.len()).then_some(numbers)
    }

    fn entries(&mut self, field: &Field<'_>) -> Vec<EntrySpec> {
        let shape = Shape { what: "a list of entries", example: "entries: [{identity: [7], version: 3}]" };
        let items = self.reader.list(field, shape).unwrap_or_default();
        let read = |this: &mut Self, item: &Field<'_>| {
            let keys = this.reader.fields(item, ENTRY, shape)?;
            let identity = keys.require("identity", "{identity: [7], version: 3}", this.reader)?;
            let mut json = this.json(identity, identity.node)?;
            if !matches!(identity.node.value, Value::List(_)) {
                json = format!("[{json}]");
            }
            let version = keys.get("version").map(|field| {
                let value = this.json(field, field.node)?;
                Some(Placed { value, place: field.place() })
            });
            Some(EntrySpec { identity: json, version: version.map_or(Some(None), |read| read.map(Some))? })
        };
        items.iter().filter_map(|item| read(self, item)).collect()
    }
}

/// Writes what a text without quotes is in JSON, unless it is a text.
fn write_plain(text: &str, out: &mut String) -> bool {
    let is_json = matches!(text, "true" | "false") || Number::parse(text).is_some();
    if is_json {
        out.push_str(text);
    }
    is_json
}

/// A text as JSON.
pub fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
