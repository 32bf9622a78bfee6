//! The layer, as tower has them.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::HeaderName;
use http::request::Parts;
use http::{Request, Response, StatusCode};
use tower_layer::Layer;
use tower_service::Service;

use super::at_work::AtWork;
use super::body::{Body, BodyError};
use super::serve::{Shared, serve};
use super::settings::{OnStoreDown, Settings, by_header};
use super::shares::Shares;
use super::time::{Machine, Surroundings};
use crate::dedup::{Path, path};
use crate::request::{OnInDoubt, Store};

/// Carries requests out once for each key: see the [module](super).
#[derive(Clone)]
pub struct Idempotency {
    settings: Settings,
    store: Arc<dyn Store>,
    surroundings: Arc<dyn Surroundings>,
    at_work: AtWork,
    /// Whether the store is tidied already, by this one or one that was set from the same.
    is_tidying: Arc<AtomicBool>,
}

impl Idempotency {
    /// Keeps answers in this store.
    pub fn new(store: impl Store + 'static) -> Self {
        Self::shared(Arc::new(store))
    }

    /// Keeps answers in a store that others use as well.
    pub fn shared(store: Arc<dyn Store>) -> Self {
        let surroundings = Arc::new(Machine::new());
        let (settings, at_work, is_tidying) = (Settings::default(), AtWork::default(), Arc::default());
        Self { settings, store, surroundings, at_work, is_tidying }
    }

    /// The name of the service, where others keep their answers in the same store: keys are those of one service. Two
    /// layers within one program need names of their own as well where both get the same paths, as those below two
    /// places of a router do. None if nothing is said.
    pub fn scope(mut self, name: impl Into<String>) -> Self {
        self.settings.scope = name.into();
        self
    }

    /// Whether keys are also those of one host, by its name in the request: for a service that is several, by their
    /// hosts. They are not if nothing is said, so that a client may repeat a request by another of the service's names.
    pub fn by_host(mut self, counts: bool) -> Self {
        self.settings.by_host = counts;
        self
    }

    /// Takes keys from this header instead of `Idempotency-Key`.
    pub fn header(mut self, name: HeaderName) -> Self {
        self.settings.header = name;
        self
    }

    /// Whether requests that may change something must have a key; they need not if nothing is said.
    pub fn required(mut self, required: bool) -> Self {
        self.settings.required = required;
        self
    }

    /// Takes those for one caller who send the same values of this header, instead of `Authorization`. Keys are their
    /// caller's own; all who do not send it are one caller.
    ///
    /// A repeated request is answered without running the service, which therefore does not authenticate its sender
    /// again: a client that sends this header's value and a used key gets the answer. `Authorization` is a secret by
    /// itself. Any other header, such as a tenant's name, has to be set by what has authenticated the client, before
    /// this layer.
    pub fn caller_header(mut self, name: HeaderName) -> Self {
        self.settings.caller = by_header(name.clone());
        self.settings.caller_header = Some(name);
        self
    }

    /// Whether a request under a key has to say who its caller is; it need not if nothing is said, and all who do not are
    /// one caller. One that does not is refused with 400: nobody gets another's answer by saying nothing.
    pub fn caller_required(mut self, required: bool) -> Self {
        self.settings.caller_required = required;
        self
    }

    /// Asks this function who the caller is. `None`: nobody in particular, which is one caller for all of these: with
    /// cookies, keys of an API or certificates of clients, this says whose they are.
    pub fn caller(mut self, caller: impl Fn(&Parts) -> Option<Vec<u8>> + Send + Sync + 'static) -> Self {
        self.settings.caller = Arc::new(caller);
        self.settings.caller_header = None;
        self
    }

    /// Headers that are part of what a request asks for, beside method, path, query and body.
    pub fn fingerprint_headers(mut self, names: impl IntoIterator<Item = HeaderName>) -> Self {
        self.settings.fingerprint_headers = names.into_iter().collect();
        self
    }

    /// Fields of JSON bodies that are not part of what a request asks for, such as `sent_at` or `meta.attempt`.
    ///
    /// # Errors
    /// One that is not written like this.
    pub fn fingerprint_except<'a>(mut self, fields: impl IntoIterator<Item = &'a str>) -> Result<Self, path::Error> {
        let steps = |field: &str| Path::parse(&format!("value.{field}")).map(|path| path.steps);
        self.settings.fingerprint_except = fields.into_iter().map(steps).collect::<Result<_, _>>()?;
        Ok(self)
    }

    /// The headers of answers that are remembered, instead of `Content-Type`, `Content-Encoding`, `Content-Language`,
    /// `ETag`, `Link` and `Location`.
    pub fn remembered_headers(mut self, names: impl IntoIterator<Item = HeaderName>) -> Self {
        self.settings.remembered_headers = names.into_iter().collect();
        self
    }

    /// Tells the service its reservation in this header, as `ID.TOKEN` in hex digits, so that it can remember its answer
    /// in its own transaction: docs/http-idempotency.md. Whatever a client sends in it is removed.
    pub fn reservation_header(mut self, name: HeaderName) -> Self {
        self.settings.reservation_header = Some(name);
        self
    }

    /// How long answers are remembered; a day if nothing is said.
    pub fn retention(mut self, retention: Duration) -> Self {
        self.settings.retention = retention;
        self
    }

    /// How long the holder of a request's reservation may be silent before another may take over; 30 s if nothing is
    /// said. It is extended three times as often while the service is at work, however long that takes.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease;
        self
    }

    /// How long a request stays reserved whose service was [given up](super::GivenUp); 60 s if nothing is said. The service
    /// may still be at work: meanwhile requests under its key are answered as while it is. After that the request is in
    /// doubt.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.settings.grace = grace;
        self
    }

    /// How long a request waits for the first one under its key before it is answered 409; not at all if nothing is said.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.settings.wait = wait;
        self
    }

    /// How long the store may take for an answer, and how long it is tried to remember one; 5 s if nothing is said.
    pub fn store_wait(mut self, wait: Duration) -> Self {
        self.settings.store_wait = wait;
        self
    }

    /// The greatest body of a request under a key; 1 MiB if nothing is said. A larger one is refused with 413.
    pub fn request_bytes_max(mut self, bytes: usize) -> Self {
        self.settings.request_bytes_max = bytes;
        self
    }

    /// The greatest body of an answer that is remembered; 1 MiB if nothing is said. Of a larger one its digest is.
    pub fn answer_bytes_max(mut self, bytes: usize) -> Self {
        self.settings.answer_bytes_max = bytes;
        self
    }

    /// How many requests under a key may be at work at once, in this layer and in clones of it: 1024 if nothing is said.
    /// More are refused with 503. A request goes on when its client is gone, so the bound on connections is none on these.
    /// If a request has a [`Peer`](super::Peer) among its extensions, its client gets at most as much of this bound, and of
    /// [`bodies_bytes_max`](Self::bodies_bytes_max), as is left for all others.
    pub fn at_work_max(mut self, requests: usize) -> Self {
        self.settings.at_work_max = requests;
        self
    }

    /// How much the bodies of all requests under a key may take together while they come and while they are at work, and
    /// those of their answers until they are sent, in this layer and in clones of it: 256 MiB if nothing is said, and
    /// never less than one request's body may. Requests and replays take three quarters of it at most. A
    /// request or a replay that does not fit is refused with 503; a first answer that does not fit is passed on, and only its
    /// digest is remembered, as if it were larger than
    /// [`answer_bytes_max`](Self::answer_bytes_max).
    pub fn bodies_bytes_max(mut self, bytes: usize) -> Self {
        self.settings.bodies_bytes_max = bytes;
        self
    }

    /// What is done with requests while the store does not answer; they are refused if nothing is said.
    pub fn on_store_down(mut self, choice: OnStoreDown) -> Self {
        self.settings.on_store_down = choice;
        self
    }

    /// What becomes of a request that may have been carried out; it is carried out again if nothing is said. With
    /// [`OnInDoubt::Refuse`] that is also one that the service has answered with 408, or with 500 or more: it may have done
    /// its work before it has failed.
    pub fn on_in_doubt(mut self, choice: OnInDoubt) -> Self {
        self.settings.on_in_doubt = choice;
        self
    }

    /// Statuses of 400 and more by which the service says that it has done nothing: these answers are not remembered, and the
    /// next request is carried out, also with [`OnInDoubt::Refuse`]. None if nothing is said; others change nothing. An
    /// answer that has [`NotRun`](super::NotRun) among its extensions needs no such status.
    pub fn released(mut self, statuses: impl IntoIterator<Item = StatusCode>) -> Self {
        self.settings.released = statuses.into_iter().collect();
        self
    }

    /// Time and tokens from elsewhere, for a simulation.
    #[doc(hidden)]
    pub fn surroundings(mut self, surroundings: Arc<dyn Surroundings>) -> Self {
        self.surroundings = surroundings;
        self
    }

    /// How many requests under a key are at work, in this layer and in clones of it: what is cut off now may be in doubt.
    pub fn at_work(&self) -> usize {
        self.at_work.requests()
    }

    /// The shares of requests at work, and of bodies.
    pub fn shares(&self) -> [&Arc<Shares>; 2] {
        self.at_work.shares()
    }

    /// Waits until no request under a key is at work, and until large answers that are on their way to their clients
    /// have ended: for a graceful stop, after no more are accepted. Requests go on when their clients are gone.
    pub async fn idle(&self) {
        self.at_work.none().await;
    }
}

impl std::fmt::Debug for Idempotency {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Idempotency").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl<S> Layer<S> for Idempotency {
    type Service = Guard<S>;

    fn layer(&self, inner: S) -> Guard<S> {
        let (store, surroundings) = (Arc::clone(&self.store), Arc::clone(&self.surroundings));
        let (settings, at_work) = (self.settings.clone(), self.at_work.clone());
        let shared = Shared::new(settings, store, surroundings, at_work, Arc::clone(&self.is_tidying));
        Guard { shared: Arc::new(shared), inner }
    }
}

/// A service behind the layer.
#[derive(Clone, Debug)]
pub struct Guard<S> {
    shared: Arc<Shared>,
    inner: S,
}

impl<S, B, R> Service<Request<B>> for Guard<S>
where
    S: Service<Request<Body>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BodyError>,
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BodyError>,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The one that was asked whether it is ready is used.
        let next = self.inner.clone();
        let inner = mem::replace(&mut self.inner, next);
        Box::pin(serve(Arc::clone(&self.shared), inner, request))
    }
}
