//! The settings of a topology's calls over HTTP, checked once and shared by all lanes (threads that process records).
//!
//! A key here is an idempotency key, by which the provider recognises a request that is sent again.

use std::path::PathBuf;
use std::time::Duration;

use hyper::Method;
use hyper::header::HeaderName;
use hyper_util::client::proxy::matcher::Matcher;
use rustls::ClientConfig;

use super::clock::WallClock;
use crate::effect::call::KeyWindow;
use crate::tls::{self, ALPN_HTTP_1_1, ALPN_HTTP_2, Renewed};

/// The most bytes that are hashed of a body that is too long to be kept. If it is longer still, the connection is
/// dropped.
pub const HASHED_MAX: usize = 8 << 20;
/// How long name lookup, TCP, a proxy and TLS may take together, unless the timeout of an attempt is shorter.
const CONNECT_WAIT: Duration = Duration::from_secs(5);

/// The settings of a topology's HTTP calls.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The method of all requests.
    pub method: String,
    /// The header that the key is sent in; `None` if the provider honours no keys.
    pub key_header: Option<String>,
    /// For how long the provider honours a key, checked when a request is written; `None` if it honours no keys.
    pub key_window: Option<KeyWindow>,
    /// How long an attempt may take, from the request's first byte to the response's last one. Connecting comes before
    /// that, and may take just as long, but 5 s at most.
    pub timeout: Duration,
    /// The most requests of a lane that are in flight at once.
    pub in_flight: usize,
    /// The most requests of a lane that are written in a second. A burst has at most a tenth of that number, or one
    /// request if that is more.
    pub rate: Option<f64>,
    /// The most bytes of a response's body that are kept; `None` if the body is not wanted.
    pub body_bytes_max: Option<usize>,
    /// A file of CA certificates, used instead of the system's.
    pub authorities: Option<PathBuf>,
}

/// The checked settings, with the proxies, the TLS configuration and the clock that all lanes share.
pub(super) struct Shared {
    pub method: Method,
    pub key_header: Option<HeaderName>,
    pub key_window: Option<KeyWindow>,
    pub timeout: Duration,
    pub in_flight: usize,
    pub rate: Option<f64>,
    pub body_bytes_max: Option<usize>,
    pub proxies: Matcher,
    pub tls: Renewed<ClientConfig>,
    pub clock: WallClock,
}

impl Shared {
    /// Checks the settings.
    ///
    /// # Errors
    /// A mistake in the settings.
    pub fn new(settings: Settings, clock: WallClock) -> Result<Self, String> {
        let Settings { method, key_header, key_window, timeout, in_flight, rate, body_bytes_max, authorities } =
            settings;
        let method = read_method(&method)?;
        let key_header = key_header.as_deref().map(read_key_header).transpose()?;
        let mistake = match () {
            () if in_flight == 0 => "in_flight is 0: it must be at least 1",
            () if timeout.is_zero() => "the timeout is 0: it must be greater than 0",
            () if rate.is_some_and(|rate| !rate.is_finite() || rate <= 0.0) => {
                "the rate must be a number greater than 0"
            }
            () => "",
        };
        if !mistake.is_empty() {
            return Err(mistake.to_owned());
        }
        let (proxies, tls) = (Matcher::from_env(), tls::client(authorities.as_deref(), &[ALPN_HTTP_2, ALPN_HTTP_1_1]));
        Ok(Self { method, key_header, key_window, timeout, in_flight, rate, body_bytes_max, proxies, tls, clock })
    }

    /// How long connecting may take.
    pub fn connect_wait(&self) -> Duration {
        CONNECT_WAIT.min(self.timeout)
    }
}

/// Whether only the driver may set this header, because it decides where a message goes or where it ends. A request
/// with a reserved header of its own is not sent.
pub fn is_reserved_header(name: &str) -> bool {
    const RESERVED: [&str; 12] = [
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
    RESERVED.iter().any(|reserved| name.eq_ignore_ascii_case(reserved))
}

fn read_method(method: &str) -> Result<Method, String> {
    match Method::from_bytes(method.as_bytes()) {
        Ok(Method::CONNECT) => Err("the method CONNECT is for proxies: write another one such as POST".to_owned()),
        Ok(method) => Ok(method),
        Err(_) => Err(format!("{method:?} is not an HTTP method: write one such as POST")),
    }
}

fn read_key_header(name: &str) -> Result<HeaderName, String> {
    let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| format!("{name:?} is not a valid header name"))?;
    if is_reserved_header(name) {
        Err(format!("the key cannot be sent in the header {name}, which is reserved for HTTP itself"))
    } else {
        Ok(header)
    }
}
