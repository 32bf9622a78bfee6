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

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use crate::dedup::Reason;
use crate::yaml::read::{clipped, did_you_mean, listed};
use crate::yaml::tree::{self, Entry};
use crate::yaml::{Field, File, Node, Place, Reader, Shape, Value};

mod merge;

/// Keys that only a preset has.
const OWN_KEYS: &[&str] = &["notes", "without_identity", "without_version", "malformed_version", "warning"];

/// A preset.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Its name.
    pub name: &'static str,
    /// Its number.
    pub number: u32,
    /// Its YAML.
    pub text: &'static str,
}

macro_rules! presets {
    ($($name:literal $number:literal),+ $(,)?) => {
        &[$(Preset {
            name: $name,
            number: $number,
            text: include_str!(concat!("presets/", $name, "@", $number, ".yaml")),
        }),+]
    };
}

/// Every preset, by name and number.
pub const ALL: &[Preset] = presets![
    "canal" 1,
    "cockroachdb" 1,
    "debezium-db2" 1,
    "debezium-db2" 2,
    "debezium-informix" 1,
    "debezium-informix" 2,
    "debezium-mariadb" 1,
    "debezium-mariadb" 2,
    "debezium-mariadb" 3,
    "debezium-mongodb" 1,
    "debezium-mysql" 1,
    "debezium-mysql" 2,
    "debezium-oracle" 1,
    "debezium-oracle" 2,
    "debezium-oracle" 3,
    "debezium-outbox" 1,
    "debezium-postgres" 1,
    "debezium-postgres" 2,
    "debezium-postgres" 3,
    "debezium-spanner" 1,
    "debezium-sqlserver" 1,
    "debezium-sqlserver" 2,
    "debezium-vitess" 1,
    "maxwell" 1,
    "maxwell" 2,
    "ogg" 1,
    "ogg" 2,
    "ticdc" 1,
    "ticdc" 2,
];

/// What presets advise for a reason, by the preset's name and number. Parsed once, because it is looked up for every
/// such record.
static HINTS: LazyLock<HashMap<(String, Reason), String>> = LazyLock::new(|| {
    let keys = [
        (Reason::IdentityMissing, "without_identity"),
        (Reason::VersionMissing, "without_version"),
        (Reason::VersionMalformed, "malformed_version"),
    ];
    let hint = |preset: &Preset, reason, key| match preset.own(key)?.value {
        Value::Scalar { text, .. } => Some(((preset.pinned(), reason), text.trim().to_owned())),
        _ => None,
    };
    ALL.iter().flat_map(|preset| keys.iter().filter_map(move |(reason, key)| hint(preset, *reason, key))).collect()
});

/// What the preset with this name and number advises for records with this reason.
pub fn hint(pinned: &str, reason: Reason) -> Option<&'static str> {
    HINTS.get(&(pinned.to_owned(), reason)).map(String::as_str)
}

/// Every preset's name with its number.
pub fn names() -> impl Iterator<Item = String> {
    ALL.iter().map(Preset::pinned)
}

/// Sources without a safe order, and why.
const WITHOUT_ORDER: &[(&str, &str)] = &[
    ("debezium-cockroachdb", "its changefeed gives no position that says which change of a row is newer"),
    ("debezium-cassandra", "every node of a cluster has a commit log of its own, and their positions do not compare"),
    ("debezium-yashandb", "its positions are not documented to grow from one change of a row to the next"),
    ("aws-dms", "none of its fields names the primary key, and an order comes only with `IncludeTransactionDetails`"),
];

/// Why no table can be kept by a preset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unkept {
    /// What its records are, after `the records of NAME`.
    pub why: &'static str,
    /// What is not known.
    pub question: &'static str,
    /// What to write.
    pub help: &'static str,
    /// Whether it is enough that the topology says where the row is.
    pub is_cured_by_place: bool,
}

const NO_OBJECT: Unkept = Unkept {
    why: "have no row as an object, which `table` needs",
    question: "where is the row?",
    help: "write `on` with statements of your own, whose parameters are paths into the record; or say by `of` where an \
           object is",
    is_cured_by_place: true,
};
/// A delete is an event whose row is null, which no word names.
const NO_DELETES: Unkept = Unkept {
    why: "have no field whose value says that a row was deleted, which `table` needs",
    question: "which change is a delete?",
    help: "write `statements` of your own, with `value.after` as a parameter: it is null if the row was deleted",
    is_cured_by_place: false,
};

/// Where the records of a source have a row, by the beginning of the preset's name, or why no table can be kept; the first
/// that fits counts.
const ROWS: &[(&str, Result<&[&str], Unkept>)] = &[
    ("canal", Ok(&["value.data.0"])),
    ("cockroachdb", Err(NO_DELETES)),
    ("debezium-mongodb", Err(NO_OBJECT)),
    ("debezium-outbox", Ok(&["value"])),
    // A flattened row stands in the value itself.
    ("debezium-", Ok(&["value.after", "value"])),
    ("maxwell", Ok(&["value.data"])),
    ("ogg", Ok(&["value.after"])),
    ("ticdc", Ok(&["value.data.0"])),
];

/// Sources whose record keys say which table a row belongs to.
const TABLES_IN_KEYS: &[&str] = &["maxwell"];

impl Preset {
    /// Whether its record keys say which table a row belongs to.
    pub fn names_tables_in_keys(&self) -> bool {
        TABLES_IN_KEYS.contains(&self.name)
    }

    /// Where its records have a row that a table can be kept by, as paths.
    pub fn rows(&self) -> Result<&'static [&'static str], Unkept> {
        ROWS.iter().find(|(known, _)| self.name.starts_with(known)).map_or(Err(NO_OBJECT), |(_, places)| *places)
    }

    /// Whether its records write numbers as texts, and never as Kafka Connect's base64.
    pub fn has_text_decimals(&self) -> bool {
        !self.name.starts_with("debezium-")
    }

    /// Its name with its number, as written in a topology.
    pub fn pinned(&self) -> String {
        format!("{}@{}", self.name, self.number)
    }

    /// The preset with this name and number.
    pub fn find(pinned: &str) -> Option<&'static Preset> {
        ALL.iter().find(|preset| preset.pinned() == pinned)
    }

    /// The newest with this name.
    pub fn newest(name: &str) -> Option<&'static Preset> {
        ALL.iter().filter(|preset| preset.name == name).max_by_key(|preset| preset.number)
    }

    /// What to know about it, and what to set at the source.
    pub fn notes(&self) -> Vec<String> {
        let text = |node: &Node| match &node.value {
            Value::Scalar { text, .. } => Some(text.clone()),
            _ => None,
        };
        match self.own("notes") {
            Some(Node { value: Value::List(items), .. }) => items.iter().filter_map(text).collect(),
            _ => Vec::new(),
        }
    }

    fn own(&self, key: &str) -> Option<Node> {
        let Value::Mapping(entries) = self.tree().value else { return None };
        entries.into_iter().find(|entry| entry.key == key).map(|entry| entry.node)
    }

    /// Its tree. The embedded text always parses: a test reads every preset.
    fn tree(&self) -> Node {
        let nothing = Node { value: Value::Mapping(Vec::new()), place: Place::default() };
        tree::parse(self.text).unwrap_or(nothing)
    }
}

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
