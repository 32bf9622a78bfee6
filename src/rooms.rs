//! Goal: the architecture page lists the dependencies between rooms as they are, and there are no cycles.

mod circles;
mod imports;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use imports::Modules;

type Dependencies = BTreeMap<String, BTreeSet<String>>;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The dependencies in the page's table.
fn on_the_page() -> Dependencies {
    let page = fs::read_to_string(root().join("docs/dev/architecture.md")).unwrap();
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
    assert_eq!(on_the_page(), Modules::of(&root()).rooms());
}

#[test]
fn dependencies_have_no_cycles() {
    let mut left = Modules::of(&root()).rooms();
    while !left.is_empty() {
        let rooms: BTreeSet<String> = left.keys().cloned().collect();
        let before = left.len();
        // Removes the rooms that know none of those left.
        left.retain(|_, known| known.iter().any(|room| rooms.contains(room)));
        assert!(left.len() < before, "these rooms know each other: {left:?}");
    }
}
