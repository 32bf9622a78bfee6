//! Redis: the only module that uses the crate `redis`.
//!
//! - [`Address`] is a server's address, including its password, which no message shows.
//! - [`Connection`] sends several commands at once and reads the replies in order, within a deadline.
//! - [`gate`] is a gate kept in Redis: it says whether a record was passed on elsewhere, by another partition, topic or
//!   topology. [`requests`] remembers HTTP requests and their answers in Redis.
//!
//! A server must be Redis 7.0 or later ([`VERSION_MIN`]), and the master if there are replicas. Redis Cluster is not
//! supported, since it spreads keys over several servers.
//!
//! **Failure**: an [`Error`] is either transient ([`ErrorKind::Transient`]) or needs a person to act
//! ([`ErrorKind::Permanent`]); messages contain no secrets. After an error a [`Connection`] is not used again, since
//! replies may still arrive on it.

mod address;
mod connection;
mod error;
pub mod gate;
pub mod requests;

pub use crate::effect::{Error, ErrorKind};
pub use address::{Address, check_url};
pub use connection::Connection;

/// The first release with all commands used here: major and minor.
pub const VERSION_MIN: (u32, u32) = (7, 0);
