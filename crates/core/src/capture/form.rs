//! The form of a file's lines.

use serde::Deserialize;

/// The form of a file's lines. All lines have the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// Each line is a record's value.
    #[default]
    Values,
    /// Each line is what `kcat -J` prints.
    Kcat,
    /// Each line is what `ratchet capture` writes.
    Capture,
}

impl Form {
    /// The form that a file's first line shows, if nobody says which: what `ratchet capture` writes says so itself, and
    /// anything else is a value. A value may look like what `kcat -J` prints.
    pub fn of(line: &[u8]) -> Self {
        if looks_like_capture(line) { Self::Capture } else { Self::Values }
    }

    /// Whether a line is a whole record, with its key and its coordinates.
    pub fn is_whole(self) -> bool {
        self != Self::Values
    }
}

/// Whether a line is a record in the envelope of `ratchet capture`, even if the rest is malformed.
fn looks_like_capture(line: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Marked {
        #[serde(rename = "capture")]
        _capture: u32,
        #[serde(rename = "partition")]
        _partition: i32,
        #[serde(rename = "offset")]
        _offset: i64,
    }
    line.trim_ascii_start().starts_with(b"{") && serde_json::from_slice::<Marked>(line).is_ok()
}
