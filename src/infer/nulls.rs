//! Null values that are deletes, and say in their headers which change they are.
//!
//! A source that writes the row alone, and a null in place of a deleted one, may have its position in headers
//! (Debezium's `ExtractNewRecordState` with `add.headers`). The key and a header then identify and order all records,
//! nulls too.

use super::cell::ValueKind;
use super::choose::Chosen;
use super::fields::{Field, Table};
use super::names::{self, MOMENT};
use super::sample::Sample;
use crate::dedup::Source;

/// The key and a header's version, if they order the records and all null values have both; `None` if there is no null.
pub fn choose(table: &Table, sample: &Sample) -> Option<Chosen> {
    let nulls = || sample.records.iter().filter(|observed| observed.captured.value.is_none());
    nulls().next()?;
    if !nulls().all(|observed| observed.captured.key.is_some()) {
        return None;
    }
    let is_on_nulls = |name: &str| {
        nulls().all(|observed| {
            let header = observed.captured.headers.as_headers().last(name.as_bytes());
            header.is_some_and(|header| header.value.is_some())
        })
    };
    let of_key = |field: &Field| field.path.source == Source::Key && field.identifies(table.rows);
    let identity: Vec<usize> = (0..table.fields.len()).filter(|&number| of_key(&table.fields[number])).collect();
    if identity.is_empty() {
        return None;
    }
    let is_number = |field: &Field| matches!(field.kind, ValueKind::Integer | ValueKind::IntegerText);
    let version = |field: &Field| {
        let Source::Header(name) = &field.path.source else { return 0 };
        // Debezium names a header after the field, or after the block and the field.
        let score = names::version_score(name.strip_prefix("__source_").unwrap_or(name));
        let is_one = field.versions(table.rows) || (field.identifies(table.rows) && is_number(field));
        if is_one && !names::is_of_delivery(name) && is_on_nulls(name) { score } else { 0 }
    };
    let mut versions: Vec<usize> =
        (0..table.fields.len()).filter(|&number| version(&table.fields[number]) >= MOMENT).collect();
    versions.sort_by_key(|&number| std::cmp::Reverse(version(&table.fields[number])));
    versions.into_iter().find_map(|version| {
        let trial = table.trial(&identity, Some(version));
        let orders = trial.lost == 0 && trial.falls * 2 <= trial.rises && trial.returns * 2 <= trial.rises;
        orders.then(|| Chosen { identity: identity.clone(), version: Some(version), trial })
    })
}
