//! The pause of a partition that moves: two instances under a constant load, one of which leaves in good order,
//! comes back, and is killed. A partition's pause is the longest gap between two of its records at a
//! `read_committed` reader, minus the usual gap without an event.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::contender::Contender;
use crate::failure::{Failure, Outcome, fail};
use crate::live::members::Group;
use crate::live::pace::{Clock, Feed, Load, Records};
use crate::live::reader::{Arrival, Reading};
use crate::live::stage::{LOOK, Live, Stage};
use crate::live::within;
use crate::part::{Bench, Goal, Part, Section, Table};
use crate::results::{Findings, Results};
use crate::spec::Work;
use crate::stats::Spread;

/// The part.
pub const PART: Part =
    Part { name: "moves", about: "the pause of a partition that moves", has_built: true, run, sections, goals };

const PARTITIONS: usize = 4;
const RATE: u64 = 1_000;
/// The lowest that brokers allow by default.
const SESSION_TIMEOUT_MS: u64 = 6_000;
const ROUNDS: usize = 5;
/// Kafka Streams is only there for comparison, without a goal.
const STREAMS_ROUNDS: usize = 1;
const WHO: [Contender; 2] = [Contender::Ratchet, Contender::KafkaStreams];
/// How long nothing happens before an event, to measure the usual gap.
const STEADY: Duration = Duration::from_secs(3);
/// The usual gap is the median of the longest gaps in slices of this length.
const SLICE_US: u64 = 500_000;
/// How long to keep watching after all partitions flow again.
const AFTER: Duration = Duration::from_secs(1);
const START_WAIT: Duration = Duration::from_secs(90);
/// How long a group may take to settle; Kafka Streams may first want to warm up a task elsewhere.
const SETTLE_WAIT: Duration = Duration::from_secs(40);

/// What happens to the second instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Event {
    Leaves,
    Comes,
    IsKilled,
}

impl Event {
    const ALL: [Event; 3] = [Event::Leaves, Event::Comes, Event::IsKilled];

    fn name(self) -> &'static str {
        match self {
            Event::Leaves => "SIGTERM: one leaves",
            Event::Comes => "one comes",
            Event::IsKilled => "SIGKILL: one dies",
        }
    }
}

/// The effect of one event on one partition.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Pause {
    contender: Contender,
    round: usize,
    event: Event,
    partition: usize,
    moved: bool,
    gap_ms: f64,
    usual_ms: f64,
}

impl Pause {
    fn ms(&self) -> f64 {
        (self.gap_ms - self.usual_ms).max(0.0)
    }
}

fn run(bench: &Bench) -> Outcome<Findings> {
    let (mut pauses, mut failures) = (Vec::new(), Vec::new());
    for contender in WHO.into_iter().filter(|contender| bench.has(*contender)) {
        let rounds = match contender {
            _ if bench.quick => 1,
            Contender::Ratchet => ROUNDS.max(bench.rounds),
            _ => STREAMS_ROUNDS,
        };
        for round in 0..rounds {
            if let Err(error) = Round::play(bench, contender, round, &mut pauses) {
                let what = format!("moves, {contender}, round {round}: {error}");
                bench.progress.say(&what);
                failures.push(what);
            }
        }
    }
    let mut findings = Findings::new(&pauses)?
        .setting("session.timeout.ms", SESSION_TIMEOUT_MS)
        .setting("records/s", RATE)
        .setting("partitions", PARTITIONS);
    findings.failures = failures;
    Ok(findings)
}

type Arrivals = Arc<Mutex<Vec<Vec<Arrival>>>>;

/// Two instances under load.
struct Round<'a> {
    bench: &'a Bench,
    stage: &'a Stage<'a>,
    number: usize,
    clock: Clock,
    arrivals: Arrivals,
    group: Group,
    first: Live,
    second: Live,
}

impl Round<'_> {
    fn play(bench: &Bench, contender: Contender, number: usize, pauses: &mut Vec<Pause>) -> Outcome<()> {
        let mut stage = Stage::set(bench, contender, Work::Ids, PARTITIONS as i32, &[])?;
        stage.spec.settings.extend(session_timeout(contender));
        let clock = Clock::start();
        let arrivals: Arrivals = Arc::new(Mutex::new(vec![Vec::new(); PARTITIONS]));
        let theirs = Arc::clone(&arrivals);
        let sink = move |arrival: Arrival| {
            if let Ok(mut arrivals) = theirs.lock() {
                arrivals[arrival.partition].push(arrival);
            }
        };
        let brokers = bench.broker.bootstrap();
        let reading = Reading::start(brokers, &stage.spec.output, PARTITIONS, clock, sink)?;
        let group = Group::new(brokers, &stage.spec.group, &stage.spec.input, PARTITIONS)?;
        let [first, second] = ["a", "b"].map(|label| stage.start_as(&stage.instance(label)));
        let (first, second) = (first?, second?);
        let mut round = Round { bench, stage: &stage, number, clock, arrivals, group, first, second };
        let feed = Feed::start(Load {
            brokers: brokers.to_owned(),
            topic: stage.spec.input.clone(),
            partitions: PARTITIONS as u64,
            rate: RATE,
            records: Records::Distinct,
            clock,
        })?;
        round.await_flow(START_WAIT)?;
        round.await_shared(2, START_WAIT)?;
        for event in Event::ALL {
            round.event(event, pauses)?;
        }
        let fed = feed.stop()?;
        reading.await_seen(fed.fresh, START_WAIT, || round.first.running.check())?;
        round.first.running.stop()?;
        let seen = reading.stop()?;
        if seen != fed.fresh {
            fail!("{seen} records came out, not {}", fed.fresh);
        }
        Ok(())
    }

    /// Causes the event and records every partition's pause.
    fn event(&mut self, event: Event, pauses: &mut Vec<Pause>) -> Outcome<()> {
        std::thread::sleep(STEADY);
        self.first.running.check()?;
        let Some(before) = self.group.owners()? else { fail!("the group does not come to rest") };
        let at_us = self.clock.now_us();
        let instances = match event {
            Event::Leaves => {
                self.second.running.stop()?;
                1
            }
            Event::Comes => {
                self.second = self.stage.start_as(&self.stage.instance("b"))?;
                2
            }
            Event::IsKilled => {
                self.second.running.kill();
                1
            }
        };
        self.await_shared(instances, SETTLE_WAIT)?;
        self.await_flow(SETTLE_WAIT)?;
        std::thread::sleep(AFTER);
        let Some(after) = self.group.owners()? else { fail!("the group does not come to rest") };
        let end_us = self.clock.now_us();
        let arrivals = self.arrivals.lock().map_err(poisoned)?;
        let mut told = Vec::new();
        for (partition, arrivals) in arrivals.iter().enumerate() {
            let pause = Pause {
                contender: self.stage.contender,
                round: self.number,
                event,
                partition,
                moved: before[partition] != after[partition],
                gap_ms: longest_gap(arrivals, at_us, end_us) as f64 / 1000.0,
                usual_ms: usual_gap(arrivals, at_us) / 1000.0,
            };
            told.push(format!("{} {:.0} ms", if pause.moved { "moved" } else { "stayed" }, pause.ms()));
            pauses.push(pause);
        }
        self.bench.progress.say(format!("{}, {}: {}", self.stage.contender, event.name(), told.join(", ")));
        Ok(())
    }

    /// Waits until this many instances share the partitions as evenly as possible.
    fn await_shared(&mut self, instances: usize, wait: Duration) -> Outcome<()> {
        let members = instances * self.stage.contender.threads();
        let what = format!("{members} members of {} to share its partitions", self.stage.spec.group);
        within(wait, LOOK * 5, &what, || {
            self.first.running.check()?;
            if self.group.members()? != members {
                return Ok(None);
            }
            let Some(mut owners) = self.group.owners()? else { return Ok(None) };
            owners.sort();
            owners.dedup();
            Ok((owners.len() == members.min(PARTITIONS)).then_some(()))
        })
    }

    /// Waits until each partition has output a record that was due after now.
    fn await_flow(&mut self, wait: Duration) -> Outcome<()> {
        let now_us = self.clock.now_us();
        within(wait, LOOK, "all partitions to flow", || {
            self.first.running.check()?;
            let arrivals = self.arrivals.lock().map_err(poisoned)?;
            let flows = |arrivals: &Vec<Arrival>| arrivals.last().is_some_and(|last| last.due_us > now_us);
            Ok(arrivals.iter().all(flows).then_some(()))
        })
    }
}

/// The session timeout as a setting of the contender.
fn session_timeout(contender: Contender) -> Option<(String, String)> {
    let name = match contender {
        Contender::Ratchet => "kafka.consumer.session.timeout.ms",
        Contender::KafkaStreams => "main.consumer.session.timeout.ms",
        _ => return None,
    };
    Some((name.to_owned(), SESSION_TIMEOUT_MS.to_string()))
}

fn poisoned<T>(_: T) -> Failure {
    Failure("the reader died".to_owned())
}

/// The longest time without a record between two moments.
fn longest_gap(arrivals: &[Arrival], from_us: u64, to_us: u64) -> u64 {
    let first = arrivals.partition_point(|arrival| arrival.at_us < from_us);
    // The gap around the first moment started before it.
    let mut last = if first == 0 { from_us } else { arrivals[first - 1].at_us };
    let mut longest = 0;
    for at_us in arrivals[first..].iter().map(|arrival| arrival.at_us.min(to_us)).chain([to_us]) {
        longest = longest.max(at_us - last);
        last = at_us;
    }
    longest
}

/// The usual gap before a moment: the median of the slices' longest gaps.
fn usual_gap(arrivals: &[Arrival], at_us: u64) -> f64 {
    let slices = STEADY.as_micros() as u64 / SLICE_US;
    let slice = |number: u64| {
        let to = at_us.saturating_sub(number * SLICE_US);
        longest_gap(arrivals, to.saturating_sub(SLICE_US), to) as f64
    };
    Spread::of((0..slices).map(slice)).map_or(0.0, |spread| spread.median)
}

fn spread(pauses: &[Pause], contender: Contender, event: Event, moved: bool) -> Option<Spread> {
    let is = |pause: &&Pause| pause.contender == contender && pause.event == event && pause.moved == moved;
    Spread::of(pauses.iter().filter(is).map(Pause::ms))
}

/// A time without the session timeout, if that is part of it.
fn less_session(event: Event, ms: f64) -> f64 {
    if event == Event::IsKilled { ms - SESSION_TIMEOUT_MS as f64 } else { ms }
}

fn sections(results: &Results) -> Outcome<Vec<Section>> {
    let pauses: Vec<Pause> = results.data()?;
    let mut rows = Vec::new();
    for event in Event::ALL {
        for contender in WHO {
            if !pauses.iter().any(|pause| pause.contender == contender && pause.event == event) {
                continue;
            }
            let told = |moved: bool| {
                let Some(found) = spread(&pauses, contender, event, moved) else { return "none".to_owned() };
                // Partitions that stayed do not wait for a dead member's session.
                let less = |ms| if moved { less_session(event, ms) } else { ms };
                format!("{:.0} ms ({:.0} to {:.0})", less(found.median), less(found.low), less(found.high))
            };
            let session = if event == Event::IsKilled { ", beyond the session timeout" } else { "" };
            rows.push(vec![format!("{}{session}", event.name()), contender.to_string(), told(true), told(false)]);
        }
    }
    let head = ["event", "contender", "partitions that moved", "partitions that stayed"].map(str::to_owned).to_vec();
    let rounds = |contender| {
        pauses.iter().filter(|pause| pause.contender == contender).map(|pause| pause.round + 1).max().unwrap_or(0)
    };
    Ok(vec![Section {
        title: "Pause of a partition that moves".to_owned(),
        text: vec![format!(
            "{RATE} records/s into {PARTITIONS} partitions, two instances, session timeout \
             {SESSION_TIMEOUT_MS} ms. A pause is the longest gap between two records of a partition at a \
             `read_committed` reader, less the gap that was usual in the seconds before: median (least to most) over \
             partitions and rounds ({} of ratchet, {} of Kafka Streams). After SIGKILL the session timeout is \
             subtracted for partitions that moved; since heartbeats are some time apart, a session may end earlier \
             than its timeout after the kill.",
            rounds(Contender::Ratchet),
            rounds(Contender::KafkaStreams),
        )],
        tables: vec![Table { head, rows }],
        plots: Vec::new(),
        notes: vec![
            "A partition moved if the group member that has it is another one afterwards. Each round ends with a \
             count of the output."
                .to_owned(),
        ],
    }])
}

fn goals(results: &Results) -> Outcome<Vec<Goal>> {
    let pauses: Vec<Pause> = results.data()?;
    let mut goals = Vec::new();
    for event in Event::ALL {
        for moved in [true, false] {
            let Some(found) = spread(&pauses, Contender::Ratchet, event, moved) else { continue };
            let killed = event == Event::IsKilled && moved;
            let less = |ms| if killed { less_session(event, ms) } else { ms };
            goals.push(Goal {
                what: format!("pause of a partition that {}, {}", if moved { "moved" } else { "stayed" }, event.name()),
                wanted: if killed { "session timeout + under 300 ms" } else { "under 300 ms" }.to_owned(),
                figure: format!("median {:.0} ms, longest {:.0} ms", less(found.median), less(found.high)),
                met: less(found.high) < 300.0,
            });
        }
    }
    Ok(goals)
}
