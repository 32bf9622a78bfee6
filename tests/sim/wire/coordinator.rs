//! The transaction coordinator: who has a transactional id, and the state of its transaction (`TransactionCoordinator`,
//! `TransactionMetadata`).
//!
//! A decision is made, and answered, when it is asked for. The markers that make it visible are written later, one by
//! one; until the last one is, the id is busy (CONCURRENT_TRANSACTIONS).

use std::collections::{BTreeMap, BTreeSet};

pub const OUT_OF_ORDER_SEQUENCE: i16 = 45;
pub const DUPLICATE_SEQUENCE: i16 = 46;
pub const INVALID_PRODUCER_EPOCH: i16 = 47;
pub const INVALID_TXN_STATE: i16 = 48;
pub const INVALID_PRODUCER_ID_MAPPING: i16 = 49;
pub const CONCURRENT_TRANSACTIONS: i16 = 51;
pub const PRODUCER_FENCED: i16 = 90;
pub const TRANSACTION_ABORTABLE: i16 = 120;

/// Where a marker must be written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// A partition of a topic.
    Log(String, i32),
    /// The offsets of a group.
    Offsets(String),
}

/// A marker to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    pub id: String,
    pub target: Target,
    pub producer: i64,
    pub epoch: i16,
    pub commit: bool,
}

/// `TransactionState`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Empty,
    Ongoing,
    PrepareCommit,
    PrepareAbort,
    CompleteCommit,
    CompleteAbort,
}

/// A producer as it names itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Who {
    pub producer: i64,
    pub epoch: i16,
}

#[derive(Debug)]
struct Id {
    /// Who has it now.
    who: Who,
    /// Who ended the last transaction, with version 2: that request may come again.
    ended: Option<Who>,
    /// As whom the markers of the ending transaction are written.
    marking: Who,
    state: State,
    targets: BTreeSet<Target>,
    timeout: u64,
    began: u64,
}

/// The coordinator of all transactional ids.
#[derive(Debug)]
pub struct Coordinator {
    /// Whether transactions have version 2 (KIP-890).
    pub is_v2: bool,
    /// The last epoch of a producer id, after which it gets another one (`Short.MAX_VALUE - 1`).
    pub epoch_max: i16,
    ids: BTreeMap<String, Id>,
    producers: i64,
    /// For the judge: whether each transaction was committed, by who wrote in it.
    pub decisions: BTreeMap<Who, Vec<bool>>,
    /// How many transactions were aborted because they took too long.
    pub timed_out: usize,
}

impl Coordinator {
    pub fn new(is_v2: bool, epoch_max: i16) -> Self {
        Self { is_v2, epoch_max, ids: BTreeMap::new(), producers: 0, decisions: BTreeMap::new(), timed_out: 0 }
    }

    fn new_producer(producers: &mut i64) -> Who {
        *producers += 1;
        Who { producer: 1000 + *producers, epoch: 0 }
    }

    fn raised(producers: &mut i64, epoch_max: i16, who: Who) -> Who {
        match who.epoch >= epoch_max {
            true => Self::new_producer(producers),
            false => Who { epoch: who.epoch + 1, ..who },
        }
    }

    /// A new identity, which fences the one before. What is open is aborted first, under an epoch that nobody ever
    /// learns; until then, and while any transaction ends: CONCURRENT_TRANSACTIONS. `known`: the identity that is to be
    /// raised (KIP-360).
    pub fn init(&mut self, id: &str, known: Option<Who>, timeout: u64) -> Result<Who, i16> {
        let Some(it) = self.ids.get_mut(id) else {
            let who = Self::new_producer(&mut self.producers);
            let new =
                Id { who, ended: None, marking: who, state: State::Empty, targets: BTreeSet::new(), timeout, began: 0 };
            self.ids.insert(id.to_owned(), new);
            return Ok(who);
        };
        if known.is_some_and(|known| known != it.who) {
            return Err(PRODUCER_FENCED);
        }
        match it.state {
            State::PrepareCommit | State::PrepareAbort => Err(CONCURRENT_TRANSACTIONS),
            State::Ongoing => {
                self.fence(id);
                Err(CONCURRENT_TRANSACTIONS)
            }
            State::Empty | State::CompleteCommit | State::CompleteAbort => {
                it.who = Self::raised(&mut self.producers, self.epoch_max, it.who);
                (it.state, it.timeout, it.ended) = (State::Empty, timeout, None);
                Ok(it.who)
            }
        }
    }

    /// Aborts what is open under an epoch of its own (`prepareFenceProducerEpoch`), which nobody has been told.
    fn fence(&mut self, id: &str) {
        let Some(it) = self.ids.get_mut(id) else { return };
        let writer = it.who;
        // The fencing epoch may be the very last one; with version 2 its end takes one more.
        it.marking = Who { epoch: it.who.epoch + 1, ..it.who };
        it.who = Self::raised(&mut self.producers, self.epoch_max, it.marking);
        it.ended = None;
        it.state = State::PrepareAbort;
        self.decisions.entry(writer).or_default().push(false);
        it.complete_if_done();
    }

    fn checked(&mut self, id: &str, who: Who) -> Result<&mut Id, i16> {
        let it = self.ids.get_mut(id).ok_or(INVALID_PRODUCER_ID_MAPPING)?;
        if it.who.producer != who.producer {
            return Err(INVALID_PRODUCER_ID_MAPPING);
        }
        if it.who.epoch != who.epoch { Err(PRODUCER_FENCED) } else { Ok(it) }
    }

    /// Adds targets to the transaction, opening one if none is.
    pub fn add(&mut self, id: &str, who: Who, targets: Vec<Target>, now: u64) -> Result<(), i16> {
        let it = self.checked(id, who)?;
        match it.state {
            State::PrepareCommit | State::PrepareAbort => return Err(CONCURRENT_TRANSACTIONS),
            State::Ongoing => {}
            State::Empty | State::CompleteCommit | State::CompleteAbort => {
                it.targets.clear();
                it.state = State::Ongoing;
                it.began = now;
            }
        }
        it.targets.extend(targets);
        Ok(())
    }

    /// Whether a write to `target` belongs to the open transaction (KIP-890, part 1).
    pub fn verify(&mut self, id: &str, who: Who, target: &Target) -> Result<(), i16> {
        let it = self.checked(id, who)?;
        match it.state {
            State::PrepareCommit | State::PrepareAbort => Err(CONCURRENT_TRANSACTIONS),
            State::Ongoing if it.targets.contains(target) => Ok(()),
            _ => Err(INVALID_TXN_STATE),
        }
    }

    /// Ends the transaction: who the producer is from then on. With version 2 a request that comes again is answered by
    /// what became of the first.
    pub fn end(&mut self, id: &str, who: Who, commit: bool) -> Result<Who, i16> {
        let is_v2 = self.is_v2;
        let it = self.ids.get_mut(id).ok_or(INVALID_PRODUCER_ID_MAPPING)?;
        let again = is_v2 && it.ended == Some(who);
        if !again && it.who.producer != who.producer {
            return Err(INVALID_PRODUCER_ID_MAPPING);
        }
        if !again && it.who.epoch != who.epoch {
            return Err(PRODUCER_FENCED);
        }
        // With version 2 an abort is accepted though nothing was begun: the client may not know.
        let idle = matches!(it.state, State::Empty | State::CompleteCommit | State::CompleteAbort);
        if !again && (it.state == State::Ongoing || is_v2 && !commit && idle) {
            it.state = if commit { State::PrepareCommit } else { State::PrepareAbort };
            it.marking = who;
            if idle {
                it.targets.clear();
            }
            if is_v2 {
                it.marking = Who { epoch: who.epoch + 1, ..who };
                it.ended = Some(who);
                it.who = Self::raised(&mut self.producers, self.epoch_max, who);
            }
            let answer = it.who;
            self.decisions.entry(who).or_default().push(commit);
            if let Some(it) = self.ids.get_mut(id) {
                it.complete_if_done();
            }
            return Ok(answer);
        }
        let same = match it.state {
            State::PrepareCommit | State::CompleteCommit => commit,
            State::PrepareAbort | State::CompleteAbort => !commit,
            _ => false,
        };
        match it.state {
            _ if !same => Err(INVALID_TXN_STATE),
            State::PrepareCommit | State::PrepareAbort => Err(CONCURRENT_TRANSACTIONS),
            _ if is_v2 && !again => Err(INVALID_TXN_STATE),
            _ => Ok(it.who),
        }
    }

    /// Aborts what has been open for too long, and fences its producers.
    pub fn abort_timed_out(&mut self, now: u64) {
        let late = |it: &Id| it.state == State::Ongoing && it.began + it.timeout <= now;
        let ids: Vec<String> = self.ids.iter().filter(|(_, it)| late(it)).map(|(id, _)| id.clone()).collect();
        for id in ids {
            self.timed_out += 1;
            self.fence(&id);
        }
    }

    /// The markers that are to be written.
    pub fn markers(&self) -> Vec<Marker> {
        let ending = self.ids.iter().filter(|(_, it)| it.is_ending());
        let markers = ending.flat_map(|(id, it)| {
            it.targets.iter().map(|target| Marker {
                id: id.clone(),
                target: target.clone(),
                producer: it.marking.producer,
                epoch: it.marking.epoch,
                commit: it.state == State::PrepareCommit,
            })
        });
        markers.collect()
    }

    /// A marker was written.
    pub fn marked(&mut self, marker: &Marker) {
        let Some(it) = self.ids.get_mut(&marker.id) else { return };
        if it.is_ending() && (it.marking == Who { producer: marker.producer, epoch: marker.epoch }) {
            it.targets.remove(&marker.target);
            it.complete_if_done();
        }
    }

    /// Whether any transaction is open, or ends.
    pub fn is_busy(&self) -> bool {
        self.ids.values().any(|it| it.state == State::Ongoing || it.is_ending())
    }
}

impl Id {
    fn is_ending(&self) -> bool {
        matches!(self.state, State::PrepareCommit | State::PrepareAbort)
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

mod tests {
    use super::*;

    fn log(number: i32) -> Target {
        Target::Log("t".to_owned(), number)
    }

    fn mark_all(coordinator: &mut Coordinator) {
        for marker in coordinator.markers() {
            coordinator.marked(&marker);
        }
    }

    #[test]
    fn version_1_repeats_an_end_in_the_same_epoch_even_late() {
        let mut coordinator = Coordinator::new(false, 100);
        let who = coordinator.init("x", None, 60).unwrap();
        coordinator.add("x", who, vec![log(0)], 0).unwrap();
        assert_eq!(coordinator.end("x", who, true), Ok(who));
        assert_eq!(coordinator.end("x", who, true), Err(CONCURRENT_TRANSACTIONS));
        assert_eq!(coordinator.add("x", who, vec![log(0)], 0), Err(CONCURRENT_TRANSACTIONS));
        mark_all(&mut coordinator);
        assert_eq!(coordinator.end("x", who, true), Ok(who));
        coordinator.add("x", who, vec![log(1)], 0).unwrap();
        // The hole: a late copy ends the next transaction.
        assert_eq!(coordinator.end("x", who, true), Ok(who));
    }

    #[test]
    fn version_2_raises_the_epoch_and_knows_copies() {
        let mut coordinator = Coordinator::new(true, 100);
        let who = coordinator.init("x", None, 60).unwrap();
        coordinator.add("x", who, vec![log(0)], 0).unwrap();
        let next = coordinator.end("x", who, true).unwrap();
        assert_eq!(next, Who { epoch: who.epoch + 1, ..who });
        mark_all(&mut coordinator);
        assert_eq!(coordinator.end("x", who, true), Ok(next), "the same again");
        coordinator.add("x", next, vec![log(1)], 0).unwrap();
        assert_ne!(coordinator.end("x", who, true), Ok(next), "a late copy does not end the next one");
        assert_eq!(coordinator.verify("x", next, &log(1)), Ok(()));
    }

    #[test]
    fn init_fences_and_aborts_what_is_open() {
        for is_v2 in [false, true] {
            let mut coordinator = Coordinator::new(is_v2, 3);
            let mut who = coordinator.init("x", None, 60).unwrap();
            for _ in 0..9 {
                coordinator.add("x", who, vec![log(0)], 0).unwrap();
                assert_eq!(coordinator.init("x", None, 60), Err(CONCURRENT_TRANSACTIONS));
                assert!(coordinator.end("x", who, true).is_err());
                mark_all(&mut coordinator);
                let next = coordinator.init("x", None, 60).unwrap();
                assert!(next > who);
                assert_eq!(coordinator.decisions[&who], [false]);
                who = next;
            }
        }
    }
}
