//! Which topics a topology reads: those that it names, or those that a pattern means.

use std::fmt;

use regex::Regex;

use super::names;

/// The input topics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// These.
    Topics(Vec<String>),
    /// All that `include` matches and none of `exclude` does, also those that are created later. Never
    /// ratchet's changelogs, nor what begins with `__`, as Kafka's and Connect's own topics do.
    Pattern {
        /// What a topic's name must match.
        include: Pattern,
        /// What it must not match.
        exclude: Vec<Pattern>,
    },
}

impl Input {
    /// Whether `topic` is one of them.
    pub fn contains(&self, topic: &str) -> bool {
        match self {
            Self::Topics(topics) => topics.iter().any(|known| known == topic),
            Self::Pattern { include, exclude } => {
                include.is_match(topic)
                    && !exclude.iter().any(|pattern| pattern.is_match(topic))
                    && !names::is_internal(topic)
            }
        }
    }

    /// The topics that it names; none for a pattern.
    pub fn named(&self) -> &[String] {
        match self {
            Self::Topics(topics) => topics,
            Self::Pattern { .. } => &[],
        }
    }
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Topics(topics) => f.write_str(&topics.join(", ")),
            Self::Pattern { include, exclude } => {
                write!(f, "topics like {include}")?;
                exclude.iter().try_for_each(|pattern| write!(f, ", not {pattern}"))
            }
        }
    }
}

/// A regular expression that is searched for in a topic's name.
#[derive(Clone, Debug)]
pub struct Pattern(Regex);

impl Pattern {
    /// Reads a pattern, in the syntax of the `regex` crate.
    pub fn parse(text: &str) -> Result<Self, regex::Error> {
        Regex::new(text).map(Self)
    }

    /// Whether it is found in `topic`.
    pub fn is_match(&self, topic: &str) -> bool {
        self.0.is_match(topic)
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl Eq for Pattern {}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str())
    }
}
