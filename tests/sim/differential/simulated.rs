//! The simulated cluster: the script is a task of one process, and there are no faults.

use std::collections::BTreeMap;
use std::sync::Arc;

use ratchet::record::TopicPartition;

use crate::client::{Sim, theirs};
use crate::differential::ground::{Ground, Pair};
use crate::differential::play::Play;
use crate::differential::script::Script;
use crate::driver::alone;
use crate::kafka::{Broker, Code, Committed, Identity, Isolation, MS, Partition, Record, SECOND, Time};
use crate::world::{Process, WALL_MS};

/// Pause before a request is retried after a temporary error.
const AGAIN: Time = 5 * MS;

/// The observations for a script.
pub fn observe(script: &Script, seed: u64) -> Vec<String> {
    let script = script.clone();
    alone(seed, move |process| {
        let sim = Sim::new(process.clone());
        Play::new(sim.clone(), sim, Simulated { process: process.clone(), foreign: BTreeMap::new() }).run(&script)
    })
}

/// The broker under the simulated cluster.
struct Simulated {
    process: Process,
    /// Other clients' producers, and the next sequence number of each partition.
    foreign: BTreeMap<String, (Identity, BTreeMap<Partition, i32>)>,
}

impl Simulated {
    /// Retries a request until its result is not a temporary error.
    fn ask<T>(&self, mut request: impl FnMut(&mut Broker) -> Result<T, Code>) -> Result<T, Code> {
        loop {
            let result = request(&mut self.process.lock().broker);
            match result {
                Err(Code::ConcurrentTransactions | Code::NotEnoughReplicas) => self.process.sleep(AGAIN),
                result => return result,
            }
        }
    }
}

impl Ground for Simulated {
    fn name(&self, name: &str) -> String {
        name.to_owned()
    }

    fn now_ms(&self) -> u64 {
        self.process.now() / MS
    }

    fn pause(&self, ms: u64) {
        self.process.sleep(ms * MS);
    }

    fn write(&self, to: &TopicPartition, records: &[Pair<'_>]) {
        let timestamp = Some(WALL_MS + self.now_ms() as i64);
        let record = |(key, value): &Pair<'_>| Record {
            timestamp,
            key: key.map(|key| key.as_bytes().into()),
            value: value.map(|value| value.as_bytes().into()),
            ..Record::default()
        };
        let mut state = self.process.lock();
        let log = state.broker.topics.log_mut(&theirs(to)).expect("the partition exists");
        log.append(records.iter().map(record));
    }

    fn read_uncommitted(&self, from: &TopicPartition) -> Vec<(i64, Option<String>)> {
        let state = self.process.lock();
        let log = state.broker.topics.log(&theirs(from)).expect("the partition exists");
        let mut read = Vec::new();
        let take = |offset, record: &Record| {
            let value = record.value.as_ref().map(|value| String::from_utf8_lossy(value).into_owned());
            read.push((offset, value));
        };
        log.read(log.start(), Isolation::Uncommitted, usize::MAX, take).expect("a log's start can be read");
        read
    }

    fn bounds(&self, of: &TopicPartition) -> [i64; 3] {
        let state = self.process.lock();
        let ends = |isolation| state.broker.ends(&theirs(of), isolation).expect("the partition exists");
        let (start, stable) = ends(Isolation::Committed);
        [start, stable, ends(Isolation::Uncommitted).1]
    }

    fn delete_records(&self, of: &TopicPartition, upto: i64) {
        let mut state = self.process.lock();
        let log = state.broker.topics.log_mut(&theirs(of)).expect("the partition exists");
        log.delete_before(upto).expect("it is not beyond the end");
    }

    fn delete_topic(&self, topic: &str) {
        self.process.lock().broker.delete_topic(topic).expect("it exists");
    }

    fn grow(&self, topic: &str, partitions: i32) {
        self.process.lock().broker.topics.add_partitions(topic, partitions).expect("it exists");
    }

    fn compact(&self, of: &TopicPartition, upto: i64) {
        let mut state = self.process.lock();
        let (now, of) = (state.now(), theirs(of));
        let retention = state.broker.topics.get(&of.topic).expect("it exists").settings.delete_retention;
        state.broker.topics.log_mut(&of).expect("the partition exists").compact(upto, now, retention);
    }

    fn delete_group(&self, group: &str) -> bool {
        self.process.lock().broker.groups.delete(group).is_ok()
    }

    fn set_offset(&self, group: &str, of: &TopicPartition, offset: i64, text: &str) -> bool {
        let offsets = [(theirs(of), Committed { offset, metadata: text.to_owned() })];
        self.process.lock().broker.commit_offsets(&group.into(), ("", -1), &offsets).is_ok()
    }

    fn foreign_begin(&mut self, id: &str) {
        let name: Arc<str> = id.into();
        let (producer, epoch) = self.ask(|broker| broker.init_producer(&name, 60 * SECOND)).expect("an id");
        self.foreign.insert(id.to_owned(), (Identity { id: name, producer, epoch }, BTreeMap::new()));
    }

    fn foreign_write(&mut self, id: &str, to: &TopicPartition, (key, value): Pair<'_>) {
        let (who, sequences) = self.foreign.get(id).expect("it was started");
        let (who, partition) = (who.clone(), theirs(to));
        let sequence = sequences.get(&partition).copied().unwrap_or_default();
        let timestamp = Some(WALL_MS + self.now_ms() as i64);
        let (key, value) = (key.map(|key| key.as_bytes().into()), value.map(|value| value.as_bytes().into()));
        let record = Record { timestamp, key, value, ..Record::default() };
        self.ask(|broker| broker.add_partitions(&who, std::slice::from_ref(&partition))).expect("it takes part");
        self.ask(|broker| broker.produce(&who, &partition, sequence, std::slice::from_ref(&record))).expect("written");
        let (_, sequences) = self.foreign.get_mut(id).expect("found above");
        sequences.insert(partition, sequence + 1);
    }

    fn foreign_offset(&mut self, id: &str, group: &str, of: &TopicPartition, offset: i64, text: &str) {
        let who = self.foreign.get(id).expect("it was started").0.clone();
        let group: Arc<str> = group.into();
        let offsets = [(theirs(of), Committed { offset, metadata: text.to_owned() })];
        self.ask(|broker| broker.add_offsets(&who, &group)).expect("it takes part");
        let added = self.ask(|broker| broker.commit_offsets_transactional(&who, &group, ("", -1), &offsets));
        added.expect("brokers take an unjoined client's offsets");
    }

    fn foreign_end(&mut self, id: &str, commit: bool) {
        let (who, _) = self.foreign.remove(id).expect("it was started");
        self.ask(|broker| broker.end_transaction(&who, commit)).expect("it is open");
    }
}
