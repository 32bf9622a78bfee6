//! What the brokers of a cluster can do, as they say themselves: one value, asked for before anything else.

use super::{Detail, Error, ErrorKind};

/// What the brokers can do, in words for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Abilities {
    /// How many brokers have said so.
    pub asked: usize,
    /// The addresses of those that did not answer in time.
    pub silent: Vec<String>,
    /// Who reads and writes records with these brokers, and why.
    pub data_path: String,
    /// What all of them can do that some brokers cannot.
    pub can: Vec<&'static str>,
    /// What ratchet does without.
    pub without: Vec<Without>,
    /// What ratchet cannot do without, each with who does not offer it.
    pub lacking: Vec<String>,
}

/// Something that brokers cannot do, and that ratchet does without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Without {
    /// What they do not offer.
    pub what: String,
    /// What follows from that.
    pub so: &'static str,
}

impl Abilities {
    /// The error if the brokers lack something that ratchet cannot do without.
    pub fn problem(&self) -> Option<Error> {
        let words = self.lacking.join("; ");
        (!words.is_empty()).then(|| Error::new(ErrorKind::Refused, words).with(Some(Detail::Lacking)))
    }
}
