//! Restores: how long a contender with state takes until it works again, with an empty disk, with its disk
//! after a clean stop, and with its disk after SIGKILL.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::contender::{CONSTANT_BYTES, Contender, MEMORY, MEMORY_BYTES};
use crate::failure::{Context as _, Outcome, fail};
use crate::live::fill::{drain, fill};
use crate::live::members::Group;
use crate::live::stage::{LOOK, Live, Stage};
use crate::live::within;
use crate::part::{Bench, Drawing, Goal, Line, Part, Plot, Section, Table};
use crate::results::{Findings, Results};
use crate::spec::Work;
use crate::stats::Spread;

/// The part.
pub const PART: Part = Part {
    name: "restore",
    about: "restores of 10 M and 50 M entries, cold and warm",
    has_built: true,
    run,
    sections,
    goals,
};

const PARTITIONS: i32 = 4;
/// Entries of the states; each is built on the one before.
const SIZES: &[u64] = &[10_000_000, 50_000_000];
const WHO: [Contender; 2] = [Contender::Ratchet, Contender::KafkaStreams];
/// Small records are quick to read and write; their size does not affect the state.
const VALUE_BYTES: usize = 32;
/// The share of new entries written before the kill, so that the restore has something to do.
const BEFORE_KILL: f64 = 0.02;
/// How long a start may take.
const START_WAIT: Duration = Duration::from_secs(120);
/// The lowest plausible rate of a restore, in entries per second.
const RATE_MIN: u64 = 50_000;
/// The group forgets a dead member after its session timeout.
const GROUP_WAIT: Duration = Duration::from_secs(90);

/// How a contender was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Start {
    /// The state folder was removed.
    EmptyDisk,
    /// After SIGTERM.
    WarmDisk,
    /// After SIGKILL, with new records written just before.
    Killed,
}

impl Start {
    const ALL: [Start; 3] = [Start::EmptyDisk, Start::WarmDisk, Start::Killed];

    fn name(self) -> &'static str {
        match self {
            Start::EmptyDisk => "empty disk",
            Start::WarmDisk => "warm disk, clean stop",
            Start::Killed => "warm disk, SIGKILL",
        }
    }
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Run {
    contender: Contender,
    start: Start,
    entries: u64,
    /// From the process's start until everything is restored and running.
    ready_seconds: f64,
    /// How many records were restored, and the time from the first task's start to the last one's end.
    restored: u64,
    restore_seconds: f64,
    peak_bytes: u64,
}

impl Run {
    fn rate(&self) -> Option<f64> {
        (self.restored > 0).then(|| self.restored as f64 / self.restore_seconds.max(0.001))
    }
}

fn run(bench: &Bench) -> Outcome<Findings> {
    let (mut runs, mut failures) = (Vec::new(), Vec::new());
    for contender in WHO.into_iter().filter(|contender| bench.has(*contender)) {
        if let Err(error) = measure(bench, contender, &mut runs) {
            bench.progress.say(format!("restore: {error}"));
            failures.push(error.to_string());
        }
    }
    let mut findings = Findings::new(&runs)?.setting("partitions", PARTITIONS).setting("memory", MEMORY);
    findings.failures = failures;
    Ok(findings)
}

fn measure(bench: &Bench, contender: Contender, runs: &mut Vec<Run>) -> Outcome<()> {
    let stage = Stage::set(bench, contender, Work::Ids, PARTITIONS, &[])?;
    let mut there = 0;
    for &size in sizes_of(bench, contender) {
        let entries = bench.scaled(size);
        fill(bench, &stage.spec.input, PARTITIONS, there..entries, VALUE_BYTES)?;
        let built = drain(bench, &stage, there, entries)?;
        there = entries;
        bench.progress.say(format!(
            "{contender} has remembered {entries} entries: {:.0}/s, {} MiB at most",
            built.records_per_second,
            built.peak_bytes >> 20
        ));
        // A small state is restored in seconds, so it is measured in every round.
        for _ in 0..if size == SIZES[0] { bench.rounds } else { 1 } {
            std::fs::remove_dir_all(&stage.spec.state_dir).context(stage.spec.state_dir.display())?;
            for how in [Start::EmptyDisk, Start::WarmDisk] {
                let mut live = start(bench, &stage, how, entries, runs)?;
                stop(bench, &stage, &mut live)?;
            }
        }
        let mut live = stage.start()?;
        live.await_ready(PARTITIONS, START_WAIT)?;
        let more = ((entries as f64 * BEFORE_KILL) as u64).max(1);
        fill(bench, &stage.spec.input, PARTITIONS, there..there + more, VALUE_BYTES)?;
        there += more;
        stage.await_committed(&mut live, there, START_WAIT + Duration::from_secs(more / 2_000))?;
        live.running.kill();
        // An immediate restart would measure the session timeout, which the part `moves` does.
        await_forgotten(bench, &stage)?;
        let mut live = start(bench, &stage, Start::Killed, there, runs)?;
        stop(bench, &stage, &mut live)?;
    }
    stage.check_output(there)
}

/// Kafka Streams is only compared at the small size: it takes minutes to build the large one, and part (d) does that.
fn sizes_of(bench: &Bench, contender: Contender) -> &'static [u64] {
    let has_all = contender == Contender::Ratchet && !bench.quick;
    if has_all { SIZES } else { &SIZES[..1] }
}

/// Waits for the group to settle first: an instance stopped in a rebalance does not leave the group, and the next start
/// would wait for its session.
fn stop(bench: &Bench, stage: &Stage<'_>, live: &mut Live) -> Outcome<()> {
    await_settled(bench, stage)?;
    live.running.stop().map(drop)
}

/// Starts the contender and waits until it is ready.
fn start(bench: &Bench, stage: &Stage<'_>, how: Start, entries: u64, runs: &mut Vec<Run>) -> Outcome<Live> {
    let mut live = stage.start()?;
    let ready = live.await_ready(PARTITIONS, START_WAIT + Duration::from_secs(entries / RATE_MIN))?;
    let usage = live.running.usage();
    let (restored, restore_seconds) = restored(stage.contender, &live.said()?);
    let run = Run {
        contender: stage.contender,
        start: how,
        entries,
        ready_seconds: ready.as_secs_f64(),
        restored,
        restore_seconds,
        peak_bytes: usage.peak_bytes,
    };
    bench.progress.say(format!(
        "{} with {entries} entries, {}: ready after {:.2} s, {restored} restored in {restore_seconds:.2} s, {} MiB",
        stage.contender,
        how.name(),
        run.ready_seconds,
        usage.peak_bytes >> 20
    ));
    if how == Start::EmptyDisk && restored < entries {
        fail!("{} was ready with {restored} of {entries} entries restored", stage.contender);
    }
    runs.push(run);
    Ok(live)
}

/// Waits until the dead member's session has ended.
fn await_forgotten(bench: &Bench, stage: &Stage<'_>) -> Outcome<()> {
    let group = group(bench, stage)?;
    within(GROUP_WAIT, LOOK * 10, &format!("{} to have no members", stage.spec.group), || {
        Ok((group.members()? == 0).then_some(()))
    })
}

/// Waits until every thread has its share.
fn await_settled(bench: &Bench, stage: &Stage<'_>) -> Outcome<()> {
    let group = group(bench, stage)?;
    let threads = stage.contender.threads();
    within(GROUP_WAIT, LOOK * 10, &format!("the members of {} to share its partitions", stage.spec.group), || {
        let Some(mut owners) = group.owners()? else { return Ok(None) };
        owners.sort();
        owners.dedup();
        Ok((owners.len() == threads && group.members()? == threads).then_some(()))
    })
}

fn group(bench: &Bench, stage: &Stage<'_>) -> Outcome<Group> {
    Group::new(bench.broker.bootstrap(), &stage.spec.group, &stage.spec.input, PARTITIONS as usize)
}

/// How many records were restored, and in how many seconds from the first task's start to the last one's end, according
/// to the contender.
fn restored(contender: Contender, said: &str) -> (u64, f64) {
    let (mut records, mut from_ms, mut to_ms) = (0, f64::MAX, f64::MIN);
    let mut add = |count: u64, began_ms: f64, ended_ms: f64| {
        records += count;
        from_ms = from_ms.min(began_ms);
        to_ms = to_ms.max(ended_ms);
    };
    for line in said.lines() {
        if contender == Contender::Ratchet {
            if let Some((count, began, ended)) = ratchet_line(line) {
                add(count, began, ended);
            }
        } else if let Some((count, began, ended)) = streams_line(line) {
            add(count, began, ended);
        }
    }
    if records == 0 { (0, 0.0) } else { (records, (to_ms - from_ms) / 1000.0) }
}

/// `{"timestamp":…,"fields":{"message":"store restored","records":…,"took_ms":…}}`
fn ratchet_line(line: &str) -> Option<(u64, f64, f64)> {
    if !line.contains("store restored") {
        return None;
    }
    let line: serde_json::Value = serde_json::from_str(line).ok()?;
    let field = |name: &str| line.get("fields").and_then(|fields| fields.get(name)).or_else(|| line.get(name));
    let ended: jiff::Timestamp = line.get("timestamp")?.as_str()?.parse().ok()?;
    let ended = ended.as_microsecond() as f64 / 1000.0;
    Some((field("records")?.as_u64()?, ended - field("took_ms")?.as_f64()?, ended))
}

/// `TIME restore-start PARTITION FROM TO`, which counts nothing, and `TIME restore-end PARTITION RECORDS`.
fn streams_line(line: &str) -> Option<(u64, f64, f64)> {
    let words: Vec<&str> = line.split(' ').collect();
    let time: f64 = words.first()?.parse().ok()?;
    match *words.get(1)? {
        "restore-start" => Some((0, time, time)),
        "restore-end" => Some((words.get(3)?.parse().ok()?, time, time)),
        _ => None,
    }
}

/// The runs of one kind.
fn of(runs: &[Run], contender: Contender, start: Start, size: u64) -> Vec<Run> {
    // A state is a little larger after each kill.
    let is_size = |entries: u64| entries >= size && entries as f64 <= size as f64 * 1.5;
    runs.iter()
        .filter(|run| run.contender == contender && run.start == start && is_size(run.entries))
        .copied()
        .collect()
}

/// The sizes that have figures.
fn sizes(runs: &[Run]) -> Vec<u64> {
    let mut sizes: Vec<u64> = Vec::new();
    let mut entries: Vec<u64> = runs.iter().map(|run| run.entries).collect();
    entries.sort_unstable();
    for entries in entries {
        if sizes.last().is_none_or(|&size| entries as f64 > size as f64 * 1.5) {
            sizes.push(entries);
        }
    }
    sizes
}

fn millions(number: f64) -> String {
    if number >= 1e7 { format!("{:.0} M", number / 1e6) } else { format!("{:.2} M", number / 1e6) }
}

fn median(runs: &[Run], of: impl Fn(&Run) -> Option<f64>) -> Option<f64> {
    Spread::of(runs.iter().filter_map(of)).map(|spread| spread.median)
}

fn sections(results: &Results) -> Outcome<Vec<Section>> {
    let runs: Vec<Run> = results.data()?;
    let mut rows = Vec::new();
    let mut lines = Vec::new();
    for contender in WHO {
        let mut points = Vec::new();
        for size in sizes(&runs) {
            for start in Start::ALL {
                let some = of(&runs, contender, start, size);
                let Some(ready) = median(&some, |run| Some(run.ready_seconds)) else { continue };
                let rate = median(&some, Run::rate);
                let peak = some.iter().map(|run| run.peak_bytes).max().unwrap_or(0);
                rows.push(vec![
                    format!("{contender}, {}", start.name()),
                    millions(size as f64),
                    format!("{ready:.2} s"),
                    rate.map_or_else(|| "nothing to restore".to_owned(), |rate| format!("{}/s", millions(rate))),
                    format!("{} MiB", peak >> 20),
                ]);
                if start == Start::EmptyDisk {
                    points.push((size as f64, ready));
                }
            }
        }
        lines.push(Line { label: contender.name().to_owned(), points });
    }
    let head = ["", "entries", "ready after", "restored", "peak memory"].map(str::to_owned).to_vec();
    Ok(vec![Section {
        title: "Restore".to_owned(),
        text: vec![format!(
            "Seconds from the start of the process until every task runs, and changelog records a second from the \
             first task's begin to the last one's end; {PARTITIONS} partitions; `memory: {MEMORY}`."
        )],
        tables: vec![Table { head, rows }],
        plots: vec![Plot {
            name: "restore".to_owned(),
            title: "Ready with an empty disk".to_owned(),
            unit: "s".to_owned(),
            kind: Drawing::Lines { x_label: "entries".to_owned(), log_x: true, log_y: true, lines },
        }],
        notes: vec![
            "The small size is restored from an empty and from a warm disk in every round, all else once; the large \
             one by ratchet alone, since only to build it takes Kafka Streams minutes. Before SIGKILL 2 % of the \
             entries are written anew, so that the disk lags behind; the next start waits until the group has \
             forgotten the dead member, since the session timeout is not what is measured here. In the end the \
             output is counted."
                .to_owned(),
        ],
    }])
}

fn goals(results: &Results) -> Outcome<Vec<Goal>> {
    let runs: Vec<Run> = results.data()?;
    let mut goals = Vec::new();
    for size in sizes(&runs) {
        let rate = |contender| median(&of(&runs, contender, Start::EmptyDisk, size), Run::rate);
        if let Some(ratchet) = rate(Contender::Ratchet) {
            goals.push(Goal {
                what: format!("restore of {} entries, empty disk", millions(size as f64)),
                wanted: "at least 4 M entries/s".to_owned(),
                figure: format!("{}/s", millions(ratchet)),
                met: ratchet >= 4e6,
            });
            if let Some(streams) = rate(Contender::KafkaStreams) {
                goals.push(Goal {
                    what: format!("restore of {} entries, empty disk", millions(size as f64)),
                    wanted: "at least 3 times Kafka Streams".to_owned(),
                    figure: format!("{:.1} times {}/s", ratchet / streams, millions(streams)),
                    met: ratchet >= 3.0 * streams,
                });
            }
        }
        let warm = of(&runs, Contender::Ratchet, Start::WarmDisk, size);
        if let Some(ready) = median(&warm, |run| Some(run.ready_seconds)) {
            goals.push(Goal {
                what: format!("warm disk, {} entries", millions(size as f64)),
                wanted: "ready within 1 s".to_owned(),
                figure: format!("{ready:.2} s"),
                met: ready <= 1.0,
            });
        }
        let all = Start::ALL.into_iter().flat_map(|start| of(&runs, Contender::Ratchet, start, size));
        if let Some(most) = all.map(|run| run.peak_bytes).max() {
            goals.push(Goal {
                what: format!("memory of restores, {} entries, `memory: {MEMORY}`", millions(size as f64)),
                wanted: format!("at most `memory:` plus {} MiB", CONSTANT_BYTES >> 20),
                figure: format!("{} MiB", most >> 20),
                met: most <= MEMORY_BYTES + CONSTANT_BYTES,
            });
        }
    }
    Ok(goals)
}
