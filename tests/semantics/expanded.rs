//! What `check --expand` prints. Goal: for every preset, every destination and every record of the corpora, it decides
//! and renders as the topology that it came from, and prints itself.

use std::fmt::Write as _;

use ratchet::dedup::Model;
use ratchet::record::Record;
use ratchet::rehearsal::{Answer, Rehearser};
use ratchet::rendering::work::WorkRenderer;
use ratchet::topology::{Loaded, Preset, presets};

use crate::corpus;
use crate::real;
use crate::task::{Given, load};

const WALL_MS: i64 = 7_000_000_000_000;
/// The destinations, with whether a row has to be an object there.
const DESTINATIONS: [(&str, bool); 6] = [
    ("output: {topic: out}\n", false),
    ("sink: {postgres: {url: 'postgres://db/shop', table: {name: t, key: [id]}}}\n", true),
    (
        "sink: {postgres: {url: 'postgres://db/shop', dedup: inbox, table: {name: t, key: [id]}, outbox: {aggregate_type: \
         {const: a}, aggregate_id: {first_of: [key, value.after.id]}, type: header.type}}}\n",
        true,
    ),
    (
        "sink: {postgres: {url: 'postgres://db/shop', statements: [{sql: 'select $1, $2', with: [{first_of: [value.after.id, \
         value.id, value.data]}, value.op]}]}}\n",
        false,
    ),
    (
        "sink: {http: {url: 'https://api.example.com/c?id={meta.offset}', body: {json: {first_of: [value.after, value.data, \
         value]}}, idempotency_key: {header: K, honoured_for: 24h}}}\n",
        false,
    ),
    ("sink: {handler: {honoured_for: 24h}}\n", false),
];

/// One in so many files of the corpora goes through each topology with own blocks, from another one on each time.
const PARTS: usize = 24;
/// What a topology writes itself beside a preset.
const OWN: [&str; 7] = [
    "",
    "identity: {first_of: [[value.database, value.table, value.data.0.id], [value.after.id], [key], [meta.offset]]}\n\
     on_null_value: drop\n",
    "identity: [{rows: value.data, named: [id]}]\non_null_value: drop\non_missing: dead_letter\n",
    "contents: {first_of: [value.after, value]}\n",
    "kinds: {reads: by_version}\n",
    "kinds: {delete: [u]}\n",
    "version: {of: {first_of: [value.ts_ms, value.ts, meta.offset]}, as: integer}\n",
];

/// Whether a topology with this preset and this destination may hold this block.
fn may_have(preset: &Preset, destination: &str, own: &str) -> bool {
    let calls = ["sink: {http", "sink: {handler"].iter().any(|sink| destination.starts_with(sink));
    match own.split(':').next() {
        // A sink that calls compares requests.
        Some("contents") => !calls,
        Some("kinds") if own.contains("reads") => preset.text.contains("\n  read: "),
        Some("kinds") => preset.text.contains("\n  delete: "),
        _ => true,
    }
}

/// A record's verdict and effects, in words.
fn judged(loaded: &Loaded, records: &[Given]) -> Vec<String> {
    let topology = &loaded.topology;
    let (mut model, mut rehearser) = (Model::new(topology.rules.clone()), Rehearser::new(topology));
    let mut work_renderer = WorkRenderer::new(topology);
    let judge = |(offset, given): (usize, &Given)| {
        let record = Record {
            topic: "in",
            partition: 0,
            offset: offset as i64,
            timestamp: given.timestamp,
            key: given.key.as_deref(),
            value: given.value.as_deref(),
            headers: given.headers.as_headers(),
        };
        let decision = rehearser.judge(&mut model, &record, WALL_MS, Answer::Done);
        let mut text = format!("{decision:?} {:?} {:?}", model.identity(), model.version());
        let _ = write!(text, " {:?} {:?}", rehearser.called(), rehearser.made());
        let asked = work_renderer
            .as_mut()
            .map(|work_renderer| format!("{:?}", work_renderer.render(&record, model.rows(), model.arena())));
        let _ = write!(text, " {asked:?} {:?}", model.rejection().map(|rejection| rejection.reason));
        text
    };
    records.iter().enumerate().map(judge).collect()
}

/// All records of the corpora, by their files.
fn histories() -> Vec<(String, Vec<Given>)> {
    let mut all: Vec<(String, Vec<Given>)> = Vec::new();
    for (path, _, records) in corpus::histories().into_iter().chain(real::histories()) {
        if all.iter().all(|(known, _)| *known != path) {
            all.push((path, records));
        }
    }
    all
}

/// Topologies that were tried, records, and those that were forwarded.
#[derive(Default)]
struct Tried {
    topologies: usize,
    records: usize,
    forwarded: usize,
}

/// Compares a topology with what `--expand` prints of it, on all of these records.
fn compare(text: &str, histories: &[(String, Vec<Given>)], tried: &mut Tried) {
    let loaded = load(text).unwrap_or_else(|diagnostics| panic!("{text}{}", diagnostics.render(false)));
    let printed = loaded.expanded();
    let again = load(&printed).unwrap_or_else(|diagnostics| panic!("{printed}{}", diagnostics.render(false)));
    assert_eq!(again.topology.rules.digest(), loaded.topology.rules.digest(), "{text}");
    assert_eq!(again.topology.rules, loaded.topology.rules, "{text}");
    assert_eq!(again.topology.destination, loaded.topology.destination, "{text}");
    assert_eq!(again.expanded(), printed, "{text}");
    tried.topologies += 1;
    for (path, records) in histories {
        let (before, after) = (judged(&loaded, records), judged(&again, records));
        let different = before.iter().zip(&after).position(|(before, after)| before != after);
        assert_eq!(different, None, "{path}, {text}{}", before[different.unwrap_or_default()]);
        tried.forwarded += before.iter().filter(|line| line.contains("Forward")).count();
        tried.records += before.len();
    }
}

/// A topology's text; `None` if it cannot be had.
fn topology(preset: &Preset, (destination, needs_row): (&str, bool), own: &str) -> Option<String> {
    if needs_row && preset.rows().is_err() || !may_have(preset, destination, own) {
        return None;
    }
    // A sink repeats no effect: there the ties that a preset lets pass have to be dropped.
    let passes = preset.text.contains("\non_equal: forward\n");
    let equal = if passes && destination.starts_with("sink:") { "on_equal: drop\n" } else { "" };
    Some(format!("preset: {}\n{equal}{own}{destination}", preset.pinned()))
}

#[test]
fn expanded_topology_decides_and_renders_as_the_one_that_it_came_from() {
    let histories = histories();
    assert!(histories.len() > 50, "only {}", histories.len());
    let mut tried = Tried::default();
    for preset in presets::ALL {
        for destination in DESTINATIONS {
            if let Some(text) = topology(preset, destination, "") {
                compare(&text, &histories, &mut tried);
            }
        }
    }
    assert!(
        tried.records > 50_000 && tried.forwarded > 5_000,
        "{} records, {} forwarded",
        tried.records,
        tried.forwarded
    );
}

/// What a topology writes itself is merged with the preset's blocks.
#[test]
fn expanded_topology_with_own_blocks_decides_and_renders_as_the_one_that_it_came_from() {
    let histories = histories();
    let mut tried = Tried::default();
    for (number, preset) in presets::ALL.iter().enumerate() {
        for (nth, own) in OWN.into_iter().enumerate() {
            for (at, destination) in DESTINATIONS.into_iter().enumerate() {
                let Some(text) = topology(preset, destination, own) else { continue };
                let part = histories.iter().skip((number + nth + at) % PARTS).step_by(PARTS);
                compare(&text, &part.cloned().collect::<Vec<_>>(), &mut tried);
            }
        }
    }
    assert!(tried.topologies > 700, "{} topologies", tried.topologies);
    assert!(
        tried.records > 5_000 && tried.forwarded > 1_000,
        "{} records, {} forwarded",
        tried.records,
        tried.forwarded
    );
}
