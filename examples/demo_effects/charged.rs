//! Orders that a payment provider charges once each, though it answers late, fails and dies mid-call, and ratchet is
//! killed mid-call, too. Then all orders come again.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::Outcome;
use super::provider::{Counts, Provider, receipt};
use super::site::{Job, Operator, POLL_INTERVAL, STEP_TIME_MAX, Site};

const JOB: Job = Job {
    name: "charge-orders",
    topology: include_str!("../../topologies/charge-orders.yaml"),
    topic: "orders",
    batch: 1_000,
    example: None,
};
/// How the provider's address ends.
const CHARGES: &str = "charges";
const RESULTS: &str = "charges.done";
const LETTERS: &str = "charge-orders.dead_letter";
const ORDERS: u64 = 1_000;
/// How many orders are charged when the provider dies, and for how long it is gone.
const DIES_AFTER: usize = 300;
const DEAD_FOR: Duration = Duration::from_secs(1);
/// How many orders are charged when ratchet is killed.
const KILLED_AFTER: usize = 700;

/// Tells it; an error if anybody was charged twice, or not at all.
pub fn tell() -> Outcome<()> {
    let started = Instant::now();
    let mut provider = Provider::start()?;
    let site = Site::make(&JOB)?;
    let url = format!("http://127.0.0.1:{}", provider.port);
    let env = [("PAYMENTS_URL", url.as_str())];
    println!("A topic of {ORDERS} orders. The job has a payment provider charge each of them.");
    let orders: Vec<_> = (1..=ORDERS).map(order).collect();
    site.append(&orders)?;

    println!("\n1  The provider is slow, fails, and loses answers; then it dies mid-call");
    let mut operator = site.run(None, &[], &env)?;
    await_charges(DIES_AFTER, &provider, &mut operator, &site)?;
    let unanswered = provider.die();
    let (charged, failures, lost) = {
        let books = provider.books();
        (books.done(CHARGES).len(), books.failures, books.lost)
    };
    println!("   its books: {charged} orders charged, {failures} requests failed (500), {lost} answers lost");
    println!("   it dies with {unanswered} requests under way, and is back after {} s", DEAD_FOR.as_secs());
    std::thread::sleep(DEAD_FOR);
    provider.rise()?;

    println!("\n2  The job is killed (SIGKILL) mid-call");
    await_charges(KILLED_AFTER, &provider, &mut operator, &site)?;
    drop(operator);
    let (charged, known) = (provider.books().done(CHARGES).len(), site.records(RESULTS)?.len());
    println!(
        "   the provider: {charged} orders charged. Kafka: {known} results, so {} are unknown to it",
        charged - known
    );
    site.remove_state()?;
    println!("   its state folder is removed");

    println!("\n3  All orders are sent again: nobody answered their clients. The job is started again");
    site.append(&orders)?;
    site.run(None, &["--until-drained"], &env)?.end(&site)?;
    let results = site.records(RESULTS)?;
    let letters = site.records(LETTERS)?.len();
    println!("   {} records, {} results, {letters} dead letters", 2 * ORDERS, results.len());

    println!("\n4  Was anybody charged twice?");
    let books = provider.books();
    println!("   {} requests; orders by how often they were charged:", books.requests);
    for (times, count) in by_times(&books.done(CHARGES), ORDERS) {
        println!("   {count:>5} charged {}", said(times));
    }
    let judged = judge(&books.done(CHARGES)).and_then(|()| judge_results(&results, letters));
    judged.map_err(|wrong| format!("{wrong}, see {}", site.keep_log().unwrap_or_default().display()))?;
    println!("   each has two results, for itself and for its repetition: what the provider answered");
    println!("\nEach order once. {:.1} s in all.", started.elapsed().as_secs_f64());
    Ok(())
}

/// An order: its record's key and value.
fn order(number: u64) -> (String, String) {
    (number.to_string(), format!(r#"{{"order_id":{number},"operation":"charge","amount":{}}}"#, number % 9_900 + 100))
}

/// Waits until so many orders are charged, and calls are under way, as long as the operator runs.
fn await_charges(count: usize, provider: &Provider, operator: &mut Operator, site: &Site) -> Outcome<()> {
    let deadline = Instant::now() + STEP_TIME_MAX;
    while provider.books().done(CHARGES).len() < count || provider.books().unanswered == 0 {
        if Instant::now() > deadline || !operator.is_running()? {
            return Err(format!("the operator did not make its calls, see {}", site.keep_log()?.display()).into());
        }
        std::thread::sleep(POLL_INTERVAL / 10);
    }
    Ok(())
}

/// How many of the numbers from 1 to `most` were done how often; those that were not are there, too.
pub fn by_times(done: &Counts, most: u64) -> BTreeMap<u32, usize> {
    let mut counts = BTreeMap::from([(1, 0)]);
    for number in 1..=most {
        *counts.entry(done.get(&number).copied().unwrap_or_default()).or_default() += 1;
    }
    counts
}

pub fn said(times: u32) -> String {
    match times {
        0 => "not at all".to_owned(),
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        times => format!("{times} times"),
    }
}

/// Whether each order, and nothing else, was charged once; else what is wrong.
fn judge(charges: &Counts) -> Result<(), String> {
    let wrong = (1..=ORDERS).find(|order| charges.get(order) != Some(&1));
    match wrong {
        Some(order) => Err(format!("order {order} was charged {}", said(charges.get(&order).copied().unwrap_or(0)))),
        None if charges.len() as u64 != ORDERS => Err("something was charged that nobody has ordered".to_owned()),
        None => Ok(()),
    }
}

/// Whether each order has what the provider answered, twice; else what is wrong.
fn judge_results(results: &[(String, String)], letters: usize) -> Result<(), String> {
    let mut of_order: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (order, result) in results {
        of_order.entry(order).or_default().push(result);
    }
    for order in 1..=ORDERS {
        let (found, expected) =
            (of_order.remove(order.to_string().as_str()).unwrap_or_default(), receipt(CHARGES, order));
        if found != [expected.as_str(); 2] {
            return Err(format!("the results of order {order} are {found:?}"));
        }
    }
    if letters > 0 || !of_order.is_empty() {
        return Err(format!("there are {letters} dead letters, and results of {} other orders", of_order.len()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    //! Goal: the demo tells its story with the real program, and fails if an order is not charged exactly once.

    use super::*;

    #[test]
    fn each_order_is_charged_once() {
        tell().unwrap();
    }

    #[test]
    fn charge_too_many_and_one_too_few_are_seen() {
        let charges: Counts = (1..=ORDERS).map(|order| (order, 1)).collect();
        assert_eq!(judge(&charges), Ok(()));
        let changed = |order, times| charges.iter().map(|(o, t)| (*o, if *o == order { times } else { *t })).collect();
        assert_eq!(judge(&changed(7, 2)).unwrap_err(), "order 7 was charged twice");
        assert_eq!(judge(&changed(ORDERS, 3)).unwrap_err(), format!("order {ORDERS} was charged 3 times"));
        let without: Counts = charges.clone().into_iter().filter(|(order, _)| *order != 5).collect();
        assert_eq!(judge(&without).unwrap_err(), "order 5 was charged not at all");
        assert_eq!(by_times(&without, ORDERS), BTreeMap::from([(0, 1), (1, 999)]));
        let more: Counts = charges.into_iter().chain([(ORDERS + 1, 1)]).collect();
        assert!(judge(&more).unwrap_err().contains("nobody has ordered"));
    }

    #[test]
    fn result_that_is_missing_or_another_one_is_seen() {
        let results: Vec<_> =
            (1..=ORDERS).flat_map(|order| [(); 2].map(|()| (order.to_string(), receipt(CHARGES, order)))).collect();
        assert_eq!(judge_results(&results, 0), Ok(()));
        assert!(judge_results(&results, 1).is_err() && judge_results(&results[1..], 0).is_err());
        let mut other = results.clone();
        other[4].1 = receipt(CHARGES, 9);
        assert!(judge_results(&other, 0).unwrap_err().contains("order 3"));
    }
}
