//! The reader of a spec, and what it reads under several keys: words, a topic, a retention.

use crate::dedup::{Path, Retention};
use crate::yaml::keys::Mapping;
use crate::yaml::{Field, Placed, Reader, Text};

/// Reads a spec: wraps the reader of nodes and collects every path.
pub struct SpecReader<'r, 'a> {
    pub reader: &'r mut Reader<'a>,
    pub paths: Vec<PathSpec>,
}

/// A path as written, and what it is for.
#[derive(Clone, Debug)]
pub struct PathSpec {
    pub path: Placed<Path>,
    /// Whether JSON is read there even if the path leads to a whole key or value.
    pub json: bool,
}

/// Words with their values.
pub fn choices<T: Copy>(all: &[T], word: fn(T) -> &'static str) -> Vec<(&'static str, T)> {
    all.iter().map(|value| (word(*value), *value)).collect()
}

impl SpecReader<'_, '_> {
    /// The topic of a mapping that names one, such as `dead_letter`.
    pub fn topic(&mut self, field: &Field<'_>, mapping: &'static Mapping) -> Option<Placed<Text>> {
        let fields = self.reader.fields(field, mapping)?;
        let topic = fields.require("topic", self.reader)?;
        self.reader.text(topic)
    }

    /// A duration above zero, or `forever`.
    pub fn retention(&mut self, field: &Field<'_>) -> Option<Placed<Retention>> {
        let text = self.reader.text(field)?;
        let place = text.place;
        if text.value.reveal() == "forever" {
            return Some(Placed { value: Retention::Forever, place });
        }
        let ms = self.reader.duration_of(field, &text)?.value;
        Some(Placed { value: Retention::For { ms }, place })
    }
}
