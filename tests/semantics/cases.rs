//! Public reports of data that got lost, came twice, or was misread, in `cases`. Each folder has the records, topologies
//! for them, and the right verdict for each record (`expected.txt`, with reasons; `README.md` says where it was reported).
//! Goal: the topologies and the proposal of `infer` judge rightly, or `judged.txt` names the records that they judge wrongly,
//! and words of the hint or the doubt that says so.
//! `tests/cli/cases.rs` tests what hints and doubts say about these.
//!
//! ```text
//! topology.yaml: 3 4 5          by this topology, records 3, 4 and 5 are judged otherwise than is right
//!   hint: begun again           a hint of `replay --summary` holds these words
//! infer:                        by the proposal of `infer`, all records are judged rightly
//!   unsure: look like seconds   what `infer` is unsure of holds these words
//! ```

use std::fs;
use std::path::{Path, PathBuf};

use ratchet::capture::{self, Form};
use ratchet::dedup::Verdict;
use ratchet::infer::{self, Sample, Wanted};
use ratchet::rehearsal::Partitions;
use ratchet::topology::Topology;

use crate::task::load;

/// Beyond every timestamp of the cases.
const WALL_MS: i64 = 1_900_000_000_000;
/// Records of a case are fewer.
const RECORDS_MAX: usize = 10_000;

/// The folders that hold records.
fn folders() -> Vec<PathBuf> {
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/semantics/cases");
    let entries = fs::read_dir(all).expect("the cases are there").map(|entry| entry.expect("readable").path());
    let mut folders: Vec<PathBuf> = entries.filter(|folder| folder.join("input.jsonl").exists()).collect();
    folders.sort();
    folders
}

/// What is right for each record: `None` if anything is.
fn expected(folder: &Path) -> Vec<Option<bool>> {
    let text = fs::read_to_string(folder.join("expected.txt")).expect("each case has it");
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let is_out = |(number, line): (usize, &str)| {
        let words: Vec<&str> = line.split_whitespace().take(2).collect();
        assert_eq!(words[0], number.to_string(), "{}: {line}", folder.display());
        match words[1] {
            "forward" => Some(true),
            "drop" => Some(false),
            "any" => None,
            other => panic!("{}: {other}", folder.display()),
        }
    };
    lines.enumerate().map(is_out).collect()
}

/// The numbers of the records that are judged otherwise than is right. Invalid ones always are.
fn wrong(topology: &Topology, folder: &Path) -> Vec<usize> {
    let records = capture::read_all(folder.join("input.jsonl"), Some(Form::Kcat), "").expect("kcat's lines").1;
    let expected = expected(folder);
    assert_eq!(records.len(), expected.len(), "{}", folder.display());
    let mut partitions = Partitions::new(&topology.rules, &topology.schemas);
    let mut wrong = Vec::new();
    for (number, (captured, expected)) in records.iter().zip(expected).enumerate() {
        let record = captured.record();
        let verdict = partitions.model(record.topic, record.partition).judge(&record, WALL_MS).verdict;
        let is_right = match expected {
            None => true,
            Some(true) => verdict == Verdict::Forwarded,
            Some(false) => matches!(verdict, Verdict::Duplicate | Verdict::Stale),
        };
        if !is_right {
            wrong.push(number);
        }
    }
    wrong
}

/// A topology that does what its user says, and needs no hint: by `on_equal: forward` a change that is sent again passes.
const WANTED: [(&str, &str); 1] = [("68-own-version-column-loses-deletes", "topology-ties.yaml")];

/// What `judged.txt` says of a topology or a proposal.
struct Judged {
    by: String,
    wrong: Vec<usize>,
    /// Whether some hint or doubt is said.
    is_said: bool,
}

fn judged(folder: &Path) -> Vec<Judged> {
    let text = fs::read_to_string(folder.join("judged.txt")).unwrap_or_default();
    let mut all: Vec<Judged> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        if line.starts_with(' ') {
            all.last_mut().expect("a topology before it").is_said = true;
            continue;
        }
        let (by, numbers) = line.split_once(':').expect("BY: NUMBERS");
        let wrong = numbers.split_whitespace().map(|number| number.parse().expect("a number")).collect();
        all.push(Judged { by: by.to_owned(), wrong, is_said: false });
    }
    all
}

/// The topology of this name, or the one that `infer` proposes.
fn topology(folder: &Path, by: &str) -> Topology {
    let text = match by {
        "infer" => {
            let sample = Sample::read(&[folder.join("input.jsonl")], "in", RECORDS_MAX).expect("kcat's lines");
            infer::infer(&sample, &Wanted::default()).unwrap_or_else(|_| panic!("{}", folder.display())).0.text
        }
        file => fs::read_to_string(folder.join(file)).expect("the topology is there"),
    };
    match load(&text) {
        Ok(loaded) => loaded.topology,
        Err(diagnostics) => panic!("{} {by}: {}", folder.display(), diagnostics.render(false)),
    }
}

/// Each topology judges as `judged.txt` says, and each is named there.
#[test]
fn every_case_is_judged_rightly_or_says_where_not() {
    let mut problems = Vec::new();
    let folders = folders();
    assert_eq!(folders.len(), 19);
    for folder in folders {
        let name = folder.file_name().expect("a name").to_string_lossy().into_owned();
        let judged = judged(&folder);
        let files = fs::read_dir(&folder).expect("readable").map(|entry| entry.expect("readable").file_name());
        let files = files.map(|file| file.into_string().expect("UTF-8"));
        let mut all: Vec<String> = files.filter(|file| file.ends_with(".yaml")).collect();
        all.push("infer".to_owned());
        for by in all {
            let found = wrong(&topology(&folder, &by), &folder);
            match judged.iter().find(|known| known.by == by) {
                Some(Judged { wrong, is_said, .. }) if *wrong == found => {
                    let is_wanted = WANTED.contains(&(&*name, &*by));
                    if (!found.is_empty() && !is_said) != is_wanted {
                        problems.push(format!("{name} {by}: wrong at {found:?}, and no hint says so"));
                    }
                }
                known => {
                    let known = known.map(|known| &known.wrong);
                    problems.push(format!("{name} {by}: wrong at {found:?}, by judged.txt at {known:?}"));
                }
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
