//! Reads a proxy's file in the same way as topologies: reports all mistakes at once, each with its place.
//!
//! Settings given on the command line are first written as such a file, so that the same code reads both.

use std::path::Path;
use std::sync::Arc;

use crate::yaml::{Diagnostics, Environment, File, Node, Place, Reader, Report, Value, read as yaml, secrets};

mod command_line;
mod config;
mod keys;
mod read;
mod rule;
pub mod schema;
mod store;
mod values;

pub use command_line::{COMMAND_LINE, CommandLineSettings, to_yaml};
pub use config::{Bounds, Config, KeyUse, Route, Rule};
pub use store::{KINDS, StoreConfig};

/// Reads a proxy's file.
///
/// # Errors
/// All mistakes in it.
pub fn load(path: &Path, environment: &dyn Environment) -> Result<Config, Diagnostics> {
    let mut report = Report::default();
    match yaml::open(path, "a proxy's YAML file", environment, &mut report) {
        Some(file) => load_file(file, environment, report),
        None => report.finish(None).map(|(config, _)| config),
    }
}

/// Reads the text of a proxy's file; messages show it under this name.
///
/// # Errors
/// All mistakes in it.
pub fn load_text(name: &str, text: &str, environment: &dyn Environment) -> Result<Config, Diagnostics> {
    load_file(Arc::new(File::new(name, text)), environment, Report::default())
}

fn load_file(file: Arc<File>, environment: &dyn Environment, mut report: Report) -> Result<Config, Diagnostics> {
    // The text itself is parsed, but messages show the text with masked passwords, so that a mistake beside a password
    // can be shown.
    let shown = Arc::new(secrets::masked(&file));
    let mut reader = Reader { file: shown, environment, report: &mut report };
    let config = reader.parse_text(file.text()).and_then(|tree| {
        if let Some(place) = find_topology_key(&tree) {
            let name = reader.file.name().to_owned();
            let help = format!("check it with `ratchet check {name}`, run it with `ratchet run {name}`");
            let message = "this is a topology, not a proxy's file".to_owned();
            reader.mistake(place, message, "a proxy's file has no such key", help);
            return None;
        }
        read::config(&tree, &mut reader)
    });
    let config = config.filter(|_| report.is_fine());
    report.finish(config).map(|(config, warnings)| Config { warnings, ..config })
}

/// The place of a topology's key in a file that has none of a proxy's keys.
fn find_topology_key(tree: &Node) -> Option<Place> {
    let Value::Mapping(entries) = &tree.value else { return None };
    let find = |keys: &[&str]| entries.iter().find(|entry| keys.contains(&entry.key.as_str()));
    find(&["name", "input"]).filter(|_| find(&["listen", "upstream", "store"]).is_none()).map(|entry| entry.key_place)
}

#[cfg(test)]
mod tests;
