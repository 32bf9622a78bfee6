//! Payments of three steps each, by the example `payment`, which is killed mid-call: every payment goes on after the
//! steps that are remembered. Then all payments come again.

use std::collections::BTreeMap;
use std::time::Instant;

use super::Outcome;
use super::charged::{by_times, said};
use super::provider::{Books, Counts, Provider, receipt};
use super::site::{Job, Operator, POLL_INTERVAL, STEP_TIME_MAX, Site};

const JOB: Job = Job {
    name: "payments",
    topology: include_str!("../payment/payments.yaml"),
    topic: "payments",
    batch: 1_000,
    example: Some("payment"),
};
const RESULTS: &str = "payments.done";
const LETTERS: &str = "payments.dead_letter";
const STEPS: [&str; 3] = ["authorise", "capture", "receipt"];
const PAYMENTS: u64 = 300;
/// How many payments have their receipt when the program is killed.
const KILLED_AFTER: usize = 100;

/// Tells it; an error if a step was done twice, or not at all, or one that was remembered was asked for again.
pub fn tell() -> Outcome<()> {
    let started = Instant::now();
    let provider = Provider::start()?;
    let site = Site::make(&JOB)?;
    let url = format!("http://127.0.0.1:{}", provider.port);
    let env = [("PAYMENTS_URL", url.as_str())];
    println!(
        "A topic of {PAYMENTS} payments. The program `payment` authorises and captures each, and sends a receipt:"
    );
    println!("three calls, each a step. The provider is slow, fails, and loses answers.");
    let payments: Vec<_> = (1..=PAYMENTS).map(payment).collect();
    site.append(&payments)?;

    println!("\n1  The program is killed (SIGKILL) mid-call");
    let mut operator = site.run(None, &[], &env)?;
    await_receipts(&provider, &mut operator, &site)?;
    drop(operator);
    await_silence(&provider)?;
    let before = Before::read(&provider.books());
    let [authorised, captured, receipts] = before.done.each_ref().map(Counts::len);
    println!("   the provider: {authorised} authorised, {captured} captured, {receipts} with a receipt");
    println!("   Kafka: {} results", site.records(RESULTS)?.len());
    site.remove_state()?;
    println!("   its state folder is removed");

    println!("\n2  All payments are sent again: nobody answered their clients. The program is started again");
    site.append(&payments)?;
    site.run(None, &["--until-drained"], &env)?.end(&site)?;
    let again = before.asked_again(&provider.books());
    let (results, letters) = (site.records(RESULTS)?, site.records(LETTERS)?.len());
    println!(
        "   of the {} steps that were done, {} were asked for again, under the same keys: those that it was at",
        authorised + captured + receipts,
        again.values().sum::<usize>()
    );
    println!("   {} records, {} results, {letters} dead letters", 2 * PAYMENTS, results.len());

    println!("\n3  Was anything done twice?");
    let done = STEPS.map(|step| provider.books().done(step));
    for (step, done) in STEPS.iter().zip(&done) {
        for (times, count) in by_times(done, PAYMENTS) {
            println!("   {step:<9} {count:>4} {}", said(times));
        }
    }
    let judged = judge(&done, &again).and_then(|()| judge_results(&results, letters));
    judged.map_err(|wrong| format!("{wrong}, see {}", site.keep_log().unwrap_or_default().display()))?;
    println!("   each payment has two results, for itself and for its repetition: what its steps gave");
    println!("\nEach step once. {:.1} s in all.", started.elapsed().as_secs_f64());
    Ok(())
}

/// A payment: its record's key and value.
fn payment(number: u64) -> (String, String) {
    let id = format!("p-{number}");
    let value = format!(r#"{{"id":"{id}","amount":{}}}"#, number % 9_900 + 100);
    (id, value)
}

/// Waits until enough payments have their receipt, and calls are under way, as long as the program runs.
fn await_receipts(provider: &Provider, operator: &mut Operator, site: &Site) -> Outcome<()> {
    let deadline = Instant::now() + STEP_TIME_MAX;
    let is_there = |books: &Books| books.done(STEPS[2]).len() >= KILLED_AFTER && books.unanswered > 0;
    while !is_there(&provider.books()) {
        if Instant::now() > deadline || !operator.is_running()? {
            return Err(format!("the program did not take its steps, see {}", site.keep_log()?.display()).into());
        }
        std::thread::sleep(POLL_INTERVAL / 10);
    }
    Ok(())
}

/// Waits until the provider has done with what the killed program has asked for.
fn await_silence(provider: &Provider) -> Outcome<()> {
    let deadline = Instant::now() + STEP_TIME_MAX;
    let (mut requests, mut since) = (provider.books().requests, Instant::now());
    while provider.books().unanswered > 0 || since.elapsed() < 5 * POLL_INTERVAL {
        if Instant::now() > deadline {
            return Err("the provider is asked for more, and nobody is there to ask".into());
        }
        std::thread::sleep(POLL_INTERVAL / 10);
        let now = provider.books().requests;
        if std::mem::replace(&mut requests, now) != now {
            since = Instant::now();
        }
    }
    Ok(())
}

/// What the provider had done when the program was killed, and how often it had been asked for that.
struct Before {
    done: [Counts; 3],
    asked: [Counts; 3],
}

impl Before {
    fn read(books: &Books) -> Self {
        let done = STEPS.map(|step| books.done(step));
        let asked = |step| (1..=PAYMENTS).map(|number| (number, books.asked(step, number))).collect();
        Self { done, asked: STEPS.map(asked) }
    }

    /// Of each payment, how many steps that were done have been asked for since; those of which none was are left out.
    fn asked_again(&self, books: &Books) -> BTreeMap<u64, usize> {
        let mut again = BTreeMap::new();
        for (step, (done, asked)) in STEPS.iter().zip(self.done.iter().zip(&self.asked)) {
            for number in done.keys().filter(|number| books.asked(step, **number) > asked[number]) {
                *again.entry(*number).or_default() += 1;
            }
        }
        again
    }
}

/// Whether each step of each payment, and nothing else, was done once, and no payment has begun again before the step that
/// it was at; else what is wrong.
fn judge(done: &[Counts; 3], again: &BTreeMap<u64, usize>) -> Result<(), String> {
    for (step, done) in STEPS.iter().zip(done) {
        let times = |number| done.get(&number).copied().unwrap_or_default();
        if let Some(number) = (1..=PAYMENTS).find(|number| times(*number) != 1) {
            return Err(format!("the step {step} of p-{number} was done {}", said(times(number))));
        }
        if done.len() as u64 != PAYMENTS {
            return Err(format!("the step {step} was done for a payment that nobody has sent"));
        }
    }
    match again.iter().find(|(_, steps)| **steps > 1) {
        Some((number, steps)) => Err(format!("{steps} steps of p-{number} that were done were asked for again")),
        None => Ok(()),
    }
}

/// Whether each payment has what its steps gave, twice; else what is wrong.
fn judge_results(results: &[(String, String)], letters: usize) -> Result<(), String> {
    let mut of_payment: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (payment, result) in results {
        of_payment.entry(payment).or_default().push(result);
    }
    for number in 1..=PAYMENTS {
        let id = format!("p-{number}");
        let [authorisation, capture, receipt] = STEPS.map(|step| receipt(step, number));
        let paid = serde_json::json!({"authorisation": authorisation, "capture": capture, "receipt": receipt});
        let (found, paid) = (of_payment.remove(id.as_str()).unwrap_or_default(), paid.to_string());
        if found != [paid.as_str(); 2] {
            return Err(format!("the results of {id} are {found:?}"));
        }
    }
    if letters > 0 || !of_payment.is_empty() {
        return Err(format!("there are {letters} dead letters, and results of {} other payments", of_payment.len()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    //! Goal: the demo tells its story with the real program, and fails if a step is not done exactly once.

    use super::*;

    #[test]
    fn each_step_is_done_once() {
        tell().unwrap();
    }

    #[test]
    fn step_that_is_done_twice_or_asked_for_too_often_is_seen() {
        let once: Counts = (1..=PAYMENTS).map(|number| (number, 1)).collect();
        let all = || [once.clone(), once.clone(), once.clone()];
        let at_one = BTreeMap::from([(4, 1), (9, 1)]);
        assert_eq!(judge(&all(), &at_one), Ok(()));
        let mut twice = all();
        twice[1].insert(7, 2);
        assert_eq!(judge(&twice, &at_one).unwrap_err(), "the step capture of p-7 was done twice");
        let mut without = all();
        without[2].remove(&5);
        assert_eq!(judge(&without, &at_one).unwrap_err(), "the step receipt of p-5 was done not at all");
        let mut more = all();
        more[0].insert(PAYMENTS + 1, 1);
        assert!(judge(&more, &at_one).unwrap_err().contains("nobody has sent"));
        let from_the_beginning = judge(&all(), &BTreeMap::from([(4, 2)])).unwrap_err();
        assert_eq!(from_the_beginning, "2 steps of p-4 that were done were asked for again");
    }
}
