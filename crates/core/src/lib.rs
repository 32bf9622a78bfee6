//! The rooms of ratchet that need neither a cluster nor a store: what a record means and whether it is new, the bytes
//! of all that is persisted, and how YAML is read. Fuzzing needs no more.
//!
//! For ratchet itself: the package `ratchet` has the public interface.
#![deny(missing_docs)]
// Foreign input never ends a thread: errors are returned, and `expect` names each invariant. Indices are in bounds by
// the code around them, which the fuzzers test.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::panic, clippy::todo, clippy::unimplemented))]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests wait and measure by the machine's clocks"))]

pub mod capture;
pub mod dedup;
pub mod encodings;
pub mod folder;
pub mod format;
pub mod lock;
pub mod logs;
pub mod record;
pub mod request;
pub mod sabotage;
pub mod schemas;
pub mod words;
pub mod yaml;
