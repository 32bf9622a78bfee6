//! The fields of a sample, and their values.

use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};

use serde_json::Value;

use super::cell::{Cell, ValueKind};
use super::names;
use super::sample::{Observed, Sample};
use crate::dedup::{Path, Source};
use crate::encodings::Base64;
use crate::words::counted;

/// Maximum depth of the fields that are examined.
const STEPS_MAX: usize = 4;
/// Maximum number of fields that are examined.
const FIELDS_MAX: usize = 300;

/// The fields of the records whose values are JSON; each such record is a row.
pub struct Table {
    /// The fields, in the order of their paths.
    pub fields: Vec<Field>,
    /// How many rows there are.
    pub rows: usize,
    /// The hash of each row's content, without fields of the delivery.
    pub contents: Vec<u64>,
    /// The same, also without the fields that may belong to the delivery.
    pub cores: Vec<u64>,
    /// Each row's topic and partition.
    places: Vec<(String, i32)>,
}

/// A field.
pub struct Field {
    /// The path to it.
    pub path: Path,
    /// Its own name.
    pub name: String,
    /// Its value in each row.
    pub values: Vec<Option<Cell>>,
    /// In how many rows it is present.
    pub present: usize,
    /// The type of its values.
    pub kind: ValueKind,
    /// How many different values there are.
    pub distinct: usize,
    /// Whether all of its values are texts for changes of a row, such as `insert` or `u`.
    pub is_change: bool,
    /// Whether all of its values are texts that look like bytes in base64, at least one of them padded.
    pub is_base64: bool,
}

impl Table {
    /// The fields of a sample, headers and keys among them.
    pub fn of(sample: &Sample) -> Self {
        let observed: Vec<&Observed> = sample.records.iter().filter(|observed| observed.value.is_some()).collect();
        let rows = observed.len();
        let mut columns = Columns { rows, known: HashMap::new(), columns: Vec::new() };
        for (row, observed) in observed.iter().enumerate() {
            columns.add_record(row, observed);
        }
        let mut fields: Vec<Field> =
            columns.columns.into_iter().map(|(path, values)| Field::of(path, values)).collect();
        fields.sort_by_cached_key(|field| field.path.to_string());
        let hashes = |leaves_out: &dyn Fn(&str) -> bool| {
            observed.iter().map(|observed| content(observed.value.as_ref(), leaves_out)).collect()
        };
        let contents = hashes(&names::is_of_delivery);
        let cores = hashes(&|name| names::is_of_delivery(name) || names::may_be_of_delivery(name));
        let place = |observed: &&Observed| (observed.captured.topic.clone(), observed.captured.partition);
        Self { fields, rows, contents, cores, places: observed.iter().map(place).collect() }
    }

    /// How many identities are on several partitions of a topic, and how many records repeat an identity; `None` if
    /// there is only one partition.
    pub fn partitions(&self, identity: &[usize]) -> Option<(usize, usize)> {
        let mut places: HashMap<(u64, &str), HashSet<i32>> = HashMap::new();
        let mut repeated = 0;
        for row in 0..self.rows {
            let Some(key) = self.key(identity, row, false) else { continue };
            let (topic, partition) = &self.places[row];
            let seen = places.entry((key, topic)).or_default();
            repeated += usize::from(!seen.is_empty());
            seen.insert(*partition);
        }
        let spread = places.values().filter(|partitions| partitions.len() > 1).count();
        self.has_several_partitions().then_some((spread, repeated))
    }

    /// The hash of a row's identity, with its partition if `within_partition`.
    pub fn key(&self, identity: &[usize], row: usize, within_partition: bool) -> Option<u64> {
        let mut hasher = DefaultHasher::new();
        if within_partition {
            self.places[row].hash(&mut hasher);
        }
        for &field in identity {
            self.fields[field].values[row]?.hash.hash(&mut hasher);
        }
        Some(hasher.finish())
    }

    /// Whether a topic has records of several partitions.
    pub fn has_several_partitions(&self) -> bool {
        let mut first: HashMap<&str, i32> = HashMap::new();
        self.places.iter().any(|(topic, partition)| *first.entry(topic).or_insert(*partition) != *partition)
    }

    /// The fields in which records differ that are otherwise the same, and have one identity and one version, as paths.
    pub fn differing(&self, identity: &[usize], version: Option<usize>) -> Vec<String> {
        let of_delivery = |&field: &usize| {
            let Field { path, name, .. } = &self.fields[field];
            path.source == Source::Value && (names::is_of_delivery(name) || names::may_be_of_delivery(name))
        };
        let candidates: Vec<usize> = (0..self.fields.len()).filter(of_delivery).collect();
        let mut first: HashMap<(u64, Option<i128>, u64), usize> = HashMap::new();
        let mut differing: HashSet<usize> = HashSet::new();
        for row in 0..self.rows {
            let Some(key) = self.key(identity, row, true) else { continue };
            let order = version.and_then(|version| self.fields[version].values[row]?.order);
            let earlier = *first.entry((key, order, self.cores[row])).or_insert(row);
            let hash = |field: usize, row: usize| self.fields[field].values[row].map(|cell| cell.hash);
            differing.extend(candidates.iter().filter(|&&field| hash(field, earlier) != hash(field, row)));
        }
        candidates
            .iter()
            .filter(|field| differing.contains(field))
            .map(|&field| self.fields[field].path.to_string())
            .collect()
    }

    /// The hash of these fields' values in a row, null for a missing one.
    pub fn hash_of(&self, fields: &[usize], row: usize) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.places[row].hash(&mut hasher);
        fields.iter().for_each(|&field| self.fields[field].values[row].map(|cell| cell.hash).hash(&mut hasher));
        hasher.finish()
    }
}

/// The columns of a table while it is read.
struct Columns {
    rows: usize,
    known: HashMap<String, usize>,
    columns: Vec<(Path, Vec<Option<Cell>>)>,
}

impl Columns {
    fn add_record(&mut self, row: usize, observed: &Observed) {
        if let Some(value) = &observed.value {
            self.add_tree(row, &Path { source: Source::Value, steps: Vec::new() }, value);
        }
        match &observed.key {
            Some(key @ Value::Object(_)) => self.add_tree(row, &Path { source: Source::Key, steps: Vec::new() }, key),
            _ => {
                let key = observed.captured.key.as_deref().filter(|key| !key.is_empty());
                let path = Path { source: Source::Key, steps: Vec::new() };
                self.add(row, &path, key.map(|key| Cell::of(&Value::from(String::from_utf8_lossy(key)))));
            }
        }
        for header in observed.captured.headers.as_headers().iter() {
            let Ok(name) = std::str::from_utf8(header.name) else { continue };
            let value = header.value.map(|value| Cell::of(&Value::from(String::from_utf8_lossy(value))));
            self.add(row, &Path { source: Source::Header(name.to_owned()), steps: Vec::new() }, value);
        }
    }

    fn add_tree(&mut self, row: usize, path: &Path, tree: &Value) {
        match tree {
            Value::Object(object) if path.steps.len() < STEPS_MAX => {
                for (name, inner) in object {
                    let mut path = path.clone();
                    path.steps.push(name.clone());
                    self.add_tree(row, &path, inner);
                }
            }
            // a value that is not an object has no name
            _ if path.steps.is_empty() => {}
            Value::Null => self.add(row, path, None),
            scalar => self.add(row, path, Some(Cell::of(scalar))),
        }
    }

    fn add(&mut self, row: usize, path: &Path, cell: Option<Cell>) {
        let text = path.to_string();
        let column = match self.known.get(&text) {
            Some(&column) => column,
            None if self.columns.len() >= FIELDS_MAX => return,
            None => {
                self.columns.push((path.clone(), vec![None; self.rows]));
                self.known.insert(text, self.columns.len() - 1);
                self.columns.len() - 1
            }
        };
        self.columns[column].1[row] = cell;
    }
}

impl Field {
    fn of(path: Path, values: Vec<Option<Cell>>) -> Self {
        let name = match &path.source {
            Source::Header(name) => name.clone(),
            _ => path.steps.last().cloned().unwrap_or_else(|| "key".to_owned()),
        };
        let present = values.iter().flatten().count();
        let distinct = values.iter().flatten().map(|cell| cell.hash).collect::<HashSet<_>>().len();
        let mut kinds = values.iter().flatten().map(|cell| cell.kind);
        let first = kinds.next().unwrap_or(ValueKind::Other);
        let is_text = |kind| matches!(kind, ValueKind::Text | ValueKind::IntegerText);
        let kind = kinds.fold(first, |known, kind| match (known, kind) {
            (known, kind) if known == kind => known,
            // some ids in texts happen to be all digits
            (known, kind) if is_text(known) && is_text(kind) => ValueKind::Text,
            _ => ValueKind::Other,
        });
        let is_change = present > 0 && values.iter().flatten().all(|cell| cell.is_change);
        let is_base64 = values.iter().flatten().all(|cell| cell.base64.is_some())
            && values.iter().flatten().any(|cell| cell.base64 == Some(Base64::Padded));
        Self { path, name, values, present, kind, distinct, is_change, is_base64 }
    }

    /// Whether it can be an identity: nearly every row has it, with one type.
    pub fn identifies(&self, rows: usize) -> bool {
        self.present > 0 && self.is_common(rows) && !matches!(self.kind, ValueKind::Other | ValueKind::Moment)
    }

    /// Whether it can be a version.
    pub fn versions(&self, rows: usize) -> bool {
        self.present > 0
            && self.is_common(rows)
            && matches!(self.kind, ValueKind::Integer | ValueKind::IntegerText | ValueKind::Moment)
            && names::version_score(&self.name) > 0
    }

    fn is_common(&self, rows: usize) -> bool {
        self.present * 10 >= rows * 8
    }

    /// Whether it is a time, by its values or by its name.
    pub fn is_time(&self) -> bool {
        self.kind == ValueKind::Moment || names::is_time(&self.name)
    }

    /// The type that it has as a version.
    pub fn version_kind(&self) -> &'static str {
        if self.kind == ValueKind::Moment { "timestamp" } else { "integer" }
    }

    /// Its values, in words.
    pub fn words(&self, rows: usize) -> String {
        let what = match self.kind {
            ValueKind::Integer => "an integer",
            ValueKind::Text => "a string",
            ValueKind::IntegerText => "an integer in a string",
            ValueKind::Moment => "a moment in a string",
            ValueKind::Other => "of several types",
        };
        let records = counted(rows, "record");
        let present = match self.present {
            _ if rows == 1 => "the only record".to_owned(),
            present if present == rows => format!("all {records}"),
            present => format!("{present} of {records}"),
        };
        let values = counted(self.distinct, "different value");
        format!("{} is in {present}, always {what}, with {values}", self.path)
    }
}

/// The hash of a value's content, without the fields that `leaves_out` names.
pub fn content(value: Option<&Value>, leaves_out: &dyn Fn(&str) -> bool) -> u64 {
    fn hash(value: &Value, leaves_out: &dyn Fn(&str) -> bool, hasher: &mut DefaultHasher) {
        match value {
            Value::Object(object) => {
                "{".hash(hasher);
                for (name, inner) in object.iter().filter(|(name, _)| !leaves_out(name)) {
                    name.hash(hasher);
                    hash(inner, leaves_out, hasher);
                }
                "}".hash(hasher);
            }
            Value::Array(items) => {
                items.len().hash(hasher);
                items.iter().for_each(|item| hash(item, leaves_out, hasher));
            }
            scalar => scalar.to_string().hash(hasher),
        }
    }
    let mut hasher = DefaultHasher::new();
    value.into_iter().for_each(|value| hash(value, leaves_out, &mut hasher));
    hasher.finish()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::capture::Captured;

    pub(in crate::infer) fn table(values: &[&str]) -> Table {
        let mut sample = Sample::default();
        for (number, value) in values.iter().enumerate() {
            let mut captured = Captured::default();
            captured.read_value(value.as_bytes());
            captured.partition = number as i32 % 2;
            sample.add(captured);
        }
        // one partition, unless a test sets others
        let mut table = Table::of(&sample);
        table.places.iter_mut().for_each(|place| place.1 = 0);
        table
    }

    pub(in crate::infer) fn field(table: &Table, path: &str) -> usize {
        table.fields.iter().position(|field| field.path.to_string() == path).unwrap()
    }

    #[test]
    fn type_of_a_field_is_found_from_its_values() {
        let table = table(&[
            r#"{"id":1,"a b":{"c":"x"},"at":"2024-05-20 20:50:30","n":"5","mixed":1}"#,
            r#"{"id":2,"a b":{"c":"7"},"at":"2024-05-20T20:50:30+02:00","n":"-6","mixed":"1"}"#,
        ]);
        let kind = |path: &str| table.fields[field(&table, path)].kind;
        assert_eq!(kind("value.id"), ValueKind::Integer);
        assert_eq!(kind(r#"value."a b".c"#), ValueKind::Text);
        assert_eq!(kind("value.at"), ValueKind::Moment);
        assert_eq!(kind("value.n"), ValueKind::IntegerText);
        assert_eq!(kind("value.mixed"), ValueKind::Other);
    }

    #[test]
    fn identities_on_several_partitions_are_counted() {
        let mut table = table(&[r#"{"id":1}"#, r#"{"id":1}"#, r#"{"id":2}"#]);
        let id = field(&table, "value.id");
        assert_eq!(table.partitions(&[id]), None);
        table.places[2].1 = 1;
        assert_eq!(table.partitions(&[id]), Some((0, 1)));
        table.places[1].1 = 1;
        assert_eq!(table.partitions(&[id]), Some((1, 1)));
    }
}
