//! A client in front of brokers in fair weather, for single situations of the fetcher.

use std::sync::Arc;
use std::time::Duration;

use ratchet_testkit::random::Random;

use super::client::brokers::{Address, Brokers, Settings};
use super::client::fetcher::{FetchSettings, Fetched, Fetcher, Trouble};
use super::client::records::{BoundedUnpacker, Unpack};
use super::cluster::Cluster;
use super::kafka::{Packing, Partition, Protocol, Record};
use super::links::Weather;
use super::net::Net;
use super::theirs;
use crate::record::TopicPartition;

/// A client in front of one broker, or some.
pub struct Rig {
    pub cluster: Cluster,
    pub net: Net,
    pub brokers: Brokers,
    pub fetcher: Fetcher,
    pub fetched: Fetched,
    pub random: Random,
    pub offsets: Vec<(i32, i64)>,
    pub troubles: Vec<(i32, Trouble)>,
}

/// Settings of short waits.
pub fn settings() -> FetchSettings {
    FetchSettings { max_wait: Duration::from_millis(20), missing_wait: Duration::from_secs(2), ..Default::default() }
}

/// A partition of the topic, as the brokers name it.
pub fn named(number: i32) -> Partition {
    theirs(&partition(number))
}

/// A partition of the topic.
pub fn partition(number: i32) -> TopicPartition {
    TopicPartition::new("t", number)
}

impl Rig {
    pub fn new(settings: FetchSettings, partitions: i32) -> Self {
        Self::over(1, settings, partitions)
    }

    /// The same with several brokers, of which it knows the first one.
    pub fn over(nodes: i32, settings: FetchSettings, partitions: i32) -> Self {
        let mut cluster = Cluster::new(nodes, Protocol::V1, 1);
        cluster.create("t", partitions, false);
        let address = Address { host: "node1".to_owned(), port: 9092 };
        Self {
            cluster,
            net: Net::new(Weather::FAIR, 1),
            brokers: Brokers::seeded(Arc::new(Settings::default()), vec![address], 1),
            fetcher: Fetcher::new(Arc::new(settings)),
            fetched: Fetched::default(),
            random: Random::new(1),
            offsets: Vec::new(),
            troubles: Vec::new(),
        }
    }

    /// Writes a batch of so many records of so many bytes, which all followers fetch.
    pub fn write(&mut self, number: i32, count: usize, bytes: usize) {
        self.write_packed(number, count, bytes, Packing::None);
    }

    /// The same, compressed.
    pub fn write_packed(&mut self, number: i32, count: usize, bytes: usize, packing: Packing) {
        let record = Record { timestamp: Some(1), value: Some(vec![7; bytes].into()), ..Record::default() };
        let log = self.cluster.log(&named(number));
        log.append_batch(None, packing, vec![record; count]);
        log.replicate(log.end());
    }

    pub fn start(&mut self, number: i32, offset: i64) {
        self.fetcher.start(&partition(number), offset, None);
    }

    /// Everything but handing on.
    pub fn step(&mut self) {
        let ticks = [self.brokers.next_tick(), self.fetcher.next_tick()].into_iter().flatten().min();
        let until = ticks.map_or(u64::MAX, |at| self.net.micros_of(at));
        self.net.pass(until.min(self.net.micros() + 1_000));
        self.net.step(&mut self.brokers, &mut self.cluster, &mut self.random);
        self.fetcher.poll(&mut self.brokers, self.net.now());
    }

    pub fn take(&mut self, unpack: &mut dyn Unpack) {
        self.fetcher.take(1_000, unpack, &mut self.fetched, self.net.now());
        let partitions = self.fetched.partitions();
        let read = self.fetched.iter().map(|(source, record)| (partitions[source].partition, record.offset));
        self.offsets.extend(read);
        while let Some((partition, trouble)) = self.fetcher.next_trouble() {
            self.troubles.push((partition.partition, trouble));
        }
    }

    /// Lets so many milliseconds pass.
    pub fn run(&mut self, millis: u64) {
        let until = self.net.micros() + millis * 1_000;
        while self.net.micros() < until {
            self.step();
            self.take(&mut BoundedUnpacker::new(1 << 20));
        }
    }

    pub fn has_more(&self) -> bool {
        self.fetcher.has_more(self.net.now())
    }

    pub fn position(&self, number: i32) -> i64 {
        self.fetcher.position(&partition(number)).unwrap()
    }

    /// Removes whatever is below an offset.
    pub fn clean(&mut self, number: i32, below: i64) {
        self.cluster.log(&named(number)).thin(below, || false, || false);
    }
}
