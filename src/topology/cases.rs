//! A topology's own tests: records, and what is expected to become of them.

use std::path::PathBuf;

use crate::dedup::{Reason, Verdict};

/// The timestamp of a given record that names none: 2020-01-01T00:00:00Z, so that a test comes out the same
/// every day.
pub const TIMESTAMP_MS: i64 = 1_577_836_800_000;

/// One test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestCase {
    /// What it shows.
    pub name: String,
    /// Its line in the topology's file, from 1.
    pub line: usize,
    /// The records.
    pub given: Given,
    /// What each record is expected to become, in order.
    pub expect: Vec<Expected>,
    /// Which of the given records are expected to come out, by number from 0, in order.
    pub output: Option<Vec<usize>>,
    /// Entries that are expected in the end, among others.
    pub entries: Vec<ExpectedEntry>,
}

/// A test's records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Given {
    /// These.
    Records(Vec<GivenRecord>),
    /// Those of a file of lines.
    File {
        /// Where it is; a relative path is taken from the topology's folder.
        path: PathBuf,
        /// Whether a line is what `kcat -J` prints; else it is a value.
        kcat: bool,
    },
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenRecord {
    /// Its topic; `None` for the topology's first.
    pub topic: Option<String>,
    /// Its partition.
    pub partition: i32,
    /// Its offset; `None` for the next one of its partition.
    pub offset: Option<i64>,
    /// Milliseconds since the epoch.
    pub timestamp: Option<i64>,
    /// The key's bytes, `None` for null.
    pub key: Option<Vec<u8>>,
    /// The value's bytes, `None` for null.
    pub value: Option<Vec<u8>>,
    /// The headers, in order.
    pub headers: Vec<(String, Option<Vec<u8>>)>,
}

/// What a record is expected to become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The verdict.
    pub verdict: Verdict,
    /// The reason, where it matters.
    pub reason: Option<Reason>,
}

/// What is expected to be remembered of an identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedEntry {
    /// The identity as JSON: an array of its parts.
    pub identity: String,
    /// The version as JSON, where it matters.
    pub version: Option<String>,
}
