//! Goal: a proxy that was not told what identifies a caller warns of it, however it is started: two tenants with the same
//! key would get each other's answers.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use super::Room;
use super::job::Started;

const WARNING: &str = "nothing says how to tell callers apart";

/// What a proxy logs until it serves.
fn start(room: &Room, words: &[&str]) -> String {
    let child = Command::new(env!("CARGO_BIN_EXE_ratchet"))
        .arg("proxy")
        .args(words)
        .current_dir(room.path())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let mut proxy = Started(child.unwrap());
    let mut log = BufReader::new(proxy.0.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("serving") {
        assert_ne!(log.read_line(&mut said).unwrap(), 0, "the proxy has ended: {said}");
    }
    said
}

/// The level at which a log has the warning.
fn warned(said: &str) -> Option<String> {
    let line = said.lines().find(|line| line.contains(WARNING))?;
    line.split_whitespace().find(|word| *word == "WARN").map(str::to_owned)
}

#[test]
fn callers_that_nothing_is_said_of_are_warned_of_by_flags_as_by_a_file() {
    let room = Room::new();
    room.write(
        "proxy.yaml",
        "listen: 127.0.0.1:0\nupstream: http://127.0.0.1:1\nhttp: off\nstore: {embedded: {dir: file}}\n",
    );
    let by_file = start(&room, &["--config", "proxy.yaml"]);
    assert_eq!(warned(&by_file).as_deref(), Some("WARN"), "{by_file}");
    let flags = ["--listen", "127.0.0.1:0", "--upstream", "http://127.0.0.1:1", "--http", "off", "--store", "embedded"];
    let by_flags = start(&room, &[&flags[..], &["--dir", "flags"]].concat());
    assert_eq!(warned(&by_flags).as_deref(), Some("WARN"), "{by_flags}");
    assert!(by_flags.contains("--caller none"), "{by_flags}");
    for said in ["none", "Authorization"] {
        let log = start(&room, &[&flags[..], &["--dir", said, "--caller", said]].concat());
        assert_eq!(warned(&log), None, "{log}");
    }
}

#[test]
fn check_of_flags_warns_as_well() {
    let flags = "proxy --listen 127.0.0.1:0 --upstream http://127.0.0.1:1 --store embedded --check";
    Room::new().run(flags).ended(0).said(&["⚠", WARNING, "--caller none"]);
    Room::new().run(&format!("{flags} --caller none")).ended(0).never_said("receive each other's answers");
}
