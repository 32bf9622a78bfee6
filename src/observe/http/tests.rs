//! The endpoints answer over a real socket, and the server ends when it is told to.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use super::*;
use crate::record::TopicPartition;

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
