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
    /// The address at which clients connect.
    pub listen: SocketAddr,
    /// The service behind the proxy.
    pub upstream: Origin,
    /// Where requests are remembered.
    pub store: StoreConfig,
    /// The service's name, where several services share the store; empty if not set.
    pub service: String,
    /// TLS with clients.
    pub tls: Option<Renewed<ServerConfig>>,
    /// The address of metrics and health; `None` to serve neither.
    pub metrics_listen: Option<SocketAddr>,
    /// Whether `Host` names the service's own host, instead of the host that the client has named.
    pub sets_host: bool,
    /// Whether the proxy trusts the headers in which clients say for whom they send requests.
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
    /// The most open connections.
    pub connections_max: usize,
    /// The most requests in progress, with or without a key.
    pub requests_max: usize,
    /// The most requests with a key in progress, including requests that wait for another request and requests whose
    /// clients are gone.
    pub at_work_max: usize,
    /// The most bytes of the bodies of requests with a key, together with the bodies of their responses until these are
    /// sent.
    pub bodies_bytes_max: usize,
    /// Whether one client (an address) is limited to a share of each of the bounds above, and cannot take the whole.
    pub has_shares: bool,
    /// The minimum rate, in bytes a second, at which the body of a request with a key must arrive, and at which a
    /// client must read a response.
    pub body_rate_min: usize,
    /// The most bytes of a request's head.
    pub head_bytes_max: usize,
    /// How long a head may take.
    pub head_wait: Duration,
    /// How long a client may send nothing, or read nothing of what is written to it.
    pub idle_wait: Duration,
}

/// A rule, and which requests it is for.
#[derive(Debug)]
pub struct Route {
    /// Its paths; `None` for all.
    pub path: Option<Pattern>,
    /// Its methods; empty for all.
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

/// A rule for requests. A request under a key is reserved in the store before it is carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Whether requests have keys.
    pub key: KeyUse,
    /// The header that carries the key.
    pub header: HeaderName,
    /// The header that tells callers apart; `None` if all clients are one caller.
    pub caller: Option<HeaderName>,
    /// Whether a request with a key must have the header that `caller` names.
    pub caller_required: bool,
    /// How long responses are remembered.
    pub retention: Duration,
    /// How long a request waits for an earlier request with its key.
    pub wait: Duration,
    /// How long a reservation is valid without being extended.
    pub lease: Duration,
    /// How long a request stays reserved after the proxy has stopped waiting for the service.
    pub grace: Duration,
    /// What is done with a request in doubt: nobody knows whether it was carried out.
    pub on_in_doubt: OnInDoubt,
    /// The statuses of responses that release the reservation: with these, the service says that it has done nothing.
    pub releasing_statuses: Vec<StatusCode>,
    /// What is done while the store is down.
    pub on_store_down: OnStoreDown,
    /// The headers that are compared, besides method, path, query and body, when a request with a known key arrives.
    pub fingerprint_headers: Vec<HeaderName>,
    /// The fields of JSON bodies that are not compared.
    pub fingerprint_except: Vec<String>,
    /// The names of the response headers that are remembered; `None` for the layer's default.
    pub remember: Option<Vec<HeaderName>>,
    /// The most bytes of the body of a request with a key.
    pub request_bytes_max: usize,
    /// The most bytes of a response's body that is remembered; only the digest of a larger body is remembered.
    pub answer_bytes_max: usize,
    /// How long the service may take to begin its response, and, for a request with a key, to send each piece of it
    /// (unless it is a stream of events).
    pub timeout: Duration,
    /// The header in which the service gets the request's reservation; `None` for no such header.
    pub reservation_header: Option<HeaderName>,
}

impl Route {
    /// Its name in metrics and logs.
    pub fn name(&self) -> &str {
        self.path.as_ref().map_or("default", Pattern::text)
    }
}
