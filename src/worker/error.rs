//! Why a run could not begin, or has failed.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::engine;
use crate::observe::http;
use crate::observe::logs;
use crate::yaml::Diagnostics;

/// Why a run could not begin, or has failed. Also as `main` prints it, it is for people.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Mistakes in topologies or the configuration, each with its place.
    #[error("{}", .0.render(false))]
    Mistakes(#[from] Diagnostics),
    /// A topology that is given a function, and does not end in a handler.
    #[error("the topology {0} is given a function, and does not end in a handler: write `sink: {{handler: {{}}}}`")]
    NoHandler(String),
    /// A function for a path that is no topology's file.
    #[error("{} is no topology's file: name the file that the function is for", .0.display())]
    NoTopology(PathBuf),
    /// Two functions for one topology.
    #[error("{} is given two functions", .0.display())]
    TwoFunctions(PathBuf),
    /// Kafka's properties do not go together.
    #[error("{0}; correct it under `kafka:` in the configuration")]
    Properties(String),
    /// The configuration names no source of schemas, or the source cannot be used.
    #[error("{0}")]
    Schemas(String),
    /// Logs could not be begun.
    #[error("{0}: set `log.level`")]
    Logs(#[from] logs::Error),
    /// A drill (`RATCHET_CRASH_AT`, `RATCHET_CRASH_ON`) that cannot be read.
    #[error("{0}; unset it unless this is a drill")]
    Drill(String),
    /// Signals could not be watched.
    #[error("signals cannot be watched: {0}")]
    Signals(io::Error),
    /// Files cannot be watched.
    #[error("the files of secrets cannot be watched: {0}")]
    Watch(io::Error),
    /// Metrics and health cannot be served.
    #[error("{0}")]
    Http(#[from] http::Error),
    /// The run has failed.
    #[error("{0}")]
    Run(#[from] engine::Error),
    /// A run has failed that began with replaced secrets or certificates; they may be replaced once more.
    #[error("{0}")]
    Renewed(engine::Error),
}

impl Error {
    /// Whether a later start may succeed without any change. A program should then exit with 1, and otherwise with 2, as
    /// `ratchet run` does: a supervisor that knows these codes does not restart it in vain.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Mistakes(_)
            | Self::NoHandler(_)
            | Self::NoTopology(_)
            | Self::TwoFunctions(_)
            | Self::Properties(_)
            | Self::Schemas(_)
            | Self::Logs(_)
            | Self::Drill(_) => false,
            Self::Signals(_) | Self::Watch(_) | Self::Http(_) | Self::Renewed(_) => true,
            Self::Run(error) => error.may_pass(),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
