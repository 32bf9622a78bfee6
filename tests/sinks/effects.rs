//! Goal: what a topology causes in a database is what one undisturbed pass over its input would have caused.

use std::collections::HashSet;
use std::time::Duration;

use crate::checker::Fate;
use crate::cluster::Fresh;
use crate::load::{Load, Random, now_ms, thing};
use crate::operator::Operator;
use crate::sinks::shop::Shop;
use crate::until::DEADLINE;

#[test]
fn record_that_comes_three_times_has_one_effect() {
    let shop = Shop::new("thrice", 1);
    shop.job.send((0..3).flat_map(|_| (0..50).map(|id| thing(0, &format!("order-{id}"), 1))));
    let mut operator = Operator::start(&shop.job, "a");
    let found = shop.check(DEADLINE);
    assert_eq!((found.count(Fate::Forwarded), found.count(Fate::Duplicate)), (50, 100));
    operator.stop();
}

#[test]
fn random_load_is_applied_in_order_and_what_is_refused_is_set_aside_alone() {
    let shop = Shop::new("load", 3);
    let mut load = Load::new(Random::seeded("sink load"), 3, 400);
    shop.job.send(load.records(4000));
    let mut operator = Operator::start(&shop.job, "a");
    let found = shop.check(DEADLINE);
    found.assert_each_fate();
    assert!(operator.metric("ratchet_effects_total", &["done"]) as usize >= found.count(Fate::Forwarded));
    operator.stop();
}

#[test]
fn group_that_is_reset_brings_nothing_twice() {
    let shop = Shop::new("reset", 2);
    let mut load = Load::new(Random::seeded("sink reset"), 2, 200);
    shop.job.send(load.records(1500));
    let mut operator = Operator::start(&shop.job, "a");
    shop.check(DEADLINE);
    operator.stop();
    for (partition, offset) in [(0, 0), (1, 100)] {
        shop.job.kafka.group(&shop.job.group()).set(&shop.job.input, partition, offset, "");
    }
    // With its store, and without.
    operator.kill_and_wipe();
    let mut operator = Operator::start(&shop.job, "a");
    shop.job.send(load.records(500));
    shop.check(DEADLINE).assert_each_fate();
    operator.stop();
}

/// Not only once there is nothing left to read: a backlog, or a steady load, may last for days.
#[test]
fn expired_entries_are_removed_while_records_keep_coming() {
    let mut shop = Shop::new("sweep", 1);
    shop.job.rules.retention_ms = Some(10_000);
    let start = now_ms() - 4_000_000;
    shop.job.send((0..40_000).map(|n| thing(0, &format!("order-{n}"), 1).at(start + n * 100)));
    let mut operator = Operator::start(&shop.job, "a");
    shop.job.await_drained(Duration::from_secs(90));
    operator.stop();
    let changelog = shop.job.kafka.read(&shop.job.changelog()).remove(&0).expect("it has one partition");
    let mut seen = HashSet::new();
    let is_new: Vec<bool> = changelog.iter().map(|record| record.value.is_some() && seen.insert(&record.key)).collect();
    let last = is_new.iter().rposition(|is_new| *is_new).expect("entries were written");
    let removed = changelog[..last].iter().filter(|record| record.value.is_none()).count();
    assert!(removed > 1_000, "{removed} of {} entries were removed before the last one came", seen.len());
}

#[test]
fn record_that_was_refused_is_new_when_it_comes_again_mended() {
    let shop = Shop::new("mended", 1);
    let note =
        |note: &str| Fresh::new(0, "a", format!("{{\"id\":\"a\",\"version\":1,\"note\":\"{note}\"}}")).at(now_ms());
    shop.job.send([note("bad 33"), note("good"), note("late")]);
    let mut operator = Operator::start(&shop.job, "a");
    let found = shop.check(DEADLINE);
    assert_eq!(found.count(Fate::DeadLettered("rejected")), 1, "{found:?}");
    assert_eq!((found.count(Fate::Forwarded), found.count(Fate::Duplicate)), (1, 1), "{found:?}");
    assert_eq!(shop.database.rows("select note from applied"), ["good"]);
    operator.stop();
}
