//! What a model says of the record that it judged last, as JSON text.

use crate::dedup::{Model, version};

/// What was read of a record and what it was compared with; each as JSON text, `None` where there is nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// What kind of change it is, by its word.
    pub kind: Option<&'static str>,
    /// Its identity: an array of its parts.
    pub identity: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// The scope of its version: an array of its parts.
    pub epoch: Option<String>,
    /// What it was compared with: an object with `version`, `epoch` and `last_seen`.
    pub against: Option<String>,
    /// Why it could not be judged, in words for people (not JSON).
    pub refusal: Option<String>,
}

impl Told {
    /// What `model` has to say of the last record.
    pub fn of(model: &Model) -> Self {
        Self {
            kind: None,
            identity: model.identity(),
            version: model.version().map(|version| number_or_quoted(&version)),
            epoch: None,
            against: None,
            refusal: model.refusal().map(|refusal| refusal.message.clone()),
        }
    }
}

/// The version of an entry as JSON text.
pub fn version_json(version: &[u8]) -> String {
    number_or_quoted(&version::describe(version))
}

/// An integer of any size as a JSON number, anything else as a string.
fn number_or_quoted(text: &str) -> String {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_integer = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_integer { text.to_owned() } else { serde_json::Value::from(text).to_string() }
}
