//! Metrics and health over HTTP. Everything here only reads; there is nothing that changes anything.
//!
//! | path | answer |
//! |---|---|
//! | `/metrics` | the metrics in Prometheus' text format |
//! | `/livez` | 200 as long as the process answers; never depends on Kafka |
//! | `/readyz` | 200 or 503, by [`Health::ready`]; `?verbose` lists the checks |
//!
//! The server has a thread of its own with a single-threaded runtime, so a slow client holds up other
//! clients at worst and never a lane. It ends when its [`Server`] is stopped or dropped.

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

/// How long an answer that is under way may take when the server stops.
const STOP_MAX: Duration = Duration::from_millis(500);

/// Why the server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is taken or not this machine's.
    #[error("cannot listen on {address}: {source}; set `http` to another address, or to port 0 for any free one")]
    Listen {
        /// The address that was asked for.
        address: SocketAddr,
        /// The system's words.
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
    /// The address that it listens on; with the port that was found where port 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes no more requests, finishes those under way within half a second, and ends the thread.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        if let Some(stop) = self.stop.take() {
            // fails only if the server has ended by itself, which is what is wanted
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

/// Serves `metrics` and `health` on `address` until the answer is stopped or dropped. It listens already
/// when this returns.
pub fn serve(address: SocketAddr, metrics: Metrics, health: Health) -> Result<Server, Error> {
    let listener = TcpListener::bind(address).map_err(|source| Error::Listen { address, source })?;
    listener.set_nonblocking(true).map_err(Error::Start)?;
    let bound = listener.local_addr().map_err(Error::Start)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::Start)?;
    let (stop, stopped) = oneshot::channel();
    let router = router(metrics, health);
    let thread = thread::Builder::new()
        .name("http".to_owned())
        .spawn(move || runtime.block_on(run(listener, router, stopped)))
        .map_err(Error::Start)?;
    Ok(Server { address: bound, stop: Some(stop), thread: Some(thread) })
}

async fn run(listener: TcpListener, router: Router, stopped: oneshot::Receiver<()>) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "the HTTP server could not start");
            return;
        }
    };
    let (told, mut tell) = oneshot::channel::<()>();
    let stopping = async move {
        // an error means that the server's handle is gone, which stops it as well
        let _ = stopped.await;
        drop(told);
    };
    let serving = axum::serve(listener, router).with_graceful_shutdown(stopping).into_future();
    tokio::pin!(serving);
    let ended = tokio::select! {
        ended = &mut serving => ended,
        _ = &mut tell => tokio::time::timeout(STOP_MAX, serving).await.unwrap_or(Ok(())),
    };
    if let Err(error) = ended {
        tracing::error!(%error, "the HTTP server has ended");
    }
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

/// One line a check, those that fail marked by `[-]`, then the answer.
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
