//! What `check --expand` prints. Goal: for every preset, every ending and every record of the corpora, it decides and
//! renders as the topology that it came from, and prints itself.

use std::fmt::Write as _;

use ratchet::dedup::Model;
use ratchet::record::Record;
use ratchet::rehearsal::{Answer, Rehearser};
use ratchet::rendering::work::Asker;
use ratchet::topology::{Loaded, presets};

use crate::corpus;
use crate::real;
use crate::task::{Given, load};

const WALL_MS: i64 = 7_000_000_000_000;
/// The endings, with whether a row has to be an object there.
const ENDINGS: [(&str, bool); 6] = [
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

/// A record's verdict and effects, in words.
fn judged(loaded: &Loaded, records: &[Given]) -> Vec<String> {
    let topology = &loaded.topology;
    let (mut model, mut rehearser) = (Model::new(topology.rules.clone()), Rehearser::new(topology));
    let mut asker = Asker::new(topology);
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
        let asked = asker.as_mut().map(|asker| format!("{:?}", asker.ask(&record, model.rows(), model.arena())));
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

#[test]
fn expanded_topology_decides_and_renders_as_the_one_that_it_came_from() {
    let histories = histories();
    assert!(histories.len() > 50, "only {}", histories.len());
    let (mut tried, mut forwarded) = (0, 0);
    for preset in presets::ALL {
        for (ending, needs_row) in ENDINGS {
            if needs_row && preset.rows().is_none() {
                continue;
            }
            // A sink repeats no effect: ties have to be dropped, where a preset lets them pass.
            let equal = if ["canal", "ticdc"].contains(&preset.name) { "on_equal: drop\n" } else { "" };
            let text = format!("preset: {}\n{equal}{ending}", preset.pinned());
            let loaded = load(&text).unwrap_or_else(|diagnostics| panic!("{text}{}", diagnostics.render(false)));
            let printed = loaded.expanded();
            let again = load(&printed).unwrap_or_else(|diagnostics| panic!("{printed}{}", diagnostics.render(false)));
            assert_eq!(again.topology.rules.digest(), loaded.topology.rules.digest(), "{text}");
            assert_eq!(again.topology.rules, loaded.topology.rules, "{text}");
            assert_eq!(again.topology.ending, loaded.topology.ending, "{text}");
            assert_eq!(again.expanded(), printed, "{text}");
            for (path, records) in &histories {
                let (before, after) = (judged(&loaded, records), judged(&again, records));
                let different = before.iter().zip(&after).position(|(before, after)| before != after);
                assert_eq!(different, None, "{path}, {text}{}", before[different.unwrap_or_default()]);
                forwarded += before.iter().filter(|line| line.contains("Forward")).count();
                tried += before.len();
            }
        }
    }
    assert!(tried > 50_000 && forwarded > 5_000, "{tried} records, {forwarded} forwarded");
}
