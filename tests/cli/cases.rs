//! The cases of `tests/semantics/cases`. Goal: if a topology or the proposal of `infer` cannot judge a record rightly, the
//! hints of `replay --summary` or the doubts of `infer` say why; and no hint contradicts another.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Ran, Room};

fn folders() -> Vec<PathBuf> {
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/semantics/cases");
    let entries = fs::read_dir(all).unwrap().map(|entry| entry.unwrap().path());
    let mut folders: Vec<PathBuf> = entries.filter(|folder| folder.join("judged.txt").exists()).collect();
    folders.sort();
    folders
}

/// The indented lines of `judged.txt`: what they belong to, and the words that have to be said.
fn told(folder: &Path) -> Vec<(String, Vec<String>)> {
    let text = fs::read_to_string(folder.join("judged.txt")).unwrap();
    let mut told: Vec<(String, Vec<String>)> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        match (line.strip_prefix("  "), told.last_mut()) {
            (Some(words), Some((_, all))) => all.push(words.split_once(": ").unwrap().1.to_owned()),
            (None, _) => told.push((line.split_once(':').unwrap().0.to_owned(), Vec::new())),
            (Some(_), None) => panic!("{}: {line}", folder.display()),
        }
    }
    told
}

fn said(folder: &Path, by: &str) -> Ran {
    let (room, input) = (Room::new(), folder.join("input.jsonl"));
    match by {
        "infer" => room.run(&format!("infer {}", input.display())).ended(0),
        file => {
            let topology = folder.join(file);
            room.run(&format!("replay {} {} --envelope kcat --summary", topology.display(), input.display())).ended(0)
        }
    }
}

/// All words that `judged.txt` lists are said.
#[test]
fn what_cannot_be_judged_rightly_is_said() {
    let mut checked = 0;
    for folder in folders() {
        for (by, words) in told(&folder) {
            let ran = said(&folder, &by);
            let spaced = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
            let stderr = spaced(&ran.stderr);
            for words in words {
                assert!(stderr.contains(&spaced(&words)), "{} {by}: {words}\n{}", folder.display(), ran.stderr);
                checked += 1;
            }
        }
    }
    assert!(checked > 10, "{checked}");
}

/// If a hint says that nothing has to be changed, no other hint says what to change.
#[test]
fn hints_of_the_cases_do_not_contradict_each_other() {
    for folder in folders() {
        for (by, _) in told(&folder).into_iter().filter(|(by, _)| by != "infer") {
            let ran = said(&folder, &by);
            let calm = ran.stderr.contains("that is normal");
            let alarmed = ["begun again", "may not be what rises", "several units"]
                .iter()
                .any(|words| ran.stderr.contains(words));
            assert!(!(calm && alarmed), "{} {by}\n{}", folder.display(), ran.stderr);
        }
    }
}
