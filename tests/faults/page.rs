//! The page docs/faults.md: what the last thorough run of each scenario has found.

use std::fs;
use std::path::Path;

use crate::report::Results;
use crate::scenarios::SCENARIOS;

const INTRODUCTION: &str = include_str!("introduction.md");

/// Writes it; says what was done.
pub fn write() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/faults.md");
    fs::write(&path, format!("{INTRODUCTION}\n{}", table())).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    format!("written: {}", path.display())
}

fn table() -> String {
    let mut text = String::from(
        "| scenario | fault | times | ends | records judged | on again after, median, s | at most, s | drained after, s |\n\
         |---|---|---:|---|---:|---:|---:|---:|\n",
    );
    let (mut records, mut seconds) = (0, 0);
    for scenario in SCENARIOS {
        let Some(results) = Results::of(scenario.name) else {
            text.push_str(&format!("| `{}` | {} | – | no result | – | – | – | – |\n", scenario.name, scenario.fault));
            continue;
        };
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
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    text.push_str(&format!(
        "\n{} scenarios in {} minutes on a machine of {cores} cores, {records} records judged; ratchet {}.\n",
        SCENARIOS.len(),
        seconds.div_ceil(60),
        env!("CARGO_PKG_VERSION"),
    ));
    text
}

fn in_seconds(ms: Option<u64>) -> String {
    ms.map_or("–".to_owned(), |ms| format!("{:.1}", ms as f64 / 1000.0))
}
