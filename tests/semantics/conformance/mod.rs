//! What other systems' tests expect: each test names the system and the test it comes from, and gives the same sequence
//! to a topology that a user would write for it. Where ratchet decides otherwise, the test says so, and why.
//!
//! What needs a broker, a crash or a store is proven elsewhere; [`ENGINE`] says where.

mod ids;
mod snapshots;
mod versions;

use std::fs;
use std::path::Path;

/// Cases, or parts of them, about transactions and recovery: each with the file and name of its test.
const ENGINE: &[(&str, &str, &str)] = &[
    (
        "Flink row-time deduplication (RowTimeDeduplicateFunctionTest): state survives snapshot and restore",
        "tests/kafka/restores.rs",
        "compacted_changelog_is_restored_across_its_gaps",
    ),
    (
        "Redpanda Connect dedupe: what was seen before a restart is seen after it",
        "tests/kafka/kills.rs",
        "random_kills_of_two_instances_change_no_output",
    ),
    (
        "Camel KafkaIdempotentRepository: an id whose record could not be sent is not remembered (here: not even \
         when it goes to the dead letters; the same identity is forwarded by the next record that can be sent)",
        "tests/kafka/inputs.rs",
        "record_too_large_for_the_output_is_dead_lettered_alone",
    ),
    (
        "kafka-flow SnapshotFold: offsets up to the snapshot's are skipped after recovery",
        "tests/kafka/lookalikes.rs",
        "group_reset_to_earliest_forwards_nothing_even_after_expiry",
    ),
    (
        "KIP-655: a record that is processed again after a crash before its commit is not lost as its own duplicate",
        "tests/kafka/kills.rs",
        "death_between_sends_and_commit_loses_nothing",
    ),
    (
        "KIP-655: nor is one repeated after a crash between the commit and the store's write",
        "tests/kafka/kills.rs",
        "death_between_commit_and_store_write_repeats_nothing",
    ),
];

/// Goal: the tests that these cases refer to exist.
#[test]
fn cases_for_the_engine_have_their_tests() {
    for (case, file, test) in ENGINE {
        let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).expect(file);
        assert!(text.contains(&format!("fn {test}()")), "{case}: {file} has no test {test}");
    }
}
