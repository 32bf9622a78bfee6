//! Where the schemas of a run's records come from.

use super::error::Error;
use crate::config::Config;
use crate::observe::Metrics;
use crate::registry;
use crate::topology::Topology;

/// Gives the topologies that read records by schemas the sources of these settings. Nothing is asked yet.
///
/// # Errors
/// [`Error::Schemas`]: the settings cannot be used, or a topology needs schemas and there is no source.
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
                "the topology {} reads its records by schemas, and there are none: set `schema_registry.url`, or \
                 `schemas.dir` for a folder of schemas",
                topology.name
            );
            return Err(Error::Schemas(message));
        };
        topology.schemas = sources.clone();
    }
    Ok(())
}
