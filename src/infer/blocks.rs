//! The blocks of a proposed topology that say what records mean, written by chosen fields or by a fingerprint of the value.

use super::choose::Chosen;
use super::compared::{Compared, Contents, Order};
use super::draft::{Draft, in_yaml};
use super::fields::Table;
use super::names;
use super::sample::Sample;
use crate::dedup::Source;
use crate::words::{agreeing, counted};

/// The part of a topology that says what records mean.
pub struct Meaning {
    /// How keys are read.
    pub key_format: &'static str,
    /// How values are read.
    pub value_format: &'static str,
    /// Whether keys are taken as bytes although the preset would read them as JSON.
    pub raw_keys: bool,
    /// The preset, if there is one.
    pub preset: Option<&'static str>,
    /// Whether a null value is dropped unless a delete came before it.
    pub follows_deletes: bool,
    /// Whether null values are judged as deletes, by what their keys and headers say.
    pub nulls_delete: bool,
    /// How long identities are remembered, if the proposal limits that.
    pub retention: Option<&'static str>,
    /// How records that tie are compared; `None` where a preset says that, or the identity is all that a value says.
    pub compared: Option<Compared>,
    /// The blocks.
    pub body: Draft,
}

/// How JSON with or without Connect's wrapper is read.
pub fn wrapped(is_wrapped: bool) -> &'static str {
    if is_wrapped { "connect_json" } else { "json" }
}

/// These fields.
pub fn by_fields(meaning: &mut Meaning, sample: &Sample, table: &Table, chosen: &Chosen) {
    let reads_key = |&field: &usize| {
        let path = &table.fields[field].path;
        path.source == Source::Key && !path.steps.is_empty()
    };
    if chosen.identity.iter().chain(&chosen.version).any(reads_key) {
        meaning.key_format = wrapped(sample.wrapped.0);
    }
    let body = &mut meaning.body;
    let path = |field: usize| match in_yaml(&table.fields[field].path.to_string()) {
        // The bytes of a key name its schema, which may change while the key stays the same.
        whole if whole == "key" && sample.formats[0].is_some() => "{content: key}".to_owned(),
        path => path,
    };
    body.comment(&format!("{}.", chosen.why_identity(table).join("; ")));
    let identity: Vec<String> = chosen.identity.iter().map(|&field| path(field)).collect();
    body.line(&format!("identity: [{}]", identity.join(", ")));
    if let Some(version) = chosen.version {
        body.comment(&format!("{}.", chosen.why_version(table).join("; ")));
        body.line(&format!("version: {{of: {}, as: {}}}", path(version), table.fields[version].version_kind()));
    }
    let order = match chosen.version.map(|version| &table.fields[version]) {
        None => Order::None,
        Some(field) if field.is_time() => Order::Time(field.path.to_string()),
        Some(_) => Order::Version,
    };
    meaning.compared = Some(Compared { order, contents: Contents::of_value(table) });
    if chosen.is_versioned_by_name() {
        meaning.retention = Some("7d");
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

/// The whole value, with its key.
pub fn by_fingerprint(body: &mut Draft, sample: &Sample, table: &Table, why: &str) {
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
    let key = if sample.formats[0].is_some() { "{content: key}" } else { "key" };
    body.line(&if has_keys { format!("identity: [{key}, {fingerprint}]") } else { format!("identity: {fingerprint}") });
    body.unsure.push(
        "two things with equal content, or a thing that returns to an earlier state, count as duplicates".to_owned(),
    );
}
