//! Errors of an embedded cluster that need a person.

use crate::cluster::{Error, ErrorKind};

/// An error that a person has to deal with.
pub(super) fn refused(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Refused, message)
}
