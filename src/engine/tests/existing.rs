//! Goal: a topology that starts afresh does not append to an output with records unless configured to; a topology that
//! has been active continues, whatever its output holds.

use super::*;
use crate::topology::Existing;

fn shop(name: &str) -> Topology {
    let topology = topology(Input::Topics(vec!["shop.in".to_owned()]), "shop.out");
    Topology { name: name.to_owned(), ..topology }
}

#[track_caller]
fn check_refused(site: &Site, topology: &Topology) {
    let error = site.drain(topology).unwrap_err();
    let fragments = ["\"shop.out\" holds records", "starts afresh", "name a new output topic", "existing: append"];
    assert!(fragments.iter().all(|fragment| error.to_string().contains(fragment)), "{error}");
    let topics = site.cluster.topics().unwrap();
    let changelog = format!("ratchet.{}.", topology.name);
    assert!(!topics.iter().any(|topic| topic.starts_with(&changelog)), "no changelog was created: {topics:?}");
}

#[test]
fn renamed_topology_does_not_forward_everything_again() {
    let site = Site::new();
    site.send("shop.in", "x", &[1, 2, 2]);
    site.drain(&shop("shop")).unwrap();
    site.await_values("shop.out", 2);
    check_refused(&site, &shop("renamed"));
    site.await_values("shop.out", 2);
    let output = Output { existing: Existing::Append, ..Output::to("shop.out") };
    let appending = Topology { destination: Destination::Output(output), ..shop("renamed") };
    site.drain(&appending).unwrap();
    site.await_values("shop.out", 4);
    // The topology has been active: `existing: append` is no longer needed.
    site.send("shop.in", "x", &[3]);
    site.drain(&shop("renamed")).unwrap();
    site.await_values("shop.out", 5);
}

#[test]
fn topology_that_has_been_active_is_never_refused_for_its_output() {
    let site = Site::new();
    site.create("shop.in", 1, &[]);
    // The topology has read no record and committed nothing; another program writes to its output meanwhile.
    site.drain(&shop("shop")).unwrap();
    site.send("shop.out", "of another", &[1]);
    site.send("shop.in", "x", &[1]);
    site.drain(&shop("shop")).unwrap();
    site.await_values("shop.out", 2);
    // Its group is deleted, with the committed offsets.
    site.cluster.delete_group("ratchet.shop").unwrap();
    site.send("shop.in", "x", &[1, 2]);
    site.drain(&shop("shop")).unwrap();
    site.await_values("shop.out", 3);
    // The same topology gets another input, which it has not read yet.
    site.send("shop.more", "x", &[1]);
    let more = Input::Topics(vec!["shop.more".to_owned()]);
    site.drain(&Topology { input: more, ..shop("shop") }).unwrap();
    site.await_values("shop.out", 4);
}

#[test]
fn several_inputs_share_an_output() {
    let site = Site::new();
    for topic in ["shop.a", "shop.b"] {
        site.send(topic, "x", &[1]);
    }
    let shared = topology(pattern(r"^shop\.[a-z]$", &[]), "shop.out");
    let running = site.start(&shared, false);
    site.await_values("shop.out", 2);
    site.send("shop.c", "x", &[1]);
    site.await_values("shop.out", 3);
    running.end().unwrap();
}

#[test]
fn first_topics_of_a_waiting_topology_are_checked_together() {
    let site = Site::new();
    let shared = topology(pattern(r"^shop\.[a-z]$", &[]), "clean.{topic}");
    let running = site.start(&shared, false);
    // Its lanes join once the checks at the start have found no topic.
    await_condition("it to wait for topics", || running.failing_checks().is_empty());
    site.send("clean.shop.b", "x", &[1]);
    for topic in ["shop.b", "shop.a"] {
        site.send(topic, "x", &[1]);
    }
    await_condition("the topics to be refused", || running.metric("ratchet_refused_topics") == 2.0);
    let ended = running.end().unwrap_err();
    assert!(matches!(ended, Error::Topics { topics: 2, .. }), "{ended}");
    assert_eq!((site.values("clean.shop.a").len(), site.values("clean.shop.b").len()), (0, 1));
}
