//! What is said where the cluster cannot be asked, or an input is not there: what happened, and what to do instead.
//! `run` and `check --online` say the same of a cluster that does not answer, or will have nothing to do with this
//! client.

use crate::cluster::{self, Kind};
use crate::config::{ClusterKind, Config};

use super::finding::Finding;

/// Why a cluster could not be asked.
#[derive(Clone, Debug)]
pub struct Unasked {
    /// Whether asking again may help.
    pub kind: Kind,
    /// What is to be said of it.
    pub finding: Finding,
}

impl Unasked {
    /// By an error that speaks for itself.
    pub fn with_help(error: cluster::Error, help: &str) -> Self {
        Self { kind: error.kind, finding: Finding::refused(error.message, help) }
    }

    /// By an error that is the whole cluster's.
    pub fn of(config: &Config, error: &cluster::Error) -> Self {
        Self { kind: error.kind, finding: unreached(config, error) }
    }
}

/// What is to be said of this error, which is the whole cluster's.
fn unreached(config: &Config, error: &cluster::Error) -> Finding {
    let happened = if error.kind == Kind::Refused { "cannot be used" } else { "does not answer" };
    match &config.cluster {
        ClusterKind::Kafka => Finding::refused(
            format!("the cluster at {:?} {happened}: {error}", config.kafka.addresses()),
            kafka_help(&config.kafka.protocol(), error.kind),
        ),
        // It names the folder itself.
        ClusterKind::Embedded { .. } => {
            Finding::refused(error.message.clone(), "or name another folder as `embedded.dir` in the configuration")
        }
    }
}

fn kafka_help(protocol: &str, kind: Kind) -> String {
    if kind == Kind::Refused {
        return PROPERTIES_HELP.to_owned();
    }
    let speaks = if protocol.ends_with("SSL") { "does it speak TLS" } else { "does it speak without TLS" };
    format!(
        "is a Kafka broker there, can its name be resolved, and {speaks} there (`security.protocol` is {protocol})? \
         correct `bootstrap.servers` or `security.protocol` under `kafka:` in the configuration"
    )
}

/// What to do about a property.
pub const PROPERTIES_HELP: &str = "correct it under `kafka:` in the configuration";

/// What to do where an input topic does not exist, on a cluster that others may write to or not.
pub fn input_help(is_shared: bool) -> &'static str {
    if is_shared {
        "create it, or name another in input.topics"
    } else {
        "no command but `ratchet demo` fills an embedded cluster: write to it by a program that uses ratchet as a \
         library, or set `cluster: kafka`; `ratchet test` and `ratchet replay` try a topology without a cluster"
    }
}

/// An error that is the whole cluster's, with all that is to be said of it.
pub fn told(config: &Config, error: cluster::Error) -> cluster::Error {
    cluster::Error { message: unreached(config, &error).to_string(), ..error }
}
