//! Chooses, by the shape of the records, the blocks that identify and order them.

use super::blocks::{Meaning, by_fields, by_fingerprint, wrapped};
use super::cell::ValueKind;
use super::choose::choose;
use super::cloud;
use super::dms;
use super::draft::Draft;
use super::fields::Table;
use super::flattened;
use super::keys;
use super::names;
use super::needed::Needed;
use super::nulls;
use super::others;
use super::refused::Refused;
use super::rows::{StandIn, stand_in};
use super::sample::{Observed, Sample};
use super::shape::{Shape, shapes};
use crate::capture::guesses;
use crate::schemas::IdBytes;
use crate::schemas::framing::is_framed;
use crate::topology::Preset;
use crate::words::{agreeing, counted};

/// What the records of a sample mean.
pub fn meaning(sample: &Sample, needed: Needed) -> Meaning {
    let mut meaning = Meaning {
        key_format: "bytes",
        value_format: wrapped(sample.wrapped.1),
        raw_keys: needed.raw_keys || keys::need_bytes(sample).is_some(),
        preset: None,
        follows_deletes: false,
        nulls_delete: false,
        retention: None,
        compared: None,
        body: Draft::default(),
    };
    if sample.json() == 0 {
        meaning.value_format = "bytes";
        by_bytes(&mut meaning.body, sample);
        return meaning;
    }
    let table = Table::of(sample);
    unsure_of_decimals(&mut meaning.body, &table);
    unsure_of_units(&mut meaning.body, &table);
    if cloud::is_binary(sample) {
        cloud::propose(&mut meaning, sample, &table, cloud::Mode::Binary, needed);
        return meaning;
    }
    let shapes = shapes(sample.values().map(|(_, value)| value));
    let (shape, count) = &shapes[0];
    for (other, count) in &shapes[1..] {
        meaning.body.unsure.push(format!("not all records are alike; {}: {other}", counted(*count, "record")));
    }
    meaning.preset = shape.preset().filter(|_| !needed.by_time);
    match (meaning.preset, shape) {
        (Some(preset), _) => by_preset(&mut meaning, sample, preset, (shape, *count), needed),
        (None, Shape::Flattened(_)) => flattened::propose(&mut meaning, sample, &table, (shape, *count), needed),
        (None, Shape::TicdcSimple) => others::ticdc_simple(&mut meaning, sample, &table, (shape, *count)),
        (None, Shape::OggRow) => others::ogg_rows(&mut meaning, sample, &table, (shape, *count)),
        (None, Shape::Dms) if dms::has_details(&table, sample) => dms::propose(&mut meaning, sample, (shape, *count)),
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
        (None, Shape::CloudEvent) => cloud::propose(&mut meaning, sample, &table, cloud::Mode::Structured, needed),
        (None, _) => by_choice(&mut meaning, sample, &table),
    }
    meaning
}

/// The fields that fit best; all of a value if none does.
fn by_choice(meaning: &mut Meaning, sample: &Sample, table: &Table) {
    if let Some(chosen) = nulls::choose(table, sample) {
        meaning.nulls_delete = true;
        by_fields(meaning, sample, table, &chosen);
        return;
    }
    let chosen = choose(table);
    let refused = Refused::all(table, chosen.as_ref());
    refused.iter().for_each(|refused| refused.tell(&mut meaning.body, sample, table));
    match chosen {
        Some(chosen) => by_fields(meaning, sample, table, &chosen),
        None if refused.is_empty() => {
            by_fingerprint(&mut meaning.body, sample, table, "No field was found that identifies a record");
        }
        None => {
            by_fingerprint(&mut meaning.body, sample, table, "No other field was found that identifies a record");
        }
    }
}

fn by_preset(meaning: &mut Meaning, sample: &Sample, preset: &str, shape: (&Shape, usize), needed: Needed) {
    let (shape, count) = shape;
    meaning.body.shape(shape, count, sample);
    meaning.body.line(&format!("preset: {preset}"));
    meaning.follows_deletes = true;
    if matches!(shape, Shape::Flattened(_)) {
        let unsure = "flattened events only have the positions that the connector is configured to add";
        meaning.body.unsure.push(unsure.to_owned());
    }
    let reads_keys = Preset::find(preset).is_some_and(|preset| preset.text.contains("\nidentity: {content: key}\n"));
    meaning.raw_keys &= reads_keys;
    if meaning.raw_keys {
        keys::propose_bytes(&mut meaning.body, sample);
        return;
    }
    if !needed.rows_identify {
        return;
    }
    match stand_in(shape, sample) {
        Some(StandIn { identity, why }) => {
            meaning.body.comment(why);
            meaning.body.line(&format!("identity: {identity}"));
            meaning.body.unsure.push("the columns that identify a row are guessed".to_owned());
        }
        None => meaning.body.unsure.push(format!(
            "the preset identifies rows by their keys, which {}, and no column of the rows looks like an id: replaying \
             this capture says little",
            if sample.form.is_whole() { "most records lack" } else { "were not captured" }
        )),
    }
}

/// The options that name a registry, and a folder of schemas.
const REGISTRY: &str = "--set schema_registry.url=http://localhost:8081";
const FOLDER: &str = "--set schemas.dir=FOLDER";

/// Whether a record's value seems to carry the id of a schema.
fn carries_id(observed: &Observed) -> bool {
    let headers = observed.captured.headers.as_headers();
    observed.captured.value.as_deref().is_some_and(|value| is_framed(value, headers, false, IdBytes::default()))
}

fn by_bytes(body: &mut Draft, sample: &Sample) {
    let values = || sample.records.iter().filter_map(|observed| observed.captured.value.as_deref());
    let framed = sample.records.iter().filter(|observed| carries_id(observed)).count();
    if sample.malformed > 0 {
        body.comment("No value is JSON: its bytes identify it.");
        body.unsure.push(if framed > 0 {
            format!(
                "{} {} the id of a schema, as serializers with a schema registry write Avro, Protobuf or JSON Schema{}",
                counted(framed, "value"),
                agreeing(framed, "carries", "carry"),
                match &sample.undecoded.1 {
                    Some(_) => ", but none could be decoded".to_owned(),
                    None => format!(
                        ", but no setting says where the schemas are: name the registry with `{REGISTRY}` or `--config \
                         ratchet.yaml`, or a folder of schemas with `{FOLDER}`, to identify records by their fields"
                    ),
                },
            )
        } else if guesses::is_csv(values()) {
            "the values look like CSV, whose fields ratchet cannot read: have the producer write JSON to identify \
             records by their fields"
                .to_owned()
        } else {
            "values were not looked at, since they are not JSON".to_owned()
        });
        body.unsure.push("two events with equal bytes count as one, for the length of the retention".to_owned());
    } else {
        body.comment("No value was captured.");
        body.unsure.push("there was nothing to look at".to_owned());
    }
    body.line("identity: value");
}

/// Fields that are versions by their names, and hold bytes in base64.
fn unsure_of_decimals(body: &mut Draft, table: &Table) {
    for field in table.fields.iter().filter(|field| field.is_base64 && names::version_score(&field.name) > 0) {
        body.unsure.push(format!(
            "{} looks like bytes in base64, as Kafka Connect and Debezium write decimals: their texts do not sort like \
             the numbers, so it is not taken as a version; set `decimal.handling.mode=string` in Debezium, or \
             `decimal.format=NUMERIC` in Connect's JsonConverter, and infer again",
            field.path
        ));
    }
}

/// Fields that are versions by their names, and hold times in several units.
fn unsure_of_units(body: &mut Draft, table: &Table) {
    for field in table.fields.iter().filter(|field| names::version_score(&field.name) > 0) {
        let unit = |order: i128| guesses::unit_of(order).map(|(unit, _)| unit);
        let integers = field.values.iter().flatten().filter(|cell| cell.kind == ValueKind::Integer);
        let mut units: Vec<&str> = integers.filter_map(|cell| unit(cell.order?)).collect();
        units.sort_unstable();
        units.dedup();
        if units.len() > 1 {
            body.unsure.push(format!(
                "{} looks like times in several units ({}): a greater number need not be newer; let the source keep one \
                 (Debezium's `time.precision.mode=adaptive` changes it with the precision of a column)",
                field.path,
                units.join(" and ")
            ));
        }
    }
}
