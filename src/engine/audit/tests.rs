use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};

use super::*;
use crate::dedup::{Identity, Model, Path, Reason, Rules, Verdict, Version};
use crate::record::Headers;

static RULES: LazyLock<Rules> = LazyLock::new(|| {
    let path = |text| Path::parse(text).unwrap();
    Rules::new(Identity::of_paths([path("value.id")]), Some(Version::integer(path("value.v"))))
});

fn record(offset: i64, value: &[u8]) -> Record<'_> {
    Record {
        topic: "in",
        partition: 3,
        offset,
        timestamp: Some(1_000),
        key: None,
        value: Some(value),
        headers: Headers::default(),
    }
}

fn dropped<'a>(record: &'a Record<'a>, reason: Reason) -> Dropped<'a> {
    let decision = Decision { verdict: Verdict::Stale, reason, ..Decision::REPLAYED };
    Dropped {
        topology: "payments",
        rules: &RULES,
        record,
        decision,
        identity: None,
        version: None,
        epoch: None,
        contents: None,
        against: None,
        against_epoch: None,
    }
}

fn written(dropped: &Dropped<'_>) -> Value {
    let mut out = Vec::new();
    dropped.write(&mut out);
    serde_json::from_slice(&out).expect("an audit record is JSON")
}

/// The key and the entry that a record with this value leaves in the store.
fn entry_of(value: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut model = Model::new(Arc::new(RULES.clone()));
    model.judge(&record(0, value), 0);
    let (key, entry) = model.entries().next().expect("the record leaves an entry");
    (key.to_vec(), entry.to_vec())
}

#[test]
fn stale_record_is_explained_with_the_entry_that_it_was_compared_with() {
    let (key, entry) = entry_of(br#"{"id":"a","v":12}"#);
    let entry = EntryRef::decode(&entry).unwrap();
    let known = entry.contents.digests().next().expect("contents are compared").hex();
    let record = record(7, b"{}");
    let dropped = Dropped {
        identity: Some(explain::identity(&key)),
        version: entry.version,
        against: Some(entry),
        epoch: Some("[\"x\"]".to_owned()),
        contents: Some(Digest::new(0xabc, 1, false)),
        ..dropped(&record, Reason::VersionOlder)
    };
    assert_eq!(
        written(&dropped),
        json!({
            "topology": "payments", "topic": "in", "partition": 3, "offset": 7, "timestamp": 1000,
            "verdict": "stale", "reason": "version_older", "identity": ["a"], "version": 12, "epoch": ["x"],
            "contents": "0010000000000abc",
            "against": {"version": 12, "epoch": null, "last_seen": 1000, "contents": [known]},
        })
    );
}

#[test]
fn unread_fields_are_null() {
    let record = Record { timestamp: None, ..record(7, b"{}") };
    let audit_record = written(&dropped(&record, Reason::Replayed));
    for field in ["timestamp", "identity", "version", "epoch", "contents", "against"] {
        assert_eq!(audit_record[field], Value::Null, "{field}");
    }
    let unseen = EntryRef {
        last_seen: NO_TIME,
        version: None,
        scope: None,
        from_read: false,
        streamed: None,
        owes_tombstone: false,
        key_hash: None,
        contents: crate::format::Contents::NONE,
    };
    let audit_record = written(&Dropped { against: Some(unseen), ..dropped(&record, Reason::Seen) });
    assert_eq!(audit_record["against"], json!({"version": null, "epoch": null, "last_seen": null, "contents": []}));
}

#[test]
fn long_description_is_truncated() {
    let epoch = quoted(&"ä".repeat(6_000));
    let record = record(7, b"{}");
    let audit_record = written(&Dropped { epoch: Some(epoch), ..dropped(&record, Reason::Seen) });
    let truncated = audit_record["epoch"].as_str().expect("a string");
    assert!(truncated.starts_with("\"ää") && truncated.ends_with(TRUNCATED_END), "{}", &truncated[..20]);
    assert!(truncated.len() <= DESCRIBED_BYTES_MAX + TRUNCATED_END.len());
}
