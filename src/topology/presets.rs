//! Presets: identity, version, epoch, kinds and actions for the change events of one source.
//!
//! A preset is a fragment of a topology's YAML, embedded from `presets/NAME@NUMBER.yaml` and read by the same reader. A
//! block that the topology writes itself replaces the preset's as a whole; `input`, and `kinds` without its `of`, are
//! merged key by key (`merge`). Five keys belong to presets only: `notes`, what to know and to set at the source;
//! `without_identity`, `without_version` and `malformed_version`, what to advise about a record with no identity, no
//! version, or an impossible one; and `warning`, for a topology that does
//! not itself write one of the blocks under `unless`.
//!
//! **Invariant.** A numbered preset never changes its meaning, since what is remembered under it must stay readable. A
//! change gets a new number.

use std::sync::Arc;

use crate::yaml::read::{clipped, did_you_mean, listed};
use crate::yaml::tree::Entry;
use crate::yaml::{Field, File, Node, Place, Reader, Shape, Value};

mod catalogue;
mod merge;

pub use catalogue::{ALL, Preset, Unkept, hint, names};

/// Sources without a safe order, and why.
const WITHOUT_ORDER: &[(&str, &str)] = &[
    ("debezium-cockroachdb", "its changefeed gives no position that says which change of a row is newer"),
    ("debezium-cassandra", "every node of a cluster has a commit log of its own, and their positions do not compare"),
    ("debezium-yashandb", "its positions are not documented to grow from one change of a row to the next"),
    ("aws-dms", "none of its fields names the primary key, and an order comes only with `IncludeTransactionDetails`"),
];

/// The topology's tree with the blocks of the preset that it names, which get the place of `preset`. An unknown preset
/// is reported, and the tree is returned unchanged.
pub fn apply(tree: Node, reader: &mut Reader<'_>) -> Result<(Node, Option<&'static Preset>), Node> {
    let Value::Mapping(entries) = &tree.value else { return Ok((tree, None)) };
    let Some(entry) = entries.iter().find(|entry| entry.key == "preset") else { return Ok((tree, None)) };
    let shape = Shape { what: "a preset's name", example: "preset: debezium-postgres@3" };
    let field = Field { name: entry.key.clone(), key_place: entry.key_place, node: &entry.node, shape };
    let place = field.place();
    match choose(&field, reader) {
        Some(preset) => {
            warn(preset, entries, place, reader);
            Ok((merge::merge(tree, preset, place), Some(preset)))
        }
        None => Err(tree),
    }
}

/// Gives the preset's warning, unless the topology itself writes one of the blocks that it is about.
fn warn(preset: &Preset, written: &[Entry], place: Place, reader: &mut Reader<'_>) {
    let Some(Node { value: Value::Mapping(warning), .. }) = preset.own("warning") else { return };
    let said = |key: &str| warning.iter().find(|entry| entry.key == key).map(|entry| &entry.node.value);
    let scalar = |value: &Value| match value {
        Value::Scalar { text, .. } => Some(text.clone()),
        _ => None,
    };
    let text = |key: &str| said(key).and_then(scalar);
    let (Some(Value::List(unless)), Some(message)) = (said("unless"), text("message")) else { return };
    let unless: Vec<String> = unless.iter().filter_map(|item| scalar(&item.value)).collect();
    if !written.iter().any(|entry| unless.contains(&entry.key)) {
        let file: Arc<File> = Arc::clone(&reader.file);
        let label = format!("it says `{}`", unless[0]);
        reader.report.warning((&file, place), message, label, text("help").unwrap_or_default());
    }
}

/// The preset that the field names.
fn choose(field: &Field<'_>, reader: &mut Reader<'_>) -> Option<&'static Preset> {
    let text = reader.text(field)?;
    if text.value.is_secret() && Preset::find(text.value.reveal()).is_none() {
        reader.wrong_text("preset", &text, field.shape);
        return None;
    }
    let written = text.value.reveal();
    let (name, number) = match written.split_once('@') {
        Some((name, number)) => (name, Some(number)),
        None => (written, None),
    };
    let Some(newest) = Preset::newest(name) else {
        unknown(name, text.place, reader);
        return None;
    };
    let Some(number) = number else {
        let message = format!("`preset: {name}` means the newest of that name, which another release may change");
        let help = format!("pin it: `preset: {}`", newest.pinned());
        let file: Arc<File> = Arc::clone(&reader.file);
        reader.report.warning((&file, text.place), message, "without a number", help);
        return Some(newest);
    };
    let found = ALL.iter().find(|preset| preset.name == name && preset.number.to_string() == number);
    if found.is_none() {
        let message = format!("there is no preset `{}`", clipped(written));
        reader.mistake(text.place, message, "not that number", format!("write `preset: {}`", newest.pinned()));
    }
    found
}

fn unknown(name: &str, place: Place, reader: &mut Reader<'_>) {
    if let Some((_, why)) = WITHOUT_ORDER.iter().find(|(known, _)| *known == name) {
        let message = format!("there is no preset for `{name}`: {why}");
        let help = "write `identity` and `version` yourself, the version from a column that every update raises; \
                    without one, `identity: {fingerprint: value}` drops exact repeats only";
        reader.mistake(place, message, "no order is safe", help);
        return;
    }
    let mut names: Vec<&str> = ALL.iter().map(|preset| preset.name).collect();
    names.dedup();
    let message = format!("there is no preset `{}`", clipped(name));
    // The name is that of a family of presets, which does not say which one is meant.
    let family = names.iter().filter(|member| member.starts_with(&format!("{name}-")));
    let family: Vec<String> = family.filter_map(|member| Some(Preset::newest(member)?.pinned())).collect();
    if !family.is_empty() {
        let family: Vec<&str> = family.iter().map(String::as_str).collect();
        let help = format!("write `preset: ` and the one of its source: {}", listed(&family));
        reader.mistake(place, message, "there is one for each source", help);
        return;
    }
    let (label, help) = match did_you_mean(name, &names).and_then(Preset::newest) {
        Some(meant) => (format!("did you mean `{}`?", meant.name), format!("write `preset: {}`", meant.pinned())),
        None => ("not one of those".to_owned(), format!("write one of {}", listed(&names))),
    };
    reader.mistake(place, message, label, help);
}

#[cfg(test)]
mod tests;
