//! The service behind the proxy: its address, and the connections to it.
//!
//! An HTTP/1.1 connection carries one request at a time, and is kept for the next one for a short time. It becomes free
//! a moment after its answer has ended; the next request waits for that rather than open a connection. An HTTP/2
//! connection carries as many requests as the service allows; further ones open another connection.
//!
//! **Whether a request may have arrived** depends on how far it got: until a connection has begun to write it, it is
//! returned and goes to another connection. From then on nobody knows, so it is not repeated, and its answer says so.

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

use super::connect::{Made, connect};
use crate::http::Body;
use crate::tls::{self, ALPN_HTTP_1_1, ALPN_HTTP_2, Renewed};
use crate::words::said;

/// How long an unused connection is kept. Servers close theirs after 5 s or more; a request sent at that moment is
/// lost.
const IDLE_MAX: Duration = Duration::from_secs(4);
/// The most unused HTTP/1.1 connections that are kept.
const KEPT_MAX: usize = 256;
/// The longest that a request waits for a connection whose answer has ended. The connection is free at once, unless the
/// service has answered before it had read the whole request.
const RETURN_WAIT: Duration = Duration::from_millis(50);
/// The most connections tried for a request, one after the other, while they return it unsent.
const GIVEN_BACK_MAX: usize = 3;

/// The protocol spoken with the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/2 if TLS negotiates it, otherwise HTTP/1.1.
    Auto,
    /// HTTP/1.1.
    One,
    /// HTTP/2.
    Two,
}

/// The service's address, and how to connect to it.
#[derive(Clone, Debug)]
pub struct Origin {
    /// Its name or address, without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// TLS for any request, and for those that need HTTP/1.1; `None` without TLS.
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
        let is_plain = !authority.as_str().contains('@')
            && matches!(uri.path_and_query().map(PathAndQuery::as_str), None | Some("/"));
        // An invalid port would be taken for an absent one.
        let is_port = authority.port_u16().is_some() || authority.as_str() == authority.host();
        (is_plain && is_port && !host.is_empty()).then_some(Self {
            host,
            port,
            tls: None,
            protocol,
            connect_wait,
            scheme,
            authority,
        })
    }

    /// The same, with TLS if its scheme is `https`.
    ///
    /// # Errors
    /// Why TLS cannot be spoken.
    pub fn with_tls(self, authorities: Option<&Path>) -> Result<Self, String> {
        if self.scheme != Scheme::HTTPS {
            return Ok(self);
        }
        let any: &'static [&'static [u8]] = match self.protocol {
            Protocol::Auto => &[ALPN_HTTP_2, ALPN_HTTP_1_1],
            Protocol::One => &[ALPN_HTTP_1_1],
            Protocol::Two => &[ALPN_HTTP_2],
        };
        let tls = [tls::client(authorities, any), tls::client(authorities, &[ALPN_HTTP_1_1])];
        tls.iter().try_for_each(|tls| tls.now().map(drop))?;
        Ok(Self { tls: Some(Arc::new(tls)), ..self })
    }

    /// Its address, as it was written.
    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.authority)
    }

    /// Its value as a `Host`.
    pub fn host_header(&self) -> Option<HeaderValue> {
        HeaderValue::from_str(self.authority.as_str()).ok()
    }
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// Nothing of the request was sent.
    #[error("nothing was sent: {0}")]
    NotSent(String),
    /// The request may have been sent, and the connection has ended.
    #[error("the answer was lost: {0}")]
    Lost(String),
    /// The request may have been sent, and no answer came in time.
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
    kept: Mutex<Kept>,
    /// Tells waiting requests that a connection is free, or that one will not be free soon.
    returned: Notify,
}

#[derive(Default)]
struct Kept {
    /// Unused HTTP/1.1 connections, each with the time of its last use; the most recently used is last.
    ones: VecDeque<(http1::SendRequest<Body>, Instant)>,
    /// HTTP/2 connections, used or not.
    twos: Vec<Two>,
    /// How many HTTP/1.1 connections are about to be free, and how many requests wait for one of them.
    returning: usize,
    waiting: usize,
}

#[derive(Clone)]
struct Two {
    sender: http2::SendRequest<Body>,
    used: Arc<()>,
    since: Instant,
    allowed: Arc<AtomicUsize>,
}

/// The service's answer.
pub struct Answer {
    /// Its head, and its body as it comes.
    pub answer: Response<Incoming>,
    /// To be held until the body has ended.
    pub used: Used,
}

/// A request's place on a connection, which is freed when this is dropped.
pub struct Used {
    /// A whole HTTP/1.1 connection, and where it is returned to.
    one: Option<(http1::SendRequest<Body>, Arc<Upstream>)>,
    /// One request's place on an HTTP/2 connection.
    _two: Option<Arc<()>>,
}

impl Drop for Used {
    fn drop(&mut self) {
        if let Some((one, upstream)) = self.one.take() {
            upstream.give_back(one);
        }
    }
}

/// Counts a request as waiting for a connection until this is dropped.
struct Waiting<'a>(&'a Upstream);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.kept().waiting -= 1;
    }
}

/// A connection for one request.
enum Lease {
    One(http1::SendRequest<Body>),
    Two(http2::SendRequest<Body>, Arc<()>),
}

impl Upstream {
    /// Does not connect yet.
    pub fn new(origin: Origin) -> Self {
        Self { origin, kept: Mutex::default(), returned: Notify::new() }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request, and returns its answer once the head has come. Gives up when `late` is ready.
    pub async fn send(
        self: &Arc<Self>,
        mut request: Request<Body>,
        needs_one: bool,
        late: impl Future<Output = ()>,
    ) -> Result<Answer, Failure> {
        let mut late = std::pin::pin!(late);
        let mut why = String::new();
        for round in 0..GIVEN_BACK_MAX {
            // After one kept connection has failed, the others are not worth a try.
            let kept = if round == 0 { self.take(needs_one).await } else { None };
            let lease = match kept {
                Some(kept) => kept,
                // Boxed: otherwise the large future of connecting would be part of each request's future, which is
                // moved.
                None => Box::pin(self.connect(needs_one)).await.map_err(Failure::NotSent)?,
            };
            address(&mut request, &self.origin, matches!(lease, Lease::One(_)));
            let sent = tokio::select! {
                sent = self.send_on(lease, request) => sent,
                () = &mut late => return Err(Failure::Late),
            };
            match sent {
                Ok(answer) => return Ok(answer),
                Err((Some(unsent), error)) => (request, why) = (unsent, said(&error)),
                Err((None, error)) if is_refused(&error) => return Err(Failure::NotSent(said(&error))),
                Err((None, error)) => return Err(Failure::Lost(said(&error))),
            }
        }
        Err(Failure::NotSent(why))
    }

    async fn send_on(
        self: &Arc<Self>,
        lease: Lease,
        request: Request<Body>,
    ) -> Result<Answer, (Option<Request<Body>>, hyper::Error)> {
        match lease {
            Lease::One(mut one) => {
                let sent = one.try_send_request(request).await;
                let answer = sent.map_err(|mut error| (error.take_message(), error.into_error()))?;
                Ok(Answer { answer, used: Used { one: Some((one, Arc::clone(self))), _two: None } })
            }
            Lease::Two(mut two, used) => {
                let sent = two.try_send_request(request).await;
                let answer = sent.map_err(|mut error| (error.take_message(), error.into_error()))?;
                Ok(Answer { answer, used: Used { one: None, _two: Some(used) } })
            }
        }
    }

    /// A kept connection, or one that becomes free in a moment.
    async fn take(&self, needs_one: bool) -> Option<Lease> {
        let until = Instant::now() + RETURN_WAIT;
        loop {
            // Enabled before the search, so that a connection returned in between is not missed.
            let mut returned = std::pin::pin!(self.returned.notified());
            returned.as_mut().enable();
            {
                let mut kept = self.kept();
                if let Some(lease) = kept.take(needs_one) {
                    return Some(lease);
                }
                if kept.returning <= kept.waiting || Instant::now() >= until {
                    return None;
                }
                kept.waiting += 1;
            }
            let _waiting = Waiting(self);
            // Even after a timeout, it searches once more.
            let _ = tokio::time::timeout_at(until, returned).await;
        }
    }

    /// Keeps a connection whose answer has ended, once it can be used again.
    fn give_back(self: &Arc<Self>, mut one: http1::SendRequest<Body>) {
        if one.is_ready() {
            self.kept().put(one);
            return self.returned.notify_waiters();
        }
        // Without a runtime, the program is ending.
        let Ok(runtime) = Handle::try_current() else { return };
        self.kept().returning += 1;
        let upstream = Arc::clone(self);
        runtime.spawn(async move {
            let soon = tokio::time::timeout(RETURN_WAIT, one.ready()).await;
            {
                let mut kept = upstream.kept();
                kept.returning -= 1;
                if matches!(soon, Ok(Ok(()))) {
                    kept.put(one);
                    upstream.returned.notify_waiters();
                    return;
                }
            }
            upstream.returned.notify_waiters();
            if soon.is_err() && one.ready().await.is_ok() {
                upstream.kept().put(one);
                upstream.returned.notify_waiters();
            }
        });
    }

    async fn connect(&self, needs_one: bool) -> Result<Lease, String> {
        match connect(&self.origin, needs_one).await? {
            Made::One(one) => Ok(Lease::One(one)),
            Made::Two(sender, allowed) => {
                let two = Two { sender: sender.clone(), used: Arc::new(()), since: Instant::now(), allowed };
                let used = Arc::clone(&two.used);
                self.kept().twos.push(two);
                Ok(Lease::Two(sender, used))
            }
        }
    }
}

impl Two {
    /// Whether it can take another request.
    fn is_free(&self) -> bool {
        Arc::strong_count(&self.used) <= self.allowed.load(Ordering::Relaxed)
    }
}

impl Kept {
    /// A connection that can take a request.
    fn take(&mut self, needs_one: bool) -> Option<Lease> {
        let is_unused = |two: &Two| Arc::strong_count(&two.used) == 1;
        let is_over = |two: &Two| two.sender.is_closed() || is_unused(two) && two.since.elapsed() > IDLE_MAX;
        self.twos.retain(|two| !is_over(two));
        if !needs_one && let Some(two) = self.twos.iter_mut().find(|two| two.is_free()) {
            two.since = Instant::now();
            return Some(Lease::Two(two.sender.clone(), Arc::clone(&two.used)));
        }
        while self.ones.front().is_some_and(|(one, since)| one.is_closed() || since.elapsed() > IDLE_MAX) {
            self.ones.pop_front();
        }
        while let Some((one, since)) = self.ones.pop_back() {
            if one.is_ready() && since.elapsed() <= IDLE_MAX {
                return Some(Lease::One(one));
            }
        }
        None
    }

    fn put(&mut self, one: http1::SendRequest<Body>) {
        if self.ones.len() >= KEPT_MAX {
            self.ones.pop_front();
        }
        self.ones.push_back((one, Instant::now()));
    }
}

/// Whether the service itself says that it has not begun to process the request (RFC 9113, 8.7).
fn is_refused(error: &hyper::Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<h2::Error>());
    cause.is_some_and(|cause| {
        cause.is_remote() && cause.is_reset() && cause.reason() == Some(h2::Reason::REFUSED_STREAM)
    })
}

/// Addresses a request for its connection: in HTTP/1.1 the host is a header, in HTTP/2 it is part of the address.
fn address(request: &mut Request<Body>, origin: &Origin, is_one: bool) {
    *request.version_mut() = if is_one { Version::HTTP_11 } else { Version::HTTP_2 };
    let uri = std::mem::take(request.uri_mut());
    let headers = request.headers_mut();
    let mut parts = uri.into_parts();
    let path = parts.path_and_query.take().unwrap_or_else(|| PathAndQuery::from_static("/"));
    if is_one {
        if !headers.contains_key(header::HOST)
            && let Some(host) = origin.host_header()
        {
            let own = parts.authority.and_then(|authority| HeaderValue::from_str(authority.as_str()).ok());
            headers.insert(header::HOST, own.unwrap_or(host));
        }
        *request.uri_mut() = Uri::from(path);
        return;
    }
    let host = headers.remove(header::HOST).and_then(|host| Authority::try_from(host.as_bytes()).ok());
    let mut addressed = http::uri::Parts::default();
    addressed.scheme = Some(origin.scheme.clone());
    addressed.authority = Some(host.or(parts.authority).unwrap_or_else(|| origin.authority.clone()));
    addressed.path_and_query = Some(path);
    if let Ok(uri) = Uri::from_parts(addressed) {
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
