//! Goal: bytes of every kind that was ever written keep their meaning: lines of `{"bytes", "is"}`, generated from
//! values and not by decoding the bytes.

use std::collections::BTreeMap;

use ratchet::format::{
    Acknowledgement, Command, CommandId, EntryRef, Instruction, OffsetMetadata, POSITION_KEY, PositionRecord,
    StoreMeta, Token, hex as digits,
};
use serde_json::{Value, json};

use crate::fixtures::{Fixture, KeyValue, TOPOLOGIES, all, hex, of_control, unhex};

/// An entry's fields; contents only if it knows any, which entries of earlier programs do not.
pub fn entry(entry: &EntryRef<'_>) -> Value {
    let mut fields = json!({
        "last_seen": entry.last_seen,
        "version": entry.version.map(hex),
        "scope": entry.scope,
        "from_read": entry.from_read,
        "streamed": entry.streamed.map(hex),
        "owes_tombstone": entry.owes_tombstone,
        "key_hash": entry.key_hash,
    });
    if !entry.contents.is_empty() {
        fields["contents"] = entry.contents.digests().map(|digest| digest.hex()).collect();
    }
    fields
}

fn token(token: &Token) -> Value {
    json!({
        "lane": token.lane,
        "transaction": token.transaction,
        "changelog_id": hex(&token.changelog_id),
        "partition": token.partition,
    })
}

/// A position record's fields.
pub fn position(position: &PositionRecord) -> Value {
    let scope = |scope: &ratchet::format::Scope| {
        let segment = |s: &ratchet::format::Segment| json!({"above": s.above.as_deref().map(hex), "began": s.began});
        let reached = |r: &ratchet::format::Reached| json!({"offset": r.offset, "version": hex(&r.version)});
        json!({
            "bytes": hex(&scope.bytes),
            "segments": scope.segments.iter().map(segment).collect::<Vec<_>>(),
            "reached": scope.reached.iter().map(reached).collect::<Vec<_>>(),
        })
    };
    json!({
        "token": token(&position.token),
        "owner": position.owner,
        "input_id": hex(&position.input_id),
        "processed": position.processed,
        "stream_time": position.stream_time,
        "horizon": position.horizon,
        "rules_digest": hex(&position.rules_digest),
        "generation": position.generation,
        "task_count": position.task_count,
        "truncates": position.truncates,
        "scopes": position.scopes.iter().map(scope).collect::<Vec<_>>(),
    })
}

/// A store meta's fields; those that format 1 lacks only if they are known.
pub fn store_meta(meta: &StoreMeta) -> Value {
    let mut fields = json!({
        "changelog_id": hex(&meta.changelog_id),
        "partition": meta.partition,
        "changelog_offset": meta.changelog_offset.0,
        "token": meta.token.as_ref().map(token),
        "synced_at": meta.synced_at,
    });
    if let Some(offset) = meta.position_offset {
        fields["position_offset"] = offset.0.into();
    }
    fields
}

/// The fields of a committed offset's metadata.
pub fn metadata(metadata: &OffsetMetadata) -> Value {
    json!({"token": token(&metadata.token), "digest": metadata.digest, "owner": metadata.owner})
}

/// A command's fields, with its id.
pub fn command(key: &[u8], command: &Command) -> Value {
    let Instruction::Settle { identity_key, decision } = &command.instruction;
    json!({
        "id": CommandId::of_command(key).expect("it is the key of one").0.to_string(),
        "topic_id": hex(&command.topic_id),
        "at_ms": command.at_ms,
        "settles": hex(identity_key),
        "by_hand": format!("{decision:?}"),
    })
}

/// An acknowledgement's fields, with its command's id and its task.
pub fn acknowledgement(key: &[u8], acknowledgement: &Acknowledgement) -> Value {
    let (id, topic, partition) = CommandId::of_acknowledgement(key).expect("it is the key of one");
    json!({
        "id": id.0.to_string(),
        "topic": topic,
        "partition": partition,
        "outcome": format!("{:?}", acknowledgement.outcome),
        "was": acknowledgement.was,
    })
}

fn each(file: &str, read: impl Fn(&[u8]) -> Value) {
    for fixture in all() {
        for line in fixture.lines(file) {
            assert_eq!(read(&unhex(&line["bytes"])), line["is"], "{}, {file}: {line}", fixture.path.display());
        }
    }
}

#[test]
fn entries_keep_their_meaning() {
    each("entries.jsonl", |bytes| entry(&EntryRef::decode(bytes).unwrap()));
}

#[test]
fn position_records_keep_their_meaning() {
    each("positions.jsonl", |bytes| position(&PositionRecord::decode(bytes).unwrap()));
}

#[test]
fn commands_and_acknowledgements_keep_their_meaning() {
    for fixture in of_control() {
        for line in fixture.lines("commands.jsonl") {
            let (key, value) = (unhex(&line["key"]), unhex(&line["bytes"]));
            assert_eq!(command(&key, &Command::decode(&value).unwrap()), line["is"], "{line}");
        }
        for line in fixture.lines("acknowledgements.jsonl") {
            let (key, value) = (unhex(&line["key"]), unhex(&line["bytes"]));
            let is = acknowledgement(&key, &Acknowledgement::decode(&value).unwrap());
            assert_eq!((is, CommandId::of_command(&key)), (line["is"].clone(), None), "{line}");
        }
    }
}

#[test]
fn store_metas_keep_their_meaning() {
    each("store-metas.jsonl", |bytes| store_meta(&StoreMeta::decode(bytes).unwrap()));
}

#[test]
fn committed_offsets_keep_their_meaning() {
    each("offsets.jsonl", |bytes| {
        metadata(&OffsetMetadata::parse(std::str::from_utf8(bytes).unwrap()).unwrap().unwrap())
    });
}

/// Inputs read from the folder of topics equal what was sent, and changelogs what was listed when they were written.
#[test]
fn embedded_clusters_folder_keeps_its_contents() {
    for fixture in all() {
        let room = fixture.room(false);
        let before = fixture.lines("before.jsonl");
        for name in TOPOLOGIES {
            let sent: Vec<Value> = before.iter().filter(|record| record["topology"] == name).cloned().collect();
            let found = room.cluster().read_all(&format!("{name}.in"), 0).unwrap();
            assert_eq!(found.len(), sent.len(), "{name}");
            for (record, sent) in found.iter().zip(&sent) {
                let bytes = |part: &Value| part.as_str().map(|text| text.as_bytes().to_vec());
                assert_eq!((&record.key, &record.value), (&bytes(&sent["key"]), &bytes(&sent["value"])), "{name}");
                assert_eq!(record.timestamp, sent["timestamp"].as_i64(), "{name}: {sent}");
            }
        }
        assert_eq!(listed(&fixture), TOPOLOGIES.map(|name| changelog(&room, name)).concat());
    }
}

/// The records of a topology's changelog, as `changelogs.jsonl` lists them.
pub fn changelog(room: &crate::fixtures::Room, topology: &str) -> Vec<Value> {
    let records = room.records(&format!("ratchet.{topology}.{topology}.in.changelog"));
    let line = |(key, value): KeyValue| {
        let (key, value) = (key.as_deref().map(hex), value.as_deref().map(hex));
        json!({"topology": topology, "key": key, "value": value})
    };
    records.into_iter().map(line).collect()
}

fn listed(fixture: &Fixture) -> Vec<Value> {
    fixture.lines("changelogs.jsonl")
}

/// A store in the state folder holds its folded changelog, and names the last position record's transaction.
#[test]
fn store_equals_its_folded_changelog() {
    for fixture in all() {
        let room = fixture.room(true);
        for name in TOPOLOGIES {
            let mut folded = BTreeMap::new();
            for line in listed(&fixture).into_iter().filter(|line| line["topology"] == name) {
                let key = unhex(&line["key"]);
                match &line["value"] {
                    Value::Null => folded.remove(&key),
                    value => folded.insert(key, unhex(value)),
                };
            }
            let mut held = BTreeMap::new();
            let store = rocksdb::DB::open_for_read_only(&rocksdb::Options::default(), room.store(name), false).unwrap();
            for pair in store.iterator(rocksdb::IteratorMode::Start) {
                let (key, value) = pair.unwrap();
                held.insert(key.into_vec(), value.into_vec());
            }
            let meta = held.remove(ratchet::format::STORE_META_KEY).unwrap();
            assert_eq!(held, folded, "{name}");
            let position = PositionRecord::decode(&folded[POSITION_KEY]).unwrap();
            assert_eq!(StoreMeta::decode(&meta).unwrap().token, Some(position.token), "{name}");
            assert!(folded.len() > 1, "{name}: {}", digits(&meta));
        }
    }
}
