//! Checks the topics that are read and written: Kafka must accept their names, and none may be both.

use crate::yaml::{Place, Placed, Text};

use super::compiler::{Compiler, shown};
use crate::topology::{Input, Pattern, Preset, names};

/// The topics that are written to; `None` if one is wrong, or not written.
pub struct Written {
    pub output: Option<String>,
    pub dead_letter: Option<String>,
    pub audit: Option<String>,
}

impl Compiler<'_> {
    pub fn input(&mut self) -> Option<Input> {
        let input = &self.spec.input;
        if input.pattern_place.is_none() {
            if let Some(place) = input.exclude_place {
                let message = "`input.exclude` has no effect without a `pattern`".to_owned();
                let help = r"remove it, or write e.g. `pattern: '^shop\.'` instead of `topics`";
                self.mistake(place, message, "never looked at", help);
            }
            return Some(Input::Topics(self.named_topics()));
        }
        let include = input.pattern.as_ref().and_then(|pattern| self.pattern(pattern, "input.pattern"));
        let exclude: Vec<Pattern> =
            input.exclude.iter().filter_map(|pattern| self.pattern(pattern, "input.exclude")).collect();
        let complete = input.topics_known && exclude.len() == input.exclude.len();
        include.filter(|_| complete).map(|include| Input::Pattern { include, exclude })
    }

    fn pattern(&mut self, text: &Placed<Text>, key: &str) -> Option<Pattern> {
        let written = text.value.reveal();
        let problem = match parsed_pattern(written) {
            Ok(pattern) => return Some(pattern),
            Err(problem) => problem,
        };
        let help = "write a regular expression, a topic's dots as `\\.`; a list of names goes under `topics`";
        if text.value.is_secret() {
            let message = format!("`{key}` is not a regular expression");
            self.mistake(text.place, message, "what it stands for is not", help);
            return None;
        }
        // In single quotes or none, the place of the problem is known to the byte.
        let source = self.file.text().get(text.place.start..text.place.end()).unwrap_or_default();
        let inner = source.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')).unwrap_or(source);
        let before = usize::from(inner.len() != source.len());
        let place = match inner == written {
            true => {
                let at = text.place.start + before + problem.at.min(written.len().saturating_sub(1));
                let length = written.get(at - text.place.start - before..).and_then(|rest| rest.chars().next());
                Place { start: at, length: length.map_or(1, char::len_utf8) }
            }
            false => text.place,
        };
        self.mistake(place, format!("`{key}` is not a regular expression: {}", problem.message), "here", help);
        None
    }

    fn named_topics(&mut self) -> Vec<String> {
        let mut topics: Vec<String> = Vec::new();
        for topic in &self.spec.input.topics {
            let name = topic.value.reveal();
            if self.check_topic_name(topic, name, "input.topics") && topics.iter().any(|other| other == name) {
                let message = format!("the topic `{}` stands in `input.topics` twice", topic.value);
                self.mistake(topic.place, message, "again", "remove one of them");
            }
            topics.push(name.to_owned());
        }
        topics
    }

    /// Checks that Kafka accepts this name, which is `topic` with its template filled in.
    fn check_topic_name(&mut self, topic: &Placed<Text>, name: &str, key: &str) -> bool {
        let Some(problem) = names::topic_problem(name) else { return true };
        // The problem may quote a character of a secret.
        let problem = if topic.value.is_secret() { "Kafka does not take this name".to_owned() } else { problem };
        let mut help = "write a topic's name, e.g. `payments`".to_owned();
        if name.contains(['{', '}']) {
            help = format!("only `output.topic` may hold braces, and only `{}` in them", names::TEMPLATE);
        } else if key == "input.topics" && name.contains(['*', '^', '$', '\\', '|']) {
            help = format!(r"topics that match a pattern are read by `pattern: '{name}'` in place of `topics`");
        }
        self.mistake(topic.place, format!("`{key}`: {problem}"), format!("`{}`", shown(&topic.value)), help);
        false
    }

    /// The topics written to.
    pub fn topics(&mut self, name: Option<&str>, input: Option<&Input>) -> Written {
        let output = self.output(input);
        let dead_letter = self.dead_letter(name, input);
        let audit = self.spec.audit.as_ref().map(|audit| {
            self.check_free_name(audit, audit.value.reveal(), "audit.topic", input);
            if dead_letter.as_deref() == Some(audit.value.reveal()) {
                let message = "`audit.topic` cannot be the dead letters' topic".to_owned();
                let help = "name another topic: drops are no failures";
                self.mistake(audit.place, message, format!("`{}` is that", shown(&audit.value)), help);
            }
            audit.value.reveal().to_owned()
        });
        self.check_derived_names(name, input);
        self.check_shared_output(input);
        Written { output, dead_letter, audit }
    }

    /// Warns if rows of several tables would have the same keys in one output.
    fn check_shared_output(&mut self, input: Option<&Input>) {
        let Some(output) = &self.spec.output else { return };
        let several = match input {
            Some(Input::Topics(topics)) => topics.len() > 1,
            Some(Input::Pattern { .. }) => true,
            None => false,
        };
        let tells_table = self.preset.is_some_and(Preset::names_tables_in_keys);
        let by_key =
            !self.spec.identity.parts.is_empty() && self.spec.identity.parts.iter().all(|part| part.value.is_of_key());
        let has_deletes = self.spec.kinds.as_ref().is_some_and(|kinds| kinds.key("delete").is_some());
        if !several || output.value.reveal().contains(names::TEMPLATE) || tells_table || !by_key || !has_deletes {
            return;
        }
        let message = "rows of several topics go to one output topic, where those of two tables with one primary key \
                       have the same key: readers, and compaction, would take them for one row"
            .to_owned();
        let help = format!(
            "write `output: {{topic: \"{}.unique\"}}`; nothing is wrong if all topics are of one table, or if the keys \
             say which table a row is of",
            names::TEMPLATE
        );
        self.warning(output.place, message, "one topic for all of them", help);
    }

    /// The output's name, if Kafka accepts it for each of the input topics and it is not already in use.
    fn output(&mut self, input: Option<&Input>) -> Option<String> {
        let output = self.spec.output.as_ref()?;
        let template = output.value.reveal();
        let around = template.replace(names::TEMPLATE, "");
        if around.len() == template.len() || around.contains(['{', '}']) {
            return self.check_free_name(output, template, "output.topic", input).then(|| template.to_owned());
        }
        let topics = match input {
            Some(Input::Topics(topics)) => topics.clone(),
            Some(pattern) => pattern.samples(),
            None => Vec::new(),
        };
        let by_pattern = matches!(input, Some(Input::Pattern { .. }));
        for topic in topics.iter().filter(|topic| names::topic_problem(topic).is_none()) {
            let name = template.replace(names::TEMPLATE, topic);
            if by_pattern && input.is_some_and(|input| input.contains(&name)) {
                self.report_feedback(output, topic, &name);
                break;
            }
            // One report is enough, whatever the names for the other topics are.
            if !by_pattern && !self.check_free_name(output, &name, "output.topic", input) {
                break;
            }
        }
        Some(template.to_owned())
    }

    fn report_feedback(&mut self, output: &Placed<Text>, topic: &str, name: &str) {
        let message = "the output would be read again: `input.pattern` matches it too".to_owned();
        let label = match output.value.is_secret() {
            true => "it leads back to the input".to_owned(),
            false => format!("what comes from e.g. `{topic}` goes to `{name}`"),
        };
        let help = "leave the outputs out by `exclude` under `input`, or name them so that the pattern does not match";
        self.mistake(output.place, message, label, help);
    }

    fn dead_letter(&mut self, name: Option<&str>, input: Option<&Input>) -> Option<String> {
        if let Some(topic) = &self.spec.dead_letter {
            let name = topic.value.reveal();
            if self.check_free_name(topic, name, "dead_letter.topic", input) {
                self.check_not_output(topic, name, "dead_letter.topic", input);
            }
            return Some(name.to_owned());
        }
        let name = format!("{}.dead_letter", name?);
        let help = "name another one, e.g. `dead_letter: {topic: payments.failed}`";
        let named = self.spec.input.topics.iter().find(|input| input.value.reveal() == name);
        let output = self.spec.output.as_ref().filter(|_| self.is_output(&name, input));
        if let Some(taken) = named.or(output) {
            let message = "this is the topic of the dead letters".to_owned();
            self.mistake(taken.place, message, "it cannot be this too", help);
        } else if let Some(place) = self.spec.input.pattern_place
            && input.is_some_and(|input| input.contains(&name))
        {
            let message = format!("`input.pattern` matches `{name}`, the topic of the dead letters");
            let help = format!(r"write `exclude: ['\.dead_letter$']` under `input`, or {help}");
            self.mistake(place, message, "they would be read again", help);
        }
        Some(name)
    }

    /// Whether this is an output's name.
    fn is_output(&self, name: &str, input: Option<&Input>) -> bool {
        let Some(output) = &self.spec.output else { return false };
        let template = output.value.reveal();
        input.map_or(template == name, |input| input.gives(template, name))
    }

    fn check_not_output(&mut self, topic: &Placed<Text>, name: &str, key: &str, input: Option<&Input>) {
        if self.is_output(name, input) {
            let message = format!("`{key}` cannot be the output");
            let help = "name another topic: readers of the output expect nothing else there";
            self.mistake(topic.place, message, format!("`{}` is the output", shown(&topic.value)), help);
        }
    }

    /// Checks that Kafka accepts `name`, which comes from `topic`, and that this topology does not read it.
    pub fn check_free_name(&mut self, topic: &Placed<Text>, name: &str, key: &str, input: Option<&Input>) -> bool {
        if !self.check_topic_name(topic, name, key) {
            return false;
        }
        let label = |text: &str| format!("`{}` is {text}", shown(&topic.value));
        let (message, label, help) = if self.spec.input.topics.iter().any(|input| input.value.reveal() == name) {
            let help = "name another topic, e.g. the input's with `.unique` after it";
            (format!("`{key}` cannot be the topology's own input"), label("among `input.topics`"), help)
        } else if names::is_changelog(name) {
            let help = "name another topic: `ratchet.….changelog` is kept for what ratchet remembers";
            (format!("`{key}` cannot be a changelog"), label("how ratchet names those"), help)
        } else if names::is_control(name) {
            let help = "name another topic: `ratchet.….control` is kept for commands to ratchet";
            (format!("`{key}` cannot be a control topic"), label("how ratchet names those"), help)
        } else if input.is_some_and(|input| input.contains(name)) {
            let help = "leave it out by `exclude` under `input`, or name another topic";
            (format!("`{key}` cannot be the topology's own input"), label("matched by `input.pattern`"), help)
        } else {
            if key == "audit.topic" {
                self.check_not_output(topic, name, key, input);
            }
            return true;
        };
        self.mistake(topic.place, message, label, help);
        false
    }

    /// Checks the names that ratchet derives from the input topics.
    fn check_derived_names(&mut self, name: Option<&str>, input: Option<&Input>) {
        let (Some(name), Some(Input::Topics(_))) = (name, input) else { return };
        for topic in &self.spec.input.topics {
            let length = names::changelog(name, topic.value.reveal()).len();
            // A topic that is itself too long is reported as such.
            if length > names::TOPIC_CHARS_MAX && topic.value.reveal().len() <= names::TOPIC_CHARS_MAX {
                let message = format!("the changelog's name would be too long: {}", names::too_long(length));
                let over = length - names::TOPIC_CHARS_MAX;
                let help = format!("it is `ratchet.NAME.TOPIC.changelog`: shorten `name` or the topic by {over}");
                self.mistake(topic.place, message, "of this topic", help);
            }
        }
    }
}

/// Why a string is not a pattern, and the byte at which the problem begins.
#[derive(Debug)]
struct Problem {
    at: usize,
    message: String,
}

/// Parses a pattern.
fn parsed_pattern(text: &str) -> Result<Pattern, Problem> {
    let (at, message) = match regex_syntax::parse(text) {
        Ok(_) => match Pattern::parse(text) {
            Ok(pattern) => return Ok(pattern),
            Err(_) => (0, "it takes too much memory".to_owned()),
        },
        Err(regex_syntax::Error::Parse(error)) => (error.span().start.offset, error.kind().to_string()),
        Err(regex_syntax::Error::Translate(error)) => (error.span().start.offset, error.kind().to_string()),
        Err(error) => (0, error.to_string().lines().last().unwrap_or_default().to_owned()),
    };
    Err(Problem { at, message })
}
