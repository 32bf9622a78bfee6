//! `contents`: what is compared, besides identity and version, to tell a repetition from another event.

use crate::dedup::{Contents, ContentsPart, IdentityPart};
use crate::topology::keys;
use crate::yaml::{Field, Placed, Value};

use super::reader::SpecReader;

impl SpecReader<'_, '_> {
    /// The contents, `None` in it for `none`; `None` around it if they could not be read.
    pub fn contents(&mut self, field: &Field<'_>) -> Option<Placed<Option<Contents>>> {
        let place = field.place();
        if matches!(&field.node.value, Value::Scalar { text, .. } if text == keys::CONTENTS_NONE) {
            return Some(Placed { value: None, place });
        }
        let items = match &field.node.value {
            Value::List(_) => self.reader.list(field)?,
            _ => vec![field.clone()],
        };
        let parts = self.contents_parts(&items)?;
        Some(Placed { value: Some(Contents { parts }), place })
    }

    /// The parts, if all of them could be read.
    fn contents_parts(&mut self, items: &[Field<'_>]) -> Option<Vec<ContentsPart>> {
        let parts: Vec<_> = items.iter().map(|item| self.contents_part(item)).collect();
        let parts: Vec<ContentsPart> = parts.into_iter().collect::<Option<_>>()?;
        for (index, (part, item)) in parts.iter().zip(items).enumerate() {
            if parts[..index].contains(part) {
                let message = "this part stands in `contents` twice".to_owned();
                self.reader.mistake(item.place(), message, "again", "remove one of them");
            }
        }
        Some(parts)
    }

    fn contents_part(&mut self, field: &Field<'_>) -> Option<ContentsPart> {
        if !matches!(field.node.value, Value::Mapping(_)) {
            return Some(ContentsPart::Written(self.path(field)?.value));
        }
        if self.is_split_path(field) {
            return None;
        }
        let fields = self.reader.fields(field, &keys::CONTENTS_PART)?;
        let forms: Vec<_> =
            keys::CONTENTS_PART.one_of.iter().filter_map(|form| Some((*form, fields.get(form)?))).collect();
        let [(form, of)] = forms.as_slice() else {
            self.not_one_form(field, (&fields, &keys::CONTENTS_PART), &forms);
            return None;
        };
        self.needs(&fields, &keys::CONTENTS_PART);
        Some(match *form {
            "fingerprint" => match self.fingerprint(of, fields.get("except"))? {
                IdentityPart::Fingerprint { of, except } => ContentsPart::Fingerprint { of, except },
                part => unreachable!("{part} is no fingerprint"),
            },
            "rows" => ContentsPart::Rows(self.places(of, true)?),
            "flattened" => ContentsPart::Flattened(self.json_path(of)?.value),
            "first_of" => {
                let items = self.reader.list(of)?;
                ContentsPart::FirstOf(self.contents_parts(&items)?)
            }
            form => unreachable!("{form} is not among the table's forms"),
        })
    }
}
