//! Trouble with brokers' connections that a person has to fix, and when it is reported. A broker that cannot be used
//! does no harm while another one can: so trouble ends an operation only while no broker at all is available
//! ([`Outage::trouble`]), and is otherwise reported only if an operation has failed anyway ([`Outage::known_trouble`]).

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::login::Login;
use super::super::wire::brokers::{Brokers, Trouble, TroubleKind};

/// How long all brokers have to be unavailable before trouble ends an operation.
const OUTAGE_MAX: Duration = Duration::from_secs(1);

/// Which logins the cluster has accepted from this process, and is expected to accept again.
#[derive(Clone, Default)]
pub struct AcceptedLogins {
    /// Whether any login was accepted: of a client on the wire, or of one of librdkafka's clients.
    login: Arc<Login>,
    /// Whether any connection on the wire (ratchet's own client) was accepted. The TLS of the wire differs from
    /// librdkafka's, which may accept other certificates.
    wire: Arc<Login>,
}

impl AcceptedLogins {
    /// Without an accepted connection on the wire; `login` is shared with librdkafka's clients.
    pub(in super::super) fn new(login: &Arc<Login>) -> Self {
        Self { login: Arc::clone(login), wire: Arc::default() }
    }

    fn note_success(&self) {
        self.login.note_success();
        self.wire.note_success();
    }

    /// Whether the trouble is reported as one that a person has to fix: not if a login or a certificate was accepted
    /// before (a broker that restarts may reject logins for a while), nor if a host name cannot be resolved.
    fn is_reported(&self, trouble: &Trouble) -> bool {
        match trouble.kind {
            TroubleKind::Login => !self.login.has_succeeded(),
            TroubleKind::Certificate => !self.wire.has_succeeded(),
            TroubleKind::Host => false,
            TroubleKind::Protocol => true,
        }
    }
}

/// How long a client has been without an available broker.
pub(super) struct Outage {
    accepted: AcceptedLogins,
    since: Option<Instant>,
}

impl Outage {
    /// Starts without an outage.
    pub fn new(accepted: &AcceptedLogins) -> Self {
        Self { accepted: accepted.clone(), since: None }
    }

    /// How long no broker has been available; `None` if one is available.
    pub fn duration(&mut self, brokers: &mut Brokers, now: Instant) -> Option<Duration> {
        if brokers.any_node(now).is_some() {
            self.accepted.note_success();
            self.since = None;
            return None;
        }
        Some(now.saturating_duration_since(*self.since.get_or_insert(now)))
    }

    /// The trouble because of which no broker is available, if the outage has lasted for [`OUTAGE_MAX`].
    pub fn trouble(&mut self, brokers: &mut Brokers, now: Instant) -> Option<String> {
        let duration = self.duration(brokers, now)?;
        self.known_trouble(brokers).filter(|_| duration >= OUTAGE_MAX)
    }

    /// The trouble with a broker, even if others are available.
    pub fn known_trouble(&self, brokers: &Brokers) -> Option<String> {
        let trouble = brokers.trouble().filter(|trouble| self.accepted.is_reported(trouble))?;
        let hint = match trouble.kind {
            TroubleKind::Certificate => "; a certificate that OpenSSL accepts can be used with data_path: librdkafka",
            TroubleKind::Login | TroubleKind::Host | TroubleKind::Protocol => "",
        };
        Some(format!("{}: {}{hint}", trouble.address, trouble.message))
    }
}
