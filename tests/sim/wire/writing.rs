//! What is written while the fetcher reads: single records, transactions of several producers, their markers; and how
//! followers fetch it, the cleaner removes it, and unclean elections lose it.

use std::collections::BTreeMap;

use ratchet_testkit::random::Random;

use super::cluster::Cluster;
use super::judge::Judge;
use super::kafka::{Packing, Record};
use super::speech::batches::record;
use super::theirs;
use crate::record::TopicPartition;

/// Producers of transactions.
const PRODUCERS: i64 = 4;

/// The writers.
pub struct Writers {
    random: Random,
    /// How each producer's ended transaction ends in the partitions whose marker is not written.
    ending: BTreeMap<(i64, TopicPartition), bool>,
    /// The partitions of its open transaction.
    open: BTreeMap<i64, Vec<TopicPartition>>,
}

impl Writers {
    pub fn new(seed: u64) -> Self {
        Self { random: Random::new(seed), ending: BTreeMap::new(), open: BTreeMap::new() }
    }

    /// Writes something to a partition, or has followers fetch.
    pub fn write(&mut self, cluster: &mut Cluster, judge: &mut Judge, partition: &TopicPartition) {
        match self.random.below(12) {
            0..2 => self.append(cluster, judge, partition, None),
            2..6 => {
                let producer = self.random.between(1, PRODUCERS);
                // A producer's next transaction begins when the markers of the last one are written.
                if self.ending.keys().all(|(of, _)| *of != producer) {
                    self.append(cluster, judge, partition, Some(producer));
                }
            }
            6 => self.end(),
            7..9 => {
                let pending: Vec<(i64, TopicPartition)> = self.ending.keys().cloned().collect();
                if !pending.is_empty() {
                    let key = self.random.pick(&pending).clone();
                    self.mark(cluster, judge, key);
                }
            }
            _ => {
                let log = cluster.log(&theirs(partition));
                let to = self.random.between(log.high(), log.end());
                let seam = log.batch_ends().filter(|end| *end <= to).max();
                log.replicate(seam.unwrap_or(0));
            }
        }
    }

    fn append(&mut self, cluster: &mut Cluster, judge: &mut Judge, to: &TopicPartition, producer: Option<i64>) {
        let packing = *self.random.pick(&[Packing::None, Packing::None, Packing::Gzip, Packing::Lz4]);
        let log = cluster.log(&theirs(to));
        let (epoch, base) = (log.epoch(), log.end());
        let count = self.random.between(1, 6);
        let large = self.random.once_in(30);
        let records: Vec<Record> = (base..base + count)
            .map(|offset| {
                let size = if large { 4_000 } else { self.random.below(200) };
                record(&judge.bear(to, offset, producer, epoch, size))
            })
            .collect();
        log.append_batch(producer, packing, records);
        if let Some(producer) = producer {
            let touched = self.open.entry(producer).or_default();
            if !touched.contains(to) {
                touched.push(to.clone());
            }
        }
    }

    /// A producer ends its transaction; the markers follow.
    fn end(&mut self) {
        let open: Vec<i64> = self.open.keys().copied().collect();
        if open.is_empty() {
            return;
        }
        let producer = *self.random.pick(&open);
        let commits = !self.random.once_in(3);
        for partition in self.open.remove(&producer).unwrap_or_default() {
            self.ending.insert((producer, partition), commits);
        }
    }

    fn mark(&mut self, cluster: &mut Cluster, judge: &mut Judge, key: (i64, TopicPartition)) {
        let Some(commits) = self.ending.remove(&key) else { return };
        let (producer, partition) = key;
        cluster.log(&theirs(&partition)).append_marker(producer, 0, commits, false).expect("nobody is fenced");
        judge.end(&partition, producer, commits);
    }

    /// Every transaction ends, and every marker is written.
    pub fn end_all(&mut self, cluster: &mut Cluster, judge: &mut Judge) {
        while !self.open.is_empty() {
            self.end();
        }
        while let Some((key, _)) = self.ending.first_key_value() {
            let key = key.clone();
            self.mark(cluster, judge, key);
        }
    }

    /// An unclean election, or a clean one that loses what followers have not fetched: at a point where no transaction
    /// is open, since what becomes of the rest of one is the coordinator's affair.
    pub fn cut(&mut self, cluster: &mut Cluster, judge: &mut Judge, partition: &TopicPartition) {
        let log = cluster.log(&theirs(partition));
        let (seams, epoch) = (log.seams(), log.epoch());
        // Mostly near the end.
        let back = self.random.below(seams.len().min(6));
        let end = seams[seams.len() - 1 - back];
        let (to, unaware) = (self.random.between(1, 3), self.random.once_in(2));
        cluster.elect(&theirs(partition), to, Some(end), unaware);
        judge.cut(partition, end, epoch);
    }

    /// The cleaner removes some committed records, and all that is of aborted transactions.
    pub fn compact(&mut self, cluster: &mut Cluster, partition: &TopicPartition) {
        let log = cluster.log(&theirs(partition));
        let dirty_end = self.random.between(log.start(), log.end());
        let (mut one, mut other) = (self.random.clone(), Random::new(self.random.next()));
        let share = 1 + one.below(4);
        log.thin(dirty_end, || !one.once_in(share), || other.once_in(2));
    }
}
