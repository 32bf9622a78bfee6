//! A request's path through the layer, up to the service and after it.
//!
//! A guarded request has a key, and a method that may change something. Once its body is complete, it is carried out to
//! its end: a client that disconnects must not interrupt it. If the client is gone, the request becomes a task of its
//! own.
//!
//! A reservation ([`Reservation`]) lasts for a lease; its holder extends the lease while the service is at work. An
//! [`Answer`] is what the store remembers of a response, and a replay is that response, sent again. A [`Share`] is the
//! part of a bound that one request takes.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::request::Parts;
use http::{HeaderValue, Request, Response, header};
use http_body_util::BodyExt;
use tower_service::Service;

use super::at_work::{AtWork, AwaitableRequests};
use super::body::{Body, BodyError};
use super::detached::Detached;
use super::fingerprints::{self, Fingerprints, Namespace};
use super::log_limit::LogLimit;
use super::outcome::Outcome;
use super::problem::Problem;
use super::settings::{OnStoreDown, Settings};
use super::shares::{Limit, Peer, Share};
use super::time::Surroundings;
use super::{key, remembering};
use crate::format;
use crate::request::{Answer, AnswerBody, Error, Fingerprint, Found, Id, Reservation, Store, Wanted};

/// The first and the longest pause before a request that waits for another process asks the store again.
const RESERVE_PAUSE: Duration = Duration::from_millis(20);
const RESERVE_PAUSE_MAX: Duration = Duration::from_millis(500);
/// The interval between removals of expired responses, and the pause between two batches of one removal.
const TIDY_INTERVAL: Duration = Duration::from_secs(10);
const TIDY_BATCH_PAUSE: Duration = Duration::from_millis(50);

/// The data that all requests of a layer share.
pub(super) struct Shared {
    pub settings: Settings,
    pub store: Arc<dyn Store>,
    pub surroundings: Arc<dyn Surroundings>,
    pub at_work: AtWork,
    pub awaitable_requests: Arc<AwaitableRequests>,
    fingerprints: Fingerprints,
    /// Whether the layer, or a clone of it, already removes expired responses.
    is_tidying: Arc<AtomicBool>,
    /// Limits the log lines about requests that a full store has refused.
    full_log_limit: LogLimit,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Shared {
    pub fn new(
        settings: Settings,
        store: Arc<dyn Store>,
        surroundings: Arc<dyn Surroundings>,
        at_work: AtWork,
        is_tidying: Arc<AtomicBool>,
    ) -> Self {
        let fingerprints = Fingerprints::new(settings.fingerprint_headers.clone(), settings.fingerprint_except.clone());
        Self {
            settings,
            store,
            surroundings,
            at_work,
            awaitable_requests: Arc::default(),
            fingerprints,
            is_tidying,
            full_log_limit: LogLimit::default(),
        }
    }

    /// A store's reply, or an error if it takes longer than `store_wait`.
    pub async fn in_time<T>(&self, reply: impl Future<Output = Result<T, Error>> + Send) -> Result<T, Error> {
        let wait = self.settings.store_wait;
        tokio::select! {
            biased;
            reply = reply => reply,
            () = self.surroundings.sleep(wait) => {
                Err(Error::Unavailable(format!("no answer within {} ms", wait.as_millis())))
            }
        }
    }

    /// The bound on all bodies together, which has room for at least one request's body.
    pub fn bodies_limit(&self) -> Limit {
        let guaranteed = self.settings.request_bytes_max;
        Limit { total: self.settings.bodies_bytes_max.max(guaranteed), guaranteed }
    }

    /// The part of [`Self::bodies_limit`] for requests and replays, of which a client can have any number. The rest is
    /// kept for first responses, so that no client can prevent others' responses from being remembered.
    fn requests_and_replays_limit(&self) -> Limit {
        let Limit { total, guaranteed } = self.bodies_limit();
        Limit { total: (total / 4 * 3).max(guaranteed), guaranteed }
    }

    /// Replays the response, if there is room for its body.
    pub fn replay(&self, answer: &Answer, peer: Option<Peer>) -> Result<Response<Body>, Problem> {
        let mut share = self.at_work.begin_body(peer);
        if let AnswerBody::Whole(body) = &answer.body {
            let Limit { total, guaranteed } = self.requests_and_replays_limit();
            // A response may exceed the bound, if it was remembered under a larger one: then it is replayed alone.
            let limit = Limit { total: total.max(body.len()), guaranteed: guaranteed.max(body.len()) };
            if !share.grow(body.len(), limit) {
                return Err(Problem::TooManyRequests);
            }
        }
        Ok(remembering::replay(answer, share))
    }

    /// Logs that the store has no room for a request, within a limit: a client that fills the store must not fill the
    /// log as well.
    fn log_store_full(&self, error: &Error) {
        if let Some(count) = self.full_log_limit.count(self.surroundings.now()) {
            tracing::warn!(%error, count, "requests could not be reserved");
        }
    }

    /// Reads the whole body of a request, which is counted until the returned share is dropped.
    async fn read_body<B>(&self, body: B, peer: Option<Peer>) -> Result<(Bytes, Share), Problem>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BodyError>,
    {
        let bytes_max = self.settings.request_bytes_max;
        let limit = self.requests_and_replays_limit();
        let (mut body, mut share) = (pin!(body), self.at_work.begin_body(peer));
        // Pieces are joined as they arrive: a body kept as many small pieces would take far more memory than its bytes.
        let mut whole = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else { return Err(Problem::BodyUnread) };
            let Ok(data) = frame.into_data() else { continue };
            if data.len() > bytes_max - whole.len() {
                return Err(Problem::BodyTooLarge(bytes_max));
            }
            if !share.grow(data.len(), limit) {
                return Err(Problem::TooManyRequests);
            }
            whole.extend_from_slice(&data);
        }
        Ok((whole.freeze(), share))
    }

    /// Starts the removal of expired responses, which continues as long as the layer is in use.
    fn start_tidying(self: &Arc<Self>) {
        if self.is_tidying.swap(true, Ordering::Relaxed) {
            return;
        }
        let (store, surroundings) = (Arc::downgrade(&self.store), Arc::downgrade(&self.surroundings));
        tokio::spawn(async move {
            let mut pause = TIDY_INTERVAL;
            while let Some(surroundings) = surroundings.upgrade() {
                let slept = surroundings.sleep(pause);
                drop(surroundings);
                slept.await;
                let Some(store) = store.upgrade() else { return };
                pause = match store.tidy().await {
                    Ok(0) => TIDY_INTERVAL,
                    Ok(_) => TIDY_BATCH_PAUSE,
                    Err(error) => {
                        tracing::warn!(%error, "expired requests could not be removed");
                        TIDY_INTERVAL
                    }
                };
            }
        });
    }
}

/// Passes a request to the service, or answers it.
pub(super) async fn serve<S, B, R>(
    shared: Arc<Shared>,
    mut inner: S,
    request: Request<B>,
) -> Result<Response<Body>, S::Error>
where
    S: Service<Request<Body>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BodyError>,
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BodyError>,
{
    let (mut parts, body) = request.into_parts();
    let settings = &shared.settings;
    settings.reservation_header.iter().for_each(|name| drop(parts.headers.remove(name)));
    let key = if settings.guards(&parts.method) { key::read(&parts.headers, &settings.header) } else { Ok(None) };
    let respond_with = |problem: Problem| Ok(problem.response());
    let key = match key {
        Ok(Some(key)) => key,
        Ok(None) if settings.required && settings.guards(&parts.method) => {
            return respond_with(Problem::KeyMissing(settings.header.to_string()));
        }
        Ok(None) => {
            return pass_through(&mut inner, Request::from_parts(parts, Body::stream(body)), Outcome::Passed).await;
        }
        Err(error) => return respond_with(Problem::KeyInvalid(settings.header.to_string(), error)),
    };
    let caller = (settings.caller)(&parts);
    if settings.lacks_caller(caller.as_deref()) {
        return respond_with(Problem::CallerMissing(settings.caller_header.as_ref().map(ToString::to_string)));
    }
    let peer = parts.extensions.get::<Peer>().copied();
    let (body, body_share) = match shared.read_body(body, peer).await {
        Ok(read) => read,
        Err(refusal) => return respond_with(refusal),
    };
    let Some(work_guard) = shared.at_work.begin(peer, settings.at_work_max) else {
        return respond_with(Problem::TooManyRequests);
    };
    shared.start_tidying();
    let guarded = GuardedRequest::new(Arc::clone(&shared), &parts, &body, (&key, caller.as_deref()), peer);
    let request = with_whole_body(parts, body);
    let work = async move {
        let _until_done = (work_guard, body_share);
        guarded.carry_out(inner, request).await
    };
    Detached::new(work).await
}

/// A request with its complete body, which may have been sent in chunks.
fn with_whole_body(mut parts: Parts, body: Bytes) -> Request<Body> {
    parts.headers.remove(header::TRANSFER_ENCODING);
    parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
    Request::from_parts(parts, Body::whole(body))
}

/// Passes on a request, and its response, as their bodies arrive.
async fn pass_through<S, R>(inner: &mut S, request: Request<Body>, outcome: Outcome) -> Result<Response<Body>, S::Error>
where
    S: Service<Request<Body>, Response = Response<R>>,
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BodyError>,
{
    let mut response = inner.call(request).await?.map(Body::stream);
    // The service may have set a more accurate outcome.
    if response.extensions().get::<Outcome>().is_none() {
        response.extensions_mut().insert(outcome);
    }
    Ok(response)
}

/// A request with a key: it is carried out once.
pub(super) struct GuardedRequest {
    pub shared: Arc<Shared>,
    pub id: Id,
    fingerprint: Fingerprint,
    /// The client whose part of the bounds the request uses; `None` if it is not known: then only the totals count.
    pub peer: Option<Peer>,
}

/// The next step for a request after the store's reply.
enum NextAction {
    /// Carry it out, under this reservation.
    CarryOut(Reservation),
    /// Send this response.
    Respond(Box<Response<Body>>),
    /// Pass it to the service although the store is down.
    Pass,
}

impl GuardedRequest {
    fn new(
        shared: Arc<Shared>,
        parts: &Parts,
        body: &[u8],
        (key, caller): (&str, Option<&[u8]>),
        peer: Option<Peer>,
    ) -> Self {
        let settings = &shared.settings;
        let host = settings.by_host.then(|| fingerprints::host(parts)).flatten();
        let namespace = Namespace { scope: &settings.scope, host: host.as_deref(), caller };
        let id = fingerprints::id(namespace, parts, key);
        let fingerprint = shared.fingerprints.fingerprint(parts, body);
        Self { shared, id, fingerprint, peer }
    }

    async fn carry_out<S, R>(self, mut inner: S, mut request: Request<Body>) -> Result<Response<Body>, S::Error>
    where
        S: Service<Request<Body>, Response = Response<R>> + Clone + Send + 'static,
        S::Future: Send,
        R: http_body::Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BodyError>,
    {
        match self.reserve().await {
            NextAction::CarryOut(held) => {
                self.add_reservation(held, &mut request);
                self.run_reserved(held, inner, request).await
            }
            NextAction::Respond(response) => Ok(*response),
            NextAction::Pass => pass_through(&mut inner, request, Outcome::Unprotected).await,
        }
    }

    /// Reserves the request or finds its response. If another request under its key is at work, waits for that one.
    async fn reserve(&self) -> NextAction {
        let held = Reservation { id: self.id, token: self.shared.surroundings.token() };
        let problem = match self.reserve_or_wait(held).await {
            Ok(Found::Reserved { taken_over }) => {
                if taken_over {
                    tracing::warn!(
                        request = %self.id.short(),
                        "a request was taken over: its previous holder's lease has ended"
                    );
                }
                return NextAction::CarryOut(held);
            }
            Ok(Found::Answered(answer)) => match self.shared.replay(&answer, self.peer) {
                Ok(replayed) => return NextAction::Respond(Box::new(replayed)),
                Err(problem) => problem,
            },
            Ok(Found::OtherRequest) => Problem::OtherRequest,
            Ok(Found::InDoubt) => Problem::InDoubt(self.id),
            Ok(Found::InProgress) => Problem::InProgress,
            Err(error) => return self.reservation_failed(held, &error),
        };
        NextAction::Respond(Box::new(problem.response()))
    }

    /// Asks the store to reserve the request, and asks again while another holder is at work on it, for up to
    /// `settings.wait`. Returns the store's last reply.
    pub async fn reserve_or_wait(&self, held: Reservation) -> Result<Found, Error> {
        let Shared { settings, surroundings, .. } = &*self.shared;
        let deadline = surroundings.now() + settings.wait;
        let mut pause = RESERVE_PAUSE;
        let mut was_slow = false;
        loop {
            // Subscribed to before the call to the store, so that an end of the other request in between is not missed.
            let end = self.shared.awaitable_requests.end_notify(self.id);
            let ended = end.as_ref().map(|end| end.notified());
            let call_began = surroundings.now();
            match self.shared.in_time(self.shared.store.reserve(&self.wanted(held))).await? {
                // This process was frozen, or the store was slow: another holder may have taken over, and even be done.
                // So the store is asked again: if nobody has taken over, it renews this reservation's lease.
                Found::Reserved { .. } if surroundings.now().saturating_sub(call_began) >= settings.lease / 2 => {
                    if was_slow {
                        return Err(Error::Unavailable("it takes longer than half a lease to answer".to_owned()));
                    }
                    was_slow = true;
                }
                Found::InProgress => {
                    let remaining = deadline.saturating_sub(surroundings.now());
                    if remaining.is_zero() {
                        return Ok(Found::InProgress);
                    }
                    let slept = surroundings.sleep(pause.min(remaining));
                    match ended {
                        Some(ended) => tokio::select! {
                            biased;
                            () = ended => {}
                            () = slept => {}
                        },
                        None => slept.await,
                    }
                    pause = (pause * 2).min(RESERVE_PAUSE_MAX);
                }
                found => return Ok(found),
            }
        }
    }

    /// The reservation to ask the store for.
    pub fn wanted(&self, held: Reservation) -> Wanted {
        let Settings { lease, retention, on_in_doubt, .. } = self.shared.settings;
        Wanted { held, fingerprint: self.fingerprint, lease, retention, on_in_doubt }
    }

    /// Handles a store that has failed to reserve the request.
    fn reservation_failed(&self, held: Reservation, error: &Error) -> NextAction {
        match error {
            Error::Full(_) => self.shared.log_store_full(error),
            _ => tracing::warn!(request = %self.id.short(), %error, "a request could not be reserved"),
        }
        let shared = Arc::clone(&self.shared);
        // The store may have reserved the request despite the error. If the release fails too, the lease expires.
        tokio::spawn(async move { shared.release(held).await });
        match self.shared.settings.on_store_down {
            OnStoreDown::Refuse => {
                let is_full = matches!(error, Error::Full(_));
                let problem = if is_full { Problem::StoreFull } else { Problem::StoreDown };
                NextAction::Respond(Box::new(problem.response()))
            }
            OnStoreDown::Pass => NextAction::Pass,
        }
    }

    /// Adds the reservation to the request, for the service.
    fn add_reservation(&self, held: Reservation, request: &mut Request<Body>) {
        request.extensions_mut().insert(held);
        if let Some(name) = &self.shared.settings.reservation_header {
            let text = format!("{}.{}", format::hex(&held.id.0), format::hex(&held.token.0));
            request.headers_mut().extend(HeaderValue::from_str(&text).ok().map(|value| (name.clone(), value)));
        }
    }
}
