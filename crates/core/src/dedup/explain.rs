//! What a record was judged by and compared with, as JSON text for people and for the audit topic.

use crate::format::{self, EntryRef, NO_TIME};

use super::epochs::Epochs;
use super::rules::Rules;
use super::{identity, version};

/// A scope: a JSON array of its parts, like an identity.
pub fn epoch(scope: &[u8]) -> String {
    identity::describe_scope(scope)
}

/// A version under these rules: see [`version::describe`]. Malformed bytes are `{"hex":"…"}`.
pub fn version(bytes: &[u8], rules: &Rules) -> String {
    match &rules.version {
        Some(version) => version::describe(bytes, version),
        None => format!(r#"{{"hex":"{}"}}"#, format::hex(bytes)),
    }
}

/// An identity, by its store key: see [`identity::describe`].
pub fn identity(key: &[u8]) -> String {
    identity::describe(key)
}

/// An entry: `{"version":…,"epoch":…,"last_seen":…}`, with null for what it does not have.
pub fn entry(entry: &EntryRef<'_>, epochs: &Epochs, rules: &Rules) -> String {
    let null = || "null".to_owned();
    let version = entry.version.map_or_else(null, |bytes| version(bytes, rules));
    let scope = entry.scope.and_then(|number| epochs.scope(number)).map_or_else(null, epoch);
    let last_seen = if entry.last_seen == NO_TIME { null() } else { entry.last_seen.to_string() };
    format!(r#"{{"version":{version},"epoch":{scope},"last_seen":{last_seen}}}"#)
}
