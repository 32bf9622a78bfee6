//! Documents that are read by the schemas that they name.
//!
//! A plan is compiled once for each schema: it says which parts of a record to read. With a JSON Schema, only the
//! beginning of the document has to be found.

use std::borrow::Cow;
use std::hash::{Hash, Hasher};
use std::ops::Range;

use xxhash_rust::xxh3::Xxh3Default;

use super::extracted::Extracted;
use super::json::{Malformed, Scanner};
use super::logical::Shape;
use super::steps::{Found, PathIndex, Steps};
use super::vocabulary::Format;
use super::{avro, protobuf};
use crate::record::Headers;
use crate::schemas::framing::{self, Indexes};
use crate::schemas::{
    Framed, Id, Language, LookUp, Message, Schemas as _, Sources, Undecodable, Unframed, Written, avro as avro_schema,
    protobuf as protobuf_schema,
};

/// The maximum number of plans for a topic's values, or keys: each version of each table has its own.
const PLANS_MAX: usize = 1024;

/// The maximum number of parsed Protobuf schemas that are kept: records of one schema may name any of its messages, each of
/// which has a plan of its own.
const PARSED_MAX: usize = 8;

/// Why a document cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unread {
    /// It is not JSON.
    Json(Malformed),
    /// It names no schema, or in an unknown form.
    Unframed(Unframed),
    /// It names a schema that is not known yet.
    Pending(Id),
    /// Its schema does not exist, or cannot be used, with a sentence that names the schema.
    NoSchema(String),
    /// It does not match its schema.
    Undecodable(Id, Undecodable),
}

/// How documents in JSON are read.
#[derive(Clone, Copy, Debug)]
pub(super) struct JsonLimits {
    /// The maximum depth of documents.
    pub depth_max: usize,
    /// Whether JSON that names no schema is read through the wrappings of Kafka Connect and Avro.
    pub is_wrapped: bool,
}

/// Reads the wanted places of one document after the other, by the schemas that they name.
#[derive(Debug)]
pub(super) struct BySchema {
    format: Format,
    is_key: bool,
    sources: Sources,
    steps: Steps,
    /// The node of each wanted place.
    places: Vec<usize>,
    depth_max: usize,
    plans: Plans,
    parsed: Parsed,
    extracted: Extracted,
    /// Reads JSON after an id.
    scanner: Scanner,
    /// Reads JSON without an id.
    without_id: Scanner,
    last: Last,
    /// The language of the last document's schema, if the document names one.
    language: Option<Language>,
}

/// The form of the last document.
#[derive(Debug)]
enum Last {
    /// JSON without an id.
    WithoutId,
    /// JSON after an id, in this range of the bytes.
    Json(Range<usize>),
    /// JSON that was compressed, now in [`BySchema::extracted`].
    InflatedJson,
    /// Read by the plan with this number.
    Extracted(usize),
}

impl BySchema {
    /// A reader of keys or values of this format. [`PathIndex`] i is the place of path i.
    pub fn new(format: Format, is_key: bool, paths: &[&[String]], limits: JsonLimits, sources: Sources) -> Self {
        let JsonLimits { depth_max, is_wrapped } = limits;
        let (steps, places) = Steps::new(paths);
        Self {
            format,
            is_key,
            sources,
            steps,
            places,
            depth_max,
            plans: Plans::default(),
            parsed: Parsed::default(),
            extracted: Extracted::default(),
            scanner: Scanner::new(paths, depth_max, false),
            without_id: Scanner::new(paths, depth_max, is_wrapped),
            last: Last::Json(0..0),
            language: None,
        }
    }

    /// Reads a document: checks it, and notes the values in the wanted places. After an error they are not valid.
    pub fn read(&mut self, bytes: &[u8], headers: Headers<'_>) -> Result<(), Unread> {
        self.language = None;
        let framed = match framing::read(bytes, headers, self.is_key, self.sources.id_bytes) {
            Ok(framed) => framed,
            Err(Unframed::NoId { .. }) if self.format == Format::Auto => {
                self.without_id.scan(bytes).map_err(Unread::Json)?;
                self.last = Last::WithoutId;
                return Ok(());
            }
            Err(unframed) => return Err(Unread::Unframed(unframed)),
        };
        let number = self.plan_of(&framed)?;
        let plan = match &self.plans.known[number].plan {
            Err(unusable) => return Err(Unread::NoSchema(unusable.clone())),
            Ok(plan) => plan,
        };
        let undecodable = |error| Unread::Undecodable(framed.id, error);
        let language = plan.language();
        self.language = Some(language);
        let (_, record) = framed.record(language).map_err(Unread::Unframed)?;
        match plan {
            Plan::Avro(_) if framed.is_json => return self.read_framed_json(bytes, &framed),
            Plan::Json => return self.read_framed_json(bytes, &framed),
            Plan::Avro(plan) => plan.read(record, &mut self.extracted).map_err(undecodable)?,
            Plan::Protobuf(plan) => plan.read(record, &mut self.extracted).map_err(undecodable)?,
        }
        self.last = Last::Extracted(number);
        Ok(())
    }

    /// Reads the JSON that begins at `from`.
    fn read_json(&mut self, bytes: &[u8], from: usize) -> Result<(), Unread> {
        let moved = |error: Malformed| Unread::Json(Malformed { at: error.at + from, ..error });
        self.scanner.scan(&bytes[from..]).map_err(moved)?;
        self.last = Last::Json(from..bytes.len());
        Ok(())
    }

    /// Reads JSON after an id.
    fn read_framed_json(&mut self, bytes: &[u8], framed: &Framed<'_>) -> Result<(), Unread> {
        match &framed.payload {
            Cow::Borrowed(json) => self.read_json(bytes, bytes.len() - json.len()),
            Cow::Owned(inflated) => {
                self.scanner.scan(inflated).map_err(Unread::Json)?;
                self.extracted.clear(0);
                self.extracted.out().extend_from_slice(inflated);
                self.last = Last::InflatedJson;
                Ok(())
            }
        }
    }

    /// The value at a place of the last document.
    #[inline]
    pub fn found(&self, place: PathIndex) -> Found {
        match self.last {
            Last::WithoutId => self.without_id.found(place),
            Last::Json(_) | Last::InflatedJson => self.scanner.found(place),
            Last::Extracted(_) => self.extracted.found(self.places[place.0]),
        }
    }

    /// The JSON that the values of the last document are in. `bytes` are the document's.
    #[inline]
    pub fn json<'a>(&'a self, bytes: &'a [u8]) -> &'a [u8] {
        match &self.last {
            Last::WithoutId => bytes,
            Last::Json(range) => bytes.get(range.clone()).unwrap_or_default(),
            Last::InflatedJson | Last::Extracted(_) => self.extracted.json(),
        }
    }

    /// The scanner of the last document, if that was JSON without an id.
    pub fn without_id(&self) -> Option<&Scanner> {
        matches!(self.last, Last::WithoutId).then_some(&self.without_id)
    }

    /// The language of the schema that the last document names; `None` if it names none.
    pub fn language(&self) -> Option<Language> {
        self.language
    }

    /// The types of the last document's values, from its schema.
    pub fn shape(&self) -> &Shape {
        match self.last {
            Last::WithoutId | Last::Json(_) | Last::InflatedJson => &Shape::Plain,
            Last::Extracted(number) => match &self.plans.known[number].plan {
                Ok(Plan::Avro(plan)) => plan.shape(),
                Ok(Plan::Protobuf(plan)) => plan.shape(),
                Ok(Plan::Json) | Err(_) => &Shape::Plain,
            },
        }
    }

    /// The number of the plan for this document.
    fn plan_of(&mut self, framed: &Framed<'_>) -> Result<usize, Unread> {
        // Only the bytes of a Protobuf record name a message.
        if let Some(number) = self.plans.find(framed)? {
            return Ok(number);
        }
        let written = match self.sources.look_up(&framed.id) {
            LookUp::Known(written) => written,
            LookUp::Pending => return Err(Unread::Pending(framed.id)),
            LookUp::Absent(sentence) => return Err(Unread::NoSchema(sentence)),
        };
        if let Some(wanted) = self.format.language().filter(|wanted| *wanted != written.language) {
            let (id, is) = (framed.id, written.language.as_str());
            return Err(Unread::NoSchema(format!("{id} is one of {is}, not of {}", wanted.as_str())));
        }
        let (message, _) = framed.record(written.language).map_err(Unread::Unframed)?;
        let plan = match written.language {
            Language::Avro => Plan::avro(&written, &self.steps, self.depth_max),
            Language::Protobuf => {
                self.parsed.of(framed.id, &written).as_ref().map_err(Clone::clone).and_then(|schema| {
                    Plan::protobuf(schema, message.unwrap_or(Message::First), &self.steps, self.depth_max)
                })
            }
            Language::JsonSchema => Ok(Plan::Json),
        };
        let plan = plan.map_err(|why| format!("{} cannot be used: {why}", framed.id));
        Ok(self.plans.add(framed.id, message, plan))
    }
}

/// How to read the records of one schema.
#[derive(Debug)]
enum Plan {
    Avro(avro::Plan),
    Protobuf(protobuf::Plan),
    Json,
}

impl Plan {
    fn avro(written: &Written, steps: &Steps, depth_max: usize) -> Result<Self, String> {
        let references: Vec<&str> = written.references.iter().map(|(_, text)| text.as_str()).collect();
        let schema = avro_schema::Schema::parse(&written.text, &references).map_err(|error| error.to_string())?;
        Ok(Self::Avro(avro::Plan::new(&schema, steps, depth_max)))
    }

    fn protobuf(
        schema: &protobuf_schema::Schema,
        message: Message<'_>,
        steps: &Steps,
        depth_max: usize,
    ) -> Result<Self, String> {
        let root = match message {
            Message::Indexes(indexes) => schema.message(indexes.as_slice()),
            Message::Name(name) => schema.named(name),
            Message::Sorted(place) => usize::try_from(place).ok().and_then(|place| schema.sorted(place)),
            Message::First => schema.message(&[0]),
        };
        let root = root.ok_or("it lacks the message that the record names")?;
        Ok(Self::Protobuf(protobuf::Plan::new(schema, root, steps, depth_max)))
    }

    fn language(&self) -> Language {
        match self {
            Self::Avro(_) => Language::Avro,
            Self::Protobuf(_) => Language::Protobuf,
            Self::Json => Language::JsonSchema,
        }
    }
}

/// The Protobuf schemas that plans were made of most recently, the last one first; or why they cannot be used.
#[derive(Debug, Default)]
struct Parsed(Vec<(Id, Result<protobuf_schema::Schema, String>)>);

impl Parsed {
    /// The schema with this id, parsed.
    fn of(&mut self, id: Id, written: &Written) -> &Result<protobuf_schema::Schema, String> {
        match self.0.iter().position(|(known, _)| *known == id) {
            Some(at) => self.0[..=at].rotate_right(1),
            None => {
                let references: Vec<(&str, &str)> =
                    written.references.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
                let schema = protobuf_schema::Schema::parse(&written.text, &references);
                self.0.truncate(PARSED_MAX - 1);
                self.0.insert(0, (id, schema.map_err(|error| error.to_string())));
            }
        }
        &self.0[0].1
    }
}

/// The plans that were used most recently.
#[derive(Debug, Default)]
struct Plans {
    known: Vec<KnownPlan>,
    /// The hash of each plan's id, by which it is found among hundreds.
    hashes: Vec<u64>,
    /// The number of records read.
    taken: u64,
    /// The number of the plan that was used last.
    last: usize,
}

#[derive(Debug)]
struct KnownPlan {
    id: Id,
    /// The message that records are; `None` if the schema is not Protobuf.
    message: Option<OwnedMessage>,
    plan: Result<Plan, String>,
    /// The number of the record that used it last.
    taken: u64,
}

#[derive(Debug, PartialEq, Eq)]
enum OwnedMessage {
    Indexes(Indexes),
    Name(Box<str>),
    Sorted(u32),
    First,
}

impl OwnedMessage {
    fn is(&self, message: Message<'_>) -> bool {
        match (self, message) {
            (Self::Indexes(own), Message::Indexes(other)) => *own == other,
            (Self::Name(own), Message::Name(other)) => **own == *other,
            (Self::Sorted(own), Message::Sorted(other)) => *own == other,
            (Self::First, Message::First) => true,
            _ => false,
        }
    }
}

impl From<Message<'_>> for OwnedMessage {
    fn from(message: Message<'_>) -> Self {
        match message {
            Message::Indexes(indexes) => Self::Indexes(indexes),
            Message::Name(name) => Self::Name(name.into()),
            Message::Sorted(place) => Self::Sorted(place),
            Message::First => Self::First,
        }
    }
}

impl Plans {
    /// The number of the plan for a record, if there is one.
    fn find(&mut self, framed: &Framed<'_>) -> Result<Option<usize>, Unread> {
        self.taken += 1;
        let Some(any) = self.of_id(framed.id) else { return Ok(None) };
        let Some(_) = &self.known[any].message else { return Ok(Some(self.take(any))) };
        let (message, _) = framed.message().map_err(Unread::Unframed)?;
        if self.known[any].message.as_ref().is_some_and(|own| own.is(message)) {
            return Ok(Some(self.take(any)));
        }
        let is_own =
            |known: &KnownPlan| known.id == framed.id && known.message.as_ref().is_some_and(|own| own.is(message));
        Ok(self.known.iter().position(is_own).map(|number| self.take(number)))
    }

    /// A plan of this schema, if there is one: preferably the one used last.
    fn of_id(&self, id: Id) -> Option<usize> {
        // Consecutive records mostly have the same schema.
        if self.known.get(self.last).is_some_and(|known| known.id == id) {
            return Some(self.last);
        }
        let hash = hash_of(id);
        let mut alike = self.hashes.iter().zip(&self.known);
        alike.position(|(known_hash, known)| *known_hash == hash && known.id == id)
    }

    fn take(&mut self, number: usize) -> usize {
        (self.last, self.known[number].taken) = (number, self.taken);
        number
    }

    fn add(&mut self, id: Id, message: Option<Message<'_>>, plan: Result<Plan, String>) -> usize {
        if self.known.len() >= PLANS_MAX
            && let Some((oldest, _)) = self.known.iter().enumerate().min_by_key(|(_, known)| known.taken)
        {
            self.known.swap_remove(oldest);
            self.hashes.swap_remove(oldest);
        }
        self.hashes.push(hash_of(id));
        self.known.push(KnownPlan { id, message: message.map(OwnedMessage::from), plan, taken: 0 });
        self.take(self.known.len() - 1)
    }
}

fn hash_of(id: Id) -> u64 {
    let mut hasher = Xxh3Default::new();
    id.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests;
