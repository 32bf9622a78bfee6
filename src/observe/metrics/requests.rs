//! Metrics of HTTP requests that are carried out once.

use std::time::Duration;

use prometheus::{HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry};

use super::register::{counter, exponential, histogram_by, int_gauge};

const ROUTE: &[&str] = &["route"];
const OPERATION: &[&str] = &["operation"];
const BOUND: &[&str] = &["bound"];
/// For what has no labels.
const NONE: &[&str] = &[];

/// The families.
pub(super) struct Families {
    requests: IntCounterVec,
    at_work: IntGaugeVec,
    connections: IntGaugeVec,
    bound_max: IntGaugeVec,
    bound_used: IntGaugeVec,
    bound_refusals: IntCounterVec,
    upstream_duration: HistogramVec,
    upstream_failures: IntCounterVec,
    store_duration: HistogramVec,
    store_errors: IntCounterVec,
    removed: IntCounterVec,
    store_bytes: IntGaugeVec,
    store_bytes_max: IntGaugeVec,
}

impl Families {
    #[expect(clippy::too_many_lines, reason = "a list, one family after the other")]
    pub fn new(registry: &Registry) -> Self {
        let durations = || exponential(0.000_1, 2.0, 18);
        Self {
            requests: counter(
                registry,
                "ratchet_http_requests_total",
                "HTTP requests that were answered, by what has become of them.",
                &["route", "outcome"],
            ),
            at_work: int_gauge(
                registry,
                "ratchet_http_requests_at_work",
                "HTTP requests whose answer has not been passed on to its end.",
                ROUTE,
            ),
            connections: int_gauge(registry, "ratchet_http_connections", "Open connections of clients.", NONE),
            bound_max: int_gauge(
                registry,
                "ratchet_http_bound_max",
                "The bound for all clients together, as set or as reduced to fit the limit of open files.",
                BOUND,
            ),
            bound_used: int_gauge(registry, "ratchet_http_bound_used", "How much of the bound is taken.", BOUND),
            bound_refusals: counter(
                registry,
                "ratchet_http_bound_refusals_total",
                "Refusals because the bound, or a client's share of it, was taken.",
                BOUND,
            ),
            upstream_duration: histogram_by(
                registry,
                "ratchet_http_upstream_duration_seconds",
                "Time from handing a request to the service behind to the head of its answer.",
                (ROUTE, durations()),
            ),
            upstream_failures: counter(
                registry,
                "ratchet_http_upstream_failures_total",
                "HTTP requests that the service behind gave no answer to: not sent, lost or late.",
                &["route", "failure"],
            ),
            store_duration: histogram_by(
                registry,
                "ratchet_http_store_duration_seconds",
                "Time that the store of requests took for an answer: what a request under a key costs beside its own work.",
                (OPERATION, durations()),
            ),
            store_errors: counter(
                registry,
                "ratchet_http_store_errors_total",
                "Questions to the store of requests that it has not answered.",
                OPERATION,
            ),
            removed: counter(
                registry,
                "ratchet_http_removed_entries_total",
                "Requests that were forgotten because they had been remembered for long enough.",
                NONE,
            ),
            store_bytes: int_gauge(
                registry,
                "ratchet_http_store_bytes",
                "Size of the files of the embedded store of requests.",
                NONE,
            ),
            store_bytes_max: int_gauge(
                registry,
                "ratchet_http_store_bytes_max",
                "The bound on the size of the embedded store of requests, if there is one.",
                NONE,
            ),
        }
    }

    pub fn route(&self, route: &str) -> RouteMetrics {
        RouteMetrics {
            route: route.to_owned(),
            requests: self.requests.clone(),
            at_work: self.at_work.with_label_values(&[route]),
            upstream_duration: self.upstream_duration.clone(),
            upstream_failures: self.upstream_failures.clone(),
        }
    }

    pub fn store(&self) -> StoreMetrics {
        let removed = self.removed.with_label_values(NONE);
        StoreMetrics {
            duration: self.store_duration.clone(),
            errors: self.store_errors.clone(),
            removed,
            bytes: self.store_bytes.clone(),
            bytes_max: self.store_bytes_max.clone(),
        }
    }

    pub fn bound(&self, bound: &str, max: usize) -> BoundMetrics {
        self.bound_max.with_label_values(&[bound]).set(i64::try_from(max).unwrap_or(i64::MAX));
        let used = self.bound_used.with_label_values(&[bound]);
        BoundMetrics { used, refusals: self.bound_refusals.with_label_values(&[bound]) }
    }

    pub fn connection(&self) -> OneConnection {
        let connections = self.connections.with_label_values(NONE);
        connections.inc();
        OneConnection(connections)
    }
}

/// What is counted of a route's requests.
#[derive(Clone)]
pub struct RouteMetrics {
    route: String,
    requests: IntCounterVec,
    at_work: IntGauge,
    upstream_duration: HistogramVec,
    upstream_failures: IntCounterVec,
}

impl RouteMetrics {
    /// A request is at work, until what is returned is dropped.
    pub fn begin(&self) -> OneRequest {
        self.at_work.inc();
        OneRequest(self.at_work.clone())
    }

    /// A request was answered, with this outcome.
    pub fn answered(&self, outcome: &str) {
        self.requests.with_label_values(&[self.route.as_str(), outcome]).inc();
    }

    /// The service has begun to answer after so long.
    pub fn upstream_answered(&self, after: Duration) {
        self.upstream_duration.with_label_values(&[self.route.as_str()]).observe(after.as_secs_f64());
    }

    /// The service gave no answer, for this reason.
    pub fn upstream_failed(&self, failure: &str) {
        self.upstream_failures.with_label_values(&[self.route.as_str(), failure]).inc();
    }
}

/// A request at work.
pub struct OneRequest(IntGauge);

impl Drop for OneRequest {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// An open connection.
pub struct OneConnection(IntGauge);

impl Drop for OneConnection {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Metrics of a bound on clients.
pub struct BoundMetrics {
    used: IntGauge,
    refusals: IntCounter,
}

impl BoundMetrics {
    /// This much of it is taken.
    pub fn used(&self, used: usize) {
        self.used.set(i64::try_from(used).unwrap_or(i64::MAX));
    }

    /// This many more refusals.
    pub fn refused(&self, count: u64) {
        self.refusals.inc_by(count);
    }
}

/// What is counted of a store of requests.
#[derive(Clone)]
pub struct StoreMetrics {
    duration: HistogramVec,
    errors: IntCounterVec,
    removed: IntCounter,
    // Families: a store that has no such size has no such series.
    bytes: IntGaugeVec,
    bytes_max: IntGaugeVec,
}

impl StoreMetrics {
    /// The size of the store's files.
    pub fn bytes(&self, bytes: u64) {
        self.bytes.with_label_values(NONE).set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// The bound on that.
    pub fn bytes_max(&self, bytes: u64) {
        self.bytes_max.with_label_values(NONE).set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Counts a call of the store: how long it took, and whether it has failed.
    pub fn call_ended(&self, operation: &str, took: Duration, is_answered: bool) {
        self.duration.with_label_values(&[operation]).observe(took.as_secs_f64());
        if !is_answered {
            self.errors.with_label_values(&[operation]).inc();
        }
    }

    /// Counts requests that were forgotten.
    pub fn removed(&self, count: usize) {
        self.removed.inc_by(count as u64);
    }
}
