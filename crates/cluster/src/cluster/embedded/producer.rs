//! Transactions: records wait in the producer's memory and become visible, with the offsets, in one
//! synced write. So nothing uncommitted is ever in the folder, every reader is read_committed,
//! and an aborted transaction leaves no trace, not even a gap in the offsets.

use std::sync::Arc;

use super::broker::{Broker, Offsets};
use super::buffer::{Buffer, Taken};
use super::error::refused;
use super::membership::Membership;
use super::state::State;
use crate::cluster::{self, DeliveryFailure, Error, ErrorKind, Message, OffsetCommit, Ticket};

/// See [`cluster::Producer`]. Offsets are assigned at the commit, so [`cluster::Producer::take_delivered`]
/// returns them only then, and nothing is ever in flight.
pub struct Producer {
    broker: Arc<Broker>,
    id: String,
    /// Identifies this owner of the id; the next producer with the same id gets another.
    epoch: u64,
    open: bool,
    buffer: Buffer,
    /// The records in the buffer to be reported: index and number.
    to_report: Vec<(usize, u64)>,
    delivered: Vec<(u64, i64)>,
    failures: Vec<DeliveryFailure>,
    /// Whether a record of the open transaction has failed.
    failed: bool,
}

impl Producer {
    /// Takes over the transactional id. Needs the writer lock: a commit of the previous producer is then over, or has
    /// not begun.
    pub(super) fn open(broker: &Arc<Broker>, id: &str) -> Result<Self, Error> {
        if id.is_empty() {
            return Err(refused("a transactional id must not be empty"));
        }
        let _writing = broker.writing();
        let mut state = broker.state()?;
        let epoch = state.next_number();
        state.producers.insert(id.to_owned(), epoch);
        drop(state);
        Ok(Self {
            broker: Arc::clone(broker),
            id: id.to_owned(),
            epoch,
            open: false,
            buffer: Buffer::default(),
            to_report: Vec::new(),
            delivered: Vec::new(),
            failures: Vec::new(),
            failed: false,
        })
    }

    fn end(&mut self) {
        self.open = false;
        self.failed = false;
        self.buffer.clear();
        self.to_report.clear();
    }

    fn check_open(&self) -> Result<(), Error> {
        if self.open {
            return Ok(());
        }
        Err(refused(format!("producer {} has no transaction open: begin one first", self.id)))
    }
}

impl cluster::Producer for Producer {
    type Metadata = Membership;

    fn id(&self) -> &str {
        &self.id
    }

    fn begin(&mut self) -> Result<(), Error> {
        if self.open {
            return Err(refused(format!("producer {} has a transaction open: commit or abort it first", self.id)));
        }
        check_epoch(&*self.broker.state()?, &self.id, self.epoch)?;
        self.open = true;
        Ok(())
    }

    fn send(&mut self, ticket: Ticket, message: &Message<'_>) -> Result<(), Error> {
        self.check_open()?;
        let index = self.buffer.len();
        match self.buffer.push(message, (self.broker.options.now_ms)(), || self.broker.state())? {
            Taken::Buffered if ticket.report => self.to_report.push((index, ticket.number)),
            Taken::Buffered => {}
            Taken::Failed(message) => {
                self.failed = true;
                self.failures.push(DeliveryFailure { number: ticket.number, refused: true, message });
            }
        }
        Ok(())
    }

    fn in_flight(&self) -> usize {
        0
    }

    fn has_failed(&self) -> bool {
        !self.failures.is_empty()
    }

    fn take_failures(&mut self) -> Vec<DeliveryFailure> {
        std::mem::take(&mut self.failures)
    }

    fn take_delivered(&mut self) -> Vec<(u64, i64)> {
        std::mem::take(&mut self.delivered)
    }

    fn commit(&mut self, offsets: &[OffsetCommit], group: Membership) -> Result<(), Error> {
        self.check_open()?;
        if self.failed {
            let id = &self.id;
            return Err(Error::new(
                ErrorKind::Abort,
                format!("producer {id}: a record of the transaction was not delivered"),
            ));
        }
        let (id, epoch) = (&self.id, self.epoch);
        let given =
            self.broker.commit(&self.buffer, Some(&Offsets { commits: offsets, membership: &group }), |state| {
                check_epoch(state, id, epoch)?;
                state.check_membership(&group)?;
                offsets.iter().try_for_each(|commit| state.topic_of(&commit.partition).map(drop))
            });
        // If it was refused, that was before anything was written.
        let given = given.map_err(|e| match e.kind {
            ErrorKind::Refused => Error { kind: ErrorKind::Abort, ..e },
            _ => e,
        })?;
        self.delivered.extend(self.to_report.iter().map(|(index, number)| (*number, given[*index])));
        self.broker.compact_due(&self.buffer);
        self.end();
        Ok(())
    }

    fn abort(&mut self) -> Result<(), Error> {
        self.end();
        check_epoch(&*self.broker.state()?, &self.id, self.epoch)
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        if let Ok(mut state) = self.broker.state()
            && state.producers.get(&self.id) == Some(&self.epoch)
        {
            state.producers.remove(&self.id);
        }
    }
}

fn check_epoch(state: &State, id: &str, epoch: u64) -> Result<(), Error> {
    match state.producers.get(id) {
        Some(current) if *current == epoch => Ok(()),
        _ => Err(Error::new(
            ErrorKind::Fenced,
            format!("transactional id {id} was taken over by another producer (fenced)"),
        )),
    }
}
