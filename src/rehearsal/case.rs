//! One of a topology's own tests: judges its records, and compares the result with what is expected.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::path::Path;

use super::calls::{Answered, Made};
use super::effects::{Answer, Called, Rehearser};
use super::{Explanation, Partitions};
use crate::capture::{self, Captured};
use crate::dedup::{Action, Decision, Reason, Verdict, explain, written};
use crate::format::EntryRef;
use crate::record::HeaderBuf;
use crate::topology::cases::{
    Expected, ExpectedCall, ExpectedEntry, ExpectedParameter, ExpectedResult, Given, GivenRecord, KeySeen, TIMESTAMP_MS,
};
use crate::topology::{TestCase, Topology};
use crate::words::{agreeing, counted};

/// Maximum number of remembered identities that a difference lists.
const REMEMBERED_MAX: usize = 8;

/// The result of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Each record's result, in order; `None` if the task had stopped before it.
    pub records: Vec<Option<Judged>>,
    /// The differences from what is expected; empty if the test passed.
    pub differences: Vec<Difference>,
}

impl Outcome {
    /// Whether everything is as expected.
    pub fn passed(&self) -> bool {
        self.differences.is_empty()
    }
}

/// A record's result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// Its place: `topic:partition:offset`.
    pub place: String,
    /// The verdict.
    pub verdict: Verdict,
    /// Why.
    pub reason: Reason,
    /// What was done with it.
    pub action: Action,
    /// What was read of it, and what it was compared with.
    pub explanation: Explanation,
}

/// Something that is not as expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// The number of expectations is not the number of records.
    Count {
        /// How many records are given.
        given: usize,
        /// How many are expected.
        expected: usize,
    },
    /// A record has another verdict or reason.
    Record {
        /// The given record's number, from 0.
        number: usize,
        /// What it should have got.
        expected: Expected,
        /// What it got; `None` if the task had stopped before it.
        got: Option<Judged>,
    },
    /// Other records were forwarded.
    Output {
        /// The numbers of those that should have been.
        expected: Vec<usize>,
        /// The numbers of those that were.
        got: Vec<usize>,
    },
    /// Something else was carried out in the sink.
    Calls {
        /// What should have been, in order.
        expected: Vec<ExpectedCall>,
        /// What was.
        got: Vec<Carried>,
    },
    /// A record made other calls.
    Attempts {
        /// The given record's number, from 0.
        number: usize,
        /// What was expected of them.
        expected: Expected,
        /// What they were.
        got: Made,
    },
    /// Something else was written to the topic of results.
    Results {
        /// What should have been, in order.
        expected: Vec<ExpectedResult>,
        /// What was: the given record's number, and what was answered.
        got: Vec<(usize, Answered)>,
    },
    /// An identity's entry is different, or missing.
    Entry {
        /// What should be remembered.
        expected: ExpectedEntry,
        /// The versions that are remembered for this identity, as JSON, one for each partition that knows it.
        got: Vec<String>,
        /// If there are none, what is remembered instead, in words.
        remembered: Vec<String>,
    },
}

/// A call of one of the sink's statements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Carried {
    /// The given record's number, from 0.
    pub record: usize,
    /// The call.
    pub called: Called,
}

impl Carried {
    fn is(&self, expected: &ExpectedCall) -> bool {
        let Self { record, called } = self;
        let is_parameter = |(got, expected): (&Option<String>, &ExpectedParameter)| match (got, expected) {
            (None, ExpectedParameter::Null) => true,
            (Some(got), ExpectedParameter::Text(text)) => got == text,
            (Some(got), ExpectedParameter::Json(json)) => {
                let meaning = |json: &str| written::identity(&format!("[{json}]"));
                meaning(got).is_some_and(|got| Some(got) == meaning(json))
            }
            _ => false,
        };
        expected.record.is_none_or(|expected| expected == *record)
            && expected.statement.is_none_or(|expected| expected == called.statement)
            && expected.does.is_none_or(|expected| expected == called.does)
            && expected.with.len() == called.with.len()
            && called.with.iter().zip(&expected.with).all(is_parameter)
    }
}

/// What the test's sink answers to this record.
fn answer_to(case: &TestCase, number: usize) -> Answer<'_> {
    match case.answers.iter().find(|answer| answer.record == number) {
        None => Answer::Done,
        Some(answer) => answer.rejected.as_deref().map_or(Answer::InInbox, Answer::Rejected),
    }
}

/// The difference if something else was carried out than expected.
fn wrong_calls(case: &TestCase, got: Vec<Carried>) -> Option<Difference> {
    let expected = case.rows.as_ref()?;
    let are_equal = expected.len() == got.len() && got.iter().zip(expected).all(|(got, expected)| got.is(expected));
    (!are_equal).then(|| Difference::Calls { expected: expected.clone(), got })
}

/// The records that made other calls than expected.
fn wrong_attempts<'a>(case: &'a TestCase, made: &'a [(usize, Made)]) -> impl Iterator<Item = Difference> + 'a {
    made.iter().filter_map(|(number, made)| {
        let expected = *case.expect.get(*number)?;
        let is_key = |key| match key {
            KeySeen::Same => made.is_same == Some(true),
            KeySeen::None => made.is_same.is_none(),
        };
        let is_right = expected.calls.is_none_or(|calls| calls == made.attempts) && expected.key.is_none_or(is_key);
        (!is_right).then(|| Difference::Attempts { number: *number, expected, got: made.clone() })
    })
}

/// The difference if something else was written to the topic of results than expected.
fn wrong_results(case: &TestCase, made: &[(usize, Made)]) -> Option<Difference> {
    let expected = case.results.as_ref()?;
    let result = |(number, made): &(usize, Made)| made.result.clone().map(|answered| (*number, answered));
    let got: Vec<(usize, Answered)> = made.iter().filter_map(result).collect();
    let is = |((number, answered), expected): (&(usize, Answered), &ExpectedResult)| {
        expected.record.is_none_or(|expected| expected == *number)
            && expected.status.is_none_or(|expected| answered.status == Some(expected))
            && expected.body.as_ref().is_none_or(|expected| answered.body.as_ref() == Some(expected))
    };
    let are_equal = expected.len() == got.len() && got.iter().zip(expected).all(is);
    (!are_equal).then(|| Difference::Results { expected: expected.clone(), got })
}

/// Judges a test's records, each partition separately, and compares. A file of records is looked for in
/// `folder`, the topology's. The wall clock is the highest timestamp in the test, so that its result is
/// the same every day. The test's records are JSON, even if the topic's records have schemas.
pub fn run_case(topology: &Topology, folder: &Path, case: &TestCase) -> Result<Outcome, capture::Error> {
    let topology = &topology.for_json();
    let records = records_of(topology, folder, case)?;
    let wall_ms = records.iter().filter_map(|record| record.timestamp).max().unwrap_or(TIMESTAMP_MS);
    let mut partitions = Partitions::new(&topology.rules, &topology.schemas);
    let mut rehearser = Rehearser::answered(topology, &case.attempts);
    let (mut carried_out, mut made) = (Vec::new(), Vec::new());
    let mut stopped = HashSet::new();
    let mut judged = Vec::with_capacity(records.len());
    for (number, captured) in records.iter().enumerate() {
        let task = (captured.topic.as_str(), captured.partition);
        if stopped.contains(&task) {
            judged.push(None);
            continue;
        }
        let model = partitions.model(&captured.topic, captured.partition);
        let decision = rehearser.judge(model, &captured.record(), wall_ms, answer_to(case, number));
        carried_out.extend(rehearser.called().into_iter().map(|called| Carried { record: number, called }));
        made.extend(rehearser.made().map(|made| (number, made.clone())));
        judged.push(Some(Judged::new(captured, &decision, Explanation::of(model, topology))));
        if decision.action == Action::Fail {
            stopped.insert(task);
        }
    }
    let mut differences = compare(case, &judged, &partitions);
    differences.extend(wrong_calls(case, carried_out));
    differences.extend(wrong_attempts(case, &made));
    differences.extend(wrong_results(case, &made));
    Ok(Outcome { records: judged, differences })
}

/// The records that a test gives.
fn records_of(topology: &Topology, folder: &Path, case: &TestCase) -> Result<Vec<Captured>, capture::Error> {
    let first = topology.input.named().first();
    match &case.given {
        Given::File { path, form } => {
            let topic = first.map_or("topic", String::as_str);
            let (form, mut records) = capture::read_all(folder.join(path), *form, topic)?;
            if !form.is_whole() {
                records.iter_mut().for_each(|record| record.timestamp = Some(TIMESTAMP_MS));
            }
            Ok(records)
        }
        Given::Records(given) => {
            let mut next = HashMap::new();
            given
                .iter()
                .enumerate()
                .map(|(number, given)| {
                    let topic = given.topic.as_ref().or(first).ok_or_else(|| capture::Error {
                        text: format!("test `{}`: record {number} has no topic, and the input is a pattern", case.name),
                        help: "give each record a `topic`",
                    })?;
                    Ok(record(given, topic, &mut next))
                })
                .collect()
        }
    }
}

/// A given record; `next` is the next offset of each partition.
fn record(given: &GivenRecord, topic: &str, next: &mut HashMap<(String, i32), i64>) -> Captured {
    let next = next.entry((topic.to_owned(), given.partition)).or_default();
    let offset = given.offset.unwrap_or(*next);
    *next = (*next).max(offset.saturating_add(1));
    let mut headers = HeaderBuf::default();
    for (name, value) in &given.headers {
        headers.push(name.as_bytes(), value.as_deref());
    }
    Captured {
        topic: topic.to_owned(),
        partition: given.partition,
        offset,
        timestamp: given.timestamp,
        is_stamped: false,
        key: given.key.clone(),
        value: given.value.clone(),
        headers,
    }
}

fn compare(case: &TestCase, judged: &[Option<Judged>], partitions: &Partitions) -> Vec<Difference> {
    let mut differences = Vec::new();
    let only_the_end = case.expect.is_empty() && (case.output.is_some() || !case.entries.is_empty());
    if case.expect.len() != judged.len() && !only_the_end {
        differences.push(Difference::Count { given: judged.len(), expected: case.expect.len() });
    }
    for (number, (&expected, got)) in case.expect.iter().zip(judged).enumerate() {
        if !got.as_ref().is_some_and(|got| got.is(expected)) {
            differences.push(Difference::Record { number, expected, got: got.clone() });
        }
    }
    if let Some(expected) = &case.output {
        let is_out = |(number, judged): (usize, &Option<Judged>)| {
            judged.as_ref().is_some_and(|judged| judged.action == Action::Forward).then_some(number)
        };
        let got: Vec<usize> = judged.iter().enumerate().filter_map(is_out).collect();
        if got != *expected {
            differences.push(Difference::Output { expected: expected.clone(), got });
        }
    }
    if !case.entries.is_empty() {
        differences.extend(wrong_entries(&case.entries, partitions));
    }
    differences
}

/// What is remembered for an identity.
struct Remembered {
    /// The identity as JSON.
    identity: String,
    /// The versions' bytes, one for each partition that knows it.
    versions: Vec<Option<Vec<u8>>>,
}

/// The expected entries that are different, or missing.
fn wrong_entries(expected: &[ExpectedEntry], partitions: &Partitions) -> Vec<Difference> {
    let (entries, rules) = (entries_of(partitions), partitions.rules());
    let shown = |version: &Option<Vec<u8>>| match version {
        Some(version) => explain::version(version, rules),
        None => "null".to_owned(),
    };
    let mut differences = Vec::new();
    for expected in expected {
        let known = written::identity(&expected.identity).and_then(|identity| entries.get(&identity));
        let got = known.map(|known| known.versions.as_slice()).unwrap_or_default();
        // anything but a version was rejected when the topology was loaded
        let version = expected.version.as_ref().map(|version| written::version(version, rules).ok());
        if got.iter().any(|got| version.as_ref().is_none_or(|version| version.as_ref() == Some(got))) {
            continue;
        }
        let mut remembered = Vec::new();
        if got.is_empty() {
            remembered.extend(entries.values().take(REMEMBERED_MAX).map(|Remembered { identity, versions }| {
                let versions: Vec<_> = versions.iter().map(shown).collect();
                let is_versioned = rules.version.is_some();
                if is_versioned {
                    format!("{identity} with version {}", versions.join(" and "))
                } else {
                    identity.clone()
                }
            }));
            let more = entries.len() - remembered.len();
            remembered.extend((more > 0).then(|| format!("and {more} more")));
        }
        let got = got.iter().map(shown).collect();
        differences.push(Difference::Entry { expected: expected.clone(), got, remembered });
    }
    differences
}

/// What is remembered, by the identity's encoding.
fn entries_of(partitions: &Partitions) -> BTreeMap<Vec<u8>, Remembered> {
    let mut entries: BTreeMap<Vec<u8>, Remembered> = BTreeMap::new();
    for (key, entry) in partitions.models().flat_map(|model| model.entries()) {
        let identity = explain::identity(key);
        // neither ever fails: the model has written both itself
        let (Some(encoded), Ok(entry)) = (written::identity(&identity), EntryRef::decode(entry)) else { continue };
        let version = entry.version.map(<[u8]>::to_vec);
        let known = entries.entry(encoded).or_insert_with(|| Remembered { identity, versions: Vec::new() });
        known.versions.push(version);
    }
    entries
}

impl Judged {
    fn new(captured: &Captured, decision: &Decision, explanation: Explanation) -> Self {
        Self {
            place: format!("{}:{}:{}", captured.topic, captured.partition, captured.offset),
            verdict: decision.verdict,
            reason: decision.reason,
            action: decision.action,
            explanation,
        }
    }

    fn is(&self, expected: Expected) -> bool {
        self.verdict == expected.verdict && expected.reason.is_none_or(|reason| reason == self.reason)
    }
}

impl fmt::Display for Difference {
    /// What was expected and what came, with everything that explains it, line by line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count { given, expected } => {
                let (given, are) = (counted(*given, "record"), agreeing(*given, "is", "are"));
                let expect = agreeing(*expected, "is", "are");
                write!(f, "{given} {are} given, and {expected} {expect} expected: `expect` has one for each")
            }
            Self::Record { number, expected, got: None } => {
                write!(f, "record {number}: expected {}, but the task had stopped before it", words(*expected))
            }
            Self::Record { number, expected, got: Some(got) } => {
                let Judged { place, verdict, reason, explanation, .. } = got;
                writeln!(f, "record {number} ({place})")?;
                writeln!(f, "  expected {}", words(*expected))?;
                let why = explanation.rejection.as_deref().unwrap_or(reason.meaning());
                write!(f, "  got      {verdict} ({reason}): {why}")?;
                let facts = [
                    ("kind", explanation.kind),
                    ("identity", explanation.identity.as_deref()),
                    ("version", explanation.version.as_deref()),
                    ("epoch", explanation.epoch.as_deref()),
                    ("against", explanation.against.as_deref()),
                ];
                let known = facts.iter().filter_map(|(name, fact)| Some((name, fact.as_ref()?)));
                known.into_iter().try_for_each(|(name, fact)| write!(f, "\n  {name:<8} {fact}"))
            }
            Self::Output { expected, got } => {
                write!(f, "output\n  expected records {expected:?}\n  got      records {got:?}")
            }
            Self::Calls { expected, got } => write_calls(f, expected, got),
            Self::Attempts { number, expected, got } => write_attempts(f, *number, *expected, got),
            Self::Results { expected, got } => write_results(f, expected, got),
            Self::Entry { expected: ExpectedEntry { identity, version }, got, remembered } => {
                let expected = version.as_ref().map_or_else(String::new, |version| format!(" with version {version}"));
                let got = match (got.as_slice(), remembered.as_slice()) {
                    ([], []) => "nothing is remembered at all".to_owned(),
                    ([], _) => "nothing is remembered of it, but".to_owned(),
                    (got, _) => format!("one with version {}", got.join(", and one with version ")),
                };
                write!(f, "entry {identity}\n  expected one{expected}\n  got      {got}")?;
                remembered.iter().try_for_each(|entry| write!(f, "\n           {entry}"))
            }
        }
    }
}

/// What was carried out, and what was expected, as `rows` can be written.
fn write_calls(f: &mut fmt::Formatter<'_>, expected: &[ExpectedCall], got: &[Carried]) -> fmt::Result {
    let parameter = |parameter: &ExpectedParameter| match parameter {
        ExpectedParameter::Null => "null".to_owned(),
        ExpectedParameter::Text(text) => serde_json::Value::from(text.as_str()).to_string(),
        ExpectedParameter::Json(json) => json.clone(),
    };
    let number = |name: &str, number: Option<usize>| number.map(|number| format!("{name}: {number}, "));
    let begun = |record, statement, does: Option<&str>| {
        let does = does.map(|does| format!("does: {does}, "));
        [number("record", record), number("statement", statement), does].into_iter().flatten().collect::<String>()
    };
    write!(f, "rows")?;
    for (index, call) in expected.iter().enumerate() {
        let word = if index == 0 { "expected" } else { "" };
        let with: Vec<_> = call.with.iter().map(parameter).collect();
        let begin = begun(call.record, call.statement, call.does);
        write!(f, "\n  {word:<8} {{{begin}with: [{}]}}", with.join(", "))?;
    }
    if expected.is_empty() {
        write!(f, "\n  expected nothing")?;
    }
    for (index, Carried { record, called }) in got.iter().enumerate() {
        let word = if index == 0 { "got" } else { "" };
        let text = |text: &String| serde_json::Value::from(text.as_str()).to_string();
        let with: Vec<_> = called.with.iter().map(|with| with.as_ref().map_or("null".to_owned(), text)).collect();
        let begin = begun(Some(*record), Some(called.statement), Some(called.does));
        write!(f, "\n  {word:<8} {{{begin}with: [{}]}}", with.join(", "))?;
    }
    if got.is_empty() { write!(f, "\n  got      nothing") } else { Ok(()) }
}

/// What was expected of a record's calls, and what they were.
fn write_attempts(f: &mut fmt::Formatter<'_>, number: usize, expected: Expected, got: &Made) -> fmt::Result {
    let calls = expected.calls.map(|calls| counted(calls, "call"));
    let key = expected.key.map(|key| format!("key {}", key.as_str()));
    let expected: Vec<String> = calls.into_iter().chain(key).collect();
    let key = match got.is_same {
        Some(true) => "key same",
        Some(false) => "another key, or other bytes, than before",
        None => "key none",
    };
    write!(
        f,
        "record {number}\n  expected {}\n  got      {}, {key}",
        expected.join(", "),
        counted(got.attempts, "call")
    )?;
    if got.address.is_empty() { Ok(()) } else { write!(f, "\n  request  {} {}", got.method, got.address) }
}

/// What was written to the topic of results, and what was expected, as `results` can be written.
fn write_results(f: &mut fmt::Formatter<'_>, expected: &[ExpectedResult], got: &[(usize, Answered)]) -> fmt::Result {
    let shown = |record: Option<usize>, status: Option<u16>, body: Option<&Vec<u8>>| {
        let body = body.map(|body| serde_json::Value::from(String::from_utf8_lossy(body)).to_string());
        let parts = [
            record.map(|record| format!("record: {record}")),
            status.map(|status| format!("status: {status}")),
            body.map(|body| format!("body: {body}")),
        ];
        format!("{{{}}}", parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
    };
    let expected = expected.iter().map(|result| shown(result.record, result.status, result.body.as_ref()));
    let got = got.iter().map(|(number, result)| shown(Some(*number), result.status, result.body.as_ref()));
    let lists = [("expected", expected.collect::<Vec<_>>()), ("got", got.collect())];
    write!(f, "results")?;
    for (word, results) in lists {
        if results.is_empty() {
            write!(f, "\n  {word:<8} nothing")?;
        }
        for (index, result) in results.iter().enumerate() {
            write!(f, "\n  {:<8} {result}", if index == 0 { word } else { "" })?;
        }
    }
    Ok(())
}

/// An expectation as it may be written.
fn words(expected: Expected) -> String {
    match expected.reason {
        Some(reason) => format!("{} ({reason})", expected.verdict),
        None => expected.verdict.to_string(),
    }
}
