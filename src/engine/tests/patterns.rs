//! Goal: topics that match a pattern are read, including topics that are created during the run, and no others.

use super::*;

#[test]
fn topics_are_created_and_deleted_while_the_others_continue() {
    let site = Site::new();
    site.send("shop.a", "x", &[1, 1, 2]);
    site.send("shop.a.tmp", "x", &[1]);
    let topology = topology(pattern(r"^shop\.", &[r"\.tmp$"]), "clean.{topic}");
    let running = site.start(&topology, false);
    site.await_values("clean.shop.a", 2);
    site.send("shop.b", "x", &[1, 2, 2, 1]);
    site.await_values("clean.shop.b", 2);
    site.send("shop.a", "x", &[2, 3]);
    site.await_values("clean.shop.a", 3);
    let tasks = || running.health.ready().into_iter().filter(|check| check.name.starts_with("task")).count();
    assert_eq!(tasks(), 2);
    site.cluster.delete_topic("shop.a").unwrap();
    await_condition("the deleted topic's task to be gone", || tasks() == 1);
    site.send("shop.b", "y", &[7, 7]);
    site.await_values("clean.shop.b", 3);
    running.end().unwrap();
    let topics = site.cluster.topics().unwrap();
    assert!(!topics.iter().any(|topic| topic.contains("clean.shop.a.tmp")), "{topics:?}");
    assert!(topics.iter().any(|topic| &**topic == "ratchet.shop.shop.b.changelog"), "{topics:?}");
    // The version was stored in the topic's own changelog.
    site.send("shop.b", "x", &[2]);
    site.drain(&topology).unwrap();
    site.await_values("clean.shop.b", 3);
}

#[test]
fn pattern_without_a_topic_waits_for_one() {
    let site = Site::new();
    let topology = topology(pattern(r"^shop\.", &[]), "clean.{topic}");
    site.drain(&topology).unwrap();
    let running = site.start(&topology, false);
    site.send("shop.first", "x", &[1, 1]);
    site.await_values("clean.shop.first", 1);
    running.end().unwrap();
}

#[test]
fn last_topic_may_be_deleted_and_another_created() {
    let site = Site::new();
    site.send("shop.a", "x", &[1]);
    let running = site.start(&topology(pattern(r"^shop\.", &[]), "clean.{topic}"), false);
    site.await_values("clean.shop.a", 1);
    site.cluster.delete_topic("shop.a").unwrap();
    await_condition("its task to be gone", || {
        !running.health.ready().iter().any(|check| check.name.starts_with("task"))
    });
    site.send("shop.b", "x", &[1, 1]);
    site.await_values("clean.shop.b", 1);
    running.end().unwrap();
}

#[test]
fn refused_topic_is_not_read_until_it_is_corrected() {
    let site = Site::new();
    site.create("shop.wide", 2, &[]);
    site.create("clean.shop.wide", 1, &[]);
    site.send("shop.a", "x", &[1, 1]);
    let topology = topology(pattern(r"^shop\.", &[]), "clean.{topic}");
    let error = site.drain(&topology).unwrap_err().to_string();
    assert!(error.contains("1 of the topics"), "{error}");
    assert_eq!(site.values("clean.shop.a").len(), 1, "the other topics are processed");
    let running = site.start(&topology, false);
    await_condition("the refusal to be shown", || running.failing_checks() == ["topic shop/shop.wide"]);
    await_condition("the refusal to be counted", || running.metric("ratchet_refused_topics") == 1.0);
    // A topic created later is refused as well.
    site.create("clean.shop.late", 1, &[]);
    site.create("shop.late", 2, &[]);
    await_condition("the other refusal to be shown", || {
        running.failing_checks().contains(&"topic shop/shop.late".to_owned())
    });
    await_condition("both to be counted", || running.metric("ratchet_refused_topics") == 2.0);
    site.cluster.delete_topic("shop.late").unwrap();
    site.send("shop.wide", "x", &[1, 1]);
    site.cluster.delete_topic("clean.shop.wide").unwrap();
    site.await_values("clean.shop.wide", 1);
    await_condition("all to be ready", || running.failing_checks().is_empty());
    await_condition("none to be counted", || running.metric("ratchet_refused_topics") == 0.0);
    running.end().unwrap();
}

#[test]
fn topology_that_would_read_its_own_output_is_refused() {
    let site = Site::new();
    site.send("shop.a", "x", &[1]);
    let running = site.start(&topology(pattern("shop", &[]), "clean.{topic}"), false);
    await_condition("the refusal to be shown", || running.failing_checks() == ["topic shop/shop.a"]);
    site.send("shop.b", "x", &[1]);
    await_condition("the other refusal, too", || running.failing_checks().len() == 2);
    assert!(running.end().is_err());
    assert!(site.cluster.topics().unwrap().iter().all(|topic| !topic.starts_with("clean")), "no output was created");
}
