//! Records of TiCDC's Simple protocol, and of Oracle GoldenGate's formatter `json_row`.
//!
//! **TiCDC**: a message has one row, in `data`, or in `old` for a delete, and no names of the primary key's columns; those
//! of DDL, watermarks and bootstraps have none. (Its documentation, "TiCDC Simple Protocol".) **GoldenGate**: the columns
//! stand beside `table`, `op_type` and `pos`, also for deletes; `current_ts` is when the record was formatted.

use super::blocks::{Meaning, by_fingerprint};
use super::draft::in_yaml;
use super::fields::Table;
use super::rows;
use super::sample::Sample;
use super::shape::Shape;
use crate::dedup::{Path, Source};

const GUESSED: &str = "the columns that identify a row are guessed";
const PARTITIONS: &str = "whether one identity is always in one partition is not shown; if it is, add \
                          `partitioned_by_identity: true`";

/// The columns at this place, as paths in YAML.
fn paths(place: &[&str], columns: &[String]) -> String {
    let path = |column: &String| {
        let steps = place.iter().map(|step| (*step).to_owned()).chain([column.clone()]).collect();
        in_yaml(&Path { source: Source::Value, steps }.to_string())
    };
    columns.iter().map(path).collect::<Vec<_>>().join(", ")
}

/// Messages of TiCDC's Simple protocol.
pub fn ticdc_simple(meaning: &mut Meaning, sample: &Sample, table: &Table, shape: (&Shape, usize)) {
    meaning.body.shape(shape.0, shape.1, sample);
    let Some(columns) = rows::columns(shape.0, sample) else {
        let why = "These messages do not name their primary key, and no column looks like one";
        by_fingerprint(&mut meaning.body, sample, table, why);
        return;
    };
    let body = &mut meaning.body;
    body.comment(
        "A row is in `data`, or in `old` for a delete; messages do not name their primary key, so columns that look like \
         one are named. DDL and watermarks are known by what they say.",
    );
    body.line("identity:");
    body.line("  first_of:");
    for place in ["data", "old"] {
        body.line(&format!("    - [value.database, value.table, {}]", paths(&[place], &columns)));
    }
    body.line("    - {fingerprint: value, except: [value.commitTs, value.buildTs]}");
    body.comment("The commit's timestamp orders the changes of a row; `buildTs` is when a message was written.");
    body.line("version: {of: value.commitTs, as: integer, none: [0]}");
    body.comment("Bootstraps have no timestamp, and pass.");
    body.line("on_missing_version: forward");
    body.line("kinds: {of: value.type, delete: [DELETE]}");
    body.line("contents: {first_of: [value.data, value.commitTs]}");
    body.line("on_conflict: forward");
    body.unsure.extend([GUESSED, PARTITIONS].map(str::to_owned));
}

/// Rows of Oracle GoldenGate.
pub fn ogg_rows(meaning: &mut Meaning, sample: &Sample, table: &Table, shape: (&Shape, usize)) {
    meaning.body.shape(shape.0, shape.1, sample);
    let names_columns =
        sample.values().all(|(_, value)| value.get("primary_keys").is_some_and(|names| names.is_array()));
    let columns = rows::columns(shape.0, sample).filter(|_| !names_columns);
    let identity = match columns {
        _ if names_columns => "[value.table, {rows: value, named: value.primary_keys}]".to_owned(),
        Some(columns) => format!("[value.table, {}]", paths(&[], &columns)),
        None => {
            let why = "These rows do not name their primary key, and no column looks like one";
            by_fingerprint(&mut meaning.body, sample, table, why);
            meaning.body.unsure.push("have GoldenGate write `primary_keys` (`includePrimaryKeys=true`)".to_owned());
            return;
        }
    };
    let body = &mut meaning.body;
    body.line("preset: ogg@2");
    body.comment("The columns stand beside `op_type`, and not in `after` and `before`.");
    body.line(&format!("identity: {identity}"));
    body.comment("`current_ts` is when the record was written: another time when it is sent again.");
    body.line("contents: {fingerprint: value, except: [value.current_ts]}");
    if !names_columns {
        body.unsure.push(GUESSED.to_owned());
    }
    body.unsure.push(PARTITIONS.to_owned());
    meaning.preset = Some("ogg@2");
}
