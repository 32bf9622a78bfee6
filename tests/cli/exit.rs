//! How the process ends: all it has printed has arrived, and no exit handler of a C library runs. OpenSSL's handler
//! frees what librdkafka's threads still use, so that a process with TLS would now and then end by SIGSEGV.

use std::env;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::process::Command;

use ratchet::observe::logs;

use crate::Ran;

/// The test's name, as passed to the process that it starts.
const TEST: &str = "exit::no_exit_handler_of_a_c_library_runs";
/// The variable that tells that process how to end.
const ENDED_BY: &str = "TEST_ENDED_BY";
/// What the handler prints.
const HANDLED: &str = "an exit handler has run";
/// What is printed last; without a line feed, so that standard output still buffers it.
const LAST: &str = "the last word";
/// How many lines precede it: more than a pipe holds.
const LINES: usize = 20_000;

/// Runs itself as a process that registers an exit handler, as C libraries do, and ends as the program does. Its
/// arguments are wrong for the program, which reports that and exits with 2.
#[test]
fn no_exit_handler_of_a_c_library_runs() {
    if let Ok(by) = env::var(ENDED_BY) {
        end(&by);
    }
    let ended_by = |by| {
        let own = env::current_exe().expect("this file is running");
        let mut command = Command::new(own);
        Ran::from(command.args([TEST, "--exact"]).env(ENDED_BY, by).output().expect("it has run before"))
    };
    let ended = ended_by("exit").ended(2);
    assert!(ended.stderr.ends_with(HANDLED), "the handler did not run: {}", ended.stderr);

    let ended = ended_by("the program").ended(2).said(&["the last event", "unrecognized subcommand"]);
    assert!(!ended.stderr.contains(HANDLED), "{}", ended.stderr);
    assert!(ended.stdout.ends_with(&said()), "{} bytes arrived", ended.stdout.len());
}

fn said() -> String {
    let mut said = String::new();
    (0..LINES).for_each(|line| writeln!(said, "line {line}").expect("writing to a string does not fail"));
    said + LAST
}

fn end(by: &str) -> ! {
    extern "C" fn handler() {
        io::stderr().write_all(HANDLED.as_bytes()).expect("the test reads it");
    }
    // SAFETY: the handler lives as long as the process.
    assert_eq!(unsafe { libc::atexit(handler) }, 0);
    io::stdout().write_all(said().as_bytes()).expect("the test reads it");
    logs::init(logs::Format::Text, "info", io::stderr).expect("nothing was set up before");
    tracing::info!("the last event");
    if by == "exit" { std::process::exit(2) } else { ratchet::cli::main() }
}
