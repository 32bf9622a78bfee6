//! Schemas: how a record says which one it was written by, where they come from, and what they mean, with every name
//! resolved.
//!
//! - [`id`]: the ids of schemas; [`framing`]: finding a record's id in its bytes and headers
//! - [`written`]: a schema's text, with those that it refers to
//! - [`known`]: looking a schema up by its id, without ever waiting
//! - [`files`]: schemas in a folder; [`fingerprint`]: what single-object Avro names a schema by
//! - [`avro`], [`protobuf`]: schemas that were parsed
//!
//! What is wanted of a record is not known here: `dedup` compiles a schema and the wanted places to a plan.
//!
//! **Invariants.** A look-up never waits for a network or a disk. A schema that was parsed is finite, and each of its names
//! leads to a type; types may hold themselves. Parsing takes time and memory in proportion to the text, whatever the text
//! is.
//!
//! **Failure.** Foreign bytes never end a thread. A text that is no schema gives a [`SchemaError`]; bytes that are no
//! record of their schema, an [`Undecodable`]; each says what was found, and where.

pub mod avro;
mod error;
pub mod files;
pub mod fingerprint;
pub mod framing;
pub mod id;
pub mod known;
pub mod protobuf;
pub(crate) mod varint;
pub mod written;

pub use error::{SchemaError, Undecodable};
pub use files::Files;
pub use framing::{Framed, IdBytes, Message, Unframed};
pub use id::Id;
pub use known::{LookUp, Schemas, Sources};
pub use written::{Language, Reference, Written};

/// Whether a step of a path is the number of an array's element: digits without leading zeros.
pub(crate) fn is_index(step: &str) -> bool {
    step == "0" || !step.starts_with('0') && !step.is_empty() && step.bytes().all(|byte| byte.is_ascii_digit())
}
