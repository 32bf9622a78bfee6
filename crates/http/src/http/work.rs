//! Carrying a request out: the service at work, its lease extended meanwhile, and what it says remembered.

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

/// A lease is extended so many times before it would end.
const EXTENSIONS: u32 = 3;
/// The pause before an answer is tried to be remembered again, or a reservation to be released, at first and at last.
const AGAIN: Duration = Duration::from_millis(50);
const AGAIN_MAX: Duration = Duration::from_secs(1);

/// What the service has made of a request.
enum Ran<E> {
    /// An answer that is to be remembered, all of it.
    Whole(Parts, Taken, Option<HeaderMap>),
    /// One whose body is too large for that, or streams.
    Large(Parts, Taken, Body),
    /// One that is not remembered: the next request is carried out.
    Released(Response<Body>),
    /// It may have run, and gave nothing that could be remembered.
    InDoubt(Unknown<E>, Service),
}

/// What is known of a service that gave nothing that could be remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Service {
    /// It is at work no more.
    Ended,
    /// It may still be at work: nobody waits for it any more.
    GivenUp,
}

/// The body of an answer so far, counted among all bodies until it is sent or dropped.
struct Taken {
    /// Put together at once, as a request's.
    bytes: BytesMut,
    counted: Share,
}

impl Taken {
    /// Takes a piece more; says whether all of it may still be remembered, with at most so many bytes, and among all
    /// bodies so many.
    fn take(&mut self, piece: &[u8], bytes_max: usize, all: Limit) -> bool {
        self.bytes.extend_from_slice(piece);
        self.bytes.len() <= bytes_max && self.counted.grow(piece.len(), all)
    }

    fn bytes(self) -> Bytes {
        self.counted.hold(self.bytes.freeze())
    }
}

/// What a service gave that may have run.
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
    /// Has the service carry the request out, which is reserved.
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
                // An extension that comes after the last change would have the lease end as if somebody were at work.
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

    /// Extends the lease for as long as this is polled, and says meanwhile whether it is at it.
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
                    tracing::warn!(request = %self.id.short(), "a request that is at work was taken over: it was silent beyond its lease");
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
        // Without its trailers, in which gRPC has its status, it would be another answer.
        let body = match &trailers {
            None => AnswerBody::Whole(whole.clone()),
            Some(_) => AnswerBody::Digest { length: whole.len() as u64, sha256: Sha256::digest(&whole).into() },
        };
        let answer = self.shared.answer_of(&parts, body);
        let given = Response::from_parts(parts, Body::begun(whole, trailers, None));
        match self.remember(held, &answer).await {
            Ok(Kept::Yes) => with(Outcome::Done, given),
            // Boxed, as a large answer is: what seldom happens would make each request's future large, which is moved.
            Ok(Kept::Fenced) => Box::pin(self.fenced(&answer, given)).await,
            Err(error) => self.not_remembered(&error, given),
        }
    }

    /// That it was answered is remembered before the answer begins, its digest when it has ended.
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

    /// Tries to remember the answer, for as long as the store may take.
    async fn remember(&self, held: Held, answer: &Answer) -> Result<Kept, Error> {
        let Shared { settings, store, .. } = &*self.shared;
        self.shared.again(|| store.complete(held, answer, settings.retention)).await
    }

    /// Another has taken the request over, and what that one has got is the request's answer: this client gets it, too,
    /// if it comes within the wait. If that one has left nothing, this answer is.
    async fn fenced(&self, answer: &Answer, given: Response<Body>) -> Response<Body> {
        let held = Held { id: self.id, token: self.shared.surroundings.token() };
        match self.find(held).await {
            Ok(Found::Answered(first)) => {
                // Only one of the two answers is held in memory.
                drop(given);
                // It was carried out, so it must not be refused as not done: the client asks once more.
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
    /// What becomes of a request that may have been carried out.
    async fn doubt(self: &Arc<Self>, held: Held, service: Service) -> Outcome {
        let settings = &self.settings;
        match (service, settings.on_in_doubt) {
            // Carried out now, it would run beside the call that was given up.
            (Service::GivenUp, _) => self.lease(held, settings.grace).await,
            (Service::Ended, OnInDoubt::Refuse) => self.lease(held, Duration::ZERO).await,
            (Service::Ended, OnInDoubt::Run) => {
                self.release(held).await;
                return Outcome::Released;
            }
        }
        Outcome::InDoubt
    }

    /// Releases a reservation; nobody has to wait for it if the store does not do so at once.
    pub async fn release(self: &Arc<Self>, held: Held) {
        self.settle(held, move |shared| shared.store.release(held)).await;
    }

    /// Has the lease of a request that is not worked at any more end after so long.
    async fn lease(self: &Arc<Self>, held: Held, length: Duration) {
        self.settle(held, move |shared| shared.store.extend(held, length)).await;
    }

    /// The last change of a reservation; nobody has to wait for it if the store does not make it at once. If it cannot be
    /// made the lease ends as it was.
    async fn settle(self: &Arc<Self>, held: Held, change: impl Fn(&Self) -> Reply<'_, Kept> + Send + Sync + 'static) {
        let told = move |changed| {
            if let Err(error) = changed {
                let request = held.id.short();
                tracing::warn!(%request, %error, "a request could not be released: its lease has to end");
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

    /// Asks the store again and again while that may help, for as long as it may take. Begun within that time, a
    /// question is waited for as long as any other.
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

    /// Runs the service, and takes its answer as far as it is remembered.
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
                // Nobody was given anything of it yet, and half of it must not be given to all.
                Err(error) => {
                    let (request, why) = (id.short(), error.to_string());
                    tracing::warn!(request, %why, "an answer under a key broke off: the request is in doubt");
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

    /// The answer, if one of this status is remembered; otherwise what becomes of its request.
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
                    "the service has failed, perhaps after it had done its work: the request is in doubt"
                );
                ControlFlow::Break(Ran::InDoubt(Unknown::Answer(Box::new(answer)), Service::Ended))
            }
        }
    }

    /// What is remembered of an answer.
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

/// An answer that comes bit by bit, for as long as the client wants.
pub fn is_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    kind.trim_start().to_ascii_lowercase().starts_with("text/event-stream")
}

fn with(outcome: Outcome, mut answer: Response<Body>) -> Response<Body> {
    answer.extensions_mut().insert(outcome);
    answer
}
