//! A scenario's findings, and its results, one file each in the target folder.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::checker::Found;
use crate::commit::commit;
use crate::kafka::target_folder;

/// How a scenario ends.
#[derive(Clone, Debug, Default)]
pub enum Ending {
    /// It broke off.
    #[default]
    Failed,
    /// Everything was processed, and the judge found it right.
    Right,
    /// The task was stopped with these words, and the output is right.
    Refused(String),
}

/// One scenario's findings.
#[derive(Debug)]
pub struct Report {
    pub name: &'static str,
    is_thorough: bool,
    ending: Ending,
    /// How often the fault happened.
    injected: u64,
    /// From the fault, or from its end if no progress is possible before, until every partition had made progress.
    recoveries: Vec<Duration>,
    /// From the end of the load until everything was processed.
    drained: Option<Duration>,
    /// How many records the judge has checked.
    judged: usize,
}

impl Report {
    pub fn new(name: &'static str, is_thorough: bool) -> Report {
        Report {
            name,
            is_thorough,
            ending: Ending::Failed,
            injected: 0,
            recoveries: Vec::new(),
            drained: None,
            judged: 0,
        }
    }

    /// How often to inject the fault: this often in a thorough run, once otherwise.
    pub fn rounds(&self, thorough: usize) -> usize {
        if self.is_thorough { thorough } else { 1 }
    }

    /// The fault has happened this often.
    pub fn injected(&mut self, times: u64) {
        self.injected += times;
    }

    /// Every partition has made progress after this time.
    pub fn recovered(&mut self, took: Duration) {
        println!("{}: recovered after {took:.2?}", self.name);
        self.recoveries.push(took);
    }

    /// Everything was processed this long after the last record.
    pub fn drained(&mut self, took: Duration) {
        println!("{}: drained {took:.2?} after the last record", self.name);
        self.drained = Some(took);
    }

    /// The judge found everything right.
    pub fn judged(&mut self, found: &Found) {
        self.judged += found.fates.values().sum::<usize>();
        if matches!(self.ending, Ending::Failed) {
            self.ending = Ending::Right;
        }
    }

    /// A task was stopped with these words.
    pub fn refused(&mut self, words: &[&str]) {
        self.ending = Ending::Refused(words.join(", "));
    }

    /// It broke off, whatever was found until then.
    pub fn fail(&mut self) {
        self.ending = Ending::Failed;
    }

    pub fn has_failed(&self) -> bool {
        matches!(self.ending, Ending::Failed)
    }

    /// Asserts that the fault has happened: otherwise the scenario proves nothing.
    pub fn assert_injected(&self) {
        assert!(self.injected > 0, "{}: the fault never happened", self.name);
    }

    fn median(&self) -> Option<Duration> {
        let mut sorted = self.recoveries.clone();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied()
    }

    fn ending(&self) -> String {
        match &self.ending {
            Ending::Failed => "FAILED".to_owned(),
            Ending::Right => "right".to_owned(),
            Ending::Refused(words) => format!("refused: {words}"),
        }
    }

    /// In a few words.
    pub fn summary(&self) -> String {
        let longest = self.recoveries.iter().max();
        let after = longest.map_or(String::new(), |time| format!(", recovered within {:.1} s", time.as_secs_f64()));
        format!("{}, {} times{after}", self.ending(), self.injected)
    }

    /// Stores the results in the target folder, replacing an earlier run's.
    pub fn keep(&self, took_seconds: f64) {
        let ms = |time: Duration| time.as_millis() as u64;
        let results = Results {
            ending: self.ending(),
            injected: self.injected,
            records: self.judged,
            recovery_median_ms: self.median().map(ms),
            recovery_max_ms: self.recoveries.iter().max().copied().map(ms),
            drained_ms: self.drained.map(ms),
            took_seconds: took_seconds.round() as u64,
            commit: commit(),
        };
        let path = path(self.name);
        let text = serde_json::to_string_pretty(&results).expect("numbers and texts");
        let done = fs::create_dir_all(folder()).and_then(|()| fs::write(&path, text));
        done.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }
}

/// The stored results of a scenario.
#[derive(Debug, Serialize, Deserialize)]
pub struct Results {
    pub ending: String,
    pub injected: u64,
    pub records: usize,
    pub recovery_median_ms: Option<u64>,
    pub recovery_max_ms: Option<u64>,
    pub drained_ms: Option<u64>,
    pub took_seconds: u64,
    /// The commit that it was built from.
    pub commit: String,
}

impl Results {
    /// The results of this scenario's last run; `None` if there was none, it failed, or its results are of an older
    /// form.
    pub fn of(name: &str) -> Option<Results> {
        serde_json::from_str(&fs::read_to_string(path(name)).ok()?).ok()
    }
}

/// Removes an earlier run's results: they no longer hold once a later one has failed.
pub fn forget(name: &str) {
    if let Err(error) = fs::remove_file(path(name)) {
        assert_eq!(error.kind(), ErrorKind::NotFound, "{}: {error}", path(name).display());
    }
}

fn folder() -> PathBuf {
    target_folder().join("faults")
}

fn path(name: &str) -> PathBuf {
    folder().join(format!("{name}.json"))
}
