//! Goal: the architecture page lists the dependencies between rooms as they are, and there are no cycles.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

type Dependencies = BTreeMap<String, BTreeSet<String>>;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Collects a folder's sources, except tests.
fn sources(folder: &Path, all: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let is_test = path.file_stem().is_some_and(|stem| stem == "tests");
        match path.extension() {
            _ if is_test => {}
            None => sources(&path, all),
            Some(extension) if extension == "rs" => all.push(path),
            Some(_) => {}
        }
    }
}

/// The dependencies in the sources, without comments and unit tests.
fn in_the_sources() -> Dependencies {
    let (src, mut files, mut dependencies) = (root().join("src"), Vec::new(), Dependencies::new());
    sources(&src, &mut files);
    for file in files {
        let room = file.strip_prefix(&src).unwrap().iter().next().unwrap().to_str().unwrap();
        let room = room.strip_suffix(".rs").unwrap_or(room);
        if ["lib", "main", "rooms"].contains(&room) {
            continue;
        }
        let known = dependencies.entry(room.to_owned()).or_default();
        let text = fs::read_to_string(&file).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for line in code.lines().map(str::trim_start).filter(|line| !line.starts_with("//")) {
            for (at, _) in line.match_indices("crate::") {
                let rest = &line[at + "crate::".len()..];
                let name = rest.split(|c: char| !c.is_ascii_lowercase() && c != '_').next().unwrap_or_default();
                known.extend(Some(name.to_owned()).filter(|name| !name.is_empty() && name != room));
            }
        }
    }
    dependencies
}

/// The dependencies in the page's table.
fn on_the_page() -> Dependencies {
    let page = fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let table = page.lines().skip_while(|line| !line.starts_with("| room |")).skip(2);
    let rows = table.map_while(|line| line.strip_prefix("| `")?.strip_suffix('|'));
    let row = |row: &str| {
        let (room, rest) = row.split_once('`')?;
        let known = rest.rsplit('|').next()?.split(',').map(str::trim).filter(|name| !name.is_empty());
        Some((room.to_owned(), known.map(str::to_owned).collect()))
    };
    rows.filter_map(row).collect()
}

#[test]
fn page_lists_the_dependencies_of_the_sources() {
    assert_eq!(on_the_page(), in_the_sources());
}

#[test]
fn dependencies_have_no_cycles() {
    let mut left = in_the_sources();
    while !left.is_empty() {
        let rooms: BTreeSet<String> = left.keys().cloned().collect();
        let before = left.len();
        // Removes the rooms that know none of those left.
        left.retain(|_, known| known.iter().any(|room| rooms.contains(room)));
        assert!(left.len() < before, "these rooms know each other: {left:?}");
    }
}
