//! Goal: long-running work is counted while it runs: walks of the sweeper, and restores.

use super::*;
use crate::dedup::Retention;

/// Appends this many records with this timestamp, whose ids start with `ids`.
fn fill(site: &Site, ids: &str, count: usize, timestamp: i64) {
    let values: Vec<String> = (0..count).map(|id| format!(r#"{{"id":"{ids}{id}","version":1}}"#)).collect();
    let message = |value| Message {
        topic: "in",
        partition: 0,
        key: None,
        value: Some(value),
        headers: Headers::default(),
        timestamp: Some(timestamp),
    };
    let messages: Vec<_> = values.iter().map(|value| message(value.as_bytes())).collect();
    site.cluster.append("in", 0, &messages).unwrap();
}

#[test]
fn walk_of_the_sweeper_is_counted() {
    let site = Site::new();
    let mut topology = topology(Input::Topics(vec!["in".to_owned()]), "out");
    let mut rules = Rules::clone(&topology.rules);
    rules.retention = Retention::For { ms: 60_000 };
    topology.rules = Arc::new(rules);
    fill(&site, "old", 5_000, 1_000);
    let running = site.start(&topology, false);
    site.await_values("out", 5_000);
    // These records advance stream time, so that the old ones expire.
    fill(&site, "new", 10, 200_000);
    await_condition("all expired entries to be removed", || {
        running.metric("ratchet_sweep_removed_entries_total") == 5_000.0
    });
    await_condition("the walk to end", || running.metric("ratchet_sweep_remaining_entries") == 0.0);
    assert!(running.metric("ratchet_sweep_walked_entries_total") >= 5_000.0, "{}", running.metrics.render());
    assert_eq!(running.metric("ratchet_sweep_remaining_seconds"), 0.0);
    running.end().unwrap();
}

#[test]
fn restore_is_counted() {
    let site = Site::new();
    let topology = topology(Input::Topics(vec!["in".to_owned()]), "out");
    fill(&site, "", 3_000, 1_000);
    site.drain(&topology).unwrap();
    std::fs::remove_dir_all(site.folder.path().join("state")).unwrap();
    let running = site.start(&topology, false);
    await_condition("the task to be restored", || running.metric("ratchet_restored_records_total") >= 3_000.0);
    await_condition("nothing to remain", || running.metric("ratchet_restore_remaining_records") == 0.0);
    assert_eq!(running.metric("ratchet_restore_remaining_seconds"), 0.0);
    await_condition("no restore to be listed", || running.metrics.long_work().is_empty());
    running.end().unwrap();
}
