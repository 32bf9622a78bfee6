//! Why a record cannot be judged, in words. No message contains anything of the record's content.

use crate::dedup::by_schema::Unread;
use crate::dedup::json::Malformed;
use crate::dedup::path::Path;
use crate::dedup::version::{DIGITS_MAX, NotVersion, TEXT_BYTES_MAX};
use crate::dedup::vocabulary::{Reason, VersionKind};
use crate::encodings;
use crate::schemas::Id;

/// Why a record cannot be judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The reason, for counting and for choosing the action.
    pub reason: Reason,
    /// What exactly is wrong, for people; contains nothing of the record's content.
    pub message: String,
}

impl Rejection {
    pub(in crate::dedup) fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

#[cold]
pub(super) fn null_value() -> Rejection {
    Rejection::new(Reason::NullValue, "the value is null")
}

#[cold]
pub(super) fn too_large(what: &str, bytes: usize, bytes_max: usize) -> Rejection {
    let message = format!("{what} {bytes} bytes, more than the limit of {bytes_max}");
    Rejection::new(Reason::RecordTooLarge, message)
}

/// Why a record cannot be read now.
#[derive(Debug)]
pub(super) enum Unreadable {
    Rejected(Rejection),
    /// Its schema is not known yet.
    Pending(Id),
}

impl From<Rejection> for Unreadable {
    fn from(rejection: Rejection) -> Self {
        Self::Rejected(rejection)
    }
}

#[cold]
pub(super) fn unread(reason: Reason, error: Unread, bytes: &[u8]) -> Unreadable {
    let what = if reason == Reason::KeyMalformed { "key" } else { "value" };
    let message = match error {
        Unread::Pending(schema) => return Unreadable::Pending(schema),
        Unread::Json(error) => return malformed(reason, &error, bytes).into(),
        Unread::Unframed(error) => format!("the {what} cannot be read by a schema: {error}"),
        Unread::NoSchema(sentence) => format!("the {what} cannot be read: {sentence}"),
        Unread::Undecodable(schema, error) => format!("the {what} is not a record of {schema}: {error}"),
    };
    Rejection::new(reason, message).into()
}

#[cold]
fn malformed(reason: Reason, error: &Malformed, bytes: &[u8]) -> Rejection {
    let what = if reason == Reason::KeyMalformed { "key" } else { "value" };
    let framed = match encodings::behind_registry_prefix(bytes) {
        Some([b'{' | b'[', ..]) => {
            "; it begins with a zero byte and four more, as a schema registry's serializers write the number of a schema, \
             and JSON seems to follow (JSON Schema)"
        }
        Some(_) => {
            "; it begins with a zero byte and four more, as a schema registry's serializers write the number of a schema \
             before Avro or Protobuf"
        }
        None if bytes.starts_with(b"Struct{") => {
            "; it begins with `Struct{`, as Kafka Connect's StringConverter writes a struct"
        }
        None => "",
    };
    Rejection::new(reason, format!("the {what} cannot be read as JSON: {error}{framed}"))
}

#[cold]
pub(super) fn of_no_row(path: &Path) -> Rejection {
    let message = format!("`{path}` holds a word of `kinds.none`: the record is about no row, and has no identity");
    Rejection::new(Reason::IdentityMissing, message)
}

#[cold]
pub(super) fn identity_missing(path: &Path) -> Rejection {
    Rejection::new(Reason::IdentityMissing, format!("`{path}`, a part of the identity, is missing or null"))
}

#[cold]
pub(super) fn no_alternative() -> Rejection {
    Rejection::new(Reason::IdentityMissing, "a part of the identity has no alternatives")
}

#[cold]
pub(super) fn identity_not_scalar(path: &Path) -> Rejection {
    let message = format!("`{path}`, a part of the identity, is an object or an array");
    Rejection::new(Reason::IdentityNotScalar, message)
}

#[cold]
pub(super) fn no_rows(path: &Path) -> Rejection {
    let message = format!("`{path}`, rows of the identity, is neither an object nor an array of objects");
    Rejection::new(Reason::IdentityMissing, message)
}

#[cold]
pub(super) fn no_names(path: &Path) -> Rejection {
    let message = format!("`{path}`, the names of the fields that identify a row, is not a short array of strings");
    Rejection::new(Reason::IdentityMissing, message)
}

#[cold]
pub(super) fn not_a_document(path: &Path) -> Rejection {
    Rejection::new(Reason::IdentityNotScalar, format!("`{path}`, a part of the identity, is not JSON"))
}

#[cold]
pub(super) fn identity_too_long(path: &Path, bytes_max: usize) -> Rejection {
    let message = format!("the identity up to `{path}` takes more bytes than the limit of {bytes_max}");
    Rejection::new(Reason::IdentityTooLong, message)
}

#[cold]
pub(super) fn rows_too_long(bytes_max: usize) -> Rejection {
    let message = format!("the rows' identities take more bytes than the limit of {bytes_max}");
    Rejection::new(Reason::IdentityTooLong, message)
}

#[cold]
pub(super) fn exponent_too_long(path: &Path) -> Rejection {
    let message = format!("`{path}` is or holds a number with an exponent of more than 18 digits");
    Rejection::new(Reason::IdentityTooLong, message)
}

#[cold]
pub(super) fn epoch_not_scalar(path: &Path) -> Rejection {
    Rejection::new(Reason::VersionMalformed, format!("`{path}`, a part of the epoch, is an object or an array"))
}

#[cold]
pub(super) fn epoch_too_long(bytes_max: usize) -> Rejection {
    Rejection::new(Reason::VersionMalformed, format!("the epoch takes more bytes than the limit of {bytes_max}"))
}

#[cold]
pub(super) fn unlike_schema(path: &Path) -> Rejection {
    let message = format!("`{path}`, the version, is not the decimal that the record's schema says it is");
    Rejection::new(Reason::VersionMalformed, message)
}

/// Why a value is no version; `is_base64` says whether it is a text that may be base64.
#[cold]
pub(super) fn not_version(
    path: &Path,
    kind: VersionKind,
    (error, is_base64): (NotVersion, bool),
    digits_max: usize,
) -> Rejection {
    let mut rejection = not_of_kind(path, kind, error, digits_max);
    let is_number = matches!(kind, VersionKind::Integer | VersionKind::Decimal | VersionKind::Timestamp);
    if is_base64 && is_number && error == NotVersion::Malformed {
        rejection.message.push_str(
            "; if it is a decimal in base64, as Debezium and Kafka Connect write them, set \
             `decimal.handling.mode=string` at the connector, or let the converter write schemas \
             (`value.converter.schemas.enable=true`)",
        );
    }
    rejection
}

fn not_of_kind(path: &Path, kind: VersionKind, error: NotVersion, digits_max: usize) -> Rejection {
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
pub(super) fn not_at_least(path: &Path, error: NotVersion, digits_max: usize) -> Rejection {
    not_a_part(path, "neither an integer nor an array of integers, decimal strings and nulls", error, digits_max)
}

fn not_a_part(path: &Path, expected: &str, error: NotVersion, digits_max: usize) -> Rejection {
    let message = match error {
        NotVersion::Malformed => format!("`{path}`, the version, is {expected}"),
        NotVersion::EmptyGroup { groups: 1, .. } => {
            format!("`{path}`, the version, is empty; if that means that there is none, write `lenient: true`")
        }
        NotVersion::EmptyGroup { group, groups } => format!(
            "`{path}`, the version, has nothing in group {group} of its {groups}, and what would stand there is not \
             known, so the position cannot be compared; `lenient: true` counts it as missing"
        ),
        NotVersion::TooLong(digits) => {
            let digits_max = digits_max.min(DIGITS_MAX);
            format!("`{path}`, the version, has {digits} digits, more than the limit of {digits_max}")
        }
        NotVersion::TextTooLong(bytes) => {
            format!("`{path}`, the version, takes {bytes} bytes, more than the limit of {TEXT_BYTES_MAX}")
        }
        NotVersion::TooLow(min) => format!("`{path}`, the version, is less than the minimum of {min}"),
    };
    Rejection::new(Reason::VersionMalformed, message)
}
