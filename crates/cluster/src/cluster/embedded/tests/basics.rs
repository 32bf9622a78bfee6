//! Goal: what one producer, one reader and one folder promise: atomic and durable transactions, fencing,
//! exact bytes, clear errors.

use std::time::Instant;

use super::*;

#[test]
fn record_is_returned_byte_for_byte() {
    let (_dir, cluster) = cluster();
    let mut headers = HeaderBuf::default();
    headers.push(b"trace", Some(b"\x00\xff"));
    headers.push(b"none", None);
    let whole = Message { headers: headers.as_headers(), ..message("t", 1, "k", Some("v")) };
    let bare = Message { key: None, value: None, timestamp: Some(0), ..message("t", 1, "", None) };
    let empty = Message { timestamp: None, ..message("t", 1, "", Some("")) };
    assert_eq!(cluster.append("t", 1, &[whole, bare, empty]).unwrap(), 3);
    let records = cluster.read_all("t", 1).unwrap();
    let expected = |offset, timestamp, key: Option<&str>, value: Option<&str>, headers: &HeaderBuf| StoredRecord {
        offset,
        timestamp: Some(timestamp),
        key: key.map(|k| k.as_bytes().to_vec()),
        value: value.map(|v| v.as_bytes().to_vec()),
        headers: headers.clone(),
    };
    let none = HeaderBuf::default();
    assert_eq!(records[0], expected(0, 1_000, Some("k"), Some("v"), &headers));
    assert_eq!(records[1], expected(1, 0, None, None, &none));
    assert_eq!(records[2], expected(2, 0, Some(""), Some(""), &none), "the cluster's clock is at 0");
    assert_eq!(cluster.read_all("t", 0).unwrap(), vec![]);
}

#[test]
fn transaction_is_visible_as_a_whole_once_committed() {
    let (_dir, cluster) = cluster();
    create(&cluster, "in", 1, &[]);
    create(&cluster, "out", 1, &[]);
    let member = joined(&cluster, "g", "in");
    let mut producer = cluster.producer("p").unwrap();
    producer.begin().unwrap();
    producer.send(ticket(5), &message("out", 0, "a", Some("1"))).unwrap();
    producer.send(Ticket { number: 6, report: false }, &message("out", 0, "b", None)).unwrap();
    assert_eq!(pairs(&cluster, "out", 0), vec![]);
    producer.commit(&[commit_at(&tp("in", 0), 42, "note")], member.metadata().unwrap()).unwrap();
    assert_eq!(pairs(&cluster, "out", 0), vec![("a".into(), Some("1".into())), ("b".into(), None)]);
    assert_eq!(producer.take_delivered(), vec![(5, 0)]);
    let committed = cluster.committed("g", &[tp("in", 0), tp("in", 7)], LONG).unwrap();
    assert_eq!(committed, vec![Some(CommittedOffset { offset: 42, metadata: "note".into() }), None]);
}

#[test]
fn aborted_transaction_leaves_no_trace() {
    let (_dir, cluster) = cluster();
    create(&cluster, "in", 1, &[]);
    let member = joined(&cluster, "g", "in");
    let mut producer = cluster.producer("p").unwrap();
    producer.begin().unwrap();
    producer.send(ticket(1), &message("in", 0, "a", Some("gone"))).unwrap();
    producer.abort().unwrap();
    producer.begin().unwrap();
    producer.send(ticket(2), &message("in", 0, "a", Some("stays"))).unwrap();
    producer.commit(&[], member.metadata().unwrap()).unwrap();
    assert_eq!(producer.take_delivered(), vec![(2, 0)]);
    assert_eq!(pairs(&cluster, "in", 0), vec![("a".into(), Some("stays".into()))]);
}

#[test]
fn second_producer_with_the_same_id_fences_the_first() {
    let (_dir, cluster) = cluster();
    create(&cluster, "in", 1, &[]);
    let member = joined(&cluster, "g", "in");
    let mut first = cluster.producer("p").unwrap();
    first.begin().unwrap();
    first.send(ticket(1), &message("in", 0, "a", Some("zombie"))).unwrap();
    let mut second = cluster.producer("p").unwrap();
    assert_eq!(first.commit(&[], member.metadata().unwrap()).unwrap_err().kind, ErrorKind::Fenced);
    assert_eq!(first.abort().unwrap_err().kind, ErrorKind::Fenced);
    assert_eq!(first.begin().unwrap_err().kind, ErrorKind::Fenced);
    drop(first);
    second.begin().unwrap();
    second.commit(&[], member.metadata().unwrap()).unwrap();
    assert_eq!(pairs(&cluster, "in", 0), vec![]);
}

#[test]
fn committed_data_is_there_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let options = || Clock::default().options();
    let cluster = Embedded::open_with(dir.path(), options()).unwrap();
    create(&cluster, "in", 3, &[("cleanup.policy", "compact".into()), ("delete.retention.ms", "5".into())]);
    cluster.append("in", 2, &[message("in", 2, "k", Some("v"))]).unwrap();
    let member = joined(&cluster, "g", "in");
    let mut producer = cluster.producer("p").unwrap();
    producer.begin().unwrap();
    producer.commit(&[commit_at(&tp("in", 2), 1, "")], member.metadata().unwrap()).unwrap();
    let before = cluster.describe_topic("in").unwrap().unwrap();
    assert_eq!((before.partition_count, &*before.cleanup_policy, before.delete_retention_ms), (3, "compact", 5));
    drop((cluster, member, producer));

    let cluster = Embedded::open_with(dir.path(), options()).unwrap();
    assert_eq!(cluster.describe_topic("in").unwrap(), Some(before));
    assert_eq!(pairs(&cluster, "in", 2), vec![("k".into(), Some("v".into()))]);
    assert_eq!(cluster.committed("g", &[tp("in", 2)], LONG).unwrap()[0].as_ref().unwrap().offset, 1);
    assert_eq!(cluster.append("in", 2, &[message("in", 2, "k", Some("w"))]).unwrap(), 2);
}

#[test]
fn open_folder_is_refused_with_the_reason() {
    let (dir, cluster) = cluster();
    let error = Embedded::open(dir.path(), 1).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Refused);
    assert!(error.message.contains("one process at a time"), "{error}");
    drop(cluster);
    Embedded::open(dir.path(), 1).unwrap();
}

#[test]
fn recreated_topic_has_another_id_and_is_empty() {
    let (_dir, cluster) = cluster();
    create(&cluster, "t", 1, &[]);
    let old = cluster.describe_topic("t").unwrap().unwrap().id;
    cluster.append("t", 0, &[message("t", 0, "k", Some("v"))]).unwrap();
    cluster.reset_offset("g", &tp("t", 0), Some(CommittedOffset { offset: 1, metadata: String::new() })).unwrap();
    let mut reader = cluster.reader(&tp("t", 0), 0).unwrap();
    cluster.delete_topic("t").unwrap();
    assert_eq!(cluster.describe_topic("t").unwrap(), None);
    create(&cluster, "t", 1, &[]);
    create(&cluster, "t", 9, &[]);
    let new = cluster.describe_topic("t").unwrap().unwrap();
    assert_ne!(new.id, old);
    assert_eq!(new.partition_count, 1, "the second creation found it there");
    assert_eq!(pairs(&cluster, "t", 0), vec![]);
    assert_eq!(cluster.committed("g", &[tp("t", 0)], LONG).unwrap(), vec![None]);
    assert_eq!(reader.read(&mut Batch::default(), 10, LONG).unwrap_err().kind, ErrorKind::Refused);
}

#[test]
fn unsendable_record_is_refused_alone_and_failure_is_reported() {
    let (_dir, cluster) = cluster();
    create(&cluster, "in", 1, &[]);
    create(&cluster, "small", 1, &[("max.message.bytes", "3".into()), ("cleanup.policy", "compact".into())]);
    create(&cluster, "timed", 1, &[("message.timestamp.after.max.ms", "100".into())]);
    let member = joined(&cluster, "g", "in");
    let mut producer = cluster.producer("p").unwrap();
    producer.begin().unwrap();
    let bad = [
        message("small", 0, "key", Some("v")),
        Message { key: None, ..message("small", 0, "", None) },
        message("none", 0, "k", None),
        message("in", 1, "k", None),
        message("in", -1, "k", None),
    ];
    for message in bad {
        assert_eq!(producer.send(ticket(0), &message).unwrap_err().kind, ErrorKind::Refused, "{message:?}");
    }
    producer.send(ticket(1), &message("small", 0, "k", Some("v"))).unwrap();
    producer.commit(&[], member.metadata().unwrap()).unwrap();
    assert_eq!(pairs(&cluster, "small", 0).len(), 1);

    producer.begin().unwrap();
    producer.send(ticket(9), &message("timed", 0, "late", None)).unwrap();
    let failures = producer.take_failures();
    assert_eq!((failures[0].number, failures[0].refused), (9, true));
    assert_eq!(producer.commit(&[], member.metadata().unwrap()).unwrap_err().kind, ErrorKind::Abort);
    producer.abort().unwrap();
    assert_eq!(pairs(&cluster, "timed", 0), vec![]);
}

#[test]
fn deleting_a_topic_aborts_transactions_that_write_to_it() {
    let (_dir, cluster) = cluster();
    create(&cluster, "in", 1, &[]);
    create(&cluster, "out", 1, &[]);
    let member = joined(&cluster, "g", "in");
    let mut producer = cluster.producer("p").unwrap();
    producer.begin().unwrap();
    producer.send(ticket(1), &message("out", 0, "k", None)).unwrap();
    cluster.delete_topic("out").unwrap();
    create(&cluster, "out", 1, &[]);
    assert_eq!(producer.commit(&[], member.metadata().unwrap()).unwrap_err().kind, ErrorKind::Abort);
    assert_eq!(pairs(&cluster, "out", 0), vec![]);
}

#[test]
fn waiting_reader_is_woken_by_a_new_record() {
    let (_dir, cluster) = cluster();
    create(&cluster, "t", 1, &[]);
    let mut reader = cluster.reader(&tp("t", 0), 0).unwrap();
    let mut batch = Batch::default();
    reader.read(&mut batch, 10, Duration::from_millis(5)).unwrap();
    assert!(batch.is_empty());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(30));
            cluster.append("t", 0, &[message("t", 0, "a", None), message("t", 0, "b", None)]).unwrap();
        });
        reader.read(&mut batch, 1, LONG).unwrap();
    });
    assert_eq!((batch.len(), batch.record(0).key, reader.position()), (1, Some(&b"a"[..]), 1));
    reader.read(&mut batch, 10, LONG).unwrap();
    assert_eq!((batch.len(), batch.record(0).offset, reader.position()), (1, 1, 2));
}

#[test]
fn missing_offsets_are_refused() {
    let (_dir, cluster) = cluster();
    create(&cluster, "t", 1, &[]);
    cluster.append("t", 0, &[message("t", 0, "a", None), message("t", 0, "b", None)]).unwrap();
    cluster.delete_records("t", 0, 1).unwrap();
    assert_eq!((cluster.start("t", 0).unwrap(), cluster.end("t", 0).unwrap()), (1, 2));
    assert_eq!(cluster.reader(&tp("t", 0), 0).err().unwrap().kind, ErrorKind::Refused);
    assert_eq!(cluster.reader(&tp("t", 0), 3).err().unwrap().kind, ErrorKind::Refused);
    assert_eq!(cluster.delete_records("t", 0, 3).unwrap_err().kind, ErrorKind::Refused);
    let mut member = joined(&cluster, "g", "t");
    let mut batch = Batch::default();
    assert_eq!(member.poll(&mut batch, 10, LONG).unwrap_err().kind, ErrorKind::Refused);
    assert_eq!(member.poll(&mut batch, 10, NOT_AT_ALL).unwrap(), None, "it is reported once");
    member.start(&tp("t", 0), 1).unwrap();
    member.poll(&mut batch, 10, LONG).unwrap();
    assert_eq!(batch.record(0).key, Some(&b"b"[..]));
}

#[test]
fn takeover_settles_at_once() {
    let (_dir, cluster) = cluster();
    create(&cluster, "in", 1, &[]);
    create(&cluster, "log", 1, &[("cleanup.policy", "compact".into())]);
    cluster.append("log", 0, &[message("log", 0, "a", None)]).unwrap();
    cluster.reset_offset("g", &tp("in", 0), Some(CommittedOffset { offset: 0, metadata: "m".into() })).unwrap();
    let settled =
        cluster.settle(crate::cluster::Inquiry::of("g", &tp("in", 0), &tp("log", 0))).poll().unwrap().unwrap();
    assert_eq!((settled.committed.unwrap().metadata.as_str(), settled.changelog_end.0), ("m", 1));
    assert_eq!((settled.input_end, settled.input_start, settled.changelog_start.0), (0, 0, 0));
    assert_eq!(settled.changelog_id, cluster.describe_topic("log").unwrap().unwrap().id);
    let missing = cluster.settle(crate::cluster::Inquiry::of("g", &tp("in", 0), &tp("nolog", 0))).poll().unwrap();
    assert_eq!(missing.unwrap_err().kind, ErrorKind::Refused);
}

#[test]
fn folder_of_a_later_format_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    drop(Embedded::open(dir.path(), 1).unwrap());
    let db = rocksdb::DB::open_default(dir.path().join("db")).unwrap();
    // Anything after the number is up to the later release.
    db.put(layout::folder_meta_key(), [layout::FORMAT + 1, 0xff, 0xff, 0xff]).unwrap();
    drop(db);
    let error = Embedded::open(dir.path(), 1).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Refused);
    for words in ["embedded cluster's folder", "has format 2, this release reads 1", "start the release that wrote it"]
    {
        assert!(error.message.contains(words), "{words:?} is missing in {}", error.message);
    }
}

#[test]
fn impossible_topics_are_refused() {
    let (_dir, cluster) = cluster();
    let create = |name: &str, partition_count, settings: &[(&str, String)]| {
        cluster.create_topic(&NewTopic { name, partition_count, replication_factor: 1, settings })
    };
    assert!(create("", 1, &[]).is_err());
    assert!(create("a b", 1, &[]).is_err());
    assert!(create(&"x".repeat(250), 1, &[]).is_err());
    assert!(create("t", 0, &[]).is_err());
    assert!(create("t", 1, &[("cleanup.policy", "shred".into())]).is_err());
    assert!(create("t", 1, &[("delete.retention.ms", "soon".into())]).is_err());
    create("t", 1, &[("cleanup.policy", "delete, compact".into())]).unwrap();
    assert_eq!(cluster.describe_topic("t").unwrap().unwrap().cleanup_policy, "compact,delete");
    assert_eq!(cluster.topics().unwrap(), vec![Arc::from("t")]);
}

#[test]
fn record_outside_of_any_transaction_is_there_once_it_is_confirmed() {
    let (_dir, cluster) = cluster();
    create(&cluster, "t", 2, &[("max.message.bytes", "1000".to_owned())]);
    assert_eq!(cluster.append_one(&message("t", 1, "a", Some("1"))).unwrap(), 0);
    assert_eq!(cluster.append_one(&message("t", 1, "b", Some("2"))).unwrap(), 1);
    assert_eq!(pairs(&cluster, "t", 1), vec![("a".into(), Some("1".into())), ("b".into(), Some("2".into()))]);
    let refused = cluster.append_one(&message("t", 1, "c", Some(&"x".repeat(2_000)))).unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Refused, "{refused}");
    assert!(cluster.append_one(&message("nowhere", 0, "a", None)).is_err(), "no topic is created for it");
    assert!(cluster.describe_topic("nowhere").unwrap().is_none());
}

/// How long a poll took to end after it was woken, once it may have begun to wait, or before.
fn woken(member: &mut Member, is_before: bool) -> Duration {
    let (waker, mut batch) = (member.waker(), Batch::default());
    std::thread::scope(|scope| {
        if is_before {
            waker();
        }
        let polling = scope.spawn(|| (member.poll(&mut batch, 10, Duration::from_secs(10)).unwrap(), Instant::now()));
        let mut since = Instant::now();
        if !is_before {
            std::thread::sleep(Duration::from_millis(100));
            assert!(!polling.is_finished(), "nothing has ended the wait");
            since = Instant::now();
            waker();
        }
        let (event, ended) = polling.join().unwrap();
        assert_eq!(event, None);
        ended.saturating_duration_since(since)
    })
}

#[test]
fn waker_ends_the_wait_under_way_or_the_next_one() {
    let (_dir, cluster) = cluster();
    create(&cluster, "in", 1, &[]);
    let mut member = joined(&cluster, "g", "in");
    for is_before in [false, true, false] {
        let took = woken(&mut member, is_before);
        assert!(took < Duration::from_secs(3), "woken before it waits: {is_before}, it took {took:?}");
    }
    // A wake-up ends one wait only.
    let (mut batch, began) = (Batch::default(), Instant::now());
    assert_eq!(member.poll(&mut batch, 10, Duration::from_millis(200)).unwrap(), None);
    assert!(began.elapsed() >= Duration::from_millis(200), "{:?}", began.elapsed());
    // It outlives the member.
    let waker = member.waker();
    member.leave().unwrap();
    waker();
}
