//! The message of its schema that a Protobuf record is, and where its bytes begin.
//!
//! | written by | the record names its message by |
//! |---|---|
//! | Confluent | the indexes of the message and of the messages around it, from the outermost: each a zigzag varint, after their count; a single 0 stands for the first message. They follow the id, in a header as well |
//! | Apicurio | the message's name: in a small message before the record (`Ref`), in the header `apicurio.protobuf.type`, or in both. By its settings, Confluent's indexes follow the name or replace it, or the record names nothing |
//! | AWS Glue | a varint: the message's place among the sorted names of all messages |
//!
//! **How forms are told apart.** Indexes follow a GUID, and an id in Confluent's header; a place follows Glue's id. Any of
//! the other forms may follow a number or an id in Apicurio's headers. There the schema decides: bytes are a name if the
//! schema has a message with that name, indexes if it has a message with those indexes, and otherwise the record itself if
//! the schema has a single message. No record begins with a byte below 8, since no field has the number 0.
//!
//! The message is never guessed. A record that may be either of two messages, or that names none although the schema has
//! several, is an error.
//!
//! **Failure**: [`Unclear`].

use super::framing::{self, Framed, Indexes, Unframed};
use super::id::Id;
use super::protobuf::{At, Schema};

/// A message begins with no byte below this one, which would be the key of a field with number 0.
const FIRST_KEY: u8 = 8;

/// The message that a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Which {
    /// The number of the message in its schema.
    pub message: usize,
    /// Where the record begins in the bytes after the id.
    pub from: usize,
}

/// Why the message of a record is not known. Except for the first one, the texts continue a sentence about the schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unclear {
    /// The bytes that name the message cannot be read.
    #[error(transparent)]
    Unread(#[from] Unframed),
    /// The schema has no such message.
    #[error("has no message {0}, which the record names")]
    NoSuch(String),
    /// The bytes before the record name one message as a name, and another as indexes.
    #[error("has the messages {0} and {1}, and the bytes before the record can be read as either of them")]
    Either(String, String),
    /// The record names two messages: in a header, as a name or as indexes.
    #[error("has the messages {0} and {1}, and the record names both")]
    Both(String, String),
    /// The record names no message, and the schema does not have exactly one.
    #[error("has {0} messages, and the record names none")]
    Unsaid(usize),
}

/// Finds the message of a record with a Protobuf schema.
///
/// # Errors
/// The message is not clear.
pub fn which(framed: &Framed<'_>, schema: &Schema) -> Result<Which, Unclear> {
    let payload = framed.payload.as_ref();
    match (framed.id, framed.after_id()) {
        (_, Some(after_id)) => {
            let (indexes, rest) = framing::indexes(after_id)?;
            match rest.is_empty() {
                true => Ok(Which { message: indexed(schema, indexes)?, from: 0 }),
                false => {
                    let why = "bytes follow the indexes in the header";
                    Err(Unframed::Message { at: after_id.len() - rest.len(), why }.into())
                }
            }
        }
        (Id::Guid(_), None) => {
            let (indexes, rest) = framing::indexes(payload)?;
            Ok(Which { message: indexed(schema, indexes)?, from: payload.len() - rest.len() })
        }
        (Id::Glue(_), None) => {
            let (place, rest) = framing::varint(payload, payload)?;
            let message = usize::try_from(place).ok().and_then(|place| schema.sorted(place));
            let message = message.ok_or_else(|| Unclear::NoSuch(format!("at the place {place} of the sorted ones")))?;
            Ok(Which { message, from: payload.len() - rest.len() })
        }
        (Id::Fingerprint(_), None) => Ok(Which { message: only(schema)?, from: 0 }),
        (Id::Number(_) | Id::Long(_) | Id::Global(_) | Id::Content(_), None) => {
            match named(payload, framed.message_name(), schema)? {
                Some(named) => after_name(payload, named, schema),
                None => after_number(payload, schema),
            }
        }
    }
}

/// The message that Apicurio's header or the bytes before the record name.
fn named(payload: &[u8], header: Option<&str>, schema: &Schema) -> Result<Option<Which>, Unclear> {
    let in_header = header.map(|name| number(schema, name)).transpose()?;
    let Some((name, rest)) = framing::type_ref(payload) else {
        return Ok(in_header.map(|message| Which { message, from: 0 }));
    };
    let from = payload.len() - rest.len();
    let as_indexes = framing::indexes(payload).map_or(At::Nothing, |(indexes, _)| schema.at(indexes.as_slice()));
    match (in_header, schema.named(name), as_indexes) {
        (Some(message), Some(same), _) if message == same => Ok(Some(Which { message, from })),
        (Some(message), Some(other), _) => Err(Unclear::Both(shown(schema, message), shown(schema, other))),
        // The record itself begins with bytes that look like a name.
        (Some(message), None, _) => Ok(Some(Which { message, from: 0 })),
        (None, Some(message), At::Nothing) => Ok(Some(Which { message, from })),
        (None, Some(message), At::Message(other) | At::Either(other, _)) => {
            Err(Unclear::Either(shown(schema, message), shown(schema, other)))
        }
        (None, None, At::Nothing) => Err(no_such(name)),
        (None, None, At::Message(_) | At::Either(..)) => Ok(None),
    }
}

/// The message of a record after its name, which the indexes of the same message may follow.
fn after_name(payload: &[u8], named: Which, schema: &Schema) -> Result<Which, Unclear> {
    let rest = &payload[named.from..];
    if rest.first().is_none_or(|byte| *byte >= FIRST_KEY) {
        return Ok(named);
    }
    let (indexes, rest) = framing::indexes(rest)?;
    match indexed(schema, indexes)? {
        message if message == named.message => Ok(Which { message, from: payload.len() - rest.len() }),
        other => Err(Unclear::Both(shown(schema, named.message), shown(schema, other))),
    }
}

/// The message with the indexes at the beginning; without indexes, the only message of the schema.
fn after_number(payload: &[u8], schema: &Schema) -> Result<Which, Unclear> {
    let is_record = payload.first().is_none_or(|byte| *byte >= FIRST_KEY);
    match framing::indexes(payload) {
        Ok((indexes, rest)) if !is_record || schema.at(indexes.as_slice()) != At::Nothing => {
            Ok(Which { message: indexed(schema, indexes)?, from: payload.len() - rest.len() })
        }
        Err(unread) if !is_record => Err(unread.into()),
        _ => Ok(Which { message: only(schema)?, from: 0 }),
    }
}

fn indexed(schema: &Schema, indexes: Indexes) -> Result<usize, Unclear> {
    match schema.at(indexes.as_slice()) {
        At::Message(message) => Ok(message),
        At::Nothing => Err(Unclear::NoSuch(format!("with the indexes {:?}", indexes.as_slice()))),
        At::Either(one, other) => Err(Unclear::Either(shown(schema, one), shown(schema, other))),
    }
}

fn number(schema: &Schema, name: &str) -> Result<usize, Unclear> {
    schema.named(name).ok_or_else(|| no_such(name))
}

fn no_such(name: &str) -> Unclear {
    Unclear::NoSuch(format!("`{name}`"))
}

fn only(schema: &Schema) -> Result<usize, Unclear> {
    schema.only().map_err(Unclear::Unsaid)
}

/// The name of a message, for an error.
fn shown(schema: &Schema, message: usize) -> String {
    format!("`{}`", schema.graph().messages[message].name)
}

#[cfg(test)]
mod tests;
