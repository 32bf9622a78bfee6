//! Goal: a handler that keeps its thread is counted until it gives the thread back, and the log names its record, since
//! no timeout can end it.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use crate::alone::is_alone;
use crate::handlers::embedded;
use crate::until::{DEADLINE, within};

/// How many lanes wait for a handler that blocks its thread; `None` before the metrics are there.
fn blocked(address: SocketAddr) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").ok()?;
    let mut page = String::new();
    stream.read_to_string(&mut page).ok()?;
    let line = page.lines().find_map(|line| line.strip_prefix("ratchet_handlers_blocked{"))?;
    Some(line.rsplit_once(' ')?.1.to_owned())
}

#[test]
fn handler_that_keeps_its_thread_is_counted_and_named_until_it_gives_it_back() {
    if !is_alone("handlers::blocking::handler_that_keeps_its_thread_is_counted_and_named_until_it_gives_it_back") {
        return;
    }
    let log = tempfile::NamedTempFile::new().expect("a file");
    // The lane's thread logs to the subscriber of the whole process; no other test runs in this process.
    let lines = tracing_subscriber::fmt().json().with_writer(Arc::new(log.reopen().expect("it is there")));
    lines.init();
    let address = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port");
    let (release, held) = std::sync::mpsc::sync_channel::<()>(0);
    let held = std::sync::Mutex::new(held);
    let worker =
        embedded::worker("blocking", &address.to_string(), &["{\"id\":1}", "{\"id\":2}"], async move |_, _| {
            // No `await`.
            let _ = held.lock().expect("one record at a time").recv_timeout(DEADLINE);
            Ok(())
        });
    let stop = worker.stop();
    let run = std::thread::spawn(move || worker.run());
    let is = |count: &str| blocked(address).filter(|found| found == count).map(drop);
    within(DEADLINE, "nobody to be blocked at first", || is("0"));
    within(DEADLINE, "the handler to be seen", || is("1"));
    release.send(()).expect("the handler waits for it");
    within(Duration::from_secs(10), "its end to be seen", || is("0"));
    // The second record blocks it as well.
    within(DEADLINE, "the next one to be seen", || is("1"));
    release.send(()).expect("the handler waits for it");
    within(Duration::from_secs(10), "its end to be seen", || is("0"));
    let said = std::fs::read_to_string(log.path()).expect("text");
    let lines = said.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let of_topology: Vec<_> = lines.filter(|line| line["fields"]["topology"] == "embedded").collect();
    let of = |words: &str| {
        let has_words =
            |line: &&serde_json::Value| line["fields"]["message"].as_str().is_some_and(|text| text.contains(words));
        of_topology.iter().filter(has_words).collect::<Vec<_>>()
    };
    let blocked = of("a handler blocks its thread");
    let records: Vec<_> = blocked.iter().map(|line| line["fields"]["record"].as_str()).collect();
    assert_eq!(records, [Some("in:0:0"), Some("in:0:1")], "{said}");
    assert!(blocked.iter().all(|line| line["level"] == "WARN"), "{said}");
    assert!(blocked.iter().all(|line| line["fields"]["blocked_s"].as_u64().is_some_and(|s| s >= 5)), "{said}");
    assert_eq!(of("the handler no longer blocks its thread").len(), 2, "{said}");
    stop.stop();
    run.join().expect("it does not panic").expect("it ends well");
}
