//! A real Apache Kafka for the tests: from Maven Central, started on free ports by the test binary that needs it, and
//! gone when that binary ends, however it ends. `pom.xml` names the version; `RATCHET_TEST_KAFKA_VERSION` overrides it,
//! as `make kafka-matrix` does.
//!
//! `RATCHET_TEST_BROKERS=host:port` makes [`bootstrap`] return another Kafka. Tests that have to restart, freeze or log
//! in to a broker start their own ([`Broker::start`]) in any case. Another Kafka has to let the tests be quick:
//! `group.min.session.timeout.ms` of at most 2000, the broker's
//! `transaction.abort.timed.out.transaction.cleanup.interval.ms`, `log.cleaner.backoff.ms` and
//! `log.initial.task.delay.ms` of about 500, and the right to create and delete topics, groups and records.
//!
//! `RATCHET_TEST_DATA_PATH=librdkafka` has lanes read and write by librdkafka instead of on the wire: [`is_on_the_wire`].
//!
//! Nothing is ever skipped: a missing Java, Maven or download panics with what to install.
#![allow(clippy::disallowed_methods, reason = "the broker is another process, with the real clock")]

mod broker;
mod install;
mod port;
mod process;

use std::sync::OnceLock;

pub use broker::{Broker, Peers, Routes};
pub use install::{Certificate, checkout, jars, remove_folder, target_folder, unpacked, version};
pub use port::Port;
pub use process::{is_stopped, run_folder, signal, signal_by_number, spawn};

/// The bootstrap servers of the Kafka that all tests of this binary share: each test has its own topics, groups and
/// names there, and leaves the Kafka's settings alone.
pub fn bootstrap() -> &'static str {
    static BOOTSTRAP: OnceLock<String> = OnceLock::new();
    BOOTSTRAP.get_or_init(|| match std::env::var("RATCHET_TEST_BROKERS") {
        Ok(brokers) if !brokers.is_empty() => brokers,
        _ => shared_broker().bootstrap(),
    })
}

/// The broker that this binary's tests share; started by the first call, even if `RATCHET_TEST_BROKERS` names another
/// one.
pub fn shared_broker() -> &'static Broker {
    static SHARED: OnceLock<Broker> = OnceLock::new();
    SHARED.get_or_init(Broker::start)
}

/// Whether each transaction of a lane has a producer epoch of its own: version 2 of transactions (KIP-890), which lanes on
/// the wire use with brokers that begin with it.
pub fn each_transaction_has_an_epoch() -> bool {
    let major: u32 = version().split('.').next().and_then(|major| major.parse().ok()).expect("a number");
    major >= 4 && is_on_the_wire()
}

/// Whether lanes read and write records on the wire, as they do by default, instead of by librdkafka.
pub fn is_on_the_wire() -> bool {
    match std::env::var("RATCHET_TEST_DATA_PATH").as_deref() {
        Err(_) | Ok("wire") => true,
        Ok("librdkafka") => false,
        Ok(other) => panic!("RATCHET_TEST_DATA_PATH is {other}"),
    }
}
