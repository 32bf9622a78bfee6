//! Passes requests on to the service, and its responses back.
//!
//! The layer ([`crate::http`]) stands in front of this. A guarded request has a key, under which the layer has reserved
//! it after reading its whole body: it has its [`Reservation`] among its extensions.
//!
//! The service's response is passed on as it arrives. If the service does not respond, the proxy itself answers, and
//! says whether the request may have been carried out.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::UPGRADE;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Version, header};
use http_body::Body as _;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::time::Instant;
use tower_service::Service;

use super::body::{BodyProgress, HoldingBody, TimedBody};
use super::places::Place;
use super::upstream::Upstream;
use super::{head, problem};
use crate::http::Body;
use crate::http::proxying::{LogLimit, Share, is_stream};
use crate::http::request::Reservation;
use crate::observe::RouteMetrics;

/// Hands requests of one route to the service.
#[derive(Clone)]
pub struct Forward {
    /// The service.
    pub upstream: Arc<Upstream>,
    /// How long the service may take to begin its response, and, for a request with a key, to send each piece of it
    /// (unless it is a stream of events).
    pub timeout: Duration,
    /// How long a client may be silent.
    pub idle_wait: Duration,
    /// The route's metrics.
    pub metrics: RouteMetrics,
    /// Counts requests whose bodies broke off, with the moment when counting began.
    pub unread_bodies: Arc<(LogLimit, Instant)>,
}

/// The proxy's data about a request; one of the request's extensions.
#[derive(Clone)]
pub struct RequestContext {
    /// The protocol that the request asks to upgrade to.
    pub upgrade: Option<HeaderValue>,
    /// How far the request's body was read.
    pub progress: BodyProgress,
    /// The guards of the upgraded connection, if the request asks for an upgrade.
    pub upgrade_guards: Option<UpgradeGuards>,
}

/// The guards that an upgraded connection holds while it is open: the place of the connection to the client, and the
/// request's share of all requests.
type UpgradeGuards = (Arc<Place>, Arc<Share>);

impl Service<Request<Body>> for Forward {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let forward = self.clone();
        Box::pin(async move { Ok(forward.forward_request(request).await) })
    }
}

impl Forward {
    async fn forward_request(self, mut request: Request<Body>) -> Response<Body> {
        let reservation = request.extensions_mut().remove::<Reservation>();
        let is_guarded = reservation.is_some();
        let context = request.extensions_mut().remove::<RequestContext>();
        let upgrade = context.as_ref().filter(|_| !is_guarded).and_then(|context| context.upgrade.clone());
        let client = upgrade.as_ref().and_then(|_| request.extensions_mut().remove::<OnUpgrade>());
        if let Some(protocol) = &upgrade {
            request.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
            request.headers_mut().insert(UPGRADE, protocol.clone());
        }
        let has_body = !is_guarded && !request.body().is_end_stream();
        let progress =
            context.as_ref().filter(|_| !is_guarded).map(|context| context.progress.clone()).unwrap_or_default();
        let began = Instant::now();
        let timeout = progress.clone().wait_until_late(self.timeout, self.idle_wait, has_body);
        let mut service_response = match self.upstream.send(request, upgrade.is_some(), timeout).await {
            Ok(service_response) => service_response,
            // Even if the service has failed as well, the cause is the client: its request never arrived completely.
            Err(_) if progress.is_broken() => {
                if let Some(count) = self.unread_bodies.0.count(self.unread_bodies.1.elapsed()) {
                    tracing::warn!(
                        count,
                        "requests could not be forwarded completely: their clients broke off or sent an invalid body"
                    );
                }
                return problem::body_unread();
            }
            Err(failure) => {
                let request_name = reservation.map(|reservation| reservation.id.short());
                tracing::warn!(request = request_name, %failure, "the service did not answer a request");
                self.metrics.upstream_failed(failure.as_str());
                return problem::from_failure(&failure);
            }
        };
        self.metrics.upstream_answered(began.elapsed());
        let response = &mut service_response.response;
        *response.version_mut() = Version::HTTP_11;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let service = response.extensions_mut().remove::<OnUpgrade>();
            let upgrade_guards = context.and_then(|context| context.upgrade_guards);
            return switch_protocols(response.headers(), client.zip(service), upgrade_guards);
        }
        head::rewrite_response(response.headers_mut());
        let is_timed = is_guarded && !is_stream(response.headers());
        // The slot is the request's part of a connection to the service, and is free again when the body has ended.
        let (timeout, slot) = (self.timeout, service_response.slot);
        service_response.response.map(|body| match is_timed {
            true => Body::stream(HoldingBody::new(TimedBody::new(body, timeout), slot)),
            false => Body::stream(HoldingBody::new(body, slot)),
        })
    }
}

/// Upgrades both connections to another protocol, and passes on the bytes that each side sends, until both sides have
/// ended or one fails.
fn switch_protocols(
    service_headers: &HeaderMap,
    sides: Option<(OnUpgrade, OnUpgrade)>,
    upgrade_guards: Option<UpgradeGuards>,
) -> Response<Body> {
    let Some((client, service)) = sides else {
        // The client has not asked for an upgrade.
        let failure = super::upstream::Failure::Lost("it switched protocols without being asked".to_owned());
        return problem::from_failure(&failure);
    };
    let mut response = Response::new(Body::default());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let upgrade = service_headers.get(UPGRADE).cloned();
    *response.headers_mut() = service_headers.clone();
    head::rewrite_response(response.headers_mut());
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    upgrade.into_iter().for_each(|protocol| drop(response.headers_mut().insert(UPGRADE, protocol)));
    tokio::spawn(async move {
        // Both connections count against the bounds on clients while they are open.
        let _guards = upgrade_guards;
        let (client, service) = match tokio::try_join!(client, service) {
            Ok(upgraded) => upgraded,
            Err(error) => return tracing::debug!(%error, "a protocol upgrade failed"),
        };
        let (mut client, mut service) = (TokioIo::new(client), TokioIo::new(service));
        if let Err(error) = tokio::io::copy_bidirectional(&mut client, &mut service).await {
            tracing::debug!(%error, "an upgraded connection broke off");
        }
    });
    response
}
