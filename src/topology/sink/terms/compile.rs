//! Checks the terms of a sink that calls: for how long keys are honoured and what that promises, and what becomes of calls.

use std::time::Duration;

use crate::dedup::{Action, Retention};
use crate::effect::call::{
    Answers, Jitter, KeyWindow, OnInDoubt, OnUnavailable, OverrideClass, Policy, Reserve, Retry, StatusCodes,
};
use crate::topology::Input;
use crate::topology::compile::compiler::Compiler;
use crate::topology::compile::topics::Written;
use crate::topology::sink::Terms;
use crate::topology::sink::terms::spec::{RetrySpec, TermsSpec};
use crate::topology::sink::terms::{OnDuplicate, RESULT_BYTES_MAX, Results};
use crate::yaml::{Place, Placed, units};

const TIMEOUT_MS: i64 = 10_000;
/// The longest time that an attempt may take.
const TIMEOUT_MS_MAX: i64 = 600_000;
const MARGIN_MS: i64 = 30_000;
const IN_FLIGHT: usize = 64;
/// What a topology says nothing about.
const RETRY: Retry = Retry {
    first: Duration::from_millis(200),
    factor: 2,
    max: Duration::from_secs(30),
    jitter: Jitter::Full,
    attempts: 8,
};

impl Compiler<'_> {
    /// Reports what is wrong with terms, whatever the topology's other keys are.
    pub fn check_terms(&mut self, terms: &TermsSpec) {
        self.check_key(terms);
        self.check_waits(terms);
    }

    /// What the key promises, and what is left to say without one.
    fn check_key(&mut self, terms: &TermsSpec) {
        let (named, key) = (terms.named, key_of(terms));
        if terms.key_place.is_none() {
            if !terms.has_in_doubt {
                let message = format!(
                    "`{named}.on_in_doubt` is missing: without {key} nobody can tell a call that is made again from another \
                     one"
                );
                let help = format!(
                    "write `on_in_doubt: dead_letter` (at most once), `retry` (at least once) or `fail`; or {}",
                    how_to_honour(terms)
                );
                self.mistake(terms.place, message, "it belongs in here", help);
            }
            if let Some(reserve) = &terms.reserve {
                let message = format!("`{named}.reserve` has no effect without {key}");
                let help = "remove it: without a key a reservation is committed before each call";
                self.mistake(reserve.place, message, "never looked at", help);
            }
            if let Some(margin) = &terms.margin_ms {
                let message = format!("`{named}.margin` has no effect without {key}");
                self.mistake(margin.place, message, "never looked at", "remove it, or add `honoured_for`");
            }
            return;
        }
        let Some(honoured_for) = &terms.honoured_for_ms else { return };
        if key_window(terms).is_none() {
            let (timeout, margin) = (timeout_ms(terms), margin_ms(terms));
            let least = timeout.saturating_add(margin).saturating_mul(2);
            let message = format!(
                "the key is honoured for {}, which leaves no room for an attempt and another one after it",
                units::show_duration_ms(honoured_for.value)
            );
            let label = format!("`timeout` and `margin` are {} together", units::show_duration_ms(least / 2));
            let help = format!(
                "write {} or more, if the provider promises that; or a shorter `timeout` or `margin`",
                units::show_duration_ms(least)
            );
            self.mistake(honoured_for.place, message, label, help);
        }
    }

    fn check_waits(&mut self, terms: &TermsSpec) {
        if let Some(timeout) = terms.timeout_ms.as_ref().filter(|timeout| timeout.value > TIMEOUT_MS_MAX) {
            let message = format!("`{}.timeout` is at most {}", terms.named, units::show_duration_ms(TIMEOUT_MS_MAX));
            let help = "a provider that takes longer should answer 202, and tell later";
            self.mistake(timeout.place, message, "longer than that", help);
        }
        let RetrySpec { first_ms, max_ms, .. } = &terms.retry;
        let max = max_ms.as_ref().map_or(as_ms(RETRY.max), |max| max.value);
        if let Some(first) = first_ms.as_ref().filter(|first| first.value > max) {
            let message =
                format!("`{}.retry.first` is more than `max`, which is {}", terms.named, units::show_duration_ms(max));
            self.mistake(first.place, message, "never waited for", "write less, or a longer `max`");
        }
    }

    /// What would give two calls one key, and what the store forgets before the provider does.
    fn check_calls(&mut self, terms: &TermsSpec) {
        let own = |place: Place| Some(place) != self.spec.preset_place;
        let missing = self.spec.actions.missing_version.as_ref();
        if let Some(action) = missing.filter(|action| action.value == Action::Forward && own(action.place)) {
            let message =
                "`on_missing_version: forward` would make calls that are not the same with one key: the key is \
                           made of identity, epoch and version"
                    .to_owned();
            let help = "write `on_missing_version: dead_letter`, `drop` or `fail`";
            self.mistake(action.place, message, "the provider would take the second for the first", help);
        }
        let honoured_for = terms.honoured_for_ms.as_ref();
        if let (Some(Retention::For { ms }), Some(honoured_for)) =
            (self.known_retention(self.retention_or_default()), honoured_for)
            && ms < honoured_for.value
        {
            let message = format!(
                "the key is honoured for longer than an identity is remembered, which is {}",
                units::show_duration_ms(ms)
            );
            let help = format!(
                "write `retention: {}` or more: what is new again for ratchet has the key of the call before, and the \
                 provider does not do it",
                units::show_duration_ms(honoured_for.value)
            );
            self.warning(honoured_for.place, message, "the provider would swallow what is new", help);
        }
    }

    /// A duplicate gets a result only where results are written.
    pub fn check_on_duplicate(&mut self) {
        let terms = self.spec.sink.as_ref().and_then(|sink| sink.terms());
        let Some(action) = self.spec.actions.duplicate.as_ref() else { return };
        if action.value == OnDuplicate::Result && !terms.is_some_and(|terms| terms.has_result) {
            let named = terms.map_or("sink.http", |terms| terms.named);
            let message = "`on_duplicate: result` has nothing to write: no result is remembered".to_owned();
            let help = format!("add e.g. `result: {{topic: charges.done}}` to `{named}`, or remove `on_duplicate`");
            self.mistake(action.place, message, format!("there is no `{named}` with a `result`"), help);
        }
    }

    /// The terms; `None` after a mistake.
    pub fn terms(
        &mut self,
        spec: &TermsSpec,
        answers: Vec<(StatusCodes, OverrideClass)>,
        topics: &Written,
        input: Option<&Input>,
    ) -> Option<Terms> {
        self.check_calls(spec);
        let named = format!("{}.result.topic", spec.named);
        let topic = spec.result.as_ref().map(|topic| self.result_topic(topic, &named, topics, input));
        let max = spec.result_bytes_max.unwrap_or(RESULT_BYTES_MAX);
        let action = |written: &Option<Placed<Action>>| written.as_ref().map_or(Action::DeadLetter, |word| word.value);
        let reserve = spec.reserve.as_ref().map_or(Reserve::Auto, |reserve| reserve.value);
        Some(Terms {
            timeout: duration(timeout_ms(spec)),
            in_flight: spec.in_flight.unwrap_or(IN_FLIGHT),
            rate: spec.rate,
            policy: Policy {
                key: key_window(spec),
                reserve: if spec.key_place.is_some() { reserve } else { Reserve::Always },
                on_in_doubt: spec.on_in_doubt.as_ref().map_or(OnInDoubt::DeadLetter, |word| word.value),
                on_unavailable: spec.on_unavailable.as_ref().map_or(OnUnavailable::Hold, |word| word.value),
                retry: retry(&spec.retry),
                answers: Answers::new(answers).ok()?,
            },
            on_rejected: action(&spec.on_rejected),
            on_conflict: action(&spec.on_conflict),
            result: topic.map(|topic| Results { topic, max }),
            on_duplicate: self.spec.actions.duplicate.as_ref().map_or(OnDuplicate::Drop, |word| word.value),
        })
    }
}

/// What says that keys are honoured, with its article.
fn key_of(terms: &TermsSpec) -> &'static str {
    if terms.named == "sink.http" { "an `idempotency_key`" } else { "`honoured_for`" }
}

/// How to say that keys are honoured.
fn how_to_honour(terms: &TermsSpec) -> &'static str {
    if terms.named == "sink.http" {
        "name the provider's key, e.g. `idempotency_key: {header: Idempotency-Key, honoured_for: 24h}`"
    } else {
        "say for how long those that its steps call recognise their keys, e.g. `honoured_for: 24h`"
    }
}

/// The window of the key; `None` if there is no key, or no room in it.
fn key_window(terms: &TermsSpec) -> Option<KeyWindow> {
    let honoured_for = duration(terms.honoured_for_ms.as_ref()?.value);
    KeyWindow::new(honoured_for, duration(timeout_ms(terms)), duration(margin_ms(terms)))
}

fn retry(spec: &RetrySpec) -> Retry {
    Retry {
        first: spec.first_ms.as_ref().map_or(RETRY.first, |first| duration(first.value)),
        factor: spec.factor.unwrap_or(RETRY.factor),
        max: spec.max_ms.as_ref().map_or(RETRY.max, |max| duration(max.value)),
        jitter: spec.jitter.unwrap_or(RETRY.jitter),
        attempts: spec.attempts.unwrap_or(RETRY.attempts),
    }
}

fn margin_ms(spec: &TermsSpec) -> i64 {
    spec.margin_ms.as_ref().map_or(MARGIN_MS, |margin| margin.value)
}

fn timeout_ms(spec: &TermsSpec) -> i64 {
    spec.timeout_ms.as_ref().map_or(TIMEOUT_MS, |timeout| timeout.value)
}

/// What a topology writes is above zero.
fn duration(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

fn as_ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
