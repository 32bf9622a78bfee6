//! `tests`: a topology's own tests, as written.

use std::path::PathBuf;

use crate::capture::Form;
use crate::dedup::path::Number;
use crate::dedup::{Reason, Verdict};
use crate::effect::call::StatusCodes;
use crate::topology::cases::{ExpectedParameter, GivenAttempt, KeySeen, Silence, TIMESTAMP_MS};
use crate::topology::keys;
use crate::topology::spec::reader::{SpecReader, choices};
use crate::yaml::{Field, Fields, Node, Place, Placed, Text, Value};

/// A test as written.
#[derive(Debug)]
pub struct CaseSpec {
    pub name: Option<Placed<Text>>,
    pub line: usize,
    /// `None` where it could not be read.
    pub given: Option<GivenSpec>,
    pub expect: Vec<Expectation>,
    /// Whether [`CaseSpec::expect`] is complete.
    pub expect_complete: bool,
    pub expect_place: Place,
    pub output: Option<Vec<Placed<usize>>>,
    pub entries: Vec<EntrySpec>,
    pub rows: Option<Placed<Vec<CallSpec>>>,
    pub answers: Vec<AnswerSpec>,
    pub attempts: Vec<Placed<GivenAttempt>>,
    pub results: Option<Placed<Vec<ResultSpec>>>,
}

/// A result that is expected to be written.
#[derive(Debug)]
pub struct ResultSpec {
    pub record: Option<Placed<i64>>,
    pub status: Option<u16>,
    pub body: Option<Vec<u8>>,
}

/// An expected call.
#[derive(Debug)]
pub struct CallSpec {
    pub record: Option<Placed<i64>>,
    pub statement: Option<Placed<i64>>,
    pub does: Option<&'static str>,
    pub with: Vec<ExpectedParameter>,
}

/// What the sink answers.
#[derive(Debug)]
pub struct AnswerSpec {
    pub place: Place,
    pub record: Placed<i64>,
    /// The words; `None` if its inbox has the record.
    pub rejected: Option<String>,
}

/// An expected entry, as JSON.
#[derive(Debug)]
pub struct EntrySpec {
    pub identity: String,
    pub version: Option<Placed<String>>,
}

/// A verdict, and the reason if one is given.
#[derive(Clone, Copy, Debug)]
pub struct Expectation {
    pub verdict: Verdict,
    pub reason: Option<Reason>,
    /// Where what it expects of calls is.
    pub calls_place: Option<Place>,
    pub calls: Option<u64>,
    pub key: Option<KeySeen>,
}

/// A test's records.
#[derive(Debug)]
pub enum GivenSpec {
    Records(Vec<RecordSpec>),
    File { path: PathBuf, form: Option<Form> },
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
    /// A text: its bytes, or its JSON, depending on the format.
    Text(String),
    /// JSON, whatever the format.
    Json(String),
}

impl SpecReader<'_, '_> {
    /// The tests, as far as they could be read.
    pub fn tests(&mut self, field: &Field<'_>) -> Vec<CaseSpec> {
        let items = self.reader.list(field).unwrap_or_default();
        items.iter().filter_map(|item| self.case(item)).collect()
    }

    fn case(&mut self, field: &Field<'_>) -> Option<CaseSpec> {
        let fields = self.reader.fields(field, &keys::CASE)?;
        let (line, _) = self.reader.file.line_column(field.node.place.start);
        let named = fields.require("name", self.reader).and_then(|field| self.reader.text(field));
        let given = fields.require("given", self.reader).and_then(|field| self.given(field));
        let expect = fields.require("expect", self.reader);
        let items = expect.and_then(|field| self.reader.list(field)).unwrap_or_default();
        let expected: Vec<_> = items.iter().filter_map(|item| self.expectation(item)).collect();
        let entries = fields.get("entries").map(|field| self.entries(field)).unwrap_or_default();
        let (answers, attempts) = fields.get("answers").map(|field| self.answers(field)).unwrap_or_default();
        Some(CaseSpec {
            name: named,
            line,
            given,
            expect_complete: !items.is_empty() && expected.len() == items.len(),
            expect: expected,
            expect_place: expect.map_or(field.place(), Field::place),
            output: fields.get("output").and_then(|field| self.output(field)),
            entries,
            rows: fields.get("rows").and_then(|field| self.calls(field)),
            answers,
            attempts,
            results: fields.get("results").and_then(|field| self.results(field)),
        })
    }

    fn given(&mut self, field: &Field<'_>) -> Option<GivenSpec> {
        if let Value::Mapping(_) = &field.node.value {
            let fields = self.reader.fields(field, &keys::GIVEN_FILE)?;
            let file = fields.require("file", self.reader)?;
            let file = self.reader.text(file);
            let form = fields.get("envelope").map(|field| self.reader.choice(field, &keys::ENVELOPES));
            let form = form.and_then(|form| Some(form?.value));
            return Some(GivenSpec::File { path: PathBuf::from(file?.value.reveal()), form });
        }
        let items = self.reader.list(field)?;
        let records: Vec<_> = items.iter().filter_map(|item| self.record(item)).collect();
        (records.len() == items.len()).then_some(GivenSpec::Records(records))
    }

    fn record(&mut self, field: &Field<'_>) -> Option<RecordSpec> {
        let fields = self.reader.fields(&field.described("a record"), &keys::RECORD)?;
        let key = self.payload(fields.get("key"));
        let value = self.payload(fields.get("value"));
        let headers = fields.get("headers").map_or(Some(Vec::new()), |field| self.headers(field));
        let topic = fields.get("topic").map(|field| self.reader.text(field));
        let partition = self.number(&fields, "partition").map(|read| read.map(|number| number.value));
        let offset = self.number(&fields, "offset");
        let timestamp = fields.get("timestamp").map_or(Some(Some(TIMESTAMP_MS)), |field| self.timestamp(field));
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

    /// A whole number from 0; `Some(None)` if it could not be read.
    fn number(&mut self, fields: &Fields<'_>, key: &str) -> Option<Option<Placed<i64>>> {
        let field = fields.get(key)?;
        let most = if key == "partition" { i64::from(i32::MAX) } else { i64::MAX };
        let least = i64::from(key == "statement");
        Some(self.reader.parsed(field, |text| text.parse().ok().filter(|number| (least..=most).contains(number))))
    }

    /// A record's timestamp; `null` means that the record has none.
    fn timestamp(&mut self, field: &Field<'_>) -> Option<Option<i64>> {
        if field.node.is_null() {
            return Some(None);
        }
        let time = |text: &str| match text.parse::<i64>() {
            Ok(ms) => Some(ms).filter(|ms| *ms >= 0),
            Err(_) => text.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_millisecond),
        };
        self.reader.parsed(field, time).map(|time| Some(time.value))
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

    /// A value as JSON, with numbers exactly as written.
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
        self.reader.text(&field.item(node)).map(|text| text.value.reveal().to_owned())
    }

    fn headers(&mut self, field: &Field<'_>) -> Option<Vec<(String, Option<Vec<u8>>)>> {
        let Value::Mapping(entries) = &field.node.value else {
            self.reader.wrong(field);
            return None;
        };
        let read = |this: &mut Self, node: &Node| match &node.value {
            _ if node.is_null() => Some(None),
            Value::Scalar { .. } => this.json_text(field, node).map(|text| Some(text.into_bytes())),
            _ => {
                this.reader.wrong(&field.item(node));
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
            let read = self.reader.choice(field, &verdicts);
            let expected = |verdict| Expectation { verdict, reason: None, calls_place: None, calls: None, key: None };
            return read.map(|read| expected(read.value));
        };
        let fields = self.reader.fields(field, &keys::EXPECTED)?;
        let verdict = fields.require("verdict", self.reader).and_then(|field| self.reader.choice(field, &verdicts));
        let reason = fields.get("reason").map(|field| self.reader.choice(field, &choices(Reason::ALL, Reason::as_str)));
        let calls = self.number(&fields, "calls").map(|read| read.and_then(|number| u64::try_from(number.value).ok()));
        let key = fields.get("key").map(|field| self.reader.choice(field, &choices(KeySeen::ALL, KeySeen::as_str)));
        Some(Expectation {
            verdict: verdict?.value,
            reason: reason.map_or(Some(None), |read| read.map(Some))?.map(|read| read.value),
            calls_place: fields.get("calls").or(fields.get("key")).map(|field| field.key_place),
            calls: calls.map_or(Some(None), |read| read.map(Some))?,
            key: key.map_or(Some(None), |read| read.map(|read| Some(read.value)))?,
        })
    }

    /// Numbers of given records; an empty list means that the output is empty.
    fn output(&mut self, field: &Field<'_>) -> Option<Vec<Placed<usize>>> {
        if matches!(&field.node.value, Value::List(items) if items.is_empty()) {
            return Some(Vec::new());
        }
        let items = self.reader.list(field)?;
        let numbers: Vec<_> =
            items.iter().filter_map(|item| self.reader.parsed(item, |text| text.parse().ok())).collect();
        (numbers.len() == items.len()).then_some(numbers)
    }

    /// The expected calls; an empty list means that nothing is carried out.
    fn calls(&mut self, field: &Field<'_>) -> Option<Placed<Vec<CallSpec>>> {
        let place = field.key_place;
        if matches!(&field.node.value, Value::List(items) if items.is_empty()) {
            return Some(Placed { value: Vec::new(), place });
        }
        let items = self.reader.list(field)?;
        let calls: Vec<_> = items.iter().filter_map(|item| self.call(&item.described("a call"))).collect();
        (calls.len() == items.len()).then_some(Placed { value: calls, place })
    }

    fn call(&mut self, field: &Field<'_>) -> Option<CallSpec> {
        let fields = self.reader.fields(field, &keys::CALL)?;
        let with = fields.require("with", self.reader).and_then(|field| self.parameters(field));
        let does: Vec<_> = keys::DOES.iter().map(|word| (*word, *word)).collect();
        let does = fields.get("does").map(|field| self.reader.choice(field, &does));
        let (record, statement) = (self.number(&fields, "record"), self.number(&fields, "statement"));
        Some(CallSpec {
            record: record.map_or(Some(None), |read| read.map(Some))?,
            statement: statement.map_or(Some(None), |read| read.map(Some))?,
            does: does.map_or(Some(None), |read| read.map(|read| Some(read.value)))?,
            with: with?,
        })
    }

    /// The parameters of an expected call.
    fn parameters(&mut self, field: &Field<'_>) -> Option<Vec<ExpectedParameter>> {
        let Value::List(items) = &field.node.value else {
            self.reader.wrong(field);
            return None;
        };
        let parameter = |this: &mut Self, node: &Node| match &node.value {
            _ if node.is_null() => Some(ExpectedParameter::Null),
            Value::Scalar { .. } => this.json_text(field, node).map(ExpectedParameter::Text),
            _ => this.json(field, node).map(ExpectedParameter::Json),
        };
        let parameters: Vec<_> = items.iter().filter_map(|item| parameter(self, item)).collect();
        (parameters.len() == items.len()).then_some(parameters)
    }

    /// What a database answers records, and what a provider answers attempts.
    fn answers(&mut self, field: &Field<'_>) -> (Vec<AnswerSpec>, Vec<Placed<GivenAttempt>>) {
        let (mut answers, mut attempts) = (Vec::new(), Vec::new());
        for item in self.reader.list(field).unwrap_or_default() {
            let item = item.described("an answer");
            let is_of_record = match &item.node.value {
                Value::Mapping(entries) => !entries.iter().any(|entry| entry.key == "status"),
                _ => false,
            };
            if is_of_record {
                answers.extend(self.answer(&item));
            } else {
                let place = item.place();
                attempts.extend(self.attempt(&item).map(|value| Placed { value, place }));
            }
        }
        (answers, attempts)
    }

    /// What an attempt comes to: a code, `{status, body, headers}`, or a word for why there is no answer.
    fn attempt(&mut self, field: &Field<'_>) -> Option<GivenAttempt> {
        if let Value::Mapping(_) = &field.node.value {
            let fields = self.reader.fields(field, &keys::ATTEMPT)?;
            let status = fields.require("status", self.reader)?;
            let code = self.reader.parsed(status, code)?.value;
            let body = self.payload(fields.get("body")).map(bytes_of)?;
            let headers = fields.get("headers").map_or(Some(Vec::new()), |field| self.headers(field))?;
            let text = |value: Option<Vec<u8>>| String::from_utf8(value.unwrap_or_default()).unwrap_or_default();
            let headers = headers.into_iter().map(|(name, value)| (name, text(value))).collect();
            return Some(GivenAttempt::Answered { code, body, headers });
        }
        if let Value::Scalar { text, plain: true } = &field.node.value
            && let Some(code) = code(text)
        {
            return Some(GivenAttempt::Answered { code, body: None, headers: Vec::new() });
        }
        let silence = self.reader.choice(field, &choices(Silence::ALL, Silence::as_str))?;
        Some(GivenAttempt::Silent(silence.value))
    }

    /// The expected results; an empty list means that nothing is written.
    fn results(&mut self, field: &Field<'_>) -> Option<Placed<Vec<ResultSpec>>> {
        let place = field.key_place;
        let items = match &field.node.value {
            Value::List(items) if items.is_empty() => Vec::new(),
            _ => self.reader.list(field)?,
        };
        let results: Vec<_> = items.iter().filter_map(|item| self.result(&item.described("a result"))).collect();
        (results.len() == items.len()).then_some(Placed { value: results, place })
    }

    fn result(&mut self, field: &Field<'_>) -> Option<ResultSpec> {
        let fields = self.reader.fields(field, &keys::RESULT_WRITTEN)?;
        let record = self.number(&fields, "record");
        let status = fields.get("status").map(|field| self.reader.parsed(field, code));
        let body = self.payload(fields.get("body")).map(bytes_of)?;
        Some(ResultSpec {
            record: record.map_or(Some(None), |read| read.map(Some))?,
            status: status.map_or(Some(None), |read| read.map(|read| Some(read.value)))?,
            body,
        })
    }

    fn answer(&mut self, field: &Field<'_>) -> Option<AnswerSpec> {
        let fields = self.reader.fields(field, &keys::ANSWER)?;
        let record = fields
            .require("record", self.reader)
            .and_then(|field| self.reader.parsed(field, |text| text.parse().ok().filter(|number| *number >= 0)));
        let rejected = fields.get("rejected").map(|field| self.reader.text(field));
        let in_inbox = fields.get("in_inbox").and_then(|field| self.reader.boolean(field));
        let rejected = match (rejected, in_inbox) {
            (Some(words), None) => Some(words?.value.reveal().to_owned()),
            (None, Some(known)) if known.value => None,
            _ => {
                let message = "an answer is either `rejected` or `in_inbox: true`".to_owned();
                let help = "write e.g. `{record: 1, rejected: violates a check}`; records without one are carried out";
                self.reader.mistake(field.place(), message, "which one?", help);
                return None;
            }
        };
        Some(AnswerSpec { place: field.place(), record: record?, rejected })
    }

    fn entries(&mut self, field: &Field<'_>) -> Vec<EntrySpec> {
        let items = self.reader.list(field).unwrap_or_default();
        let read = |this: &mut Self, item: &Field<'_>| {
            let fields = this.reader.fields(item, &keys::ENTRY)?;
            let identity = fields.require("identity", this.reader)?;
            let mut json = this.json(identity, identity.node)?;
            if !matches!(identity.node.value, Value::List(_)) {
                json = format!("[{json}]");
            }
            let version = fields.get("version").map(|field| {
                let value = this.json(field, field.node)?;
                Some(Placed { value, place: field.place() })
            });
            Some(EntrySpec { identity: json, version: version.map_or(Some(None), |read| read.map(Some))? })
        };
        items.iter().filter_map(|item| read(self, item)).collect()
    }
}

/// A status code.
fn code(text: &str) -> Option<u16> {
    match StatusCodes::parse(text)? {
        StatusCodes::One(code) => Some(code),
        StatusCodes::Hundred(_) => None,
    }
}

/// A body's bytes: a text as it is, or JSON.
fn bytes_of(payload: Payload) -> Option<Vec<u8>> {
    match payload {
        Payload::Null => None,
        Payload::Text(text) | Payload::Json(text) => Some(text.into_bytes()),
    }
}

/// Writes an unquoted text as JSON, unless it is a string; returns whether it was written.
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
