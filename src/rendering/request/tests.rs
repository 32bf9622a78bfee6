//! Goal: a record's request is what its topology says, byte for byte; nothing in a record can become another part of it,
//! and a record that no request can be made of is named without its content.

use std::path::Path as FilePath;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::dedup::{Action, Format, Places, Reader, Rules};
use crate::effect::call::{Answers, Comparison, Jitter, KeyWindow, OnInDoubt, OnUnavailable, Policy, Reserve, Retry};
use crate::record::{HeaderBuf, Headers};
use crate::schemas::{Id, Language, LookUp, Schemas, Sources, Written};
use crate::topology::sink::Terms;
use crate::topology::sink::terms::OnDuplicate;
use crate::topology::{Destination, Sink};
use crate::yaml_testing::Fake;

const VERSIONED: &str = "version: {of: value.v, as: integer}\n";

fn template(text: &str) -> Template {
    Template::parse(text, &Fake::default().with_variable("TOKEN", "s3cret{value.id}")).unwrap()
}

fn places(path: &str) -> Places {
    vec![Path::parse(path).unwrap()]
}

/// A sink that calls this address, with a key.
fn http(url: &str) -> Http {
    let second = Duration::from_secs(1);
    let retry = Retry { first: second, factor: 2, max: second, jitter: Jitter::Full, attempts: 8 };
    Http {
        url: template(url),
        hosts: Vec::new(),
        method: Method::Post,
        headers: Vec::new(),
        body: Body::Value,
        key: Some("Idempotency-Key".to_owned()),
        terms: Terms {
            timeout: second * 10,
            in_flight: 64,
            rate: None,
            policy: Policy {
                key: KeyWindow::new(second * 86_400, second * 10, second * 30),
                reserve: Reserve::Auto,
                on_in_doubt: OnInDoubt::DeadLetter,
                on_unavailable: OnUnavailable::Hold,
                retry,
                answers: Answers::default(),
            },
            on_rejected: Action::DeadLetter,
            on_conflict: Action::DeadLetter,
            result: None,
            on_duplicate: OnDuplicate::Drop,
        },
    }
}

/// A topology with these lines besides, which calls.
fn calling(lines: &str, http: Http) -> Topology {
    let text = format!(
        "name: t\ninput: {{topics: [in]}}\nidentity: value.id\npartitioned_by_identity: true\noutput: {{topic: out}}\n{lines}"
    );
    let environment = Fake::default().with_file("t.yaml", text);
    let loaded = crate::topology::load(FilePath::new("t.yaml"), &environment);
    let topology = loaded.unwrap_or_else(|diagnostics| panic!("{}", diagnostics.render(false))).topology;
    Topology { destination: Destination::Sink(Box::new(Sink::Http(Box::new(http)))), ..topology }
}

fn record(value: &str) -> Record<'_> {
    Record {
        topic: "in",
        partition: 0,
        offset: 7,
        timestamp: Some(1),
        key: Some(b"k"),
        value: Some(value.as_bytes()),
        headers: Headers::default(),
    }
}

fn rendered(topology: &Topology, record: &Record<'_>) -> Result<RenderedRequest, String> {
    let mut arena = Vec::new();
    let mut reader = Reader::with_schemas(Arc::clone(&topology.rules), &topology.schemas);
    let reading = reader.read(record, &mut arena);
    let mut requester = Requester::new(topology).expect("it calls");
    let first = requester.render(record, reading.rows(), &arena);
    // Whatever was made before, and in another process.
    let shown = requester.shown().to_owned();
    assert_eq!(requester.render(record, reading.rows(), &arena), first);
    assert_eq!(Requester::new(topology).unwrap().render(record, reading.rows(), &arena), first);
    assert!(!shown.contains("s3cret"), "{shown}");
    first
}

fn url(template: &str, value: &str) -> Result<String, String> {
    rendered(&calling("", http(template)), &record(value)).map(|request| request.url)
}

#[test]
fn parts_of_the_record_are_encoded_in_the_address() {
    let value = r#"{"id": "a/b ?#&=+%é\n\"", "n": 1.50, "yes": true, "plain": "A-z.0_9~"}"#;
    for (template, expected) in [
        ("http://a/x/{value.id}/y", "http://a/x/a%2Fb%20%3F%23%26%3D%2B%25%C3%A9%0A%22/y"),
        ("http://a/x?q={value.id}&r=1", "http://a/x?q=a%2Fb%20%3F%23%26%3D%2B%25%C3%A9%0A%22&r=1"),
        ("http://a/{value.n}{value.yes}", "http://a/1.50true"),
        ("http://a/{value.plain}", "http://a/A-z.0_9~"),
        ("http://a/{meta.topic}/{meta.partition}/{meta.offset}/{key}", "http://a/in/0/7/k"),
        ("http://a", "http://a"),
    ] {
        assert_eq!(url(template, value), Ok(expected.to_owned()), "{template}");
    }
}

#[test]
fn record_that_would_make_another_address_is_refused() {
    let value = |id: &str| format!(r#"{{"id": {id}, "other": 1}}"#);
    for (template, id, words) in [
        ("http://a/{value.id}", "\"\"", "the address (`value.id`): it is empty"),
        ("http://a/{value.none}", "1", "the address (`value.none`): it is missing, or null"),
        ("http://a?x={value.none}", "1", "the address (`value.none`): it is missing, or null"),
        ("http://a/{value.id}/b", "\"..\"", "a segment `.` or `..`"),
        ("http://a/{value.id}", "\".\"", "a segment `.` or `..`"),
        ("http://a/.{value.id}", "\".\"", "a segment `.` or `..`"),
        ("http://a/%2e{value.id}?x", "\".\"", "a segment `.` or `..`"),
    ] {
        let problem = url(template, &value(id)).unwrap_err();
        assert!(problem.contains(words), "{template}: {problem}");
    }
    // A whole value is a text, whatever is in it.
    assert!(url("http://a/{value}", &value("1")).unwrap().starts_with("http://a/%7B%22id%22"));
    let inside = r#"{"id": 1, "o": {"hunter2": 1}, "l": ["hunter2"]}"#;
    for template in ["http://a/{value.o}", "http://a?x={value.l}"] {
        let problem = url(template, inside).unwrap_err();
        assert!(problem.contains("an object or an array") && !problem.contains("hunter2"), "{problem}");
    }
    for template in ["http://a/{value.id}..", "http://a/x?y={value.id}/.."] {
        assert!(url(template, &value("\"..\"")).is_ok(), "{template}");
    }
    let long = "x".repeat(ADDRESS_BYTES_MAX);
    assert!(url("http://a/{value.id}", &value(&format!("\"{long}\""))).unwrap_err().contains("longer than 32768"));
}

#[test]
fn host_of_a_record_has_to_be_listed() {
    let listed = Http { hosts: vec!["a.example.com".to_owned(), "b:81".to_owned()], ..http("https://{value.h}/x") };
    let topology = calling("", listed);
    let url = |host: &str| rendered(&topology, &record(&format!(r#"{{"id": 1, "h": "{host}"}}"#))).map(|all| all.url);
    assert_eq!(url("a.example.com"), Ok("https://a.example.com/x".to_owned()));
    assert_eq!(url("A.example.com"), Ok("https://A.example.com/x".to_owned()));
    assert_eq!(url("b:81"), Ok("https://b:81/x".to_owned()));
    for host in [
        "",
        "evil.example",
        "b",
        "a.example.com:444",
        "a.example.com/y?",
        "a.example.com#",
        "a.example.com\\\\y",
        "user@a.example.com",
        "a.example.com@evil.example",
        "a.example.com.",
        " a.example.com",
        "a.example.com\\u0000",
        "é",
    ] {
        assert_eq!(url(host), Err("the address: its host is not among `hosts`".to_owned()), "{host}");
    }
}

/// The headers of a request.
fn headers(values: &[(&str, &str)], value: &str) -> Result<Vec<(String, String)>, String> {
    let headers = values.iter().map(|(name, value)| ((*name).to_owned(), template(value))).collect();
    let request = rendered(&calling("", Http { headers, ..http("http://a") }), &record(value))?;
    let text = |(name, value): (Arc<str>, Vec<u8>)| (name.to_string(), String::from_utf8(value).unwrap());
    Ok(request.headers.into_iter().map(text).collect())
}

#[test]
fn headers_hold_what_the_topology_says() {
    let all = [("Authorization", "Bearer ${env:TOKEN}"), ("x-id", "id-{value.id}-{value.n}"), ("x-empty", "{value.e}")];
    let expected = [("Authorization", "Bearer s3cret{value.id}"), ("x-id", "id-a b-2"), ("x-empty", "")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(headers(&all, r#"{"id": "a b", "n": 2, "e": ""}"#), Ok(expected.to_vec()));
}

#[test]
fn nothing_of_a_record_can_begin_another_header() {
    for id in ["a\\r\\nx-evil: hunter2", "a\\nhunter2", "hunter2\\u0000", "hunter2\\u007f", "hunter2\\t", "hunter2é"] {
        let problem = headers(&[("x-id", "{value.id}")], &format!(r#"{{"id": "{id}"}}"#)).unwrap_err();
        assert!(problem.starts_with("the header `x-id` (`value.id`): there is a character"), "{problem}");
        assert!(!problem.contains("hunter2"), "{problem}");
    }
    for (path, words) in [("{value.none}", "missing, or null"), ("{value.o}", "an object or an array")] {
        let problem = headers(&[("x-id", path)], r#"{"id": 1, "o": {}}"#).unwrap_err();
        assert!(problem.contains(words), "{problem}");
    }
    let long = format!(r#"{{"id": "{}"}}"#, "x".repeat(HEADER_BYTES_MAX));
    assert!(headers(&[("x-id", "{value.id}")], &long).is_ok());
    assert!(headers(&[("x-id", "{value.id}-")], &long).unwrap_err().contains("longer than 8192 bytes"));
}

/// The body of a request.
fn body(body: Body, lines: &str, record: &Record<'_>) -> Result<Option<String>, String> {
    let request = rendered(&calling(lines, Http { body, ..http("http://a") }), record)?;
    Ok(request.body.map(|body| String::from_utf8(body).unwrap()))
}

#[test]
fn body_is_the_value_or_none() {
    let value = "{ \"id\" : 1 }\n";
    assert_eq!(body(Body::Value, "", &record(value)), Ok(Some(value.to_owned())));
    assert_eq!(body(Body::None, "", &record(value)), Ok(None));
}

/// Has one schema, by every id.
#[derive(Debug)]
struct OneSchema;

impl Schemas for OneSchema {
    fn look_up(&self, _: &Id) -> LookUp {
        let text = r#"{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}"#;
        LookUp::Known(Arc::new(Written::alone(Language::Avro, text)))
    }
}

#[test]
fn body_is_the_decoded_value_in_a_format_with_schemas() {
    let topology = calling("", http("http://a"));
    let rules = Arc::new(Rules { value_format: Format::Avro, ..(*topology.rules).clone() });
    let schemas = Sources { list: vec![Arc::new(OneSchema)], ..Sources::default() };
    let topology = Topology { rules, schemas, ..topology };
    let request = rendered(&topology, &Record { value: Some(&[0, 0, 0, 0, 1, 14]), ..record("") }).unwrap();
    assert_eq!(request.body, Some(br#"{"id":7}"#.to_vec()));
}

#[test]
fn body_of_json_has_what_stands_in_the_record() {
    let fields = |all: &[(&str, &str)]| {
        let field = |(name, path): &(&str, &str)| ((*name).to_owned(), Json::At(places(path)));
        Json::Object(all.iter().map(field).collect())
    };
    let value =
        r#"{"id": "q\"\u00e9\n", "n": 1.50e400, "yes": true, "no": null, "o": {"a" : [1, "x"]}, "plain": "ä/"}"#;
    let all = fields(&[
        ("id", "value.id"),
        ("odd \"name\"\n", "value.n"),
        ("yes", "value.yes"),
        ("null", "value.no"),
        ("missing", "value.nowhere"),
        ("o", "value.o"),
        ("plain", "value.plain"),
        ("offset", "meta.offset"),
        ("key", "key"),
        ("header", "header.h"),
        ("all", "value"),
    ]);
    let expected = format!(
        r#"{{"id":"q\"\u00e9\n","odd \"name\"\n":1.50e400,"yes":true,"null":null,"missing":null,"o":{{"a" : [1, "x"]}},"plain":"ä/","offset":7,"key":"k","header":"a\"\\\u0001b","all":{value}}}"#
    );
    let mut headers = HeaderBuf::default();
    headers.push(b"h", Some(b"a\"\\\x01b"));
    let with_header = Record { headers: headers.as_headers(), ..record(value) };
    let made = body(Body::Json(all), "", &with_header).unwrap().unwrap();
    assert_eq!(made, expected);
    assert!(serde_json::from_str::<serde::de::IgnoredAny>(&made).is_ok(), "{made}");

    let first = Json::At([places("value.no"), places("value.n")].concat());
    let list = Json::List(vec![first, fields(&[]), Json::List(Vec::new())]);
    assert_eq!(body(Body::Json(list), "", &record(value)), Ok(Some("[1.50e400,{},[]]".to_owned())));

    let mut headers = HeaderBuf::default();
    headers.push(b"h", Some(b"\xff"));
    let odd = Record { headers: headers.as_headers(), ..record(value) };
    let problem = body(Body::Json(Json::At(places("header.h"))), "", &odd).unwrap_err();
    assert_eq!(problem, "the body (`header.h`): it is not UTF-8, which JSON has to be");
}

#[test]
fn kinds_without_a_value_make_no_call() {
    let topology = calling("kinds: {of: value.op, delete: [d]}\n", http("http://a"));
    assert!(rendered(&topology, &record(r#"{"id": 1, "op": "d"}"#)).is_ok());
    let mut topology = calling("", http("http://a"));
    let mut rules = (*topology.rules).clone();
    rules.identity.parts = vec![crate::dedup::IdentityPart::Scalar(Path::parse("key").unwrap())];
    rules.actions.null_value = crate::dedup::OnNull::FollowDelete;
    topology.rules = Arc::new(rules);
    let tombstone = Record { value: None, ..record("") };
    assert_eq!(rendered(&topology, &tombstone), Err("a tombstone makes no call".to_owned()));
}

#[test]
fn key_is_of_the_effect_alone() {
    let topology = calling(&format!("{VERSIONED}epoch: value.e\n"), http("http://a/{value.x}"));
    let key = |topology: &Topology, value: &str, offset| {
        let record = Record { offset, timestamp: Some(offset), ..record(value) };
        rendered(topology, &record).unwrap().key.unwrap()
    };
    let value = r#"{"id": 1, "v": 2, "e": "a", "x": 1}"#;
    let first = key(&topology, value, 7);
    // Made by the room's parts by hand: the same for ever.
    let mut arena = Vec::new();
    let record = record(value);
    let reading = Reader::new(Arc::clone(&topology.rules)).read(&record, &mut arena);
    let row = &reading.rows()[0];
    let of = KeyParts {
        topology: "t",
        identity: &arena[row.key.clone()],
        epoch: Some(&arena[row.scope.clone().unwrap()]),
        version: Some(&arena[row.version.clone().unwrap()]),
        step: None,
    };
    assert_eq!(first, Key::of(of));
    assert_eq!(key(&topology, r#"{"x": 2, "e": "a", "v": 2, "id": 1.0}"#, 9), first, "another record of the same");
    for other in [
        r#"{"id": 2, "v": 2, "e": "a", "x": 1}"#,
        r#"{"id": 1, "v": 3, "e": "a", "x": 1}"#,
        r#"{"id": 1, "v": 2, "e": "b", "x": 1}"#,
        r#"{"id": 1, "e": "a", "x": 1}"#,
    ] {
        assert_ne!(key(&topology, other, 7), first, "{other}");
    }
    let renamed = Topology { name: "u".to_owned(), ..topology.clone() };
    assert_ne!(key(&renamed, value, 7), first);
    let keyless = calling("", Http { key: None, ..http("http://a") });
    assert_eq!(rendered(&keyless, &record).unwrap().key, None);
}

#[test]
fn fingerprint_tells_what_a_record_asks_for() {
    let of = |http: Http, value: &str| rendered(&calling("", http), &record(value)).unwrap().fingerprint;
    let all = |url: &str| Http {
        headers: vec![("x".to_owned(), template("{value.h}")), ("auth".to_owned(), template("${env:TOKEN}"))],
        ..http(url)
    };
    let plain = || all("http://a/{value.p}?q={value.q}");
    let value = r#"{"id": 1, "p": 1, "q": 2, "h": 3}"#;
    let first = of(plain(), value);
    assert_eq!(first.compare(&of(plain(), value)), Comparison::Same);
    let bodiless = || Http { body: Body::None, ..plain() };
    for other in [
        r#"{"id": 1, "p": 9, "q": 2, "h": 3}"#,
        r#"{"id": 1, "p": 1, "q": 9, "h": 3}"#,
        r#"{"id": 1, "p": 1, "q": 2, "h": 9}"#,
    ] {
        assert_eq!(of(bodiless(), value).compare(&of(bodiless(), other)), Comparison::Different, "{other}");
    }
    assert_eq!(first.compare(&of(plain(), &format!("{value} "))), Comparison::Different, "the body");
    for changed in [
        all("http://a/{value.p}?r={value.q}"),
        Http { method: Method::Put, ..plain() },
        Http { body: Body::Json(Json::At(places("value"))), ..plain() },
        bodiless(),
        Http { headers: Vec::new(), ..plain() },
    ] {
        assert_eq!(first.compare(&of(changed, value)), Comparison::Unknown, "another topology");
    }
    // A secret is replaced.
    let secret = |token: &str| {
        let environment = Fake::default().with_variable("T", token).with_variable("URL", &format!("http://{token}"));
        let read = |text: &str| Template::parse(text, &environment).unwrap();
        let headers = [("x".to_owned(), read("${env:T}{value.h}")), ("y".to_owned(), read("${env:T}"))];
        Http { url: read("${env:URL}/{value.p}?key=1"), headers: headers[1..].to_vec(), ..http("http://a") }
    };
    assert_eq!(of(secret("old"), value).compare(&of(secret("new"), value)), Comparison::Same);
}

#[test]
fn address_is_shown_as_it_is_written() {
    let environment = Fake::default().with_variable("URL", "http://u5er.example/v1");
    let url = Template::parse("${env:URL}/charges/{value.id}", &environment).unwrap();
    let topology = calling("", Http { url, ..http("http://a") });
    let (mut arena, record) = (Vec::new(), record(r#"{"id": "a b"}"#));
    let reading = Reader::new(Arc::clone(&topology.rules)).read(&record, &mut arena);
    let mut requester = Requester::new(&topology).unwrap();
    let request = requester.render(&record, reading.rows(), &arena).unwrap();
    assert_eq!(request.url, "http://u5er.example/v1/charges/a%20b");
    assert_eq!(requester.shown(), "${env:URL}/charges/a%20b");
}

proptest! {
    /// Whatever stands in a record, the address has the parts that the topology says.
    #[test]
    fn any_text_stays_within_its_part(id in "\\PC{1,20}|[./%\\\\?#@:&\r\n\t ]{1,6}", place in 0..2_usize) {
        let value = serde_json::to_string(&serde_json::json!({"id": id})).unwrap();
        let template = ["http://a/b/{value.id}/c?d=1", "http://a/b?c={value.id}&d=1"][place];
        match url(template, &value) {
            Ok(url) => {
                let rest = url.strip_prefix("http://a/b").unwrap();
                let (path, query) = rest.split_once('?').unwrap();
                prop_assert!(url.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#'));
                if place == 0 {
                    prop_assert_eq!((path.matches('/').count(), query), (2, "d=1"));
                } else {
                    prop_assert_eq!((path, query.matches('&').count(), query.matches('=').count()), ("", 1, 2));
                }
            }
            Err(words) => prop_assert!(place == 0 && matches!(id.as_str(), "." | ".."), "{}", words),
        }
    }

    /// Whatever stands in a record, a body of JSON is JSON, and holds it.
    #[test]
    fn any_text_stays_within_its_string(text in ".{0,20}") {
        let value = serde_json::to_string(&serde_json::json!({"id": 1, "t": text})).unwrap();
        let json = Json::Object(vec![("t".to_owned(), Json::At(places("value.t")))]);
        let made = body(Body::Json(json), "", &record(&value)).unwrap().unwrap();
        let read: serde_json::Value = serde_json::from_str(&made).unwrap();
        prop_assert_eq!(read, serde_json::json!({"t": text}));
    }
}
