//! The driver alone: the program's own way to a Redis, asked about records in portions, each of which comes again from
//! another partition, so that half of them are known.

use std::time::{Duration, Instant};

use ratchet::effect::gate::{Gate as _, GateRecord, GateVerdict, Identity, RowIdentity, SourcePartition};
use ratchet::redis::Address;
use ratchet::redis::gate::{RedisGate as Driver, Settings};
use serde::{Deserialize, Serialize};

use super::Data;
use crate::failure::{Context as _, Failure, Outcome, fail};
use crate::part::Bench;
use crate::redis::Redis;
use crate::usage::Usage;

/// How many records are asked about at once.
pub const PORTIONS: [i64; 4] = [1, 10, 100, 1_000];
const MEASURE: Duration = Duration::from_secs(2);
const MEASURE_QUICK: Duration = Duration::from_millis(500);
const RETENTION_MS: i64 = 600_000;

/// How the driver has done.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Run {
    pub portion: i64,
    /// Records a second.
    pub rate: f64,
    /// Microseconds of CPU a record: the driver's, and Redis's.
    pub own_us: f64,
    pub server_us: f64,
}

/// How long each is measured.
pub fn measured_for(bench: &Bench) -> Duration {
    if bench.quick { MEASURE_QUICK } else { MEASURE.mul_f64(bench.scale.clamp(0.2, 1.0)) }
}

/// Measures all portions in each round.
pub fn run(bench: &Bench, data: &mut Data, failures: &mut Vec<String>) {
    for round in 1..=bench.rounds {
        for portion in PORTIONS {
            match measure(bench, portion) {
                Ok(run) => {
                    let Run { rate, own_us, server_us, .. } = run;
                    bench.progress.say(format!(
                        "round {round}: the driver, portions of {portion}: {rate:.0} records/s; CPU a record: {own_us:.2} \
                         us, of Redis {server_us:.2}"
                    ));
                    data.driver.push(run);
                }
                Err(failure) => {
                    let failure = format!("round {round}, portions of {portion}: {failure}");
                    bench.progress.say(format!("FAILED: {failure}"));
                    failures.push(failure);
                }
            }
        }
    }
}

fn measure(bench: &Bench, portion: i64) -> Outcome<Run> {
    let redis = Redis::start(&[])?;
    let address = Address::read(&redis.url()).context("an address")?;
    let driver = Driver::new(Settings { address, name: "bench".to_owned(), retention_ms: RETENTION_MS });
    let mut session = driver.session();
    session.reach().map_err(|error| Failure(error.to_string()))?;
    let (mut asked, mut answers, mut count): (Vec<GateRecord>, _, _) = (Vec::new(), Vec::new(), 0_i64);
    let own = || Usage::alone(std::process::id());
    let (began, from, server) = (Instant::now(), own(), redis.usage());
    while began.elapsed() < measured_for(bench) {
        let round = count / portion;
        let partition = (round % 2) as i32;
        let place = SourcePartition { topology: "bench", topic: "in", topic_id: [7; 16], partition };
        let first = round / 2 * portion;
        asked.clear();
        asked.extend((first..first + portion).map(about));
        session.ask(&place, &asked, &mut answers).map_err(|error| Failure(error.to_string()))?;
        let right = if partition == 0 { GateVerdict::First } else { GateVerdict::Elsewhere };
        if answers.len() != asked.len() || answers.iter().any(|answer| *answer != right) {
            fail!("one of {portion} records is not {right:?}");
        }
        count += portion;
    }
    let micros = |from: &Usage, to: &Usage| to.cpu_since(from).as_secs_f64() * 1e6 / count as f64;
    Ok(Run {
        portion,
        rate: count as f64 / began.elapsed().as_secs_f64(),
        own_us: micros(&from, &own()),
        server_us: micros(&server, &redis.usage()),
    })
}

fn about(number: i64) -> GateRecord {
    let identity = number.to_be_bytes();
    GateRecord {
        identity: Identity::of([RowIdentity { identity: &identity, scope: None, version: None }]),
        offset: number,
    }
}
