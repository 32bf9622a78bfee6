//! The content of a captured line: a record's value, or a record in the envelope of `kcat -J`.
//!
//! kcat's envelope is `{"topic":…,"partition":…,"offset":…,"tstype":…,"ts":…,"headers":…,"key":…,"payload":…}`,
//! where key and payload are strings that hold the record's bytes, or null, and the headers are a list of
//! alternating names and values, or (with kcat's option for that) an object of lists.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use crate::record::{HeaderBuf, Record};

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
        self.timestamp = None;
        self.key = None;
        self.headers.clear();
        let value = self.value.get_or_insert_default();
        value.clear();
        value.extend_from_slice(line);
    }

    /// Reads a record in kcat's envelope.
    pub fn read_kcat(&mut self, line: &[u8]) -> Result<(), serde_json::Error> {
        let read: Kcat<'_> = serde_json::from_slice(line)?;
        if let Some(error) = read.key_error.or(read.payload_error) {
            return Err(serde_json::Error::custom(format_args!("kcat could not decode the record: {error}")));
        }
        self.topic.clear();
        self.topic.push_str(&read.topic);
        self.partition = read.partition;
        self.offset = read.offset;
        // a record without a timestamp has -1, or 0 from an old kcat
        self.timestamp = read.ts.filter(|&ms| ms >= 0 && read.tstype.as_deref() != Some("unknown"));
        self.key = read.key.map(|bytes| bytes.0);
        self.value = read.payload.map(|bytes| bytes.0);
        self.headers = read.headers.unwrap_or_default().0;
        Ok(())
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

/// Whether a line is a record in kcat's envelope.
pub fn looks_like_kcat(line: &[u8]) -> bool {
    serde_json::from_slice::<Kcat<'_>>(line).is_ok()
}

/// The topic of a record in kcat's envelope, even if the rest is malformed; `None` if there is none.
pub fn topic_of_kcat(line: &[u8]) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Topic<'a> {
        #[serde(borrow)]
        topic: Cow<'a, str>,
    }
    serde_json::from_slice::<Topic<'_>>(line).ok().map(|read| read.topic)
}

#[derive(Deserialize)]
struct Kcat<'a> {
    #[serde(borrow)]
    topic: Cow<'a, str>,
    partition: i32,
    offset: i64,
    #[serde(default, borrow)]
    tstype: Option<Cow<'a, str>>,
    #[serde(default)]
    ts: Option<i64>,
    #[serde(default)]
    headers: Option<KcatHeaders>,
    #[serde(default)]
    key: Option<Bytes>,
    // a missing payload means that the line is not an envelope; a null one that the value is null
    #[serde(deserialize_with = "Option::deserialize")]
    payload: Option<Bytes>,
    #[serde(default, borrow)]
    key_error: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    payload_error: Option<Cow<'a, str>>,
}

/// A string's bytes, which need not be UTF-8: kcat writes them as they are.
struct Bytes(Vec<u8>);

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(BytesVisitor)
    }
}

struct BytesVisitor;

impl<'de> Visitor<'de> for BytesVisitor {
    type Value = Bytes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string with the record's bytes, or null (kcat without `-s`)")
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Bytes, E> {
        Ok(Bytes(bytes.to_vec()))
    }

    fn visit_str<E>(self, text: &str) -> Result<Bytes, E> {
        Ok(Bytes(text.as_bytes().to_vec()))
    }
}

/// Headers as a list of alternating names and values, or as an object of lists of values.
#[derive(Default)]
struct KcatHeaders(HeaderBuf);

impl<'de> Deserialize<'de> for KcatHeaders {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(HeadersVisitor)
    }
}

struct HeadersVisitor;

impl<'de> Visitor<'de> for HeadersVisitor {
    type Value = KcatHeaders;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("headers: a list of names and values in turn, or an object of lists of values")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<KcatHeaders, A::Error> {
        let mut headers = HeaderBuf::default();
        while let Some(Bytes(name)) = list.next_element()? {
            let Some(value) = list.next_element::<Option<Bytes>>()? else {
                return Err(A::Error::custom("the headers end with a name that has no value"));
            };
            headers.push(&name, value.as_ref().map(|bytes| &bytes.0[..]));
        }
        Ok(KcatHeaders(headers))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<KcatHeaders, A::Error> {
        let mut headers = HeaderBuf::default();
        while let Some((name, values)) = map.next_entry::<Cow<'de, str>, Vec<Option<Bytes>>>()? {
            for value in values {
                headers.push(name.as_bytes(), value.as_ref().map(|bytes| &bytes.0[..]));
            }
        }
        Ok(KcatHeaders(headers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kcat(line: &[u8]) -> Result<Captured, String> {
        let mut captured = Captured::default();
        captured.read_kcat(line).map_err(|error| error.to_string())?;
        Ok(captured)
    }

    #[test]
    fn record_is_read_from_kcats_envelope() {
        let line = br#"{"topic":"in","partition":3,"offset":17,"tstype":"create","ts":1500,"broker":1,"headers":["id","a","none",null,"id","b"],"key":"k","payload":"{\"a\":\"\u00e9\"}"}"#;
        let captured = kcat(line).unwrap();
        let record = captured.record();
        assert_eq!((record.topic, record.partition, record.offset, record.timestamp), ("in", 3, 17, Some(1500)));
        assert_eq!(record.key, Some(&b"k"[..]));
        assert_eq!(record.value, Some("{\"a\":\"é\"}".as_bytes()));
        let headers: Vec<_> = record.headers.iter().map(|header| (header.name, header.value)).collect();
        assert_eq!(headers, [(&b"id"[..], Some(&b"a"[..])), (b"none", None), (b"id", Some(b"b"))]);
    }

    #[test]
    fn headers_may_be_an_object() {
        let captured = kcat(br#"{"topic":"in","partition":0,"offset":0,"headers":{"a":["1",null],"b":["2"]},"key":null,"payload":null}"#).unwrap();
        let record = captured.record();
        let headers: Vec<_> = record.headers.iter().map(|header| (header.name, header.value)).collect();
        assert_eq!(headers, [(&b"a"[..], Some(&b"1"[..])), (b"a", None), (b"b", Some(b"2"))]);
    }

    #[test]
    fn bytes_that_are_not_utf8_stay_as_they_are() {
        let captured =
            kcat(b"{\"topic\":\"in\",\"partition\":0,\"offset\":0,\"key\":\"\xff\\u0000\",\"payload\":\"\xfe\"}")
                .unwrap();
        assert_eq!(captured.record().key, Some(&b"\xff\0"[..]));
        assert_eq!(captured.record().value, Some(&b"\xfe"[..]));
    }

    #[test]
    fn null_payload_is_a_null_value_and_a_missing_one_an_error() {
        assert_eq!(
            kcat(br#"{"topic":"t","partition":0,"offset":0,"key":"","payload":null}"#).unwrap().record().value,
            None
        );
        let error = kcat(br#"{"topic":"t","partition":0,"offset":0,"key":"k"}"#).unwrap_err();
        assert!(error.contains("missing field `payload`"), "{error}");
        assert!(kcat(br#"{"order_id":7}"#).unwrap_err().contains("missing field `topic`"));
    }

    #[test]
    fn unknown_timestamp_is_none() {
        let of = |fields: &str| {
            let line = format!(r#"{{"topic":"t","partition":0,"offset":0,{fields}"key":null,"payload":"1"}}"#);
            kcat(line.as_bytes()).unwrap().record().timestamp
        };
        assert_eq!(of(""), None);
        assert_eq!(of(r#""tstype":"create","ts":-1,"#), None);
        assert_eq!(of(r#""tstype":"unknown","ts":0,"#), None);
        assert_eq!(of(r#""tstype":"logappend","ts":5,"#), Some(5));
    }

    #[test]
    fn decoded_payload_is_rejected() {
        let error = kcat(br#"{"topic":"t","partition":0,"offset":0,"key":null,"payload":{"a":1}}"#).unwrap_err();
        assert!(error.contains("kcat without `-s`"), "{error}");
        let error =
            kcat(br#"{"topic":"t","partition":0,"offset":0,"key":null,"payload":null,"payload_error":"no schema"}"#)
                .unwrap_err();
        assert!(error.contains("no schema"), "{error}");
    }

    #[test]
    fn any_line_is_taken_as_a_value() {
        let mut captured = Captured::default();
        for line in [&br#"{"a":1"#[..], b"\xff", b"null"] {
            captured.read_value(line);
            assert_eq!(captured.record().value, Some(line));
        }
    }

    #[test]
    fn topic_is_read_from_a_line_with_other_malformed_fields() {
        let line = b"{\"topic\":\"a\\u002eb\",\"partition\":0,\"key\":\"\xff\",\"payload\":{\"x\":1}}";
        assert_eq!(topic_of_kcat(line).as_deref(), Some("a.b"));
        assert_eq!([&b"{\"id\":1}"[..], b"{\"topic\":\"a\"", b"7"].map(topic_of_kcat), [None, None, None]);
    }

    #[test]
    fn envelope_is_distinguished_from_a_value() {
        assert!(looks_like_kcat(br#"{"topic":"t","partition":0,"offset":0,"payload":null}"#));
        assert!(!looks_like_kcat(br#"{"topic":"t","partition":0,"offset":0}"#));
        assert!(!looks_like_kcat(br#"{"order_id":7}"#));
    }
}
