//! A proxy whose store is in trouble, of each kind and each store's: requests under a key are refused and not carried out,
//! services at work give their answers, nothing that was remembered runs again, and all is well when the trouble is
//! over, without a restart.

use std::net::SocketAddr;
use std::time::Duration;

use http::Request;
use http_body_util::Full;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use super::client::{Got, metric, outcomes, page, request, send};
use super::service::Service;
use super::shop::{HELD, Shop};
use crate::database::{Admin, Database, Server as Postgres, shared as shared_postgres};
use crate::disk::Disk;
use crate::program::{Keeps, Proxy, Room};
use crate::redis_server::Server as Redis;
use crate::relay::{Line, Relay};
use crate::until::{DEADLINE, within};

/// Longer than the store may take.
const SLOW: Duration = Duration::from_millis(1_500);
const SETTINGS: &str = "store_timeout: 1s\nlease: 2s\n\
    routes: [{path: /pass, on_store_down: pass}, {path: /strict, on_in_doubt: refuse}]";
/// How many requests a store that is full may still take.
const TAKEN_MAX: usize = 2_000;

/// A proxy, from before the trouble until after it.
struct Scene {
    runtime: Runtime,
    shop: Shop,
    _service: Service,
    proxy: Proxy,
    /// At work when the trouble begins.
    held: Vec<JoinHandle<Got>>,
    /// Carried out in spite of the trouble.
    taken: Vec<String>,
    refused: String,
    /// Whether the store says itself that it has no room.
    is_full: bool,
}

fn ask(path: &str, key: &str) -> Request<Full<bytes::Bytes>> {
    request("POST", path, &[("idempotency-key", key)], "{}")
}

/// The answer to a request that is held. On a busy machine a store may be down for a moment before its trouble begins.
async fn until_taken(proxy: SocketAddr, path: &'static str) -> Got {
    loop {
        let asked = request("POST", path, &[("idempotency-key", "held"), (HELD, "yes")], "{}");
        let got = send(proxy, asked).await;
        if got.status() != 503 && !is_at_work(&got) {
            return got;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn is_at_work(got: &Got) -> bool {
    got.status() == 409 && got.problem() == "urn:ratchet:idempotency:in-progress"
}

fn is_in_doubt(got: &Got) -> bool {
    got.status() == 409 && got.problem() == "urn:ratchet:idempotency:in-doubt"
}

impl Scene {
    fn start(start: impl FnOnce(&str) -> Proxy) -> Scene {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let shop = Shop::new();
        let service = runtime.block_on(shop.open());
        let proxy = start(&service.url());
        let mut scene = Scene {
            runtime,
            shop,
            _service: service,
            proxy,
            held: Vec::new(),
            taken: Vec::new(),
            refused: String::new(),
            is_full: false,
        };
        scene.ready();
        let before = scene.until_carried_out("/charges", "before");
        assert_eq!(before.text(), r#"{"run":1}"#, "{}", scene.proxy.log());
        for path in ["/charges", "/strict"] {
            scene.held.push(scene.runtime.spawn(until_taken(scene.proxy.address, path)));
        }
        within(DEADLINE, "both to be at work", || {
            (scene.shop.runs("/charges", "held") + scene.shop.runs("/strict", "held") == 2).then_some(())
        });
        scene
    }

    /// On a server at this address.
    fn on(keeps: &Keeps) -> (Scene, Room) {
        let room = Room::new();
        (Scene::start(|upstream| room.start_on(keeps, upstream, SETTINGS)), room)
    }

    fn send(&self, path: &str, key: &str) -> Got {
        self.runtime.block_on(send(self.proxy.address, ask(path, key)))
    }

    /// The store answers: that it is full, or may only be read, is no other answer.
    fn is_ready(&self) -> bool {
        self.runtime.block_on(page(self.proxy.metrics, "/readyz")).status() == 200
    }

    fn ready(&self) {
        within(DEADLINE, "the store to answer", || self.is_ready().then_some(()));
    }

    /// The trouble has begun.
    fn endure(&mut self) {
        for number in 0.. {
            let key = format!("new-{number}");
            let got = self.send("/charges", &key);
            if got.status() == 503 {
                let problem = if self.is_full { "store-full" } else { "store-down" };
                assert_eq!(got.problem(), format!("urn:ratchet:idempotency:{problem}"));
                assert_eq!(self.shop.runs("/charges", &key), 0);
                self.refused = key;
                break;
            }
            assert_eq!((got.status(), got.text(), got.is_replayed()), (201, r#"{"run":1}"#, false), "{key}");
            assert!(number < TAKEN_MAX, "the trouble has not begun");
            self.taken.push(key);
        }
        let strict = self.send("/strict", "new");
        assert!([201, 503].contains(&strict.status()), "{strict:?}");
        assert_eq!(self.shop.runs("/strict", "new"), usize::from(strict.status() == 201));
        let refused = r#"ratchet_http_store_errors_total{operation="reserve"}"#;
        assert!(self.runtime.block_on(metric(self.proxy.metrics, refused)) >= 1.0);
        let before = self.send("/charges", "before");
        assert!(
            before.status() == 503 && !self.is_full || before.is_replayed() && before.text() == r#"{"run":1}"#,
            "nobody knows that it was not carried out: {before:?}"
        );
        assert_eq!(self.send("/pass", "passed").status(), 201);
        // What was done is said, whether it can be remembered or not.
        self.shop.may.add_permits(2);
        for held in std::mem::take(&mut self.held) {
            let got = self.runtime.block_on(held).unwrap();
            assert_eq!((got.status(), got.text()), (201, r#"{"run":1}"#), "{}", self.proxy.log());
        }
        assert_eq!(self.shop.runs("/charges", "before"), 1);
    }

    /// The trouble is over.
    fn recover(mut self) {
        self.ready();
        let refused = std::mem::take(&mut self.refused);
        let now = self.until_carried_out("/charges", &refused);
        assert_eq!((now.text(), self.shop.runs("/charges", &refused)), (r#"{"run":1}"#, 1));
        for key in ["before", &refused] {
            let again = self.until_carried_out("/charges", key);
            assert_eq!((again.text(), again.is_replayed(), self.shop.runs("/charges", key)), (r#"{"run":1}"#, true, 1));
        }
        // There may have been room for a reservation, and none for its answer.
        let not_remembered = self.runtime.block_on(outcomes(self.proxy.metrics, "not_remembered")) as usize;
        let again: Vec<_> = self.taken.iter().map(|key| self.until_carried_out("/charges", key)).collect();
        assert!(again.iter().filter(|again| again.text() != r#"{"run":1}"#).count() <= not_remembered, "{again:?}");
        let runs: usize = self.taken.iter().map(|key| self.shop.runs("/charges", key)).sum();
        assert!(runs <= self.taken.len() + not_remembered, "{runs}");
        // Its answer was remembered, or it was in doubt; then it was carried out again, and that is its answer.
        let held = self.until_carried_out("/charges", "held");
        assert!(held.is_replayed() || held.text() == r#"{"run":2}"#, "{held:?}");
        let again = self.send("/charges", "held");
        assert_eq!((again.text(), again.is_replayed()), (held.text(), true));
        // The same where nothing may run twice.
        let held = self.until_settled("held");
        assert!(held.is_replayed() || is_in_doubt(&held), "it may have been carried out: {held:?}");
        assert_eq!(self.shop.runs("/strict", "held"), 1);
        // Its reservation may have reached the store, though nobody was told.
        let before = self.shop.runs("/strict", "new");
        let new = self.until_settled("new");
        let runs = if is_in_doubt(&new) { before } else { 1 };
        assert_eq!((new.status() == 201, self.shop.runs("/strict", "new")), (!is_in_doubt(&new), runs), "{new:?}");
    }

    /// The answer where nothing may run twice, when nobody is at work any more.
    fn until_settled(&self, key: &str) -> Got {
        within(DEADLINE, "its lease to end", || {
            let got = self.send("/strict", key);
            (got.status() != 503 && !is_at_work(&got)).then_some(got)
        })
    }

    /// The answer, when the store is back and nobody is at work any more.
    fn until_carried_out(&self, path: &str, key: &str) -> Got {
        within(DEADLINE, "an answer", || {
            let got = self.send(path, key);
            if got.status() == 201 {
                return Some(got);
            }
            assert!([409, 503].contains(&got.status()), "{got:?}");
            None
        })
    }
}

/// A proxy with its store on a disk that can be slow or full.
fn on_a_disk() -> (Scene, Disk, Room) {
    let room = Room::new();
    let path = room.path().canonicalize().unwrap();
    let disk = Disk::of(&path, &path.join("requests"));
    let scene = Scene::start(|upstream| {
        let mut command = room.command_on(&Keeps::Embedded, upstream, SETTINGS);
        command.envs(disk.variables());
        Proxy::start(command)
    });
    (scene, disk, room)
}

/// Rides out all of these at once: a trouble is mostly waited for.
fn all(troubles: &[(&str, fn())]) {
    std::thread::scope(|scope| {
        for (name, trouble) in troubles {
            std::thread::Builder::new().name((*name).to_owned()).spawn_scoped(scope, trouble).unwrap();
        }
    });
}

/// A test that rides out some troubles.
macro_rules! troubles {
    ($store:ident: $($trouble:ident),+ $(,)?) => {
        #[test]
        fn $store() {
            all(&[$((stringify!($trouble), $trouble)),+]);
        }
    };
}

troubles!(
    embedded:
    embedded_on_a_full_disk,
    embedded_on_a_slow_disk,
);
troubles!(
    postgres:
    postgres_that_is_frozen,
    postgres_that_was_killed,
    postgres_that_is_full,
    postgres_that_may_only_be_read,
    postgres_that_is_slow,
    postgres_that_is_silent,
    postgres_that_is_cut_off,
);
troubles!(
    redis:
    redis_that_is_frozen,
    redis_that_was_killed_and_keeps_its_data,
    redis_that_is_full,
    redis_that_has_become_a_replica,
    redis_that_is_slow,
    redis_that_is_silent,
    redis_that_is_cut_off,
);

fn embedded_on_a_full_disk() {
    let (mut scene, disk, _room) = on_a_disk();
    disk.fill(true);
    scene.is_full = true;
    scene.endure();
    scene.ready();
    assert!(scene.proxy.log().contains("No space left on device"), "{}", scene.proxy.log());
    disk.fill(false);
    scene.recover();
}

fn embedded_on_a_slow_disk() {
    let (mut scene, disk, _room) = on_a_disk();
    disk.pause(SLOW);
    scene.endure();
    disk.pause(Duration::ZERO);
    scene.recover();
}

fn postgres_that_is_frozen() {
    let server = Postgres::start("requests-frozen", &[]);
    let (mut scene, _room) = Scene::on(&Keeps::Postgres(server.url("postgres", "postgres")));
    let frozen = server.freeze();
    scene.endure();
    drop(frozen);
    scene.recover();
}

fn postgres_that_was_killed() {
    let mut server = Postgres::start("requests-killed", &[]);
    let (mut scene, _room) = Scene::on(&Keeps::Postgres(server.url("postgres", "postgres")));
    server.kill();
    scene.endure();
    server.start_again();
    scene.recover();
}

fn postgres_that_is_full() {
    let mut disk = None;
    let server = Postgres::start_with("requests-full", &["autovacuum=off"], |home| {
        let home = home.canonicalize().unwrap();
        disk.insert(Disk::of(&home, &home.join("data/base"))).variables()
    });
    let disk = disk.unwrap();
    let (mut scene, _room) = Scene::on(&Keeps::Postgres(server.url("postgres", "postgres")));
    disk.fill(true);
    scene.is_full = true;
    scene.endure();
    assert!(scene.proxy.log().contains("No space left on device"), "{}", scene.proxy.log());
    disk.fill(false);
    scene.recover();
}

fn postgres_that_may_only_be_read() {
    let server = Postgres::start("requests-read-only", &[]);
    let url = server.url("postgres", "postgres");
    let (mut scene, _room) = Scene::on(&Keeps::Postgres(url.clone()));
    let admin = Admin::connect(&url);
    admin.run("alter system set default_transaction_read_only = on");
    admin.run("select pg_reload_conf()");
    scene.endure();
    scene.ready();
    admin.run("alter system reset default_transaction_read_only");
    admin.run("select pg_reload_conf()");
    scene.recover();
}

/// The line to a server of PostgreSQL's that all share.
fn line_to_postgres(line: Line) {
    let database = Database::new();
    let relay = Relay::to(shared_postgres().port.number());
    let url = database.url.replace(&format!(":{}/", shared_postgres().port), &format!(":{}/", relay.port));
    let (mut scene, _room) = Scene::on(&Keeps::Postgres(url));
    relay.set(line);
    scene.endure();
    relay.set(Line::Clear);
    scene.recover();
}

fn postgres_that_is_slow() {
    line_to_postgres(Line::Slow(SLOW));
}

fn postgres_that_is_silent() {
    line_to_postgres(Line::Silent);
}

fn postgres_that_is_cut_off() {
    line_to_postgres(Line::Cut);
}

fn redis_that_is_frozen() {
    let server = Redis::start(&[]);
    let (mut scene, _room) = Scene::on(&Keeps::Redis(server.url("")));
    server.freeze();
    scene.endure();
    server.thaw();
    scene.recover();
}

fn redis_that_was_killed_and_keeps_its_data() {
    let mut server = Redis::start(&["--appendonly yes", "--appendfsync always"]);
    let (mut scene, _room) = Scene::on(&Keeps::Redis(server.url("")));
    server.kill();
    scene.endure();
    server.restart();
    scene.recover();
}

fn redis_that_is_full() {
    let server = Redis::start(&[]);
    let (mut scene, _room) = Scene::on(&Keeps::Redis(server.url("")));
    server.ask::<String>("CONFIG SET maxmemory 1");
    scene.is_full = true;
    scene.endure();
    scene.ready();
    server.ask::<String>("CONFIG SET maxmemory 0");
    scene.recover();
}

fn redis_that_has_become_a_replica() {
    let server = Redis::start(&[]);
    let (mut scene, _room) = Scene::on(&Keeps::Redis(server.url("")));
    server.ask::<String>("REPLICAOF 127.0.0.1 1");
    scene.endure();
    within(DEADLINE, "readiness to say so", || (!scene.is_ready()).then_some(()));
    server.ask::<String>("REPLICAOF NO ONE");
    scene.recover();
}

/// The line to a server of Redis's that all share.
fn line_to_redis(line: Line) {
    let relay = Relay::to(Redis::shared().port.number());
    let (mut scene, _room) = Scene::on(&Keeps::Redis(format!("redis://127.0.0.1:{}/{}", relay.port, next_database())));
    relay.set(line);
    scene.endure();
    relay.set(Line::Clear);
    scene.recover();
}

/// A database of the shared server that nobody else uses.
fn next_database() -> u32 {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(1);
    NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

fn redis_that_is_slow() {
    line_to_redis(Line::Slow(SLOW));
}

fn redis_that_is_silent() {
    line_to_redis(Line::Silent);
}

fn redis_that_is_cut_off() {
    line_to_redis(Line::Cut);
}
