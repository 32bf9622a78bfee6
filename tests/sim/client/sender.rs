//! The thread of a producer that sends what is queued: partitions are taken into the transaction first, then each
//! one's records go out in batches, one request at a time, each tried again until it is answered or too late.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ratchet::cluster::{DeliveryFailure, Ticket};

use crate::kafka::{Identity, Partition, Record, SECOND, Time};
use crate::world::{Broken, Process};

use super::errors::{self, Action};
use super::producer::AGAIN;

/// How long a record may take.
const DELIVERY: Time = 2 * SECOND;
/// Records in one request.
const BATCH: usize = 16;

/// A record on its way.
pub struct Outgoing {
    pub partition: Partition,
    pub ticket: Ticket,
    pub record: Record,
    pub since: Time,
}

/// A connection that broke this shortly around the end of a transaction may have carried it.
const DOUBT: Time = SECOND;

/// What the background and the lane share.
#[derive(Default)]
pub struct Line {
    pub queue: VecDeque<Outgoing>,
    pub in_flight: usize,
    pub registered: BTreeSet<Partition>,
    /// Whether partitions are being taken into the transaction: an end asked for meanwhile comes after them, for both
    /// go over one connection.
    pub registering: bool,
    /// Whether the coordinator knows of the transaction, or may.
    pub begun: bool,
    /// What the next transaction is written under.
    pub epoch: i16,
    pub sequences: BTreeMap<Partition, i32>,
    pub failures: Vec<DeliveryFailure>,
    pub delivered: Vec<(u64, i64)>,
    /// Where what is reported of each number has to come to stand, at least.
    pub expected: BTreeMap<u64, i64>,
    /// Why the transaction, or the producer, has failed.
    pub failed: Option<(Action, String)>,
    /// When the last transaction was asked to end, and when that was answered.
    pub ending: Option<(Time, Option<Time>)>,
    /// Whether a connection ever broke around the end of a transaction.
    pub doubted: bool,
    pub closed: bool,
    pub thread: usize,
}

impl Line {
    /// Whether a request of the transaction's is under way in the background.
    pub fn is_busy(&self) -> bool {
        self.in_flight > 0 || self.registering
    }

    /// A connection was seen to break. A doubt stays.
    pub fn broke(&mut self, now: Time) {
        let around = |(asked, answered): (Time, Option<Time>)| {
            now >= asked && answered.is_none_or(|answered| now <= answered + DOUBT)
        };
        self.doubted |= self.ending.is_some_and(around);
    }
}

/// Never to be held while waiting.
pub fn lock(line: &Mutex<Line>) -> MutexGuard<'_, Line> {
    line.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread that sends.
pub struct Background {
    pub process: Process,
    pub who: Identity,
    pub line: Arc<Mutex<Line>>,
}

impl Background {
    fn line(&self) -> MutexGuard<'_, Line> {
        lock(&self.line)
    }

    /// The producer as it is now.
    fn who(&self) -> Identity {
        Identity { epoch: self.line().epoch, ..self.who.clone() }
    }

    pub fn run(self) {
        loop {
            let (closed, idle) = {
                let line = self.line();
                (line.closed, line.queue.is_empty() || line.failed.is_some())
            };
            if closed || self.process.is_dead() {
                return;
            }
            if idle {
                // What stays behind a failure fails in its own time, and is told (`rd_kafka_broker_toppar_msgq_scan`).
                let until = self.line().queue.front().map_or(Time::MAX, |out| out.since + DELIVERY);
                self.process.sleep_until(until);
                self.drop_late();
                continue;
            }
            // Records of one call go out together: what is sent at once is one batch.
            self.process.pause();
            self.register();
            self.send();
        }
    }

    fn fail(&self, action: Action, broken: Broken) {
        let mut line = self.line();
        let message = format!("sending: {broken:?}");
        line.failed.get_or_insert((action, message));
    }

    /// Takes partitions into the transaction that it does not have yet.
    fn register(&self) {
        let new: Vec<Partition> = {
            let line = self.line();
            let new = line.queue.iter().map(|out| &out.partition).filter(|one| !line.registered.contains(one));
            new.cloned().collect::<BTreeSet<_>>().into_iter().collect()
        };
        if new.is_empty() {
            return;
        }
        {
            let mut line = self.line();
            (line.begun, line.registering) = (true, true);
        }
        let (who, asked) = (self.who(), new.clone());
        let added = self.process.ask("add partitions", move |broker| broker.add_partitions(&who, &asked));
        self.line().registering = false;
        match added {
            Ok(()) => self.line().registered.extend(new),
            Err(broken) => match errors::transactional(broken) {
                Action::Retry => {
                    self.note_break(broken);
                    self.drop_late();
                    self.process.sleep(AGAIN);
                }
                action => self.fail(action, broken),
            },
        }
    }

    fn note_break(&self, broken: Broken) {
        if broken == Broken::Lost {
            let now = self.process.now();
            self.line().broke(now);
        }
    }

    /// Sends the first batch of one of the partitions that have any.
    fn send(&self) {
        let ready: Vec<Partition> = {
            let line = self.line();
            let ready = line.queue.iter().map(|out| &out.partition).filter(|one| line.registered.contains(one));
            ready.cloned().collect::<BTreeSet<_>>().into_iter().collect()
        };
        if ready.is_empty() {
            return;
        }
        let partition = ready[self.process.lock().random.below(ready.len() as u64) as usize].clone();
        let (batch, sequence) = {
            let mut line = self.line();
            let mut batch = Vec::new();
            let mut rest = VecDeque::new();
            for out in std::mem::take(&mut line.queue) {
                if out.partition == partition && batch.len() < BATCH { batch.push(out) } else { rest.push_back(out) }
            }
            line.queue = rest;
            line.in_flight = batch.len();
            (batch, line.sequences.get(&partition).copied().unwrap_or_default())
        };
        let records: Arc<[Record]> = batch.iter().map(|out| out.record.clone()).collect();
        loop {
            let (who, to, records) = (self.who(), partition.clone(), records.clone());
            let sent = self.process.ask("produce", move |broker| broker.produce(&who, &to, sequence, &records));
            let broken = match sent {
                Ok(base) => return self.report(&batch, &partition, base),
                Err(broken) => broken,
            };
            self.note_break(broken);
            let in_time = batch.iter().all(|out| out.since + DELIVERY > self.process.now());
            match errors::produced(broken) {
                Action::Retry if in_time && !self.process.is_dead() => self.process.sleep(AGAIN),
                Action::Retry => return self.refuse(&batch, Action::Abort, broken),
                action => return self.refuse(&batch, action, broken),
            }
        }
    }

    fn report(&self, batch: &[Outgoing], partition: &Partition, base: i64) {
        let mut line = self.line();
        *line.sequences.entry(partition.clone()).or_default() += batch.len() as i32;
        line.in_flight = 0;
        for (index, out) in batch.iter().enumerate().filter(|(_, out)| out.ticket.report) {
            line.delivered.push((out.ticket.number, base + index as i64));
        }
    }

    fn refuse(&self, batch: &[Outgoing], action: Action, broken: Broken) {
        {
            let mut line = self.line();
            line.in_flight = 0;
            let refused = matches!(broken, Broken::Code(code) if errors::refuses_record(code));
            let message = format!("{broken:?}");
            line.failures.extend(batch.iter().map(|out| DeliveryFailure {
                number: out.ticket.number,
                refused,
                message: message.clone(),
            }));
        }
        self.fail(action, broken);
    }

    /// Records that have waited for too long fail.
    fn drop_late(&self) {
        let now = self.process.now();
        let late: Vec<Outgoing> = {
            let mut line = self.line();
            let is_late = line.queue.front().is_some_and(|out| out.since + DELIVERY <= now);
            if is_late { line.queue.drain(..).collect() } else { Vec::new() }
        };
        if !late.is_empty() {
            self.refuse(&late, Action::Abort, Broken::Lost);
        }
    }
}
