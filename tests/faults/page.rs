//! The page docs/dev/faults.md: the results of each scenario's last thorough run.

use std::collections::BTreeSet;

use crate::pages;
use crate::report::Results;
use crate::scenarios::SCENARIOS;

const INTRODUCTION: &str = include_str!("introduction.md");

/// Writes it; returns a line that says so.
pub fn write() -> String {
    pages::write("dev/faults.md", &format!("{INTRODUCTION}\n{}", table()))
}

fn table() -> String {
    let mut text = String::from(
        "| scenario | fault | times | ends | records judged | recovered after, median, s | at most, s | drained after, s |\n\
         |---|---|---:|---|---:|---:|---:|---:|\n",
    );
    let (mut rows, mut records, mut seconds) = (0, 0, 0);
    let (mut commits, mut without) = (BTreeSet::new(), Vec::new());
    for scenario in SCENARIOS {
        let Some(results) = Results::of(scenario.name) else {
            text.push_str(&format!("| `{}` | {} | – | no result | – | – | – | – |\n", scenario.name, scenario.fault));
            without.push(format!("`{}`", scenario.name));
            continue;
        };
        rows += 1;
        records += results.records;
        seconds += results.took_seconds;
        text.push_str(&format!(
            "| `{}` | {} | {} | {} | {} | {} | {} | {} |\n",
            scenario.name,
            scenario.fault,
            results.injected,
            results.ending,
            results.records,
            in_seconds(results.recovery_median_ms),
            in_seconds(results.recovery_max_ms),
            in_seconds(results.drained_ms),
        ));
        commits.insert(format!("`{}`", results.commit));
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    text.push_str(&format!(
        "\n{rows} scenarios in {} minutes on a machine of {cores} cores, {records} records judged; ratchet {}.\n",
        seconds.div_ceil(60),
        env!("CARGO_PKG_VERSION"),
    ));
    if !commits.is_empty() {
        let commits: Vec<String> = commits.into_iter().collect();
        text.push_str(&format!("Commits that the rows are of: {}.\n", commits.join(", ")));
    }
    if !without.is_empty() {
        text.push_str(&format!("No result, because they failed or were not played: {}.\n", without.join(", ")));
    }
    text
}

fn in_seconds(ms: Option<u64>) -> String {
    ms.map_or("–".to_owned(), |ms| format!("{:.1}", ms as f64 / 1000.0))
}
