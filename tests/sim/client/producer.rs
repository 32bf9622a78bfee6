//! A transactional producer: records go out from a queue in the background, reports come in later, and the calls
//! that end a transaction wait. See `src/cluster/kafka/producer.rs` and `rdkafka_txnmgr.c` (protocol version 1). Where the
//! cluster speaks version 2, so does the producer, as clients other than librdkafka do: each end of a transaction gives
//! it the epoch of the next. That partitions are then added by writing to them is left out.
//!
//! One produce request is under way at a time; `abort` throws away what is still queued.

use std::sync::{Arc, Mutex, MutexGuard};

use ratchet::cluster::{self, DeliveryFailure, Error, Kind, Message, OffsetCommit, Producer as _, Ticket};

use crate::judge::heard;
use crate::kafka::{Code, Identity, MS, Partition, Record, SECOND, Time};
use crate::world::{self, Broken, MEANT, Process};

use super::errors::{self, Action};
use super::member::{Metadata, committed};
use super::sender::{Background, Line, Outgoing, lock};

/// For how long a transaction may be open, and how long ending one may take.
pub const TRANSACTION: Time = 3 * SECOND;
/// How long opening a producer may take.
const INIT: Time = 30 * SECOND;
/// Added to a call's deadline before it is given up.
const GRACE: Time = 2 * SECOND;
/// Before the same request is made again.
pub const AGAIN: Time = 20 * MS;
/// Before a producer id is asked for again (`RD_KAFKA_IDEMP_PID_RETRY`...: 500 ms).
const INIT_AGAIN: Time = 500 * MS;

/// A transactional producer.
pub struct Producer {
    process: Process,
    id: String,
    who: Identity,
    line: Arc<Mutex<Line>>,
    answered: bool,
}

/// Asks for a producer id until it is given. Whatever is open under it is aborted by that.
pub fn init(process: &Process, id: &Arc<str>) -> Result<Identity, Error> {
    let deadline = process.now() + INIT;
    loop {
        let asked = id.clone();
        let found = process.ask("init producer", move |broker| broker.init_producer(&asked, TRANSACTION));
        match found {
            Ok((producer, epoch)) => return Ok(Identity { id: id.clone(), producer, epoch }),
            Err(Broken::Code(Code::ProducerFenced | Code::InvalidProducerEpoch)) => {
                return Err(Error::new(Kind::Fenced, format!("opening the transactional id {id}: fenced")));
            }
            Err(_) if process.now() < deadline && !process.is_dead() => process.sleep(INIT_AGAIN),
            Err(_) => return Err(Error::new(Kind::Retry, format!("opening the transactional id {id}: no answer"))),
        }
    }
}

impl Producer {
    pub fn open(process: Process, id: &str) -> Result<Self, Error> {
        let who = init(&process, &id.into())?;
        process.lock().memory.opened(&who.id, process.number);
        let line = Arc::new(Mutex::new(Line { epoch: who.epoch, ..Line::default() }));
        let background = Background { process: process.clone(), who: who.clone(), line: line.clone() };
        lock(&line).thread = process.spawn(move || background.run());
        Ok(Self { process, id: id.to_owned(), who, line, answered: true })
    }

    /// What its requests name it by.
    pub fn identity(&self) -> Identity {
        self.who.clone()
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        lock(&self.line)
    }

    fn in_doubt(&self) -> bool {
        self.line().doubted
    }

    /// Makes a transactional request until it has an answer that is one, or `deadline`; the error says so.
    fn ask<T: 'static>(
        &self,
        what: &'static str,
        deadline: Time,
        request: impl Fn(&mut crate::kafka::Broker, &Identity) -> Result<T, Code> + Clone + Send + 'static,
    ) -> Result<T, (Action, Broken)> {
        loop {
            let (who, request) = (self.who.clone(), request.clone());
            let broken = match self.process.ask(what, move |broker| request(broker, &who)) {
                Ok(answer) => return Ok(answer),
                Err(broken) => broken,
            };
            if broken == Broken::Lost {
                let now = self.process.now();
                self.line().broke(now);
            }
            let action = errors::transactional(broken);
            if action == Action::Fatal {
                self.line().failed = Some((action, format!("{what}: {broken:?}")));
            }
            if action != Action::Retry || self.process.now() + AGAIN >= deadline || self.process.is_dead() {
                return Err((action, broken));
            }
            self.process.sleep(AGAIN);
        }
    }

    /// What has failed in the background.
    fn look_back(&self) -> Result<(), Error> {
        let line = self.line();
        let Some((action, message)) = &line.failed else { return Ok(()) };
        let kind = if *action == Action::Fatal { Kind::Fenced } else { Kind::Abort };
        Err(Error::new(kind, message.clone()))
    }

    /// Waits for the deliveries.
    fn flush(&self, deadline: Time) -> Result<(), Error> {
        loop {
            self.look_back()?;
            if self.in_flight() == 0 {
                return Ok(());
            }
            if self.process.now() >= deadline || self.process.is_dead() {
                return Err(Error::new(Kind::Abort, "the records were not delivered in time"));
            }
            self.process.sleep(MS);
        }
    }

    /// Nothing may have come to stand where others stood.
    fn check_deliveries(&self) -> Result<(), Error> {
        let line = self.line();
        let is_below = |(number, offset): &&(u64, i64)| line.expected.get(number).is_some_and(|from| offset < from);
        match line.delivered.iter().find(is_below) {
            None => Ok(()),
            Some((_, offset)) => Err(Error::new(Kind::Abort, format!("a record has come to stand at offset {offset}"))),
        }
    }

    fn add_offsets(&mut self, offsets: &[OffsetCommit], group: &Metadata, deadline: Time) -> Result<(), Error> {
        let failed = |(_, broken): (Action, Broken)| {
            // Whatever this was, nothing has been committed.
            let stale = matches!(broken, Broken::Code(code) if errors::is_stale_membership(code));
            let fatal = !stale && errors::transactional(broken) == Action::Fatal;
            (
                stale,
                Error::new(if fatal { Kind::Fenced } else { Kind::Abort }, format!("adding the offsets: {broken:?}")),
            )
        };
        if offsets.is_empty() {
            // Nothing is asked then (`rd_kafka_send_offsets_to_transaction`).
            return Ok(());
        }
        self.line().begun = true;
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
            self.answered = stale;
            error
        })
    }

    fn commit_within(&mut self, offsets: &[OffsetCommit], group: &Metadata, deadline: Time) -> Result<(), Error> {
        self.look_back()?;
        // The records go out meanwhile, and are waited for by what ends the transaction.
        self.add_offsets(offsets, group, deadline)?;
        self.flush(deadline)?;
        self.check_deliveries()?;
        let number = self.process.lock().broker.coordinator.number(&self.who.id);
        match self.ask("end commit", deadline, |broker, who| broker.end_transaction(who, true)) {
            Ok(epoch) => {
                self.answered = true;
                self.move_on(epoch);
                Ok(())
            }
            Err((action, broken)) => {
                let kind = match action {
                    Action::Fatal => Kind::Fenced,
                    Action::Abort => Kind::Abort,
                    Action::Retry => {
                        let mut state = self.process.lock();
                        state.reach("a commit's outcome stayed unknown");
                        state.memory.unknown(&self.who.id, number);
                        Kind::Unknown
                    }
                };
                Err(Error::new(kind, format!("committing the transaction: {broken:?}")))
            }
        }
    }

    /// The transaction has ended, and the next one is written under `epoch`. Under another one sequences begin anew.
    fn move_on(&mut self, epoch: i16) {
        let is_new = self.who.epoch != epoch;
        if is_new {
            self.process.lock().reach("an end of a transaction moved its producer's epoch on");
        }
        self.who.epoch = epoch;
        let mut line = self.line();
        if is_new {
            line.epoch = epoch;
            line.sequences.clear();
        }
        line.registered.clear();
        line.begun = false;
        line.failed = None;
    }
}

impl cluster::Producer for Producer {
    type Metadata = Metadata;

    fn id(&self) -> &str {
        &self.id
    }

    fn begin(&mut self) -> Result<(), Error> {
        if self.in_doubt() {
            return Err(Error::new(Kind::Fenced, "a connection broke while the last transaction ended"));
        }
        self.line().expected.clear();
        match &self.line().failed {
            Some((_, message)) => Err(Error::new(Kind::Fenced, message.clone())),
            None => Ok(()),
        }
    }

    fn send(&mut self, ticket: Ticket, message: &Message<'_>) -> Result<(), Error> {
        self.process.strike();
        if world::is_poisonous(message.value) {
            panic!("{MEANT}: a poisonous record");
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
            let mut line = self.line();
            if let Some((action, message)) = &line.failed {
                let kind = if *action == Action::Fatal { Kind::Fenced } else { Kind::Abort };
                return Err(Error::new(kind, message.clone()));
            }
            let partition = Partition::new(message.topic, message.partition);
            line.queue.push_back(Outgoing { partition, ticket, record, since });
        }
        let thread = self.line().thread;
        self.process.wake(thread);
        Ok(())
    }

    fn expect_from(&mut self, number: u64, offset: i64) {
        self.line().expected.insert(number, offset);
    }

    fn in_flight(&self) -> usize {
        let line = self.line();
        line.queue.len() + line.in_flight
    }

    fn has_failed(&self) -> bool {
        !self.line().failures.is_empty()
    }

    fn take_failures(&mut self) -> Vec<DeliveryFailure> {
        std::mem::take(&mut self.line().failures)
    }

    fn take_delivered(&mut self) -> Vec<(u64, i64)> {
        std::mem::take(&mut self.line().delivered)
    }

    fn commit(&mut self, offsets: &[OffsetCommit], group: Metadata) -> Result<(), Error> {
        let asked = self.process.now();
        self.answered = false;
        self.line().ending = Some((asked, None));
        let ended = self.commit_within(offsets, &group, asked + TRANSACTION);
        self.line().ending = Some((asked, Some(self.process.now())));
        if ended.is_ok() {
            heard::committed();
            self.process.strike();
        } else {
            let has_records = !self.line().registered.is_empty();
            self.process.lock().commit_failed(has_records, &committed(offsets));
        }
        ended
    }

    fn abort(&mut self) -> Result<(), Error> {
        let asked = self.process.now();
        {
            let mut line = self.line();
            line.ending = Some((asked, None));
            line.queue.clear();
        }
        // What is under way is waited for (`rd_kafka_txn_op_begin_abort` purges, and flushes).
        while self.line().is_busy() && self.process.now() < asked + TRANSACTION && !self.process.is_dead() {
            self.process.sleep(MS);
        }
        let fatal = self.line().failed.as_ref().is_some_and(|(action, _)| *action == Action::Fatal);
        if fatal {
            return Err(Error::new(Kind::Fenced, "aborting the transaction: the producer is fenced"));
        }
        let begun = self.line().begun;
        let ended = match begun {
            false => Ok(self.who.epoch),
            true => {
                self.ask("end abort", asked + TRANSACTION + GRACE, |broker, who| broker.end_transaction(who, false))
            }
        };
        self.line().ending = Some((asked, Some(self.process.now())));
        match ended {
            Ok(epoch) => {
                self.move_on(epoch);
                Ok(())
            }
            Err((Action::Fatal, broken)) => Err(Error::new(Kind::Fenced, format!("aborting: {broken:?}"))),
            Err((_, broken)) => Err(Error::new(Kind::Unknown, format!("aborting: {broken:?}"))),
        }
    }

    fn is_fit(&self) -> bool {
        self.answered && !self.in_doubt()
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.line().closed = true;
        if !self.process.is_dead() {
            let thread = self.line().thread;
            self.process.wake(thread);
        }
    }
}
