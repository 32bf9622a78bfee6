//! Goal: calls are made again never sooner than the provider asks, and no more of them than the rate allows.

use std::time::Duration;

use crate::calls::payments::{KEYED, Payments, charge};
use crate::operator::Operator;
use crate::provider::Move;
use crate::until::DEADLINE;

/// What a busy machine, and the lane's own rounds, may add to a wait.
pub const LATE: Duration = Duration::from_millis(700);

pub fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The waits between the attempts of one record.
pub fn waits(retry: &str, moves: Vec<Move>) -> Vec<Duration> {
    let payments = Payments::new("waits", 1, &[KEYED, retry]);
    payments.provider.script("/charges/a", moves);
    payments.job.send([charge(0, "a")]);
    let mut operator = Operator::start(&payments.job, "a");
    payments.found(DEADLINE).assert_each_acted_once(false);
    operator.stop();
    let seen = payments.provider.seen();
    let keys: Vec<_> = seen.iter().map(|seen| &seen.key).collect();
    assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
    seen.windows(2).map(|two| two[1].at - two[0].at).collect()
}

#[test]
fn retry_after_is_obeyed() {
    let asks = |status, wait: &str| Move::answer(status).header("retry-after", wait);
    let waited = waits("retry: {first: 50ms, max: 100ms}", vec![asks(429, "2"), asks(503, "1"), asks(429, "0")]);
    println!("{waited:?}");
    for (wait, asked) in waited.iter().zip([ms(2000), ms(1000), ms(0)]) {
        assert!(*wait >= asked && *wait < asked + ms(100) + LATE, "{waited:?}");
    }
    assert_eq!(waited.len(), 3);
}

#[test]
fn rate_bounds_what_is_begun() {
    let payments = Payments::new("rate", 1, &[KEYED, "rate: 50/s"]);
    payments.job.send(crate::calls::payments::charges(0, 0..200));
    let mut operator = Operator::start(&payments.job, "a");
    payments.found(DEADLINE).assert_each_acted_once(false);
    operator.stop();
    let seen = payments.provider.seen();
    let took = seen[199].at - seen[0].at;
    // A tenth of a second's calls may go at once.
    assert!(took >= ms(3850) && took < ms(3900) + 4 * LATE, "{took:?} for 200 at 50/s");
}
