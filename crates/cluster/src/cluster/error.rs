//! What a cluster could not do, and what to do about it.

use crate::record::TopicPartition;

/// What to do about an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// Temporary; the same call may be repeated.
    Retry,
    /// The open transaction must be aborted; the producer can go on.
    Abort,
    /// Another has taken this producer's or member's place: drop it and create a new one.
    Fenced,
    /// The request may or may not have taken effect: drop the producer and look.
    Unknown,
    /// The cluster will not do this however often it is tried (rights, a record too large, a topic that does not
    /// exist, a wrong setting): a person has to change something.
    Refused,
}

/// Something a cluster could not do.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// What to do about it.
    pub kind: ErrorKind,
    /// What happened, in lower case and without a full stop; never holds a secret.
    pub message: String,
    /// The partition concerned, if it is only one.
    pub partition: Option<TopicPartition>,
    /// What else is known of it.
    pub detail: Option<Detail>,
}

/// What errors of one kind can be told apart by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// A topic or partition is unknown. If it was just created, the broker that was asked may not have learnt of it yet.
    Missing,
    /// A topic is unknown that held records which cannot be created again.
    Lost,
    /// A right is missing, which may be granted again; and for what, if the cluster says so.
    Denied(Option<Denied>),
    /// A topic was to have more replicas than there are brokers: their number.
    TooFewBrokers(i32),
    /// Another process holds something that this one needs for itself.
    InUse,
    /// A batch of a partition cannot be read as its leader has it: another replica may have it whole.
    Damaged,
    /// The brokers do not offer what is needed.
    Lacking,
}

/// What a client may not do with a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// See it: any right to use it would do.
    Topic,
    /// See its settings.
    Settings,
}

impl Error {
    /// An error of this kind. Control characters in its message become spaces, so that the message, and its event in
    /// the log, is one line.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let message = message.into().replace(char::is_control, " ");
        Self { kind, message, partition: None, detail: None }
    }

    /// The same error, with what else is known of it.
    pub fn with(self, detail: Option<Detail>) -> Self {
        Self { detail, ..self }
    }

    /// Whether a topic or partition is unknown.
    pub fn is_missing(&self) -> bool {
        matches!(self.detail, Some(Detail::Missing | Detail::Lost))
    }

    /// What distinguishes errors of one kind.
    pub fn detail(&self) -> Option<Detail> {
        self.detail
    }

    /// Whether a later start may succeed without a change to this program's input: a topic may have been created, another
    /// process may have ended, or another broker may lead a partition.
    pub fn may_pass(&self) -> bool {
        self.kind != ErrorKind::Refused
            || matches!(self.detail, Some(Detail::Missing | Detail::InUse | Detail::Damaged))
    }

    /// Whether a right is missing.
    pub fn is_denied(&self) -> bool {
        matches!(self.detail, Some(Detail::Denied(_)))
    }

    /// What is not allowed, if a right is missing and the cluster says which.
    pub fn denied(&self) -> Option<Denied> {
        let Some(Detail::Denied(denied)) = self.detail else { return None };
        denied
    }

    /// The same error, for one partition only.
    pub fn of(self, partition: &TopicPartition) -> Self {
        Self { partition: Some(partition.clone()), ..self }
    }
}
