//! The findings if the cluster cannot be queried or an input does not exist. `run` and `check --online` report the same
//! about a cluster that does not respond or rejects this client.

use crate::cluster::{self, Detail, ErrorKind};
use crate::config::{ClusterKind, Config};

use super::finding::Finding;

/// Why a cluster could not be queried.
#[derive(Clone, Debug)]
pub struct QueryFailure {
    /// Whether a retry may succeed.
    pub kind: ErrorKind,
    /// The finding.
    pub finding: Finding,
}

impl QueryFailure {
    /// From an error whose message is sufficient.
    pub fn with_help(error: cluster::Error, help: &str) -> Self {
        Self { kind: error.kind, finding: Finding::refused(error.message, help) }
    }

    /// From an error that concerns the whole cluster.
    pub fn of(config: &Config, error: &cluster::Error) -> Self {
        Self { kind: error.kind, finding: unreached(config, error) }
    }
}

/// The finding for an error that concerns the whole cluster.
fn unreached(config: &Config, error: &cluster::Error) -> Finding {
    let happened = if error.kind == ErrorKind::Refused { "cannot be used" } else { "does not answer" };
    match &config.cluster {
        ClusterKind::Kafka => Finding::refused(
            format!("the cluster at {:?} {happened}: {error}", config.kafka.addresses()),
            match error.detail() {
                Some(Detail::Lacking) => LACKING_HELP.to_owned(),
                _ => kafka_help(&config.kafka.protocol(), error.kind),
            },
        ),
        // The message names the folder itself.
        ClusterKind::Embedded { .. } => {
            Finding::refused(error.message.clone(), "or name another folder as `embedded.dir` in the configuration")
        }
    }
}

fn kafka_help(protocol: &str, kind: ErrorKind) -> String {
    if kind == ErrorKind::Refused {
        return PROPERTIES_HELP.to_owned();
    }
    let speaks = if protocol.ends_with("SSL") { "does it speak TLS" } else { "does it speak without TLS" };
    format!(
        "is a Kafka broker there and no HTTP server, can its name be resolved, and {speaks} there (`security.protocol` is {protocol})? \
         correct `bootstrap.servers` or `security.protocol` under `kafka:` in the configuration"
    )
}

/// The help for brokers that lack abilities.
const LACKING_HELP: &str = "use brokers that offer it: docs/brokers.md says what is needed";

/// The help for a wrong property.
pub const PROPERTIES_HELP: &str = "correct it under `kafka:` in the configuration";

/// The help if an input topic does not exist; `is_shared` is whether other programs can write to the cluster.
pub fn input_help(is_shared: bool) -> &'static str {
    if is_shared {
        "create it, or name another in input.topics"
    } else {
        "no command but `ratchet demo` fills an embedded cluster: write to it by a program that uses ratchet as a \
         library, or set `cluster: kafka`; `ratchet test` and `ratchet replay` try a topology without a cluster"
    }
}

/// An error that concerns the whole cluster, with the full finding as its message.
pub fn described(config: &Config, error: cluster::Error) -> cluster::Error {
    cluster::Error { message: unreached(config, &error).to_string(), ..error }
}
