//! What a record means, and whether it is new. No I/O, no clock, no thread: given the same past, the same record always
//! gets the same verdict, in the engine, `check`, `replay` and the tests alike.
//!
//! - [`Rules`] say how records are identified and versioned, compiled from a topology or built by hand.
//! - [`Reader`] reads identity and version from a record's bytes in one pass, without building a tree.
//! - [`decide()`] compares them with what is remembered; [`mod@decide`] documents the order of all steps.
//! - [`evaluate`] takes a record through all of that, against a memory that the caller provides.
//! - [`Progress`] is what decisions depend on besides the entries; [`epochs`] says which versions are comparable.
//! - [`Model`] does all of it for one partition, in memory.
//!
//! **Invariants.** Identities are equal if and only if their bytes are ([`identity`]); versions sort as their bytes do
//! ([`version`]). No record can cause a panic, or more work than the [`Limits`] allow. Once the buffers have grown,
//! reading and deciding allocate nothing unless a record is rejected.
//!
//! **Failure.** A record that cannot be judged gives a [`Rejection`]: a value with its reason, never an error that would
//! stop the other records. The rules say what to do with it ([`Actions`]).
//!
//! # Example
//!
//! ```
//! use std::sync::Arc;
//!
//! use ratchet_core::dedup::{Identity, Model, Path, Reason, Rules, Verdict, Version};
//! use ratchet_core::record::{Headers, Record};
//!
//! # fn main() -> Result<(), ratchet_core::dedup::path::Error> {
//! let identity = Identity::of_paths([Path::parse("value.order_id")?, Path::parse("value.operation")?]);
//! let version = Version::integer(Path::parse("value.version")?);
//! let mut model = Model::new(Arc::new(Rules::new(identity, Some(version))));
//!
//! let charges: [&[u8]; 3] = [
//!     br#"{"order_id": 7, "operation": "charge", "version": 2}"#,
//!     br#"{"operation": "charge", "order_id": 7.0, "version": "2"}"#,
//!     br#"{"order_id": 7, "operation": "charge", "version": 1}"#,
//! ];
//! let mut decisions = charges.iter().enumerate().map(|(offset, value)| {
//!     let record = Record {
//!         topic: "payments",
//!         partition: 0,
//!         offset: offset as i64,
//!         timestamp: None,
//!         key: None,
//!         value: Some(value),
//!         headers: Headers::default(),
//!     };
//!     model.judge(&record, 0)
//! });
//! assert_eq!(decisions.next().map(|d| d.reason), Some(Reason::First));
//! // The same identity and version, but written differently: dropped, and told apart from a repetition.
//! assert_eq!(decisions.next().map(|d| d.reason), Some(Reason::VersionTied));
//! assert_eq!(decisions.next().map(|d| d.verdict), Some(Verdict::Stale));
//! drop(decisions);
//! assert_eq!(model.identity().as_deref(), Some(r#"[7,"charge"]"#));
//! # Ok(())
//! # }
//! ```

mod avro;
mod by_schema;
pub mod decide;
mod document;
pub mod epochs;
pub mod evaluate;
pub mod explain;
mod extracted;
mod fingerprint;
pub mod identity;
mod json;
mod logical;
mod model;
mod number;
pub mod path;
pub mod progress;
mod protobuf;
mod reader;
pub mod rules;
mod steps;
mod timestamp;
pub mod version;
mod vocabulary;
pub mod written;

pub use decide::{Against, Candidate, Decision, Known, Remember, check_time, combine, decide, is_expired, reject};
pub use epochs::Epochs;
pub use evaluate::{Evaluation, Evaluator, Kept, Memory, Subject};
pub use fingerprint::Fingerprinter;
pub use identity::{describe as describe_identity, describe_scope};
pub use model::{Carried, Model};
pub use path::{Number, Path, Scalar, Source};
pub use progress::{Bounds, Progress, RANGES_MAX, Ranges};
pub use reader::{Decoded, Decoder, Field, Fields, Reader, Reading, Rejection, Row, Wanted};
pub use rules::{
    ADDED_PREFIX, Actions, Contents, ContentsPart, Epoch, EpochPart, Identity, IdentityPart, Kinds, Limits, Names,
    OnNull, Places, Retention, Rules, Version, VersionPart,
};
pub use timestamp::{Moment, parse as parse_timestamp};
pub use version::describe as describe_version;
pub use vocabulary::{Action, Format, Kind, MissingPart, Reads, Reason, Refresh, TimeUnit, Verdict, VersionKind};

#[cfg(test)]
mod tests;
