//! The proposal: a topology as YAML, with its reasons as comments.

use std::fmt::Write as _;

use super::choose::{Chosen, choose};
use super::fields::Table;
use super::names;
use super::rows::{StandIn, stand_in};
use super::sample::Sample;
use super::shape::{Shape, shapes};
use crate::dedup::Source;
use crate::words::{agreeing, counted};

/// The column at which comments wrap.
const WIDTH: usize = 100;
/// Fewer records are too few to show much.
const RECORDS_FEW: usize = 20;
/// Maximum number of topics that are named.
const TOPICS_MAX: usize = 50;

/// A proposed topology, and what the sample does not show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proposal {
    /// The YAML.
    pub text: String,
    /// What is unsure, in sentences.
    pub unsure: Vec<String>,
    /// The preset, if there is one for these records.
    pub preset: Option<&'static str>,
}

/// The names that the caller wants.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// The topology's name.
    pub name: Option<String>,
    /// The input topic.
    pub topic: Option<String>,
    /// The output topic.
    pub output: Option<String>,
}

/// A topology, or part of one, while it is written.
#[derive(Default)]
struct Draft {
    lines: String,
    unsure: Vec<String>,
}

/// The part of a topology that says what records mean.
struct Meaning {
    key_format: &'static str,
    value_format: &'static str,
    preset: Option<&'static str>,
    body: Draft,
}

/// Proposes a topology for a sample. With `rows_identify`, the identity is read from a change event's row instead of
/// its key, for captures without keys.
pub fn propose(sample: &Sample, wanted: &Wanted, rows_identify: bool) -> Proposal {
    let meaning = meaning(sample, rows_identify);
    let mut draft = Draft::default();
    let count = counted(sample.records.len(), "record");
    let cut = if sample.is_cut { ", the first of the capture" } else { "" };
    let envelope = if sample.kcat { "--envelope kcat " } else { "" };
    draft.comment(&format!(
        "Proposed by `ratchet infer` from {count}{cut}. Read the reasons, change what you know better, then \
         see what it does: `ratchet replay THIS_FILE CAPTURE {envelope}--summary > survivors`."
    ));
    let topics = wanted.topic.as_ref().map_or_else(|| sample.topics(), |topic| vec![topic.as_str()]);
    draft.line(&format!("name: {}", wanted.name.clone().unwrap_or_else(|| name_of(&topics))));
    draft.input(&topics, &meaning);
    draft.lines.push_str(&meaning.body.lines);
    draft.nulls(sample, meaning.preset.is_some());
    let output = match (&wanted.output, &topics[..]) {
        (Some(output), _) => output.clone(),
        (None, [topic]) => format!("{topic}.unique"),
        (None, _) => "{topic}.unique".to_owned(),
    };
    draft.line(&format!("output: {{topic: {}}}", quoted(&output)));
    draft.unsure.extend(meaning.body.unsure);
    draft.doubts(sample, wanted);
    Proposal { text: draft.lines, unsure: draft.unsure, preset: meaning.preset }
}

impl Draft {
    fn line(&mut self, line: &str) {
        self.lines.push_str(line);
        self.lines.push('\n');
    }

    /// Adds a comment, wrapped to a readable width.
    fn comment(&mut self, text: &str) {
        let mut width = 0;
        for word in text.split_whitespace() {
            // names come from the capture: none may end the comment
            let word: String = word.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
            if width > 0 && width + 1 + word.len() > WIDTH {
                self.lines.push('\n');
                width = 0;
            }
            self.lines.push_str(if width == 0 { "# " } else { " " });
            self.lines.push_str(&word);
            width += word.len() + if width == 0 { 2 } else { 1 };
        }
        self.lines.push('\n');
    }

    fn input(&mut self, topics: &[&str], meaning: &Meaning) {
        let named: Vec<String> = topics.iter().take(TOPICS_MAX).map(|topic| quoted(topic)).collect();
        if topics.len() > TOPICS_MAX {
            self.unsure.push(format!("{} topics are in the capture, {TOPICS_MAX} are named", topics.len()));
        }
        let mut input = format!("topics: [{}]", named.join(", "));
        // a preset sets the formats that it needs
        if meaning.preset.is_none() {
            for (name, format, default) in
                [("key_format", meaning.key_format, "bytes"), ("value_format", meaning.value_format, "json")]
            {
                if format != default {
                    // writing to a string never fails
                    let _ = write!(input, ", {name}: {format}");
                }
            }
        }
        self.line(&format!("input: {{{input}}}"));
    }

    fn nulls(&mut self, sample: &Sample, has_preset: bool) {
        if sample.nulls > 0 && !has_preset {
            self.comment(&format!(
                "{} {} null: in a compacted topic that means that the key is gone, so it is passed on.",
                counted(sample.nulls, "value"),
                agreeing(sample.nulls, "is", "are")
            ));
            self.line("on_null_value: forward");
        }
    }

    /// Adds a comment: how many values have this form.
    fn shape(&mut self, shape: &Shape, count: usize, sample: &Sample) {
        let values = counted(sample.json(), "value");
        self.comment(&format!("{count} of {values} {} {shape}.", agreeing(count, "is", "are")));
    }

    fn doubts(&mut self, sample: &Sample, wanted: &Wanted) {
        if !sample.kcat {
            self.unsure.push(
                "the lines are values only, without keys, headers, partitions and timestamps; \
                 capture them with `kcat -C -e -J`"
                    .to_owned(),
            );
            if wanted.topic.is_none() {
                self.unsure.push(
                    "the lines do not name their topic, so its name is made up: give it with `--topic`".to_owned(),
                );
            }
        }
        match &sample.beyond {
            Some(topics) if !topics.is_empty() => {
                let named: Vec<String> = topics.iter().take(TOPICS_MAX).map(|topic| format!("`{topic}`")).collect();
                let more = if topics.len() > TOPICS_MAX { ", …" } else { "" };
                let lie = agreeing(topics.len(), "lies", "lie");
                self.unsure.push(format!(
                    "{} {lie} beyond the records that were looked at, and not in the proposal: {}{more}; look at more \
                     with `--records`",
                    counted(topics.len(), "topic"),
                    named.join(", ")
                ));
            }
            None if sample.is_cut && sample.kcat => {
                self.unsure.push("which topics lie beyond the records that were looked at is not known".to_owned());
            }
            _ => {}
        }
        if sample.records.len() < RECORDS_FEW {
            let were = agreeing(sample.records.len(), "was", "were");
            let count = counted(sample.records.len(), "record");
            self.unsure.push(format!("only {count} {were} looked at: that shows little"));
        }
        if sample.malformed > 0 && sample.json() > 0 {
            let (values, are) = (counted(sample.malformed, "value"), agreeing(sample.malformed, "is", "are"));
            let letters = agreeing(sample.malformed, "it would be a dead letter", "they would be dead letters");
            self.unsure.push(format!("{values} {are} not JSON: {letters}"));
        }
    }
}

fn meaning(sample: &Sample, rows_identify: bool) -> Meaning {
    let wrapped = |wrapped: bool| if wrapped { "connect_json" } else { "json" };
    let mut meaning =
        Meaning { key_format: "bytes", value_format: wrapped(sample.wrapped.1), preset: None, body: Draft::default() };
    if sample.json() == 0 {
        meaning.value_format = "bytes";
        by_bytes(&mut meaning.body, sample);
        return meaning;
    }
    let shapes = shapes(sample.values().map(|(_, value)| value));
    let (shape, count) = &shapes[0];
    for (other, count) in &shapes[1..] {
        meaning.body.unsure.push(format!("not all records are alike; {}: {other}", counted(*count, "record")));
    }
    let table = Table::of(sample);
    meaning.preset = shape.preset();
    match (meaning.preset, shape) {
        (Some(preset), _) => by_preset(&mut meaning.body, sample, preset, (shape, *count), rows_identify),
        (None, Shape::Debezium(_) | Shape::DebeziumWithoutSource | Shape::Dms) => {
            meaning.body.shape(shape, *count, sample);
            meaning.body.unsure.push(
                "no order of such events is known to be safe: if a field rises with each change of a row, name it as \
                 `version`"
                    .to_owned(),
            );
            let why = "No order of such events is known to be safe, so none is relied on";
            by_fingerprint(&mut meaning.body, sample, &table, why);
        }
        (None, Shape::CloudEvent) => {
            meaning.body.comment("These are CloudEvents: their source and id together identify one.");
            meaning.body.line("identity: [value.source, value.id]");
        }
        (None, _) => match choose(&table) {
            Some(chosen) => {
                let reads_key = |&field: &usize| {
                    let path = &table.fields[field].path;
                    path.source == Source::Key && !path.steps.is_empty()
                };
                if chosen.identity.iter().chain(&chosen.version).any(reads_key) {
                    meaning.key_format = wrapped(sample.wrapped.0);
                }
                by_fields(&mut meaning.body, &table, &chosen);
            }
            None => by_fingerprint(&mut meaning.body, sample, &table, "No field was found that identifies a record"),
        },
    }
    meaning
}

fn by_preset(body: &mut Draft, sample: &Sample, preset: &str, shape: (&Shape, usize), rows_identify: bool) {
    let (shape, count) = shape;
    body.shape(shape, count, sample);
    body.line(&format!("preset: {preset}"));
    if matches!(shape, Shape::Flattened(_)) {
        body.unsure.push("flattened events only have the positions that the connector is configured to add".to_owned());
    }
    if !rows_identify {
        return;
    }
    match stand_in(shape, sample) {
        Some(StandIn { identity, why }) => {
            body.comment(why);
            body.line(&format!("identity: {identity}"));
            body.unsure.push("the columns that identify a row are guessed".to_owned());
        }
        None => body.unsure.push(
            "the preset identifies rows by their keys, which were not captured, and no column of the rows looks like \
             an id: replaying this capture says little"
                .to_owned(),
        ),
    }
}

fn by_fields(body: &mut Draft, table: &Table, chosen: &Chosen) {
    let path = |field: usize| in_yaml(&table.fields[field].path.to_string());
    body.comment(&format!("{}.", chosen.why_identity(table).join("; ")));
    let identity: Vec<String> = chosen.identity.iter().map(|&field| path(field)).collect();
    body.line(&format!("identity: [{}]", identity.join(", ")));
    if let Some(version) = chosen.version {
        body.comment(&format!("{}.", chosen.why_version(table).join("; ")));
        body.line(&format!("version: {{of: {}, as: {}}}", path(version), table.fields[version].version_kind()));
    }
    let has_key = chosen.identity.iter().any(|&field| table.fields[field].path.to_string() == "key");
    match table.partitions(&chosen.identity) {
        _ if has_key => {}
        Some((0, repeated)) if repeated > 0 => {
            body.comment(&format!(
                "{} came with an identity that was there before, always in its partition.",
                counted(repeated, "record")
            ));
            body.line("partitioned_by_identity: true");
        }
        Some((spread, _)) if spread > 0 => body.unsure.push(format!(
            "{} {} on several partitions, where duplicates are not recognised",
            counted(spread, "identity"),
            agreeing(spread, "is", "are")
        )),
        _ => body.unsure.push(
            "whether one identity is always in one partition is not shown; if it is, add \
             `partitioned_by_identity: true`"
                .to_owned(),
        ),
    }
    body.unsure.extend(chosen.unsure(table));
}

fn by_fingerprint(body: &mut Draft, sample: &Sample, table: &Table, why: &str) {
    let is_left_out = |name: &str, depth: usize| {
        names::is_of_delivery(name) || (depth == 1 && matches!(name, "ts_ms" | "ts_us" | "ts_ns"))
    };
    let left_out: Vec<String> = table
        .fields
        .iter()
        .filter(|field| field.path.source == Source::Value && is_left_out(&field.name, field.path.steps.len()))
        .map(|field| in_yaml(&field.path.to_string()))
        .collect();
    let has_keys = sample.records.iter().all(|observed| observed.captured.key.is_some());
    body.comment(&format!(
        "{why}: {}all that a value says identifies it{}.",
        if has_keys { "its key and " } else { "" },
        if left_out.is_empty() { "" } else { ", except what may differ when it is delivered again" }
    ));
    let except = if left_out.is_empty() { String::new() } else { format!(", except: [{}]", left_out.join(", ")) };
    let fingerprint = format!("{{fingerprint: value{except}}}");
    body.line(&if has_keys { format!("identity: [key, {fingerprint}]") } else { format!("identity: {fingerprint}") });
    body.unsure.push(
        "two things with equal content, or a thing that returns to an earlier state, count as duplicates".to_owned(),
    );
}

fn by_bytes(body: &mut Draft, sample: &Sample) {
    if sample.malformed > 0 {
        body.comment("No value is JSON: its bytes identify it.");
        body.unsure.push("values were not looked at, since they are not JSON".to_owned());
    } else {
        body.comment("No value was captured.");
        body.unsure.push("there was nothing to look at".to_owned());
    }
    body.line("identity: value");
}

/// A path as YAML.
pub fn in_yaml(path: &str) -> String {
    let is_plain = path.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'));
    if is_plain { path.to_owned() } else { format!("'{}'", path.replace('\'', "''")) }
}

/// A name as YAML.
fn quoted(name: &str) -> String {
    let is_plain = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'));
    if is_plain { name.to_owned() } else { serde_json::Value::from(name).to_string() }
}

/// A topology's name: the topic's, or the words that all topics' names begin with, or else end with.
fn name_of(topics: &[&str]) -> String {
    let common = match topics {
        [first, others @ ..] => common_words(first, others),
        [] => String::new(),
    };
    let name: String =
        common.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).take(60).collect();
    let name = name.trim_matches('-');
    if name.is_empty() { "inferred".to_owned() } else { name.to_owned() }
}

/// The words that all these topics' names begin with, or else end with.
fn common_words(first: &str, others: &[&str]) -> String {
    let words = |topic: &str| topic.split(['.', '_', '-']).map(str::to_owned).collect::<Vec<_>>();
    let backwards = |topic: &str| words(topic).into_iter().rev().collect::<Vec<_>>();
    let common = |split: &dyn Fn(&str) -> Vec<String>| {
        let others: Vec<Vec<String>> = others.iter().map(|topic| split(topic)).collect();
        let is_common = |(index, word): &(usize, String)| others.iter().all(|other| other.get(*index) == Some(word));
        split(first).into_iter().enumerate().take_while(is_common).map(|(_, word)| word).collect::<Vec<_>>()
    };
    let mut found = common(&words);
    if found.is_empty() {
        found = common(&backwards);
        found.reverse();
    }
    found.join("-")
}
