//! The keys of `sink.http`.

use crate::topology::sink::REJECTED;
use crate::topology::sink::http::{IN_FLIGHT_MAX, Method};
use crate::yaml::keys::{Key, Mapping, Omitted, Type};

use super::TOPIC;

const ANSWERED: Type = Type::Words(|| REJECTED.iter().map(|action| action.as_str().to_owned()).collect());

/// `sink.http`.
pub static HTTP: Mapping = Mapping {
    needs: &[("reserve", "idempotency_key")],
    ..Mapping::of(&[
        Key::required(
            "url",
            Type::Text("an address"),
            "url: 'https://api.example.com/charges/{value.order_id}'",
            "where the request goes. `{PATH}` is a part of the record, percent-encoded: in path and query; in the host only \
             with `hosts`. `{{` and `}}` mean braces. What is missing or null refuses the record (`on_rejected`)",
        ),
        Key::optional(
            "hosts",
            Type::List("a list of hosts", &Type::Text("a host")),
            "hosts: [eu.example.com, 'us.example.com:8443']",
            "the hosts, with their ports, that a record may name in `url`; another one refuses the record",
        ),
        Key::optional(
            "method",
            Type::Words(|| Method::ALL.iter().map(|method| method.as_str().to_owned()).collect()),
            "method: POST",
            "`POST`, `PUT`, `PATCH`, `DELETE` or `GET`",
        )
        .or(Omitted::Is("POST")),
        Key::optional(
            "headers",
            Type::Texts,
            "headers: {authorization: 'Bearer ${file:secrets/token}', x-tenant: '{value.tenant}'}",
            "headers, with parts of the record as in `url`. What is missing, null, or not of visible ASCII refuses the \
             record. The key's header is ratchet's",
        )
        .or(Omitted::Words("`content-type: application/json`, where the body is JSON")),
        Key::optional(
            "body",
            Type::AnyOf(
                "`value`, `none` or `{json: ...}`",
                &[
                    Type::Words(|| vec![BODY_VALUE.to_owned(), BODY_NONE.to_owned()]),
                    Type::Mapping("a mapping", &BODY),
                ],
            ),
            "body: {json: {amount: value.amount, currency: {const: EUR}}}",
            "`value`, the record's bytes; `none`; or `{json: ...}`, made of objects, lists, paths, `{first_of: [...]}` and \
             `{const: x}`. Numbers, objects and lists stand there as in the record; what is missing is null",
        )
        .or(Omitted::Words("`value`; with `GET` and `DELETE` `none`")),
        Key::optional(
            "idempotency_key",
            Type::mapping(&IDEMPOTENCY_KEY),
            "idempotency_key: {header: Idempotency-Key, honoured_for: 24h}",
            "what the provider [recognises a call by](sinks/http.md#the-key): `header`, `honoured_for`, `margin`",
        )
        .or(Omitted::Words("the provider recognises nothing")),
        Key::optional(
            "reserve",
            Type::Words(|| vec!["auto".to_owned(), "always".to_owned()]),
            "reserve: always",
            "when a reservation is committed before a call: `auto`, where the key alone does not suffice; or `always`",
        )
        .or(Omitted::Words("`auto`; without a key `always`")),
        Key::optional("timeout", Type::Duration, "timeout: 10s", "how long an attempt may take, at most 10m")
            .or(Omitted::Is("10s")),
        Key::optional(
            "in_flight",
            Type::Integer("a number from 1 to 1024", 1, IN_FLIGHT_MAX as u64),
            "in_flight: 64",
            "how many calls of a lane are under way at most, one at a time of an identity",
        )
        .or(Omitted::Is("64")),
        Key::optional(
            "rate",
            Type::Pattern("a number of calls in a time", r"^[0-9]+\s*/\s*(s|m|h)$"),
            "rate: 100/s",
            "how many attempts of a lane begin in a second, a minute or an hour at most",
        )
        .or(Omitted::Words("no limit")),
        Key::optional(
            "retry",
            Type::mapping(&RETRY),
            "retry: {first: 200ms, factor: 2, max: 30s, jitter: full, attempts: 8}",
            "how often, and after how long, a call is made again: `first`, `factor`, `max`, `jitter`, `attempts`",
        )
        .or(Omitted::Words("that of each of its keys")),
        Key::optional(
            "answers",
            Type::Texts,
            "answers: {404: done, 5xx: again}",
            "what answers mean [otherwise](sinks/http.md#what-answers-mean): codes, or hundreds of codes, to `done`, \
             `again`, `hold`, `conflict`, `rejected` or `in_doubt`",
        ),
        Key::optional(
            "on_rejected",
            ANSWERED,
            "on_rejected: dead_letter",
            "the provider will not do it, and has not; or no request can be made of the record",
        )
        .or(Omitted::Is("dead_letter")),
        Key::optional(
            "on_conflict",
            ANSWERED,
            "on_conflict: dead_letter",
            "it asks for something else than a record with the same identity and version has asked for",
        )
        .or(Omitted::Is("dead_letter")),
        Key::optional(
            "on_unavailable",
            Type::Words(|| vec!["hold".to_owned(), "dead_letter".to_owned(), "fail".to_owned()]),
            "on_unavailable: hold",
            "the attempts are exhausted: `hold` waits while the provider is down; then, and with `dead_letter` at once, the \
             record goes to the dead letters; `fail` stops its partition",
        )
        .or(Omitted::Is("hold")),
        Key::optional(
            "on_in_doubt",
            Type::Words(|| vec!["dead_letter".to_owned(), "retry".to_owned(), "fail".to_owned()]),
            "on_in_doubt: dead_letter",
            "a call may have happened, and the provider would not recognise it: `dead_letter`, `fail`, or `retry`, which \
             makes it again",
        )
        .or(Omitted::Words("`dead_letter`; without a key required")),
        Key::optional(
            "result",
            Type::mapping(&RESULTS),
            "result: {topic: charges.done, max: 64KiB}",
            "`topic`: where what was answered goes; `max`: the largest answer that is kept",
        )
        .or(Omitted::Words("thrown away")),
    ])
};

/// The word for the record's value as a body.
pub const BODY_VALUE: &str = "value";
/// The word for no body.
pub const BODY_NONE: &str = "none";

/// `body`, if it is made.
pub static BODY: Mapping = Mapping::of(&[Key::required(
    "json",
    Type::Any("JSON made of paths"),
    "body: {json: {amount: value.amount}}",
    "an object or a list of paths, objects and lists",
)]);

/// `idempotency_key`.
pub static IDEMPOTENCY_KEY: Mapping = Mapping::of(&[
    Key::required(
        "header",
        Type::Text("a header's name"),
        "header: Idempotency-Key",
        "the header that carries the key: 64 hexadecimal digits",
    ),
    Key::required(
        "honoured_for",
        Type::Duration,
        "honoured_for: 24h",
        "for how long the provider recognises a key, as it promises",
    ),
    Key::optional(
        "margin",
        Type::Duration,
        "margin: 30s",
        "by how much the clocks of the instances and of the provider may differ",
    )
    .or(Omitted::Is("30s")),
]);

/// `retry`.
pub static RETRY: Mapping = Mapping::of(&[
    Key::optional("first", Type::Duration, "first: 200ms", "the longest wait after the first attempt")
        .or(Omitted::Is("200ms")),
    Key::optional(
        "factor",
        Type::Integer("a number from 1 to 100", 1, FACTOR_MAX as u64),
        "factor: 2",
        "what it is multiplied by after each attempt",
    )
    .or(Omitted::Is("2")),
    Key::optional("max", Type::Duration, "max: 30s", "the longest wait of all").or(Omitted::Is("30s")),
    Key::optional(
        "jitter",
        Type::Words(|| vec!["full".to_owned(), "none".to_owned()]),
        "jitter: full",
        "`full` waits for a random part of that, so that calls do not come again together; `none` for all of it",
    )
    .or(Omitted::Is("full")),
    Key::optional(
        "attempts",
        Type::Integer("a number from 1 to 1000", 1, ATTEMPTS_MAX as u64),
        "attempts: 8",
        "how many attempts there are, the first one included",
    )
    .or(Omitted::Is("8")),
]);

/// The largest `factor`.
pub const FACTOR_MAX: u32 = 100;
/// The largest `attempts`.
pub const ATTEMPTS_MAX: u32 = 1000;

/// `result`.
pub static RESULTS: Mapping = Mapping::of(&[
    Key::required("topic", TOPIC, "result: {topic: charges.done}", "the topic for what was answered"),
    Key::optional(
        "max",
        Type::Size("a size from 1B to 64KiB"),
        "max: 64KiB",
        "the largest answer that is kept; of a larger one, its digest is",
    )
    .or(Omitted::Is("64KiB")),
]);

/// An attempt's answer, in a test.
pub static ATTEMPT: Mapping = Mapping::of(&[
    Key::required("status", STATUS, "{status: 201, body: '{}'}", "its code"),
    Key::optional("body", Type::Any("a value"), "{status: 201, body: '{}'}", "its body: a text, or JSON")
        .or(Omitted::Words("none")),
    Key::optional(
        "headers",
        Type::Texts,
        "{status: 429, headers: {retry-after: 5}}",
        "its headers, of which `retry-after` and those of a replay count",
    )
    .or(Omitted::Words("none")),
]);

/// A status code.
pub const STATUS: Type = Type::Integer("a number from 100 to 599", 100, 599);

/// What is written to the topic of results, in a test.
pub static RESULT_WRITTEN: Mapping = Mapping::of(&[
    Key::optional("record", super::FROM_0, "{record: 0, status: 201}", "the given record, from 0")
        .or(Omitted::Words("not checked")),
    Key::optional("status", STATUS, "{record: 0, status: 201}", "the code that was answered")
        .or(Omitted::Words("not checked")),
    Key::optional("body", Type::Any("a value"), "{record: 0, body: '{}'}", "the body: a text, or JSON")
        .or(Omitted::Words("not checked")),
]);

/// All of these, for the tests of the tables.
#[cfg(test)]
pub static ALL: &[&Mapping] = &[&HTTP, &BODY, &IDEMPOTENCY_KEY, &RETRY, &RESULTS, &ATTEMPT, &RESULT_WRITTEN];
