//! Goal: what a topology causes in a database is what one undisturbed pass over its input would have caused.

use std::time::Duration;

use crate::checker::Fate;
use crate::cluster::Fresh;
use crate::load::{Load, Random, now_ms, thing};
use crate::operator::Operator;
use crate::shop::Shop;
use crate::until::{DEADLINE, within};

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

#[test]
fn database_that_is_down_holds_the_work_and_loses_none() {
    let shop = Shop::new("no-table", 1);
    shop.database.run("alter table applied rename to elsewhere");
    shop.job.send((0..20).map(|id| thing(0, &format!("order-{id}"), 1)));
    let mut operator = Operator::start(&shop.job, "a");
    operator.await_error(&["applied", "trying again"]);
    within(DEADLINE, "the metric to say that the sink holds", || {
        (operator.metric("ratchet_sink_held", &[]) > 0.0).then_some(())
    });
    shop.database.run("alter table elsewhere rename to applied");
    let found = shop.check(Duration::from_secs(60));
    assert_eq!(found.count(Fate::Forwarded), 20);
    assert_eq!(operator.metric("ratchet_sink_held", &[]), 0.0);
    operator.stop();
}
