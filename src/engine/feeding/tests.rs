use std::sync::Arc;

use super::*;
use crate::cluster::NewTopic;
use crate::cluster::embedded::Embedded;
use crate::dedup::{Identity, Path, Rules};
use crate::topology::{Destination, Output, Pattern, Start};

fn topology(include: &str, exclude: &[&str], output: &str) -> Topology {
    let pattern = |text: &str| Pattern::parse(text).unwrap();
    let exclude = exclude.iter().map(|text| pattern(text)).collect();
    Topology {
        name: "t".to_owned(),
        preset: None,
        input: Input::Pattern { include: pattern(include), exclude },
        start: Start::Earliest,
        rules: Arc::new(Rules::new(Identity::of_paths([Path::parse("key").unwrap()]), None)),
        schemas: Default::default(),
        destination: Destination::Output(Output::to(output)),
        gate: None,
        dead_letter: "shop.dead".to_owned(),
        audit: Some("shop.audit".to_owned()),
        only_said_to_be_partitioned: false,
        tests: Vec::new(),
    }
}

fn problem(topology: &Topology, topic: &str, inputs: &[&str]) -> String {
    let inputs: Vec<String> = inputs.iter().map(|&name| name.to_owned()).collect();
    problem_with(topology, topic, &inputs).unwrap_or_default()
}

#[test]
fn topics_written_by_the_topology_are_refused() {
    let topology = topology("shop", &[], "shop.all");
    assert!(problem(&topology, "shop.dead", &[]).contains("dead letter"));
    assert!(problem(&topology, "shop.audit", &[]).contains("audit"));
    assert!(problem(&topology, "shop.all", &["shop.a", "shop.all"]).contains("the output of \"shop.a\""));
    assert!(
        problem(&topology, "shop.a", &["shop.a"])
            .contains("its output would be `shop.all`: the topology would read it again")
    );
}

#[test]
fn excluded_output_is_not_read_back() {
    let topology = topology("shop", &["^clean"], "clean.{topic}");
    assert_eq!(problem(&topology, "shop.a", &["shop.a", "shop.b"]), "");
}

#[test]
fn output_matching_the_pattern_is_refused_before_it_exists() {
    let topology = topology("shop", &[], "clean.{topic}");
    assert!(problem(&topology, "shop.a", &["shop.a"]).contains("clean.shop.a"));
}

#[test]
fn pattern_matches_no_topics_of_kafka_or_ratchet() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Embedded::open(folder.path(), 1).unwrap();
    for name in ["b", "a", "a.tmp", "__consumer_offsets", "ratchet.other.a.changelog", "ratchet.other.control"] {
        cluster.create_topic(&NewTopic { name, partition_count: 1, replication_factor: 1, settings: &[] }).unwrap();
    }
    let topology = topology("", &["tmp$"], "clean");
    assert_eq!(inputs(&cluster, &topology).unwrap(), ["a", "b"]);
}
