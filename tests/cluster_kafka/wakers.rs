//! A member's wait ends when somebody wakes it, not only when records arrive.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ratchet::cluster::kafka::{Batch, Member};
use ratchet::cluster::{Member as _, RecordBatch as _};

use crate::cluster_kafka::common::*;

/// Longer than a wait that is woken may take.
const LONG: Duration = Duration::from_secs(10);

/// How long polling took to end after the member was woken, once it may have begun to wait, or before. Waits that end by
/// themselves meanwhile, as they may, are repeated.
fn woken(member: &mut Member, is_before: bool) -> Duration {
    let (waker, mut batch) = (member.waker(), Batch::default());
    let is_woken = AtomicBool::new(false);
    let wake = || {
        is_woken.store(true, Ordering::SeqCst);
        waker();
        Instant::now()
    };
    std::thread::scope(|scope| {
        let mut since = is_before.then(wake);
        let polling = scope.spawn(|| {
            loop {
                assert_eq!(member.poll(&mut batch, 10, LONG).unwrap(), None);
                assert!(batch.is_empty());
                if is_woken.load(Ordering::SeqCst) {
                    return Instant::now();
                }
            }
        });
        if !is_before {
            std::thread::sleep(Duration::from_millis(300));
            since = Some(wake());
        }
        polling.join().unwrap().saturating_duration_since(since.unwrap())
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
    // A wake-up ends one wait only: of the next ones, only some may end by themselves.
    let (mut batch, wait) = (Batch::default(), Duration::from_millis(700));
    let mut lasts = || {
        let began = Instant::now();
        assert_eq!(member.poll(&mut batch, 10, wait).unwrap(), None);
        began.elapsed() >= wait - Duration::from_millis(100)
    };
    assert!((0..5).any(|_| lasts()), "each wait ended early");
    // It outlives the member.
    let waker = member.waker();
    member.leave().unwrap();
    waker();
}
