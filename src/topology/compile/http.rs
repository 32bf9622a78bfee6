//! Checks a sink that calls: the request, the key and what it promises, and what becomes of calls.

use std::time::Duration;

use crate::dedup::{Action, Format, Retention};
use crate::effect::call::{Answers, Codes, Jitter, KeyWindow, OnInDoubt, OnUnavailable, Policy, Reserve, Retry};
use crate::topology::Input;
use crate::topology::sink::Http;
use crate::topology::sink::address::{Address, Problem};
use crate::topology::sink::http::{Body, Method, OnDuplicate, RESULT_BYTES_MAX, Results};
use crate::topology::sink::template::{Piece, Template};
use crate::topology::spec::http::{HttpSpec, KeySpec, RetrySpec};
use crate::yaml::{Place, Placed, Text, units};

use super::topics::Written;
use super::{Compiler, shown};

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

/// Headers that belong to the connection or to the message's form, not to its content.
const RESERVED: &[&str] = &[
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
/// Headers whose value is a secret.
const SECRET: &[&str] = &["authorization", "cookie", "x-api-key", "api-key", "x-auth-token"];

impl Compiler<'_> {
    /// Reports what is wrong with a sink that calls, whatever the topology's other keys are.
    pub(super) fn check_http(&mut self, http: &HttpSpec) {
        if let Some(url) = &http.url {
            self.check_address(url, http);
        }
        for host in http.hosts.iter().filter(|host| !Address::is_host(host.value.reveal())) {
            let message = "`sink.http.hosts` lists hosts, with their ports or without".to_owned();
            let help = "write e.g. `hosts: [api.example.com, 'api.example.com:8443']`";
            self.mistake(host.place, message, format!("`{}` is none", shown(&host.value)), help);
        }
        self.check_headers(http);
        self.check_body(http);
        self.check_key(http);
        self.check_waits(http);
        let named = |(codes, _): &(Placed<Codes>, _)| (codes.value, codes.place);
        let codes: Vec<(Codes, Place)> = http.answers.iter().map(named).collect();
        for (number, (code, place)) in codes.iter().enumerate() {
            if codes[..number].iter().any(|(known, _)| known == code) {
                let message = format!("`sink.http.answers` names {code} twice");
                self.mistake(*place, message, "again", "remove one of them");
            }
        }
    }

    fn check_address(&mut self, url: &Placed<Template>, http: &HttpSpec) {
        let address = match Address::read(&url.value) {
            Ok(address) => address,
            Err(problem) => {
                let message = format!("`sink.http.url` is not the address of a request: {problem}");
                self.mistake(url.place, message, "such an address is needed", address_help(problem));
                return;
            }
        };
        match (address.takes_host_from_record(), http.hosts_place) {
            (true, None) => {
                let message =
                    "a record cannot say which host is called, unless `hosts` lists those that may be".to_owned();
                let help = "write the host out, or add e.g. `hosts: [eu.example.com, us.example.com]` beside `url`";
                self.mistake(url.place, message, "a part of the record stands in the host", help);
            }
            (false, Some(place)) => {
                let message = "`sink.http.hosts` has no effect: the host of `url` is always the same".to_owned();
                let help = "remove it, or let the record name the host, e.g. `url: 'https://{value.host}/charges'`";
                self.mistake(place, message, "never looked at", help);
            }
            _ => {}
        }
    }

    fn check_headers(&mut self, http: &HttpSpec) {
        let key = http.key.as_ref().and_then(|key| key.header.as_ref());
        for (number, (name, value)) in http.headers.iter().enumerate() {
            if !self.check_header_name(&name.value, name.place, "sink.http.headers") {
                continue;
            }
            let is = |other: &str| name.value.eq_ignore_ascii_case(other);
            if http.headers[..number].iter().any(|(known, _)| is(&known.value)) {
                let message = format!("`sink.http.headers` names `{}` twice", name.value);
                self.mistake(name.place, message, "again: letters' case does not matter", "remove one of them");
            }
            if key.is_some_and(|key| is(key.value.reveal())) {
                let message = format!("the header `{}` is ratchet's: it carries the key", name.value);
                let help = "remove it: a key of your own would not be the same for each attempt and no other call";
                self.mistake(name.place, message, "named by `idempotency_key`", help);
            }
            let fixed = value.value.pieces().iter().filter_map(|piece| match piece {
                Piece::Fixed { text, .. } => Some(text),
                Piece::Record(_) => None,
            });
            if !fixed.flat_map(|text| text.reveal().bytes()).all(|byte| matches!(byte, b' '..=b'~')) {
                let message = format!("the header `{}` has a character that a header does not take", name.value);
                let help = "write visible characters of ASCII; a file's last line break is left out of `${file:PATH}`";
                self.mistake(value.place, message, "somewhere in here", help);
            }
            let is_plain = !value.value.is_secret() && !value.value.holds_record();
            if SECRET.iter().any(|secret| is(secret)) && is_plain {
                let message = format!("the secret of the header `{}` stands in the file", name.value);
                let help = "write e.g. `'Bearer ${file:secrets/token}'`, or `${env:TOKEN}`";
                self.warning(name.place, message, "whoever reads the file knows it", help);
            }
        }
        if let Some(key) = key {
            self.check_header_name(key.value.reveal(), key.place, "sink.http.idempotency_key.header");
        }
    }

    /// Checks that a header can have this name, and that it is not set otherwise.
    fn check_header_name(&mut self, name: &str, place: Place, key: &str) -> bool {
        let is_in_name = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_in_name) {
            let message = format!("`{key}` names no header: letters, digits and `-` make one");
            self.mistake(place, message, "not a name", "write e.g. `x-tenant`");
            return false;
        }
        if RESERVED.iter().any(|reserved| name.eq_ignore_ascii_case(reserved)) {
            let message =
                format!("the header `{}` cannot be written: it follows from the request", name.to_lowercase());
            self.mistake(place, message, "set by the connection", "remove it");
            return false;
        }
        true
    }

    fn check_body(&mut self, http: &HttpSpec) {
        let (Some(body), Some(method)) = (&http.body, &http.method) else { return };
        if method.value == Method::Get && body.value != Body::None {
            let message = "a request with `method: GET` has no body".to_owned();
            let help = "remove `body`, or write `method: POST`; parts of the record go into the address";
            self.mistake(body.place, message, "never sent", help);
        }
    }

    /// What the key promises, and what is left to say without one.
    fn check_key(&mut self, http: &HttpSpec) {
        if http.key_place.is_none() {
            if !http.has_in_doubt {
                let message =
                    "`sink.http.on_in_doubt` is missing: without an `idempotency_key` nobody can tell a call \
                               that is made again from another one"
                        .to_owned();
                let help = "write `on_in_doubt: dead_letter` (at most once), `retry` (at least once) or `fail`; or name the \
                            provider's key, e.g. `idempotency_key: {header: Idempotency-Key, honoured_for: 24h}`";
                self.mistake(http.place, message, "it belongs in here", help);
            }
            if let Some(reserve) = &http.reserve {
                let message = "`sink.http.reserve` has no effect without an `idempotency_key`".to_owned();
                let help = "remove it: without a key a reservation is committed before each call";
                self.mistake(reserve.place, message, "never looked at", help);
            }
            return;
        }
        let Some(KeySpec { honoured_for_ms: Some(honoured_for), margin_ms, .. }) = &http.key else { return };
        if self.key_window(http).is_none() {
            let (timeout, margin) = (timeout_ms(http), margin_ms.unwrap_or(MARGIN_MS));
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

    fn check_waits(&mut self, http: &HttpSpec) {
        if let Some(timeout) = http.timeout_ms.as_ref().filter(|timeout| timeout.value > TIMEOUT_MS_MAX) {
            let message = format!("`sink.http.timeout` is at most {}", units::show_duration_ms(TIMEOUT_MS_MAX));
            let help = "a provider that takes longer should answer 202, and tell later";
            self.mistake(timeout.place, message, "longer than that", help);
        }
        let RetrySpec { first_ms, max_ms, .. } = &http.retry;
        let max = max_ms.as_ref().map_or(as_ms(RETRY.max), |max| max.value);
        if let Some(first) = first_ms.as_ref().filter(|first| first.value > max) {
            let message =
                format!("`sink.http.retry.first` is more than `max`, which is {}", units::show_duration_ms(max));
            self.mistake(first.place, message, "never waited for", "write less, or a longer `max`");
        }
    }

    /// The window of the key; `None` if there is no key, or no room in it.
    fn key_window(&self, http: &HttpSpec) -> Option<KeyWindow> {
        let KeySpec { honoured_for_ms, margin_ms, .. } = http.key.as_ref()?;
        let margin_ms = margin_ms.unwrap_or(MARGIN_MS);
        KeyWindow::new(duration(honoured_for_ms.as_ref()?.value), duration(timeout_ms(http)), duration(margin_ms))
    }

    /// What would give two calls one key, and what the store forgets before the provider does.
    fn check_calls(&mut self, http: &HttpSpec) {
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
        let honoured_for = http.key.as_ref().and_then(|key| key.honoured_for_ms.as_ref());
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
    pub(super) fn check_on_duplicate(&mut self) {
        let http = self.spec.sink.as_ref().and_then(|sink| sink.http.as_ref());
        let Some(action) = self.spec.actions.duplicate.as_ref() else { return };
        if action.value == OnDuplicate::Result && !http.is_some_and(|http| http.has_result) {
            let message = "`on_duplicate: result` has nothing to write: no result is remembered".to_owned();
            let help = "add e.g. `result: {topic: charges.done}` to `sink.http`, or remove `on_duplicate`";
            self.mistake(action.place, message, "there is no `sink.http` with a `result`", help);
        }
    }

    /// The sink; `None` after a mistake.
    pub(super) fn http(&mut self, spec: &HttpSpec, topics: &Written, input: Option<&Input>) -> Option<Http> {
        self.check_calls(spec);
        let topic = spec.result.as_ref().map(|topic| self.result_topic(topic, "sink.http.result.topic", topics, input));
        let method = spec.method.as_ref().map_or(Method::Post, |method| method.value);
        let body = spec.body.as_ref().map_or_else(|| default_body(method), |body| body.value.clone());
        let max = spec.result_bytes_max.unwrap_or(RESULT_BYTES_MAX);
        let named = spec.answers.iter().map(|(codes, named)| (codes.value, *named)).collect();
        let action = |written: &Option<Placed<Action>>| written.as_ref().map_or(Action::DeadLetter, |word| word.value);
        let reserve = spec.reserve.as_ref().map_or(Reserve::Auto, |reserve| reserve.value);
        let key = spec.key.as_ref().and_then(|key| key.header.as_ref());
        Some(Http {
            url: spec.url.as_ref()?.value.clone(),
            hosts: spec.hosts.iter().map(|host| host.value.reveal().to_owned()).collect(),
            method,
            headers: self.headers(spec, &body),
            body,
            key: key.map(|header| header.value.reveal().to_owned()),
            timeout: duration(timeout_ms(spec)),
            in_flight: spec.in_flight.unwrap_or(IN_FLIGHT),
            rate: spec.rate,
            policy: Policy {
                key: self.key_window(spec),
                reserve: if key.is_some() { reserve } else { Reserve::Always },
                on_in_doubt: spec.on_in_doubt.as_ref().map_or(OnInDoubt::DeadLetter, |word| word.value),
                on_unavailable: spec.on_unavailable.as_ref().map_or(OnUnavailable::Hold, |word| word.value),
                retry: retry(&spec.retry),
                answers: Answers::new(named).ok()?,
            },
            on_rejected: action(&spec.on_rejected),
            on_conflict: action(&spec.on_conflict),
            result: topic.map(|topic| Results { topic, max }),
            on_duplicate: self.spec.actions.duplicate.as_ref().map_or(OnDuplicate::Drop, |word| word.value),
        })
    }

    /// The headers as written, and the type of a body that is JSON.
    fn headers(&self, spec: &HttpSpec, body: &Body) -> Vec<(String, Template)> {
        let written = spec.headers.iter().map(|(name, value)| (name.value.clone(), value.value.clone()));
        let mut headers: Vec<(String, Template)> = written.collect();
        let values = self.spec.input.value_format.as_ref().map_or(Format::Json, |format| format.value);
        let is_json = match body {
            Body::Json(_) => true,
            Body::Value => values != Format::Bytes,
            Body::None => false,
        };
        if is_json && !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
            headers.push(("content-type".to_owned(), Template::fixed(Text::plain("application/json"))));
        }
        headers
    }
}

const fn default_body(method: Method) -> Body {
    match method {
        Method::Get | Method::Delete => Body::None,
        Method::Post | Method::Put | Method::Patch => Body::Value,
    }
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

fn timeout_ms(spec: &HttpSpec) -> i64 {
    spec.timeout_ms.as_ref().map_or(TIMEOUT_MS, |timeout| timeout.value)
}

/// What a topology writes is above zero.
fn duration(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

fn as_ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

const fn address_help(problem: Problem) -> &'static str {
    match problem {
        Problem::Scheme | Problem::NoHost | Problem::Host => {
            "write e.g. `url: https://api.example.com/charges`, or `${env:PAYMENTS_URL}/charges`; scheme and host cannot come \
             from a record, but for hosts that `hosts` lists"
        }
        Problem::User => "write `headers: {authorization: 'Basic ${file:secrets/basic}'}` in place of it",
        Problem::Fragment => "leave it out, or write `%23` to mean the character",
        Problem::Character => "write e.g. `%20` for a blank; parts of the record are encoded by themselves",
        Problem::Dots => "write the address as it is to be sent",
    }
}
