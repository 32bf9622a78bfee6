//! `ratchet check --online` on an embedded cluster: what it finds, and that it changes nothing.

use ratchet::cluster::embedded::Embedded;
use ratchet::cluster::{Cluster, NewTopic};

use super::{PAYMENTS, Room};

const CHECK: &str = "check payments.yaml --config ratchet.yaml --online";

/// A room with an embedded cluster that has these topics, with this many partitions each.
fn room(topics: &[(&str, i32)]) -> Room {
    let room = Room::new();
    let folder = room.path().join("topics");
    room.write("ratchet.yaml", format!("cluster: embedded\nembedded: {{dir: {}}}\n", folder.display()));
    let cluster = Embedded::open(&folder, 1).unwrap();
    for &(name, partition_count) in topics {
        cluster.create_topic(&NewTopic { name, partition_count, replication_factor: 1, settings: &[] }).unwrap();
    }
    room
}

fn topics(room: &Room) -> Vec<String> {
    let cluster = Embedded::open(&room.path().join("topics"), 1).unwrap();
    cluster.topics().unwrap().iter().map(ToString::to_string).collect()
}

#[test]
fn runnable_topology_is_fine_and_topics_to_create_are_listed() {
    let room = room(&[("payments", 2), ("payments.unique", 2)]);
    room.run(CHECK).ended(0).wrote(&[]).said(&[
        "payments.yaml: fine",
        "payments.yaml: on the cluster: fine",
        "ratchet.payments.payments.changelog\" does not exist",
        "run creates it with 2 partitions",
    ]);
    assert_eq!(topics(&room), ["payments", "payments.unique"], "something was created");
}

#[test]
fn all_problems_are_reported_at_once() {
    let room = room(&[("payments", 2), ("payments.unique", 1), ("ratchet.payments.payments.changelog", 1)]);
    room.run(CHECK).ended(2).wrote(&[]).said(&[
        "on the cluster: refused",
        "output topic \"payments.unique\" has 1 partition",
        "changelog topic \"ratchet.payments.payments.changelog\" has 1 partition",
        "cleanup.policy=delete",
        "for 3 reasons",
    ]);
}

#[test]
fn missing_input_is_refused() {
    let words = ["input topic \"payments\" does not exist", "set `cluster: kafka`", "payments.unique"];
    room(&[]).run(CHECK).ended(2).said(&words).never_said("or name another");
}

#[test]
fn input_retained_longer_than_remembered_is_a_warning() {
    let room = room(&[("payments", 1), ("payments.unique", 1)]);
    room.write("payments.yaml", format!("{PAYMENTS}retention: 7d\n"));
    room.run(CHECK).ended(0).said(&["keeps its records for ever", "remembered 7d"]);
}

#[test]
fn missing_cluster_is_not_reported_as_a_missing_input() {
    let room = Room::new();
    room.write("ratchet.yaml", "cluster: embedded\nembedded: {dir: nowhere}\n");
    let words = ["folder nowhere does not exist yet", "no command but `ratchet demo` fills an embedded cluster"];
    room.run(CHECK).ended(1).said(&words).never_said("kafka:` in");
    assert!(!room.path().join("nowhere").exists(), "the folder was created");
}
