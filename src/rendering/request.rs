//! The request that a record makes: address, headers, body and key, from the record and its topology alone. No clock, no
//! random number: each attempt is byte for byte the same.
//!
//! **Parts of the record.** A text in JSON is written without quotes and escapes, numbers as they stand there; a whole
//! key, value or header is its bytes. What is missing or null, or an object or an array, refuses the record in an address
//! or a header.
//!
//! - In path and query everything is percent-encoded but letters, digits and `-._~`: nothing can become another part of
//!   the address. In the path nothing may be empty either, nor make a segment `.` or `..`: that would be another address
//! - A host from the record has to be listed by the topology, whole
//! - A header takes visible characters of ASCII and blanks, so that no other header can begin in it
//!
//! **A body of JSON** has what the topology names: numbers, objects and arrays exactly as they stand in the record, texts
//! as strings, what is missing or null as null. So each body has the same fields.
//!
//! **The fingerprint** is of the method, the address, the headers that the record has a part in, and the body. What is
//! fixed counts as it is written, before `${env:NAME}` is substituted: a secret can be replaced, and is in no digest.
//!
//! **Failure.** A record that no request can be made of gives words without anything of its content; the topology's
//! `on_rejected` says what becomes of it.

use std::sync::Arc;

use crate::dedup::{self, Field, Fields, Path, Source, Wanted};
use crate::effect::call::{Content, Fingerprint, Form, Key, KeyParts};
use crate::effect::provider::RenderedRequest;
use crate::record::Record;
use crate::topology::Topology;
use crate::topology::sink::Terms;
use crate::topology::sink::http::address::{ADDRESS_BYTES_MAX, Address, Part, Region, has_dots};
use crate::topology::sink::http::template::{Piece, Template};
use crate::topology::sink::http::{Body, Http, Json, Method};

use super::only_row;

/// Maximum length of a header's value, in bytes: what servers commonly take of all headers together.
pub const HEADER_BYTES_MAX: usize = 8 * 1024;

const HEX: &[u8; 16] = b"0123456789ABCDEF";

/// Makes the request of one record after the other, reusing its buffers.
#[derive(Debug)]
pub struct Requester {
    topology: String,
    has_key: bool,
    method: Method,
    form: Form,
    fields: Fields,
    address: Vec<(Region, Place)>,
    /// The hosts that a record may name; `None` if it names none.
    hosts: Option<Vec<String>>,
    /// The address as it is written.
    written: Vec<Place>,
    headers: Vec<Header>,
    body: BodyPlan,
    /// The address of the last request, as it is written, with the record's parts in it.
    shown: String,
}

/// A part of a text, its path resolved to a field's number.
#[derive(Debug)]
enum Place {
    Fixed(String),
    Field(usize),
}

#[derive(Debug)]
struct Header {
    name: Arc<str>,
    value: Vec<Place>,
    is_of_record: bool,
}

#[derive(Debug)]
enum BodyPlan {
    Value,
    Json(JsonPlan),
    None,
}

#[derive(Debug)]
enum JsonPlan {
    /// The first that is there.
    First(Vec<usize>),
    /// Each field's name as JSON, with its colon.
    Object(Vec<(Vec<u8>, JsonPlan)>),
    List(Vec<JsonPlan>),
}

impl Requester {
    /// What makes the requests of this topology's records; `None` if it does not call a provider.
    ///
    /// # Panics
    /// The address is none: a topology that was read has been checked.
    pub fn new(topology: &Topology) -> Option<Self> {
        let http = topology.http()?;
        let address = Address::read(&http.url).expect("a topology's address has been checked");
        let mut wanted = Wanted::default();
        let place = |part: &Part, wanted: &mut Wanted| match part {
            Part::Fixed(text) => Place::Fixed(text.reveal().to_owned()),
            Part::Record(path) => Place::Field(wanted.scalar(path.clone())),
        };
        let parts = address.parts().iter().map(|(region, part)| (*region, place(part, &mut wanted))).collect();
        let written = http.url.pieces().iter().map(|piece| match piece {
            Piece::Fixed { written, .. } => Place::Fixed(written.clone()),
            Piece::Record(path) => Place::Field(wanted.scalar(path.clone())),
        });
        let written = written.collect();
        let headers = http.headers.iter().map(|(name, value)| header(name, value, &mut wanted)).collect();
        let body = match &http.body {
            // The provider gets JSON: it could do nothing with an encoded value that names a schema.
            Body::Value if topology.rules.value_format.has_schemas() => {
                let value = Path { source: Source::Value, steps: Vec::new() };
                BodyPlan::Json(JsonPlan::First(vec![wanted.document(value)]))
            }
            Body::Value => BodyPlan::Value,
            Body::Json(json) => BodyPlan::Json(json_plan(json, &mut wanted)),
            Body::None => BodyPlan::None,
        };
        Some(Self {
            topology: topology.name.clone(),
            has_key: http.key.is_some(),
            method: http.method,
            form: form(http),
            fields: Fields::new(&topology.rules, &topology.schemas, &wanted),
            address: parts,
            hosts: address.takes_host_from_record().then(|| http.hosts.clone()),
            written,
            headers,
            body,
            shown: String::new(),
        })
    }

    /// Whether it reads keys, and whether it reads values.
    pub fn reads(&self) -> (bool, bool) {
        self.fields.reads()
    }

    /// The request that `record` makes. `rows` is what was read of it, its ranges in `arena`.
    ///
    /// # Errors
    /// Why no request can be made of the record, in words without anything of its content.
    pub fn render(
        &mut self,
        record: &Record<'_>,
        rows: &[dedup::Row],
        arena: &[u8],
    ) -> Result<RenderedRequest, String> {
        let row = only_row(rows)?;
        if !Terms::is_called_by(row.kind) {
            return Err(format!("a {} makes no call", row.kind));
        }
        self.fields.scan(record).map_err(|rejection| rejection.message)?;
        let url = self.url(record)?;
        let mut headers = Vec::with_capacity(self.headers.len());
        for header in &self.headers {
            headers.push((Arc::clone(&header.name), self.header(header, record)?));
        }
        let body = self.body(record)?;
        let of_record = self.headers.iter().zip(&headers).filter(|(header, _)| header.is_of_record);
        let of_record: Vec<(&str, &[u8])> = of_record.map(|(_, (name, value))| (&**name, &value[..])).collect();
        let content =
            Content { method: self.method.as_str(), target: &self.shown, headers: &of_record, body: body.as_deref() };
        let fingerprint = Fingerprint::of(self.form, content);
        let key = self.has_key.then(|| {
            Key::of(KeyParts {
                topology: &self.topology,
                identity: &arena[row.key.clone()],
                epoch: row.scope.clone().map(|scope| &arena[scope]),
                version: row.version.clone().map(|version| &arena[version]),
                step: None,
            })
        });
        Ok(RenderedRequest { url, headers, body, key, fingerprint })
    }

    /// The address of the request that was made last, for people: what is substituted stands there as it is written, so
    /// nothing secret is in it.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    fn url(&mut self, record: &Record<'_>) -> Result<String, String> {
        let (mut url, mut host_end, mut path_end) = (Vec::new(), 0, 0);
        let mut encoded = Vec::new();
        let mut is_path_of_record = false;
        for (region, place) in &self.address {
            match place {
                Place::Fixed(text) => url.extend_from_slice(text.as_bytes()),
                Place::Field(number) => {
                    let from = url.len();
                    let problem = self.part_of_address(*region, *number, record, &mut url).err();
                    if let Some(words) = problem {
                        return Err(format!("the address (`{}`): {words}", self.fields.path(*number)));
                    }
                    is_path_of_record |= *region == Region::Path;
                    encoded.push(from..url.len());
                }
            }
            let end = url.len();
            match region {
                Region::Host => (host_end, path_end) = (end, end),
                Region::Path => path_end = end,
                Region::Query => {}
            }
        }
        // A host's bytes may be anything, and are compared with what is listed.
        let url = String::from_utf8(url).map_err(|_| NOT_LISTED.to_owned())?;
        if self.hosts.as_ref().is_some_and(|hosts| !Address::is_listed(&url[..host_end], hosts)) {
            return Err(NOT_LISTED.to_owned());
        }
        if is_path_of_record && has_dots(&url.as_bytes()[host_end..path_end]) {
            return Err("the address would have a segment `.` or `..`, and be another one".to_owned());
        }
        if url.len() > ADDRESS_BYTES_MAX {
            return Err(format!("the address would be longer than {ADDRESS_BYTES_MAX} bytes"));
        }
        self.shown.clear();
        let mut encoded = encoded.into_iter();
        for place in &self.written {
            match place {
                Place::Fixed(text) => self.shown.push_str(text),
                Place::Field(_) => self.shown.push_str(&url[encoded.next().unwrap_or_default()]),
            }
        }
        Ok(url)
    }

    /// Writes a part of the record into an address.
    fn part_of_address(
        &self,
        region: Region,
        number: usize,
        record: &Record<'_>,
        url: &mut Vec<u8>,
    ) -> Result<(), &'static str> {
        let mut bytes = Vec::new();
        write_part(self.fields.get(number, record), &mut bytes)?;
        match region {
            Region::Host => url.extend_from_slice(&bytes),
            Region::Path if bytes.is_empty() => return Err("it is empty, and the address would be another one"),
            Region::Path | Region::Query => percent_encode(&bytes, url),
        }
        Ok(())
    }

    fn header(&self, header: &Header, record: &Record<'_>) -> Result<Vec<u8>, String> {
        let mut value = Vec::new();
        for place in &header.value {
            let written = match place {
                Place::Fixed(text) => {
                    value.extend_from_slice(text.as_bytes());
                    continue;
                }
                Place::Field(number) => {
                    let from = value.len();
                    let written = write_part(self.fields.get(*number, record), &mut value);
                    written.and_then(|()| check_header(&value[from..])).map_err(|words| (number, words))
                }
            };
            if let Err((number, words)) = written {
                return Err(format!("the header `{}` (`{}`): {words}", header.name, self.fields.path(*number)));
            }
        }
        if value.len() > HEADER_BYTES_MAX {
            return Err(format!("the header `{}` would be longer than {HEADER_BYTES_MAX} bytes", header.name));
        }
        Ok(value)
    }

    fn body(&self, record: &Record<'_>) -> Result<Option<Vec<u8>>, String> {
        match &self.body {
            BodyPlan::None => Ok(None),
            BodyPlan::Value => match record.value {
                Some(value) => Ok(Some(value.to_vec())),
                None => Err("the body (`value`): there is no value".to_owned()),
            },
            BodyPlan::Json(plan) => {
                let mut body = Vec::new();
                self.json(plan, record, &mut body)?;
                Ok(Some(body))
            }
        }
    }

    fn json(&self, plan: &JsonPlan, record: &Record<'_>, out: &mut Vec<u8>) -> Result<(), String> {
        match plan {
            JsonPlan::First(first) => {
                let mut all = first.iter().map(|number| (number, self.fields.get(*number, record)));
                match all.find(|(_, field)| !field.is_missing()) {
                    None => out.extend_from_slice(b"null"),
                    Some((number, field)) => write_json(field, out)
                        .map_err(|words| format!("the body (`{}`): {words}", self.fields.path(*number)))?,
                }
            }
            JsonPlan::Object(fields) => {
                out.push(b'{');
                for (number, (name, plan)) in fields.iter().enumerate() {
                    out.extend_from_slice(if number > 0 { b"," } else { b"" });
                    out.extend_from_slice(name);
                    self.json(plan, record, out)?;
                }
                out.push(b'}');
            }
            JsonPlan::List(items) => {
                out.push(b'[');
                for (number, plan) in items.iter().enumerate() {
                    out.extend_from_slice(if number > 0 { b"," } else { b"" });
                    self.json(plan, record, out)?;
                }
                out.push(b']');
            }
        }
        Ok(())
    }
}

const NOT_LISTED: &str = "the address: its host is not among `hosts`";

/// What a topology makes of its records' requests.
fn form(http: &Http) -> Form {
    let mut texts = vec![http.method.as_str().to_owned(), http.url.to_string()];
    for (name, value) in http.headers.iter().filter(|(_, value)| value.holds_record()) {
        texts.extend([name.clone(), value.to_string()]);
    }
    texts.push(match &http.body {
        Body::Value => "value".to_owned(),
        Body::Json(json) => format!("json {json}"),
        Body::None => "none".to_owned(),
    });
    Form::of(texts.iter().map(String::as_str))
}

fn header(name: &str, value: &Template, wanted: &mut Wanted) -> Header {
    let mut place = |piece: &Piece| match piece {
        Piece::Fixed { text, .. } => Place::Fixed(text.reveal().to_owned()),
        Piece::Record(path) => Place::Field(wanted.scalar(path.clone())),
    };
    let is_of_record = value.holds_record();
    Header { name: name.into(), value: value.pieces().iter().map(&mut place).collect(), is_of_record }
}

fn json_plan(json: &Json, wanted: &mut Wanted) -> JsonPlan {
    match json {
        // A whole key or value is a document here, unless its format is bytes.
        Json::At(places) => JsonPlan::First(places.iter().map(|path: &Path| wanted.document(path.clone())).collect()),
        Json::Object(fields) => {
            let mut field = |(name, json): &(String, Json)| {
                let mut quoted = Vec::new();
                quote(name.as_bytes(), &mut quoted);
                quoted.push(b':');
                (quoted, json_plan(json, wanted))
            };
            JsonPlan::Object(fields.iter().map(&mut field).collect())
        }
        Json::List(items) => JsonPlan::List(items.iter().map(|json| json_plan(json, wanted)).collect()),
    }
}

/// Writes a part of the record as a text of its own.
fn write_part(field: Field<'_>, out: &mut Vec<u8>) -> Result<(), &'static str> {
    match field {
        Field::Missing => Err("it is missing, or null"),
        Field::Json(_) => Err("it is an object or an array"),
        other => {
            other.write(out);
            Ok(())
        }
    }
}

/// Whether a header can hold what a record puts into it.
fn check_header(bytes: &[u8]) -> Result<(), &'static str> {
    match bytes.iter().all(|byte| matches!(byte, b' '..=b'~')) {
        true => Ok(()),
        false => {
            Err("there is a character in it that a header does not take: a line break, a control character, or one \
                      that is not ASCII")
        }
    }
}

fn percent_encode(bytes: &[u8], out: &mut Vec<u8>) {
    for byte in bytes {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(*byte),
            _ => out.extend([b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]),
        }
    }
}

fn write_json(field: Field<'_>, out: &mut Vec<u8>) -> Result<(), &'static str> {
    match field {
        Field::Text(text) => quote(text, out),
        Field::Bytes(bytes) if simdutf8::basic::from_utf8(bytes).is_err() => {
            return Err("it is not UTF-8, which JSON has to be");
        }
        Field::Bytes(text) => quote(text, out),
        // Its escapes are JSON's.
        Field::Escaped(text) => {
            out.push(b'"');
            out.extend_from_slice(text);
            out.push(b'"');
        }
        Field::Missing => out.extend_from_slice(b"null"),
        Field::Bool(_) | Field::Integer(_) | Field::Number(_) | Field::Json(_) => {
            field.write(out);
        }
    }
    Ok(())
}

/// Writes a text as a string of JSON.
fn quote(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in text {
        match byte {
            b'"' | b'\\' => out.extend([b'\\', *byte]),
            b'\n' => out.extend(b"\\n"),
            b'\r' => out.extend(b"\\r"),
            b'\t' => out.extend(b"\\t"),
            0..=0x1f => {
                out.extend(b"\\u00");
                out.extend([HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
            }
            _ => out.push(*byte),
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests;
