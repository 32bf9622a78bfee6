//! A record passes through a member and a producer byte for byte.

use ratchet::cluster::kafka::{Batch, DataPath};
use ratchet::cluster::{Cluster, ErrorKind, Member as _, Message, Producer as _, Reader as _, RecordBatch};
use ratchet::record::{HeaderBuf, Headers};

use crate::cluster_kafka::common::*;

#[test]
fn key_value_headers_and_timestamp_pass_unchanged() {
    // With unlimited retention: the records claim to be from 1970.
    let kept = |name| topic_with(name, 1, &[("retention.ms", "-1")]);
    let (cluster, input, output) = (cluster(), kept("in"), kept("out"));
    let (from, to) = (at(&input, 0), at(&output, 0));
    let (_, mut member) = lone_member(&cluster, &input);
    let mut producer = cluster.producer(&unique("tx")).unwrap();
    let mut headers = HeaderBuf::default();
    headers.push(b"id", Some(b"1"));
    headers.push(b"id", Some(&[0, 255, 128]));
    headers.push(b"none", None);
    headers.push(b"empty", Some(b""));
    let odd = [
        Message { timestamp: Some(1_234), headers: headers.as_headers(), ..message(&from, "k", "v") },
        Message { timestamp: Some(5), key: None, ..message(&from, "", "a null key") },
        Message { timestamp: Some(6), key: Some(b""), ..message(&from, "", "an empty key") },
        Message { timestamp: Some(7), value: None, ..message(&from, "a null value", "") },
        Message { timestamp: Some(8), value: Some(b""), ..message(&from, "an empty value", "") },
        Message { timestamp: Some(9), value: Some(&[0, 255, 0]), key: Some(&[255]), ..message(&from, "", "") },
        Message { timestamp: Some(9), key: None, value: None, ..message(&from, "", "") },
    ];
    commit(&mut producer, &member, &odd, &[commit_of(&from, 0, "")]);

    member.start(&from, 0).unwrap();
    producer.begin().unwrap();
    let (mut batch, mut count) = (Batch::default(), 0);
    eventually("all records", || {
        assert_eq!(member.poll(&mut batch, 100, STEP).unwrap(), None);
        for record in (0..batch.len()).map(|index| batch.record(index)) {
            assert_eq!(record.topic, &*input);
            let passed = Message {
                topic: &output,
                partition: 0,
                key: record.key,
                value: record.value,
                headers: record.headers,
                timestamp: record.timestamp,
            };
            producer.send(SILENT, &passed).unwrap();
            count += 1;
        }
        (count == odd.len()).then_some(())
    });
    producer.commit(&[commit_of(&from, 7, "")], member.metadata().unwrap()).unwrap();

    let read = read_all(&to, "read_committed");
    assert_eq!(read, read_all(&from, "read_committed"));
    for (read, sent) in read.iter().zip(&odd) {
        assert_eq!(
            (read.key.as_deref(), read.value.as_deref(), read.timestamp),
            (sent.key, sent.value, sent.timestamp)
        );
    }
    let expected = [("id", Some(&b"1"[..])), ("id", Some(&[0, 255, 128])), ("none", None), ("empty", Some(b""))];
    let expected = expected.map(|(name, value)| (name.to_owned(), value.map(<[u8]>::to_vec)));
    assert_eq!(read[0].headers, expected);
}

#[test]
fn header_name_may_be_any_bytes_even_zeros() {
    let (cluster, input) = (cluster(), topic("in", 1));
    let (_, mut member) = lone_member(&cluster, &input);
    let mut producer = cluster.producer(&unique("tx")).unwrap();
    let to = at(&input, 0);
    let mut headers = HeaderBuf::default();
    let names: [&[u8]; 7] =
        [b"plain", b"in\0between", b"\0", b"", b"at its end\0", b"\0\0\0\0\0\0\0\0\0", &[0xff, 0, 0xfe]];
    for name in names {
        for value in [Some(&b"value"[..]), Some(b""), Some(b"\0v"), None] {
            headers.push(name, value);
        }
    }
    let sent = Message { headers: headers.as_headers(), ..message(&to, "k", "v") };
    commit(&mut producer, &member, &[sent], &[commit_of(&to, 0, "")]);
    member.start(&to, 0).unwrap();
    let mut batch = Batch::default();
    eventually("the record", || {
        assert_eq!(member.poll(&mut batch, 100, STEP).unwrap(), None);
        (batch.len() == 1).then_some(())
    });
    let read = batch.record(0).headers;
    let pairs = |headers: Headers<'_>| -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        headers.iter().map(|header| (header.name.to_vec(), header.value.map(<[u8]>::to_vec))).collect()
    };
    assert_eq!(pairs(read), pairs(headers.as_headers()));
    assert_eq!(read.iter().count(), names.len() * 4);
}

#[test]
fn headers_are_read_with_any_value_and_compression() {
    for compression in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let (cluster, input) = (cluster_with(&[("compression.type", compression)]), topic("in", 1));
        let (_, mut member) = lone_member(&cluster, &input);
        let mut producer = cluster.producer(&unique("tx")).unwrap();
        let to = at(&input, 0);
        let mut headers = HeaderBuf::default();
        headers.push(b"id", Some(b"1"));
        let values = [None, Some(&b""[..]), Some(b"v"), Some(b"ends in zero\0"), Some(&[b'x'; 1000])];
        let sent: Vec<_> = values
            .into_iter()
            .flat_map(|value| [headers.as_headers(), Headers::default()].map(|headers| (value, headers)))
            .map(|(value, headers)| Message { value, headers, ..message(&to, "k", "") })
            .collect();
        commit(&mut producer, &member, &sent, &[commit_of(&to, 0, "")]);

        member.start(&to, 0).unwrap();
        let mut batch = Batch::default();
        let mut count = 0;
        eventually("all records", || {
            assert_eq!(member.poll(&mut batch, 100, STEP).unwrap(), None);
            for record in (0..batch.len()).map(|index| batch.record(index)) {
                let sent = &sent[count];
                assert_eq!((record.value, record.headers), (sent.value, sent.headers), "{compression}, record {count}");
                count += 1;
            }
            (count == sent.len()).then_some(())
        });
    }
}

/// librdkafka reads at most 100,000 headers of a record. ratchet's binary is linked so that it reads the others itself;
/// this test is not, so the record cannot be read, nor anything behind it. The wire reads them all.
#[test]
fn record_with_more_headers_than_librdkafka_reads_is_refused_by_it() {
    const HEADERS: usize = 100_001;
    let (cluster, input) = (cluster(), topic("in", 1));
    let (_, mut member) = lone_member(&cluster, &input);
    let mut producer = cluster.producer(&unique("tx")).unwrap();
    let to = at(&input, 0);
    let mut headers = HeaderBuf::default();
    (0..HEADERS).for_each(|_| headers.push(b"h", None));
    let sent = [
        message(&to, "before", "v"),
        Message { headers: headers.as_headers(), ..message(&to, "many", "v") },
        message(&to, "behind", "v"),
    ];
    commit(&mut producer, &member, &sent, &[commit_of(&to, 0, "")]);

    member.start(&to, 0).unwrap();
    if data_path() == DataPath::Wire {
        let (mut batch, mut counts) = (Batch::default(), Vec::new());
        eventually("all records", || {
            assert_eq!(member.poll(&mut batch, 100, STEP).unwrap(), None);
            counts.extend((0..batch.len()).map(|index| batch.record(index).headers.iter().count()));
            (counts.len() == sent.len()).then_some(())
        });
        assert_eq!(counts, [0, HEADERS, 0]);
        return;
    }
    let (mut batch, mut seen) = (Batch::default(), Vec::new());
    let mut note = |batch: &Batch| {
        seen.extend((0..batch.len()).map(|index| batch.record(index).offset));
    };
    let refused = eventually("the refusal", || {
        let polled = member.poll(&mut batch, 100, STEP);
        note(&batch);
        polled.err()
    });
    assert_eq!(refused.kind, ErrorKind::Refused, "{refused}");
    assert!(refused.message.contains("at offset 1: ") && refused.message.contains("headers"), "{refused}");
    for _ in 0..10 {
        assert_eq!(member.poll(&mut batch, 100, STEP).unwrap(), None);
        note(&batch);
    }
    assert_eq!(seen, [0]);

    let mut reader = cluster.reader(&to, 0).unwrap();
    let mut seen = Vec::new();
    let mut refusals = 0;
    eventually("refusals", || {
        match reader.read(&mut batch, 100, STEP) {
            Ok(()) => seen.extend((0..batch.len()).map(|index| batch.record(index).offset)),
            Err(error) => {
                assert!(error.message.contains("at offset 1: "), "{error}");
                refusals += 1;
            }
        }
        (refusals == 5).then_some(())
    });
    assert_eq!(seen, [0]);
}

/// librdkafka takes it for none.
#[test]
fn timestamp_zero_is_kept_by_the_wire_alone() {
    // Retention by time would remove the record at once.
    let (cluster, input) = (cluster(), topic_with("in", 1, &[("retention.ms", "-1")]));
    let (_, member) = lone_member(&cluster, &input);
    let mut producer = cluster.producer(&unique("tx")).unwrap();
    let to = at(&input, 0);
    let zero = Message { timestamp: Some(0), ..message(&to, "k", "v") };
    commit(&mut producer, &member, &[zero], &[commit_of(&to, 0, "")]);
    let timestamp = read_all(&to, "read_committed")[0].timestamp.unwrap();
    assert!(if data_path() == DataPath::Wire { timestamp == 0 } else { timestamp > 1_700_000_000_000 }, "{timestamp}");
}

#[test]
fn record_outside_of_any_transaction_is_there_once_it_is_confirmed() {
    let (cluster, topic) = (cluster(), topic_with("alone", 2, &[("max.message.bytes", "1000")]));
    let to = at(&topic, 1);
    let offsets: Vec<i64> =
        ["a", "b"].iter().map(|value| cluster.append_one(&message(&to, "k", value)).unwrap()).collect();
    assert_eq!(offsets, [0, 1]);
    let read = read_all(&to, "read_committed");
    let values: Vec<&[u8]> = read.iter().filter_map(|read| read.value.as_deref()).collect();
    assert_eq!(values, [b"a", b"b"]);
    let refused = cluster.append_one(&message(&to, "k", &"x".repeat(2_000))).unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Refused, "{refused}");
    // It may come yet: nothing is said about it.
    let unknown = cluster.append_one(&message(&at(&unique("nowhere").into(), 0), "k", "v")).unwrap_err();
    assert_ne!(unknown.kind, ErrorKind::Retry, "{unknown}");
    assert_eq!(read_all(&to, "read_committed").len(), 2);
}
