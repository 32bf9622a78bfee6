//! Golden files: how ratchet judges a file of the corpus, and why that is right.
//!
//! ```text
//! # What the file is.
//! judged by: debezium-mysql            tests/corpus/topologies/debezium-mysql.yaml
//! key: id                              optional: how the key is derived from the value, see `Keys`
//! key 15: {"id":111}                   optional: the key of one record; `null` for none
//! keys from: other-file.json           optional: the keys are in a file of their own
//! pairs: key, value                    optional: documents are keys and values in turn
//! skip: 0                              optional: documents that are no records, such as a schema
//! after: a.txt, b.txt                  optional: files that the same task has judged before, in the same folder
//! 0 | forwarded first | IDENTITY | VERSION | EPOCH
//! again | 1 duplicate version_equal    the same records once more, behind the others
//! why 0: ...                           for each record, or a range of them, and for `again`
//! ```
//!
//! Several blocks, each starting with `judged by`, judge the file in several ways. With `RATCHET_GOLDEN=write` in the
//! environment the verdict lines are rewritten, to be read and explained by a person.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use ratchet::dedup::Decision;

use super::shapes::{self, Keys, Raw};
use crate::task::{Given, Task};

/// Whether golden files are to be rewritten.
pub fn is_writing() -> bool {
    std::env::var_os("RATCHET_GOLDEN").is_some_and(|word| word == "write")
}

/// Fails unless all golden files are right; `problems` has those of each, by name.
pub fn assert_right(problems: Vec<(String, Vec<String>)>) {
    let wrong = problems.iter().filter(|(_, problems)| !problems.is_empty());
    let wrong: Vec<_> = wrong.map(|(name, problems)| format!("{name}\n    {}", problems.join("\n    "))).collect();
    assert!(wrong.is_empty(), "{} golden files differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(!is_writing(), "the golden files are written; explain them, and run again without RATCHET_GOLDEN");
}

/// A golden file's text, by blocks.
pub struct Golden {
    about: Vec<String>,
    blocks: Vec<Block>,
}

/// One way to judge the file.
#[derive(Default)]
struct Block {
    /// `judged by` and what follows until the first verdict.
    head: Vec<(String, String)>,
    verdicts: Vec<String>,
    whys: Vec<String>,
}

impl Golden {
    /// Compares the file at `path` with its golden file in `place`, or rewrites that; returns the problems.
    pub fn check(place: &Path, path: &str, read: &dyn Fn(&str) -> Vec<Raw>) -> Vec<String> {
        let text = fs::read_to_string(place).map_err(|error| error.to_string());
        let parsed = text.and_then(|text| Self::parse(&text));
        if !is_writing() {
            return parsed.map_or_else(|problem| vec![problem], |golden| golden.problems(path, read));
        }
        match parsed.and_then(|golden| golden.rewritten(path, read)) {
            Ok(text) => fs::write(place, text).err().map(|error| error.to_string()).into_iter().collect(),
            Err(problem) => vec![problem],
        }
    }

    /// The records of the file at `path` for each block of the golden file in `place`, with the block's topology.
    pub fn given(place: &Path, path: &str, read: &dyn Fn(&str) -> Vec<Raw>) -> Vec<(String, Vec<Given>)> {
        let text = fs::read_to_string(place).expect("the golden file is there");
        let golden = Self::parse(&text).unwrap_or_else(|problem| panic!("{}: {problem}", place.display()));
        let of = |block: &Block| {
            let topology = super::topology(block.get("judged by").unwrap_or_default()).expect("it is there");
            (topology, block.records(read(path), read, true))
        };
        golden.blocks.iter().map(of).collect()
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut golden = Golden { about: Vec::new(), blocks: Vec::new() };
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            if line.starts_with('#') {
                golden.about.push(line.to_owned());
                continue;
            }
            if line.starts_with("judged by:") {
                golden.blocks.push(Block::default());
            }
            let block = golden.blocks.last_mut().ok_or_else(|| format!("before `judged by`: {line}"))?;
            if line.contains(" | ") && line.starts_with(|first: char| first.is_ascii_digit() || first == 'a') {
                block.verdicts.push(line.to_owned());
            } else if line.starts_with("why ") || line.starts_with("    ") {
                block.whys.push(line.to_owned());
            } else {
                let (name, value) = line.split_once(": ").ok_or_else(|| format!("not understood: {line}"))?;
                block.head.push((name.to_owned(), value.trim().to_owned()));
            }
        }
        if golden.about.is_empty() || golden.blocks.is_empty() {
            return Err("it needs a line about the file, and `judged by`".to_owned());
        }
        Ok(golden)
    }

    /// Judges the file at `path`; `read` returns a file's records. Returns all differences from this golden file.
    fn problems(&self, path: &str, read: &dyn Fn(&str) -> Vec<Raw>) -> Vec<String> {
        let mut problems = Vec::new();
        for block in &self.blocks {
            match block.judge(path, read) {
                Err(problem) => problems.push(problem),
                Ok(found) => {
                    problems.extend(differences(&block.verdicts, &found));
                    problems.extend(block.unexplained(found.len() - 1));
                }
            }
        }
        problems
    }

    /// The text with the current verdicts.
    fn rewritten(&self, path: &str, read: &dyn Fn(&str) -> Vec<Raw>) -> Result<String, String> {
        let mut text = self.about.join("\n") + "\n";
        for block in &self.blocks {
            text.push('\n');
            for (name, value) in &block.head {
                let _ = writeln!(text, "{name}: {value}");
            }
            for line in block.judge(path, read)?.iter().chain(&block.whys) {
                let _ = writeln!(text, "{line}");
            }
        }
        Ok(text)
    }
}

impl Block {
    fn get(&self, name: &str) -> Option<&str> {
        self.head.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// The verdict lines as they should be.
    fn judge(&self, path: &str, read: &dyn Fn(&str) -> Vec<Raw>) -> Result<Vec<String>, String> {
        for (name, _) in &self.head {
            let known = ["judged by", "key", "keys from", "pairs", "skip", "after"];
            if !known.contains(&name.as_str()) && !name.starts_with("key ") {
                return Err(format!("`{name}` is not known"));
            }
        }
        let mut task = Task::of(&super::topology(self.get("judged by").unwrap_or_default())?);
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for before in self.get("after").into_iter().flat_map(|all| all.split(", ")) {
            for given in self.records(read(&format!("{folder}/{before}")), read, false) {
                task.give(given);
            }
        }
        let records = self.records(read(path), read, true);
        let mut lines = Vec::new();
        for (nth, given) in records.iter().enumerate() {
            let decision = task.give(given.clone());
            let (model, _) = task.partition(0);
            let parts = [model.identity(), model.version(), model.epoch()].map(|part| part.unwrap_or("-".to_owned()));
            lines.push(format!("{nth} | {} | {}", verdict(decision), parts.join(" | ")));
        }
        let mut again: BTreeMap<String, usize> = BTreeMap::new();
        for given in records {
            *again.entry(verdict(task.give(given))).or_default() += 1;
        }
        let again: Vec<_> = again.iter().map(|(verdict, count)| format!("{count} {verdict}")).collect();
        lines.push(format!("again | {}", again.join(", ")));
        Ok(lines)
    }

    /// The records to give; keys for single records apply only to the golden file's `own` file.
    fn records(&self, mut records: Vec<Raw>, read: &dyn Fn(&str) -> Vec<Raw>, own: bool) -> Vec<Given> {
        if self.get("pairs").is_some() {
            records = shapes::paired(records);
        }
        if let Some(skipped) = self.get("skip") {
            let skipped: Vec<usize> = skipped.split(", ").filter_map(|number| number.parse().ok()).collect();
            let kept = records.into_iter().enumerate().filter(|(nth, _)| !skipped.contains(nth));
            records = kept.map(|(_, raw)| raw).collect();
        }
        if let Some(file) = self.get("keys from") {
            for (raw, key) in records.iter_mut().zip(read(file)) {
                raw.key = key.value;
            }
        }
        let keys = self.get("key").map(Keys::parse);
        let given = records.into_iter().enumerate().map(|(nth, Raw { key, value })| {
            let derived = || keys.as_ref()?.of(nth, value.as_deref()?);
            let key = match self.get(&format!("key {nth}")).filter(|_| own) {
                Some("null") => None,
                Some(text) => Some(text.as_bytes().to_vec()),
                None => key.or_else(derived),
            };
            Given { key, value, ..Given::default() }
        });
        given.collect()
    }

    /// The records without a `why`.
    fn unexplained(&self, records: usize) -> Vec<String> {
        let mut explained = vec![false; records];
        let mut again = false;
        for why in self.whys.iter().filter_map(|line| line.strip_prefix("why ")) {
            let Some((which, _)) = why.split_once(": ") else { return vec![format!("`why {why}` says nothing")] };
            for range in which.split(", ") {
                if range == "again" {
                    again = true;
                    continue;
                }
                let (from, to) = range.split_once('-').unwrap_or((range, range));
                let (Ok(from), Ok(to)) = (from.parse::<usize>(), to.parse::<usize>()) else {
                    return vec![format!("`why {why}`: {range} is not a record number")];
                };
                match explained.get_mut(from..=to) {
                    Some(slots) => slots.fill(true),
                    None => return vec![format!("`why {why}`: there are only {records} records")],
                }
            }
        }
        let missing = explained.iter().enumerate().filter(|(_, is)| !**is).map(|(nth, _)| nth.to_string());
        missing.chain((!again).then(|| "again".to_owned())).map(|which| format!("{which} has no `why`")).collect()
    }
}

/// Verdict and reason, and the action where it does not follow from the verdict.
fn verdict(decision: Decision) -> String {
    let (verdict, reason, action) = (decision.verdict.as_str(), decision.reason.as_str(), decision.action.as_str());
    if verdict == "invalid" { format!("{verdict}, {action}: {reason}") } else { format!("{verdict} {reason}") }
}

fn differences(expected: &[String], found: &[String]) -> Vec<String> {
    let mut all = Vec::new();
    for nth in 0..expected.len().max(found.len()) {
        let (expected, found) = (expected.get(nth), found.get(nth));
        if expected != found {
            let or = |line: Option<&String>| line.cloned().unwrap_or("nothing".to_owned());
            all.push(format!("- {}\n    + {}", or(expected), or(found)));
        }
    }
    all
}
