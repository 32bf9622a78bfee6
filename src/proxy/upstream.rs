//! The service behind the proxy: its address, and the connections to it.
//!
//! An HTTP/1.1 connection carries one request at a time, and is kept for the next request for a short time. It becomes
//! free a moment after its response has ended; a request that arrives in this moment waits for it. An HTTP/2 connection
//! carries as many requests as the service allows; further requests open another connection.
//!
//! **Whether a request may have arrived**: if a connection fails before it has begun to write a request, the request is
//! returned and goes to another connection. After that it is not known whether the service has received the request, so
//! it is not repeated, and the client's response says so.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::uri::{Authority, PathAndQuery, Scheme, Uri};
use http::{HeaderValue, Request, Response, Version, header};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use rustls::ClientConfig;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::connect::{NewConnection, connect};
use crate::http::Body;
use crate::tls::{self, ALPN_HTTP_1_1, ALPN_HTTP_2, Renewed};
use crate::words::error_text;

/// How long an unused connection is kept. Servers close theirs after 5 s or more; a request sent at that moment is
/// lost.
const IDLE_MAX: Duration = Duration::from_secs(4);
/// The most unused HTTP/1.1 connections that are kept.
const IDLE_CONNECTIONS_MAX: usize = 256;
/// How long a request waits for a connection whose response has ended to become free. That takes only a moment, unless
/// the service has responded before it has read the whole request.
const RETURN_WAIT: Duration = Duration::from_millis(50);
/// The most connections that are tried for one request, while each returns it unsent.
const CONNECTIONS_TRIED_MAX: usize = 3;

/// The protocol spoken with the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/2 if TLS negotiates it, otherwise HTTP/1.1.
    Auto,
    /// HTTP/1.1.
    Http1,
    /// HTTP/2.
    Http2,
}

/// The service's address, and how to connect to it.
#[derive(Clone, Debug)]
pub struct Origin {
    /// Its name or address, without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// How to speak TLS: for any version of HTTP that `protocol` allows, and for HTTP/1.1 alone. `None` without TLS.
    pub tls: Option<Arc<[Renewed<ClientConfig>; 2]>>,
    /// The protocol spoken with it.
    pub protocol: Protocol,
    /// How long connecting may take.
    pub connect_wait: Duration,
    scheme: Scheme,
    authority: Authority,
}

impl Origin {
    /// Reads an address such as `http://localhost:3000`; `None` if it is invalid, or has a path.
    pub fn parse(text: &str, protocol: Protocol, connect_wait: Duration) -> Option<Self> {
        let uri: Uri = text.parse().ok()?;
        let (scheme, authority) = (uri.scheme()?.clone(), uri.authority()?.clone());
        let port = match (authority.port_u16(), scheme.as_str()) {
            (Some(0), _) => return None,
            (Some(port), "http" | "https") => port,
            (None, "http") => 80,
            (None, "https") => 443,
            _ => return None,
        };
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        let has_only_origin = !authority.as_str().contains('@')
            && matches!(uri.path_and_query().map(PathAndQuery::as_str), None | Some("/"));
        // An invalid port would be taken for an absent one.
        let has_valid_port = authority.port_u16().is_some() || authority.as_str() == authority.host();
        (has_only_origin && has_valid_port && !host.is_empty()).then_some(Self {
            host,
            port,
            tls: None,
            protocol,
            connect_wait,
            scheme,
            authority,
        })
    }

    /// Adds TLS if the scheme is `https`. The file `authorities` has the certificates of the authorities that may sign
    /// the service's certificate; without a file, the system's authorities are trusted.
    ///
    /// # Errors
    /// Why TLS cannot be used.
    pub fn with_tls(self, authorities: Option<&Path>) -> Result<Self, String> {
        if self.scheme != Scheme::HTTPS {
            return Ok(self);
        }
        let any_version: &'static [&'static [u8]] = match self.protocol {
            Protocol::Auto => &[ALPN_HTTP_2, ALPN_HTTP_1_1],
            Protocol::Http1 => &[ALPN_HTTP_1_1],
            Protocol::Http2 => &[ALPN_HTTP_2],
        };
        let tls = [tls::client(authorities, any_version), tls::client(authorities, &[ALPN_HTTP_1_1])];
        tls.iter().try_for_each(|tls| tls.current().map(drop))?;
        Ok(Self { tls: Some(Arc::new(tls)), ..self })
    }

    /// Its address, in the form in which it was written.
    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.authority)
    }

    /// The value for the header `Host`.
    pub fn host_header(&self) -> Option<HeaderValue> {
        HeaderValue::from_str(self.authority.as_str()).ok()
    }
}

/// Why the service gave no response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// Nothing of the request was sent, or the service says that it has not begun to process it.
    #[error("the service has not begun the request: {0}")]
    NotSent(String),
    /// The request may have been sent, and the connection has ended.
    #[error("the answer was lost: {0}")]
    Lost(String),
    /// The request may have been sent, and no response arrived in time.
    #[error("no answer in time")]
    Late,
}

impl Failure {
    /// Its name in metrics.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::NotSent(_) => "not_sent",
            Self::Lost(_) => "lost",
            Self::Late => "late",
        }
    }
}

/// The connections to the service.
pub struct Upstream {
    origin: Origin,
    pool: Mutex<Pool>,
    /// Notifies waiting requests that a connection is free, or that one will not be free soon.
    returned: Notify,
}

#[derive(Default)]
struct Pool {
    /// Unused HTTP/1.1 connections, each with the time of its last use; the most recently used is last.
    http1: VecDeque<(http1::SendRequest<Body>, Instant)>,
    /// HTTP/2 connections, used or not.
    http2: Vec<Http2Connection>,
    /// The number of HTTP/1.1 connections that are about to be free.
    returning: usize,
    /// The number of requests that wait for one of these connections.
    waiting: usize,
}

#[derive(Clone)]
struct Http2Connection {
    sender: http2::SendRequest<Body>,
    /// Counts the requests on the connection: each holds a clone, so the strong count is one more than their number.
    request_count: Arc<()>,
    last_used: Instant,
    /// How many requests at a time the service allows, which it may change.
    streams_max: Arc<AtomicUsize>,
}

/// The service's response.
pub struct ServiceResponse {
    /// Its head, and its body, which is still arriving.
    pub response: Response<Incoming>,
    /// Must be held until the body has ended.
    pub slot: ConnectionSlot,
}

/// A request's slot on a connection, which is freed when this value is dropped.
pub struct ConnectionSlot {
    /// A whole HTTP/1.1 connection, and the pool to which it is returned.
    http1: Option<(http1::SendRequest<Body>, Arc<Upstream>)>,
    /// One stream of an HTTP/2 connection.
    _http2: Option<Arc<()>>,
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        if let Some((http1, upstream)) = self.http1.take() {
            upstream.return_connection(http1);
        }
    }
}

/// Counts a request among those that wait for a connection; dropping this ends the count.
struct Waiting<'a>(&'a Upstream);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.pool().waiting -= 1;
    }
}

/// A connection for one request.
enum Connection {
    Http1(http1::SendRequest<Body>),
    Http2(http2::SendRequest<Body>, Arc<()>),
}

impl Upstream {
    /// The connections to this service. Does not connect yet.
    pub fn new(origin: Origin) -> Self {
        Self { origin, pool: Mutex::default(), returned: Notify::new() }
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request, and returns its response once the head has arrived. Gives up when `timeout` completes, but
    /// connecting has a timeout of its own. A request that asks for another protocol (an upgrade) needs HTTP/1.1.
    pub async fn send(
        self: &Arc<Self>,
        mut request: Request<Body>,
        needs_http1: bool,
        timeout: impl Future<Output = ()>,
    ) -> Result<ServiceResponse, Failure> {
        let mut timeout = std::pin::pin!(timeout);
        let mut last_error = String::new();
        for attempt in 0..CONNECTIONS_TRIED_MAX {
            // After one pooled connection has failed, the others are likely to fail, too.
            let pooled = if attempt == 0 { self.take(needs_http1).await } else { None };
            let connection = match pooled {
                Some(pooled) => pooled,
                // Boxed: otherwise the large future of connecting would be part of each request's future, which is
                // moved.
                None => Box::pin(self.connect(needs_http1)).await.map_err(Failure::NotSent)?,
            };
            set_target(&mut request, &self.origin, matches!(connection, Connection::Http1(_)));
            let result = tokio::select! {
                result = self.send_on(connection, request) => result,
                () = &mut timeout => return Err(Failure::Late),
            };
            match result {
                Ok(response) => return Ok(response),
                Err((Some(unsent), error)) => (request, last_error) = (unsent, error_text(&error)),
                Err((None, error)) if is_refused_stream(&error) => return Err(Failure::NotSent(error_text(&error))),
                Err((None, error)) => return Err(Failure::Lost(error_text(&error))),
            }
        }
        Err(Failure::NotSent(last_error))
    }

    /// Sends a request on this connection. An error comes with the request if nothing of it was sent.
    async fn send_on(
        self: &Arc<Self>,
        connection: Connection,
        request: Request<Body>,
    ) -> Result<ServiceResponse, (Option<Request<Body>>, hyper::Error)> {
        match connection {
            Connection::Http1(mut http1) => {
                let result = http1.try_send_request(request).await;
                let response = result.map_err(|mut error| (error.take_message(), error.into_error()))?;
                Ok(ServiceResponse {
                    response,
                    slot: ConnectionSlot { http1: Some((http1, Arc::clone(self))), _http2: None },
                })
            }
            Connection::Http2(mut http2, stream) => {
                let result = http2.try_send_request(request).await;
                let response = result.map_err(|mut error| (error.take_message(), error.into_error()))?;
                Ok(ServiceResponse { response, slot: ConnectionSlot { http1: None, _http2: Some(stream) } })
            }
        }
    }

    /// A pooled connection, or one that becomes free within [`RETURN_WAIT`]; `None` if a new one is needed.
    async fn take(&self, needs_http1: bool) -> Option<Connection> {
        let deadline = Instant::now() + RETURN_WAIT;
        loop {
            // Enabled before the search, so that a connection returned in between is not missed.
            let mut returned = std::pin::pin!(self.returned.notified());
            returned.as_mut().enable();
            {
                let mut pool = self.pool();
                if let Some(connection) = pool.take(needs_http1) {
                    return Some(connection);
                }
                // Each request that waits already will get one of the connections that are about to be free.
                if pool.returning <= pool.waiting || Instant::now() >= deadline {
                    return None;
                }
                pool.waiting += 1;
            }
            let _waiting = Waiting(self);
            // After a timeout, the pool is searched once more.
            let _ = tokio::time::timeout_at(deadline, returned).await;
        }
    }

    /// Returns a connection whose response has ended to the pool, once it can be used again.
    fn return_connection(self: &Arc<Self>, mut http1: http1::SendRequest<Body>) {
        if http1.is_ready() {
            self.pool().put(http1);
            return self.returned.notify_waiters();
        }
        // Without a runtime, the program is ending.
        let Ok(runtime) = Handle::try_current() else { return };
        self.pool().returning += 1;
        let upstream = Arc::clone(self);
        runtime.spawn(async move {
            let ready = tokio::time::timeout(RETURN_WAIT, http1.ready()).await;
            {
                let mut pool = upstream.pool();
                pool.returning -= 1;
                if matches!(ready, Ok(Ok(()))) {
                    pool.put(http1);
                    upstream.returned.notify_waiters();
                    return;
                }
            }
            upstream.returned.notify_waiters();
            // No request waits for it any longer, but it is still useful once it is free.
            if ready.is_err() && http1.ready().await.is_ok() {
                upstream.pool().put(http1);
                upstream.returned.notify_waiters();
            }
        });
    }

    async fn connect(&self, needs_http1: bool) -> Result<Connection, String> {
        match connect(&self.origin, needs_http1).await? {
            NewConnection::Http1(connection) => Ok(Connection::Http1(connection)),
            NewConnection::Http2(sender, streams_max) => {
                let (request_count, last_used) = (Arc::new(()), Instant::now());
                let connection = Http2Connection { sender: sender.clone(), request_count, last_used, streams_max };
                let stream = Arc::clone(&connection.request_count);
                self.pool().http2.push(connection);
                Ok(Connection::Http2(sender, stream))
            }
        }
    }
}

impl Http2Connection {
    /// Whether the connection can take another request.
    fn is_free(&self) -> bool {
        Arc::strong_count(&self.request_count) <= self.streams_max.load(Ordering::Relaxed)
    }
}

impl Pool {
    /// A connection that can take a request; `None` if there is none.
    fn take(&mut self, needs_http1: bool) -> Option<Connection> {
        let is_unused = |connection: &Http2Connection| Arc::strong_count(&connection.request_count) == 1;
        let is_expired = |connection: &Http2Connection| {
            connection.sender.is_closed() || is_unused(connection) && connection.last_used.elapsed() > IDLE_MAX
        };
        self.http2.retain(|connection| !is_expired(connection));
        if !needs_http1 && let Some(connection) = self.http2.iter_mut().find(|connection| connection.is_free()) {
            connection.last_used = Instant::now();
            return Some(Connection::Http2(connection.sender.clone(), Arc::clone(&connection.request_count)));
        }
        while self.http1.front().is_some_and(|(connection, since)| connection.is_closed() || since.elapsed() > IDLE_MAX)
        {
            self.http1.pop_front();
        }
        while let Some((connection, since)) = self.http1.pop_back() {
            if connection.is_ready() && since.elapsed() <= IDLE_MAX {
                return Some(Connection::Http1(connection));
            }
        }
        None
    }

    /// Adds an unused connection; at the bound, drops the one that has been unused longest.
    fn put(&mut self, connection: http1::SendRequest<Body>) {
        if self.http1.len() >= IDLE_CONNECTIONS_MAX {
            self.http1.pop_front();
        }
        self.http1.push_back((connection, Instant::now()));
    }
}

/// Whether the service itself says that it has not begun to process the request (RFC 9113, 8.7).
fn is_refused_stream(error: &hyper::Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<h2::Error>());
    cause.is_some_and(|cause| {
        cause.is_remote() && cause.is_reset() && cause.reason() == Some(h2::Reason::REFUSED_STREAM)
    })
}

/// Sets a request's target for its connection: in HTTP/1.1 the host is a header, in HTTP/2 it is part of the URI.
fn set_target(request: &mut Request<Body>, origin: &Origin, is_http1: bool) {
    *request.version_mut() = if is_http1 { Version::HTTP_11 } else { Version::HTTP_2 };
    let uri = std::mem::take(request.uri_mut());
    let headers = request.headers_mut();
    let mut parts = uri.into_parts();
    let path = parts.path_and_query.take().unwrap_or_else(|| PathAndQuery::from_static("/"));
    if is_http1 {
        if !headers.contains_key(header::HOST)
            && let Some(host) = origin.host_header()
        {
            let authority = parts.authority.and_then(|authority| HeaderValue::from_str(authority.as_str()).ok());
            headers.insert(header::HOST, authority.unwrap_or(host));
        }
        *request.uri_mut() = Uri::from(path);
        return;
    }
    let host = headers.remove(header::HOST).and_then(|host| Authority::try_from(host.as_bytes()).ok());
    let mut target = http::uri::Parts::default();
    target.scheme = Some(origin.scheme.clone());
    target.authority = Some(host.or(parts.authority).unwrap_or_else(|| origin.authority.clone()));
    target.path_and_query = Some(path);
    if let Ok(uri) = Uri::from_parts(target) {
        *request.uri_mut() = uri;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<(String, u16)> {
        Origin::parse(text, Protocol::Auto, IDLE_MAX).map(|origin| (origin.host, origin.port))
    }

    #[test]
    fn upstream_must_be_an_origin() {
        assert_eq!(parsed("http://localhost:3000"), Some(("localhost".to_owned(), 3000)));
        assert_eq!(parsed("http://localhost/"), Some(("localhost".to_owned(), 80)));
        assert_eq!(parsed("https://api.example.com"), Some(("api.example.com".to_owned(), 443)));
        assert_eq!(parsed("http://[::1]:80"), Some(("::1".to_owned(), 80)));
        for text in [
            "localhost:3000",
            "/",
            "ftp://a",
            "http://",
            "http://a/path",
            "http://a?b",
            "http://u@a",
            "http://a:0",
            "http://a:99999",
        ] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }
}
