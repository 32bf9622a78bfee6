//! Goal: the transaction coordinator decides as Kafka's does. Each test names the source of its rule.

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
        self.coordinator.end(who, commit).map(|(_, epoch)| epoch)
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

/// `TransactionCoordinator.endTransaction`: returns when decided; complete when the last marker is written.
#[test]
fn end_returns_before_its_markers_are_written() {
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

/// `TransactionCoordinator`: while markers are being written the id is busy for everybody.
#[test]
fn busy_id_returns_concurrent_transactions() {
    let mut scene = Scene::new(Protocol::V1);
    scene.add(0).unwrap();
    scene.end(true).unwrap();
    assert_eq!(scene.add(1), Err(Code::ConcurrentTransactions));
    assert_eq!(scene.end(true), Err(Code::ConcurrentTransactions));
    assert_eq!(scene.end(false), Err(Code::InvalidTxnState));
    assert_eq!(scene.init(), Err(Code::ConcurrentTransactions));
    scene.write_markers();
    assert_eq!(scene.end(true), Ok(0), "repeated");
    assert_eq!(scene.end(false), Err(Code::InvalidTxnState));
    assert_eq!(scene.add(1), Ok(()));
}

/// KIP-98 with protocol 1: a late request under the same epoch ends the next transaction.
#[test]
fn late_end_commits_the_next_transaction() {
    let mut scene = Scene::new(Protocol::V1);
    scene.add(0).unwrap();
    scene.end(true).unwrap();
    scene.write_markers();
    scene.add(0).unwrap();
    assert_eq!(scene.end(true), Ok(0));
    assert_eq!(scene.state(), State::PrepareCommit);
}

/// KIP-890 part 2: the epoch rises with every end, so a late request is fenced.
#[test]
fn late_end_is_fenced_in_version_2() {
    let mut scene = Scene::new(Protocol::V2);
    scene.add(0).unwrap();
    assert_eq!(scene.end(true), Ok(1));
    assert_eq!(scene.end(true), Err(Code::ConcurrentTransactions));
    assert_eq!(scene.coordinator.markers()[0].epoch, 1);
    scene.write_markers();
    assert_eq!(scene.end(true), Ok(1), "the response was lost: repeated");
    scene.epoch = 1;
    scene.add(0).unwrap();
    scene.epoch = 0;
    assert_eq!(scene.end(true), Err(Code::ProducerFenced));
}

/// KIP-890 part 2: a repeated end differs from one by an owner that was fenced meanwhile.
#[test]
fn end_by_a_fenced_owner_is_no_retry_in_version_2() {
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

/// `TransactionCoordinator.prepareInitProducerIdTransit`: a new owner aborts the open transaction under an epoch of
/// its own, and gets the one after that.
#[test]
fn new_owner_aborts_and_fences_the_previous_one() {
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
fn timed_out_transaction_is_aborted_and_its_producer_fenced() {
    let mut scene = Scene::new(Protocol::V1);
    scene.add(0).unwrap();
    scene.coordinator.abort_timed_out(SECOND - 1);
    assert_eq!(scene.state(), State::Ongoing);
    let due = scene.coordinator.next_scan(SECOND).unwrap();
    scene.coordinator.abort_timed_out(due);
    assert_eq!(scene.state(), State::PrepareAbort);
    assert_eq!(scene.end(true), Err(Code::ProducerFenced));
}

/// KIP-890 part 1 (`handleVerifyPartitionsInTransaction`): a write that was overtaken starts nothing.
#[test]
fn write_outside_an_open_transaction_is_rejected() {
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

/// `TransactionCoordinator.endTransaction`: nothing was started.
#[test]
fn empty_transaction_cannot_end() {
    let mut scene = Scene::new(Protocol::V1);
    assert_eq!(scene.end(true), Err(Code::InvalidTxnState));
    let nobody = ("other", 1, 0);
    assert_eq!(scene.coordinator.end(nobody, true), Err(Code::InvalidProducerIdMapping));
}

/// `TransactionMetadata.prepareIncrementProducerEpoch`: after the last epoch comes another producer; fencing goes on.
#[test]
fn last_epoch_is_followed_by_another_producer() {
    for protocol in [Protocol::V1, Protocol::V2] {
        let mut scene = Scene::new(protocol);
        scene.coordinator.set_epoch_max(3);
        for _ in 0..9 {
            scene.add(0).unwrap();
            assert_eq!(scene.init(), Err(Code::ConcurrentTransactions));
            assert!(matches!(scene.end(true), Err(Code::ProducerFenced | Code::InvalidProducerIdMapping)));
            scene.write_markers();
            let next = scene.init().unwrap();
            assert!(next > (scene.producer, scene.epoch));
            (scene.producer, scene.epoch) = next;
        }
    }
}

/// KIP-890 part 2: an abort is accepted though nothing was begun; its epoch rises too.
#[test]
fn idle_abort_is_accepted_in_version_2() {
    let mut scene = Scene::new(Protocol::V2);
    assert_eq!(scene.end(false), Ok(1));
    assert_eq!(scene.end(false), Ok(1), "repeated");
    assert_eq!(scene.end(true), Err(Code::InvalidTxnState));
}
