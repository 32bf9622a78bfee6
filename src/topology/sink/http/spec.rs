//! `sink.http`: the request that a record makes, and what becomes of it.

use crate::effect::call::{OverrideClass, StatusCodes};
use crate::topology::keys;
use crate::topology::sink::http::template::Template;
use crate::topology::sink::http::{Body, Json, Method};
use crate::topology::sink::terms::spec::{HonouredSpec, TermsSpec};
use crate::topology::spec::reader::{PathSpec, SpecReader, choices};
use crate::yaml::tree::Entry;
use crate::yaml::{Field, Fields, Node, Place, Placed, Text, Value};

/// `sink.http` as written; `None` means left out, or already reported.
#[derive(Debug)]
pub struct HttpSpec {
    pub url: Option<Placed<Template>>,
    pub hosts: Vec<Placed<Text>>,
    /// Where `hosts` is, right or wrong.
    pub hosts_place: Option<Place>,
    pub method: Option<Placed<Method>>,
    pub headers: Vec<(Placed<String>, Placed<Template>)>,
    pub body: Option<Placed<Body>>,
    /// The key's header.
    pub key_header: Option<Placed<Text>>,
    pub answers: Vec<(Placed<StatusCodes>, OverrideClass)>,
    pub terms: TermsSpec,
}

impl SpecReader<'_, '_> {
    /// A provider that is called.
    pub fn http(&mut self, fields: &Fields<'_>, place: Place) -> HttpSpec {
        let at = |key: &str| fields.get(key).map(|field| field.key_place).or(fields.misspelt(key));
        let key = fields.get("idempotency_key").and_then(|field| self.reader.fields(field, &keys::IDEMPOTENCY_KEY));
        let key_header = key.as_ref().and_then(|key| key.require("header", self.reader));
        let key_header = key_header.and_then(|field| self.reader.text(field));
        let honoured = HonouredSpec {
            place: at("idempotency_key"),
            for_ms: key.as_ref().and_then(|key| {
                let field = key.require("honoured_for", self.reader)?;
                self.reader.duration_ms(field)
            }),
            margin_ms: key.as_ref().and_then(|key| {
                let field = key.get("margin")?;
                self.reader.duration_ms(field)
            }),
        };
        HttpSpec {
            url: fields.require("url", self.reader).and_then(|field| self.template(field)),
            hosts_place: at("hosts"),
            hosts: fields.get("hosts").map(|field| self.texts(field)).unwrap_or_default(),
            method: fields
                .get("method")
                .and_then(|field| self.reader.choice(field, &choices(Method::ALL, Method::as_str))),
            headers: fields.get("headers").map(|field| self.header_templates(field)).unwrap_or_default(),
            body: fields.get("body").and_then(|field| self.request_body(field)),
            key_header,
            answers: fields.get("answers").map(|field| self.named_answers(field)).unwrap_or_default(),
            terms: self.terms(("sink.http", place), fields, honoured),
        }
    }

    fn texts(&mut self, field: &Field<'_>) -> Vec<Placed<Text>> {
        let items = self.reader.list(field).unwrap_or_default();
        items.iter().filter_map(|item| self.reader.text(item)).collect()
    }

    /// A text with parts of the record in it.
    fn template(&mut self, field: &Field<'_>) -> Option<Placed<Template>> {
        let place = field.place();
        let Value::Scalar { text, .. } = &field.node.value else {
            self.reader.wrong(field);
            return None;
        };
        if text.is_empty() || field.node.is_null() {
            // It says what is wrong.
            return self.reader.text(field).and(None);
        }
        let template = match Template::parse(text, self.reader.environment) {
            Ok(template) => template,
            Err(error) => {
                let place = self.within(place, text, error.at);
                let message = format!("`{}`: {}", field.name, error.problem);
                self.reader.mistake(place, message, "here", error.problem.help());
                return None;
            }
        };
        for path in template.paths() {
            self.paths.push(PathSpec { path: Placed { value: path.clone(), place }, json: false });
        }
        Some(Placed { value: template, place })
    }

    /// The place of a part of a text, where it is known to the byte; otherwise that of the text.
    fn within(&self, place: Place, text: &str, part: std::ops::Range<usize>) -> Place {
        let source = self.reader.file.text().get(place.start..place.end()).unwrap_or_default();
        let inner = ['\'', '"'].into_iter().find_map(|quote| source.strip_prefix(quote)?.strip_suffix(quote));
        let before = match inner {
            Some(inner) if inner == text => 1,
            _ if source == text => 0,
            _ => return place,
        };
        // An empty part has no length to show.
        Place::new(place.start + before + part.start, place.start + before + part.end.max(part.start + 1))
    }

    fn header_templates(&mut self, field: &Field<'_>) -> Vec<(Placed<String>, Placed<Template>)> {
        let entries = self.mapping_entries(field);
        let header = |entry: &Entry| {
            let name = Placed { value: entry.key.clone(), place: entry.key_place };
            let inner = Field { name: format!("{}.{}", field.name, entry.key), ..field.item(&entry.node) };
            Some((name, self.template(&Field { key_place: entry.key_place, ..inner.described("a text") })?))
        };
        entries.iter().filter_map(header).collect()
    }

    /// A mapping's keys and values, whatever they are.
    fn mapping_entries<'n>(&mut self, field: &Field<'n>) -> &'n [Entry] {
        match &field.node.value {
            Value::Mapping(entries) if !entries.is_empty() => entries,
            _ => {
                self.reader.wrong(field);
                &[]
            }
        }
    }

    fn request_body(&mut self, field: &Field<'_>) -> Option<Placed<Body>> {
        let place = field.place();
        if let Value::Mapping(_) = &field.node.value {
            let fields = self.reader.fields(field, &keys::BODY)?;
            let json = fields.require("json", self.reader)?;
            let json = self.json_template(json, json.node)?;
            return Some(Placed { value: Body::Json(json), place });
        }
        let words = [(keys::BODY_VALUE, false), (keys::BODY_NONE, true)];
        let is_none = self.reader.choice(field, &words)?.value;
        Some(Placed { value: if is_none { Body::None } else { Body::Value }, place })
    }

    /// JSON that is made of parts of the record.
    fn json_template(&mut self, field: &Field<'_>, node: &Node) -> Option<Json> {
        let item = Field { name: field.name.clone(), ..field.item(node) };
        match &node.value {
            Value::List(items) => {
                let all: Vec<_> = items.iter().filter_map(|item| self.json_template(field, item)).collect();
                (all.len() == items.len()).then_some(Json::List(all))
            }
            Value::Mapping(entries) if !is_one_of_several(entries) => {
                let mut all: Vec<(String, Json)> = Vec::new();
                for (number, entry) in entries.iter().enumerate() {
                    if entries[..number].iter().any(|known| known.key == entry.key) {
                        let message = format!("`{}` has `{}` twice", field.name, entry.key);
                        self.reader.mistake(entry.key_place, message, "again", "remove one of them");
                    }
                    let below = Field { name: format!("{}.{}", field.name, entry.key), ..item.clone() };
                    let below = Field { key_place: entry.key_place, ..below };
                    all.extend(self.json_template(&below, &entry.node).map(|json| (entry.key.clone(), json)));
                }
                (all.len() == entries.len()).then_some(Json::Object(all))
            }
            _ => self.table_part(&item.described("a path, `{first_of: [...]}` or `{const: x}`")).map(Json::At),
        }
    }

    fn named_answers(&mut self, field: &Field<'_>) -> Vec<(Placed<StatusCodes>, OverrideClass)> {
        let entries = self.mapping_entries(field);
        let named = |entry: &Entry| {
            let place = entry.key_place;
            let codes = StatusCodes::parse(&entry.key);
            if codes.is_none() {
                let message = format!("`{}` names codes, such as 404, or a hundred of them, such as 5xx", field.name);
                let help = "write e.g. `answers: {404: done, 5xx: again}`";
                self.reader.mistake(place, message, format!("`{}` is neither", entry.key), help);
            }
            let inner = Field { name: format!("{}.{}", field.name, entry.key), ..field.item(&entry.node) };
            let word = self.reader.choice(&inner, &choices(OverrideClass::ALL, OverrideClass::as_str))?;
            Some((Placed { value: codes?, place }, word.value))
        };
        entries.iter().filter_map(named).collect()
    }
}

/// Whether a mapping stands for a part of the record rather than for an object.
fn is_one_of_several(entries: &[Entry]) -> bool {
    matches!(entries, [only] if matches!(only.key.as_str(), "const" | "first_of"))
}
