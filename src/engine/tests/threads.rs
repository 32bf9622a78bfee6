//! Goal: a run that cannot start a thread ends with that error.

use std::process::Command;

use super::*;

/// Set in the process that cannot start any threads.
const IS_WITHOUT: &str = "RATCHET_TEST_WITHOUT_THREADS";

/// The stack size of each thread in that process: larger than the address space.
const STACK_BYTES: u64 = 1 << 48;

#[test]
fn thread_that_cannot_be_started_ends_the_run_with_that_reason() {
    if std::env::var_os(IS_WITHOUT).is_some() {
        return end_without_threads();
    }
    let name = format!("{}::thread_that_cannot_be_started_ends_the_run_with_that_reason", module_path!());
    let (_, name) = name.split_once("::").unwrap();
    let mut itself = Command::new(std::env::current_exe().unwrap());
    itself.args(["--exact", name, "--test-threads=1", "--nocapture"]);
    itself.env(IS_WITHOUT, "1").env("RUST_MIN_STACK", STACK_BYTES.to_string());
    let output = itself.output().unwrap();
    let output_text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && output_text.contains("1 passed"), "{output_text}");
}

fn end_without_threads() {
    let site = Site::new();
    site.create("things", 1, &[]);
    let options = Options {
        config: site.config(),
        topologies: vec![topology(Input::Topics(vec!["things".to_owned()]), "out")],
        handlers: Default::default(),
        until_drained: false,
        stop: Arc::default(),
        metrics: Metrics::new(),
        health: Health::new(),
    };
    let error = run_on(&site.cluster, options).unwrap_err();
    assert!(matches!(&error, Error::Thread { name, .. } if name == "lane-0"), "{error}");
}
