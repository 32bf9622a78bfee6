//! Goal: a provider that is down costs nothing but time: no record, no dead letter, no noise, no processor.

use std::fs;
use std::time::{Duration, Instant};

use crate::calls::payments::{KEYED, Payments, charges};
use crate::operator::Operator;
use crate::provider::Move;
use crate::until::{DEADLINE, within};

#[test]
fn provider_that_is_down_costs_nothing_but_time() {
    let mut payments = Payments::new("down", 2, &[KEYED]);
    payments.provider.always(Move::receipt().late(Duration::from_millis(20)));
    payments.job.send(charges(0, 0..30));
    let mut operator = Operator::start(&payments.job, "a");
    within(DEADLINE, "calls", || (payments.provider.requests() > 10).then_some(()));
    payments.provider.kill();
    (0..2).for_each(|partition| payments.job.send(charges(partition, 30..700)));
    operator.await_line(&["no call gets through"], DEADLINE);
    let lines = operator.log().len();
    let (since, before) = (Instant::now(), processor_time(operator.pid()));
    std::thread::sleep(Duration::from_secs(6));
    let used = processor_time(operator.pid()) - before;
    let share = used.as_secs_f64() / since.elapsed().as_secs_f64();
    let more = operator.log().len() - lines;
    println!("{share:.3} of a processor and {more} lines while it is down");
    assert!(share < 0.15, "{share:.3} of a processor");
    assert!(more <= 6, "{more} lines: {}", operator.tail());
    assert!(payments.letters().is_empty());
    payments.provider.restart();
    payments.found(DEADLINE).assert_each_acted_once(false);
    operator.await_line(&["the provider works again"], DEADLINE);
    let said = |words: &str| operator.log().iter().filter(|line| line.to_string().contains(words)).count();
    // Once when calls under way were lost, once when nothing listened any more.
    assert!(said("no call gets through") <= 2, "{}", operator.tail());
    assert_eq!(said("the provider works again"), 1, "{}", operator.tail());
    operator.stop();
}

#[test]
fn provider_that_was_never_there_is_waited_for() {
    let mut payments = Payments::new("absent", 1, &["on_in_doubt: dead_letter"]);
    payments.provider.kill();
    payments.job.send(charges(0, 0..300));
    let mut operator = Operator::start(&payments.job, "a");
    operator.await_line(&["no call gets through"], DEADLINE);
    std::thread::sleep(Duration::from_secs(2));
    payments.provider.restart();
    payments.found(DEADLINE).assert_each_acted_once(false);
    operator.stop();
}

#[test]
fn slow_provider_costs_no_processor() {
    let payments = Payments::new("slow", 1, &[KEYED, "timeout: 20s", "in_flight: 4"]);
    payments.provider.always(Move::receipt().late(Duration::from_millis(1500)));
    payments.job.send(charges(0, 0..24));
    let mut operator = Operator::start(&payments.job, "a");
    within(DEADLINE, "calls", || (payments.provider.now() == 4).then_some(()));
    let (since, before) = (Instant::now(), processor_time(operator.pid()));
    std::thread::sleep(Duration::from_secs(5));
    let share = (processor_time(operator.pid()) - before).as_secs_f64() / since.elapsed().as_secs_f64();
    println!("{share:.3} of a processor while calls are under way");
    assert!(share < 0.2, "{share:.3} of a processor");
    payments.found(DEADLINE).assert_each_acted_once(false);
    operator.stop();
}

/// What a process has used of the processors.
fn processor_time(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let (_, fields) = stat.rsplit_once(')').expect("the kernel writes it");
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks: u64 = [11, 12].iter().map(|at: &usize| fields[*at].parse::<u64>().expect("a number")).sum();
    // SAFETY: it takes and returns plain numbers.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as u64;
    Duration::from_millis(ticks * 1000 / per_second)
}
