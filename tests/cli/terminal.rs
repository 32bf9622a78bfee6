//! Long work on a terminal: standard error shows progress, rate and time left.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

use ratchet::cluster::Message;
use ratchet::cluster::embedded::Embedded;
use ratchet::record::Headers;

use super::Room;
use super::job::SETTINGS;
use crate::screen::Terminal;
use crate::until::{DEADLINE, within};

fn order(id: usize) -> String {
    format!(r#"{{"order_id":{id},"operation":"charge","version":1}}"#)
}

/// Starts the program with standard error on a terminal.
fn start(room: &Room, words: &str, terminal: &Terminal) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ratchet"));
    command.current_dir(room.path()).args(words.split_whitespace()).env("TERM", "xterm");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(terminal.stdio()).spawn().unwrap()
}

/// Waits until all these words were drawn.
#[track_caller]
fn await_drawn(terminal: &Terminal, words: &[&str]) {
    within(DEADLINE, &format!("{words:?} to be drawn"), || {
        let drawn = terminal.drawn();
        words.iter().all(|word| drawn.contains(word)).then_some(())
    });
}

#[test]
fn replay_of_a_file_shows_rate_and_estimate() {
    let room = Room::new();
    let count = 100_000;
    let records: Vec<String> = (0..count).map(order).collect();
    room.write("records.jsonl", records.join("\n"));
    let terminal = Terminal::open();
    let mut replay = start(&room, "replay payments.yaml records.jsonl", &terminal);
    // A slow reader at first, so that progress is shown within the file.
    let mut stdout = replay.stdout.take().unwrap();
    let mut survivors = vec![0; 1_000];
    stdout.read_exact(&mut survivors).unwrap();
    await_drawn(&terminal, &["░", " %  ", " records, ", "/s, ", " left"]);
    stdout.read_to_end(&mut survivors).unwrap();
    assert_eq!(replay.wait().unwrap().code(), Some(0), "{}", terminal.drawn());
    assert_eq!(String::from_utf8(survivors).unwrap().lines().count(), count);
}

#[test]
fn replay_of_standard_input_shows_count_and_rate() {
    let room = Room::new();
    let terminal = Terminal::open();
    let mut replay = start(&room, "replay payments.yaml", &terminal);
    let mut stdin = replay.stdin.take().unwrap();
    let two = order(1) + "\n" + &order(2) + "\n";
    stdin.write_all(two.as_bytes()).unwrap();
    await_drawn(&terminal, &["2 records, ", &format!("/s, {} B", two.len())]);
    stdin.write_all((order(1) + "\n" + &order(3) + "\n").as_bytes()).unwrap();
    await_drawn(&terminal, &["4 records, "]);
    drop(stdin);
    let mut survivors = String::new();
    replay.stdout.take().unwrap().read_to_string(&mut survivors).unwrap();
    assert_eq!(replay.wait().unwrap().code(), Some(0));
    assert_eq!(survivors.lines().collect::<Vec<_>>(), [order(1), order(2), order(3)]);
    assert!(!terminal.drawn().contains(" left"), "time left was estimated without a known end: {}", terminal.drawn());
}

#[test]
fn warning_during_a_replay_has_its_own_line() {
    let room = Room::new();
    let terminal = Terminal::open();
    let mut replay = start(&room, "replay payments.yaml", &terminal);
    let mut stdin = replay.stdin.take().unwrap();
    await_drawn(&terminal, &["0 records"]);
    let line =
        r#"{"topic":"payments","partition":0,"offset":7,"tstype":"create","ts":1,"broker":1,"key":"k","payload":"x"}"#;
    writeln!(stdin, "{line}").unwrap();
    await_drawn(&terminal, &["1 record"]);
    drop(stdin);
    assert_eq!(replay.wait().unwrap().code(), Some(0));
    let drawn = terminal.drawn();
    // Whole, and at the start of a line after the bar was cleared.
    let said = drawn.lines().find(|line| line.contains("warning: the first line")).unwrap();
    assert!(said.contains("\u{1b}[2Kwarning: the first line") && said.contains("`--envelope kcat`"), "{drawn:?}");
}

#[test]
fn restore_is_shown_as_a_bar_below_the_log() {
    let room = Room::new();
    // So many that the restore takes several times as long as a redraw of the bar.
    fill(&room, 2_500_000);
    let run = format!("run payments.yaml --until-drained {SETTINGS}");
    room.run(&run).ended(0);
    std::fs::remove_dir_all(room.path().join("state")).unwrap();
    let terminal = Terminal::open();
    let mut job = start(&room, &run, &terminal);
    assert_eq!(job.wait().unwrap().code(), Some(0), "{}", terminal.drawn());
    await_drawn(&terminal, &["stopped"]);
    let drawn = terminal.drawn();
    assert!(drawn.contains("restoring 1 partition: ") && drawn.contains(" records to go"), "{drawn}");
    // Each line of the log is whole, with or without a bar, and the bar is not the last thing on the terminal.
    for (begins, ends) in
        [("starting", "lanes=1"), ("store restored", "records_per_second="), ("task resumes", "next=")]
    {
        let line = drawn.lines().find(|line| line.contains(begins)).unwrap_or_else(|| panic!("no {begins} in {drawn}"));
        let plain = line.replace("\u{1b}[0m", "").replace("\u{1b}[3m", "").replace("\u{1b}[2m", "");
        assert!(plain.contains(ends), "{plain:?}");
    }
    let last = drawn.rfind("restoring 1 partition").unwrap();
    assert!(drawn[last..].contains("\u{1b}[2K"), "{drawn:?}");
}

#[test]
fn json_log_has_no_bar() {
    let room = Room::new();
    fill(&room, 50_000);
    let run = format!("run payments.yaml --until-drained --set log.format=json {SETTINGS}");
    room.run(&run).ended(0);
    std::fs::remove_dir_all(room.path().join("state")).unwrap();
    let terminal = Terminal::open();
    assert_eq!(start(&room, &run, &terminal).wait().unwrap().code(), Some(0));
    await_drawn(&terminal, &["\"stopped\""]);
    let drawn = terminal.drawn();
    assert!(drawn.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()), "{drawn}");
    assert!(drawn.contains("store restored"), "{drawn}");
}

/// A terminal that disappears (a broken connection) must not end the job.
#[test]
#[expect(clippy::disallowed_methods, reason = "the job is another process, with the real clock")]
fn vanished_terminal_does_not_end_the_job() {
    let room = Room::new();
    fill(&room, 1_000);
    let terminal = Terminal::open();
    let mut job = start(&room, &format!("run payments.yaml {SETTINGS}"), &terminal);
    await_drawn(&terminal, &["task starts afresh"]);
    drop(terminal);
    // It keeps drawing, and then logs its end.
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(job.try_wait().unwrap().is_none(), "it ended with its terminal");
    let stopped = Command::new("kill").args(["-TERM", &job.id().to_string()]).status().unwrap();
    assert!(stopped.success());
    assert_eq!(job.wait().unwrap().code(), Some(0));
}

/// Puts this many orders into the input.
fn fill(room: &Room, count: usize) {
    let cluster = Embedded::open(&room.path().join("topics"), 1).unwrap();
    let values: Vec<String> = (0..count).map(order).collect();
    for values in values.chunks(10_000) {
        let message = |value| Message {
            topic: "payments",
            partition: 0,
            key: None,
            value: Some(value),
            headers: Headers::default(),
            timestamp: Some(1_000),
        };
        let messages: Vec<_> = values.iter().map(|value| message(value.as_bytes())).collect();
        cluster.append("payments", 0, &messages).unwrap();
    }
}
