//! Passes requests on to the service, and its answers back; below the layer.
//!
//! The service's answer is passed on as it comes. If there is none, the proxy itself answers, and says whether the
//! request may have been carried out.

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

use super::body::{Holding, Sent, Timed};
use super::places::Place;
use super::upstream::Upstream;
use super::{head, problem};
use crate::http::Body;
use crate::http::proxying::{LogLimit, Share, is_stream};
use crate::http::request::Held;
use crate::observe::RouteMetrics;

/// Hands requests of one route to the service.
#[derive(Clone)]
pub struct Forward {
    /// The service.
    pub upstream: Arc<Upstream>,
    /// How long the service may take.
    pub timeout: Duration,
    /// How long a client may be silent.
    pub idle_wait: Duration,
    /// The route's metrics.
    pub metrics: RouteMetrics,
    /// Counts requests whose bodies broke off, with the moment when counting began.
    pub unread: Arc<(LogLimit, Instant)>,
}

/// What the proxy knows of a request; one of the request's extensions.
#[derive(Clone)]
pub struct Known {
    /// The protocol that the request asks to upgrade to.
    pub upgrade: Option<HeaderValue>,
    /// How far its body was read.
    pub sent: Sent,
    /// Its connection's place and its share of all requests, if it asks for an upgrade.
    pub open: Option<Open>,
}

/// What an upgraded request holds while it is open.
type Open = (Arc<Place>, Arc<Share>);

impl Service<Request<Body>> for Forward {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let forward = self.clone();
        Box::pin(async move { Ok(forward.carry(request).await) })
    }
}

impl Forward {
    async fn carry(self, mut request: Request<Body>) -> Response<Body> {
        let held = request.extensions_mut().remove::<Held>();
        let is_guarded = held.is_some();
        let known = request.extensions_mut().remove::<Known>();
        let upgrade = known.as_ref().filter(|_| !is_guarded).and_then(|known| known.upgrade.clone());
        let client = upgrade.as_ref().and_then(|_| request.extensions_mut().remove::<OnUpgrade>());
        if let Some(protocol) = &upgrade {
            request.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
            request.headers_mut().insert(UPGRADE, protocol.clone());
        }
        let has_body = !is_guarded && !request.body().is_end_stream();
        let sent = known.as_ref().filter(|_| !is_guarded).map(|known| known.sent.clone()).unwrap_or_default();
        let began = Instant::now();
        let late = sent.clone().late(self.timeout, self.idle_wait, has_body);
        let mut answered = match self.upstream.send(request, upgrade.is_some(), late).await {
            Ok(answered) => answered,
            // Even if the service has failed as well, the cause is the client: its request never arrived whole.
            Err(_) if sent.is_broken() => {
                if let Some(count) = self.unread.0.count(self.unread.1.elapsed()) {
                    tracing::warn!(
                        count,
                        "requests could not be forwarded completely: their clients broke off or sent an invalid body"
                    );
                }
                return problem::body_unread();
            }
            Err(failure) => {
                let name = held.map(|held| held.id.short());
                tracing::warn!(request = name, %failure, "the service did not answer a request");
                self.metrics.upstream_failed(failure.as_str());
                return problem::of_failure(&failure);
            }
        };
        self.metrics.upstream_answered(began.elapsed());
        let answer = &mut answered.answer;
        *answer.version_mut() = Version::HTTP_11;
        if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            let service = answer.extensions_mut().remove::<OnUpgrade>();
            let open = known.and_then(|known| known.open);
            return switch(answer.headers(), client.zip(service), open);
        }
        head::answer(answer.headers_mut());
        let is_timed = is_guarded && !is_stream(answer.headers());
        let (timeout, used) = (self.timeout, answered.used);
        answered.answer.map(|body| match is_timed {
            true => Body::stream(Holding::new(Timed::new(body, timeout), used)),
            false => Body::stream(Holding::new(body, used)),
        })
    }
}

/// Upgrades both sides to another protocol, and passes on what each sends until both have ended or one fails.
fn switch(said: &HeaderMap, sides: Option<(OnUpgrade, OnUpgrade)>, open: Option<Open>) -> Response<Body> {
    let Some((client, service)) = sides else {
        // The client has not asked for it.
        let failure = super::upstream::Failure::Lost("it switched protocols without being asked".to_owned());
        return problem::of_failure(&failure);
    };
    let mut answer = Response::new(Body::default());
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let upgrade = said.get(UPGRADE).cloned();
    *answer.headers_mut() = said.clone();
    head::answer(answer.headers_mut());
    answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    upgrade.into_iter().for_each(|protocol| drop(answer.headers_mut().insert(UPGRADE, protocol)));
    tokio::spawn(async move {
        // The connections to the client and to the service count while they are open.
        let _open = open;
        let (client, service) = match tokio::try_join!(client, service) {
            Ok(both) => both,
            Err(error) => return tracing::debug!(%error, "a protocol upgrade failed"),
        };
        let (mut client, mut service) = (TokioIo::new(client), TokioIo::new(service));
        if let Err(error) = tokio::io::copy_bidirectional(&mut client, &mut service).await {
            tracing::debug!(%error, "an upgraded connection broke off");
        }
    });
    answer
}
