//! Goal: a partition behaves as Kafka's does. Each test names the source of its rule.

use super::*;

fn record(key: &str, value: Option<&str>) -> Record {
    let bytes = |text: &str| Bytes::from(text.as_bytes());
    Record { key: Some(bytes(key)), value: value.map(bytes), ..Record::default() }
}

fn write(log: &mut Log, producer: i64, epoch: i16, sequence: i32, keys: &[&str]) -> Result<i64, Code> {
    let records: Vec<Record> = keys.iter().map(|key| record(key, Some("v"))).collect();
    log.append_transactional(Writer { producer, epoch, sequence }, &records)
}

fn keys(log: &Log, from: i64, isolation: Isolation) -> (Vec<(i64, String)>, i64) {
    let mut seen = Vec::new();
    let next = log.read(from, isolation, 100, |offset, record| {
        seen.push((offset, String::from_utf8(record.key.as_ref().unwrap().to_vec()).unwrap()));
    });
    (seen, next.unwrap())
}

fn offsets(log: &Log) -> Vec<i64> {
    keys(log, log.start(), Isolation::Committed).0.into_iter().map(|(offset, _)| offset).collect()
}

/// KIP-98, "Read committed": an open transaction and everything after it is invisible, but below the high watermark.
#[test]
fn open_transaction_hides_later_records() {
    let mut log = Log::default();
    log.append([record("a", Some("v"))]);
    write(&mut log, 1, 0, 0, &["b"]).unwrap();
    log.append([record("c", Some("v"))]);
    assert_eq!((log.stable_end(), log.end()), (1, 3));
    assert_eq!(keys(&log, 0, Isolation::Committed), (vec![(0, "a".into())], 1));
    assert_eq!(keys(&log, 0, Isolation::Uncommitted).0.len(), 3);
    log.append_marker(1, 0, true, false).unwrap();
    assert_eq!((log.stable_end(), log.end()), (4, 4), "the marker takes an offset");
    assert_eq!(keys(&log, 0, Isolation::Committed).1, 4, "and a reader passes it");
}

/// KIP-98: aborted records stay in the log, but read_committed readers do not get them.
#[test]
fn aborted_records_are_skipped() {
    let mut log = Log::default();
    write(&mut log, 1, 0, 0, &["a"]).unwrap();
    write(&mut log, 2, 0, 0, &["b"]).unwrap();
    log.append_marker(1, 0, false, false).unwrap();
    assert_eq!(log.stable_end(), 1, "the other one is still open");
    log.append_marker(2, 0, true, false).unwrap();
    assert_eq!(keys(&log, 0, Isolation::Committed), (vec![(1, "b".into())], 4));
    assert_eq!(keys(&log, 0, Isolation::Uncommitted).0.len(), 2);
    write(&mut log, 1, 0, 1, &["c"]).unwrap();
    log.append_marker(1, 0, true, false).unwrap();
    assert_eq!(keys(&log, 2, Isolation::Committed).0, [(4, "c".into())], "the producer's next transaction is another");
}

/// `ProducerAppendInfo.checkProducerEpoch`: a marker under a new epoch fences the one before.
#[test]
fn lower_epoch_is_fenced() {
    let mut log = Log::default();
    write(&mut log, 1, 0, 0, &["a"]).unwrap();
    log.append_marker(1, 1, false, false).unwrap();
    assert_eq!(write(&mut log, 1, 0, 1, &["b"]), Err(Code::InvalidProducerEpoch));
    assert_eq!(log.append_marker(1, 0, true, false), Err(Code::InvalidProducerEpoch));
    assert_eq!(write(&mut log, 1, 2, 0, &["c"]), Ok(2));
}

/// `ProducerStateEntry.findDuplicateBatch`, `ProducerAppendInfo.checkSequence`: a repeated batch is not written
/// again, a gap is rejected, a new epoch starts at 0.
#[test]
fn repeated_batches_are_recognised_by_their_sequence() {
    let mut log = Log::default();
    assert_eq!(write(&mut log, 1, 0, 0, &["a", "b"]), Ok(0));
    assert_eq!(write(&mut log, 1, 0, 0, &["a", "b"]), Ok(0));
    assert_eq!(log.end(), 2);
    assert_eq!(write(&mut log, 1, 0, 3, &["d"]), Err(Code::OutOfOrderSequence));
    assert_eq!(write(&mut log, 1, 0, 2, &["c"]), Ok(2));
    assert_eq!(write(&mut log, 1, 1, 3, &["d"]), Err(Code::OutOfOrderSequence));
    assert_eq!(write(&mut log, 1, 1, 0, &["d"]), Ok(3));
}

/// `ProducerAppendInfo.checkProducerEpoch` for transactions of version 2 (KIP-890, KAFKA-19999).
#[test]
fn strict_markers_need_a_higher_epoch() {
    let mut log = Log::default();
    write(&mut log, 1, 0, 0, &["a"]).unwrap();
    assert_eq!(log.append_marker(1, 0, true, true), Err(Code::InvalidProducerEpoch));
    assert_eq!(log.append_marker(1, 1, true, true), Ok(()));
    assert_eq!(log.append_marker(1, 1, true, true), Ok(()), "once more is a retry");
    assert_eq!(keys(&log, 0, Isolation::Committed).0, [(0, "a".into())]);
}

/// `ReplicaManager.readFromLog`: OFFSET_OUT_OF_RANGE before the start and after the end; the end itself is fine.
#[test]
fn reads_outside_the_log_are_out_of_range() {
    let mut log = Log::default();
    log.append(["a", "b", "c"].map(|key| record(key, None)));
    log.delete_before(2).unwrap();
    let read = |from| log.read(from, Isolation::Committed, 9, |_, _| ());
    assert_eq!(read(1), Err(Code::OffsetOutOfRange));
    assert_eq!(read(4), Err(Code::OffsetOutOfRange));
    assert_eq!((read(2), read(3)), (Ok(3), Ok(3)));
    assert_eq!(log.delete_before(4), Err(Code::OffsetOutOfRange), "DeleteRecords beyond the end");
}

/// `UnifiedLog.maybeIncrementFirstUnstableOffset`: an open transaction that starts below the log's start counts from
/// there.
#[test]
fn last_stable_offset_is_never_below_the_start() {
    let mut log = Log::default();
    write(&mut log, 1, 0, 0, &["a", "b"]).unwrap();
    log.delete_before(1).unwrap();
    assert_eq!((log.start(), log.stable_end()), (1, 1));
}

/// Documentation, "Log Compaction": the last record of each key stays, offsets never change, the end stays.
#[test]
fn compaction_keeps_the_last_record_of_each_key() {
    let mut log = Log::default();
    log.append(["a", "b", "a", "c", "b"].map(|key| record(key, Some("v"))));
    log.compact(4, 0, 0);
    assert_eq!(offsets(&log), [1, 2, 3, 4], "the record beyond the cleaned part does not count");
    log.compact(5, 0, 0);
    assert_eq!(offsets(&log), [2, 3, 4]);
    assert_eq!((log.start(), log.end()), (0, 5));
    assert_eq!(keys(&log, 0, Isolation::Committed).1, 5);
}

/// `Cleaner.shouldRetainRecord`, `LogCleanerManager.cleanableOffsets`: aborted records go and supersede nothing; open
/// transactions are not touched.
#[test]
fn compaction_respects_transactions() {
    let mut log = Log::default();
    log.append([record("a", Some("v"))]);
    write(&mut log, 1, 0, 0, &["a"]).unwrap();
    log.append_marker(1, 0, false, false).unwrap();
    write(&mut log, 2, 0, 0, &["a"]).unwrap();
    log.compact(9, 0, 0);
    assert_eq!(offsets(&log), [0], "the aborted record does not replace the first");
    log.append_marker(2, 0, true, false).unwrap();
    log.compact(9, 0, 0);
    assert_eq!(offsets(&log), [3]);
}

/// KIP-534: a tombstone stays for `delete.retention.ms` after the first pass that met it; so does a marker without
/// records.
#[test]
fn tombstones_stay_for_the_delete_retention() {
    let mut log = Log::default();
    log.append([record("a", Some("v")), record("a", None)]);
    log.compact(2, 100, 50);
    assert_eq!(offsets(&log), [1]);
    log.compact(2, 149, 50);
    assert_eq!(offsets(&log), [1]);
    log.compact(2, 150, 50);
    assert!(offsets(&log).is_empty());
    assert_eq!(keys(&log, 0, Isolation::Committed).1, 2, "offsets without records are passed");
}

/// `DeleteRecords` may move the start into a batch, which stays whole, and is lost as a whole.
#[test]
fn batch_stays_whole() {
    let batch = || vec![record("a", Some("v")), record("b", Some("v"))];
    let mut log = Log::default();
    log.append_batch(None, Packing::None, batch());
    log.append_batch(Some(1), Packing::None, batch());
    log.delete_before(3).unwrap();
    let first = |log: &Log| log.entries(3).next().map(|stored| stored.offset);
    assert_eq!((log.start(), first(&log)), (3, Some(2)));
    log.truncate(3);
    assert_eq!((log.end(), first(&log), log.open().count()), (3, None, 0));
}

/// `UnifiedLog.fetchLastStableOffsetMetadata`: a transaction is stable once followers have its marker.
#[test]
fn marker_counts_once_it_is_replicated() {
    let mut log = Log { lags: true, ..Log::default() };
    write(&mut log, 1, 0, 0, &["a"]).unwrap();
    log.append_marker(1, 0, true, false).unwrap();
    log.replicate(1);
    assert_eq!((log.high(), log.stable_end(), log.end()), (1, 0, 2));
    log.replicate(2);
    assert_eq!((log.high(), log.stable_end()), (2, 2));
}
