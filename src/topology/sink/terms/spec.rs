//! The terms of a sink that calls, as written: the keys that `sink.http` and `sink.handler` share.

use crate::dedup::Action;
use crate::effect::call::{Jitter, OnInDoubt, OnUnavailable, Reserve};
use crate::topology::keys;
use crate::topology::sink::REJECTED;
use crate::topology::sink::terms::{IN_FLIGHT_MAX, RESULT_BYTES_MAX, Rate};
use crate::topology::spec::reader::{SpecReader, choices};
use crate::yaml::{Field, Fields, Place, Placed, Text, units};

/// Terms as written; `None` means left out, or already reported.
#[derive(Debug)]
pub struct TermsSpec {
    /// Where they are written: `sink.http`, say.
    pub named: &'static str,
    /// Where that is.
    pub place: Place,
    /// Where it stands that keys are honoured, right or wrong.
    pub key_place: Option<Place>,
    pub honoured_for_ms: Option<Placed<i64>>,
    pub margin_ms: Option<Placed<i64>>,
    pub reserve: Option<Placed<Reserve>>,
    pub timeout_ms: Option<Placed<i64>>,
    pub in_flight: Option<usize>,
    pub rate: Option<Rate>,
    pub retry: RetrySpec,
    pub on_rejected: Option<Placed<Action>>,
    pub on_conflict: Option<Placed<Action>>,
    pub on_unavailable: Option<Placed<OnUnavailable>>,
    pub on_in_doubt: Option<Placed<OnInDoubt>>,
    /// Whether there is an `on_in_doubt`, right or wrong.
    pub has_in_doubt: bool,
    pub result: Option<Placed<Text>>,
    /// Whether there is a `result`, right or wrong.
    pub has_result: bool,
    pub result_bytes_max: Option<usize>,
}

/// For how long keys are honoured, as written.
#[derive(Debug, Default)]
pub struct HonouredSpec {
    /// Where that stands, right or wrong.
    pub place: Option<Place>,
    pub for_ms: Option<Placed<i64>>,
    pub margin_ms: Option<Placed<i64>>,
}

/// `retry` as written.
#[derive(Debug, Default)]
pub struct RetrySpec {
    pub first_ms: Option<Placed<i64>>,
    pub factor: Option<u32>,
    pub max_ms: Option<Placed<i64>>,
    pub jitter: Option<Jitter>,
    pub attempts: Option<u32>,
}

const RESERVES: &[(&str, Reserve)] = &[("auto", Reserve::Auto), ("always", Reserve::Always)];
const JITTERS: &[(&str, Jitter)] = &[("full", Jitter::Full), ("none", Jitter::None)];
const IN_DOUBT: &[(&str, OnInDoubt)] =
    &[("dead_letter", OnInDoubt::DeadLetter), ("retry", OnInDoubt::Retry), ("fail", OnInDoubt::Fail)];
const UNAVAILABLE: &[(&str, OnUnavailable)] =
    &[("hold", OnUnavailable::Hold), ("dead_letter", OnUnavailable::DeadLetter), ("fail", OnUnavailable::Fail)];

impl SpecReader<'_, '_> {
    /// The terms in these fields of a sink.
    pub fn terms(
        &mut self,
        (named, place): (&'static str, Place),
        fields: &Fields<'_>,
        honoured: HonouredSpec,
    ) -> TermsSpec {
        let at = |key: &str| fields.get(key).map(|field| field.key_place).or(fields.misspelt(key));
        let action = |this: &mut Self, key: &str| {
            let field = fields.get(key)?;
            this.reader.choice(field, &choices(REJECTED, Action::as_str))
        };
        let results = fields.get("result").and_then(|field| self.reader.fields(field, &keys::RESULTS));
        let size = |text: &str| {
            let bytes = usize::try_from(units::size_bytes(text)?).ok()?;
            (1..=RESULT_BYTES_MAX).contains(&bytes).then_some(bytes)
        };
        let in_flight = |text: &str| text.parse().ok().filter(|number| (1..=IN_FLIGHT_MAX).contains(number));
        TermsSpec {
            named,
            place,
            key_place: honoured.place,
            honoured_for_ms: honoured.for_ms,
            margin_ms: honoured.margin_ms,
            reserve: fields.get("reserve").and_then(|field| self.reader.choice(field, RESERVES)),
            timeout_ms: fields.get("timeout").and_then(|field| self.reader.duration_ms(field)),
            in_flight: self.value_of(fields, "in_flight", in_flight),
            rate: self.value_of(fields, "rate", Rate::parse),
            retry: fields.get("retry").map(|field| self.retry(field)).unwrap_or_default(),
            on_rejected: action(self, "on_rejected"),
            on_conflict: action(self, "on_conflict"),
            on_unavailable: fields.get("on_unavailable").and_then(|field| self.reader.choice(field, UNAVAILABLE)),
            on_in_doubt: fields.get("on_in_doubt").and_then(|field| self.reader.choice(field, IN_DOUBT)),
            has_in_doubt: at("on_in_doubt").is_some(),
            has_result: at("result").is_some(),
            result: results.as_ref().and_then(|fields| {
                let topic = fields.require("topic", self.reader)?;
                self.reader.text(topic)
            }),
            result_bytes_max: results.as_ref().and_then(|fields| self.value_of(fields, "max", size)),
        }
    }

    /// A handler of the program that runs the topology.
    pub fn handler(&mut self, fields: &Fields<'_>, place: Place) -> TermsSpec {
        let duration = |this: &mut Self, key: &str| {
            let field = fields.get(key)?;
            this.reader.duration_ms(field)
        };
        let honoured = HonouredSpec {
            place: fields.get("honoured_for").map(|field| field.key_place).or(fields.misspelt("honoured_for")),
            for_ms: duration(self, "honoured_for"),
            margin_ms: duration(self, "margin"),
        };
        self.terms(("sink.handler", place), fields, honoured)
    }

    pub fn value_of<T>(&mut self, fields: &Fields<'_>, key: &str, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        let field = fields.get(key)?;
        self.reader.parsed(field, parse).map(|placed| placed.value)
    }

    fn retry(&mut self, field: &Field<'_>) -> RetrySpec {
        let Some(fields) = self.reader.fields(field, &keys::RETRYING) else { return RetrySpec::default() };
        let up_to = |most: u32| move |text: &str| text.parse().ok().filter(|number| (1..=most).contains(number));
        RetrySpec {
            first_ms: fields.get("first").and_then(|field| self.reader.duration_ms(field)),
            factor: self.value_of(&fields, "factor", up_to(keys::FACTOR_MAX)),
            max_ms: fields.get("max").and_then(|field| self.reader.duration_ms(field)),
            jitter: fields.get("jitter").and_then(|field| self.reader.choice(field, JITTERS)).map(|word| word.value),
            attempts: self.value_of(&fields, "attempts", up_to(keys::ATTEMPTS_MAX)),
        }
    }
}
