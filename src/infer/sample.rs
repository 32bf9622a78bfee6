//! The records that a proposal is based on: as captured, and parsed into trees if they are JSON.
//!
//! Only here are records parsed into trees: a few thousand are examined in full, not judged.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::by_schema::BySchema;
use super::shape::Shape;
use crate::capture::{self, Captured, Form, Lines, Nearly, guesses, looks_like_kcat, topic_of_envelope, unwrap};
use crate::dedup::Format;
use crate::schemas::Sources;

/// How many bytes of lines are examined at most: their trees take about ten times as much memory.
const BYTES_MAX: u64 = 32 << 20;

/// A record of the sample.
#[derive(Debug)]
pub struct Observed {
    /// The record as it was captured, except that keys and values that name schemas are decoded to JSON.
    pub captured: Captured,
    /// The value as JSON, unwrapped; `None` if it is null or not JSON.
    pub value: Option<Value>,
    /// The same for the key.
    pub key: Option<Value>,
    /// The file and the number of its line, if the line is a value: then the coordinates are made up.
    pub line: Option<String>,
}

impl Observed {
    /// Where to find it: its line, or its coordinates.
    pub fn place(&self) -> String {
        let Captured { topic, partition, offset, .. } = &self.captured;
        self.line.clone().unwrap_or_else(|| format!("{topic}:{partition}:{offset}"))
    }
}

/// The records that are examined.
#[derive(Debug, Default)]
pub struct Sample {
    /// The records.
    pub records: Vec<Observed>,
    /// The form of the lines.
    pub form: Form,
    /// Values that are not JSON.
    pub malformed: usize,
    /// Null values.
    pub nulls: usize,
    /// Whether the JSON has a wrapper that only `connect_json` unwraps: in keys, in values.
    pub wrapped: (bool, bool),
    /// Whether the capture has more records.
    pub is_cut: bool,
    /// The topics that only those have, if that can be known without waiting.
    pub beyond: Option<BTreeSet<String>>,
    /// The first line that was taken for a value and is nearly a whole record, and what it nearly is.
    pub nearly: Option<(String, Nearly)>,
    /// The formats of keys and of values; `None` if no key or no value was decoded.
    pub formats: [Option<Format>; 2],
    /// How many values carry the id of a schema but could not be decoded, and why the first could not.
    pub undecoded: (usize, Option<String>),
    /// The topics of Debezium's schema changes, which are left out, and how many records each of them had.
    pub left_out: BTreeMap<String, usize>,
}

impl Sample {
    /// Reads up to `records_max` records of these files. Records that name schemas are not decoded.
    pub fn read(files: &[PathBuf], topic: &str, records_max: usize) -> Result<Self, capture::Error> {
        Self::read_with_schemas(files, topic, records_max, &Sources::default())
    }

    /// The same, but decodes keys and values that name schemas of these sources to JSON.
    pub fn read_with_schemas(
        files: &[PathBuf],
        topic: &str,
        records_max: usize,
        schemas: &Sources,
    ) -> Result<Self, capture::Error> {
        let mut by_schema = BySchema::new(schemas);
        let mut sample = Self::read_all(files, topic, records_max, &mut by_schema)?;
        (sample.formats, sample.undecoded) = by_schema.found();
        sample.leave_out_schema_changes();
        Ok(sample)
    }

    fn read_all(
        files: &[PathBuf],
        topic: &str,
        records_max: usize,
        by_schema: &mut BySchema,
    ) -> Result<Self, capture::Error> {
        let mut lines = Lines::open(files)?;
        // a topic that is piped in may never end
        let has_an_end = lines.bytes_total().is_some();
        let mut line = Vec::new();
        let mut bytes_read = 0;
        let mut sample = Self::default();
        loop {
            let Some(place) = lines.next(&mut line)? else { return Ok(sample) };
            if sample.records.len() >= records_max || bytes_read >= BYTES_MAX {
                sample.is_cut = true;
                if has_an_end && sample.form.is_whole() {
                    sample.beyond = Some(sample.topics_beyond(line, lines));
                }
                return Ok(sample);
            }
            bytes_read += line.len() as u64;
            if sample.records.is_empty() {
                sample.form = match Form::of(&line) {
                    Form::Values if looks_like_kcat(&line) => Form::Kcat,
                    form => form,
                };
            }
            let mut captured = Captured::default();
            let mut number = None;
            let form = sample.form;
            captured.read(form, &line).map_err(|error| capture::Error::not_of(form, place, &error))?;
            if !form.is_whole() {
                captured.topic.push_str(topic);
                captured.offset = sample.records.len() as i64;
                number = Some(place.to_string());
                if sample.nearly.is_none() {
                    sample.nearly = Nearly::of(&line).map(|nearly| (place.to_string(), nearly));
                }
            }
            by_schema.decode(&mut captured);
            sample.add_line(captured, number);
        }
    }

    /// The topics of this line and of those after it that the sample does not have, as far as they can be read.
    fn topics_beyond(&self, mut line: Vec<u8>, mut lines: Lines) -> BTreeSet<String> {
        let known: BTreeSet<&str> = self.topics().into_iter().collect();
        let mut beyond = BTreeSet::new();
        loop {
            if let Some(topic) = topic_of_envelope(&line).filter(|topic| !known.contains(&**topic))
                && !beyond.contains(&*topic)
            {
                beyond.insert(topic.into_owned());
            }
            if !matches!(lines.next(&mut line), Ok(Some(_))) {
                return beyond;
            }
        }
    }

    /// Adds a record.
    pub fn add(&mut self, captured: Captured) {
        self.add_line(captured, None);
    }

    fn add_line(&mut self, captured: Captured, line: Option<String>) {
        let mut tree = |bytes: &Option<Vec<u8>>, is_key: bool| {
            let mut tree = serde_json::from_slice(bytes.as_deref()?).ok()?;
            let wrapped = if is_key { &mut self.wrapped.0 } else { &mut self.wrapped.1 };
            *wrapped |= unwrap(&mut tree, true);
            Some(tree)
        };
        let (key, value) = (tree(&captured.key, true), tree(&captured.value, false));
        self.nulls += usize::from(captured.value.is_none());
        self.malformed += usize::from(captured.value.is_some() && value.is_none());
        self.records.push(Observed { captured, value, key, line });
    }

    /// Leaves out the topics that hold only Debezium's schema changes: DDL, and no changes of rows. A capture of nothing
    /// else stays as it is.
    pub fn leave_out_schema_changes(&mut self) {
        let mut counts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for Observed { captured, value, .. } in &self.records {
            let (records, changes) = counts.entry(&captured.topic).or_default();
            *records += 1;
            *changes += usize::from(value.as_ref().is_some_and(|value| Shape::of(value) == Shape::SchemaChange));
        }
        let topics = counts.len();
        let of_schemas: BTreeMap<String, usize> = counts
            .into_iter()
            .filter(|(_, (records, changes))| records == changes)
            .map(|(topic, (records, _))| (topic.to_owned(), records))
            .collect();
        if of_schemas.len() < topics {
            self.records.retain(|observed| !of_schemas.contains_key(&observed.captured.topic));
            self.left_out = of_schemas;
        }
    }

    /// The topics, in the order in which they first occur.
    pub fn topics(&self) -> Vec<&str> {
        let mut seen = BTreeSet::new();
        let topics = self.records.iter().map(|observed| observed.captured.topic.as_str());
        topics.filter(|topic| seen.insert(*topic)).collect()
    }

    /// The values that are JSON, with their records' numbers.
    pub fn values(&self) -> impl Iterator<Item = (usize, &Value)> {
        self.records.iter().enumerate().filter_map(|(number, observed)| Some((number, observed.value.as_ref()?)))
    }

    /// Whether the lines are CSV: by their separators, or by a file's name where no line is a JSON object.
    pub fn looks_like_csv(&self, files: &[PathBuf]) -> bool {
        if self.form.is_whole() || self.values().any(|(_, value)| value.is_object() || value.is_array()) {
            return false;
        }
        let is_named = |file: &PathBuf| unpacked(file).extension().is_some_and(|end| end == "csv" || end == "tsv");
        let lines = self.records.iter().filter_map(|observed| observed.captured.value.as_deref());
        files.iter().any(is_named) || guesses::is_csv(lines)
    }

    /// How many values are JSON.
    pub fn json(&self) -> usize {
        self.records.len() - self.nulls - self.malformed
    }
}

/// A file's name without the ending of a packed one.
fn unpacked(file: &Path) -> PathBuf {
    let is_packed = file.extension().is_some_and(|ending| ending == "gz" || ending == "zst");
    if is_packed { file.with_extension("") } else { file.to_owned() }
}

/// The topic of lines without an envelope, derived from the file's name.
pub fn topic_of(files: &[PathBuf]) -> String {
    let first = files.first().map(|file| unpacked(file));
    let stem = first.as_ref().and_then(|file| file.file_stem()).and_then(|stem| stem.to_str());
    let legal = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' };
    let topic: String = stem.unwrap_or_default().chars().map(legal).take(200).collect();
    if topic.trim_matches(['.', '-']).is_empty() { "captured".to_owned() } else { topic }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrappers_of_connect_and_avro_are_removed() {
        let unwrapped = |text: &str| {
            let mut tree = serde_json::from_str(text).unwrap();
            let was = unwrap(&mut tree, true);
            (tree.to_string(), was)
        };
        assert_eq!(unwrapped(r#"{"schema":{},"payload":{"id":1}}"#), (r#"{"id":1}"#.to_owned(), true));
        assert_eq!(unwrapped(r#"{"schemaId":48,"payload":{"id":1}}"#), (r#"{"id":1}"#.to_owned(), true));
        let columns = r#"{"payload":7,"schemaId":48}"#;
        assert_eq!(unwrapped(columns), (columns.to_owned(), false));
        let union = r#"{"after":{"s.t.Value":{"id":{"int":1}}},"ts":{"long":5}}"#;
        assert_eq!(unwrapped(union), (r#"{"after":{"id":1},"ts":5}"#.to_owned(), true));
        let plain = r#"{"after":{"id":1},"string":"x"}"#;
        assert_eq!(unwrapped(plain), (plain.to_owned(), false));
    }

    #[test]
    fn form_of_the_lines_is_recognised_from_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let read = |text: &str| {
            let file = folder.path().join("my capture.jsonl");
            std::fs::write(&file, text).unwrap();
            let files = [file];
            Sample::read(&files, &topic_of(&files), 2)
        };
        let sample = read("{\"id\":1}\n\nnull\n{\"id\":3}\n").unwrap();
        assert_eq!((sample.form, sample.records.len(), sample.is_cut), (Form::Values, 2, true));
        assert_eq!(sample.topics(), ["my-capture"]);
        let kcat = r#"{"topic":"t","partition":0,"offset":0,"key":"k","payload":null}"#;
        let sample = read(kcat).unwrap();
        assert_eq!((sample.form, sample.nulls, sample.json()), (Form::Kcat, 1, 0));
        let own = r#"{"capture":1,"topic":"t","partition":0,"offset":0,"key":"k","payload":null}"#;
        let sample = read(own).unwrap();
        assert_eq!((sample.form, sample.nulls, sample.topics()), (Form::Capture, 1, vec!["t"]));
        assert!(read(&format!("{kcat}\n{{\"id\":1}}")).unwrap_err().text.contains(":2: "));
    }
}
