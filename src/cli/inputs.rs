//! What several commands read before they begin: topologies and the worker's configuration.

use std::path::{Path, PathBuf};

use super::Failure;
use super::stderr::{is_colored, say};
use crate::cluster::kafka::Kafka;
use crate::config::{self, ClusterKind, Config};
use crate::topology::{self, Loaded, Mistake, Process, Report};

/// The topologies at these paths, and the configuration. All mistakes of both are told at once.
pub fn load(topologies: &[PathBuf], config: Option<&Path>, sets: &[String]) -> Result<(Vec<Loaded>, Config), Failure> {
    let config = config::load(config, sets, &Process);
    match (topology::load_all(topologies, &Process), config) {
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

/// Whether librdkafka takes the properties that are passed through to it: it alone knows them all.
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

/// Shows warnings to a person.
pub fn show_warnings<'a>(warnings: impl IntoIterator<Item = &'a Mistake>) {
    for warning in warnings {
        say(format_args!("{}\n", warning.render(is_colored())));
    }
}
