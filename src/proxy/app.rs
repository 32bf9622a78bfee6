//! Finds the rule of each request, and counts requests.
//!
//! The layer is [`Idempotency`]: it carries out a request under a key once. [`Guard`] is the layer around a service. A
//! [`Share`] is the part of a bound that a request has taken. A [`Place`] is an open connection's part of the bound on
//! connections.

use std::sync::Arc;

use http::header::ORIGIN;
use http::{HeaderName, HeaderValue, Method, Request, Response, Version};
use hyper::body::Incoming;
use tokio::time::Instant;
use tower_layer::Layer;
use tower_service::Service;

use super::activity::Busy;
use super::body::{BodyProgress, HoldingBody, TimedBody};
use super::forward::{Forward, RequestContext};
use super::head::{ClientInfo, HeadRules};
use super::places::Place;
use super::problem;
use super::responses::{Pace, PacedBody};
use super::routes::Pattern;
use super::settings::{Bounds, Config, KeyUse, Rule};
use super::upstream::Upstream;
use super::usage::Bound;
use crate::http::proxying::{Limit, LogLimit, RecordedByHand, Share, Shares};
use crate::http::{Body, Guard, Idempotency, Outcome, OwnResponse, Peer, Store};
use crate::observe::{Metrics, OneConnection, RouteMetrics};

/// All routes.
pub struct App {
    heads: HeadRules,
    routes: Vec<ServedRoute>,
    /// The layer that all routes' layers are cloned from: together they count requests at work, and remove expired
    /// responses from the store.
    layer: Idempotency,
    bounds: Bounds,
    /// The shares of all requests in progress, under a key or not.
    requests: Arc<Shares>,
    metrics: Metrics,
}

/// A request's connection to the client.
pub struct ConnectionContext {
    /// The client's address and transport.
    pub client: ClientInfo,
    /// The connection's place.
    pub place: Arc<Place>,
    /// Marks the connection as busy.
    pub busy: Busy,
    /// How fast the client reads the response.
    pub pace: Arc<Pace>,
}

/// The values that a response holds until it has ended: each counts something until it is dropped.
type ResponseGuards = (Busy, crate::observe::OneRequest, Option<Arc<Share>>);

/// A route.
struct ServedRoute {
    path: Option<Pattern>,
    methods: Vec<Method>,
    metrics: RouteMetrics,
    forward: Forward,
    /// The header of keys, and the service that carries out requests under a key once; `None` if keys are ignored.
    keyed_service: Option<(HeaderName, Guard<Forward>)>,
}

/// A response that is being sent to the client.
pub type ClientResponse = Response<PacedBody<ResponseGuards>>;

impl App {
    /// All routes of a configuration, with this store.
    pub fn new(config: &Config, store: &Arc<dyn Store>, metrics: &Metrics) -> Self {
        let upstream = Arc::new(Upstream::new(config.upstream.clone()));
        let reserved = config.routes.iter().filter_map(|route| route.rule.reservation_header.clone());
        let mut reserved: Vec<HeaderName> = reserved.collect();
        reserved.sort_by(|one, other| one.as_str().cmp(other.as_str()));
        reserved.dedup();
        let heads = HeadRules {
            trusts_forwarded: config.trusts_forwarded,
            host: config.sets_host.then(|| config.upstream.host_header()).flatten(),
            reserved,
        };
        let layer = Idempotency::shared(Arc::clone(store)).store_wait(config.store_wait);
        // A key belongs to one host, unless the proxy sets the host: then there is one service, whichever host clients
        // name.
        let layer = layer.scope(config.service.clone()).by_host(!config.sets_host);
        let layer = layer.at_work_max(config.bounds.at_work_max).bodies_bytes_max(config.bounds.bodies_bytes_max);
        let unread_bodies = Arc::new((LogLimit::default(), Instant::now()));
        let routes = config.routes.iter().map(|route| {
            let metrics = metrics.route(route.name());
            let forward = Forward {
                upstream: Arc::clone(&upstream),
                timeout: route.rule.timeout,
                idle_wait: config.bounds.idle_wait,
                metrics: metrics.clone(),
                unread_bodies: Arc::clone(&unread_bodies),
            };
            let keyed = || (route.rule.header.clone(), apply_rule(layer.clone(), &route.rule).layer(forward.clone()));
            let keyed_service = (route.rule.key != KeyUse::Off).then(keyed);
            ServedRoute { path: route.path.clone(), methods: route.methods.clone(), metrics, forward, keyed_service }
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

    /// Counts a client's connection until the returned guard is dropped.
    pub fn connected(&self) -> OneConnection {
        self.metrics.connection()
    }

    /// Answers a request.
    pub async fn answer(&self, mut request: Request<Incoming>, connection: ConnectionContext) -> ClientResponse {
        let ConnectionContext { client, place, busy, pace } = connection;
        let is_http2 = request.version() == Version::HTTP_2;
        // The last route matches every request.
        let route = self.routes.iter().find(|route| route.matches(request.method(), request.uri().path()));
        let route = route.unwrap_or(&self.routes[self.routes.len() - 1]);
        let counted_request = route.metrics.begin();
        let peer = self.bounds.has_shares.then(|| Peer::new(self.heads.client_address(&request, client)));
        let mut share = self.requests.empty_share(peer);
        let has_share = share.grow(1, Limit { total: self.bounds.requests_max, guaranteed: 1 });
        let share = has_share.then(|| Arc::new(share));
        let origin = route.origin(&request);
        let mut response = if let Some(rejection) = problem::check_head(&request) {
            rejection
        } else if let Some(share) = &share {
            if let Some(peer) = peer {
                request.extensions_mut().insert(peer);
            }
            let upgrade = self.heads.rewrite_request(&mut request, client);
            let progress = BodyProgress::default();
            let rate = route.buffers_body(&request).then_some(self.bounds.body_rate_min);
            // Only a request that asks for an upgrade holds its connection's place, for the upgraded connection. Any
            // other request may outlive its client, and must not hold the place of a connection that is gone.
            let upgrade_guards = upgrade.is_some().then(|| (place, Arc::clone(share)));
            let context = RequestContext { upgrade, progress: progress.clone(), upgrade_guards };
            request.extensions_mut().insert(context);
            let timed = |body| TimedBody::new(body, self.bounds.idle_wait).with_rate_min(rate).reporting_to(&progress);
            // The request's body holds the share too: it may end after the response.
            let request = request.map(|body| HoldingBody::new(timed(body), Arc::clone(share)));
            route.answer(request).await
        } else {
            problem::too_many()
        };
        // The proxy's own responses, and responses recorded by an operator, lack the headers that allow an origin.
        let extensions = response.extensions();
        let is_from_service = extensions.get::<OwnResponse>().is_none() && extensions.get::<RecordedByHand>().is_none();
        if let Some(origin) = origin.filter(|_| !is_from_service) {
            problem::allow_origin(response.headers_mut(), origin);
        }
        let outcome = response.extensions().get::<Outcome>().copied().unwrap_or(Outcome::Passed).as_str();
        tracing::debug!(route = route.path.as_ref().map(Pattern::text), status = response.status().as_u16(), outcome);
        route.metrics.answered(outcome);
        let copy_share = share.clone().filter(|_| is_http2);
        response.map(|body| PacedBody::new(HoldingBody::new(body, (busy, counted_request, share)), pace, copy_share))
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

impl ServedRoute {
    fn matches(&self, method: &Method, path: &str) -> bool {
        (self.methods.is_empty() || self.methods.contains(method))
            && self.path.as_ref().is_none_or(|pattern| pattern.matches(path))
    }

    /// Whether a request's body is held in memory, because the request has a key that counts.
    fn buffers_body<B>(&self, request: &Request<B>) -> bool {
        let has_key = |(header, _): &(HeaderName, _)| request.headers().contains_key(header);
        self.keyed_service.as_ref().is_some_and(has_key) && !request.method().is_safe()
    }

    /// The origin of the page for which a browser sends a request under a key. The service has already allowed that
    /// page such requests: a browser asks (`OPTIONS`) before it sends a header such as the key's to another origin.
    fn origin<B>(&self, request: &Request<B>) -> Option<HeaderValue> {
        request.headers().get(ORIGIN).filter(|_| self.buffers_body(request)).cloned()
    }

    async fn answer(&self, request: Request<HoldingBody<TimedBody<Incoming>, Arc<Share>>>) -> Response<Body> {
        let result = match &self.keyed_service {
            Some((_, service)) => service.clone().call(request).await,
            None => self.forward.clone().call(request.map(Body::stream)).await,
        };
        match result {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }
}

/// The layer with this rule's settings.
fn apply_rule(layer: Idempotency, rule: &Rule) -> Idempotency {
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
        .released(rule.releasing_statuses.iter().copied());
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
