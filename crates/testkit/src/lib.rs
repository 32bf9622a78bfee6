//! What ratchet's tests need besides ratchet: brokers, databases, providers, writers and readers of records, programs under
//! test, and a checker of what these leave behind. None of it uses ratchet's own code.
//!
//! Without the feature `servers` it has what unit tests need, and few dependencies.
#![allow(clippy::disallowed_methods, reason = "tests wait and measure by the machine's clocks")]
#![allow(clippy::new_without_default, reason = "what starts a server or writes files is no default")]
#![allow(clippy::should_implement_trait, reason = "a generator of random numbers is not iterated over")]

#[cfg(feature = "servers")]
pub mod alone;
#[cfg(feature = "servers")]
pub mod built;
#[cfg(feature = "servers")]
pub mod checked;
#[cfg(feature = "servers")]
pub mod checker;
#[cfg(feature = "servers")]
pub mod clock;
#[cfg(feature = "servers")]
pub mod cluster;
#[cfg(feature = "servers")]
pub mod commit;
#[cfg(feature = "servers")]
pub mod database;
#[cfg(feature = "servers")]
pub mod disk;
pub mod flips;
pub mod folders;
#[cfg(feature = "servers")]
pub mod hostile;
#[cfg(feature = "servers")]
pub mod issuer;
#[cfg(feature = "servers")]
pub mod job;
#[cfg(feature = "servers")]
pub mod kafka;
#[cfg(feature = "servers")]
pub mod load;
#[cfg(feature = "servers")]
pub mod operator;
#[cfg(feature = "servers")]
pub mod pages;
#[cfg(feature = "servers")]
pub mod program;
#[cfg(feature = "servers")]
pub mod provider;
pub mod random;
#[cfg(feature = "servers")]
pub mod rebuild;
#[cfg(feature = "servers")]
pub mod redis_server;
#[cfg(feature = "servers")]
pub mod replicated;
#[cfg(feature = "servers")]
pub mod screen;
#[cfg(feature = "servers")]
pub mod secrets;
#[cfg(feature = "servers")]
pub mod segment;
#[cfg(feature = "servers")]
pub mod server;
#[cfg(feature = "servers")]
pub mod until;
