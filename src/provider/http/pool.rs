//! The connections for the calls of one lane (a thread that processes records), handed out in the order in which they
//! were requested.
//!
//! Requests wait in a queue, and connections are made for the waiting requests: for HTTP/1.1 one connection for each
//! request, for HTTP/2 one for as many requests as the other side allows at once. A connection that becomes free goes
//! to the first request in the queue, even if it was made for another one. Until the version of HTTP that an origin
//! speaks is known, only one connection is made.
//!
//! **Bounds.** A request waits here only once it has one of the `in_flight` permits, so at most `in_flight` connections
//! are in use. For each origin, at most `in_flight` connections are being made at once, and at most `in_flight` idle
//! ones are kept, for [`IDLE_MAX`].

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::connect::{Connection, Http1, Http2, connect};
use super::message::Origin;
use super::settings::Shared;
use crate::provider::thread::Tasks;

/// How long an idle connection is kept. Servers close idle connections after 5 s or more. A request that is sent as the
/// server closes its connection is lost: it may have been carried out, and only under a key can it be sent again.
const IDLE_MAX: Duration = Duration::from_secs(4);

/// The connections of a lane.
pub(super) struct Pool {
    pub shared: Arc<Shared>,
    tasks: Tasks,
    origins: RefCell<HashMap<Origin, Rc<OriginPool>>>,
}

/// The connections to one origin, and the requests that wait for one.
struct OriginPool {
    shared: Arc<Shared>,
    tasks: Tasks,
    origin: Origin,
    queue: RefCell<Queue>,
}

/// Connections, each with the time when it was last used.
type Timed<T> = Vec<(T, Instant)>;

/// An origin's waiting requests and its connections.
#[derive(Default)]
struct Queue {
    waiting: VecDeque<oneshot::Sender<Result<PooledConnection, String>>>,
    idle: Timed<Http1>,
    http2: Timed<Rc<SharedHttp2>>,
    /// How many connections are being made.
    connecting: usize,
    /// Whether the last connection spoke HTTP/1.1. Before the first connection: whether the origin has no TLS, and
    /// therefore no HTTP/2.
    is_http1: bool,
}

/// An HTTP/2 connection, and the number of requests that use it.
struct SharedHttp2 {
    connection: Http2,
    requests: std::cell::Cell<usize>,
}

/// A connection that one request may use. An HTTP/1.1 connection that was used is closed when this is dropped, unless
/// it can be used again.
pub(super) struct PooledConnection {
    origin_pool: Rc<OriginPool>,
    /// `None` only while this is dropped.
    connection: Option<UsableConnection>,
    /// Whether it was given a request, and has not been marked as reusable since.
    is_used: bool,
}

enum UsableConnection {
    Http1(Http1),
    Http2(Rc<SharedHttp2>),
}

/// The sender of a connection.
pub(super) enum Sender<'a> {
    Http1(&'a mut Http1),
    Http2(h2::client::SendRequest<bytes::Bytes>),
}

impl Pool {
    pub fn new(shared: Arc<Shared>, tasks: Tasks) -> Self {
        Self { shared, tasks, origins: RefCell::default() }
    }

    /// Waits in the queue for a connection to an origin.
    ///
    /// # Errors
    /// The reason why there is no connection.
    pub async fn connection(&self, origin: &Origin) -> Result<PooledConnection, String> {
        let connection = {
            let origin_pool = self.origin_pool(origin);
            let (waiter, connection) = oneshot::channel();
            origin_pool.queue.borrow_mut().waiting.push_back(waiter);
            origin_pool.serve_waiting();
            connection
        };
        connection.await.unwrap_or_else(|_| Err("the thread that makes the calls has ended".to_owned()))
    }

    fn origin_pool(&self, origin: &Origin) -> Rc<OriginPool> {
        let mut origins = self.origins.borrow_mut();
        let origin_pool = origins.entry(origin.clone()).or_insert_with(|| {
            let queue = RefCell::new(Queue { is_http1: !origin.is_tls, ..Queue::default() });
            let (shared, tasks) = (Arc::clone(&self.shared), self.tasks.clone());
            Rc::new(OriginPool { shared, tasks, origin: origin.clone(), queue })
        });
        Rc::clone(origin_pool)
    }

    /// Closes idle connections periodically.
    pub async fn sweep(self: Rc<Self>, interval: Duration) {
        loop {
            tokio::time::sleep(interval).await;
            // Closed connections are dropped outside of the borrow.
            let mut closed = Vec::new();
            self.origins.borrow_mut().retain(|_, origin_pool| {
                let queue = &mut *origin_pool.queue.borrow_mut();
                closed.push(queue.take_expired());
                let is_in_use = Rc::strong_count(origin_pool) > 1 || !queue.waiting.is_empty();
                is_in_use || !queue.idle.is_empty() || !queue.http2.is_empty()
            });
        }
    }
}

impl Queue {
    /// Removes connections that are closed or have been idle for too long.
    fn take_expired(&mut self) -> (Timed<Http1>, Timed<Rc<SharedHttp2>>) {
        let is_expired = |since: &Instant| since.elapsed() > IDLE_MAX;
        let idle = self.idle.extract_if(.., |(http1, since)| is_expired(since) || http1.sender.is_closed()).collect();
        let http2 = self.http2.extract_if(.., |(http2, since)| {
            http2.connection.is_closed() || http2.requests.get() == 0 && is_expired(since)
        });
        (idle, http2.collect())
    }

    /// Takes a connection that can carry a request at once.
    fn take_free(&mut self) -> Option<UsableConnection> {
        let has_room = |http2: &SharedHttp2| {
            !http2.connection.is_closed() && http2.requests.get() < http2.connection.streams_max()
        };
        if let Some((http2, _)) = self.http2.iter().find(|(http2, _)| has_room(http2)) {
            http2.requests.set(http2.requests.get() + 1);
            return Some(UsableConnection::Http2(Rc::clone(http2)));
        }
        // The most recently used one, so that the others can be closed.
        while let Some((http1, since)) = self.idle.pop() {
            if http1.sender.is_ready() && since.elapsed() <= IDLE_MAX {
                return Some(UsableConnection::Http1(http1));
            }
        }
        None
    }
}

impl OriginPool {
    /// Hands out free connections, and begins to make others for the requests that still wait.
    fn serve_waiting(self: &Rc<Self>) {
        loop {
            let (waiter, connection) = {
                let queue = &mut *self.queue.borrow_mut();
                queue.waiting.retain(|waiter| !waiter.is_closed());
                if queue.waiting.is_empty() {
                    return;
                }
                let Some(connection) = queue.take_free() else { break };
                (queue.waiting.pop_front(), connection)
            };
            let pooled =
                PooledConnection { origin_pool: Rc::clone(self), connection: Some(connection), is_used: false };
            if let Some(waiter) = waiter {
                // The request still waits: nothing has awaited since the check above.
                drop(waiter.send(Ok(pooled)));
            }
        }
        let queue = &mut *self.queue.borrow_mut();
        let wanted = if queue.is_http1 { queue.waiting.len() } else { 1 };
        while queue.connecting < wanted {
            queue.connecting += 1;
            self.tasks.start(Rc::clone(self).make_connection());
        }
    }

    /// Makes a connection, and hands it to the waiting requests.
    async fn make_connection(self: Rc<Self>) {
        let outcome = connect(&self.shared, &self.origin).await;
        let mut failed = Vec::new();
        {
            let queue = &mut *self.queue.borrow_mut();
            queue.connecting -= 1;
            match outcome {
                Ok(Connection::Http1(http1)) => {
                    queue.is_http1 = true;
                    queue.idle.push((http1, Instant::now()));
                }
                Ok(Connection::Http2(connection)) => {
                    queue.is_http1 = false;
                    queue.http2.push((Rc::new(SharedHttp2 { connection, requests: 0.into() }), Instant::now()));
                }
                Err(why) => {
                    // If the connection was made for all waiting requests, all of them get the error.
                    let count = if queue.is_http1 { 1 } else { queue.waiting.len() };
                    failed.extend(
                        queue.waiting.drain(..count.min(queue.waiting.len())).map(|waiter| (waiter, why.clone())),
                    );
                }
            }
        }
        for (waiter, why) in failed {
            // A request that has stopped waiting needs no error.
            drop(waiter.send(Err(why)));
        }
        self.serve_waiting();
    }

    fn put_back(self: &Rc<Self>, http1: Http1) {
        let queue = &mut *self.queue.borrow_mut();
        if queue.idle.len() < self.shared.in_flight {
            queue.idle.push((http1, Instant::now()));
        }
    }
}

impl PooledConnection {
    /// The sender of the connection, which is used from now on.
    pub fn sender(&mut self) -> Option<Sender<'_>> {
        self.is_used = true;
        match self.connection.as_mut()? {
            UsableConnection::Http1(http1) => {
                http1.unfinished.set(true);
                Some(Sender::Http1(http1))
            }
            UsableConnection::Http2(http2) => Some(Sender::Http2(http2.connection.sender())),
        }
    }

    /// Retires a connection that does not carry its request to the end: it gets no further requests. The other requests
    /// on an HTTP/2 connection continue.
    pub fn retire(mut self) {
        self.is_used = true;
        if let Some(UsableConnection::Http2(http2)) = &self.connection {
            http2.connection.unfinished.set(true);
            self.origin_pool.queue.borrow_mut().http2.retain(|(other, _)| !Rc::ptr_eq(other, http2));
        }
    }

    /// Records that the request has ended, and that the connection is ready for another one.
    pub fn mark_reusable(&mut self) {
        self.is_used = false;
        if let Some(UsableConnection::Http1(http1)) = &self.connection {
            http1.unfinished.set(false);
        }
    }

    /// Whether it is HTTP/1.1.
    pub fn is_http1(&self) -> bool {
        matches!(self.connection, Some(UsableConnection::Http1(_)))
    }
}

impl Drop for PooledConnection {
    fn drop(&mut self) {
        match self.connection.take() {
            Some(UsableConnection::Http1(http1)) if !self.is_used => self.origin_pool.put_back(http1),
            Some(UsableConnection::Http1(_)) | None => {}
            Some(UsableConnection::Http2(http2)) => {
                http2.requests.set(http2.requests.get() - 1);
                let queue = &mut *self.origin_pool.queue.borrow_mut();
                if let Some((_, since)) = queue.http2.iter_mut().find(|(other, _)| Rc::ptr_eq(other, &http2)) {
                    *since = Instant::now();
                }
            }
        }
        self.origin_pool.serve_waiting();
    }
}
