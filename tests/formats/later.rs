//! Goal: what a later release has written is refused, with what was read, which format this release reads and what to
//! do; other tasks continue. A store with a later format is rebuilt without help, since the changelog has everything.

use ratchet::cluster::{CommittedOffset, Message};
use ratchet::format::{KIND_IDENTITY, POSITION_KEY, STORE_META_KEY};
use ratchet::record::{Headers, TopicPartition};
use rocksdb::DB;

use crate::engine::assert_right;
use crate::fixtures::{Fixture, Ran, Room, unhex};

/// The topology that meets a later format; the others are left alone.
const MET: &str = "ids";

/// The last changelog record whose key has this prefix, with the next format number.
fn later(fixture: &Fixture, key: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let lines = fixture.lines("changelogs.jsonl");
    let mut records = lines.iter().filter(|line| line["topology"] == MET && !line["value"].is_null());
    let line = records.rfind(|line| unhex(&line["key"]).starts_with(key)).unwrap();
    let mut value = unhex(&line["value"]);
    value[0] = 3;
    (unhex(&line["key"]), value)
}

/// Appends it to the changelog, after the last transaction.
fn append(room: &Room, (key, value): &(Vec<u8>, Vec<u8>)) {
    let topic = format!("ratchet.{MET}.{MET}.in.changelog");
    let message = Message {
        topic: &topic,
        partition: 0,
        key: Some(key),
        value: Some(value),
        headers: Headers::default(),
        timestamp: Some(1),
    };
    room.cluster().append(&topic, 0, &[message]).unwrap();
}

/// Increments the format number under a key of a database.
fn raise(db: &std::path::Path, key: &[u8]) {
    let db = DB::open_default(db).unwrap();
    let mut value = db.get(key).unwrap().unwrap();
    value[0] += 1;
    db.put(key, value).unwrap();
    db.flush().unwrap();
}

/// Asserts that the task has stopped for this reason, and that the others have done their work.
#[track_caller]
fn stopped(room: &Room, ran: Ran, words: &[&str]) {
    ran.ended(2).said(words);
    let verdicts = |name: &str| room.verdicts(name).len();
    assert!(verdicts("hourly") > 0 && verdicts("versions") > 0);
}

#[test]
fn later_entry_is_refused() {
    let fixture = Fixture::latest();
    let room = fixture.room(false);
    append(&room, &later(&fixture, &[KIND_IDENTITY]));
    room.append(&fixture.lines("after.jsonl"));
    let words =
        ["ids.in:0", "an entry has format 3, this release reads 2", "start the release that wrote it or a later"];
    stopped(&room, room.drain(), &words);
    let again = Room::drain(&room);
    stopped(&room, again, &words);
}

#[test]
fn later_position_record_is_refused() {
    let fixture = Fixture::latest();
    let room = fixture.room(false);
    append(&room, &later(&fixture, POSITION_KEY));
    room.append(&fixture.lines("after.jsonl"));
    let words = ["ids.in:0", "a position record has format 3, this release reads 2", "start the release that wrote it"];
    stopped(&room, room.drain(), &words);
}

#[test]
fn later_committed_offset_is_refused() {
    let fixture = Fixture::latest();
    let room = fixture.room(true);
    let input = format!("{MET}.in");
    let offset = room.cluster().end(&input, 0).unwrap();
    let metadata = "ratchet/2 what a later release says".to_owned();
    let partition = TopicPartition::new(input.as_str(), 0);
    room.cluster()
        .reset_offset(&format!("ratchet.{MET}"), &partition, Some(CommittedOffset { offset, metadata }))
        .unwrap();
    let words = ["ids.in:0", "committed offset's metadata has format 2, this release reads 1", "or a later one"];
    room.append(&fixture.lines("after.jsonl"));
    stopped(&room, room.drain(), &words);
}

#[test]
fn later_folder_of_topics_is_refused() {
    let fixture = Fixture::latest();
    let room = fixture.room(true);
    raise(&room.path("topics/db"), &[0]);
    let words = ["it has format 2, this release reads 1", "start the release that wrote it or a later one"];
    room.drain().ended(2).said(&words);
}

/// The changelog has everything, so nobody has to act.
#[test]
fn later_store_is_rebuilt() {
    let fixture = Fixture::latest();
    let room = fixture.room(true);
    raise(&room.store(MET), STORE_META_KEY);
    room.append(&fixture.lines("after.jsonl"));
    room.drain().ended(0).said(&["ids.in:0", "a store's meta has format 3, this release reads 2", "rebuilding it"]);
    assert_right(&fixture, &room);
}
