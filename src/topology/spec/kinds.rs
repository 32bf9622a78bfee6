//! `kinds`: how to tell a record's kind of change.

use crate::dedup::{Kinds, Places, Reads, Scalar};
use crate::topology::keys;
use crate::yaml::keys::Key;
use crate::yaml::{Field, Place, Placed, Value};

use super::reader::{SpecReader, choices};

/// The lists of words in `kinds`.
const WORDS: [&str; 5] = ["delete", "read", "truncate", "message", "none"];

/// The kinds as written.
#[derive(Debug)]
pub struct KindsSpec {
    /// The kinds, if all of them could be read.
    pub kinds: Option<Kinds>,
    /// Where `kinds` is.
    pub place: Place,
    /// The words for each kind.
    pub words: Vec<(&'static str, Vec<Placed<Scalar>>)>,
    /// Whether all keys written are known ones.
    pub complete: bool,
    /// The place of each key written.
    pub keys: Vec<(&'static str, Place)>,
}

impl KindsSpec {
    /// The place of this key, if it is there.
    pub fn key(&self, key: &str) -> Option<Place> {
        self.keys.iter().find(|(name, _)| *name == key).map(|(_, place)| *place)
    }

    /// Whether it is known that no word for any kind is written.
    pub fn names_no_kind(&self) -> bool {
        self.complete && self.keys.iter().all(|(key, _)| !WORDS.contains(key))
    }
}

impl SpecReader<'_, '_> {
    /// The kinds, as far as they could be read.
    pub fn kinds(&mut self, field: &Field<'_>) -> Option<KindsSpec> {
        let fields = self.reader.fields(field, &keys::KINDS)?;
        let of = fields.require("of", self.reader).and_then(|of| self.places(of, false));
        let words = WORDS.map(|kind| (kind, fields.get(kind).map_or(Some(Vec::new()), |field| self.scalars(field))));
        let table = fields.get("table").map_or(Some(Vec::new()), |field| self.table(field));
        let reads = fields.get("reads").map(|field| self.reader.choice(field, &choices(Reads::ALL, Reads::as_str)));
        let reads = reads.map_or(Some(Reads::Lose), |read| read.map(|reads| reads.value));
        let list = |kind: &str| {
            let (_, words) = words.iter().find(|(known, _)| *known == kind)?;
            words.as_ref().map(|words| words.iter().map(|word| word.value.clone()).collect())
        };
        let build = |of, table| {
            let (delete, read) = (list("delete")?, list("read")?);
            Some(Kinds {
                of,
                delete,
                read,
                reads: reads?,
                truncate: list("truncate")?,
                message: list("message")?,
                none: list("none")?,
                table,
            })
        };
        let kinds = of.zip(table).and_then(|(of, table)| build(of, table));
        let place = |key: &'static Key| Some((key.name, fields.get(key.name)?.key_place));
        let places: Vec<_> = keys::KINDS.keys.iter().filter_map(place).collect();
        let complete = matches!(&field.node.value, Value::Mapping(entries) if entries.len() == places.len());
        let words = words.into_iter().map(|(kind, words)| (kind, words.unwrap_or_default())).collect();
        Some(KindsSpec { kinds, place: field.key_place, words, complete, keys: places })
    }

    /// The parts that name a table.
    fn table(&mut self, field: &Field<'_>) -> Option<Vec<Places>> {
        let items = match &field.node.value {
            Value::List(_) => self.reader.list(field)?,
            _ => vec![field.clone()],
        };
        let parts: Vec<Places> = items.iter().filter_map(|item| self.table_part(item)).collect();
        (parts.len() == items.len()).then_some(parts)
    }

    /// A path, `{first_of: [...]}` or `{const: x}`.
    pub fn table_part(&mut self, field: &Field<'_>) -> Option<Places> {
        if !matches!(field.node.value, Value::Mapping(_)) {
            return Some(vec![self.path(field)?.value]);
        }
        if self.is_split_path(field) {
            return None;
        }
        let fields = self.reader.fields(field, &keys::TABLE_PART)?;
        match (fields.get("first_of"), fields.get("const")) {
            (Some(_), Some(constant)) => {
                let message = format!("one part of `{}` cannot be two things", field.name);
                let help = "write two parts, each in braces of its own: `[{…}, {…}]`";
                self.reader.mistake(constant.key_place, message, "it is a `first_of` already", help);
                None
            }
            (Some(first_of), None) => self.place_list(first_of, false),
            (None, Some(constant)) => Some(vec![self.constant(constant)?.value]),
            (None, None) => {
                self.nothing_known(field);
                None
            }
        }
    }
}
