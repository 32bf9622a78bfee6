//! Goal: `ratchet run` exits with 2 if a restart would meet the same refusal, and with 1 if it may not: a supervisor that
//! knows the codes restarts a run only if that can help.

use ratchet::cluster::embedded::Embedded;
use ratchet::cluster::{Cluster, Message, NewTopic};
use ratchet::record::{Headers, TopicPartition};

use super::job::SETTINGS;
use super::{PAYMENTS, Ran, Room};

impl Room {
    fn cluster(&self) -> Embedded {
        Embedded::open(&self.path().join("topics"), 1).unwrap()
    }

    fn create(&self, name: &str, partition_count: i32) {
        let topic = NewTopic { name, partition_count, replication_factor: 1, settings: &[] };
        self.cluster().create_topic(&topic).unwrap();
    }

    fn send(&self, topic: &str, value: &str) {
        let value = Some(value.as_bytes());
        let message =
            Message { topic, partition: 0, key: None, value, headers: Headers::default(), timestamp: Some(1_000) };
        self.cluster().append(topic, 0, &[message]).unwrap();
    }

    /// Runs these topologies to the end of what is there.
    fn drain(&self, topologies: &str) -> Ran {
        self.run(&format!("run {topologies} --until-drained {SETTINGS}"))
    }
}

const ORDER: &str = r#"{"order_id":7,"operation":"charge","version":1,"revision":1}"#;

/// A room whose input holds an order.
fn room() -> Room {
    let room = Room::new();
    room.create("payments", 1);
    room.send("payments", ORDER);
    room
}

#[test]
fn changed_rules_are_no_use_to_start_again_with() {
    let room = room();
    room.drain("payments.yaml").ended(0);
    room.write("payments.yaml", PAYMENTS.replace("value.version", "value.revision"));
    for _ in 0..2 {
        room.drain("payments.yaml").ended(2).said(&[
            "topology refused",
            "the rules have changed: `version` was integer [value.version], and is integer [value.revision]",
            "give the topology a new name",
        ]);
    }
    // The former rules are still right.
    room.write("payments.yaml", PAYMENTS);
    room.drain("payments.yaml").ended(0);
}

#[test]
fn output_that_holds_records_is_no_use_to_start_again_with() {
    let room = room();
    room.drain("payments.yaml").ended(0);
    room.write("renamed.yaml", PAYMENTS.replace("name: payments", "name: renamed"));
    room.drain("renamed.yaml").ended(2).said(&["topology refused", "holds records", "existing: append"]);
}

#[test]
fn missing_partitions_of_the_output_are_no_use_to_start_again_with() {
    let room = Room::new();
    room.create("payments", 3);
    room.create("payments.unique", 2);
    room.drain("payments.yaml").ended(2).said(&["topology refused", "has 2 partitions"]);
}

#[test]
fn output_that_is_the_input_is_no_use_to_start_again_with() {
    let room = room();
    room.write("payments.yaml", PAYMENTS.replace("payments.unique", "payments"));
    room.drain("payments.yaml").ended(2).said(&["payments.yaml:5:"]);
}

#[test]
fn record_that_fails_its_task_is_no_use_to_start_again_with() {
    let room = room();
    room.send("payments", "no JSON");
    room.write("payments.yaml", format!("{PAYMENTS}on_invalid: fail\n"));
    for _ in 0..2 {
        room.drain("payments.yaml").ended(2).said(&["task stopped", "payments:0"]);
    }
}

#[test]
fn state_folder_of_something_else_is_no_use_to_start_again_with() {
    let room = room();
    room.write("state/letter", "mine");
    room.drain("payments.yaml").ended(2).said(&["is not a state folder of ratchet"]);
}

#[test]
fn what_may_pass_by_itself_is_worth_a_restart() {
    let room = room();
    room.drain("payments.yaml").ended(0);
    room.write("other.yaml", PAYMENTS.replace("payments", "other"));
    let missing = "input topic \"other\" does not exist";
    room.drain("other.yaml").ended(1).said(&[missing]);
    // Beside a topology that is refused for good: the other one may find its topic.
    room.write("payments.yaml", PAYMENTS.replace("value.version", "value.revision"));
    for both in ["payments.yaml other.yaml", "other.yaml payments.yaml"] {
        room.drain(both).ended(1).said(&[missing, "rules"]);
    }
    let held = room.cluster();
    room.drain("payments.yaml").ended(1).said(&["is already open"]);
    drop(held);
}

/// A changelog that was written under other rules, found by its task: the group's offset, which would have said so at the
/// start, is gone.
#[test]
fn changed_rules_are_named_by_a_task_too() {
    let room = room();
    room.drain("payments.yaml").ended(0);
    let input = TopicPartition::new("payments", 0);
    room.cluster().reset_offset("ratchet.payments", &input, None).unwrap();
    room.write("payments.yaml", PAYMENTS.replace("[value.order_id, value.operation]", "value.order_id"));
    let words = "the rules have changed: `identity` was value.order_id, then value.operation, and is value.order_id";
    room.drain("payments.yaml").ended(2).said(&["task stopped", words]);
}

/// State of a former release, which kept no text.
#[test]
fn changed_rules_whose_text_was_not_kept_are_refused_as_ever() {
    let room = room();
    room.drain("payments.yaml").ended(0);
    let kept = room.path().join("state/slot-0/.rules");
    assert_eq!(std::fs::read_dir(&kept).unwrap().count(), 1, "one text for one set of rules");
    std::fs::remove_dir_all(kept).unwrap();
    room.write("payments.yaml", PAYMENTS.replace("value.version", "value.revision"));
    let words = ["the rules have changed: the text of the former rules is not in", "under other rules"];
    room.drain("payments.yaml").ended(2).said(&words);
    room.write("payments.yaml", PAYMENTS);
    room.drain("payments.yaml").ended(0);
}
