//! Goal: few files need each other, so that each can be read, tested and changed by itself.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::imports::{Imports, Modules};
use super::root;

/// How many files are in circles, and how many files the largest circle has. Both numbers may only fall.
const IN_CIRCLES: usize = 61;
const LARGEST: usize = 4;

fn reached<'a>(imports: &'a Imports, from: &'a Path) -> BTreeSet<&'a Path> {
    let (mut reached, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(file) = next.pop() {
        let new = imports[file].iter().filter(|known| reached.insert(known.as_path()));
        next.extend(new.map(PathBuf::as_path));
    }
    reached
}

/// The groups of files in which each leads to every other, the largest first.
fn circles(imports: &Imports) -> Vec<BTreeSet<&Path>> {
    let reached: Vec<_> = imports.keys().map(|file| (file.as_path(), reached(imports, file))).collect();
    let leads = |from: usize, to: usize| reached[from].1.contains(reached[to].0);
    let circle = |own: usize| -> BTreeSet<&Path> {
        (0..reached.len())
            .filter(|other| leads(own, *other) && leads(*other, own))
            .map(|file| reached[file].0)
            .collect()
    };
    let all: BTreeSet<_> = (0..reached.len()).map(circle).filter(|circle| circle.len() > 1).collect();
    let mut all: Vec<_> = all.into_iter().collect();
    all.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    all
}

#[test]
fn files_in_circles_only_become_fewer() {
    let imports = Modules::of(&root()).imports();
    let circles = circles(&imports);
    let sizes: Vec<usize> = circles.iter().map(BTreeSet::len).collect();
    for circle in &circles {
        println!("{} files", circle.len());
        for file in circle {
            let known = imports[*file].iter().filter(|known| circle.contains(known.as_path()));
            println!(
                "  {} -> {}",
                file.display(),
                known.map(|known| known.to_string_lossy()).collect::<Vec<_>>().join(", ")
            );
        }
    }
    let found = (sizes.iter().sum::<usize>(), sizes.first().copied().unwrap_or_default());
    assert_eq!(found, (IN_CIRCLES, LARGEST), "break the new circle above, or set the numbers lower");
}
