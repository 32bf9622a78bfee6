//! Goal: what a store remembers of HTTP requests is given again by every later release, in a folder of its own, in
//! PostgreSQL and in Redis; and nothing that is written there changes without a new format number.
//!
//! What names a request, and what tells it from another one, is a digest: it is a part of the format, and so the
//! fixtures hold requests as clients send them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderName, Request, Response};
use http_body_util::{BodyExt, Full};
use ratchet::format::request::{Answer, AnswerBody, RequestEntry, RequestState};
use ratchet::http::{Body, Idempotency, OnInDoubt, Requests, Store};
use ratchet::postgres::requests::Requests as Postgres;
use ratchet::redis::Address;
use ratchet::redis::requests::Requests as Redis;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::runtime::{Builder, Runtime};
use tower_layer::Layer;
use tower_service::Service;

use crate::database::Database;
use crate::fixtures::{Fixture, copy, hex, of_requests, unhex};
use crate::redis_server::Server;
use crate::write;

/// Of a longer answer its digest is remembered.
const ANSWER_BYTES_MAX: usize = 200;
/// Longer than fixtures are read.
const RETENTION: Duration = Duration::from_secs(1_000 * 365 * 24 * 3_600);
const SCHEMA: &str = "ratchet";
const PREFIX: &str = "ratchet:request:";

/// An answer's fields.
fn answer(answer: &Answer) -> Value {
    let body = match &answer.body {
        AnswerBody::Whole(body) => json!({"whole": hex(body)}),
        AnswerBody::Digest { length, sha256 } => json!({"length": length, "sha256": hex(sha256)}),
        AnswerBody::CutOff => json!("cut_off"),
    };
    let headers: Vec<Value> = answer.headers.iter().map(|(name, value)| json!([name, hex(value)])).collect();
    json!({"status": answer.status, "headers": headers, "body": body})
}

/// The fields of an entry of the embedded store.
fn entry(entry: &RequestEntry) -> Value {
    let state = match &entry.state {
        RequestState::Reserved { lease_until_ms, run } => json!({"lease_until_ms": lease_until_ms, "run": hex(run)}),
        RequestState::Answered(given) => json!({"answer": answer(given)}),
    };
    json!({
        "token": hex(&entry.token),
        "fingerprint": hex(&entry.fingerprint),
        "until_ms": entry.remembered_until_ms,
        "state": state,
    })
}

/// Answers with everything that one can have.
fn answers() -> Vec<Answer> {
    let header = |name: &str, value: &'static [u8]| (name.to_owned(), Bytes::from_static(value));
    let plain = Answer { status: 200, headers: Vec::new(), body: AnswerBody::Whole(Bytes::from_static(b"")) };
    let typed = vec![header("content-type", b"text/plain")];
    let several = vec![header("link", b"</a>; rel=\"\xfcnext\""), header("link", b"</b>"), header("x-empty", b"")];
    let digest = AnswerBody::Digest { length: u64::MAX, sha256: [0xd1; 32] };
    vec![
        plain.clone(),
        Answer { status: 201, headers: typed.clone(), body: AnswerBody::Whole(Bytes::from_static(b"charged\0\xfe")) },
        Answer { status: 999, headers: several, ..plain.clone() },
        Answer { headers: typed.clone(), body: digest, ..plain.clone() },
        Answer { headers: typed, body: AnswerBody::CutOff, ..plain },
    ]
}

fn entries() -> Vec<RequestEntry> {
    let of = |state| RequestEntry {
        token: *b"0123456789abcdef",
        fingerprint: [0xf1; 32],
        remembered_until_ms: 1_700_000_000_000,
        state,
    };
    let reserved = |lease_until_ms, run| of(RequestState::Reserved { lease_until_ms, run });
    let held = [reserved(1_699_999_999_999, *b"fedcba9876543210"), reserved(0, [0; 16])];
    held.into_iter().chain(answers().into_iter().map(|answer| of(RequestState::Answered(answer)))).collect()
}

fn lines<T>(all: &[T], encode: impl Fn(&T) -> Vec<u8>, is: impl Fn(&T) -> Value) -> Vec<Value> {
    all.iter().map(|one| json!({"bytes": hex(&encode(one)), "is": is(one)})).collect()
}

fn answer_lines() -> Vec<Value> {
    lines(&answers(), Answer::encode, answer)
}

fn entry_lines() -> Vec<Value> {
    lines(&entries(), RequestEntry::encode, entry)
}

/// What clients have sent, how they send it again, what is another request, and what became of it.
fn sent() -> Vec<Value> {
    let ask = |method: &str, path: &str, headers: Value, body: &str| json!({"method": method, "path": path, "headers": headers, "body": body});
    let key = |key: &str, more: &[(&str, &str)]| {
        let more = more.iter().map(|(name, value)| json!([name, value]));
        Value::from([json!(["idempotency-key", key])].into_iter().chain(more).collect::<Vec<_>>())
    };
    let json_of = [("content-type", "application/json")];
    let versioned = [("authorization", "Bearer a"), ("api-version", "1")];
    let text = json!([["content-type", "text/plain"], ["location", "/charges/1"]]);
    let links = json!([["link", "</a>"], ["link", "</b>"]]);
    let answered =
        |status: u16, headers: &Value, body: &[u8]| json!({"status": status, "headers": headers, "body": hex(body)});
    vec![
        json!({
            "sent": ask("POST", "/charges", key("a", &json_of), r#"{"amount": 10, "of": {"x": 1, "y": [1, 2]}}"#),
            "again": ask("POST", "/charges", key("\"a\"", &json_of), r#"{"of":{"y":[1,2],"x":1.0},"sent_at":7,"amount":1e1}"#),
            "other": ask("POST", "/charges", key("a", &json_of), r#"{"amount": 11, "of": {"x": 1, "y": [1, 2]}}"#),
            "becomes": answered(201, &text, b"charged\0\xfe"),
        }),
        json!({
            "sent": ask("PUT", "/charges/7?dry=true", key("b", &versioned), "bytes"),
            "again": ask("PUT", "/charges/7?dry=true", key("b", &versioned), "bytes"),
            "other": ask("PUT", "/charges/7?dry=false", key("b", &versioned), "bytes"),
            "becomes": answered(204, &json!([]), b""),
        }),
        json!({
            "sent": ask("POST", "/charges", key("c", &[]), ""),
            "again": ask("POST", "/charges", key("c", &[("accept", "*/*")]), ""),
            "other": ask("POST", "/charges", key("c", &[("api-version", "")]), ""),
            "becomes": answered(402, &links, b"declined"),
        }),
        json!({
            "sent": ask("PATCH", "/a%2Fb/%C3%A9", key("d", &[]), "large"),
            "again": ask("PATCH", "/a%2Fb/%C3%A9", key("d", &[]), "large"),
            "other": ask("PATCH", "/a%2Fb/%C3%A9", key("d", &[]), "Large"),
            "becomes": answered(200, &json!([["location", "/large"]]), &[b'x'; ANSWER_BYTES_MAX + 1]),
        }),
        json!({
            "sent": ask("DELETE", "/charges/8", key("e", &versioned), ""),
            "again": ask("DELETE", "/charges/8", key("e", &versioned), ""),
            "other": ask("DELETE", "/charges/8", key("e", &versioned[..1]), ""),
            "becomes": Value::Null,
        }),
    ]
}

/// The service: answers as it is told, or is at work for ever.
#[derive(Clone)]
struct Told {
    becomes: Value,
    runs: Arc<AtomicUsize>,
}

impl Service<Request<Body>> for Told {
    type Response = Response<Full<Bytes>>;
    type Error = std::convert::Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        self.runs.fetch_add(1, Ordering::SeqCst);
        let becomes = self.becomes.clone();
        Box::pin(async move {
            if becomes.is_null() {
                return std::future::pending().await;
            }
            let mut answer = Response::builder().status(becomes["status"].as_u64().unwrap() as u16);
            for (name, value) in pairs(&becomes["headers"]) {
                answer = answer.header(name, value);
            }
            Ok(answer.body(Full::new(unhex(&becomes["body"]).into())).unwrap())
        })
    }
}

fn pairs(headers: &Value) -> Vec<(&str, &str)> {
    headers.as_array().unwrap().iter().map(|pair| (pair[0].as_str().unwrap(), pair[1].as_str().unwrap())).collect()
}

/// An answer: status, headers, body.
type Got = (u16, http::HeaderMap, Bytes);

/// Sends a request through the layer on this store. `None`: the service is at work. And how often the service was run.
async fn send(layer: &Idempotency, request: &Value, becomes: &Value) -> (Option<Got>, usize) {
    let told = Told { becomes: becomes.clone(), runs: Arc::default() };
    let runs = Arc::clone(&told.runs);
    let text = |field: &str| request[field].as_str().unwrap();
    let mut ask = Request::builder().method(text("method")).uri(text("path"));
    for (name, value) in pairs(&request["headers"]) {
        ask = ask.header(name, value);
    }
    let ask = ask.body(Full::new(Bytes::from(text("body").to_owned()))).unwrap();
    let mut guard = layer.clone().layer(told);
    let answered = tokio::spawn(async move {
        let (parts, body) = guard.call(ask).await.unwrap().into_parts();
        (parts.status.as_u16(), parts.headers, body.collect().await.unwrap().to_bytes())
    });
    let is_at_work = || becomes.is_null() && runs.load(Ordering::SeqCst) > 0;
    while !answered.is_finished() && !is_at_work() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let got = if answered.is_finished() { Some(answered.await.unwrap()) } else { None };
    if got.is_some() {
        layer.idle().await;
    }
    (got, runs.load(Ordering::SeqCst))
}

fn layer(store: Arc<dyn Store>) -> Idempotency {
    Idempotency::shared(store)
        .retention(RETENTION)
        .answer_bytes_max(ANSWER_BYTES_MAX)
        .fingerprint_headers([HeaderName::from_static("api-version")])
        .fingerprint_except(["sent_at"])
        .unwrap()
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Has a store remember what was sent.
fn remember(store: Arc<dyn Store>, lines: &[Value]) {
    // What is at work ends with it.
    runtime().block_on(async {
        let layer = layer(store);
        for line in lines {
            let (got, runs) = send(&layer, &line["sent"], &line["becomes"]).await;
            assert_eq!((got.is_none(), runs), (line["becomes"].is_null(), 1), "{line}");
        }
    });
}

/// The answers are those that were given, other requests are told apart, and what was at work is in doubt.
fn assert_remembered(store: Arc<dyn Store>, lines: &[Value]) {
    runtime().block_on(async {
        let refusing = layer(Arc::clone(&store)).on_in_doubt(OnInDoubt::Refuse);
        for line in lines {
            let (other, runs) =
                send(&refusing, &line["other"], &json!({"status": 500, "headers": [], "body": ""})).await;
            assert_eq!((other.unwrap().0, runs), (422, 0), "{line}");
            let (again, runs) =
                send(&refusing, &line["again"], &json!({"status": 500, "headers": [], "body": ""})).await;
            let ((status, headers, body), becomes) = (again.unwrap(), &line["becomes"]);
            assert_eq!(runs, 0, "{line}");
            if becomes.is_null() {
                assert_eq!((status, String::from_utf8_lossy(&body).contains(":in-doubt")), (409, true), "{line}");
                let now = json!({"status": 200, "headers": [], "body": "00"});
                let (taken, runs) = send(&layer(Arc::clone(&store)), &line["again"], &now).await;
                assert_eq!((taken.unwrap().0, runs), (200, 1), "{line}");
                continue;
            }
            assert_eq!((&Value::from(status), headers["idempotent-replayed"] == "true"), (&becomes["status"], true));
            let mut known: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
            pairs(&becomes["headers"]).into_iter().for_each(|(name, value)| known.entry(name).or_default().push(value));
            for (name, values) in known {
                assert_eq!(headers.get_all(name).iter().collect::<Vec<_>>(), values, "{line}");
            }
            let given = unhex(&becomes["body"]);
            if given.len() > ANSWER_BYTES_MAX {
                let said: Value = serde_json::from_slice(&body).unwrap();
                assert_eq!((&said["bytes"], &said["sha256"]), (&given.len().into(), &hex(&Sha256::digest(&given))));
            } else {
                assert_eq!(body, given, "{line}");
            }
        }
    });
}

/// Rows of PostgreSQL's table, as SQL that inserts them.
fn rows(database: &Database) -> Vec<String> {
    database.rows(&format!(
        "select format('insert into {SCHEMA}.request values (%L, %L, %L, %L, %L, %L, %L);', id, token, fingerprint, \
         lease_until, until, answer, is_whole) from {SCHEMA}.request order by id"
    ))
}

/// What Redis keeps: `{"key", "fields"}`.
fn hashes(server: &Server) -> Vec<Value> {
    let mut connection = server.connect();
    let mut keys: Vec<String> = server.ask(&format!("KEYS {PREFIX}*"));
    keys.sort_unstable();
    let each = keys.into_iter().map(|key| {
        let fields: BTreeMap<String, Vec<u8>> = redis::cmd("HGETALL").arg(&key).query(&mut connection).unwrap();
        let fields: BTreeMap<String, Value> = fields.into_iter().map(|(name, value)| (name, hex(&value))).collect();
        json!({"key": key, "fields": fields})
    });
    each.collect()
}

/// Writes the fixtures of today's format.
pub fn write_requests(path: &Path) {
    let (folder, lines) = (path.join("requests"), sent());
    fs::create_dir(path).unwrap();
    write::write(&path.join("answers.jsonl"), &answer_lines());
    write::write(&path.join("entries.jsonl"), &entry_lines());
    write::write(&path.join("requests.jsonl"), &lines);
    // What was there when it was opened again stands in a table, what came later in the log.
    for part in [&lines[..2], &lines[2..]] {
        remember(Arc::new(Requests::open(&folder).unwrap()), part);
    }
    write::strip(&folder);
    let database = Database::new();
    remember(Arc::new(Postgres::new(&database.url, SCHEMA).unwrap()), &lines);
    let sql = [format!("create schema {SCHEMA};"), Postgres::ddl(SCHEMA) + ";"].into_iter().chain(rows(&database));
    fs::write(path.join("postgres.sql"), sql.collect::<Vec<_>>().join("\n") + "\n").unwrap();
    let server = Server::start(&[]);
    remember(Arc::new(Redis::new(Address::read(&server.url("")).unwrap())), &lines);
    write::write(&path.join("redis.jsonl"), &hashes(&server));
}

#[test]
fn answers_and_entries_keep_their_meaning() {
    for fixture in of_requests() {
        for line in fixture.lines("answers.jsonl") {
            assert_eq!(answer(&Answer::decode(&unhex(&line["bytes"]).into()).unwrap()), line["is"], "{line}");
        }
        for line in fixture.lines("entries.jsonl") {
            assert_eq!(entry(&RequestEntry::decode(&unhex(&line["bytes"]).into()).unwrap()), line["is"], "{line}");
        }
    }
}

#[test]
fn folder_of_requests_is_read_and_goes_on() {
    for fixture in of_requests() {
        let room = tempfile::tempdir().unwrap();
        let (folder, lines) = (room.path().join("requests"), fixture.lines("requests.jsonl"));
        copy(&fixture.path.join("requests"), &folder);
        assert_remembered(Arc::new(Requests::open(&folder).unwrap()), &lines);
    }
}

#[test]
fn table_of_requests_is_read_and_goes_on() {
    for fixture in of_requests() {
        let database = Database::with(&fs::read_to_string(fixture.path.join("postgres.sql")).unwrap());
        assert_remembered(Arc::new(Postgres::new(&database.url, SCHEMA).unwrap()), &fixture.lines("requests.jsonl"));
        // The table stays as it is; a function of another release is replaced.
        let body =
            "select prosrc from pg_proc where proname = 'answer_request' and pronamespace = 'ratchet'::regnamespace";
        let body = database.rows(body);
        assert!(body.len() == 1 && Postgres::ddl(SCHEMA).contains(&body[0]), "{body:?}");
    }
}

#[test]
fn hashes_of_requests_are_read_and_go_on() {
    for fixture in of_requests() {
        let server = Server::start(&[]);
        for line in fixture.lines("redis.jsonl") {
            let mut put = redis::cmd("HSET");
            put.arg(line["key"].as_str().unwrap());
            for (name, value) in line["fields"].as_object().unwrap() {
                put.arg(name).arg(unhex(value));
            }
            put.exec(&mut server.connect()).unwrap();
        }
        let store = Arc::new(Redis::new(Address::read(&server.url("")).unwrap()));
        assert_remembered(store, &fixture.lines("requests.jsonl"));
    }
}

/// What would be written today is what was written with the last number: a change needs a new one.
#[test]
fn todays_format_of_requests_is_the_last_one() {
    let Some(Fixture { path }) = of_requests().pop() else { panic!("there is one") };
    let fixture = Fixture { path };
    assert_eq!(fixture.lines("answers.jsonl"), answer_lines());
    assert_eq!(fixture.lines("entries.jsonl"), entry_lines());
    assert_eq!(fixture.lines("requests.jsonl"), sent());
    let (database, server) = (Database::new(), Server::start(&[]));
    remember(Arc::new(Postgres::new(&database.url, SCHEMA).unwrap()), &sent());
    remember(Arc::new(Redis::new(Address::read(&server.url("")).unwrap())), &sent());
    let sql = fs::read_to_string(fixture.path.join("postgres.sql")).unwrap();
    let ddl = Postgres::ddl(SCHEMA);
    let (table, _) = ddl.split_once("create or replace function").unwrap();
    assert!(sql.contains(table), "the table is another one");
    // All but what is drawn at random, and the time.
    let same = |row: &String| {
        row.split(", ")
            .enumerate()
            .filter(|(at, _)| ![1, 3, 4].contains(at))
            .map(|(_, value)| value.to_owned())
            .collect::<Vec<_>>()
    };
    let written: Vec<_> = sql.lines().filter(|line| line.starts_with("insert")).map(str::to_owned).collect();
    assert_eq!(rows(&database).iter().map(same).collect::<Vec<_>>(), written.iter().map(same).collect::<Vec<_>>());
    let stable = |mut hashes: Vec<Value>| {
        for name in ["token", "lease"] {
            let drawn = hashes.iter_mut().filter_map(|hash| hash["fields"].get_mut(name));
            drawn.for_each(|value| *value = json!(value.as_str().unwrap().len()));
        }
        hashes
    };
    assert_eq!(stable(hashes(&server)), stable(fixture.lines("redis.jsonl")));
}
