//! A broker, or *node*, as the fetcher sees it: its fetch session (KIP-227), and its pending requests. In a session the
//! broker remembers what was requested of each partition, so that a request names only what has changed.
//!
//! A *slot* is what the fetcher knows of one partition. It has a number, and responses to requests of an earlier *turn*
//! of the slot do not count (see `slot`).

use std::collections::BTreeMap;
use std::time::Instant;

use super::super::messages::fetch::Session;
use super::FetchSettings;
use crate::record::TopicPartition;

/// What a fetch requests of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub name: TopicPartition,
    /// The slot's turn.
    pub turn: u64,
    pub offset: i64,
    pub leader_epoch: i32,
    pub bytes_max: i32,
}

impl Target {
    /// Whether both targets request the same of the partition: a broker is not sent the turn.
    pub fn is_same_to_broker(&self, other: &Self) -> bool {
        let seen = |target: &Self| (target.offset, target.leader_epoch, target.bytes_max);
        seen(self) == seen(other)
    }
}

/// The epochs that a leader was asked about, by slot: the turn, the offset, and the epoch of the record before it.
pub(super) type AskedEpochs = BTreeMap<u32, (u64, i64, i32)>;

/// The targets of a fetch, by slot.
pub(super) type Targets = BTreeMap<u32, Target>;

/// A request that has no response yet.
#[derive(Debug)]
pub(super) enum PendingRequest {
    /// A fetch in the broker's session.
    Fetch { node: i32, session: Session, asked_at: Instant },
    /// A fetch of one partition, outside the session: from the wanted offset; or, if `probed` is given, from that
    /// offset, to learn whether there is a record with it.
    Alone { node: i32, targets: Targets, probed: Option<i64>, asked_at: Instant },
    /// A request for the ends of epochs.
    Epochs { node: i32, asked: AskedEpochs },
}

/// A broker from which partitions are fetched.
#[derive(Debug)]
pub(super) struct Node {
    /// The session of the next request.
    pub session: Session,
    /// What the broker's session holds, as far as it is known.
    pub targets: Targets,
    /// Since when a fetch has been pending.
    pub fetching_since: Option<Instant>,
    /// Whether a request for the ends of epochs is pending.
    pub has_epoch_request: bool,
    /// When the next fetch may be sent.
    pub retry_at: Option<Instant>,
    /// How many fetches in a row have failed.
    failures: u32,
    /// When the last response to a fetch arrived.
    pub last_response_at: Option<Instant>,
    /// Since when no request could be sent to it, or when its partitions' leaders were last doubted because of that.
    pub unready_since: Option<Instant>,
    /// How many fetches were sent: decides which partition is named first.
    pub requests: usize,
}

impl Node {
    pub fn new() -> Self {
        Self {
            session: Session::OPEN,
            targets: Targets::new(),
            fetching_since: None,
            has_epoch_request: false,
            retry_at: None,
            failures: 0,
            last_response_at: None,
            unready_since: None,
            requests: 0,
        }
    }

    /// A fetch has failed: the broker may or may not have advanced the session, so the next fetch opens a new one.
    pub fn fail(&mut self, settings: &FetchSettings, now: Instant) {
        self.session = self.session.reopen();
        self.targets.clear();
        self.failures = self.failures.saturating_add(1);
        self.retry_at = Some(now + settings.backoff_after(self.failures));
    }

    /// The broker does not have the session: the next fetch opens a new one, at once unless the last fetch failed too.
    pub fn lose_session(&mut self, settings: &FetchSettings, now: Instant) {
        let failed_before = self.failures > 0;
        self.fail(settings, now);
        if !failed_before {
            self.retry_at = None;
        }
    }

    /// A fetch has succeeded.
    pub fn succeed(&mut self) {
        (self.failures, self.retry_at) = (0, None);
    }
}
