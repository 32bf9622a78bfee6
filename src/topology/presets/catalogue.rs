//! The presets that exist, and what is known of each: its text, its notes and hints, where its records have a row.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::dedup::Reason;
use crate::yaml::{Node, Place, Value, tree};

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
            text: include_str!(concat!($name, "@", $number, ".yaml")),
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
pub(super) const ROWS: &[(&str, Result<&[&str], Unkept>)] = &[
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

    /// What it says under a key that only presets have.
    pub(super) fn own(&self, key: &str) -> Option<Node> {
        let Value::Mapping(entries) = self.tree().value else { return None };
        entries.into_iter().find(|entry| entry.key == key).map(|entry| entry.node)
    }

    /// Its tree. The embedded text always parses: a test reads every preset.
    pub(super) fn tree(&self) -> Node {
        let nothing = Node { value: Value::Mapping(Vec::new()), place: Place::default() };
        tree::parse(self.text).unwrap_or(nothing)
    }
}
