//! Which rule a request falls under, and what is counted of it.

use std::sync::Arc;

use http::{HeaderName, Method, Request, Response};
use hyper::body::Incoming;
use tower_layer::Layer;
use tower_service::Service;

use super::body::{Holding, Sent, Timed};
use super::connections::{Busy, Place};
use super::forward::{Forward, Known};
use super::head::{From, Heads};
use super::problem;
use super::routes::Pattern;
use super::settings::{Config, KeyUse, Rule};
use super::upstream::Upstream;
use crate::http::{Body, Guard, Idempotency, Outcome, Store};
use crate::observe::{Metrics, OneConnection, RouteMetrics};

/// All routes.
pub struct App {
    heads: Heads,
    routes: Vec<Served>,
    /// What the layers of all routes are set from: they count what is at work, and tidy the store, together.
    layer: Idempotency,
    idle_wait: std::time::Duration,
    metrics: Metrics,
}

/// A route.
struct Served {
    path: Option<Pattern>,
    methods: Vec<Method>,
    metrics: RouteMetrics,
    forward: Forward,
    /// `None` where keys mean nothing.
    guard: Option<Guard<Forward>>,
}

/// An answer on its way to the client.
pub type Answer = Response<Holding<Body, (Busy, crate::observe::OneRequest)>>;

impl App {
    /// All routes of a configuration, with this store.
    pub fn new(config: &Config, store: &Arc<dyn Store>, metrics: &Metrics) -> Self {
        let upstream = Arc::new(Upstream::new(config.upstream.clone()));
        let reserved = config.routes.iter().filter_map(|route| route.rule.reservation_header.clone());
        let mut reserved: Vec<HeaderName> = reserved.collect();
        reserved.sort_by(|one, other| one.as_str().cmp(other.as_str()));
        reserved.dedup();
        let heads = Heads {
            trusts_forwarded: config.trusts_forwarded,
            host: config.sets_host.then(|| config.upstream.host_header()).flatten(),
            reserved,
        };
        let layer = Idempotency::shared(Arc::clone(store)).store_wait(config.store_wait);
        // A service that is told another host than the client's is one service, whatever clients call it.
        let layer = layer.scope(config.scope.clone()).by_host(!config.sets_host);
        let layer = layer.at_work_max(config.bounds.at_work_max).bodies_bytes_max(config.bounds.bodies_bytes_max);
        let routes = config.routes.iter().map(|route| {
            let metrics = metrics.route(route.name());
            let forward = Forward {
                upstream: Arc::clone(&upstream),
                timeout: route.rule.timeout,
                idle_wait: config.bounds.idle_wait,
                metrics: metrics.clone(),
            };
            let guard = (route.rule.key != KeyUse::Off).then(|| set(layer.clone(), &route.rule).layer(forward.clone()));
            Served { path: route.path.clone(), methods: route.methods.clone(), metrics, forward, guard }
        });
        let routes = routes.collect();
        Self { heads, routes, layer, idle_wait: config.bounds.idle_wait, metrics: metrics.clone() }
    }

    /// A client has connected.
    pub fn connected(&self) -> OneConnection {
        self.metrics.connection()
    }

    /// Answers a request.
    pub async fn answer(&self, mut request: Request<Incoming>, from: From, place: Arc<Place>, busy: Busy) -> Answer {
        // The last route fits every request.
        let route = self.routes.iter().find(|route| route.fits(request.method(), request.uri().path()));
        let route = route.unwrap_or(&self.routes[self.routes.len() - 1]);
        let one = route.metrics.begin();
        let answer = if let Some(refused) = problem::of_head(&request) {
            refused
        } else {
            let upgrade = self.heads.request(&mut request, from);
            let sent = Sent::default();
            request.extensions_mut().insert(Known { upgrade, sent: sent.clone(), place });
            let request = request.map(|body| Timed::new(body, self.idle_wait).telling(&sent));
            route.answer(request).await
        };
        let outcome = answer.extensions().get::<Outcome>().copied().unwrap_or(Outcome::Passed).as_str();
        tracing::debug!(route = route.path.as_ref().map(Pattern::text), status = answer.status().as_u16(), outcome);
        route.metrics.answered(outcome);
        answer.map(|body| Holding::new(body, (busy, one)))
    }

    /// How many requests under a key are at work.
    pub fn at_work(&self) -> usize {
        self.layer.at_work()
    }

    /// Waits until no request under a key is at work.
    pub async fn idle(&self) {
        self.layer.idle().await;
    }
}

impl Served {
    fn fits(&self, method: &Method, path: &str) -> bool {
        (self.methods.is_empty() || self.methods.contains(method))
            && self.path.as_ref().is_none_or(|known| known.fits(path))
    }

    async fn answer(&self, request: Request<Timed<Incoming>>) -> Response<Body> {
        let answered = match &self.guard {
            Some(guard) => guard.clone().call(request).await,
            None => self.forward.clone().call(request.map(Body::stream)).await,
        };
        match answered {
            Ok(answer) => answer,
            Err(never) => match never {},
        }
    }
}

/// The layer, set by this rule.
fn set(layer: Idempotency, rule: &Rule) -> Idempotency {
    let layer = layer
        .header(rule.header.clone())
        .required(rule.key == KeyUse::Required)
        .fingerprint_headers(rule.fingerprint_headers.iter().cloned())
        .retention(rule.retention)
        .lease(rule.lease)
        .grace(rule.grace)
        .wait(rule.wait)
        .request_bytes_max(rule.request_bytes_max)
        .answer_bytes_max(rule.answer_bytes_max)
        .on_store_down(rule.on_store_down)
        .on_in_doubt(rule.on_in_doubt)
        .released(rule.released.iter().copied());
    let layer = match &rule.caller {
        Some(name) => layer.caller_header(name.clone()).caller_required(rule.caller_required),
        None => layer.caller(|_| None),
    };
    let layer = match &rule.remember {
        Some(names) => layer.remembered_headers(names.iter().cloned()),
        None => layer,
    };
    let layer = match &rule.reservation_header {
        Some(name) => layer.reservation_header(name.clone()),
        None => layer,
    };
    // What is written was read as such before.
    let except = rule.fingerprint_except.iter().map(String::as_str);
    layer.clone().fingerprint_except(except).unwrap_or(layer)
}
