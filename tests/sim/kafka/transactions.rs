//! The transaction coordinator: who owns a transactional id, and the state of its transaction.
//!
//! A decision is taken, and returned, as soon as it is requested; the markers that make it visible are written later,
//! one by one, when the owner of the cluster says so. Until the last one is written the id is busy:
//! CONCURRENT_TRANSACTIONS (`TransactionCoordinator`, `TransactionMetadata`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Code, Partition, SECOND, Time};

/// The transaction protocol that producers speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// One epoch for all of a producer's transactions (KIP-98). librdkafka 2.12 speaks it to every broker.
    V1,
    /// Every end of a transaction bumps the epoch (KIP-890).
    V2,
}

/// The state of a transactional id (`TransactionState`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Empty,
    Ongoing,
    PrepareCommit,
    PrepareAbort,
    CompleteCommit,
    CompleteAbort,
}

/// Where a marker must be written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    Log(Partition),
    /// The offsets of a group.
    Offsets(Arc<str>),
}

/// A marker still to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    pub id: Arc<str>,
    pub target: Target,
    pub producer: i64,
    pub epoch: i16,
    pub commit: bool,
}

/// The state of a transactional id (`TransactionMetadata`).
#[derive(Debug)]
struct Transaction {
    producer: i64,
    epoch: i16,
    /// Who ended the last transaction, with version 2: that request may come again.
    ended: Option<(i64, i16)>,
    /// As whom the markers of the ending transaction are written.
    marking: (i64, i16),
    state: State,
    targets: BTreeSet<Target>,
    timeout: Time,
    began: Time,
    /// For the judge: whether each ended transaction was committed.
    decisions: Vec<bool>,
}

/// How often the coordinator scans for transactions that have been open for too long
/// (`transaction.abort.timed.out.transaction.cleanup.interval.ms`; 10 s by default).
const SCAN: Time = SECOND / 2;

/// The coordinator of all transactional ids.
#[derive(Debug)]
pub struct Coordinator {
    pub protocol: Protocol,
    /// Whether a transactional write is checked against its transaction (KIP-890, part 1: Kafka 3.6 and later).
    pub verifies: bool,
    /// How many transactions were aborted because they took too long.
    pub timed_out: usize,
    ids: BTreeMap<Arc<str>, Transaction>,
    producers: Producers,
    scanned: Time,
}

/// Gives out producer ids and epochs.
#[derive(Debug)]
struct Producers {
    last: i64,
    /// The last epoch of a producer id, after which there is another id (`Short.MAX_VALUE - 1`).
    epoch_max: i16,
}

impl Producers {
    fn another(&mut self) -> (i64, i16) {
        self.last += 1;
        (1000 + self.last, 0)
    }

    fn raised(&mut self, (producer, epoch): (i64, i16)) -> (i64, i16) {
        if epoch >= self.epoch_max { self.another() } else { (producer, epoch + 1) }
    }
}

impl Coordinator {
    pub fn new(protocol: Protocol) -> Self {
        let producers = Producers { last: 0, epoch_max: i16::MAX - 2 };
        Self { protocol, verifies: true, timed_out: 0, ids: BTreeMap::new(), producers, scanned: 0 }
    }

    /// Has epochs end earlier.
    pub fn set_epoch_max(&mut self, epoch_max: i16) {
        self.producers.epoch_max = epoch_max;
    }

    pub fn state(&self, id: &str) -> Option<State> {
        self.ids.get(id).map(|transaction| transaction.state)
    }

    /// The id's producer.
    pub fn producer(&self, id: &str) -> Option<i64> {
        self.ids.get(id).map(|transaction| transaction.producer)
    }

    /// Whether the transaction of a producer is decided to be committed, and its markers are not all written.
    pub fn commits(&self, producer: i64) -> bool {
        let is_it = |transaction: &Transaction| transaction.producer == producer;
        self.ids.values().any(|transaction| is_it(transaction) && transaction.state == State::PrepareCommit)
    }

    /// The number of the id's transaction that is open, or will be opened next.
    pub fn number(&self, id: &str) -> usize {
        self.ids.get(id).map_or(0, |transaction| transaction.decisions.len())
    }

    /// Whether the id's transaction of this number was committed; `None` if that is undecided.
    pub fn decision(&self, id: &str, number: usize) -> Option<bool> {
        self.ids.get(id)?.decisions.get(number).copied()
    }

    /// How many transactions are in this state.
    pub fn count(&self, state: State) -> usize {
        self.ids.values().filter(|transaction| transaction.state == state).count()
    }

    /// Returns the id's producer id with a new epoch, which fences the previous owner. An open transaction is aborted
    /// first, under an epoch that nobody ever learns; until that is done, and while any transaction is ending:
    /// CONCURRENT_TRANSACTIONS (`TransactionCoordinator.prepareInitProducerIdTransit`).
    pub fn init(&mut self, id: &Arc<str>, timeout: Time) -> Result<(i64, i16), Code> {
        let Some(transaction) = self.ids.get_mut(id) else {
            let who = self.producers.another();
            let new = Transaction {
                producer: who.0,
                epoch: who.1,
                ended: None,
                marking: who,
                state: State::Empty,
                targets: BTreeSet::new(),
                timeout,
                began: 0,
                decisions: Vec::new(),
            };
            self.ids.insert(id.clone(), new);
            return Ok(who);
        };
        match transaction.state {
            State::PrepareCommit | State::PrepareAbort => Err(Code::ConcurrentTransactions),
            State::Ongoing => {
                transaction.fence(self.protocol, &mut self.producers);
                Err(Code::ConcurrentTransactions)
            }
            State::Empty | State::CompleteCommit | State::CompleteAbort => {
                let who = self.producers.raised((transaction.producer, transaction.epoch));
                (transaction.producer, transaction.epoch) = who;
                (transaction.state, transaction.timeout, transaction.ended) = (State::Empty, timeout, None);
                Ok(who)
            }
        }
    }

    /// Returns the producer with a new epoch to a client that knows the present one (KIP-360).
    pub fn raise(&mut self, id: &Arc<str>, known: (i64, i16), timeout: Time) -> Result<(i64, i16), Code> {
        if self.ids.get(id).is_some_and(|transaction| (transaction.producer, transaction.epoch) != known) {
            return Err(Code::ProducerFenced);
        }
        self.init(id, timeout)
    }

    /// The id's producer with its epoch.
    pub fn identity(&self, id: &str) -> Option<(i64, i16)> {
        self.ids.get(id).map(|transaction| (transaction.producer, transaction.epoch))
    }

    fn checked(&mut self, id: &str, producer: i64, epoch: i16) -> Result<&mut Transaction, Code> {
        let transaction = self.ids.get_mut(id).ok_or(Code::InvalidProducerIdMapping)?;
        if transaction.producer != producer {
            return Err(Code::InvalidProducerIdMapping);
        }
        if transaction.epoch != epoch { Err(Code::ProducerFenced) } else { Ok(transaction) }
    }

    /// Adds targets to the id's transaction, opening one if none is open
    /// (`TransactionCoordinator.handleAddPartitionsToTransaction`).
    pub fn add(
        &mut self,
        now: Time,
        (id, producer, epoch): (&str, i64, i16),
        targets: impl IntoIterator<Item = Target>,
    ) -> Result<(), Code> {
        let transaction = self.checked(id, producer, epoch)?;
        match transaction.state {
            State::PrepareCommit | State::PrepareAbort => return Err(Code::ConcurrentTransactions),
            State::Ongoing => {}
            State::Empty | State::CompleteCommit | State::CompleteAbort => {
                transaction.targets.clear();
                (transaction.state, transaction.ended) = (State::Ongoing, None);
                transaction.began = now;
            }
        }
        transaction.targets.extend(targets);
        Ok(())
    }

    /// Whether this producer's write to `target` belongs to its open transaction. A write that was overtaken by the
    /// transaction's end must not start another one (KIP-890 part 1,
    /// `TransactionCoordinator.handleVerifyPartitionsInTransaction`).
    pub fn verify(&mut self, (id, producer, epoch): (&str, i64, i16), target: &Target) -> Result<(), Code> {
        if !self.verifies {
            return Ok(());
        }
        let transaction = self.checked(id, producer, epoch)?;
        match transaction.state {
            State::PrepareCommit | State::PrepareAbort => Err(Code::ConcurrentTransactions),
            State::Ongoing if transaction.targets.contains(target) => Ok(()),
            _ => Err(Code::InvalidTxnState),
        }
    }

    /// Ends the id's transaction: returns who its producer is from then on as soon as the end is decided
    /// (`TransactionCoordinator.endTransaction`). A repeated request succeeds once the markers are written.
    pub fn end(&mut self, (id, producer, epoch): (&str, i64, i16), commit: bool) -> Result<(i64, i16), Code> {
        let v2 = self.protocol == Protocol::V2;
        let transaction = self.ids.get_mut(id).ok_or(Code::InvalidProducerIdMapping)?;
        // With version 2 a repeated request comes from who the producer was before (KIP-890 part 2).
        let again = v2 && transaction.ended == Some((producer, epoch));
        if !again && producer != transaction.producer {
            return Err(Code::InvalidProducerIdMapping);
        }
        if !again && epoch != transaction.epoch {
            return Err(Code::ProducerFenced);
        }
        let idle = matches!(transaction.state, State::Empty | State::CompleteCommit | State::CompleteAbort);
        // With version 2 an abort is accepted though nothing was begun: the client may not know.
        if !again && (transaction.state == State::Ongoing || v2 && !commit && idle) {
            if idle {
                transaction.targets.clear();
            }
            transaction.state = if commit { State::PrepareCommit } else { State::PrepareAbort };
            transaction.decisions.push(commit);
            transaction.marking = (producer, epoch + i16::from(v2));
            if v2 {
                transaction.ended = Some((producer, epoch));
                (transaction.producer, transaction.epoch) = self.producers.raised((producer, epoch));
            }
            transaction.complete_if_done();
            return Ok((transaction.producer, transaction.epoch));
        }
        let same = match transaction.state {
            State::PrepareCommit | State::CompleteCommit => commit,
            State::PrepareAbort | State::CompleteAbort => !commit,
            State::Empty | State::Ongoing => false,
        };
        match transaction.state {
            _ if !same => Err(Code::InvalidTxnState),
            State::PrepareCommit | State::PrepareAbort => Err(Code::ConcurrentTransactions),
            // With version 2 a transaction that never started under this epoch cannot have ended.
            _ if v2 && !again => Err(Code::InvalidTxnState),
            _ => Ok((transaction.producer, transaction.epoch)),
        }
    }

    /// Aborts transactions that have been open for longer than their timeout, and fences their producers
    /// (`TransactionCoordinator.abortTimedOutTransactions`).
    pub fn abort_timed_out(&mut self, now: Time) {
        if now < self.scanned + SCAN {
            return;
        }
        self.scanned = now;
        for transaction in self.ids.values_mut().filter(|transaction| transaction.state == State::Ongoing) {
            if transaction.began + transaction.timeout <= now {
                transaction.fence(self.protocol, &mut self.producers);
                self.timed_out += 1;
            }
        }
    }

    /// When the next scan is due.
    pub fn next_scan(&self, now: Time) -> Option<Time> {
        let open = self.ids.values().filter(|transaction| transaction.state == State::Ongoing);
        let next = open.map(|transaction| transaction.began + transaction.timeout).min()?;
        Some(next.max(self.scanned + SCAN).max(now))
    }

    /// Whether any transaction is open or ending.
    pub fn is_busy(&self) -> bool {
        self.ids.values().any(|transaction| transaction.state == State::Ongoing || transaction.is_ending())
    }

    /// Whether any marker is still to be written.
    pub fn has_markers(&self) -> bool {
        self.ids.values().any(|transaction| transaction.is_ending() && !transaction.targets.is_empty())
    }

    pub fn markers(&self) -> Vec<Marker> {
        let ending = self.ids.iter().filter(|(_, transaction)| transaction.is_ending());
        let markers = ending.flat_map(|(id, transaction)| {
            transaction.targets.iter().map(|target| Marker {
                id: id.clone(),
                target: target.clone(),
                producer: transaction.marking.0,
                epoch: transaction.marking.1,
                commit: transaction.state == State::PrepareCommit,
            })
        });
        markers.collect()
    }

    /// Notes that a marker was written.
    pub fn marker_written(&mut self, marker: &Marker) {
        let Some(transaction) = self.ids.get_mut(&marker.id) else { return };
        if transaction.is_ending() && transaction.marking == (marker.producer, marker.epoch) {
            transaction.targets.remove(&marker.target);
            transaction.complete_if_done();
        }
    }
}

impl Transaction {
    fn is_ending(&self) -> bool {
        matches!(self.state, State::PrepareCommit | State::PrepareAbort)
    }

    /// Aborts the open transaction under a new epoch (`TransactionMetadata.prepareFenceProducerEpoch`); with version
    /// 2 its end takes one more, so that the previous owner's epoch is not the one before (`prepareAbortOrCommit`).
    fn fence(&mut self, protocol: Protocol, producers: &mut Producers) {
        let fencing = (self.producer, self.epoch + 1);
        self.marking = if protocol == Protocol::V2 { (fencing.0, fencing.1 + 1) } else { fencing };
        let is_last = protocol == Protocol::V2 && fencing.1 >= producers.epoch_max;
        (self.producer, self.epoch) = if is_last { producers.another() } else { self.marking };
        self.ended = None;
        self.state = State::PrepareAbort;
        self.decisions.push(false);
        self.complete_if_done();
    }

    fn complete_if_done(&mut self) {
        if self.targets.is_empty() {
            self.state = match self.state {
                State::PrepareCommit => State::CompleteCommit,
                State::PrepareAbort => State::CompleteAbort,
                state => state,
            };
        }
    }
}

#[cfg(test)]
#[path = "transactions_tests.rs"]
mod tests;
