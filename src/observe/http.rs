//! Metrics and health over HTTP, read-only.
//!
//! | path | response |
//! |---|---|
//! | `/metrics` | the metrics in Prometheus' text format |
//! | `/livez` | 200 as long as the process responds; never depends on Kafka |
//! | `/readyz` | 200 or 503, by [`Health::ready`]; `?verbose` lists the checks |
//!
//! The server has its own thread with a single-threaded runtime, so a slow client holds up other
//! clients at worst, and never a lane. It ends when its [`Server`] is stopped or dropped. The resources that clients
//! may take are bounded: see `connections`.

use std::fmt::Write;
use std::net::{SocketAddr, TcpListener};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::sync::oneshot;

use super::metrics::CONTENT_TYPE;
use super::{Check, Health, Metrics};

mod connections;

use connections::{Bounds, Connections};

/// How long pending responses may still take when the server stops.
const STOP_MAX: Duration = Duration::from_millis(500);
/// How long the server waits after it could not accept a connection, as when no file descriptor is left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Why the server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is taken or not this machine's.
    #[error(
        "cannot listen on {address}: {source}; choose another one with `http` (`--http` of the proxy), or port 0 for any free one"
    )]
    Listen {
        /// The configured address.
        address: SocketAddr,
        /// The system's error.
        source: std::io::Error,
    },
    /// The system gave no thread or no event queue.
    #[error("cannot start the HTTP server: {0}")]
    Start(#[source] std::io::Error),
}

/// A running server.
pub struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// The address that it listens on; for port 0, with the port that was found.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts no more requests, gives pending ones half a second, and ends the thread.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        if let Some(stop) = self.stop.take() {
            // fails only if the server has ended already
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::warn!("the HTTP server's thread panicked");
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// Serves `metrics` and `health` on `address` until the returned server is stopped or dropped. It listens
/// already when this returns.
pub fn serve(address: SocketAddr, metrics: Metrics, health: Health) -> Result<Server, Error> {
    serve_within(Bounds::default(), address, metrics, health)
}

fn serve_within(bounds: Bounds, address: SocketAddr, metrics: Metrics, health: Health) -> Result<Server, Error> {
    let listener = TcpListener::bind(address).map_err(|source| Error::Listen { address, source })?;
    listener.set_nonblocking(true).map_err(Error::Start)?;
    let bound = listener.local_addr().map_err(Error::Start)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::Start)?;
    let (stop, stopped) = oneshot::channel();
    let connections = Connections::new(router(metrics, health), bounds);
    let thread = thread::Builder::new()
        .name("http".to_owned())
        .spawn(move || runtime.block_on(run(listener, connections, stopped)))
        .map_err(Error::Start)?;
    Ok(Server { address: bound, stop: Some(stop), thread: Some(thread) })
}

async fn run(listener: TcpListener, mut connections: Connections, mut stopped: oneshot::Receiver<()>) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "the HTTP server could not start");
            return;
        }
    };
    loop {
        let accepted = tokio::select! {
            // an error means that the `Server` is gone, which stops it as well
            _ = &mut stopped => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => connections.add(stream),
            Err(error) => {
                tracing::debug!(%error, "an HTTP connection could not be taken");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
        // Open connections come first: a flood of new ones would end each before its response.
        tokio::task::yield_now().await;
    }
    drop(listener);
    // requests still pending after that are cut off
    let _ = tokio::time::timeout(STOP_MAX, connections.finish()).await;
}

fn router(metrics: Metrics, health: Health) -> Router {
    Router::new()
        .route("/metrics", get(serve_metrics).with_state(metrics))
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(serve_readiness).with_state(health))
}

async fn serve_metrics(State(metrics): State<Metrics>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], metrics.render())
}

async fn serve_readiness(State(health): State<Health>, RawQuery(query): RawQuery) -> impl IntoResponse {
    let checks = health.ready();
    let ready = checks.iter().all(|check| check.ok);
    let code = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let verbose = query.is_some_and(|query| query.split('&').any(|word| word.split('=').next() == Some("verbose")));
    (code, readiness_text(&checks, ready, verbose))
}

/// One line per check, failing ones marked with `[-]`, then the result.
fn readiness_text(checks: &[Check], ready: bool, verbose: bool) -> String {
    let mut text = String::new();
    for Check { name, ok, detail } in checks.iter().filter(|_| verbose) {
        let mark = if *ok { '+' } else { '-' };
        let _ = writeln!(text, "[{mark}] {name}: {detail}");
    }
    text.push_str(if ready { "ready\n" } else { "not ready\n" });
    text
}

#[cfg(test)]
mod tests;
