//! Goal: `check` warns of topologies that are valid but a mistake; a run warns if only the records show the mistake.

use ratchet::cluster::embedded::Embedded;
use ratchet::cluster::{Cluster, Message, NewTopic};
use ratchet::record::Headers;

use super::job::SETTINGS;
use super::{PAYMENTS, Room};

/// A room with this topology.
fn with(topology: &str) -> Room {
    let room = Room::new();
    room.write("payments.yaml", topology);
    room
}

const IDENTITY: &str = "[value.order_id, value.operation]";

#[test]
fn identity_of_the_brokers_coordinates_alone_is_warned_of() {
    for identity in ["meta.offset", "[meta.topic, meta.partition, meta.offset]", "[{const: x}, meta.offset]"] {
        for more in ["", "partitioned_by_identity: true\n"] {
            let topology = PAYMENTS.replace(IDENTITY, identity).replace("partitioned_by_identity: true\n", more);
            let ran = with(&topology).run("check payments.yaml").ended(0);
            ran.said(&["⚠", "only where a record is in Kafka", "is forwarded again", "payments.yaml:3:11"])
                .never_said("within one partition only");
        }
    }
    for identity in ["[value.id, meta.partition]", "[key, meta.topic]", "value"] {
        let ran = with(&PAYMENTS.replace(IDENTITY, identity)).run("check payments.yaml").ended(0);
        ran.never_said("only where a record is in Kafka");
    }
}

#[test]
fn records_time_as_the_last_word_of_a_version_is_warned_of() {
    let version = |version: &str| with(&PAYMENTS.replace("{of: value.version, as: integer}", version));
    for last in
        ["{of: meta.timestamp, as: timestamp}", "[{of: value.a, as: integer}, {of: meta.timestamp, as: integer}]"]
    {
        version(last).run("check payments.yaml").ended(0).said(&[
            "⚠",
            "times of a producer's clock tie",
            "`on_conflict`",
            "the records of a partition are in order anyway",
        ]);
    }
    let first = "[{of: meta.timestamp, as: timestamp}, {of: value.version, as: integer}]";
    version(first).run("check payments.yaml").ended(0).never_said("producer's clock");
}

/// A room whose input has two partitions, with two records that have no key, and one that has one.
fn with_keyless(topology: &str, partition_count: i32) -> Room {
    let room = with(topology);
    let cluster = Embedded::open(&room.path().join("topics"), 1).unwrap();
    cluster
        .create_topic(&NewTopic { name: "payments", partition_count, replication_factor: 1, settings: &[] })
        .unwrap();
    for (version, key) in [(1, None), (2, Some(&b"7"[..])), (3, None)] {
        let value = format!(r#"{{"order_id":7,"operation":"charge","version":{version}}}"#);
        let value = Some(value.as_bytes());
        let message = Message {
            topic: "payments",
            partition: 0,
            key,
            value,
            headers: Headers::default(),
            timestamp: Some(1_000),
        };
        cluster.append("payments", 0, &[message]).unwrap();
    }
    room
}

#[test]
fn keyless_records_are_warned_of_where_only_the_topology_vouches_for_their_partition() {
    let run = format!("run payments.yaml --until-drained {SETTINGS}");
    let ran = with_keyless(PAYMENTS, 2).run(&run).ended(0);
    let ran = ran.said(&[
        "records without a key",
        "records=2",
        "first=\"payments:0:0\"",
        "make it send the identity as the key",
    ]);
    assert_eq!(ran.stderr.matches("records without a key").count(), 1, "{}", ran.stderr);
    // One partition has all of them, whatever the key; and nobody has vouched for anything in the others.
    with_keyless(PAYMENTS, 1).run(&run).ended(0).never_said("records without a key");
    let unsaid = PAYMENTS.replace("partitioned_by_identity: true\n", "");
    with_keyless(&unsaid, 2).run(&run).ended(0).never_said("records without a key");
}
