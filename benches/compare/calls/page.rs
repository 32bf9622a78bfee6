//! The part's section of the page, and its goals.

use super::orders::VALUE_BYTES;
use super::{Data, IN_FLIGHT, PROVIDERS, Sample, Transactions, Who};
use crate::failure::Outcome;
use crate::figures::{milliseconds, one, thousands, two, with_range};
use crate::latency::Percentiles;
use crate::part::{Bar, Drawing, Goal, Plot, Section, Table};
use crate::results::Results;
use crate::stats::Spread;

/// The least of the window's rate.
const OF_WINDOW: f64 = 0.8;
/// The most at the 99th percentile beyond the provider's, in microseconds.
const P99_MORE_MAX: f64 = 30_000.0;

pub fn sections(results: &Results) -> Outcome<Vec<Section>> {
    let data: Data = results.data()?;
    let mut section = Section { title: "Calls to a provider".to_owned(), text: text(), ..Section::default() };
    section.tables =
        [Some(figures(&data)), ratios(&data), transactions(&data), latency(&data)].into_iter().flatten().collect();
    section.plots = PROVIDERS.iter().map(|(latency_ms, _)| plot(&data, *latency_ms)).collect();
    section.notes = notes();
    Ok(vec![section])
}

fn text() -> Vec<String> {
    vec![
        format!(
            "A call for each record of an input of {VALUE_BYTES} bytes of JSON a record, none of which is repeated, to a \
             provider that answers 201 after 1 ms or 20 ms with the body that it was sent; the answers go to a topic. \
             The provider is a process of its own on the same machine, with one thread, HTTP/1.1 without TLS, \
             connections that stay open, and timers of whole milliseconds. Each turn has a provider of its own."
        ),
        format!(
            "`window` is the limit: the same window of calls without ratchet. A process with as many threads as ratchet \
             has lanes; each reads its partitions with a plain consumer, has {IN_FLIGHT} calls under way, which is \
             `in_flight` of a lane, by plain hyper, each on a connection of its own, and writes the answers with an \
             idempotent producer, without transactions. Ten times a second it commits the offset up to which everything \
             is answered and written. It recognises nothing, keeps nothing, calls in any order, and repeats calls after \
             a crash."
        ),
        "How far a contender is, a reader of the answers at `read_committed` says: from a fifth of them to the last. A \
         turn counts only if the provider was called exactly once for each record, and each answer is there once."
            .to_owned(),
    ]
}

/// A column: its head, a sample's figure, and its format.
type Column = (&'static str, fn(&Sample) -> f64, fn(f64) -> String);

const COLUMNS: &[Column] = &[
    ("calls/s", |s| s.rate, thousands),
    ("CPU, us a call", |s| s.cpu_us, one),
    ("provider's CPU, us", |s| s.provider_us, one),
    ("broker's CPU, us", |s| s.broker_us, one),
    ("peak memory, MiB", |s| s.peak_mib, thousands),
];

/// Every contender with every provider.
fn everybody() -> impl Iterator<Item = (u64, Who)> {
    PROVIDERS.into_iter().flat_map(|(latency_ms, _)| Who::ALL.map(|who| (latency_ms, who)))
}

fn named((latency_ms, who): (u64, Who)) -> String {
    format!("{latency_ms} ms, {}", who.name())
}

fn figures(data: &Data) -> Table {
    let mut table = Table { head: vec!["provider, contender".to_owned()], ..Table::default() };
    table.head.extend(COLUMNS.iter().map(|(head, _, _)| (*head).to_owned()));
    for (latency_ms, who) in everybody() {
        let spread = |figure: fn(&Sample) -> f64| data.spread(latency_ms, who, |sample| Some(figure(sample)));
        let cell = |(_, figure, write): &Column| spread(*figure).map(|spread| with_range(spread, *write));
        let cells: Option<Vec<String>> = COLUMNS.iter().map(cell).collect();
        let cells = cells.unwrap_or_else(|| vec!["failed".to_owned(); COLUMNS.len()]);
        table.rows.push([vec![named((latency_ms, who))], cells].concat());
    }
    table
}

fn ratios(data: &Data) -> Option<Table> {
    let head = ["by the window", "calls/s", "CPU a call", "broker's CPU"].map(str::to_owned).to_vec();
    let row = |(latency_ms, who): (u64, Who)| {
        let ratio = |figure: fn(&Sample) -> f64| Some(with_range(data.ratio(latency_ms, who, figure)?, two));
        Some(vec![named((latency_ms, who)), ratio(|s| s.rate)?, ratio(|s| s.cpu_us)?, ratio(|s| s.broker_us)?])
    };
    let rows: Vec<_> = everybody().filter(|(_, who)| *who != Who::Window).filter_map(row).collect();
    (!rows.is_empty()).then_some(Table { head, rows })
}

fn transactions(data: &Data) -> Option<Table> {
    let head =
        ["ratchet's transactions", "calls in one", "its commit, ms", "the same at 1,000 records/s", "its commit, ms"];
    let row = |(latency_ms, who): (u64, Who)| {
        let of_turns =
            |figure: fn(Transactions) -> f64| data.spread(latency_ms, who, |sample| sample.transactions.map(figure));
        let of_runs = |figure: fn(Transactions) -> f64| {
            data.told(latency_ms, who, |run| run.transactions.map_or(f64::NAN, figure))
        };
        let calls = |of: Transactions| of.calls;
        let commit = |of: Transactions| of.commit_ms;
        Some(vec![
            named((latency_ms, who)),
            with_range(of_turns(calls)?, thousands),
            with_range(of_turns(commit)?, one),
            with_range(of_runs(calls)?, thousands),
            with_range(of_runs(commit)?, one),
        ])
    };
    let rows: Vec<_> = everybody().filter_map(row).collect();
    (!rows.is_empty()).then(|| Table { head: head.map(str::to_owned).to_vec(), rows })
}

/// A percentile of those that are kept.
type At = fn(&Percentiles) -> u64;

const PERCENTILES: [(&str, At); 5] =
    [("p50", |p| p.p50), ("p90", |p| p.p90), ("p99", |p| p.p99), ("p99.9", |p| p.p999), ("max", |p| p.max)];

fn latency(data: &Data) -> Option<Table> {
    let mut head = vec!["1,000 records/s, ms to the visible answer".to_owned()];
    head.extend(PERCENTILES.map(|(name, _)| name.to_owned()));
    let mut rows = Vec::new();
    for (latency_ms, _) in PROVIDERS {
        let row = |name: String, of: &dyn Fn(At) -> Option<Spread>| {
            let told: Option<Vec<String>> =
                PERCENTILES.into_iter().map(|(_, at)| Some(milliseconds(of(at)?.median))).collect();
            Some([vec![name], told?].concat())
        };
        let provider = |at: At| data.told(latency_ms, Who::Ratchet, |run| at(&run.provider) as f64);
        rows.extend(row(format!("{latency_ms} ms, the provider itself"), &provider));
        for who in Who::ALL {
            let own = |at: At| data.told(latency_ms, who, |run| at(&run.latency) as f64);
            rows.extend(row(named((latency_ms, who)), &own));
        }
    }
    (!rows.is_empty()).then_some(Table { head, rows })
}

fn plot(data: &Data, latency_ms: u64) -> Plot {
    let bar = |who: Who| {
        let Spread { median, low, high } = data.spread(latency_ms, who, |sample| Some(sample.rate))?;
        Some(Bar { label: who.label().to_owned(), value: median, low, high })
    };
    Plot {
        name: format!("calls-rate-{latency_ms}ms"),
        title: format!("calls: calls/s, a provider that answers after {latency_ms} ms"),
        unit: "calls/s".to_owned(),
        kind: Drawing::Bars(Who::ALL.into_iter().filter_map(bar).collect()),
    }
}

fn notes() -> Vec<String> {
    vec![
        "`ratchet` has `idempotency_key`, so that a grant lets calls go, and `result`; with `reserve: always` each call \
         waits for the commit of a reservation of its own, as without a key. Both remember each answer, and write it, \
         the entry and the offset in one transaction."
            .to_owned(),
        "Latency is from when a record is due at the input until a reader at `read_committed` has its answer; the \
         provider's own is from a request's head to the answer, as it measures it. The load is open: it waits for \
         nobody."
            .to_owned(),
    ]
}

pub fn goals(results: &Results) -> Outcome<Vec<Goal>> {
    let data: Data = results.data()?;
    let mut goals = Vec::new();
    for (latency_ms, _) in PROVIDERS {
        if let Some(ratio) = data.ratio(latency_ms, Who::Ratchet, |sample| sample.rate) {
            goals.push(Goal {
                what: format!("calls/s, a provider of {latency_ms} ms"),
                wanted: "at least 0.8 of the same window without ratchet".to_owned(),
                figure: with_range(ratio, two),
                met: ratio.median >= OF_WINDOW,
            });
        }
        let more = data.told(latency_ms, Who::Ratchet, |run| run.latency.p99 as f64 - run.provider.p99 as f64);
        if let Some(more) = more {
            goals.push(Goal {
                what: format!("p99 from input to settled answer at 1,000/s, a provider of {latency_ms} ms"),
                wanted: "at most 30 ms above the provider's".to_owned(),
                figure: format!("{} ms above", with_range(more, milliseconds)),
                met: more.median <= P99_MORE_MAX,
            });
        }
    }
    Ok(goals)
}
