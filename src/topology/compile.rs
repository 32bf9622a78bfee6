//! The second step: a raw spec as a topology, with everything resolved; what its values mean together
//! is checked here, on whatever of them could be read.

use std::sync::Arc;

use crate::dedup::{Action, Actions, Format, Identity, OnNull, Path, Retention, Rules, Source, Version};
use crate::yaml::read::clipped;
use crate::yaml::{File, Place, Placed, Report, Text, units};

use super::spec::Spec;
use super::{Input, Start, Topology, names};

/// The topology that `spec` describes, and where its name stands.
pub fn compile(spec: &Spec, file: &Arc<File>, report: &mut Report) -> Option<(Topology, Place)> {
    let mut compiler = Compiler { spec, file, report };
    let name = compiler.name();
    let topics = compiler.topics();
    compiler.formats();
    compiler.identity();
    compiler.version();
    compiler.actions();
    let retention = compiler.retention();
    let future_max_ms = compiler.future_max_ms(retention);
    let output = compiler.output();
    let dead_letter = compiler.dead_letter(name.as_deref());
    compiler.derived(name.as_deref());
    compiler.partitioning();
    if !compiler.report.is_fine() {
        return None;
    }
    let mut rules = Rules::new(
        Identity::of_paths(spec.identity.iter().map(|part| part.value.clone())),
        spec.version.as_ref().map(|of| Version::integer(of.value.clone())),
    );
    rules.key_format = spec.key_format.as_ref().map_or(rules.key_format, |format| format.value);
    rules.value_format = spec.value_format.as_ref().map_or(rules.value_format, |format| format.value);
    rules.retention = retention;
    rules.future_max_ms = future_max_ms;
    rules.actions = actions(spec);
    let topology = Topology {
        name: name?,
        preset: None,
        input: Input::Topics(topics),
        start: spec.start.as_ref().map_or(Start::Earliest, |start| start.value),
        rules: Arc::new(rules),
        output: output?,
        dead_letter: dead_letter?,
        audit: None,
        tests: Vec::new(),
    };
    Some((topology, spec.name.as_ref()?.place))
}

/// What was written, over the defaults.
fn actions(spec: &Spec) -> Actions {
    let defaults = Actions::default();
    let or = |written: &Option<Placed<Action>>, default| written.as_ref().map_or(default, |action| action.value);
    Actions {
        invalid: or(&spec.actions.invalid, defaults.invalid),
        missing_identity: or(&spec.actions.missing, defaults.missing_identity),
        null_value: spec.actions.null_value.as_ref().map_or(defaults.null_value, |action| OnNull::Act(action.value)),
        equal_version: or(&spec.actions.equal, defaults.equal_version),
        missing_version: or(&spec.actions.missing_version, defaults.missing_version),
        epoch_change: defaults.epoch_change,
        late: or(&spec.actions.late, defaults.late),
        unsendable: or(&spec.actions.unsendable, defaults.unsendable),
    }
}

struct Compiler<'a> {
    spec: &'a Spec,
    file: &'a Arc<File>,
    report: &'a mut Report,
}

impl Compiler<'_> {
    fn mistake(&mut self, place: Place, message: String, label: impl Into<String>, help: impl Into<String>) {
        self.report.mistake((self.file, place), message, label, help);
    }

    fn name(&mut self) -> Option<String> {
        let name = self.spec.name.as_ref()?;
        let text = name.value.reveal();
        if names::is_name(text) {
            return Some(text.to_owned());
        }
        let message =
            format!("a topology's name holds 1 to {} lower-case letters, digits and `-`", names::NAME_CHARS_MAX);
        let nearest = names::nearest_name(text).filter(|_| !name.value.is_secret());
        let help = format!("write e.g. `name: {}`", nearest.as_deref().unwrap_or("payments"));
        self.mistake(name.place, message, format!("`{}` does not", shown(&name.value)), help);
        None
    }

    fn topics(&mut self) -> Vec<String> {
        let mut topics: Vec<String> = Vec::new();
        for topic in &self.spec.topics {
            let name = topic.value.reveal();
            if self.topic_name(topic, name, "input.topics") && topics.iter().any(|other| other == name) {
                let message = format!("the topic `{}` stands in `input.topics` twice", topic.value);
                self.mistake(topic.place, message, "again", "remove one of them");
            }
            topics.push(name.to_owned());
        }
        topics
    }

    /// Whether Kafka takes this name, which is `topic` with its template filled in.
    fn topic_name(&mut self, topic: &Placed<Text>, name: &str, key: &str) -> bool {
        let Some(problem) = names::topic_problem(name) else { return true };
        // The problem may quote a character of a secret.
        let problem = if topic.value.is_secret() { "Kafka does not take this name".to_owned() } else { problem };
        let mut help = "write a topic's name, e.g. `payments`".to_owned();
        if name.contains(['{', '}']) {
            help = format!("only `output.topic` may hold braces, and only `{}` in them", names::TEMPLATE);
        }
        self.mistake(topic.place, format!("`{key}`: {problem}"), format!("`{}`", shown(&topic.value)), help);
        false
    }

    /// Paths inside what is not JSON.
    fn formats(&mut self) {
        if !self.spec.formats_known {
            return;
        }
        for path in self.spec.identity.iter().chain(&self.spec.version) {
            let (what, format) = match path.value.source {
                Source::Key => ("key", self.spec.key_format.as_ref().map_or(Format::Bytes, |format| format.value)),
                Source::Value => ("value", self.spec.value_format.as_ref().map_or(Format::Json, |format| format.value)),
                _ => continue,
            };
            if path.value.is_inside() && format != Format::Json {
                let message = format!("this path reads inside the {what}, whose format is {format}");
                let help = format!("write `{what}_format: json` under `input`, or `{what}` for all of its bytes");
                self.mistake(path.place, message, "needs JSON", help);
            }
        }
    }

    fn identity(&mut self) {
        let parts = &self.spec.identity;
        for (index, part) in parts.iter().enumerate() {
            if parts[..index].iter().any(|other| other.value == part.value) {
                self.mistake(
                    part.place,
                    "this part stands in `identity` twice".to_owned(),
                    "again",
                    "remove one of them",
                );
            }
        }
        let says_nothing = |path: &Path| matches!(path.source, Source::Const(_) | Source::Topic | Source::Partition);
        if self.spec.identity_whole && parts.iter().all(|part| says_nothing(&part.value)) {
            let message = "`identity` is the same for all records of a partition".to_owned();
            let help = "name what says which thing a record is about, e.g. `identity: value.order_id`";
            self.mistake(self.spec.identity_place, message, "all but the first would be duplicates", help);
        }
    }

    fn version(&mut self) {
        let Some(of) = &self.spec.version else { return };
        let problem = match of.value.source {
            Source::Topic => "a topic's name is no integer",
            Source::Partition => "the partition is the same for all records of a task",
            _ => return,
        };
        let help = "name what says which record is newer, e.g. `{of: value.version, as: integer}`";
        self.mistake(of.place, "this cannot be a version".to_owned(), problem, help);
    }

    fn actions(&mut self) {
        let actions = &self.spec.actions;
        if !self.spec.versioned {
            for (key, action) in [("on_equal", &actions.equal), ("on_missing_version", &actions.missing_version)] {
                if let Some(action) = action {
                    let help = format!("remove `{key}`, or add `version: {{of: value.version, as: integer}}`");
                    self.mistake(
                        action.place,
                        format!("`{key}` says nothing without a `version`"),
                        "never looked at",
                        help,
                    );
                }
            }
        }
        if let Some(action) = actions.unsendable.as_ref().filter(|action| action.value == Action::Forward) {
            let message = "`on_unsendable` cannot be `forward`".to_owned();
            let help = "write `on_unsendable: dead_letter`, `drop` or `fail`";
            self.mistake(action.place, message, "the output has refused the record already", help);
        }
    }

    fn retention(&mut self) -> Retention {
        // What the version is does not matter, only whether there is one.
        let default = || match self.spec.versioned {
            true => Retention::Forever,
            false => Retention::default_for(None),
        };
        let retention = self.spec.retention.as_ref().map_or_else(default, |retention| retention.value);
        if let (Some(late), Retention::Forever) = (&self.spec.actions.late, retention)
            && (self.spec.retention.is_some() || !self.spec.retention_given)
        {
            let message = "`on_late` says nothing: without a limited retention no record is late".to_owned();
            let help = "remove it, or limit the retention, e.g. `retention: 30d`";
            self.report.warning((self.file, late.place), message, "never looked at", help);
        }
        retention
    }

    fn future_max_ms(&mut self, retention: Retention) -> i64 {
        let Some(future_max) = &self.spec.future_max_ms else { return retention.default_future_max_ms() };
        let known = self.spec.retention.is_some() || !self.spec.retention_given;
        if let Retention::For { ms } = retention
            && known
            && future_max.value >= ms
        {
            let message =
                format!("`future_max` must be less than the retention, which is {}", units::show_duration_ms(ms));
            let help = format!(
                "write less, e.g. `future_max: {}`",
                units::show_duration_ms(retention.default_future_max_ms().max(1))
            );
            self.mistake(future_max.place, message, "one wrong timestamp could expire everything", help);
        }
        future_max.value
    }

    /// The output's name, if Kafka takes it for each of the input topics and it is none that is taken.
    fn output(&mut self) -> Option<String> {
        let output = self.spec.output.as_ref()?;
        let template = output.value.reveal();
        let around = template.replace(names::TEMPLATE, "");
        if around.len() == template.len() || around.contains(['{', '}']) {
            return self.free_name(output, template, "output.topic", &[]).then(|| template.to_owned());
        }
        let inputs: Vec<String> = self.spec.topics.iter().map(|topic| topic.value.reveal().to_owned()).collect();
        for input in inputs.iter().filter(|input| names::topic_problem(input).is_none()) {
            // One report is enough, whatever the other topics' names come to.
            if !self.free_name(output, &template.replace(names::TEMPLATE, input), "output.topic", &[]) {
                break;
            }
        }
        Some(template.to_owned())
    }

    fn dead_letter(&mut self, name: Option<&str>) -> Option<String> {
        let output = self.spec.output.as_ref();
        let outputs: Vec<String> = output.map_or_else(Vec::new, |output| {
            let of = |input: &Placed<Text>| output.value.reveal().replace(names::TEMPLATE, input.value.reveal());
            self.spec.topics.iter().map(of).collect()
        });
        if let Some(topic) = &self.spec.dead_letter {
            self.free_name(topic, topic.value.reveal(), "dead_letter.topic", &outputs);
            return Some(topic.value.reveal().to_owned());
        }
        let name = format!("{}.dead_letter", name?);
        let input = self.spec.topics.iter().find(|input| input.value.reveal() == name);
        if let Some(taken) = input.or(output.filter(|_| outputs.contains(&name))) {
            let message = "this is the topic of the dead letters".to_owned();
            let help = "name another one, e.g. `dead_letter: {topic: payments.failed}`";
            self.mistake(taken.place, message, "it cannot be this too", help);
        }
        Some(name)
    }

    /// Whether Kafka takes `name`, which comes from `topic`, and nothing else of this topology has it.
    fn free_name(&mut self, topic: &Placed<Text>, name: &str, key: &str, outputs: &[String]) -> bool {
        if !self.topic_name(topic, name, key) {
            return false;
        }
        let label = |text: &str| format!("`{}` is {text}", shown(&topic.value));
        let (message, label, help) = if self.spec.topics.iter().any(|input| input.value.reveal() == name) {
            let help = "name another topic, e.g. the input's with `.unique` after it";
            (format!("`{key}` cannot be the topology's own input"), label("among `input.topics`"), help)
        } else if names::is_changelog(name) {
            let help = "name another topic: `ratchet.….changelog` is kept for what ratchet remembers";
            (format!("`{key}` cannot be a changelog"), label("how ratchet names those"), help)
        } else if outputs.iter().any(|output| output == name) {
            let help = "name another topic: whoever reads the output does not expect dead letters there";
            (format!("`{key}` cannot be the output"), label("the output"), help)
        } else {
            return true;
        };
        self.mistake(topic.place, message, label, help);
        false
    }

    /// Names that ratchet makes of the input topics'.
    fn derived(&mut self, name: Option<&str>) {
        let Some(name) = name else { return };
        for topic in &self.spec.topics {
            let length = names::changelog(name, topic.value.reveal()).len();
            // What is too long by itself is reported as such.
            if length > names::TOPIC_CHARS_MAX && topic.value.reveal().len() <= names::TOPIC_CHARS_MAX {
                let message = format!("the changelog's name would be too long: {}", names::too_long(length));
                let over = length - names::TOPIC_CHARS_MAX;
                let help = format!("it is `ratchet.NAME.TOPIC.changelog`: shorten `name` or the topic by {over}");
                self.mistake(topic.place, message, "of this topic", help);
            }
        }
    }

    /// Duplicates are recognised within one partition only.
    fn partitioning(&mut self) {
        let has_key = self.spec.identity.iter().any(|part| part.value.source == Source::Key && !part.value.is_inside());
        if has_key || self.spec.partitioned_by_identity || !self.spec.identity_whole {
            return;
        }
        let message =
            "duplicates are recognised within one partition only, and `identity` does not contain the key".to_owned();
        let help = "if records of one identity always have the same key (or partition), write `partitioned_by_identity: true`; \
                    else add `key` to the identity";
        let label = "are its records in one partition?";
        self.report.warning((self.file, self.spec.identity_place), message, label, help);
    }
}

/// A text for a label: a secret as `***`.
fn shown(text: &Text) -> String {
    clipped(&text.to_string())
}
