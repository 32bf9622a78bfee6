//! An embedded store without room: it refuses requests under new keys, goes on replaying, and takes new ones again once
//! there is room.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::client::{Got, charge, metric, outcomes, page, send};
use super::service::{Service, answer};
use crate::program::{Keeps, Proxy, Room};
use crate::until::DEADLINE;

/// Enough for what RocksDB keeps in reserve, and small enough to be filled.
const DISK: &str = "160m";
const ANSWER_BYTES: usize = 512 << 10;
/// How many answers a full store may still take, in what its log has in reserve.
const KEYS_MAX: usize = 1_000;

/// A service whose answers are large, and each another.
async fn service() -> Service {
    Service::start(async |_| answer(201, (0..ANSWER_BYTES).map(|_| rand::random()).collect::<Vec<u8>>())).await
}

/// A small disk under a proxy's folder, which only that process sees.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Has a proxy started with such a disk.
    fn command(room: &Room, service: &Service, settings: &str) -> Command {
        let proxy = room.command_on(&Keeps::Embedded, &service.url(), settings);
        fs::create_dir(room.path().join("requests")).unwrap();
        let mut command = Command::new("unshare");
        command.args(["--mount", "--map-root-user", "sh", "-c"]);
        command.arg(format!("mount -t tmpfs -o size={DISK} none requests && exec \"$0\" \"$@\""));
        command.arg(proxy.get_program()).args(proxy.get_args()).current_dir(room.path());
        command
    }

    /// The disk of this proxy.
    fn of(room: &Room, proxy: &Proxy) -> Self {
        let path = room.path().canonicalize().unwrap().join("requests/ballast");
        Self(PathBuf::from(format!("/proc/{}/root{}", proxy.pid(), path.display())))
    }

    fn fill(&self) {
        let mut file = File::create(&self.0).unwrap();
        let piece = vec![0; 64 << 10];
        while file.write_all(&piece).is_ok() {}
    }

    fn make_room(&self) {
        fs::remove_file(&self.0).unwrap();
    }
}

/// Sends requests under new keys until one is refused; the answers to the others, by their number.
async fn until_refused(proxy: &Proxy, name: &str) -> Vec<Got> {
    let mut given = Vec::new();
    loop {
        let got = send(proxy.address, charge(&format!("{name}-{}", given.len()), "{}")).await;
        if got.status() == 503 {
            assert_eq!(got.problem(), "urn:ratchet:idempotency:store-full");
            assert_eq!(got.header("retry-after"), Some("1"));
            assert!(got.text().contains("There is no room to remember another request"), "{}", got.text());
            return given;
        }
        assert_eq!(got.status(), 201, "{got:?}");
        given.push(got);
        assert!(given.len() < KEYS_MAX, "there is room for all: {}", proxy.log());
    }
}

/// How many of these are given again as they were.
async fn replayed(proxy: &Proxy, name: &str, given: &[Got]) -> usize {
    let mut count = 0;
    for (number, first) in given.iter().enumerate() {
        let again = send(proxy.address, charge(&format!("{name}-{number}"), "{}")).await;
        count += usize::from(again.is_replayed() && again.body == first.body);
    }
    count
}

/// A real disk: also what RocksDB does by itself then has to be borne.
#[tokio::test(flavor = "multi_thread")]
async fn full_disk_takes_nothing_new_and_replays_all() {
    let (room, service) = (Room::new(), service().await);
    let proxy = Proxy::start(SmallDisk::command(&room, &service, "store_timeout: 1s"));
    let mut before = Vec::new();
    for number in 0..30 {
        before.push(send(proxy.address, charge(&format!("before-{number}"), "{}")).await);
    }
    let disk = SmallDisk::of(&room, &proxy);
    disk.fill();
    let during = until_refused(&proxy, "during").await;
    let lost = outcomes(proxy.metrics, "not_remembered").await as usize;
    // Longer than the pause after which it is tried again.
    for _ in 0..3 {
        assert_eq!(replayed(&proxy, "before", &before).await, before.len(), "{}", proxy.log());
        assert_eq!(replayed(&proxy, "during", &during).await, during.len() - lost, "{}", proxy.log());
        assert_eq!(page(proxy.metrics, "/readyz").await.status(), 200, "it answers");
        sleep(Duration::from_millis(700)).await;
    }
    let runs = service.runs();
    assert!(until_refused(&proxy, "new").await.is_empty() && service.runs() == runs, "nothing is carried out");
    disk.make_room();
    until_taken(&proxy, "after").await;
    assert_eq!(replayed(&proxy, "before", &before).await, before.len());
    assert_eq!(replayed(&proxy, "during", &during).await, during.len() - lost);
}

async fn until_taken(proxy: &Proxy, key: &str) {
    let until = Instant::now() + DEADLINE;
    while send(proxy.address, charge(key, "{}")).await.status() != 201 {
        assert!(Instant::now() < until, "{}", proxy.log());
        sleep(Duration::from_millis(50)).await;
    }
}

/// `crates/http/src/requests/tests.rs` has how there is room again.
#[tokio::test(flavor = "multi_thread")]
async fn store_that_has_reached_its_bound_takes_nothing_new_and_replays_all() {
    let (room, service) = (Room::new(), service().await);
    let command = room.command_on(&Keeps::Embedded, &service.url(), "");
    let file = room.path().join("proxy.yaml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("{dir: requests}", "{dir: requests, store_bytes_max: 128MiB}")).unwrap();
    let proxy = Proxy::start(command);
    let given = until_refused(&proxy, "key").await;
    // An answer may be in the log and in a table file at the same time.
    assert!((64 << 10..=512 << 10).contains(&(given.len() * (ANSWER_BYTES >> 10))), "{}", given.len());
    let replayed = replayed(&proxy, "key", &given).await;
    assert_eq!(replayed, given.len(), "{}", proxy.log());
    assert_eq!(outcomes(proxy.metrics, "store_full").await, 1.0);
    let max = metric(proxy.metrics, "ratchet_http_store_bytes_max").await;
    assert_eq!(max, f64::from(128 << 20));
    let until = Instant::now() + DEADLINE;
    while metric(proxy.metrics, "ratchet_http_store_bytes").await < max {
        assert!(Instant::now() < until, "the size is not reported");
        sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(page(proxy.metrics, "/readyz").await.status(), 200, "it answers");
    assert!(proxy.log().contains("the store has reached its bound"), "{}", proxy.log());
}
