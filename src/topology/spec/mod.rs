//! The first step: reads a topology's text into a raw spec in which each value has its place.
//!
//! A preset's blocks are added to the user's before anything is read ([`super::presets`]), so both are read by the same
//! code.

use crate::dedup::{Action, Contents, EpochPart, Format, Limits, OnNull, Refresh, Retention};
use crate::yaml::{Field, Fields, Node, Place, Placed, Reader, Shape, Text};

pub use super::cases::spec::{CaseSpec, GivenSpec, Payload, RecordSpec};
use super::destination::Existing;
pub use super::gate::spec::GateSpec;
use super::input::Start;
use super::keys;
use super::sink::Dedup;
pub use super::sink::spec::SinkSpec;
use super::sink::terms::OnDuplicate;
pub use identity::IdentitySpec;
pub use kinds::KindsSpec;
pub use reader::PathSpec;
pub use version::VersionSpec;

use reader::{SpecReader, choices};

pub mod contents;
mod explained;
pub mod identity;
pub mod kinds;
pub mod limits;
pub mod paths;
pub mod reader;
pub mod version;

/// A topology as written; `None` means left out, or already reported.
#[derive(Debug)]
pub struct Spec {
    pub name: Option<Placed<Text>>,
    /// The place of `preset`, and of everything that comes from the preset.
    pub preset_place: Option<Place>,
    pub input: InputSpec,
    pub identity: IdentitySpec,
    /// Where `identity` is.
    pub identity_place: Place,
    pub version: Option<VersionSpec>,
    /// Where `version` is, right, wrong or misspelt.
    pub version_place: Option<Place>,
    pub epoch: Option<Vec<Placed<EpochPart>>>,
    /// Where `epoch` is, right, wrong or misspelt.
    pub epoch_place: Option<Place>,
    pub kinds: Option<KindsSpec>,
    /// Whether there is a `kinds`, right, wrong or misspelt.
    pub kinds_given: bool,
    /// `None` in it if contents are not to be compared.
    pub contents: Option<Placed<Option<Contents>>>,
    /// Every path of identity, version, epoch, kinds and contents.
    pub paths: Vec<PathSpec>,
    pub retention: Option<Placed<Retention>>,
    /// Whether there is a `retention`, right or wrong.
    pub retention_given: bool,
    pub refresh: Option<Placed<Refresh>>,
    pub future_max_ms: Option<Placed<i64>>,
    pub limits: Limits,
    /// `None` too if the topology ends in a sink.
    pub output: Option<Placed<Text>>,
    pub existing: Option<Placed<Existing>>,
    pub sink: Option<SinkSpec>,
    pub gate: Option<GateSpec>,
    pub dead_letter: Option<Placed<Text>>,
    pub audit: Option<Placed<Text>>,
    pub actions: ActionSpecs,
    pub partitioned_by_identity: bool,
    pub tests: Vec<CaseSpec>,
}

impl Spec {
    /// Whether the topology does nothing but keep a table, where the last change of a row stays.
    pub fn keeps_a_table(&self) -> bool {
        self.sink.as_ref().and_then(|sink| sink.postgres.as_ref()).is_some_and(|postgres| {
            let has_inbox = postgres.dedup.as_ref().is_some_and(|dedup| dedup.value == Dedup::Inbox);
            postgres.table_place.is_some() && postgres.outbox_place.is_none() && !has_inbox
        })
    }
}

/// The input as written.
#[derive(Debug, Default)]
pub struct InputSpec {
    pub topics: Vec<Placed<Text>>,
    pub pattern: Option<Placed<Text>>,
    /// Where `pattern` is, right, wrong or misspelt.
    pub pattern_place: Option<Place>,
    pub exclude: Vec<Placed<Text>>,
    /// Where `exclude` is, right or wrong.
    pub exclude_place: Option<Place>,
    /// Whether topics, pattern and exclude are complete: false if one is wrong.
    pub topics_known: bool,
    pub key_format: Option<Placed<Format>>,
    pub value_format: Option<Placed<Format>>,
    /// The format of JSON that names no schema.
    pub json_format: Option<Placed<Format>>,
    /// Whether the formats are as the user wrote them: false if one is wrong.
    pub formats_known: bool,
    pub start: Option<Placed<Start>>,
}

/// The actions as written.
#[derive(Debug)]
pub struct ActionSpecs {
    pub invalid: Option<Placed<Action>>,
    pub missing: Option<Placed<Action>>,
    pub null_value: Option<Placed<OnNull>>,
    pub equal: Option<Placed<Action>>,
    pub conflict: Option<Placed<Action>>,
    pub missing_version: Option<Placed<Action>>,
    pub epoch_change: Option<Placed<Action>>,
    pub late: Option<Placed<Action>>,
    pub unsendable: Option<Placed<Action>>,
    pub duplicate: Option<Placed<OnDuplicate>>,
}

/// Reads a topology's tree.
pub fn read(tree: &Node, reader: &mut Reader<'_>) -> Option<Spec> {
    let top = reader.root(tree, &keys::TOP, Shape { what: "a mapping", example: "name: payments" })?;
    let mut this = SpecReader { reader, paths: Vec::new() };
    let name = top.require("name", this.reader).and_then(|field| this.reader.text(field));
    let input = top.require("input", this.reader).and_then(|field| {
        let fields = this.reader.fields(field, &keys::INPUT)?;
        Some(this.input(&fields))
    });
    let identity = match top.get("preset") {
        Some(_) => top.get("identity"),
        None if top.misspelt("preset").is_some() => top.get("identity"),
        None => top.require("identity", this.reader),
    };
    let (output, existing) = this.destination(&top).map(|field| this.written_to(field)).unwrap_or_default();
    let sink = top.get("sink").map(|field| this.sink(field));
    let gate = top.get("gate").map(|field| this.gate(field));
    let refresh = choices(Refresh::ALL, Refresh::as_str);
    Some(Spec {
        name,
        preset_place: top.get("preset").map(Field::place),
        input: input.unwrap_or_default(),
        identity: identity.map(|field| this.identity(field)).unwrap_or_default(),
        identity_place: identity.map_or(Place::default(), Field::place),
        version: top.get("version").map(|field| this.version(field)),
        version_place: top.get("version").map(Field::place).or(top.misspelt("version")),
        epoch: top.get("epoch").and_then(|field| this.epoch(field)),
        epoch_place: top.get("epoch").map(Field::place).or(top.misspelt("epoch")),
        kinds: top.get("kinds").and_then(|field| this.kinds(field)),
        kinds_given: top.get("kinds").is_some() || top.misspelt("kinds").is_some(),
        contents: top.get("contents").and_then(|field| this.contents(field)),
        retention: top.get("retention").and_then(|field| this.retention(field)),
        retention_given: top.get("retention").is_some(),
        refresh: top.get("refresh").and_then(|field| this.reader.choice(field, &refresh)),
        future_max_ms: top.get("future_max").and_then(|field| this.reader.duration_ms(field)),
        limits: top.get("limits").map_or_else(Limits::default, |field| this.limits(field)),
        output,
        existing,
        sink,
        gate,
        dead_letter: top.get("dead_letter").and_then(|field| this.topic(field, &keys::DEAD_LETTER)),
        audit: top.get("audit").and_then(|field| this.topic(field, &keys::AUDIT)),
        actions: this.actions(&top),
        partitioned_by_identity: top
            .get("partitioned_by_identity")
            .and_then(|field| this.reader.boolean(field))
            .is_some_and(|said| said.value),
        tests: top.get("tests").map(|field| this.tests(field)).unwrap_or_default(),
        paths: this.paths,
    })
}

impl SpecReader<'_, '_> {
    fn input(&mut self, fields: &Fields<'_>) -> InputSpec {
        let topics = match (fields.get("topics"), fields.get("pattern")) {
            (None, Some(_)) => None,
            (None, None) if fields.misspelt("pattern").is_some() => None,
            _ => fields.require("topics", self.reader),
        };
        if let (Some(_), Some(second)) = (topics, fields.get("pattern")) {
            let message = "an input has `topics` or a `pattern`, not both".to_owned();
            let help = "remove one of them; a pattern can name topics too: `^(payments|refunds)$`";
            self.reader.mistake(second.key_place, message, "`topics` is already set", help);
        }
        let has_both = topics.is_some() && fields.get("pattern").is_some();
        let topics = topics.and_then(|field| self.reader.list(field)).unwrap_or_default();
        let has_exclude = fields.get("exclude").is_some();
        let excluded = fields.get("exclude").and_then(|field| self.reader.list(field)).unwrap_or_default();
        let formats = choices(Format::ALL, Format::as_str);
        let starts = choices(Start::ALL, Start::as_str);
        let mut format = |key: &str| {
            let field = fields.get(key);
            let read = field.and_then(|field| {
                let explain = |word: &str| explained::format(word, key, &field.name);
                self.reader.choice_or(field, &formats, explain)
            });
            (read.is_some() || field.is_none(), read)
        };
        let ((key_known, key_format), (value_known, value_format)) = (format("key_format"), format("value_format"));
        let json_formats = [("json", Format::Json), ("connect_json", Format::ConnectJson)];
        let json_format = fields.get("json_format").and_then(|field| self.reader.choice(field, &json_formats));
        let topics_known = !(has_both || has_exclude && excluded.is_empty());
        InputSpec {
            topics_known,
            topics: topics.iter().filter_map(|field| self.reader.text(field)).collect(),
            pattern: fields.get("pattern").and_then(|field| self.reader.text(field)),
            pattern_place: fields.get("pattern").map(Field::place).or(fields.misspelt("pattern")),
            exclude: excluded.iter().filter_map(|field| self.reader.text(field)).collect(),
            exclude_place: fields.get("exclude").map(|field| field.key_place),
            key_format,
            value_format,
            json_format,
            formats_known: key_known && value_known,
            start: fields.get("start").and_then(|field| self.reader.choice(field, &starts)),
        }
    }

    fn actions(&mut self, top: &Fields<'_>) -> ActionSpecs {
        let actions = choices(Action::ALL, Action::as_str);
        // A misspelt key's value is read for its own mistakes, but combined with nothing else.
        let is_spelt_right = |key: &str| top.misspelt(key).is_none();
        let mut action = |key: &str| {
            let read = top.get(key).and_then(|field| self.reader.choice(field, &actions));
            read.filter(|_| is_spelt_right(key))
        };
        ActionSpecs {
            invalid: action("on_invalid"),
            missing: action("on_missing"),
            equal: action("on_equal"),
            conflict: action("on_conflict"),
            missing_version: action("on_missing_version"),
            epoch_change: action("on_epoch_change"),
            late: action("on_late"),
            unsendable: action("on_unsendable"),
            duplicate: top
                .get("on_duplicate")
                .and_then(|field| {
                    let words = choices(OnDuplicate::ALL, OnDuplicate::as_str);
                    self.reader.choice_or(field, &words, explained::on_duplicate)
                })
                .filter(|_| is_spelt_right("on_duplicate")),
            null_value: top
                .get("on_null_value")
                .and_then(|field| self.reader.choice(field, &keys::null_choices()))
                .filter(|_| is_spelt_right("on_null_value")),
        }
    }

    /// The output, if there is one. A topology's destination is an output or a sink.
    fn destination<'n>(&mut self, top: &'n Fields<'n>) -> Option<&'n Field<'n>> {
        let is_misspelt = top.misspelt("output").is_some() || top.misspelt("sink").is_some();
        match (top.get("output"), top.get("sink")) {
            (None, None) if !is_misspelt => {
                let message = "`output` is missing, or a `sink`".to_owned();
                let help = "write e.g. `output: {topic: payments.unique}`, or what new records cause outside of Kafka, e.g. \
                            `sink: {postgres: …}`, `sink: {http: …}` or `sink: {handler: …}`";
                self.reader.mistake(top.place, message, "it belongs in here", help);
            }
            (Some(output), Some(sink)) => {
                let second = if output.key_place.start > sink.key_place.start { output } else { sink };
                let message = "a topology ends in an `output` or in a `sink`, not in both".to_owned();
                let help = "remove one of them; two topologies can read the same input";
                self.reader.mistake(second.key_place, message, "the topology ends already", help);
            }
            _ => {}
        }
        top.get("output")
    }

    /// The output's topic, and what to do if it holds records.
    fn written_to(&mut self, field: &Field<'_>) -> (Option<Placed<Text>>, Option<Placed<Existing>>) {
        let Some(fields) = self.reader.fields(field, &keys::OUTPUT) else { return (None, None) };
        let topic = fields.require("topic", self.reader);
        let existing = choices(Existing::ALL, Existing::as_str);
        (
            topic.and_then(|field| self.reader.text(field)),
            fields.get("existing").and_then(|field| self.reader.choice(field, &existing)),
        )
    }
}
