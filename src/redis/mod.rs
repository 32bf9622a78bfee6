//! Redis: the only module that uses the crate `redis`.
//!
//! - [`Address`] is a server's address, including its secrets, which it never shows.
//! - [`Connection`] sends commands in one piece and reads the answers in order, within a deadline.
//! - [`gate`] is a gate kept in Redis; [`requests`] remembers HTTP requests there.
//!
//! A server must be Redis 7.0 or later ([`VERSION_MIN`]), and the master if there are replicas. Clusters are not
//! supported, since they spread keys over several servers.
//!
//! **Failure**: an [`Error`] either passes by itself ([`ErrorKind::Passing`]) or needs a person to act
//! ([`ErrorKind::Lasting`]); messages contain no secrets. After an error a connection is dropped, since answers may
//! still be on their way.

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
