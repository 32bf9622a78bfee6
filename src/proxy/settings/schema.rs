//! The JSON Schema of a proxy's settings file.

use serde_json::Value;

use super::keys;
use crate::yaml::schema::{common, document};

/// The schema.
pub fn schema() -> Value {
    document("A proxy of ratchet", &keys::TOP, common())
}

/// The schema as text, as `ratchet schema proxy` prints it.
pub fn text() -> String {
    format!("{:#}\n", schema())
}
