//! Goal: whatever a store does wrong, nothing is run without it, no true answer is withheld, and all answers are equal.
//!
//! On the layer: the store is a line in front of a real one, which only Rust can be. `tests/proxy/troubled.rs` has the
//! servers' own troubles, for the proxy.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ratchet::http::request::{Answer, Error, Found, OnInDoubt, Reply, Reservation, StillHeld, Wanted};
use ratchet::http::{OnStoreDown, Requests, Store};

use super::front::{Ask, Front};

/// A real store behind a line that can be cut at each of its calls.
struct Line {
    store: Requests,
    cut: [AtomicBool; 4],
    /// Whether a call whose line is cut arrives, and only its answer is lost.
    arrives: AtomicBool,
    /// How late the next reservation's answer comes, or each one's, in milliseconds.
    late_ms: AtomicU64,
    is_always_late: AtomicBool,
}

#[derive(Clone, Copy)]
enum Call {
    Reserve,
    Extend,
    Complete,
    Release,
}

impl Line {
    fn new() -> (Arc<Line>, tempfile::TempDir) {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Requests::open(&folder.path().join("requests")).expect("a new store");
        (
            Arc::new(Line {
                store,
                cut: Default::default(),
                arrives: AtomicBool::new(false),
                late_ms: AtomicU64::new(0),
                is_always_late: AtomicBool::new(false),
            }),
            folder,
        )
    }

    fn cut(&self, call: Call, is_cut: bool) {
        self.cut[call as usize].store(is_cut, Ordering::Relaxed);
    }

    fn through<'a, T: Send + 'a>(&'a self, call: Call, reply: Reply<'a, T>) -> Reply<'a, T> {
        Box::pin(async move {
            let is_cut = self.cut[call as usize].load(Ordering::Relaxed);
            if is_cut && !self.arrives.load(Ordering::Relaxed) {
                return Err(Error::Unavailable("the line is cut".to_owned()));
            }
            let reply = reply.await;
            if is_cut { Err(Error::Unavailable("the answer is lost".to_owned())) } else { reply }
        })
    }
}

impl Store for Line {
    fn reserve<'a>(&'a self, wanted: &'a Wanted) -> Reply<'a, Found> {
        Box::pin(async {
            let reply = self.through(Call::Reserve, self.store.reserve(wanted)).await;
            let is_always = self.is_always_late.load(Ordering::Relaxed);
            let late_ms =
                if is_always { self.late_ms.load(Ordering::Relaxed) } else { self.late_ms.swap(0, Ordering::Relaxed) };
            tokio::time::sleep(Duration::from_millis(late_ms)).await;
            reply
        })
    }

    fn extend(&self, held: Reservation, lease: Duration) -> Reply<'_, StillHeld> {
        self.through(Call::Extend, self.store.extend(held, lease))
    }

    fn complete<'a>(&'a self, held: Reservation, answer: &'a Answer, retention: Duration) -> Reply<'a, StillHeld> {
        self.through(Call::Complete, self.store.complete(held, answer, retention))
    }

    fn release(&self, held: Reservation) -> Reply<'_, StillHeld> {
        self.through(Call::Release, self.store.release(held))
    }

    fn tidy(&self) -> Reply<'_, usize> {
        self.store.tidy()
    }

    fn check(&self) -> Reply<'_, ()> {
        self.store.check()
    }
}

fn run<F: Future<Output = ()>>(test: impl FnOnce(Arc<Line>) -> F) {
    let (line, _folder) = Line::new();
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(test(line));
}

/// idempot-js, framework suite: lookup or reserve fails: 503, and the handler is not run.
#[test]
fn nothing_is_run_while_the_store_is_down() {
    run(|line| async move {
        let front = Front::layer(line.clone(), |layer| layer).await;
        line.cut(Call::Reserve, true);
        let answer = front.send(Ask::under("a")).await;
        assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (503, "store-down"));
        assert_eq!(answer.header("retry-after"), Some("1"));
        assert_eq!(front.send(Ask::plain("plain")).await.status, 200, "without a key it is not asked");
        line.cut(Call::Reserve, false);
        assert_eq!(front.send(Ask::under("a")).await.whole(), (200, "run 1 of a"));
    });
}

#[test]
fn service_is_run_while_the_store_is_down_where_that_is_wanted() {
    run(|line| async move {
        let front = Front::layer(line.clone(), |layer| layer.on_store_down(OnStoreDown::Pass)).await;
        line.cut(Call::Reserve, true);
        for run in 1..=2 {
            assert_eq!(front.send(Ask::under("a")).await.whole(), (200, format!("run {run} of a").as_str()));
        }
    });
}

/// The reservation was made, and nobody was told: it does not stand in the next one's way.
#[test]
fn reservation_whose_answer_was_lost_is_given_back() {
    run(|line| async move {
        let front = Front::layer(line.clone(), |layer| layer).await;
        line.arrives.store(true, Ordering::Relaxed);
        line.cut(Call::Reserve, true);
        assert_eq!(front.send(Ask::under("a")).await.status, 503);
        line.cut(Call::Reserve, false);
        let until = tokio::time::Instant::now() + Duration::from_secs(10);
        loop {
            let answer = front.send(Ask::under("a")).await;
            if answer.status == 200 {
                break assert_eq!(answer.text(), "run 1 of a");
            }
            assert!(answer.status == 409 && tokio::time::Instant::now() < until, "{answer:?}");
        }
    });
}

/// idempot-js, framework suite: completion fails: the client still gets 200. powertools-typescript#2944.
#[test]
fn answer_that_cannot_be_remembered_is_given_all_the_same() {
    run(|line| async move {
        let set = |layer: ratchet::http::Idempotency| {
            layer.store_wait(Duration::from_millis(300)).lease(Duration::from_millis(600))
        };
        let front = Front::layer(line.clone(), set).await;
        line.cut(Call::Complete, true);
        assert_eq!(front.send(Ask::under("a")).await.whole(), (200, "run 1 of a"));
        line.cut(Call::Complete, false);
        assert_eq!(front.send(Ask::under("a")).await.status, 409, "its lease goes on");
        tokio::time::sleep(Duration::from_millis(700)).await;
        assert_eq!(front.send(Ask::under("a")).await.whole(), (200, "run 2 of a"), "it was in doubt, and runs again");
    });
}

#[test]
fn answer_that_could_not_be_remembered_is_in_doubt_where_nothing_may_run_twice() {
    run(|line| async move {
        let set = |layer: ratchet::http::Idempotency| {
            let layer = layer.store_wait(Duration::from_millis(300)).lease(Duration::from_millis(400));
            layer.on_in_doubt(OnInDoubt::Refuse)
        };
        let front = Front::layer(line.clone(), set).await;
        line.cut(Call::Complete, true);
        assert_eq!(front.send(Ask::under("a")).await.whole(), (200, "run 1 of a"));
        line.cut(Call::Complete, false);
        tokio::time::sleep(Duration::from_millis(500)).await;
        let answer = front.send(Ask::under("a")).await;
        assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (409, "in-doubt"));
        assert_eq!(front.runs.count("a"), 1);
    });
}

/// While the store is away answers pile up: they take the place of requests' bodies, and no more memory.
#[test]
fn answers_that_wait_for_the_store_take_room() {
    run(|line| async move {
        let set = |layer: ratchet::http::Idempotency| {
            layer.store_wait(Duration::from_secs(3)).request_bytes_max(1_000).bodies_bytes_max(1_500)
        };
        let front = Front::layer(line.clone(), set).await;
        line.cut(Call::Complete, true);
        let (waits, ()) = tokio::join!(front.send(Ask::under("a").with("x-bytes", 1_000)), async {
            front.runs.begun("a").await;
            tokio::time::sleep(Duration::from_millis(300)).await;
            let ask = |key: &str, bytes: usize| Ask::under(key).body(vec![b'x'; bytes]);
            let refused = front.send(ask("b", 600)).await;
            assert_eq!((refused.status.as_u16(), refused.problem().as_str()), (503, "too-many"));
            line.cut(Call::Complete, false);
            front.until(ask("b", 600), |answer| answer.status == 200).await;
        });
        assert_eq!((waits.status.as_u16(), waits.body.len()), (200, 1_000));
        let again = front.send(Ask::under("a").with("x-bytes", 1_000)).await;
        assert_eq!((again.whole(), again.is_replayed()), (waits.whole(), true));
    });
}

/// The answer was remembered, and nobody was told: it is tried again, and is the same change.
#[test]
fn completion_whose_answer_was_lost_is_one() {
    run(|line| async move {
        let front = Front::layer(line.clone(), |layer| layer.store_wait(Duration::from_millis(300))).await;
        line.arrives.store(true, Ordering::Relaxed);
        line.cut(Call::Complete, true);
        let first = front.send(Ask::under("a")).await;
        let again = front.send(Ask::under("a")).await;
        assert_eq!((again.whole(), again.is_replayed()), (first.whole(), true));
    });
}

/// Found nowhere: a zombie completes after it was taken over: refused, and its client gets its heir's answer.
#[test]
fn holder_that_was_taken_over_gives_its_heirs_answer() {
    run(|line| async move {
        let set =
            |layer: ratchet::http::Idempotency| layer.lease(Duration::from_millis(300)).wait(Duration::from_secs(30));
        let front = Front::layer(line.clone(), set).await;
        // It is not heard of any more, as if it were frozen.
        line.cut(Call::Extend, true);
        let ask = || Ask::under("a").with("x-first-delay-ms", 1_500).with("x-delay-ms", 50);
        let (zombie, heir) = tokio::join!(front.send(ask()), async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            front.send(ask()).await
        });
        assert_eq!((heir.whole(), heir.is_replayed()), ((200, "run 2 of a"), false));
        assert_eq!((zombie.whole(), zombie.is_replayed()), ((200, "run 2 of a"), true));
        assert_eq!(front.send(ask()).await.whole(), (200, "run 2 of a"));
        assert_eq!(front.runs.count("a"), 2, "which is why a lease is longer than anything may be silent");
    });
}

/// The same where nothing may run twice: its heir is refused, and the late answer counts.
#[test]
fn holder_that_was_silent_still_answers_where_nobody_may_take_over() {
    run(|line| async move {
        let set =
            |layer: ratchet::http::Idempotency| layer.lease(Duration::from_millis(300)).on_in_doubt(OnInDoubt::Refuse);
        let front = Front::layer(line.clone(), set).await;
        line.cut(Call::Extend, true);
        let ask = || Ask::under("a").with("x-delay-ms", 1_500);
        let (late, during) = tokio::join!(front.send(ask()), async {
            tokio::time::sleep(Duration::from_millis(600)).await;
            front.send(ask()).await
        });
        assert_eq!((during.status.as_u16(), during.problem().as_str()), (409, "in-doubt"));
        assert_eq!(late.whole(), (200, "run 1 of a"));
        assert!(front.send(ask()).await.is_replayed());
    });
}

/// A request that could not be released is carried out when its lease is over.
#[test]
fn release_that_fails_ends_with_the_lease() {
    run(|line| async move {
        let front = Front::layer(line.clone(), |layer| layer.lease(Duration::from_millis(400))).await;
        line.cut(Call::Release, true);
        let ask = || Ask::under("a").with("x-status", "500 200");
        assert_eq!(front.send(ask()).await.status, 500);
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(front.send(ask()).await.whole(), (200, "run 2 of a"));
    });
}

/// The store was away for a moment: nobody has to wait for the end of the lease.
#[test]
fn release_that_fails_is_tried_again() {
    run(|line| async move {
        let front = Front::layer(line.clone(), |layer| layer.lease(Duration::from_secs(600))).await;
        line.cut(Call::Release, true);
        let ask = || Ask::under("a").with("x-status", "500 200");
        assert_eq!(front.send(ask()).await.status, 500);
        assert_eq!(front.send(ask()).await.problem(), "in-progress");
        line.cut(Call::Release, false);
        let again = front.until(ask(), |answer| answer.status != 409).await;
        assert_eq!(again.whole(), (200, "run 2 of a"));
    });
}

/// Found by a seed: a reservation whose answer comes after its lease may be another's by now, who is done.
#[test]
fn reservation_that_comes_too_late_is_not_used() {
    run(|line| async move {
        let front = Front::layer(line.clone(), |layer| layer.lease(Duration::from_millis(400))).await;
        line.late_ms.store(1_500, Ordering::Relaxed);
        let (late, heir) = tokio::join!(front.send(Ask::under("a")), async {
            tokio::time::sleep(Duration::from_millis(700)).await;
            front.send(Ask::under("a")).await
        });
        assert_eq!((heir.whole(), heir.is_replayed()), ((200, "run 1 of a"), false));
        assert_eq!((late.whole(), late.is_replayed()), ((200, "run 1 of a"), true));
        assert_eq!(front.runs.count("a"), 1);
        line.late_ms.store(1_500, Ordering::Relaxed);
        assert_eq!(front.send(Ask::under("b")).await.whole(), (200, "run 1 of b"), "nobody has taken it over");
    });
}

/// A store that is slower than any lease is as good as down: nobody waits for it without end.
#[test]
fn store_that_is_always_too_late_is_down() {
    run(|line| async move {
        let front = Front::layer(line.clone(), |layer| layer.lease(Duration::from_millis(400))).await;
        line.late_ms.store(300, Ordering::Relaxed);
        line.is_always_late.store(true, Ordering::Relaxed);
        let answer = tokio::time::timeout(Duration::from_secs(20), front.send(Ask::under("a"))).await.expect("an end");
        assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (503, "store-down"));
        assert_eq!(front.runs.count("a"), 0);
    });
}
