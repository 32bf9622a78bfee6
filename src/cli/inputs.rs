//! What several commands read first: topologies and the worker's configuration, where schemas come from, or where HTTP
//! requests are remembered.

use std::path::PathBuf;
use std::sync::Arc;

use super::Failure;
use super::stderr::{is_colored, say};
use crate::config::{self, Config};
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

/// Where schemas come from, for commands that need no other setting.
#[derive(Clone, Debug, clap::Args)]
pub struct SchemaArgs {
    /// The worker's configuration; only `schema_registry` and `schemas` of it count here
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// A setting, by its path in the configuration: `schema_registry.url=http://localhost:8081`, or `schemas.dir=FOLDER`;
    /// may be repeated
    #[arg(long = "set", value_name = "a.b=c")]
    sets: Vec<String>,
}

/// The variables of these settings begin with one of these.
const SCHEMA_VARIABLES: [&str; 2] = ["RATCHET_SCHEMA_REGISTRY__", "RATCHET_SCHEMAS__"];

impl SchemaArgs {
    /// Whether an option or a variable says where schemas come from.
    fn are_given(&self) -> bool {
        let is_own = |name: &str| SCHEMA_VARIABLES.iter().any(|own| name.starts_with(own));
        self.config.is_some() || !self.sets.is_empty() || Process.variables().iter().any(|(name, _)| is_own(name))
    }

    fn read(&self) -> Result<Config, Failure> {
        let read = config::load_without_cluster(self.config.as_deref(), &self.sets, &Process)?;
        show_warnings(&read.warnings);
        Ok(read)
    }

    /// The sources of these settings, which wait for schemas; none if none is given.
    pub fn sources(&self) -> Result<Arc<Waiting>, Failure> {
        let mut sources = Sources::default();
        if self.are_given() {
            let given = registry::sources(&self.read()?, &Metrics::new());
            sources = given.map_err(|message| failed(worker::Error::Schemas(message)))?;
        }
        Ok(Waiting::new(sources))
    }

    /// Gives a topology that reads its records by schemas the sources of these settings, which wait.
    pub fn give(&self, topology: &mut Topology) -> Result<Arc<Waiting>, Failure> {
        if topology.rules.reads_schemas() {
            worker::give_schemas([&mut *topology], &self.read()?, &Metrics::new()).map_err(failed)?;
        }
        let waiting = Waiting::new(topology.schemas.clone());
        topology.schemas = waiting.sources();
        Ok(waiting)
    }
}

/// The failure of a command that has waited for a schema in vain, if it has.
pub fn without_schema(waiting: &Waiting) -> Result<(), Failure> {
    match waiting.failure() {
        None => Ok(()),
        Some(why) => Err(Failure::run_with_help(
            why,
            "run the command again once the registry answers; or give it the schemas as files: `--set schemas.dir=FOLDER`",
        )),
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
