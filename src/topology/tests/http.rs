//! Goal: every key of a sink that calls reaches what runs, and nothing secret of it is shown.

use std::time::Duration;

use super::{load_with, topology};
use crate::dedup::{Action, OnNull, Path};
use crate::effect::call::{AttemptOutcome, Class, Jitter, KeyWindow, OnInDoubt, OnUnavailable, Reserve, Retry, Status};
use crate::topology::Topology;
use crate::topology::cases::{Expected, ExpectedResult, GivenAttempt, KeySeen, Silence};
use crate::topology::sink::http::{Body, Http, Json, Method};
use crate::topology::sink::terms::{OnDuplicate, Rate, Results};
use crate::yaml_testing::Fake;

const BEGIN: &str = "name: t\ninput: {topics: [in]}\nidentity: value.id\npartitioned_by_identity: true\n";
const URL: &str = "    url: https://api.example.com/charges\n";
const KEY: &str = "    idempotency_key: {header: Idempotency-Key, honoured_for: 24h}\n";

/// A topology with these lines under `sink.http`, and these at the end.
fn whole(lines: &str, end: &str) -> String {
    let lines: String = lines.lines().map(|line| format!("    {line}\n")).collect();
    let url = if lines.contains("    url: ") { "" } else { URL };
    let key = if lines.contains("idempotency_key: ") || lines.contains("on_in_doubt: ") { "" } else { KEY };
    format!("{BEGIN}sink:\n  http:\n{url}{key}{lines}{end}")
}

fn http(lines: &str, end: &str) -> Http {
    calls(&topology(&whole(lines, end)))
}

fn calls(topology: &Topology) -> Http {
    topology.http().unwrap_or_else(|| panic!("{topology:?}")).clone()
}

fn headers(http: &Http) -> Vec<(String, String)> {
    http.headers.iter().map(|(name, value)| (name.clone(), value.to_string())).collect()
}

fn second(number: u32) -> Duration {
    Duration::from_secs(1) * number
}

#[test]
fn defaults_are_as_documented() {
    let http = http("", "");
    assert_eq!(
        (http.url.to_string().as_str(), http.method, &http.body),
        ("https://api.example.com/charges", Method::Post, &Body::Value)
    );
    assert_eq!(headers(&http), [("content-type".to_owned(), "application/json".to_owned())]);
    assert_eq!(
        (http.key.as_deref(), http.terms.timeout, http.terms.in_flight),
        (Some("Idempotency-Key"), second(10), 64)
    );
    assert_eq!(http.terms.policy.key, KeyWindow::new(second(86_400), second(10), second(30)));
    assert_eq!((http.terms.policy.reserve, http.terms.policy.on_in_doubt), (Reserve::Auto, OnInDoubt::DeadLetter));
    assert_eq!(http.terms.policy.on_unavailable, OnUnavailable::Hold);
    let retry =
        Retry { first: Duration::from_millis(200), factor: 2, max: second(30), jitter: Jitter::Full, attempts: 8 };
    assert_eq!(http.terms.policy.retry, retry);
    assert_eq!((http.terms.on_rejected, http.terms.on_conflict), (Action::DeadLetter, Action::DeadLetter));
    assert_eq!(
        (http.hosts, http.terms.rate, http.terms.result, http.terms.on_duplicate),
        (vec![], None, None, OnDuplicate::Drop)
    );
}

#[test]
fn every_key_is_read() {
    let lines = "url: 'https://{value.shop}/charges/{value.id}'\n\
                 hosts: [a.example.com, 'b:81']\n\
                 method: PUT\n\
                 headers: {content-type: text/plain, X-Id: 'id-{value.id}'}\n\
                 body: {json: {amount: value.amount, list: [key, {const: EUR}], any: {first_of: [value.a, value.b]}, o: {}}}\n\
                 idempotency_key: {header: X-Key, honoured_for: 2h, margin: 1m}\n\
                 reserve: always\n\
                 timeout: 3s\n\
                 in_flight: 1024\n\
                 rate: 30/m\n\
                 retry: {first: 1s, factor: 3, max: 1m, jitter: none, attempts: 1}\n\
                 answers: {404: done, 4xx: again}\n\
                 on_rejected: drop\n\
                 on_conflict: fail\n\
                 on_unavailable: fail\n\
                 on_in_doubt: fail\n\
                 result: {topic: done, max: 1KiB}";
    let topology = topology(&whole(lines, "on_duplicate: result\n"));
    let http = calls(&topology);
    assert_eq!(http.url.to_string(), "https://{value.shop}/charges/{value.id}");
    assert_eq!((http.hosts.join(" ").as_str(), http.method), ("a.example.com b:81", Method::Put));
    let text = |text: &str| text.to_owned();
    assert_eq!(headers(&http), [(text("content-type"), text("text/plain")), (text("X-Id"), text("id-{value.id}"))]);
    let at = |path: &str| Json::At(vec![Path::parse(path).unwrap()]);
    let Body::Json(Json::Object(fields)) = &http.body else { panic!("{:?}", http.body) };
    assert_eq!(fields[0], (text("amount"), at("value.amount")));
    assert_eq!(fields[1].1.to_string(), r#"[key, {const: "EUR"}]"#);
    assert_eq!(fields[2].1.to_string(), "value.a or value.b");
    assert_eq!(fields[3].1, Json::Object(Vec::new()));
    assert_eq!((http.key.as_deref(), http.terms.timeout, http.terms.in_flight), (Some("X-Key"), second(3), 1024));
    assert_eq!(http.terms.policy.key, KeyWindow::new(second(7_200), second(3), second(60)));
    assert_eq!((http.terms.policy.reserve, http.terms.policy.on_in_doubt), (Reserve::Always, OnInDoubt::Fail));
    assert_eq!(http.terms.policy.on_unavailable, OnUnavailable::Fail);
    assert_eq!(http.terms.rate, Some(Rate { calls: 30, per: second(60) }));
    let retry = Retry { first: second(1), factor: 3, max: second(60), jitter: Jitter::None, attempts: 1 };
    assert_eq!(http.terms.policy.retry, retry);
    let class = |code| http.terms.policy.answers.read(&AttemptOutcome::Status(Status::of(code)), true).class;
    assert_eq!([class(404), class(422), class(500)], [Class::Done, Class::Again, Class::Again]);
    assert_eq!((http.terms.on_rejected, http.terms.on_conflict), (Action::Drop, Action::Fail));
    assert_eq!(http.terms.result, Some(Results { topic: text("done"), max: 1024 }));
    assert_eq!((http.terms.on_duplicate, topology.sink().unwrap().result()), (OnDuplicate::Result, Some("done")));
    let actions = topology.rules.actions;
    assert_eq!([actions.rejected, actions.conflict], [Action::Drop, Action::Fail]);
    assert_eq!([actions.in_doubt, actions.unavailable], [Action::Fail; 2]);
}

#[test]
fn without_a_key_a_reservation_is_always_committed() {
    for (word, expected) in
        [("dead_letter", OnInDoubt::DeadLetter), ("retry", OnInDoubt::Retry), ("fail", OnInDoubt::Fail)]
    {
        let http = http(&format!("on_in_doubt: {word}"), "");
        assert_eq!((http.key, http.terms.policy.key, http.terms.policy.reserve), (None, None, Reserve::Always));
        assert_eq!(http.terms.policy.on_in_doubt, expected);
    }
}

#[test]
fn bodies_and_their_type_follow_from_method_and_format() {
    for (lines, end, body, typed) in [
        ("method: GET", "", Body::None, false),
        ("method: DELETE", "", Body::None, false),
        ("method: DELETE\nbody: value", "", Body::Value, true),
        ("method: PATCH", "", Body::Value, true),
        ("body: none", "", Body::None, false),
    ] {
        let http = http(lines, end);
        assert_eq!((&http.body, http.headers.len()), (&body, usize::from(typed)), "{lines}");
    }
    let bytes =
        whole("", "").replace("{topics: [in]}", "{topics: [in], value_format: bytes}").replace("value.id", "key");
    assert_eq!(headers(&calls(&topology(&bytes))), []);
}

#[test]
fn what_has_no_version_makes_no_call() {
    let versioned = "version: {of: value.v, as: integer}\n";
    assert_eq!(topology(&whole("", versioned)).rules.actions.missing_version, Action::DeadLetter);
    let dropped = topology(&whole("", &format!("{versioned}on_missing_version: drop\n")));
    assert_eq!(dropped.rules.actions.missing_version, Action::Drop);
    // A preset that forwards such a record means an output.
    let preset = whole("", "").replace("identity: value.id", "preset: maxwell@1");
    let actions = topology(&preset).rules.actions;
    assert_eq!((actions.missing_version, actions.null_value), (Action::DeadLetter, OnNull::FollowDelete));
}

#[test]
fn secrets_are_not_shown() {
    let environment = Fake::default()
        .with_variable("URL", "https://api.example.com/hunter2?key=hunter2")
        .with_file("secrets/token", "hunter2\n");
    let lines = "url: ${env:URL}&id={value.id}\nheaders: {authorization: 'Bearer ${file:secrets/token}'}";
    let loaded = load_with(&whole(lines, ""), environment.clone()).unwrap();
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    assert!(!format!("{loaded:?}").contains("hunter2"));
    let http = calls(&loaded.topology);
    assert!(http.url.is_secret() && http.headers[0].1.is_secret());
    assert!(!loaded.expanded().contains("hunter2") && loaded.expanded().contains("${file:secrets/token}"));
    let broken = load_with(&whole(&format!("{lines}\nmethod: GETT"), ""), environment).unwrap_err().render(false);
    assert!(!broken.contains("hunter2") && broken.contains("GETT"), "{broken}");
}

#[test]
fn doubts_are_warned_about() {
    let warnings = |text: &str| {
        let loaded = load_with(text, Fake::default()).map_err(|diagnostics| diagnostics.render(false)).unwrap();
        loaded.warnings.iter().map(|warning| warning.message().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(warnings(&whole("", "")), Vec::<String>::new());
    assert_eq!(warnings(&whole("", "retention: 24h\n")), Vec::<String>::new());
    assert!(warnings(&whole("", "retention: 23h\n"))[0].contains("honoured for longer than an identity is remembered"));
    let plain = whole("headers: {Authorization: Bearer hunter2}", "");
    assert!(warnings(&plain)[0].contains("the secret of the header `Authorization`"));
    let place = whole("", "").replace("value.id", "[meta.partition, meta.offset]");
    assert!(warnings(&place)[0].contains("sent twice has its effect twice"));
    assert!(warnings(&whole("", "on_late: forward\n"))[0].contains("late record"));
}

#[test]
fn tests_say_what_is_answered_and_expected() {
    let test = "tests:\n- name: a\n  given: [{value: {id: 1}}]\n  \
                answers: [500, timeout, {status: 201, body: '{}', headers: {retry-after: 5}}, {status: 200, body: {a: 1}}, lost, not_sent]\n  \
                expect: [{verdict: forwarded, calls: 3, key: same}]\n  \
                results: [{record: 0, status: 201, body: '{}'}, {}]\n";
    let topology = topology(&whole("result: {topic: done}", test));
    let case = &topology.tests[0];
    let answered = |code, body: Option<&str>, headers: &[(&str, &str)]| GivenAttempt::Answered {
        code,
        body: body.map(|body| body.as_bytes().to_vec()),
        headers: headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
    };
    let expected = [
        answered(500, None, &[]),
        GivenAttempt::Silent(Silence::Timeout),
        answered(201, Some("{}"), &[("retry-after", "5")]),
        answered(200, Some(r#"{"a":1}"#), &[]),
        GivenAttempt::Silent(Silence::Lost),
        GivenAttempt::Silent(Silence::NotSent),
    ];
    assert_eq!(case.attempts, expected);
    let forwarded = crate::dedup::Verdict::Forwarded;
    assert_eq!(case.expect, [Expected { verdict: forwarded, reason: None, calls: Some(3), key: Some(KeySeen::Same) }]);
    let results = [
        ExpectedResult { record: Some(0), status: Some(201), body: Some(b"{}".to_vec()) },
        ExpectedResult { record: None, status: None, body: None },
    ];
    assert_eq!(case.results.as_deref(), Some(&results[..]));
}
