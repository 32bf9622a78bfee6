//! One connection to a broker as a state machine: bytes in, bytes out.
//!
//! ```text
//! opening ──► versions ──► login ──► ready ──► broken
//!             (v3, then   (SASL, if   ▲  │
//!              as KIP-511  there is   └──┘ logs in again before the
//!              says)       one)            login ends (KIP-368)
//! ```
//!
//! A login that needs a token (OAUTHBEARER) waits for one until the timeout of a request: the source of tokens puts
//! them into a cell, which the connection checks until there is one, or until the source says that a person has to
//! help.
//!
//! Requests are answered in their order. A response is matched by its correlation id. An unrequested response, one to
//! another request, or an invalid one breaks the connection, since nothing after it can be trusted.
//!
//! A login with a lifetime (KIP-368) is renewed on the same connection once all requests are answered. Meanwhile the
//! connection is not ready, so that no request comes in between.
//!
//! **Failure**: a `Fault`; the unanswered requests are then returned, each with whether any of it was written.

use std::io::IoSlice;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng as _, RngExt as _};

use self::inbox::{Frame, Inbox};
use self::outbox::{Outbox, Owner};
pub(super) use self::pool::Pool;
pub use self::request::{Body, Request, Segment, Segments};
pub(super) use self::throttle::duration as throttle;
pub use self::versions::Versions;
use super::brokers::{RequestId, Settings, TroubleKind};
use super::login::{self, Dialogue, Login, LoginError, Missing};
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

/// A login is renewed after this many thousandths of its lifetime, chosen at random: early enough to wait for
/// unanswered requests, and not on all connections at once (as Kafka's own clients do).
const RENEW_AFTER: std::ops::Range<u64> = 850..950;

/// A login's lifetime is taken to be at least this, in milliseconds: shorter ones would leave time for nothing but
/// renewals, and Kafka's brokers refuse to renew a login within a second of the last time.
const LIFETIME_MS_MIN: u64 = 1_200;

/// The interval at which the connection checks for a token.
const TOKEN_LOOK: Duration = Duration::from_millis(20);

/// Why a connection has to end.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// The kind of trouble, if a person has to fix it.
    pub kind: Option<TroubleKind>,
    /// What happened: the broker is "it". Never holds a secret.
    pub reason: String,
}

impl Fault {
    /// A temporary fault.
    pub fn passing(reason: impl Into<String>) -> Self {
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

/// What all connections of a client share.
pub(super) struct Shared<'a> {
    pub now: Instant,
    pub settings: &'a Settings,
    pub pool: &'a mut Pool,
    pub random: &'a mut StdRng,
}

/// A response to a request that was sent.
pub(super) struct Answer {
    pub id: RequestId,
    pub version: i16,
    pub body: Body,
}

#[derive(Debug)]
enum Phase {
    Opening,
    /// The versions were requested.
    Versions,
    /// There is no token to log in with: when to check again, and by when there has to be one.
    Token {
        look_at: Instant,
        until: Instant,
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
    /// The login that is under way.
    login: Login,
    /// By when it has to be open.
    opens_by: Instant,
    /// When the login has to be renewed.
    renew_at: Option<Instant>,
    /// When a request was last sent or answered.
    used_at: Instant,
    /// Whether a request that was sent on it was ever answered.
    is_proven: bool,
    /// The longest throttle time since [`Connection::throttled`] was last called.
    throttled: Option<Duration>,
}

impl Connection {
    /// A connection that is being opened.
    pub fn new(settings: &Settings, now: Instant) -> Self {
        Self {
            phase: Phase::Opening,
            inbox: Inbox::new(settings.response_bytes_max),
            outbox: Outbox::default(),
            versions: Versions::default(),
            login: Login::None,
            opens_by: now + settings.connect_timeout,
            renew_at: None,
            used_at: now,
            is_proven: false,
            throttled: None,
        }
    }

    /// The socket is open: asks the broker for its versions.
    pub fn connected(&mut self, shared: &mut Shared<'_>) -> Result<(), Fault> {
        match self.phase {
            Phase::Opening => self.ask_versions(versions::ASKED_FIRST, shared),
            _ => Ok(()),
        }
    }

    /// Whether requests can be sent, which is also whether [`Connection::versions`] are known.
    pub fn is_ready(&self, now: Instant) -> bool {
        matches!(self.phase, Phase::Ready) && self.renew_at.is_none_or(|at| at > now)
    }

    /// Whether it is ready, or was and is renewing its login.
    pub fn was_ready(&self) -> bool {
        matches!(self.phase, Phase::Ready) || self.renew_at.is_some()
    }

    /// Whether a request that was sent on it was ever answered.
    pub fn is_proven(&self) -> bool {
        self.is_proven
    }

    /// The versions that the broker offers.
    pub fn versions(&self) -> &Versions {
        &self.versions
    }

    /// Takes the longest throttle time of the responses since the last call, if any had one.
    pub fn throttled(&mut self) -> Option<Duration> {
        self.throttled.take()
    }

    /// How many requests have no response.
    pub fn unanswered(&self) -> usize {
        self.outbox.len()
    }

    /// When it was last used.
    pub fn used_at(&self) -> Instant {
        self.used_at
    }

    /// Sends a request; the connection has to be ready.
    ///
    /// # Errors
    /// Why it cannot be sent at all.
    pub fn send(
        &mut self,
        id: RequestId,
        request: Request,
        timeout: Duration,
        shared: &mut Shared<'_>,
    ) -> Result<(), String> {
        self.used_at = shared.now;
        let deadline = shared.now + timeout;
        self.outbox.push(request, Owner::Sent(id), deadline, &shared.settings.client_id, shared.pool)
    }

    /// Begins to renew the login if that is due and nothing is unanswered; or to log in, if there is a token at last.
    pub fn renew(&mut self, shared: &mut Shared<'_>) -> Result<(), Fault> {
        let is_due = match self.phase {
            Phase::Ready => self.renew_at.is_some_and(|at| at <= shared.now) && self.outbox.len() == 0,
            Phase::Token { look_at, .. } => look_at <= shared.now,
            _ => false,
        };
        if is_due { self.log_in(shared) } else { Ok(()) }
    }

    /// The next time at which it may expire, renews its login or checks for a token.
    pub fn deadline(&self) -> Option<Instant> {
        let opening = matches!(self.phase, Phase::Opening).then_some(self.opens_by);
        let renewing = match self.phase {
            Phase::Ready => self.renew_at.filter(|_| self.outbox.len() == 0),
            Phase::Token { look_at, .. } => Some(look_at),
            _ => None,
        };
        [opening, renewing, self.outbox.deadline()].into_iter().flatten().min()
    }

    /// Why it is over, if a timeout has passed.
    pub fn expired(&self, now: Instant) -> Option<Fault> {
        match &self.phase {
            Phase::Opening if self.opens_by <= now => Some(Fault::passing("connecting to it timed out")),
            _ if self.outbox.deadline().is_some_and(|at| at <= now) => {
                Some(Fault::passing("it did not answer a request in time"))
            }
            _ => None,
        }
    }

    /// The buffer to read into.
    pub fn input(&mut self) -> &mut [u8] {
        self.inbox.input()
    }

    /// Takes `bytes` that were read; passes the responses in them to `answers`.
    pub fn filled(
        &mut self,
        bytes: usize,
        answers: &mut impl FnMut(Answer),
        shared: &mut Shared<'_>,
    ) -> Result<(), Fault> {
        self.inbox.filled(bytes);
        while let Some(frame) = self.inbox.next(shared.pool).map_err(Fault::protocol)? {
            self.take(frame, answers, shared)?;
        }
        self.renew(shared)
    }

    fn take(&mut self, frame: Frame, answers: &mut impl FnMut(Answer), shared: &mut Shared<'_>) -> Result<(), Fault> {
        let mut reader = Reader::new(frame.as_slice());
        let short = || Fault::protocol("it sent a response without a header");
        let pending = self.outbox.answered(reader.i32().ok_or_else(short)?).map_err(Fault::protocol)?;
        if pending.is_tagged {
            reader.tags(|_, _| Some(())).ok_or_else(short)?;
        }
        let begin = reader.at();
        self.used_at = shared.now;
        let body = Body::new(frame.buffer, begin, frame.bytes);
        match pending.owner {
            Owner::Sent(id) => {
                self.is_proven = true;
                self.throttled = self.throttled.max(throttle::said(pending.api, body.as_slice()));
                answers(Answer { id, version: pending.version, body });
            }
            Owner::Greeting => {
                self.greeted(body.as_slice(), pending.version, shared)?;
                shared.pool.put(body.into_buffer());
            }
        }
        Ok(())
    }

    /// Handles a response to the connection's own request.
    fn greeted(&mut self, body: &[u8], version: i16, shared: &mut Shared<'_>) -> Result<(), Fault> {
        match std::mem::replace(&mut self.phase, Phase::Ready) {
            Phase::Versions => {
                let reply = versions::reply(body, version);
                match reply.ok_or_else(|| Fault::protocol("it sent a malformed list of versions"))? {
                    versions::Reply::Offers(versions, throttle_ms) => {
                        self.versions = versions;
                        self.throttled = self.throttled.max(throttle(throttle_ms));
                    }
                    versions::Reply::AskAgain(version) => return self.ask_versions(version, shared),
                    versions::Reply::Refused(error) => {
                        return Err(Fault::protocol(format!("it refuses to list its versions: error {error}")));
                    }
                }
                if matches!(shared.settings.login, Login::None) { Ok(()) } else { self.log_in(shared) }
            }
            Phase::Handshake => {
                login::shaken(&self.login, body)?;
                let mut nonce = [0; login::NONCE_BYTES];
                shared.random.fill_bytes(&mut nonce);
                let (dialogue, message) = Dialogue::begin(&self.login, nonce)?;
                self.authenticate(dialogue, &message, shared)
            }
            Phase::Login(mut dialogue) => {
                let (message, lifetime_ms) = match login::authenticated(&self.login, body, version) {
                    Ok(answered) => answered,
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

    fn ask_versions(&mut self, version: i16, shared: &mut Shared<'_>) -> Result<(), Fault> {
        self.phase = Phase::Versions;
        self.ask(versions::API_VERSIONS, version, versions::question(version), shared)
    }

    fn log_in(&mut self, shared: &mut Shared<'_>) -> Result<(), Fault> {
        self.login = match shared.settings.login.by_now(shared.now) {
            Ok(login) => login,
            Err(missing) => return self.wait_for_token(&missing, shared),
        };
        let Some(mechanism) = shared.settings.login.mechanism() else { return Ok(()) };
        let version = self.offered(login::HANDSHAKE, login::HANDSHAKE_VERSION..=login::HANDSHAKE_VERSION)?;
        self.phase = Phase::Handshake;
        self.ask(login::HANDSHAKE, version, login::handshake(mechanism), shared)
    }

    fn wait_for_token(&mut self, missing: &Missing, shared: &Shared<'_>) -> Result<(), Fault> {
        let until = match self.phase {
            Phase::Token { until, .. } => until,
            _ => shared.now + shared.settings.request_timeout,
        };
        if missing.is_lasting || until <= shared.now {
            let kind = missing.is_lasting.then_some(TroubleKind::Login);
            return Err(Fault { kind, reason: format!("it requires a login, and there is no token: {}", missing.why) });
        }
        self.phase = Phase::Token { look_at: shared.now + TOKEN_LOOK, until };
        Ok(())
    }

    fn authenticate(&mut self, dialogue: Dialogue, message: &[u8], shared: &mut Shared<'_>) -> Result<(), Fault> {
        let version = self.offered(login::AUTHENTICATE, login::AUTHENTICATE_VERSIONS)?;
        self.phase = Phase::Login(dialogue);
        self.ask(login::AUTHENTICATE, version, login::authenticate(message, version), shared)
    }

    fn logged_in(&mut self, lifetime_ms: u64, shared: &mut Shared<'_>) {
        (self.login, self.renew_at) = (Login::None, None);
        if lifetime_ms > 0 {
            let lifetime_ms = lifetime_ms.max(LIFETIME_MS_MIN);
            let after_ms = lifetime_ms / 1000 * shared.random.random_range(RENEW_AFTER)
                + lifetime_ms % 1000 * shared.random.random_range(RENEW_AFTER) / 1000;
            self.renew_at = shared.now.checked_add(Duration::from_millis(after_ms));
        }
    }

    fn offered(&self, api_key: i16, versions: std::ops::RangeInclusive<i16>) -> Result<i16, Fault> {
        let refused = || LoginError("it offers no SASL login that this client supports".to_owned());
        Ok(self.versions.pick(api_key, versions).ok_or_else(refused)?)
    }

    fn ask(&mut self, api_key: i16, version: i16, body: Vec<u8>, shared: &mut Shared<'_>) -> Result<(), Fault> {
        let request = Request { api_key, version, body: body.into() };
        let deadline = shared.now + shared.settings.request_timeout;
        let asked = self.outbox.push(request, Owner::Greeting, deadline, &shared.settings.client_id, shared.pool);
        asked.map_err(Fault::passing)
    }

    /// Appends the pending output to `slices`.
    pub fn output<'a>(&'a self, slices: &mut Vec<IoSlice<'a>>) {
        self.outbox.output(slices);
    }

    /// Whether there is pending output.
    pub fn has_output(&self) -> bool {
        self.outbox.has_output()
    }

    /// `bytes` of the output were written.
    pub fn written(&mut self, bytes: usize, pool: &mut Pool) {
        self.outbox.written(bytes, pool);
    }

    /// The client's unanswered requests in order, and whether any byte of each was written.
    pub fn into_lost(self) -> impl Iterator<Item = (RequestId, bool)> {
        self.outbox.into_lost().filter_map(|(owner, was_sent)| match owner {
            Owner::Sent(id) => Some((id, was_sent)),
            Owner::Greeting => None,
        })
    }
}
