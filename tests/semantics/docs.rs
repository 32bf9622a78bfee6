//! What the documentation shows and lists. Goal: examples work when copied, and lists are complete.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::task::load;

/// The documents whose YAML blocks are topologies. (Those of `docs/topologies.md` are tested in `src/topology`.)
fn documents() -> Vec<PathBuf> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let sources = fs::read_dir(docs.join("sources")).expect("docs/sources is there");
    let mut all: Vec<_> = sources.map(|entry| entry.expect("it can be read").path()).collect();
    all.extend(["reprocess-a-cdc-stream.md", "limits.md", "redis.md"].map(|page| docs.join(page)));
    all.sort();
    all
}

/// The blocks fenced as `yaml`, each with its first line's number.
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

/// The block of a source's page that contains these words.
#[track_caller]
pub fn page_block(page: &str, words: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/sources").join(page);
    let text = fs::read_to_string(&path).expect("documents are UTF-8");
    let found: Vec<_> = blocks(&text).into_iter().filter(|(_, block)| block.contains(words)).collect();
    let [(_, block)] = found.as_slice() else { panic!("{page}: `{words}` is in {} blocks", found.len()) };
    block.clone()
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
    assert!(compiled > 15, "a block for each source at least, not {compiled}");
}

/// Each recipe is a section with one topology, is in the page's table, and loads without a warning; the index leads there.
#[test]
fn every_recipe_is_listed_and_loads_without_a_warning() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/sources");
    let read = |page: &str| fs::read_to_string(sources.join(page)).expect("documents are UTF-8");
    let (page, index) = (read("recipes.md"), read("README.md"));
    assert!(index.contains("(recipes.md)"), "the index does not name the recipes");
    let sections: Vec<&str> = page.split("\n## ").skip(1).collect();
    let listed = page.lines().filter(|line| line.starts_with("| [")).count();
    assert_eq!((sections.len(), listed), (10, 10));
    for section in sections {
        let (name, text) = section.split_once('\n').expect("a section has a heading");
        assert!(page.contains(&format!("| [{name}](#")), "{name} is not in the table");
        assert!(index.contains(name.split('\'').next().unwrap_or(name)), "{name} is not in the index");
        let [(line, block)] = &blocks(text)[..] else { panic!("{name} has not one topology") };
        let loaded = load(block).unwrap_or_else(|all| panic!("{name}: {}", all.render(false)));
        assert!(loaded.warnings.is_empty(), "{name}, line {line}: {:?}", loaded.warnings);
    }
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

/// The Rust sources below a folder, except their tests.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the sources are there").map(|entry| entry.expect("readable").path());
    let is_test = |path: &PathBuf| path.file_stem().is_some_and(|stem| stem == "tests");
    let below = entries.filter(|path| !is_test(path)).flat_map(|path| match path.is_dir() {
        true => sources(&path),
        false => vec![path],
    });
    below.filter(|path| path.extension().is_some_and(|end| end == "rs")).collect()
}

/// Unsafe code is only where the documentation says, and each block is preceded by its reason.
#[test]
fn unsafe_code_is_only_where_it_is_listed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("docs/dev/architecture.md")).expect("the page is there");
    let (_, section) = page.split_once("\n## Unsafe code\n").expect("it lists the unsafe code");
    let rows = section.lines().take_while(|line| !line.starts_with("## ")).filter(|line| line.starts_with("| `"));
    let mut listed = BTreeSet::new();
    for row in rows {
        let first = row.split('|').nth(1).expect("a first cell");
        let mut folder = "";
        for name in first.split('`').skip(1).step_by(2) {
            if let Some((of, _)) = name.rsplit_once('/') {
                folder = of;
            }
            let path = if name.contains('/') { name.to_owned() } else { format!("{folder}/{name}") };
            assert!(listed.insert(path), "{name} is listed twice");
        }
    }
    let mut found = BTreeSet::new();
    // What tests alone run, as in the testkit, does not count.
    for path in ["src", "crates/cluster", "crates/core", "crates/http", "examples"]
        .iter()
        .flat_map(|folder| sources(&root.join(folder)))
    {
        let text = fs::read_to_string(&path).expect("sources are UTF-8");
        let name = path.strip_prefix(root).expect("below the root").to_str().expect("UTF-8").to_owned();
        let mut reason_at = None;
        for (number, line) in (1_usize..).zip(text.lines()) {
            let code = line.trim_start();
            if code.starts_with("//") {
                if code.contains("SAFETY:") || code.contains("# Safety") {
                    reason_at = Some(number);
                }
                continue;
            }
            if code.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == "unsafe") {
                let near = reason_at.is_some_and(|at| number - at <= 12);
                assert!(near, "{name}:{number} does not say why it is sound");
                found.insert(name.clone());
            }
        }
    }
    assert_eq!(found, listed, "docs/dev/architecture.md should list the files with unsafe code");
}

#[test]
fn examples_of_the_layer_are_those_that_are_compiled() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| fs::read_to_string(root.join(path)).expect("it is there");
    let page = read("docs/http-idempotency.md");
    let (_, layer) = page.split_once("\n## The layer\n").expect("a section on the layer");
    let examples: Vec<&str> = layer.split("```rust\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(examples.len(), 3, "in a folder, in PostgreSQL, in Redis");
    let modules = ["crates/http/src/http/mod.rs", "src/postgres/requests.rs", "src/redis/requests.rs"].map(read);
    let compiled: Vec<&str> =
        modules.iter().flat_map(|text| text.lines()).filter_map(|line| line.strip_prefix("//! ")).collect();
    for line in examples.iter().flat_map(|example| example.lines()).filter(|line| !line.is_empty()) {
        assert!(compiled.contains(&line), "{line}");
    }
}
