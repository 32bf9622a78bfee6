//! AWS DMS with details of transactions (`IncludeTransactionDetails`): the time of the commit, and a change's number in
//! its transaction.

use super::blocks::Meaning;
use super::compared::{Compared, Contents, Order};
use super::draft::in_yaml;
use super::fields::Table;
use super::rows::columns;
use super::sample::Sample;
use super::shape::Shape;

/// The paths of the details.
const DETAILS: [&str; 2] = ["value.metadata.commit-timestamp", "value.metadata.transaction-record-id"];

/// Whether the records have the details, in whichever notation the paths are, and columns that look like a key.
pub fn has_details(table: &Table, sample: &Sample) -> bool {
    let has_columns = columns(&Shape::Dms, sample).is_some();
    has_columns
        && DETAILS.iter().all(|detail| {
            let is_it = |path: String| path.replace('"', "") == *detail;
            table.fields.iter().any(|field| field.present > 0 && is_it(field.path.to_string()))
        })
}

/// By the columns that look like the primary key, in the order of commits.
pub fn propose(meaning: &mut Meaning, sample: &Sample, shape: (&Shape, usize)) {
    let (shape, count) = shape;
    let body = &mut meaning.body;
    body.shape(shape, count, sample);
    let columns = columns(shape, sample).unwrap_or_default();
    let row: Vec<String> = columns
        .iter()
        .map(|column| {
            let steps = vec!["data".to_owned(), column.clone()];
            in_yaml(&crate::dedup::Path { source: crate::dedup::Source::Value, steps }.to_string())
        })
        .collect();
    body.comment(
        "A row is told by its table and by the columns that look like its primary key. Changes are ordered by their \
         commit's time, then by their number in the transaction; `metadata.timestamp` is when DMS wrote the record, and \
         differs when it is sent again.",
    );
    let tables = r#"value.metadata."schema-name", value.metadata."table-name""#;
    body.line(&format!("identity: [{tables}, {}]", row.join(", ")));
    body.line("version:");
    body.line(r#"  - {of: value.metadata."commit-timestamp", as: timestamp, required: true}"#);
    body.line(r#"  - {of: value.metadata."transaction-record-id", as: integer}"#);
    body.line("kinds: {of: value.metadata.operation, delete: [delete], read: [load]}");
    body.line("on_missing: forward");
    let contents = Contents::Known(
        "value.data",
        "What a change says is its kind and its row; `metadata` tells of the transaction and of the delivery.",
    );
    meaning.compared = Some(Compared { order: Order::Version, contents });
    let body = &mut meaning.body;
    body.unsure.push("the columns that identify a row are guessed: name those of the primary key".to_owned());
    body.unsure.push(
        "two transactions that change one row and commit in the same microsecond are ordered by their changes' numbers, \
         which do not compare"
            .to_owned(),
    );
    body.unsure.push(
        "whether one identity is always in one partition is not shown; if DMS partitions by primary key or by table, add \
         `partitioned_by_identity: true`"
            .to_owned(),
    );
}
