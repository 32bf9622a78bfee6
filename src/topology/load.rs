//! Loads topologies from files and folders, each alone or all that run together.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::compile::{self, Marks};
use super::compiled::Topology;
use super::sink::Sink;
use super::{names, presets, spec};
use crate::redis;
use crate::yaml::{Diagnostics, Environment, File, Mistake, Node, Place, Reader, Report, Value, read, secrets, units};

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
    pub(super) tree: Node,
    /// The file, and places in it.
    pub(super) file: Arc<File>,
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
    report.mistake((&at.file, at.marks.destination), message, label, help);
}

/// Whether two topologies share a gate although one reads what the other writes.
fn is_gate_between(one: &Topology, other: &Topology) -> bool {
    // However the address is spelled.
    let server = |url: &str| redis::Address::read(url).map(|address| address.server_identity());
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
