//! A topology's own tests: records, and what is expected of them.

use std::path::PathBuf;

use crate::capture::Form;
use crate::dedup::{Reason, Verdict};

pub(super) mod compile;
pub(super) mod keys;
pub(super) mod spec;

/// The timestamp of a given record that sets none: 2020-01-01T00:00:00Z, so that a test gives the same result every
/// day.
pub const TIMESTAMP_MS: i64 = 1_577_836_800_000;

/// One test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestCase {
    /// Its name, which says what it shows.
    pub name: String,
    /// Its line in the topology's file, from 1.
    pub line: usize,
    /// The records.
    pub given: Given,
    /// The expected verdict for each record, in order.
    pub expect: Vec<Expected>,
    /// Which of the given records are expected in the output, by number from 0, in order.
    pub output: Option<Vec<usize>>,
    /// Entries expected at the end, possibly among others.
    pub entries: Vec<ExpectedEntry>,
    /// What is expected to be carried out in the sink, in order.
    pub rows: Option<Vec<ExpectedCall>>,
    /// What the sink answers where it does not carry a record out.
    pub answers: Vec<GivenAnswer>,
    /// What the provider answers, attempt for attempt; 200 without a body afterwards.
    pub attempts: Vec<GivenAttempt>,
    /// What is expected to be written to the topic of results, in order.
    pub results: Option<Vec<ExpectedResult>>,
}

/// What an attempt comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GivenAttempt {
    /// The provider answers.
    Answered {
        /// The status code.
        code: u16,
        /// The body.
        body: Option<Vec<u8>>,
        /// The headers, in order.
        headers: Vec<(String, String)>,
    },
    /// There is no answer.
    Silent(Silence),
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// The time for it has passed.
    Timeout,
    /// The connection was lost after the request may have arrived.
    Lost,
    /// Nothing of the request was written.
    NotSent,
}

impl Silence {
    /// All of them.
    pub const ALL: &[Silence] = &[Silence::Timeout, Silence::Lost, Silence::NotSent];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Lost => "lost",
            Self::NotSent => "not_sent",
        }
    }
}

/// What the attempts of an identity and version have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeySeen {
    /// One key, and the same bytes.
    Same,
    /// That none carried a key.
    None,
}

impl KeySeen {
    /// Both of them.
    pub const ALL: &[KeySeen] = &[KeySeen::Same, KeySeen::None];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::None => "none",
        }
    }
}

/// What is expected to be written to the topic of results. What is `None` does not matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedResult {
    /// The given record's number, from 0.
    pub record: Option<usize>,
    /// The status code.
    pub status: Option<u16>,
    /// The body.
    pub body: Option<Vec<u8>>,
}

/// A call of a statement that is expected. What is `None` does not matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedCall {
    /// The given record's number, from 0.
    pub record: Option<usize>,
    /// The statement's number, from 1.
    pub statement: Option<usize>,
    /// What it does: `sql`, `upsert`, `delete` or `truncate`.
    pub does: Option<&'static str>,
    /// Its parameters.
    pub with: Vec<ExpectedParameter>,
}

/// A parameter that is expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExpectedParameter {
    /// Null.
    Null,
    /// This text.
    Text(String),
    /// JSON that means the same as this.
    Json(String),
}

/// What the sink answers to a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenAnswer {
    /// The given record's number, from 0.
    pub record: usize,
    /// The words with which it refuses the record; `None` if its inbox has the record.
    pub rejected: Option<String>,
}

/// A test's records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Given {
    /// These.
    Records(Vec<GivenRecord>),
    /// Those in a file of lines.
    File {
        /// Its path; a relative one starts at the topology's folder.
        path: PathBuf,
        /// The form of its lines; `None` if they show it ([`Form::of`]).
        form: Option<Form>,
    },
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenRecord {
    /// Its topic; `None` for the topology's first one.
    pub topic: Option<String>,
    /// Its partition.
    pub partition: i32,
    /// Its offset; `None` for the next one in its partition.
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

/// The expected verdict for a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The verdict.
    pub verdict: Verdict,
    /// The reason, if it matters.
    pub reason: Option<Reason>,
    /// How many attempts it made, if that matters.
    pub calls: Option<u64>,
    /// What the keys of the attempts were, if that matters.
    pub key: Option<KeySeen>,
}

/// The entry expected for an identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedEntry {
    /// The identity as JSON: an array of its parts.
    pub identity: String,
    /// The version as JSON, if it matters.
    pub version: Option<String>,
}
