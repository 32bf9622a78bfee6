//! Goal: lanes on their own threads that read, write and commit while others join, leave, die
//! mid-transaction and are expelled: every record is written once, in order.

use std::sync::atomic::AtomicUsize;

use super::*;

const PARTITIONS: i32 = 4;
const RECORDS: usize = 3_000;
const LIVES: usize = 30;

/// Copies `in` to `out` until everything is copied, or only for this many polls; then it leaves, or is dropped with
/// its transaction open.
fn lane(cluster: &Embedded, id: &str, polls: usize, leaves: bool) {
    let mut member = cluster.member("g", &[Arc::from("in")]).unwrap();
    let mut producer = cluster.producer(id).unwrap();
    let mut batch = Batch::default();
    for _ in 0..polls {
        if drained(cluster) {
            break;
        }
        if let Some(event) = member.poll(&mut batch, 50, Duration::from_millis(20)).unwrap() {
            take(cluster, &mut member, &event);
            continue;
        }
        if batch.is_empty() {
            continue;
        }
        producer.begin().unwrap();
        (0..batch.len()).for_each(|index| copy(&mut producer, &batch, index));
        let offsets: Vec<_> =
            batch.partitions().iter().map(|p| commit_at(p, member.position(p).unwrap(), "")).collect();
        let committed = member.metadata().and_then(|group| producer.commit(&offsets, group));
        if let Err(error) = committed {
            assert_eq!(error.kind, ErrorKind::Abort, "{error}");
            producer.abort().unwrap();
            for partition in batch.partitions() {
                rewind(cluster, &mut member, partition);
            }
        }
    }
    if leaves {
        member.leave().unwrap();
    } else {
        producer.begin().unwrap();
        producer.send(ticket(0), &message("out", 0, "zombie", None)).unwrap();
    }
}

fn copy(producer: &mut Producer, batch: &Batch, index: usize) {
    let record = batch.record(index);
    let message = Message {
        topic: "out",
        partition: record.partition,
        key: record.key,
        value: record.value,
        headers: record.headers,
        timestamp: record.timestamp,
    };
    producer.send(ticket(index as u64), &message).unwrap();
}

fn take(cluster: &Embedded, member: &mut Member, event: &GroupEvent) {
    match event {
        GroupEvent::Assigned(partitions) => {
            member.accept_assigned(partitions).unwrap();
            partitions.iter().for_each(|partition| rewind(cluster, member, partition));
        }
        GroupEvent::Revoked(partitions) | GroupEvent::Lost(partitions) => member.accept_revoked(partitions).unwrap(),
    }
}

fn rewind(cluster: &Embedded, member: &mut Member, partition: &TopicPartition) {
    let settled = cluster.settle(crate::cluster::Inquiry::of("g", partition, partition)).poll().unwrap().unwrap();
    member.start(partition, settled.committed.map_or(0, |committed| committed.offset)).unwrap();
}

fn drained(cluster: &Embedded) -> bool {
    let partitions: Vec<_> = (0..PARTITIONS).map(|n| tp("in", n)).collect();
    let committed = cluster.committed("g", &partitions, LONG).unwrap();
    committed.iter().all(|at| at.as_ref().is_some_and(|at| at.offset == RECORDS as i64))
}

#[test]
fn every_record_is_copied_once_while_lanes_join_and_leave() {
    let (_dir, cluster) = cluster();
    create(&cluster, "in", PARTITIONS, &[]);
    create(&cluster, "out", PARTITIONS, &[]);
    for partition in 0..PARTITIONS {
        let values: Vec<String> = (0..RECORDS).map(|n| n.to_string()).collect();
        let messages: Vec<_> = values.iter().map(|value| message("in", partition, "k", Some(value))).collect();
        cluster.append("in", partition, &messages).unwrap();
    }
    let life = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (cluster, life) = (&cluster, &life);
            scope.spawn(move || {
                while !drained(cluster) {
                    let life = life.fetch_add(1, Ordering::SeqCst);
                    // Some short-lived ones; then those that stay until everything is done.
                    let polls = if life < LIVES { 5 + life % 7 } else { usize::MAX };
                    if life % 5 == 4 {
                        cluster.expel_members("g").unwrap();
                    }
                    lane(cluster, &format!("lane-{thread}"), polls, life % 2 == 0);
                }
            });
        }
    });
    for partition in 0..PARTITIONS {
        assert_eq!(cluster.read_all("out", partition).unwrap(), cluster.read_all("in", partition).unwrap());
    }
}
