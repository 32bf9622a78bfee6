//! Goal: the architecture page draws the arrows that there are between rooms, and they all go one way.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

type Arrows = BTreeMap<String, BTreeSet<String>>;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// All of a folder's sources that are no tests.
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

/// The arrows of the sources, their comments and unit tests left out.
fn drawn_by_the_sources() -> Arrows {
    let (src, mut files, mut arrows) = (root().join("src"), Vec::new(), Arrows::new());
    sources(&src, &mut files);
    for file in files {
        let room = file.strip_prefix(&src).unwrap().iter().next().unwrap().to_str().unwrap();
        let room = room.strip_suffix(".rs").unwrap_or(room);
        if ["lib", "main", "rooms"].contains(&room) {
            continue;
        }
        let known = arrows.entry(room.to_owned()).or_default();
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
    arrows
}

/// The arrows of the page's table.
fn drawn_by_the_page() -> Arrows {
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
fn the_page_draws_the_arrows_that_there_are() {
    assert_eq!(drawn_by_the_page(), drawn_by_the_sources());
}

#[test]
fn arrows_go_one_way() {
    let mut left = drawn_by_the_sources();
    while !left.is_empty() {
        let rooms: BTreeSet<String> = left.keys().cloned().collect();
        let before = left.len();
        // A room goes that knows none of those that are left.
        left.retain(|_, known| known.iter().any(|room| rooms.contains(room)));
        assert!(left.len() < before, "these know each other: {left:?}");
    }
}
