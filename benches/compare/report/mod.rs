//! Writes the page docs/benchmarks.md and its pictures, from the existing results. Of a part without results the page
//! keeps what it says.

mod kept;
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
use crate::warm;

use kept::Page;

/// Titles of the sections that are about all parts.
const MACHINE: &str = "Machine, versions, settings";
const TIMES: &str = "What the run took";
const GOALS: &str = "Goals";

const INTRODUCTION: &str = include_str!("introduction.md");
const READING: &str = include_str!("reading.md");

/// A part that the page is about.
struct Told<'a> {
    part: &'a Part,
    /// `None` if the page keeps what it says.
    results: Option<Results>,
}

/// Writes page and pictures.
pub fn write() -> Outcome<()> {
    let docs = kafka::checkout().join("docs");
    let (path, pictures) = (docs.join("benchmarks.md"), docs.join("benchmarks"));
    let former = Page::new(fs::read_to_string(&path).unwrap_or_default());
    let mut told: Vec<Told<'_>> = Vec::new();
    for part in part::ALL {
        let results = Results::read(part.name)?;
        if results.is_some() || former.sections(part.name).is_some() {
            told.push(Told { part, results });
        }
    }
    if told.iter().all(|told| told.results.is_none()) {
        fail!("there are no results in {}: `make bench` makes some", crate::results::folder().display());
    }
    fs::create_dir_all(&pictures).context(pictures.display())?;
    let (mut goals, mut body) = (Vec::new(), String::new());
    for Told { part, results } in &told {
        body.push_str(&kept::mark(part.name));
        let Some(results) = results else {
            goals.extend(former.rows(GOALS, part.name));
            body.push_str(former.sections(part.name).unwrap_or_default());
            continue;
        };
        goals.extend((part.goals)(results)?.iter().map(|goal| goal_row(part.name, goal)));
        for section in (part.sections)(results)? {
            write_section(&mut body, &section, Some(&pictures))?;
        }
        for failure in &results.failures {
            let first = failure.lines().next().unwrap_or_default();
            let _ = writeln!(body, "**Failed:** {first}\n");
        }
    }
    let mut page = String::from(INTRODUCTION);
    page.push_str(&provenance(&told, &former));
    page.push_str(&times(&told, &former));
    let _ = write!(page, "\n## {GOALS}\n\n{}\n", goals_table(goals));
    page.push_str(&body);
    page.push_str(&READING.replace("{warm_up}", &warm::told()));
    fs::write(&path, page).context(path.display())?;
    eprintln!("written: {}", path.display());
    Ok(())
}

/// A part's sections as text for a terminal.
pub fn plain_text(part: &Part, sections: &[Section], goals: &[Goal]) -> String {
    let mut text = String::new();
    for section in sections {
        let _ = write_section(&mut text, section, None);
    }
    if !goals.is_empty() {
        text.push_str(&goals_table(goals.iter().map(|goal| goal_row(part.name, goal)).collect()));
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

fn goal_row(part: &str, goal: &Goal) -> Vec<String> {
    let met = if goal.met { "met" } else { "**not met**" };
    vec![part.to_owned(), goal.what.clone(), goal.wanted.clone(), goal.figure.clone(), met.to_owned()]
}

fn goals_table(rows: Vec<Vec<String>>) -> String {
    let head = ["part", "what", "goal", "measured", ""].map(str::to_owned).to_vec();
    markdown(&Table { head, rows })
}

/// The machine, versions and settings with which each part was run.
fn provenance(told: &[Told<'_>], former: &Page) -> String {
    let head = ["part", "settings", "ratchet"].map(str::to_owned).to_vec();
    let mut rows: Vec<Vec<String>> = Vec::new();
    for Told { part, results } in told {
        let Some(results) = results else {
            rows.extend(former.rows(MACHINE, part.name));
            continue;
        };
        let settings: Vec<String> = results.settings.iter().map(|(name, value)| format!("{name} {value}")).collect();
        let ratchet = results.versions.get("ratchet").cloned().unwrap_or_default();
        rows.push(vec![part.name.to_owned(), settings.join(", "), ratchet]);
    }
    let mut text = format!("## {MACHINE}\n\n");
    for point in points(told, former) {
        let _ = writeln!(text, "- {point}");
    }
    let _ = writeln!(
        text,
        "- {EACH} a transaction for at most {COMMIT_MS} ms; ratchet with `memory: {MEMORY}` and \
         `commit: {{interval: {COMMIT_MS}ms}}`, else as it comes. Broker: one, `{}`, Kafka's defaults but for these: \
         topics are deleted at once, retention is off, a group's first rebalance waits for nobody, Kafka's own topics \
         have 4 partitions. Topics of 4 partitions, one replica.\n",
        crate::broker::JAVA.join(" ")
    );
    text + &markdown(&Table { head, rows })
}

/// How the last of the points begins.
const EACH: &str = "Each contender:";

/// Machines and threads: a line for all parts, or for those that differ. Lines of parts that the page keeps stay.
fn points(told: &[Told<'_>], former: &Page) -> Vec<String> {
    let fresh: Vec<(&str, &Results)> =
        told.iter().filter_map(|told| Some((told.part.name, told.results.as_ref()?))).collect();
    let mut points = Vec::new();
    if fresh.len() < told.len() {
        points.extend(former.points(MACHINE).into_iter().filter(|point| !point.starts_with(EACH)));
    }
    let is_known = |line: &String| points.iter().any(|point| point.starts_with(line.as_str()));
    let lines = [grouped(&fresh, machine), grouped(&fresh, threads)].into_iter().flatten();
    let of_some: Vec<String> = lines
        .filter(|(line, _)| !is_known(line))
        .map(
            |(line, parts)| {
                if parts.len() == told.len() { line } else { format!("{line} (In {}.)", parts.join(", ")) }
            },
        )
        .collect();
    points.extend(of_some);
    points
}

/// Equal lines once, with the parts that have them.
fn grouped<'a>(
    fresh: &[(&'a str, &Results)],
    line: impl Fn(&Results) -> Option<String>,
) -> Vec<(String, Vec<&'a str>)> {
    let mut lines: Vec<(String, Vec<&str>)> = Vec::new();
    for (part, results) in fresh {
        let Some(line) = line(results) else { continue };
        match lines.iter_mut().find(|(other, _)| *other == line) {
            Some((_, parts)) => parts.push(part),
            None => lines.push((line, vec![part])),
        }
    }
    lines
}

fn machine(results: &Results) -> Option<String> {
    let m = &results.machine;
    let others: Vec<String> =
        results.versions.iter().filter(|(name, _)| *name != "ratchet").map(|(n, v)| format!("{n} {v}")).collect();
    let (system, others) = (m.system_released(), others.join(", "));
    Some(format!("{}, {} cores, {} MiB, {system}; {others}", m.cpu, m.cores, m.memory_mib))
}

/// How many threads each contender uses.
fn threads(results: &Results) -> Option<String> {
    if results.threads.is_empty() {
        return None;
    }
    let numbers: Vec<String> =
        results.threads.iter().map(|(contender, threads)| format!("{contender} {threads}")).collect();
    Some(format!(
        "Threads, lanes or processes of each instance that do the work: {}. ratchet's are as many as it would take \
         by itself on this machine.",
        numbers.join(", ")
    ))
}

/// How long each part took, and when that was.
fn times(told: &[Told<'_>], former: &Page) -> String {
    let minutes = |seconds: u64| format!("{:.1}", seconds as f64 / 60.0);
    let (mut rows, mut all): (Vec<Vec<String>>, u64) = (Vec::new(), 0);
    for Told { part, results } in told {
        let Some(results) = results else {
            let kept = former.rows(TIMES, part.name);
            let seconds = kept.iter().filter_map(|row| row.get(2)?.replace(',', "").parse::<u64>().ok());
            all += seconds.sum::<u64>();
            rows.extend(kept);
            continue;
        };
        let seconds = results.seconds;
        all += seconds;
        rows.push(vec![part.name.to_owned(), results.at.clone(), thousands(seconds as f64), minutes(seconds)]);
    }
    rows.push(vec!["all parts".to_owned(), String::new(), thousands(all as f64), minutes(all)]);
    let head = ["part", "ended", "seconds", "minutes"].map(str::to_owned).to_vec();
    format!("\n## {TIMES}\n\n{}", markdown(&Table { head, rows }))
}
