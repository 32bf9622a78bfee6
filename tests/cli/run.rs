//! `ratchet run`: what it rejects before anything starts.

use std::net::TcpListener;

use super::Room;

#[test]
fn mistakes_end_the_run_before_it_starts() {
    let room = Room::new();
    room.write("ratchet.yaml", "cluster: kafak\nlanes: 0\n");
    room.run("run payments.yaml --config ratchet.yaml")
        .ended(2)
        .wrote(&[])
        .said(&["ratchet.yaml:1:10", "ratchet.yaml:2:8"]);
}

#[test]
fn wrong_command_line_setting_is_named() {
    let room = Room::new();
    room.run("run payments.yaml --set lanes=many --set lnaes=2").ended(2).said(&["lanes=many", "lnaes"]);
}

#[test]
fn missing_configuration_is_a_user_error() {
    Room::new().run("run payments.yaml --config nowhere.yaml").ended(2).said(&["nowhere.yaml", "1 mistake"]);
}

#[test]
fn missing_kafka_settings_do_not_suggest_the_embedded_cluster() {
    let ran =
        Room::new().run("run payments.yaml").ended(2).said(&["where is Kafka?", "`ratchet test`", "need no Kafka"]);
    ran.never_said("embedded");
}

#[test]
fn malformed_log_filter_is_a_user_error() {
    let room = Room::new();
    let command = "run payments.yaml --set cluster=embedded --set log.level=ratchet=loud";
    room.run(command).ended(2).said(&["ratchet=loud", "log.level"]);
}

#[test]
fn address_in_use_fails_the_run() {
    let room = Room::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let ran = room.run(&format!("run payments.yaml --set cluster=embedded --set http={address}")).ended(1).wrote(&[]);
    ran.said(&["cannot listen on", &address.to_string(), "`http`"]);
}

#[test]
fn failure_of_a_run_is_one_event_of_its_log() {
    let room = Room::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let command = format!(
        "run payments.yaml --set cluster=embedded --set log.format=json --set http={}",
        taken.local_addr().unwrap()
    );
    let ran = room.run(&command).ended(1);
    let events: Vec<serde_json::Value> = ran.stderr.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&events[0]["message"], &events[0]["topologies"]), (&"starting".into(), &"payments".into()));
    assert_eq!(events.last().unwrap()["level"], "ERROR");
}
