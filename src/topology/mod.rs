//! Topologies: from YAML to what the engine runs, in two steps, with every mistake reported at once.
//!
//! 1. `spec`: the text as a raw spec, each value with its place: keys, types and words are checked.
//! 2. `compile`: the spec as a [`Topology`], everything resolved: what the values mean together is checked.
//!
//! The second step runs on whatever the first could read, so that one run tells everything. A topology
//! is known by its name: group, changelogs and transactional ids derive from it.
//!
//! **Failure**: [`Diagnostics`], each mistake with file, line, column and what to write instead.
//!
//! | key | what | default |
//! |---|---|---|
//! | `name` | `[a-z0-9-]{1,60}` | required |
//! | `input.topics` | a list of topics | required |
//! | `input.key_format`, `input.value_format` | `bytes` or `json` | `bytes`, `json` |
//! | `input.start` | `earliest` or `latest`: where a new group begins | `earliest` |
//! | `identity` | a path or a list of paths ([`crate::dedup::path`]), or `{const: x}` among them | required |
//! | `version` | `{of: PATH, as: integer}` | none |
//! | `retention` | a duration or `forever` | `7d`, with a version `forever` |
//! | `future_max` | how far a timestamp may be beyond the wall clock | `1h`, or a tenth of the retention if less |
//! | `output.topic` | a topic; `{topic}` stands for the input topic | required |
//! | `dead_letter.topic` | a topic | `<name>.dead_letter` |
//! | `on_invalid`, `on_missing`, `on_null_value`, `on_late`, `on_unsendable` | an action | `dead_letter` |
//! | `on_equal` | an action, only with a version | `drop` |
//! | `on_missing_version` | an action, only with a version | `forward` |
//! | `partitioned_by_identity` | `true`: one identity is always in one partition | `false` |
//!
//! An action is `forward`, `drop`, `dead_letter` or `fail`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::dedup::Rules;
pub use cases::TestCase;
pub use input::{Input, Pattern};
pub(crate) use names::is_changelog;

pub use crate::yaml::{Diagnostics, Environment, Mistake, Process, Report};
use crate::yaml::{File, Place, read};

pub mod cases;
mod compile;
mod input;
mod names;
mod spec;

/// Where a group that has committed nothing begins to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the first record that is retained.
    Earliest,
    /// After the last.
    Latest,
}

impl Start {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Earliest => "earliest",
            Self::Latest => "latest",
        }
    }
}

/// An input, how its records are identified and versioned, an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// Its name, `[a-z0-9-]{1,60}`.
    pub name: String,
    /// The preset that its rules began as, e.g. `debezium-postgres@1`.
    pub preset: Option<String>,
    /// The input topics.
    pub input: Input,
    /// Where a group that has committed nothing begins to read.
    pub start: Start,
    /// How records are identified and judged.
    pub rules: Arc<Rules>,
    /// The output topic; `{topic}` stands for the input topic.
    pub output: String,
    /// The topic of records that are to be looked at by a person.
    pub dead_letter: String,
    /// The topic in which every drop is explained.
    pub audit: Option<String>,
    /// Its own tests.
    pub tests: Vec<TestCase>,
}

impl Topology {
    /// The consumer group.
    pub fn group(&self) -> String {
        format!("ratchet.{}", self.name)
    }

    /// The changelog of an input topic.
    pub fn changelog(&self, topic: &str) -> String {
        names::changelog(&self.name, topic)
    }

    /// The output of an input topic.
    pub fn output_topic(&self, topic: &str) -> String {
        self.output.replace(names::TEMPLATE, topic)
    }

    /// The transactional id of a lane, with a number that is random at each start.
    pub fn transactional_id(&self, random: u64, lane: usize) -> String {
        format!("ratchet.{}.{random:016x}.{lane}", self.name)
    }
}

/// A topology that has no mistakes.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The topology.
    pub topology: Topology,
    /// What it should be warned of.
    pub warnings: Vec<Mistake>,
    /// Where it was read from.
    pub path: PathBuf,
    /// Where its name stands.
    name_at: (Arc<File>, Place),
}

/// Reads one topology.
pub fn load(path: &Path, environment: &dyn Environment) -> Result<Loaded, Diagnostics> {
    let mut report = Report::default();
    let compiled = read::open(path, "a topology's YAML file", environment, &mut report).and_then(|file| {
        let compiled =
            spec::read(&file, environment, &mut report).and_then(|spec| compile::compile(&spec, &file, &mut report))?;
        Some((compiled, file))
    });
    let (((topology, name_place), file), warnings) = report.finish(compiled)?;
    Ok(Loaded { topology, warnings, path: path.to_owned(), name_at: (file, name_place) })
}

/// Reads the topologies at these paths, in their order; a folder means its `*.yaml`, not deeper, by
/// name. The topologies of one run must have different names.
pub fn load_all(paths: &[PathBuf], environment: &dyn Environment) -> Result<Vec<Loaded>, Diagnostics> {
    let mut report = Report::default();
    let mut all: Vec<Loaded> = Vec::new();
    let files: Vec<PathBuf> = paths.iter().flat_map(|path| expand(path, &mut report)).collect();
    for path in files {
        let loaded = match load(&path, environment) {
            Ok(loaded) => loaded,
            Err(diagnostics) => {
                report.append(diagnostics.into_mistakes());
                continue;
            }
        };
        if let Some(first) = all.iter().find(|other| other.topology.name == loaded.topology.name) {
            let (file, place) = &loaded.name_at;
            let message = format!("there are two topologies named `{}` in this run", loaded.topology.name);
            let help = "group, changelog and transactional ids derive from the name: give this one another";
            report.mistake((file, *place), message, format!("{} has this name too", first.path.display()), help);
        }
        all.push(loaded);
    }
    report.finish(Some(all)).map(|(all, _)| all)
}

/// The files that a path stands for.
fn expand(path: &Path, report: &mut Report) -> Vec<PathBuf> {
    if !path.is_dir() {
        return vec![path.to_owned()];
    }
    let entries = std::fs::read_dir(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let mut files: Vec<PathBuf> = match entries {
        Ok(entries) => entries.into_iter().map(|entry| entry.path()).collect(),
        Err(error) => {
            report.placeless(
                format!("{} cannot be read: {error}", path.display()),
                "give the path of a folder of topologies",
            );
            return Vec::new();
        }
    };
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml") && file.is_file());
    files.sort();
    if files.is_empty() {
        let help = "a folder means the *.yaml files in it, not those in deeper folders";
        report.placeless(format!("{} holds no topology", path.display()), help);
    }
    files
}

#[cfg(test)]
mod tests;
