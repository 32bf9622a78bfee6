//! Goal: ratchet makes calls about as fast as a program that makes the same calls with the same window and remembers
//! nothing.
//!
//! It measures, and prints: `cargo test --release --locked --test calls -- --ignored --nocapture speed::`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;

use crate::load::now_ms;
use crate::operator::Operator;
use crate::payments::{KEYED, Payments, charge, charges};
use crate::provider::{Move, Provider};
use crate::until::{DEADLINE, within};

const IN_FLIGHT: usize = 64;
const ROUNDS: usize = 3;

/// Makes so many calls by hyper, `IN_FLIGHT` at once, each on its connection. Returns calls a second.
fn plain(latency: Duration, count: usize) -> f64 {
    let provider = Provider::start();
    provider.always(Move::receipt().late(latency));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (port, next) = (provider.port, Arc::new(AtomicUsize::new(0)));
    runtime.block_on(tokio::task::LocalSet::new().run_until(async {
        let workers: Vec<_> = (0..IN_FLIGHT)
            .map(|_| {
                let next = Arc::clone(&next);
                tokio::task::spawn_local(async move {
                    let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.expect("it listens");
                    stream.set_nodelay(true).expect("a socket");
                    let begun = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
                    let (mut sender, connection) = begun.expect("HTTP");
                    tokio::task::spawn_local(connection);
                    while next.fetch_add(1, Ordering::Relaxed) < count {
                        let id = next.load(Ordering::Relaxed).wrapping_mul(64) ^ port as usize;
                        let request = hyper::Request::post(format!("/charges/order-{id}"))
                            .header("host", "localhost")
                            .header("content-type", "application/json")
                            .header("idempotency-key", format!("{:064x}", rand::random::<u128>()))
                            .body(Full::new(Bytes::from(format!("{{\"id\":\"order-{id}\",\"amount\":42}}"))))
                            .expect("a request");
                        sender.ready().await.expect("a connection");
                        let answer = sender.send_request(request).await.expect("an answer");
                        assert_eq!(answer.status(), 201);
                        answer.into_body().collect().await.expect("a body");
                    }
                })
            })
            .collect();
        for worker in workers {
            worker.await.expect("a worker");
        }
    }));
    per_second(&provider, count, Instant::now())
}

fn per_second(provider: &Provider, count: usize, end: Instant) -> f64 {
    let seen = provider.seen();
    assert_eq!(seen.len(), count);
    count as f64 / (end - seen[0].at).as_secs_f64()
}

/// The same calls made by ratchet, from records that are there; until the last one is settled.
fn ratchet(latency: Duration, count: usize, lines: &[&str]) -> f64 {
    let payments = Payments::new("speed", 1, &[&["in_flight: 64"], lines].concat());
    payments.provider.always(Move::receipt().late(latency));
    payments.job.send(charges(0, 0..count));
    let mut operator = Operator::start(&payments.job, "a");
    within(4 * DEADLINE, "all to be settled", || (payments.job.committed()[0] >= count as i64).then_some(()));
    let end = Instant::now();
    let commits = operator.metric("ratchet_commit_duration_seconds_count", &[]);
    let took_ms = operator.metric("ratchet_commit_duration_seconds_sum", &[]) * 1000.0;
    println!("{commits} commits of {:.1} ms, {count} calls", took_ms / commits);
    operator.stop();
    per_second(&payments.provider, count, end)
}

#[test]
#[ignore = "measures, and takes minutes"]
fn effects_a_second_beside_the_same_window_without_ratchet() {
    for (latency_ms, count) in [(1, 20_000), (20, 10_000)] {
        let latency = Duration::from_millis(latency_ms);
        for round in 0..ROUNDS {
            let without = plain(latency, count);
            let auto = ratchet(latency, count, &[KEYED]);
            let always = ratchet(latency, count, &[KEYED, "reserve: always"]);
            println!(
                "{latency_ms} ms, round {round}: {without:.0}/s without, auto {auto:.0}/s ({:.2}), always {always:.0}/s ({:.2}); load {}",
                auto / without,
                always / without,
                std::fs::read_to_string("/proc/loadavg").expect("it is there").trim()
            );
            assert!(auto > 0.0 && always > 0.0);
        }
    }
}

#[test]
#[ignore = "measures, and takes minutes"]
fn from_input_to_result_at_a_thousand_a_second() {
    const SECONDS: u64 = 15;
    for (latency_ms, lines) in [(1, &[KEYED][..]), (20, &[KEYED]), (20, &[KEYED, "reserve: always"])] {
        let payments = Payments::new("latency", 1, lines);
        payments.provider.always(Move::receipt().late(Duration::from_millis(latency_ms)));
        let mut operator = Operator::start(&payments.job, "a");
        operator.await_ready(DEADLINE);
        let mut results = payments.job.kafka.follow(&payments.job.output);
        let writer = payments.job.kafka.writer_with(&[("linger.ms", "1")]);
        let (start, mut written, mut took) = (Instant::now(), 0, Vec::new());
        let all = SECONDS * 1000;
        while (took.len() as u64) < all {
            assert!(start.elapsed() < 4 * DEADLINE, "{} of {all} results", took.len());
            while written < (start.elapsed().as_millis() as u64).min(all) {
                writer.send(&payments.job.input, &charge(0, &format!("order-{written}")));
                written += 1;
            }
            writer.poll();
            let now = now_ms();
            took.extend(results.look().iter().map(|result| now - result.timestamp.expect("a timestamp")));
            std::thread::sleep(Duration::from_micros(500));
        }
        let commits = operator.metric("ratchet_commit_duration_seconds_count", &[]);
        let commit_ms = operator.metric("ratchet_commit_duration_seconds_sum", &[]) * 1000.0 / commits;
        // The first seconds warm up.
        let mut took = took.split_off(3000);
        took.sort_unstable();
        let at = |permille: usize| took[(took.len() - 1) * permille / 1000];
        println!(
            "{latency_ms} ms, {lines:?}: p50 {} ms, p99 {} ms, p99.9 {} ms, commits of {commit_ms:.1} ms; load {}",
            at(500),
            at(990),
            at(999),
            std::fs::read_to_string("/proc/loadavg").expect("it is there").trim()
        );
        assert!(at(990) > 0);
        operator.stop();
    }
}
