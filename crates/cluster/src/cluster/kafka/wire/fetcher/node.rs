//! A broker as the fetcher sees it: its fetch session (KIP-227), and the requests under way to it.

use std::collections::BTreeMap;
use std::time::Instant;

use super::super::messages::fetch::Session;
use super::FetchSettings;
use crate::record::TopicPartition;

/// What was requested for a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Grip {
    pub name: TopicPartition,
    /// The partition's turn.
    pub turn: u64,
    pub offset: i64,
    pub leader_epoch: i32,
    pub bytes_max: i32,
}

impl Grip {
    /// Whether both request the same from the broker.
    pub fn asks_same(&self, other: &Self) -> bool {
        let asked = |grip: &Self| (grip.offset, grip.leader_epoch, grip.bytes_max);
        asked(self) == asked(other)
    }
}

/// What was requested, by slot.
pub(super) type Grips = BTreeMap<u32, Grip>;

/// A request that is under way.
#[derive(Debug)]
pub(super) enum Underway {
    /// A fetch in the broker's session.
    Fetch { node: i32, session: Session, asked_at: Instant },
    /// A fetch of one partition, outside the session, from the wanted offset or from a probed one.
    Alone { node: i32, grips: Grips, probed: Option<i64>, asked_at: Instant },
    /// A request for the ends of epochs: for each slot its turn, its offset and the epoch of the record before.
    Epochs { node: i32, asked: BTreeMap<u32, (u64, i64, i32)> },
}

/// A broker.
#[derive(Debug)]
pub(super) struct Node {
    /// The session of the next request.
    pub session: Session,
    /// What the broker's session holds, as far as it is known.
    pub grips: Grips,
    /// Since when a fetch has been under way.
    pub fetching_since: Option<Instant>,
    /// Whether a request for the ends of epochs is under way.
    pub is_asked: bool,
    /// When the next fetch may be sent.
    pub until: Option<Instant>,
    failures: u32,
    /// When its last response to a fetch came.
    pub heard: Option<Instant>,
    /// Since when there has been no connection to it, or when its partitions' leaders were last doubted because of
    /// that.
    pub unready_since: Option<Instant>,
    /// How many fetches were sent: decides which partition is named first.
    pub requests: usize,
}

impl Node {
    pub fn new() -> Self {
        Self {
            session: Session::OPEN,
            grips: Grips::new(),
            fetching_since: None,
            is_asked: false,
            until: None,
            failures: 0,
            heard: None,
            unready_since: None,
            requests: 0,
        }
    }

    /// A request has failed: the broker may or may not have advanced the session, so it is reopened.
    pub fn fail(&mut self, settings: &FetchSettings, now: Instant) {
        self.session = self.session.reopen();
        self.grips.clear();
        self.failures = self.failures.saturating_add(1);
        self.until = Some(now + settings.backoff_after(self.failures));
    }

    /// The broker does not have the session: it is reopened, at once unless that has just been tried.
    pub fn lose_session(&mut self, settings: &FetchSettings, now: Instant) {
        let again = self.failures > 0;
        self.fail(settings, now);
        if !again {
            self.until = None;
        }
    }

    /// A request has succeeded.
    pub fn succeed(&mut self) {
        (self.failures, self.until) = (0, None);
    }
}
