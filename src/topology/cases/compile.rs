//! A topology's own tests: turns their records into bytes and checks what they expect.

use crate::dedup::{Format, Identity, Rules, written};
use crate::topology::Input;
use crate::topology::cases::spec::{AnswerSpec, CallSpec, EntrySpec, Expectation, ResultSpec, quoted};
use crate::topology::cases::{
    Expected, ExpectedCall, ExpectedEntry, ExpectedResult, Given, GivenAnswer, GivenRecord, TestCase,
};
use crate::topology::compile::compiler::Compiler;
use crate::topology::sink::Dedup;
use crate::topology::spec::{CaseSpec, GivenSpec, Payload, RecordSpec, Spec};
use crate::yaml::Placed;

impl Compiler<'_> {
    /// The tests that could be read.
    pub fn tests(&mut self, input: Option<&Input>) -> Vec<TestCase> {
        let spec = self.spec;
        for (index, case) in spec.tests.iter().enumerate() {
            let Some(name) = &case.name else { continue };
            let same = |other: &CaseSpec| other.name.as_ref().is_some_and(|other| other.value == name.value);
            if spec.tests[..index].iter().any(same) {
                let message = format!("there are two tests named `{}`", name.value);
                self.mistake(name.place, message, "again", "give each a name of its own, to tell which one fails");
            }
        }
        self.check_expected_versions();
        spec.tests.iter().filter_map(|case| self.case(case, input)).collect()
    }

    fn case(&mut self, case: &CaseSpec, input: Option<&Input>) -> Option<TestCase> {
        if let Some(GivenSpec::Records(records)) = &case.given {
            if case.expect_complete && case.expect.len() != records.len() {
                let message = format!(
                    "`expect` must have one verdict for each record: {} for {}",
                    case.expect.len(),
                    records.len()
                );
                let help = "write one verdict for each record, in order";
                self.mistake(case.expect_place, message, "not as many as `given`", help);
            }
            for number in case.output.iter().flatten().filter(|number| number.value >= records.len()) {
                let message = format!("`output` names record {}, the last one is {}", number.value, records.len() - 1);
                self.mistake(number.place, message, "there is none", "records are numbered from 0");
            }
            records.iter().for_each(|record| self.check_record_topic(record, input));
            self.check_sink_case(case, records.len());
        }
        self.check_case_has_sink(case);
        let given = match case.given.as_ref()? {
            GivenSpec::File { path, form } => Given::File { path: path.clone(), form: *form },
            GivenSpec::Records(records) => Given::Records(records.iter().map(|record| self.record(record)).collect()),
        };
        let expect = case.expect.iter().map(|&Expectation { verdict, reason, calls, key, .. }| Expected {
            verdict,
            reason,
            calls,
            key,
        });
        let entry = |entry: &EntrySpec| ExpectedEntry {
            identity: entry.identity.clone(),
            version: entry.version.as_ref().map(|version| version.value.clone()),
        };
        Some(TestCase {
            name: case.name.as_ref()?.value.reveal().to_owned(),
            line: case.line,
            given,
            expect: expect.collect(),
            output: case.output.as_ref().map(|numbers| numbers.iter().map(|number| number.value).collect()),
            entries: case.entries.iter().map(entry).collect(),
            rows: case.rows.as_ref().map(|rows| rows.value.iter().map(expected_call).collect()),
            answers: case.answers.iter().map(given_answer).collect(),
            attempts: case.attempts.iter().map(|attempt| attempt.value.clone()).collect(),
            results: case.results.as_ref().map(|results| results.value.iter().map(expected_result).collect()),
        })
    }

    /// Reports numbers of records that are not given.
    fn check_sink_case(&mut self, case: &CaseSpec, records: usize) {
        let of_calls = case.rows.iter().flat_map(|rows| &rows.value).filter_map(|call| call.record.as_ref());
        let of_answers = case.answers.iter().map(|answer| &answer.record);
        let of_results = case.results.iter().flat_map(|results| &results.value);
        let of_results = of_results.filter_map(|result| result.record.as_ref());
        for number in of_calls.chain(of_answers).chain(of_results) {
            if usize::try_from(number.value).is_ok_and(|number| number >= records) {
                let message = format!("this names record {}, the last one is {}", number.value, records - 1);
                self.mistake(number.place, message, "there is none", "records are numbered from 0");
            }
        }
    }

    /// Reports expectations of a sink that is not there, or that is of another kind.
    fn check_case_has_sink(&mut self, case: &CaseSpec) {
        let spec = self.spec;
        let of_database = case.rows.as_ref().map(|rows| ("rows", rows.place)).into_iter();
        let of_database = of_database.chain(case.answers.first().map(|answer| ("answers", answer.place)));
        let of_provider = case.attempts.first().map(|attempt| ("answers", attempt.place)).into_iter();
        let of_provider = of_provider.chain(case.results.as_ref().map(|results| ("results", results.place)));
        let expected = case.expect.iter().find_map(|expected| expected.calls_place);
        let of_provider = of_provider.chain(expected.map(|place| ("expect", place)));
        let Some(sink) = &spec.sink else {
            for (key, place) in of_database.chain(of_provider) {
                let message = format!("`{key}` is about a sink, and the topology has none");
                let help = "write `output` for the records that come out, or give the topology a `sink`";
                self.mistake(place, message, "of no use", help);
            }
            return;
        };
        if sink.http.is_some() {
            for (key, place) in of_database {
                let message = format!("`{key}` is about a database, and this sink calls a provider");
                let help = "write what attempts are answered, e.g. `answers: [500, timeout, 201]`, and expect e.g. \
                            `{verdict: forwarded, calls: 3}`";
                self.mistake(place, message, "of no use", help);
            }
        } else if sink.handler.is_some() {
            for (key, place) in of_database.chain(of_provider) {
                let message = format!("`{key}` is about what a sink does, and this one is a handler");
                let help =
                    "remove it: a topology's tests judge records, and what a handler does is tested by its program";
                self.mistake(place, message, "of no use", help);
            }
        } else if sink.postgres.is_some() {
            for (key, place) in of_provider {
                let message = format!("`{key}` is about a provider, and this sink is a database");
                let help = "write e.g. `answers: [{record: 1, rejected: violates a check}]`, and expect `rows`";
                self.mistake(place, message, "of no use", help);
            }
        }
        if let Some(results) = case.results.as_ref().filter(|_| sink.terms().is_some_and(|terms| !terms.has_result)) {
            let message = "`results` is about a topic of results, and the sink has none".to_owned();
            let help = "add e.g. `result: {topic: charges.done}` to the sink, or remove it";
            self.mistake(results.place, message, "nothing is ever written", help);
        }
        let dedup = sink.postgres.as_ref().and_then(|postgres| postgres.dedup.as_ref());
        let has_inbox = dedup.is_some_and(|dedup| dedup.value == Dedup::Inbox);
        let in_inbox = case.answers.iter().find(|answer| answer.rejected.is_none());
        if let Some(answer) = in_inbox.filter(|_| sink.postgres.is_some() && !has_inbox) {
            let message = "`in_inbox` is about an inbox, and the sink has none".to_owned();
            self.mistake(answer.place, message, "never answered", "add `dedup: inbox`, or remove it");
        }
    }

    /// Reports expected versions of a topology without any version. Not called if the preset is unknown, since it may
    /// have one.
    pub fn check_no_versions_expected(&mut self) {
        for version in expected_versions(self.spec).filter(|version| version.value != "null") {
            if self.spec.version_place.is_none() {
                let message = "nothing with a version can be remembered: the topology has no `version`".to_owned();
                let help = "remove it, or add `version: {of: value.version, as: integer}`";
                self.mistake(version.place, message, "no version of this topology", help);
            }
        }
    }

    /// Reports expected versions that cannot be read as the topology's versions.
    fn check_expected_versions(&mut self) {
        let spec = self.spec;
        let Some(version) = spec.version.as_ref().filter(|version| version.complete) else { return };
        let mut rules = Rules::new(Identity { parts: Vec::new() }, Some(version.version()));
        rules.limits = spec.limits;
        let version_parts = version.parts.len();
        for version in expected_versions(spec) {
            let Err(refusal) = written::version(&version.value, &rules) else { continue };
            let message = format!("nothing with this version can be remembered: {}", refusal.message);
            let help = match version_parts {
                1 => "write it as a record has it".to_owned(),
                count => {
                    format!("write a list of {count} parts, each as a record has it, `null` for one that is missing")
                }
            };
            self.mistake(version.place, message, "no version of this topology", help);
        }
    }

    /// Checks that the topology would read the record at all.
    fn check_record_topic(&mut self, record: &RecordSpec, input: Option<&Input>) {
        match (&record.topic, input) {
            (Some(topic), Some(input)) if !input.contains(topic.value.reveal()) => {
                let message = format!("the topology does not read the topic `{}`", topic.value);
                let help = format!("its input is {input}");
                self.mistake(topic.place, message, "not its input", help);
            }
            (None, Some(Input::Pattern { .. })) => {
                let message = "the record needs a `topic`: the input is a pattern".to_owned();
                self.mistake(record.place, message, "of which topic is it?", "write e.g. `topic: shop.orders`");
            }
            _ => {}
        }
    }

    fn record(&self, record: &RecordSpec) -> GivenRecord {
        let input = &self.spec.input;
        let key_format = input.key_format.as_ref().map_or(Format::Bytes, |format| format.value);
        let value_format = input.value_format.as_ref().map_or(Format::Json, |format| format.value);
        GivenRecord {
            topic: record.topic.as_ref().map(|topic| topic.value.reveal().to_owned()),
            partition: record.partition,
            offset: record.offset.as_ref().map(|offset| offset.value),
            timestamp: record.timestamp,
            key: bytes(&record.key, key_format),
            value: bytes(&record.value, value_format),
            headers: record.headers.clone(),
        }
    }
}

/// A number that was read as one from 0.
fn index(number: &Placed<i64>) -> usize {
    usize::try_from(number.value).unwrap_or(usize::MAX)
}

fn expected_call(call: &CallSpec) -> ExpectedCall {
    let CallSpec { record, statement, does, with } = call;
    let (record, statement) = (record.as_ref().map(index), statement.as_ref().map(index));
    ExpectedCall { record, statement, does: *does, with: with.clone() }
}

fn expected_result(result: &ResultSpec) -> ExpectedResult {
    ExpectedResult { record: result.record.as_ref().map(index), status: result.status, body: result.body.clone() }
}

fn given_answer(answer: &AnswerSpec) -> GivenAnswer {
    GivenAnswer { record: index(&answer.record), rejected: answer.rejected.clone() }
}

/// The versions that the tests expect in entries.
fn expected_versions(spec: &Spec) -> impl Iterator<Item = &Placed<String>> {
    spec.tests.iter().flat_map(|case| &case.entries).filter_map(|entry| entry.version.as_ref())
}

/// A key's or value's bytes in this format.
fn bytes(payload: &Payload, format: Format) -> Option<Vec<u8>> {
    match (payload, format) {
        (Payload::Null, _) => None,
        (Payload::Json(json), _) => Some(json.clone().into_bytes()),
        (Payload::Text(text), Format::Bytes) => Some(text.clone().into_bytes()),
        // Tests write records as JSON, whatever the format of the topic is.
        (Payload::Text(text), _) => Some(quoted(text).into_bytes()),
    }
}
