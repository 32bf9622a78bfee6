//! Proxies that share a store, and one whose store goes away.

use super::client::{Got, charge, metric, page, send};
use super::service::Service;
use crate::database::Database;
use crate::program::{Keeps, Proxy, Room, WAIT};
use crate::redis_server;

fn run<F: Future<Output = ()>>(test: F) {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(test);
}

/// What one proxy has answered, another one knows.
async fn shared(keeps: Keeps) {
    let (one, other, service) = (Room::new(), Room::new(), Service::counting().await);
    let proxies = [&one, &other].map(|room| room.start_on(&keeps, &service.url(), "wait: 30s"));
    let first = send(proxies[0].address, charge("k", "{}")).await;
    assert_eq!((first.status(), first.text()), (201, r#"{"run":1}"#), "{}", proxies[0].log());
    let again = send(proxies[1].address, charge("k", "{}")).await;
    assert_eq!((again.text(), again.is_replayed()), (r#"{"run":1}"#, true));
    let both = (0..20).map(|number| send(proxies[number % 2].address, charge("at-once", "{}")));
    let both = futures_util::future::join_all(both).await;
    assert!(both.iter().all(|got| got.text() == r#"{"run":2}"#), "{both:?}");
    assert_eq!(service.runs(), 2);
    for proxy in proxies {
        assert!(page(proxy.metrics, "/readyz?verbose").await.text().contains("[+] store: answers"));
        assert!(!proxy.log().contains(keeps.url()), "the store's address is in the log");
    }
}

#[test]
fn proxies_share_postgres() {
    let database = Database::new();
    run(shared(Keeps::Postgres(database.url.clone())));
}

#[test]
fn proxies_share_redis() {
    run(shared(Keeps::Redis(redis_server::Server::shared().url(""))));
}

/// The log names the trouble with the store, once for each reason, and without the password. `/readyz` names neither the
/// store's server nor its user.
#[test]
fn store_that_refuses_says_why_in_the_log() {
    let server = redis_server::Server::start(&["--requirepass s3cret"]);
    let keeps = Keeps::Redis(server.url(":wr0ng@"));
    run(async {
        let (room, service) = (Room::new(), Service::counting().await);
        let proxy = room.start_on(&keeps, &service.url(), "");
        let said = until(&proxy, |ready| ready.text().contains("[-] store: does not answer")).await;
        let text = said.text();
        assert!(text.contains("does not answer; the log says why") && !text.contains("127.0.0.1"), "{text}");
        // It goes on being asked.
        tokio::time::sleep(std::time::Duration::from_secs(3)).await;
        let log = proxy.log();
        let told: Vec<_> = log.lines().filter(|line| line.contains("the store does not answer")).collect();
        assert!(told.len() == 1 && told[0].contains("compare") && told[0].contains("127.0.0.1"), "{log}");
        assert!(!log.contains("wr0ng") && !said.text().contains("wr0ng"), "{log}");
        server.ask_as::<String>(":s3cret@", "CONFIG SET requirepass wr0ng");
        until_ready(&proxy, 200).await;
        until_told(&proxy, "the store answers again").await;
    });
}

/// An answer that was remembered under the former password is replayed under the next one, by the same process.
#[test]
fn replaced_password_of_the_store_counts_without_a_restart() {
    let server = redis_server::Server::start(&["--requirepass first"]);
    run(async {
        let (room, service) = (Room::new(), Service::counting().await);
        let address = room.path().join("store-url");
        std::fs::write(&address, server.url(":first@")).unwrap();
        let settings = room.write(&service.url(), "");
        let text = std::fs::read_to_string(&settings).unwrap();
        let store = format!("{{redis: {{url: '${{file:{}}}'}}}}", address.display());
        std::fs::write(&settings, text.replace("{embedded: {dir: requests}}", &store)).unwrap();
        let proxy = Proxy::start(room.command("proxy --config proxy.yaml"));
        assert_eq!(send(proxy.address, charge("k", "{}")).await.status(), 201, "{}", proxy.log());

        // The former password is wrong now, and its connections are gone.
        server.ask_as::<String>(":first@", "CONFIG SET requirepass second");
        server.ask_as::<i64>(":second@", "CLIENT KILL TYPE normal");
        until_ready(&proxy, 503).await;
        std::fs::write(&address, server.url(":second@")).unwrap();
        until_ready(&proxy, 200).await;
        let again = send(proxy.address, charge("k", "{}")).await;
        assert_eq!((again.text(), again.is_replayed()), (r#"{"run":1}"#, true));
    });
}

/// More people can read `/readyz` than the log.
#[test]
fn readiness_names_neither_the_store_nor_its_user() {
    let (server, database) = (redis_server::Server::start(&["--requirepass s3cret"]), Database::new());
    let stranger = database.url.replace("postgres@", "mallory@");
    assert_ne!(stranger, database.url);
    for (keeps, why) in [
        (Keeps::Redis(server.url("mallory:wr0ng@")), &["127.0.0.1:", "rejects the user or password"][..]),
        (Keeps::Postgres(stranger), &["127.0.0.1:", "mallory"]),
        (Keeps::Postgres("postgresql://mallory:wr0ng@127.0.0.1:1/shop".to_owned()), &["127.0.0.1:1", "mallory"]),
    ] {
        run(async {
            let (room, service) = (Room::new(), Service::counting().await);
            let proxy = room.start_on(&keeps, &service.url(), "");
            let line = told_at_the_start(&proxy, "the store does not answer").await.to_string();
            assert!(why.iter().all(|word| line.contains(word)), "{line}");
            for path in ["/readyz?verbose", "/readyz"] {
                let said = page(proxy.metrics, path).await;
                assert_eq!(said.status(), 503, "{}", said.text());
                for word in ["127.0.0.1", "mallory", "wr0ng", "shop", "postgres", "redis"] {
                    assert!(!said.text().contains(word), "{word}: {}", said.text());
                }
            }
        });
    }
}

/// The line at the start that says so.
async fn told_at_the_start(proxy: &Proxy, message: &str) -> serde_json::Value {
    let start = std::time::Instant::now();
    loop {
        let log = proxy.log();
        let lines = log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let told: Vec<_> =
            lines.filter(|line| line["message"].as_str().is_some_and(|it| it.starts_with("the store"))).collect();
        if let [line] = &told[..] {
            assert_eq!(line["message"], message, "{line}");
            return line.clone();
        }
        assert!(told.is_empty() && start.elapsed() < WAIT, "{log}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

/// Without a request and without a look at /readyz: what the store is, whether it answers, and why it does not.
#[test]
fn start_says_whether_the_store_answers() {
    let wants = redis_server::Server::start(&["--requirepass s3cret"]);
    let replica = redis_server::Server::start(&["--replicaof 127.0.0.1 1"]);
    let (database, bare, redis) = (Database::new(), Database::new(), redis_server::Server::shared());
    let limited = bare.url.replace("postgres@", "limited@");
    let absent = "postgresql://ann:s3cret@127.0.0.1:1/shop".to_owned();
    for (keeps, store, why) in [
        (Keeps::Embedded, "embedded, in requests", None),
        (Keeps::Postgres(database.url.clone()), "postgres, in the table ratchet.request of database", None),
        (Keeps::Redis(redis.url("")), "redis, at 127.0.0.1:", None),
        (Keeps::Redis(wants.url(":wr0ng@")), "redis, at 127.0.0.1:", Some("it rejects the user or password")),
        (Keeps::Redis(replica.url("")), "redis, at 127.0.0.1:", Some("it is a replica: put the master")),
        (Keeps::Postgres(absent), r#"of database "shop" at 127.0.0.1:1 as user "ann""#, Some("127.0.0.1:1")),
        (
            Keeps::Postgres(limited),
            r#"as user "limited""#,
            Some("the table \"ratchet\".request is missing; let somebody"),
        ),
    ] {
        run(async {
            let (room, service) = (Room::new(), Service::counting().await);
            let proxy = room.start_on(&keeps, &service.url(), "");
            let message = if why.is_some() { "the store does not answer" } else { "the store answers" };
            let line = told_at_the_start(&proxy, message).await;
            assert_eq!(line["level"], if why.is_some() { "WARN" } else { "INFO" }, "{line}");
            assert!(line["store"].as_str().is_some_and(|said| said.contains(store)), "{line}");
            let said = line["problem"].as_str().unwrap_or_default();
            assert!(said.contains(why.unwrap_or_default()) && said.is_empty() == why.is_none(), "{line}");
            assert!(!proxy.log().contains("s3cret") && !proxy.log().contains("wr0ng"), "{}", proxy.log());
        });
    }
}

async fn until_ready(proxy: &Proxy, status: u16) -> Got {
    until(proxy, |ready| ready.status() == status).await
}

/// What is logged may be read later than what is answered.
async fn until_told(proxy: &Proxy, line: &str) {
    let start = std::time::Instant::now();
    while !proxy.log().contains(line) {
        assert!(start.elapsed() < WAIT, "{}", proxy.log());
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

async fn until(proxy: &Proxy, is_it: impl Fn(&Got) -> bool) -> Got {
    let start = std::time::Instant::now();
    loop {
        let ready = page(proxy.metrics, "/readyz?verbose").await;
        if is_it(&ready) {
            return ready;
        }
        assert!(start.elapsed() < WAIT, "{}", ready.text());
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

#[test]
fn nothing_is_run_while_the_store_is_down_unless_that_is_chosen() {
    let mut server = redis_server::Server::start(&[]);
    let keeps = Keeps::Redis(server.url(""));
    run(async {
        let (room, service) = (Room::new(), Service::counting().await);
        let more = "store_timeout: 1s\nroutes: [{path: /charges}, {path: '/*', on_store_down: pass}]";
        let proxy = room.start_on(&keeps, &service.url(), more);
        until_ready(&proxy, 200).await;
        server.kill();
        let refused = send(proxy.address, charge("k", "{}")).await;
        assert_eq!((refused.status(), refused.problem().as_str()), (503, "urn:ratchet:idempotency:store-down"));
        assert_eq!(service.runs(), 0);
        let passed = super::client::request("POST", "/other", &[("idempotency-key", "k")], "{}");
        assert_eq!(send(proxy.address, passed).await.status(), 201);
        let unprotected = r#"ratchet_http_requests_total{outcome="unprotected",route="/*"}"#;
        assert_eq!(metric(proxy.metrics, unprotected).await, 1.0);
        assert!(until_ready(&proxy, 503).await.text().contains("[-] store: does not answer"));
        assert_eq!(page(proxy.metrics, "/livez").await.status(), 200);
        assert!(metric(proxy.metrics, r#"ratchet_http_store_errors_total{operation="reserve"}"#).await >= 2.0);
        server.restart();
        until_ready(&proxy, 200).await;
        assert_eq!(send(proxy.address, charge("k", "{}")).await.status(), 201);
    });
}
