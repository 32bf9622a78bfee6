//! `identity`: its parts.

use crate::dedup::{Names, Part, Path};
use crate::yaml::read::Keys;
use crate::yaml::{Field, Fields, Placed, Shape, Value, units};

use super::paths::SpecReader;

/// What may stand in a part that is a mapping.
pub const PART: Keys<'static> =
    Keys { known: &["const", "content", "fingerprint", "except", "bucket", "first_of", "rows", "named"], later: &[] };
/// Of those, what says which kind of part it is.
pub const HEADS: &[&str] = &["const", "content", "fingerprint", "bucket", "first_of", "rows"];

const IDENTITY: Shape<'static> = Shape { what: "a path, or a list of paths", example: "identity: value.order_id" };

/// What was written of an identity.
#[derive(Debug, Default)]
pub struct IdentitySpec {
    pub parts: Vec<Placed<Part>>,
    /// Whether [`IdentitySpec::parts`] is all that was written.
    pub whole: bool,
}

impl SpecReader<'_, '_> {
    /// The parts that could be read, and whether those are all.
    pub fn identity(&mut self, field: &Field<'_>) -> IdentitySpec {
        let items = match &field.node.value {
            Value::List(_) => self.reader.list(field, IDENTITY).unwrap_or_default(),
            _ => vec![field.clone()],
        };
        let parts: Vec<_> = items.iter().filter_map(|item| self.part(item)).collect();
        let whole = !parts.is_empty() && parts.len() == items.len();
        IdentitySpec { parts, whole }
    }

    fn part(&mut self, field: &Field<'_>) -> Option<Placed<Part>> {
        let place = field.place();
        if !matches!(field.node.value, Value::Mapping(_)) {
            let path = self.path(field, IDENTITY)?;
            return Some(Placed { value: Part::Scalar(path.value), place: path.place });
        }
        if self.is_split_path(field, IDENTITY) {
            return None;
        }
        let keys = self.reader.fields(field, PART, IDENTITY)?;
        let heads: Vec<&Field<'_>> = HEADS.iter().filter_map(|head| keys.get(head)).collect();
        let [head] = heads.as_slice() else {
            self.not_one_head(field, &keys, &heads);
            return None;
        };
        let kind = head.name.rsplit('.').next().unwrap_or_default();
        self.lonely(&keys, "except", "fingerprint", kind);
        self.lonely(&keys, "named", "rows", kind);
        let value = match kind {
            "const" => Part::Scalar(self.constant(head)?.value),
            "content" => Part::Content(self.document(head, "{content: value.after}")?.value),
            "fingerprint" => self.fingerprint(head, keys.get("except"))?,
            "bucket" => {
                let shape = Shape { what: "a duration", example: "{bucket: 1h}" };
                let bucket = self.reader.parsed(head, shape, |text| units::duration_ms(text).filter(|ms| *ms > 0))?;
                Part::Bucket { ms: bucket.value }
            }
            "first_of" => Part::FirstOf(self.alternatives(head)?),
            _ => self.rows(&keys, head)?,
        };
        Some(Placed { value, place })
    }

    /// A mapping that is no part, or two.
    fn not_one_head(&mut self, field: &Field<'_>, keys: &Fields<'_>, heads: &[&Field<'_>]) {
        if let [first, second, ..] = heads {
            let message = format!("one part of `{}` cannot be two things", field.name);
            let help = "write two parts, each in braces of its own: `[{…}, {…}]`";
            let label = format!("it is a `{}` already", first.name.rsplit('.').next().unwrap_or_default());
            self.reader.mistake(second.key_place, message, label, help);
            return;
        }
        self.lonely(keys, "except", "fingerprint", "");
        self.lonely(keys, "named", "rows", "");
        self.nothing_known(field, IDENTITY);
    }

    /// Notes a key that says nothing without another.
    fn lonely(&mut self, keys: &Fields<'_>, key: &str, head: &str, kind: &str) {
        if let Some(field) = keys.get(key).filter(|_| kind != head && keys.misspelt(head).is_none()) {
            let message = format!("`{key}` says nothing without `{head}`");
            self.reader.mistake(field.key_place, message, "never looked at", format!("write `{head}` beside it"));
        }
    }

    /// A path to a key or a value, or into one.
    fn document(&mut self, field: &Field<'_>, example: &str) -> Option<Placed<Path>> {
        self.json_path(field, Shape { what: "a path", example })
    }

    fn fingerprint(&mut self, of: &Field<'_>, except: Option<&Field<'_>>) -> Option<Part> {
        const EXAMPLE: &str = "{fingerprint: value, except: [value.sent_at]}";
        let of = self.document(of, EXAMPLE);
        let Some(except) = except else { return Some(Part::Fingerprint { of: of?.value, except: Vec::new() }) };
        let shape = Shape { what: "a list of paths", example: "except: [value.sent_at]" };
        let items = self.reader.list(except, shape)?;
        let paths: Vec<_> = items.iter().filter_map(|item| self.json_path(item, shape)).collect();
        let whole = paths.len() == items.len();
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
        whole.then(|| Part::Fingerprint { of, except: paths.into_iter().map(|path| path.value).collect() })
    }

    fn alternatives(&mut self, field: &Field<'_>) -> Option<Vec<Vec<Part>>> {
        let shape =
            Shape { what: "a list of alternatives", example: "{first_of: [key.id, [value.shop, value.number]]}" };
        let items = self.reader.list(field, shape)?;
        let read = |this: &mut Self, item: &Field<'_>| {
            let alternative = this.identity(item);
            alternative.whole.then(|| alternative.parts.into_iter().map(|part| part.value).collect::<Vec<_>>())
        };
        let alternatives: Vec<_> = items.iter().filter_map(|item| read(self, item)).collect();
        (alternatives.len() == items.len()).then_some(alternatives)
    }

    fn rows(&mut self, keys: &Fields<'_>, of: &Field<'_>) -> Option<Part> {
        const EXAMPLE: &str = "{rows: value.data, named: value.pkNames}";
        let of = self.places(of, Shape { what: "a path", example: EXAMPLE }, true);
        let named = keys.require("named", EXAMPLE, self.reader)?;
        let named = match &named.node.value {
            Value::List(_) => {
                let shape = Shape { what: "a list of fields' names", example: "named: [id]" };
                let items = self.reader.list(named, shape)?;
                let names: Vec<_> = items.iter().filter_map(|item| self.reader.text(item, shape)).collect();
                for (index, name) in names.iter().enumerate() {
                    if names[..index].iter().any(|other| other.value == name.value) {
                        let message = format!("`{}` stands in `named` twice", name.value);
                        self.reader.mistake(name.place, message, "again", "remove one of them");
                    }
                }
                (names.len() == items.len())
                    .then(|| Names::Given(names.iter().map(|name| name.value.reveal().to_owned()).collect()))
            }
            _ => {
                let shape = Shape {
                    what: "a list of fields' names, or the path of one",
                    example: "named: [id]` or `named: value.pkNames",
                };
                self.json_path(named, shape).map(|path| Names::At(path.value))
            }
        };
        Some(Part::Rows { of: of?, named: named? })
    }
}
