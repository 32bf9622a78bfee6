//! Requests in doubt, settled by people: they list them, look up the outcome of each in the service, and record it.
//!
//! **A request under way is not settled**: while the lease lasts, its holder may have an answer in a moment. A decision is
//! written under a new token: a former holder that wakes up can no longer write, and its client gets the decision.
//!
//! The rules are in [`super::entry`], as those of all changes.

use serde::{Deserialize, Serialize};

use super::{Answer, Id, Reply, Token};

/// Which requests are listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The beginning of their ids, in lower-case hexadecimal digits; empty: all.
    pub begins: String,
    /// Whether those that are answered are among them.
    pub answered: bool,
    /// How many at most.
    pub max: usize,
}

impl Listed {
    /// Whether this request is one of them.
    pub fn has(&self, seen: &Seen) -> bool {
        (self.answered || seen.state != SeenAs::Answered) && crate::format::hex(&seen.id.0).starts_with(&self.begins)
    }

    /// As many of these as are wanted, in the order in which they are listed.
    pub fn sorted(&self, mut seen: Vec<Seen>) -> Vec<Seen> {
        seen.sort_unstable_by_key(|seen| (seen.lease_until_ms.unwrap_or(i64::MAX), seen.id));
        seen.truncate(self.max);
        seen
    }
}

/// A request, as people see it. Times are milliseconds since the epoch, by the store's own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its id.
    pub id: Id,
    /// What has become of it.
    pub state: SeenAs,
    /// The end of its last holder's lease; `None` if it is answered.
    pub lease_until_ms: Option<i64>,
    /// Until when it is remembered.
    pub until_ms: i64,
}

/// What has become of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SeenAs {
    /// Somebody carries it out, or its service was given up and may still be at work.
    UnderWay,
    /// It may have been carried out, and only a person can find out.
    InDoubt,
    /// It has an answer.
    Answered,
}

impl SeenAs {
    /// Its word in lists.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UnderWay => "under_way",
            Self::InDoubt => "in_doubt",
            Self::Answered => "answered",
        }
    }
}

/// A decision on a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// This is its answer from now on, for as long as it would have been remembered.
    Answer(Answer),
    /// It is forgotten: the next one under its key is carried out.
    Forget,
}

/// The outcome of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Settled {
    /// It was in doubt, and has that answer now.
    Answered,
    /// It is forgotten; its former state.
    Forgotten(SeenAs),
    /// It has an answer, which stays.
    Already,
    /// Somebody may be at work on it until then: nothing was changed.
    UnderWay {
        /// Milliseconds since the epoch.
        lease_until_ms: i64,
    },
    /// There is no such request.
    Unknown,
}

impl Settled {
    /// A name for logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Forgotten(_) => "forgotten",
            Self::Already => "already",
            Self::UnderWay { .. } => "under_way",
            Self::Unknown => "unknown",
        }
    }
}

/// A store whose requests people can look at, and decide about.
pub trait Settle: Send + Sync {
    /// Some requests: those in doubt and under way in the order in which their leases end, then those that are answered.
    fn list<'a>(&'a self, wanted: &'a Listed) -> Reply<'a, Vec<Seen>>;

    /// Settles a request. The token is one that was never drawn before. Once the call has returned the decision is as safe
    /// as an answer.
    fn settle<'a>(&'a self, id: Id, decision: &'a Decision, token: Token) -> Reply<'a, Settled>;
}
