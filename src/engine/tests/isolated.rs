//! Goal: a task that works alone gives up in front of what cannot be read, as the others do.

use std::sync::atomic::AtomicU32;

use super::*;
use crate::cluster::{CommittedOffset, DeliveryFailure, Fencing, OffsetCommit, Rights, Ticket, TopicDescription};
use crate::record::TopicPartition;

const INPUT: &str = "orders";
const OUTPUT: &str = "clean";

/// A cluster whose output fails a task at its first record, and whose input cannot be read by a reader of one's own.
#[derive(Clone)]
struct Faulty {
    inner: Embedded,
    /// How often the output was tried.
    sent: Arc<AtomicU32>,
    /// How often the input was.
    read: Arc<AtomicU32>,
}

struct FaultyProducer(<Embedded as Cluster>::Producer, Arc<AtomicU32>);

struct FaultyReader(<Embedded as Cluster>::Reader, Option<(TopicPartition, Arc<AtomicU32>)>);

impl cluster::Producer for FaultyProducer {
    type Metadata = <Embedded as Cluster>::Metadata;

    fn id(&self) -> &str {
        self.0.id()
    }

    fn begin(&mut self) -> Result<(), cluster::Error> {
        self.0.begin()
    }

    fn send(&mut self, ticket: Ticket, message: &Message<'_>) -> Result<(), cluster::Error> {
        if message.topic == OUTPUT && self.1.fetch_add(1, Ordering::SeqCst) == 0 {
            return Err(cluster::Error::new(Kind::Abort, "the output is not there"));
        }
        self.0.send(ticket, message)
    }

    fn in_flight(&self) -> usize {
        self.0.in_flight()
    }

    fn has_failed(&self) -> bool {
        self.0.has_failed()
    }

    fn take_failures(&mut self) -> Vec<DeliveryFailure> {
        self.0.take_failures()
    }

    fn take_delivered(&mut self) -> Vec<(u64, i64)> {
        self.0.take_delivered()
    }

    fn commit(&mut self, offsets: &[OffsetCommit], group: Self::Metadata) -> Result<(), cluster::Error> {
        self.0.commit(offsets, group)
    }

    fn abort(&mut self) -> Result<(), cluster::Error> {
        self.0.abort()
    }
}

impl cluster::Reader for FaultyReader {
    type Batch = <Embedded as Cluster>::Batch;

    fn read(&mut self, batch: &mut Self::Batch, records_max: usize, wait: Duration) -> Result<(), cluster::Error> {
        let Some((input, read)) = &self.1 else { return self.0.read(batch, records_max, wait) };
        read.fetch_add(1, Ordering::SeqCst);
        Err(cluster::Error::new(Kind::Refused, format!("{input} cannot be read at offset 0")).of(input))
    }

    fn position(&self) -> i64 {
        self.0.position()
    }
}

impl Cluster for Faulty {
    type Batch = <Embedded as Cluster>::Batch;
    type Metadata = <Embedded as Cluster>::Metadata;
    type Member = <Embedded as Cluster>::Member;
    type Producer = FaultyProducer;
    type Reader = FaultyReader;
    type Settling = <Embedded as Cluster>::Settling;

    const IS_SHARED: bool = false;

    fn describe_topic(&self, topic: &str) -> Result<Option<TopicDescription>, cluster::Error> {
        self.inner.describe_topic(topic)
    }

    fn list_topics(&self) -> Result<Vec<String>, cluster::Error> {
        self.inner.list_topics()
    }

    fn holds_records(&self, topic: &str, partition_count: i32) -> Result<bool, cluster::Error> {
        self.inner.holds_records(topic, partition_count)
    }

    fn group_rights(&self, group: &str) -> Result<Option<Rights>, cluster::Error> {
        self.inner.group_rights(group)
    }

    fn members_of(&self, group: &str) -> Result<usize, cluster::Error> {
        self.inner.members_of(group)
    }

    fn create_topic(&self, topic: &NewTopic<'_>) -> Result<(), cluster::Error> {
        self.inner.create_topic(topic)
    }

    fn member(&self, group: &str, topics: &[Arc<str>]) -> Result<Self::Member, cluster::Error> {
        self.inner.member(group, topics)
    }

    fn producer(&self, transactional_id: &str) -> Result<Self::Producer, cluster::Error> {
        Ok(FaultyProducer(self.inner.producer(transactional_id)?, Arc::clone(&self.sent)))
    }

    fn reader(&self, partition: &TopicPartition, offset: i64) -> Result<Self::Reader, cluster::Error> {
        let fault = (&*partition.topic == INPUT).then(|| (partition.clone(), Arc::clone(&self.read)));
        Ok(FaultyReader(self.inner.reader(partition, offset)?, fault))
    }

    fn settle(
        &self,
        group: &str,
        input: &TopicPartition,
        changelog: &TopicPartition,
        fencing: &Fencing,
        asks_time: bool,
    ) -> Self::Settling {
        self.inner.settle(group, input, changelog, fencing, asks_time)
    }

    fn fence(&self, transactional_id: &str) {
        self.inner.fence(transactional_id);
    }

    fn committed(
        &self,
        group: &str,
        partitions: &[TopicPartition],
        wait: Duration,
    ) -> Result<Vec<Option<CommittedOffset>>, cluster::Error> {
        self.inner.committed(group, partitions, wait)
    }
}

#[test]
fn a_task_that_works_alone_gives_up_in_front_of_what_cannot_be_read() {
    let site = Site::new();
    site.send(INPUT, "a", &[1, 2, 3]);
    let (sent, read) = (Arc::default(), Arc::<AtomicU32>::default());
    let faulty = Faulty { inner: site.cluster.clone(), sent, read: Arc::clone(&read) };
    let stop = Arc::new(AtomicBool::new(false));
    let options = Options {
        config: site.config(),
        topologies: vec![topology(Input::Topics(vec![INPUT.to_owned()]), OUTPUT)],
        until_drained: true,
        stop: Arc::clone(&stop),
        metrics: Metrics::new(),
        health: Health::new(),
    };
    let run = std::thread::spawn(move || run_on(&faulty, options));
    let deadline = Instant::now() + WAIT_MAX;
    while !run.is_finished() {
        if Instant::now() >= deadline {
            stop.store(true, Ordering::Relaxed);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let tried = read.load(Ordering::SeqCst);
    assert!(!stop.load(Ordering::Relaxed) || Instant::now() < deadline, "tried {tried} times, and still going on");
    let ended = run.join().unwrap();
    assert!(matches!(ended, Err(Error::Tasks { tasks: 1, .. })), "{ended:?}");
    assert_eq!(tried, 5);
    assert!(site.values(OUTPUT).is_empty());
}
