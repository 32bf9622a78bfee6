//! Goal: bugs of the engine that seeds have found stay fixed, whatever other seeds find later.

use ratchet::cluster::{Error, ErrorKind, Producer};
use ratchet::engine::failure::Cause;
use ratchet::engine::ids::Ids;
use ratchet::engine::transact::Transactor;
use ratchet::observe::Metrics;

use crate::client::Sim;
use crate::driver::alone;
use crate::input::OUTPUT;
use crate::kafka::{Code, Partition, SECOND, Settings};

mod lost;
mod redo;
mod restore;
mod site;

/// Otherwise a late request of an earlier transaction would start, and commit, a new transaction of the id, and set
/// the group's offsets back.
#[test]
fn abandoned_idle_transactional_id_is_fenced() {
    let late = alone(1, |process| {
        let settings = Settings { compacted: false, delete_retention: 0, message_bytes_max: 1 << 20, stamps: false };
        process.lock().broker.topics.create(OUTPUT, 1, settings).expect("the cluster is empty");
        let sim = Sim::new(process.clone());
        let mut transactor = Transactor::<Sim>::new("ratchet.shop.1.0".to_owned(), 1, Ids::default());
        transactor.prepare(&sim).expect("no faults are injected");
        let former = transactor.producer().identity();
        let cause = Cause::Cluster(Error::new(ErrorKind::Fenced, "another has taken its place"));
        assert!(!transactor.abort(&sim, &cause, &Metrics::new().lane("shop")).ended);
        process.sleep(5 * SECOND);
        let mut state = process.lock();
        let added = state.broker.add_partitions(&former, &[Partition::new(OUTPUT, 0)]);
        [added, state.broker.end_transaction(&former, true).map(drop)]
    });
    let is_fenced =
        |answer: &Result<(), Code>| matches!(answer, Err(Code::ProducerFenced | Code::InvalidProducerEpoch));
    assert!(late.iter().all(is_fenced), "{late:?}");
}

/// A producer that had been denied a right returned that error for ever, even once it had the right: its tasks were
/// stuck until a restart.
#[test]
fn producer_that_could_not_begin_is_replaced() {
    let ids = alone(1, |process| {
        let sim = Sim::new(process.clone());
        let mut transactor = Transactor::<Sim>::new("ratchet.shop.1.0".to_owned(), 1, Ids::default());
        transactor.prepare(&sim).expect("no faults are injected");
        let former = transactor.producer().id().to_owned();
        let cause = Cause::Cluster(Error::new(ErrorKind::Refused, "no right to write under this id"));
        transactor.abort(&sim, &cause, &Metrics::new().lane("shop"));
        transactor.prepare(&sim).expect("no faults are injected");
        [former, transactor.producer().id().to_owned()]
    });
    assert_ne!(ids[0], ids[1]);
}
