//! Opens the sources of the schemas that records name.

use super::error::Error;
use crate::config::Config;
use crate::observe::Metrics;
use crate::registry;
use crate::topology::Topology;

/// Gives each topology that has a format with schemas the sources that these settings name. No schema is requested yet.
///
/// # Errors
/// [`Error::Schemas`]: the settings cannot be used, or name no source although a topology needs schemas.
pub fn give_schemas<'t>(
    topologies: impl IntoIterator<Item = &'t mut Topology>,
    config: &Config,
    metrics: &Metrics,
) -> Result<(), Error> {
    let mut sources = None;
    for topology in topologies.into_iter().filter(|topology| topology.rules.reads_schemas()) {
        if sources.is_none() {
            sources = Some(registry::sources(config, metrics).map_err(Error::Schemas)?);
        }
        let sources = sources.as_ref().filter(|sources| !sources.list.is_empty());
        let Some(sources) = sources else {
            let message = format!(
                "the topology {} needs the schemas of its records, but no setting says where they are: set \
                 `schema_registry.url`, or `schemas.dir` for a folder of schema files",
                topology.name
            );
            return Err(Error::Schemas(message));
        };
        topology.schemas = sources.clone();
    }
    Ok(())
}
