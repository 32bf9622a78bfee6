//! Decides who is measured at which rates, and how often.

use super::measure::{measure, measured_for};
use super::{Data, GOAL_RATE, PARTITIONS, Percentiles, RATES, Run, Who};
use crate::contender::Contender;
use crate::failure::Outcome;
use crate::live::fill::{drain, fill};
use crate::live::stage::Stage;
use crate::part::Bench;
use crate::results::{self, Findings, Machine, Results};
use crate::spec::Work;
use crate::{throughput, warm};

/// The highest rate for Quix Streams, which is not built for more.
const QUIX_RATE_MAX: u64 = 1_000;
/// How many records a short measurement of a maximum has.
const MAXIMUM_RECORDS: u64 = 2_000_000;
/// The input with which the broker is warmed up.
const WARM_UP_INPUT: &str = "in-latency";
const WARM_UP_RECORDS: u64 = 1_000_000;
const VALUE_BYTES: usize = 160;

/// Measures everyone.
pub fn run(bench: &Bench) -> Outcome<Findings> {
    warm_up(bench)?;
    let (mut data, mut failures) = (Data::default(), Vec::new());
    for round in 0..bench.rounds {
        at_rates(bench, round, &mut data, &mut failures);
    }
    for round in 0..bench.rounds {
        at_halves(bench, round, &mut data, &mut failures);
    }
    // The harness alone at the highest of these rates: its share of those figures.
    if let Some(rate) = data.runs.iter().filter(|run| run.half).map(|run| run.rate).max() {
        keep(bench, &mut data, &mut failures, (Who::HARNESS, rate, true, 0));
    }
    let seconds = RATES.iter().map(|&rate| format!("{:.0} s", measured_for(bench, rate).as_secs_f64()));
    let mut findings = Findings::new(&data)?
        .setting("measured for", format!("{} at {RATES:?}/s", seconds.collect::<Vec<_>>().join(", ")))
        .setting("partitions", PARTITIONS)
        .setting("producer", "acks all, idempotent, linger 0 ms (1 ms from 5,000 records/s)")
        .setting("reader", "read_committed, fetch.min.bytes 1, fetch.wait.max.ms 10");
    findings.failures = failures;
    Ok(findings)
}

fn warm_up(bench: &Bench) -> Outcome<()> {
    let records = bench.scaled(WARM_UP_RECORDS);
    bench.broker.create(WARM_UP_INPUT, PARTITIONS, &[])?;
    fill(bench, WARM_UP_INPUT, PARTITIONS, 0..records, VALUE_BYTES)?;
    warm::broker(bench, WARM_UP_INPUT, records)?;
    bench.broker.delete(&[WARM_UP_INPUT])
}

/// Everyone at all rates in the first round; in the others, those with goals at the goals' rate.
fn at_rates(bench: &Bench, round: usize, data: &mut Data, failures: &mut Vec<String>) {
    for &rate in RATES.iter().filter(|&&rate| round == 0 || rate == GOAL_RATE) {
        for who in Who::ALL.into_iter().filter(|who| who.takes_part(bench)) {
            let is_too_much = who.contender == Some(Contender::Quix) && rate > QUIX_RATE_MAX;
            if is_too_much || (round > 0 && !who.has_a_goal()) {
                continue;
            }
            keep(bench, data, failures, (who, rate, false, round));
        }
    }
}

/// Everyone at half of the own maximum in the first round; in the others ratchet, which has a goal for it.
fn at_halves(bench: &Bench, round: usize, data: &mut Data, failures: &mut Vec<String>) {
    for who in Who::ALL.into_iter().filter(|who| who.takes_part(bench) && (round == 0 || *who == Who::RATCHET)) {
        let Some(contender) = who.contender.filter(|contender| *contender != Contender::Quix) else { continue };
        let known = data.maxima.iter().find(|(other, _)| other.contender == who.contender).map(|(_, rate)| *rate);
        match known.map_or_else(|| maximum(bench, contender), Ok) {
            Ok(maximum) => {
                if !data.maxima.iter().any(|(other, _)| *other == who) {
                    data.maxima.push((who, maximum));
                }
                keep(bench, data, failures, (who, maximum / 2, true, round));
            }
            Err(error) => failures.push(format!("the maximum of {}: {error}", who.name())),
        }
    }
}

/// Measures, and keeps the figures or the failure.
fn keep(bench: &Bench, data: &mut Data, failures: &mut Vec<String>, what: (Who, u64, bool, usize)) {
    let (who, rate, half, round) = what;
    let measured = measure(bench, who, rate).map(|measured| Run {
        who,
        round,
        rate,
        half,
        latency: Percentiles::of(&measured.latency),
        lateness_p99_us: measured.fed.lateness_us.value_at_quantile(0.99),
        broker_pauses: measured.broker_pauses,
    });
    match measured {
        Ok(run) => {
            let Percentiles { p50, p99, max, .. } = run.latency;
            let told = [p50, p99, max].map(|us| us as f64 / 1000.0);
            bench.progress.say(format!("latency of {} at {rate}/s: p50, p99, max {told:.1?} ms", who.name()));
            data.runs.push(run);
        }
        Err(error) => {
            let what = format!("latency of {} at {rate}/s: {error}", who.name());
            bench.progress.say(&what);
            failures.push(what);
        }
    }
}

/// How many records per second a contender reads from a preloaded topic: as part (a) found for these sources on this
/// machine, or else from a short measurement.
fn maximum(bench: &Bench, contender: Contender) -> Outcome<u64> {
    if let Some(known) = Results::read("ids")?.as_ref().and_then(|results| known_maximum(results, contender)) {
        return Ok(known);
    }
    let stage = Stage::set(bench, contender, Work::Ids, PARTITIONS, &[])?;
    let records = bench.scaled(MAXIMUM_RECORDS);
    fill(bench, &stage.spec.input, PARTITIONS, 0..records, 160)?;
    Ok(drain(bench, &stage, 0, records)?.records_per_second as u64)
}

/// The median over the rounds of part (a).
fn known_maximum(ids: &Results, contender: Contender) -> Option<u64> {
    if ids.machine != Machine::this() || ids.versions != results::versions() {
        return None;
    }
    let ids: throughput::Data = ids.data().ok()?;
    ids.spread(contender, |sample| sample.rate).map(|spread| spread.median as u64)
}
