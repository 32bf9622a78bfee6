//! Finds the rule of each request, and counts requests.

use std::sync::Arc;

use http::header::ORIGIN;
use http::{HeaderName, HeaderValue, Method, Request, Response, Version};
use hyper::body::Incoming;
use tokio::time::Instant;
use tower_layer::Layer;
use tower_service::Service;

use super::activity::Busy;
use super::body::{Holding, Sent, Timed};
use super::forward::{Forward, Known};
use super::head::{From, Heads};
use super::places::Place;
use super::problem;
use super::responses::{Pace, PacedBody};
use super::routes::Pattern;
use super::settings::{Bounds, Config, KeyUse, Rule};
use super::upstream::Upstream;
use super::usage::Bound;
use crate::http::proxying::{Limit, LogLimit, Share, Shares};
use crate::http::{Body, Guard, Idempotency, Outcome, Own, Peer, Store};
use crate::observe::{Metrics, OneConnection, RouteMetrics};

/// All routes.
pub struct App {
    heads: Heads,
    routes: Vec<Served>,
    /// The base of all routes' layers, which together count requests at work and tidy the store.
    layer: Idempotency,
    bounds: Bounds,
    /// All requests in progress, under a key or not.
    requests: Arc<Shares>,
    metrics: Metrics,
}

/// A request's connection.
pub struct Way {
    /// What is known of the client.
    pub from: From,
    /// The connection's place.
    pub place: Arc<Place>,
    /// Marks the connection as busy.
    pub busy: Busy,
    /// How the client reads the answer.
    pub pace: Arc<Pace>,
}

/// What an answer holds until it has ended.
type Held = (Busy, crate::observe::OneRequest, Option<Arc<Share>>);

/// A route.
struct Served {
    path: Option<Pattern>,
    methods: Vec<Method>,
    metrics: RouteMetrics,
    forward: Forward,
    /// The header of keys, and what carries out requests under a key once; `None` where keys mean nothing.
    guard: Option<(HeaderName, Guard<Forward>)>,
}

/// An answer on its way to the client.
pub type Answer = Response<PacedBody<Held>>;

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
        // Where the proxy sets the host, the service is the same whichever host clients name.
        let layer = layer.scope(config.scope.clone()).by_host(!config.sets_host);
        let layer = layer.at_work_max(config.bounds.at_work_max).bodies_bytes_max(config.bounds.bodies_bytes_max);
        let unread = Arc::new((LogLimit::default(), Instant::now()));
        let routes = config.routes.iter().map(|route| {
            let metrics = metrics.route(route.name());
            let forward = Forward {
                upstream: Arc::clone(&upstream),
                timeout: route.rule.timeout,
                idle_wait: config.bounds.idle_wait,
                metrics: metrics.clone(),
                unread: Arc::clone(&unread),
            };
            let guard = || (route.rule.header.clone(), set(layer.clone(), &route.rule).layer(forward.clone()));
            let guard = (route.rule.key != KeyUse::Off).then(guard);
            Served { path: route.path.clone(), methods: route.methods.clone(), metrics, forward, guard }
        });
        let routes = routes.collect();
        Self { heads, routes, layer, bounds: config.bounds, requests: Arc::default(), metrics: metrics.clone() }
    }

    /// The bounds on requests and their bodies.
    pub fn bounds(&self) -> [Bound; 3] {
        let Bounds { requests_max, at_work_max, bodies_bytes_max, .. } = self.bounds;
        let [at_work, bodies] = self.layer.shares();
        [
            Bound::new("requests_max", requests_max, &self.requests, &self.metrics),
            Bound::new("at_work_max", at_work_max, at_work, &self.metrics),
            Bound::new("bodies_bytes_max", bodies_bytes_max, bodies, &self.metrics),
        ]
    }

    /// Counts a client's connection.
    pub fn connected(&self) -> OneConnection {
        self.metrics.connection()
    }

    /// Answers a request.
    pub async fn answer(&self, mut request: Request<Incoming>, way: Way) -> Answer {
        let Way { from, place, busy, pace } = way;
        let is_two = request.version() == Version::HTTP_2;
        // The last route fits every request.
        let route = self.routes.iter().find(|route| route.fits(request.method(), request.uri().path()));
        let route = route.unwrap_or(&self.routes[self.routes.len() - 1]);
        let one = route.metrics.begin();
        let peer = self.bounds.has_shares.then(|| Peer::new(self.heads.client(&request, from)));
        let mut share = self.requests.begin(peer);
        let fits = share.grow(1, Limit { all: self.bounds.requests_max, least: 1 });
        let share = fits.then(|| Arc::new(share));
        let origin = route.origin(&request);
        let mut answer = if let Some(refused) = problem::of_head(&request) {
            refused
        } else if let Some(share) = &share {
            if let Some(peer) = peer {
                request.extensions_mut().insert(peer);
            }
            let upgrade = self.heads.request(&mut request, from);
            let sent = Sent::default();
            let rate = route.holds(&request).then_some(self.bounds.body_rate_min);
            // Only for upgrades: any other request that outlives its client no longer has a connection.
            let open = upgrade.is_some().then(|| (place, Arc::clone(share)));
            let known = Known { upgrade, sent: sent.clone(), open };
            request.extensions_mut().insert(known);
            let timed = |body| Timed::new(body, self.bounds.idle_wait).at_least(rate).telling(&sent);
            // A request's body may end after the answer.
            let request = request.map(|body| Holding::new(timed(body), Arc::clone(share)));
            route.answer(request).await
        } else {
            problem::too_many()
        };
        if let Some(origin) = origin.filter(|_| answer.extensions().get::<Own>().is_some()) {
            problem::allow(answer.headers_mut(), origin);
        }
        let outcome = answer.extensions().get::<Outcome>().copied().unwrap_or(Outcome::Passed).as_str();
        tracing::debug!(route = route.path.as_ref().map(Pattern::text), status = answer.status().as_u16(), outcome);
        route.metrics.answered(outcome);
        let copied = share.clone().filter(|_| is_two);
        answer.map(|body| PacedBody::new(Holding::new(body, (busy, one, share)), pace, copied))
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

    /// Whether a request's body is held in memory, because the request has a key that counts.
    fn holds<B>(&self, request: &Request<B>) -> bool {
        let has_key = |(header, _): &(HeaderName, _)| request.headers().contains_key(header);
        self.guard.as_ref().is_some_and(has_key) && !request.method().is_safe()
    }

    /// The origin of the page for which a browser sends a request under a key. The service has already allowed that
    /// page such requests: a browser asks (`OPTIONS`) before it sends a header such as the key's to another origin.
    fn origin<B>(&self, request: &Request<B>) -> Option<HeaderValue> {
        request.headers().get(ORIGIN).filter(|_| self.holds(request)).cloned()
    }

    async fn answer(&self, request: Request<Holding<Timed<Incoming>, Arc<Share>>>) -> Response<Body> {
        let answered = match &self.guard {
            Some((_, guard)) => guard.clone().call(request).await,
            None => self.forward.clone().call(request.map(Body::stream)).await,
        };
        match answered {
            Ok(answer) => answer,
            Err(never) => match never {},
        }
    }
}

/// The layer with this rule's settings.
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
    // Does not fail: the fields were checked when the settings were read.
    let except = rule.fingerprint_except.iter().map(String::as_str);
    layer.clone().fingerprint_except(except).unwrap_or(layer)
}
