//! What several commands read first: topologies and the worker's configuration.

use std::path::PathBuf;

use super::Failure;
use super::stderr::{is_colored, say};
use crate::config::Config;
use crate::topology::{Loaded, Mistake};
use crate::worker;

/// What to run, and how.
#[derive(Debug, clap::Args)]
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

/// Loads the topologies and the configuration. All mistakes in both are reported at once.
pub fn load(inputs: &Inputs) -> Result<(Vec<Loaded>, Config), Failure> {
    worker::load(&inputs.topologies, inputs.config.as_deref(), &inputs.sets).map_err(|error| match error {
        worker::Error::Mistakes(mistakes) => mistakes.into(),
        worker::Error::Properties(message) => Failure::input(message, "correct it under `kafka:` in the configuration"),
        error => Failure::run(&error),
    })
}

/// Prints warnings for people.
pub fn show_warnings<'a>(warnings: impl IntoIterator<Item = &'a Mistake>) {
    for warning in warnings {
        say(format_args!("{}\n", warning.render(is_colored())));
    }
}
