//! Histories of the proxy: eight clients each ask for two keys at once, in front of a service that counts its runs, while the
//! proxy is killed again and again. `make histories` writes them, and has them judged by a program that shares no code with
//! this one (`judge`): whether some order of what was seen keeps what idempotency promises.
//!
//! What a client heard, and when it asked and heard it; when the service began and ended which run. A request whose client
//! heard nothing has no end, and neither has a run whose service nobody waited for.

mod record;
mod shop;

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http_body_util::BodyExt;

use crate::database::Database;
use crate::program::{Keeps, Room};
use crate::proxy::client::{Got, begin, charge};
use crate::random::{Random, mix};
use crate::redis_server;

use record::{Clock, History, Operation, Outcome};
use shop::{Life, Shop};

const CLIENTS: usize = 8;
/// How often each client asks.
const ASKS: usize = 3;
const KEYS: usize = 2;
/// Histories that are under way at the same time: a kill hits all of them.
const AT_ONCE: usize = 16;
/// A lease that is not extended is over soon.
const SETTINGS: &str = "lease: 2s\nwait: 300ms\nshares: none\nroutes:\n  - path: /refuse/*\n    on_in_doubt: refuse";
/// How long the end of a history waits for what its keys come to: longer than leases last.
const END_MAX: Duration = Duration::from_secs(20);

/// The proxy that is running at present.
struct Present {
    address: tokio::sync::watch::Sender<Option<SocketAddr>>,
    is_over: AtomicBool,
    kills: AtomicUsize,
}

/// Runs proxies, one after the other, and kills each at some moment.
async fn kill_again_and_again(keeps: Keeps, present: Arc<Present>, shop: Shop, mut random: Random) {
    let room = Arc::new(Room::new());
    while !present.is_over.load(Ordering::SeqCst) {
        let life = Life::begin(&shop).await;
        let (url, keeps, own) = (life.url(), keeps.clone(), Arc::clone(&room));
        let proxy = tokio::task::spawn_blocking(move || own.start_on(&keeps, &url, SETTINGS)).await.unwrap();
        present.address.send_replace(Some(proxy.address));
        tokio::time::sleep(Duration::from_millis(random.between(500, 2_500))).await;
        if present.is_over.load(Ordering::SeqCst) {
            return;
        }
        present.address.send_replace(None);
        tokio::task::spawn_blocking(move || proxy.kill()).await.unwrap();
        // What it has sent may still arrive.
        life.end(&shop);
        present.kills.fetch_add(1, Ordering::SeqCst);
    }
}

/// The whole of an answer, if it comes.
async fn whole(address: SocketAddr, asked: http::Request<http_body_util::Full<bytes::Bytes>>) -> Option<Got> {
    let (head, body) = begin(address, asked).await.ok()?.into_parts();
    Some(Got { head, body: body.collect().await.ok()?.to_bytes() })
}

/// Asks once; the operation, and whether it has the key's outcome.
async fn ask(client: usize, key: &str, path: &str, present: &Present, clock: Clock) -> (Operation, bool) {
    let mut addresses = present.address.subscribe();
    let address = addresses.wait_for(Option::is_some).await.unwrap().expect("it is there");
    let (mut asked, call) = (charge(key, "{}"), clock.now());
    *asked.uri_mut() = path.parse().unwrap();
    let got = whole(address, asked).await;
    let ended = got.is_some().then(|| clock.now());
    if got.is_none() {
        // Until the next one is there.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let outcome = got.map_or(Outcome::None, |got| match got.status() {
        201 => {
            Outcome::Answer(serde_json::from_slice::<serde_json::Value>(&got.body).unwrap()["run"].as_u64().unwrap())
        }
        409 if got.problem().ends_with(":in-doubt") => Outcome::InDoubt,
        409 => Outcome::InProgress,
        _ => Outcome::None,
    });
    let says = matches!(outcome, Outcome::Answer(_) | Outcome::InDoubt);
    (Operation::request(client, key, (call, ended), outcome), says)
}

/// A client asks a number of times, and then until it knows each key's outcome.
async fn client(
    number: usize,
    keys: Vec<String>,
    path: String,
    seed: u64,
    present: Arc<Present>,
    clock: Clock,
) -> Vec<Operation> {
    let (mut random, mut all) = (Random::new(mix(seed ^ mix(number as u64))), Vec::new());
    for _ in 0..ASKS {
        tokio::time::sleep(Duration::from_micros(random.below(6_000))).await;
        let key = &keys[random.below(KEYS as u64) as usize];
        all.push(ask(number, key, &path, &present, clock).await.0);
    }
    let deadline = clock.now() + END_MAX.as_nanos() as i64;
    for key in keys.iter().filter(|_| number.is_multiple_of(4)) {
        loop {
            let (operation, says) = ask(number, key, &path, &present, clock).await;
            all.push(operation);
            if says || clock.now() > deadline {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    all
}

async fn history(seed: u64, store: &'static str, present: Arc<Present>, shop: Shop) -> History {
    let refuses = mix(seed).is_multiple_of(2);
    let path = if refuses { "/refuse/charges" } else { "/run/charges" };
    let keys: Vec<String> = (0..KEYS).map(|number| format!("{seed}-{number}")).collect();
    let clock = shop.clock();
    let clients = (0..CLIENTS)
        .map(|number| tokio::spawn(client(number, keys.clone(), path.to_owned(), seed, Arc::clone(&present), clock)));
    let mut operations: Vec<Operation> =
        futures_util::future::join_all(clients).await.into_iter().flat_map(|all| all.unwrap()).collect();
    for key in &keys {
        operations.extend(shop.runs(key));
    }
    History { seed, store, on_in_doubt: if refuses { "refuse" } else { "run" }, operations }
}

async fn write(count: usize, store: &'static str, keeps: Keeps, first_seed: u64, file: &mut impl std::io::Write) {
    let (address, _) = tokio::sync::watch::channel(None);
    let present = Arc::new(Present { address, is_over: AtomicBool::new(false), kills: AtomicUsize::new(0) });
    let shop = Shop::new(first_seed);
    let killer = tokio::spawn(kill_again_and_again(keeps, Arc::clone(&present), shop.clone(), Random::new(first_seed)));
    let seeds: Vec<u64> = (0..count as u64).map(|number| mix(first_seed.wrapping_add(number))).collect();
    let mut tally = record::Tally::default();
    let all = seeds.into_iter().map(|seed| history(seed, store, Arc::clone(&present), shop.clone()));
    let mut all = futures_util::StreamExt::buffer_unordered(futures_util::stream::iter(all), AT_ONCE);
    while let Some(history) = futures_util::StreamExt::next(&mut all).await {
        tally.count(&history);
        serde_json::to_writer(&mut *file, &history.to_json()).unwrap();
        writeln!(file).unwrap();
    }
    present.is_over.store(true, Ordering::SeqCst);
    killer.await.unwrap();
    println!("histories: {store}: {count}, with {} kills: {tally}", present.kills.load(Ordering::SeqCst));
    tally.expect_all(count);
}

/// `RATCHET_HISTORIES` of them, a third on each store, into the file `RATCHET_HISTORIES_FILE`.
#[test]
#[ignore = "make histories judges what it writes"]
fn histories_on_all_stores() {
    let count: usize = std::env::var("RATCHET_HISTORIES").map_or(300, |count| count.parse().expect("a number"));
    let path = std::env::var_os("RATCHET_HISTORIES_FILE").expect("the file's name");
    let mut file = std::io::BufWriter::new(std::fs::File::create(PathBuf::from(path)).unwrap());
    let first_seed = Random::seeded("histories").next();
    let (database, redis) = (Database::new(), redis_server::Server::start(&[]));
    let stores = [
        ("embedded", Keeps::Embedded),
        ("postgres", Keeps::Postgres(database.url.clone())),
        ("redis", Keeps::Redis(redis.url(""))),
    ];
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    for (number, (store, keeps)) in stores.into_iter().enumerate() {
        let seed = mix(first_seed.wrapping_add(number as u64));
        runtime.block_on(write(count.div_ceil(3), store, keeps, seed, &mut file));
    }
    file.flush().unwrap();
}
