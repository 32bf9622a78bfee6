//! Finding the id of a record's schema, in the record's headers or at the beginning of its bytes.
//!
//! | form | bytes | written by |
//! |---|---|---|
//! | [`Id::Number`] | byte 0, 4 bytes | Confluent (`SchemaId`, V0), Apicurio since 3 (`Default4ByteIdHandler`) |
//! | [`Id::Long`] | byte 0, 8 bytes | Apicurio before 3 (`Legacy8ByteIdHandler`) |
//! | [`Id::Guid`] | byte 1, 16 bytes | Confluent (`SchemaId`, V1) |
//! | one of these two | in the header `__key_schema_id`, `__value_schema_id` | Confluent (`HeaderSchemaIdSerializer`) |
//! | [`Id::Global`] | 8 bytes in `apicurio.key.globalId`, `apicurio.value.globalId` | Apicurio (`SerdeHeaders`) |
//! | [`Id::Content`] | 8 bytes in `apicurio.key.contentId`, `apicurio.value.contentId` | the same |
//! | [`Id::Glue`] | byte 3, byte 0 or 5 (zlib), 16 bytes | AWS Glue (`AWSSchemaRegistryConstants`) |
//! | [`Id::Fingerprint`] | bytes C3 01, 8 bytes | Avro's single-object encoding |
//!
//! Numbers are big-endian; the fingerprint is little-endian. With an id in a header, the value is the payload alone.
//!
//! **How forms are told apart.** A header takes precedence over the bytes, as in Confluent's deserializers. Otherwise
//! the first byte determines the form, except that numbers of four and of eight bytes look alike: a setting says which
//! of them a topic has ([`IdBytes`]). JSON begins with none of these bytes. Avro and Protobuf without an id may begin
//! with any byte and are not recognised.
//!
//! **Protobuf** records also name the message of the schema that they are: see [`super::which`].
//!
//! **Failure**: [`Unframed`].

use std::borrow::Cow;
use std::io::Read as _;

use flate2::read::ZlibDecoder;

use super::id::Id;
use super::varint::{self, NoVarint};
use crate::record::Headers;

/// The maximum size of a compressed record once inflated: Kafka's records are far smaller.
const INFLATED_BYTES_MAX: usize = 20 << 20;
/// The maximum depth at which a message is nested in others.
pub const DEPTH_MAX: usize = 16;
/// The maximum length of a message's name in Apicurio's form.
const NAME_BYTES_MAX: usize = 1_000;

const GLUE_VERSION: u8 = 3;
const GLUE_PLAIN: u8 = 0;
const GLUE_ZLIB: u8 = 5;
const SINGLE_OBJECT: [u8; 2] = [0xC3, 0x01];

/// The length of the number after a zero byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdBytes {
    /// Four bytes: Confluent's serializers, and Apicurio's since 3.
    #[default]
    Four,
    /// Eight bytes: Apicurio's serializers before 3.
    Eight,
}

/// Why a record's schema id, or its Protobuf message, cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unframed {
    /// Neither the bytes nor a header has an id.
    #[error("no schema id: the bytes begin with {first}, and no header names a schema")]
    NoId {
        /// The first bytes, in hexadecimal.
        first: String,
    },
    /// The bytes end within the id.
    #[error("the bytes end within the schema id: {form} takes {takes} bytes, there are {has}")]
    CutOff {
        /// What the bytes begin with.
        form: &'static str,
        /// The number of bytes that it takes.
        takes: usize,
        /// The number of bytes that are there.
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
    /// Apicurio's headers name the schema's artifact, and not an id.
    #[error(
        "the headers name the schema's artifact ({name}) instead of its id: let the serializer write ids, which is its \
         default"
    )]
    Artifact {
        /// The name of such a header.
        name: &'static str,
    },
    /// AWS Glue's header has an unknown compression.
    #[error("AWS Glue's header says compression {0}: only 0 (none) and 5 (zlib) are known")]
    Compression(u8),
    /// The compressed record cannot be inflated.
    #[error("the record, compressed by zlib, cannot be inflated: {0}")]
    Inflated(&'static str),
    /// The Protobuf message that the record is cannot be read.
    #[error("the name or the indexes of the Protobuf message cannot be read, at byte {at} after the schema id: {why}")]
    Message {
        /// The offset after the id.
        at: usize,
        /// What is wrong there.
        why: &'static str,
    },
}

/// The indexes of a message and of the messages around it, from the outermost: at least one, none negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Indexes {
    numbers: [i32; DEPTH_MAX],
    count: usize,
}

impl Indexes {
    /// The first message of a schema.
    pub const FIRST: Self = Self { numbers: [0; DEPTH_MAX], count: 1 };

    /// The indexes, from the outermost message to the innermost.
    pub fn as_slice(&self) -> &[i32] {
        &self.numbers[..self.count]
    }
}

/// A key or a value, split into the id of its schema and the bytes after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Framed<'a> {
    /// The id of the schema.
    pub id: Id,
    /// The bytes after the id; for Protobuf, see [`super::which`].
    pub payload: Cow<'a, [u8]>,
    /// Whether a header says that the payload is in Avro's JSON encoding, not the binary one
    /// (`apicurio.value.encoding`).
    pub is_json: bool,
    /// The bytes after the id in Confluent's header.
    after_id: Option<&'a [u8]>,
    /// The message's name in Apicurio's header.
    name: Option<&'a str>,
}

/// Reads the id of a key or a value.
///
/// # Errors
/// There is no complete id.
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

/// Whether a key or a value seems to carry an id. JSON never does.
pub fn is_framed(bytes: &[u8], headers: Headers<'_>, is_key: bool, id_bytes: IdBytes) -> bool {
    read(bytes, headers, is_key, id_bytes).is_ok()
}

fn of_bytes(bytes: &[u8], id_bytes: IdBytes) -> Result<Framed<'_>, Unframed> {
    let framed =
        |id, payload| Framed { id, payload: Cow::Borrowed(payload), is_json: false, after_id: None, name: None };
    match (bytes, id_bytes) {
        ([0, rest @ ..], IdBytes::Four) => {
            let (number, payload) = take_id("the prefix with a number", bytes, rest)?;
            Ok(framed(Id::Number(u32::from_be_bytes(number)), payload))
        }
        ([0, rest @ ..], IdBytes::Eight) => {
            let (number, payload) = take_id("the prefix with a number", bytes, rest)?;
            Ok(framed(Id::Long(u64::from_be_bytes(number)), payload))
        }
        ([1, rest @ ..], _) => {
            let (guid, payload) = take_id("the prefix with a GUID", bytes, rest)?;
            Ok(framed(Id::Guid(guid), payload))
        }
        ([GLUE_VERSION, rest @ ..], _) => {
            let ([compression, uuid @ ..], payload) = take_id::<17>("AWS Glue's header", bytes, rest)?;
            let payload = match compression {
                GLUE_PLAIN => Cow::Borrowed(payload),
                GLUE_ZLIB => Cow::Owned(inflate(payload)?),
                other => return Err(Unframed::Compression(other)),
            };
            Ok(Framed { payload, ..framed(Id::Glue(uuid), &[]) })
        }
        ([0xC3, 0x01, rest @ ..], _) => {
            let (print, payload) = take_id("the prefix with a fingerprint", bytes, rest)?;
            Ok(framed(Id::Fingerprint(u64::from_le_bytes(print)), payload))
        }
        _ => Err(Unframed::NoId { first: first_bytes(bytes) }),
    }
}

/// The first bytes, in hexadecimal.
fn first_bytes(bytes: &[u8]) -> String {
    match bytes {
        [] => "nothing".to_owned(),
        _ => bytes.iter().take(SINGLE_OBJECT.len()).map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().join(" "),
    }
}

/// Splits the id from `rest`, which is the end of `all`.
fn take_id<'a, const N: usize>(
    form: &'static str,
    all: &[u8],
    rest: &'a [u8],
) -> Result<([u8; N], &'a [u8]), Unframed> {
    match rest.split_first_chunk::<N>() {
        Some((id, payload)) => Ok((*id, payload)),
        None => Err(Unframed::CutOff { form, takes: all.len() - rest.len() + N, has: all.len() }),
    }
}

fn inflate(payload: &[u8]) -> Result<Vec<u8>, Unframed> {
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

/// The headers of a record that concern its schema; the last one of each name.
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
            // All names begin with one of these, and few other headers do.
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

    /// The id in a header, with `bytes` as the payload; `None` if no header concerns a schema.
    fn framed(&self, bytes: &'a [u8]) -> Result<Option<Framed<'a>>, Unframed> {
        let is_json = self.encoding == Some(b"JSON");
        let name = self.message.and_then(|name| std::str::from_utf8(name).ok()).filter(|name| is_name(name));
        let framed = |id, after_id| Ok(Some(Framed { id, payload: Cow::Borrowed(bytes), is_json, after_id, name }));
        if let Some(value) = self.confluent {
            let (id, after_id) = self.of_confluent(value.unwrap_or_default())?;
            return framed(id, Some(after_id));
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
                let (number, after_id) =
                    rest.split_first_chunk().ok_or_else(|| unusable("a number takes four bytes"))?;
                Ok((Id::Number(u32::from_be_bytes(*number)), after_id))
            }
            [1, rest @ ..] => {
                let (guid, after_id) =
                    rest.split_first_chunk().ok_or_else(|| unusable("a GUID takes sixteen bytes"))?;
                Ok((Id::Guid(*guid), after_id))
            }
            _ => Err(unusable("it begins with neither 0 nor 1")),
        }
    }
}

impl<'a> Framed<'a> {
    /// The bytes after the id in Confluent's header.
    pub(super) fn after_id(&self) -> Option<&'a [u8]> {
        self.after_id
    }

    /// The name of the Protobuf message in Apicurio's header.
    pub(super) fn message_name(&self) -> Option<&'a str> {
        self.name
    }
}

/// Splits Confluent's indexes from the bytes after them.
pub(super) fn indexes(bytes: &[u8]) -> Result<(Indexes, &[u8]), Unframed> {
    let (count, mut rest) = zigzag(bytes, bytes)?;
    if count == 0 {
        return Ok((Indexes::FIRST, rest));
    }
    let count = usize::try_from(count).ok().filter(|count| *count <= DEPTH_MAX);
    let count = count.ok_or_else(|| message_error(bytes, bytes, "no message is nested so deep"))?;
    let mut numbers = [0; DEPTH_MAX];
    for number in &mut numbers[..count] {
        let (index, after) = zigzag(bytes, rest)?;
        if index < 0 {
            return Err(message_error(bytes, rest, "an index is negative"));
        }
        (*number, rest) = (index, after);
    }
    Ok((Indexes { numbers, count }, rest))
}

/// The error at the beginning of `rest`, a part of `all`.
fn message_error(all: &[u8], rest: &[u8], why: &'static str) -> Unframed {
    Unframed::Message { at: all.len() - rest.len(), why }
}

/// A varint at the beginning of `rest`.
pub(super) fn varint<'a>(all: &[u8], rest: &'a [u8]) -> Result<(u32, &'a [u8]), Unframed> {
    match varint::read(rest, 32) {
        // It has 32 bits.
        Ok((number, length)) => Ok((number as u32, &rest[length..])),
        Err(NoVarint::TooLong) => Err(message_error(all, rest, "a number takes more than 32 bits")),
        Err(NoVarint::CutOff) => Err(message_error(all, rest, "the bytes end there")),
    }
}

fn zigzag<'a>(all: &[u8], rest: &'a [u8]) -> Result<(i32, &'a [u8]), Unframed> {
    let (number, after) = varint(all, rest)?;
    Ok(((number >> 1).cast_signed() ^ -(number & 1).cast_signed(), after))
}

/// Splits the name that Apicurio writes before a message from the message. The name is field 1 of a message `Ref`,
/// which follows its length.
pub(super) fn type_ref(bytes: &[u8]) -> Option<(&str, &[u8])> {
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

/// Whether a message may have this name.
fn is_name(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.';
    let begins = |byte: &u8| byte.is_ascii_alphabetic() || *byte == b'_';
    text.len() <= NAME_BYTES_MAX && text.as_bytes().first().is_some_and(begins) && text.bytes().all(fits)
}

#[cfg(test)]
mod tests;
