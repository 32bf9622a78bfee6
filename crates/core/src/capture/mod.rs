//! Records captured into files, one a line, to try topologies on without a cluster.
//!
//! - [`Lines`]: the lines of files and of standard input, one after the other
//! - [`Captured`]: the content of a line: a record's value, or a whole record in the envelope of `ratchet capture` or of
//!   `kcat -J`
//! - [`Form`]: which of these a file has
//! - [`write_capture()`], [`Packer`]: writing the first of these envelopes, packed as its file is named
//! - [`differences()`]: the places in which two values differ
//! - [`unwrap()`]: a value without what Kafka Connect's and Avro's JSON wrap around it
//! - [`guesses`]: what bytes look like, for hints
//! - [`Nearly`]: a line that is nearly a whole record, for warnings
//!
//! **Failure**: [`Error`], with a message for the user and what to do instead.

use std::path::PathBuf;

mod differences;
mod envelope;
mod form;
pub mod guesses;
mod lines;
mod nearly;
mod packed;
mod packer;
mod wrapping;

pub use differences::{Place, differences};
pub use envelope::{Captured, looks_like_kcat, topic_of_envelope, write_capture};
pub use form::Form;
pub use lines::{LineNumber, Lines};
pub use nearly::Nearly;
pub use packer::Packer;
pub use wrapping::unwrap;

/// A capture that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Error {
    /// What is wrong, in lower case and without a full stop.
    pub text: String,
    /// What to do instead.
    pub help: &'static str,
}

impl Error {
    /// A line that is no record of this form.
    pub fn not_of(form: Form, place: LineNumber<'_>, error: &serde_json::Error) -> Self {
        let (what, help) = match form {
            Form::Capture => ("of `ratchet capture`", "give what `ratchet capture` has written, and nothing else"),
            Form::Kcat | Form::Values => {
                ("of `kcat -J`", "write what `kcat -J` prints; for values alone, leave `--envelope` out")
            }
        };
        Self { text: format!("{place}: the line is not a record {what}: {}", in_one_line(error)), help }
    }
}

/// Every record of a file, and the form of its lines: the given one, or else what its first line shows ([`Form::of`]).
/// Lines that are values become records of `topic`, partition 0, with offsets from 0.
pub fn read_all(file: PathBuf, form: Option<Form>, topic: &str) -> Result<(Form, Vec<Captured>), Error> {
    let mut lines = Lines::open(&[file])?;
    let (mut line, mut known) = (Vec::new(), form);
    let mut all = Vec::new();
    while let Some(place) = lines.next(&mut line)? {
        let form = *known.get_or_insert_with(|| Form::of(&line));
        let mut captured = Captured::default();
        captured.read(form, &line).map_err(|error| Error::not_of(form, place, &error))?;
        if form == Form::Values {
            captured.topic.push_str(topic);
            captured.offset = all.len() as i64;
        }
        all.push(captured);
    }
    Ok((known.unwrap_or_default(), all))
}

/// What is wrong with a line, and at which byte. The parser's own line number is left out: it is always 1.
fn in_one_line(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.strip_suffix(&format!(" at line {} column {}", error.line(), error.column())) {
        Some(what) => format!("{what} at column {}", error.column()),
        None => text,
    }
}
