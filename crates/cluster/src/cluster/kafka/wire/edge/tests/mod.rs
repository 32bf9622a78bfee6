//! Tests with real sockets: a minimal server speaks Kafka's protocol, in plain text and over TLS.

#![expect(clippy::disallowed_methods, reason = "real sockets take real time")]

use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::sockopt::socket_keepalive;

use self::server::{Server, Transport};
use super::super::brokers::tests::world::echo;
use super::super::brokers::{Address, Brokers, Event, Purpose, RequestId, Settings, TroubleKind};
use super::{Edge, Family, SocketSettings, clock};

mod server;
mod tls;

/// A client and its edge.
struct Client {
    edge: Edge,
    brokers: Brokers,
}

impl Client {
    fn new(edge: Edge, bootstrap: &[Address]) -> Self {
        let settings = Settings { connect_timeout: Duration::from_secs(5), ..Settings::default() };
        let mut brokers = Brokers::new(Arc::new(settings), bootstrap.to_vec());
        brokers.watch(&["orders".into()]);
        Self { edge, brokers }
    }

    /// Drives the client until `condition` returns a value.
    fn until<T>(&mut self, mut condition: impl FnMut(&mut Brokers, Instant) -> Option<T>) -> T {
        let begin = clock();
        loop {
            if let Some(value) = condition(&mut self.brokers, clock()) {
                return value;
            }
            assert!(
                begin.elapsed() < Duration::from_secs(30),
                "the condition did not hold within 30 seconds: {:?}",
                self.brokers.trouble()
            );
            self.edge.drive(&mut self.brokers, Duration::from_millis(100));
        }
    }

    /// Drives the client until the leader's connection is ready; returns the leader.
    fn until_ready(&mut self) -> i32 {
        self.until(|brokers, now| {
            let leader = brokers.leader("orders", 0)?;
            brokers.ensure_ready(leader.node, Purpose::Fetch, now).map(|_| leader.node)
        })
    }

    fn send(&mut self, node: i32, body: &[u8]) -> RequestId {
        self.brokers.send(node, Purpose::Fetch, echo(body), Duration::from_secs(10), clock())
    }

    fn event(&mut self) -> Event {
        self.until(|brokers, _| brokers.next_event())
    }

    fn trouble(&mut self) -> (TroubleKind, String) {
        self.until(|brokers, _| brokers.trouble().map(|trouble| (trouble.kind, trouble.message.clone())))
    }

    /// Sends all bodies at once, and asserts that they return in order.
    fn exchange(&mut self, node: i32, bodies: &[Vec<u8>]) {
        let ids: Vec<RequestId> = bodies.iter().map(|body| self.send(node, body)).collect();
        for (id, body) in ids.into_iter().zip(bodies) {
            match self.event() {
                Event::Responded { id: response_id, body: response, .. } => {
                    assert_eq!(response_id, id);
                    assert!(response.as_slice() == body);
                    self.brokers.recycle(response.into_buffer());
                }
                event => panic!("{event:?}"),
            }
        }
    }
}

/// Bodies of all sizes; the largest exceed the buffers of sockets.
fn bodies() -> Vec<Vec<u8>> {
    let lengths = [0, 1, 100, 16_000, 17_000, 3_000_000, 5, 20_000_000, 70_000, 3];
    lengths.iter().map(|length| (0..*length).map(|i: usize| (i * 7 + length) as u8).collect()).collect()
}

#[test]
fn responses_of_all_sizes_arrive_in_order() {
    let server = Server::start("localhost", Transport::Plain);
    let mut client = Client::new(Edge::new(None, SocketSettings::default()), &[server.address()]);
    let node = client.until_ready();
    client.exchange(node, &bodies());
    client.exchange(node, &bodies());
}

#[test]
fn client_reconnects_to_a_broker_that_closed_its_connections() {
    let mut server = Server::start("127.0.0.1", Transport::Plain);
    let mut client = Client::new(Edge::new(None, SocketSettings::default()), &[server.address()]);
    let node = client.until_ready();
    server.hold_echoes(true);
    let id = client.send(node, b"held");
    client.edge.drive(&mut client.brokers, Duration::from_millis(50));
    server.close_all();
    match client.event() {
        Event::Failed { id: failed, sent, reason } => {
            assert_eq!((failed, sent), (id, true));
            assert!(reason.starts_with(&format!("{}: ", server.address())), "{reason}");
        }
        event => panic!("{event:?}"),
    }
    server.hold_echoes(false);
    let node = client.until_ready();
    client.exchange(node, &[b"again".to_vec()]);
}

#[test]
fn second_bootstrap_address_is_attempted_if_the_first_is_refused() {
    let unused_port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let refusing = Address { host: "127.0.0.1".to_owned(), port: unused_port };
    let server = Server::start("127.0.0.1", Transport::Plain);
    let mut client = Client::new(Edge::new(None, SocketSettings::default()), &[refusing, server.address()]);
    let begin = clock();
    client.until_ready();
    assert!(begin.elapsed() < Duration::from_secs(3));
}

#[test]
fn addresses_of_another_family_are_not_tried() {
    let server = Server::start("127.0.0.1", Transport::Plain);
    let by = |family| Edge::new(None, SocketSettings { family, keepalive: false });
    Client::new(by(Family::V4), &[server.address()]).until_ready();
    let mut other = Client::new(by(Family::V6), &[server.address()]);
    let failure = other.until(|brokers, _| brokers.failure().map(str::to_owned));
    assert!(failure.contains("it has no address of the family v6 (broker.address.family)"), "{failure}");
    // A name with addresses of both families: those of IPv6 are skipped.
    let named = Address { host: "localhost".to_owned(), port: server.address().port };
    Client::new(by(Family::V4), &[named]).until_ready();
}

#[test]
fn sockets_are_kept_alive_if_configured() {
    let server = Server::start("127.0.0.1", Transport::Plain);
    for keepalive in [false, true] {
        let settings = SocketSettings { family: Family::Any, keepalive };
        let mut client = Client::new(Edge::new(None, settings), &[server.address()]);
        client.until_ready();
        let probed = client.edge.sockets.iter().filter_map(|entry| entry.interest(&client.brokers));
        let probed: Vec<bool> = probed.map(|(stream, _)| socket_keepalive(stream).unwrap()).collect();
        assert!(!probed.is_empty() && probed.iter().all(|probed| *probed == keepalive), "{probed:?}");
    }
}

#[test]
fn invalid_name_is_reported_as_trouble() {
    let unknown = Address { host: "x".repeat(70), port: 9092 };
    let mut client = Client::new(Edge::new(None, SocketSettings::default()), &[unknown]);
    let (kind, message) = client.trouble();
    assert_eq!(kind, TroubleKind::Host);
    assert!(message.starts_with("its name is unknown: "), "{message}");
}

#[test]
fn drive_takes_no_longer_than_its_wait() {
    let server = Server::start("127.0.0.1", Transport::Plain);
    let mut client = Client::new(Edge::new(None, SocketSettings::default()), &[server.address()]);
    let node = client.until_ready();
    server.hold_echoes(true);
    client.send(node, b"held");
    for wait in [0, 1, 30, 200].map(Duration::from_millis) {
        let begin = clock();
        client.edge.drive(&mut client.brokers, wait);
        client.edge.drive(&mut client.brokers, wait);
        assert!(begin.elapsed() < wait * 2 + Duration::from_millis(200), "{:?} instead of {wait:?}", begin.elapsed());
    }
    // Without events, the call takes the whole wait.
    let begin = clock();
    client.edge.drive(&mut client.brokers, Duration::from_millis(300));
    assert!(begin.elapsed() >= Duration::from_millis(290), "{:?}", begin.elapsed());
}

#[test]
fn shared_edge_closes_the_connections_of_a_dropped_client() {
    let server = Server::start("localhost", Transport::Plain);
    let mut first = Client::new(Edge::new(None, SocketSettings::default()), &[server.address()]);
    let mut second = Client::new(Edge::new(None, SocketSettings::default()), &[server.address()]);
    let begin = clock();
    loop {
        let is_ready = [&mut first.brokers, &mut second.brokers].into_iter().all(|brokers| {
            let leader = brokers.leader("orders", 0);
            leader.is_some_and(|leader| brokers.ensure_ready(leader.node, Purpose::Fetch, clock()).is_some())
        });
        if is_ready {
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(30));
        first.edge.drive_all(&mut [&mut first.brokers, &mut second.brokers], Duration::from_millis(100));
    }
    let open = server.connections();
    assert!(open >= 2, "at least one for each client: {open}");
    // While only the first client is driven, the second one's connections stay open.
    first.exchange(1, &[b"x".to_vec()]);
    assert_eq!(server.connections(), open);
    drop(second);
    first.exchange(1, &[b"y".to_vec()]);
    let begin = clock();
    while server.connections() >= open {
        assert!(begin.elapsed() < Duration::from_secs(10));
        first.edge.drive(&mut first.brokers, Duration::from_millis(10));
    }
}
