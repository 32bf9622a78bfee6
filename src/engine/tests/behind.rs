//! Goal: a store that is merely behind remains complete if reading the changelog leads to a refusal: it may be the last
//! good copy.

use super::*;
use crate::cluster::CommittedOffset;
use crate::format::{OffsetMetadata, PositionRecord, StoreMeta};
use crate::record::TopicPartition;
use crate::state::Survey;

const INPUT: &str = "orders";
const OUTPUT: &str = "clean";
/// More entries than fit into one write batch of a store.
const MANY: usize = 20_000;

/// Meta and position records of those stores, in place or set aside, that are the result of a transaction.
fn complete_stores(site: &Site) -> Vec<(StoreMeta, PositionRecord)> {
    let found = Survey::of_folder(&site.config().state_dir).stores("shop", INPUT).unwrap();
    let read = found.iter().map(|store| store.open().unwrap().unwrap());
    let read = read.map(|store| (store.meta().unwrap().unwrap(), store.position().unwrap().unwrap()));
    read.filter(|(meta, _)| meta.token.is_some()).collect()
}

fn copy(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}

fn send_things(site: &Site, count: usize) {
    let padding = "x".repeat(80);
    let values: Vec<String> = (0..count).map(|n| format!(r#"{{"id":"{padding}{n}","version":1}}"#)).collect();
    for chunk in values.chunks(1_000) {
        let messages: Vec<Message<'_>> = chunk
            .iter()
            .map(|value| Message {
                topic: INPUT,
                partition: 0,
                key: None,
                value: Some(value.as_bytes()),
                headers: Headers::default(),
                timestamp: Some(2_000),
            })
            .collect();
        site.cluster.append(INPUT, 0, &messages).unwrap();
    }
}

/// Commits the offset of a transaction of this many records that the changelog does not hold. Returns the former
/// offset.
fn commit_unknown_transaction(site: &Site, records: i64) -> CommittedOffset {
    let partition = TopicPartition::new(INPUT, 0);
    let found = site.cluster.committed("ratchet.shop", std::slice::from_ref(&partition), WAIT_MAX).unwrap();
    let committed = found[0].clone().unwrap();
    let mut metadata = OffsetMetadata::parse(&committed.metadata).unwrap().unwrap();
    metadata.token.lane ^= 1;
    let unknown = CommittedOffset { offset: committed.offset + records, metadata: metadata.to_string() };
    site.cluster.reset_offset("ratchet.shop", &partition, Some(unknown)).unwrap();
    committed
}

/// Replaces the store with an old copy that lacks this many records, and makes the group name a transaction that the
/// changelog does not hold.
fn refuse_behind(records: usize) {
    let site = Site::new();
    let topology = topology(Input::Topics(vec![INPUT.to_owned()]), OUTPUT);
    site.send(INPUT, "before", &[1]);
    site.drain(&topology).unwrap();
    let (state, copied) = (site.config().state_dir, site.folder.path().join("kept"));
    copy(&state, &copied);
    let before = complete_stores(&site);
    assert_eq!(before.len(), 1);
    send_things(&site, records);
    site.drain(&topology).unwrap();
    assert_ne!(complete_stores(&site), before);
    std::fs::remove_dir_all(&state).unwrap();
    copy(&copied, &state);
    let committed = commit_unknown_transaction(&site, 2);
    let ended = site.drain(&topology);
    assert!(matches!(ended, Err(Error::Tasks { tasks: 1, refused: true, .. })), "{ended:?}");
    assert_eq!(complete_stores(&site), before, "the copy is lost");
    // Once the group's offset is corrected, the task continues.
    site.cluster.reset_offset("ratchet.shop", &TopicPartition::new(INPUT, 0), Some(committed)).unwrap();
    site.drain(&topology).unwrap();
    let stores = complete_stores(&site);
    assert_eq!(stores.len(), 1, "{stores:?}");
    assert_ne!(stores, before);
    assert_eq!(site.values(OUTPUT).len(), 1 + records);
}

#[test]
fn store_slightly_behind_is_complete_after_a_refusal() {
    refuse_behind(3);
}

#[test]
fn store_far_behind_is_complete_after_a_refusal() {
    refuse_behind(MANY);
}

/// Simulates a transaction that Kafka has committed for the group but aborted in the changelog and the output.
#[test]
fn reset_to_earliest_forwards_the_records_of_an_aborted_transaction_and_no_others() {
    let site = Site::new();
    let topology = topology(Input::Topics(vec![INPUT.to_owned()]), OUTPUT);
    site.send(INPUT, "before", &[1, 2]);
    site.drain(&topology).unwrap();
    let before = site.values(OUTPUT);
    site.send(INPUT, "aborted", &[3, 4]);
    commit_unknown_transaction(&site, 2);
    let ended = site.drain(&topology);
    assert!(matches!(ended, Err(Error::Tasks { tasks: 1, refused: true, .. })), "{ended:?}");
    assert_eq!(site.values(OUTPUT), before);
    let earliest = CommittedOffset { offset: 0, metadata: String::new() };
    site.cluster.reset_offset("ratchet.shop", &TopicPartition::new(INPUT, 0), Some(earliest)).unwrap();
    site.drain(&topology).unwrap();
    let after = site.values(OUTPUT);
    assert_eq!((after.len(), &after[..before.len()]), (before.len() + 2, &before[..]));
}
