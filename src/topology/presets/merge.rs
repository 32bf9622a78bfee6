//! A topology's tree with the blocks of its preset in it: what is compiled, and what `check --expand` prints.
//!
//! **Invariant.** Afterwards the tree without its key `preset` means the same: it contains everything that the preset means
//! for this topology, including the settings that depend on its destination. So `check --expand` only has to print it.

use super::catalogue::Preset;
use crate::dedup::{Action, Format};
use crate::topology::keys::TEXT_DECIMALS;
use crate::yaml::tree::Entry;
use crate::yaml::{Node, Place, Value};

/// Keys that only a preset has.
const OWN_KEYS: &[&str] = &["notes", "without_identity", "without_version", "malformed_version", "warning"];
/// Actions on records from which nothing can be rendered.
const UNREAD: [&str; 3] = ["on_invalid", "on_missing", "on_null_value"];
/// The action on records whose calls would all have the same key.
const UNVERSIONED: &str = "on_missing_version";
/// Keys without effect for a sink that calls: it compares requests, and has an `on_conflict` of its own.
const COMPARED: [&str; 2] = [CONTENTS, ON_CONFLICT];
const CONTENTS: &str = "contents";
/// The contents of a topology that compares none; an `on_conflict` has no effect there.
const NONE: &str = "none";
const ON_CONFLICT: &str = "on_conflict";
/// The key for the format of JSON that names no schema, and the keys of the formats beside which it counts.
const JSON_FORMAT: &str = "json_format";
const FORMATS: [&str; 2] = ["key_format", "value_format"];
/// The form of an identity and of contents that is read from each row of a record.
const ROWS: &str = "rows";

/// The user's tree with the preset's blocks added; those get the place `place`.
pub(super) fn merge(mut tree: Node, preset: &Preset, place: Place) -> Node {
    let (Value::Mapping(entries), Value::Mapping(blocks)) = (&mut tree.value, preset.tree().value) else {
        return tree;
    };
    let is_own = |key: &str| entries.iter().any(|entry| entry.key == key);
    let (own_identity, destination) = (is_own("identity"), Destination::of(entries));
    let has_rows = entries.iter().all(|entry| entry.key != "identity" || has_key(&entry.node, ROWS));
    let compares_none = entries.iter().any(|entry| entry.key == CONTENTS && is_plain(&entry.node, NONE));
    for mut block in blocks {
        // A topology with its own identity must state again that it stays in one partition.
        let replaced = own_identity && block.key == "partitioned_by_identity";
        let uncompared =
            destination.calls && COMPARED.contains(&block.key.as_str()) || compares_none && block.key == ON_CONFLICT;
        if OWN_KEYS.contains(&block.key.as_str()) || replaced || uncompared {
            continue;
        }
        // The topology's own identity may have no rows. The contents of a record are then those of all its rows.
        if block.key == CONTENTS && !has_rows {
            take_rows_together(&mut block.node);
        }
        if destination.refuses(&block) {
            block.node.value = plain(Action::DeadLetter.as_str());
        }
        relocate(&mut block, place);
        match entries.iter_mut().find(|entry| entry.key == block.key) {
            None => entries.push(block),
            Some(entry) if is_merged(entry) => {
                if entry.key == "input" {
                    keep_json_format(&mut entry.node, &block.node);
                }
                complete(&mut entry.node, block.node);
            }
            Some(_) => {}
        }
    }
    if let Some(Node { value: Value::Mapping(keys), .. }) = inside(entries, &["sink", "postgres", "table"]) {
        let node = |value| Node { value, place };
        let of = preset.rows().ok().map(|rows| ("of", places(rows)));
        let decimals = preset.has_text_decimals().then(|| ("decimals", node(plain(TEXT_DECIMALS))));
        for (key, node) in of.into_iter().chain(decimals) {
            if !keys.iter().any(|known| known.key == key) {
                let mut entry = Entry { key: key.to_owned(), key_place: place, node };
                relocate(&mut entry, place);
                keys.push(entry);
            }
        }
    }
    tree
}

/// A topology's destination, as far as a preset's actions depend on it.
struct Destination {
    is_sink: bool,
    /// Whether it is a sink that calls.
    calls: bool,
    /// Whether it is an output or only a table, so that the last change of a row stays.
    keeps_last: bool,
}

impl Destination {
    fn of(entries: &mut [Entry]) -> Self {
        let calls = ["http", "handler"].iter().any(|kind| inside(entries, &["sink", kind]).is_some());
        let is_sink = inside(entries, &["sink"]).is_some();
        let has_inbox = inside(entries, &["sink", "postgres", "dedup"]).is_some_and(|dedup| is_plain(dedup, "inbox"));
        let mut has = |key| inside(entries, &["sink", "postgres", key]).is_some();
        Self { is_sink, calls, keeps_last: !is_sink || has("table") && !has("outbox") && !has_inbox }
    }

    /// Whether this block of a preset forwards records that only an output can take, or would lose or repeat an effect.
    fn refuses(&self, block: &Entry) -> bool {
        if block.key == ON_CONFLICT {
            return !self.keeps_last;
        }
        let forwards = is_plain(&block.node, Action::Forward.as_str());
        let key = block.key.as_str();
        forwards && (self.is_sink && UNREAD.contains(&key) || self.calls && key == UNVERSIONED)
    }
}

/// Whether a topology's block gets the preset's keys that it lacks. A `kinds` with `of` does not: the other words of the
/// preset are values at the preset's `of`, so the topology has to write all of them.
fn is_merged(entry: &Entry) -> bool {
    match (entry.key.as_str(), &entry.node.value) {
        ("input", _) => true,
        ("kinds", Value::Mapping(keys)) => !keys.iter().any(|key| key.key == "of"),
        _ => false,
    }
}

/// Whether the node is this word.
fn is_plain(node: &Node, word: &str) -> bool {
    matches!(&node.value, Value::Scalar { text, .. } if text == word)
}

/// Whether this key stands somewhere in the node.
fn has_key(node: &Node, key: &str) -> bool {
    match &node.value {
        Value::Scalar { .. } => false,
        Value::List(items) => items.iter().any(|item| has_key(item, key)),
        Value::Mapping(entries) => entries.iter().any(|entry| entry.key == key || has_key(&entry.node, key)),
    }
}

/// Writes `P` in place of each `{rows: P}`.
fn take_rows_together(node: &mut Node) {
    match &mut node.value {
        Value::Scalar { .. } => {}
        Value::List(items) => items.iter_mut().for_each(take_rows_together),
        Value::Mapping(entries) => match entries.iter().position(|entry| entry.key == ROWS) {
            Some(index) => *node = entries.swap_remove(index).node,
            None => entries.iter_mut().for_each(|entry| take_rows_together(&mut entry.node)),
        },
    }
}

/// If the topology has a format with schemas in place of the preset's JSON, writes the preset's format as that of JSON
/// that names no schema.
fn keep_json_format(input: &mut Node, preset: &Node) {
    let Value::Mapping(formats) = &preset.value else { return };
    let Value::Mapping(keys) = &mut input.value else { return };
    let of_preset = formats.iter().find(|format| format.key == "value_format");
    let has_schemas = |key: &Entry| {
        let format = match &key.node.value {
            Value::Scalar { text, .. } => Format::parse(text),
            _ => None,
        };
        FORMATS.contains(&key.key.as_str()) && format.is_some_and(Format::has_schemas)
    };
    if let Some(format) = of_preset
        && keys.iter().any(has_schemas)
        && !keys.iter().any(|key| key.key == JSON_FORMAT)
    {
        keys.push(Entry { key: JSON_FORMAT.to_owned(), ..format.clone() });
    }
}

/// Adds the keys that a block lacks.
fn complete(block: &mut Node, defaults: Node) {
    let (Value::Mapping(keys), Value::Mapping(defaults)) = (&mut block.value, defaults.value) else { return };
    let missing = |default: &Entry| !keys.iter().any(|key| key.key == default.key);
    let missing: Vec<Entry> = defaults.into_iter().filter(missing).collect();
    keys.extend(missing);
}

/// What these keys lead to, one inside the other.
fn inside<'a>(entries: &'a mut [Entry], keys: &[&str]) -> Option<&'a mut Node> {
    let (first, rest) = keys.split_first()?;
    let node = &mut entries.iter_mut().find(|entry| entry.key == *first)?.node;
    if rest.is_empty() {
        return Some(node);
    }
    match &mut node.value {
        Value::Mapping(entries) => inside(entries, rest),
        _ => None,
    }
}

/// Paths as a topology writes them.
fn places(paths: &[&str]) -> Node {
    let node = |value| Node { value, place: Place::default() };
    let paths: Vec<Node> = paths.iter().map(|path| node(plain(path))).collect();
    match <[Node; 1]>::try_from(paths) {
        Ok([only]) => only,
        Err(paths) => {
            let entry =
                Entry { key: "first_of".to_owned(), key_place: Place::default(), node: node(Value::List(paths)) };
            node(Value::Mapping(vec![entry]))
        }
    }
}

fn plain(text: &str) -> Value {
    Value::Scalar { text: text.to_owned(), plain: true }
}

fn relocate(entry: &mut Entry, place: Place) {
    entry.key_place = place;
    relocate_node(&mut entry.node, place);
}

fn relocate_node(node: &mut Node, place: Place) {
    node.place = place;
    match &mut node.value {
        Value::Scalar { .. } => {}
        Value::List(items) => items.iter_mut().for_each(|item| relocate_node(item, place)),
        Value::Mapping(entries) => entries.iter_mut().for_each(|entry| relocate(entry, place)),
    }
}
