//! Goal: reading a compacted topic from 0 folds to the same state before, during and after every
//! compaction; tombstones are kept as long as they may be needed, but not for ever.

use std::collections::BTreeMap;

use super::*;

type Fold = BTreeMap<String, String>;

fn fold_into(fold: &mut Fold, key: &[u8], value: Option<&[u8]>) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    match value {
        Some(value) => fold.insert(text(key), text(value)),
        None => fold.remove(&text(key)),
    };
}

fn fold(cluster: &Embedded) -> Fold {
    let mut fold = Fold::new();
    for record in cluster.read_all("log", 0).unwrap() {
        fold_into(&mut fold, &record.key.unwrap(), record.value.as_deref());
    }
    fold
}

fn compacted(clock: &Clock, min: u64) -> (tempfile::TempDir, Embedded) {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { compact_records_min: min, ..clock.options() };
    let cluster = Embedded::open_with(dir.path(), options).unwrap();
    create(&cluster, "log", 1, &[("cleanup.policy", "compact".into()), ("delete.retention.ms", "1000".into())]);
    (dir, cluster)
}

fn put(cluster: &Embedded, pairs: &[(&str, Option<&str>)]) {
    let messages: Vec<_> = pairs.iter().map(|(key, value)| message("log", 0, key, *value)).collect();
    cluster.append("log", 0, &messages).unwrap();
}

#[test]
fn compaction_keeps_the_last_record_of_each_key_with_its_offset() {
    let (_dir, cluster) = compacted(&Clock::default(), u64::MAX);
    put(&cluster, &[("a", Some("1")), ("b", Some("1")), ("a", Some("2")), ("b", None), ("c", Some("1"))]);
    cluster.compact("log", 0).unwrap();
    let left: Vec<i64> = cluster.read_all("log", 0).unwrap().iter().map(|record| record.offset).collect();
    assert_eq!(left, vec![2, 3, 4]);
    assert_eq!(cluster.end("log", 0).unwrap(), 5);
}

#[test]
fn tombstones_are_removed_after_their_retention() {
    let clock = Clock::default();
    let (_dir, cluster) = compacted(&clock, u64::MAX);
    put(&cluster, &[("a", Some("1")), ("a", None)]);
    cluster.compact("log", 0).unwrap();
    clock.set(999);
    put(&cluster, &[("b", None)]);
    cluster.compact("log", 0).unwrap();
    assert_eq!(pairs(&cluster, "log", 0).len(), 2);
    clock.set(1_000);
    cluster.compact("log", 0).unwrap();
    assert_eq!(pairs(&cluster, "log", 0), vec![("b".into(), None)], "b's was seen later");
    clock.set(2_000);
    cluster.compact("log", 0).unwrap();
    assert_eq!(pairs(&cluster, "log", 0), vec![]);
    assert_eq!(cluster.end("log", 0).unwrap(), 3);
    let mut reader = cluster.reader(&tp("log", 0), 0).unwrap();
    reader.read(&mut Batch::default(), 10, NOT_AT_ALL).unwrap();
    assert_eq!(reader.position(), 3, "the position passes what is gone");
}

#[test]
fn tombstone_is_kept_for_a_reader_that_needs_it() {
    let clock = Clock::default();
    let (_dir, cluster) = compacted(&clock, u64::MAX);
    put(&cluster, &[("a", Some("1")), ("b", Some("1")), ("a", None), ("c", Some("1"))]);
    let mut reader = cluster.reader(&tp("log", 0), 0).unwrap();
    let (mut batch, mut seen) = (Batch::default(), Fold::new());
    reader.read(&mut batch, 1, LONG).unwrap();
    fold_into(&mut seen, batch.record(0).key.unwrap(), batch.record(0).value);
    for now_ms in [1_000, 5_000, 9_000] {
        clock.set(now_ms);
        cluster.compact("log", 0).unwrap();
    }
    while reader.position() < cluster.end("log", 0).unwrap() {
        reader.read(&mut batch, 1, LONG).unwrap();
        (0..batch.len()).for_each(|i| fold_into(&mut seen, batch.record(i).key.unwrap(), batch.record(i).value));
    }
    assert_eq!(seen, fold(&cluster));
    cluster.compact("log", 0).unwrap();
    assert!(!pairs(&cluster, "log", 0).iter().any(|(key, _)| key == "a"), "nobody needs it any more");
}

#[test]
fn growing_log_is_compacted_automatically_and_folds_the_same() {
    let clock = Clock::default();
    let (dir, cluster) = compacted(&clock, 100);
    let mut model = Fold::new();
    for round in 0..60i64 {
        clock.set(round * 150);
        let pairs: Vec<(String, Option<String>)> = (0..20i64)
            .map(|n| (format!("k{}", (round * 7 + n * 3) % 30), (n % 4 != 0).then(|| format!("{round}.{n}"))))
            .collect();
        let pairs: Vec<_> = pairs.iter().map(|(key, value)| (key.as_str(), value.as_deref())).collect();
        put(&cluster, &pairs);
        pairs.iter().for_each(|(key, value)| fold_into(&mut model, key.as_bytes(), value.map(str::as_bytes)));
        assert_eq!(fold(&cluster), model);
    }
    let left = cluster.read_all("log", 0).unwrap().len();
    assert!(left <= 100, "{left} of 1200 records are left");
    drop(cluster);
    let cluster = Embedded::open_with(dir.path(), clock.options()).unwrap();
    assert_eq!(fold(&cluster), model);
    assert_eq!(cluster.end("log", 0).unwrap(), 1_200);
}

#[test]
fn other_topics_are_never_compacted() {
    let (_dir, cluster) = cluster();
    cluster.append("t", 0, &[message("t", 0, "a", None), message("t", 0, "a", None)]).unwrap();
    cluster.compact("t", 0).unwrap();
    assert_eq!(pairs(&cluster, "t", 0).len(), 2);
}
