//! Goal: every preset is complete, never changes its meaning, and gives way to what a topology writes itself.

use std::path::Path;

use super::catalogue::ROWS;
use super::*;
use crate::dedup::{Action, Format, IdentityPart, OnNull, Reader, Reading, Reason};
use crate::record::{HeaderBuf, Record};
use crate::topology::tests::{golden_file, load_text};
use crate::topology::{Loaded, Topology};

/// A topology whose preset leaves only the names to write.
fn bare(preset: &str) -> String {
    format!("name: t\npreset: {preset}\ninput: {{topics: [in]}}\noutput: {{topic: out}}\n")
}

fn load(text: &str) -> Loaded {
    load_text(text).map_err(|diagnostics| diagnostics.render(false)).unwrap()
}

fn topology(preset: &str) -> Topology {
    load(&bare(preset)).topology
}

#[test]
fn every_preset_file_is_listed_and_loads() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/topology/presets");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut files: Vec<_> = files.filter_map(|name| name.strip_suffix(".yaml").map(str::to_owned)).collect();
    files.sort();
    let mut known: Vec<_> = ALL.iter().map(Preset::pinned).collect();
    known.sort();
    assert_eq!(files, known);
    for preset in ALL {
        let loaded = load(&bare(&preset.pinned()));
        assert_eq!(loaded.topology.preset, Some(preset.pinned()));
        assert_eq!(loaded.topology.rules.problems(), []);
        assert!(!preset.notes().is_empty(), "{} has no notes", preset.pinned());
        let without_version = hint(&preset.pinned(), Reason::VersionMissing);
        let is_versioned = loaded.topology.rules.version.is_some();
        assert_eq!(without_version.is_some(), is_versioned, "{} does not say why there is no version", preset.pinned());
        assert!(preset.text.starts_with("# "), "{} does not say why it is as it is", preset.pinned());
    }
}

#[test]
fn numbered_preset_never_changes_its_meaning() {
    for preset in ALL {
        let rules = topology(&preset.pinned()).rules;
        let digest: String = rules.digest().iter().map(|byte| format!("{byte:02x}")).collect();
        let meaning = format!(
            "{}digest: {digest}\nreads: {}\ncontents: {}\nretention: {:?}\nrefresh: {}\nactions: {:#?}\n",
            rules.canonical_text(),
            rules.kinds.as_ref().map_or("none", |kinds| kinds.reads.as_str()),
            rules.contents.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string),
            rules.retention,
            rules.refresh,
            rules.actions
        );
        let parts = rules.version.iter().flat_map(|version| &version.parts);
        let least = parts.filter_map(|part| Some(format!("least: {} {}\n", part.min?, part)));
        golden_file(&format!("presets/{}.txt", preset.pinned()), &(meaning + &least.collect::<String>()));
    }
}

#[test]
fn presets_warn_only_about_what_the_user_must_decide() {
    for preset in ALL {
        let warnings = load(&bare(&preset.pinned())).warnings;
        let said = |words: &str| warnings.iter().any(|warning| warning.message().contains(words));
        assert_eq!(said("within one partition"), ["canal", "ogg", "ticdc"].contains(&preset.name), "{}", preset.name);
        assert_eq!(said("order"), ["canal", "debezium-mongodb"].contains(&preset.name), "{}", preset.name);
        assert_eq!(said("output_binlog_position"), preset.name == "maxwell", "{}", preset.name);
        assert_eq!(said("drops good changes"), DROPPING.contains(&&*preset.pinned()), "{}", preset.name);
    }
}

/// What drops good changes in databases with an ordinary setup.
const DROPPING: [&str; 3] = ["canal@1", "debezium-mariadb@1", "debezium-postgres@1"];

/// `check` prints the notes; the page is read later, if at all.
#[test]
fn cautions_of_a_page_are_preset_notes_too() {
    let risks = [
        ("canal", "canal.instance.gtidon=true"),
        ("debezium-mariadb", "binlog_legacy_event_pos"),
        ("debezium-mysql", "binlog_legacy_event_pos"),
        ("maxwell", "binlog_legacy_event_pos"),
        ("debezium-mongodb", "provide.transaction.metadata=true"),
        ("debezium-mysql", "binlog_transaction_compression"),
        ("debezium-oracle", "OpenLogReplicator"),
        ("debezium-spanner", "source.ts_ms"),
        ("debezium-sqlserver", "version` from a column that every update raises"),
    ];
    let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/sources");
    for (name, words) in risks {
        let page = std::fs::read_to_string(pages.join(format!("{name}.md"))).unwrap();
        assert!(page.contains(words), "{name}.md does not say {words}");
        for preset in ALL.iter().filter(|preset| preset.name == name) {
            assert!(preset.notes().iter().any(|note| note.contains(words)), "{} does not say {words}", preset.pinned());
        }
    }
}

#[test]
fn warning_disappears_if_the_topology_writes_the_block() {
    let text = bare("maxwell@1");
    assert_eq!(load(&text).warnings.len(), 1);
    assert!(load(&(text + "on_missing_version: forward\n")).warnings.is_empty());
}

#[test]
fn unnumbered_preset_is_the_newest_with_a_warning_to_pin_it() {
    let loaded = load(&bare("debezium-postgres"));
    assert_eq!(loaded.topology.preset.as_deref(), Some("debezium-postgres@3"));
    let [warning] = loaded.warnings.as_slice() else { panic!("{:?}", loaded.warnings) };
    assert_eq!(warning.help_text(), Some("pin it: `preset: debezium-postgres@3`"));
    assert_eq!(warning.position(), Some(("t.yaml", 2, 9)));
}

#[test]
fn blocks_of_the_topology_replace_the_presets() {
    let text =
        bare("debezium-postgres@2") + "version: {of: header.seq, as: integer}\non_null_value: drop\nretention: 30d\n";
    let (own, preset) = (load(&text).topology.rules, topology("debezium-postgres@2").rules);
    assert_eq!(own.version.as_ref().map(ToString::to_string).as_deref(), Some("[integer [header.seq]]"));
    assert_eq!(own.actions.null_value, OnNull::Act(Action::Drop));
    assert_eq!((&own.identity, &own.epoch, &own.kinds), (&preset.identity, &preset.epoch, &preset.kinds));
    assert_eq!(preset.actions.null_value, OnNull::FollowDelete);
}

#[test]
fn input_is_merged_key_by_key() {
    let text = bare("debezium-mysql@1").replace("[in]}", "[in], key_format: json, start: latest}");
    let topology = load(&text).topology;
    assert_eq!((topology.rules.key_format, topology.rules.value_format), (Format::Json, Format::ConnectJson));
    assert_eq!(topology.start, crate::topology::Start::Latest);
}

#[test]
fn one_key_of_kinds_is_written_without_the_others() {
    use crate::dedup::{Reads, Scalar};
    for preset in ALL {
        let own = topology(&preset.pinned()).rules;
        let switched = load_text(&(bare(&preset.pinned()) + "kinds: {reads: by_version}\n"));
        let Some(kinds) = own.kinds.clone().filter(|kinds| !kinds.read.is_empty()) else {
            // There is nothing to complete, or no read that could win.
            assert!(switched.is_err(), "{}", preset.pinned());
            continue;
        };
        let rules = switched.map_err(|diagnostics| diagnostics.render(false)).unwrap().topology.rules;
        assert_eq!(rules.kinds, Some(crate::dedup::Kinds { reads: Reads::ByVersion, ..kinds }), "{}", preset.pinned());
        assert_eq!(rules.digest(), own.digest(), "{}", preset.pinned());
    }
    // A list is a key's value: it is replaced, not added to.
    let rules = load(&(bare("maxwell@1") + "kinds: {delete: [gone]}\n")).topology.rules;
    assert_eq!(rules.kinds.as_ref().unwrap().delete, [Scalar::Text("gone".to_owned())]);
}

/// As before a block could be completed: what a whole block leaves out is not there.
#[test]
fn kinds_with_of_replace_the_presets_as_a_whole() {
    let text = bare("debezium-postgres@2") + "kinds: {of: value.op, delete: [d], read: [r]}\n";
    let kinds = load(&text).topology.rules.kinds.clone().unwrap();
    assert_eq!((kinds.truncate.len(), kinds.message.len(), kinds.table.len()), (0, 0, 0));
    let rules = load(&text).topology.rules;
    let text = rules.canonical_text();
    assert!(text.contains("kinds: [value.op]\ndelete: [\"d\"]\nread: [\"r\"]\ntruncate: []\nmessage: []\n"), "{text}");
}

#[test]
fn own_identity_loses_the_presets_partitioning() {
    let text = bare("debezium-postgres@2") + "identity: {first_of: [[value.after.id], [key]]}\n";
    let loaded = load(&text);
    assert!(matches!(loaded.topology.rules.identity.parts.as_slice(), [IdentityPart::FirstOf(_)]));
    assert_eq!(loaded.warnings.len(), 1, "{:?}", loaded.warnings);
}

/// Without them the whole value would be compared, with the time of its delivery.
#[test]
fn own_identity_without_rows_keeps_the_presets_contents() {
    let contents = |preset: &str, own: &str| {
        load(&(bare(preset) + own)).topology.rules.contents.as_ref().map(ToString::to_string).unwrap()
    };
    let without_rows = "identity: [value.database, value.table, value.data.0.id]\n";
    for preset in ALL {
        let preset = preset.pinned();
        let own = contents(&preset, "").replace("{rows: [value.data]}", "value.data");
        assert_eq!(contents(&preset, &format!("{without_rows}on_null_value: drop\n")), own, "{preset}");
    }
    assert_eq!(contents("canal@1", without_rows), "[value.type, value.data]");
    let rows = contents("canal@1", "identity: [{rows: value.data, named: [id]}]\n");
    assert_eq!(rows, "[value.type, {rows: [value.data]}]");
}

/// A preset that is forgotten here would have its whole value taken for a row.
#[test]
fn every_preset_says_where_its_rows_are() {
    for preset in ALL {
        assert!(ROWS.iter().any(|(known, _)| preset.name.starts_with(known)), "{}", preset.pinned());
    }
}

#[test]
fn changed_epoch_const_keeps_the_digest() {
    let [first, second] =
        [1, 2].map(|number| load(&(bare("ogg@1") + &format!("epoch: {{const: {number}}}\n"))).topology.rules);
    assert_ne!(first.epoch, second.epoch);
    assert_eq!(first.digest(), second.digest());
    assert_eq!(first.digest(), topology("ogg@1").rules.digest());
}

/// Otherwise `run` would refuse what a page tells users to write into a running topology.
#[test]
fn const_raised_as_documented_continues_with_the_state() {
    let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/sources");
    let mut raised = 0;
    // A page shows the newest preset with its name.
    for preset in ALL.iter().filter(|preset| Preset::newest(preset.name).map(Preset::pinned) == Some(preset.pinned())) {
        let page = std::fs::read_to_string(pages.join(format!("{}.md", preset.name))).unwrap();
        let blocks = page.split("```yaml\n").skip(1).filter_map(|rest| rest.split_once("```")).map(|(block, _)| block);
        for block in blocks.filter(|block| block.contains("{const: 2}")) {
            let (rules, own) = (load(block).topology.rules, topology(&preset.pinned()).rules);
            assert_ne!(rules.epoch, own.epoch, "{}", preset.name);
            assert_eq!(rules.digest(), own.digest(), "{}: {block}", preset.name);
            raised += 1;
        }
    }
    assert!(raised > 5, "{raised}");
}

/// A topology with the first number continues with the second one and its state.
#[test]
fn next_number_continues_with_the_state() {
    for (name, first) in [
        ("debezium-mariadb", 1),
        ("debezium-mariadb", 2),
        ("debezium-postgres", 2),
        ("debezium-mysql", 1),
        ("debezium-sqlserver", 1),
        ("debezium-db2", 1),
        ("debezium-informix", 1),
        ("ticdc", 1),
    ] {
        let [first, second] = [first, first + 1].map(|number| topology(&format!("{name}@{number}")).rules);
        assert_ne!(first, second, "{name}");
        assert_eq!(first.digest(), second.digest(), "{name}");
    }
}

/// What a preset means by contents is forwarded where they differ, unless the preset believes the identity.
#[test]
fn presets_forward_conflicts_to_an_output_or_a_table_alone() {
    let conflict = |preset: &Preset, destination: &str| {
        let text = bare(&preset.pinned()).replace("output: {topic: out}\n", destination);
        load(&text).topology.rules.actions.conflict
    };
    let url = "url: '${env:NONE:-postgres://localhost/shop}'";
    for preset in ALL {
        let believes = preset.name == "debezium-outbox";
        let expected = if believes { Action::Drop } else { Action::Forward };
        assert_eq!(conflict(preset, "output: {topic: out}\n"), expected, "{}", preset.pinned());
        // With a sink, ties that pass anyway are a mistake.
        if topology(&preset.pinned()).rules.actions.equal_version == Action::Forward {
            continue;
        }
        let statement = format!("sink: {{postgres: {{{url}, statements: [{{sql: 'select $1', with: [key]}}]}}}}\n");
        assert_eq!(conflict(preset, &statement), Action::DeadLetter, "{}", preset.pinned());
    }
}

#[test]
fn malformed_position_gets_a_hint_what_to_set() {
    let why = |preset: &str, value: &str| {
        let topology = topology(preset);
        let mut reader = Reader::new(topology.rules.clone());
        let value = Some(value.as_bytes());
        let (headers, key) = (HeaderBuf::default(), Some(&br#"{"id":1}"#[..]));
        let (headers, timestamp) = (headers.as_headers(), Some(1));
        let record = Record { topic: "in", partition: 0, offset: 0, timestamp, key, value, headers };
        match reader.read(&record, &mut Vec::new()) {
            Reading::Rejected(rejection) => topology.rejection(&rejection).into_owned(),
            other => panic!("{other:?}"),
        }
    };
    let mariadb = why("debezium-mariadb@2", r#"{"op":"u","source":{"file":"binlog.000003","pos":-58,"row":0}}"#);
    assert!(mariadb.starts_with("`value.source.pos`, the version, is less than the minimum of 0: "), "{mariadb}");
    let maxwell = why("maxwell@1", r#"{"type":"update","position":"binlog.000003:-58"}"#);
    for why in [mariadb, maxwell] {
        assert!(why.contains("set `binlog_legacy_event_pos=ON`"), "{why}");
    }
}

#[test]
fn record_without_a_version_gets_a_hint_what_to_set() {
    let topology = topology("maxwell@1");
    assert!(topology.hint(Reason::VersionMissing).unwrap().contains("output_binlog_position"));
    assert!(topology.meaning(Reason::VersionMissing).starts_with("the record has no version: "));
    assert_eq!(topology.hint(Reason::First), None);
    let plain = load("name: t\ninput: {topics: [in]}\nidentity: key\noutput: {topic: out}\n");
    assert_eq!(plain.topology.hint(Reason::VersionMissing), None);
}

#[test]
fn warning_disappears_once_the_topology_has_decided() {
    let warns = |more: &str| {
        let text = format!("name: t\npreset: maxwell@1\ninput: {{topics: [in]}}\noutput: {{topic: out}}\n{more}");
        !load(&text).warnings.is_empty()
    };
    assert!(warns(""));
    assert!(!warns("on_missing_version: forward\n"));
    assert!(!warns("version: {of: value.xid, as: integer}\n"));
}

#[test]
fn expanded_preset_loads_to_the_same_rules() {
    for preset in ALL {
        let loaded = load(&bare(&preset.pinned()));
        let expanded = load(&loaded.expanded());
        let (before, mut after) = (loaded.topology, expanded.topology);
        assert_eq!(after.preset.take(), None);
        after.preset.clone_from(&before.preset);
        assert_eq!(after, before, "{}", preset.pinned());
        assert!(expanded.warnings.len() <= loaded.warnings.len());
    }
}

#[test]
fn expansion_has_own_blocks_and_the_presets_notes() {
    let text = bare("debezium-postgres@2") + "retention: ${env:NONE:-30d}\nversion: {of: header.seq, as: integer}\n";
    let expanded = load(&text).expanded();
    assert!(expanded.starts_with("# What `preset: debezium-postgres@2` stands for, written out.\n# - "), "{expanded}");
    assert!(expanded.contains("\nversion: {of: header.seq, as: integer}\n"), "{expanded}");
    assert!(expanded.contains("\nretention: \"${env:NONE:-30d}\"\n"), "{expanded}");
    assert!(!expanded.contains("lsn, "), "{expanded}");
    assert!(expanded.lines().all(|line| line.chars().count() <= 110), "{expanded}");
    assert!(!expanded.contains("\npreset"), "{expanded}");
}
