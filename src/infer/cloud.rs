//! CloudEvents, in structured mode (the attributes are fields of the value) and in binary mode (they are headers).
//!
//! By the specification, source and id together identify an event. The records show whether that holds: Debezium makes its
//! ids from a position, which all rows of a snapshot or of one statement share.

use super::blocks::{Meaning, by_fields, by_fingerprint, wrapped};
use super::choose::Chosen;
use super::compared::{Compared, Contents, Order};
use super::draft::in_yaml;
use super::fields::Table;
use super::keys;
use super::needed::Needed;
use super::refused::Counterexample;
use super::rows::{StandIn, stand_in};
use super::sample::{Observed, Sample};
use super::shape::Shape;
use crate::words::{agreeing, counted};

/// Where the attributes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In the value, beside the data.
    Structured,
    /// In headers whose names begin with `ce_`.
    Binary,
}

impl Mode {
    /// The path to an attribute.
    fn path(self, attribute: &str) -> String {
        match self {
            Self::Structured => in_yaml(&format!("value.{attribute}")),
            Self::Binary => in_yaml(&format!("header.ce_{attribute}")),
        }
    }

    /// The number of an attribute's field, if any record has it.
    fn field(self, table: &Table, attribute: &str) -> Option<usize> {
        let path = self.path(attribute);
        table.fields.iter().position(|field| field.present > 0 && in_yaml(&field.path.to_string()) == path)
    }

    /// A record's attribute.
    fn attribute(self, observed: &Observed, attribute: &str) -> Option<String> {
        match self {
            Self::Structured => observed.value.as_ref()?.get(attribute)?.as_str().map(str::to_owned),
            Self::Binary => {
                let header = observed.captured.headers.as_headers().last(format!("ce_{attribute}").as_bytes())?;
                let text = std::str::from_utf8(header.value?).ok()?;
                Some(text.trim_matches('"').to_owned())
            }
        }
    }
}

/// Whether most records with values have the attributes of CloudEvents in their headers.
pub fn is_binary(sample: &Sample) -> bool {
    let has = |observed: &&Observed| {
        ["specversion", "id", "source"].iter().all(|name| Mode::Binary.attribute(observed, name).is_some())
    };
    let with_values = || sample.records.iter().filter(|observed| observed.captured.value.is_some());
    with_values().next().is_some() && with_values().filter(has).count() * 2 > with_values().count()
}

/// Proposes by the kind of CloudEvents that these are.
pub fn propose(meaning: &mut Meaning, sample: &Sample, table: &Table, mode: Mode, needed: Needed) {
    let connector = sample.records.iter().find_map(|observed| mode.attribute(observed, "iodebeziumconnector"));
    match connector {
        Some(connector) => debezium(meaning, sample, table, mode, &connector, needed),
        None => by_id(meaning, sample, table, mode),
    }
}

/// By source and id, if they distinguish the events; else together with the type or the subject; else by contents.
fn by_id(meaning: &mut Meaning, sample: &Sample, table: &Table, mode: Mode) {
    let attributes = [&["source", "id"][..], &["source", "id", "type"], &["source", "id", "subject"]];
    let fields = |names: &[&str]| names.iter().map(|name| mode.field(table, name)).collect::<Option<Vec<usize>>>();
    let tried = attributes.iter().filter_map(|names| fields(names)).map(|identity| {
        let trial = table.trial(&identity, None);
        Chosen { identity, version: None, trial }
    });
    let tried: Vec<Chosen> = tried.collect();
    let lost = tried.first().map_or(0, |chosen| chosen.trial.lost);
    if lost > 0 {
        let first = tried.first().and_then(|chosen| Counterexample::first(sample, table, &chosen.identity, None));
        let first = first.map_or_else(String::new, |first| format!("; the first is {}", first.words()));
        meaning.body.unsure.push(format!(
            "{} {} the source and the id of an earlier one, and {} something else: these ids do not identify an event, \
             against the specification of CloudEvents{first}",
            counted(lost, "CloudEvent"),
            agreeing(lost, "has", "have"),
            agreeing(lost, "says", "say")
        ));
    }
    match tried.iter().find(|chosen| chosen.trial.lost == 0) {
        Some(chosen) => {
            meaning.body.comment("These are CloudEvents: their source and id together identify one.");
            by_fields(meaning, sample, table, chosen);
        }
        None => {
            let why = "These are CloudEvents, whose ids do not distinguish them";
            by_fingerprint(&mut meaning.body, sample, table, why);
        }
    }
}

/// Debezium's: by the row's key, in the order of the position that the attributes carry.
fn debezium(meaning: &mut Meaning, sample: &Sample, table: &Table, mode: Mode, connector: &str, needed: Needed) {
    meaning.body.comment(&format!(
        "These are CloudEvents of Debezium's connector `{connector}`. Their id names a position, which all rows of a \
         snapshot or of one statement share, so it identifies no change."
    ));
    let version = version(table, mode, connector);
    let has_keys =
        sample.records.iter().filter(|observed| observed.captured.key.is_some()).count() * 2 > sample.records.len();
    let rows = stand_in(&Shape::CloudEvent, sample).filter(|_| mode == Mode::Structured && !has_keys);
    if version.is_none() || (!has_keys && rows.is_none()) {
        meaning.body.unsure.push(
            "no position of the source is known in these events, or nothing identifies their rows: if a field rises \
             with each change of a row, name it as `version`"
                .to_owned(),
        );
        by_fingerprint(&mut meaning.body, sample, table, "No safe order of these events is known");
        return;
    }
    match rows {
        Some(StandIn { identity, why }) => {
            meaning.body.comment(why);
            meaning.body.line(&format!("identity: {identity}"));
            meaning.body.unsure.push("the columns that identify a row are guessed".to_owned());
            meaning.key_format = wrapped(sample.wrapped.0);
        }
        None if meaning.raw_keys || needed.raw_keys => keys::propose_bytes(&mut meaning.body, sample),
        None => {
            meaning.key_format = "connect_json";
            meaning.body.comment("The record's key is the row's primary key, and Connect partitions by it.");
            meaning.body.line("identity: {content: key}");
            meaning.body.line("partitioned_by_identity: true");
        }
    }
    for line in version.into_iter().flatten() {
        meaning.body.line(&line);
    }
    meaning.body.line(&format!("kinds: {{of: {}, delete: [d], read: [r]}}", mode.path("iodebeziumop")));
    meaning.body.line("on_missing: forward");
    meaning.follows_deletes = true;
    let contents = match mode {
        Mode::Structured => Contents::Known(
            "value.data",
            "What a change says is its kind and its data; the attributes tell of the position and of the delivery.",
        ),
        Mode::Binary => Contents::of_value(table),
    };
    meaning.compared = Some(Compared { order: Order::Version, contents });
    meaning.body.unsure.push(
        "positions compare within one server: where the source is restored or replaced by another, write an `epoch` \
         block, as the preset of the connector has one"
            .to_owned(),
    );
}

/// The lines of the version; `None` if the attributes have no position, or come from an unknown connector.
fn version(table: &Table, mode: Mode, connector: &str) -> Option<Vec<String>> {
    let parts: &[(&str, &str)] = match connector {
        "postgresql" => &[("lsn", "as: integer")],
        "mysql" | "mariadb" => &[("file", "as: binlog, none: [\"\"]"), ("pos", "as: integer"), ("row", "as: integer")],
        "sqlserver" => {
            &[("commitlsn", "as: hex, none: [\"00\"]"), ("changelsn", "as: hex"), ("eventserialno", "as: integer")]
        }
        "db2" => &[("commitlsn", "as: hex, none: [\"00\"]"), ("changelsn", "as: hex")],
        "oracle" => {
            &[("commitscn", "as: integer"), ("scn", "as: integer"), ("rsid", "as: hex"), ("ssn", "as: integer")]
        }
        "informix" => &[("commitlsn", "as: integer"), ("changelsn", "as: integer")],
        "mongodb" => &[("tsms", "as: integer"), ("ord", "as: integer")],
        _ => return None,
    };
    let path = |name: &str| {
        let attribute = format!("iodebezium{name}");
        mode.field(table, &attribute).map(|_| mode.path(&attribute))
    };
    path(parts[0].0)?;
    let mut lines: Vec<String> =
        parts.iter().filter_map(|(name, how)| Some(format!("{{of: {}, {how}", path(name)?))).collect();
    if let Some(sequence) = path("sequence").filter(|_| connector == "postgresql") {
        // as in the preset: at least the last commit's position, then its own
        let own = lines[0].clone();
        lines = vec![own.replace(", as:", &format!(", at_least: {sequence}, as:")), own];
    }
    let is_several = lines.len() > 1;
    lines[0].push_str(if is_several { ", required: true" } else { "" });
    lines.iter_mut().for_each(|line| line.push('}'));
    Some(match is_several {
        true => std::iter::once("version:".to_owned()).chain(lines.iter().map(|line| format!("  - {line}"))).collect(),
        false => vec![format!("version: {}", lines[0])],
    })
}
