//! The keys that sinks which call share.

use crate::topology::keys::values::TOPIC;
use crate::topology::sink::REJECTED;
use crate::topology::sink::terms::IN_FLIGHT_MAX;
use crate::yaml::keys::{Key, Mapping, Omitted, Type};

/// `sink.handler`.
pub static HANDLER: Mapping = Mapping {
    needs: &[("margin", "honoured_for"), ("reserve", "honoured_for")],
    ..Mapping::of(&[
        Key::optional(
            "honoured_for",
            Type::Duration,
            "honoured_for: 24h",
            "for how long those that its steps call [recognise their keys](handlers.md#keys), as they promise",
        )
        .or(Omitted::Words("nobody recognises any")),
        MARGIN,
        RESERVE,
        TIMEOUT,
        IN_FLIGHT,
        RATE,
        RETRY,
        ON_REJECTED,
        ON_CONFLICT,
        ON_UNAVAILABLE,
        ON_IN_DOUBT,
        RESULT,
    ])
};

/// By how much clocks may differ.
pub const MARGIN: Key = Key::optional(
    "margin",
    Type::Duration,
    "margin: 30s",
    "by how much the clocks of the instances and of the provider may differ",
)
.or(Omitted::Is("30s"));

const ANSWERED: Type = Type::Words(|| REJECTED.iter().map(|action| action.as_str().to_owned()).collect());

/// When a reservation is committed.
pub const RESERVE: Key = Key::optional(
    "reserve",
    Type::Words(|| vec!["auto".to_owned(), "always".to_owned()]),
    "reserve: always",
    "when a reservation is committed before a call: `auto`, where the key alone does not suffice; or `always`",
)
.or(Omitted::Words("`auto`; without a key `always`"));

/// How long an attempt may take.
pub const TIMEOUT: Key =
    Key::optional("timeout", Type::Duration, "timeout: 10s", "how long an attempt may take, at most 10m")
        .or(Omitted::Is("10s"));

/// How many calls are under way.
pub const IN_FLIGHT: Key = Key::optional(
    "in_flight",
    Type::Integer("a number from 1 to 1024", 1, IN_FLIGHT_MAX as u64),
    "in_flight: 64",
    "how many calls of a lane are under way at most, one at a time of an identity",
)
.or(Omitted::Is("64"));

/// How many begin in a time.
pub const RATE: Key = Key::optional(
    "rate",
    Type::Pattern("a number of calls in a time", r"^[0-9]+\s*/\s*(s|m|h)$"),
    "rate: 100/s",
    "how many attempts of a lane begin in a second, a minute or an hour at most",
)
.or(Omitted::Words("no limit"));

/// How often a call is made again.
pub const RETRY: Key = Key::optional(
    "retry",
    Type::mapping(&RETRYING),
    "retry: {first: 200ms, factor: 2, max: 30s, jitter: full, attempts: 8}",
    "how often, and after how long, a call is made again: `first`, `factor`, `max`, `jitter`, `attempts`",
)
.or(Omitted::Words("that of each of its keys"));

/// What is refused.
pub const ON_REJECTED: Key = Key::optional(
    "on_rejected",
    ANSWERED,
    "on_rejected: dead_letter",
    "it was refused, and has not happened; or the record can ask for nothing",
)
.or(Omitted::Is("dead_letter"));

/// What asks for something else.
pub const ON_CONFLICT: Key = Key::optional(
    "on_conflict",
    ANSWERED,
    "on_conflict: dead_letter",
    "it asks for something else than a record with the same identity and version has asked for",
)
.or(Omitted::Is("dead_letter"));

/// What was tried in vain.
pub const ON_UNAVAILABLE: Key = Key::optional(
    "on_unavailable",
    Type::Words(|| vec!["hold".to_owned(), "dead_letter".to_owned(), "fail".to_owned()]),
    "on_unavailable: hold",
    "the attempts are exhausted: `hold` waits while the provider is down; then, and with `dead_letter` at once, the \
     record goes to the dead letters; `fail` stops its partition",
)
.or(Omitted::Is("hold"));

/// What may have happened.
pub const ON_IN_DOUBT: Key = Key::optional(
    "on_in_doubt",
    Type::Words(|| vec!["dead_letter".to_owned(), "retry".to_owned(), "fail".to_owned()]),
    "on_in_doubt: dead_letter",
    "a call may have happened, and the provider would not recognise it: `dead_letter`, `fail`, or `retry`, which \
     makes it again",
)
.or(Omitted::Words("`dead_letter`; without a key required"));

/// Where results go.
pub const RESULT: Key = Key::optional(
    "result",
    Type::mapping(&RESULTS),
    "result: {topic: charges.done, max: 64KiB}",
    "`topic`: where what was answered goes; `max`: the largest answer that is kept",
)
.or(Omitted::Words("thrown away"));

/// `retry`.
pub static RETRYING: Mapping = Mapping::of(&[
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

/// All of these, for the tests of the tables.
#[cfg(test)]
pub static ALL: &[&Mapping] = &[&HANDLER, &RETRYING, &RESULTS];
