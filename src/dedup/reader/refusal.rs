//! Why a record cannot be judged, in words. No message contains anything of the record's content.

use crate::dedup::json::Malformed;
use crate::dedup::path::Path;
use crate::dedup::version::{DIGITS_MAX, NotVersion, TEXT_BYTES_MAX};
use crate::dedup::vocabulary::{Reason, VersionKind};

/// Why a record cannot be judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The reason, for counting and for choosing the action.
    pub reason: Reason,
    /// What exactly is wrong, for people; contains nothing of the record's content.
    pub message: String,
}

impl Refusal {
    pub(in crate::dedup) fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

#[cold]
pub(super) fn null_value() -> Refusal {
    Refusal::new(Reason::NullValue, "the value is null")
}

#[cold]
pub(super) fn too_large(what: &str, bytes: usize, bytes_max: usize) -> Refusal {
    let message = format!("{what} {bytes} bytes, more than the limit of {bytes_max}");
    Refusal::new(Reason::RecordTooLarge, message)
}

#[cold]
pub(super) fn malformed(reason: Reason, error: &Malformed) -> Refusal {
    let what = if reason == Reason::KeyMalformed { "key" } else { "value" };
    Refusal::new(reason, format!("the {what} cannot be read as JSON: {error}"))
}

#[cold]
pub(super) fn identity_missing(path: &Path) -> Refusal {
    Refusal::new(Reason::IdentityMissing, format!("`{path}`, a part of the identity, is missing or null"))
}

#[cold]
pub(super) fn no_alternative() -> Refusal {
    Refusal::new(Reason::IdentityMissing, "a part of the identity has no alternatives")
}

#[cold]
pub(super) fn identity_not_scalar(path: &Path) -> Refusal {
    let message = format!("`{path}`, a part of the identity, is an object or an array");
    Refusal::new(Reason::IdentityNotScalar, message)
}

#[cold]
pub(super) fn no_rows(path: &Path) -> Refusal {
    let message = format!("`{path}`, rows of the identity, is neither an object nor an array of objects");
    Refusal::new(Reason::IdentityMissing, message)
}

#[cold]
pub(super) fn no_names(path: &Path) -> Refusal {
    let message = format!("`{path}`, the names of the fields that identify a row, is not a short array of strings");
    Refusal::new(Reason::IdentityMissing, message)
}

#[cold]
pub(super) fn not_a_document(path: &Path) -> Refusal {
    Refusal::new(Reason::IdentityNotScalar, format!("`{path}`, a part of the identity, is not JSON"))
}

#[cold]
pub(super) fn identity_too_long(path: &Path, bytes_max: usize) -> Refusal {
    let message = format!("the identity up to `{path}` takes more bytes than the limit of {bytes_max}");
    Refusal::new(Reason::IdentityTooLong, message)
}

#[cold]
pub(super) fn rows_too_long(bytes_max: usize) -> Refusal {
    let message = format!("the rows' identities take more bytes than the limit of {bytes_max}");
    Refusal::new(Reason::IdentityTooLong, message)
}

#[cold]
pub(super) fn exponent_too_long(path: &Path) -> Refusal {
    let message = format!("`{path}` is or holds a number with an exponent of more than 18 digits");
    Refusal::new(Reason::IdentityTooLong, message)
}

#[cold]
pub(super) fn epoch_not_scalar(path: &Path) -> Refusal {
    Refusal::new(Reason::VersionMalformed, format!("`{path}`, a part of the epoch, is an object or an array"))
}

#[cold]
pub(super) fn epoch_too_long(bytes_max: usize) -> Refusal {
    Refusal::new(Reason::VersionMalformed, format!("the epoch takes more bytes than the limit of {bytes_max}"))
}

#[cold]
pub(super) fn not_version(path: &Path, kind: VersionKind, error: NotVersion, digits_max: usize) -> Refusal {
    let expected = match kind {
        VersionKind::Integer => "neither a JSON integer nor a decimal integer as text",
        VersionKind::Decimal => "neither a JSON number nor a decimal as text",
        VersionKind::Text => "not text",
        VersionKind::Timestamp => "neither RFC 3339, like 2020-05-13T15:40:06Z, nor a number",
        VersionKind::Hex => "not text of groups of hex digits, like 00000027:00000758:0005",
        VersionKind::Binlog => {
            "neither a binlog's name, like mysql-bin.000003, nor a position, like mysql-bin.000003:154"
        }
        VersionKind::Sequence => {
            "neither a JSON array of integers, decimal strings and nulls, nor a string that holds one"
        }
    };
    not_a_part(path, expected, error, digits_max)
}

#[cold]
pub(super) fn not_at_least(path: &Path, error: NotVersion, digits_max: usize) -> Refusal {
    not_a_part(path, "neither an integer nor an array of integers, decimal strings and nulls", error, digits_max)
}

fn not_a_part(path: &Path, expected: &str, error: NotVersion, digits_max: usize) -> Refusal {
    let message = match error {
        NotVersion::Malformed => format!("`{path}`, the version, is {expected}"),
        NotVersion::TooLong(digits) => {
            let digits_max = digits_max.min(DIGITS_MAX);
            format!("`{path}`, the version, has {digits} digits, more than the limit of {digits_max}")
        }
        NotVersion::TextTooLong(bytes) => {
            format!("`{path}`, the version, takes {bytes} bytes, more than the limit of {TEXT_BYTES_MAX}")
        }
        NotVersion::TooFine => format!("`{path}`, the version, is a moment between two nanoseconds"),
        NotVersion::TooLow(min) => format!("`{path}`, the version, is less than the minimum of {min}"),
    };
    Refusal::new(Reason::VersionMalformed, message)
}
