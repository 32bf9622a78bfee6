//! What several commands read first: topologies and the worker's configuration.

use std::path::PathBuf;

use super::Failure;
use super::stderr::{is_colored, say};
use crate::cluster::kafka::{self, Kafka};
use crate::config::{self, ClusterKind, Config};
use crate::topology::{self, Loaded, Mistake, Process, Report};

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
    let takes = |property: &str, value: &str| kafka::takes(property, value).map_err(|error| error.message);
    let config = config::load_with(inputs.config.as_deref(), &inputs.sets, &Process, &takes);
    match (topology::load_run(&inputs.topologies, &Process), config) {
        (Ok(topologies), Ok(config)) => {
            check_properties(&config)?;
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

/// Whether librdkafka accepts the properties together; each alone was accepted before.
fn check_properties(config: &Config) -> Result<(), Failure> {
    if config.cluster != ClusterKind::Kafka {
        return Ok(());
    }
    let kafka = &config.kafka;
    match Kafka::new(&kafka.for_admin(), &kafka.for_consumer(), &kafka.for_producer()) {
        Ok(_) => Ok(()),
        Err(error) => Err(Failure::input(error.message, "correct it under `kafka:` in the configuration")),
    }
}

/// Prints warnings for people.
pub fn show_warnings<'a>(warnings: impl IntoIterator<Item = &'a Mistake>) {
    for warning in warnings {
        say(format_args!("{}\n", warning.render(is_colored())));
    }
}
