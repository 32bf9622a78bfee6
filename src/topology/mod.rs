//! Topologies: from YAML to what the engine runs, in two steps, reporting all mistakes at once.
//!
//! 1. `spec` reads the text into a raw spec in which each value has its place; keys, types and words are checked.
//! 2. `compile` turns the spec into a [`Topology`] with everything resolved; what the values mean together is checked.
//!
//! The second step runs on whatever the first could read, so that one run reports everything. A topology is known by
//! its name: group, changelogs and transactional ids derive from it.
//!
//! **Failure**: [`Diagnostics`]: each mistake with its file, line and column and what to write instead.
//!
//! | key | value | default |
//! |---|---|---|
//! | `name` | `[a-z0-9-]{1,60}` | required |
//! | `preset` | a fragment of these keys that replaces those left out ([`presets`]) | none |
//! | `input.topics` | a list of topics | required, or a pattern |
//! | `input.pattern`, `input.exclude` | regular expressions for topics, including those created later | none |
//! | `input.key_format`, `input.value_format` | `bytes`, `json` or `connect_json` | `bytes`, `json` |
//! | `input.start` | `earliest` or `latest`: where a new group starts | `earliest` |
//! | `identity` | a part or a list of parts ([`crate::dedup::IdentityPart`]) | required |
//! | `version` | a part or a list of parts ([`crate::dedup::VersionPart`]) | none |
//! | `epoch` | what scopes versions, a part or a list of parts ([`crate::dedup::EpochPart`]) | none |
//! | `kinds` | how to tell a record's kind of change ([`crate::dedup::Kinds`]) | none |
//! | `retention` | a duration or `forever` | `7d`, with a version `forever` |
//! | `refresh` | `on_forward` or `on_duplicate`: when that time starts over | `on_forward` |
//! | `future_max` | how far a timestamp may be ahead of the wall clock | `1h`, or a tenth of the retention if less |
//! | `output.topic` | a topic; `{topic}` stands for the input topic | required, or a sink |
//! | `output.existing` | `refuse` or `append`: what to do if the output already holds records when the topology starts | `refuse` |
//! | `sink.postgres` | what records cause in a database ([`sink`]) | required, or an output |
//! | `sink.http` | what records make a provider do ([`sink::http`]) | required, or an output |
//! | `gate.redis` | who is asked whether an identity was passed on elsewhere ([`gate`]) | none |
//! | `dead_letter.topic` | a topic | `<name>.dead_letter` |
//! | `audit.topic` | a topic | none |
//! | `on_invalid`, `on_missing`, `on_late`, `on_unsendable` | an action | `dead_letter` |
//! | `on_null_value` | an action, `follow_delete` or `delete` | `dead_letter` |
//! | `on_equal` | an action, only with a version | `drop` |
//! | `on_missing_version` | an action, only with a version | `forward`, with a `sink.http` `dead_letter` |
//! | `on_epoch_change` | an action, only with an epoch | `forward` |
//! | `on_duplicate` | `drop`, or `result` with a `sink.http` | `drop` |
//! | `partitioned_by_identity` | `true`: each identity is always in one partition | `false` |
//! | `tests` | records with the expected verdicts ([`cases`]) | none |
//!
//! An action is `forward`, `drop`, `dead_letter` or `fail`.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::dedup::{Reason, Rejection, Rules};
use crate::redis;
pub use cases::TestCase;
use compile::Marks;
pub use ending::{Ending, Existing, Output};
pub use gate::Gate;
pub use input::{Input, Pattern};
pub use presets::Preset;
pub use sink::Sink;

pub use crate::yaml::{Diagnostics, Environment, Mistake, Offline, Process, Report};
use crate::yaml::{File, Node, Place, Reader, Value, read, secrets, units};

pub mod cases;
mod compile;
pub mod ending;
mod expand;
pub mod gate;
mod input;
mod keys;
mod names;
pub mod presets;
pub mod schema;
pub mod sink;
mod spec;

/// Where a group that has committed nothing starts reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the first retained record.
    Earliest,
    /// After the last.
    Latest,
}

impl Start {
    /// Both of them.
    pub const ALL: &[Start] = &[Start::Earliest, Start::Latest];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Earliest => "earliest",
            Self::Latest => "latest",
        }
    }
}

/// An input, how its records are identified and versioned, what it ends in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// Its name, `[a-z0-9-]{1,60}`.
    pub name: String,
    /// The preset that its rules are based on, e.g. `debezium-postgres@3`.
    pub preset: Option<String>,
    /// The input topics.
    pub input: Input,
    /// Where a group that has committed nothing starts reading.
    pub start: Start,
    /// How records are identified and judged.
    pub rules: Arc<Rules>,
    /// Where new records go.
    pub ending: Ending,
    /// Who is asked whether an identity was passed on elsewhere.
    pub gate: Option<Gate>,
    /// The topic for records that a person should look at.
    pub dead_letter: String,
    /// The topic in which every drop is explained.
    pub audit: Option<String>,
    /// Whether records of one identity are always in one partition because the topology says so, and not because the
    /// identity holds the key.
    pub only_said_to_be_partitioned: bool,
    /// Its own tests.
    pub tests: Vec<TestCase>,
}

impl Topology {
    /// The consumer group.
    pub fn group(&self) -> String {
        format!("ratchet.{}", self.name)
    }

    /// Whether `topic` is one of its inputs.
    pub fn reads(&self, topic: &str) -> bool {
        self.input.contains(topic)
    }

    /// Why it cannot take in `topic`, which its pattern now matches: in words, without a full stop.
    pub fn problem_with(&self, topic: &str) -> Option<String> {
        let changelog = self.changelog(topic);
        if changelog.len() > names::TOPIC_CHARS_MAX {
            return Some(format!(
                "the changelog `{changelog}` would be too long: {}",
                names::too_long(changelog.len())
            ));
        }
        let output = self.output_topic(topic)?;
        let problem = if let Some(problem) = names::topic_problem(&output) {
            problem
        } else if self.reads(&output) {
            "the topology would read it again".to_owned()
        } else if names::is_changelog(&output) {
            "that is how changelogs are named".to_owned()
        } else if names::is_control(&output) {
            "that is how control topics are named".to_owned()
        } else if output == self.dead_letter {
            "that is the topic of the dead letters".to_owned()
        } else if self.audit.as_deref() == Some(output.as_str()) {
            "that is the audit topic".to_owned()
        } else {
            return None;
        };
        Some(format!("its output would be `{output}`: {problem}"))
    }

    /// What its preset advises for records with this reason.
    pub fn hint(&self, reason: Reason) -> Option<&'static str> {
        presets::hint(self.preset.as_deref()?, reason)
    }

    /// The reason in words, with the [`Topology::hint`] if there is one.
    pub fn meaning(&self, reason: Reason) -> Cow<'static, str> {
        self.with_hint(reason, reason.meaning())
    }

    /// Why a record cannot be judged, with the [`Topology::hint`] if there is one.
    pub fn rejection<'a>(&self, rejection: &'a Rejection) -> Cow<'a, str> {
        self.with_hint(rejection.reason, &rejection.message)
    }

    fn with_hint<'a>(&self, reason: Reason, words: &'a str) -> Cow<'a, str> {
        match self.hint(reason) {
            Some(hint) => format!("{words}: {hint}").into(),
            None => words.into(),
        }
    }

    /// The changelog of an input topic.
    pub fn changelog(&self, topic: &str) -> String {
        names::changelog(&self.name, topic)
    }

    /// The topic for commands to its tasks, which also acknowledge them there.
    pub fn control(&self) -> String {
        names::control(&self.name)
    }

    /// Whether this is the name of one of its changelogs, for any input.
    pub fn is_own_changelog(&self, topic: &str) -> bool {
        topic.starts_with(&self.transactional_ids()) && names::is_changelog(topic)
    }

    /// A topic that both write to, as far as is known: for a pattern, sample names are tried.
    pub fn output_shared_with(&self, other: &Topology) -> Option<String> {
        let (one, two) = (&self.output()?.topic, &other.output()?.topic);
        let first = self.input.outputs(one).into_iter().find(|name| other.input.gives(two, name));
        first.or_else(|| other.input.outputs(two).into_iter().find(|name| self.input.gives(one, name)))
    }

    /// Its output, if it ends in one.
    pub fn output(&self) -> Option<&Output> {
        match &self.ending {
            Ending::Output(output) => Some(output),
            Ending::Sink(_) => None,
        }
    }

    /// Its sink, if it ends in one.
    pub fn sink(&self) -> Option<&Sink> {
        match &self.ending {
            Ending::Output(_) => None,
            Ending::Sink(sink) => Some(sink),
        }
    }

    /// The provider that it calls over HTTP, if it ends in one.
    pub fn http(&self) -> Option<&sink::Http> {
        match self.sink()? {
            Sink::Http(http) => Some(http),
            Sink::Postgres(_) | Sink::Handler(_) => None,
        }
    }

    /// Its handler, if it ends in one.
    pub fn handler(&self) -> Option<&sink::Handler> {
        match self.sink()? {
            Sink::Handler(handler) => Some(handler),
            Sink::Postgres(_) | Sink::Http(_) => None,
        }
    }

    /// The terms of its calls, if it makes any.
    pub fn calls(&self) -> Option<&sink::Terms> {
        match self.sink()? {
            Sink::Http(http) => Some(&http.terms),
            Sink::Handler(handler) => Some(&handler.terms),
            Sink::Postgres(_) => None,
        }
    }

    /// Whether its output may hold other records; a sink may.
    pub fn appends(&self) -> bool {
        self.output().is_none_or(|output| output.existing == Existing::Append)
    }

    /// The output of an input topic, if the topology ends in one.
    pub fn output_topic(&self, topic: &str) -> Option<String> {
        Some(self.output()?.topic.replace(names::TEMPLATE, topic))
    }

    /// The transactional id of a lane, with a number chosen at random at each start.
    pub fn transactional_id(&self, random: u64, lane: usize) -> String {
        format!("{}{random:016x}.{lane}", self.transactional_ids())
    }

    /// The prefix of all its transactional ids.
    pub fn transactional_ids(&self) -> String {
        format!("ratchet.{}.", self.name)
    }
}

/// A topology without mistakes.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The topology.
    pub topology: Topology,
    /// Warnings about it.
    pub warnings: Vec<Mistake>,
    /// Where it was read from.
    pub path: PathBuf,
    /// The tree, including the preset's blocks.
    tree: Node,
    /// The file, and places in it.
    file: Arc<File>,
    marks: Marks,
}

/// Reads one topology.
pub fn load(path: &Path, environment: &dyn Environment) -> Result<Loaded, Diagnostics> {
    read_one(path, environment).1
}

/// A topology's name and its place.
type Named = (String, Arc<File>, Place);

/// Reads one topology; its name is returned even if something else is wrong with it.
fn read_one(path: &Path, environment: &dyn Environment) -> (Option<Named>, Result<Loaded, Diagnostics>) {
    let mut report = Report::default();
    let mut named = None;
    let compiled = read::open(path, "a topology's YAML file", environment, &mut report).and_then(|file| {
        let mut reader = Reader { file: Arc::new(secrets::masked(&file)), environment, report: &mut report };
        let tree = reader.parse_text(file.text())?;
        if let Some(place) = proxys_key(&tree) {
            let help = format!("check it with `ratchet proxy --config {} --check`", path.display());
            let message = "this is a proxy's file, no topology".to_owned();
            reader.mistake(place, message, "topologies have no such key", help);
            return None;
        }
        let file = Arc::clone(&reader.file);
        let (tree, preset) = match presets::apply(tree, &mut reader) {
            Ok((tree, preset)) => (tree, Ok(preset)),
            Err(tree) => (tree, Err(())),
        };
        let spec = spec::read(&tree, &mut reader)?;
        let name = spec.name.as_ref().filter(|name| names::is_name(name.value.reveal()));
        named = name.map(|name| (name.value.reveal().to_owned(), Arc::clone(&file), name.place));
        let Ok(preset) = preset else {
            // What the preset would have provided is not missing: report only mistakes that do not depend on it.
            compile::check_without_preset(&spec, &file, &mut report);
            return None;
        };
        let (topology, marks) = compile::compile(&spec, preset, &file, &mut report)?;
        Some((topology, tree, file, marks))
    });
    let loaded = report.finish(compiled).map(|((topology, tree, file, marks), warnings)| Loaded {
        topology,
        warnings,
        path: path.to_owned(),
        tree,
        file,
        marks,
    });
    (named, loaded)
}

/// Where a file that is no topology says what `ratchet proxy` does.
fn proxys_key(tree: &Node) -> Option<Place> {
    let Value::Mapping(entries) = &tree.value else { return None };
    let find = |keys: [&str; 2]| entries.iter().find(|entry| keys.contains(&entry.key.as_str()));
    find(["listen", "upstream"]).filter(|_| find(["name", "input"]).is_none()).map(|entry| entry.key_place)
}

/// Reads the topologies at these paths, in order; a folder stands for the `*.yaml` files directly in it, sorted by
/// name. Names must be unique.
pub fn load_all(paths: &[PathBuf], environment: &dyn Environment) -> Result<Vec<Loaded>, Diagnostics> {
    let mut report = Report::default();
    let all = read_all(paths, environment, &mut report);
    report.finish(Some(all)).map(|(all, _)| all)
}

/// The same for topologies that run together: their outputs must be different too, unless each allows sharing, and those
/// that share an inbox must keep it equally long.
pub fn load_run(paths: &[PathBuf], environment: &dyn Environment) -> Result<Vec<Loaded>, Diagnostics> {
    let mut report = Report::default();
    let all = read_all(paths, environment, &mut report);
    for (number, loaded) in all.iter().enumerate() {
        if let Some(first) = all[..number].iter().find(|other| is_output_shared(&other.topology, &loaded.topology)) {
            report_shared_output(first, loaded, &mut report);
        }
        if let Some(first) = all[..number].iter().find(|other| is_inbox_torn(&other.topology, &loaded.topology)) {
            report_torn_inbox(first, loaded, &mut report);
        }
        if let Some(first) = all[..number].iter().find(|other| is_gate_between(&other.topology, &loaded.topology)) {
            report_gate_between(first, loaded, &mut report);
        }
    }
    report.finish(Some(all)).map(|(all, _)| all)
}

fn read_all(paths: &[PathBuf], environment: &dyn Environment, report: &mut Report) -> Vec<Loaded> {
    let mut all: Vec<Loaded> = Vec::new();
    let mut known: Vec<(String, PathBuf)> = Vec::new();
    let files: Vec<PathBuf> = paths.iter().flat_map(|path| expand(path, report)).collect();
    for path in files {
        let (named, loaded) = read_one(&path, environment);
        match loaded {
            Ok(loaded) => all.push(loaded),
            Err(diagnostics) => report.append(diagnostics.into_mistakes()),
        }
        let Some((name, file, place)) = named else { continue };
        if let Some((_, first)) = known.iter().find(|(other, _)| *other == name) {
            let message = format!("there are two topologies named `{name}` in this run");
            let help = "group, changelog and transactional ids derive from the name: give this one another";
            report.mistake((&file, place), message, format!("{} has this name too", first.display()), help);
        }
        known.push((name, path));
    }
    all
}

/// Whether two topologies write to the same topic although not both allow it.
fn is_output_shared(one: &Topology, other: &Topology) -> bool {
    let is_allowed = [one, other].iter().all(|topology| topology.appends());
    // Two with the same name are reported as such.
    !is_allowed && one.name != other.name && one.output_shared_with(other).is_some()
}

/// Reports two topologies with the same output, at the one that does not allow it.
fn report_shared_output(first: &Loaded, second: &Loaded, report: &mut Report) {
    let is_allowed = second.topology.appends();
    let (at, other) = if is_allowed { (first, second) } else { (second, first) };
    let message = "two topologies of this run write to one output topic".to_owned();
    let label = format!("{} writes there too", other.path.display());
    let help = "what both let through comes out twice: name another topic, or write `existing: append` under `output` \
                of each if that is meant";
    report.mistake((&at.file, at.marks.ending), message, label, help);
}

/// Whether two topologies share a gate although one reads what the other writes.
fn is_gate_between(one: &Topology, other: &Topology) -> bool {
    // However the address is spelled.
    let server = |url: &str| redis::Address::read(url).map(|address| address.server());
    let place = |topology: &Topology| {
        let gate = topology.gate.as_ref()?;
        Some((server(gate.url.reveal()).ok()?, gate.name.clone()))
    };
    let feeds = |one: &Topology, other: &Topology| {
        let outputs = one.output().map(|output| one.input.outputs(&output.topic)).unwrap_or_default();
        outputs.iter().any(|topic| other.reads(topic))
    };
    place(one).is_some() && place(one) == place(other) && (feeds(one, other) || feeds(other, one))
}

/// Reports that the second topology shares its gate with one that it feeds, or that feeds it.
fn report_gate_between(first: &Loaded, second: &Loaded, report: &mut Report) {
    let name = second.topology.gate.as_ref().map_or("", |gate| &gate.name);
    let message = format!("two topologies of this run share the gate `{name}`, and one reads what the other writes");
    let label = format!("{} names it, too", first.path.display());
    let help = "give each a `name` of its own under `gate.redis`: what the first lets through, the second would drop";
    report.mistake((&second.file, second.marks.gate), message, label, help);
}

/// An inbox that a topology's sink keeps.
struct Kept<'a> {
    /// The database, the schema, the inbox's name.
    place: [&'a str; 3],
    retention_ms: Option<i64>,
}

fn inbox(topology: &Topology) -> Option<Kept<'_>> {
    let Sink::Postgres(postgres) = topology.sink()? else { return None };
    let inbox = postgres.inbox.as_ref()?;
    Some(Kept { place: [postgres.url.reveal(), &postgres.schema, &inbox.name], retention_ms: inbox.retention_ms })
}

/// Whether two topologies keep one inbox for different times.
fn is_inbox_torn(one: &Topology, other: &Topology) -> bool {
    let both = inbox(one).zip(inbox(other));
    both.is_some_and(|(one, other)| one.place == other.place && one.retention_ms != other.retention_ms)
}

/// Reports that the second topology keeps an inbox for another time than the first.
fn report_torn_inbox(first: &Loaded, second: &Loaded, report: &mut Report) {
    let kept = |loaded: &Loaded| {
        let ms = inbox(&loaded.topology).and_then(|kept| kept.retention_ms);
        ms.map_or("for ever".to_owned(), |ms| format!("for {}", units::show_duration_ms(ms)))
    };
    let name = inbox(&second.topology).map_or("", |Kept { place: [.., name], .. }| name);
    let message = format!("two topologies of this run keep the inbox `{name}` for different times");
    let label = format!("{} here, {} in {}", kept(second), kept(first), first.path.display());
    let help = "write the same `retention` under `inbox` of each: the shortest removes the rows of all of them";
    report.mistake((&second.file, second.marks.inbox), message, label, help);
}

/// The files at a path: itself, or those in a folder.
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
pub(crate) mod tests;
