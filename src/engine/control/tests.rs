//! Goal: a lane reads each command that one of its tasks has not passed, and no command from another topic; after a
//! failure it pauses, longer each time.

use super::commands::LaneCommands;
use super::*;
use crate::cluster::embedded::Embedded;
use crate::cluster::{Message, NewTopic};
use crate::format::{Command, CommandId, Control, Instruction, KIND_IDENTITY, ManualDecision};
use crate::record::Headers;

const TOPIC: &str = "ratchet.shop.control";
const SECOND: Duration = Duration::from_secs(1);

/// A cluster with a control topic, and its folder.
fn cluster() -> (tempfile::TempDir, Embedded) {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Embedded::open(folder.path(), 1).unwrap();
    create(&cluster);
    (folder, cluster)
}

fn create(cluster: &Embedded) {
    cluster.create_topic(&NewTopic { name: TOPIC, partition_count: 1, replication_factor: 1, settings: &[] }).unwrap();
}

fn append(cluster: &Embedded, key: &str, value: &[u8]) -> i64 {
    let (key, value) = (Some(key.as_bytes()), Some(value));
    let message = Message { topic: TOPIC, partition: 0, key, value, headers: Headers::default(), timestamp: None };
    cluster.append_one(&message).unwrap()
}

fn command(cluster: &Embedded, number: u128) -> i64 {
    let topic_id = cluster.describe_topic_briefly(TOPIC).unwrap().unwrap().id.0;
    let instruction = Instruction::Settle { identity_key: vec![KIND_IDENTITY, 1], decision: ManualDecision::Done };
    append(cluster, &CommandId(number).key(), &Command { topic_id, at_ms: 0, instruction }.encode())
}

fn acknowledgement(cluster: &Embedded, number: u128) -> i64 {
    append(cluster, &CommandId(number).key_of_acknowledgement("in", 0), b"{}")
}

fn bounds(cluster: &Embedded, looked_up_at: Duration) -> ControlTopicBounds {
    ControlTopicBounds::look_up(cluster, TOPIC, looked_up_at).unwrap().unwrap()
}

fn offsets(commands: &LaneCommands<Embedded>, next: i64) -> Vec<i64> {
    commands.commands_from(next).map(|received| received.offset).collect()
}

#[test]
fn commands_are_read_from_the_position_of_the_task_furthest_back() {
    let (_folder, cluster) = cluster();
    let all: Vec<i64> = (0..3).map(|number| command(&cluster, number)).collect();
    acknowledgement(&cluster, 0);
    append(&cluster, "something else", b"");
    let mut commands = LaneCommands::new(TOPIC);
    commands.read(&cluster, &bounds(&cluster, SECOND), 1, SECOND);
    assert_eq!(offsets(&commands, 0), all[1..], "all tasks have passed the first command");
    assert_eq!((offsets(&commands, 2), commands.read_to()), (all[2..].to_vec(), 5));
    assert!(commands.is_empty_from(3) && !commands.is_empty_from(2));
    // The lane gets a task that is further back.
    commands.read(&cluster, &bounds(&cluster, SECOND), 0, SECOND);
    assert_eq!(offsets(&commands, 0), all);
    // All tasks have passed all commands, and another command is sent.
    let another = command(&cluster, 3);
    commands.read(&cluster, &bounds(&cluster, SECOND), 3, SECOND);
    assert_eq!(offsets(&commands, 0), [another]);
    assert_eq!(commands.commands_from(0).next().unwrap().id, CommandId(3));
}

#[test]
fn unreadable_command_is_kept_as_a_command() {
    let (_folder, cluster) = cluster();
    append(&cluster, &CommandId(7).key(), br#"{"format":2}"#);
    let mut commands = LaneCommands::new(TOPIC);
    commands.read(&cluster, &bounds(&cluster, SECOND), 0, SECOND);
    let received = commands.commands_from(0).next().unwrap();
    assert_eq!(received.command.as_ref().unwrap_err().to_string(), "a command has format 2, this release reads 1");
}

#[test]
fn recreated_control_topic_is_another_topic() {
    let (_folder, cluster) = cluster();
    (0..3).for_each(|number| _ = command(&cluster, number));
    let mut commands = LaneCommands::new(TOPIC);
    let before = bounds(&cluster, SECOND);
    commands.read(&cluster, &before, 0, SECOND);
    cluster.delete_topic(TOPIC).unwrap();
    create(&cluster);
    let first = command(&cluster, 9);
    let after = bounds(&cluster, SECOND * 2);
    let noted = Some(Control { topic_id: before.id.0, next: 3 });
    assert_eq!((before.next_after(noted), after.next_after(noted), after.next_after(None)), (3, 0, 0));
    commands.read(&cluster, &after, after.next_after(noted), SECOND * 2);
    assert_eq!((offsets(&commands, 0), commands.commands_from(0).next().unwrap().id), (vec![first], CommandId(9)));
}

#[test]
fn commands_that_the_topic_has_lost_are_skipped() {
    let (_folder, cluster) = cluster();
    (0..3).for_each(|number| _ = command(&cluster, number));
    cluster.delete_records(TOPIC, 0, 2).unwrap();
    let seen = bounds(&cluster, SECOND);
    assert_eq!(seen.next_after(Some(Control { topic_id: seen.id.0, next: 1 })), 2);
    let mut commands = LaneCommands::new(TOPIC);
    commands.read(&cluster, &seen, seen.next_after(None), SECOND);
    assert_eq!(offsets(&commands, 0), [2]);
}

#[test]
fn after_a_failure_a_lane_waits_until_the_topic_is_looked_up_again() {
    let (_folder, cluster) = cluster();
    command(&cluster, 0);
    let mut commands: LaneCommands<Embedded> = LaneCommands::new(TOPIC);
    let before = bounds(&cluster, SECOND);
    assert!(commands.take_due(&before, SECOND) && !commands.take_due(&before, SECOND), "only at intervals");
    commands.postpone(SECOND * 2);
    assert!(!commands.take_due(&before, SECOND * 1000), "the topic was not looked up since");
    let since = bounds(&cluster, SECOND * 3);
    assert!(commands.take_due(&since, SECOND * 1000));
    // Longer each time, a minute at most.
    let mut waits = Vec::new();
    for at in [1_000, 2_000, 3_000, 4_000, 5_000, 6_000, 7_000, 8_000, 9_000] {
        let failed_at = Duration::from_secs(at);
        commands.postpone(failed_at);
        let seen = bounds(&cluster, failed_at + SECOND / 1000);
        waits.push((0..10_000).find(|ms| commands.take_due(&seen, failed_at + SECOND / 100 * *ms)).unwrap() * 10);
    }
    assert!(waits.is_sorted() && waits[0] >= 1_000, "{waits:?}");
    assert_eq!(waits.last(), Some(&60_000), "{waits:?}");
    commands.on_commit();
    assert!(commands.take_due(&before, SECOND * 10_000));
}

#[test]
fn task_that_would_stop_waits_for_commands_first() {
    let (_folder, cluster) = cluster();
    command(&cluster, 0);
    let progress = CommandProgress { began_at: SECOND * 10, passed: None };
    let (early, late) = (bounds(&cluster, SECOND * 9), bounds(&cluster, SECOND * 11));
    let noted = Some(Control { topic_id: late.id.0, next: 1 });
    let may_have_more =
        |bounds: Option<&ControlTopicBounds>, noted, at| progress.may_have_more(bounds, noted, SECOND * at);
    assert!(may_have_more(None, noted, 11), "the topic was not looked up yet");
    assert!(may_have_more(Some(&early), noted, 11), "the topic was not looked up since the task began");
    assert!(may_have_more(Some(&late), None, 11), "there is a command");
    assert!(!may_have_more(Some(&late), noted, 11), "the task has passed the command");
    let passed = CommandProgress { passed: noted, ..progress };
    assert!(!passed.may_have_more(Some(&late), None, SECOND * 11), "no further command was read");
    assert!(!may_have_more(None, None, 20), "the task does not wait for ever");
}
