//! Goal: the transaction coordinator decides as Kafka's does. Each test names where its rule comes from.

use super::*;

const ID: &str = "orders";

struct Scene {
    coordinator: Coordinator,
    producer: i64,
    epoch: i16,
}

impl Scene {
    fn new(protocol: Protocol) -> Self {
        let mut coordinator = Coordinator::new(protocol);
        let (producer, epoch) = coordinator.init(&ID.into(), SECOND).unwrap();
        Self { coordinator, producer, epoch }
    }

    fn who(&self) -> (&'static str, i64, i16) {
        (ID, self.producer, self.epoch)
    }

    fn init(&mut self) -> Result<(i64, i16), Code> {
        self.coordinator.init(&ID.into(), SECOND)
    }

    fn add(&mut self, partition: i32) -> Result<(), Code> {
        let who = self.who();
        self.coordinator.add(0, who, [Target::Log(Partition::new("out", partition))])
    }

    fn end(&mut self, commit: bool) -> Result<i16, Code> {
        let who = self.who();
        self.coordinator.end(who, commit)
    }

    fn state(&self) -> State {
        self.coordinator.state(ID).unwrap()
    }

    fn write_markers(&mut self) {
        for marker in self.coordinator.markers() {
            self.coordinator.marker_written(&marker);
        }
    }
}

/// `TransactionCoordinator.endTransaction`: answered when decided; complete when the last marker is written.
#[test]
fn an_end_is_answered_before_its_markers_are_written() {
    let mut scene = Scene::new(Protocol::V1);
    scene.add(0).unwrap();
    scene.add(1).unwrap();
    assert_eq!(scene.end(true), Ok(0));
    assert_eq!(scene.state(), State::PrepareCommit);
    let markers = scene.coordinator.markers();
    assert_eq!(markers.len(), 2);
    assert!(markers.iter().all(|marker| marker.commit && marker.epoch == 0));
    scene.coordinator.marker_written(&markers[0]);
    assert_eq!(scene.state(), State::PrepareCommit);
    scene.coordinator.marker_written(&markers[1]);
    assert_eq!(scene.state(), State::CompleteCommit);
}

/// `TransactionCoordinator`: while markers are being written the id is busy, for everybody.
#[test]
fn a_busy_id_answers_concurrent_transactions() {
    let mut scene = Scene::new(Protocol::V1);
    scene.add(0).unwrap();
    scene.end(true).unwrap();
    assert_eq!(scene.add(1), Err(Code::ConcurrentTransactions));
    assert_eq!(scene.end(true), Err(Code::ConcurrentTransactions));
    assert_eq!(scene.end(false), Err(Code::InvalidTxnState));
    assert_eq!(scene.init(), Err(Code::ConcurrentTransactions));
    scene.write_markers();
    assert_eq!(scene.end(true), Ok(0), "asked again");
    assert_eq!(scene.end(false), Err(Code::InvalidTxnState));
    assert_eq!(scene.add(1), Ok(()));
}

/// KIP-98 with protocol 1: a request that comes late, under the same epoch, ends the next transaction.
#[test]
fn a_late_end_meets_the_next_transaction() {
    let mut scene = Scene::new(Protocol::V1);
    scene.add(0).unwrap();
    scene.end(true).unwrap();
    scene.write_markers();
    scene.add(0).unwrap();
    assert_eq!(scene.end(true), Ok(0));
    assert_eq!(scene.state(), State::PrepareCommit);
}

/// KIP-890 part 2: the epoch moves on with every end, so that the same request is fenced.
#[test]
fn with_version_2_a_late_end_is_fenced() {
    let mut scene = Scene::new(Protocol::V2);
    scene.add(0).unwrap();
    assert_eq!(scene.end(true), Ok(1));
    assert_eq!(scene.end(true), Err(Code::ConcurrentTransactions));
    assert_eq!(scene.coordinator.markers()[0].epoch, 1);
    scene.write_markers();
    assert_eq!(scene.end(true), Ok(1), "the answer was lost: asked again");
    scene.epoch = 1;
    scene.add(0).unwrap();
    scene.epoch = 0;
    assert_eq!(scene.end(true), Err(Code::ProducerFenced));
}

/// KIP-890 part 2: an end asked for once more is told from one by an owner that was fenced meanwhile.
#[test]
fn with_version_2_a_fenced_owner_cannot_end_as_if_it_asked_again() {
    let mut scene = Scene::new(Protocol::V2);
    scene.add(0).unwrap();
    scene.coordinator.abort_timed_out(10 * SECOND);
    assert_eq!(scene.state(), State::PrepareAbort);
    for commit in [true, false] {
        assert_eq!(scene.end(commit), Err(Code::ProducerFenced));
    }
    scene.write_markers();
    assert_eq!(scene.end(false), Err(Code::ProducerFenced));
    assert_eq!(scene.init(), Ok((scene.producer, 3)));
}

/// `TransactionCoordinator.prepareInitProducerIdTransit`: a new owner aborts what is open under an epoch of its own,
/// and is given the one after that.
#[test]
fn a_new_owner_aborts_and_fences() {
    let mut scene = Scene::new(Protocol::V1);
    scene.add(0).unwrap();
    assert_eq!(scene.init(), Err(Code::ConcurrentTransactions));
    let markers = scene.coordinator.markers();
    assert_eq!((markers[0].commit, markers[0].epoch), (false, 1));
    assert_eq!(scene.end(true), Err(Code::ProducerFenced));
    assert_eq!(scene.add(0), Err(Code::ProducerFenced));
    scene.write_markers();
    assert_eq!(scene.init(), Ok((scene.producer, 2)));
    assert_eq!(scene.end(true), Err(Code::ProducerFenced));
}

/// `TransactionCoordinator.abortTimedOutTransactions`.
#[test]
fn what_is_open_for_too_long_is_aborted_and_its_producer_fenced() {
    let mut scene = Scene::new(Protocol::V1);
    scene.add(0).unwrap();
    scene.coordinator.abort_timed_out(SECOND - 1);
    assert_eq!(scene.state(), State::Ongoing);
    let due = scene.coordinator.next_scan(SECOND).unwrap();
    scene.coordinator.abort_timed_out(due);
    assert_eq!(scene.state(), State::PrepareAbort);
    assert_eq!(scene.end(true), Err(Code::ProducerFenced));
}

/// KIP-890 part 1 (`handleVerifyPartitionsInTransaction`): a write that was overtaken begins nothing.
#[test]
fn a_write_is_verified() {
    let mut scene = Scene::new(Protocol::V1);
    let (who, target) = (scene.who(), Target::Log(Partition::new("out", 0)));
    assert_eq!(scene.coordinator.verify(who, &target), Err(Code::InvalidTxnState));
    scene.add(0).unwrap();
    assert_eq!(scene.coordinator.verify(who, &target), Ok(()));
    scene.end(false).unwrap();
    assert_eq!(scene.coordinator.verify(who, &target), Err(Code::ConcurrentTransactions));
    scene.write_markers();
    assert_eq!(scene.coordinator.verify(who, &target), Err(Code::InvalidTxnState));
}

/// `TransactionCoordinator.endTransaction`: nothing was begun.
#[test]
fn an_empty_transaction_cannot_end() {
    let mut scene = Scene::new(Protocol::V1);
    assert_eq!(scene.end(true), Err(Code::InvalidTxnState));
    let nobody = ("other", 1, 0);
    assert_eq!(scene.coordinator.end(nobody, true), Err(Code::InvalidProducerIdMapping));
}
