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
    /// Continuing would be wrong.
    #[error(transparent)]
    Refusal(#[from] Refusal),
    /// A cluster operation failed.
    #[error(transparent)]
    Cluster(#[from] cluster::Error),
    /// The changelog could not be read. Records may have been removed meanwhile: the next try starts where it then
    /// begins.
    #[error("{0}")]
    Unread(cluster::Error),
    /// A store operation failed.
    #[error(transparent)]
    State(#[from] state::Error),
    /// The store's former holder has not released it.
    #[error("the store is still open in another lane of this process")]
    StillOpen,
    /// A record that ratchet has not written.
    #[error("{changelog}:{offset} has no key: another program writes to the changelog; stop that program and {}", ANEW)]
    Keyless {
        /// The changelog partition.
        changelog: TopicPartition,
        /// The record's offset.
        offset: ChangelogOffset,
    },
    /// Nothing arrived for a long time.
    #[error("the changelog delivered nothing for {} s: at offset {position} of {end}", .waited.as_secs())]
    Silent {
        /// For how long.
        waited: Duration,
        /// How far it was read.
        position: ChangelogOffset,
        /// How far it is to be read.
        end: ChangelogOffset,
    },
}

/// What a [`Setback`] leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The task stops: somebody has to act.
    Stop,
    /// The task asks again, and stops if brokers keep responding the same way.
    AskAgain,
    /// The task stops, unless the missing right was granted before.
    StopUnlessProven,
    /// Another store is built in place of this one.
    Rebuild,
    /// The task tries again.
    TryAgain,
}

impl Setback {
    /// Whether a later start may succeed without any change, though the task stops.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Cluster(error) if error.may_pass())
    }

    /// What it leads to.
    pub fn then(&self) -> Then {
        match self {
            Self::Refusal(refusal) if refusal.is_doubtful() => Then::AskAgain,
            Self::Refusal(_) | Self::Keyless { .. } => Then::Stop,
            Self::Cluster(error) => match error.kind {
                ErrorKind::Refused if error.is_denied() => Then::StopUnlessProven,
                ErrorKind::Refused => Then::Stop,
                ErrorKind::Retry | ErrorKind::Abort | ErrorKind::Fenced | ErrorKind::Unknown => Then::TryAgain,
            },
            Self::State(state::Error::Damaged { .. }) => Then::Rebuild,
            // It stays in the changelog: reading it again would find the same.
            Self::State(state::Error::ReservedKey { .. }) => Then::Stop,
            Self::State(_) | Self::Unread(_) | Self::StillOpen | Self::Silent { .. } => Then::TryAgain,
        }
    }
}
