//! One connection to a broker as a state machine: bytes in, bytes out.
//!
//! ```text
//! opening ──► versions ──► login ──► ready ──► broken
//!             (v3, then   (SASL, if   ▲  │
//!              as in       it is      └──┘ logs in again before the
//!              KIP-511)    configured)     login expires (KIP-368)
//! ```
//!
//! A login that needs a token (OAUTHBEARER) waits for a token, at most for the timeout of a request. The source of
//! tokens puts them into a cell; the connection checks that cell until it contains a token, or until the source reports
//! a problem that a person has to fix.
//!
//! Responses arrive in the order of their requests, and are matched by their correlation ids. A response that is
//! unrequested, out of order or invalid breaks the connection, since no byte after it can be trusted.
//!
//! A login with a lifetime (KIP-368) is renewed on the same connection once all requests have their responses.
//! Meanwhile the connection is not ready, so that no request is sent during the login.
//!
//! **Failure**: a `Fault`; the pending requests are then returned, each with whether any byte of it was written.

use std::io::IoSlice;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng as _, RngExt as _};

use self::inbox::{Frame, Inbox};
use self::outbox::{Outbox, Owner};
pub(super) use self::pool::Pool;
pub use self::request::{Body, Request, Segment, Segments};
pub(super) use self::throttle::duration as throttle_duration;
pub use self::versions::Versions;
use super::brokers::{RequestId, Settings, TroubleKind};
use super::login::{self, Dialogue, Login, LoginError, NoToken};
use super::primitives::Reader;

pub(super) mod fields;
mod inbox;
mod outbox;
mod pool;
mod request;
#[cfg(test)]
mod tests;
mod throttle;
mod versions;

/// A login is renewed after this many thousandths of its lifetime, chosen at random: early enough to wait for pending
/// requests, and not on all connections at once (as Kafka's own clients do).
const RENEWAL_THOUSANDTHS: std::ops::Range<u64> = 850..950;

/// A login whose lifetime is shorter is treated as if it lived this long, in milliseconds: otherwise the connection
/// would do nothing but renew its login, and Kafka's brokers refuse to renew a login within a second of the last one.
const LIFETIME_MS_MIN: u64 = 1_200;

/// The interval at which the connection checks for a token.
const TOKEN_CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Why a connection has to end.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// The kind of trouble, if a person has to fix it.
    pub kind: Option<TroubleKind>,
    /// What happened, in words that refer to the broker as "it". Never contains a secret.
    pub reason: String,
}

impl Fault {
    /// A temporary fault.
    pub fn temporary(reason: impl Into<String>) -> Self {
        Self { kind: None, reason: reason.into() }
    }

    fn protocol(reason: impl Into<String>) -> Self {
        Self { kind: Some(TroubleKind::Protocol), reason: reason.into() }
    }
}

impl From<LoginError> for Fault {
    fn from(LoginError(reason): LoginError) -> Self {
        Self { kind: Some(TroubleKind::Login), reason }
    }
}

/// The state that all connections of a client share, and the current time.
pub(super) struct Shared<'a> {
    pub now: Instant,
    pub settings: &'a Settings,
    pub pool: &'a mut Pool,
    pub random: &'a mut StdRng,
}

/// A response to a request that was sent.
pub(super) struct Response {
    pub id: RequestId,
    pub version: i16,
    pub body: Body,
}

#[derive(Debug)]
enum Phase {
    Opening,
    /// The versions were requested.
    Versions,
    /// No token to log in with is available: when to check again, and when to give up.
    Token {
        next_check_at: Instant,
        deadline: Instant,
    },
    /// A SaslHandshake was sent.
    Handshake,
    Login(Dialogue),
    Ready,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    phase: Phase,
    inbox: Inbox,
    outbox: Outbox,
    versions: Versions,
    /// The login in progress, with its token if it needs one; `Login::None` at other times.
    login: Login,
    /// The time by which the socket has to be open.
    open_deadline: Instant,
    /// When the login has to be renewed.
    renew_at: Option<Instant>,
    /// When a request was last sent, or a response last received.
    used_at: Instant,
    /// Whether a request of the client, not only the connection's own, has ever received a response.
    is_proven: bool,
    /// The longest throttle time since [`Connection::take_throttle`] was last called.
    throttle: Option<Duration>,
}

impl Connection {
    /// A connection whose socket is being opened.
    pub fn new(settings: &Settings, now: Instant) -> Self {
        Self {
            phase: Phase::Opening,
            inbox: Inbox::new(settings.response_bytes_max),
            outbox: Outbox::default(),
            versions: Versions::default(),
            login: Login::None,
            open_deadline: now + settings.connect_timeout,
            renew_at: None,
            used_at: now,
            is_proven: false,
            throttle: None,
        }
    }

    /// Notes that the socket is open: requests the broker's versions.
    pub fn connected(&mut self, shared: &mut Shared<'_>) -> Result<(), Fault> {
        match self.phase {
            Phase::Opening => self.request_versions(versions::FIRST_VERSION, shared),
            _ => Ok(()),
        }
    }

    /// Whether requests can be sent, which is also whether [`Connection::versions`] are known.
    pub fn is_ready(&self, now: Instant) -> bool {
        matches!(self.phase, Phase::Ready) && self.renew_at.is_none_or(|at| at > now)
    }

    /// Whether the connection is ready, or was ready and is renewing its login.
    pub fn was_ready(&self) -> bool {
        matches!(self.phase, Phase::Ready) || self.renew_at.is_some()
    }

    /// Whether a request of the client, not only the connection's own, has ever received a response.
    pub fn is_proven(&self) -> bool {
        self.is_proven
    }

    /// The versions that the broker offers.
    pub fn versions(&self) -> &Versions {
        &self.versions
    }

    /// Takes the longest throttle time of the responses since the last call, if any had one.
    pub fn take_throttle(&mut self) -> Option<Duration> {
        self.throttle.take()
    }

    /// How many requests have no response yet.
    pub fn pending_count(&self) -> usize {
        self.outbox.len()
    }

    /// When a request was last sent, or a response last received.
    pub fn used_at(&self) -> Instant {
        self.used_at
    }

    /// Sends a request; the connection has to be ready.
    ///
    /// # Errors
    /// Why the request cannot be sent at all.
    pub fn send(
        &mut self,
        id: RequestId,
        request: Request,
        timeout: Duration,
        shared: &mut Shared<'_>,
    ) -> Result<(), String> {
        self.used_at = shared.now;
        let deadline = shared.now + timeout;
        self.outbox.push(request, Owner::Client(id), deadline, &shared.settings.client_id, shared.pool)
    }

    /// Starts to renew the login if that is due and no request is pending; or to log in, if the next check for a token
    /// is due.
    pub fn log_in_if_due(&mut self, shared: &mut Shared<'_>) -> Result<(), Fault> {
        let is_due = match self.phase {
            Phase::Ready => self.renew_at.is_some_and(|at| at <= shared.now) && self.outbox.len() == 0,
            Phase::Token { next_check_at, .. } => next_check_at <= shared.now,
            _ => false,
        };
        if is_due { self.log_in(shared) } else { Ok(()) }
    }

    /// The next time at which a timeout may pass, the login is renewed, or the connection checks for a token.
    pub fn deadline(&self) -> Option<Instant> {
        let opening = matches!(self.phase, Phase::Opening).then_some(self.open_deadline);
        let renewing = match self.phase {
            Phase::Ready => self.renew_at.filter(|_| self.outbox.len() == 0),
            Phase::Token { next_check_at, .. } => Some(next_check_at),
            _ => None,
        };
        [opening, renewing, self.outbox.deadline()].into_iter().flatten().min()
    }

    /// The fault, if a timeout has passed.
    pub fn timeout_fault(&self, now: Instant) -> Option<Fault> {
        match &self.phase {
            Phase::Opening if self.open_deadline <= now => Some(Fault::temporary("connecting to it timed out")),
            _ if self.outbox.deadline().is_some_and(|at| at <= now) => {
                Some(Fault::temporary("it did not answer a request in time"))
            }
            _ => None,
        }
    }

    /// The buffer to read into.
    pub fn input(&mut self) -> &mut [u8] {
        self.inbox.input()
    }

    /// Handles `bytes` that were read into [`Connection::input`]; passes the responses in them to `on_response`.
    pub fn filled(
        &mut self,
        bytes: usize,
        on_response: &mut impl FnMut(Response),
        shared: &mut Shared<'_>,
    ) -> Result<(), Fault> {
        self.inbox.filled(bytes);
        while let Some(frame) = self.inbox.next(shared.pool).map_err(Fault::protocol)? {
            self.handle_frame(frame, on_response, shared)?;
        }
        self.log_in_if_due(shared)
    }

    fn handle_frame(
        &mut self,
        frame: Frame,
        on_response: &mut impl FnMut(Response),
        shared: &mut Shared<'_>,
    ) -> Result<(), Fault> {
        let mut reader = Reader::new(frame.as_slice());
        let no_header = || Fault::protocol("it sent a response without a header");
        let pending = self.outbox.take_pending(reader.i32().ok_or_else(no_header)?).map_err(Fault::protocol)?;
        if pending.is_tagged {
            reader.tags(|_, _| Some(())).ok_or_else(no_header)?;
        }
        let begin = reader.position();
        self.used_at = shared.now;
        let body = Body::new(frame.buffer, begin, frame.bytes);
        match pending.owner {
            Owner::Client(id) => {
                self.is_proven = true;
                self.throttle = self.throttle.max(throttle::from_response(pending.api, body.as_slice()));
                on_response(Response { id, version: pending.version, body });
            }
            Owner::Connection => {
                self.handle_own_response(body.as_slice(), pending.version, shared)?;
                shared.pool.put_response_buffer(body.into_buffer());
            }
        }
        Ok(())
    }

    /// Handles a response to the connection's own request.
    fn handle_own_response(&mut self, body: &[u8], version: i16, shared: &mut Shared<'_>) -> Result<(), Fault> {
        // The connection becomes ready, unless the next phase is set below.
        match std::mem::replace(&mut self.phase, Phase::Ready) {
            Phase::Versions => {
                let response = versions::read_response(body, version);
                match response.ok_or_else(|| Fault::protocol("it sent a malformed list of versions"))? {
                    versions::VersionsResponse::Offered(versions, throttle_ms) => {
                        self.versions = versions;
                        self.throttle = self.throttle.max(throttle_duration(throttle_ms));
                    }
                    versions::VersionsResponse::RetryWith(version) => return self.request_versions(version, shared),
                    versions::VersionsResponse::Refused(error) => {
                        return Err(Fault::protocol(format!("it refuses to list its versions: error {error}")));
                    }
                }
                if matches!(shared.settings.login, Login::None) { Ok(()) } else { self.log_in(shared) }
            }
            Phase::Handshake => {
                login::read_handshake_response(&self.login, body)?;
                let mut nonce = [0; login::NONCE_BYTES];
                shared.random.fill_bytes(&mut nonce);
                let (dialogue, message) = Dialogue::begin(&self.login, nonce)?;
                self.authenticate(dialogue, &message, shared)
            }
            Phase::Login(mut dialogue) => {
                let (message, lifetime_ms) = match login::read_authenticate_response(&self.login, body, version) {
                    Ok(response) => response,
                    Err(error) => return Err(dialogue.refused(&self.login, error).into()),
                };
                match dialogue.next(&self.login, message)? {
                    Some(message) => return self.authenticate(dialogue, &message, shared),
                    None => self.logged_in(lifetime_ms, shared),
                }
                Ok(())
            }
            Phase::Opening | Phase::Token { .. } | Phase::Ready => {
                Err(Fault::protocol("it sent an unrequested response"))
            }
        }
    }

    fn request_versions(&mut self, version: i16, shared: &mut Shared<'_>) -> Result<(), Fault> {
        self.phase = Phase::Versions;
        self.send_own(versions::API_VERSIONS, version, versions::request_body(version), shared)
    }

    fn log_in(&mut self, shared: &mut Shared<'_>) -> Result<(), Fault> {
        self.login = match shared.settings.login.with_current_token(shared.now) {
            Ok(login) => login,
            Err(missing) => return self.wait_for_token(&missing, shared),
        };
        let Some(mechanism) = shared.settings.login.mechanism() else { return Ok(()) };
        let version = self.pick_login_version(login::HANDSHAKE, login::HANDSHAKE_VERSION..=login::HANDSHAKE_VERSION)?;
        self.phase = Phase::Handshake;
        self.send_own(login::HANDSHAKE, version, login::handshake(mechanism), shared)
    }

    fn wait_for_token(&mut self, missing: &NoToken, shared: &Shared<'_>) -> Result<(), Fault> {
        let deadline = match self.phase {
            Phase::Token { deadline, .. } => deadline,
            _ => shared.now + shared.settings.request_timeout,
        };
        if missing.is_lasting || deadline <= shared.now {
            let kind = missing.is_lasting.then_some(TroubleKind::Login);
            return Err(Fault { kind, reason: format!("it requires a login, and there is no token: {}", missing.why) });
        }
        self.phase = Phase::Token { next_check_at: shared.now + TOKEN_CHECK_INTERVAL, deadline };
        Ok(())
    }

    fn authenticate(&mut self, dialogue: Dialogue, message: &[u8], shared: &mut Shared<'_>) -> Result<(), Fault> {
        let version = self.pick_login_version(login::AUTHENTICATE, login::AUTHENTICATE_VERSIONS)?;
        self.phase = Phase::Login(dialogue);
        self.send_own(login::AUTHENTICATE, version, login::authenticate_request(message, version), shared)
    }

    fn logged_in(&mut self, lifetime_ms: u64, shared: &mut Shared<'_>) {
        (self.login, self.renew_at) = (Login::None, None);
        if lifetime_ms > 0 {
            let lifetime_ms = lifetime_ms.max(LIFETIME_MS_MIN);
            // In two parts, so that a very long lifetime does not overflow.
            let after_ms = lifetime_ms / 1000 * shared.random.random_range(RENEWAL_THOUSANDTHS)
                + lifetime_ms % 1000 * shared.random.random_range(RENEWAL_THOUSANDTHS) / 1000;
            self.renew_at = shared.now.checked_add(Duration::from_millis(after_ms));
        }
    }

    fn pick_login_version(&self, api_key: i16, versions: std::ops::RangeInclusive<i16>) -> Result<i16, Fault> {
        let refused = || LoginError("it offers no SASL login that this client supports".to_owned());
        Ok(self.versions.pick(api_key, versions).ok_or_else(refused)?)
    }

    /// Sends the connection's own request.
    fn send_own(&mut self, api_key: i16, version: i16, body: Vec<u8>, shared: &mut Shared<'_>) -> Result<(), Fault> {
        let request = Request { api_key, version, body: body.into() };
        let deadline = shared.now + shared.settings.request_timeout;
        let pushed = self.outbox.push(request, Owner::Connection, deadline, &shared.settings.client_id, shared.pool);
        pushed.map_err(Fault::temporary)
    }

    /// Appends the pending output to `slices`.
    pub fn output<'a>(&'a self, slices: &mut Vec<IoSlice<'a>>) {
        self.outbox.output(slices);
    }

    /// Whether there is pending output.
    pub fn has_output(&self) -> bool {
        self.outbox.has_output()
    }

    /// Notes that `bytes` of the output were written.
    pub fn written(&mut self, bytes: usize, pool: &mut Pool) {
        self.outbox.written(bytes, pool);
    }

    /// The client's pending requests in order, and whether any byte of each was written.
    pub fn into_pending(self) -> impl Iterator<Item = (RequestId, bool)> {
        self.outbox.into_pending().filter_map(|(owner, was_sent)| match owner {
            Owner::Client(id) => Some((id, was_sent)),
            Owner::Connection => None,
        })
    }
}
