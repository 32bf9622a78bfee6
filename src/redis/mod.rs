//! Redis: the only room that knows the crate `redis`.
//!
//! - [`Address`] is where a server is, with its secrets, which it never shows.
//! - [`Connection`] speaks with it: commands go in one piece, and answers come in their order, within a time.
//! - [`gate`] is a gate that is kept there; [`requests`] keeps what is remembered of HTTP requests.
//!
//! A server is one of Redis 7.0 or later ([`VERSION_MIN`]), the master if there are replicas; not one of a cluster, which
//! keeps keys on several.
//!
//! **Failure**: an [`Error`] says whether it passes ([`ErrorKind::Passing`]) or a person has to act
//! ([`ErrorKind::Lasting`]); messages hold no secret. After an error a connection is dropped, since answers may still be
//! under way.

mod address;
mod connection;
mod error;
pub mod gate;
pub mod requests;

pub use crate::effect::{Error, ErrorKind};
pub use address::{Address, check_url};
pub use connection::Connection;

/// The first release that has all that is asked for: major and minor.
pub const VERSION_MIN: (u32, u32) = (7, 0);
