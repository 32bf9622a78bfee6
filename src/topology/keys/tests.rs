//! Goal: the tables of the documentation match the keys, and the defaults that they name are true.

use std::path::PathBuf;

use super::*;
use crate::topology::gate::keys as gate;
use crate::topology::sink::http::keys as http;
use crate::topology::sink::keys as sink;
use crate::topology::sink::terms::keys as terms;
use crate::topology::tables::{Table, compare_tables, row, rows};
use crate::topology::tests::load_text;

/// The tables of the reference: names, heads and rows.
fn tables() -> Vec<Table> {
    const KEYS: &str = "key | what | default";
    let is_action = |key: &&Key| key.name.starts_with("on_");
    let actions = TOP.keys.iter().filter(is_action).map(|key| row("", key)).collect();
    let parts = PART.keys.iter().filter(|key| PART.one_of.contains(&key.name));
    let part = |key: &Key| format!("| `{}` | {} |\n", key.example, key.about);
    let path = "| a path | the scalar that stands there |\n".to_owned();
    let contents = CONTENTS_PART.keys.iter().filter(|key| CONTENTS_PART.one_of.contains(&key.name)).map(part).collect();
    vec![
        ("topology", KEYS, TOP.keys.iter().filter(|key| !is_action(key)).flat_map(flat).collect()),
        ("identity", "part | is", [path].into_iter().chain(parts.map(part)).collect()),
        ("version", KEYS, rows(&VERSION)),
        ("contents", "part | is", contents),
        ("kinds", KEYS, rows(&KINDS)),
        ("actions", "key | when | default", actions),
        ("http", KEYS, rows(&HTTP)),
        ("idempotency key", KEYS, rows(&IDEMPOTENCY_KEY)),
        ("retry", KEYS, rows(&RETRYING)),
        ("handler", KEYS, rows(&HANDLER)),
        ("sink", KEYS, rows(&POSTGRES)),
        ("statement", KEYS, rows(&STATEMENT)),
        ("table", KEYS, rows(&TABLE)),
        ("outbox", KEYS, rows(&OUTBOX)),
        ("gate", KEYS, rows(&REDIS)),
        ("test", KEYS, rows(&CASE)),
        ("record", KEYS, rows(&RECORD)),
        ("row", KEYS, rows(&sink::CALL)),
        ("answer", KEYS, rows(&sink::ANSWER)),
    ]
}

/// The rows for a top-level key: those of the keys below it, except where it has its own section or page.
fn flat(key: &Key) -> Vec<String> {
    match key.takes {
        Type::Mapping(_, of) if !key.about.starts_with('[') => {
            let prefix = format!("{}.", key.name);
            let is_left_out = key.default != Omitted::Refused;
            let default = |below: &Key| match below.default {
                Omitted::Refused if is_left_out => key.default,
                own => own,
            };
            of.keys.iter().map(|below| row(&prefix, &Key { default: default(below), ..copy(below) })).collect()
        }
        _ => vec![row("", key)],
    }
}

fn copy(key: &Key) -> Key {
    Key { name: key.name, takes: key.takes, example: key.example, default: key.default, about: key.about }
}

#[test]
fn reference_has_the_tables_of_the_keys() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs/topologies.md");
    compare_tables(&path, tables(), "src/topology/keys.rs");
}

#[test]
fn every_key_is_described_in_one_clause_or_more() {
    let all = [
        &TOP,
        &INPUT,
        &OUTPUT,
        &DEAD_LETTER,
        &AUDIT,
        &LIMITS,
        &PART,
        &CONTENTS_PART,
        &PLACES,
        &VERSION,
        &EPOCH_PART,
        &KINDS,
        &TABLE_PART,
        &CASE,
        &GIVEN_FILE,
        &RECORD,
        &EXPECTED,
        &ENTRY,
    ];
    let all: Vec<&Mapping> =
        all.into_iter().chain(sink::ALL.iter().chain(http::ALL).chain(terms::ALL).chain(gate::ALL).copied()).collect();
    for key in all.iter().flat_map(|mapping| mapping.keys) {
        assert!(!key.about.is_empty() && !key.about.ends_with('.'), "{}: {}", key.name, key.about);
        assert!(key.example.contains(key.name) || key.example.contains(':'), "{}: {}", key.name, key.example);
    }
    for mapping in all {
        let named =
            mapping.one_of.iter().chain(mapping.any_of).chain(mapping.needs.iter().flat_map(|(one, two)| [one, two]));
        for name in named {
            assert!(mapping.key(name).is_some(), "{name}");
        }
    }
}

/// The complete topology from this text.
#[track_caller]
fn meaning(text: &str) -> String {
    let loaded = load_text(text).unwrap_or_else(|diagnostics| panic!("{text}\n{}", diagnostics.render(false)));
    format!("{:?}", loaded.topology)
}

#[test]
fn explicit_default_changes_nothing() {
    let plain = "name: t\nidentity: key\nversion: [{of: value.v, as: timestamp}, {of: value.w, as: integer}]\nepoch: [value.e]\nkinds: {of: value.op, delete: [d], read: [r]}\nretention: 30d\n\
                 input: {topics: [in]}\noutput: {topic: out}\nlimits: {record_bytes: 16MiB}\n\
                 tests: [{name: a, given: [{value: {v: 1}}], expect: [forwarded]}]\n";
    let places = [
        (&TOP, "[forwarded]}]\n", "[forwarded]}]\n{}\n"),
        (&INPUT, "{topics: [in]", "{topics: [in], {}"),
        (&OUTPUT, "{topic: out", "{topic: out, {}"),
        (&LIMITS, "{record_bytes: 16MiB", "{{}"),
        (&VERSION, "{of: value.v, as: timestamp", "{of: value.v, as: timestamp, {}"),
        (&KINDS, "read: [r]", "read: [r], {}"),
        (&RECORD, "{value: {v: 1}", "{value: {v: 1}, {}"),
    ];
    let mut tried = 0;
    for (mapping, written, with) in places {
        for key in mapping.keys {
            let Omitted::Is(default) = key.default else { continue };
            let text = plain.replace(written, &with.replace("{}", &format!("{}: {default}", key.name)));
            assert_eq!(meaning(&text), meaning(plain), "{}", key.name);
            tried += 1;
        }
    }
    assert!(tried >= 25, "only {tried} defaults are tried");
}
