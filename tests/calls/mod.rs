//! ratchet between a real Apache Kafka and a real provider: the built binary is run from outside, killed, frozen and
//! misled, its provider dies, is slow and refuses, and then what the provider has done is counted.
//!
//! The suite has a slice of it. With `RATCHET_TEST_CALLS_SECONDS` (`make calls`) instances die at all points, and random
//! trouble lasts that many seconds.

mod charges;
mod counted;
mod crashes;
mod door;
mod hostile;
mod leaving;
mod outages;
mod pattern;
mod payments;
mod random_trouble;
mod refused;
mod settled;
mod waits;

/// For how long random trouble is to last, if anybody says so.
fn seconds() -> Option<u64> {
    let seconds = std::env::var("RATCHET_TEST_CALLS_SECONDS").ok()?;
    Some(seconds.parse().expect("RATCHET_TEST_CALLS_SECONDS is a number"))
}

/// Whether there is time for everything.
fn is_long() -> bool {
    seconds().is_some()
}
