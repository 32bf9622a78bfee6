//! The compiled topology: everything resolved, and the names that derive from its own.

use std::borrow::Cow;
use std::sync::Arc;

use super::cases::TestCase;
use super::destination::{Destination, Existing, Output};
use super::gate::Gate;
use super::input::{Input, Start};
use super::sink::{self, Sink};
use super::{names, presets};
use crate::dedup::{Reason, Rejection, Rules};
use crate::schemas::Sources;

/// An input, how its records are identified and versioned, what it ends in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// Its name, `[a-z0-9-]{1,60}`.
    pub name: String,
    /// The preset that its rules are based on, e.g. `debezium-postgres@3`.
    pub preset: Option<String>,
    /// The input topics.
    pub input: Input,
    /// Where a group that has committed nothing starts reading.
    pub start: Start,
    /// How records are identified and judged.
    pub rules: Arc<Rules>,
    /// The sources of the schemas that records name; empty until a run sets them.
    pub schemas: Sources,
    /// Where surviving records go.
    pub destination: Destination,
    /// Who is asked whether an identity was passed on elsewhere.
    pub gate: Option<Gate>,
    /// The topic for records that a person should look at.
    pub dead_letter: String,
    /// The topic in which every drop is explained.
    pub audit: Option<String>,
    /// Whether records of one identity are always in one partition because the topology says so, and not because the
    /// identity holds the key.
    pub only_said_to_be_partitioned: bool,
    /// Its own tests.
    pub tests: Vec<TestCase>,
}

impl Topology {
    /// The same topology with JSON in place of formats with schemas, for the records of its own tests.
    pub fn for_json(&self) -> Self {
        Self { rules: Arc::new(self.rules.for_json()), schemas: Sources::default(), ..self.clone() }
    }

    /// The consumer group.
    pub fn group(&self) -> String {
        format!("ratchet.{}", self.name)
    }

    /// Whether `topic` is one of its inputs.
    pub fn reads(&self, topic: &str) -> bool {
        self.input.contains(topic)
    }

    /// Why it cannot take in `topic`, which its pattern now matches: in words, without a full stop.
    pub fn problem_with(&self, topic: &str) -> Option<String> {
        let changelog = self.changelog(topic);
        if changelog.len() > names::TOPIC_CHARS_MAX {
            return Some(format!(
                "the changelog `{changelog}` would be too long: {}",
                names::too_long(changelog.len())
            ));
        }
        let output = self.output_topic(topic)?;
        let problem = if let Some(problem) = names::topic_problem(&output) {
            problem
        } else if self.reads(&output) {
            "the topology would read it again".to_owned()
        } else if names::is_changelog(&output) {
            "that is how changelogs are named".to_owned()
        } else if names::is_control(&output) {
            "that is how control topics are named".to_owned()
        } else if output == self.dead_letter {
            "that is the topic of the dead letters".to_owned()
        } else if self.audit.as_deref() == Some(output.as_str()) {
            "that is the audit topic".to_owned()
        } else {
            return None;
        };
        Some(format!("its output would be `{output}`: {problem}"))
    }

    /// What its preset advises for records with this reason.
    pub fn hint(&self, reason: Reason) -> Option<&'static str> {
        presets::hint(self.preset.as_deref()?, reason)
    }

    /// The reason in words, with the [`Topology::hint`] if there is one.
    pub fn meaning(&self, reason: Reason) -> Cow<'static, str> {
        self.with_hint(reason, reason.meaning())
    }

    /// Why a record cannot be judged, with the [`Topology::hint`] if there is one.
    pub fn rejection<'a>(&self, rejection: &'a Rejection) -> Cow<'a, str> {
        self.with_hint(rejection.reason, &rejection.message)
    }

    fn with_hint<'a>(&self, reason: Reason, words: &'a str) -> Cow<'a, str> {
        match self.hint(reason) {
            Some(hint) => format!("{words}: {hint}").into(),
            None => words.into(),
        }
    }

    /// The changelog of an input topic.
    pub fn changelog(&self, topic: &str) -> String {
        names::changelog(&self.name, topic)
    }

    /// The topic for commands to its tasks, which also acknowledge them there.
    pub fn control(&self) -> String {
        names::control(&self.name)
    }

    /// Whether this is the name of one of its changelogs, for any input.
    pub fn is_own_changelog(&self, topic: &str) -> bool {
        topic.starts_with(&self.transactional_ids()) && names::is_changelog(topic)
    }

    /// A topic that both write to, as far as is known: for a pattern, sample names are tried.
    pub fn output_shared_with(&self, other: &Topology) -> Option<String> {
        let (one, two) = (&self.output()?.topic, &other.output()?.topic);
        let first = self.input.outputs(one).into_iter().find(|name| other.input.gives(two, name));
        first.or_else(|| other.input.outputs(two).into_iter().find(|name| self.input.gives(one, name)))
    }

    /// Its output, if it ends in one.
    pub fn output(&self) -> Option<&Output> {
        match &self.destination {
            Destination::Output(output) => Some(output),
            Destination::Sink(_) => None,
        }
    }

    /// Its sink, if it ends in one.
    pub fn sink(&self) -> Option<&Sink> {
        match &self.destination {
            Destination::Output(_) => None,
            Destination::Sink(sink) => Some(sink),
        }
    }

    /// The provider that it calls over HTTP, if it ends in one.
    pub fn http(&self) -> Option<&sink::Http> {
        match self.sink()? {
            Sink::Http(http) => Some(http),
            Sink::Postgres(_) | Sink::Handler(_) => None,
        }
    }

    /// Its handler, if it ends in one.
    pub fn handler(&self) -> Option<&sink::Handler> {
        match self.sink()? {
            Sink::Handler(handler) => Some(handler),
            Sink::Postgres(_) | Sink::Http(_) => None,
        }
    }

    /// The terms of its calls, if it makes any.
    pub fn calls(&self) -> Option<&sink::Terms> {
        match self.sink()? {
            Sink::Http(http) => Some(&http.terms),
            Sink::Handler(handler) => Some(&handler.terms),
            Sink::Postgres(_) => None,
        }
    }

    /// Whether its output may hold other records; a sink may.
    pub fn appends(&self) -> bool {
        self.output().is_none_or(|output| output.existing == Existing::Append)
    }

    /// The output of an input topic, if the topology ends in one.
    pub fn output_topic(&self, topic: &str) -> Option<String> {
        Some(self.output()?.topic.replace(names::TEMPLATE, topic))
    }

    /// The transactional id of a lane, with a number chosen at random at each start.
    pub fn transactional_id(&self, random: u64, lane: usize) -> String {
        format!("{}{random:016x}.{lane}", self.transactional_ids())
    }

    /// The prefix of all its transactional ids.
    pub fn transactional_ids(&self) -> String {
        format!("ratchet.{}.", self.name)
    }
}
