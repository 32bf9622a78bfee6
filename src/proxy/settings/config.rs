//! A proxy's settings, as read from its file.

use std::net::SocketAddr;
use std::time::Duration;

use http::{HeaderName, Method, StatusCode};
use rustls::ServerConfig;

use super::store::StoreConfig;
use crate::http::OnStoreDown;
use crate::http::request::OnInDoubt;
use crate::observe::logs;
use crate::proxy::routes::Pattern;
use crate::proxy::upstream::Origin;
use crate::tls::Renewed;
use crate::yaml::Mistake;

/// A proxy's settings.
#[derive(Debug)]
pub struct Config {
    /// The address that it listens on.
    pub listen: SocketAddr,
    /// The service behind the proxy.
    pub upstream: Origin,
    /// Where requests are remembered.
    pub store: StoreConfig,
    /// The service's name, where several services share the store; empty if not set.
    pub scope: String,
    /// TLS with clients.
    pub tls: Option<Renewed<ServerConfig>>,
    /// The address of metrics and health; `None` to serve neither.
    pub http: Option<SocketAddr>,
    /// Whether the service gets its own name as `Host`, not the client's.
    pub sets_host: bool,
    /// Whether clients are trusted to say for whom they send requests.
    pub trusts_forwarded: bool,
    /// The bounds on clients.
    pub bounds: Bounds,
    /// How long the store may take.
    pub store_wait: Duration,
    /// How long a stop may take.
    pub stop_wait: Duration,
    /// The format of log lines.
    pub log_format: logs::Format,
    /// The log's level or filter.
    pub log_level: String,
    /// The routes: the first that fits a request counts; the last one fits every request.
    pub routes: Vec<Route>,
    /// Warnings about the file.
    pub warnings: Vec<Mistake>,
}

/// The bounds on clients.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Open connections.
    pub connections_max: usize,
    /// Requests in progress.
    pub requests_max: usize,
    /// Requests under a key that are at work.
    pub at_work_max: usize,
    /// Bytes of their bodies, and of their responses' until they are sent, together.
    pub bodies_bytes_max: usize,
    /// Whether each address has a share of these bounds.
    pub has_shares: bool,
    /// The minimum rate, in bytes a second, at which a body under a key arrives and a response is read.
    pub body_rate_min: usize,
    /// Bytes of a request's head.
    pub head_bytes_max: usize,
    /// How long a head may take.
    pub head_wait: Duration,
    /// How long a client may send nothing, or read nothing of what is written to it.
    pub idle_wait: Duration,
}

/// A rule, and which requests it is for.
#[derive(Debug)]
pub struct Route {
    /// Its paths; `None`: all.
    pub path: Option<Pattern>,
    /// Its methods; empty: all.
    pub methods: Vec<Method>,
    /// Its rule.
    pub rule: Rule,
}

/// Whether requests have keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyUse {
    /// Requests that may change something must have one.
    Required,
    /// Requests may have one.
    Optional,
    /// Keys are ignored.
    Off,
}

/// A rule for requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Whether requests have keys.
    pub key: KeyUse,
    /// The header of keys.
    pub header: HeaderName,
    /// The header that tells callers apart; `None`: all clients are one caller.
    pub caller: Option<HeaderName>,
    /// Whether a request under a key must have that header.
    pub caller_required: bool,
    /// How long responses are remembered.
    pub retention: Duration,
    /// How long requests wait for the first one under their key.
    pub wait: Duration,
    /// How long a reservation is good for.
    pub lease: Duration,
    /// How long a request stays reserved after the proxy has stopped waiting for the service.
    pub grace: Duration,
    /// What is done with a request that may have been carried out.
    pub on_in_doubt: OnInDoubt,
    /// Statuses with which the service says that it has done nothing.
    pub released: Vec<StatusCode>,
    /// What is done while the store is down.
    pub on_store_down: OnStoreDown,
    /// Headers that count when requests are compared.
    pub fingerprint_headers: Vec<HeaderName>,
    /// Fields of JSON bodies that do not count.
    pub fingerprint_except: Vec<String>,
    /// Headers of responses that are remembered; `None`: those that the layer remembers by default.
    pub remember: Option<Vec<HeaderName>>,
    /// The largest body of a request under a key.
    pub request_bytes_max: usize,
    /// The largest body of a response that is remembered.
    pub answer_bytes_max: usize,
    /// How long the service may take.
    pub timeout: Duration,
    /// The header of reservations.
    pub reservation_header: Option<HeaderName>,
}

impl Route {
    /// Its name in metrics and logs.
    pub fn name(&self) -> &str {
        self.path.as_ref().map_or("default", Pattern::text)
    }
}
