//! The YAML that the documentation shows. Goal: what a reader copies works.

use std::fs;
use std::path::{Path, PathBuf};

use crate::task::load;

/// The documents whose YAML blocks are topologies. (Those of `docs/topologies.md` are loaded where its words are.)
fn documents() -> Vec<PathBuf> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let sources = fs::read_dir(docs.join("sources")).expect("docs/sources is there");
    let mut all: Vec<_> = sources.map(|entry| entry.expect("it can be read").path()).collect();
    all.push(docs.join("reprocess-a-cdc-stream.md"));
    all.sort();
    all
}

/// The blocks fenced as `yaml`, each with the line it begins on.
fn blocks(text: &str) -> Vec<(usize, String)> {
    let mut blocks = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (number, line) in (1..).zip(text.lines()) {
        match (line.trim(), open.as_mut()) {
            ("```yaml", None) => open = Some((number, String::new())),
            ("```", Some(_)) => blocks.extend(open.take()),
            (_, Some((_, block))) => {
                block.push_str(line);
                block.push('\n');
            }
            _ => {}
        }
    }
    blocks
}

/// Every block compiles.
#[test]
fn every_yaml_block_is_a_topology_that_compiles() {
    let mut compiled = 0;
    for path in documents() {
        let text = fs::read_to_string(&path).expect("documents are UTF-8");
        for (line, block) in blocks(&text) {
            if let Err(diagnostics) = load(&block) {
                panic!("{}:{line}:\n{block}\n{}", path.display(), diagnostics.render(false));
            }
            compiled += 1;
        }
    }
    assert!(compiled > 14, "a block for each source at least, not {compiled}");
}

/// Each preset has its page, and the index names it.
#[test]
fn every_preset_has_a_page() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let index = fs::read_to_string(root.join("docs/sources/README.md")).expect("the index is there");
    for entry in fs::read_dir(root.join("src/topology/presets")).expect("presets are there") {
        let file = entry.expect("it can be read").file_name().into_string().expect("names are UTF-8");
        let Some((name, _)) = file.strip_suffix(".yaml").and_then(|preset| preset.split_once('@')) else { continue };
        let page = format!("{name}.md");
        assert!(root.join("docs/sources").join(&page).exists(), "docs/sources/{page} is missing");
        assert!(index.contains(&format!("({page})")), "the index does not name {page}");
    }
}
