//! Writes the fixtures of today's formats: `make fixtures FORMAT=format-N`, once for each set of format numbers.
//! Existing fixtures are never rewritten: they stand for programs in use.

use std::fs;
use std::path::Path;

use ratchet::format::{
    Acknowledgement, ChangelogOffset, Command, CommandId, Contents, ContentsList, DIGEST_TAGS, Digest, EntryRef,
    Instruction, ManualDecision, OffsetMetadata, Outcome, PositionRecord, Reached, Scope, Segment, StoreMeta, Token,
};
use serde_json::{Value, json};

use crate::fixtures::{KINDS, Room, TOPOLOGIES, copy, hex, root};
use crate::{decode, requests};

/// Files that RocksDB does not need to open a folder.
const NEEDLESS: [&str; 4] = ["LOG", "OPTIONS-", "LOCK", "lock"];

#[test]
#[ignore = "writes the fixtures of today's formats, once: make fixtures FORMAT=format-N"]
fn write_fixtures() {
    let name = std::env::var("FORMAT").expect("FORMAT names the folder");
    let numbered = name.split_once('-').filter(|(_, number)| number.parse::<u32>().is_ok());
    let kind = numbered.map(|(kind, _)| kind).filter(|kind| KINDS.contains(kind));
    let kind = kind.unwrap_or_else(|| panic!("FORMAT={name:?}: write format-N, control-N or request-N"));
    let path = root().join(&name);
    assert!(!path.exists(), "{} exists and is never rewritten", path.display());
    match kind {
        "control" => write_control(&path),
        "request" => requests::write_requests(&path),
        _ => write_format(&path),
    }
}

/// What stands in a control topic.
fn write_control(path: &Path) {
    fs::create_dir(path).unwrap();
    write(&path.join("commands.jsonl"), &commands());
    write(&path.join("acknowledgements.jsonl"), &acknowledgements());
}

/// What a run leaves behind.
fn write_format(path: &Path) {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats/sources");
    let read = |file: &str| -> Vec<Value> {
        let text = fs::read_to_string(sources.join(file)).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let room = Room::new(&sources.join("topologies"));
    let before = read("before.jsonl");
    room.append(&before);
    room.drain().ended(0);
    for name in TOPOLOGIES {
        let expected = before.iter().filter(|line| line["topology"] == name).map(|line| line["becomes"].clone());
        assert_eq!(json!(room.verdicts(name)), json!(expected.collect::<Vec<_>>()), "{name}");
    }
    copy(&sources, path);
    write(&path.join("changelogs.jsonl"), &TOPOLOGIES.map(|name| decode::changelog(&room, name)).concat());
    for folder in ["topics", "state"] {
        copy(&room.path(folder), &path.join(folder));
        strip(&path.join(folder));
    }
    write(&path.join("entries.jsonl"), &entries());
    write(&path.join("positions.jsonl"), &positions());
    write(&path.join("store-metas.jsonl"), &store_metas());
    write(&path.join("offsets.jsonl"), &offsets());
}

/// Writes lines of JSON.
pub fn write(path: &Path, lines: &[Value]) {
    let lines: Vec<String> = lines.iter().map(|line| format!("{line}\n")).collect();
    fs::write(path, lines.concat()).unwrap();
}

/// Removes what RocksDB does not need.
pub fn strip(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            strip(&path);
        } else if NEEDLESS.iter().any(|needless| name.starts_with(needless)) || name.ends_with(".lock") {
            fs::remove_file(&path).unwrap();
        }
    }
}

fn line(bytes: &[u8], is: Value) -> Value {
    json!({"bytes": hex(bytes), "is": is})
}

/// Entries with every single flag, and with those that go together.
fn entries() -> Vec<Value> {
    let plain = EntryRef {
        last_seen: 1_700_000_000_000,
        version: None,
        scope: None,
        from_read: false,
        streamed: None,
        owes_tombstone: false,
        key_hash: Some(0x7fff_fffe),
        contents: Contents::NONE,
    };
    let versioned = EntryRef { version: Some(b"\x81\x09"), ..plain };
    let (mut one, mut eight) = (ContentsList::default(), ContentsList::default());
    one.push(Digest::new(u64::MAX, DIGEST_TAGS - 1, false));
    (1..9).for_each(|hash| eight.push(Digest::new(hash << 40, 5, hash % 2 == 0)));
    let (one, eight) = (one.as_contents(), eight.as_contents());
    let all = [
        plain,
        EntryRef { last_seen: ratchet::format::NO_TIME, ..plain },
        EntryRef { last_seen: 0, key_hash: None, ..plain },
        versioned,
        EntryRef { version: Some(b""), ..plain },
        EntryRef { owes_tombstone: true, ..versioned },
        EntryRef { scope: Some(3), ..versioned },
        EntryRef { scope: Some(u16::MAX), ..plain },
        EntryRef { from_read: true, ..versioned },
        EntryRef { from_read: true, streamed: Some(b"\x81\x07"), ..versioned },
        EntryRef { from_read: true, streamed: Some(b""), scope: Some(0), owes_tombstone: true, ..versioned },
        EntryRef { contents: one, ..plain },
        EntryRef { contents: one, scope: Some(3), ..versioned },
        EntryRef { contents: eight, from_read: true, streamed: Some(b"\x81\x07"), scope: Some(0), ..versioned },
    ];
    let encode = |entry: &EntryRef<'_>| {
        let mut bytes = Vec::new();
        entry.encode(&mut bytes);
        line(&bytes, decode::entry(entry))
    };
    all.iter().map(encode).collect()
}

fn token(transaction: u64) -> Token {
    Token { lane: u64::MAX, transaction, changelog_id: *b"0123456789abcdef", partition: 3 }
}

fn positions() -> Vec<Value> {
    let bare = PositionRecord {
        token: token(1),
        owner: String::new(),
        input_id: [9; 16],
        processed: Vec::new(),
        stream_time: ratchet::format::NO_TIME,
        horizon: i64::MIN,
        rules_digest: [0xd1; 32],
        generation: 1,
        task_count: 1,
        truncates: 0,
        scopes: Vec::new(),
    };
    let segment = |above: Option<&[u8]>, began| Segment { above: above.map(<[u8]>::to_vec), began };
    let reached = |offset, version: &[u8]| Reached { offset, version: version.to_vec() };
    let full = PositionRecord {
        token: token(70_000),
        owner: "ratchet.payments.1f2e3d4c.0-r1".to_owned(),
        processed: vec![(0, 5), (9, 5_000_000_000)],
        stream_time: 1_700_000_000_000,
        horizon: 1_699_996_400_000,
        task_count: 128,
        truncates: 2,
        scopes: vec![
            Scope {
                bytes: b"\x04\x01a".to_vec(),
                segments: vec![segment(None, 0), segment(Some(b"\x81\x09"), 200)],
                reached: vec![reached(3, b"\x81\x09"), reached(299, b"\x81\x0b")],
            },
            Scope { bytes: b"\x04\x01b".to_vec(), segments: vec![segment(None, 4)], reached: Vec::new() },
        ],
        ..bare.clone()
    };
    [bare, full].iter().map(|position| line(&position.encode(), decode::position(position))).collect()
}

fn commands() -> Vec<Value> {
    let identity_keys = [b"\x10\x04\x02o7".to_vec(), [&b"\x11"[..], &[0xab; 32]].concat()];
    let settled = identity_keys.iter().flat_map(|key| ManualDecision::ALL.map(|decision| (key.clone(), decision)));
    let each = settled.enumerate().map(|(number, (identity_key, decision))| {
        let id = CommandId(0x0123_4567_89ab_cdef_0000_0000_0000_0000 + number as u128);
        let (topic_id, at_ms) = (*b"0123456789abcdef", 1_700_000_000_000 + number as i64);
        let command = Command { topic_id, at_ms, instruction: Instruction::Settle { identity_key, decision } };
        let key = id.key().into_bytes();
        json!({"key": hex(&key), "bytes": hex(&command.encode()), "is": decode::command(&key, &command)})
    });
    each.collect()
}

fn acknowledgements() -> Vec<Value> {
    let was = [Some("in_doubt"), Some("under_way"), Some("done"), None];
    let each = Outcome::ALL.into_iter().zip(was.into_iter().cycle()).map(|(outcome, was)| {
        let key = CommandId(u128::MAX - 1).key_of_acknowledgement("shop.orders", 12).into_bytes();
        let said = Acknowledgement { outcome, was: was.map(str::to_owned) };
        json!({"key": hex(&key), "bytes": hex(&said.encode()), "is": decode::acknowledgement(&key, &said)})
    });
    each.collect()
}

fn store_metas() -> Vec<Value> {
    let at = |token, position_offset| StoreMeta {
        changelog_id: *b"0123456789abcdef",
        partition: 3,
        changelog_offset: ChangelogOffset(5_000_000_000),
        token,
        synced_at: 1_700_000_000_000,
        position_offset,
    };
    [at(None, None), at(Some(token(70_000)), Some(ChangelogOffset(4_999_999_999)))]
        .iter()
        .map(|meta| line(&meta.encode(), decode::store_meta(meta)))
        .collect()
}

fn offsets() -> Vec<Value> {
    let of = |owner: Option<&str>| OffsetMetadata {
        token: token(70_000),
        digest: "00ff00ff00ff00ff".to_owned(),
        owner: owner.map(str::to_owned),
    };
    let all = [of(None), of(Some("ratchet.payments.1f2e3d4c.0-r1"))];
    all.iter().map(|metadata| line(metadata.to_string().as_bytes(), decode::metadata(metadata))).collect()
}
