//! Goal: each drop is explained exactly once, and no record is dropped silently because its drop cannot be explained.

use serde_json::Value;

use super::*;
use crate::cluster::CommittedOffset;
use crate::dedup::{Action, Epoch, EpochPart};
use crate::record::{HeaderBuf, TopicPartition};

fn audited() -> Topology {
    let mut topology = topology(Input::Topics(vec!["orders".to_owned()]), "clean");
    topology.audit = Some("why".to_owned());
    topology
}

fn read_audit_records(site: &Site) -> Vec<Value> {
    site.values("why").iter().map(|value| serde_json::from_str(value).unwrap()).collect()
}

#[test]
fn drop_is_explained_with_the_entry_that_it_was_compared_with() {
    let site = Site::new();
    site.send("orders", "x", &[2, 1, 2]);
    site.send("orders", "y", &[1]);
    site.drain(&audited()).unwrap();
    let audit_records = read_audit_records(&site);
    let brief = |audit_record: &Value| {
        let fields = ["offset", "verdict", "reason", "identity", "version", "against"];
        fields.map(|field| audit_record[field].to_string()).join(" ")
    };
    let against =
        format!(r#"{{"contents":[{}],"epoch":null,"last_seen":1002,"version":2}}"#, audit_records[1]["contents"]);
    assert_eq!(
        audit_records.iter().map(brief).collect::<Vec<_>>(),
        [
            format!(r#"1 "stale" "version_older" ["x"] 1 {against}"#),
            format!(r#"2 "duplicate" "version_equal" ["x"] 2 {against}"#),
        ]
    );
    assert_eq!((&audit_records[0]["topology"], &audit_records[0]["topic"]), (&"shop".into(), &"orders".into()));
    let records = site.cluster.read_all("why", 0).unwrap();
    assert_eq!((records[0].key.as_deref(), records[0].timestamp), (Some("x".as_bytes()), Some(1_001)));
}

#[test]
fn audit_record_names_the_epochs() {
    let site = Site::new();
    let mut topology = audited();
    let mut rules = (*topology.rules).clone();
    let of = vec![Path::parse("header.epoch").unwrap()];
    rules.epoch = Some(Epoch { parts: vec![EpochPart { of, none: Vec::new() }] });
    topology.rules = Arc::new(rules);
    for (epoch, version) in [("a", 5), ("b", 1), ("a", 4)] {
        let mut headers = HeaderBuf::default();
        headers.push(b"epoch", Some(epoch.as_bytes()));
        let value = format!(r#"{{"id":"x","version":{version}}}"#);
        let message = Message { value: Some(value.as_bytes()), headers: headers.as_headers(), ..no_json() };
        site.cluster.append("orders", 0, &[message]).unwrap();
    }
    site.drain(&topology).unwrap();
    let audit_records = read_audit_records(&site);
    assert_eq!(audit_records.len(), 1, "{audit_records:?}");
    assert_eq!(
        (&audit_records[0]["reason"], &audit_records[0]["epoch"]),
        (&"epoch_older".into(), &serde_json::json!(["a"]))
    );
    assert_eq!(
        (&audit_records[0]["against"]["epoch"], &audit_records[0]["against"]["version"]),
        (&serde_json::json!(["b"]), &1.into())
    );
}

#[test]
fn replayed_record_is_explained_too() {
    let site = Site::new();
    site.send("orders", "x", &[1, 2]);
    site.drain(&audited()).unwrap();
    assert!(read_audit_records(&site).is_empty());
    let rewound = CommittedOffset { offset: 0, metadata: String::new() };
    site.cluster.reset_offset("ratchet.shop", &TopicPartition::new("orders", 0), Some(rewound)).unwrap();
    site.drain(&audited()).unwrap();
    let audit_records = read_audit_records(&site);
    assert_eq!(audit_records.len(), 2);
    assert!(
        audit_records
            .iter()
            .all(|audit_record| audit_record["reason"] == "replayed" && audit_record["identity"].is_null()),
        "{audit_records:?}"
    );
}

#[test]
fn forwarded_and_dead_lettered_records_are_not_audited() {
    let site = Site::new();
    site.send("orders", "x", &[1]);
    site.cluster.append("orders", 0, &[no_json()]).unwrap();
    site.drain(&audited()).unwrap();
    assert!(read_audit_records(&site).is_empty());
    assert_eq!(site.cluster.read_all("shop-dead", 0).unwrap().len(), 1);
}

#[test]
fn record_dropped_as_invalid_is_audited() {
    let site = Site::new();
    site.cluster.append("orders", 0, &[no_json()]).unwrap();
    let mut topology = audited();
    let mut rules = (*topology.rules).clone();
    rules.actions.invalid = Action::Drop;
    topology.rules = Arc::new(rules);
    site.cluster
        .create_topic(&NewTopic { name: "why", partition_count: 1, replication_factor: 1, settings: &[] })
        .unwrap();
    site.drain(&topology).unwrap();
    let audit_records = read_audit_records(&site);
    assert_eq!(
        (audit_records.len(), &audit_records[0]["verdict"], &audit_records[0]["reason"]),
        (1, &"invalid".into(), &"value_malformed".into())
    );
}

#[test]
fn audit_topic_that_refuses_a_record_stops_the_task() {
    let site = Site::new();
    site.create("why", 1, &[("max.message.bytes", "150".to_owned())]);
    site.send("orders", "x", &[1]);
    site.drain(&audited()).unwrap();
    site.send("orders", "x", &[1]);
    let error = site.drain(&audited()).unwrap_err().to_string();
    assert!(error.contains("1 of the topology shop's tasks"), "{error}");
    site.cluster.delete_topic("why").unwrap();
    site.drain(&audited()).unwrap();
    assert_eq!(read_audit_records(&site).len(), 1, "the explanation was not lost");
}

#[test]
fn timestamps_that_the_audit_topic_refuses_are_replaced() {
    let site = Site::new();
    site.create("why", 1, &[("message.timestamp.before.max.ms", "60000".to_owned())]);
    site.send("orders", "x", &[1, 1]);
    site.drain(&audited()).unwrap();
    let records = site.cluster.read_all("why", 0).unwrap();
    assert_eq!(records.len(), 1);
    assert!(records[0].timestamp.is_some_and(|timestamp| timestamp > 1_000_000_000_000), "{:?}", records[0].timestamp);
}

fn no_json() -> Message<'static> {
    Message {
        topic: "orders",
        partition: 0,
        key: Some(b"k"),
        value: Some(b"no JSON"),
        headers: Headers::default(),
        timestamp: Some(5_000),
    }
}
