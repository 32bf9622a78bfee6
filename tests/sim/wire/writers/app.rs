//! Who uses a writer, as a lane does: transactions of records with offsets, and what it was told of each.

use std::sync::Arc;
use std::time::Instant;

use ratchet_testkit::random::Random;

use super::super::client::brokers::{Address, Brokers, Settings};
use super::super::client::writer::{
    GroupMembership, NewRecord, Offset, Ticket, WriteError, WriteErrorKind, WriteSettings, Writer,
};
use crate::record::{HeaderBuf, TopicPartition};

pub const GROUP: &str = "group";
pub const INPUT: &str = "in";

/// A record that was handed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    pub topic: &'static str,
    pub partition: i32,
    pub value: Vec<u8>,
    /// Its ticket's number, if its offset is to be reported.
    pub ticket: Option<u64>,
}

/// What the app was told of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is not over.
    Open,
    Committed,
    Aborted,
    /// Nobody knows.
    Unknown,
}

/// A transaction of an app.
#[derive(Clone, Debug)]
pub struct Tx {
    pub token: String,
    pub sent: Vec<Sent>,
    pub has_offsets: bool,
    pub generation: i32,
    pub verdict: Verdict,
    /// Whether it holds a record that no broker takes.
    pub is_poisoned: bool,
    /// What was reported: numbers and offsets.
    pub delivered: Vec<(u64, i64)>,
    /// Why it was not committed.
    pub why: String,
}

#[derive(Debug)]
enum Phase {
    Opening,
    Idle,
    /// So many records are to be handed over yet.
    Sending(usize),
    Committing,
    Aborting,
    Gone,
}

/// A process with a writer.
pub struct App {
    pub number: usize,
    pub brokers: Brokers,
    pub writer: Writer,
    phase: Phase,
    pub member: String,
    pub generation: i32,
    pub txs: Vec<Tx>,
    pub is_frozen: bool,
    /// When it goes on by itself.
    pub next: u64,
    random: Random,
    /// Whether it begins no more transactions.
    pub is_stopping: bool,
    pub poisons: bool,
    tickets: u64,
    /// The last position committed.
    position: i64,
    /// How many commits it was told of.
    pub committed: usize,
    /// Whether its id was taken, or the group given to another one: it may fail for that reason.
    pub is_superseded: bool,
    /// How many transactions have failed that it did not want to abort.
    pub failures: usize,
}

/// What becomes of an app.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    GoesOn,
    /// Its writer is of no use any more.
    Lost,
}

const TOPICS: [(&str, i32); 2] = [("out", 3), ("log", 2)];

impl App {
    pub fn new(
        number: usize,
        id: &str,
        settings: (Arc<Settings>, Arc<WriteSettings>),
        (member, generation): (String, i32),
        seed: u64,
        now: Instant,
    ) -> Self {
        let bootstrap = (1..=3).map(|node| Address { host: format!("node{node}"), port: 9092 }).collect();
        let brokers = Brokers::seeded(settings.0, bootstrap, seed);
        let mut writer = Writer::new(id, settings.1).expect("a codec without a level");
        writer.open(std::time::Duration::from_secs(30), now);
        Self {
            number,
            brokers,
            writer,
            phase: Phase::Opening,
            member,
            generation,
            txs: Vec::new(),
            is_frozen: false,
            next: 0,
            random: Random::new(seed),
            is_stopping: false,
            poisons: false,
            tickets: number as u64 * 1_000_000,
            position: 0,
            committed: 0,
            is_superseded: false,
            failures: 0,
        }
    }

    /// Whether the process is dead.
    pub fn is_gone(&self) -> bool {
        matches!(self.phase, Phase::Gone)
    }

    /// Whether it has nothing to do any more.
    pub fn is_done(&self) -> bool {
        self.is_gone() || self.is_stopping && matches!(self.phase, Phase::Idle)
    }

    /// Goes on as far as it can. `time` is `now` microseconds.
    pub fn step(&mut self, now: u64, time: Instant) -> Fate {
        match self.phase {
            Phase::Opening => match self.writer.take_outcome() {
                None => Fate::GoesOn,
                Some(Ok(())) => self.rest(now),
                Some(Err(_)) => self.lost(),
            },
            Phase::Idle if self.is_stopping || now < self.next => Fate::GoesOn,
            Phase::Idle => self.begin(now),
            Phase::Sending(_) if now < self.next => Fate::GoesOn,
            Phase::Sending(left) => self.send(left, now, time),
            Phase::Committing => match self.writer.take_outcome() {
                None => Fate::GoesOn,
                Some(Ok(())) => self.committed(now),
                Some(Err(error)) => self.not_committed(&error, time),
            },
            Phase::Aborting => match self.writer.take_outcome() {
                None => Fate::GoesOn,
                Some(Ok(())) => {
                    self.told(Verdict::Aborted, "");
                    if self.writer.is_usable() { self.rest(now) } else { self.lost() }
                }
                Some(Err(error)) => {
                    // The transaction that is not to be committed never is: the writer promised.
                    self.told(Verdict::Aborted, &error.message);
                    self.lost()
                }
            },
            Phase::Gone => Fate::GoesOn,
        }
    }

    fn rest(&mut self, now: u64) -> Fate {
        self.phase = Phase::Idle;
        self.next = now + self.random.next() % 3_000;
        Fate::GoesOn
    }

    fn lost(&mut self) -> Fate {
        self.phase = Phase::Gone;
        Fate::Lost
    }

    fn told(&mut self, verdict: Verdict, why: &str) {
        let delivered = self.writer.take_delivered();
        self.writer.take_failures();
        if let Some(tx) = self.txs.last_mut() {
            tx.verdict = verdict;
            tx.delivered.extend(delivered);
            if tx.why.is_empty() {
                tx.why = why.to_owned();
            }
        }
    }

    fn begin(&mut self, now: u64) -> Fate {
        if self.writer.begin().is_err() {
            return self.lost();
        }
        let token = format!("{}-{}", self.number, self.txs.len());
        self.txs.push(Tx {
            token,
            sent: Vec::new(),
            has_offsets: true,
            generation: self.generation,
            verdict: Verdict::Open,
            is_poisoned: false,
            delivered: Vec::new(),
            why: String::new(),
        });
        self.phase = Phase::Sending(self.random.below(60));
        self.next = now;
        Fate::GoesOn
    }

    fn send(&mut self, left: usize, now: u64, time: Instant) -> Fate {
        let burst = left.min(1 + self.random.below(12));
        for _ in 0..burst {
            match self.send_one(time) {
                Ok(true) => {}
                Ok(false) => break,
                // The transaction is to be aborted.
                Err(error) => {
                    self.failures += 1;
                    if let Some(tx) = self.txs.last_mut() {
                        tx.why = error.message;
                    }
                    return self.abort(time);
                }
            }
            if let Phase::Sending(left) = &mut self.phase {
                *left -= 1;
            }
        }
        self.next = now + self.random.next() % 2_000;
        if !matches!(self.phase, Phase::Sending(0)) {
            if self.random.once_in(60) {
                self.writer.flush();
            }
            return Fate::GoesOn;
        }
        if self.random.once_in(8) {
            return self.abort(time);
        }
        self.commit(time)
    }

    fn send_one(&mut self, time: Instant) -> Result<bool, WriteError> {
        let (topic, partitions) = *self.random.pick(&TOPICS);
        let partition = self.random.below(partitions as usize) as i32;
        self.tickets += 1;
        let report = self.random.once_in(3);
        let Some(tx) = self.txs.last_mut() else { return Ok(false) };
        let padding = "x".repeat(self.random.below(40));
        let value = format!("{}:{}:{padding}", tx.token, tx.sent.len()).into_bytes();
        let is_poison = self.poisons && self.random.once_in(150);
        let mut headers = HeaderBuf::default();
        if self.random.once_in(4) {
            headers.push(b"name", Some(b"value"));
        }
        let record = NewRecord {
            timestamp: 1_000,
            // No compacted topic takes one without.
            key: (!is_poison).then_some(b"key"),
            value: Some(&value),
            headers: headers.as_headers(),
        };
        let slot = self.writer.slot(topic, partition);
        let number = self.tickets;
        let taken = self.writer.send(Ticket { number, report }, slot, &record, time)?;
        if taken {
            tx.is_poisoned |= is_poison;
            tx.sent.push(Sent { topic, partition, value, ticket: report.then_some(number) });
        }
        Ok(taken)
    }

    fn commit(&mut self, time: Instant) -> Fate {
        let Some(tx) = self.txs.last_mut() else { return Fate::GoesOn };
        tx.has_offsets = !self.random.once_in(12);
        let offset = Offset {
            partition: TopicPartition::new(INPUT, 0),
            offset: self.position + 1,
            leader_epoch: 0,
            metadata: tx.token.clone(),
        };
        let group = GroupMembership {
            id: GROUP.to_owned(),
            generation: self.generation,
            member: self.member.clone(),
            instance: None,
        };
        let offsets = if tx.has_offsets { vec![offset] } else { Vec::new() };
        self.writer.commit(offsets, group, time);
        self.phase = Phase::Committing;
        Fate::GoesOn
    }

    fn committed(&mut self, now: u64) -> Fate {
        self.told(Verdict::Committed, "");
        self.position += 1;
        self.committed += 1;
        self.rest(now)
    }

    fn not_committed(&mut self, error: &WriteError, time: Instant) -> Fate {
        if let Some(tx) = self.txs.last_mut() {
            tx.why = format!("{:?}: {}", error.kind, error.message);
        }
        self.failures += 1;
        if error.kind == WriteErrorKind::Abort {
            return self.abort(time);
        }
        self.told(Verdict::Unknown, "");
        self.lost()
    }

    fn abort(&mut self, time: Instant) -> Fate {
        self.writer.abort(time);
        self.phase = Phase::Aborting;
        Fate::GoesOn
    }

    /// The process dies: what is open stays open.
    pub fn die(&mut self) {
        let verdict = match self.phase {
            Phase::Committing => Verdict::Unknown,
            _ => Verdict::Aborted,
        };
        if self.txs.last().is_some_and(|tx| tx.verdict == Verdict::Open) {
            self.told(verdict, "died");
        }
        self.phase = Phase::Gone;
    }
}
