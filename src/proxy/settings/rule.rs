//! Reads a rule, which says how requests with keys are handled, at the top of the file or in a route. A route inherits
//! omitted keys from the top, and the top from the defaults.

use std::time::Duration;

use http::{HeaderName, StatusCode};

use super::config::{KeyUse, Rule};
use super::keys;
use super::values::{choice, millis, optional_duration, size};
use crate::dedup::Path;
use crate::http::OnStoreDown;
use crate::http::proxying::{BODY_BYTES_MAX, GRACE, LEASE, RETENTION, may_be_released};
use crate::http::request::OnInDoubt;
use crate::yaml::{Field, Fields, Place, Placed, Reader, Value, units};

/// The shortest lease. A lease is extended whenever a third of it has passed.
const LEASE_MS_MIN: i64 = 1_000;
/// The value of `caller` for which all clients are one caller.
const NO_CALLER_HEADER: &str = "none";
const REQUEST_BYTES_MAX: u64 = 1 << 30;
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// The defaults of a rule.
pub fn defaults() -> Rule {
    Rule {
        key: KeyUse::Optional,
        header: HeaderName::from_static("idempotency-key"),
        caller: Some(http::header::AUTHORIZATION),
        caller_required: false,
        retention: RETENTION,
        wait: Duration::ZERO,
        lease: LEASE,
        grace: GRACE,
        on_in_doubt: OnInDoubt::default(),
        releasing_statuses: Vec::new(),
        on_store_down: OnStoreDown::default(),
        fingerprint_headers: Vec::new(),
        fingerprint_except: Vec::new(),
        remember: None,
        request_bytes_max: BODY_BYTES_MAX,
        answer_bytes_max: BODY_BYTES_MAX,
        timeout: Duration::from_secs(60),
        reservation_header: None,
    }
}

/// Reads a rule; omitted keys are those of `base`. `store_kind` is `None` if the store could not be read.
pub fn rule(fields: &Fields<'_>, base: &Rule, store_kind: Option<&str>, reader: &mut Reader<'_>) -> Rule {
    let key_choices = [("required", KeyUse::Required), ("optional", KeyUse::Optional), ("off", KeyUse::Off)];
    let doubt_choices = [("run", OnInDoubt::Run), ("refuse", OnInDoubt::Refuse)];
    let down_choices = [("refuse", OnStoreDown::Refuse), ("pass", OnStoreDown::Pass)];
    let caller = fields.get("caller").and_then(|field| caller(field, base, reader));
    let wait = fields.get("wait").and_then(|field| reader.duration_ms(field)).map(|ms| millis(ms.value));
    let lease = fields.get("lease").and_then(|field| {
        let parse = |text: &str| units::duration_ms(text).filter(|ms| *ms >= LEASE_MS_MIN);
        reader.parsed(&field.described("a duration of at least 1s"), parse)
    });
    let reservation = fields.get("reservation_header").and_then(|field| reader.parsed(field, header_name));
    let header = fields.get("header").and_then(|field| reader.parsed(field, header_name));
    let mut rule = Rule {
        key: choice(fields, "key", &key_choices, reader).unwrap_or(base.key),
        header: header.map_or_else(|| base.header.clone(), |header| header.value),
        caller: caller.as_ref().map_or_else(|| base.caller.clone(), |(name, _)| name.clone()),
        caller_required: caller.map_or(base.caller_required, |(_, required)| required),
        retention: optional_duration(fields, "retention", reader).unwrap_or(base.retention),
        wait: wait.unwrap_or(base.wait),
        lease: lease.map_or(base.lease, |lease| millis(lease.value)),
        grace: optional_duration(fields, "grace", reader).unwrap_or(base.grace),
        on_in_doubt: choice(fields, "on_in_doubt", &doubt_choices, reader).unwrap_or(base.on_in_doubt),
        releasing_statuses: items(fields, "released", reader, statuses)
            .map_or_else(|| base.releasing_statuses.clone(), |all| all.concat()),
        on_store_down: choice(fields, "on_store_down", &down_choices, reader).unwrap_or(base.on_store_down),
        request_bytes_max: size(fields, "request_bytes_max", (1, REQUEST_BYTES_MAX), reader)
            .unwrap_or(base.request_bytes_max),
        answer_bytes_max: size(fields, "answer_bytes_max", (1, ANSWER_BYTES_MAX), reader)
            .unwrap_or(base.answer_bytes_max),
        timeout: optional_duration(fields, "timeout", reader).unwrap_or(base.timeout),
        reservation_header: reservation.map_or_else(|| base.reservation_header.clone(), |name| Some(name.value)),
        ..base.clone()
    };
    if let Some(mapping) = fields.get("fingerprint").and_then(|field| reader.fields(field, &keys::FINGERPRINT)) {
        rule.fingerprint_headers = names(&mapping, "headers", reader).unwrap_or_default();
        // A field is written like a path in a topology, without `value.`.
        rule.fingerprint_except = items(&mapping, "except", reader, |text| {
            Path::parse(&format!("value.{text}")).ok().map(|_| text.to_owned())
        })
        .unwrap_or_default();
    }
    if let Some(mapping) = fields.get("remember").and_then(|field| reader.fields(field, &keys::REMEMBER)) {
        let _ = mapping.require("headers", reader);
        rule.remember = names(&mapping, "headers", reader);
    }
    check_combinations(fields, &rule, reader);
    warn_of_store(fields, &rule, store_kind, reader);
    rule
}

/// The header that identifies callers, if any, and whether it is required. `None` after a mistake.
fn caller(field: &Field<'_>, base: &Rule, reader: &mut Reader<'_>) -> Option<(Option<HeaderName>, bool)> {
    if let Value::Mapping(_) = &field.node.value {
        let fields = reader.fields(field, &keys::CALLER_MAPPING)?;
        let required = fields.get("required").and_then(|field| reader.boolean(field));
        let required = required.map_or(base.caller_required, |required| required.value);
        let name = match fields.get("header") {
            Some(field) => {
                let parse = |text: &str| header_name(text).filter(|_| text != NO_CALLER_HEADER);
                let name = reader.parsed(field, parse)?;
                warn_of_named_callers(&name.value, name.place, reader);
                name.value
            }
            None => base.caller.clone().unwrap_or(http::header::AUTHORIZATION),
        };
        return Some((Some(name), required));
    }
    let parse = |text: &str| if text == NO_CALLER_HEADER { Some(None) } else { header_name(text).map(Some) };
    let Placed { value: name, place } = reader.parsed(field, parse)?;
    name.iter().for_each(|name| warn_of_named_callers(name, place, reader));
    let required = name.is_some() && base.caller_required;
    Some((name, required))
}

/// Warns of a header that is not secret: a client that sends the value and the key of another client gets the other
/// client's response.
fn warn_of_named_callers(name: &HeaderName, place: Place, reader: &mut Reader<'_>) {
    if *name == http::header::AUTHORIZATION {
        return;
    }
    let message = format!(
        "`caller` is a header that clients can forge: a client that sends another's `{name}` and key gets the answer, \
         without the service being involved"
    );
    let help = "have a gateway in front authenticate clients, set this header, and remove what they send in it";
    reader.report.warning((&reader.file, place), message, "not `Authorization`", help);
}

/// Warns of requests that are unprotected while the store is down, and of a `reservation_header` with a store that does
/// not support it.
fn warn_of_store(fields: &Fields<'_>, rule: &Rule, store_kind: Option<&str>, reader: &mut Reader<'_>) {
    let place_of = |key: &str| fields.get(key).map(Field::place);
    if rule.on_store_down == OnStoreDown::Pass
        && let Some(place) = place_of("on_store_down")
    {
        let message = "while the store does not answer, requests are passed on unprotected: a repeated request may be \
                       carried out twice";
        let help = "unless this is intended, write `on_store_down: refuse`, which answers 503 instead";
        reader.report.warning((&reader.file, place), message.to_owned(), "unprotected", help);
    }
    if let Some(kind) = store_kind.filter(|kind| *kind != "postgres")
        && let Some(place) = place_of("reservation_header")
    {
        let message = format!("`reservation_header` needs a store in PostgreSQL, but this one is `{kind}`");
        let label = "the service cannot use it";
        let help =
            "write `store: {postgres: {url: ...}}` with the database that the service uses, or remove the header";
        reader.report.warning((&reader.file, place), message, label, help);
    }
}

fn check_combinations(fields: &Fields<'_>, rule: &Rule, reader: &mut Reader<'_>) {
    let place_of = |key: &str| fields.get(key).map(Field::place);
    if rule.reservation_header.as_ref() == Some(&rule.header)
        && let Some(place) = place_of("reservation_header").or_else(|| place_of("header"))
    {
        let message = "`reservation_header` is the same header as that of the key".to_owned();
        reader.mistake(place, message, "here", "name another header, such as `Idempotency-Reservation`");
    }
    if rule.retention < rule.lease
        && let Some(place) = place_of("retention").or_else(|| place_of("lease"))
    {
        let message =
            "answers would be remembered for less time than a request may be at work: `retention`, `lease`".to_owned();
        reader.mistake(place, message, "here", "raise `retention`, or lower `lease`");
    }
}

/// The statuses of one item of `released`, by which the service says that it has done nothing: one status, or with
/// `4xx` all client errors but 408. A timeout (408) has to be named: a service may have acted before it. `None` if the
/// item is invalid.
fn statuses(text: &str) -> Option<Vec<StatusCode>> {
    if text == "4xx" {
        let all = (400..500).filter_map(|status| StatusCode::from_u16(status).ok());
        return Some(all.filter(|status| *status != StatusCode::REQUEST_TIMEOUT).collect());
    }
    let status = StatusCode::from_bytes(text.as_bytes()).ok().filter(|status| may_be_released(*status));
    status.map(|status| vec![status])
}

fn header_name(text: &str) -> Option<HeaderName> {
    HeaderName::from_bytes(text.as_bytes()).ok()
}

fn names(fields: &Fields<'_>, key: &str, reader: &mut Reader<'_>) -> Option<Vec<HeaderName>> {
    items(fields, key, reader, header_name)
}

/// The items of a list, which may be empty.
fn items<T>(fields: &Fields<'_>, key: &str, reader: &mut Reader<'_>, parse: fn(&str) -> Option<T>) -> Option<Vec<T>> {
    let field = fields.get(key)?;
    let Value::List(nodes) = &field.node.value else {
        reader.wrong(field);
        return None;
    };
    let items = nodes.iter().filter_map(|node| reader.parsed(&field.item(node), parse));
    Some(items.map(|item| item.value).collect())
}
