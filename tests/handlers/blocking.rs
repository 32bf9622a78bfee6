//! Goal: a handler that keeps its thread is counted for as long as it does, since no timeout can end it.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

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
fn handler_that_keeps_its_thread_is_counted_until_it_gives_it_back() {
    let address = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port");
    let (release, held) = std::sync::mpsc::sync_channel::<()>(0);
    let held = std::sync::Mutex::new(held);
    let worker = embedded::worker("blocking", &address.to_string(), &["{\"id\":1}"], async move |_, _| {
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
    stop.stop();
    run.join().expect("it does not panic").expect("it ends well");
}
