//! Writes the page docs/benchmarks.md and its pictures, from the existing results.

mod svg;

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use crate::contender::{COMMIT_MS, MEMORY};
use crate::failure::{Context as _, Outcome, fail};
use crate::figures::thousands;
use crate::kafka;
use crate::part::{self, Goal, Part, Section, Table};
use crate::results::Results;

const INTRODUCTION: &str = include_str!("introduction.md");
const READING: &str = include_str!("reading.md");

/// Writes page and pictures.
pub fn write() -> Outcome<()> {
    let mut found: Vec<(&Part, Results)> = Vec::new();
    for part in part::ALL {
        if let Some(results) = Results::read(part.name)? {
            found.push((part, results));
        }
    }
    if found.is_empty() {
        fail!("there are no results in {}: `make bench` makes some", crate::results::folder().display());
    }
    let docs = kafka::checkout().join("docs");
    let pictures = docs.join("benchmarks");
    fs::create_dir_all(&pictures).context(pictures.display())?;
    let mut goals = Vec::new();
    let mut body = String::new();
    for (part, results) in &found {
        goals.extend((part.goals)(results)?);
        for section in (part.sections)(results)? {
            write_section(&mut body, &section, Some(&pictures))?;
        }
        for failure in &results.failures {
            let first = failure.lines().next().unwrap_or_default();
            let _ = writeln!(body, "**Failed:** {first}\n");
        }
    }
    let mut page = String::from(INTRODUCTION);
    page.push_str(&provenance(&found));
    page.push_str(&times(&found));
    page.push_str("\n## Goals\n\n");
    page.push_str(&goals_table(&goals));
    page.push('\n');
    page.push_str(&body);
    page.push_str(READING);
    let path = docs.join("benchmarks.md");
    fs::write(&path, page).context(path.display())?;
    eprintln!("written: {}", path.display());
    Ok(())
}

/// The sections as text for a terminal.
pub fn plain_text(sections: &[Section], goals: &[Goal]) -> String {
    let mut text = String::new();
    for section in sections {
        let _ = write_section(&mut text, section, None);
    }
    if !goals.is_empty() {
        text.push_str(&goals_table(goals));
    }
    text
}

fn write_section(page: &mut String, section: &Section, pictures: Option<&PathBuf>) -> Outcome<()> {
    let _ = writeln!(page, "## {}\n", section.title);
    for paragraph in &section.text {
        let _ = writeln!(page, "{paragraph}\n");
    }
    for table in &section.tables {
        let _ = writeln!(page, "{}", markdown(table));
    }
    if let Some(pictures) = pictures {
        for plot in &section.plots {
            let path = pictures.join(format!("{}.svg", plot.name));
            fs::write(&path, svg::draw(plot)).context(path.display())?;
            let _ = writeln!(page, "![{}](benchmarks/{}.svg)\n", plot.title, plot.name);
        }
    }
    for note in &section.notes {
        let _ = writeln!(page, "{note}\n");
    }
    Ok(())
}

/// Columns of figures are aligned to the right.
fn markdown(table: &Table) -> String {
    let mut text = format!("| {} |\n|---|{}\n", table.head.join(" | "), "--:|".repeat(table.head.len().max(1) - 1));
    for row in &table.rows {
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
    text
}

fn goals_table(goals: &[Goal]) -> String {
    let row = |goal: &Goal| {
        let met = if goal.met { "met" } else { "**not met**" };
        vec![goal.what.clone(), goal.wanted.clone(), goal.figure.clone(), met.to_owned()]
    };
    let head = ["what", "goal", "measured", ""].map(str::to_owned).to_vec();
    markdown(&Table { head, rows: goals.iter().map(row).collect() })
}

/// The machine, versions and settings with which each part was run.
fn provenance(found: &[(&Part, Results)]) -> String {
    let head = ["part", "settings", "ratchet"].map(str::to_owned).to_vec();
    let row = |(part, results): &(&Part, Results)| {
        let settings: Vec<String> = results.settings.iter().map(|(name, value)| format!("{name} {value}")).collect();
        let ratchet = results.versions.get("ratchet").cloned().unwrap_or_default();
        vec![part.name.to_owned(), settings.join(", "), ratchet]
    };
    let mut machines: Vec<String> = Vec::new();
    for (_, results) in found {
        let m = &results.machine;
        let others: Vec<String> =
            results.versions.iter().filter(|(name, _)| *name != "ratchet").map(|(n, v)| format!("{n} {v}")).collect();
        let (system, others) = (m.system_released(), others.join(", "));
        let line = format!("{}, {} cores, {} MiB, {system}; {others}", m.cpu, m.cores, m.memory_mib);
        if !machines.contains(&line) {
            machines.push(line);
        }
    }
    let mut text = String::from("## Machine, versions, settings\n\n");
    for line in machines.into_iter().chain(threads(found)) {
        let _ = writeln!(text, "- {line}");
    }
    let _ = writeln!(
        text,
        "- Each contender: a transaction for at most {COMMIT_MS} ms; ratchet with `memory: {MEMORY}`, else as it comes. \
         Broker: one, `{}`, Kafka's defaults but for these: \
         topics are deleted at once, retention is off, a group's first rebalance waits for nobody, Kafka's own topics \
         have 4 partitions. Topics of 4 partitions, one replica.\n",
        crate::broker::JAVA.join(" ")
    );
    text + &markdown(&Table { head, rows: found.iter().map(row).collect() })
}

/// How many threads each contender uses: a line for all parts, or for those that differ.
fn threads(found: &[(&Part, Results)]) -> Vec<String> {
    let mut lines: Vec<(String, Vec<&str>)> = Vec::new();
    for (part, results) in found.iter().filter(|(_, results)| !results.threads.is_empty()) {
        let numbers: Vec<String> =
            results.threads.iter().map(|(contender, threads)| format!("{contender} {threads}")).collect();
        let line = numbers.join(", ");
        match lines.iter_mut().find(|(other, _)| *other == line) {
            Some((_, parts)) => parts.push(part.name),
            None => lines.push((line, vec![part.name])),
        }
    }
    let is_for_all = lines.len() == 1;
    let told = |(line, parts): (String, Vec<&str>)| {
        let of = if is_for_all { String::new() } else { format!(" in {}", parts.join(", ")) };
        format!(
            "Threads, lanes or processes of each instance that do the work{of}: {line}. ratchet was not told a number: \
             it is what it takes by itself on this machine."
        )
    };
    lines.into_iter().map(told).collect()
}

/// How long each part took, and when that was.
fn times(found: &[(&Part, Results)]) -> String {
    let minutes = |seconds: u64| format!("{:.1}", seconds as f64 / 60.0);
    let row = |(part, results): &(&Part, Results)| {
        let seconds = results.seconds;
        vec![part.name.to_owned(), results.at.clone(), thousands(seconds as f64), minutes(seconds)]
    };
    let mut rows: Vec<Vec<String>> = found.iter().map(row).collect();
    let all = found.iter().map(|(_, results)| results.seconds).sum();
    rows.push(vec!["all parts".to_owned(), String::new(), thousands(all as f64), minutes(all)]);
    let head = ["part", "ended", "seconds", "minutes"].map(str::to_owned).to_vec();
    format!("\n## What the run took\n\n{}", markdown(&Table { head, rows }))
}
