//! The endpoints answer over a real socket, and the server ends when it is told to.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use super::*;
use crate::record::TopicPartition;

/// How long anything may take that is waited for.
const WAIT_MAX: Duration = Duration::from_secs(20);

const ANY_PORT: ([u8; 4], u16) = ([127, 0, 0, 1], 0);

/// The whole answer to a request, head and body.
fn ask(server: &Server, method: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn started(metrics: &Metrics, health: &Health) -> Server {
    serve(ANY_PORT.into(), metrics.clone(), health.clone()).unwrap()
}

#[test]
fn metrics_are_served_in_the_text_format() {
    let metrics = Metrics::new();
    let server = started(&metrics, &Health::new());
    metrics.lane("payments").dead_letters(4);
    let answer = ask(&server, "GET", "/metrics");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("content-type: text/plain; version=0.0.4"), "{answer}");
    assert!(answer.contains(r#"ratchet_dead_letters_total{topology="payments"} 4"#), "{answer}");
}

#[test]
fn the_process_is_alive_when_it_is_not_ready() {
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
    let answer = ask(&server, "GET", "/readyz?verbose");
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(answer.contains("[+] lane payments/0: joined"), "{answer}");
    assert!(answer.contains("[-] task payments/in:1: is being restored for the first time"), "{answer}");
    health.task_restored("payments", &TopicPartition::new("in", 1));
    let answer = ask(&server, "GET", "/readyz");
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("\r\n\r\nready\n"), "{answer}");
}

#[test]
fn nothing_can_be_changed() {
    let server = started(&Metrics::new(), &Health::new());
    assert!(ask(&server, "POST", "/metrics").starts_with("HTTP/1.1 405"));
    assert!(ask(&server, "GET", "/quit").starts_with("HTTP/1.1 404"));
}

#[test]
fn a_taken_address_is_told_with_what_to_do() {
    let server = started(&Metrics::new(), &Health::new());
    let error = serve(server.address(), Metrics::new(), Health::new()).err().unwrap().to_string();
    assert!(error.contains(&server.address().to_string()) && error.contains("`http`"), "{error}");
}

/// Bounds that are reached soon.
fn narrow() -> Bounds {
    Bounds { connections: 4, head: Duration::from_millis(200), connection: WAIT_MAX * 10 }
}

fn within(bounds: Bounds) -> Server {
    serve_within(bounds, ANY_PORT.into(), Metrics::new(), Health::new()).unwrap()
}

/// A connection on which this was said, and whatever came back within [`WAIT_MAX`] is read.
fn say(server: &Server, words: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(WAIT_MAX)).unwrap();
    stream.set_write_timeout(Some(WAIT_MAX)).unwrap();
    stream.write_all(words.as_bytes()).unwrap();
    stream
}

/// Reads until the server closes the connection: what it said until then.
#[track_caller]
fn until_closed(stream: &mut TcpStream) -> String {
    let until = Instant::now() + WAIT_MAX;
    let (mut said, mut part) = (Vec::new(), [0; 4096]);
    while Instant::now() < until {
        match stream.read(&mut part) {
            Ok(0) => return String::from_utf8(said).unwrap(),
            Ok(length) => said.extend_from_slice(&part[..length]),
            // what had not been read by the server when it closed
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                return String::from_utf8(said).unwrap();
            }
            Err(error) => panic!("the connection stays open: {error}"),
        }
    }
    // whoever goes on asking is not to do so for good
    stream.shutdown(std::net::Shutdown::Both).unwrap();
    panic!("the connection stays open, and is answered on");
}

/// Whether the server has closed the connection by now; there is nothing to be read on it.
fn is_closed(mut stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let read = stream.read(&mut [0]);
    !matches!(read, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
}

#[test]
fn a_head_that_does_not_come_to_its_end_is_not_waited_for() {
    let server = within(narrow());
    until_closed(&mut say(&server, ""));
    until_closed(&mut say(&server, "GET /livez HTTP/1.1\r\nHost: x\r\n"));
    // a little more again and again does not help
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
fn a_connection_on_which_nothing_more_is_asked_is_closed() {
    let server = within(narrow());
    let mut idle = say(&server, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n");
    let said = until_closed(&mut idle);
    assert!(said.starts_with("HTTP/1.1 200") && said.ends_with("ok\n"), "{said}");
}

#[test]
fn a_connection_ends_whatever_is_asked_on_it() {
    let server = within(Bounds { head: WAIT_MAX, connection: Duration::from_millis(200), ..narrow() });
    let mut busy = say(&server, "");
    let mut writer = busy.try_clone().unwrap();
    let asks = thread::spawn(move || while writer.write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n").is_ok() {});
    assert!(until_closed(&mut busy).starts_with("HTTP/1.1 200"));
    asks.join().unwrap();
    // nor does it help not to read what was asked for
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
fn many_connections_take_no_more_than_a_bounded_number_and_keep_nobody_out() {
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
    // those that came last have not had their time yet
    assert!(!is_closed(silent.last().unwrap()));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "how long the end takes is what is tested")]
fn a_client_that_never_asks_does_not_hold_up_the_end() {
    let server = started(&Metrics::new(), &Health::new());
    let address = server.address();
    let mut silent = TcpStream::connect(address).unwrap();
    write!(silent, "GET /metr").unwrap();
    assert!(ask(&server, "GET", "/livez").starts_with("HTTP/1.1 200"));
    let began = Instant::now();
    server.stop();
    assert!(began.elapsed() < STOP_MAX * 4, "{:?}", began.elapsed());
    assert!(TcpStream::connect(address).is_err(), "nobody listens any more");
}
