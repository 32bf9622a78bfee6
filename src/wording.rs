//! Goal: comments, messages and pages are in plain English. Phrases over which readers have stumbled do not come back; the
//! list grows with each review.

use std::fs;
use std::path::{Path, PathBuf};

/// What was written, and what to write.
const PHRASES: &[(&str, &str)] = &[
    ("whoever", "the one that acts: the caller, the next owner, a client, a producer"),
    ("what it has come to", "its outcome"),
    ("what a step has come to", "a step's outcome"),
    ("steps have come to", "the outcomes of its steps"),
    ("in mid-", "`mid-request`, or `during the request`"),
    ("some times", "`a number of times`, or how many"),
    ("so many are", "the bound: `at most N`"),
    ("what is none", "what is invalid"),
    ("that is none", "`invalid`"),
    ("for so long", "how long: `for LEASE`, `for this time`"),
    ("plainly done", "what is listed: `not known to have succeeded`"),
    ("simply done", "what is listed: `not known to have succeeded`"),
    ("gone on with", "`continues`"),
];

const PLACES: &[&str] =
    &["src", "crates", "tests", "examples", "benches", "docs", "README.md", "CONTRIBUTING.md", "CHANGELOG.md"];

fn texts(place: &Path, found: &mut Vec<PathBuf>) {
    if place.is_dir() {
        let entries = fs::read_dir(place).unwrap().map(|entry| entry.unwrap().path());
        // The dependencies and results of benchmarks in other languages are nobody's writing.
        entries.filter(|entry| !entry.ends_with("target")).for_each(|entry| texts(&entry, found));
    } else if place.extension().is_some_and(|extension| extension == "rs" || extension == "md") {
        found.push(place.to_owned());
    }
}

/// A line without what makes it a comment.
fn bare(line: &str) -> &str {
    line.trim().trim_start_matches(['/', '!']).trim()
}

#[test]
fn phrases_that_readers_stumbled_over_do_not_come_back() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    PLACES.iter().for_each(|place| texts(&root.join(place), &mut files));
    assert!(files.len() > 1_000, "{} files", files.len());
    let mut mistakes = Vec::new();
    for file in files.iter().filter(|file| !file.ends_with(file!())) {
        let text = fs::read_to_string(file).unwrap();
        let lines: Vec<String> = text.lines().map(|line| bare(line).to_lowercase()).collect();
        for (number, line) in (1..).zip(&lines) {
            let next = lines.get(number).map_or("", String::as_str);
            let both = format!("{line} {next}");
            // A phrase of the next line alone is found there.
            let begins_here = |phrase: &str| both.find(phrase).is_some_and(|at| at < line.len());
            for (phrase, instead) in PHRASES.iter().filter(|(phrase, _)| begins_here(phrase)) {
                let file = file.strip_prefix(root).unwrap().display();
                mistakes.push(format!("{file}:{number}: instead of {phrase:?} write {instead}"));
            }
        }
    }
    assert!(mistakes.is_empty(), "{}", mistakes.join("\n"));
}
