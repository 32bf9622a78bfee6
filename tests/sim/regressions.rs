//! Goal: mistakes of the engine that seeds have shown stay mended, whatever seeds come to show later.

use ratchet::cluster::{Error, Kind, Producer};
use ratchet::engine::claims::Ids;
use ratchet::engine::transact::Transactor;
use ratchet::engine::trouble::Cause;
use ratchet::observe::Metrics;

use crate::client::Sim;
use crate::driver::alone;
use crate::input::OUTPUT;
use crate::kafka::{Code, Partition, SECOND, Settings};

mod restore;
mod site;

/// A request of a former transaction that comes late would begin, and commit, a transaction of the id anew, and take
/// the group's offsets back with it.
#[test]
fn an_id_that_is_given_up_is_fenced_although_nothing_is_open() {
    let late = alone(1, |process| {
        let settings = Settings { compacted: false, delete_retention: 0, message_bytes_max: 1 << 20, stamps: false };
        process.lock().broker.topics.create(OUTPUT, 1, settings).expect("the cluster is empty");
        let sim = Sim::new(process.clone());
        let mut transactor = Transactor::<Sim>::new("ratchet.shop.1.0".to_owned(), 1, Ids::default());
        transactor.prepare(&sim).expect("nothing goes wrong");
        let former = transactor.producer().identity();
        let cause = Cause::Cluster(Error::new(Kind::Fenced, "another has taken its place"));
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

/// A producer that had been refused a right said so for ever, also when it had the right again: its tasks stood until a
/// restart.
#[test]
fn a_producer_that_could_not_begin_is_given_up() {
    let ids = alone(1, |process| {
        let sim = Sim::new(process.clone());
        let mut transactor = Transactor::<Sim>::new("ratchet.shop.1.0".to_owned(), 1, Ids::default());
        transactor.prepare(&sim).expect("nothing goes wrong");
        let former = transactor.producer().id().to_owned();
        let cause = Cause::Cluster(Error::new(Kind::Refused, "no right to write under this id"));
        transactor.abort(&sim, &cause, &Metrics::new().lane("shop"));
        transactor.prepare(&sim).expect("nothing goes wrong");
        [former, transactor.producer().id().to_owned()]
    });
    assert_ne!(ids[0], ids[1]);
}
