//! A real Apache Kafka for the tests: from Maven Central, started by the test binary that needs it, on free
//! ports, and gone when that binary ends, however it ends. `pom.xml` says which version;
//! `RATCHET_TEST_KAFKA_VERSION` asks for another one, as `make kafka-matrix` does.
//!
//! Use it from a test binary or a unit test by `#[path]`; it needs nothing but `std` and `libc`.
//! `RATCHET_TEST_BROKERS=host:port` makes [`bootstrap`] answer with another Kafka. Tests that have to
//! restart, freeze or log in to a broker own one ([`Broker::start`]) in any case. Another Kafka has to let
//! the tests be quick: `group.min.session.timeout.ms` of at most 2000, the broker's
//! `transaction.abort.timed.out.transaction.cleanup.interval.ms`, `log.cleaner.backoff.ms` and
//! `log.initial.task.delay.ms` of about 500, and the right to create and delete topics, groups and records.
//!
//! Nothing is ever skipped: a missing Java, Maven or download panics with what to install.
#![allow(clippy::disallowed_methods, reason = "the broker is another process, with the real clock")]
#![allow(dead_code, unused_imports, reason = "each test binary uses its own part of the support")]

mod broker;
mod install;
mod process;

use std::sync::OnceLock;

pub use broker::{Broker, Peers, Routes};
pub use install::{Certificate, checkout, jars, remove_folder, target_folder, version};
pub use process::{run_folder, signal, spawn};

/// The bootstrap servers of the Kafka that all tests of this binary share: each test has topics, groups
/// and names of its own there, and leaves its settings alone.
pub fn bootstrap() -> &'static str {
    static BOOTSTRAP: OnceLock<String> = OnceLock::new();
    BOOTSTRAP.get_or_init(|| match std::env::var("RATCHET_TEST_BROKERS") {
        Ok(brokers) if !brokers.is_empty() => brokers,
        _ => shared_broker().bootstrap(),
    })
}

/// The broker that this binary's tests share; started at the first call, also where
/// `RATCHET_TEST_BROKERS` names another one.
pub fn shared_broker() -> &'static Broker {
    static SHARED: OnceLock<Broker> = OnceLock::new();
    SHARED.get_or_init(Broker::start)
}
