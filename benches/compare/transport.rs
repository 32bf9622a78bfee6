//! How records travel: compressed inputs, and everything encrypted.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::contender::Contender;
use crate::failure::Outcome;
use crate::figures::{thousands, two, with_range};
use crate::load::Input;
use crate::measure::Sample;
use crate::part::{Bench, Goal, Part, Section, Table};
use crate::results::{Findings, Results};
use crate::spec::Work;
use crate::stats::Spread;
use crate::throughput::{Turn, turn, write};
use crate::warm;

/// The part.
pub const PART: Part =
    Part { name: "transport", about: "compressed inputs, and TLS", has_built: false, run, sections, goals };

const ENVELOPES: u64 = 500_000;
const EVENTS: u64 = 2_000_000;
/// How much CPU time a record may take over TLS, as a multiple of that in plain text.
const TLS_MAX: f64 = 1.5;
/// The least throughput with a compressed input, as a share of floor-changelog's.
const PACKED_MIN: f64 = 0.9;

/// How the records of a run travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Way {
    /// Change events, the input in lz4.
    Lz4,
    /// Change events, the input in zstd.
    Zstd,
    /// Events in plain text.
    Plain,
    /// Events over TLS, logged in with SCRAM.
    Tls,
}

impl Way {
    const ALL: [Way; 4] = [Way::Lz4, Way::Zstd, Way::Plain, Way::Tls];

    /// Its name in those of topics; a codec's is Kafka's.
    fn name(self) -> &'static str {
        match self {
            Way::Lz4 => "lz4",
            Way::Zstd => "zstd",
            Way::Plain => "plain",
            Way::Tls => "tls",
        }
    }

    fn is_compressed(self) -> bool {
        matches!(self, Way::Lz4 | Way::Zstd)
    }

    fn work(self) -> Work {
        if self.is_compressed() { Work::Envelopes } else { Work::Ids }
    }

    /// Who takes part. With TLS it is ratchet alone: the harness's own contenders do not log in.
    fn contenders(self) -> &'static [Contender] {
        if self.is_compressed() { &[Contender::FloorChangelog, Contender::Ratchet] } else { &[Contender::Ratchet] }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Way::Lz4 => "envelopes in lz4",
            Way::Zstd => "envelopes in zstd",
            Way::Plain => "ids in plain text",
            Way::Tls => "ids over TLS",
        })
    }
}

/// One run.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Run {
    way: Way,
    contender: Contender,
    round: usize,
    sample: Sample,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Data {
    runs: Vec<Run>,
}

impl Data {
    fn spread(&self, way: Way, contender: Contender, figure: fn(&Sample) -> f64) -> Option<Spread> {
        let same = self.runs.iter().filter(|run| run.way == way && run.contender == contender);
        Spread::of(same.map(|run| figure(&run.sample)))
    }

    /// The ratio of two kinds of runs, round by round.
    fn ratio(&self, of: (Way, Contender), to: (Way, Contender), figure: fn(&Sample) -> f64) -> Option<Spread> {
        let all =
            |(way, contender)| self.runs.iter().filter(move |run: &&Run| run.way == way && run.contender == contender);
        let ratio = |run: &Run| {
            let other = all(to).find(|other| other.round == run.round)?;
            Some(figure(&run.sample) / figure(&other.sample))
        };
        Spread::of(all(of).filter_map(ratio))
    }
}

fn run(bench: &Bench) -> Outcome<Findings> {
    let (mut data, mut failures) = (Data::default(), Vec::new());
    for ways in [&[Way::Lz4][..], &[Way::Zstd], &[Way::Plain, Way::Tls]] {
        let Some(first) = ways.first() else { continue };
        let mut turns: Vec<(Way, Contender)> =
            ways.iter().flat_map(|way| way.contenders().iter().map(|contender| (*way, *contender))).collect();
        turns.retain(|(_, contender)| bench.has(*contender));
        if turns.is_empty() {
            continue;
        }
        let input = input(bench, *first)?;
        warm::broker(bench, &input.topic, input.records)?;
        if ways.contains(&Way::Tls) {
            // The broker's TLS is cold. What goes wrong here does so again in the rounds.
            let _ = take(bench, (Way::Tls, Contender::Ratchet), &input, 0, format!("{}, unmeasured", Way::Tls));
        }
        for round in 1..=bench.rounds {
            for (way, contender) in turns.clone() {
                let label = format!("{way}, round {round}: {contender}");
                match take(bench, (way, contender), &input, round, label.clone()) {
                    Ok(sample) => data.runs.push(Run { way, contender, round, sample }),
                    Err(failure) => {
                        bench.progress.say(format!("FAILED: {failure}"));
                        failures.push(format!("{label}: {failure}"));
                    }
                }
            }
            turns.reverse();
        }
        bench.broker.delete_others(|_| false)?;
    }
    let mut findings = Findings::new(&data)?
        .setting("envelopes", bench.scaled(ENVELOPES))
        .setting("events", bench.scaled(EVENTS))
        .setting("rounds", bench.rounds);
    findings.failures = failures;
    Ok(findings)
}

/// The input of this way, and of those that share it.
fn input(bench: &Bench, way: Way) -> Outcome<Input> {
    let records = bench.scaled(if way.is_compressed() { ENVELOPES } else { EVENTS });
    // The broker compresses what it is sent.
    let compressed = way.is_compressed().then_some(("compression.type", way.name()));
    write(bench, way.work(), &format!("in-{}", way.name()), records, compressed.as_slice())
}

fn take(
    bench: &Bench,
    (way, contender): (Way, Contender),
    input: &Input,
    round: usize,
    label: String,
) -> Outcome<Sample> {
    let settings = if way == Way::Tls { bench.broker.tls(&bench.folder)? } else { Vec::new() };
    let name = format!("{}-{contender}-{round}", way.name());
    turn(bench, Turn { contender, work: way.work(), input, name, label, settings })
}

fn sections(results: &Results) -> Outcome<Vec<Section>> {
    let data: Data = results.data()?;
    let mut figures = Table {
        head: ["", "records/s", "CPU, us a record", "broker's CPU, us", "peak memory, MiB"].map(str::to_owned).to_vec(),
        rows: Vec::new(),
    };
    for (way, contender) in Way::ALL.into_iter().flat_map(|way| way.contenders().iter().map(move |who| (way, *who))) {
        let cell = |figure, write: fn(f64) -> String| {
            data.spread(way, contender, figure).map(|spread| with_range(spread, write))
        };
        let cells = [
            cell(|sample| sample.rate, thousands),
            cell(|sample| sample.cpu_us, two),
            cell(|sample| sample.broker_cpu_us, two),
            cell(|sample| sample.peak_mib, thousands),
        ];
        if let Some(cells) = cells.into_iter().collect::<Option<Vec<_>>>() {
            figures.rows.push([vec![format!("{way}: {contender}")], cells].concat());
        }
    }
    let text = "Change events of 1.5 KB whose input is compressed; outputs are not. Events of 160 bytes by their id over \
                TLS, with a login by SCRAM-SHA-256, in turns with the same in plain text; input, output and changelog \
                go over the same connections.";
    Ok(vec![Section {
        title: "Compression and TLS".to_owned(),
        text: vec![text.to_owned()],
        tables: vec![figures],
        ..Section::default()
    }])
}

fn goals(results: &Results) -> Outcome<Vec<Goal>> {
    let data: Data = results.data()?;
    let mut goals = Vec::new();
    for way in [Way::Lz4, Way::Zstd] {
        let of = |contender| (way, contender);
        let ratio = data.ratio(of(Contender::Ratchet), of(Contender::FloorChangelog), |sample| sample.rate);
        goals.extend(ratio.map(|ratio| Goal {
            what: format!("throughput, {way}"),
            wanted: format!("at least {PACKED_MIN} of floor-changelog"),
            figure: with_range(ratio, two),
            met: ratio.median >= PACKED_MIN,
        }));
    }
    let of = |way| (way, Contender::Ratchet);
    let ratio = data.ratio(of(Way::Tls), of(Way::Plain), |sample| sample.cpu_us);
    goals.extend(ratio.map(|ratio| Goal {
        what: "CPU a record, ids over TLS".to_owned(),
        wanted: format!("at most {TLS_MAX} times that in plain text"),
        figure: with_range(ratio, two),
        met: ratio.median <= TLS_MAX,
    }));
    Ok(goals)
}
