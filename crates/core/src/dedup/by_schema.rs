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
use super::rules::ADDED_PREFIX;
use super::steps::{Found, PathIndex, Steps};
use super::vocabulary::Format;
use super::{avro, protobuf};
use crate::record::Headers;
use crate::schemas::framing;
use crate::schemas::protobuf::Known;
use crate::schemas::which::which;
use crate::schemas::{
    Framed, Id, Language, LookUp, Schemas as _, Sources, Unclear, Undecodable, Unframed, Which, Written,
    avro as avro_schema, protobuf as protobuf_schema,
};

/// The maximum number of plans for a topic's values, or keys: each version of each table has its own.
const PLANS_MAX: usize = 1024;

/// Stands for the number of a message if the schema lacks the message of a record.
const NO_MESSAGE: usize = usize::MAX;

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
    /// The steps for schemas without a field of a flattened document, if these make a difference.
    unflattened: Option<Steps>,
    /// The node of each wanted place.
    places: Vec<usize>,
    depth_max: usize,
    plans: Plans,
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
            unflattened: None,
            places,
            depth_max,
            plans: Plans::default(),
            extracted: Extracted::default(),
            scanner: Scanner::new(paths, depth_max, false),
            without_id: Scanner::new(paths, depth_max, is_wrapped),
            last: Last::Json(0..0),
            language: None,
        }
    }

    /// The same, with the whole document wanted only if it may be a flattened one: writing all of it is most of the work.
    pub fn whole_only_if_flattened(self) -> Self {
        Self { unflattened: Some(self.steps.without_root()), ..self }
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
        let (number, from) = self.plan_of(&framed)?;
        let plan = match &self.plans.known[number].plan {
            Err(unusable) => return Err(Unread::NoSchema(unusable.clone())),
            Ok(plan) => plan,
        };
        let undecodable = |error| Unread::Undecodable(framed.id, error);
        let language = plan.language();
        self.language = Some(language);
        let record = &framed.payload[from..];
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

    /// The number of the plan for this document, and where the record begins after the id.
    fn plan_of(&mut self, framed: &Framed<'_>) -> Result<(usize, usize), Unread> {
        let schema = match self.plans.of_id(framed.id) {
            Some(number) => match &self.plans.known[number].schema {
                None => return Ok((self.plans.take(number), 0)),
                Some(schema) => schema.clone(),
            },
            None => match self.schema_of(framed.id)? {
                Parsed::Protobuf(schema) => schema,
                Parsed::Other(plan) => return Ok((self.plans.add(framed.id, None, *plan), 0)),
            },
        };
        let Which { message, from } = match which(framed, &schema) {
            Ok(which) => which,
            Err(unclear) => {
                // Otherwise each such record would have the schema parsed again.
                if self.plans.of_id(framed.id).is_none() {
                    self.plans.add(framed.id, Some((schema, NO_MESSAGE)), Err(String::new()));
                }
                return Err(unclear_in(framed.id, unclear));
            }
        };
        let number = match self.plans.of_message(framed.id, message) {
            Some(number) => self.plans.take(number),
            None => {
                let declared = &schema.graph().messages[message];
                let fields = (declared.known == Known::None).then(|| declared.fields.iter().map(|field| &*field.name));
                let plan = protobuf::Plan::new(&schema, message, self.steps_for(fields), self.depth_max);
                self.plans.add(framed.id, Some((schema, message)), Ok(Plan::Protobuf(plan)))
            }
        };
        Ok((number, from))
    }

    /// Parses the schema with this id, and compiles its plan unless it is Protobuf. The plan of an unusable schema is the
    /// reason.
    fn schema_of(&self, id: Id) -> Result<Parsed, Unread> {
        let written = match self.sources.look_up(&id) {
            LookUp::Known(written) => written,
            LookUp::Pending => return Err(Unread::Pending(id)),
            LookUp::Absent(sentence) => return Err(Unread::NoSchema(sentence)),
        };
        if let Some(wanted) = self.format.language().filter(|wanted| *wanted != written.language) {
            let is = written.language.as_str();
            return Err(Unread::NoSchema(format!("{id} is one of {is}, not of {}", wanted.as_str())));
        }
        let parsed = self.parsed(&written);
        Ok(parsed.unwrap_or_else(|why| Parsed::Other(Box::new(Err(format!("{id} cannot be used: {why}"))))))
    }

    fn parsed(&self, written: &Written) -> Result<Parsed, String> {
        Ok(match written.language {
            Language::Avro => {
                let references: Vec<&str> = written.references.iter().map(|(_, text)| text.as_str()).collect();
                let schema =
                    avro_schema::Schema::parse(&written.text, &references).map_err(|error| error.to_string())?;
                let fields = match schema.kind(schema.root()) {
                    avro_schema::Kind::Record(record) => Some(record.fields.iter().map(|field| &*field.name)),
                    _ => None,
                };
                let plan = avro::Plan::new(&schema, self.steps_for(fields), self.depth_max);
                Parsed::Other(Box::new(Ok(Plan::Avro(plan))))
            }
            Language::Protobuf => {
                let references: Vec<(&str, &str)> =
                    written.references.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
                let schema = protobuf_schema::Schema::parse(&written.text, &references);
                Parsed::Protobuf(schema.map_err(|error| error.to_string())?)
            }
            Language::JsonSchema => Parsed::Other(Box::new(Ok(Plan::Json))),
        })
    }

    /// The steps for documents with these fields; `None` if the schema does not say which fields they have.
    fn steps_for<'f>(&self, fields: Option<impl Iterator<Item = &'f str>>) -> &Steps {
        let may_be_flattened = fields.is_none_or(|mut fields| fields.any(|name| name.starts_with(ADDED_PREFIX)));
        self.unflattened.as_ref().filter(|_| !may_be_flattened).unwrap_or(&self.steps)
    }
}

/// Why a record whose schema is known cannot be read.
fn unclear_in(id: Id, unclear: Unclear) -> Unread {
    match unclear {
        Unclear::Unread(unframed) => Unread::Unframed(unframed),
        unclear => Unread::NoSchema(format!("{id} {unclear}")),
    }
}

/// A parsed schema.
enum Parsed {
    /// A Protobuf schema: each of its messages has a plan.
    Protobuf(protobuf_schema::Schema),
    /// Any other schema, with the plan for all of its records.
    Other(Box<Result<Plan, String>>),
}

/// How to read the records of one schema.
#[derive(Debug)]
enum Plan {
    Avro(avro::Plan),
    Protobuf(protobuf::Plan),
    Json,
}

impl Plan {
    fn language(&self) -> Language {
        match self {
            Self::Avro(_) => Language::Avro,
            Self::Protobuf(_) => Language::Protobuf,
            Self::Json => Language::JsonSchema,
        }
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
    /// The schema; `None` if it is not Protobuf.
    schema: Option<protobuf_schema::Schema>,
    /// The number of the message that records are.
    message: usize,
    plan: Result<Plan, String>,
    /// The number of the record that used it last.
    taken: u64,
}

impl Plans {
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

    /// The plan of this message of a schema of Protobuf, if there is one.
    fn of_message(&self, id: Id, message: usize) -> Option<usize> {
        let is = |known: &KnownPlan| known.message == message && known.id == id && known.schema.is_some();
        match self.known.get(self.last) {
            Some(last) if is(last) => Some(self.last),
            _ => self.known.iter().position(is),
        }
    }

    fn take(&mut self, number: usize) -> usize {
        self.taken += 1;
        (self.last, self.known[number].taken) = (number, self.taken);
        number
    }

    fn add(&mut self, id: Id, of: Option<(protobuf_schema::Schema, usize)>, plan: Result<Plan, String>) -> usize {
        if self.known.len() >= PLANS_MAX
            && let Some((oldest, _)) = self.known.iter().enumerate().min_by_key(|(_, known)| known.taken)
        {
            self.known.swap_remove(oldest);
            self.hashes.swap_remove(oldest);
        }
        self.hashes.push(hash_of(id));
        let (schema, message) = of.unzip();
        let message = message.unwrap_or(NO_MESSAGE);
        self.known.push(KnownPlan { id, schema, message, plan, taken: 0 });
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
