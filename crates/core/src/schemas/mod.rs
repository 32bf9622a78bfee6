//! Schemas: how records name them, where they come from, and what they declare.
//!
//! - [`id`]: the ids of schemas; [`framing`]: finding the id in a record's bytes and headers
//! - [`which`]: the message of its schema that a Protobuf record is
//! - [`written`]: the text of a schema, and the texts of the schemas that it refers to
//! - [`known`]: looking up a schema by its id, without ever waiting
//! - [`files`]: schemas in a folder; [`fingerprint`]: the fingerprint by which single-object Avro names a schema
//! - [`avro`], [`protobuf`]: parsed schemas, with every name resolved
//! - `varint`: integers of variable length
//!
//! This room does not know which fields of a record are wanted: `dedup` compiles a schema and the wanted places to a
//! plan.
//!
//! **Invariants.** A look-up never waits for a network or a disk. A parsed schema is finite, and each of its names
//! leads to a type; types may contain themselves. Parsing takes time and memory in proportion to the text.
//!
//! **Failure.** No bytes and no text can cause a panic. An invalid schema gives a [`SchemaError`], and bytes that do
//! not match their schema give an [`Undecodable`]: each says what is wrong, and where.

pub mod avro;
mod error;
pub mod files;
pub mod fingerprint;
pub mod framing;
pub mod id;
pub mod known;
pub mod protobuf;
pub(crate) mod varint;
pub mod which;
pub mod written;

pub use error::{SchemaError, Undecodable};
pub use files::Files;
pub use framing::{Framed, IdBytes, Unframed};
pub use id::Id;
pub use known::{LookUp, Schemas, Sources};
pub use which::{Unclear, Which};
pub use written::{Language, Reference, Written};

/// Whether a step of a path is the number of an array's element: digits without leading zeros.
pub(crate) fn is_index(step: &str) -> bool {
    step == "0" || !step.starts_with('0') && !step.is_empty() && step.bytes().all(|byte| byte.is_ascii_digit())
}
