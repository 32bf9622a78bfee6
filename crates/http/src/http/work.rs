//! Carries a request out: runs the service, extends the lease meanwhile, and remembers the answer.

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
use super::remembering::Digested;
use super::serve::{Guarded, Shared};
use super::settings::Becomes;
use super::shares::{Limit, Peer, Share};
use crate::request::{Answer, AnswerBody, Error, Found, Held, Id, Kept, OnInDoubt, Reply};

/// The lease is extended every `lease / EXTENSIONS`.
const EXTENSIONS: u32 = 3;
/// The first and the longest pause before remembering an answer, or releasing a reservation, is retried.
const AGAIN: Duration = Duration::from_millis(50);
const AGAIN_MAX: Duration = Duration::from_secs(1);

/// How the service's run of a request ended.
enum Ran<E> {
    /// With an answer that is to be remembered whole.
    Whole(Parts, Taken, Option<HeaderMap>),
    /// With an answer whose body is too large for that, or is a stream.
    Large(Parts, Taken, Body),
    /// With an answer that is not remembered: the next request is carried out.
    Released(Response<Body>),
    /// It may have run, without an answer that can be remembered.
    InDoubt(Unknown<E>, Service),
}

/// Whether a service that gave no answer to remember is still at work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Service {
    /// It is not at work any more.
    Ended,
    /// It may still be at work: nobody waits for it any more.
    GivenUp,
}

/// The body of an answer so far, counted among all bodies until it is sent or dropped.
struct Taken {
    /// Joined as the pieces arrive, like a request's body.
    bytes: BytesMut,
    counted: Share,
}

impl Taken {
    /// Takes one more piece. Returns whether the body may still be remembered whole: it has at most `bytes_max` bytes,
    /// and all bodies are within the limit `all`.
    fn take(&mut self, piece: &[u8], bytes_max: usize, all: Limit) -> bool {
        self.bytes.extend_from_slice(piece);
        self.bytes.len() <= bytes_max && self.counted.grow(piece.len(), all)
    }

    fn bytes(self) -> Bytes {
        self.counted.hold(self.bytes.freeze())
    }
}

/// The outcome of a service that may have run.
enum Unknown<E> {
    Answer(Box<Response<Body>>),
    Error(E),
    Panic(Box<dyn Any + Send>),
}

impl<E> Unknown<E> {
    fn give(self) -> Result<Response<Body>, E> {
        match self {
            Self::Answer(answer) => Ok(*answer),
            Self::Error(error) => Err(error),
            Self::Panic(panicked) => panic::resume_unwind(panicked),
        }
    }
}

impl Guarded {
    /// Has the service carry out the reserved request.
    pub async fn work<S, R>(self, held: Held, inner: S, request: Request<Body>) -> Result<Response<Body>, S::Error>
    where
        S: tower_service::Service<Request<Body>, Response = Response<R>>,
        R: http_body::Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BodyError>,
    {
        let waited = self.shared.waiters.begin(self.id);
        let is_extending = AtomicBool::new(false);
        let mut keeping = pin!(self.keep(held, &is_extending));
        let ran = tokio::select! {
            biased;
            ran = AssertUnwindSafe(self.shared.answer((self.id, self.peer), inner, request)).catch_unwind() => match ran {
                Ok(ran) => ran,
                Err(panicked) => Ran::InDoubt(Unknown::Panic(panicked), Service::Ended),
            },
            never = &mut keeping => match never {},
        };
        let answer = match ran {
            Ran::Whole(parts, taken, trailers) => Ok(self.remember_whole(held, parts, taken, trailers).await),
            Ran::Large(parts, taken, rest) => Ok(Box::pin(self.remember_large(held, parts, taken, rest)).await),
            Ran::Released(answer) => {
                self.shared.release(held).await;
                Ok(with(Outcome::Released, answer))
            }
            Ran::InDoubt(unknown, service) => {
                // Completes an extension that is under way: if it reached the store after the last change, the lease
                // would last as if somebody were at work.
                let is_at_it = || is_extending.load(Ordering::Relaxed);
                future::poll_fn(|context| {
                    if is_at_it()
                        && let Poll::Ready(never) = keeping.as_mut().poll(context)
                    {
                        match never {}
                    }
                    if is_at_it() { Poll::Pending } else { Poll::Ready(()) }
                })
                .await;
                let outcome = self.shared.doubt(held, service).await;
                unknown.give().map(|answer| with(outcome, answer))
            }
        };
        drop(waited);
        answer
    }

    /// Extends the lease for as long as this is polled. Sets `is_extending` while an extension is under way.
    async fn keep(&self, held: Held, is_extending: &AtomicBool) -> std::convert::Infallible {
        let Shared { settings, store, surroundings, .. } = &*self.shared;
        loop {
            surroundings.sleep(settings.lease / EXTENSIONS).await;
            is_extending.store(true, Ordering::Relaxed);
            let extended = self.shared.in_time(store.extend(held, settings.lease)).await;
            is_extending.store(false, Ordering::Relaxed);
            match extended {
                Ok(Kept::Yes) => {}
                Ok(Kept::Fenced) => {
                    tracing::warn!(
                        request = %self.id.short(),
                        "a request that is at work was taken over: its lease was not extended in time"
                    );
                    return future::pending().await;
                }
                Err(error) => tracing::warn!(request = %self.id.short(), %error, "a lease could not be extended"),
            }
        }
    }

    async fn remember_whole(
        &self,
        held: Held,
        parts: Parts,
        taken: Taken,
        trailers: Option<HeaderMap>,
    ) -> Response<Body> {
        let whole = taken.bytes();
        // Trailers are not remembered; without them, where gRPC has its status, it would be another answer.
        let body = match &trailers {
            None => AnswerBody::Whole(whole.clone()),
            Some(_) => AnswerBody::Digest { length: whole.len() as u64, sha256: Sha256::digest(&whole).into() },
        };
        let answer = self.shared.answer_of(&parts, body);
        let given = Response::from_parts(parts, Body::begun(whole, trailers, None));
        match self.remember(held, &answer).await {
            Ok(Kept::Yes) => with(Outcome::Done, given),
            // Boxed, as for a large answer: otherwise a rare case would enlarge every request's future, which is moved.
            Ok(Kept::Fenced) => Box::pin(self.fenced(&answer, given)).await,
            Err(error) => self.not_remembered(&error, given),
        }
    }

    /// Remembers that the request was answered before the answer is sent, and its digest at the end.
    async fn remember_large(&self, held: Held, parts: Parts, taken: Taken, rest: Body) -> Response<Body> {
        let answer = self.shared.answer_of(&parts, AnswerBody::CutOff);
        let body = Body::begun(taken.bytes(), None, Some(rest));
        match self.remember(held, &answer).await {
            Ok(Kept::Yes) => {
                let digested = Digested::new(body, answer, held, Arc::clone(&self.shared));
                with(Outcome::Done, Response::from_parts(parts, Body::stream(digested)))
            }
            Ok(Kept::Fenced) => Box::pin(self.fenced(&answer, Response::from_parts(parts, body))).await,
            Err(error) => self.not_remembered(&error, Response::from_parts(parts, body)),
        }
    }

    fn not_remembered(&self, error: &Error, given: Response<Body>) -> Response<Body> {
        tracing::error!(request = %self.id.short(), %error, "a request was carried out and its answer could not be remembered");
        with(Outcome::NotRemembered, given)
    }

    /// Remembers the answer; retries for `store_wait`.
    async fn remember(&self, held: Held, answer: &Answer) -> Result<Kept, Error> {
        let Shared { settings, store, .. } = &*self.shared;
        self.shared.again(|| store.complete(held, answer, settings.retention)).await
    }

    /// Answers after another holder has taken the request over. The answer that the other remembers is the request's:
    /// this client gets it, too, if it comes within the wait. If the other is gone without an answer, this one is
    /// remembered.
    async fn fenced(&self, answer: &Answer, given: Response<Body>) -> Response<Body> {
        let held = Held { id: self.id, token: self.shared.surroundings.token() };
        match self.find(held).await {
            Ok(Found::Answered(first)) => {
                // Only one of the two answers is held in memory.
                drop(given);
                // The request was carried out, so the client must not be told that it was not: it should ask once more.
                self.shared.replay(&first, self.peer).unwrap_or_else(|_| Problem::InProgress.answer())
            }
            Ok(Found::Reserved { .. }) => match self.remember(held, answer).await {
                Ok(Kept::Yes) => with(Outcome::Done, given),
                Ok(Kept::Fenced) => Problem::InProgress.answer(),
                Err(error) => self.not_remembered(&error, given),
            },
            Ok(Found::InProgress) => Problem::InProgress.answer(),
            Ok(Found::InDoubt | Found::Other) => Problem::InDoubt(self.id).answer(),
            Err(error) => self.not_remembered(&error, given),
        }
    }
}

impl Shared {
    /// Settles a reservation whose request may have been carried out.
    async fn doubt(self: &Arc<Self>, held: Held, service: Service) -> Outcome {
        let settings = &self.settings;
        match (service, settings.on_in_doubt) {
            // If it were carried out again now, it would run beside the call that was given up.
            (Service::GivenUp, _) => self.lease(held, settings.grace).await,
            (Service::Ended, OnInDoubt::Refuse) => self.lease(held, Duration::ZERO).await,
            (Service::Ended, OnInDoubt::Run) => {
                self.release(held).await;
                return Outcome::Released;
            }
        }
        Outcome::InDoubt
    }

    /// Releases a reservation; if the store fails, retries go on in the background.
    pub async fn release(self: &Arc<Self>, held: Held) {
        self.settle(held, move |shared| shared.store.release(held)).await;
    }

    /// Makes the lease of a request that nobody works on any more end after `length`.
    async fn lease(self: &Arc<Self>, held: Held, length: Duration) {
        self.settle(held, move |shared| shared.store.extend(held, length)).await;
    }

    /// Makes the last change of a reservation; if the store fails, retries go on in the background. If the change
    /// cannot be made, the lease expires unchanged.
    async fn settle(self: &Arc<Self>, held: Held, change: impl Fn(&Self) -> Reply<'_, Kept> + Send + Sync + 'static) {
        let told = move |changed| {
            if let Err(error) = changed {
                let request = held.id.short();
                tracing::warn!(
                    %request,
                    %error,
                    "a request could not be released: it stays reserved until its lease expires"
                );
            }
        };
        match self.in_time(change(self)).await {
            Err(error) if error.may_pass() => {
                let shared = Arc::clone(self);
                tokio::spawn(async move { told(shared.again(|| change(&shared)).await) });
            }
            changed => told(changed),
        }
    }

    /// Asks the store, and retries for `store_wait` while that may help. The last attempt, begun within that time, may
    /// take as long as any other.
    async fn again<'a>(&self, ask: impl Fn() -> Reply<'a, Kept> + Sync) -> Result<Kept, Error> {
        let Shared { settings, surroundings, .. } = self;
        let until = surroundings.now() + settings.store_wait;
        let mut pause = AGAIN;
        loop {
            let kept = self.in_time(ask()).await;
            let may_pass = kept.as_ref().is_err_and(Error::may_pass);
            if !may_pass || surroundings.now() + pause >= until {
                return kept;
            }
            surroundings.sleep(pause).await;
            pause = (pause * 2).min(AGAIN_MAX);
        }
    }

    /// Runs the service, and reads its answer as far as that is to be remembered.
    async fn answer<S, R>(&self, (id, peer): (Id, Option<Peer>), mut inner: S, request: Request<Body>) -> Ran<S::Error>
    where
        S: tower_service::Service<Request<Body>, Response = Response<R>>,
        R: http_body::Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BodyError>,
    {
        let answer = match inner.call(request).await {
            Ok(answer) => answer.map(Body::stream),
            Err(error) => return Ran::InDoubt(Unknown::Error(error), Service::Ended),
        };
        let said = answer.extensions();
        if said.get::<GivenUp>().is_some() {
            return Ran::InDoubt(Unknown::Answer(Box::new(answer)), Service::GivenUp);
        }
        if said.get::<MayHaveRun>().is_some() {
            return Ran::InDoubt(Unknown::Answer(Box::new(answer)), Service::Ended);
        }
        if said.get::<NotRun>().is_some() {
            return Ran::Released(answer);
        }
        let status = grpc::status(answer.headers()).unwrap_or(answer.status());
        let answer = match self.unless_remembered(id, status, answer) {
            ControlFlow::Continue(answer) => answer,
            ControlFlow::Break(ran) => return ran,
        };
        let (parts, mut body) = answer.into_parts();
        let mut taken = Taken { bytes: BytesMut::new(), counted: self.at_work.begin_body(peer) };
        if is_stream(&parts.headers) {
            return Ran::Large(parts, taken, body);
        }
        let mut trailers = None;
        while let Some(frame) = body.frame().await {
            match frame.map(http_body::Frame::into_data) {
                Ok(Ok(data)) => {
                    if !taken.take(&data, self.settings.answer_bytes_max, self.bodies()) {
                        return Ran::Large(parts, taken, body);
                    }
                }
                Ok(Err(frame)) => trailers = frame.into_trailers().ok().filter(|trailers| !trailers.is_empty()),
                // No client has got any of it yet, and none must get half of it.
                Err(error) => {
                    let (request, why) = (id.short(), error.to_string());
                    tracing::warn!(request, %why, "an answer broke off: the request is in doubt");
                    let service = if error.is::<GivenUp>() { Service::GivenUp } else { Service::Ended };
                    return Ran::InDoubt(Unknown::Answer(Box::new(Problem::AnswerLost.answer())), service);
                }
            }
        }
        match trailers.as_ref().and_then(grpc::status) {
            Some(status) if self.settings.becomes(status) != Becomes::Remembered => {
                let answer = Response::from_parts(parts, Body::begun(taken.bytes(), trailers, None));
                match self.unless_remembered(id, status, answer) {
                    ControlFlow::Continue(answer) => Ran::Released(answer),
                    ControlFlow::Break(ran) => ran,
                }
            }
            _ => Ran::Whole(parts, taken, trailers),
        }
    }

    /// Continues with the answer if one of this status is remembered; otherwise breaks with how the run ended.
    fn unless_remembered<E>(
        &self,
        id: Id,
        status: StatusCode,
        answer: Response<Body>,
    ) -> ControlFlow<Ran<E>, Response<Body>> {
        match self.settings.becomes(status) {
            Becomes::Remembered => ControlFlow::Continue(answer),
            Becomes::Released => ControlFlow::Break(Ran::Released(answer)),
            Becomes::InDoubt => {
                let (request, status) = (id.short(), status.as_u16());
                tracing::warn!(
                    request,
                    status,
                    "the service failed, perhaps after doing its work: the request is in doubt"
                );
                ControlFlow::Break(Ran::InDoubt(Unknown::Answer(Box::new(answer)), Service::Ended))
            }
        }
    }

    /// The part of an answer that is remembered.
    fn answer_of(&self, parts: &Parts, body: AnswerBody) -> Answer {
        let remembered = &self.settings.remembered_headers;
        let of_grpc = grpc::HEADERS.iter().filter(|name| !remembered.contains(name));
        let names = remembered.iter().chain(of_grpc);
        let values = |name| parts.headers.get_all(name).iter().map(move |value| (name, value));
        let headers = names.flat_map(values);
        let headers = headers.map(|(name, value)| (name.as_str().to_owned(), Bytes::copy_from_slice(value.as_bytes())));
        Answer { status: parts.status.as_u16(), headers: headers.collect(), body }
    }
}

/// Whether an answer is a stream of events, which has no end of its own.
pub fn is_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    kind.trim_start().to_ascii_lowercase().starts_with("text/event-stream")
}

fn with(outcome: Outcome, mut answer: Response<Body>) -> Response<Body> {
    answer.extensions_mut().insert(outcome);
    answer
}
