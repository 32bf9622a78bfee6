//! What ratchet's tests need besides ratchet: brokers, databases, providers, writers and readers of records, programs under
//! test, and a checker of what these leave behind. None of it uses ratchet's own code.
#![allow(clippy::disallowed_methods, reason = "tests wait and measure by the machine's clocks")]
#![allow(clippy::new_without_default, reason = "what starts a server or writes files is no default")]
#![allow(clippy::should_implement_trait, reason = "a generator of random numbers is not iterated over")]

pub mod alone;
pub mod built;
pub mod checked;
pub mod checker;
pub mod clock;
pub mod cluster;
pub mod commit;
pub mod database;
pub mod disk;
pub mod flips;
pub mod folders;
pub mod hostile;
pub mod issuer;
pub mod job;
pub mod kafka;
pub mod load;
pub mod operator;
pub mod pages;
pub mod program;
pub mod provider;
pub mod random;
pub mod rebuild;
pub mod redis_server;
pub mod replicated;
pub mod schema_registry;
pub mod screen;
pub mod secrets;
pub mod segment;
pub mod server;
pub mod until;
