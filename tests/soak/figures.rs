//! The results as a table, and the faults in them. What the judge finds wrong fails earlier.

use std::fmt::Write;
use std::time::Duration;

use crate::checker::{Fate, Found};
use crate::plan::{INSTANCES_MAX, MEMORY_BYTES, PARTITIONS, Plan};
use crate::turmoil::{Events, Trouble};
use crate::watch::{Sample, Seen};

/// What a process may take on top of its setting `memory`, according to docs/operations.md: 64 MiB for the program, its
/// threads and connections, and 1 MiB for each partition, all of which it may own.
const BESIDE_MEMORY_BYTES: u64 = (64 + PARTITIONS as u64) << 20;
/// What is not counted as growth from the second to the last quarter of the time, on top of a quarter more.
const MEMORY_SLACK: u64 = 32 << 20;
const THREADS_SLACK: u64 = 16;
const FILES_SLACK: u64 = 64;
const DISK_SLACK: u64 = 64 << 20;
/// The greatest allowed median lag, in seconds of load.
const LAG_SECONDS: u64 = 10;

/// The results of a soak.
pub struct Figures {
    pub plan: Plan,
    pub written: u64,
    pub drained: Duration,
    pub events: Events,
    pub watched: Seen,
    /// Lines of level ERROR that instances have logged.
    pub errors: usize,
    pub found: Found,
}

/// Something that must not grow: its medians in the second and the last quarter of the time, its maximum, and the limit
/// for the last quarter's median.
struct Trend {
    name: &'static str,
    unit: &'static str,
    second: u64,
    last: u64,
    most: u64,
    limit: u64,
}

impl Figures {
    /// The faults found.
    pub fn complaints(&self) -> Vec<String> {
        let mut complaints = Vec::new();
        for Trend { name, unit, second, last, limit, .. } in self.trends() {
            if last > limit {
                complaints.push(format!("{name} has grown from {second} to {last} {unit}, the limit is {limit}"));
            }
        }
        let most = self.most(|sample| sample.memory_most);
        if most > MEMORY_BYTES + BESIDE_MEMORY_BYTES {
            complaints.push(format!("an instance took {} MiB, with memory: {} MiB", most >> 20, MEMORY_BYTES >> 20));
        }
        if self.errors > 0 {
            complaints.push(format!("instances have logged {} errors", self.errors));
        }
        for trouble in Trouble::ALL {
            if !self.events.count.contains_key(&trouble) {
                complaints.push(format!("never happened: {}", trouble.name()));
            }
        }
        let judged = self.judged();
        // The writer retries when a response is lost: a few records may be there twice.
        if judged < self.written {
            complaints.push(format!("{} records were written and {judged} judged", self.written));
        }
        complaints
    }

    fn judged(&self) -> u64 {
        self.found.fates.values().sum::<usize>() as u64
    }

    /// The table, as it goes into the documentation.
    pub fn table(&self) -> String {
        let mut rows: Vec<(String, String)> = Vec::new();
        let mut row = |name: &str, value: String| rows.push((name.to_owned(), value));
        row("time", format!("{:.2} h", self.plan.duration.as_secs_f64() / 3600.0));
        row("records judged", format!("{} ({} a second)", self.judged(), self.plan.rate));
        for (name, fate) in
            [("forwarded", Fate::Forwarded), ("duplicates dropped", Fate::Duplicate), ("stale, dropped", Fate::Stale)]
        {
            row(name, self.found.count(fate).to_string());
        }
        row("dead-lettered", self.found.dead_lettered().to_string());
        row("transactions judged", self.found.transactions.to_string());
        let changes: usize = self.found.owners.values().map(|owners| owners.len().saturating_sub(1)).sum();
        row("changes of a partition's owner", changes.to_string());
        row("stores compared, of these up to date", format!("{}, {}", self.found.stores, self.found.stores_current));
        row("processes started, at most at once", format!("{}, {INSTANCES_MAX}", self.watched.started));
        for trouble in Trouble::ALL {
            row(trouble.name(), self.events.count.get(&trouble).copied().unwrap_or(0).to_string());
        }
        let stopped = format!("{}, {:.1} s", self.events.stopped, self.events.stop_longest.as_secs_f64());
        row("processes stopped by SIGTERM, the longest time it took", stopped);
        row("longest standstill of a partition", format!("{:.1} s", self.watched.standstill.as_secs_f64()));
        row("all processed after the last record", format!("{:.1} s", self.drained.as_secs_f64()));
        row("most memory of an instance", format!("{} MiB", self.most(|sample| sample.memory_most) >> 20));
        row("errors logged", self.errors.to_string());
        let mut text = String::from("| what | |\n|---|---:|\n");
        for (name, value) in rows {
            writeln!(text, "| {name} | {value} |").expect("writing to a string does not fail");
        }
        text.push_str(
            "\n| must not grow | median, second quarter | median, last quarter | most |\n|---|---:|---:|---:|\n",
        );
        for Trend { name, unit, second, last, most, .. } in self.trends() {
            writeln!(text, "| {name}, {unit} | {second} | {last} | {most} |")
                .expect("writing to a string does not fail");
        }
        text
    }

    fn trends(&self) -> Vec<Trend> {
        let trend = |name, unit, slack: u64, of: &dyn Fn(&Sample) -> u64| {
            let (second, last) = (self.median(0.25..0.5, of), self.median(0.75..1.0, of));
            Trend { name, unit, second, last, most: self.most(of), limit: second + second / 4 + slack }
        };
        let mib = |bytes: u64| bytes >> 20;
        let mut all = vec![
            trend("memory of the first instance", "MiB", mib(MEMORY_SLACK), &|s| mib(s.first.memory_bytes)),
            trend("its threads", "number", THREADS_SLACK, &|s| s.first.threads),
            trend("its open files", "number", FILES_SLACK, &|s| s.first.files),
            trend("all state folders", "MiB", mib(DISK_SLACK), &|s| mib(s.disk_bytes)),
        ];
        let lag = trend("the input not yet processed", "records", 0, &|s| s.lag() as u64);
        all.push(Trend { limit: LAG_SECONDS * self.plan.rate, ..lag });
        all
    }

    fn most(&self, of: impl Fn(&Sample) -> u64) -> u64 {
        self.watched.samples.iter().map(of).max().unwrap_or(0)
    }

    /// The median between two fractions of the time.
    fn median(&self, part: std::ops::Range<f64>, of: impl Fn(&Sample) -> u64) -> u64 {
        let whole = self.watched.samples.last().map_or(0.0, |sample| sample.at.as_secs_f64());
        let within = |sample: &&Sample| part.contains(&(sample.at.as_secs_f64() / whole));
        let mut values: Vec<u64> = self.watched.samples.iter().filter(within).map(of).collect();
        values.sort_unstable();
        values.get(values.len() / 2).copied().unwrap_or(0)
    }
}
