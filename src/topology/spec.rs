//! The first step: a topology's text as a raw spec, each value with its place.

use std::sync::Arc;

use crate::dedup::path::{Number, Problem};
use crate::dedup::{Action, Format, Path, Retention, Scalar, Source};
use crate::yaml::read::{Keys, did_you_mean};
use crate::yaml::{Environment, Field, File, Place, Placed, Reader, Report, Shape, Text, Value, units};

use super::Start;

/// What may stand at the top of a topology.
const TOP: Keys<'static> = Keys {
    known: &[
        "name",
        "input",
        "identity",
        "version",
        "retention",
        "future_max",
        "output",
        "dead_letter",
        "on_invalid",
        "on_missing",
        "on_null_value",
        "on_equal",
        "on_missing_version",
        "on_late",
        "on_unsendable",
        "partitioned_by_identity",
    ],
    later: &[
        "preset",
        "epoch",
        "bucket",
        "fingerprint",
        "first_of",
        "tests",
        "audit",
        "refresh",
        "on_epoch_change",
        "pattern",
        "exclude",
    ],
};
const INPUT: Keys<'static> =
    Keys { known: &["topics", "key_format", "value_format", "start"], later: &["pattern", "exclude"] };
const PART: Keys<'static> = Keys { known: &["const"], later: &["first_of", "fingerprint", "except", "bucket"] };
const VERSION: Keys<'static> = Keys { known: &["of", "as"], later: &["epoch"] };
const TOPIC: Keys<'static> = Keys { known: &["topic"], later: &[] };

const IDENTITY: Shape<'static> = Shape { what: "a path, or a list of paths", example: "identity: value.order_id" };

/// A topology as it was written; what is `None` was left out, or is already reported.
#[derive(Debug)]
pub struct Spec {
    pub name: Option<Placed<Text>>,
    pub topics: Vec<Placed<Text>>,
    pub key_format: Option<Placed<Format>>,
    pub value_format: Option<Placed<Format>>,
    /// Whether the formats are what the user wrote: not if one was mistyped.
    pub formats_known: bool,
    pub start: Option<Placed<Start>>,
    pub identity: Vec<Placed<Path>>,
    /// Whether [`Spec::identity`] is all that was written.
    pub identity_whole: bool,
    /// Where `identity` stands.
    pub identity_place: Place,
    pub version: Option<Placed<Path>>,
    /// Whether there is a `version`, right or wrong.
    pub versioned: bool,
    pub retention: Option<Placed<Retention>>,
    /// Whether there is a `retention`, right or wrong.
    pub retention_given: bool,
    pub future_max_ms: Option<Placed<i64>>,
    pub output: Option<Placed<Text>>,
    pub dead_letter: Option<Placed<Text>>,
    pub actions: ActionSpecs,
    pub partitioned_by_identity: bool,
}

/// What was written of the actions.
#[derive(Debug)]
pub struct ActionSpecs {
    pub invalid: Option<Placed<Action>>,
    pub missing: Option<Placed<Action>>,
    pub null_value: Option<Placed<Action>>,
    pub equal: Option<Placed<Action>>,
    pub missing_version: Option<Placed<Action>>,
    pub late: Option<Placed<Action>>,
    pub unsendable: Option<Placed<Action>>,
}

/// Reads a topology's file.
pub fn read(file: &Arc<File>, environment: &dyn Environment, report: &mut Report) -> Option<Spec> {
    let mut reader = Reader { file: Arc::clone(file), environment, report };
    let reader = &mut reader;
    let tree = reader.parse()?;
    let top = reader.root(&tree, TOP, Shape { what: "a mapping", example: "name: payments" })?;
    let name = top
        .require("name", "name: payments", reader)
        .and_then(|field| reader.text(field, Shape { what: "a name", example: "name: payments" }));
    let input = top.require("input", "input: {topics: [payments]}", reader).and_then(|field| {
        let keys = reader.fields(field, INPUT, Shape { what: "a mapping", example: "input: {topics: [payments]}" })?;
        Some(read_input(&keys, reader))
    });
    let input = input.unwrap_or_default();
    let (identity, identity_whole) = match top.require("identity", IDENTITY.example, reader) {
        Some(field) => read_identity(field, reader),
        None => (Vec::new(), false),
    };
    let mut action = |key: &str| {
        let choices: Vec<(&str, Action)> = Action::ALL.iter().map(|action| (action.as_str(), *action)).collect();
        top.get(key).and_then(|field| reader.choice(field, &choices, &[]))
    };
    let actions = ActionSpecs {
        invalid: action("on_invalid"),
        missing: action("on_missing"),
        null_value: action("on_null_value"),
        equal: action("on_equal"),
        missing_version: action("on_missing_version"),
        late: action("on_late"),
        unsendable: action("on_unsendable"),
    };
    let output = top.require("output", "output: {topic: payments.unique}", reader);
    let retention = Shape { what: "a duration or `forever`", example: "retention: 30d" };
    let future_max = Shape { what: "a duration", example: "future_max: 1h" };
    Some(Spec {
        name,
        topics: input.topics,
        key_format: input.key_format,
        value_format: input.value_format,
        formats_known: input.formats_known,
        start: input.start,
        identity,
        identity_whole,
        identity_place: top.get("identity").map_or(Place::default(), Field::place),
        version: top.get("version").and_then(|field| read_version(field, reader)),
        versioned: top.get("version").is_some(),
        retention: top.get("retention").and_then(|field| reader.parsed(field, retention, parse_retention)),
        retention_given: top.get("retention").is_some(),
        future_max_ms: top.get("future_max").and_then(|field| reader.duration_ms(field, future_max)),
        output: output.and_then(|field| read_topic(field, "output: {topic: payments.unique}", reader)),
        dead_letter: top
            .get("dead_letter")
            .and_then(|field| read_topic(field, "dead_letter: {topic: payments.failed}", reader)),
        actions,
        partitioned_by_identity: top
            .get("partitioned_by_identity")
            .and_then(|field| reader.boolean(field, "partitioned_by_identity: true"))
            .is_some_and(|said| said.value),
    })
}

#[derive(Default)]
struct Input {
    topics: Vec<Placed<Text>>,
    key_format: Option<Placed<Format>>,
    value_format: Option<Placed<Format>>,
    formats_known: bool,
    start: Option<Placed<Start>>,
}

fn read_input(keys: &crate::yaml::Fields<'_>, reader: &mut Reader<'_>) -> Input {
    const TOPICS: Shape<'static> = Shape { what: "a list of topics", example: "topics: [payments]" };
    let topics = keys.require("topics", "input: {topics: [payments]}", reader);
    let topics = topics.and_then(|field| reader.list(field, TOPICS)).unwrap_or_default();
    let item = Shape { what: "a list of topics", example: "topics: [payments, refunds]" };
    let topics = topics.iter().filter_map(|field| reader.text(field, item)).collect();
    let formats: Vec<(&str, Format)> = Format::ALL.iter().map(|format| (format.as_str(), *format)).collect();
    let starts = [Start::Earliest, Start::Latest].map(|start| (start.as_str(), start));
    let mut format = |key: &str| {
        let field = keys.get(key);
        let read = field.and_then(|field| reader.choice(field, &formats, &[]));
        (read.is_some() || field.is_none(), read)
    };
    let ((key_known, key_format), (value_known, value_format)) = (format("key_format"), format("value_format"));
    let start = keys.get("start").and_then(|field| reader.choice(field, &starts, &[]));
    Input { topics, key_format, value_format, formats_known: key_known && value_known, start }
}

/// The parts of an identity that could be read, and whether those are all.
fn read_identity(field: &Field<'_>, reader: &mut Reader<'_>) -> (Vec<Placed<Path>>, bool) {
    let items = match &field.node.value {
        Value::List(_) => reader.list(field, IDENTITY).unwrap_or_default(),
        _ => vec![field.clone()],
    };
    let parts: Vec<_> = items.iter().filter_map(|item| read_part(item, reader)).collect();
    let whole = !parts.is_empty() && parts.len() == items.len();
    (parts, whole)
}

/// A path, or `{const: x}`.
fn read_part(field: &Field<'_>, reader: &mut Reader<'_>) -> Option<Placed<Path>> {
    let Value::Mapping(entries) = &field.node.value else { return read_path(field, IDENTITY, reader) };
    if let [only] = entries.as_slice()
        && let Value::Scalar { text, .. } = &only.node.value
        && ["key", "value", "header", "meta"].contains(&only.key.as_str())
    {
        let help = format!("write it as one text: `{}.{text}`", only.key);
        reader.mistake(
            only.key_place,
            format!("`{}` must be {}", field.name, IDENTITY.what),
            "this is a mapping",
            help,
        );
        return None;
    }
    let keys = reader.fields(field, PART, IDENTITY)?;
    let Some(constant) = keys.get("const") else {
        // Another key stood there and is reported, unless the mapping is empty.
        if entries.is_empty() {
            reader.wrong(field, IDENTITY);
        }
        return None;
    };
    let shape = Shape { what: "a text, a number, true or false", example: "{const: payments}" };
    let Value::Scalar { plain, .. } = constant.node.value else {
        reader.wrong(constant, shape);
        return None;
    };
    let text = reader.text(constant, shape)?;
    let scalar = match text.value.reveal() {
        "true" if plain => Scalar::Bool(true),
        "false" if plain => Scalar::Bool(false),
        other => match Number::parse(other).filter(|_| plain) {
            Some(number) => Scalar::Number(number),
            None => Scalar::Text(other.to_owned()),
        },
    };
    Some(Placed { value: Path { source: Source::Const(scalar), steps: Vec::new() }, place: text.place })
}

fn read_path(field: &Field<'_>, shape: Shape<'_>, reader: &mut Reader<'_>) -> Option<Placed<Path>> {
    let text = reader.text(field, shape)?;
    let written = text.value.reveal();
    let error = match Path::parse(written) {
        Ok(value) => return Some(Placed { value, place: text.place }),
        Err(error) => error,
    };
    if text.value.is_secret() {
        reader.wrong_text(&field.name, &text, Shape { what: "a path", ..shape });
        return None;
    }
    // In a text without quotes the place of the trouble is known to the byte.
    let exact = reader.file.text().get(text.place.start..text.place.end()) == Some(written);
    let end = match &error.problem {
        Problem::UnknownSource(root) => root.len(),
        _ => written.len(),
    };
    let place = match exact && error.at < end {
        true => Place::new(text.place.start + error.at, text.place.start + end),
        false => text.place,
    };
    let (label, help) = match &error.problem {
        Problem::UnknownSource(root) => match did_you_mean(root, &["key", "value", "header", "meta"]) {
            Some(meant) => (format!("did you mean `{meant}`?"), format!("write `{meant}{}`", &written[root.len()..])),
            None => (
                "not a path".to_owned(),
                format!("a field of the value is `value.{written}`, one of the key `key.{written}`"),
            ),
        },
        _ => ("here".to_owned(), format!("write e.g. `{}`", shape.example)),
    };
    reader.mistake(place, format!("`{}`: {error}", field.name), label, help);
    None
}

fn read_version(field: &Field<'_>, reader: &mut Reader<'_>) -> Option<Placed<Path>> {
    const EXAMPLE: &str = "version: {of: value.version, as: integer}";
    if let Value::List(_) = &field.node.value {
        let message = "this release does not know a `version` of several parts yet".to_owned();
        reader.mistake(field.place(), message, "for a later release", format!("write e.g. `{EXAMPLE}`"));
        return None;
    }
    let keys = reader.fields(field, VERSION, Shape { what: "a mapping", example: EXAMPLE })?;
    let of = keys
        .require("of", EXAMPLE, reader)
        .and_then(|of| read_path(of, Shape { what: "a path", example: EXAMPLE }, reader));
    let kind = keys
        .require("as", EXAMPLE, reader)
        .and_then(|field| reader.choice(field, &[("integer", ())], &["decimal", "text", "timestamp", "hex", "binlog"]));
    kind.and(of)
}

fn parse_retention(text: &str) -> Option<Retention> {
    if text == "forever" {
        return Some(Retention::Forever);
    }
    units::duration_ms(text).filter(|ms| *ms > 0).map(|ms| Retention::For { ms })
}

/// The topic of `output` or `dead_letter`.
fn read_topic(field: &Field<'_>, example: &str, reader: &mut Reader<'_>) -> Option<Placed<Text>> {
    let keys = reader.fields(field, TOPIC, Shape { what: "a mapping", example })?;
    let topic = keys.require("topic", example, reader)?;
    reader.text(topic, Shape { what: "a topic's name", example })
}
