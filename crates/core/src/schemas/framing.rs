//! Finding the id of a record's schema, in its headers or at the beginning of its bytes.
//!
//! | form | what it looks like | who writes it |
//! |---|---|---|
//! | [`Id::Number`] | byte 0, 4 bytes | Confluent's serializers (`SchemaId`, magic byte V0), Apicurio's since 3 (`Default4ByteIdHandler`) |
//! | [`Id::Long`] | byte 0, 8 bytes | Apicurio's serializers before 3 (`Legacy8ByteIdHandler`) |
//! | [`Id::Guid`] | byte 1, 16 bytes | Confluent's serializers (`SchemaId`, magic byte V1) |
//! | the same two of Confluent | the same bytes in the header `__key_schema_id` or `__value_schema_id`; the value is bare | Confluent's `HeaderSchemaIdSerializer` |
//! | [`Id::Global`] | 8 bytes in `apicurio.key.globalId` or `apicurio.value.globalId`; the value is bare | Apicurio's serializers with headers (`SerdeHeaders`) |
//! | [`Id::Content`] | the same in `apicurio.key.contentId` or `apicurio.value.contentId` | the same |
//! | [`Id::Glue`] | byte 3, byte 0 or 5 (compressed by zlib), 16 bytes | AWS Glue's serializers (`AWSSchemaRegistryConstants`) |
//! | [`Id::Fingerprint`] | bytes C3 01, 8 bytes | Avro's single-object encoding |
//!
//! Numbers are big-endian, but for the fingerprint.
//!
//! **How forms are told apart.** A header counts before the bytes, as Confluent's deserializers have it. The first byte
//! tells all else apart but numbers of four bytes from those of eight, which look alike: a setting says which they are
//! ([`IdBytes`]). Text that is JSON begins with none of these bytes. Avro or Protobuf without any id may begin with any:
//! a topology says so, and nothing is looked for here.
//!
//! **Protobuf** says beside the id which message of the schema a record is ([`Framed::message`]):
//!
//! - Confluent: the indexes of the message and of those that it is nested in, each a zigzag varint, after their count; a
//!   lone 0 is the first message. They follow the id, in the header too
//! - Apicurio: the message's name, as a small message before the record's (`Ref`), or in the header
//!   `apicurio.protobuf.type`; or nothing, which is the first message
//! - AWS Glue: a varint, the message's place among all names of the schema's messages, sorted
//!
//! Behind a number may be Confluent's indexes, Apicurio's name or nothing. A name is taken for one if it looks like one:
//! as indexes it would be a message that is nested deeper than any. Bytes that cannot be indexes are the record. Where
//! they could be, but the schema has no such message, [`Framed::bare`] has them as the record.
//!
//! **Failure**: [`Unframed`].

use std::borrow::Cow;
use std::io::Read as _;

use flate2::read::ZlibDecoder;

use super::id::Id;
use super::varint::{self, NoVarint};
use super::written::Language;
use crate::record::Headers;

/// The most that a compressed record may inflate to: Kafka's records are far smaller.
const INFLATED_BYTES_MAX: usize = 20 << 20;
/// How deep a message may be nested in others.
pub const DEPTH_MAX: usize = 16;
/// The longest name of a message that Apicurio writes before it.
const NAME_BYTES_MAX: usize = 1_000;

const GLUE_VERSION: u8 = 3;
const GLUE_PLAIN: u8 = 0;
const GLUE_ZLIB: u8 = 5;
const SINGLE_OBJECT: [u8; 2] = [0xC3, 0x01];

/// How long numbers are after a zero byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdBytes {
    /// Confluent's, and Apicurio's since 3.
    #[default]
    Four,
    /// Apicurio's before 3.
    Eight,
}

/// Why there is no id, or no message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unframed {
    /// The bytes begin with no id, and no header has one.
    #[error("no schema id: the bytes begin with {first}, and no header names a schema")]
    NoId {
        /// The first bytes, as text.
        first: String,
    },
    /// The bytes end within the id.
    #[error("the bytes end within the schema id: {form} takes {takes} bytes, there are {has}")]
    CutOff {
        /// Whose id it would be.
        form: &'static str,
        /// How many bytes it takes.
        takes: usize,
        /// How many there are.
        has: usize,
    },
    /// A header that should hold an id does not.
    #[error("the header {name} holds no schema id: {why}")]
    Header {
        /// Its name.
        name: &'static str,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Apicurio's headers name the schema by something else.
    #[error(
        "the headers name the schema's artifact ({name}) and not its id: have the serializer write ids, which it does by \
         default"
    )]
    Artifact {
        /// A header that is there.
        name: &'static str,
    },
    /// AWS Glue's header asks for something that it never did.
    #[error("AWS Glue's header says compression {0}: only 0 (none) and 5 (zlib) are known")]
    Compression(u8),
    /// The compressed record cannot be inflated.
    #[error("the record, compressed by zlib, cannot be inflated: {0}")]
    Inflated(&'static str),
    /// Which message it is cannot be read.
    #[error("which Protobuf message it is cannot be read, at byte {at} behind the schema id: {why}")]
    Message {
        /// The byte behind the id.
        at: usize,
        /// What is wrong there.
        why: &'static str,
    },
}

/// Which message of a schema a Protobuf record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Message<'a> {
    /// By the indexes of the message and of those that it is nested in, from the outermost.
    Indexes(Indexes),
    /// By its name, within the package or with it.
    Name(&'a str),
    /// By its place among the full names of all messages of the schema, sorted.
    Sorted(u32),
    /// The schema's first.
    First,
}

/// Indexes of nested messages; at least one, none negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Indexes {
    numbers: [i32; DEPTH_MAX],
    count: usize,
}

impl Indexes {
    /// The first message of a schema.
    pub const FIRST: Self = Self { numbers: [0; DEPTH_MAX], count: 1 };

    /// From the outermost message to the innermost.
    pub fn as_slice(&self) -> &[i32] {
        &self.numbers[..self.count]
    }
}

/// A record's id, and what follows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Framed<'a> {
    /// What the record names its schema by.
    pub id: Id,
    /// What follows the id; for Protobuf, see [`Framed::message`].
    pub payload: Cow<'a, [u8]>,
    /// Whether a header says that it is Avro's JSON instead of its binary encoding (`apicurio.value.encoding`).
    pub is_json: bool,
    /// What follows the id in a header of Confluent's.
    behind: Option<&'a [u8]>,
    /// The message's name in a header of Apicurio's.
    name: Option<&'a str>,
}

/// Reads the id of a key or a value.
///
/// # Errors
/// There is none, or it is cut off.
pub fn read<'a>(
    bytes: &'a [u8],
    headers: Headers<'a>,
    is_key: bool,
    id_bytes: IdBytes,
) -> Result<Framed<'a>, Unframed> {
    match InHeaders::of(headers, is_key).framed(bytes)? {
        Some(framed) => Ok(framed),
        None => of_bytes(bytes, id_bytes),
    }
}

/// Whether a key or a value may carry an id: a look only, to tell such records from others. JSON never does.
pub fn is_framed(bytes: &[u8], headers: Headers<'_>, is_key: bool, id_bytes: IdBytes) -> bool {
    read(bytes, headers, is_key, id_bytes).is_ok()
}

fn of_bytes(bytes: &[u8], id_bytes: IdBytes) -> Result<Framed<'_>, Unframed> {
    let framed = |id, payload| Framed { id, payload: Cow::Borrowed(payload), is_json: false, behind: None, name: None };
    match (bytes, id_bytes) {
        ([0, rest @ ..], IdBytes::Four) => {
            let (number, payload) = taken("a number of four bytes", bytes, rest)?;
            Ok(framed(Id::Number(u32::from_be_bytes(number)), payload))
        }
        ([0, rest @ ..], IdBytes::Eight) => {
            let (number, payload) = taken("a number of eight bytes", bytes, rest)?;
            Ok(framed(Id::Long(u64::from_be_bytes(number)), payload))
        }
        ([1, rest @ ..], _) => {
            let (guid, payload) = taken("a GUID", bytes, rest)?;
            Ok(framed(Id::Guid(guid), payload))
        }
        ([GLUE_VERSION, rest @ ..], _) => {
            let ([compression, uuid @ ..], payload) = taken::<17>("AWS Glue's", bytes, rest)?;
            let payload = match compression {
                GLUE_PLAIN => Cow::Borrowed(payload),
                GLUE_ZLIB => Cow::Owned(inflated(payload)?),
                other => return Err(Unframed::Compression(other)),
            };
            Ok(Framed { payload, ..framed(Id::Glue(uuid), &[]) })
        }
        ([0xC3, 0x01, rest @ ..], _) => {
            let (print, payload) = taken("a fingerprint", bytes, rest)?;
            Ok(framed(Id::Fingerprint(u64::from_le_bytes(print)), payload))
        }
        _ => Err(Unframed::NoId { first: shown(bytes) }),
    }
}

/// The first bytes, in hexadecimal.
fn shown(bytes: &[u8]) -> String {
    match bytes {
        [] => "nothing".to_owned(),
        _ => bytes.iter().take(SINGLE_OBJECT.len()).map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().join(" "),
    }
}

/// Takes an id off `rest`, which is what follows the first bytes of `all`.
fn taken<'a, const N: usize>(form: &'static str, all: &[u8], rest: &'a [u8]) -> Result<([u8; N], &'a [u8]), Unframed> {
    match rest.split_first_chunk::<N>() {
        Some((id, payload)) => Ok((*id, payload)),
        None => Err(Unframed::CutOff { form, takes: all.len() - rest.len() + N, has: all.len() }),
    }
}

fn inflated(payload: &[u8]) -> Result<Vec<u8>, Unframed> {
    let mut bytes = Vec::new();
    let bound = u64::try_from(INFLATED_BYTES_MAX).unwrap_or(u64::MAX);
    let read = ZlibDecoder::new(payload).take(bound + 1).read_to_end(&mut bytes);
    read.map_err(|_| Unframed::Inflated("it is damaged"))?;
    match bytes.len() > INFLATED_BYTES_MAX {
        true => Err(Unframed::Inflated("it is larger than 20 MiB")),
        false => Ok(bytes),
    }
}

/// The names of the headers of a key or of a value.
struct Names {
    confluent: &'static str,
    global: &'static str,
    content: &'static str,
    encoding: &'static str,
    message: &'static str,
    artifact: [&'static str; 2],
}

static OF_KEY: Names = Names {
    confluent: "__key_schema_id",
    global: "apicurio.key.globalId",
    content: "apicurio.key.contentId",
    encoding: "apicurio.key.encoding",
    message: "apicurio.protobuf.type.key",
    artifact: ["apicurio.key.artifactId", "apicurio.key.contentHash"],
};
static OF_VALUE: Names = Names {
    confluent: "__value_schema_id",
    global: "apicurio.value.globalId",
    content: "apicurio.value.contentId",
    encoding: "apicurio.value.encoding",
    message: "apicurio.protobuf.type",
    artifact: ["apicurio.value.artifactId", "apicurio.value.contentHash"],
};

/// What a record's headers say of a schema: of a header that is there more than once, the last one.
struct InHeaders<'a> {
    names: &'static Names,
    confluent: Option<Option<&'a [u8]>>,
    global: Option<Option<&'a [u8]>>,
    content: Option<Option<&'a [u8]>>,
    encoding: Option<&'a [u8]>,
    message: Option<&'a [u8]>,
    artifact: Option<&'static str>,
}

impl<'a> InHeaders<'a> {
    fn of(headers: Headers<'a>, is_key: bool) -> Self {
        let names = if is_key { &OF_KEY } else { &OF_VALUE };
        let mut found =
            Self { names, confluent: None, global: None, content: None, encoding: None, message: None, artifact: None };
        for header in headers.iter() {
            let is = |name: &str| header.name == name.as_bytes();
            // All of these begin so, and hardly any other does.
            if !header.name.starts_with(b"__") && !header.name.starts_with(b"apicurio.") {
                continue;
            }
            match () {
                () if is(names.confluent) => found.confluent = Some(header.value),
                () if is(names.global) => found.global = Some(header.value),
                () if is(names.content) => found.content = Some(header.value),
                () if is(names.encoding) => found.encoding = header.value,
                () if is(names.message) => found.message = header.value,
                () => {
                    let artifact = names.artifact.iter().find(|name| is(name));
                    found.artifact = artifact.copied().or(found.artifact);
                }
            }
        }
        found
    }

    /// The id, with `bytes` behind it; `None` if no header is about a schema.
    fn framed(&self, bytes: &'a [u8]) -> Result<Option<Framed<'a>>, Unframed> {
        let is_json = self.encoding == Some(b"JSON");
        let name = self.message.and_then(|name| std::str::from_utf8(name).ok()).filter(|name| is_name(name));
        let framed = |id, behind| Ok(Some(Framed { id, payload: Cow::Borrowed(bytes), is_json, behind, name }));
        if let Some(value) = self.confluent {
            let (id, behind) = self.of_confluent(value.unwrap_or_default())?;
            return framed(id, Some(behind));
        }
        for (name, value, id) in [
            (self.names.content, self.content, Id::Content as fn(u64) -> Id),
            (self.names.global, self.global, Id::Global),
        ] {
            let Some(value) = value else { continue };
            let number = <[u8; 8]>::try_from(value.unwrap_or_default());
            let number = number.map_err(|_| Unframed::Header { name, why: "an id takes eight bytes" })?;
            return framed(id(u64::from_be_bytes(number)), None);
        }
        match self.artifact {
            // Some serializers name the artifact beside an id in the bytes.
            Some(name) if !bytes.starts_with(&[0]) => Err(Unframed::Artifact { name }),
            _ => Ok(None),
        }
    }

    fn of_confluent(&self, value: &'a [u8]) -> Result<(Id, &'a [u8]), Unframed> {
        let unusable = |why| Unframed::Header { name: self.names.confluent, why };
        match value {
            [0, rest @ ..] => {
                let (number, behind) = rest.split_first_chunk().ok_or_else(|| unusable("a number takes four bytes"))?;
                Ok((Id::Number(u32::from_be_bytes(*number)), behind))
            }
            [1, rest @ ..] => {
                let (guid, behind) = rest.split_first_chunk().ok_or_else(|| unusable("a GUID takes sixteen bytes"))?;
                Ok((Id::Guid(*guid), behind))
            }
            _ => Err(unusable("it begins with neither 0 nor 1")),
        }
    }
}

impl Framed<'_> {
    /// For Protobuf: which message of the schema it is, and that message's bytes.
    ///
    /// # Errors
    /// [`Unframed::Message`].
    pub fn message(&self) -> Result<(Message<'_>, &[u8]), Unframed> {
        let payload = self.payload.as_ref();
        match (self.id, self.behind) {
            (_, Some(behind)) => {
                let (indexes, rest) = indexes(behind)?;
                match rest.is_empty() {
                    true => Ok((Message::Indexes(indexes), payload)),
                    false => Err(unread(behind, rest, "there are more bytes in the header than indexes")),
                }
            }
            (Id::Number(_), None) => Ok(match (type_ref(payload), indexes(payload)) {
                // Shorter names look like the indexes of messages that there may be.
                (Some((name, rest)), found) if name.len() > 2 || found.is_err() => (Message::Name(name), rest),
                (_, Ok((indexes, rest))) => (Message::Indexes(indexes), rest),
                (_, Err(_)) => (Message::First, payload),
            }),
            (Id::Guid(_), None) => indexes(payload).map(|(indexes, rest)| (Message::Indexes(indexes), rest)),
            (Id::Long(_) | Id::Global(_) | Id::Content(_), None) => Ok(match (self.name, type_ref(payload)) {
                (Some(name), Some((same, rest))) if same == name => (Message::Name(name), rest),
                (Some(name), _) => (Message::Name(name), payload),
                (None, Some((name, rest))) => (Message::Name(name), rest),
                (None, None) => (Message::First, payload),
            }),
            (Id::Glue(_), None) => {
                let (place, rest) = varint(payload, payload)?;
                Ok((Message::Sorted(place), rest))
            }
            (Id::Fingerprint(_), None) => Ok((Message::First, payload)),
        }
    }

    /// The bytes of the record itself, and for Protobuf which message it is.
    ///
    /// # Errors
    /// As [`Framed::message`].
    pub fn record(&self, language: Language) -> Result<(Option<Message<'_>>, &[u8]), Unframed> {
        match language {
            Language::Protobuf => self.message().map(|(message, rest)| (Some(message), rest)),
            Language::Avro | Language::JsonSchema => Ok((None, self.payload.as_ref())),
        }
    }
}

/// Confluent's indexes, and what follows them.
fn indexes(bytes: &[u8]) -> Result<(Indexes, &[u8]), Unframed> {
    let (count, mut rest) = zigzag(bytes, bytes)?;
    if count == 0 {
        return Ok((Indexes::FIRST, rest));
    }
    let count = usize::try_from(count).ok().filter(|count| *count <= DEPTH_MAX);
    let count = count.ok_or_else(|| unread(bytes, bytes, "no message is nested so deep"))?;
    let mut numbers = [0; DEPTH_MAX];
    for number in &mut numbers[..count] {
        let (index, after) = zigzag(bytes, rest)?;
        if index < 0 {
            return Err(unread(bytes, rest, "an index is negative"));
        }
        (*number, rest) = (index, after);
    }
    Ok((Indexes { numbers, count }, rest))
}

/// The error at the beginning of `rest`, a part of `all`.
fn unread(all: &[u8], rest: &[u8], why: &'static str) -> Unframed {
    Unframed::Message { at: all.len() - rest.len(), why }
}

/// A varint at the beginning of `rest`.
fn varint<'a>(all: &[u8], rest: &'a [u8]) -> Result<(u32, &'a [u8]), Unframed> {
    let too_long = |_| unread(all, rest, "a number takes more than 32 bits");
    match varint::read(rest, 32) {
        Ok((number, length)) => Ok((u32::try_from(number).map_err(too_long)?, &rest[length..])),
        Err(NoVarint::TooLong) => Err(unread(all, rest, "a number takes more than 32 bits")),
        Err(NoVarint::CutOff) => Err(unread(all, rest, "the bytes end there")),
    }
}

fn zigzag<'a>(all: &[u8], rest: &'a [u8]) -> Result<(i32, &'a [u8]), Unframed> {
    let (number, after) = varint(all, rest)?;
    Ok(((number >> 1).cast_signed() ^ -(number & 1).cast_signed(), after))
}

/// The name that Apicurio writes before a message, and what follows it: a message `Ref` whose field 1 is the name, after
/// its length.
fn type_ref(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (length, rest) = varint(bytes, bytes).ok()?;
    let (of_ref, message) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    let [0x0A, field @ ..] = of_ref else { return None };
    let (length, name) = varint(field, field).ok()?;
    if usize::try_from(length).ok()? != name.len() {
        return None;
    }
    let name = std::str::from_utf8(name).ok().filter(|name| is_name(name))?;
    Some((name, message))
}

/// Whether a text may be the name of a message.
fn is_name(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.';
    let begins = |byte: &u8| byte.is_ascii_alphabetic() || *byte == b'_';
    text.len() <= NAME_BYTES_MAX && text.as_bytes().first().is_some_and(begins) && text.bytes().all(fits)
}

#[cfg(test)]
mod tests;
