//! The server's connections: a bounded number of them, each for a bounded time.
//!
//! **Invariant.** No more than [`Bounds::connections`] are open, besides one that is being closed. A new connection
//! replaces the oldest one, so a client that opens many silent connections locks nobody out.
//!
//! **Failure**: an error on a connection ends that connection and affects no other.

use std::collections::VecDeque;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

/// How much of a request's head is buffered, and of a response until it is written.
const BUFFER_BYTES_MAX: usize = 16 << 10;

/// How many connections there may be, and how long each may last.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Maximum number of open connections. Each takes a file descriptor, which stores and Kafka clients need too.
    pub connections: usize,
    /// How long to wait for a request's head, also the next one on the same connection.
    pub head: Duration,
    /// Maximum lifetime of a connection, even a busy one.
    pub connection: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { connections: 64, head: Duration::from_secs(10), connection: Duration::from_secs(60) }
    }
}

/// The open connections.
pub struct Connections {
    bounds: Bounds,
    router: Router,
    tasks: JoinSet<()>,
    /// The oldest first.
    open: VecDeque<AbortHandle>,
    /// Dropped to end all connections.
    stop: watch::Sender<()>,
}

impl Connections {
    /// None yet.
    pub fn new(router: Router, bounds: Bounds) -> Self {
        Self { bounds, router, tasks: JoinSet::new(), open: VecDeque::new(), stop: watch::Sender::new(()) }
    }

    /// Serves a new connection.
    pub fn add(&mut self, stream: TcpStream) {
        while self.tasks.try_join_next().is_some() {}
        self.open.retain(|task| !task.is_finished());
        if self.open.len() >= self.bounds.connections
            && let Some(oldest) = self.open.pop_front()
        {
            oldest.abort();
        }
        let (router, stopping, bounds) = (self.router.clone(), self.stop.subscribe(), self.bounds);
        self.open.push_back(self.tasks.spawn(serve(stream, router, stopping, bounds)));
    }

    /// Waits until each has finished its pending response.
    pub async fn finish(self) {
        let Self { mut tasks, stop, .. } = self;
        drop(stop);
        while tasks.join_next().await.is_some() {}
    }
}

/// Serves the requests on one connection.
async fn serve(stream: TcpStream, router: Router, mut stopping: watch::Receiver<()>, bounds: Bounds) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.head)
        .max_buf_size(BUFFER_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    tokio::pin!(connection);
    let served = async {
        tokio::select! {
            ended = connection.as_mut() => return ended,
            // an error means that the sender was dropped, which is the signal to end
            _ = stopping.changed() => connection.as_mut().graceful_shutdown(),
        }
        connection.await
    };
    if let Ok(Err(error)) = tokio::time::timeout(bounds.connection, served).await {
        tracing::debug!(%error, "an HTTP connection has ended");
    }
}
