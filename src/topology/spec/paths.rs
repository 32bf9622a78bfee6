//! Paths, lists of places, and constants.

use super::reader::{PathSpec, SpecReader};
use crate::dedup::path::{Number, Problem};
use crate::dedup::{Path, Places, Scalar, Source};
use crate::topology::keys;
use crate::yaml::keys::Type;
use crate::yaml::read::did_you_mean;
use crate::yaml::{Field, Place, Placed, Reader, Shape, Value};

/// The words that a path can begin with.
pub const SOURCES: &[&str] = &["key", "value", "header", "meta"];

/// The words that can follow `meta`.
const META: &[&str] = &["topic", "partition", "offset", "timestamp"];

impl SpecReader<'_, '_> {
    /// A path to a scalar.
    pub fn path(&mut self, field: &Field<'_>) -> Option<Placed<Path>> {
        self.path_for(field, false)
    }

    /// A path to JSON.
    pub fn json_path(&mut self, field: &Field<'_>) -> Option<Placed<Path>> {
        self.path_for(field, true)
    }

    fn path_for(&mut self, field: &Field<'_>, json: bool) -> Option<Placed<Path>> {
        let path = read_path(field, self.reader)?;
        self.paths.push(PathSpec { path: path.clone(), json });
        Some(path)
    }

    /// A path, or `{first_of: [PATH, ...]}`.
    pub fn places(&mut self, field: &Field<'_>, json: bool) -> Option<Places> {
        if !matches!(field.node.value, Value::Mapping(_)) {
            return Some(vec![self.path_for(field, json)?.value]);
        }
        if self.is_split_path(field) {
            return None;
        }
        let fields = self.reader.fields(field, &keys::PLACES)?;
        let Some(first_of) = fields.get("first_of") else {
            self.nothing_known(field);
            return None;
        };
        self.place_list(first_of, json)
    }

    /// The paths of a `first_of`.
    pub fn place_list(&mut self, field: &Field<'_>, json: bool) -> Option<Places> {
        let items = self.reader.list(field)?;
        let places: Vec<_> = items.iter().filter_map(|item| self.path_for(item, json)).collect();
        for (index, place) in places.iter().enumerate() {
            if places[..index].iter().any(|other| other.value == place.value) {
                let message = format!("`{}` stands in `{}` twice", place.value, field.name);
                self.reader.mistake(place.place, message, "again", "remove one of them");
            }
        }
        let complete = places.len() == items.len();
        complete.then(|| places.into_iter().map(|place| place.value).collect())
    }

    /// A text, a number, true or false.
    pub fn scalar(&mut self, field: &Field<'_>) -> Option<Placed<Scalar>> {
        let Value::Scalar { plain, text: written } = &field.node.value else {
            self.reader.wrong(field);
            return None;
        };
        if !plain && written.is_empty() {
            return Some(Placed { value: Scalar::Text(String::new()), place: field.place() });
        }
        let text = self.reader.text(field)?;
        let scalar = match text.value.reveal() {
            "true" if *plain => Scalar::Bool(true),
            "false" if *plain => Scalar::Bool(false),
            other => match Number::parse(other).filter(|_| *plain) {
                Some(number) => Scalar::Number(number),
                None => Scalar::Text(other.to_owned()),
            },
        };
        Some(Placed { value: scalar, place: text.place })
    }

    /// A list of texts, numbers, true or false.
    pub fn scalars(&mut self, field: &Field<'_>) -> Option<Vec<Placed<Scalar>>> {
        let items = self.reader.list(field)?;
        let item = |field: &Field<'_>| self.scalar(&field.described(Type::Scalar.what()));
        let scalars: Vec<_> = items.iter().filter_map(item).collect();
        for (index, scalar) in scalars.iter().enumerate() {
            if scalars[..index].iter().any(|other| other.value == scalar.value) {
                let message = format!("{} stands in `{}` twice", scalar.value, field.name);
                self.reader.mistake(scalar.place, message, "again", "remove one of them");
            }
        }
        (scalars.len() == items.len()).then_some(scalars)
    }

    /// The value of `{const: x}` as a path.
    pub fn constant(&mut self, field: &Field<'_>) -> Option<Placed<Path>> {
        let scalar = self.scalar(field)?;
        let path = Path { source: Source::Const(scalar.value), steps: Vec::new() };
        Some(Placed { value: path, place: scalar.place })
    }

    /// Whether a path was written as a mapping, e.g. `{header: id}`; if so, that is reported.
    pub fn is_split_path(&mut self, field: &Field<'_>) -> bool {
        let Value::Mapping(entries) = &field.node.value else { return false };
        let [only] = entries.as_slice() else { return false };
        let Value::Scalar { text, .. } = &only.node.value else { return false };
        if !SOURCES.contains(&only.key.as_str()) {
            return false;
        }
        let help = format!("write it as one text: `{}.{text}`", only.key);
        let message = format!("`{}` must be {}", field.name, field.shape.what);
        self.reader.mistake(only.key_place, message, "this is a mapping", help);
        true
    }

    /// Reports a mapping that says nothing, unless it held another key, which has already been reported.
    pub fn nothing_known(&mut self, field: &Field<'_>) {
        if matches!(&field.node.value, Value::Mapping(entries) if entries.is_empty()) {
            self.reader.wrong(field);
        }
    }
}

fn read_path(field: &Field<'_>, reader: &mut Reader<'_>) -> Option<Placed<Path>> {
    let text = reader.text(field)?;
    let written = text.value.reveal();
    let error = match Path::parse(written) {
        Ok(value) => return Some(Placed { value, place: text.place }),
        Err(error) => error,
    };
    if text.value.is_secret() {
        reader.wrong_text(&field.name, &text, Shape { what: "a path", ..field.shape });
        return None;
    }
    // In a string without quotes the place of the problem is known to the byte.
    let exact = reader.file.text().get(text.place.start..text.place.end()) == Some(written);
    let end = match &error.problem {
        Problem::UnknownSource(root) => root.len(),
        _ => written.len(),
    };
    let place = match exact && error.at < end {
        true => Place::new(text.place.start + error.at, text.place.start + end),
        false => text.place,
    };
    let (label, help) = advice(written, &error.problem, field.shape.example);
    reader.mistake(place, format!("`{}`: {error}", field.name), label, help);
    None
}

/// The label and the help for a text that is not a path.
fn advice(written: &str, problem: &Problem, example: &str) -> (String, String) {
    if let (Problem::UnknownSource(_) | Problem::Bracket, Some(path)) = (problem, from_json_path(written)) {
        return ("here".to_owned(), format!("write `{path}`"));
    }
    match problem {
        Problem::UnknownSource(root) => match did_you_mean(root, SOURCES) {
            Some(meant) => (format!("did you mean `{meant}`?"), format!("write `{meant}{}`", &written[root.len()..])),
            None => {
                let field = written.strip_prefix("$.").unwrap_or(written);
                let help = format!("a field of the value is `value.{field}`, one of the key `key.{field}`");
                ("not a path".to_owned(), help)
            }
        },
        Problem::UnknownMeta(name) => {
            let begun = || META.iter().find(|known| !name.is_empty() && known.starts_with(name.as_str())).copied();
            match did_you_mean(name, META).or_else(begun) {
                Some(meant) => (format!("did you mean `{meant}`?"), format!("write `meta.{meant}`")),
                None => ("here".to_owned(), "write e.g. `meta.timestamp`".to_owned()),
            }
        }
        Problem::HeaderName => ("here".to_owned(), "write e.g. `header.id` for the header `id`".to_owned()),
        _ => ("here".to_owned(), format!("write e.g. `{example}`")),
    }
}

/// The path that is meant by a JSONPath such as `$.value.items[0]`, if it is one.
fn from_json_path(written: &str) -> Option<String> {
    if written.contains('"') {
        return None;
    }
    let path = written.strip_prefix("$.").unwrap_or(written).replace('[', ".").replace(']', "");
    Path::parse(&path).is_ok().then_some(path)
}
