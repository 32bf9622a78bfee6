//! The layer of [`crate::http`] as a program: a reverse proxy in front of a service in any language.
//!
//! ```text
//!  client ──► connections ──► app: which route ──► http::Guard ──► forward ──► upstream ──► service
//!             bounds, TLS      head: hop by hop     the layer       whether it   connections
//!                                                                   may have run
//! ```
//!
//! - `settings`: a proxy's file, with its schema
//! - `store`: opens the store of requests, of any kind
//! - `operator_socket`: serves `ratchet requests` while this process has the store's folder open
//! - `connections`, `activity`, `app`, `head`, `body`, `responses`: the clients' side
//! - `places`, `descriptors`, `usage`: the bounds on clients; each open connection has a place
//! - `forward`, `upstream`, `connect`, `problem`: the service's side
//!
//! **Invariant.** Requests without a key, and requests that need no key, are passed on as they arrive: bodies are not
//! buffered, and streams, trailers and web sockets work. A request is sent once: it moves to another connection only if
//! the first connection has not begun to write it.
//!
//! **Stop.** The proxy accepts no more connections, waits at most [`Config::stop_wait`] for requests at work, then
//! closes the store. Requests under a key that were cut off are in doubt: nobody knows whether they were carried out.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::http::Store;
use crate::observe::http::{self, Server};
use crate::observe::{Health, Metrics};
use crate::words::{agreeing, counted};

mod activity;
mod app;
mod body;
mod connect;
mod connections;
mod descriptors;
mod forward;
mod head;
mod operator_socket;
mod places;
mod problem;
mod responses;
mod routes;
mod settings;
pub mod store;
mod upstream;
mod usage;

pub use settings::{
    Bounds, COMMAND_LINE, CommandLineSettings, Config, KINDS, KeyUse, Route, Rule, StoreConfig, load, load_text,
    schema, to_yaml,
};

use app::App;
use connections::ClientListener;
use places::Places;
use store::OpenedStore;
use usage::Bound;

/// How often the store is checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The longest wait for the remaining tasks when the runtime is shut down.
const CUT_OFF_WAIT: Duration = Duration::from_millis(500);

/// Why a proxy could not start, or did not stop cleanly.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is in use, or is not this machine's.
    #[error("cannot listen on {address}: {source}; name another address, or port 0 for any free one")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The store could not be opened.
    #[error("{0}")]
    Store(crate::http::request::Error),
    /// Metrics and health cannot be served.
    #[error("{0}")]
    Http(#[from] http::Error),
    /// The runtime or signal handling could not be set up, or the listener has failed.
    #[error("cannot start: {0}")]
    Start(io::Error),
    /// The stop took too long or was cut short: this many requests are in doubt.
    #[error("{} under a key {} cut off, and {} in doubt", counted(*.0, "request"), agreeing(*.0, "was", "were"), agreeing(*.0, "is", "are"))]
    CutOff(usize),
}

impl Error {
    /// Whether a later start may succeed without any change.
    pub fn may_pass(&self) -> bool {
        !matches!(self, Self::Store(error) if !error.may_pass())
    }
}

/// Runs a proxy until the future that `stop` returns is ready. That future's output is a second one, which cuts the
/// stop short when it is ready.
///
/// # Errors
/// [`Error`].
pub fn run<S, C>(config: Config, stop: impl FnOnce() -> io::Result<S>) -> Result<(), Error>
where
    S: Future<Output = C>,
    C: Future<Output = ()>,
{
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Error::Start)?;
    let result = runtime.block_on(async { serve(config, stop().map_err(Error::Start)?).await });
    // The store is closed when the last reference to it is dropped.
    runtime.shutdown_timeout(CUT_OFF_WAIT);
    result
}

async fn serve<S, C>(config: Config, stop: S) -> Result<(), Error>
where
    S: Future<Output = C>,
    C: Future<Output = ()>,
{
    let config = Config { bounds: descriptors::fitted(config.bounds), ..config };
    let (metrics, health) = (Metrics::new(), Health::new());
    health.condition("listening", false, "does not listen yet");
    health.condition("store", false, "was not checked yet");
    let OpenedStore { store, folder } = store::open(&config.store).map_err(Error::Store)?;
    let store: Arc<dyn Store> = Arc::new(store::CountedStore::new(store, metrics.store()));
    let folder_tasks = folder.map(|folder| {
        let measuring = tokio::spawn(folder.clone().measure(metrics.store()));
        [measuring, tokio::spawn(operator_socket::serve(folder.dir, folder.operator_store))]
    });
    let app = Arc::new(App::new(&config, &store, &metrics));
    let address = config.listen;
    let listener = TcpListener::bind(address).await.map_err(|source| Error::Listen { address, source })?;
    let server = observe(&config, &metrics, &health)?;
    let address = listener.local_addr().map_err(Error::Start)?;
    tracing::info!(%address, store = config.store.kind(), "serving");
    health.condition("listening", true, "accepts connections");
    let check_task = tokio::spawn(check(store, config.store.describe(), health.clone(), config.store_wait));
    let (stop_sender, stop_receiver) = watch::channel(false);
    let tls = config.tls.map(Arc::new);
    let (places, usage_task) = open_places(&config.bounds, config.trusts_forwarded, &app, &metrics);
    let listener = ClientListener { listener, app: Arc::clone(&app), tls, bounds: config.bounds, places };
    let mut accept_task = tokio::spawn(listener.serve(stop_receiver));
    // Ready when the stop is to be cut short.
    let cut_off = tokio::select! {
        cut_off = stop => cut_off,
        // Nothing has stopped it yet, so this is a bug.
        result = &mut accept_task => {
            tracing::error!(?result, "connections are no longer accepted");
            return Err(Error::Start(io::Error::other("connections are no longer accepted")));
        }
    };
    health.condition("listening", false, "is stopping");
    // Fails only if every receiver is gone.
    let _ = stop_sender.send(true);
    let drained = async {
        drop(accept_task.await);
        app.idle().await;
    };
    let is_cut_off = tokio::select! {
        () = drained => false,
        () = cut_off => true,
        () = tokio::time::sleep(config.stop_wait) => true,
    };
    let result = match app.at_work() {
        _ if !is_cut_off => Ok(()),
        0 => {
            tracing::info!("what was still under way was cut off; no request with a key is in doubt because of that");
            Ok(())
        }
        count => Err(Error::CutOff(count)),
    };
    check_task.abort();
    usage_task.abort();
    folder_tasks.iter().flatten().for_each(JoinHandle::abort);
    server.into_iter().for_each(Server::stop);
    result
}

/// The places for connections, and the task that reports the use of all bounds.
fn open_places(
    bounds: &Bounds,
    is_behind_proxies: bool,
    app: &App,
    metrics: &Metrics,
) -> (Arc<Places>, JoinHandle<()>) {
    // Behind the operator's own proxies, all connections come from a few addresses, which therefore have no shares.
    let places = Places::new(bounds.connections_max, bounds.has_shares && !is_behind_proxies);
    let connections = Bound::new("connections_max", bounds.connections_max, places.shares(), metrics);
    let all_bounds = std::iter::once(connections).chain(app.bounds()).collect();
    (places, tokio::spawn(usage::watch(all_bounds)))
}

fn observe(config: &Config, metrics: &Metrics, health: &Health) -> Result<Option<Server>, Error> {
    let Some(address) = config.metrics_listen else { return Ok(None) };
    let server = http::serve(address, metrics.clone(), health.clone())?;
    tracing::info!(address = %server.address(), "serving /metrics, /livez and /readyz");
    Ok(Some(server))
}

/// Checks the store at intervals. Logs the first outcome and every change of it, including a new reason for failing.
async fn check(store: Arc<dyn Store>, store_name: String, health: Health, wait: Duration) {
    let mut last_problem = None;
    let mut is_first = true;
    loop {
        let problem = match tokio::time::timeout(wait, store.check()).await {
            Ok(check_result) => check_result.err().map(|error| error.to_string()),
            Err(_) => Some(format!("no answer within {} ms", wait.as_millis())),
        };
        match &problem {
            // The reason names the server and its user, so only the log has it.
            Some(_) => health.condition("store", false, "does not answer; the log says why"),
            None => health.condition("store", true, "answers"),
        }
        if is_first || problem != last_problem {
            match &problem {
                Some(problem) => tracing::warn!(store = store_name, %problem, "the store does not answer"),
                None if is_first => tracing::info!(store = store_name, "the store answers"),
                None => tracing::info!(store = store_name, "the store answers again"),
            }
            last_problem = problem;
        }
        is_first = false;
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
}
