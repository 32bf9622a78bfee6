//! Records captured into files, one a line, to try topologies on without a cluster.
//!
//! - [`Lines`]: the lines of files and of standard input, one after the other
//! - [`Captured`]: the content of a line: a record's value, or a whole record in the envelope of `kcat -J`
//! - [`differences()`]: the places in which two values differ
//! - [`unwrap()`]: a value without what Kafka Connect's and Avro's JSON wrap around it
//! - [`guesses`]: what bytes look like, for hints
//! - [`Nearly`]: a line that is nearly a whole record, for warnings
//!
//! **Failure**: [`Error`], with a message for the user and what to do instead.

use std::path::PathBuf;

mod differences;
mod envelope;
pub mod guesses;
mod lines;
mod nearly;
mod packed;
mod wrapping;

pub use differences::{Place, differences};
pub use envelope::{Captured, looks_like_kcat, topic_of_kcat};
pub use lines::{LineNumber, Lines};
pub use nearly::Nearly;
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
    /// A line that is not what `kcat -J` prints.
    pub fn not_kcat(place: LineNumber<'_>, error: &serde_json::Error) -> Self {
        Self {
            text: format!("{place}: the line is not a record of `kcat -J`: {}", in_one_line(error)),
            help: "write what `kcat -J` prints; for values alone, leave `--envelope` out",
        }
    }
}

/// Every record of a file. Lines that are values become records of `topic`, partition 0, with offsets from 0.
pub fn read_all(file: PathBuf, kcat: bool, topic: &str) -> Result<Vec<Captured>, Error> {
    let mut lines = Lines::open(&[file])?;
    let mut line = Vec::new();
    let mut all = Vec::new();
    while let Some(place) = lines.next(&mut line)? {
        let mut captured = Captured::default();
        if kcat {
            captured.read_kcat(&line).map_err(|error| Error::not_kcat(place, &error))?;
        } else {
            captured.read_value(&line);
            captured.topic.push_str(topic);
            captured.offset = all.len() as i64;
        }
        all.push(captured);
    }
    Ok(all)
}

/// What is wrong with a line, and at which byte. The parser's own line number is left out: it is always 1.
fn in_one_line(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.strip_suffix(&format!(" at line {} column {}", error.line(), error.column())) {
        Some(what) => format!("{what} at column {}", error.column()),
        None => text,
    }
}
