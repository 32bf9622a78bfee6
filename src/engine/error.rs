//! The errors of a run.

use crate::words::agreeing;
use crate::{cluster, state};

/// Why a run has failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The cluster cannot be used.
    #[error("{0}")]
    Cluster(#[from] cluster::Error),
    /// The state folder cannot be used.
    #[error("{0}")]
    State(#[from] state::Error),
    /// A topology was given up; the others ran to the end.
    #[error("topology {name}: {reason}")]
    Topology {
        /// Its name.
        name: String,
        /// The reason, and what to do.
        reason: String,
        /// Whether a later start may succeed without any change.
        may_pass: bool,
    },
    /// Tasks have stopped.
    #[error("{tasks} of the topology {name}'s tasks {} stopped; the log says why", agreeing(*tasks, "has", "have"))]
    Tasks {
        /// The topology's name.
        name: String,
        /// The number of stopped tasks.
        tasks: usize,
        /// Whether all of them were refused, and a later start would refuse them again.
        refused: bool,
    },
    /// Topics that match the input's pattern were not read. They are checked regularly, since they may be repaired.
    #[error(
        "{topics} of the topics that topology {name} should read {} refused; the log says why",
        agreeing(*topics, "was", "were")
    )]
    Topics {
        /// The topology's name.
        name: String,
        /// The number of refused topics.
        topics: usize,
    },
    /// A thread could not be started.
    #[error(
        "the thread {name} could not be started: {reason}; raise the limit of threads (ulimit -u, pids.max), or run fewer lanes"
    )]
    Thread {
        /// The thread's name.
        name: String,
        /// The system's message.
        reason: String,
    },
    /// A lane kept panicking, or panicked while it was ending.
    #[error("a lane of topology {name} has panicked and was given up; the log says where")]
    Panicked {
        /// The topology's name.
        name: String,
    },
}

impl Error {
    /// Whether the error was logged in full when it happened; the other topologies may have run for a long time since.
    pub fn is_logged(&self) -> bool {
        matches!(self, Self::Topology { .. })
    }

    /// Whether a later start may succeed without any change. If not, something has to be corrected: the topology, the
    /// configuration, the release, or the stored state.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Cluster(error) => error.may_pass(),
            Self::State(error) => error.may_pass(),
            Self::Topology { may_pass, .. } => *may_pass,
            Self::Tasks { refused, .. } => !refused,
            Self::Topics { .. } | Self::Thread { .. } | Self::Panicked { .. } => true,
        }
    }

    /// The more important of two results: an error that may pass comes first, since a later start is then worthwhile.
    pub fn and(first: Result<(), Self>, second: Result<(), Self>) -> Result<(), Self> {
        match (first, second) {
            (Err(first), Err(second)) if second.may_pass() && !first.may_pass() => Err(second),
            (first, second) => first.and(second),
        }
    }
}
