//! Goal: whatever happens to instances and provider, at random and under load, each identity acts once, and each record
//! has one end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use crate::calls::payments::{KEYED, Payments, charge};
use crate::job::SESSION_TIMEOUT;
use crate::operator::Operator;
use crate::provider::{Move, Provider};
use crate::random::Random;

/// A kill is followed by the session timeout, the transaction timeout and a restore.
const RECOVERY: Duration = Duration::from_secs(120);
const PARTITIONS: u64 = 4;
/// How many records come in a second.
const PER_SECOND: u64 = 300;
/// For how long there is trouble, where nobody says otherwise.
const SLICE: Duration = Duration::from_secs(12);

/// Records that come in the background: every third one a duplicate of an earlier one.
struct Feed {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Feed {
    fn start(payments: &Payments, mut random: Random) -> Feed {
        let stop = Arc::new(AtomicBool::new(false));
        let writer = payments.job.kafka.writer_with(&[("linger.ms", "20")]);
        let (input, stopped) = (payments.job.input.clone(), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let (start, mut written, mut ids) = (Instant::now(), 0, 0);
            while !stopped.load(Ordering::Relaxed) {
                while written < start.elapsed().as_millis() as u64 * PER_SECOND / 1000 {
                    let is_known = ids > 0 && random.once_in(3);
                    // Mostly one that is still under way.
                    let back =
                        if random.once_in(4) { random.below(ids.max(1)) } else { random.below(ids.clamp(1, 50)) };
                    let id = if is_known { ids - 1 - back } else { ids };
                    ids += u64::from(!is_known);
                    writer.send(&input, &charge((id % PARTITIONS) as i32, &format!("order-{id}")));
                    written += 1;
                }
                writer.poll();
                sleep(Duration::from_millis(10));
            }
            writer.flush();
            written
        });
        Feed { stop, thread }
    }

    fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the feed writes")
    }
}

/// What the provider does with some of the next requests. Each record meets it once at most, on average.
fn trouble(random: &mut Random) -> Move {
    let late = random.duration(Duration::ZERO, Duration::from_millis(400));
    match random.below(9) {
        0 => Move::answer(500),
        1 => Move::answer(503).header("retry-after", "1"),
        2 => Move::answer(429).header("retry-after", "1"),
        3 => Move::reset(),
        4 => Move::close(),
        5 => Move::receipt().unheard(),
        6 => Move::receipt().slow(late),
        7 => Move::silence(),
        _ => Move::receipt().late(Duration::from_secs(3)),
    }
}

fn trouble_provider(random: &mut Random, provider: &mut Provider) -> &'static str {
    match random.below(4) {
        0 => {
            provider.kill();
            sleep(random.duration(Duration::from_millis(100), Duration::from_secs(3)));
            provider.restart();
            "dead"
        }
        1 => {
            provider.always(Move::receipt().late(random.duration(Duration::ZERO, Duration::from_millis(300))));
            "slow"
        }
        2 => {
            let moves: Vec<Move> = (0..12).map(|_| trouble(random)).collect();
            provider.next(moves);
            "failing"
        }
        _ => {
            provider.always(Move::receipt());
            "well"
        }
    }
}

fn trouble_instances(random: &mut Random, payments: &Payments, operators: &mut [Operator; 2]) -> &'static str {
    let labels = ["a", "b"];
    let victim = random.below(2) as usize;
    match random.below(5) {
        0 => {
            operators[victim].kill();
            operators[victim] = Operator::start(&payments.job, labels[victim]);
            "killed"
        }
        1 => {
            operators[victim].kill_and_wipe();
            operators[victim] = Operator::start(&payments.job, labels[victim]);
            "killed and wiped"
        }
        2 => {
            operators[victim].freeze();
            sleep(SESSION_TIMEOUT + random.duration(Duration::ZERO, Duration::from_secs(4)));
            operators[victim].thaw();
            "frozen"
        }
        3 => {
            operators[victim].stop();
            operators[victim] = Operator::start(&payments.job, labels[victim]);
            "stopped"
        }
        _ => "well",
    }
}

fn play(theme: &str, lines: &[&str]) {
    let duration = crate::calls::seconds().map_or(SLICE, Duration::from_secs);
    let mut random = Random::seeded(theme);
    let mut payments = Payments::new(theme, PARTITIONS as i32, lines).answering_duplicates();
    let feed = Feed::start(&payments, random.clone());
    let mut operators = ["a", "b"].map(|label| Operator::start(&payments.job, label));
    payments.job.await_progress(&[0; PARTITIONS as usize], RECOVERY);
    let since = Instant::now();
    let mut met = Vec::new();
    while since.elapsed() < duration {
        met.push(trouble_provider(&mut random, &mut payments.provider));
        sleep(random.duration(Duration::ZERO, Duration::from_millis(700)));
        met.push(trouble_instances(&mut random, &payments, &mut operators));
        sleep(random.duration(Duration::ZERO, Duration::from_millis(1500)));
    }
    let written = feed.stop();
    payments.provider.always(Move::receipt());
    operators.iter_mut().for_each(Operator::assert_running);
    let found = payments.found(RECOVERY);
    let (requests, acts) = (payments.provider.requests(), found.acts.len());
    println!("{theme}: {written} records, {acts} acts, {requests} requests, {met:?}");
    assert!(requests > acts, "no call was made again");
    found.assert_each_acted_once(true);
    operators.iter_mut().for_each(Operator::stop);
}

/// A key that is under way is asked for five times: without jitter that lasts longer than a slow request.
const RETRY: &str = "retry: {first: 200ms, max: 500ms, jitter: none}";

#[test]
fn each_identity_acts_once_whatever_happens() {
    play("random", &[KEYED, RETRY, "timeout: 1s"]);
}

#[test]
fn each_identity_acts_once_whatever_happens_if_all_is_reserved() {
    play("random-reserved", &[KEYED, RETRY, "timeout: 1s", "reserve: always"]);
}
