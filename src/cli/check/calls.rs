//! What `ratchet check` says of a sink that calls, or is a handler: what is promised, the request that a record makes,
//! and what becomes of calls. Nothing secret is in it: texts are shown as they are written, and headers by their names.

use crate::dedup::Format;
use crate::effect::call::{Jitter, OnInDoubt, OnUnavailable, Policy, Reserve, Retry};
use crate::topology::sink::Terms;
use crate::topology::sink::http::{Body, Http};
use crate::topology::sink::terms::{OnDuplicate, Results};
use crate::yaml::units::{show_duration, show_size_bytes};

/// What is promised, in one sentence.
pub fn promise(http: &Http) -> String {
    let Policy { key, on_in_doubt, .. } = &http.terms.policy;
    let then = match on_in_doubt {
        OnInDoubt::DeadLetter => "goes to the dead letters",
        OnInDoubt::Fail => "stops its partition",
        OnInDoubt::Retry => "is made again",
    };
    match (key, &http.key, on_in_doubt) {
        (Some(window), Some(header), _) => {
            let after = match on_in_doubt {
                OnInDoubt::Retry => "is made again: at least once".to_owned(),
                _ => format!("is in doubt, and {then}"),
            };
            format!(
                "effectively once for {} after the first attempt: every attempt carries the key {header}, with the same \
                 bytes; after that a call that may have happened {after}",
                show_duration(window.honoured_for())
            )
        }
        (_, _, OnInDoubt::Retry) => "at least once: a call that may have happened is made again".to_owned(),
        _ => format!(
            "at most once: a reservation is committed before each call, and a call that may have happened is in doubt, \
             and {then}"
        ),
    }
}

/// What is promised of a handler's steps, in one sentence.
pub fn promise_of_handler(terms: &Terms) -> String {
    let Policy { key, on_in_doubt, .. } = &terms.policy;
    let then = match on_in_doubt {
        OnInDoubt::DeadLetter => "is in doubt, and goes to the dead letters",
        OnInDoubt::Fail => "is in doubt, and stops its partition",
        OnInDoubt::Retry => "is done again: at least once",
    };
    let calls = match (key, on_in_doubt) {
        (Some(window), _) => format!(
            "one that calls effectively once for {} after its first attempt, under a key that is the same at every attempt; \
             after that one that may have happened {then}",
            show_duration(window.honoured_for())
        ),
        (None, OnInDoubt::Retry) => format!("one that calls and may have happened {then}"),
        (None, _) => format!("one that calls at most once: one that may have happened {then}"),
    };
    format!("for each step of the handler: in a database transaction exactly once; {calls}")
}

/// The lines about a handler: names and texts.
pub fn lines_of_handler(terms: &Terms) -> Vec<(&'static str, String)> {
    let key = match terms.policy.key {
        None => "none is honoured: before a step that calls begins, a mark is committed".to_owned(),
        Some(window) => format!("each step's own, honoured for {}", show_duration(window.honoured_for())),
    };
    let sink = "handler, a function of the program that runs the topology".to_owned();
    let mut lines = vec![("sink", sink), ("key", key)];
    lines.extend(lines_of_terms(terms, "the handler refuses"));
    lines
}

/// The lines about the sink, for values in this format: names and texts.
pub fn lines(http: &Http, values: Format) -> Vec<(&'static str, String)> {
    let hosts = if http.hosts.is_empty() { String::new() } else { format!(", only to {}", http.hosts.join(", ")) };
    let mut lines = vec![("sink", format!("http, {} {}{hosts}", http.method.as_str(), http.url))];
    let headers: Vec<&str> = http.headers.iter().map(|(name, _)| name.as_str()).collect();
    if !headers.is_empty() {
        lines.push(("headers", headers.join(", ")));
    }
    lines.push(("body", body(&http.body, values)));
    lines.push(("key", key(http)));
    lines.extend(lines_of_terms(&http.terms, "the provider refuses"));
    lines
}

/// The lines about the terms of calls; `refuses` says who does.
fn lines_of_terms(terms: &Terms, refuses: &str) -> Vec<(&'static str, String)> {
    let mut lines = vec![("calls", calls(terms))];
    lines.extend(terms.result.as_ref().map(|result| ("results", results(result, terms.on_duplicate))));
    lines.push(("unavailable", unavailable(terms.policy.on_unavailable).to_owned()));
    lines.push(("rejected", format!("{}, what {refuses}", terms.on_rejected)));
    lines.push(("conflict", format!("{}, what asks for something else under a key that was used", terms.on_conflict)));
    lines
}

fn body(body: &Body, values: Format) -> String {
    match body {
        Body::Value if values.has_schemas() => "the record's value, as JSON".to_owned(),
        Body::Value => "the record's value, byte for byte".to_owned(),
        Body::Json(json) => format!("JSON: {json}"),
        Body::None => "none".to_owned(),
    }
}

fn key(http: &Http) -> String {
    let Some((header, window)) = http.key.as_ref().zip(http.terms.policy.key) else {
        return "none: a reservation is committed before each call".to_owned();
    };
    let reserve = match http.terms.policy.reserve {
        Reserve::Always => "a reservation is committed before each call",
        Reserve::Auto => "a reservation is committed only where the key alone does not suffice",
    };
    format!("{header}, honoured for {}; {reserve}", show_duration(window.honoured_for()))
}

fn calls(terms: &Terms) -> String {
    let Retry { first, factor, max, jitter, attempts } = terms.policy.retry;
    let jitter = if jitter == Jitter::Full { ", at random below that" } else { "" };
    let rate = terms.rate.map(|rate| format!(", {rate}")).unwrap_or_default();
    format!(
        "up to {} at once in a lane{rate}, {} each; {attempts} attempts, after {}, times {factor}, up to {}{jitter}",
        terms.in_flight,
        show_duration(terms.timeout),
        show_duration(first),
        show_duration(max),
    )
}

fn results(result: &Results, on_duplicate: OnDuplicate) -> String {
    let again = if on_duplicate == OnDuplicate::Result { "; a duplicate gets the first one's" } else { "" };
    format!("{}, up to {}, a larger one as its digest{again}", result.topic, show_size_bytes(result.max as u64))
}

const fn unavailable(action: OnUnavailable) -> &'static str {
    match action {
        OnUnavailable::Hold => "hold: while the provider is down, its records wait",
        OnUnavailable::DeadLetter => "dead_letter, what was tried in vain while the provider is down",
        OnUnavailable::Fail => "fail, at what was tried in vain while the provider is down",
    }
}
