//! The JSON Schema of a proxy's settings file.

use serde_json::Value;

use super::keys;
use crate::yaml::schema::{common, document};

/// The schema: the keys at the top of the file, and the definitions of types that all of ratchet's files use.
pub fn schema() -> Value {
    document("A proxy of ratchet", &keys::TOP, common())
}

/// The schema as text, as `ratchet schema proxy` prints it.
pub fn text() -> String {
    format!("{:#}\n", schema())
}
