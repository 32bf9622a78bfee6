//! Goal: the state of a task besides versions (scopes and their segments, truncates, owed tombstones) is in its
//! changelog: a lost store is restored with all of it.

use serde_json::Value;

use super::*;
use crate::dedup::{Action, Epoch, EpochPart, Format, Kinds, OnNull, Scalar};
use crate::observe::Metrics;

fn path(text: &str) -> Path {
    Path::parse(text).unwrap()
}

/// A topology of row changes, identified by the key's `id` and scoped by server.
fn changes() -> Topology {
    let words = |word: &str| vec![Scalar::Text(word.to_owned())];
    let mut rules = Rules::new(Identity::of_paths([path("key.id")]), Some(Version::integer(path("value.version"))));
    rules.key_format = Format::Json;
    rules.epoch = Some(Epoch { parts: vec![EpochPart { of: vec![path("value.server")], none: Vec::new() }] });
    rules.kinds = Some(Kinds {
        of: vec![path("value.op")],
        delete: words("d"),
        read: words("r"),
        reads: crate::dedup::Reads::Lose,
        truncate: words("t"),
        message: words("m"),
        none: Vec::new(),
        table: vec![vec![path("value.table")]],
    });
    rules.actions.null_value = OnNull::FollowDelete;
    rules.actions.invalid = Action::Fail;
    let mut topology = topology(Input::Topics(vec!["rows".to_owned()]), "clean");
    topology.rules = Arc::new(rules);
    topology.audit = Some("why".to_owned());
    topology
}

/// Appends records given as `id op server table version`; `id null` is a tombstone, an `id` of `-` means no key.
fn send(site: &Site, lines: &[&str]) {
    for line in lines {
        let fields: Vec<&str> = line.split(' ').collect();
        let key = (fields[0] != "-").then(|| format!(r#"{{"id":"{}"}}"#, fields[0]));
        let value = (fields[1] != "null").then(|| {
            let [op, server, table, version] = fields[1..] else { panic!("{line}") };
            format!(r#"{{"op":"{op}","server":"{server}","table":"{table}","version":{version}}}"#)
        });
        let message = Message {
            topic: "rows",
            partition: 0,
            key: key.as_deref().map(str::as_bytes),
            value: value.as_deref().map(str::as_bytes),
            headers: Headers::default(),
            timestamp: Some(1_000),
        };
        site.cluster.append("rows", 0, &[message]).unwrap();
    }
}

/// The offsets and reasons of all drops.
fn drops(site: &Site) -> Vec<String> {
    let audit_records = site.values("why").into_iter().map(|value| serde_json::from_str::<Value>(&value).unwrap());
    audit_records.map(|line| format!("{} {}", line["offset"], line["reason"].as_str().unwrap())).collect()
}

fn process_first(site: &Site) {
    send(site, &["x c a other 1", "x c b other 1", "y d b rows 2", "- t b rows 3", "y null", "z d b rows 4"]);
    site.drain(&changes()).unwrap();
    assert!(drops(site).is_empty(), "{:?}", drops(site));
}

fn process_more(site: &Site) {
    let redelivered = ["x c a other 1", "y null", "z null", "z null", "w c b rows 2", "w c b rows 5", "- t b rows 3"];
    send(site, &redelivered);
    send(site, &["x c a other 2", "x c b other 1"]);
    site.drain(&changes()).unwrap();
    let expected = [
        "6 epoch_older",
        "7 tombstone_not_owed",
        "9 tombstone_not_owed",
        "10 table_truncated",
        "12 version_equal",
        "14 epoch_older",
    ];
    assert_eq!(drops(site), expected);
    assert_eq!(site.cluster.read_all("clean", 0).unwrap().len(), 9);
}

#[test]
fn scopes_truncates_and_owed_tombstones_survive_a_stop() {
    let site = Site::new();
    process_first(&site);
    process_more(&site);
}

#[test]
fn scopes_truncates_and_owed_tombstones_are_restored_from_the_changelog() {
    let site = Site::new();
    process_first(&site);
    std::fs::remove_dir_all(site.folder.path().join("state")).unwrap();
    process_more(&site);
    std::fs::remove_dir_all(site.folder.path().join("state")).unwrap();
    // The failback's segment is restored, too.
    send(&site, &["x c b other 1", "x c a other 2"]);
    site.drain(&changes()).unwrap();
    assert_eq!(drops(&site)[6..], ["15 epoch_older", "16 version_equal"]);
}

#[test]
fn epoch_changes_are_counted_when_they_are_committed() {
    let site = Site::new();
    send(&site, &["x c a other 1", "x c b other 1", "x c a other 2", "x c a other 3"]);
    let metrics = Metrics::new();
    let options = Options {
        config: site.config(),
        topologies: vec![changes()],
        handlers: Default::default(),
        until_drained: true,
        stop: Arc::new(AtomicBool::new(false)),
        metrics: metrics.clone(),
        health: Health::new(),
    };
    run_on(&site.cluster, options).unwrap();
    let shown = metrics.render();
    assert!(shown.contains("ratchet_epoch_changes_total{topology=\"shop\"} 2"), "{shown}");
}

#[test]
fn task_that_stops_at_a_record_ignores_its_timestamp() {
    let site = Site::new();
    let mut rules = (*changes().rules).clone();
    rules.retention = crate::dedup::Retention::For { ms: 60_000 };
    let topology = Topology { rules: Arc::new(rules), ..changes() };
    let at = |timestamp, value: &'static [u8]| Message {
        topic: "rows",
        partition: 0,
        key: Some(br#"{"id":"x"}"#),
        value: Some(value),
        headers: Headers::default(),
        timestamp: Some(timestamp),
    };
    let first: &[u8] = br#"{"op":"c","server":"a","table":"t","version":1}"#;
    site.cluster.append("rows", 0, &[at(1_000, first), at(900_000, b"no JSON")]).unwrap();
    site.drain(&topology).unwrap_err();
    let changelog = site.cluster.read_all(&topology.changelog("rows"), 0).unwrap();
    let position = changelog.iter().rev().find(|record| record.key.as_deref() == Some(crate::format::POSITION_KEY));
    let position = crate::format::PositionRecord::decode(position.unwrap().value.as_deref().unwrap()).unwrap();
    assert_eq!((position.processed, position.stream_time), (vec![(0, 1)], 1_000));
}

/// A former release aborted these records with the transaction, at every start.
#[test]
fn records_before_one_scope_too_many_are_processed() {
    const SCOPES: usize = crate::dedup::epochs::SCOPES_MAX;
    let site = Site::new();
    site.create("rows", 1, &[]);
    let lines: Vec<String> = (0..SCOPES + 20).map(|n| format!("x{n} c server{n} rows 1")).collect();
    send(&site, &lines.iter().map(String::as_str).collect::<Vec<_>>());
    let outcome = site.drain(&changes());
    assert!(matches!(outcome, Err(Error::Tasks { tasks: 1, .. })), "{outcome:?}");
    assert_eq!(site.values("clean").len(), SCOPES);
}
