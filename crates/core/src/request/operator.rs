//! Requests in doubt, settled by an operator, who lists them, looks up the outcome of each in the service, and records
//! it.
//!
//! **A request under way is not settled**: while the lease lasts, its holder may have an answer in a moment. A decision
//! is written under a new token: a former holder that wakes up can no longer write, and its client gets the decision.
//!
//! The rules are in [`super::entry`], like those of all changes.

use serde::{Deserialize, Serialize};

use super::{Answer, Id, Reply, Token};

/// Which requests an operator wants to see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListFilter {
    /// The first digits of their ids, in lower-case hexadecimal; empty for all requests.
    pub id_prefix: String,
    /// Whether answered requests are listed too.
    pub includes_answered: bool,
    /// The most requests that are listed.
    pub max: usize,
}

impl ListFilter {
    /// Whether this request passes the filter.
    pub fn matches(&self, request: &ListedRequest) -> bool {
        (self.includes_answered || request.state != RequestStatus::Answered)
            && crate::format::hex(&request.id.0).starts_with(&self.id_prefix)
    }

    /// The first `max` of these requests, in the order of [`Settle::list`].
    pub fn first_of(&self, mut requests: Vec<ListedRequest>) -> Vec<ListedRequest> {
        requests.sort_unstable_by_key(|request| (request.lease_until_ms.unwrap_or(i64::MAX), request.id));
        requests.truncate(self.max);
        requests
    }
}

/// A request in a list. Times are milliseconds since the Unix epoch, by the store's own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedRequest {
    /// Its id.
    pub id: Id,
    /// Its status.
    pub state: RequestStatus,
    /// The end of its last holder's lease; `None` if it is answered.
    pub lease_until_ms: Option<i64>,
    /// Until when it is remembered.
    pub remembered_until_ms: i64,
}

/// The status of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestStatus {
    /// Its lease lasts: its holder carries it out, or has stopped waiting for a service that may still be at work.
    UnderWay,
    /// It may have been carried out; only an operator can find out.
    InDoubt,
    /// It has an answer.
    Answered,
}

impl RequestStatus {
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
    /// This is its answer from now on, for as long as the request would have been remembered.
    Answer(Answer),
    /// The request is forgotten: the next one under its key is carried out.
    Forget,
}

/// The outcome of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Settled {
    /// It was in doubt, and has the operator's answer now.
    Answered,
    /// It is forgotten; its former status.
    Forgotten(RequestStatus),
    /// It has an answer already, which stays.
    #[serde(rename = "already")]
    AlreadyAnswered,
    /// Its lease lasts, so its holder may be at work on it: nothing was changed.
    UnderWay {
        /// The end of the lease, in milliseconds since the Unix epoch.
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
            Self::AlreadyAnswered => "already",
            Self::UnderWay { .. } => "under_way",
            Self::Unknown => "unknown",
        }
    }
}

/// A store whose requests an operator can list and settle.
pub trait Settle: Send + Sync {
    /// The requests that pass the filter: those in doubt and under way in the order in which their leases end, then the
    /// answered ones.
    fn list<'a>(&'a self, filter: &'a ListFilter) -> Reply<'a, Vec<ListedRequest>>;

    /// Settles a request. The token must be a new one. Once the call has returned, the decision is stored as safely as
    /// an answer.
    fn settle<'a>(&'a self, id: Id, decision: &'a Decision, token: Token) -> Reply<'a, Settled>;
}
