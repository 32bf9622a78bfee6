//! Goal: the committed schema is the one that is printed, it describes every key, and it accepts what ships.

use std::path::{Path, PathBuf};

use super::*;
use crate::dedup::{Reason, VersionKind};
use crate::topology::presets;
use crate::topology::tests::{golden_texts, json_of, load_text};
use crate::yaml::keys::Mapping;

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Why the schema rejects a topology; empty if it accepts it.
fn refusals(text: &str) -> Vec<String> {
    let validator = jsonschema::validator_for(&schema()).unwrap();
    let json = json_of(text);
    validator.iter_errors(&json).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

fn yaml_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries.filter(|path| path.extension().is_some_and(|end| end == "yaml")).collect();
    files.sort();
    files
}

#[test]
fn committed_schema_is_the_printed_one() {
    let path = repository().join("config/topology.schema.json");
    if std::env::var_os("RATCHET_GOLDEN").is_some_and(|word| word == "write") {
        std::fs::write(&path, text()).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(kept == text(), "config/topology.schema.json is not what `ratchet schema` prints: run `make schema`");
}

#[test]
fn schema_is_a_valid_json_schema() {
    assert!(jsonschema::meta::is_valid(&schema()));
    let text = text();
    let mut descriptions = text.lines().filter(|line| line.contains("\"description\": "));
    assert!(descriptions.all(|line| !line.contains("](")), "a link is left in a description");
}

#[test]
fn shipped_topologies_and_presets_match_the_schema() {
    for folder in ["topologies", "topologies/samples"] {
        for path in yaml_files(&repository().join(folder)) {
            let text = std::fs::read_to_string(&path).unwrap();
            assert_eq!(refusals(&text), Vec::<String>::new(), "{}", path.display());
            let named = text.lines().any(|line| line.starts_with("# yaml-language-server: $schema="));
            assert!(named, "{} does not name its schema", path.display());
        }
    }
    for preset in presets::ALL {
        let own = |line: &&str| !line.starts_with("notes:");
        let block: String = preset.text.lines().take_while(own).map(|line| format!("{line}\n")).collect();
        let text = block.replace("input: {", "name: t\noutput: {topic: o}\ninput: {topics: [i], ");
        assert_eq!(refusals(&text), Vec::<String>::new(), "{}", preset.pinned());
    }
}

/// The YAML blocks of a page; partial topologies are completed.
fn examples(page: &str) -> Vec<String> {
    let blocks = page.split("```yaml\n").skip(1).filter_map(|rest| rest.split_once("```").map(|(block, _)| block));
    let rest = "\ninput: {topics: [in]}\nidentity: [key]\nversion: {of: value.v, as: integer}\noutput: {topic: out}\n";
    let whole = |block: &str| {
        let has = |line: &&str| block.lines().any(|other| other.split(':').next() == line.split(':').next());
        let missing = rest.lines().filter(|line| !line.is_empty() && !has(line)).map(|line| format!("{line}\n"));
        let name = if block.contains("name:") { "" } else { "name: t\n" };
        if name.is_empty() { block.to_owned() } else { format!("{name}{block}{}", missing.collect::<String>()) }
    };
    blocks.map(whole).collect()
}

#[test]
fn examples_of_the_reference_load_and_match_the_schema() {
    let page = std::fs::read_to_string(repository().join("docs/topologies.md")).unwrap();
    let examples = examples(&page);
    assert!(examples.len() >= 6, "{examples:?}");
    for text in examples {
        assert_eq!(refusals(&text), Vec::<String>::new(), "{text}");
        load_text(&text).unwrap_or_else(|diagnostics| panic!("{text}\n{}", diagnostics.render(false)));
    }
}

#[test]
fn every_key_and_word_is_in_the_reference() {
    let page = std::fs::read_to_string(repository().join("docs/topologies.md")).unwrap();
    let keys = [&keys::PART, &keys::EPOCH_PART].into_iter().flat_map(Mapping::names);
    let reasons = Reason::ALL.iter().map(|reason| reason.as_str());
    let kinds = VersionKind::ALL.iter().map(|kind| kind.as_str());
    let presets = presets::ALL.iter().map(|preset| preset.name);
    for word in keys.chain(reasons).chain(kinds).chain(presets) {
        let shown = [format!("`{word}`"), format!("`{word}."), format!("{{{word}: "), format!("{word}: ")];
        assert!(shown.iter().any(|shown| page.contains(shown)), "docs/topologies.md does not name {word}");
    }
}

#[test]
fn schema_rejects_wrong_shapes_but_not_wrong_meanings() {
    for (name, text) in golden_texts("bad/shape") {
        assert!(!refusals(&text).is_empty(), "the schema takes {name}; is it wrong in its meaning only?");
    }
    for (name, text) in golden_texts("bad/meaning") {
        assert_eq!(refusals(&text), Vec::<String>::new(), "the schema refuses {name}: it belongs to bad/shape");
    }
}
