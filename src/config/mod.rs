//! The worker's settings: where topics live, what resources this process may use, where it listens.
//!
//! Four layers, each overriding the one before: defaults, the file (YAML), the environment, `--set a.b=c`.
//! A setting has the same name in all of them:
//!
//! | file | environment | `--set` |
//! |---|---|---|
//! | `state_dir: x` | `RATCHET_STATE_DIR=x` | `state_dir=x` |
//! | `commit: {interval: 1s}` or `commit.interval: 1s` | `RATCHET_COMMIT__INTERVAL=1s` | `commit.interval=1s` |
//! | `kafka: {bootstrap.servers: x}` | `RATCHET_KAFKA__BOOTSTRAP_SERVERS=x` | `kafka.bootstrap.servers=x` |
//! | `kafka: {consumer: {fetch.min.bytes: 1}}` | `RATCHET_KAFKA__CONSUMER__FETCH_MIN_BYTES=1` | `kafka.consumer.fetch.min.bytes=1` |
//!
//! In a variable's name `__` separates levels, and inside the name of a Kafka property a single `_` is
//! a dot. An empty variable counts as not set. A variable `RATCHET_…` that is not a setting is a mistake if it looks
//! like a misspelt one, and a warning otherwise; those that Kubernetes sets for a service of this name are ignored.
//!
//! **Secrets**: a value that contains `${env:NAME}` or `${file:PATH}` ([`crate::yaml::text`]; in the file and in
//! `--set`) is shown as `***` by `Display` and `Debug` and in every mistake; so are properties with names like
//! `sasl.password`, which must not be written out in a file or on the command line.
//!
//! **Failure**: [`Diagnostics`], all mistakes of all layers at once, each with its place.

use std::path::Path;

use crate::yaml::Report;
pub use crate::yaml::{Diagnostics, Environment, Explained, Mistake, Process, Text};

mod draft;
mod kafka;
mod key;
mod keys;
mod layers;
mod machine;
mod registry;
mod setting;
mod settings;
mod show;
mod typed;
mod worker;

pub use kafka::KafkaProperties;
pub use registry::{IdsOf, OAuth, SchemaRegistry};
pub use settings::CheckProperty;
pub use worker::{ClusterKind, Commit, Config, Create, DataPath, Log, LogFormat, TopicSettings};

/// Reads the settings: the file at `path` if there is one, the environment, and `sets`, each `a.b=c`. Properties for
/// librdkafka are not checked.
pub fn load(path: Option<&Path>, sets: &[String], environment: &dyn Environment) -> Result<Config, Diagnostics> {
    load_with(path, sets, environment, &|_, _| Ok(()))
}

/// The same, with a check for each Kafka property.
pub fn load_with(
    path: Option<&Path>,
    sets: &[String],
    environment: &dyn Environment,
    check_property: CheckProperty<'_>,
) -> Result<Config, Diagnostics> {
    read(path, sets, environment, Some(check_property))
}

/// The same, for commands that need no cluster: its settings may be missing, and are not checked together.
pub fn load_without_cluster(
    path: Option<&Path>,
    sets: &[String],
    environment: &dyn Environment,
) -> Result<Config, Diagnostics> {
    read(path, sets, environment, None)
}

fn read(
    path: Option<&Path>,
    sets: &[String],
    environment: &dyn Environment,
    check_property: Option<CheckProperty<'_>>,
) -> Result<Config, Diagnostics> {
    let mut report = Report::default();
    let mut layers = layers::Layers::new(environment, &mut report);
    if let Some(path) = path {
        layers.read_file(path);
    }
    layers.read_variables();
    layers.read_sets(sets);
    let collected = layers.finish();
    let config = settings::resolve(&collected, environment, check_property, &mut report);
    report.finish(config).map(|(config, warnings)| Config { warnings, ..config })
}

#[cfg(test)]
mod tests;
