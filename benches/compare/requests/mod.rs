//! Idempotent HTTP requests: the proxy before a service that answers at once, beside the same proxy without the layer and
//! the service alone; and each store of requests beside a bare command of the same server.
//!
//! [`clients`] ask, [`proxy`] is asked, [`keeper`] is what it remembers in, [`turns`] measures both; [`stores`] asks the
//! stores without HTTP, and [`page`] shows the figures.

mod clients;
mod keeper;
mod page;
mod proxy;
mod stores;
mod turns;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::failure::Outcome;
use crate::latency::Percentiles;
use crate::part::{Bench, Part};
use crate::postgres::server::Server;
use crate::results::Findings;
use crate::stats::Spread;

/// The part.
pub const PART: Part = Part {
    name: "requests",
    about: "idempotent HTTP requests, beside the same proxy without the layer, and stores beside bare commands",
    has_built: false,
    run,
    sections: page::sections,
    goals: page::goals,
};

/// The rate at which latency is measured, in requests a second.
const RATE: u64 = 500;
/// A request's body, and the answer's.
const BODY_BYTES: usize = 200;

/// Who is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Who {
    /// The service, without a proxy.
    Service,
    /// The proxy, which only passes requests on.
    Passing,
    /// The layer, in a folder.
    Embedded,
    /// The same, each request twice.
    Repeated,
    /// The layer, in PostgreSQL.
    Postgres,
    /// The layer, in Redis that syncs once a second.
    Redis,
    /// The layer, in Redis that syncs each answer.
    RedisAlways,
}

impl Who {
    /// All of them, in the order of the first round.
    const ALL: [Who; 7] =
        [Who::Service, Who::Passing, Who::Embedded, Who::Repeated, Who::Postgres, Who::Redis, Who::RedisAlways];

    /// Its name on the page.
    fn name(self) -> &'static str {
        match self {
            Who::Service => "the service alone",
            Who::Passing => "proxy without the layer",
            Who::Embedded => "proxy, `embedded`",
            Who::Repeated => "proxy, `embedded`, each key twice",
            Who::Postgres => "proxy, `postgres`",
            Who::Redis => "proxy, `redis`, `appendfsync everysec`",
            Who::RedisAlways => "proxy, `redis`, `appendfsync always`",
        }
    }

    /// Its name in a picture.
    fn label(self) -> &'static str {
        match self {
            Who::Service => "service alone",
            Who::Passing => "without the layer",
            Who::Embedded => "embedded",
            Who::Repeated => "each key twice",
            Who::Postgres => "postgres",
            Who::Redis => "redis, everysec",
            Who::RedisAlways => "redis, always",
        }
    }

    /// Its name in those of databases and folders.
    fn plain_name(self) -> &'static str {
        match self {
            Who::Service => "service",
            Who::Passing => "passing",
            Who::Embedded => "embedded",
            Who::Repeated => "repeated",
            Who::Postgres => "postgres",
            Who::Redis => "redis",
            Who::RedisAlways => "redis-always",
        }
    }
}

/// Figures of one turn.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Sample {
    /// Answers a second, with as many requests as there are connections.
    rate: f64,
    /// Microseconds of CPU a request at that load: the proxy's, the store's, the service's.
    cpu_us: f64,
    store_us: f64,
    service_us: f64,
    /// The proxy's peak resident memory.
    peak_mib: f64,
    /// How long answers took at that load.
    saturated: Percentiles,
    /// How long they took at a constant rate, from when each was due.
    latency: Percentiles,
    /// How late the generator was then at its 99th percentile.
    lateness_p99_us: u64,
    /// Of the layer: how long it waited for the store in each request then, in microseconds.
    waited_us: Option<f64>,
}

/// A turn.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Turn {
    round: usize,
    who: Who,
    sample: Sample,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Data {
    /// The servers, as they name themselves.
    servers: String,
    /// How long a lone sync took in each round, in microseconds.
    syncs_us: Vec<u64>,
    turns: Vec<Turn>,
    stores: Vec<stores::Asked>,
}

impl Data {
    fn rounds(&self) -> Vec<BTreeMap<Who, &Sample>> {
        let mut rounds: BTreeMap<usize, BTreeMap<Who, &Sample>> = BTreeMap::new();
        for turn in &self.turns {
            rounds.entry(turn.round).or_default().insert(turn.who, &turn.sample);
        }
        rounds.into_values().collect()
    }

    /// A figure over the rounds.
    fn spread(&self, who: Who, figure: impl Fn(&Sample) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.rounds().iter().filter_map(|round| figure(round.get(&who)?)))
    }

    /// What is between a figure and that of the proxy without the layer, round by round.
    fn beside(&self, who: Who, figure: impl Fn(&Sample) -> f64, between: impl Fn(f64, f64) -> f64) -> Option<Spread> {
        let of =
            |round: &BTreeMap<Who, &Sample>| Some(between(figure(round.get(&who)?), figure(round.get(&Who::Passing)?)));
        Spread::of(self.rounds().iter().filter_map(of))
    }
}

fn run(bench: &Bench) -> Outcome<Findings> {
    let (mut data, mut failures) = (Data::default(), Vec::new());
    let place = Place { bench, postgres: Server::start()? };
    turns::run(&place, &mut data, &mut failures);
    stores::run(&place, &mut data, &mut failures);
    data.servers = format!("{}, {}", place.postgres.version()?, crate::redis::Redis::start(&[])?.version());
    let lengths = turns::Lengths::of(bench);
    let mut findings = Findings::new(&data)?
        .setting("rounds", bench.rounds)
        .setting("connections", clients::CONNECTIONS)
        .setting("latency", format!("measured for {} s at {RATE}/s", lengths.steady.as_secs_f64()))
        .setting("load", format!("measured for {} s", lengths.saturated.as_secs_f64()))
        .setting("stores", format!("measured for {} s", stores::measured_for(bench).as_secs_f64()));
    findings.failures = failures;
    Ok(findings)
}

/// What all turns share.
struct Place<'a> {
    bench: &'a Bench,
    postgres: Server,
}
