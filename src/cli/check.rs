//! `ratchet check`: reports every mistake at once, or what the topologies amount to.

use std::collections::HashSet;
use std::io::{self, Write as _};

use super::stderr::say;
use super::{Failure, inputs};
use crate::config::Config;
use crate::dedup::{Action, Epoch, Kinds, Path, Reads, Refresh, Retention, Rules, Version};
use crate::topology::{self, Input, Loaded, Preset, Process, Topology};
use crate::words::counted;
use crate::yaml::units::show_duration_ms;

mod calls;
mod online;
pub(super) mod peers;
mod promise;
mod schemas;
mod show;
mod wanted;

/// Width at which a line of the summary is folded, in characters.
const WIDTH: usize = 110;
/// Where the values of the summary begin.
const INDENT: usize = 15;

const EXAMPLES: &str = "\
Examples:
  ratchet check topologies/payments.yaml

  # all topologies of a folder, and the configuration they are to run with
  ratchet check topologies --config config/ratchet.yaml

  # check the cluster too: topics, partitions, policies, retention, rights,
  # the latest schemas
  ratchet check topologies --config config/ratchet.yaml --online

  # what its preset stands for, written out as a topology without one
  ratchet check topologies/inventory-cdc.yaml --expand

Exit codes: 0 no mistakes (there may be warnings), 1 the cluster cannot be
reached, 2 mistakes.";

/// Options of `ratchet check`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    inputs: inputs::Inputs,

    /// Check on the configured cluster whether they can run there; writes and creates nothing
    #[arg(long)]
    online: bool,

    /// Print each topology with everything that its preset stands for written out, as YAML that loads to the same
    /// rules; several are printed as one document each, headed by the file's name
    #[arg(long)]
    expand: bool,
}

/// Reports what is wrong, or what was understood.
pub fn run(args: &Args) -> Result<(), Failure> {
    let inputs = &args.inputs;
    let (loaded, config) = if args.online || inputs.config.is_some() || !inputs.sets.is_empty() {
        inputs::load(inputs).map(|(loaded, read)| (loaded, Some(read)))?
    } else {
        (topology::load_run(&inputs.topologies, &Process)?, None)
    };
    let notes = notes(&loaded);
    for Loaded { topology, warnings, path, .. } in &loaded {
        inputs::show_warnings(warnings);
        say(format_args!("{}: fine\n{}", path.display(), summary(topology, &notes, config.as_ref())));
    }
    for (note, names) in notes.iter().filter(|(_, names)| names.len() > 1) {
        say(format_args!("note for {}: {note}\n", names.join(", ")));
    }
    if args.expand {
        expand(&loaded).map_err(|error| Failure::output(&error))?;
    }
    config.iter().for_each(|read| inputs::show_warnings(&read.warnings));
    config.iter().for_each(|read| show_config(inputs.config.as_deref(), read));
    // The cluster's warnings are printed later, and may differ.
    if loaded.len() > 1 && !args.online {
        say(format_args!("{}\n", in_all(&loaded, config.as_ref())));
    }
    match config {
        Some(config) if args.online => online::run(&loaded, &config),
        _ => Ok(()),
    }
}

/// Says that the configuration is fine, and prints the notes about it.
fn show_config(path: Option<&std::path::Path>, config: &Config) {
    let notes = peers::kafka_notes(config);
    let Some(path) = path else {
        notes.iter().for_each(|note| say(format_args!("note for the settings: {note}\n")));
        return;
    };
    say(format_args!("{}: fine\n", path.display()));
    notes.iter().for_each(|note| say(format_args!("{}", folded_line("note", note))));
}

/// Writes the topologies with their presets expanded to standard output; several as one document each, headed by
/// the file's name.
fn expand(loaded: &[Loaded]) -> io::Result<()> {
    let texts: Vec<String> = match loaded {
        [one] => vec![one.expanded()],
        several => several.iter().map(|one| format!("# {}\n{}", one.path.display(), one.expanded())).collect(),
    };
    let mut stdout = io::stdout().lock();
    stdout.write_all(texts.join("---\n").as_bytes()).and_then(|()| stdout.flush())
}

/// The summary of several topologies and the configuration.
fn in_all(loaded: &[Loaded], config: Option<&Config>) -> String {
    let warnings =
        loaded.iter().map(|one| one.warnings.len()).sum::<usize>() + config.map_or(0, |read| read.warnings.len());
    let warned = if warnings == 0 { String::new() } else { format!(", {}", counted(warnings, "warning")) };
    format!("{}, no mistakes{warned}", counted(loaded.len(), "topology"))
}

/// A note, and the topologies that it is for.
type Note<'a> = (String, Vec<&'a str>);

/// The notes of the topologies' presets, without repetitions.
fn notes(loaded: &[Loaded]) -> Vec<Note<'_>> {
    let mut notes: Vec<Note<'_>> = Vec::new();
    for Loaded { topology, .. } in loaded {
        let preset = topology.preset.as_deref().and_then(Preset::find);
        for note in preset.iter().flat_map(|preset| preset.notes()) {
            match notes.iter_mut().find(|(known, _)| *known == note) {
                Some((_, names)) => names.push(&topology.name),
                None => notes.push((note, vec![&topology.name])),
            }
        }
    }
    notes
}

/// The preset, and the newest of its name, which a pinned topology would not hear of otherwise.
fn preset_line(preset: &Preset) -> String {
    let pinned = preset.pinned();
    match Preset::newest(preset.name).filter(|newest| newest.number > preset.number) {
        Some(newest) => format!("{pinned}; the newest is {}", newest.pinned()),
        None => pinned,
    }
}

/// What a topology amounts to, line by line, with the notes that are only for it.
fn summary(topology: &Topology, notes: &[Note<'_>], config: Option<&Config>) -> String {
    let rules = &topology.rules;
    let identity: Vec<_> = rules.identity.parts.iter().map(ToString::to_string).collect();
    let version = rules.version.as_ref();
    let preset = topology.preset.as_deref().and_then(Preset::find);
    let mut text = String::new();
    let mut line = |name: &str, value: &str| text.push_str(&folded_line(name, value));
    line("name", &topology.name);
    preset.iter().for_each(|preset| line("preset", &preset_line(preset)));
    line("input", &format!("{}, from the {} record", topology.input, topology.start.as_str()));
    line("formats", &format!("key {}, value {}", rules.key_format, rules.value_format));
    let schemas = config.and_then(|config| schemas::line(topology, config));
    schemas.iter().for_each(|schemas| line("schemas", schemas));
    line("identity", &identity.join(" + "));
    line("version", &version.map_or("none: whatever was seen is dropped".to_owned(), show_version));
    rules.epoch.iter().for_each(|epoch| line("epoch", &show_epoch(epoch)));
    rules.kinds.iter().for_each(|kinds| line("kinds", &show_kinds(kinds)));
    show_contents(rules).iter().for_each(|contents| line("contents", contents));
    line("retention", &retention(rules.retention, rules.refresh));
    let (outputs, changelogs) = derived(topology);
    outputs.iter().for_each(|outputs| line("output", outputs));
    promise::sink_lines(topology).iter().for_each(|(name, value)| line(name, value));
    promise::gate_line(topology).iter().for_each(|gate| line("gate", gate));
    line("dead letter", &topology.dead_letter);
    topology.audit.iter().for_each(|audit| line("audit", audit));
    line("group", &topology.group());
    line("changelog", &changelogs);
    line("promise", &promise::promise(topology));
    if !topology.tests.is_empty() {
        line("tests", &format!("{}, which `ratchet test` runs", topology.tests.len()));
    }
    peers::notes(topology).iter().for_each(|note| line("note", note));
    for (note, _) in notes.iter().filter(|(_, names)| *names == [topology.name.as_str()]) {
        line("note", note);
    }
    text
}

/// A line of a summary, folded.
fn folded_line(name: &str, value: &str) -> String {
    format!("  {name:<12} {}\n", folded(value))
}

/// A text folded at [`WIDTH`], its further lines indented.
fn folded(text: &str) -> String {
    let mut folded = String::new();
    let mut column = INDENT;
    for (number, word) in text.split(' ').enumerate() {
        let length = word.chars().count();
        if number > 0 && column + 1 + length > WIDTH {
            folded.push('\n');
            folded.push_str(&" ".repeat(INDENT));
            column = INDENT;
        } else if number > 0 {
            folded.push(' ');
            column += 1;
        }
        folded.push_str(word);
        column += length;
    }
    folded
}

/// The outputs, each once, unless it ends in a sink, and the changelogs; for a pattern, with `{topic}` in place of the
/// topic.
fn derived(topology: &Topology) -> (Option<String>, String) {
    let topics: Vec<String> = match &topology.input {
        Input::Topics(topics) => topics.clone(),
        Input::Pattern { .. } => vec!["{topic}".to_owned()],
    };
    let mut outputs: Vec<String> = topics.iter().filter_map(|topic| topology.output_topic(topic)).collect();
    // All inputs may go into one output.
    let mut known = HashSet::new();
    outputs.retain(|output| known.insert(output.clone()));
    let changelogs: Vec<String> = topics.iter().map(|topic| topology.changelog(topic)).collect();
    ((!outputs.is_empty()).then(|| outputs.join(", ")), changelogs.join(", "))
}

fn show_places(places: &[Path]) -> String {
    places.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ")
}

fn show_version(version: &Version) -> String {
    let part = |part: &crate::dedup::VersionPart| {
        let at_least = part.at_least.as_ref().map(|places| format!(", at least {}", show_places(places)));
        let min = part.min.map(|min| format!(", from {min} on"));
        let kind = part.kind;
        format!("{} as {kind}{}{}", show_places(&part.of), at_least.unwrap_or_default(), min.unwrap_or_default())
    };
    version.parts.iter().map(part).collect::<Vec<_>>().join(", then ")
}

fn show_epoch(epoch: &Epoch) -> String {
    epoch.parts.iter().map(|part| show_places(&part.of)).collect::<Vec<_>>().join(" + ")
}

fn show_kinds(kinds: &Kinds) -> String {
    let Kinds { of, delete, read, reads, truncate, message, none, .. } = kinds;
    let words = [("delete", delete), ("read", read), ("truncate", truncate), ("message", message), ("none", none)];
    let named = words.iter().filter(|(_, words)| !words.is_empty()).map(|(kind, words)| {
        let words: Vec<_> = words.iter().map(ToString::to_string).collect();
        format!("{kind} {}", words.join(" or "))
    });
    let named = named.collect::<Vec<_>>().join(", ");
    let reads = if *reads == Reads::ByVersion { ", reads by version" } else { "" };
    format!("by {}: {named}{reads}", show_places(of))
}

/// The contents that are compared, and the action on a conflict; `None` for a sink that calls, where ratchet compares the
/// requests instead.
fn show_contents(rules: &Rules) -> Option<String> {
    let Some(contents) = &rules.contents else {
        // A call's terms have a line of their own.
        let enough = match rules.version {
            Some(_) => "a known identity and version are enough",
            None => "a known identity is enough",
        };
        return (rules.actions.conflict == Action::Drop).then(|| format!("not compared: {enough} for a duplicate"));
    };
    let parts: Vec<_> = contents.parts.iter().map(ToString::to_string).collect();
    let seen = match rules.version {
        Some(_) => "a record of a known identity and version that says something else",
        None => "a record of a known identity that says something else",
    };
    let becomes = match rules.actions.conflict {
        Action::Forward => "is forwarded",
        Action::Drop => "is dropped, counted and logged (on_conflict)",
        Action::DeadLetter => "goes to the dead letters (on_conflict)",
        Action::Fail => "stops its partition (on_conflict)",
    };
    Some(format!("{}; {seen} {becomes}", parts.join(" + ")))
}

/// A retention as it can be written in a topology, and what restarts it if that is not the default.
fn retention(retention: Retention, refresh: Refresh) -> String {
    let restarts = if refresh == Refresh::OnDuplicate { ", restarted by duplicates too" } else { "" };
    match retention {
        Retention::Forever => "forever".to_owned(),
        Retention::For { ms } => format!("{}{restarts}", show_duration_ms(ms)),
    }
}
