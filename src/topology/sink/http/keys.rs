//! The keys of `sink.http`.

use crate::topology::keys::values::FROM_0;
use crate::topology::sink::http::Method;
use crate::topology::sink::terms::keys as terms;
use crate::yaml::keys::{Key, Mapping, Omitted, Type};

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
                &[Type::Words(|| vec![BODY_VALUE.to_owned(), BODY_NONE.to_owned()]), Type::Mapping("a mapping", &BODY)],
            ),
            "body: {json: {amount: value.amount, currency: {const: EUR}}}",
            "`value`, the record's bytes, or its JSON if `value_format` has schemas; `none`; or `{json: ...}`, made of \
             objects, lists, paths, `{first_of: [...]}` and `{const: x}`. Numbers, objects and lists stand there as in \
             the record; what is missing is null",
        )
        .or(Omitted::Words("`value`; with `GET` and `DELETE` `none`")),
        Key::optional(
            "idempotency_key",
            Type::mapping(&IDEMPOTENCY_KEY),
            "idempotency_key: {header: Idempotency-Key, honoured_for: 24h}",
            "what the provider [recognises a call by](sinks/http.md#the-key): `header`, `honoured_for`, `margin`",
        )
        .or(Omitted::Words("the provider recognises nothing")),
        terms::RESERVE,
        terms::TIMEOUT,
        terms::IN_FLIGHT,
        terms::RATE,
        terms::RETRY,
        Key::optional(
            "answers",
            Type::Texts,
            "answers: {404: done, 5xx: again}",
            "what answers mean [otherwise](sinks/http.md#what-answers-mean): codes, or hundreds of codes, to `done`, \
             `again`, `hold`, `conflict`, `rejected` or `in_doubt`",
        ),
        terms::ON_REJECTED,
        terms::ON_CONFLICT,
        terms::ON_UNAVAILABLE,
        terms::ON_IN_DOUBT,
        terms::RESULT,
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
    terms::MARGIN,
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
    Key::optional("record", FROM_0, "{record: 0, status: 201}", "the given record, from 0")
        .or(Omitted::Words("not checked")),
    Key::optional("status", STATUS, "{record: 0, status: 201}", "the code that was answered")
        .or(Omitted::Words("not checked")),
    Key::optional("body", Type::Any("a value"), "{record: 0, body: '{}'}", "the body: a text, or JSON")
        .or(Omitted::Words("not checked")),
]);

/// All of these, for the tests of the tables.
#[cfg(test)]
pub static ALL: &[&Mapping] = &[&HTTP, &BODY, &IDEMPOTENCY_KEY, &ATTEMPT, &RESULT_WRITTEN];
