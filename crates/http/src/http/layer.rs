//! The tower layer, and the methods that configure it.
//!
//! **Terms.** A request under a key is *reserved* before the service is run. The reservation is held under a token, and
//! lasts for a *lease*, which the holder extends while the service is at work; once the lease is over, another holder
//! may take over. A request is *in doubt* if nobody knows whether the service has carried it out. Its *fingerprint*
//! shows whether another request under the same key is the same request. A *replay* is a remembered response that is
//! sent again.

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
use super::time::{Surroundings, SystemSurroundings};
use crate::dedup::{Path, path};
use crate::request::{OnInDoubt, Store};

/// Carries out one request for each key: see the [module](super).
#[derive(Clone)]
pub struct Idempotency {
    settings: Settings,
    store: Arc<dyn Store>,
    surroundings: Arc<dyn Surroundings>,
    at_work: AtWork,
    /// Whether this layer, or a clone of it, already removes expired responses from the store.
    is_tidying: Arc<AtomicBool>,
}

impl Idempotency {
    /// Keeps responses in this store.
    pub fn new(store: impl Store + 'static) -> Self {
        Self::shared(Arc::new(store))
    }

    /// Keeps responses in a store that is also used elsewhere.
    pub fn shared(store: Arc<dyn Store>) -> Self {
        let surroundings = Arc::new(SystemSurroundings::new());
        let (settings, at_work, is_tidying) = (Settings::default(), AtWork::default(), Arc::default());
        Self { settings, store, surroundings, at_work, is_tidying }
    }

    /// The name of the service, if several services share the store: a key belongs to one service. Two layers in one
    /// program also need different names if both see the same paths, as layers nested at two places of a router do.
    /// Empty by default.
    pub fn scope(mut self, name: impl Into<String>) -> Self {
        self.settings.scope = name.into();
        self
    }

    /// Whether a key belongs to the host that its request names, in its URI or in `Host`: for several services with
    /// different host names. `false` by default, so that a client may repeat a request under another of the service's
    /// host names.
    pub fn by_host(mut self, by_host: bool) -> Self {
        self.settings.by_host = by_host;
        self
    }

    /// Takes keys from this header instead of `Idempotency-Key`.
    pub fn header(mut self, name: HeaderName) -> Self {
        self.settings.header = name;
        self
    }

    /// Whether requests that may change something must have a key; `false` by default.
    pub fn required(mut self, required: bool) -> Self {
        self.settings.required = required;
        self
    }

    /// Tells callers apart by the values of this header, instead of `Authorization`. A key belongs to its caller; all
    /// clients that do not send the header are one caller.
    ///
    /// A repeated request is answered without running the service, which therefore does not authenticate its sender
    /// again: a client that sends this header's value and a used key gets the response. `Authorization` is itself a
    /// secret. Any other header, such as a tenant's name, has to be set before this layer, by whatever authenticates
    /// the client.
    pub fn caller_header(mut self, name: HeaderName) -> Self {
        self.settings.caller = by_header(name.clone());
        self.settings.caller_header = Some(name);
        self
    }

    /// Whether a request under a key must say who its caller is: without a caller it is refused with 400, so that no
    /// client gets another's response by omitting it. By default no caller is required, and all requests without a
    /// caller count as requests of one caller.
    pub fn caller_required(mut self, required: bool) -> Self {
        self.settings.caller_required = required;
        self
    }

    /// Asks this function who the caller is, for example by a cookie, an API key or a client certificate. All requests
    /// for which it returns `None` have the same caller.
    pub fn caller(mut self, caller: impl Fn(&Parts) -> Option<Vec<u8>> + Send + Sync + 'static) -> Self {
        self.settings.caller = Arc::new(caller);
        self.settings.caller_header = None;
        self
    }

    /// Headers that are part of the fingerprint, in addition to method, path, query and body.
    pub fn fingerprint_headers(mut self, names: impl IntoIterator<Item = HeaderName>) -> Self {
        self.settings.fingerprint_headers = names.into_iter().collect();
        self
    }

    /// Fields of JSON bodies that are not part of the fingerprint, such as `sent_at` or `meta.attempt`.
    ///
    /// # Errors
    /// A field is not a valid path.
    pub fn fingerprint_except<'a>(mut self, fields: impl IntoIterator<Item = &'a str>) -> Result<Self, path::Error> {
        let steps = |field: &str| Path::parse(&format!("value.{field}")).map(|path| path.steps);
        self.settings.fingerprint_except = fields.into_iter().map(steps).collect::<Result<_, _>>()?;
        Ok(self)
    }

    /// Which headers of a response are remembered. This replaces the default list: `Content-Type`, `Content-Encoding`,
    /// `Content-Language`, `ETag`, `Link`, `Location`, `Access-Control-Allow-Credentials`,
    /// `Access-Control-Allow-Origin` and `Access-Control-Expose-Headers`.
    pub fn remembered_headers(mut self, names: impl IntoIterator<Item = HeaderName>) -> Self {
        self.settings.remembered_headers = names.into_iter().collect();
        self
    }

    /// Passes the reservation to the service in this header, as `ID.TOKEN` in hex digits, so that the service can
    /// remember its response in its own transaction: docs/http-idempotency.md. A value that the client sends is
    /// removed.
    pub fn reservation_header(mut self, name: HeaderName) -> Self {
        self.settings.reservation_header = Some(name);
        self
    }

    /// How long responses are remembered; a day by default.
    pub fn retention(mut self, retention: Duration) -> Self {
        self.settings.retention = retention;
        self
    }

    /// How long the holder of a request's reservation may be silent before another may take over; 30 s by default.
    /// While the service is at work, the lease is extended every third of this time, for as long as needed.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease;
        self
    }

    /// How long a request stays reserved after the call to its service was abandoned ([`GivenUp`](super::GivenUp)). The
    /// service may still be at work, so further requests under the key are answered as if it were (409). After that
    /// time the request is in doubt. 60 s by default.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.settings.grace = grace;
        self
    }

    /// How long a request waits for the first one under its key before it is answered 409; not at all by default.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.settings.wait = wait;
        self
    }

    /// How long the store may take to reply, and for how long remembering a response is retried; 5 s by default.
    pub fn store_wait(mut self, wait: Duration) -> Self {
        self.settings.store_wait = wait;
        self
    }

    /// The largest body of a request under a key; 1 MiB by default. A larger one is refused with 413.
    pub fn request_bytes_max(mut self, bytes: usize) -> Self {
        self.settings.request_bytes_max = bytes;
        self
    }

    /// The largest body of a response that is remembered; 1 MiB by default. Of a larger one, only the digest is
    /// remembered.
    pub fn answer_bytes_max(mut self, bytes: usize) -> Self {
        self.settings.answer_bytes_max = bytes;
        self
    }

    /// How many requests under a key may be at work (in progress) at once, in this layer and its clones: 1024 by
    /// default. More are refused with 503. A request continues when its client is gone, so a bound on connections does
    /// not bound requests.
    ///
    /// If requests have a [`Peer`](super::Peer) among their extensions, one client leaves room for others: beyond its
    /// first request, it may begin another one only if it then has no more requests at work than the bound still has
    /// free. So one client alone gets half of the bound, and the next client half of the rest. The same rule holds for
    /// the bytes of [`bodies_bytes_max`](Self::bodies_bytes_max), beyond the first
    /// [`request_bytes_max`](Self::request_bytes_max) of them.
    pub fn at_work_max(mut self, requests: usize) -> Self {
        self.settings.at_work_max = requests;
        self
    }

    /// The most bytes that bodies may take together in this layer and its clones: the bodies of requests under a key,
    /// from their arrival to the end of their work, and the bodies of their responses, until they are sent. 256 MiB by
    /// default, and at least [`request_bytes_max`](Self::request_bytes_max). Requests and replays take three quarters
    /// of it at most. A request or a replay that does not fit is refused with 503; a first response that does not fit
    /// is passed on, and only its digest is remembered, as if it were larger than
    /// [`answer_bytes_max`](Self::answer_bytes_max).
    pub fn bodies_bytes_max(mut self, bytes: usize) -> Self {
        self.settings.bodies_bytes_max = bytes;
        self
    }

    /// What to do with requests while the store does not answer; by default they are refused.
    pub fn on_store_down(mut self, choice: OnStoreDown) -> Self {
        self.settings.on_store_down = choice;
        self
    }

    /// What to do with a request that may have been carried out; by default it is carried out again. With
    /// [`OnInDoubt::Refuse`], a response of 408, or of 500 or more, leaves a request in doubt as well: the service may
    /// have done its work before it failed.
    pub fn on_in_doubt(mut self, choice: OnInDoubt) -> Self {
        self.settings.on_in_doubt = choice;
        self
    }

    /// Statuses with which the service says that it has done nothing: such a response is not remembered, and its
    /// request's reservation is released, so that the next request under the key is carried out, even with
    /// [`OnInDoubt::Refuse`]. None by default; statuses below 400 are ignored. A response that has
    /// [`NotRun`](super::NotRun) among its extensions needs no such status.
    pub fn released(mut self, statuses: impl IntoIterator<Item = StatusCode>) -> Self {
        self.settings.released = statuses.into_iter().collect();
        self
    }

    /// Replaces the source of time and tokens, for a simulation.
    #[doc(hidden)]
    pub fn surroundings(mut self, surroundings: Arc<dyn Surroundings>) -> Self {
        self.surroundings = surroundings;
        self
    }

    /// How many requests under a key are at work, in this layer and its clones: those cut off now may be in doubt.
    pub fn at_work(&self) -> usize {
        self.at_work.requests()
    }

    /// What the clients have taken of [`at_work_max`](Self::at_work_max), and of
    /// [`bodies_bytes_max`](Self::bodies_bytes_max).
    #[doc(hidden)]
    pub fn shares(&self) -> [&Arc<Shares>; 2] {
        self.at_work.shares()
    }

    /// Waits until no request under a key is at work and no large response is still being sent: for a graceful stop,
    /// once no more requests are accepted. Requests continue when their clients are gone.
    pub async fn idle(&self) {
        self.at_work.wait_until_idle().await;
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
        // `poll_ready` was called on this instance of the service, so it is used, not its clone.
        let clone = self.inner.clone();
        let inner = mem::replace(&mut self.inner, clone);
        Box::pin(serve(Arc::clone(&self.shared), inner, request))
    }
}
