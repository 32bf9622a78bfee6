//! A transactional producer: records go out from a queue in the background, delivery reports arrive later, and the
//! calls that end a transaction block. See `src/cluster/kafka/producer.rs` and `rdkafka_txnmgr.c` (protocol version
//! 1). If the cluster speaks version 2, so does the producer, as clients other than librdkafka do: each end of a
//! transaction returns the epoch of the next. Adding partitions implicitly by writing to them is left out.
//!
//! One produce request is in flight at a time; `abort` drops what is still queued.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use ratchet::cluster::{self, DeliveryFailure, Error, ErrorKind, Message, OffsetCommit, Producer as _, Ticket};

use crate::judge::heard;
use crate::kafka::{Code, Identity, MS, Partition, Record, SECOND, Time};
use crate::world::{self, Broken, INJECTED_PANIC, Process};

use super::errors::{self, Action};
use super::member::{Metadata, committed};
use super::sender::{Background, Outbox, Outgoing, lock};

/// How long a transaction may be open, and how long ending one may take.
pub const TRANSACTION_TIMEOUT: Time = 3 * SECOND;
/// How long opening a producer may take.
const INIT_TIMEOUT: Time = 30 * SECOND;
/// Added to a call's deadline before giving up.
const GRACE: Time = 2 * SECOND;
/// Pause before a request is retried.
pub const RETRY_PAUSE: Time = 20 * MS;
/// How long what a lane does while it waits for a commit may wait at a time.
const MEANWHILE: Duration = Duration::from_millis(1);
/// Pause before a producer id is requested again (`RD_KAFKA_IDEMP_PID_RETRY`...: 500 ms).
const INIT_RETRY_PAUSE: Time = 500 * MS;

/// A transactional producer.
pub struct Producer {
    process: Process,
    id: String,
    who: Identity,
    outbox: Arc<Mutex<Outbox>>,
    has_response: bool,
}

/// Requests a producer id until there is one. That aborts any transaction open under the id.
pub fn init(process: &Process, id: &Arc<str>) -> Result<Identity, Error> {
    let deadline = process.now() + INIT_TIMEOUT;
    loop {
        let name = id.clone();
        let found = process.ask("init producer", move |broker| broker.init_producer(&name, TRANSACTION_TIMEOUT));
        match found {
            Ok((producer, epoch)) => return Ok(Identity { id: id.clone(), producer, epoch }),
            Err(Broken::Code(Code::ProducerFenced | Code::InvalidProducerEpoch)) => {
                return Err(Error::new(ErrorKind::Fenced, format!("opening the transactional id {id}: fenced")));
            }
            Err(_) if process.now() < deadline && !process.is_dead() => process.sleep(INIT_RETRY_PAUSE),
            Err(_) => {
                return Err(Error::new(ErrorKind::Retry, format!("opening the transactional id {id}: no response")));
            }
        }
    }
}

impl Producer {
    pub fn open(process: Process, id: &str) -> Result<Self, Error> {
        let who = init(&process, &id.into())?;
        process.lock().memory.opened(&who.id, process.number);
        let outbox = Arc::new(Mutex::new(Outbox { epoch: who.epoch, ..Outbox::default() }));
        let background = Background { process: process.clone(), who: who.clone(), outbox: outbox.clone() };
        lock(&outbox).thread = process.spawn(move || background.run());
        Ok(Self { process, id: id.to_owned(), who, outbox, has_response: true })
    }

    /// How its requests name it.
    pub fn identity(&self) -> Identity {
        self.who.clone()
    }

    fn outbox(&self) -> MutexGuard<'_, Outbox> {
        lock(&self.outbox)
    }

    fn in_doubt(&self) -> bool {
        self.outbox().doubted
    }

    /// Retries a transactional request until it succeeds, fails for good, or `deadline` has passed.
    fn ask<T: 'static>(
        &self,
        what: &'static str,
        deadline: Time,
        request: impl Fn(&mut crate::kafka::Broker, &Identity) -> Result<T, Code> + Clone + Send + 'static,
    ) -> Result<T, (Action, Broken)> {
        loop {
            let (who, request) = (self.who.clone(), request.clone());
            let broken = match self.process.ask(what, move |broker| request(broker, &who)) {
                Ok(result) => return Ok(result),
                Err(broken) => broken,
            };
            if broken == Broken::Lost {
                let now = self.process.now();
                self.outbox().connection_broke(now);
            }
            let action = errors::transactional(broken);
            if action == Action::Fatal {
                self.outbox().failed = Some((action, format!("{what}: {broken:?}")));
            }
            if action != Action::Retry || self.process.now() + RETRY_PAUSE >= deadline || self.process.is_dead() {
                return Err((action, broken));
            }
            self.process.sleep(RETRY_PAUSE);
        }
    }

    /// Fails if anything failed in the background.
    fn check_failed(&self) -> Result<(), Error> {
        let outbox = self.outbox();
        let Some((action, message)) = &outbox.failed else { return Ok(()) };
        let kind = if *action == Action::Fatal { ErrorKind::Fenced } else { ErrorKind::Abort };
        Err(Error::new(kind, message.clone()))
    }

    /// Waits until all records are delivered.
    fn flush(&self, deadline: Time) -> Result<(), Error> {
        loop {
            self.check_failed()?;
            if self.in_flight() == 0 {
                return Ok(());
            }
            if self.process.now() >= deadline || self.process.is_dead() {
                return Err(Error::new(ErrorKind::Abort, "the records were not delivered in time"));
            }
            self.process.sleep(MS);
        }
    }

    /// Fails if a record was written below the offset expected for it.
    fn check_deliveries(&self) -> Result<(), Error> {
        let outbox = self.outbox();
        let is_below = |(number, offset): &&(u64, i64)| outbox.expected.get(number).is_some_and(|from| offset < from);
        match outbox.delivered.iter().find(is_below) {
            None => Ok(()),
            Some((_, offset)) => Err(Error::new(ErrorKind::Abort, format!("a record was written at offset {offset}"))),
        }
    }

    fn add_offsets(&mut self, offsets: &[OffsetCommit], group: &Metadata, deadline: Time) -> Result<(), Error> {
        let failed = |(_, broken): (Action, Broken)| {
            // Whatever the error was, nothing has been committed.
            let stale = matches!(broken, Broken::Code(code) if errors::is_stale_membership(code));
            let fatal = !stale && errors::transactional(broken) == Action::Fatal;
            (
                stale,
                Error::new(
                    if fatal { ErrorKind::Fenced } else { ErrorKind::Abort },
                    format!("adding the offsets: {broken:?}"),
                ),
            )
        };
        if offsets.is_empty() {
            // Then nothing is requested (`rd_kafka_send_offsets_to_transaction`).
            return Ok(());
        }
        self.outbox().is_open = true;
        let name = group.group.clone();
        let added = self.ask("add offsets", deadline, move |broker, who| broker.add_offsets(who, &name));
        let (name, member, generation) = (group.group.clone(), group.member.clone(), group.generation);
        let offsets = committed(offsets);
        let added = added.and_then(|()| {
            self.ask("commit offsets", deadline, move |broker, who| {
                broker.commit_offsets_transactional(who, &name, (&member, generation), &offsets)
            })
        });
        added.map_err(failed).map_err(|(stale, error)| {
            self.has_response = stale;
            error
        })
    }

    /// `meanwhile` is called before and after each request: what comes in between happens within the request.
    fn commit_within(
        &mut self,
        offsets: &[OffsetCommit],
        group: &Metadata,
        deadline: Time,
        meanwhile: &mut dyn FnMut(),
    ) -> Result<(), Error> {
        self.check_failed()?;
        meanwhile();
        // Records are sent meanwhile; the end of the transaction waits for them.
        self.add_offsets(offsets, group, deadline)?;
        meanwhile();
        self.flush(deadline)?;
        self.check_deliveries()?;
        meanwhile();
        let number = self.process.lock().broker.coordinator.number(&self.who.id);
        let ended = self.ask("end commit", deadline, |broker, who| broker.end_transaction(who, true));
        meanwhile();
        match ended {
            Ok(epoch) => {
                self.has_response = true;
                self.continue_under(epoch);
                Ok(())
            }
            Err((action, broken)) => {
                let kind = match action {
                    Action::Fatal => ErrorKind::Fenced,
                    Action::Abort => ErrorKind::Abort,
                    Action::Retry => {
                        let mut state = self.process.lock();
                        state.reach("a commit's outcome stayed unknown");
                        state.memory.unknown(&self.who.id, number);
                        ErrorKind::Unknown
                    }
                };
                Err(Error::new(kind, format!("committing the transaction: {broken:?}")))
            }
        }
    }

    /// The transaction has ended, and the next one is written under `epoch`. Under a new epoch sequences restart.
    fn continue_under(&mut self, epoch: i16) {
        let is_new = self.who.epoch != epoch;
        if is_new {
            self.process.lock().reach("an end of a transaction moved its producer's epoch on");
        }
        self.who.epoch = epoch;
        let mut outbox = self.outbox();
        if is_new {
            outbox.epoch = epoch;
            outbox.sequences.clear();
        }
        outbox.registered.clear();
        outbox.is_open = false;
        outbox.failed = None;
    }
}

impl cluster::Producer for Producer {
    type Metadata = Metadata;

    fn id(&self) -> &str {
        &self.id
    }

    fn begin(&mut self) -> Result<(), Error> {
        if self.in_doubt() {
            return Err(Error::new(ErrorKind::Fenced, "a connection broke while the last transaction ended"));
        }
        self.outbox().expected.clear();
        match &self.outbox().failed {
            Some((_, message)) => Err(Error::new(ErrorKind::Fenced, message.clone())),
            None => Ok(()),
        }
    }

    fn send(&mut self, ticket: Ticket, message: &Message<'_>) -> Result<(), Error> {
        self.process.maybe_panic();
        if world::is_poisonous(message.value) {
            panic!("{INJECTED_PANIC}: a poisonous record");
        }
        let record = {
            let state = self.process.lock();
            let present = state.wall_ms(self.process.number);
            Record {
                timestamp: Some(message.timestamp.filter(|at| *at != 0).unwrap_or(present)),
                key: message.key.map(Into::into),
                value: message.value.map(Into::into),
                headers: message.headers.as_bytes().into(),
            }
        };
        let since = self.process.now();
        {
            let mut outbox = self.outbox();
            if let Some((action, message)) = &outbox.failed {
                let kind = if *action == Action::Fatal { ErrorKind::Fenced } else { ErrorKind::Abort };
                return Err(Error::new(kind, message.clone()));
            }
            let partition = Partition::new(message.topic, message.partition);
            outbox.queue.push_back(Outgoing { partition, ticket, record, since });
        }
        let thread = self.outbox().thread;
        self.process.wake(thread);
        Ok(())
    }

    fn expect_from(&mut self, number: u64, offset: i64) {
        self.outbox().expected.insert(number, offset);
    }

    fn in_flight(&self) -> usize {
        let outbox = self.outbox();
        outbox.queue.len() + outbox.in_flight
    }

    fn has_failed(&self) -> bool {
        !self.outbox().failures.is_empty()
    }

    fn take_failures(&mut self) -> Vec<DeliveryFailure> {
        std::mem::take(&mut self.outbox().failures)
    }

    fn take_delivered(&mut self) -> Vec<(u64, i64)> {
        std::mem::take(&mut self.outbox().delivered)
    }

    fn commit(&mut self, offsets: &[OffsetCommit], group: Metadata) -> Result<(), Error> {
        self.commit_while(offsets, group, &mut |_| {})
    }

    fn commit_while(
        &mut self,
        offsets: &[OffsetCommit],
        group: Metadata,
        meanwhile: &mut dyn FnMut(Duration),
    ) -> Result<(), Error> {
        let requested_at = self.process.now();
        self.has_response = false;
        self.outbox().ending = Some((requested_at, None));
        let process = self.process.clone();
        let mut go_on = || {
            if !process.is_dead() {
                *process.lock().is_committing() = true;
                meanwhile(MEANWHILE);
                *process.lock().is_committing() = false;
            }
        };
        let ended = self.commit_within(offsets, &group, requested_at + TRANSACTION_TIMEOUT, &mut go_on);
        self.outbox().ending = Some((requested_at, Some(self.process.now())));
        if ended.is_ok() {
            heard::committed();
            self.process.maybe_panic();
        } else {
            let has_records = !self.outbox().registered.is_empty();
            self.process.lock().commit_failed(has_records, &committed(offsets));
        }
        ended
    }

    fn abort(&mut self) -> Result<(), Error> {
        let requested_at = self.process.now();
        {
            let mut outbox = self.outbox();
            outbox.ending = Some((requested_at, None));
            outbox.queue.clear();
        }
        // Waits for requests in flight (`rd_kafka_txn_op_begin_abort` purges, and flushes).
        while self.outbox().is_busy()
            && self.process.now() < requested_at + TRANSACTION_TIMEOUT
            && !self.process.is_dead()
        {
            self.process.sleep(MS);
        }
        let fatal = self.outbox().failed.as_ref().is_some_and(|(action, _)| *action == Action::Fatal);
        if fatal {
            return Err(Error::new(ErrorKind::Fenced, "aborting the transaction: the producer is fenced"));
        }
        let is_open = self.outbox().is_open;
        let ended = match is_open {
            false => Ok(self.who.epoch),
            true => self.ask("end abort", requested_at + TRANSACTION_TIMEOUT + GRACE, |broker, who| {
                broker.end_transaction(who, false)
            }),
        };
        self.outbox().ending = Some((requested_at, Some(self.process.now())));
        match ended {
            Ok(epoch) => {
                self.continue_under(epoch);
                Ok(())
            }
            Err((Action::Fatal, broken)) => Err(Error::new(ErrorKind::Fenced, format!("aborting: {broken:?}"))),
            Err((_, broken)) => Err(Error::new(ErrorKind::Unknown, format!("aborting: {broken:?}"))),
        }
    }

    fn is_fit(&self) -> bool {
        self.has_response && !self.in_doubt()
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.outbox().closed = true;
        if !self.process.is_dead() {
            let thread = self.outbox().thread;
            self.process.wake(thread);
        }
    }
}
