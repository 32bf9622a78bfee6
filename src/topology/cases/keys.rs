//! The keys of `tests`: what is given, and what is expected.

use crate::capture::Form;
use crate::dedup::{Reason, Verdict};
use crate::topology::cases::{KeySeen, Silence};
use crate::topology::keys::values::{FROM_0, NAME, words};
use crate::topology::sink::http::keys::{self as http, ATTEMPT, RESULT_WRITTEN};
use crate::topology::sink::keys::{ANSWER, CALL};
use crate::yaml::keys::{Key, Mapping, Omitted, Type};

/// A test.
pub static CASE: Mapping = Mapping::of(&[
    Key::required("name", NAME, "name: a retried charge is dropped", "what the test shows"),
    Key::required(
        "given",
        Type::AnyOf(
            "a list of records, or a file",
            &[
                Type::List("a list of records, or a file", &Type::Mapping("a record", &RECORD)),
                Type::Mapping("a list of records, or a file", &GIVEN_FILE),
            ],
        ),
        "given: [{value: {id: 1}}]` or `given: {file: records.jsonl}",
        "the records, in order; or `{file: PATH}`, a file of lines next to the topology",
    ),
    Key::required(
        "expect",
        Type::List(
            "a list of verdicts, one for each record",
            &Type::AnyOf("a verdict", &[words!(Verdict), Type::Mapping("a verdict", &EXPECTED)]),
        ),
        "expect: [forwarded, duplicate]",
        "for each record a verdict, or `{verdict: ..., reason: ...}`",
    ),
    Key::optional(
        "output",
        Type::Numbers("a list of numbers of given records, from 0"),
        "output: [0, 2]",
        "which given records come out, by number from 0, in order",
    )
    .or(Omitted::Words("not checked")),
    Key::optional(
        "entries",
        Type::List("a list of entries", &Type::Mapping("a list of entries", &ENTRY)),
        "entries: [{identity: [7], version: 3}]",
        "what is remembered in the end: the named entries must be, in any order",
    )
    .or(Omitted::Words("not checked")),
    Key::optional(
        "rows",
        Type::ListOrNone("a list of calls", &Type::Mapping("a call", &CALL)),
        "rows: [{record: 0, with: [7, anvil, 2]}]",
        "with a [sink](#sinks): what is carried out there, in order, each call with its parameters; `[]` for nothing",
    )
    .or(Omitted::Words("not checked")),
    Key::optional(
        "answers",
        Type::List(
            "a list of answers",
            &Type::AnyOf(
                "an answer",
                &[
                    Type::Mapping("an answer", &ANSWER),
                    Type::Mapping("an answer", &ATTEMPT),
                    http::STATUS,
                    words!(Silence),
                ],
            ),
        ),
        "answers: [{record: 1, rejected: violates a check}]` or `answers: [500, timeout, {status: 201, body: '{}'}]",
        "with a [sink](#sinks): records that a database refuses (`rejected`, with its words), or that its inbox has already \
         (`in_inbox: true`); or what a provider answers, attempt for attempt, as a code, `{status, body, headers}`, \
         `timeout`, `lost` or `not_sent`",
    )
    .or(Omitted::Words("everything is carried out; 200 without a body")),
    Key::optional(
        "results",
        Type::ListOrNone("a list of results", &Type::Mapping("a result", &RESULT_WRITTEN)),
        "results: [{record: 0, status: 201, body: '{}'}]",
        "with a `sink.http`: what is written to the topic of results, in order; `[]` for nothing",
    )
    .or(Omitted::Words("not checked")),
]);

/// `given`, if it is a file.
pub static GIVEN_FILE: Mapping = Mapping::of(&[
    Key::required(
        "file",
        Type::Text("a file's path"),
        "given: {file: records.jsonl}",
        "a file of records, one per line; a relative path starts at the topology's folder",
    ),
    Key::optional(
        "envelope",
        Type::Words(|| ENVELOPES.map(|(name, _)| name.to_owned()).to_vec()),
        "envelope: kcat",
        "how the lines are wrapped: as `kcat -J` prints them, or as `ratchet capture` writes them. Without it, they are \
         recognised if `ratchet capture` wrote them, and otherwise a line is a value",
    ),
]);
/// The envelopes of lines.
pub const ENVELOPES: [(&str, Form); 2] = [("kcat", Form::Kcat), ("capture", Form::Capture)];

/// A given record.
pub static RECORD: Mapping = Mapping::of(&[
    Key::optional(
        "value",
        Type::Any("a value"),
        "value: {id: 1}",
        "a mapping or a list is JSON, its numbers with their exact digits; a string is those bytes or, where values are JSON, \
         a JSON string; numbers, `true` and `false` without quotes are those",
    )
    .or(Omitted::Words("null")),
    Key::optional("key", Type::Any("a value"), "key: k", "written like the value").or(Omitted::Words("null")),
    Key::optional("headers", Type::Texts, "headers: {delivery-id: a1}", "a mapping of strings").or(Omitted::Words("none")),
    Key::optional(
        "timestamp",
        Type::Time,
        "timestamp: 2026-01-01T00:00:00Z",
        "a time or milliseconds; `null` for a record without one",
    )
    .or(Omitted::Is("2020-01-01T00:00:00Z")),
    Key::optional("topic", Type::Text("a topic"), "topic: payments", "the topic; needed if the input is a pattern")
        .or(Omitted::Words("the first of the input's")),
    Key::optional(
        "partition",
        Type::Integer("a whole number from 0", 0, i32::MAX as u64),
        "partition: 0",
        "the partition",
    )
    .or(Omitted::Is("0")),
    Key::optional("offset", FROM_0, "offset: 0", "the offset").or(Omitted::Words("the next one of the partition")),
]);

/// An expectation, written as a mapping.
pub static EXPECTED: Mapping = Mapping::of(&[
    Key::required("verdict", words!(Verdict), "{verdict: stale, reason: version_older}", "what happens to the record"),
    Key::optional("reason", words!(Reason), "{verdict: stale, reason: version_older}", "why"),
    Key::optional(
        "calls",
        FROM_0,
        "{verdict: forwarded, calls: 3}",
        "with a `sink.http`: how many attempts the record made",
    ),
    Key::optional(
        "key",
        words!(KeySeen),
        "{verdict: forwarded, calls: 3, key: same}",
        "with a `sink.http`: `same`, if each attempt of an identity and version, of this record and of those before, \
         carried one and the same key and the same bytes; `none`, if none carried a key",
    ),
]);

/// An expected entry.
pub static ENTRY: Mapping = Mapping::of(&[
    Key::required("identity", Type::Any("a value"), "{identity: [7], version: 3}", "its parts"),
    Key::optional("version", Type::Any("a value"), "{identity: [7], version: 3}", "its version")
        .or(Omitted::Words("not checked")),
]);
