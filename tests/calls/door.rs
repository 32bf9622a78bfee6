//! Goal: a record whose calls are always refused like a wrong secret is rejected while other calls succeed, and delays
//! neither its lane nor its partition.

use std::time::{Duration, Instant};

use crate::calls::payments::{End, KEYED, Payments, charge, charges};
use crate::operator::Operator;
use crate::provider::Move;
use crate::until::{DEADLINE, within};

/// How long a call that was refused waits for its second attempt.
const PUT_OFF: Duration = Duration::from_secs(6);

#[test]
fn record_that_is_always_refused_while_other_calls_succeed_is_rejected() {
    let retry = "retry: {first: 50ms, max: 6s, attempts: 3}";
    let payments = Payments::new("door", 1, &[KEYED, retry]);
    let codes = [401, 403, 301, 308];
    for code in codes {
        let moves = std::iter::repeat_n(Move::answer(code), 100);
        payments.provider.script(&format!("/charges/refused-{code}"), moves);
    }
    for (number, code) in codes.into_iter().enumerate() {
        payments.job.send(charges(0, number * 50..(number + 1) * 50));
        payments.job.send([charge(0, &format!("refused-{code}"))]);
    }
    payments.job.send(charges(0, 200..250));
    let mut operator = Operator::start(&payments.job, "a");
    within(DEADLINE, "calls", || (payments.provider.requests() > 0).then_some(()));
    let since = Instant::now();
    within(DEADLINE, "the others to be done", || (payments.results() >= 250).then_some(()));
    assert!(since.elapsed() < PUT_OFF, "they have waited for those that were refused: {:?}", since.elapsed());
    // They are judged by what else is answered meanwhile.
    let mut next = 250;
    within(DEADLINE * 2, "dead letters", || {
        payments.job.send(charges(0, next..next + 2));
        next += 2;
        std::thread::sleep(Duration::from_millis(50));
        (payments.letters().len() == codes.len()).then_some(())
    });
    let found = payments.found(DEADLINE);
    for code in codes {
        let [End::Letter { reason, status, .. }] = found.first(&format!("refused-{code}")) else {
            panic!("{code}: {:?}", found.first(&format!("refused-{code}")))
        };
        assert_eq!((reason.as_str(), *status), ("rejected", Some(code)));
    }
    assert_eq!((found.results(), found.letters("rejected")), (next, codes.len()));
    assert!(found.acts.values().all(|acts| *acts == 1));
    operator.stop();
}
