//! Which topics a topology reads, those it names or those that a pattern matches, and where it starts.

use std::fmt;

use regex::Regex;

use super::compile::samples;
use super::names;

/// The input topics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// These.
    Topics(Vec<String>),
    /// All that `include` matches and no `exclude` does, including those created later. Never ratchet's changelogs, nor
    /// names beginning with `__`, like Kafka's and Connect's own topics.
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

    /// Whether `template` gives `name` for one of them.
    pub fn gives(&self, template: &str, name: &str) -> bool {
        match self {
            Self::Topics(topics) => topics.iter().any(|topic| template.replace(names::TEMPLATE, topic) == name),
            Self::Pattern { .. } => match template.split_once(names::TEMPLATE) {
                Some((before, after)) => {
                    let topic = name.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
                    topic.is_some_and(|topic| self.contains(topic))
                }
                None => template == name,
            },
        }
    }

    /// The names that `template` gives for them; for a pattern, only for some names that it matches.
    pub fn outputs(&self, template: &str) -> Vec<String> {
        let topics = match self {
            Self::Topics(topics) => topics.clone(),
            Self::Pattern { .. } if !template.contains(names::TEMPLATE) => return vec![template.to_owned()],
            Self::Pattern { .. } => self.samples(),
        };
        topics.iter().map(|topic| template.replace(names::TEMPLATE, topic)).collect()
    }

    /// Some names that a pattern matches.
    pub fn samples(&self) -> Vec<String> {
        match self {
            Self::Topics(_) => Vec::new(),
            Self::Pattern { include, .. } => {
                let matching = samples::of(&include.to_string()).into_iter();
                matching.filter(|topic| self.contains(topic)).collect()
            }
        }
    }

    /// The named topics; none for a pattern.
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

/// Where a group that has committed nothing starts reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the first retained record.
    Earliest,
    /// After the last.
    Latest,
}

impl Start {
    /// Both of them.
    pub const ALL: &[Start] = &[Start::Earliest, Start::Latest];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Earliest => "earliest",
            Self::Latest => "latest",
        }
    }
}

/// A regular expression to search for in a topic's name.
#[derive(Clone, Debug)]
pub struct Pattern(Regex);

impl Pattern {
    /// Parses a pattern in the syntax of the `regex` crate.
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
