//! The content of a captured line: a record's value, or a whole record in one of two envelopes.
//!
//! kcat's envelope is `{"topic":…,"partition":…,"offset":…,"tstype":…,"ts":…,"headers":…,"key":…,"payload":…}`,
//! where key and payload are strings that hold the record's bytes, or null, and the headers are a list of
//! alternating names and values, or (with kcat's option for that) an object of lists.
//!
//! `ratchet capture` writes the same fields, so that people and scripts read both, after `"capture":1`, the number of the
//! envelope. Bytes that are not UTF-8 are `{"base64":"…"}` there, while kcat writes them as they are, or loses them.

use std::borrow::Cow;
use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, SeqAccess, Unexpected, Visitor};

use super::form::Form;
use crate::record::{HeaderBuf, Record};

/// The number of the envelope that `ratchet capture` writes.
pub(super) const CAPTURE: u32 = 1;

/// A captured record. Reused from line to line.
#[derive(Debug, Default)]
pub struct Captured {
    /// Its topic.
    pub topic: String,
    /// Its partition.
    pub partition: i32,
    /// Its offset there.
    pub offset: i64,
    /// Milliseconds since the epoch; `None` if it is not known.
    pub timestamp: Option<i64>,
    /// Whether the broker has set the timestamp, when it appended the record (`LogAppendTime`).
    pub is_stamped: bool,
    /// The key's bytes, `None` for null.
    pub key: Option<Vec<u8>>,
    /// The value's bytes, `None` for null.
    pub value: Option<Vec<u8>>,
    /// The headers.
    pub headers: HeaderBuf,
}

impl Captured {
    /// Takes a line as a record's value, unchecked. The caller sets topic, partition and offset, which the line does
    /// not contain.
    pub fn read_value(&mut self, line: &[u8]) {
        (self.timestamp, self.is_stamped) = (None, false);
        self.key = None;
        self.headers.clear();
        let value = self.value.get_or_insert_default();
        value.clear();
        value.extend_from_slice(line);
    }

    /// Reads a record in this envelope; a line without one is its value, unchecked ([`Captured::read_value`]).
    pub fn read(&mut self, form: Form, line: &[u8]) -> Result<(), serde_json::Error> {
        match form {
            Form::Values => {
                self.read_value(line);
                Ok(())
            }
            Form::Kcat => self.read_kcat(line),
            Form::Capture => self.read_capture(line),
        }
    }

    /// Reads a record in kcat's envelope.
    pub fn read_kcat(&mut self, line: &[u8]) -> Result<(), serde_json::Error> {
        let read: Envelope<'_, false> = serde_json::from_slice(line)?;
        if let Some(error) = read.key_error.as_ref().or(read.payload_error.as_ref()) {
            return Err(serde_json::Error::custom(format_args!("kcat could not decode the record: {error}")));
        }
        // a record without a timestamp has -1, or 0 from an old kcat
        let timestamp = read.ts.filter(|&ms| ms >= 0 && read.tstype.as_deref() != Some(UNKNOWN));
        self.take(read, timestamp);
        Ok(())
    }

    /// Reads a record in the envelope of `ratchet capture`.
    fn read_capture(&mut self, line: &[u8]) -> Result<(), serde_json::Error> {
        let read: Envelope<'_, true> = serde_json::from_slice(line)?;
        match read.capture {
            Some(CAPTURE) => {}
            Some(other) => {
                let text = format_args!("its envelope has the number {other}, which only a later release reads");
                return Err(serde_json::Error::custom(text));
            }
            None => return Err(serde_json::Error::missing_field("capture")),
        }
        let timestamp = read.ts;
        self.take(read, timestamp);
        Ok(())
    }

    fn take<const OWN: bool>(&mut self, read: Envelope<'_, OWN>, timestamp: Option<i64>) {
        self.topic.clear();
        self.topic.push_str(&read.topic);
        self.partition = read.partition;
        self.offset = read.offset;
        self.timestamp = timestamp;
        self.is_stamped = timestamp.is_some() && read.tstype.as_deref() == Some(STAMPED);
        self.key = read.key.map(|bytes| bytes.0);
        self.value = read.payload.map(|bytes| bytes.0);
        self.headers = read.headers.unwrap_or_default().0;
    }

    /// The record, borrowed.
    pub fn record(&self) -> Record<'_> {
        Record {
            topic: &self.topic,
            partition: self.partition,
            offset: self.offset,
            timestamp: self.timestamp,
            key: self.key.as_deref(),
            value: self.value.as_deref(),
            headers: self.headers.as_headers(),
        }
    }
}

/// Writes a record in the envelope of `ratchet capture`, as a line with its line feed. `is_stamped`: whether the broker has
/// set the timestamp.
pub fn write_capture(record: &Record<'_>, is_stamped: bool, to: &mut Vec<u8>) {
    to.extend_from_slice(format!("{{\"capture\":{CAPTURE},\"topic\":").as_bytes());
    write_text(record.topic, to);
    let kind = match record.timestamp {
        None => UNKNOWN,
        Some(_) if is_stamped => STAMPED,
        Some(_) => CREATED,
    };
    let ts = record.timestamp.map_or_else(|| "null".to_owned(), |ms| ms.to_string());
    let Record { partition, offset, .. } = record;
    let place =
        format!(",\"partition\":{partition},\"offset\":{offset},\"tstype\":\"{kind}\",\"ts\":{ts},\"headers\":[");
    to.extend_from_slice(place.as_bytes());
    for (number, header) in record.headers.iter().enumerate() {
        if number > 0 {
            to.push(b',');
        }
        write_bytes(Some(header.name), to);
        to.push(b',');
        write_bytes(header.value, to);
    }
    to.extend_from_slice(b"],\"key\":");
    write_bytes(record.key, to);
    to.extend_from_slice(b",\"payload\":");
    write_bytes(record.value, to);
    to.extend_from_slice(b"}\n");
}

/// Writes bytes as JSON: null, a string, or an object where they are not UTF-8.
fn write_bytes(bytes: Option<&[u8]>, to: &mut Vec<u8>) {
    let Some(bytes) = bytes else { return to.extend_from_slice(b"null") };
    match simdutf8::basic::from_utf8(bytes) {
        Ok(text) => write_text(text, to),
        Err(_) => {
            to.extend_from_slice(b"{\"base64\":\"");
            to.extend_from_slice(BASE64_STANDARD.encode(bytes).as_bytes());
            to.extend_from_slice(b"\"}");
        }
    }
}

fn write_text(text: &str, to: &mut Vec<u8>) {
    // a text in memory: neither can fail
    let _ = serde_json::to_writer(to, text);
}

/// Whether a line is a record in kcat's envelope.
pub fn looks_like_kcat(line: &[u8]) -> bool {
    serde_json::from_slice::<Envelope<'_, false>>(line).is_ok_and(|read| read.capture.is_none())
}

/// The topic of a record in either envelope, even if the rest of the line is malformed; `None` if the line names no topic.
pub fn topic_of_envelope(line: &[u8]) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Topic<'a> {
        #[serde(borrow)]
        topic: Cow<'a, str>,
    }
    serde_json::from_slice::<Topic<'_>>(line).ok().map(|read| read.topic)
}

/// The types of timestamps, as kcat names them.
const CREATED: &str = "create";
const STAMPED: &str = "logappend";
const UNKNOWN: &str = "unknown";

/// Either envelope; `OWN` is that of `ratchet capture`.
#[derive(Deserialize)]
struct Envelope<'a, const OWN: bool> {
    #[serde(default)]
    capture: Option<u32>,
    #[serde(borrow)]
    topic: Cow<'a, str>,
    partition: i32,
    offset: i64,
    #[serde(default, borrow)]
    tstype: Option<Cow<'a, str>>,
    #[serde(default)]
    ts: Option<i64>,
    #[serde(default)]
    headers: Option<EnvelopeHeaders<OWN>>,
    #[serde(default)]
    key: Option<Bytes<OWN>>,
    // a missing payload means that the line is not an envelope; a null one that the value is null
    #[serde(deserialize_with = "Option::deserialize")]
    payload: Option<Bytes<OWN>>,
    #[serde(default, borrow)]
    key_error: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    payload_error: Option<Cow<'a, str>>,
}

/// A string's bytes, which need not be UTF-8: kcat writes them as they are. Or what stands for bytes that are not.
struct Bytes<const OWN: bool>(Vec<u8>);

impl<'de, const OWN: bool> Deserialize<'de> for Bytes<OWN> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // only kcat's strings may hold other bytes than UTF-8, and only an envelope of our own an object
        match OWN {
            true => deserializer.deserialize_any(BytesVisitor::<OWN>),
            false => deserializer.deserialize_bytes(BytesVisitor::<OWN>),
        }
    }
}

struct BytesVisitor<const OWN: bool>;

impl<'de, const OWN: bool> Visitor<'de> for BytesVisitor<OWN> {
    type Value = Bytes<OWN>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match OWN {
            true => "a string, null, or an object with its bytes as `base64`",
            false => "a string with the record's bytes, or null (kcat without `-s`)",
        })
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Bytes<OWN>, E> {
        Ok(Bytes(bytes.to_vec()))
    }

    fn visit_str<E>(self, text: &str) -> Result<Bytes<OWN>, E> {
        Ok(Bytes(text.as_bytes().to_vec()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Bytes<OWN>, A::Error> {
        let (first, second) = (map.next_entry::<String, String>()?, map.next_key::<String>()?);
        let (Some(text), None) = (first.filter(|(name, _)| name == "base64").map(|(_, text)| text), second) else {
            return Err(A::Error::invalid_value(Unexpected::Map, &self));
        };
        BASE64_STANDARD.decode(text).map(Bytes).map_err(|error| A::Error::custom(format_args!("no base64: {error}")))
    }
}

/// Headers as a list of alternating names and values, or as an object of lists of values.
#[derive(Default)]
struct EnvelopeHeaders<const OWN: bool>(HeaderBuf);

impl<'de, const OWN: bool> Deserialize<'de> for EnvelopeHeaders<OWN> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(HeadersVisitor::<OWN>)
    }
}

struct HeadersVisitor<const OWN: bool>;

impl<'de, const OWN: bool> Visitor<'de> for HeadersVisitor<OWN> {
    type Value = EnvelopeHeaders<OWN>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("headers: a list of names and values in turn, or an object of lists of values")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<EnvelopeHeaders<OWN>, A::Error> {
        let mut headers = HeaderBuf::default();
        while let Some(Bytes::<OWN>(name)) = list.next_element()? {
            let Some(value) = list.next_element::<Option<Bytes<OWN>>>()? else {
                return Err(A::Error::custom("the headers end with a name that has no value"));
            };
            headers.push(&name, value.as_ref().map(|bytes| &bytes.0[..]));
        }
        Ok(EnvelopeHeaders(headers))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<EnvelopeHeaders<OWN>, A::Error> {
        let mut headers = HeaderBuf::default();
        while let Some((name, values)) = map.next_entry::<Cow<'de, str>, Vec<Option<Bytes<OWN>>>>()? {
            for value in values {
                headers.push(name.as_bytes(), value.as_ref().map(|bytes| &bytes.0[..]));
            }
        }
        Ok(EnvelopeHeaders(headers))
    }
}

#[cfg(test)]
mod tests;
