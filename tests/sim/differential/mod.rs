//! Goal: the simulated cluster behaves like Apache Kafka. The same scripted calls are made to both, through the same
//! traits of `ratchet::cluster`: to Kafka by `cluster::kafka`, to the simulation by `tests/sim/client`. The
//! observations (records, offsets, ends, committed offsets, kinds of errors) must be the same, line by line. Kafka is read
//! and written on the wire, or by librdkafka with `RATCHET_TEST_DATA_PATH=librdkafka`.
//!
//! - `script`: the language; `play`: its verbs, on any cluster
//! - `ground`: what the traits do not offer (administrators, other people's clients); `simulated` and `real`
//! - `transactions`, `reading`, `groups`, `topics`: the scripts, one for each rule that docs/guarantees.md relies on
#![allow(clippy::disallowed_methods, reason = "a real Kafka runs by the real clock")]

mod ground;
mod groups;
mod play;
mod reading;
mod real;
mod script;
mod simulated;
mod topics;
mod transactions;

use ratchet_testkit::kafka as support;
use script::Script;

/// How many seeds the simulated cluster runs with: results must not depend on them.
const SEEDS: u64 = 20;

/// Plays a script on Kafka alone, where a simulation would differ by design.
pub fn expect(text: &str) {
    let script = Script::parse(text);
    let kafka = real::observe(&script);
    assert_as_expected(&script, &kafka);
}

fn assert_as_expected(script: &Script, kafka: &[String]) {
    for (line, seen) in script.lines.iter().zip(kafka) {
        assert_eq!(*seen, line.expected, "{:?}: Kafka does not do what the script says", line.text);
    }
}

/// Plays a script on both clusters and compares.
pub fn compare(text: &str) {
    let script = Script::parse(text);
    let kafka = real::observe(&script);
    for seed in 1..=SEEDS {
        let simulated = simulated::observe(&script, seed);
        for (line, (here, there)) in script.lines.iter().zip(simulated.iter().zip(&kafka)) {
            assert_eq!(
                here, there,
                "{:?}, seed {seed}: the simulated cluster (left) differs from Kafka (right)",
                line.text
            );
        }
    }
    assert_as_expected(&script, &kafka);
}

/// A test for each script.
#[macro_export]
macro_rules! scripts {
    ($($(#[doc = $doc:literal])+ $name:ident: $text:literal;)+) => {
        $($(#[doc = $doc])+ #[test] fn $name() { $crate::differential::compare($text); })+
    };
}
