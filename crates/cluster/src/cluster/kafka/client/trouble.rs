//! Trouble with brokers' connections that a person has to fix, and when it is reported: only while no broker at all can
//! be asked, since an unusable broker does no harm while others can be used.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::login::Login;
use super::super::wire::brokers::{Brokers, Trouble, TroubleKind};

/// How long no broker may be available before trouble is reported.
const ALONE_MAX: Duration = Duration::from_secs(1);

/// What the cluster has accepted from this process before, and is expected to accept again.
#[derive(Clone, Default)]
pub struct Accepted {
    /// A login, also one of librdkafka's clients.
    login: Arc<Login>,
    /// A connection of the wire, with its own TLS.
    wire: Arc<Login>,
}

impl Accepted {
    /// Nothing yet on the wire; `login` is shared with librdkafka's clients.
    pub(in super::super) fn new(login: &Arc<Login>) -> Self {
        Self { login: Arc::clone(login), wire: Arc::default() }
    }

    fn succeeded(&self) {
        self.login.succeeded();
        self.wire.succeeded();
    }

    /// Whether a person has to fix the trouble: not if a login or a certificate was accepted before, nor if a name is
    /// unknown.
    fn is_refused_by(&self, trouble: &Trouble) -> bool {
        match trouble.kind {
            TroubleKind::Login => !self.login.has_succeeded(),
            TroubleKind::Certificate => !self.wire.has_succeeded(),
            TroubleKind::Host => false,
            TroubleKind::Protocol => true,
        }
    }
}

/// Since when a client has no broker to ask.
pub(super) struct Loneliness {
    accepted: Accepted,
    since: Option<Instant>,
}

impl Loneliness {
    /// A client that has just started.
    pub fn new(accepted: &Accepted) -> Self {
        Self { accepted: accepted.clone(), since: None }
    }

    /// How long no broker could be asked; `None` if one can be.
    pub fn lasts(&mut self, brokers: &mut Brokers, now: Instant) -> Option<Duration> {
        if brokers.any(now).is_some() {
            self.accepted.succeeded();
            self.since = None;
            return None;
        }
        Some(now.saturating_duration_since(*self.since.get_or_insert(now)))
    }

    /// The trouble because of which no broker can be asked, if that has lasted for [`ALONE_MAX`].
    pub fn trouble(&mut self, brokers: &mut Brokers, now: Instant) -> Option<String> {
        let lasts = self.lasts(brokers, now)?;
        self.known_trouble(brokers).filter(|_| lasts >= ALONE_MAX)
    }

    /// The trouble with a broker, whether others can be asked or not.
    pub fn known_trouble(&self, brokers: &Brokers) -> Option<String> {
        let trouble = brokers.trouble().filter(|trouble| self.accepted.is_refused_by(trouble))?;
        let hint = match trouble.kind {
            TroubleKind::Certificate => "; a certificate that OpenSSL accepts can be used with data_path: librdkafka",
            TroubleKind::Login | TroubleKind::Host | TroubleKind::Protocol => "",
        };
        Some(format!("{}: {}{hint}", trouble.address, trouble.message))
    }
}
