//! Tests that need a process of their own: they count its threads, or set up something that a process has only once.

use std::process::Command;

use crate::kafka;

/// Set in such a process.
const ALONE: &str = "RATCHET_TEST_ALONE";

/// Whether this process has only the test of this name, which calls this. If not, the test is run in one, on the same
/// Kafka, and has passed there.
#[track_caller]
pub fn is_alone(test: &str) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let mut own = Command::new(std::env::current_exe().expect("a test is a program"));
    own.args(["--exact", "--nocapture", test]).env(ALONE, "yes").env("RATCHET_TEST_BROKERS", kafka::bootstrap());
    let output = own.output().expect("it is running already");
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains("1 passed"), "{said}{errors}");
    println!("{said}");
    false
}
