//! Goal: mistakes of the engine that seeds have shown stay mended, whatever seeds come to show later.

use ratchet::cluster::{Error, Kind};
use ratchet::engine::claims::Ids;
use ratchet::engine::transact::Transactor;
use ratchet::engine::trouble::Cause;
use ratchet::observe::Metrics;

use crate::client::Sim;
use crate::driver::alone;
use crate::input::OUTPUT;
use crate::kafka::{Code, Partition, SECOND, Settings};
use crate::play_cut;
use crate::profile::Profile;

/// A request of a former transaction that comes late would begin, and commit, a transaction of the id anew, and take
/// the group's offsets back with it.
#[test]
fn an_id_that_is_given_up_is_fenced_although_nothing_is_open() {
    let late = alone(1, |process| {
        let settings = Settings { compacted: false, delete_retention: 0, message_bytes_max: 1 << 20 };
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

/// An instance that came back from a freeze restored what it no longer owned, and read on into the next owner's
/// transaction: its store named a transaction and held a part of another, or its tasks stopped, as the changelog did
/// not end in the transaction that the group had committed when they began.
#[test]
fn a_restore_ends_where_the_changelog_ended_when_it_began() {
    let cut = "faults=0,1,3,4 wire=35,86,111,138,159,216,245,323 instances=0,1 records=209";
    let cut = cut.parse().expect("it was told by a run");
    assert_eq!(play_cut(1_795_281_130_327, Profile::wild, &cut, false).wrong, Vec::<String>::new());
}
