//! Records that a changelog loses in the middle of a transaction.

use ratchet::cluster::{Error, ErrorKind, Expected, Member as _, Message, Producer as _, Ticket};
use ratchet::record::Headers;

use crate::driver::alone;
use crate::kafka::MS;

use super::site::{Lane, Site, entry};

/// An unclean election removed a transaction's entries while its position record was still to be written. The new
/// leader had nothing else of this producer, so it accepted the position record, and the transaction was committed
/// without its entries.
#[test]
fn transaction_without_its_entries_is_not_committed() {
    for is_lost in [true, false] {
        let committed = alone(1, move |process| commit_position(&Site::new(process), is_lost));
        let kind = committed.err().map(|error| error.kind);
        assert_eq!(kind, is_lost.then_some(ErrorKind::Abort), "lost: {is_lost}");
    }
}

/// Commits a transaction of an entry and a position record, between which the changelog may lose the entry.
fn commit_position(site: &Site<'_>, is_lost: bool) -> Result<(), Error> {
    site.commit(1, &[entry(0, 1)]);
    let mut lane = Lane::with(site, site.settled_task());
    let from = site.changelog_end();
    let producer = lane.transactor.producer();
    producer.begin()?;
    producer.expect(7, Expected { from, count: 2 });
    let message = |key| Message {
        topic: &site.changelog.topic,
        partition: site.changelog.number,
        key: Some(key),
        value: None,
        headers: Headers::default(),
        timestamp: None,
    };
    producer.send(Ticket { number: 7, report: true }, &message(b"entry"))?;
    while producer.in_flight() > 0 {
        producer.serve();
        site.process.sleep(MS);
    }
    if is_lost {
        site.process.lock().broker.topics.log_mut(&site.changelog).expect("it exists").lose_tail(from);
    }
    producer.send(Ticket { number: 7, report: true }, &message(b"position"))?;
    producer.commit(&[], lane.member.metadata()?)
}
