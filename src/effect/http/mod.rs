//! The driver for HTTP: the only module that knows how calls travel.
//!
//! - [`Http`] is the [`Provider`], made of [`Settings`]. Each lane's way has a thread of its own, `calls-<n>`, with a
//!   small runtime: it goes on with what is queued while the lane commits.
//! - `attempt` makes one attempt: `message` is what is sent, `answer` reads what comes back.
//! - `pool` keeps connections and hands them out in order; `connect` makes them: names, TCP (`socket`), proxies, TLS
//!   (`secured`).
//!
//! **What is certain.** An attempt that was [`NotSent`](super::call::Answer::NotSent) has failed before anything of it
//! was given to a connection: its name, TCP, TLS, or a proxy's CONNECT; or it was given back by a connection that had not
//! begun to write it. Whatever happens later without a status is [`Lost`](super::call::Answer::Lost), a pooled
//! connection that dies while a request is written included. Nothing is made again here.
//!
//! Between the last look at the key's window and the hand-over to a connection nothing waits. HTTP/2 could hold a
//! request back within a connection, until the other side allows another stream; so the driver counts the streams
//! itself, and opens a further connection instead. An attempt that has timed out is not written any more: its stream or
//! its connection is reset, and the system throws away what it has not sent.
//!
//! **Answers.** A status counts as soon as it is there, whatever becomes of the body: a 2xx whose body was cut is done,
//! without a body. A body is read for as long as the attempt may take. It is kept up to [`Settings::result_max`], beyond
//! it only hashed, up to [`HASHED_MAX`]; then the connection is dropped. Redirects are answers like others. There are
//! no cookies, and nothing is decompressed: no encoding is asked for.
//!
//! **Failure.** A panic in the thread ends it: what was written is lost, what was not is not sent, and the next request
//! starts another. No message holds a path, a query, a header, a body or a user of an address.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use hyper::Method;
use hyper::header::HeaderName;
use hyper_util::client::proxy::matcher::Matcher;
use rustls::ClientConfig;
use tokio::sync::mpsc;

use super::call::KeyWindow;
use super::job::Job;
use super::lane::Lane;
use super::provider::{Calls, Provider};
use super::thread::{self, Tasks};
use super::{Error, ErrorKind};
use crate::tls::{self, ONE, Renewed, TWO};

mod answer;
mod attempt;
mod connect;
mod message;
mod pool;
mod secured;
mod socket;

pub use connect::dial;

use pool::Pool;

/// Up to this many bytes of a body that is not kept are hashed. Beyond them the connection is dropped.
pub const HASHED_MAX: usize = 8 << 20;
/// How often connections that nobody uses are looked at.
const SWEEP: Duration = Duration::from_secs(1);
/// How many names are looked up at once, each on a thread.
const LOOK_UPS_MAX: usize = 4;
/// How long a name, TCP, a proxy and TLS may take together, if an attempt may take that long.
const CONNECT_WAIT: Duration = Duration::from_secs(5);

/// The wall clock, in milliseconds since the epoch.
pub type WallClock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// How a topology's calls travel.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The method of all of them.
    pub method: String,
    /// The header that the key is sent in; `None` if the provider honours none.
    pub key_header: Option<String>,
    /// For how long the provider honours a key, which is looked at as a request is written; `None` if it honours none.
    pub window: Option<KeyWindow>,
    /// How long an attempt may take, from its first byte to the last one of its answer. Connecting comes before that,
    /// and may take as long, but 5 s at most.
    pub timeout: Duration,
    /// How many requests of a lane are on the wire at once, at most.
    pub in_flight: usize,
    /// How many requests of a lane are written in a second, at most; a tenth of that at once.
    pub rate: Option<f64>,
    /// Up to how many bytes an answer's body is kept; `None` if nobody wants it.
    pub result_max: Option<usize>,
    /// A file of certificates of authorities, in place of the system's.
    pub authorities: Option<PathBuf>,
}

/// A provider that speaks HTTP.
///
/// Proxies are those of the usual variables (`HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY`, `NO_PROXY`, or in lower case), as
/// they are when it is made.
#[derive(Clone)]
pub struct Http {
    shared: Arc<Shared>,
}

/// What all lanes share.
struct Shared {
    method: Method,
    key_header: Option<HeaderName>,
    window: Option<KeyWindow>,
    timeout: Duration,
    in_flight: usize,
    rate: Option<f64>,
    result_max: Option<usize>,
    proxies: Matcher,
    tls: Renewed<ClientConfig>,
    clock: WallClock,
}

impl Shared {
    fn connect_wait(&self) -> Duration {
        CONNECT_WAIT.min(self.timeout)
    }
}

impl Http {
    /// A provider with these settings. Connects to nothing and opens no file.
    ///
    /// # Errors
    /// Settings that cannot be, [`ErrorKind::Lasting`].
    pub fn new(settings: Settings) -> Result<Self, Error> {
        Self::with_clock(settings, system_clock())
    }

    /// The same by another wall clock.
    ///
    /// # Errors
    /// As [`Http::new`].
    pub fn with_clock(settings: Settings, clock: WallClock) -> Result<Self, Error> {
        let lasting = |message: String| Error { kind: ErrorKind::Lasting, message };
        let Settings { method, key_header, window, timeout, in_flight, rate, result_max, authorities } = settings;
        let method = read_method(&method).map_err(lasting)?;
        let key_header = key_header.as_deref().map(read_key_header).transpose().map_err(lasting)?;
        let wrong = match () {
            () if in_flight == 0 => "in_flight is 0: at least one request has to go",
            () if timeout.is_zero() => "the timeout is 0: no answer can come in no time",
            () if rate.is_some_and(|rate| !rate.is_finite() || rate <= 0.0) => "the rate is not a number above 0",
            () => "",
        };
        if !wrong.is_empty() {
            return Err(lasting(wrong.to_owned()));
        }
        let (proxies, tls) = (Matcher::from_env(), tls::client(authorities.as_deref(), &[TWO, ONE]));
        let shared = Shared { method, key_header, window, timeout, in_flight, rate, result_max, proxies, tls, clock };
        Ok(Self { shared: Arc::new(shared) })
    }
}

impl std::fmt::Debug for Http {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http").field("method", &self.shared.method).finish_non_exhaustive()
    }
}

impl Provider for Http {
    fn kind(&self) -> &'static str {
        "http"
    }

    fn calls(&self) -> Box<dyn Calls> {
        let shared = Arc::clone(&self.shared);
        Box::new(Lane::new(Arc::new(move |jobs, stopped| {
            thread::run(LOOK_UPS_MAX, stopped, |tasks| make_calls(Arc::clone(&shared), jobs, tasks));
        })))
    }
}

/// Makes the calls of a lane, on its thread.
async fn make_calls(shared: Arc<Shared>, jobs: mpsc::UnboundedReceiver<Job>, tasks: Tasks) {
    let bounds = (shared.in_flight, shared.rate);
    let pool = Rc::new(Pool::new(shared, tasks.clone()));
    tasks.start(Rc::clone(&pool).sweep(SWEEP));
    thread::let_go(jobs, bounds, |job, permit| tasks.start(attempt::make(Rc::clone(&pool), job, permit))).await;
}

/// Whether a header is the driver's own: what says where a message goes and where it ends. A request that brings one is
/// not sent.
pub fn is_own_header(name: &str) -> bool {
    const OWN: [&str; 12] = [
        "connection",
        "content-length",
        "expect",
        "host",
        "http2-settings",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    OWN.iter().any(|own| name.eq_ignore_ascii_case(own))
}

/// The system's wall clock.
pub fn system_clock() -> WallClock {
    Arc::new(wall_ms)
}

fn read_method(method: &str) -> Result<Method, String> {
    match Method::from_bytes(method.as_bytes()) {
        Ok(Method::CONNECT) => Err("the method CONNECT is for proxies".to_owned()),
        Ok(method) => Ok(method),
        Err(_) => Err(format!("{method:?} is no method: write one like POST")),
    }
}

fn read_key_header(name: &str) -> Result<HeaderName, String> {
    let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| format!("{name:?} cannot be a header's name"))?;
    if is_own_header(name) {
        Err(format!("the key cannot be sent as {name}, which HTTP itself needs"))
    } else {
        Ok(header)
    }
}

#[expect(clippy::disallowed_methods, reason = "the key's window is measured by the wall clock, as it is at the socket")]
fn wall_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
