//! A member's wait ends when somebody wakes it: nothing else ends it where no records arrive.

use std::time::{Duration, Instant};

use ratchet::cluster::kafka::{Batch, Member};
use ratchet::cluster::{Member as _, RecordBatch as _};

use crate::cluster_kafka::common::*;

/// Longer than a wait that is woken may take.
const LONG: Duration = Duration::from_secs(10);

/// How long a poll took to end after it was woken, once it may have begun to wait, or before.
fn woken(member: &mut Member, is_before: bool) -> Duration {
    let (waker, mut batch) = (member.waker(), Batch::default());
    std::thread::scope(|scope| {
        if is_before {
            waker();
        }
        let polling = scope.spawn(|| {
            let polled = member.poll(&mut batch, 10, LONG);
            (polled, batch.len(), Instant::now())
        });
        let mut since = Instant::now();
        if !is_before {
            std::thread::sleep(Duration::from_millis(300));
            assert!(!polling.is_finished(), "nothing has ended the wait");
            since = Instant::now();
            waker();
        }
        let (polled, count, ended) = polling.join().unwrap();
        assert_eq!((polled.unwrap(), count), (None, 0));
        ended.saturating_duration_since(since)
    })
}

/// New work for a lane that waits for records ends its wait in this way.
#[test]
fn waker_ends_the_wait_under_way_or_the_next_one() {
    let (cluster, input) = (cluster(), topic("in", 1));
    let (_, mut member) = lone_member(&cluster, &input);
    member.start(&at(&input, 0), 0).unwrap();
    poll_nothing(&mut member, Duration::from_secs(1));
    for is_before in [false, true, false] {
        let took = woken(&mut member, is_before);
        assert!(took < Duration::from_secs(3), "woken before it waits: {is_before}, it took {took:?}");
    }
    // A wake-up ends one wait only.
    let (mut batch, began) = (Batch::default(), Instant::now());
    assert_eq!(member.poll(&mut batch, 10, Duration::from_millis(700)).unwrap(), None);
    assert!(began.elapsed() >= Duration::from_millis(600), "{:?}", began.elapsed());
    // It outlives the member.
    let waker = member.waker();
    member.leave().unwrap();
    waker();
}
