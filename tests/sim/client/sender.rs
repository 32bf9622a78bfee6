//! The sending thread of a producer: partitions are added to the transaction first, then each partition's records go
//! out in batches, one request at a time, retried until it gets a response or is too late.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ratchet::cluster::{DeliveryFailure, Ticket};

use crate::kafka::{Identity, Partition, Record, SECOND, Time};
use crate::world::{Broken, Process};

use super::errors::{self, Action};
use super::producer::RETRY_PAUSE;

/// How long delivering a record may take.
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

/// A connection that breaks within this time of the end of a transaction may have carried it.
const DOUBT: Time = SECOND;

/// State shared by the sending thread and the lane.
#[derive(Default)]
pub struct Outbox {
    pub queue: VecDeque<Outgoing>,
    pub in_flight: usize,
    pub registered: BTreeSet<Partition>,
    /// Whether partitions are being added to the transaction: an end requested meanwhile comes after them, since both
    /// use one connection.
    pub registering: bool,
    /// Whether the coordinator knows of the transaction, or may.
    pub is_open: bool,
    /// The epoch of the next transaction.
    pub epoch: i16,
    pub sequences: BTreeMap<Partition, i32>,
    pub failures: Vec<DeliveryFailure>,
    pub delivered: Vec<(u64, i64)>,
    /// The lowest offset expected for each reported number.
    pub expected: BTreeMap<u64, i64>,
    /// Why the transaction, or the producer, has failed.
    pub failed: Option<(Action, String)>,
    /// When the end of the last transaction was requested, and when the response came.
    pub ending: Option<(Time, Option<Time>)>,
    /// Whether a connection ever broke around the end of a transaction.
    pub doubted: bool,
    pub closed: bool,
    pub thread: usize,
}

impl Outbox {
    /// Whether a request of the transaction is in flight in the background.
    pub fn is_busy(&self) -> bool {
        self.in_flight > 0 || self.registering
    }

    /// A connection broke. The doubt stays.
    pub fn connection_broke(&mut self, now: Time) {
        let around = |(requested, responded): (Time, Option<Time>)| {
            now >= requested && responded.is_none_or(|responded| now <= responded + DOUBT)
        };
        self.doubted |= self.ending.is_some_and(around);
    }
}

/// Never to be held while waiting.
pub fn lock(outbox: &Mutex<Outbox>) -> MutexGuard<'_, Outbox> {
    outbox.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread that sends.
pub struct Background {
    pub process: Process,
    pub who: Identity,
    pub outbox: Arc<Mutex<Outbox>>,
}

impl Background {
    fn outbox(&self) -> MutexGuard<'_, Outbox> {
        lock(&self.outbox)
    }

    /// The producer with its current epoch.
    fn who(&self) -> Identity {
        Identity { epoch: self.outbox().epoch, ..self.who.clone() }
    }

    pub fn run(self) {
        loop {
            let (closed, idle) = {
                let outbox = self.outbox();
                (outbox.closed, outbox.queue.is_empty() || outbox.failed.is_some())
            };
            if closed || self.process.is_dead() {
                return;
            }
            if idle {
                // Records queued after a failure fail in their own time, and are reported
                // (`rd_kafka_broker_toppar_msgq_scan`).
                let until = self.outbox().queue.front().map_or(Time::MAX, |out| out.since + DELIVERY);
                self.process.sleep_until(until);
                self.drop_late();
                continue;
            }
            // Let records that are sent together form one batch.
            self.process.pause();
            self.register();
            self.send();
        }
    }

    fn fail(&self, action: Action, broken: Broken) {
        let mut outbox = self.outbox();
        let message = format!("sending: {broken:?}");
        outbox.failed.get_or_insert((action, message));
    }

    /// Adds new partitions to the transaction.
    fn register(&self) {
        let new: Vec<Partition> = {
            let outbox = self.outbox();
            let new = outbox.queue.iter().map(|out| &out.partition).filter(|one| !outbox.registered.contains(one));
            new.cloned().collect::<BTreeSet<_>>().into_iter().collect()
        };
        if new.is_empty() {
            return;
        }
        {
            let mut outbox = self.outbox();
            (outbox.is_open, outbox.registering) = (true, true);
        }
        let (who, partitions) = (self.who(), new.clone());
        let added = self.process.ask("add partitions", move |broker| broker.add_partitions(&who, &partitions));
        self.outbox().registering = false;
        match added {
            Ok(()) => self.outbox().registered.extend(new),
            Err(broken) => match errors::transactional(broken) {
                Action::Retry => {
                    self.note_break(broken);
                    self.drop_late();
                    self.process.sleep(RETRY_PAUSE);
                }
                action => self.fail(action, broken),
            },
        }
    }

    fn note_break(&self, broken: Broken) {
        if broken == Broken::Lost {
            let now = self.process.now();
            self.outbox().connection_broke(now);
        }
    }

    /// Sends the first batch of one of the registered partitions.
    fn send(&self) {
        let ready: Vec<Partition> = {
            let outbox = self.outbox();
            let ready = outbox.queue.iter().map(|out| &out.partition).filter(|one| outbox.registered.contains(one));
            ready.cloned().collect::<BTreeSet<_>>().into_iter().collect()
        };
        if ready.is_empty() {
            return;
        }
        let partition = ready[self.process.lock().random.below(ready.len() as u64) as usize].clone();
        let (batch, sequence) = {
            let mut outbox = self.outbox();
            let mut batch = Vec::new();
            let mut rest = VecDeque::new();
            for out in std::mem::take(&mut outbox.queue) {
                if out.partition == partition && batch.len() < BATCH { batch.push(out) } else { rest.push_back(out) }
            }
            outbox.queue = rest;
            outbox.in_flight = batch.len();
            (batch, outbox.sequences.get(&partition).copied().unwrap_or_default())
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
                Action::Retry if in_time && !self.process.is_dead() => self.process.sleep(RETRY_PAUSE),
                Action::Retry => return self.fail_batch(&batch, Action::Abort, broken),
                action => return self.fail_batch(&batch, action, broken),
            }
        }
    }

    fn report(&self, batch: &[Outgoing], partition: &Partition, base: i64) {
        let mut outbox = self.outbox();
        *outbox.sequences.entry(partition.clone()).or_default() += batch.len() as i32;
        outbox.in_flight = 0;
        for (index, out) in batch.iter().enumerate().filter(|(_, out)| out.ticket.report) {
            outbox.delivered.push((out.ticket.number, base + index as i64));
        }
    }

    fn fail_batch(&self, batch: &[Outgoing], action: Action, broken: Broken) {
        {
            let mut outbox = self.outbox();
            outbox.in_flight = 0;
            let refused = matches!(broken, Broken::Code(code) if errors::rejects_record(code));
            let message = format!("{broken:?}");
            outbox.failures.extend(batch.iter().map(|out| DeliveryFailure {
                number: out.ticket.number,
                refused,
                message: message.clone(),
            }));
        }
        self.fail(action, broken);
    }

    /// Fails records that have waited for too long.
    fn drop_late(&self) {
        let now = self.process.now();
        let late: Vec<Outgoing> = {
            let mut outbox = self.outbox();
            let is_late = outbox.queue.front().is_some_and(|out| out.since + DELIVERY <= now);
            if is_late { outbox.queue.drain(..).collect() } else { Vec::new() }
        };
        if !late.is_empty() {
            self.fail_batch(&late, Action::Abort, Broken::Lost);
        }
    }
}
