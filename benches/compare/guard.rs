//! Notices a loss of speed: ratchet and `floor-changelog`, in turns, on a million records.
//!
//! Only the ratio of two successive runs counts, and of several such ratios the median, so that neither the
//! machine nor a short disturbance matters.

use crate::contender::Contender::{FloorChangelog, Ratchet};
use crate::failure::{Outcome, fail};
use crate::generate::Generator;
use crate::load;
use crate::runner::open_small;
use crate::spec::Work;
use crate::stats::Spread;
use crate::throughput::{Turn, ratios_of, turn};

const RECORDS: u64 = 1_000_000;
const ROUNDS: usize = 3;
/// The medians when this was last set: of ratchet's rate and CPU time divided by the floor's. Update them when
/// ratchet becomes faster, or the guard will miss a loss.
const RATE_USUAL: f64 = 0.72;
const CPU_USUAL: f64 = 1.30;
/// How much worse than usual the medians may be. With twelve compilers running on the same two cores, single
/// ratios of CPU time were within 14 % of their median, so 30 % for a median of three is not noise. Ratios of
/// rates were between half and twice their median there, so less than half is not noise either; smaller
/// losses of rate that ratchet itself causes show as CPU time.
const RATE_MARGIN: f64 = 0.5;
const CPU_MARGIN: f64 = 1.3;

/// Fails at a clear loss.
pub fn run() -> Outcome<()> {
    let bench = open_small()?;
    let mut generator = Generator::new(Work::Ids);
    let input = load::input(&bench.broker, &bench.progress, "in-ids", RECORDS, |record| generator.next(record))?;
    let mut rounds = Vec::new();
    for number in 1..=ROUNDS {
        let mut order = [FloorChangelog, Ratchet];
        order.rotate_left(number % 2);
        let mut round = std::collections::BTreeMap::new();
        for contender in order {
            round.insert(contender, turn(&bench, Turn::of_round(contender, Work::Ids, &input, number))?);
        }
        rounds.push(round);
    }
    let spread = |samples: Vec<f64>| Spread::of(samples).expect("every round has both");
    let rate = spread(ratios_of(&rounds, Ratchet, FloorChangelog, |sample| sample.rate));
    let cpu = spread(ratios_of(&rounds, Ratchet, FloorChangelog, |sample| sample.cpu_us));
    println!("ratchet by floor-changelog, {ROUNDS} rounds of {RECORDS} records: median (least to most)");
    let (rate_least, cpu_most) = (RATE_USUAL * RATE_MARGIN, CPU_USUAL * CPU_MARGIN);
    println!("records/s {:.2} ({:.2} to {:.2}), at least {rate_least:.2}", rate.median, rate.low, rate.high);
    println!("CPU a record {:.2} ({:.2} to {:.2}), at most {cpu_most:.2}", cpu.median, cpu.low, cpu.high);
    if rate.median < rate_least || cpu.median > cpu_most {
        fail!("ratchet has lost speed against floor-changelog: `make bench ARGS='--parts ids'` shows how much");
    }
    Ok(())
}
