//! Load as `hey` or `oha` makes it: many connections for some seconds, a third of the requests under keys that were used
//! before. Each key is carried out once, all of its answers are equal, and nobody gets an error.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::client::charge;
use super::shop::Shop;
use crate::database::Database;
use crate::program::{Keeps, Room};
use crate::redis_server;

const CONNECTIONS: u64 = 64;
const LENGTH: Duration = Duration::from_secs(2);
/// Far fewer than any machine manages.
const REQUESTS_MIN: usize = 200;

/// What all connections share.
#[derive(Default)]
struct Load {
    /// How many keys were used.
    keys: AtomicU64,
    answers: Mutex<HashMap<u64, Bytes>>,
    took: Mutex<Vec<Duration>>,
    replayed: AtomicU64,
}

impl Load {
    /// A new key, or in a third of the cases one that was used, or is being used.
    fn key(&self) -> u64 {
        let used = self.keys.load(Ordering::Relaxed);
        if used > 0 && rand::random_range(0..3) == 0 {
            // Recent ones are at work more often.
            let back = if rand::random() { used } else { used.min(CONNECTIONS) };
            return used - 1 - rand::random_range(0..back);
        }
        self.keys.fetch_add(1, Ordering::Relaxed)
    }

    async fn connection(&self, address: std::net::SocketAddr) {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (mut sender, connection) = http1::handshake::<_, Full<Bytes>>(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let end = Instant::now() + LENGTH;
        while Instant::now() < end {
            let key = self.key();
            let began = Instant::now();
            sender.ready().await.unwrap();
            let answer = sender.send_request(charge(&format!("key-{key}"), r#"{"amount": 10}"#)).await.unwrap();
            let (head, body) = answer.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            self.took.lock().unwrap().push(began.elapsed());
            assert_eq!(head.status, 201, "{key}: {body:?}");
            self.replayed.fetch_add(u64::from(head.headers.contains_key("idempotent-replayed")), Ordering::Relaxed);
            let known = self.answers.lock().unwrap().entry(key).or_insert_with(|| body.clone()).clone();
            assert_eq!(known, body, "{key}");
        }
    }
}

async fn load(store: &str, keeps: Keeps) {
    let (shop, room) = (Shop::new(), Room::new());
    let service = shop.open().await;
    let proxy = room.start_on(&keeps, &service.url(), "wait: 30s");
    let (load, address, began) = (Arc::new(Load::default()), proxy.address, Instant::now());
    let all = (0..CONNECTIONS).map(|_| {
        let load = Arc::clone(&load);
        tokio::spawn(async move { load.connection(address).await })
    });
    for connection in all.collect::<Vec<_>>() {
        connection.await.unwrap();
    }
    let (mut took, length) = (std::mem::take(&mut *load.took.lock().unwrap()), began.elapsed());
    took.sort_unstable();
    let (count, keys) = (took.len(), load.answers.lock().unwrap().len());
    let (replayed, p99) = (load.replayed.load(Ordering::Relaxed), took[count * 99 / 100]);
    println!("{store}: {:.0} requests/s, p99 {p99:?}, {keys} keys", count as f64 / length.as_secs_f64());
    assert!(count > REQUESTS_MIN, "{count}");
    assert_eq!(shop.all(), (keys, keys), "each once");
    assert_eq!(replayed as usize, count - keys);
    let part = replayed as f64 / count as f64;
    assert!((0.2..0.45).contains(&part), "{part} were repeated");
}

fn run<F: Future<Output = ()>>(test: F) {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(test);
}

#[test]
fn embedded() {
    run(load("embedded", Keeps::Embedded));
}

#[test]
fn postgres() {
    let database = Database::new();
    run(load("postgres", Keeps::Postgres(database.url.clone())));
}

#[test]
fn redis() {
    let server = redis_server::Server::start(&[]);
    run(load("redis", Keeps::Redis(server.url(""))));
}
