//! Goal: `check --expand` prints an equal topology, whatever its preset, its destination and its own blocks are.

use proptest::prelude::*;

use super::load_text;
use crate::topology::presets::ALL;
use crate::topology::{Loaded, Preset};

const POSTGRES: &str = "url: 'postgres://db/shop'";

/// What a destination needs of a preset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    Nothing,
    /// A row that is an object.
    Row,
    /// The same, wherever the topology says that it is.
    RowSomewhere,
    /// Kinds of change.
    Kinds,
}

impl Needs {
    fn are_met_by(self, preset: &Preset) -> bool {
        match self {
            Self::Nothing => true,
            Self::Row => preset.rows().is_ok(),
            Self::RowSomewhere => preset.rows().map_or_else(|unkept| unkept.is_cured_by_place, |_| true),
            Self::Kinds => preset.text.contains("\nkinds:"),
        }
    }
}

/// The destinations that a topology can have.
fn destinations() -> Vec<(String, Needs)> {
    let postgres = |lines: &str| format!("sink: {{postgres: {{{POSTGRES}, {lines}}}}}\n");
    let table = "table: {name: shop.t, key: [id]";
    let outbox = "outbox: {aggregate_type: {const: a}, aggregate_id: {first_of: [key, value.id]}, type: header.type}";
    let http = "url: 'https://api.example.com/{value.id}', idempotency_key: {header: K, honoured_for: 24h}";
    vec![
        ("output: {topic: out}\n".to_owned(), Needs::Nothing),
        ("output: {topic: '{topic}.clean', existing: append}\n".to_owned(), Needs::Nothing),
        (postgres(&format!("{table}}}")), Needs::Row),
        (postgres(&format!("{table}, columns: [id, name], of: value.row}}")), Needs::RowSomewhere),
        (postgres(&format!("{table}}}, dedup: inbox, on_rejected: drop")), Needs::Row),
        (postgres(&format!("{table}}}, {outbox}")), Needs::Row),
        (
            postgres("statements: [{sql: 'insert into t values ($1)', with: [{first_of: [value.after.id, key]}]}]"),
            Needs::Nothing,
        ),
        (postgres("on: {change: [{sql: 'select $1::text', with: [value]}]}, on_rejected: fail"), Needs::Kinds),
        (postgres(outbox), Needs::Nothing),
        (format!("sink: {{http: {{{http}}}}}\n"), Needs::Nothing),
        (format!("sink: {{http: {{{http}, result: {{topic: done}}}}}}\non_duplicate: result\n"), Needs::Nothing),
        ("sink: {handler: {honoured_for: 24h}}\n".to_owned(), Needs::Nothing),
    ]
}

/// Blocks that a topology may write itself beside any preset.
const OWN: [&str; 10] = [
    "retention: ${env:NONE:-30d}\n",
    "on_missing: dead_letter\n",
    "on_null_value: drop\n",
    "on_invalid: fail\n",
    "dead_letter: {topic: \"odd.\"}\n",
    "audit: {topic: audit}\n",
    "limits: {record_bytes: 1MiB}\n",
    "epoch: [{const: 2}]\n",
    "future_max: 1h\n",
    "partitioned_by_identity: true\n",
];

fn load(text: &str) -> Loaded {
    load_text(text).unwrap_or_else(|diagnostics| panic!("{text}\n{}", diagnostics.render(false)))
}

#[track_caller]
fn expands_to_itself(text: &str) {
    let loaded = load(text);
    let printed = loaded.expanded();
    let again = load(&printed);
    let (before, mut after) = (loaded.topology, again.topology.clone());
    assert_eq!(after.preset, None);
    after.preset.clone_from(&before.preset);
    assert_eq!(after, before, "{text}\n{printed}");
    assert_eq!(after.rules.digest(), before.rules.digest(), "{text}");
    assert_eq!(again.expanded(), printed, "{text}");
    let warned = |loaded: &[crate::yaml::Mistake]| loaded.len();
    assert!(warned(&again.warnings) <= warned(&loaded.warnings), "{printed}\n{:?}", again.warnings);
}

fn begin(preset: &Preset) -> String {
    let canal = ["canal", "ticdc"].contains(&preset.name);
    // A sink repeats no effect: their ties have to be dropped.
    let equal = if canal { "on_equal: drop\n" } else { "" };
    format!("# A topology.\nname: t\npreset: {}\ninput: {{topics: [in], start: latest}}\n{equal}", preset.pinned())
}

#[test]
fn every_preset_with_every_destination_expands_to_the_same_topology() {
    let mut tried = 0;
    for preset in ALL {
        for (destination, needs) in destinations() {
            let text = format!("{}{destination}", begin(preset));
            if !needs.are_met_by(preset) {
                let error = load_text(&text).expect_err("the preset lacks something").render(false);
                let row = |preset: &Preset| preset.rows().expect_err("no table can be kept").why;
                let words = if needs == Needs::Kinds { "tells kinds of change apart" } else { row(preset) };
                assert!(error.contains(words), "{error}");
                continue;
            }
            expands_to_itself(&text);
            tried += 1;
        }
    }
    assert!(tried > 200, "only {tried}");
}

/// The actions that count are printed, not those that only an output can take.
#[test]
fn expanded_table_says_where_the_row_is_and_what_becomes_of_what_has_none() {
    let preset = Preset::newest("debezium-postgres").expect("there is one");
    let text = format!("{}sink: {{postgres: {{{POSTGRES}, table: {{name: t, key: [id]}}}}}}\n", begin(preset));
    let printed = load(&text).expanded();
    assert!(printed.contains("\non_missing: dead_letter\n"), "{printed}");
    assert!(printed.contains("of: {first_of: [value.after, value]}"), "{printed}");
    assert!(printed.starts_with("# A topology.\n# What `preset: "), "{printed}");
}

/// What a topology writes itself is refused in a sink as ever, also beside a preset.
#[test]
fn forward_that_a_topology_writes_itself_is_refused_in_a_sink() {
    for key in ["on_missing", "on_invalid", "on_null_value"] {
        let text = format!(
            "{}{key}: forward\nsink: {{postgres: {{{POSTGRES}, statements: [{{sql: select 1}}]}}}}\n",
            begin(&ALL[11])
        );
        let error = load_text(&text).expect_err("it is for an output").render(false);
        assert!(error.contains(&format!("`{key}: forward` is for an output")), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// With any blocks of the topology's own.
    #[test]
    fn topology_with_own_blocks_expands_to_itself(
        preset in 0..ALL.len(),
        destination in 0..12_usize,
        own in prop::collection::vec(any::<bool>(), OWN.len()),
        reads in any::<bool>(),
        identity in any::<bool>(),
    ) {
        let preset = &ALL[preset];
        let (destination, needs) = destinations().swap_remove(destination);
        prop_assume!(needs.are_met_by(preset));
        let mut text = format!("{}{destination}", begin(preset));
        let is_versioned = preset.text.contains("\nversion:");
        for (block, _) in OWN.iter().zip(own).filter(|(block, is_in)| *is_in && (is_versioned || !block.starts_with("epoch"))) {
            text.push_str(block);
        }
        if reads && preset.text.contains("\n  read: ") {
            text.push_str("kinds: {reads: by_version}\n");
        }
        if identity {
            text.push_str("identity: [{first_of: [[key], [meta.timestamp]]}, {const: mine}]\n");
        }
        expands_to_itself(&text);
    }
}
