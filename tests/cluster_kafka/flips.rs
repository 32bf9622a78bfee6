//! Goal: a bit that has flipped in a real broker's log never has a reader return another record, nor pass one over: it
//! says that, and where, the log is damaged, it gets no further, or the bit does not matter.
//!
//! Two kinds of bits are left out, since Kafka has no checksum for them, and not every such broker contradicts itself
//! (`docs/guarantees.md`): those of a batch's base offset, and those of the index of offsets.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ratchet::cluster::Cluster as _;
use ratchet::cluster::kafka::{Batch, Kafka};
use ratchet::cluster::{Reader as _, RecordBatch as _};
use rdkafka::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};

use crate::cluster_kafka::common::{at, kafka, map, topic_on, unique};
use crate::flips::{Flip, choose, plan};
use crate::kafka::Broker;
use crate::random::Random;

/// Partitions that are damaged side by side.
const PARTITIONS: usize = 4;
const TRANSACTIONS: usize = 60;
const PATIENCE: Duration = Duration::from_secs(30);
/// A reader that gets nothing for this long is stuck. (A task says so after a minute.)
const STILL: Duration = Duration::from_secs(4);

/// Writes a partition as a task writes its changelog: transactions, each of some batches and a marker.
fn fill(broker: &Broker, topic: &str, partition: i32) {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", broker.bootstrap()).set("transactional.id", unique("flips"));
    let producer: BaseProducer = config.create().unwrap();
    producer.init_transactions(PATIENCE).unwrap();
    for number in 0..TRANSACTIONS {
        producer.begin_transaction().unwrap();
        for n in 0..1 + number % 7 {
            let (key, value) = (format!("k{}", (number * 7 + n) % 50), format!("{number}-{n}-").repeat(1 + number % 9));
            let record = BaseRecord::to(topic).partition(partition).key(&key).payload(&value);
            producer.send(record).map_err(|(error, _)| error).unwrap();
        }
        producer.commit_transaction(PATIENCE).unwrap();
    }
}

type Seen = (i64, Vec<u8>, Vec<u8>);

/// What a reader gets from an offset on, until it is at the end, says why not, or gets no further.
fn read(cluster: &Kafka, topic: &str, partition: i32, (from, end): (i64, i64)) -> (Vec<Seen>, Option<String>) {
    let mut all = Vec::new();
    let mut reader = match cluster.reader(&at(&topic.into(), partition), from) {
        Ok(reader) => reader,
        Err(error) => return (all, Some(error.message)),
    };
    let (mut batch, mut since) = (Batch::default(), Instant::now());
    while reader.position() < end {
        if let Err(error) = reader.read(&mut batch, 1_000, Duration::from_millis(20)) {
            return (all, Some(error.message));
        }
        if !batch.is_empty() {
            since = Instant::now();
        }
        for index in 0..batch.len() {
            let record = batch.record(index);
            all.push((record.offset, record.key.unwrap().to_vec(), record.value.unwrap().to_vec()));
        }
        if since.elapsed() > STILL {
            return (all, Some("nothing more comes".to_owned()));
        }
    }
    (all, None)
}

/// Flips a bit of a file that the broker has open.
fn flip(folder: &Path, flip: &Flip) {
    let file = fs::OpenOptions::new().read(true).write(true).open(folder.join(&flip.file)).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, flip.bit / 8).unwrap();
    file.write_all_at(&[byte[0] ^ (1 << (flip.bit % 8))], flip.bit / 8).unwrap();
}

/// A bit that Kafka has a checksum for, or does not hand out; mostly one of the log itself.
fn choose_checked(folder: &Path, random: &mut Random) -> Flip {
    let is_of_log = !random.once_in(10);
    loop {
        let flip = choose(folder, random);
        let is_chosen = match flip.file.extension().and_then(|kind| kind.to_str()) {
            Some("index") => false,
            Some("log") => is_of_log && !is_base_offset(&fs::read(folder.join(&flip.file)).unwrap(), flip.bit / 8),
            _ => !is_of_log,
        };
        if is_chosen {
            return flip;
        }
    }
}

/// Whether a byte of a log is one of a batch's base offset.
fn is_base_offset(log: &[u8], byte: u64) -> bool {
    let (mut begin, byte) = (0, usize::try_from(byte).unwrap());
    while let Some(length) = log.get(begin + 8..begin + 12) {
        if byte < begin + 8 {
            return byte >= begin;
        }
        begin += 12 + u32::from_be_bytes(length.try_into().unwrap()) as usize;
    }
    false
}

/// Damages a partition, one bit after the other; how often what was noticed.
fn play(
    broker: &Broker,
    topic: &str,
    partition: i32,
    (count, mut random): (usize, Random),
) -> BTreeMap<(String, &'static str), usize> {
    let settings = map(&[("bootstrap.servers", &broker.bootstrap())]);
    // Many responses, each of which begins somewhere in the log.
    let few_bytes = map(&[("max.partition.fetch.bytes", "3000")]);
    let cluster = kafka(&settings, &few_bytes, &map(&[])).unwrap();
    let folder: PathBuf = broker.data().join(format!("{topic}-{partition}"));
    let end = cluster.bounds(&at(&topic.into(), partition)).unwrap().1;
    let (whole, trouble) = read(&cluster, topic, partition, (0, end));
    assert_eq!(trouble, None);
    let mut tally = BTreeMap::new();
    for number in 0..count {
        let bit = choose_checked(&folder, &mut random);
        flip(&folder, &bit);
        let from = if random.once_in(3) { random.below(end as u64) as i64 } else { 0 };
        let (seen, trouble) = read(&cluster, topic, partition, (from, end));
        flip(&folder, &bit);
        let expected: Vec<_> = whole.iter().filter(|(offset, ..)| *offset >= from).cloned().collect();
        let said = match &trouble {
            None => {
                assert_eq!(seen, expected, "{partition}: flip {number}, {bit:?}, from {from}");
                "no matter"
            }
            Some(trouble) => {
                let is_beginning = seen.len() <= expected.len() && seen == expected[..seen.len()];
                assert!(is_beginning, "{partition}: flip {number}, {bit:?}, from {from}: {trouble}: {seen:?}");
                if trouble.contains("damaged") { "damaged" } else { "stopped" }
            }
        };
        let kind = bit.file.extension().map_or_else(|| "other".into(), |kind| kind.to_string_lossy().into_owned());
        *tally.entry((kind, said)).or_default() += 1;
    }
    tally
}

#[test]
fn flipped_bits_of_a_brokers_log_are_noticed_if_it_has_a_checksum_for_them() {
    let broker = Broker::start();
    let topic =
        topic_on(&broker, PARTITIONS as i32, &[("index.interval.bytes", "500"), ("segment.index.bytes", "1000")]);
    let (count, mut random) = plan("Kafka's log", 12);
    let tallies = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..PARTITIONS)
            .map(|partition| {
                let (broker, topic, random) = (&broker, &topic, Random::new(random.next()));
                scope.spawn(move || {
                    fill(broker, topic, partition as i32);
                    play(broker, topic, partition as i32, (count.div_ceil(PARTITIONS), random))
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    let mut tally: BTreeMap<_, usize> = BTreeMap::new();
    for (what, times) in tallies.into_iter().flatten() {
        *tally.entry(what).or_default() += times;
    }
    println!("Kafka's log: {count} flips: {tally:?}");
    assert!(tally.contains_key(&("log".to_owned(), "damaged")), "{tally:?}");
}
