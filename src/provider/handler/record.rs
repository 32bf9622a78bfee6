//! The record that a function gets, and the reply that it returns.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::StepError;
use crate::effect::provider::Work;

use std::sync::Arc;

/// A record of the input, as it is in Kafka.
#[derive(Clone, Debug)]
pub struct Record(Arc<Work>);

impl Record {
    pub(super) fn of(work: Arc<Work>) -> Self {
        Self(work)
    }

    /// Its topic.
    pub fn topic(&self) -> &str {
        &self.0.topic
    }

    /// Its partition.
    pub fn partition(&self) -> i32 {
        self.0.partition
    }

    /// Its offset.
    pub fn offset(&self) -> i64 {
        self.0.offset
    }

    /// Its timestamp, in milliseconds since the epoch.
    pub fn timestamp(&self) -> Option<i64> {
        self.0.timestamp
    }

    /// Its key.
    pub fn key(&self) -> Option<&[u8]> {
        self.0.key.as_deref()
    }

    /// Its value.
    pub fn value(&self) -> Option<&[u8]> {
        self.0.value.as_deref()
    }

    /// Its headers, in order: names, which may repeat, and values.
    pub fn headers(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        self.0.headers.iter().map(|(name, value)| (name.as_slice(), value.as_deref()))
    }

    /// Its value, read as JSON. A value that names a schema (Avro, Protobuf or JSON Schema, by the topology's
    /// `value_format`) is read as the JSON that docs/formats.md describes.
    ///
    /// # Errors
    /// The value cannot be read as a `T`. The error is a rejection: another attempt would read the same value.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, StepError> {
        let value = self.0.decoded.as_deref().or(self.value()).unwrap_or(b"null");
        // The message has only the position: the text there may be secret.
        serde_json::from_slice(value).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            StepError::rejected(format!(
                "the value does not have the form that the handler expects (line {line}, column {column})"
            ))
        })
    }
}

/// The result of a function's work. It is written to the topic for results, and written again for each duplicate if the
/// topology says so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply(Option<Vec<u8>>);

impl Reply {
    /// A reply without content: the work is done.
    pub fn none() -> Self {
        Self(None)
    }

    /// A reply of these bytes.
    pub fn bytes(bytes: impl Into<Vec<u8>>) -> Self {
        Self(Some(bytes.into()))
    }

    /// A reply of this value as JSON.
    ///
    /// # Errors
    /// The value cannot be written as JSON.
    pub fn json<T: Serialize>(value: &T) -> Result<Self, StepError> {
        Ok(Self(Some(serde_json::to_vec(value)?)))
    }

    pub(super) fn into_bytes(self) -> Option<Vec<u8>> {
        self.0
    }
}

impl From<()> for Reply {
    fn from((): ()) -> Self {
        Self::none()
    }
}

impl From<String> for Reply {
    fn from(text: String) -> Self {
        Self::bytes(text)
    }
}

impl From<Vec<u8>> for Reply {
    fn from(bytes: Vec<u8>) -> Self {
        Self::bytes(bytes)
    }
}
