//! Topics are described as they are, created once, and distinguished from others of the same name.

use ratchet::cluster::{Cluster, Detail, ErrorKind, NewTopic, Rights};
use rdkafka::admin::{AdminClient, AdminOptions};
use rdkafka::client::DefaultClientContext;

use crate::cluster_kafka::common::*;

#[test]
fn topic_is_described_as_it_was_created() {
    let name = topic_with("log", 3, &[("cleanup.policy", "compact"), ("delete.retention.ms", "1234")]);
    let topic = cluster().describe_topic(&name).unwrap().unwrap();
    assert_eq!(topic.partition_count, 3);
    assert_eq!(topic.cleanup_policy, "compact");
    assert_eq!(topic.delete_retention_ms, 1234);
    assert_ne!(topic.id.0, [0; 16]);
}

#[test]
fn missing_topic_is_none() {
    assert_eq!(cluster().describe_topic(&unique("missing")).unwrap(), None);
}

#[test]
fn creating_a_topic_again_changes_nothing() {
    let (cluster, name) = (cluster(), topic("log", 1));
    let before = cluster.describe_topic(&name).unwrap();
    cluster.create_topic(&NewTopic { name: &name, partition_count: 2, replication_factor: 1, settings: &[] }).unwrap();
    assert_eq!(cluster.describe_topic(&name).unwrap(), before);
}

#[test]
fn topic_that_the_cluster_rejects_is_refused() {
    let new = |settings| NewTopic { name: "a-topic", partition_count: 1, replication_factor: 1, settings };
    let wrong = [("cleanup.policy", "sweep".to_owned())];
    let error = cluster().create_topic(&new(&wrong)).unwrap_err();
    assert_eq!((error.kind, error.detail), (ErrorKind::Refused, None), "{error}");
    let error = cluster().create_topic(&NewTopic { replication_factor: 9, ..new(&[]) }).unwrap_err();
    assert_eq!((error.kind, error.detail), (ErrorKind::Refused, Some(Detail::TooFewBrokers(1))), "{error}");
}

#[test]
fn recreated_topic_has_another_id() {
    let (cluster, name) = (cluster(), topic("log", 1));
    let before = cluster.describe_topic(&name).unwrap().unwrap();
    let mut config = rdkafka::ClientConfig::new();
    config.set("bootstrap.servers", crate::kafka::bootstrap());
    let admin: AdminClient<DefaultClientContext> = config.create().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let deleted = runtime.block_on(admin.delete_topics(&[&name], &AdminOptions::new())).unwrap();
    assert!(deleted[0].is_ok());
    eventually("the topic to be gone", || cluster.describe_topic(&name).unwrap().is_none().then_some(()));
    cluster.create_topic(&NewTopic { name: &name, partition_count: 1, replication_factor: 1, settings: &[] }).unwrap();
    assert_ne!(cluster.describe_topic(&name).unwrap().unwrap().id, before.id);
}

#[test]
fn relevant_settings_are_described() {
    let settings = [
        ("retention.ms", "5000"),
        ("retention.bytes", "6000"),
        ("message.timestamp.type", "LogAppendTime"),
        ("message.timestamp.before.max.ms", "7000"),
        ("message.timestamp.after.max.ms", "8000"),
        ("max.message.bytes", "9000"),
    ];
    let topic = cluster().describe_topic(&topic_with("settings", 1, &settings)).unwrap().unwrap();
    assert_eq!((topic.retention_ms, topic.retention_bytes, topic.stamps), (5000, 6000, true));
    assert_eq!((topic.timestamp_before_max_ms, topic.timestamp_after_max_ms), (7000, 8000));
    assert_eq!((topic.message_bytes_max, topic.replicas, topic.min_insync_replicas), (9000, Some(1), Some(1)));
    assert_eq!(topic.rights, Some(Rights::ALL), "a superuser should have all rights");
    let unlimited = topic_with("settings", 1, &[("retention.ms", "-1")]);
    let topic = cluster().describe_topic(&unlimited).unwrap().unwrap();
    assert_eq!((topic.retention_ms, topic.retention_bytes, topic.stamps), (i64::MAX, i64::MAX, false));
}

#[test]
fn topics_are_listed_and_group_rights_are_described() {
    let (cluster, name) = (cluster(), topic("listed", 1));
    assert!(cluster.list_topics().unwrap().iter().any(|listed| **listed == *name));
    // It need not exist, and nobody writes to a group.
    assert_eq!(cluster.group_rights(&unique("group")).unwrap(), Some(Rights { write: false, ..Rights::ALL }));
}
