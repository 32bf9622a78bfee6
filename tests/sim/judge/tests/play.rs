//! A cluster of one partition and the transactions of a task on it, right until a test changes them.

use std::collections::BTreeMap;

use ratchet::record::HeaderBuf;

use crate::judge::bytes::{self, POSITION_KEY, Position, STORE_META_KEY, Token};
use crate::judge::model::{Model, State, Verdict};
use crate::judge::stores::{self, Held, Life};
use crate::judge::{History, Ruling, SHOP, Violation, examine, liveness};
use crate::kafka::{Broker, Committed, Partition, Protocol, Record, Settings, Writer};
use crate::world::WALL_MS;

/// The rules' digest as in position records, and as in the texts of committed offsets.
pub const RULES_DIGEST: [u8; 32] = [3; 32];
pub const DIGEST: &str = "0303030303030303";

pub fn at(topic: &'static str) -> Partition {
    Partition::new(topic, 0)
}

pub fn record(id: &str, version: u64) -> Record {
    let value = format!(r#"{{"id":"{id}","version":{version}}}"#);
    let timestamp = Some(WALL_MS + version as i64);
    Record { timestamp, key: Some(id.as_bytes().into()), value: Some(value.as_bytes().into()), ..Record::default() }
}

/// Two things, with a duplicate at offset 2 and a stale record at 5.
pub fn input() -> Vec<Record> {
    [("a", 1), ("b", 1), ("a", 1), ("a", 3), ("b", 2), ("a", 2)].map(|(id, version)| record(id, version)).to_vec()
}

pub fn letter(record: &Record, offset: i64, reason: &str) -> Record {
    let mut headers = HeaderBuf::default();
    let offset = offset.to_string();
    for (name, value) in [("topic", SHOP.input), ("partition", "0"), ("offset", offset.as_str()), ("reason", reason)] {
        headers.push(format!("__ratchet.errors.{name}").as_bytes(), Some(value.as_bytes()));
    }
    Record { headers: headers.as_headers().as_bytes().into(), ..record.clone() }
}

/// What a task does in one transaction, right until a test changes it.
#[derive(Clone)]
pub struct Transaction {
    pub producer: i64,
    pub forwards: Vec<Record>,
    pub letters: Vec<Record>,
    pub changes: Vec<Record>,
    pub position: Position,
    pub offset: i64,
    /// Whether the changelog's marker commits.
    pub commits: bool,
}

/// A cluster of one partition.
pub struct Play {
    pub broker: Broker,
    pub history: History,
    pub input: Vec<Record>,
    pub sequences: BTreeMap<(i64, &'static str), i32>,
}

impl Play {
    pub fn new(input: Vec<Record>) -> Self {
        let mut broker = Broker::new(Protocol::V1);
        for topic in [SHOP.input, SHOP.output, SHOP.changelog, SHOP.dead_letter] {
            broker.topics.create(topic, 1, settings()).unwrap();
        }
        broker.topics.log_mut(&at(SHOP.input)).unwrap().append(input.iter().cloned());
        Self { broker, history: History::new(&SHOP, 1), input, sequences: BTreeMap::new() }
    }

    /// The transactions that end at these offsets.
    pub fn transactions(&self, ends: &[i64]) -> Vec<Transaction> {
        let mut model = Model::new(&SHOP);
        let mut all = Vec::new();
        let mut from = 0;
        for (&end, number) in ends.iter().zip(1..) {
            let (mut forwards, mut letters) = (Vec::new(), Vec::new());
            for (record, offset) in self.input[from as usize..end as usize].iter().zip(from..) {
                match model.apply(offset, record, (0, WALL_MS), false) {
                    Verdict::Forwarded => forwards.push(record.clone()),
                    Verdict::DeadLettered(reason) => letters.push(letter(record, offset, reason)),
                    Verdict::Duplicate(_) | Verdict::Stale(_) => {}
                }
            }
            from = end;
            let change = |(key, value): (Vec<u8>, Vec<u8>)| Record {
                key: Some(key.into()),
                value: Some(value.into()),
                ..Record::default()
            };
            let changes = model.take_changed().into_iter().map(change).collect();
            let position = self.position(number, end, model.stream_time);
            all.push(Transaction { producer: 1, forwards, letters, changes, position, offset: end, commits: true });
        }
        all
    }

    pub fn position(&self, transaction: u64, end: i64, stream_time: i64) -> Position {
        let id = |topic: &str| self.broker.topics.get(topic).unwrap().id.to_be_bytes();
        Position {
            token: Token { lane: 7, transaction, changelog_id: id(SHOP.changelog), partition: 0 },
            owner: format!("{}.1.0", SHOP.group),
            input_id: id(SHOP.input),
            processed: vec![(0, end)],
            stream_time,
            horizon: i64::MIN,
            rules_digest: RULES_DIGEST,
            generation: 1,
            task_count: 1,
            truncates: 0,
            calls: bytes::Calls::default(),
            scopes: Vec::new(),
        }
    }

    pub fn append(&mut self, topic: &'static str, producer: i64, records: &[Record]) {
        let sequence = self.sequences.entry((producer, topic)).or_default();
        let writer = Writer { producer, epoch: 0, sequence: *sequence };
        *sequence += records.len() as i32;
        self.broker.topics.log_mut(&at(topic)).unwrap().append_transactional(writer, records).unwrap();
    }

    pub fn end(&mut self, topic: &'static str, producer: i64, commits: bool) {
        self.broker.topics.log_mut(&at(topic)).unwrap().append_marker(producer, 0, commits, false).unwrap();
    }

    pub fn commit(&mut self, offset: i64, metadata: String) {
        let offsets = [(at(SHOP.input), Committed { offset, metadata })];
        self.broker.commit_offsets(&SHOP.group.into(), ("", -1), &offsets).unwrap();
        self.history.look(&self.broker);
    }

    pub fn write(&mut self, transaction: &Transaction) {
        let Transaction { producer, forwards, letters, changes, position, offset, commits } = transaction;
        let changes = [&changes[..], &[position_record(position)]].concat();
        for (topic, records, commits) in
            [(SHOP.output, forwards, true), (SHOP.dead_letter, letters, true), (SHOP.changelog, &changes, *commits)]
        {
            if !records.is_empty() {
                self.append(topic, *producer, records);
                self.end(topic, *producer, commits);
            }
        }
        self.commit(*offset, format!("ratchet/1 {} {DIGEST} {}", position.token.text(), position.owner));
    }

    pub fn judged(&mut self) -> Vec<Violation> {
        let late = liveness(&self.broker, &self.history);
        let mut found = examine(&self.broker, &mut self.history).violations;
        found.extend(late);
        found
    }

    /// The store after these transactions, including its meta.
    pub fn store(&self, transactions: &[Transaction]) -> State {
        let mut state = State::new();
        for transaction in transactions {
            for change in &transaction.changes {
                state.insert(change.key.as_deref().unwrap().to_vec(), change.value.as_deref().unwrap().to_vec());
            }
            state.insert(POSITION_KEY.to_vec(), bytes::encode_position(&transaction.position));
        }
        let last = transactions.last().map(|transaction| transaction.position.token);
        // Each transaction is its changes, the position record and a marker.
        let end = transactions.iter().map(|transaction| transaction.changes.len() as i64 + 2).sum();
        self.with_meta(state, last, end)
    }

    pub fn with_meta(&self, mut state: State, token: Option<Token>, changelog_offset: i64) -> State {
        use ratchet::format;
        let changelog_id = self.broker.topics.get(SHOP.changelog).unwrap().id.to_be_bytes();
        let token = token.map(|Token { lane, transaction, changelog_id, partition }| format::Token {
            lane,
            transaction,
            changelog_id,
            partition,
        });
        let meta = format::StoreMeta {
            changelog_id,
            partition: 0,
            changelog_offset: format::ChangelogOffset(changelog_offset),
            token,
            synced_at: WALL_MS,
            position_offset: None,
        };
        state.insert(STORE_META_KEY.to_vec(), meta.encode());
        state
    }

    pub fn judged_stores(&mut self, stores: Vec<State>) -> Ruling {
        let mut ruling = examine(&self.broker, &mut self.history);
        assert_eq!(ruling.messages(), Vec::<String>::new(), "the logs are right");
        let held = stores.into_iter().map(|state| held(false, state)).collect();
        stores::judge(held, &self.history, &mut ruling);
        ruling
    }

    /// The violations of a process that started with `before` in its store, and left `built` there and `aside` set
    /// aside.
    pub fn judged_life(&mut self, before: &State, built: &State, aside: Option<&State>) -> Vec<Violation> {
        let mut ruling = examine(&self.broker, &mut self.history);
        let after = [held(false, built.clone())].into_iter().chain(aside.map(|aside| held(true, aside.clone())));
        let life = Life { before: vec![held(false, before.clone())], after: after.collect() };
        stores::check_kept(&[life], &self.history, &mut ruling);
        ruling.violations
    }
}

fn held(is_aside: bool, state: State) -> Held {
    Held { folder: at(SHOP.input), is_aside, state }
}

pub fn settings() -> Settings {
    Settings { compacted: false, delete_retention: 0, message_bytes_max: 1 << 20, stamps: false }
}

pub fn position_record(position: &Position) -> Record {
    let (key, value) = (POSITION_KEY.into(), bytes::encode_position(position));
    Record { key: Some(key), value: Some(value.into()), ..Record::default() }
}
