//! `version` and `epoch`: their parts.

use crate::dedup::{EpochPart, MissingPart, TimeUnit, Version, VersionKind, VersionPart};
use crate::topology::keys;
use crate::yaml::{Field, Place, Placed, Value};

use super::reader::{SpecReader, choices};

/// A part of a version as written.
#[derive(Debug)]
pub struct VersionPartSpec {
    pub part: VersionPart,
    /// Where the part is.
    pub place: Place,
    /// Where `at_least` is.
    pub at_least: Option<Place>,
    pub min: Option<Placed<i64>>,
    pub required: Option<Placed<bool>>,
    pub missing: Option<Placed<MissingPart>>,
    pub unit: Option<Placed<TimeUnit>>,
}

/// A version as written.
#[derive(Debug)]
pub struct VersionSpec {
    pub parts: Vec<VersionPartSpec>,
    /// Whether [`VersionSpec::parts`] is complete.
    pub complete: bool,
}

impl VersionSpec {
    /// The version for the rules.
    pub fn version(&self) -> Version {
        Version { parts: self.parts.iter().map(|part| part.part.clone()).collect() }
    }
}

impl SpecReader<'_, '_> {
    /// The parts that could be read, and whether they are complete.
    pub fn version(&mut self, field: &Field<'_>) -> VersionSpec {
        let items = match &field.node.value {
            Value::List(_) => self.reader.list(field).unwrap_or_default(),
            _ => vec![field.clone()],
        };
        let parts: Vec<_> = items.iter().filter_map(|item| self.version_part(item)).collect();
        let complete = !parts.is_empty() && parts.len() == items.len();
        VersionSpec { parts, complete }
    }

    fn version_part(&mut self, field: &Field<'_>) -> Option<VersionPartSpec> {
        let fields = self.reader.fields(field, &keys::VERSION)?;
        let of = fields.require("of", self.reader).and_then(|of| self.places(of, false));
        let kind = fields
            .require("as", self.reader)
            .and_then(|field| self.reader.choice(field, &choices(VersionKind::ALL, VersionKind::as_str)));
        let at_least = fields.get("at_least");
        let raised = at_least.map(|field| self.places(field, false));
        let min_of = |text: &str| text.parse().ok().filter(|min: &i64| *min >= 0);
        let min = fields.get("min").and_then(|field| self.reader.parsed(field, min_of));
        let none = self.none(fields.get("none"));
        let lenient = fields.get("lenient").and_then(|field| self.reader.boolean(field));
        let required = fields.get("required").and_then(|field| self.reader.boolean(field));
        let missing = fields
            .get("missing")
            .and_then(|field| self.reader.choice(field, &choices(MissingPart::ALL, MissingPart::as_str)));
        let unit =
            fields.get("unit").and_then(|field| self.reader.choice(field, &choices(TimeUnit::ALL, TimeUnit::as_str)));
        let part = VersionPart {
            of: of?,
            at_least: match raised {
                Some(places) => Some(places?),
                None => None,
            },
            kind: kind?.value,
            min: min.as_ref().map(|min| min.value),
            unit: unit.as_ref().map_or(TimeUnit::Milliseconds, |unit| unit.value),
            none: none?,
            lenient: lenient.is_some_and(|lenient| lenient.value),
            required: required.as_ref().is_some_and(|required| required.value),
            missing: missing.as_ref().map_or(MissingPart::Lowest, |missing| missing.value),
        };
        Some(VersionPartSpec {
            part,
            place: field.place(),
            at_least: at_least.map(Field::place),
            min,
            required,
            missing,
            unit,
        })
    }

    /// Values that count as missing; `None` if they cannot be read.
    fn none(&mut self, field: Option<&Field<'_>>) -> Option<Vec<crate::dedup::Scalar>> {
        let Some(field) = field else { return Some(Vec::new()) };
        Some(self.scalars(field)?.into_iter().map(|scalar| scalar.value).collect())
    }

    /// The parts of an epoch; `None` if some could not be read.
    pub fn epoch(&mut self, field: &Field<'_>) -> Option<Vec<Placed<EpochPart>>> {
        let items = match &field.node.value {
            Value::List(_) => self.reader.list(field)?,
            _ => vec![field.clone()],
        };
        let parts: Vec<_> = items.iter().filter_map(|item| self.epoch_part(item)).collect();
        (parts.len() == items.len()).then_some(parts)
    }

    fn epoch_part(&mut self, field: &Field<'_>) -> Option<Placed<EpochPart>> {
        let place = field.place();
        if !matches!(field.node.value, Value::Mapping(_)) {
            let path = self.path(field)?;
            return Some(Placed { value: EpochPart { of: vec![path.value], none: Vec::new() }, place });
        }
        if self.is_split_path(field) {
            return None;
        }
        let fields = self.reader.fields(field, &keys::EPOCH_PART)?;
        let none = self.none(fields.get("none"));
        if let Some(constant) = fields.get("const") {
            for key in ["of", "none"] {
                if let Some(other) = fields.get(key) {
                    let message = format!("`{key}` has no effect beside `const`");
                    self.reader.mistake(
                        other.key_place,
                        message,
                        "never looked at",
                        format!("remove `{key}` or `const`"),
                    );
                }
            }
            let constant = self.constant(constant)?;
            return Some(Placed { value: EpochPart { of: vec![constant.value], none: Vec::new() }, place });
        }
        if matches!(&field.node.value, Value::Mapping(entries) if entries.is_empty()) {
            self.reader.wrong(field);
            return None;
        }
        if fields.misspelt("const").is_some() {
            return None;
        }
        let of = fields.require("of", self.reader)?;
        let of = self.places(of, false);
        Some(Placed { value: EpochPart { of: of?, none: none? }, place })
    }
}
