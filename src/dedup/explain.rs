//! What a record was judged by, and what it was compared with, as JSON text for people and for the audit topic.

use crate::format::{EntryRef, KIND_IDENTITY, NO_TIME};

use super::epochs::Epochs;
use super::{identity, version};

/// A scope: a JSON array of its parts, like an identity.
pub fn epoch(scope: &[u8]) -> String {
    // The parts' bytes are an identity's.
    identity::describe(&[&[KIND_IDENTITY], scope].concat())
}

/// A version: JSON as it is described, or else that as a string.
pub fn version(bytes: &[u8]) -> String {
    let text = version::describe(bytes);
    match serde_json::from_str::<serde::de::IgnoredAny>(&text) {
        Ok(_) => text,
        Err(_) => serde_json::Value::from(text).to_string(),
    }
}

/// An identity, by its store's key: see [`identity::describe`].
pub fn identity(key: &[u8]) -> String {
    identity::describe(key)
}

/// An entry: `{"version":…,"epoch":…,"last_seen":…}`, with null for what it does not have.
pub fn entry(entry: &EntryRef<'_>, epochs: &Epochs) -> String {
    let null = || "null".to_owned();
    let version = entry.version.map_or_else(null, version);
    let scope = entry.scope.and_then(|number| epochs.scope(number)).map_or_else(null, epoch);
    let last_seen = if entry.last_seen == NO_TIME { null() } else { entry.last_seen.to_string() };
    format!(r#"{{"version":{version},"epoch":{scope},"last_seen":{last_seen}}}"#)
}
