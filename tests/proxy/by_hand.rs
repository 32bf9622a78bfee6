//! `ratchet requests`: what is in doubt is listed and settled by hand, while the proxy runs and while it does not.

use std::process::Output;

use http_body_util::BodyExt;

use super::client::{Got, begin, charge, request, send};
use super::service::{Service, answer};
use crate::database::Database;
use crate::program::{Keeps, Room, WAIT};
use crate::redis_server;

/// A page at another origin, and the header that lets it read an answer.
const PAGE: &str = "https://shop.example";
const ALLOW: &str = "access-control-allow-origin";

/// A service that fails the first time that it is run for a key, and then answers with the number of its run.
async fn failing_at_first() -> Service {
    let known = std::sync::Arc::<std::sync::Mutex<std::collections::HashSet<String>>>::default();
    Service::start(move |request| {
        let key = request.headers()["idempotency-key"].to_str().unwrap().to_owned();
        let is_first = known.lock().unwrap().insert(key);
        async move {
            drop(request.into_body().collect().await);
            if is_first { answer(500, "it fails") } else { answer(201, "again") }
        }
    })
    .await
}

/// A command's outcome: its code, its output, and its errors.
fn ran(room: &Room, keeps: &Keeps, words: &[&str]) -> (i32, String, String) {
    let mut command = room.command("requests");
    command.args(words).args(["--config", "proxy.yaml"]).env("STORE_URL", keeps.url());
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let said = text(stderr).chars().filter(|c| *c != '│').collect::<String>();
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    (status.code().unwrap(), text(stdout), said)
}

fn settled(room: &Room, keeps: &Keeps, words: &[&str]) -> String {
    let (code, gave, said) = ran(room, keeps, &[&["settle"], words].concat());
    assert_eq!((code, said.as_str()), (0, ""), "{words:?}: {gave}");
    gave.trim_end().to_owned()
}

/// The id of a request that its client was told is in doubt.
fn doubted(got: &Got) -> String {
    assert_eq!((got.status(), got.problem().as_str()), (409, "urn:ratchet:idempotency:in-doubt"), "{got:?}");
    let problem: serde_json::Value = serde_json::from_slice(&got.body).unwrap();
    problem["instance"].as_str().unwrap().strip_prefix("urn:ratchet:request:").unwrap().to_owned()
}

fn key() -> String {
    format!("{:032x}", rand::random::<u128>())
}

/// While a proxy runs, on any store.
async fn requests_in_doubt_are_settled(keeps: Keeps) {
    let (room, service) = (Room::new(), failing_at_first().await);
    let proxy = room.start_on(&keeps, &service.url(), "caller: none\non_in_doubt: refuse");
    let ask = async |key: &str| send(proxy.address, charge(key, "{}")).await;
    let ask_from_page = async |key: &str| {
        let headers = [("idempotency-key", key), ("content-type", "application/json"), ("origin", PAGE)];
        send(proxy.address, request("POST", "/charges", &headers, "{}")).await
    };
    let keys = [key(), key(), key(), key()];
    let mut ids = Vec::new();
    for key in &keys {
        assert_eq!(ask(key).await.text(), "it fails");
        ids.push(doubted(&ask(key).await));
    }
    let (code, table, said) = ran(&room, &keeps, &["list", "--in-doubt"]);
    assert_eq!((code, said.as_str()), (0, ""));
    let lines: Vec<_> = table.lines().filter(|line| ids.iter().any(|id| line.starts_with(&id[..12]))).collect();
    assert!(lines.len() == 4 && lines.iter().all(|line| line.contains("  in_doubt  ")), "{table}");
    assert!(table.starts_with("REQUEST ") && proxy.log().contains(&ids[0][..12]), "logs call it the same");

    let was = |id: &str| format!("settled: {} was in doubt, and counts as", &id[..12]);
    assert_eq!(settled(&room, &keeps, &[&ids[0][..12], "done"]), format!("{} done now", was(&ids[0])));
    let done = ask(&keys[0]).await;
    assert_eq!((done.status(), done.is_replayed()), (200, true));
    assert!(done.text().contains("its answer is not known"), "{}", done.text());
    assert_eq!(done.header(ALLOW), None, "no page asks");
    let done = ask_from_page(&keys[0]).await;
    assert_eq!((done.is_replayed(), done.header(ALLOW), done.header("vary")), (true, Some(PAGE), Some("Origin")));

    std::fs::write(room.path().join("answer.json"), r#"{"id": 7}"#).unwrap();
    let known = ["done", "--status", "201", "--body", "answer.json"];
    assert_eq!(settled(&room, &keeps, &[&[&*ids[1]], &known[..]].concat()), format!("{} done now", was(&ids[1])));
    let done = ask(&keys[1]).await;
    assert_eq!((done.status(), done.text(), done.is_replayed()), (201, r#"{"id": 7}"#, true));
    assert_eq!(done.header("content-type"), Some("application/json"));

    assert_eq!(settled(&room, &keeps, &[&ids[2], "drop"]), format!("{} failed now", was(&ids[2])));
    let dropped = ask(&keys[2]).await;
    assert_eq!((dropped.status(), dropped.problem().as_str()), (409, "urn:ratchet:idempotency:dropped"));
    assert_eq!(ask_from_page(&keys[2]).await.header(ALLOW), Some(PAGE));
    assert_eq!(
        settled(&room, &keeps, &[&ids[2], "done"]),
        format!("nothing to do: {} is answered already", &ids[2][..12])
    );

    let next = "and the next one under its key is carried out";
    assert_eq!(
        settled(&room, &keeps, &[&ids[3], "retry"]),
        format!("forgotten: {} was in doubt, {next}", &ids[3][..12])
    );
    let again = ask(&keys[3]).await;
    assert_eq!((again.status(), again.text(), again.is_replayed()), (201, "again", false));
    let again = ask_from_page(&keys[3]).await;
    assert_eq!(
        (again.is_replayed(), again.header(ALLOW)),
        (true, None),
        "the service has answered, and allows no page"
    );
    assert_eq!(
        settled(&room, &keeps, &[&ids[3], "retry"]),
        format!("forgotten: {} was answered, {next}", &ids[3][..12])
    );
    assert_eq!(service.runs(), 5, "four have failed, and one was settled so that it is carried out again");

    let unknown = "ab".repeat(32);
    let (code, gave, said) = ran(&room, &keeps, &["settle", &unknown, "done"]);
    assert_eq!((code, gave.as_str()), (2, ""));
    assert!(said.contains(&format!("nothing is known of {unknown}")), "{said}");
}

fn run<F: Future<Output = ()>>(test: F) {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(test);
}

#[test]
fn requests_in_doubt_are_settled_in_a_folder_that_a_proxy_has() {
    run(requests_in_doubt_are_settled(Keeps::Embedded));
}

#[test]
fn requests_in_doubt_are_settled_in_postgres() {
    let database = Database::new();
    run(requests_in_doubt_are_settled(Keeps::Postgres(database.url.clone())));
}

#[test]
fn requests_in_doubt_are_settled_in_redis() {
    run(requests_in_doubt_are_settled(Keeps::Redis(redis_server::Server::shared().url(""))));
}

/// The proxy was killed mid-request; nobody has the folder.
#[tokio::test(flavor = "multi_thread")]
async fn folder_that_no_proxy_has_is_read_and_settled() {
    let (room, service) = (Room::new(), Service::start(async |_| std::future::pending().await).await);
    let proxy = room.start(&service.url(), "caller: none\non_in_doubt: refuse");
    let address = proxy.address;
    let lost = tokio::spawn(async move { begin(address, charge("k", "{}")).await.map(drop) });
    let start = std::time::Instant::now();
    while service.runs() == 0 {
        assert!(start.elapsed() < WAIT, "the service is not run");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    // It is at work.
    let (code, lines, _) = ran(&room, &Keeps::Embedded, &["list", "--json"]);
    let line: serde_json::Value = serde_json::from_str(&lines).unwrap();
    assert_eq!((code, &line["state"], &line["in_doubt"]), (0, &"under_way".into(), &false.into()));
    let id = line["request"].as_str().unwrap().to_owned();
    let (code, gave, said) = ran(&room, &Keeps::Embedded, &["settle", &id, "retry"]);
    assert_eq!((code, gave.as_str()), (1, ""));
    assert!(said.contains(&format!("{} is under way, until ", &id[..12])), "{said}");
    let (code, gave, said) = ran(&room, &Keeps::Embedded, &["list", "--in-doubt"]);
    assert_eq!((code, gave.as_str(), said.as_str()), (0, "", "nothing is in doubt"));
    proxy.kill();
    assert!(lost.await.unwrap().is_err(), "nobody was told anything");

    let (code, table, _) = ran(&room, &Keeps::Embedded, &["list", "--in-doubt"]);
    assert!(code == 0 && table.lines().nth(1).unwrap().starts_with(&format!("{}  in_doubt  ", &id[..12])), "{table}");
    settled(&room, &Keeps::Embedded, &[&id, "done", "--status", "204"]);
    let proxy = room.start(&service.url(), "caller: none\non_in_doubt: refuse");
    let again = send(proxy.address, charge("k", "{}")).await;
    assert_eq!((again.status(), again.is_replayed(), service.runs()), (204, true, 1));
}

#[test]
fn what_is_no_store_or_no_request_is_refused() {
    let room = Room::new();
    room.write("http://127.0.0.1:1", "caller: none");
    let (code, gave, said) = ran(&room, &Keeps::Embedded, &["list"]);
    assert_eq!((code, gave.as_str()), (2, ""));
    assert!(said.contains("requests holds no requests: no proxy has used it as its store"), "{said}");
    assert!(!room.path().join("requests").exists(), "nothing is made");
    for (words, needle) in [
        (&["settle", "k", "done"][..], "\"k\" is no request: 8 to 64 hexadecimal digits"),
        (&["settle", "abababab", "undone"], "write done, retry or drop"),
        (&["settle", "abababab", "retry", "--status", "201"], "`--status` and `--body` are of an answer"),
        (&["list", "--store", "embedded"], "cannot be used with"),
    ] {
        let (code, _, said) = ran(&room, &Keeps::Embedded, words);
        assert!(code == 2 && said.contains(needle), "{needle}: {said}");
    }
}
