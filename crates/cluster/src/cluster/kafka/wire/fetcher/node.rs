//! A broker as the fetcher sees it: its fetch session (KIP-227), and what is under way to it.

use std::collections::BTreeMap;
use std::time::Instant;

use super::super::messages::fetch::Session;
use super::FetchSettings;
use crate::record::TopicPartition;

/// What was asked for a partition.
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
    /// Whether the broker is asked for the same.
    pub fn asks_same(&self, other: &Self) -> bool {
        let asked = |grip: &Self| (grip.offset, grip.leader_epoch, grip.bytes_max);
        asked(self) == asked(other)
    }
}

/// What was asked, by slot.
pub(super) type Grips = BTreeMap<u32, Grip>;

/// A request that is under way.
#[derive(Debug)]
pub(super) enum Underway {
    /// A fetch in the broker's session, asked for at this time.
    Fetch { node: i32, session: Session, asked_at: Instant },
    /// A fetch of one partition, without a session, from the offset wanted or from one that is probed.
    Alone { node: i32, grips: Grips, probed: Option<i64>, asked_at: Instant },
    /// Whether partitions still hold what was read of them: for each slot its turn, and epoch of the record before.
    Epochs { node: i32, asked: BTreeMap<u32, (u64, i64, i32)> },
}

/// A broker.
#[derive(Debug)]
pub(super) struct Node {
    /// The session of the next request.
    pub session: Session,
    /// What the broker's session holds, as far as it is known.
    pub grips: Grips,
    /// Since when a fetch is under way.
    pub fetching_since: Option<Instant>,
    /// Whether a question for epochs is under way.
    pub is_asked: bool,
    /// When it may be asked again.
    pub until: Option<Instant>,
    failures: u32,
    /// When its last answer came that was a fetch's.
    pub heard: Option<Instant>,
    /// Since when there has been no connection to it, or since when its partitions' leaders were doubted for it.
    pub unready_since: Option<Instant>,
    /// How many requests there were: partitions are named in turn.
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

    /// A request has failed: the session may have gone on at the broker, or not.
    pub fn fail(&mut self, settings: &FetchSettings, now: Instant) {
        self.session = self.session.reopen();
        self.grips.clear();
        self.failures = self.failures.saturating_add(1);
        self.until = Some(now + settings.backoff_after(self.failures));
    }

    /// The broker does not have the session: it is opened anew at once, if that has not just been tried.
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
