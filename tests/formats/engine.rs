//! Goal: the program continues from what an earlier release left behind: nothing that was forwarded is forwarded again,
//! and nothing new is lost.

use crate::fixtures::{Fixture, Room, TOPOLOGIES, all};

/// Logged when a store is rebuilt.
const RESTORING: &str = "restoring the store from the changelog";

/// Asserts that all records got the verdicts listed for them.
pub fn assert_right(fixture: &Fixture, room: &Room) {
    let lines = [fixture.lines("before.jsonl"), fixture.lines("after.jsonl")].concat();
    for name in TOPOLOGIES {
        let of_this = lines.iter().filter(|line| line["topology"] == name);
        let expected: Vec<&str> = of_this.map(|line| line["becomes"].as_str().unwrap()).collect();
        assert_eq!(room.verdicts(name), expected, "{name}, {}", fixture.path.display());
    }
}

#[test]
fn stores_of_an_earlier_release_are_current() {
    for fixture in all() {
        let room = fixture.room(true);
        room.append(&fixture.lines("after.jsonl"));
        room.drain().ended(0).never_said(RESTORING).said(&["task resumes"]);
        assert_right(&fixture, &room);
    }
}

#[test]
fn changelogs_of_an_earlier_release_are_restored() {
    for fixture in all() {
        let room = fixture.room(false);
        room.append(&fixture.lines("after.jsonl"));
        room.drain().ended(0).said(&[RESTORING]).said(&["task resumes"]);
        assert_right(&fixture, &room);
    }
}

/// A reset group reads everything again, which the position record still shows.
#[test]
fn nothing_of_an_earlier_release_is_forwarded_twice() {
    for fixture in all() {
        let room = fixture.room(false);
        let before = TOPOLOGIES.map(|name| room.records(&format!("{name}.out")));
        for name in TOPOLOGIES {
            let start = ratchet::cluster::CommittedOffset { offset: 0, metadata: String::new() };
            let partition = ratchet::record::TopicPartition::new(format!("{name}.in").as_str(), 0);
            room.cluster().reset_offset(&format!("ratchet.{name}"), &partition, Some(start)).unwrap();
        }
        room.drain().ended(0).said(&["the group was reset"]);
        assert_eq!(TOPOLOGIES.map(|name| room.records(&format!("{name}.out"))), before);
    }
}
