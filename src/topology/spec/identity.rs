//! `identity`: its parts.

use crate::dedup::{IdentityPart, Names};
use crate::topology::keys;
use crate::yaml::keys::Mapping;
use crate::yaml::{Field, Fields, Placed, Value};

use super::reader::SpecReader;

/// An identity as written.
#[derive(Debug, Default)]
pub struct IdentitySpec {
    pub parts: Vec<Placed<IdentityPart>>,
    /// Whether [`IdentitySpec::parts`] is complete.
    pub complete: bool,
}

impl IdentitySpec {
    /// Whether a record may have several rows, as far as the parts could be read.
    pub fn has_rows(&self) -> bool {
        fn has_rows(part: &IdentityPart) -> bool {
            match part {
                IdentityPart::Rows { .. } => true,
                IdentityPart::FirstOf(alternatives) => alternatives.iter().flatten().any(has_rows),
                _ => false,
            }
        }
        !self.complete || self.parts.iter().any(|part| has_rows(&part.value))
    }
}

impl SpecReader<'_, '_> {
    /// The parts that could be read, and whether they are complete.
    pub fn identity(&mut self, field: &Field<'_>) -> IdentitySpec {
        let items = match &field.node.value {
            Value::List(_) => self.reader.list(field).unwrap_or_default(),
            _ => vec![field.clone()],
        };
        let parts: Vec<_> = items.iter().filter_map(|item| self.part(item)).collect();
        let complete = !parts.is_empty() && parts.len() == items.len();
        IdentitySpec { parts, complete }
    }

    fn part(&mut self, field: &Field<'_>) -> Option<Placed<IdentityPart>> {
        let place = field.place();
        if !matches!(field.node.value, Value::Mapping(_)) {
            let path = self.path(field)?;
            return Some(Placed { value: IdentityPart::Scalar(path.value), place: path.place });
        }
        if self.is_split_path(field) {
            return None;
        }
        let fields = self.reader.fields(field, &keys::PART)?;
        let forms: Vec<_> = keys::PART.one_of.iter().filter_map(|form| Some((*form, fields.get(form)?))).collect();
        let [(form, of)] = forms.as_slice() else {
            self.not_one_form(field, (&fields, &keys::PART), &forms);
            return None;
        };
        self.needs(&fields, &keys::PART);
        let value = match *form {
            "const" => IdentityPart::Scalar(self.constant(of)?.value),
            "content" => IdentityPart::Content(self.json_path(of)?.value),
            "fingerprint" => self.fingerprint(of, fields.get("except"))?,
            "bucket" => IdentityPart::Bucket { ms: self.reader.duration_ms(of)?.value },
            "first_of" => IdentityPart::FirstOf(self.alternatives(of)?),
            "rows" => self.rows(&fields, of)?,
            form => unreachable!("{form} is not among the table's forms"),
        };
        Some(Placed { value, place })
    }

    /// Reports a mapping that is not a part, or is two.
    pub fn not_one_form(
        &mut self,
        field: &Field<'_>,
        (fields, mapping): (&Fields<'_>, &Mapping),
        forms: &[(&str, &Field<'_>)],
    ) {
        if let [(first, _), (_, second), ..] = forms {
            let message = format!("one part of `{}` cannot be two things", field.name);
            let help = "write two parts, each in braces of its own: `[{…}, {…}]`";
            self.reader.mistake(second.key_place, message, format!("it is a `{first}` already"), help);
            return;
        }
        self.needs(fields, mapping);
        self.nothing_known(field);
    }

    /// Reports keys that say nothing without another; keys that a part requires are checked where it is read.
    pub fn needs(&mut self, fields: &Fields<'_>, mapping: &Mapping) {
        for (key, other) in mapping.needs.iter().filter(|(key, _)| !mapping.one_of.contains(key)) {
            let is_there = fields.get(other).is_some() || fields.misspelt(other).is_some();
            if let Some(field) = fields.get(key).filter(|_| !is_there) {
                let message = format!("`{key}` has no effect without `{other}`");
                self.reader.mistake(field.key_place, message, "never looked at", format!("write `{other}` beside it"));
            }
        }
    }

    pub fn fingerprint(&mut self, of: &Field<'_>, except: Option<&Field<'_>>) -> Option<IdentityPart> {
        let of = self.json_path(of);
        let Some(except) = except else { return Some(IdentityPart::Fingerprint { of: of?.value, except: Vec::new() }) };
        let items = self.reader.list(except)?;
        let paths: Vec<_> = items.iter().filter_map(|item| self.json_path(item)).collect();
        let complete = paths.len() == items.len();
        let of = of?.value;
        for (index, path) in paths.iter().enumerate() {
            let inside = path.value.source == of.source
                && path.value.steps.len() > of.steps.len()
                && path.value.steps.starts_with(&of.steps);
            if !inside {
                let message = format!("`except` names `{}`, which is no part of `{of}`", path.value);
                let help = format!("write what stands inside of it, e.g. `except: [{of}.sent_at]`");
                self.reader.mistake(path.place, message, "never looked at", help);
            } else if paths[..index].iter().any(|other| other.value == path.value) {
                let message = format!("`{}` stands in `except` twice", path.value);
                self.reader.mistake(path.place, message, "again", "remove one of them");
            }
        }
        complete.then(|| IdentityPart::Fingerprint { of, except: paths.into_iter().map(|path| path.value).collect() })
    }

    fn alternatives(&mut self, field: &Field<'_>) -> Option<Vec<Vec<IdentityPart>>> {
        let items = self.reader.list(field)?;
        let read = |this: &mut Self, item: &Field<'_>| {
            let alternative = this.identity(item);
            alternative.complete.then(|| alternative.parts.into_iter().map(|part| part.value).collect::<Vec<_>>())
        };
        let alternatives: Vec<_> = items.iter().filter_map(|item| read(self, item)).collect();
        (alternatives.len() == items.len()).then_some(alternatives)
    }

    fn rows(&mut self, fields: &Fields<'_>, of: &Field<'_>) -> Option<IdentityPart> {
        let of = self.places(of, true);
        let named = fields.require("named", self.reader)?;
        let named = match &named.node.value {
            Value::List(_) => {
                let items = self.reader.list(named)?;
                let read = |item: &Field<'_>| self.reader.text(item);
                let names: Vec<_> = items.iter().filter_map(read).collect();
                for (index, name) in names.iter().enumerate() {
                    if names[..index].iter().any(|other| other.value == name.value) {
                        let message = format!("`{}` stands in `named` twice", name.value);
                        self.reader.mistake(name.place, message, "again", "remove one of them");
                    }
                }
                (names.len() == items.len())
                    .then(|| Names::Given(names.iter().map(|name| name.value.reveal().to_owned()).collect()))
            }
            _ => self.json_path(named).map(|path| Names::At(path.value)),
        };
        Some(IdentityPart::Rows { of: of?, named: named? })
    }
}
