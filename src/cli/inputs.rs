//! What several commands read first: topologies and the worker's configuration, some of its settings, or the store of
//! HTTP requests.

use std::path::PathBuf;
use std::sync::Arc;

use super::Failure;
use super::stderr::{is_colored, say};
use crate::cluster::kafka::Kafka;
use crate::cluster::{self, ErrorKind};
use crate::config::{self, ClusterKind, Config};
use crate::engine::preflight::unreached::{PROPERTIES_HELP, QueryFailure};
use crate::observe::Metrics;
use crate::proxy;
use crate::registry::{self, Waiting};
use crate::schemas::Sources;
use crate::topology::{Loaded, Mistake, Topology};
use crate::worker;
use crate::yaml::{Environment as _, Process};

/// What to run, and how.
#[derive(Clone, Debug, clap::Args)]
pub struct Inputs {
    /// Topologies; a folder means the *.yaml in it, not deeper
    #[arg(required = true, value_name = "TOPOLOGY")]
    pub topologies: Vec<PathBuf>,

    /// The worker's configuration
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// A setting, by its path in the configuration; may be repeated
    #[arg(long = "set", value_name = "a.b=c")]
    pub sets: Vec<String>,
}

impl Inputs {
    /// These inputs in the form that the room `worker` takes.
    pub fn of_worker(&self) -> worker::Inputs {
        let Self { topologies, config, sets } = self.clone();
        worker::Inputs { topologies, config, sets }
    }
}

/// Settings of a worker, for commands that use only some of them: the cluster, or the sources of schemas.
#[derive(Clone, Debug, clap::Args)]
pub struct SettingArgs {
    /// The worker's configuration, of which this command uses only `kafka`, `schema_registry` and `schemas`
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// A setting, by its path in the configuration: `schema_registry.url=http://localhost:8081` or
    /// `schemas.dir=FOLDER`; may be repeated
    #[arg(long = "set", value_name = "a.b=c")]
    sets: Vec<String>,
}

/// The prefixes of the environment variables that set the sources of schemas.
const SCHEMA_VARIABLES: [&str; 2] = ["RATCHET_SCHEMA_REGISTRY__", "RATCHET_SCHEMAS__"];

impl SettingArgs {
    /// Whether an option sets anything.
    pub fn are_given(&self) -> bool {
        self.config.is_some() || !self.sets.is_empty()
    }

    /// The configuration, and a client of its Kafka. Nothing is connected yet.
    pub fn open_cluster(&self) -> Result<(Config, Kafka), Failure> {
        let config = worker::load_config(self.config.as_deref(), &self.sets, &Process).map_err(failed)?;
        show_warnings(&config.warnings);
        if config.cluster != ClusterKind::Kafka {
            return Err(Failure::input("the configuration says `cluster: embedded`", "set `cluster: kafka`"));
        }
        let properties = &config.kafka;
        let kafka = Kafka::new(&properties.for_admin(), &properties.for_consumer(), &properties.for_producer())
            .map_err(|error| Failure::input(error.message, PROPERTIES_HELP))?;
        Ok((config, kafka))
    }

    /// The sources that the settings name, which wait for schemas; without an option or a variable there are none.
    pub fn sources(&self) -> Result<Arc<Waiting>, Failure> {
        let names_source = |name: &str| SCHEMA_VARIABLES.iter().any(|prefix| name.starts_with(prefix));
        let mut sources = Sources::default();
        if self.are_given() || Process.variables().iter().any(|(name, _)| names_source(name)) {
            let given = registry::sources(&self.read_without_cluster()?, &Metrics::new());
            sources = given.map_err(|message| failed(worker::Error::Schemas(message)))?;
        }
        Ok(Waiting::new(sources))
    }

    /// Gives a topology whose records have schemas the sources that the settings name, which wait for schemas.
    pub fn give_schemas(&self, topology: &mut Topology) -> Result<Arc<Waiting>, Failure> {
        if topology.rules.reads_schemas() {
            let config = self.read_without_cluster()?;
            worker::give_schemas([&mut *topology], &config, &Metrics::new()).map_err(failed)?;
        }
        let waiting = Waiting::new(topology.schemas.clone());
        topology.schemas = waiting.sources();
        Ok(waiting)
    }

    fn read_without_cluster(&self) -> Result<Config, Failure> {
        let config = config::load_without_cluster(self.config.as_deref(), &self.sets, &Process)?;
        show_warnings(&config.warnings);
        Ok(config)
    }
}

/// The failure of the command, if a schema has not arrived in time.
pub fn without_schema(waiting: &Waiting) -> Result<(), Failure> {
    match waiting.failure() {
        None => Ok(()),
        Some(why) => Err(Failure::run_with_help(
            why,
            "run the command again once the registry answers, or give it the schemas as files: \
             `--set schemas.dir=FOLDER`",
        )),
    }
}

/// The failure of the first query of a command: the cluster may not be what the configuration says.
pub fn unreached(config: &Config, error: &cluster::Error) -> Failure {
    if error.is_denied() {
        return refused(error);
    }
    let QueryFailure { kind, finding } = QueryFailure::of(config, error);
    match kind {
        ErrorKind::Refused => Failure::input(finding.message, finding.help),
        _ => Failure::run_with_help(finding.message, finding.help),
    }
}

/// The failure of a later query.
pub fn refused(error: &cluster::Error) -> Failure {
    match error.kind {
        ErrorKind::Refused => Failure::input(&error.message, "see Rights in docs/operations.md"),
        _ => Failure::run_with_help(&error.message, "run the command again"),
    }
}

/// The store that is meant if none is named.
const EMBEDDED: &str = "embedded";
/// Its folder if none is named.
const DIR: &str = "ratchet-requests";

/// Where HTTP requests are remembered, where no file says so.
#[derive(Debug, clap::Args)]
pub struct StoreArgs {
    /// Where requests and their answers are remembered
    #[arg(long, value_name = "STORE", default_value = EMBEDDED, value_parser = proxy::KINDS.to_vec())]
    store: String,

    /// The folder of the embedded store [default: ratchet-requests]
    #[arg(long, value_name = "PATH")]
    dir: Option<String>,

    /// The address of the store in PostgreSQL or Redis, best as `${env:NAME}`
    #[arg(long, value_name = "URL", required_if_eq_any([("store", "postgres"), ("store", "redis")]))]
    url: Option<String>,
}

impl StoreArgs {
    /// The kind of store, its folder and its address. An option of another store would be ignored: two proxies that were to
    /// share a database would each have a folder.
    pub fn given(&self) -> Result<(&str, &str, Option<&str>), Failure> {
        let is_embedded = self.store == EMBEDDED;
        if is_embedded && self.url.is_some() {
            let help = "add `--store postgres` or `--store redis`, or leave `--url` out";
            return Err(Failure::input("`--url` is of a store in PostgreSQL or Redis, and this one is a folder", help));
        }
        if !is_embedded && self.dir.is_some() {
            let what = format!("`--dir` is of the embedded store, and this one is `{}`", self.store);
            return Err(Failure::input(what, "leave `--dir` out, or add `--store embedded`"));
        }
        Ok((&self.store, self.dir.as_deref().unwrap_or(DIR), self.url.as_deref()))
    }
}

/// Loads the topologies and the configuration. All mistakes in both are reported at once.
pub fn load(inputs: &Inputs) -> Result<(Vec<Loaded>, Config), Failure> {
    worker::load(&inputs.of_worker(), &Process).map_err(failed)
}

/// The failure of a command whose inputs cannot be loaded.
pub fn failed(error: worker::Error) -> Failure {
    match error {
        worker::Error::Mistakes(mistakes) => mistakes.into(),
        worker::Error::Properties(message) => Failure::input(message, "correct it under `kafka:` in the configuration"),
        worker::Error::Schemas(message) => Failure::input(message, "correct it in the configuration"),
        error => Failure::run(&error),
    }
}

/// Prints warnings for people.
pub fn show_warnings<'a>(warnings: impl IntoIterator<Item = &'a Mistake>) {
    for warning in warnings {
        say(format_args!("{}\n", warning.render(is_colored())));
    }
}
