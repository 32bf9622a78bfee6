//! Goal: the endpoints respond over a real socket, clients' resources are bounded, and the server stops when asked.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use super::*;
use crate::record::TopicPartition;

/// How long the tests wait for anything.
const WAIT_MAX: Duration = Duration::from_secs(20);

const ANY_PORT: ([u8; 4], u16) = ([127, 0, 0, 1], 0);

/// The whole response to a request, head and body.
fn ask(server: &Server, method: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

fn started(metrics: &Metrics, health: &Health) -> Server {
    serve(ANY_PORT.into(), metrics.clone(), health.clone()).unwrap()
}

#[test]
fn metrics_are_served_in_the_text_format() {
    let metrics = Metrics::new();
    let server = started(&metrics, &Health::new());
    metrics.lane("payments").dead_letters(4);
    let response = ask(&server, "GET", "/metrics");
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    assert!(response.contains("content-type: text/plain; version=0.0.4"), "{response}");
    assert!(response.contains(r#"ratchet_dead_letters_total{topology="payments"} 4"#), "{response}");
}

#[test]
fn process_is_alive_when_it_is_not_ready() {
    let server = started(&Metrics::new(), &Health::new());
    assert!(ask(&server, "GET", "/livez").starts_with("HTTP/1.1 200"));
    assert!(ask(&server, "GET", "/readyz").starts_with("HTTP/1.1 503"));
}

#[test]
fn readiness_lists_its_checks_when_asked() {
    let health = Health::new();
    let server = started(&Metrics::new(), &health);
    health.lane_joined("payments", 0, true);
    health.task_assigned("payments", &TopicPartition::new("in", 1));
    let response = ask(&server, "GET", "/readyz?verbose");
    assert!(response.starts_with("HTTP/1.1 503"), "{response}");
    assert!(response.contains("[+] lane payments/0: joined"), "{response}");
    assert!(response.contains("[-] task payments/in:1: is being restored for the first time"), "{response}");
    health.task_restored("payments", &TopicPartition::new("in", 1));
    let response = ask(&server, "GET", "/readyz");
    assert!(response.starts_with("HTTP/1.1 200") && response.ends_with("\r\n\r\nready\n"), "{response}");
}

#[test]
fn other_methods_and_paths_are_rejected() {
    let server = started(&Metrics::new(), &Health::new());
    assert!(ask(&server, "POST", "/metrics").starts_with("HTTP/1.1 405"));
    assert!(ask(&server, "GET", "/quit").starts_with("HTTP/1.1 404"));
}

#[test]
fn taken_address_is_an_error_that_says_what_to_do() {
    let server = started(&Metrics::new(), &Health::new());
    let error = serve(server.address(), Metrics::new(), Health::new()).err().unwrap().to_string();
    assert!(error.contains(&server.address().to_string()) && error.contains("`http`"), "{error}");
}

/// Bounds that are soon reached.
fn narrow() -> Bounds {
    Bounds { connections: 4, head: Duration::from_millis(200), connection: WAIT_MAX * 10 }
}

fn within(bounds: Bounds) -> Server {
    serve_within(bounds, ANY_PORT.into(), Metrics::new(), Health::new()).unwrap()
}

/// A connection on which `words` were sent; reads and writes time out after [`WAIT_MAX`].
fn say(server: &Server, words: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(WAIT_MAX)).unwrap();
    stream.set_write_timeout(Some(WAIT_MAX)).unwrap();
    stream.write_all(words.as_bytes()).unwrap();
    stream
}

/// Reads until the server closes the connection, and returns what it sent.
#[track_caller]
fn until_closed(stream: &mut TcpStream) -> String {
    let until = Instant::now() + WAIT_MAX;
    let (mut said, mut part) = (Vec::new(), [0; 4096]);
    while Instant::now() < until {
        match stream.read(&mut part) {
            Ok(0) => return String::from_utf8(said).unwrap(),
            Ok(length) => said.extend_from_slice(&part[..length]),
            // the server closed it before it had read everything
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                return String::from_utf8(said).unwrap();
            }
            Err(error) => panic!("the connection stays open: {error}"),
        }
    }
    // ends the threads that still write
    stream.shutdown(std::net::Shutdown::Both).unwrap();
    panic!("the connection stays open, and is still served");
}

/// Whether the server has closed the connection, on which there is nothing to read.
fn is_closed(mut stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let read = stream.read(&mut [0]);
    !matches!(read, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
}

#[test]
fn connection_with_an_incomplete_head_is_closed() {
    let server = within(narrow());
    until_closed(&mut say(&server, ""));
    until_closed(&mut say(&server, "GET /livez HTTP/1.1\r\nHost: x\r\n"));
    // sending a little more again and again does not help
    let mut slow = say(&server, "GET /livez HTTP/1.1\r\n");
    let mut writer = slow.try_clone().unwrap();
    let trickle = thread::spawn(move || {
        while writer.write_all(b"X: y\r\n").is_ok() {
            thread::sleep(Duration::from_millis(20));
        }
    });
    assert!(!until_closed(&mut slow).starts_with("HTTP/1.1 200"));
    trickle.join().unwrap();
}

#[test]
fn idle_connection_is_closed() {
    let server = within(narrow());
    let mut idle = say(&server, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n");
    let said = until_closed(&mut idle);
    assert!(said.starts_with("HTTP/1.1 200") && said.ends_with("ok\n"), "{said}");
}

#[test]
fn busy_connection_is_closed_at_its_maximum_lifetime() {
    let server = within(Bounds { head: WAIT_MAX, connection: Duration::from_millis(200), ..narrow() });
    let mut busy = say(&server, "");
    let mut writer = busy.try_clone().unwrap();
    let asks = thread::spawn(move || while writer.write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n").is_ok() {});
    assert!(until_closed(&mut busy).starts_with("HTTP/1.1 200"));
    asks.join().unwrap();
    // a client that does not read the responses is cut off too
    let server = within(Bounds { head: WAIT_MAX, connection: Duration::from_millis(200), ..narrow() });
    let mut deaf = say(&server, "");
    let cut_off = loop {
        if let Err(error) = deaf.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n") {
            break error;
        }
    };
    let gone = [std::io::ErrorKind::BrokenPipe, std::io::ErrorKind::ConnectionReset];
    assert!(gone.contains(&cut_off.kind()), "the connection stays open: {cut_off}");
}

#[test]
fn flood_of_connections_is_bounded_and_locks_nobody_out() {
    let bounds = Bounds { head: WAIT_MAX * 10, connection: WAIT_MAX * 10, ..Bounds::default() };
    let server = within(bounds);
    let silent: Vec<TcpStream> = (0..4 * bounds.connections).map(|_| say(&server, "GET /")).collect();
    assert!(ask(&server, "GET", "/livez").starts_with("HTTP/1.1 200"));
    let open = || silent.iter().filter(|stream| !is_closed(stream)).count();
    let until = Instant::now() + WAIT_MAX;
    while open() > bounds.connections && Instant::now() < until {
        thread::yield_now();
    }
    assert!(open() <= bounds.connections, "{} are open", open());
    // the newest ones are still open
    assert!(!is_closed(silent.last().unwrap()));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the test measures how long stopping takes")]
fn silent_client_does_not_hold_up_the_stop() {
    let server = started(&Metrics::new(), &Health::new());
    let address = server.address();
    let mut silent = TcpStream::connect(address).unwrap();
    write!(silent, "GET /metr").unwrap();
    assert!(ask(&server, "GET", "/livez").starts_with("HTTP/1.1 200"));
    let started = Instant::now();
    server.stop();
    assert!(started.elapsed() < STOP_MAX * 4, "{:?}", started.elapsed());
    assert!(TcpStream::connect(address).is_err(), "nobody listens any more");
}
