//! What a scenario has found: a line of JSON for machines, a row of a table for docs/faults.md.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use crate::checker::Found;
use crate::kafka::target_folder;

/// How a scenario ends.
#[derive(Clone, Debug, Default)]
pub enum Ending {
    /// It broke off.
    #[default]
    Failed,
    /// Everything was processed, and the judge has found it right.
    Right,
    /// The task was stopped with these words, and what stands in the output is right.
    Refused(String),
}

/// One scenario's findings.
#[derive(Debug)]
pub struct Report {
    pub name: &'static str,
    pub fault: &'static str,
    pub ending: Ending,
    /// How often the fault happened.
    injected: u64,
    /// From the fault, or from its end where nothing can go on before, until every partition had gone on.
    recoveries: Vec<Duration>,
    /// From the load's end until everything was processed.
    drained: Option<Duration>,
    /// Records that the judge has looked at.
    judged: usize,
}

impl Report {
    pub fn new(name: &'static str, fault: &'static str) -> Report {
        Report { name, fault, ending: Ending::Failed, injected: 0, recoveries: Vec::new(), drained: None, judged: 0 }
    }

    /// The fault happened so often.
    pub fn injected(&mut self, times: u64) {
        self.injected += times;
    }

    /// Every partition went on after so long.
    pub fn recovered(&mut self, took: Duration) {
        println!("{}: went on after {took:.2?}", self.name);
        self.recoveries.push(took);
    }

    /// Everything was processed so long after the last record.
    pub fn drained(&mut self, took: Duration) {
        println!("{}: drained {took:.2?} after the last record", self.name);
        self.drained = Some(took);
    }

    /// The judge has found everything right.
    pub fn judged(&mut self, found: &Found) {
        self.judged += found.fates.values().sum::<usize>();
        if matches!(self.ending, Ending::Failed) {
            self.ending = Ending::Right;
        }
    }

    /// A task was stopped, with these words.
    pub fn refused(&mut self, words: &[&str]) {
        self.ending = Ending::Refused(words.join(", "));
    }

    /// It broke off, whatever it had found by then.
    pub fn fail(&mut self) {
        self.ending = Ending::Failed;
    }

    pub fn has_failed(&self) -> bool {
        matches!(self.ending, Ending::Failed)
    }

    /// Asserts that the fault was reached: a scenario that never is proves nothing.
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

    fn json(&self) -> Value {
        let ms = |time: Option<Duration>| time.map(|time| time.as_millis() as u64);
        json!({
            "name": self.name,
            "fault": self.fault,
            "ending": self.ending(),
            "injected": self.injected,
            "records": self.judged,
            "recovery_median_ms": ms(self.median()),
            "recovery_max_ms": ms(self.recoveries.iter().max().copied()),
            "drained_ms": ms(self.drained),
        })
    }

    fn row(&self) -> String {
        let seconds =
            |time: Option<Duration>| time.map_or("–".to_owned(), |time| format!("{:.1}", time.as_secs_f64()));
        format!(
            "| {} | {} | {} | {} | {} | {} | {} |",
            self.fault,
            self.injected,
            self.ending(),
            self.judged,
            seconds(self.median()),
            seconds(self.recoveries.iter().max().copied()),
            seconds(self.drained),
        )
    }
}

/// The file of this run's lines, in the target folder.
pub fn file() -> PathBuf {
    target_folder().join("faults.jsonl")
}

/// Empties the file: its lines are of one run.
pub fn begin(file: &Path) {
    fs::write(file, "").unwrap_or_else(|e| panic!("{}: {e}", file.display()));
}

/// Adds a scenario's line.
pub fn add(file: &Path, report: &Report) {
    let opened = OpenOptions::new().append(true).open(file);
    opened
        .and_then(|mut lines| writeln!(lines, "{}", report.json()))
        .unwrap_or_else(|e| panic!("{}: {e}", file.display()));
}

/// The table, as it goes into the documentation.
pub fn table(reports: &[Report]) -> String {
    let mut text = String::from(
        "| fault | times | ends | records judged | goes on after, median, s | at most, s | drained after, s |\n\
         |---|---:|---|---:|---:|---:|---:|\n",
    );
    for report in reports {
        text.push_str(&report.row());
        text.push('\n');
    }
    text
}
