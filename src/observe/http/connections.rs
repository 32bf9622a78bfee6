//! The server's connections: a bounded number of them, each for a bounded time.
//!
//! **Invariant.** No more than [`Bounds::connections`] are open, but for one that is being let go. Where one more comes,
//! the one that has been open for longest gives way: whoever opens many, and says nothing, keeps nobody else out.
//!
//! **Failure**: what goes wrong with a connection ends it; that is its client's affair, and nobody else notices.

use std::collections::VecDeque;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

/// How much of a request's head is taken, and of an answer held until it is written.
const BUFFER_BYTES_MAX: usize = 16 << 10;

/// How many connections there may be, and what each may take.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// So many are open at once. Each is a file descriptor, which stores and clients of Kafka need too.
    pub connections: usize,
    /// For so long a request's head is waited for, the next one's on the same connection too.
    pub head: Duration,
    /// After so long a connection ends, whatever it does.
    pub connection: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { connections: 64, head: Duration::from_secs(10), connection: Duration::from_secs(60) }
    }
}

/// The connections that are open.
pub struct Connections {
    bounds: Bounds,
    router: Router,
    tasks: JoinSet<()>,
    /// The oldest first.
    open: VecDeque<AbortHandle>,
    /// Dropped when all are to end.
    stop: watch::Sender<()>,
}

impl Connections {
    /// None yet.
    pub fn new(router: Router, bounds: Bounds) -> Self {
        Self { bounds, router, tasks: JoinSet::new(), open: VecDeque::new(), stop: watch::Sender::new(()) }
    }

    /// Serves one more.
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

    /// Lets each finish the answer that is under way.
    pub async fn finish(self) {
        let Self { mut tasks, stop, .. } = self;
        drop(stop);
        while tasks.join_next().await.is_some() {}
    }
}

/// Answers what is asked on one connection.
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
            // an error says that the sender is gone, which is how the end is told
            _ = stopping.changed() => connection.as_mut().graceful_shutdown(),
        }
        connection.await
    };
    if let Ok(Err(error)) = tokio::time::timeout(bounds.connection, served).await {
        tracing::debug!(%error, "an HTTP connection has ended");
    }
}
