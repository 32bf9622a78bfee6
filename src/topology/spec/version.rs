//! `version` and `epoch`: their parts.

use crate::dedup::{EpochPart, MissingPart, TimeUnit, Version, VersionKind, VersionPart};
use crate::yaml::read::Keys;
use crate::yaml::{Field, Place, Placed, Shape, Value};

use super::choices;
use super::paths::SpecReader;

/// What may stand in a part of a version.
pub const VERSION: Keys<'static> =
    Keys { known: &["of", "at_least", "as", "none", "lenient", "required", "missing", "unit"], later: &[] };
/// What may stand in a part of an epoch that is a mapping.
pub const EPOCH: Keys<'static> = Keys { known: &["of", "none", "const"], later: &[] };

const VERSION_EXAMPLE: &str = "version: {of: value.version, as: integer}";
const EPOCH_SHAPE: Shape<'static> = Shape { what: "a path, or a list of paths", example: "epoch: [value.server_id]" };

/// A part of a version as it was written.
#[derive(Debug)]
pub struct VersionPartSpec {
    pub part: VersionPart,
    /// Where the part stands.
    pub place: Place,
    /// Where `at_least` stands.
    pub at_least: Option<Place>,
    pub required: Option<Placed<bool>>,
    pub missing: Option<Placed<MissingPart>>,
    pub unit: Option<Placed<TimeUnit>>,
}

/// What was written of a version.
#[derive(Debug)]
pub struct VersionSpec {
    pub parts: Vec<VersionPartSpec>,
    /// Whether [`VersionSpec::parts`] is all that was written.
    pub whole: bool,
}

impl VersionSpec {
    /// What was written, as the rules have it.
    pub fn version(&self) -> Version {
        Version { parts: self.parts.iter().map(|part| part.part.clone()).collect() }
    }
}

impl SpecReader<'_, '_> {
    /// The parts that could be read, and whether those are all.
    pub fn version(&mut self, field: &Field<'_>) -> VersionSpec {
        let shape = Shape { what: "a mapping, or a list of them", example: VERSION_EXAMPLE };
        let items = match &field.node.value {
            Value::List(_) => self.reader.list(field, shape).unwrap_or_default(),
            _ => vec![field.clone()],
        };
        let parts: Vec<_> = items.iter().filter_map(|item| self.version_part(item, shape)).collect();
        let whole = !parts.is_empty() && parts.len() == items.len();
        VersionSpec { parts, whole }
    }

    fn version_part(&mut self, field: &Field<'_>, shape: Shape<'_>) -> Option<VersionPartSpec> {
        let keys = self.reader.fields(field, VERSION, shape)?;
        let of = keys.require("of", VERSION_EXAMPLE, self.reader).and_then(|of| {
            self.places(of, Shape { what: "a path, or `{first_of: [...]}`", example: VERSION_EXAMPLE }, false)
        });
        let kind = keys
            .require("as", VERSION_EXAMPLE, self.reader)
            .and_then(|field| self.reader.choice(field, &choices(VersionKind::ALL, VersionKind::as_str), &[]));
        let at_least = keys.get("at_least");
        let raised = at_least.map(|field| {
            let example = "{of: value.lsn, at_least: value.sequence, as: integer}";
            self.places(field, Shape { what: "a path, or `{first_of: [...]}`", example }, false)
        });
        let none = self.none(keys.get("none"));
        let lenient = keys.get("lenient").and_then(|field| self.reader.boolean(field, "lenient: true"));
        let required = keys.get("required").and_then(|field| self.reader.boolean(field, "required: true"));
        let missing = keys
            .get("missing")
            .and_then(|field| self.reader.choice(field, &choices(MissingPart::ALL, MissingPart::as_str), &[]));
        let unit = keys
            .get("unit")
            .and_then(|field| self.reader.choice(field, &choices(TimeUnit::ALL, TimeUnit::as_str), &[]));
        let part = VersionPart {
            of: of?,
            at_least: match raised {
                Some(places) => Some(places?),
                None => None,
            },
            kind: kind?.value,
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
            required,
            missing,
            unit,
        })
    }

    /// Values that count as missing; `None` where they cannot be read.
    fn none(&mut self, field: Option<&Field<'_>>) -> Option<Vec<crate::dedup::Scalar>> {
        let Some(field) = field else { return Some(Vec::new()) };
        let shape = Shape { what: "a list of values that count as missing", example: "none: [0]" };
        Some(self.scalars(field, shape)?.into_iter().map(|scalar| scalar.value).collect())
    }

    /// The parts of an epoch; `None` where not all could be read.
    pub fn epoch(&mut self, field: &Field<'_>) -> Option<Vec<Placed<EpochPart>>> {
        let items = match &field.node.value {
            Value::List(_) => self.reader.list(field, EPOCH_SHAPE)?,
            _ => vec![field.clone()],
        };
        let parts: Vec<_> = items.iter().filter_map(|item| self.epoch_part(item)).collect();
        (parts.len() == items.len()).then_some(parts)
    }

    fn epoch_part(&mut self, field: &Field<'_>) -> Option<Placed<EpochPart>> {
        let place = field.place();
        if !matches!(field.node.value, Value::Mapping(_)) {
            let path = self.path(field, EPOCH_SHAPE)?;
            return Some(Placed { value: EpochPart { of: vec![path.value], none: Vec::new() }, place });
        }
        if self.is_split_path(field, EPOCH_SHAPE) {
            return None;
        }
        let keys = self.reader.fields(field, EPOCH, EPOCH_SHAPE)?;
        let none = self.none(keys.get("none"));
        if let Some(constant) = keys.get("const") {
            for key in ["of", "none"] {
                if let Some(other) = keys.get(key) {
                    let message = format!("`{key}` says nothing beside `const`");
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
            self.reader.wrong(field, EPOCH_SHAPE);
            return None;
        }
        if keys.misspelt("const").is_some() {
            return None;
        }
        let example = "epoch: [{of: value.server_id, none: [0]}]";
        let of = keys.require("of", example, self.reader)?;
        let of = self.places(of, Shape { what: "a path, or `{first_of: [...]}`", example }, false);
        Some(Placed { value: EpochPart { of: of?, none: none? }, place })
    }
}
