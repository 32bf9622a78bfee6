//! Turns: each has a service, a store and a proxy of its own, and the same clients; the order rotates from round to round.
//!
//! First requests come at a constant rate, then as many as the connections take. A turn counts only if each request was
//! answered as it should be, and the service was run exactly once for each key.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::clients::{Clients, Load, Took};
use super::keeper::Keeper;
use super::proxy::Proxy;
use super::{Data, Place, RATE, Sample, Turn, Who, stores};
use crate::calls::provider::Provider;
use crate::failure::{Context as _, Outcome};
use crate::latency::Percentiles;
use crate::part::Bench;
use crate::usage::Usage;

/// Enough for two thousand requests, so that twenty are beyond the 99th percentile.
const STEADY: Duration = Duration::from_secs(5);
const SATURATED: Duration = Duration::from_secs(4);
const QUICK: Duration = Duration::from_secs(2);
/// Load before each measured time.
const WARM_UP: Duration = Duration::from_secs(1);

/// How long is measured.
#[derive(Clone, Copy)]
pub struct Lengths {
    /// At a constant rate.
    pub steady: Duration,
    /// With as many requests as the connections take.
    pub saturated: Duration,
}

impl Lengths {
    /// Those of this run.
    pub fn of(bench: &Bench) -> Lengths {
        let of = |whole: Duration| if bench.quick { QUICK } else { whole.mul_f64(bench.scale.clamp(0.2, 1.0)) };
        Lengths { steady: of(STEADY), saturated: of(SATURATED) }
    }
}

/// Measures everybody, in each round.
pub fn run(place: &Place<'_>, data: &mut Data, failures: &mut Vec<String>) {
    let lengths = Lengths::of(place.bench);
    // PostgreSQL makes the files of its log.
    place.bench.progress.say("warming up");
    let short = Lengths { steady: QUICK, saturated: QUICK };
    if let Err(failure) = turn(place, Who::Postgres, "requests-warm-up", short) {
        failures.push(format!("warming up: {failure}"));
    }
    let mut order = Who::ALL;
    for round in 1..=place.bench.rounds {
        match stores::sync_us(place.bench) {
            Ok(us) => data.syncs_us.push(us),
            Err(failure) => failures.push(format!("round {round}: a sync: {failure}")),
        }
        for who in order {
            match turn(place, who, &format!("requests-{round}-{}", who.plain_name()), lengths) {
                Ok(sample) => {
                    say(place.bench, round, who, &sample);
                    data.turns.push(Turn { round, who, sample });
                }
                Err(failure) => {
                    let failure = format!("round {round}: {}: {failure}", who.name());
                    place.bench.progress.say(format!("FAILED: {failure}"));
                    failures.push(failure);
                }
            }
        }
        order.rotate_left(1);
    }
}

fn say(bench: &Bench, round: usize, who: Who, sample: &Sample) {
    let told = |of: &Percentiles| [of.p50, of.p99].map(|us| us as f64 / 1000.0);
    let Sample { rate, cpu_us, store_us, service_us, saturated, latency, lateness_p99_us, waited_us, .. } = sample;
    bench.progress.say(format!(
        "round {round}: {}: {rate:.0} requests/s; CPU a request: {cpu_us:.1} us, of the store {store_us:.1}, of the service \
         {service_us:.1}; p50, p99 {:.2?} ms; at {RATE}/s {:.2?} ms, of which {:.2} for the store; p99 of lateness \
         {lateness_p99_us} us",
        who.name(),
        told(saturated),
        told(latency),
        waited_us.unwrap_or_default() / 1000.0,
    ));
}

/// What takes part in a turn.
struct Stage<'a> {
    service: Provider,
    keeper: Keeper<'a>,
    proxy: Option<Proxy>,
    keys: Arc<AtomicU64>,
}

/// One turn; everything that it created is removed afterwards.
fn turn(place: &Place<'_>, who: Who, name: &str, lengths: Lengths) -> Outcome<Sample> {
    let folder = &place.bench.folder;
    let (service, keeper) = (Provider::start(folder, name, 0)?, Keeper::open(place, who, name)?);
    let proxy = match who {
        Who::Service => None,
        _ => Some(Proxy::start(&folder.join(name), who, service.address(), &keeper)?),
    };
    let stage = Stage { service, keeper, proxy, keys: Arc::default() };
    let measured = stage.measure(who, lengths);
    let Stage { service, proxy, keys, .. } = stage;
    let stopped = proxy.map_or(Ok(()), Proxy::stop);
    let sample = measured?;
    stopped?;
    service.check(keys.load(Ordering::Relaxed)).context("the service")?;
    Ok(sample)
}

/// All figures at an instant.
struct Mark {
    at: Instant,
    answered: u64,
    own: Usage,
    store: Usage,
    service: Usage,
    /// How long the layer has waited for the store, in seconds.
    waited: Option<f64>,
}

impl Stage<'_> {
    fn measure(&self, who: Who, lengths: Lengths) -> Outcome<Sample> {
        let (from, to, steady) = self.watch(who, Some(RATE), lengths.steady)?;
        let requests = (to.answered - from.answered) as f64;
        let waited_us = from.waited.zip(to.waited).map(|(from, to)| (to - from) * 1e6 / requests);
        let waited_us = waited_us.filter(|_| who != Who::Passing);
        let (from, to, saturated) = self.watch(who, None, lengths.saturated)?;
        let requests = (to.answered - from.answered) as f64;
        let micros = |from: &Usage, to: &Usage| to.cpu_since(from).as_secs_f64() * 1e6 / requests;
        Ok(Sample {
            rate: requests / (to.at - from.at).as_secs_f64(),
            cpu_us: micros(&from.own, &to.own),
            store_us: micros(&from.store, &to.store),
            service_us: micros(&from.service, &to.service),
            peak_mib: to.own.peak_bytes as f64 / f64::from(1 << 20),
            saturated: Percentiles::of(&saturated.answers_us),
            latency: Percentiles::of(&steady.answers_us),
            lateness_p99_us: steady.lateness_us.value_at_quantile(0.99),
            waited_us,
        })
    }

    /// Has clients send requests for `length`.
    fn watch(&self, who: Who, rate: Option<u64>, length: Duration) -> Outcome<(Mark, Mark, Took)> {
        let address = self.proxy.as_ref().map_or(self.service.address(), Proxy::address);
        let keys = Arc::clone(&self.keys);
        let clients = Clients::start(Load { address, rate, repeats: who == Who::Repeated, keys });
        clients.pass(WARM_UP)?;
        let from = self.mark(&clients)?;
        clients.record(true);
        clients.pass(length)?;
        clients.record(false);
        let to = self.mark(&clients)?;
        Ok((from, to, clients.stop()?))
    }

    fn mark(&self, clients: &Clients) -> Outcome<Mark> {
        let metrics = self.proxy.as_ref().map(Proxy::metrics).transpose()?;
        let waited = metrics.map(|metrics| metrics.sum("ratchet_http_store_duration_seconds_sum"));
        let (at, answered) = (Instant::now(), clients.answered());
        let own = self.proxy.as_ref().map(Proxy::usage).unwrap_or_default();
        Ok(Mark { at, answered, own, store: self.keeper.usage(), service: self.service.usage(), waited })
    }
}
