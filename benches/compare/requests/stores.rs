//! The stores without HTTP: what each does in a second of what the layer asks of it, beside a bare command of the same
//! server by the same client library over as many connections.
//!
//! For PostgreSQL the bare command is an insert into a table of two columns, for Redis a SET with NX and PX, for the folder
//! an entry at the end of a file and its sync: by one thread, which takes all that wait at once, as the store's does.

mod append;
mod bare;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hyper::body::Bytes;
use ratchet::http::request::{
    Answer, AnswerBody, Fingerprint, Found, Id, OnInDoubt, Reservation, StillHeld, Store as Requests, Token, Wanted,
};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use super::keeper::{EVERYSEC, Keeper};
use super::{BODY_BYTES, Data, Place};
use crate::failure::{Context as _, Outcome, fail};
use crate::part::Bench;
use crate::random::mix;
use crate::usage::Usage;

pub use append::ENTRY_BYTES;
use bare::Bare;

/// How many ask at once.
pub const CALLERS: usize = 64;
/// Threads that they share.
const THREADS: usize = 2;
const MEASURE: Duration = Duration::from_secs(2);
const MEASURE_QUICK: Duration = Duration::from_millis(500);
const WARM_UP: Duration = Duration::from_millis(300);
/// As the layer has them by default.
const LEASE: Duration = Duration::from_secs(30);
const RETENTION: Duration = Duration::from_secs(86_400);

/// A store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Store {
    /// A folder.
    Embedded,
    /// PostgreSQL.
    Postgres,
    /// Redis, which syncs once a second.
    Redis,
}

impl Store {
    /// All of them.
    pub const ALL: [Store; 3] = [Store::Embedded, Store::Postgres, Store::Redis];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Store::Embedded => "embedded",
            Store::Postgres => "postgres",
            Store::Redis => "redis",
        }
    }

    /// What is asked of it.
    pub fn whats(self) -> &'static [What] {
        match self {
            Store::Embedded => &[What::Bare, What::Reserve, What::ReserveOnce, What::Both],
            Store::Postgres | Store::Redis => &[What::Bare, What::Reserve, What::Both],
        }
    }
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// A bare command.
    Bare,
    /// A reservation of a new request.
    Reserve,
    /// The same of one that is never carried out twice.
    ReserveOnce,
    /// A reservation, and then the answer: what one request costs.
    Both,
}

/// How a store has done.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Asked {
    pub round: usize,
    pub store: Store,
    pub what: What,
    /// How many a second.
    pub rate: f64,
    /// Microseconds of CPU each: of those who ask, and of the store's server.
    pub own_us: f64,
    pub server_us: f64,
}

/// How long each is measured.
pub fn measured_for(bench: &Bench) -> Duration {
    if bench.quick { MEASURE_QUICK } else { MEASURE.mul_f64(bench.scale.clamp(0.2, 1.0)) }
}

/// Measures all, in each round.
pub fn run(place: &Place<'_>, data: &mut Data, failures: &mut Vec<String>) {
    for round in 1..=place.bench.rounds {
        for store in Store::ALL {
            for &what in store.whats() {
                match measure(place, store, what, round) {
                    Ok(asked) => {
                        let Asked { rate, own_us, server_us, .. } = asked;
                        place.bench.progress.say(format!(
                            "round {round}: {}, {what:?}: {rate:.0}/s; CPU each: {own_us:.1} us, of the server \
                             {server_us:.1}",
                            store.name()
                        ));
                        data.stores.push(asked);
                    }
                    Err(failure) => {
                        let failure = format!("round {round}: {}, {what:?}: {failure}", store.name());
                        place.bench.progress.say(format!("FAILED: {failure}"));
                        failures.push(failure);
                    }
                }
            }
        }
    }
}

/// How long a lone sync takes, in microseconds.
pub fn sync_us(bench: &Bench) -> Outcome<u64> {
    let folder = bench.folder.join("sync");
    let took = append::alone(&folder, MEASURE_QUICK);
    let _ = std::fs::remove_dir_all(&folder);
    took
}

fn measure(place: &Place<'_>, store: Store, what: What, round: usize) -> Outcome<Asked> {
    let name = format!("stores-{round}-{what:?}").to_lowercase();
    let folder = place.bench.folder.join(&name);
    let keeper = match store {
        Store::Embedded => Keeper::Folder,
        Store::Postgres => Keeper::postgres(place, &name, bare::CREATE)?,
        Store::Redis => Keeper::redis(&EVERYSEC)?,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(THREADS).enable_all().build()?;
    let measured = runtime.block_on(async {
        let target = Arc::new(target(&keeper, what, &folder).await?);
        watch(place.bench, &keeper, target).await
    });
    // What they keep open is closed with them.
    drop(runtime);
    let _ = std::fs::remove_dir_all(&folder);
    let [rate, own_us, server_us] = measured?;
    Ok(Asked { round, store, what, rate, own_us, server_us })
}

/// Whom to ask, with a folder for what a folder keeps.
async fn target(keeper: &Keeper<'_>, what: What, folder: &Path) -> Outcome<Target> {
    if what == What::Bare {
        return Ok(Target::Bare(match keeper {
            Keeper::Folder => Bare::file(folder)?,
            Keeper::Postgres(_, database) => Bare::postgres(&database.url).await?,
            Keeper::Redis(redis) => Bare::redis(&redis.url()).await?,
        }));
    }
    let store: Box<dyn Requests> = match keeper {
        Keeper::Folder => Box::new(ratchet::http::Requests::open(folder).context("opening")?),
        Keeper::Postgres(_, database) => {
            let store = ratchet::postgres::requests::Requests::new(&database.url, "ratchet");
            Box::new(store.context("opening")?)
        }
        Keeper::Redis(redis) => {
            let address = ratchet::redis::Address::read(&redis.url()).context("an address")?;
            Box::new(ratchet::redis::requests::Requests::new(address))
        }
    };
    Ok(Target::Store(store, what))
}

/// What is asked, of whom.
enum Target {
    Bare(Bare),
    Store(Box<dyn Requests>, What),
}

impl Target {
    /// Asks once; `number` is asked for by nobody else.
    async fn ask(&self, number: u64) -> Outcome<()> {
        match self {
            Target::Bare(bare) => bare.once(number).await,
            Target::Store(store, what) => {
                let wanted = wanted(number, *what);
                let found = store.reserve(&wanted).await.context("reserving")?;
                if found != (Found::Reserved { taken_over: false }) {
                    fail!("a new request was answered {found:?}");
                }
                if *what == What::Both {
                    let still_held = store.complete(wanted.held, &answer(), RETENTION).await.context("completing")?;
                    if still_held != StillHeld::Yes {
                        fail!("an answer was not kept: {still_held:?}");
                    }
                }
                Ok(())
            }
        }
    }
}

/// 32 bytes that look drawn at random, another for each number.
fn digest(number: u64) -> [u8; 32] {
    let mut bytes = [0; 32];
    for (at, part) in bytes.chunks_exact_mut(8).enumerate() {
        part.copy_from_slice(&mix(number ^ (at as u64) << 56).to_be_bytes());
    }
    bytes
}

fn wanted(number: u64, what: What) -> Wanted {
    let mut token = [0; 16];
    token.copy_from_slice(&digest(!number)[..16]);
    Wanted {
        held: Reservation { id: Id(digest(number)), token: Token(token) },
        fingerprint: Fingerprint(digest(number ^ 1 << 48)),
        lease: LEASE,
        retention: RETENTION,
        on_in_doubt: if what == What::ReserveOnce { OnInDoubt::Refuse } else { OnInDoubt::Run },
    }
}

fn answer() -> Answer {
    Answer {
        status: 201,
        headers: vec![("content-type".to_owned(), Bytes::from_static(b"application/json"))],
        body: AnswerBody::Whole(Bytes::from_static(&[b'x'; BODY_BYTES])),
    }
}

/// Has all callers ask, and returns how often a second they were answered, and the CPU time of each of it.
async fn watch(bench: &Bench, keeper: &Keeper<'_>, target: Arc<Target>) -> Outcome<[f64; 3]> {
    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut callers: JoinSet<Outcome<()>> = JoinSet::new();
    for caller in 0..CALLERS as u64 {
        let (target, stop, done) = (Arc::clone(&target), Arc::clone(&stop), Arc::clone(&done));
        callers.spawn(async move {
            let mut number = caller;
            while !stop.load(Ordering::Relaxed) {
                target.ask(number).await?;
                done.fetch_add(1, Ordering::Relaxed);
                number += CALLERS as u64;
            }
            Ok(())
        });
    }
    let mark = || (Instant::now(), done.load(Ordering::Relaxed), Usage::alone(std::process::id()), keeper.usage());
    tokio::time::sleep(WARM_UP).await;
    let from = mark();
    tokio::time::sleep(measured_for(bench)).await;
    let to = mark();
    stop.store(true, Ordering::Relaxed);
    while let Some(ended) = callers.join_next().await {
        ended.context("a caller")??;
    }
    let asked = (to.1 - from.1).max(1) as f64;
    let micros = |from: &Usage, to: &Usage| to.cpu_since(from).as_secs_f64() * 1e6 / asked;
    Ok([asked / (to.0 - from.0).as_secs_f64(), micros(&from.2, &to.2), micros(&from.3, &to.3)])
}
