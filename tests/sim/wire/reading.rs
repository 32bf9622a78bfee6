//! Seeds of the fetcher: brokers that write, replicate, elect, lose, compact and lie, a network that cuts, a reader
//! that pauses and starts anew; then the trouble ends, and the reader has to come to the end of everything.

use std::collections::BTreeMap;
use std::sync::Arc;

use ratchet_testkit::random::Random;

use self::profile::{client, settings, weather};
use super::client::brokers::Brokers;
use super::client::fetcher::{FetchSettings, Fetched, Fetcher, Trouble};
use super::client::records::{BoundedUnpacker, RawRecord};
use super::cluster::Cluster;
use super::judge::Judge;
use super::kafka::Protocol;
use super::links::Weather;
use super::net::Net;
use super::theirs;
use super::writing::Writers;
use crate::record::TopicPartition;

mod profile;
mod tests;

pub use tests::notice;

/// How long trouble lasts, microseconds.
const TROUBLE: u64 = 4_000_000;
/// How long the reader may take to come to the end after that.
const CALM: u64 = 60_000_000;

/// What a run has met: it has to meet all of it now and then.
#[derive(Clone, Debug, Default)]
pub struct Met {
    pub records: usize,
    pub cuts: usize,
    pub elections: usize,
    pub truncated: usize,
    pub out_of_range: usize,
    pub unknown_epochs: usize,
    pub compactions: usize,
    pub restarts: usize,
    pub clients: usize,
    pub unnoticed: usize,
    pub throttles: usize,
}

/// A run.
pub struct Reading {
    random: Random,
    cluster: Cluster,
    net: Net,
    brokers: Brokers,
    fetcher: Fetcher,
    settings: Arc<FetchSettings>,
    fetched: Fetched,
    unpack: BoundedUnpacker,
    writers: Writers,
    judge: Judge,
    partitions: Vec<TopicPartition>,
    /// When a paused partition is started again, and one that hides its end, once, shows it, microseconds.
    paused: BTreeMap<TopicPartition, u64>,
    hides: BTreeMap<TopicPartition, u64>,
    down: BTreeMap<i32, u64>,
    met: Met,
    records_max: usize,
}

impl Reading {
    /// The run of a seed.
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut cluster = Cluster::new(3, Protocol::V1, random.next());
        cluster.create("input", 1 + random.below(4), false);
        cluster.create("other", 1 + random.below(2), false);
        cluster.manners.former_once_in = *random.pick(&[0, 3]);
        cluster.manners.damages_once_in = *random.pick(&[0, 0, 40]);
        cluster.manners.sessions_max = *random.pick(&[1_000, 1_000, 1, 0]);
        let throttles_once_in = if seed.is_multiple_of(3) { 10 } else { 0 };
        let weather = Weather { throttles_once_in, ..weather(&mut random) };
        let settings = Arc::new(settings(&mut random));
        let partitions = cluster.broker.nodes.partitions().into_iter();
        let partitions: Vec<TopicPartition> =
            partitions.map(|partition| TopicPartition::new(&*partition.topic, partition.number)).collect();
        let mut net = Net::new(weather, random.next());
        net.cut_once_in = *random.pick(&[0, 300, 2_000]);
        Self {
            net,
            brokers: client(random.next()),
            fetcher: Fetcher::new(Arc::clone(&settings)),
            settings,
            fetched: Fetched::default(),
            unpack: BoundedUnpacker::new(1 << 20),
            writers: Writers::new(random.next()),
            judge: Judge::default(),
            partitions,
            paused: BTreeMap::new(),
            hides: BTreeMap::new(),
            down: BTreeMap::new(),
            met: Met::default(),
            records_max: *random.pick(&[1, 7, 1_000]),
            cluster,
            random,
        }
    }

    /// Runs it to its end; what it has met, or what is wrong.
    pub fn run(mut self) -> Result<Met, String> {
        for _ in 0..self.random.below(60) {
            self.write();
        }
        for partition in self.partitions.clone() {
            let log = self.cluster.log(&theirs(&partition));
            let offset = self.random.between(log.start(), log.high());
            self.start(&partition, offset)?;
        }
        while self.net.micros() < TROUBLE {
            if self.random.once_in(4) {
                self.disturb()?;
            }
            if self.random.once_in(2) {
                self.write();
            }
            self.step()?;
        }
        self.calm()?;
        let until = self.net.micros() + CALM;
        while !self.is_at_end() {
            if self.net.micros() > until {
                return Err(format!("not at the end after {} s of calm: {}", CALM / 1_000_000, self.places()));
            }
            self.step()?;
        }
        for partition in &self.partitions {
            let log = self.cluster.log(&theirs(partition));
            self.judge.close(partition, log)?;
        }
        (self.met.cuts, self.met.unnoticed) = (self.net.links.cuts, self.judge.unnoticed);
        self.met.throttles = self.net.links.throttles;
        self.net.links.unheeded.map_or(Ok(self.met), Err)
    }

    fn write(&mut self) {
        let partition = self.random.pick(&self.partitions).clone();
        self.writers.write(&mut self.cluster, &mut self.judge, &partition);
    }

    /// Starts anew.
    fn start(&mut self, partition: &TopicPartition, offset: i64) -> Result<(), String> {
        self.fetcher.start(partition, offset, None);
        self.paused.remove(partition);
        let log = self.cluster.log(&theirs(partition));
        self.judge.start(partition, offset, log)
    }

    /// A step of time, the network, and the client.
    fn step(&mut self) -> Result<(), String> {
        let client = [self.brokers.next_tick(), self.fetcher.next_tick()].into_iter().flatten().min();
        let client = client.map_or(u64::MAX, |at| self.net.micros_of(at));
        let most = self.net.micros() + 1 + self.random.next() % 5_000;
        self.net.pass(client.min(most));
        self.net.step(&mut self.brokers, &mut self.cluster, &mut self.random);
        self.fetcher.poll(&mut self.brokers, self.net.now());
        if self.random.once_in(2) {
            self.take()?;
        }
        while let Some((partition, trouble)) = self.fetcher.next_trouble() {
            self.heed(&partition, trouble)?;
        }
        self.end_what_lasts()
    }

    fn end_what_lasts(&mut self) -> Result<(), String> {
        let now = self.net.micros();
        let over = |all: &BTreeMap<TopicPartition, u64>| -> Vec<TopicPartition> {
            all.iter().filter(|(_, at)| **at <= now).map(|(partition, _)| partition.clone()).collect()
        };
        for partition in over(&self.paused) {
            self.resume(&partition)?;
        }
        for partition in over(&self.hides) {
            // Twice in a row it would seem to be at its end.
            self.hides.insert(partition.clone(), u64::MAX);
            self.cluster.lead(&theirs(&partition)).hides = false;
        }
        let up: Vec<i32> = self.down.iter().filter(|(_, at)| **at <= now).map(|(node, _)| *node).collect();
        for node in up {
            self.down.remove(&node);
            self.cluster.broker.nodes.node(node).is_up = true;
        }
        Ok(())
    }

    /// Goes on from the position.
    fn resume(&mut self, partition: &TopicPartition) -> Result<(), String> {
        let position = self.fetcher.position(partition).unwrap_or(0);
        let epoch = self.fetcher.position_epoch(partition);
        self.start_at(partition, position, epoch)
    }

    fn start_at(&mut self, partition: &TopicPartition, position: i64, epoch: Option<i32>) -> Result<(), String> {
        self.paused.remove(partition);
        self.fetcher.start(partition, position, epoch);
        self.judge.resume(partition, position)
    }

    fn take(&mut self) -> Result<(), String> {
        self.fetcher.take(self.records_max, &mut self.unpack, &mut self.fetched, self.net.now());
        if self.fetched.len() > self.records_max {
            return Err(format!("{} records instead of {}", self.fetched.len(), self.records_max));
        }
        self.met.records += self.fetched.len();
        let Self { judge, fetched, fetcher, cluster, .. } = self;
        let mut records = (0..fetched.len()).filter_map(|index| Some((index, fetched.record(index)?))).peekable();
        let heed = |judge: &mut Judge, (index, record): (usize, RawRecord<'_>)| {
            let partition_index = fetched.partition_index(index).unwrap_or(usize::MAX);
            let partition = fetched.partitions().get(partition_index).ok_or("a record without a partition")?;
            judge.heed(partition, &record, fetched.leader_epoch(index).unwrap_or(-1))
        };
        for passed in fetched.passed() {
            let partition = fetched.partitions().get(passed.partition).ok_or("a passage without a partition")?;
            let log = cluster.log(&theirs(partition));
            judge.heed_passed(partition, passed.first..passed.next, passed.leader_epoch, log)?;
            let is_in = |(index, record): &(usize, RawRecord<'_>)| {
                fetched.partition_index(*index) == Some(passed.partition) && record.offset < passed.next
            };
            while let Some(record) = records.next_if(is_in) {
                heed(judge, record)?;
            }
        }
        // Those that were handed on and not passed, by mistake.
        records.try_for_each(|record| heed(judge, record))?;
        for partition in fetched.partitions() {
            judge.passed(partition, fetcher.position(partition).unwrap_or(-1))?;
        }
        Ok(())
    }

    /// A partition is in trouble: rightly? It is started anew.
    fn heed(&mut self, partition: &TopicPartition, trouble: Trouble) -> Result<(), String> {
        let log = self.cluster.log(&theirs(partition));
        let (start, high) = (log.start(), log.high());
        // A leader that was replaced, and of which nobody that was asked knows it, may not have got that far.
        let replaced = &self.cluster.lead(&theirs(partition)).replaced;
        let ends = replaced.iter().map(|(_, log)| log.end()).min().unwrap_or(i64::MAX);
        let is_cut = |offset| self.judge.was_cut_below(partition, offset);
        match trouble {
            Trouble::Truncated { offset, .. } if is_cut(offset) => self.met.truncated += 1,
            Trouble::OffsetOutOfRange { offset } if offset < start || offset > ends || is_cut(offset) => {
                self.met.out_of_range += 1
            }
            Trouble::UnknownEpoch { .. } => {
                self.met.unknown_epochs += 1;
                return self.resume(partition);
            }
            // Three times in a row, by chance.
            Trouble::Damaged { .. } if self.cluster.manners.damages_once_in > 0 => {
                return self.resume(partition);
            }
            trouble => return Err(format!("{partition}: {trouble} without a reason")),
        }
        let offset = self.random.between(start, high);
        self.start(partition, offset)
    }

    fn is_at_end(&mut self) -> bool {
        let Self { partitions, fetcher, cluster, judge, .. } = self;
        partitions.iter().all(|partition| {
            let log = cluster.log(&theirs(partition));
            fetcher.position(partition) == Some(log.end()) && !judge.has_lost(partition, log, log.epoch())
        })
    }

    fn places(&mut self) -> String {
        let Self { partitions, fetcher, cluster, .. } = self;
        let place = |partition: &TopicPartition| {
            let (log, position) = (cluster.log(&theirs(partition)), fetcher.position(partition));
            let (stable, end, epoch) = (log.stable_end(), log.end(), log.epoch());
            let refused = fetcher.refusal(partition).map(|(_, code)| code);
            format!("{partition} at {position:?}, stable {stable}, end {end}, epoch {epoch}, refused {refused:?}; ")
        };
        partitions.iter().map(place).collect::<String>() + &format!("{:?}", fetcher)
    }

    /// Trouble of some kind.
    fn disturb(&mut self) -> Result<(), String> {
        let partition = self.random.pick(&self.partitions).clone();
        let node = self.random.between(1, 3);
        let now = self.net.micros();
        match self.random.below(200) {
            0..8 => self.elect(&partition),
            8..12 => self.writers.cut(&mut self.cluster, &mut self.judge, &partition),
            12..22 => {
                self.met.compactions += 1;
                self.writers.compact(&mut self.cluster, &partition);
            }
            22..24 => {
                let log = self.cluster.log(&theirs(&partition));
                let to = self.random.between(log.start(), log.high());
                log.delete_before(to).expect("it is below the high watermark");
            }
            24..28 => self.cluster.manners.sessions(node).clear(),
            28..60 => self.cluster.broker.gossip(node),
            60..64 if self.down.is_empty() => {
                self.down.insert(node, now + self.random.next() % 500_000);
                self.cluster.broker.nodes.node(node).is_up = false;
                self.cluster.manners.sessions(node).clear();
            }
            64..72 => {
                self.fetcher.pause(&partition);
                self.paused.insert(partition, now + self.random.next() % 100_000);
            }
            72..80 => self.restart(&partition)?,
            80..84 if !self.hides.contains_key(&partition) => {
                self.cluster.lead(&theirs(&partition)).hides = true;
                self.hides.insert(partition, now + self.random.next() % 900_000);
            }
            84..86 => {
                let position = self.fetcher.position(&partition).unwrap_or(0);
                let epoch = self.fetcher.position_epoch(&partition);
                self.fetcher.remove(&partition);
                self.start_at(&partition, position, epoch)?;
            }
            86..88 => self.renew()?,
            _ => {
                let partition = theirs(&partition);
                let log = self.cluster.log(&partition);
                let former = Some((log.high(), log.stable_end()));
                self.cluster.lead(&partition).former = former;
            }
        }
        Ok(())
    }

    /// A new client goes on from where the last one was, and knows nothing but that.
    fn renew(&mut self) -> Result<(), String> {
        self.met.clients += 1;
        self.net.renew();
        self.brokers = client(self.random.next());
        let old = std::mem::replace(&mut self.fetcher, Fetcher::new(Arc::clone(&self.settings)));
        for partition in self.partitions.clone() {
            let position = old.position(&partition).unwrap_or(0);
            self.start_at(&partition, position, old.position_epoch(&partition))?;
        }
        Ok(())
    }

    fn elect(&mut self, partition: &TopicPartition) {
        self.met.elections += 1;
        let (to, unaware) = (self.random.between(1, 3), self.random.once_in(2));
        self.cluster.elect(&theirs(partition), to, None, unaware);
        if self.random.once_in(3) {
            self.cluster.lead(&theirs(partition)).is_led = false;
        }
    }

    /// Starts anew: at the position, or somewhere before.
    fn restart(&mut self, partition: &TopicPartition) -> Result<(), String> {
        self.met.restarts += 1;
        if self.random.once_in(2) {
            return self.resume(partition);
        }
        let log = self.cluster.log(&theirs(partition));
        let offset = self.random.between(log.start(), log.high());
        self.start(partition, offset)
    }

    /// All trouble ends.
    fn calm(&mut self) -> Result<(), String> {
        self.net.links.weather = Weather::FAIR;
        self.net.cut_once_in = 0;
        self.cluster.manners.damages_once_in = 0;
        self.down.clear();
        self.cluster.wake_all();
        self.writers.end_all(&mut self.cluster, &mut self.judge);
        for partition in self.partitions.clone() {
            let log = self.cluster.log(&theirs(&partition));
            log.replicate(log.end());
            let lead = self.cluster.lead(&theirs(&partition));
            (lead.hides, lead.former) = (false, None);
            if self.paused.contains_key(&partition) {
                self.resume(&partition)?;
            }
        }
        self.cluster.broker.gossip_all();
        Ok(())
    }
}
