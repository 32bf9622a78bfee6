//! The part's goals.

use super::{Data, GOAL_RATE, Run, Who, median};
use crate::failure::Outcome;
use crate::figures::milliseconds;
use crate::part::Goal;
use crate::results::Results;

fn at_goal_rate(run: &Run) -> bool {
    run.rate == GOAL_RATE && !run.half
}

pub fn goals(results: &Results) -> Outcome<Vec<Goal>> {
    let data: Data = results.data()?;
    let p99 = |who| median(&data, who, at_goal_rate, |at| at.p99);
    let p50 = median(&data, Who::RATCHET, at_goal_rate, |at| at.p50);
    let mut goals = Vec::new();
    let Some((ratchet, p50)) = p99(Who::RATCHET).zip(p50) else { return Ok(goals) };
    for (which, us, most_ms) in [("p50", p50, 6.0), ("p99", ratchet, 15.0)] {
        goals.push(Goal {
            what: format!("latency {which} at 1,000 records/s"),
            wanted: format!("at most {most_ms} ms"),
            figure: format!("{} ms", milliseconds(us)),
            met: us <= most_ms * 1_000.0,
        });
    }
    let peers =
        [(Who::STREAMS, 6.0, "a sixth of Kafka Streams'"), (Who::TUNED, 2.0, "half of Kafka Streams' at 20 ms")];
    for (who, times, wanted) in peers {
        let Some(peer) = p99(who) else { continue };
        goals.push(Goal {
            what: "latency p99 at 1,000 records/s".to_owned(),
            wanted: format!("at most {wanted}"),
            figure: format!("1/{:.1} of {} ms", peer / ratchet, milliseconds(peer)),
            met: ratchet * times <= peer,
        });
    }
    if let Some(half) = median(&data, Who::RATCHET, |run| run.half, |at| at.p99) {
        goals.push(Goal {
            what: "latency p99 at half of the maximum".to_owned(),
            wanted: "at most 60 ms".to_owned(),
            figure: format!("{} ms", milliseconds(half)),
            met: half <= 60_000.0,
        });
    }
    Ok(goals)
}
