//! The part's sections of the page.

use super::{Data, GOAL_RATE, Percentiles, RATES, Run, Who, median};
use crate::collector::Pauses;
use crate::failure::Outcome;
use crate::figures::{milliseconds, one, thousands};
use crate::part::{Drawing, Line, Plot, Section, Table};
use crate::results::Results;

/// A generator this late at its 99th percentile was starved, so the figures say more about the harness.
const LATENESS_MAX_US: u64 = 5_000;

pub fn sections(results: &Results) -> Outcome<Vec<Section>> {
    let data: Data = results.data()?;
    let mut tables = Vec::new();
    for &rate in RATES {
        tables
            .push(table(&data, &format!("{} records/s", thousands(rate as f64)), |run| run.rate == rate && !run.half));
    }
    tables.push(table(&data, "half of its own maximum", |run| run.half));
    let starved: Vec<String> = data
        .runs
        .iter()
        .filter(|run| run.lateness_p99_us > LATENESS_MAX_US)
        .map(|run| format!("{} at {}/s", run.who.name(), thousands(run.rate as f64)))
        .collect();
    let mut notes = vec![
        "`(harness alone)` is the harness's generator and reader without a contender between them: what of every other \
         figure is not the contender's. At half of the maximum generator, broker, contender and reader share the cores."
            .to_owned(),
    ];
    notes.extend(pauses(&data));
    if !starved.is_empty() {
        notes.push(format!(
            "In these runs the generator itself was late by more than {} ms at its 99th percentile, for want of a \
             core: {}.",
            LATENESS_MAX_US / 1000,
            starved.join("; ")
        ));
    }
    Ok(vec![Section {
        title: "End-to-end latency".to_owned(),
        text: vec![
            "From the moment that a record is due at the input to the moment that a `read_committed` reader has it \
             from the output, in milliseconds. The load is open: it never waits for the system, and a record that is \
             handed over late counts from when it was due (no coordinated omission). A fifth of the records are \
             duplicates, and every run's output is counted."
                .to_owned(),
        ],
        tables,
        plots: vec![plot(&data, "p50", |at| at.p50), plot(&data, "p99", |at| at.p99)],
        notes,
    }])
}

/// How long the broker's collector stopped it under the goals' rate: nobody is served meanwhile.
fn pauses(data: &Data) -> Option<String> {
    let of = |who: Who| {
        let runs = data.runs.iter().filter(|run| run.who == who && run.rate == GOAL_RATE && !run.half);
        let sum = Pauses::sum(runs.map(|run| run.broker_pauses));
        (sum.count > 0).then(|| {
            let (mean_ms, percent) = (1000.0 * sum.paused_s / sum.count as f64, 100.0 * sum.paused_s / sum.run_s);
            format!("{}: {} ms on average, {} % of the time", who.name(), one(mean_ms), one(percent))
        })
    };
    let told: Vec<String> = Who::ALL.into_iter().filter_map(of).collect();
    (!told.is_empty()).then(|| {
        format!(
            "Java's garbage collector stops the broker now and then, and what comes meanwhile waits. Its pauses at {} \
             records/s: {}.",
            thousands(GOAL_RATE as f64),
            told.join("; ")
        )
    })
}

fn table(data: &Data, title: &str, at: impl Fn(&Run) -> bool) -> Table {
    let mut rows = Vec::new();
    for who in Who::ALL {
        let told = |of: fn(&Percentiles) -> u64| median(data, who, &at, of).map(milliseconds).unwrap_or_default();
        if let Some(run) = data.runs.iter().find(|run| run.who == who && at(run)) {
            let percentiles: [fn(&Percentiles) -> u64; 5] = [|p| p.p50, |p| p.p90, |p| p.p99, |p| p.p999, |p| p.max];
            let mut row = vec![who.name(), thousands(run.rate as f64)];
            row.extend(percentiles.map(told));
            rows.push(row);
        }
    }
    let head = [title, "records/s", "p50", "p90", "p99", "p99.9", "max"];
    Table { head: head.map(str::to_owned).to_vec(), rows }
}

fn plot(data: &Data, name: &str, of: fn(&Percentiles) -> u64) -> Plot {
    let line = |who: Who| {
        let mut rates: Vec<u64> = data.runs.iter().filter(|run| run.who == who).map(|run| run.rate).collect();
        rates.sort_unstable();
        rates.dedup();
        let point = |rate: u64| Some((rate as f64, median(data, who, |run| run.rate == rate, of)? / 1000.0));
        Line { label: who.name(), points: rates.into_iter().filter_map(point).collect() }
    };
    let lines = Who::ALL.into_iter().map(line).filter(|line| !line.points.is_empty()).collect();
    Plot {
        name: format!("latency-{name}"),
        title: format!("End-to-end latency, {name}"),
        unit: "ms".to_owned(),
        kind: Drawing::Lines { x_label: "records/s".to_owned(), log_x: true, log_y: true, lines },
    }
}
