//! What several commands read first: topologies and the worker's configuration, or where HTTP requests are remembered.

use std::path::PathBuf;

use super::Failure;
use super::stderr::{is_colored, say};
use crate::config::Config;
use crate::proxy;
use crate::topology::{Loaded, Mistake};
use crate::worker;
use crate::yaml::Process;

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
        error => Failure::run(&error),
    }
}

/// Prints warnings for people.
pub fn show_warnings<'a>(warnings: impl IntoIterator<Item = &'a Mistake>) {
    for warning in warnings {
        say(format_args!("{}\n", warning.render(is_colored())));
    }
}
