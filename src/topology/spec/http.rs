//! `sink.http`: the request that a record makes, and what becomes of it.

use crate::dedup::Action;
use crate::effect::call::{Codes, Jitter, Named, OnInDoubt, OnUnavailable, Reserve};
use crate::topology::keys;
use crate::topology::sink::REJECTED;
use crate::topology::sink::http::{Body, IN_FLIGHT_MAX, Json, Method, RESULT_BYTES_MAX, Rate};
use crate::topology::sink::template::Template;
use crate::yaml::tree::Entry;
use crate::yaml::{Field, Fields, Node, Place, Placed, Text, Value, units};

use super::choices;
use super::paths::{PathSpec, SpecReader};

/// `sink.http` as written; `None` means left out, or already reported.
#[derive(Debug)]
pub struct HttpSpec {
    pub place: Place,
    pub url: Option<Placed<Template>>,
    pub hosts: Vec<Placed<Text>>,
    /// Where `hosts` is, right or wrong.
    pub hosts_place: Option<Place>,
    pub method: Option<Placed<Method>>,
    pub headers: Vec<(Placed<String>, Placed<Template>)>,
    pub body: Option<Placed<Body>>,
    pub key: Option<KeySpec>,
    /// Where `idempotency_key` is, right or wrong.
    pub key_place: Option<Place>,
    pub reserve: Option<Placed<Reserve>>,
    pub timeout_ms: Option<Placed<i64>>,
    pub in_flight: Option<usize>,
    pub rate: Option<Rate>,
    pub retry: RetrySpec,
    pub answers: Vec<(Placed<Codes>, Named)>,
    pub on_rejected: Option<Placed<Action>>,
    pub on_conflict: Option<Placed<Action>>,
    pub on_unavailable: Option<Placed<OnUnavailable>>,
    pub on_in_doubt: Option<Placed<OnInDoubt>>,
    /// Whether there is an `on_in_doubt`, right or wrong.
    pub has_in_doubt: bool,
    pub result: Option<Placed<Text>>,
    /// Whether there is a `result`, right or wrong.
    pub has_result: bool,
    pub result_bytes_max: Option<usize>,
}

/// `idempotency_key` as written.
#[derive(Debug)]
pub struct KeySpec {
    pub header: Option<Placed<Text>>,
    pub honoured_for_ms: Option<Placed<i64>>,
    pub margin_ms: Option<i64>,
}

/// `retry` as written.
#[derive(Debug, Default)]
pub struct RetrySpec {
    pub first_ms: Option<Placed<i64>>,
    pub factor: Option<u32>,
    pub max_ms: Option<Placed<i64>>,
    pub jitter: Option<Jitter>,
    pub attempts: Option<u32>,
}

const RESERVES: &[(&str, Reserve)] = &[("auto", Reserve::Auto), ("always", Reserve::Always)];
const JITTERS: &[(&str, Jitter)] = &[("full", Jitter::Full), ("none", Jitter::None)];
const IN_DOUBT: &[(&str, OnInDoubt)] =
    &[("dead_letter", OnInDoubt::DeadLetter), ("retry", OnInDoubt::Retry), ("fail", OnInDoubt::Fail)];
const UNAVAILABLE: &[(&str, OnUnavailable)] =
    &[("hold", OnUnavailable::Hold), ("dead_letter", OnUnavailable::DeadLetter), ("fail", OnUnavailable::Fail)];

impl SpecReader<'_, '_> {
    /// A provider that is called.
    pub fn http(&mut self, fields: &Fields<'_>, place: Place) -> HttpSpec {
        let at = |key: &str| fields.get(key).map(|field| field.key_place).or(fields.misspelt(key));
        let action = |this: &mut Self, key: &str| {
            let field = fields.get(key)?;
            this.reader.choice(field, &choices(REJECTED, Action::as_str))
        };
        let results = fields.get("result").and_then(|field| self.reader.fields(field, &keys::RESULTS));
        let size = |text: &str| {
            let bytes = usize::try_from(units::size_bytes(text)?).ok()?;
            (1..=RESULT_BYTES_MAX).contains(&bytes).then_some(bytes)
        };
        let in_flight = |text: &str| text.parse().ok().filter(|number| (1..=IN_FLIGHT_MAX).contains(number));
        HttpSpec {
            place,
            url: fields.require("url", self.reader).and_then(|field| self.template(field)),
            hosts_place: at("hosts"),
            hosts: fields.get("hosts").map(|field| self.texts(field)).unwrap_or_default(),
            method: fields
                .get("method")
                .and_then(|field| self.reader.choice(field, &choices(Method::ALL, Method::as_str))),
            headers: fields.get("headers").map(|field| self.header_templates(field)).unwrap_or_default(),
            body: fields.get("body").and_then(|field| self.request_body(field)),
            key_place: at("idempotency_key"),
            key: fields.get("idempotency_key").and_then(|field| self.idempotency_key(field)),
            reserve: fields.get("reserve").and_then(|field| self.reader.choice(field, RESERVES)),
            timeout_ms: fields.get("timeout").and_then(|field| self.reader.duration_ms(field)),
            in_flight: self.value_of(fields, "in_flight", in_flight),
            rate: self.value_of(fields, "rate", Rate::parse),
            retry: fields.get("retry").map(|field| self.retry(field)).unwrap_or_default(),
            answers: fields.get("answers").map(|field| self.named_answers(field)).unwrap_or_default(),
            on_rejected: action(self, "on_rejected"),
            on_conflict: action(self, "on_conflict"),
            on_unavailable: fields.get("on_unavailable").and_then(|field| self.reader.choice(field, UNAVAILABLE)),
            on_in_doubt: fields.get("on_in_doubt").and_then(|field| self.reader.choice(field, IN_DOUBT)),
            has_in_doubt: at("on_in_doubt").is_some(),
            has_result: at("result").is_some(),
            result: results.as_ref().and_then(|fields| {
                let topic = fields.require("topic", self.reader)?;
                self.reader.text(topic)
            }),
            result_bytes_max: results.as_ref().and_then(|fields| self.value_of(fields, "max", size)),
        }
    }

    fn value_of<T>(&mut self, fields: &Fields<'_>, key: &str, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        let field = fields.get(key)?;
        self.reader.parsed(field, parse).map(|placed| placed.value)
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

    fn idempotency_key(&mut self, field: &Field<'_>) -> Option<KeySpec> {
        let fields = self.reader.fields(field, &keys::IDEMPOTENCY_KEY)?;
        let duration = |this: &mut Self, key: &str| {
            let field = fields.get(key)?;
            this.reader.duration_ms(field)
        };
        Some(KeySpec {
            header: fields.require("header", self.reader).and_then(|field| self.reader.text(field)),
            honoured_for_ms: fields
                .require("honoured_for", self.reader)
                .and_then(|field| self.reader.duration_ms(field)),
            margin_ms: duration(self, "margin").map(|margin| margin.value),
        })
    }

    fn retry(&mut self, field: &Field<'_>) -> RetrySpec {
        let Some(fields) = self.reader.fields(field, &keys::RETRY) else { return RetrySpec::default() };
        let up_to = |most: u32| move |text: &str| text.parse().ok().filter(|number| (1..=most).contains(number));
        RetrySpec {
            first_ms: fields.get("first").and_then(|field| self.reader.duration_ms(field)),
            factor: self.value_of(&fields, "factor", up_to(keys::FACTOR_MAX)),
            max_ms: fields.get("max").and_then(|field| self.reader.duration_ms(field)),
            jitter: fields.get("jitter").and_then(|field| self.reader.choice(field, JITTERS)).map(|word| word.value),
            attempts: self.value_of(&fields, "attempts", up_to(keys::ATTEMPTS_MAX)),
        }
    }

    fn named_answers(&mut self, field: &Field<'_>) -> Vec<(Placed<Codes>, Named)> {
        let entries = self.mapping_entries(field);
        let named = |entry: &Entry| {
            let place = entry.key_place;
            let codes = Codes::parse(&entry.key);
            if codes.is_none() {
                let message = format!("`{}` names codes, such as 404, or a hundred of them, such as 5xx", field.name);
                let help = "write e.g. `answers: {404: done, 5xx: again}`";
                self.reader.mistake(place, message, format!("`{}` is neither", entry.key), help);
            }
            let inner = Field { name: format!("{}.{}", field.name, entry.key), ..field.item(&entry.node) };
            let word = self.reader.choice(&inner, &choices(Named::ALL, Named::as_str))?;
            Some((Placed { value: codes?, place }, word.value))
        };
        entries.iter().filter_map(named).collect()
    }
}

/// Whether a mapping stands for a part of the record rather than for an object.
fn is_one_of_several(entries: &[Entry]) -> bool {
    matches!(entries, [only] if matches!(only.key.as_str(), "const" | "first_of"))
}
