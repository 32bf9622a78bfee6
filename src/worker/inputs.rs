//! The files of a run: topologies and the worker's configuration.

use std::path::{Path, PathBuf};

use super::error::Error;
use crate::cluster::kafka;
use crate::config::{self, ClusterKind, Config};
use crate::engine;
use crate::topology::{self, Loaded, Report};
use crate::yaml::{Environment, Explained};

/// The files that a run is read from.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    /// Topologies; a folder means the `*.yaml` in it, not deeper.
    pub topologies: Vec<PathBuf>,
    /// The worker's configuration.
    pub config: Option<PathBuf>,
    /// Settings, each as `a.b=c`. They count before the file and variables.
    pub sets: Vec<String>,
}

/// Reads topologies and the worker's configuration. All mistakes in both are reported at once.
///
/// # Errors
/// [`Error::Mistakes`], and [`Error::Properties`] where librdkafka does not accept the properties together.
pub fn load(inputs: &Inputs, environment: &dyn Environment) -> Result<(Vec<Loaded>, Config), Error> {
    let config = read_config(inputs.config.as_deref(), &inputs.sets, environment);
    match (topology::load_run(&inputs.topologies, environment), config) {
        (Ok(topologies), Ok(config)) => {
            check_properties(&config, topologies.len())?;
            Ok((topologies, config))
        }
        (Err(mistakes), Ok(_)) | (Ok(_), Err(mistakes)) => Err(mistakes.into()),
        (Err(first), Err(second)) => {
            let mut report = Report::default();
            report.append(first.into_mistakes());
            report.append(second.into_mistakes());
            Err(report.finish(None::<()>).expect_err("both had mistakes").into())
        }
    }
}

/// Reads the worker's configuration alone, for commands that only need to know where the cluster is.
///
/// # Errors
/// The same.
pub fn load_config(config: Option<&Path>, sets: &[String], environment: &dyn Environment) -> Result<Config, Error> {
    let config = read_config(config, sets, environment)?;
    check_properties(&config, 1)?;
    Ok(config)
}

fn read_config(
    config: Option<&Path>,
    sets: &[String],
    environment: &dyn Environment,
) -> Result<Config, config::Diagnostics> {
    let takes = |property: &str, value: &str| {
        kafka::takes(property, value).map_err(|error| {
            kafka::explained(property).unwrap_or_else(|| Explained {
                message: error.message,
                label: "not taken by librdkafka".to_owned(),
                help: "correct it, or remove it".to_owned(),
            })
        })
    };
    config::load_with(config, sets, environment, &takes)
}

/// Whether librdkafka accepts the properties together; each alone was accepted before.
fn check_properties(config: &Config, topologies: usize) -> Result<(), Error> {
    if config.cluster != ClusterKind::Kafka {
        return Ok(());
    }
    match engine::kafka(config, topologies) {
        Ok(_) => Ok(()),
        Err(error) => Err(Error::Properties(error.message)),
    }
}
