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

/// Topologies that no rule of theirs could make right: words of the cause, the words that name a record, and the number of
/// the record at which it goes wrong.
const NAMED: [(&str, &str, &str, usize); 3] = [
    (
        "09-yugabytedb-slot-recreated",
        "positions may have begun again there (a new replication slot",
        "from ybserver.public.orders:0:3 on, 3 records in a row",
        3,
    ),
    (
        "16-debezium-datetime-precision-change",
        "versions look like times in several units",
        "first at dbserver1.inventory.orders:0:2",
        2,
    ),
    (
        "28-flattened-null-is-the-delete",
        "a null value may itself be the delete",
        "2 null values were not forwarded (`on_null_value: follow_delete`), and no delete of the identity came before them \
         (first at shop.public.customers:0:2)",
        2,
    ),
];

/// One hint says both the cause and where it begins: at the first record that is judged wrongly, or before.
#[test]
fn hint_of_a_case_that_is_judged_wrongly_names_the_cause_and_the_record() {
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/semantics/cases");
    for (name, cause, named, number) in NAMED {
        let ran = said(&all.join(name), "topology.yaml");
        let stderr = ran.stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        let hints: Vec<&str> = stderr.split("hint: ").skip(1).filter(|hint| hint.contains(cause)).collect();
        let [hint] = hints.as_slice() else { panic!("{name}: {cause}\n{}", ran.stderr) };
        assert!(hint.contains(named), "{name}: {hint}");
        let judged = fs::read_to_string(all.join(name).join("judged.txt")).unwrap();
        let wrong = judged.lines().find_map(|line| line.strip_prefix("topology.yaml: ")).unwrap();
        let first: usize = wrong.split(' ').next().unwrap().parse().unwrap();
        assert!(number <= first, "{name}: the hint names record {number}, and {first} is the first wrong one");
    }
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
