//! The part's sections of the page, and its goals.

use super::clients::CONNECTIONS;
use super::stores::{Asked, CALLERS, ENTRY_BYTES, Store, What};
use super::{BODY_BYTES, Data, RATE, Sample, Who};
use crate::failure::Outcome;
use crate::figures::{one, thousands, two, with_range};
use crate::part::{Bar, Drawing, Goal, Plot, Section, Table};
use crate::results::Results;
use crate::stats::Spread;

/// The most that the layer may add at the median, in microseconds.
const P50_MORE_MAX: f64 = 300.0;
/// The least of the rate without the layer.
const OF_PASSING: f64 = 0.5;

pub fn sections(results: &Results) -> Outcome<Vec<Section>> {
    let data: Data = results.data()?;
    let section = Section {
        title: "Idempotent HTTP requests".to_owned(),
        text: text(&data),
        tables: [Some(figures(&data)), Some(latency(&data)), ratios(&data)].into_iter().flatten().collect(),
        plots: vec![plot(&data)],
        notes: notes(&data),
    };
    Ok(vec![section, stores(&data)])
}

fn text(data: &Data) -> Vec<String> {
    vec![
        format!(
            "`ratchet proxy` before a service that answers 201 at once with the body that it was sent, and clients with \
             {CONNECTIONS} connections; each request is a POST of {BODY_BYTES} bytes of JSON under a new key. Everything is \
             HTTP/1.1 without TLS over connections that stay open, on one machine, whose cores the clients (one thread of \
             the harness, plain hyper), the proxy, the store and the service (a process with one thread) share. {}.",
            data.servers
        ),
        "`proxy without the layer` is the same program with `key: off`: it passes the same requests on and reserves \
         nothing. `the service alone` is asked without a proxy, for orientation. `embedded` and `postgres` sync an answer \
         before the client gets it, and so does Redis with `appendfsync always`; with `everysec` it may lose the answers \
         of the last second. Where each key comes twice, every second request is answered from the store: requests are \
         counted both times, latencies are those of the second ones."
            .to_owned(),
        "A turn counts only if each request was answered as it should be, a repeated one as such, and the service was run \
         exactly once for each key. Each turn has a service, a store and a proxy of its own."
            .to_owned(),
    ]
}

/// A column: its head, a sample's figure, and its format.
type Column = (&'static str, fn(&Sample) -> f64, fn(f64) -> String);

const LOADED: &[Column] = &[
    ("requests/s", |s| s.rate, thousands),
    ("CPU, us a request", |s| if_any(s.cpu_us), one),
    ("store's CPU, us", |s| if_any(s.store_us), one),
    ("service's CPU, us", |s| s.service_us, one),
    ("p50, ms", |s| s.saturated.p50 as f64, ms),
    ("p99, ms", |s| s.saturated.p99 as f64, ms),
    ("peak memory, MiB", |s| if_any(s.peak_mib), thousands),
];

const STEADY: &[Column] = &[
    ("p50", |s| s.latency.p50 as f64, ms),
    ("p90", |s| s.latency.p90 as f64, ms),
    ("p99", |s| s.latency.p99 as f64, ms),
    ("max", |s| s.latency.max as f64, ms),
    ("of which for the store, on average", |s| s.waited_us.unwrap_or(f64::NAN), ms),
    ("generator late, p99", |s| s.lateness_p99_us as f64, ms),
];

/// Zero is the figure of what takes no part.
fn if_any(figure: f64) -> f64 {
    if figure > 0.0 { figure } else { f64::NAN }
}

fn figures(data: &Data) -> Table {
    table(data, "as many requests as connections", LOADED)
}

fn latency(data: &Data) -> Table {
    table(data, &format!("{RATE} requests/s, ms from when one is due"), STEADY)
}

fn table(data: &Data, title: &str, columns: &[Column]) -> Table {
    let mut table = Table { head: vec![title.to_owned()], ..Table::default() };
    table.head.extend(columns.iter().map(|(head, _, _)| (*head).to_owned()));
    for who in Who::ALL {
        let is_there = data.turns.iter().any(|turn| turn.who == who);
        let cell = |(_, figure, write): &Column| match data.spread(who, |sample| Some(figure(sample))) {
            Some(spread) => with_range(spread, *write),
            None if is_there => String::new(),
            None => "failed".to_owned(),
        };
        table.rows.push([vec![who.name().to_owned()], columns.iter().map(cell).collect()].concat());
    }
    table
}

fn ratios(data: &Data) -> Option<Table> {
    let head =
        ["by the proxy without the layer", "requests/s", "CPU of proxy and store", "p50 more, ms", "p99 more, ms"];
    let row = |who: Who| {
        let more = |figure: fn(&Sample) -> f64| data.beside(who, figure, |of, to| of - to);
        Some(vec![
            who.name().to_owned(),
            with_range(data.beside(who, |s| s.rate, |of, to| of / to)?, two),
            with_range(data.beside(who, |s| s.cpu_us + s.store_us, |of, to| of / to)?, two),
            with_range(more(|s| s.latency.p50 as f64)?, ms),
            with_range(more(|s| s.latency.p99 as f64)?, ms),
        ])
    };
    let others = Who::ALL.into_iter().filter(|who| !matches!(who, Who::Service | Who::Passing));
    let rows: Vec<_> = others.filter_map(row).collect();
    (!rows.is_empty()).then(|| Table { head: head.map(str::to_owned).to_vec(), rows })
}

fn plot(data: &Data) -> Plot {
    let bar = |who: Who| {
        let Spread { median, low, high } = data.spread(who, |sample| Some(sample.rate))?;
        Some(Bar { label: who.label().to_owned(), value: median, low, high })
    };
    Plot {
        name: "requests-rate".to_owned(),
        title: format!("requests: requests/s over {CONNECTIONS} connections"),
        unit: "requests/s".to_owned(),
        kind: Drawing::Bars(Who::ALL.into_iter().filter_map(bar).collect()),
    }
}

fn notes(data: &Data) -> Vec<String> {
    let sync =
        Spread::of(data.syncs_us.iter().map(|us| *us as f64)).map_or(String::new(), |spread| with_range(spread, ms));
    vec![
        "Percentiles of the first table are those of answers under full load: from when a connection sends a request to \
         when it has the answer. Those of the second are from when a request is due, at a rate that waits for nobody. \
         What is for the store is what the proxy itself measures, over all requests and its own questions of every \
         second. The embedded store's CPU is in the proxy's."
            .to_owned(),
        format!(
            "How long a sync takes is the disk's matter, and may be most of what an answer waits for: an append of \
             {ENTRY_BYTES} bytes and its sync took {sync} ms at the median before each round, with nobody else at work."
        ),
    ]
}

fn stores(data: &Data) -> Section {
    Section {
        title: "Stores of requests".to_owned(),
        text: stores_text(),
        tables: Store::ALL.into_iter().map(|store| of_store(data, store)).collect(),
        plots: Vec::new(),
        notes: Vec::new(),
    }
}

fn stores_text() -> Vec<String> {
    vec![
        format!(
            "The stores of the layer without HTTP, as the library has them: {CALLERS} callers on two threads, each of \
             which asks again once it is answered, always for requests that are new. **reserve** is one reservation; \
             **reserve and complete** is a reservation and then the answer, of {BODY_BYTES} bytes, which is what a request \
             costs its store: counted once for both."
        ),
        format!(
            "The bare command keeps a new key once and knows nothing of tokens, leases, fingerprints and answers. It is \
             asked by as many callers, through the same client library over as many connections. For `postgres` it is \
             `INSERT ... ON CONFLICT DO NOTHING` of a key of 32 bytes and a value of 48, over 4 connections, on which \
             statements are sent without waiting for each other; for `redis`, with `appendfsync everysec`, `SET key value \
             NX PX` with the same value, over one connection; for `embedded`, {ENTRY_BYTES} bytes at the end of a file \
             whose space is reserved, by one thread that takes all that wait, writes them at once, and syncs before anybody \
             hears of it."
        ),
        "A reservation of `embedded` is synced with the next answer only, unless `on_in_doubt: refuse` is set: then by \
         itself, as the bare command is. `postgres` and `redis` make no difference."
            .to_owned(),
    ]
}

fn of_store(data: &Data, store: Store) -> Table {
    let head = [store.name(), "each second", "of the bare command", "callers' CPU, us each", "server's CPU, us each"];
    let of = |round: usize, what: What| {
        data.stores.iter().find(|asked| (asked.round, asked.store, asked.what) == (round, store, what))
    };
    let row = |&what: &What| {
        let all = || data.stores.iter().filter(|asked| (asked.store, asked.what) == (store, what));
        let figure = |figure: fn(&Asked) -> f64, write: fn(f64) -> String| {
            Spread::of(all().map(figure)).map_or("failed".to_owned(), |spread| with_range(spread, write))
        };
        let ratios = all().filter_map(|asked| Some(asked.rate / of(asked.round, What::Bare)?.rate));
        let ratio = Spread::of(ratios).map_or(String::new(), |spread| with_range(spread, two));
        let server = if store == Store::Embedded { String::new() } else { figure(|asked| asked.server_us, one) };
        vec![
            what_name(store, what).to_owned(),
            figure(|asked| asked.rate, thousands),
            if what == What::Bare { String::new() } else { ratio },
            figure(|asked| asked.own_us, one),
            server,
        ]
    };
    Table { head: head.map(str::to_owned).to_vec(), rows: store.whats().iter().map(row).collect() }
}

fn what_name(store: Store, what: What) -> &'static str {
    match (what, store) {
        (What::Bare, Store::Embedded) => "append and sync",
        (What::Bare, Store::Postgres) => "INSERT ... ON CONFLICT DO NOTHING",
        (What::Bare, Store::Redis) => "SET ... NX PX",
        (What::Reserve, _) => "reserve",
        (What::ReserveOnce, _) => "reserve, `on_in_doubt: refuse`",
        (What::Both, _) => "reserve and complete",
    }
}

pub fn goals(results: &Results) -> Outcome<Vec<Goal>> {
    let data: Data = results.data()?;
    let mut goals = Vec::new();
    if let Some(more) = data.beside(Who::Embedded, |s| s.latency.p50 as f64, |of, to| of - to) {
        goals.push(Goal {
            what: format!("p50 at {RATE}/s, proxy, `embedded`"),
            wanted: "at most 0.3 ms above the same proxy without the layer".to_owned(),
            figure: format!("{} ms above", with_range(more, ms)),
            met: more.median <= P50_MORE_MAX,
        });
    }
    if let Some(ratio) = data.beside(Who::Embedded, |s| s.rate, |of, to| of / to) {
        goals.push(Goal {
            what: "requests/s, proxy, `embedded`".to_owned(),
            wanted: "at least 0.5 of the same proxy without the layer".to_owned(),
            figure: with_range(ratio, two),
            met: ratio.median >= OF_PASSING,
        });
    }
    Ok(goals)
}

/// Microseconds as milliseconds, with more digits than most parts need.
fn ms(us: f64) -> String {
    format!("{:.2}", us / 1000.0)
}
