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
    let starved = starved(&data);
    let mut notes = vec![
        "`(harness alone)` is the harness's generator and reader without a contender between them: what of every other \
         figure is not the contender's. At half of the maximum generator, broker, contender and reader share the cores."
            .to_owned(),
    ];
    if let Some(pauses) = pauses(&data) {
        tables.push(pauses);
        notes.push(
            "Java's garbage collector stops the broker now and then, and what comes meanwhile waits. ratchet \
             commits every few milliseconds at this rate, so that the broker has more requests to serve."
                .to_owned(),
        );
    }
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

/// Who was measured while the generator was late, and in how many of the rounds.
fn starved(data: &Data) -> Vec<String> {
    let is_late = |run: &&Run| run.lateness_p99_us > LATENESS_MAX_US;
    let mut told: Vec<String> = Vec::new();
    for late in data.runs.iter().filter(is_late) {
        let rounds = || data.runs.iter().filter(|run| (run.who, run.rate) == (late.who, late.rate));
        let name = format!("{} at {}/s", late.who.name(), thousands(late.rate as f64));
        let line = match rounds().count() {
            1 => name,
            all => format!("{name} in {} of {all} rounds", rounds().filter(is_late).count()),
        };
        if !told.contains(&line) {
            told.push(line);
        }
    }
    told
}

/// How long the broker's collector stopped it under the goals' rate: nobody is served meanwhile. Former results have
/// none of it.
fn pauses(data: &Data) -> Option<Table> {
    let row = |who: Who| {
        let runs = data.runs.iter().filter(|run| run.who == who && run.rate == GOAL_RATE && !run.half);
        let sum = Pauses::sum(runs.map(|run| run.broker_pauses));
        let mean = if sum.count > 0 { one(1000.0 * sum.paused_s / sum.count as f64) } else { String::new() };
        let share = one(100.0 * sum.paused_s / sum.run_s);
        (sum.run_s > 0.0).then(|| vec![who.name(), one(sum.run_s), sum.count.to_string(), mean, share])
    };
    let rows: Vec<_> = Who::ALL.into_iter().filter_map(row).collect();
    let title = format!("the broker's pauses at {} records/s", thousands(GOAL_RATE as f64));
    let head = [title.as_str(), "watched, s", "pauses", "ms each", "% of the time"].map(str::to_owned).to_vec();
    (!rows.is_empty()).then_some(Table { head, rows })
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
