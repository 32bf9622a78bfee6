//! Opens a proxy's store of requests: where it remembers requests and their answers. `settings/store.rs` has the keys
//! of each kind of store.
//!
//! An operator **settles** a request whose outcome is unknown: records an answer for it, or has it forgotten.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::operator_socket;
use super::settings::StoreConfig;
use crate::http::request::operator::Settle;
use crate::http::request::{Answer, Error, Found, Reply, Reservation, StillHeld, Wanted};
use crate::http::{Requests, Store};
use crate::observe::StoreMetrics;
use crate::postgres;
use crate::redis;
use crate::tls::Renewed;
use crate::yaml::{Process, Text};

/// How often the size of the embedded store is measured.
const MEASURE_INTERVAL: Duration = Duration::from_secs(1);

/// The least time between two checks whether the files that hold a store's address have changed.
const ADDRESS_INTERVAL: Duration = Duration::from_secs(1);

/// An open store.
pub struct OpenedStore {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The folder of an embedded store; `None` for other stores, which are servers.
    pub folder: Option<Folder>,
}

/// The folder of an embedded store, which one process has open.
#[derive(Clone)]
pub struct Folder {
    /// Its path.
    pub dir: PathBuf,
    /// The same store, for operators, who can reach it only through this process.
    pub operator_store: Arc<dyn Settle>,
    requests: Arc<Requests>,
    /// The bound on the size of its files; `None` without a bound.
    bytes_max: Option<usize>,
}

impl Folder {
    /// Reports its size, and the bound on it, in metrics, until the task that runs this is aborted.
    pub async fn measure(self, metrics: StoreMetrics) {
        if let Some(bytes_max) = self.bytes_max {
            metrics.bytes_max(bytes_max as u64);
        }
        loop {
            let requests = Arc::clone(&self.requests);
            // A slow disk may block.
            if let Ok(bytes) = tokio::task::spawn_blocking(move || requests.bytes()).await {
                metrics.bytes(bytes);
            }
            tokio::time::sleep(MEASURE_INTERVAL).await;
        }
    }
}

/// Opens the store.
///
/// # Errors
/// Why it cannot be opened.
pub fn open(config: &StoreConfig) -> Result<OpenedStore, Error> {
    Ok(match config {
        StoreConfig::Embedded { dir, bytes_max } => {
            let requests = Requests::open(dir)?;
            let requests = Arc::new(match bytes_max {
                Some(bytes_max) => requests.bytes_max(*bytes_max as u64),
                None => requests,
            });
            let (store, operator_store) =
                (Arc::clone(&requests) as Arc<dyn Store>, Arc::clone(&requests) as Arc<dyn Settle>);
            let folder = Folder { dir: dir.clone(), operator_store, requests, bytes_max: *bytes_max };
            OpenedStore { store, folder: Some(folder) }
        }
        StoreConfig::Postgres { url, schema } => {
            let schema = schema.clone();
            OpenedStore {
                store: server_store(url, move |url| Ok(Arc::new(open_postgres(url, &schema)?)))?,
                folder: None,
            }
        }
        StoreConfig::Redis { url } => {
            OpenedStore { store: server_store(url, |url| Ok(Arc::new(open_redis(url)?)))?, folder: None }
        }
    })
}

/// A store on the server at this address. If parts of the address are in files, the address is read again, and the
/// store opened again, once the files have changed.
fn server_store(
    url: &Text,
    open: impl Fn(&Text) -> Result<Arc<dyn Store>, Error> + Send + Sync + 'static,
) -> Result<Arc<dyn Store>, Error> {
    if url.files().is_empty() {
        return open(url);
    }
    let configured_url = url.clone();
    let files = url.files().to_vec();
    let file_names = files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ");
    let renewed = Renewed::new(files, move || {
        let url = configured_url.read_again(&Process).map_err(|error| error.to_string())?;
        open(&url).map_err(|error| format!("the store's address in {file_names} cannot be used: {error}"))
    });
    let store = renewed.current().map_err(Error::Refused)?;
    let current = Mutex::new((Instant::now(), Arc::clone(&*store)));
    Ok(Arc::new(ReplaceableStore { renewed, current }))
}

/// Opens the store for an operator who lists and settles requests while proxies use it. Only one process can open a
/// folder: if a running proxy has it open, the queries are sent to that proxy.
///
/// # Errors
/// Why it cannot be opened.
pub async fn open_for_operator(config: &StoreConfig) -> Result<Box<dyn Settle>, Error> {
    Ok(match config {
        StoreConfig::Embedded { dir, .. } => match operator_socket::Remote::connect(dir).await {
            Some(remote) => Box::new(remote),
            None => Box::new(Requests::open_existing(dir)?),
        },
        StoreConfig::Postgres { url, schema } => Box::new(open_postgres(url, schema)?),
        StoreConfig::Redis { url } => Box::new(open_redis(url)?),
    })
}

fn open_postgres(url: &Text, schema: &str) -> Result<postgres::requests::Requests, Error> {
    postgres::requests::Requests::new(url.reveal(), schema)
}

fn open_redis(url: &Text) -> Result<redis::requests::Requests, Error> {
    let address = redis::Address::read(url.reveal()).map_err(Error::Refused)?;
    Ok(redis::requests::Requests::new(address))
}

/// A store whose address is in files, which are read at most once in [`ADDRESS_INTERVAL`]. While the address in them
/// cannot be used, the store at the former address remains.
struct ReplaceableStore {
    /// Opens the store again once the files have changed.
    renewed: Renewed<Arc<dyn Store>>,
    /// When the files were last read, and the store that has been in use since.
    current: Mutex<(Instant, Arc<dyn Store>)>,
}

impl ReplaceableStore {
    fn current(&self) -> Result<Arc<dyn Store>, Error> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.0.elapsed() >= ADDRESS_INTERVAL {
            let store = self.renewed.current().map_err(Error::Refused)?;
            *current = (Instant::now(), Arc::clone(&*store));
        }
        Ok(Arc::clone(&current.1))
    }
}

impl Store for ReplaceableStore {
    fn reserve<'a>(&'a self, wanted: &'a Wanted) -> Reply<'a, Found> {
        Box::pin(async move { self.current()?.reserve(wanted).await })
    }

    fn extend(&self, held: Reservation, lease: Duration) -> Reply<'_, StillHeld> {
        Box::pin(async move { self.current()?.extend(held, lease).await })
    }

    fn complete<'a>(&'a self, held: Reservation, answer: &'a Answer, retention: Duration) -> Reply<'a, StillHeld> {
        Box::pin(async move { self.current()?.complete(held, answer, retention).await })
    }

    fn release(&self, held: Reservation) -> Reply<'_, StillHeld> {
        Box::pin(async move { self.current()?.release(held).await })
    }

    fn tidy(&self) -> Reply<'_, usize> {
        Box::pin(async move { self.current()?.tidy().await })
    }

    fn check(&self) -> Reply<'_, ()> {
        Box::pin(async move { self.current()?.check().await })
    }
}

/// A store whose calls are counted and timed in metrics.
pub struct CountedStore {
    store: Arc<dyn Store>,
    metrics: StoreMetrics,
}

impl CountedStore {
    /// Counts the calls to this store in these metrics.
    pub fn new(store: Arc<dyn Store>, metrics: StoreMetrics) -> Self {
        Self { store, metrics }
    }

    fn count_call<'a, T: Send + 'a>(&'a self, operation: &'static str, reply: Reply<'a, T>) -> Reply<'a, T> {
        Box::pin(async move {
            let mut call = CountedCall { metrics: &self.metrics, operation, began: Instant::now(), is_answered: false };
            let result = reply.await;
            call.is_answered = result.is_ok();
            result
        })
    }
}

/// A call in progress. It counts as not answered if the caller stops waiting.
struct CountedCall<'a> {
    metrics: &'a StoreMetrics,
    operation: &'static str,
    began: Instant,
    is_answered: bool,
}

impl Drop for CountedCall<'_> {
    fn drop(&mut self) {
        self.metrics.call_ended(self.operation, self.began.elapsed(), self.is_answered);
    }
}

impl Store for CountedStore {
    fn reserve<'a>(&'a self, wanted: &'a Wanted) -> Reply<'a, Found> {
        self.count_call("reserve", self.store.reserve(wanted))
    }

    fn extend(&self, held: Reservation, lease: Duration) -> Reply<'_, StillHeld> {
        self.count_call("extend", self.store.extend(held, lease))
    }

    fn complete<'a>(&'a self, held: Reservation, answer: &'a Answer, retention: Duration) -> Reply<'a, StillHeld> {
        self.count_call("complete", self.store.complete(held, answer, retention))
    }

    fn release(&self, held: Reservation) -> Reply<'_, StillHeld> {
        self.count_call("release", self.store.release(held))
    }

    fn tidy(&self) -> Reply<'_, usize> {
        Box::pin(async {
            let removed = self.count_call("tidy", self.store.tidy()).await?;
            self.metrics.removed(removed);
            Ok(removed)
        })
    }

    fn check(&self) -> Reply<'_, ()> {
        self.count_call("check", self.store.check())
    }
}
