//! A transactional producer, on the wire. What the schedule wants to go wrong in it does, and what the judge has to
//! know of it is noted.

use std::time::Duration;

use ratchet::cluster::kafka::client;
use ratchet::cluster::{self, DeliveryFailure, Error, ErrorKind, Expected, Message, OffsetCommit, Ticket};

use crate::judge::coverage::faults;
use crate::judge::heard;
use crate::kafka::{Identity, MS};
use crate::world::{self, INJECTED_PANIC, Process};

use super::Clients;
use super::member::{Metadata, committed};

/// A transactional producer.
pub struct Producer {
    process: Process,
    writing: client::Producer<Metadata>,
    /// Whether the transaction has any records.
    has_records: bool,
}

impl Producer {
    pub fn open(process: Process, clients: &Clients, id: &str) -> Result<Self, Error> {
        let writing = client::Producer::open(&clients.brokers, &clients.write, &clients.accepted, id)?;
        process.lock().memory.opened(&id.into(), process.number);
        Ok(Self { process, writing, has_records: false })
    }

    /// How its requests name it.
    pub fn identity(&self) -> Identity {
        let id = cluster::Producer::id(self);
        let state = self.process.lock();
        let (producer, epoch) = state.broker.coordinator.identity(id).expect("it was opened");
        Identity { id: id.into(), producer, epoch }
    }
}

impl cluster::Producer for Producer {
    type Metadata = Metadata;

    fn id(&self) -> &str {
        self.writing.id()
    }

    fn begin(&mut self) -> Result<(), Error> {
        self.has_records = false;
        self.writing.begin()
    }

    fn send(&mut self, ticket: Ticket, message: &Message<'_>) -> Result<(), Error> {
        self.process.maybe_panic();
        if world::is_poisonous(message.value) {
            self.process.lock().reach(faults::POISONED);
            panic!("{INJECTED_PANIC}: a poisonous record");
        }
        self.has_records = true;
        // librdkafka takes 0 for "not given".
        let timestamp = message.timestamp.filter(|at| *at != 0);
        self.writing.send(ticket, &Message { timestamp, ..*message })
    }

    fn expect(&mut self, number: u64, expected: Expected) {
        self.writing.expect(number, expected);
    }

    fn in_flight(&self) -> usize {
        self.writing.in_flight()
    }

    fn has_failed(&self) -> bool {
        self.writing.has_failed()
    }

    fn take_failures(&mut self) -> Vec<DeliveryFailure> {
        self.writing.take_failures()
    }

    fn take_delivered(&mut self) -> Vec<(u64, i64)> {
        self.writing.take_delivered()
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
        let number = self.process.lock().broker.coordinator.number(self.writing.id());
        let process = self.process.clone();
        let mut go_on = |wait: Duration| {
            let before = process.now();
            if !process.is_dead() {
                *process.lock().is_committing() = true;
                meanwhile(wait);
                *process.lock().is_committing() = false;
            }
            if process.now() == before {
                process.sleep(MS);
            }
        };
        let ended = self.writing.commit_while(offsets, group, &mut go_on);
        let Err(error) = &ended else {
            heard::committed();
            self.process.maybe_panic();
            return ended;
        };
        let mut state = self.process.lock();
        if error.kind == ErrorKind::Unknown {
            state.reach("a commit's outcome stayed unknown");
            state.memory.unknown(&self.writing.id().into(), number);
        }
        state.commit_failed(self.has_records, &committed(offsets));
        drop(state);
        ended
    }

    fn abort(&mut self) -> Result<(), Error> {
        self.writing.abort()
    }

    fn is_usable(&self) -> bool {
        self.writing.is_usable()
    }
}
