//! Carries a request out: runs the service, extends the lease meanwhile, and remembers the response.
//!
//! A reservation ([`Reservation`]) lasts for a lease; if the lease is not extended in time, another holder may take
//! over the request, and this one is *fenced*: the store refuses its changes. An [`Answer`] is what the store remembers
//! of a response. A request is in doubt if nobody knows whether the service has carried it out.

use std::any::Any;
use std::ops::ControlFlow;
use std::panic::{self, AssertUnwindSafe};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use futures_util::future;
use http::header::CONTENT_TYPE;
use http::response::Parts;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::BodyExt;
use sha2::{Digest, Sha256};

use super::body::{Body, BodyError};
use super::grpc;
use super::outcome::{GivenUp, MayHaveRun, NotRun, Outcome};
use super::problem::Problem;
use super::remembering::DigestedBody;
use super::serve::{GuardedRequest, Shared};
use super::settings::Disposition;
use super::shares::{Limit, Peer, Share};
use crate::request::{Answer, AnswerBody, Error, Found, Id, OnInDoubt, Reply, Reservation, StillHeld};

/// The lease is extended every `lease / EXTENSIONS_PER_LEASE`.
const EXTENSIONS_PER_LEASE: u32 = 3;
/// The first pause before a failed change of a reservation is retried; each further pause is twice as long.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// The longest such pause.
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(1);

/// How the service's run of a request ended.
enum RunEnd<E> {
    /// With a response that was read whole: its head, its body, and its trailers if it has any.
    Whole(Parts, BodySoFar, Option<HeaderMap>),
    /// With a response whose body is too large to be remembered whole, or is a stream: its head, the part of the body
    /// that was read, and the rest.
    Large(Parts, BodySoFar, Body),
    /// With a response that is not remembered: if the request is repeated, it is carried out again.
    Released(Response<Body>),
    /// The service may have carried the request out, but gave no response that can be remembered.
    InDoubt(ServiceResult<E>, ServiceState),
}

/// Whether a service whose request is in doubt is still at work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServiceState {
    /// It is not at work any more.
    Ended,
    /// It may still be at work, but nobody waits for it any more.
    GivenUp,
}

/// The part of a response's body that was read. Until it is sent or dropped, its bytes count against the bound on all
/// bodies together.
struct BodySoFar {
    /// Pieces are joined as they arrive, as in a request's body.
    bytes: BytesMut,
    share: Share,
}

impl BodySoFar {
    /// Adds a piece. Returns whether the body may still be remembered whole: it has at most `bytes_max` bytes, and all
    /// bodies together are within `limit`.
    fn add(&mut self, piece: &[u8], bytes_max: usize, limit: Limit) -> bool {
        self.bytes.extend_from_slice(piece);
        self.bytes.len() <= bytes_max && self.share.grow(piece.len(), limit)
    }

    fn into_bytes(self) -> Bytes {
        self.share.hold(self.bytes.freeze())
    }
}

/// The service's result for a request in doubt; the client gets it.
enum ServiceResult<E> {
    Response(Box<Response<Body>>),
    Error(E),
    Panic(Box<dyn Any + Send>),
}

impl<E> ServiceResult<E> {
    fn into_result(self) -> Result<Response<Body>, E> {
        match self {
            Self::Response(response) => Ok(*response),
            Self::Error(error) => Err(error),
            Self::Panic(panicked) => panic::resume_unwind(panicked),
        }
    }
}

impl GuardedRequest {
    /// Has the service carry out the reserved request.
    pub async fn run_reserved<S, R>(
        self,
        held: Reservation,
        inner: S,
        request: Request<Body>,
    ) -> Result<Response<Body>, S::Error>
    where
        S: tower_service::Service<Request<Body>, Response = Response<R>>,
        R: http_body::Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BodyError>,
    {
        // Until this is dropped, repetitions of the request can wait for it.
        let awaitable_request = self.shared.awaitable_requests.begin(self.id);
        let is_extending = AtomicBool::new(false);
        let mut extending = pin!(self.extend_lease(held, &is_extending));
        let end = tokio::select! {
            biased;
            end = AssertUnwindSafe(self.shared.run_service((self.id, self.peer), inner, request)).catch_unwind() => {
                end.unwrap_or_else(|panicked| RunEnd::InDoubt(ServiceResult::Panic(panicked), ServiceState::Ended))
            }
            never = &mut extending => match never {},
        };
        let response = match end {
            RunEnd::Whole(parts, read, trailers) => Ok(self.remember_whole(held, parts, read, trailers).await),
            RunEnd::Large(parts, read, rest) => Ok(Box::pin(self.remember_large(held, parts, read, rest)).await),
            RunEnd::Released(response) => {
                self.shared.release(held).await;
                Ok(with_outcome(Outcome::Released, response))
            }
            RunEnd::InDoubt(result, state) => {
                // Completes an extension that is under way: if it reached the store after the change below, the lease
                // would last as if somebody were at work.
                let is_under_way = || is_extending.load(Ordering::Relaxed);
                future::poll_fn(|context| {
                    if is_under_way()
                        && let Poll::Ready(never) = extending.as_mut().poll(context)
                    {
                        match never {}
                    }
                    if is_under_way() { Poll::Pending } else { Poll::Ready(()) }
                })
                .await;
                let outcome = self.shared.settle_in_doubt(held, state).await;
                result.into_result().map(|response| with_outcome(outcome, response))
            }
        };
        // The repetitions that wait for this request ask the store now.
        drop(awaitable_request);
        response
    }

    /// Extends the lease for as long as this is polled. Sets `is_extending` while an extension is under way.
    async fn extend_lease(&self, held: Reservation, is_extending: &AtomicBool) -> std::convert::Infallible {
        let Shared { settings, store, surroundings, .. } = &*self.shared;
        loop {
            surroundings.sleep(settings.lease / EXTENSIONS_PER_LEASE).await;
            is_extending.store(true, Ordering::Relaxed);
            let extended = self.shared.in_time(store.extend(held, settings.lease)).await;
            is_extending.store(false, Ordering::Relaxed);
            match extended {
                Ok(StillHeld::Yes) => {}
                Ok(StillHeld::Fenced) => {
                    tracing::warn!(
                        request = %self.id.short(),
                        "a request that is at work has lost its reservation, perhaps because its lease was not \
                         extended in time"
                    );
                    return future::pending().await;
                }
                Err(error) => tracing::warn!(request = %self.id.short(), %error, "a lease could not be extended"),
            }
        }
    }

    /// Remembers a response that was read whole, before it is sent.
    async fn remember_whole(
        &self,
        held: Reservation,
        parts: Parts,
        read: BodySoFar,
        trailers: Option<HeaderMap>,
    ) -> Response<Body> {
        let whole = read.into_bytes();
        // Trailers are not remembered. A replay without them would lack gRPC's status, so a body with trailers is not
        // replayed: only its digest is remembered.
        let body = match &trailers {
            None => AnswerBody::Whole(whole.clone()),
            Some(_) => AnswerBody::Digest { length: whole.len() as u64, sha256: Sha256::digest(&whole).into() },
        };
        let answer = self.shared.remembered_answer(&parts, body);
        let response = Response::from_parts(parts, Body::with_ready(whole, trailers, None));
        match self.remember(held, &answer).await {
            Ok(StillHeld::Yes) => with_outcome(Outcome::Done, response),
            // Boxed, as for a large response: otherwise a rare case would enlarge every request's future, and a future
            // is copied when it is moved.
            Ok(StillHeld::Fenced) => Box::pin(self.answer_fenced(&answer, response)).await,
            Err(error) => self.not_remembered(&error, response),
        }
    }

    /// Remembers, before the response is sent, that the request was answered; once the body has been sent, its digest.
    async fn remember_large(&self, held: Reservation, parts: Parts, read: BodySoFar, rest: Body) -> Response<Body> {
        // Counts as cut off until the digest is remembered.
        let answer = self.shared.remembered_answer(&parts, AnswerBody::CutOff);
        let body = Body::with_ready(read.into_bytes(), None, Some(rest));
        match self.remember(held, &answer).await {
            Ok(StillHeld::Yes) => {
                let digested = DigestedBody::new(body, answer, held, Arc::clone(&self.shared));
                with_outcome(Outcome::Done, Response::from_parts(parts, Body::stream(digested)))
            }
            Ok(StillHeld::Fenced) => Box::pin(self.answer_fenced(&answer, Response::from_parts(parts, body))).await,
            Err(error) => self.not_remembered(&error, Response::from_parts(parts, body)),
        }
    }

    /// Logs that the response could not be remembered, and marks it so.
    fn not_remembered(&self, error: &Error, response: Response<Body>) -> Response<Body> {
        tracing::error!(
            request = %self.id.short(),
            %error,
            "a request was carried out and its answer could not be remembered"
        );
        with_outcome(Outcome::NotRemembered, response)
    }

    /// Remembers the response; retries for `store_wait`.
    async fn remember(&self, held: Reservation, answer: &Answer) -> Result<StillHeld, Error> {
        let Shared { settings, store, .. } = &*self.shared;
        self.shared.retry(|| store.complete(held, answer, settings.retention)).await
    }

    /// Answers after another holder has taken the request over. The other holder's response counts: this client gets it
    /// as well, if it is there within `settings.wait`. If the other holder is gone without a response, this holder's
    /// response is remembered, or, with [`OnInDoubt::Refuse`], the request is in doubt.
    async fn answer_fenced(&self, answer: &Answer, response: Response<Body>) -> Response<Body> {
        let held = Reservation { id: self.id, token: self.shared.surroundings.token() };
        match self.reserve_or_wait(held).await {
            Ok(Found::Answered(first)) => {
                // Only one of the two responses is held in memory.
                drop(response);
                // The error of `replay` would tell the client that nothing was done, but the request was carried out:
                // the client should ask once more.
                self.shared.replay(&first, self.peer).unwrap_or_else(|_| Problem::InProgress.response())
            }
            Ok(Found::Reserved { .. }) => match self.remember(held, answer).await {
                Ok(StillHeld::Yes) => with_outcome(Outcome::Done, response),
                Ok(StillHeld::Fenced) => Problem::InProgress.response(),
                Err(error) => self.not_remembered(&error, response),
            },
            Ok(Found::InProgress) => Problem::InProgress.response(),
            Ok(Found::InDoubt | Found::OtherRequest) => Problem::InDoubt(self.id).response(),
            Err(error) => self.not_remembered(&error, response),
        }
    }
}

impl Shared {
    /// Ends the reservation of a request that may have been carried out: at once, or after the grace period in which a
    /// service that was given up may still be at work.
    async fn settle_in_doubt(self: &Arc<Self>, held: Reservation, state: ServiceState) -> Outcome {
        let settings = &self.settings;
        match (state, settings.on_in_doubt) {
            // If the request were carried out again now, it would run in parallel to the call that was given up.
            (ServiceState::GivenUp, _) => self.end_lease_after(held, settings.grace).await,
            (ServiceState::Ended, OnInDoubt::Refuse) => self.end_lease_after(held, Duration::ZERO).await,
            (ServiceState::Ended, OnInDoubt::Run) => {
                self.release(held).await;
                return Outcome::Released;
            }
        }
        Outcome::InDoubt
    }

    /// Releases a reservation; if the store fails, retries in the background.
    pub async fn release(self: &Arc<Self>, held: Reservation) {
        self.change_last(held, move |shared| shared.store.release(held)).await;
    }

    /// Makes the lease of a request that nobody works on any more end after `length`.
    async fn end_lease_after(self: &Arc<Self>, held: Reservation, length: Duration) {
        self.change_last(held, move |shared| shared.store.extend(held, length)).await;
    }

    /// Makes the last change of a reservation that ends without a response: its release, or its last lease. If the
    /// store fails, the change is retried in the background; if the retries fail too, the lease expires unchanged.
    async fn change_last(
        self: &Arc<Self>,
        held: Reservation,
        change: impl Fn(&Self) -> Reply<'_, StillHeld> + Send + Sync + 'static,
    ) {
        let log_failure = move |changed| {
            if let Err(error) = changed {
                let request = held.id.short();
                tracing::warn!(
                    %request,
                    %error,
                    "a reservation could not be ended: it stays until its lease expires"
                );
            }
        };
        match self.in_time(change(self)).await {
            Err(error) if error.may_pass() => {
                let shared = Arc::clone(self);
                tokio::spawn(async move { log_failure(shared.retry(|| change(&shared)).await) });
            }
            changed => log_failure(changed),
        }
    }

    /// Calls the store, and retries for `store_wait` while that may help. The last attempt begins within that time, and
    /// may take as long as any other.
    async fn retry<'a>(&self, call: impl Fn() -> Reply<'a, StillHeld> + Sync) -> Result<StillHeld, Error> {
        let Shared { settings, surroundings, .. } = self;
        let deadline = surroundings.now() + settings.store_wait;
        let mut pause = RETRY_PAUSE;
        loop {
            let reply = self.in_time(call()).await;
            let may_pass = reply.as_ref().is_err_and(Error::may_pass);
            if !may_pass || surroundings.now() + pause >= deadline {
                return reply;
            }
            surroundings.sleep(pause).await;
            pause = (pause * 2).min(RETRY_PAUSE_MAX);
        }
    }

    /// Runs the service, and reads as much of its response as may be remembered.
    async fn run_service<S, R>(
        &self,
        (id, peer): (Id, Option<Peer>),
        mut inner: S,
        request: Request<Body>,
    ) -> RunEnd<S::Error>
    where
        S: tower_service::Service<Request<Body>, Response = Response<R>>,
        R: http_body::Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BodyError>,
    {
        let response = match inner.call(request).await {
            Ok(response) => response.map(Body::stream),
            Err(error) => return RunEnd::InDoubt(ServiceResult::Error(error), ServiceState::Ended),
        };
        let extensions = response.extensions();
        if extensions.get::<GivenUp>().is_some() {
            return RunEnd::InDoubt(ServiceResult::Response(Box::new(response)), ServiceState::GivenUp);
        }
        if extensions.get::<MayHaveRun>().is_some() {
            return RunEnd::InDoubt(ServiceResult::Response(Box::new(response)), ServiceState::Ended);
        }
        if extensions.get::<NotRun>().is_some() {
            return RunEnd::Released(response);
        }
        let status = grpc::status(response.headers()).unwrap_or(response.status());
        let response = match self.check_status(id, status, response) {
            ControlFlow::Continue(response) => response,
            ControlFlow::Break(end) => return end,
        };
        let (parts, mut body) = response.into_parts();
        let mut read = BodySoFar { bytes: BytesMut::new(), share: self.at_work.begin_body(peer) };
        if is_stream(&parts.headers) {
            return RunEnd::Large(parts, read, body);
        }
        let mut trailers = None;
        while let Some(frame) = body.frame().await {
            match frame.map(http_body::Frame::into_data) {
                Ok(Ok(data)) => {
                    if !read.add(&data, self.settings.answer_bytes_max, self.bodies_limit()) {
                        return RunEnd::Large(parts, read, body);
                    }
                }
                Ok(Err(frame)) => trailers = frame.into_trailers().ok().filter(|trailers| !trailers.is_empty()),
                // The client has received nothing of the response yet, and must not receive a part of it.
                Err(error) => {
                    let (request, why) = (id.short(), error.to_string());
                    tracing::warn!(request, %why, "an answer broke off: the request is in doubt");
                    let state = if error.is::<GivenUp>() { ServiceState::GivenUp } else { ServiceState::Ended };
                    return RunEnd::InDoubt(ServiceResult::Response(Box::new(Problem::AnswerLost.response())), state);
                }
            }
        }
        match trailers.as_ref().and_then(grpc::status) {
            Some(status) if self.settings.disposition(status) != Disposition::Remembered => {
                let response = Response::from_parts(parts, Body::with_ready(read.into_bytes(), trailers, None));
                match self.check_status(id, status, response) {
                    // Cannot happen: the condition above excludes statuses that are remembered.
                    ControlFlow::Continue(response) => RunEnd::Released(response),
                    ControlFlow::Break(end) => end,
                }
            }
            _ => RunEnd::Whole(parts, read, trailers),
        }
    }

    /// Continues with the response if responses of this status are remembered; otherwise breaks with the run's end.
    fn check_status<E>(
        &self,
        id: Id,
        status: StatusCode,
        response: Response<Body>,
    ) -> ControlFlow<RunEnd<E>, Response<Body>> {
        match self.settings.disposition(status) {
            Disposition::Remembered => ControlFlow::Continue(response),
            Disposition::Released => ControlFlow::Break(RunEnd::Released(response)),
            Disposition::InDoubt => {
                let (request, status) = (id.short(), status.as_u16());
                tracing::warn!(
                    request,
                    status,
                    "the service failed, perhaps after doing its work: the request is in doubt"
                );
                ControlFlow::Break(RunEnd::InDoubt(ServiceResult::Response(Box::new(response)), ServiceState::Ended))
            }
        }
    }

    /// The part of a response that is remembered, with this body.
    fn remembered_answer(&self, parts: &Parts, body: AnswerBody) -> Answer {
        let remembered = &self.settings.remembered_headers;
        let grpc_headers = grpc::HEADERS.iter().filter(|name| !remembered.contains(name));
        let names = remembered.iter().chain(grpc_headers);
        let values = |name| parts.headers.get_all(name).iter().map(move |value| (name, value));
        let headers = names.flat_map(values);
        let headers = headers.map(|(name, value)| (name.as_str().to_owned(), Bytes::copy_from_slice(value.as_bytes())));
        Answer { status: parts.status.as_u16(), headers: headers.collect(), body }
    }
}

/// Whether a response is a stream of events, which has no end of its own.
pub fn is_stream(headers: &HeaderMap) -> bool {
    let media_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    media_type.trim_start().to_ascii_lowercase().starts_with("text/event-stream")
}

fn with_outcome(outcome: Outcome, mut response: Response<Body>) -> Response<Body> {
    response.extensions_mut().insert(outcome);
    response
}
