//! The corpus in `tests/corpus`: public change events, each judged as its golden file says. Goal: of what real
//! producers wrote, no good change is dropped and no duplicate forwarded, and nothing makes ratchet crash.

pub mod golden;
pub mod shapes;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use golden::Golden;
use ratchet::capture::Nearly;

use crate::task::{Given, Task, load};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus")
}

/// The bytes of a file of the corpus.
pub fn file(path: &str) -> Vec<u8> {
    let path = folder().join("files").join(path);
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn text(path: &str) -> String {
    fs::read_to_string(folder().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The text of a topology of the corpus.
fn topology(name: &str) -> Result<String, String> {
    fs::read_to_string(folder().join(format!("topologies/{name}.yaml"))).map_err(|error| format!("{name}: {error}"))
}

/// The files below a folder of the corpus, by their paths in it.
fn files_in(name: &str) -> BTreeSet<String> {
    fn walk(root: &Path, folder: &Path, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).expect("the folder is there") {
            let path = entry.expect("it can be read").path();
            if path.is_dir() {
                walk(root, &path, found);
            } else if !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.')) {
                let relative = path.strip_prefix(root).expect("it is below the root");
                found.insert(relative.to_str().expect("names are UTF-8").to_owned());
            }
        }
    }
    let root = folder().join(name);
    let mut found = BTreeSet::new();
    walk(&root, &root, &mut found);
    found
}

/// The files without records, each with the reason.
fn none() -> Vec<(String, String)> {
    let text = text("golden/none.txt");
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| line.split_once(" | ").expect("FILE | REASON"))
        .map(|(a, b)| (a.to_owned(), b.to_owned()))
        .collect()
}

/// Every file with records: its name, a topology, and the records for that topology.
pub fn histories() -> Vec<(String, String, Vec<Given>)> {
    let read = |path: &str| shapes::records(&file(path));
    let names = files_in("golden").into_iter().filter(|name| name != "none.txt");
    let of = |name: String| {
        let path = name.strip_suffix(".txt").expect("golden files end in .txt").to_owned();
        let given = Golden::given(&folder().join("golden").join(&name), &path, &read);
        given.into_iter().map(move |(topology, records)| (path.clone(), topology, records))
    };
    names.flat_map(of).collect()
}

/// Every preset and every topology of the corpus, by name.
fn all_topologies() -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = files_in("topologies")
        .into_iter()
        .filter_map(|file| file.strip_suffix(".yaml").map(str::to_owned))
        .map(|name| (name.clone(), topology(&name).expect("it was just listed")))
        .collect();
    let presets = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/topology/presets");
    for entry in fs::read_dir(presets).expect("presets are there") {
        let name = entry.expect("it can be read").file_name().into_string().expect("names are UTF-8");
        if let Some(preset) = name.strip_suffix(".yaml") {
            all.push((preset.to_owned(), format!("preset: {preset}\n")));
        }
    }
    all.sort();
    all
}

/// Every file is listed with its source and a licence that permits redistribution.
#[test]
fn every_file_has_its_source_and_licence() {
    let manifest = text("MANIFEST.tsv");
    let mut named = BTreeSet::new();
    for line in manifest.lines().skip(1) {
        let fields: Vec<_> = line.split('\t').collect();
        let [file, repository, path, commit, licence, ..] = fields[..] else { panic!("{line}") };
        assert!([repository, path, commit].iter().all(|field| !field.is_empty()), "{line}");
        assert!(["Apache-2.0", "MIT"].contains(&licence), "{line}");
        assert!(named.insert(file.to_owned()), "{file} is named twice");
    }
    assert_eq!(named, files_in("files"));
}

/// Every file has a golden file, or is listed with the reason why not.
#[test]
fn every_file_has_a_golden_file_or_a_reason_why_not() {
    let goldens = files_in("golden").into_iter().filter_map(|file| file.strip_suffix(".txt").map(str::to_owned));
    let mut covered: BTreeSet<String> = goldens.filter(|file| file != "none").collect();
    for (file, reason) in none() {
        assert!(reason.len() > 10, "{file}: {reason} is too short a reason");
        assert!(covered.insert(file.clone()), "{file} has a golden file and a reason why not");
    }
    assert_eq!(covered, files_in("files"));
}

#[test]
fn every_file_is_judged_as_its_golden_file_says() {
    let read = |path: &str| shapes::records(&file(path));
    let names = files_in("golden").into_iter().filter(|name| name != "none.txt");
    let problems = names.map(|name| {
        let path = name.strip_suffix(".txt").expect("golden files end in .txt");
        let found = Golden::check(&folder().join("golden").join(&name), path, &read);
        (name, found)
    });
    golden::assert_right(problems.collect());
}

/// No value is taken for a captured record that somebody wrote by hand, though some name a topic or an offset.
#[test]
fn no_file_gets_a_warning_about_its_lines() {
    let mut lines = 0;
    for path in files_in("files") {
        let bytes = file(&path);
        let values = shapes::records(&bytes).into_iter().filter_map(|raw| raw.value);
        for line in shapes::lines(&bytes).into_iter().chain(values) {
            lines += 1;
            assert_eq!(Nearly::of(&line), None, "{path}: {}", String::from_utf8_lossy(&line));
        }
    }
    assert!(lines > 1000, "{lines} lines");
}

/// Nothing crashes: every file runs through every preset and topology, with and without a key, each time with the same
/// result.
#[test]
fn no_file_crashes_any_preset() {
    let files: Vec<_> = files_in("files").into_iter().map(|path| shapes::records(&file(&path))).collect();
    let topologies = all_topologies();
    assert!(topologies.len() >= 14, "the presets alone are more");
    let mut judged = 0;
    for (name, text) in topologies {
        let loaded = load(&text).unwrap_or_else(|diagnostics| panic!("{name}: {}", diagnostics.render(false)));
        let rules = loaded.topology.rules;
        for records in &files {
            let with = |key_of_value: bool| {
                records.iter().map(move |raw| {
                    let key = if key_of_value { raw.value.clone() } else { raw.key.clone() };
                    Given { key, value: raw.value.clone(), ..Given::default() }
                })
            };
            for key_of_value in [false, true] {
                let once = Task::by(rules.clone()).reasons(with(key_of_value));
                assert_eq!(once, Task::by(rules.clone()).reasons(with(key_of_value)), "{name}");
                judged += once.len();
            }
        }
    }
    assert!(judged > 10_000, "only {judged}");
}
