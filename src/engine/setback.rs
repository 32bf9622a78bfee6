//! Setbacks of a restore, and their consequences.

use std::time::Duration;

use crate::cluster::{self, ErrorKind};
use crate::format::ChangelogOffset;
use crate::record::TopicPartition;
use crate::state;

use super::resume::{ANEW, Refusal};

/// Why a restore cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum Setback {
    /// The task must not continue.
    #[error(transparent)]
    Refusal(#[from] Refusal),
    /// A cluster operation failed.
    #[error(transparent)]
    Cluster(#[from] cluster::Error),
    /// The changelog could not be read. Records may have been removed meanwhile: the next attempt starts at the
    /// changelog's new beginning.
    #[error("{0}")]
    Unread(cluster::Error),
    /// A store operation failed.
    #[error(transparent)]
    State(#[from] state::Error),
    /// The store's former holder has not released it.
    #[error("the store is still open in another lane of this process")]
    StillOpen,
    /// The changelog contains a record that ratchet has not written.
    #[error("{changelog}:{offset} has no key: another program writes to the changelog; stop that program and {}", ANEW)]
    Keyless {
        /// The changelog partition.
        changelog: TopicPartition,
        /// The record's offset.
        offset: ChangelogOffset,
    },
    /// No records arrived for a long time.
    #[error("the changelog delivered nothing for {} s: at offset {position} of {end}", .waited.as_secs())]
    Silent {
        /// The time without records.
        waited: Duration,
        /// The offset up to which the changelog was read.
        position: ChangelogOffset,
        /// The offset up to which it has to be read.
        end: ChangelogOffset,
    },
}

/// The consequence of a [`Setback`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consequence {
    /// The task stops until an operator acts.
    Stop,
    /// The task repeats the queries, and stops if brokers keep responding the same way.
    AskAgain,
    /// The task stops, unless the missing right was granted before.
    StopUnlessProven,
    /// Another store is built to replace this one.
    Rebuild,
    /// The task retries.
    TryAgain,
}

impl Setback {
    /// Whether a later start may succeed without any change, though the task stops.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Cluster(error) if error.may_pass())
    }

    /// The consequence.
    pub fn consequence(&self) -> Consequence {
        match self {
            Self::Refusal(refusal) if refusal.is_doubtful() => Consequence::AskAgain,
            Self::Refusal(_) | Self::Keyless { .. } => Consequence::Stop,
            Self::Cluster(error) => match error.kind {
                ErrorKind::Refused if error.is_denied() => Consequence::StopUnlessProven,
                ErrorKind::Refused => Consequence::Stop,
                ErrorKind::Retry | ErrorKind::Abort | ErrorKind::Fenced | ErrorKind::Unknown => Consequence::TryAgain,
            },
            Self::State(state::Error::Damaged { .. }) => Consequence::Rebuild,
            // The record stays in the changelog: the next attempt would read it again.
            Self::State(state::Error::ReservedKey { .. }) => Consequence::Stop,
            Self::State(_) | Self::Unread(_) | Self::StillOpen | Self::Silent { .. } => Consequence::TryAgain,
        }
    }
}
