//! The proposal: a topology as YAML, with its reasons as comments.

use std::fmt::Write as _;

use super::blocks::Meaning;
use super::draft::Draft;
use super::meaning::meaning;
use super::needed::Needed;
use super::sample::Sample;
use super::ties::{Ties, listed};
use crate::capture::{Form, Nearly};
use crate::words::{agreeing, counted};

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

impl Proposal {
    /// Adds a comment at its end.
    pub(super) fn comment(&mut self, text: &str) {
        let mut draft = Draft { lines: std::mem::take(&mut self.text), unsure: Vec::new() };
        draft.comment(text);
        self.text = draft.lines;
    }
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

/// Proposes a topology for a sample, by what replaying a proposal has shown of it.
pub fn propose(sample: &Sample, wanted: &Wanted, needed: Needed, ties: &Ties) -> Proposal {
    let meaning = meaning(sample, needed);
    let mut draft = Draft::default();
    let count = counted(sample.records.len(), "record");
    let cut = if sample.is_cut { ", the first of the capture" } else { "" };
    let envelope = if sample.form == Form::Kcat { "--envelope kcat " } else { "" };
    draft.comment(&format!(
        "Proposed by `ratchet infer` from {count}{cut}. Read the reasons, change what you know better, then \
         see what it does: `ratchet replay THIS_FILE CAPTURE {envelope}--summary > survivors`."
    ));
    let topics = wanted.topic.as_ref().map_or_else(|| sample.topics(), |topic| vec![topic.as_str()]);
    draft.line(&format!("name: {}", wanted.name.clone().unwrap_or_else(|| name_of(&topics))));
    draft.left_out(sample);
    draft.input(&topics, &meaning, sample);
    draft.lines.push_str(&meaning.body.lines);
    if let Some(compared) = &meaning.compared {
        draft.compared(compared, ties, sample.records.len());
    }
    draft.nulls(sample, &meaning, needed);
    draft.retention(meaning.retention, needed);
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
    fn input(&mut self, topics: &[&str], meaning: &Meaning, sample: &Sample) {
        let named: Vec<String> = topics.iter().take(TOPICS_MAX).map(|topic| quoted(topic)).collect();
        if topics.len() > TOPICS_MAX {
            self.unsure.push(format!("{} topics are in the capture, {TOPICS_MAX} are named", topics.len()));
        }
        let mut input = format!("topics: [{}]", named.join(", "));
        let formats = [("key_format", meaning.key_format, "bytes"), ("value_format", meaning.value_format, "json")];
        for ((name, format, default), by_schema) in formats.into_iter().zip(sample.formats) {
            if let Some(format) = by_schema {
                // writing to a string never fails
                let _ = write!(input, ", {name}: {format}");
                continue;
            }
            // a preset sets the formats that it needs
            let is_written =
                if meaning.preset.is_none() { format != default } else { name == "key_format" && meaning.raw_keys };
            if is_written {
                // writing to a string never fails
                let _ = write!(input, ", {name}: {format}");
            }
        }
        self.line(&format!("input: {{{input}}}"));
    }

    /// Adds a comment: the topics of schema changes, which are not among the inputs.
    fn left_out(&mut self, sample: &Sample) {
        let topics = &sample.left_out;
        if topics.is_empty() {
            return;
        }
        let named: Vec<String> = topics
            .iter()
            .take(TOPICS_MAX)
            .map(|(topic, count)| format!("`{topic}` ({})", counted(*count, "record")))
            .collect();
        self.comment(&format!(
            "{} {} left out: Debezium writes schema changes (DDL) there, and no changes of rows.",
            listed(&named),
            agreeing(topics.len(), "is", "are")
        ));
    }

    fn nulls(&mut self, sample: &Sample, meaning: &Meaning, needed: Needed) {
        let (values, are) = (counted(sample.nulls, "value"), agreeing(sample.nulls, "is", "are"));
        if meaning.nulls_delete {
            let say = agreeing(sample.nulls, "says", "say");
            self.comment(&format!(
                "{values} {are} null: the delete of {} key. {} headers {say} which change is newer, so deletes are judged \
                 like all other changes.",
                agreeing(sample.nulls, "its", "their"),
                agreeing(sample.nulls, "Its", "Their")
            ));
            self.line("on_null_value: delete");
        } else if meaning.follows_deletes && needed.nulls_pass {
            self.comment(&format!(
                "{values} {are} null, and not all of them follow a delete: in this stream a null value is the delete \
                 itself, so it is passed on."
            ));
            self.line("on_null_value: forward");
            self.unsure.push(
                "a null value has no position, so one that is delivered again is passed on again; have the connector \
                 write deletes as records (`delete.tombstone.handling.mode=rewrite-with-tombstone`) if it can"
                    .to_owned(),
            );
        } else if meaning.follows_deletes && meaning.preset.is_none() {
            self.line("on_null_value: follow_delete");
        } else if sample.nulls > 0 && !meaning.follows_deletes {
            self.comment(&format!(
                "{values} {are} null: in a compacted topic that means that the key is gone, so it is passed on."
            ));
            self.line("on_null_value: forward");
        }
    }

    fn retention(&mut self, retention: Option<&'static str>, needed: Needed) {
        if needed.forever {
            self.comment(
                "Records are late by their timestamps, which is why nothing expires here: with a limited retention late \
                 records would be dead letters.",
            );
            self.line("retention: forever");
        } else if let Some(retention) = retention {
            self.line(&format!("retention: {retention}"));
        }
    }

    fn doubts(&mut self, sample: &Sample, wanted: &Wanted) {
        if let Some((place, nearly)) = &sample.nearly {
            self.unsure.push(format!("{place} {nearly}, and was taken for a value: {}", Nearly::HELP));
        }
        if !sample.form.is_whole() {
            self.unsure.push(
                "the lines are values only, without keys, headers, partitions and timestamps; \
                 capture them with `ratchet capture`"
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
            None if sample.is_cut && sample.form.is_whole() => {
                self.unsure.push("which topics lie beyond the records that were looked at is not known".to_owned());
            }
            _ => {}
        }
        if sample.records.len() < RECORDS_FEW {
            let were = agreeing(sample.records.len(), "was", "were");
            let count = counted(sample.records.len(), "record");
            self.unsure.push(format!("only {count} {were} looked at: that shows little"));
        }
        if let (undecoded @ 1.., Some(why)) = &sample.undecoded {
            self.unsure.push(format!(
                "{} {} a schema but cannot be decoded, the first because {why}",
                counted(*undecoded, "value"),
                agreeing(*undecoded, "names", "name"),
            ));
        }
        if sample.malformed > 0 && sample.json() > 0 {
            let (values, are) = (counted(sample.malformed, "value"), agreeing(sample.malformed, "is", "are"));
            let letters = agreeing(sample.malformed, "it would be a dead letter", "they would be dead letters");
            self.unsure.push(format!("{values} {are} not JSON: {letters}"));
        }
    }
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
