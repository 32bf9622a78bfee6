//! A world of one client and several brokers, with the connections between them in memory.

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::*;
pub use super::cluster::{Cluster, ECHO, LeaderAndEpoch, SeenRequest, echo};

/// Handles a request at a broker: returns the response's body, or `None` if the default response applies.
pub type Serve = Box<dyn FnMut(&mut Cluster, &SeenRequest) -> Option<Vec<u8>> + Send>;

/// A connection between the client and a broker.
#[derive(Default)]
pub struct Wire {
    pub port: u16,
    /// The bytes that the client wrote and the broker has not read.
    pub to_broker: Vec<u8>,
    /// The bytes that the broker wrote and the client has not read.
    pub to_client: Vec<u8>,
    /// How many bytes the client wrote.
    pub written: usize,
}

pub struct World {
    pub brokers: Brokers,
    pub now: Instant,
    pub cluster: Cluster,
    pub wires: BTreeMap<Link, Wire>,
    pub seen: Vec<SeenRequest>,
    pub connects: Vec<(Instant, u16, Purpose)>,
    pub events: Vec<Event>,
    pub ticks: usize,
    /// Takes precedence over the default responses.
    pub serve: Serve,
}

pub fn settings() -> Settings {
    Settings { request_timeout: Duration::from_secs(5), connect_timeout: Duration::from_secs(3), ..Settings::default() }
}

pub fn at(port: u16) -> Address {
    Address { host: "kafka".to_owned(), port }
}

pub fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

impl World {
    /// Brokers 1, 2 and 3 at ports 9001, 9002 and 9003, a topic `orders` of which each leads one partition, and a
    /// client whose bootstrap address is 9001.
    pub fn new(settings: Settings) -> Self {
        Self::with(settings, &[9001], 1)
    }

    #[expect(clippy::disallowed_methods, reason = "a clock that the test advances has to start at some time")]
    pub fn with(settings: Settings, bootstrap: &[u16], seed: u64) -> Self {
        let bootstrap = bootstrap.iter().map(|port| at(*port)).collect();
        let cluster = Cluster {
            nodes: (1..=3).map(|node| (node, 9000 + node as u16)).collect(),
            topics: [("orders".to_owned(), (1, vec![(1, 5), (2, 5), (3, 5)]))].into(),
            id: Some("one"),
            api_versions_max: 4,
            lists_versions: true,
            metadata_max: 13,
            host: "kafka",
            ..Cluster::default()
        };
        Self {
            brokers: Brokers::seeded(Arc::new(settings), bootstrap, seed),
            now: Instant::now() + Duration::from_secs(1000),
            cluster,
            wires: BTreeMap::new(),
            seen: Vec::new(),
            connects: Vec::new(),
            events: Vec::new(),
            ticks: 0,
            serve: Box::new(|_, _| None),
        }
    }

    /// Carries out the client's acts, as the edge does.
    pub fn act(&mut self) {
        while let Some(act) = self.brokers.next_act() {
            match act {
                Act::Connect { link, address } => {
                    self.connects.push((self.now, address.port, self.brokers.links[&link].1));
                    let is_down = self.cluster.down.contains(&address.port);
                    self.wires.insert(link, Wire { port: address.port, ..Wire::default() });
                    match is_down {
                        true => self.cut(link, "it is down"),
                        false => self.brokers.connected(link, self.now),
                    }
                }
                Act::Close { link } => {
                    self.wires.remove(&link);
                }
            }
        }
    }

    pub fn cut(&mut self, link: Link, why: &str) {
        self.wires.remove(&link);
        self.brokers.broke(link, why, self.now);
    }

    pub fn links(&self) -> Vec<Link> {
        self.wires.keys().copied().collect()
    }

    /// The client writes at most `bytes_max` bytes. Returns whether it wrote any.
    pub fn write(&mut self, link: Link, bytes_max: usize) -> bool {
        let mut slices: Vec<IoSlice<'_>> = Vec::new();
        self.brokers.output(link, &mut slices);
        let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).take(bytes_max).collect();
        let Some(wire) = self.wires.get_mut(&link).filter(|_| !bytes.is_empty()) else { return false };
        wire.to_broker.extend_from_slice(&bytes);
        wire.written += bytes.len();
        self.brokers.written(link, bytes.len(), self.now);
        true
    }

    /// The client reads at most `bytes_max` bytes. Returns whether it read any.
    pub fn read(&mut self, link: Link, bytes_max: usize) -> bool {
        let Some(wire) = self.wires.get_mut(&link).filter(|wire| !wire.to_client.is_empty()) else { return false };
        let input = self.brokers.input(link);
        assert!(!input.is_empty(), "an open connection can be read into");
        let count = bytes_max.min(input.len()).min(wire.to_client.len());
        input[..count].copy_from_slice(&wire.to_client[..count]);
        wire.to_client.drain(..count);
        self.brokers.filled(link, count, self.now);
        true
    }

    /// The broker serves one request. Returns whether a whole request had arrived.
    pub fn serve(&mut self, link: Link) -> bool {
        let Some(wire) = self.wires.get_mut(&link) else { return false };
        let Some(length) = wire.to_broker.first_chunk().map(|length| i32::from_be_bytes(*length) as usize) else {
            return false;
        };
        if wire.to_broker.len() < 4 + length || self.cluster.silent.contains(&wire.port) {
            return false;
        }
        let port = wire.port;
        let seen = SeenRequest::read(link, port, wire.to_broker.drain(..4 + length).skip(4).collect());
        self.seen.push(seen.clone());
        let mut serve = std::mem::replace(&mut self.serve, Box::new(|_, _| None));
        let body = serve(&mut self.cluster, &seen).or_else(|| self.cluster.default_response(&seen));
        self.serve = serve;
        if let Some(body) = body {
            self.respond(&seen, &body);
        }
        true
    }

    /// Writes a response.
    pub fn respond(&mut self, seen: &SeenRequest, body: &[u8]) {
        if let Some(wire) = self.wires.get_mut(&seen.link) {
            wire.to_client.extend(seen.response(body));
        }
    }

    /// Runs until no more bytes move and no tick is due at the current time.
    pub fn settle(&mut self) {
        self.settle_in_pieces(|| usize::MAX);
    }

    /// Like [`World::settle`], with at most `piece` bytes for each read and write.
    pub fn settle_in_pieces(&mut self, mut piece: impl FnMut() -> usize) {
        loop {
            self.tick();
            self.act();
            let mut has_moved = false;
            for link in self.links() {
                has_moved |= self.write(link, piece()) | self.serve(link) | self.read(link, piece());
            }
            self.events.extend(std::iter::from_fn(|| self.brokers.next_event()));
            if !has_moved && self.brokers.next_tick().is_none_or(|at| at > self.now) && !self.has_acts() {
                return;
            }
        }
    }

    fn has_acts(&mut self) -> bool {
        let act = self.brokers.next_act();
        if let Some(act) = act {
            self.brokers.acts.push_front(act);
            return true;
        }
        false
    }

    fn tick(&mut self) {
        self.ticks += 1;
        assert!(self.ticks < 1_000_000, "the client asks for ticks endlessly");
        self.brokers.tick(self.now);
    }

    /// Advances the clock by `time`, from one tick to the next.
    pub fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        self.settle();
        while let Some(at) = self.brokers.next_tick().filter(|at| *at <= until) {
            assert!(at > self.now);
            self.now = at;
            self.settle();
        }
        self.now = until;
        self.settle();
    }

    /// Advances the clock until `holds` is true, at most by a minute. Returns the time that has passed.
    pub fn until(&mut self, mut holds: impl FnMut(&mut Self) -> bool) -> Duration {
        let begin = self.now;
        self.settle();
        while !holds(self) {
            assert!(self.now < begin + Duration::from_secs(60), "the condition did not hold within a minute");
            self.pass(ms(1));
        }
        self.now - begin
    }

    pub fn is_ready(&mut self, node: i32, purpose: Purpose) -> bool {
        self.brokers.ensure_ready(node, purpose, self.now).is_some()
    }

    /// Sends a request to which brokers respond with the request's own body: see [`echo`].
    pub fn send(&mut self, node: i32, purpose: Purpose, body: &[u8]) -> RequestId {
        self.brokers.send(node, purpose, echo(body), Duration::from_secs(5), self.now)
    }

    pub fn take_responses(&mut self) -> Vec<(RequestId, Vec<u8>)> {
        let events = std::mem::take(&mut self.events).into_iter();
        events
            .map(|event| match event {
                Event::Responded { id, body, .. } => (id, body.as_slice().to_vec()),
                Event::Failed { .. } => panic!("{event:?}"),
            })
            .collect()
    }

    pub fn take_failures(&mut self) -> Vec<(RequestId, bool, String)> {
        let events = std::mem::take(&mut self.events).into_iter();
        events
            .map(|event| match event {
                Event::Failed { id, sent, reason } => (id, sent, reason),
                Event::Responded { .. } => panic!("{event:?}"),
            })
            .collect()
    }

    pub fn leader(&self, partition: i32) -> Option<(i32, i32)> {
        self.brokers.leader("orders", partition).map(|leader| (leader.node, leader.epoch))
    }

    pub fn watch(&mut self, topic: &str) {
        self.brokers.watch(&[topic.into()]);
    }

    /// How many requests of this API the brokers have seen.
    pub fn count(&self, api_key: i16) -> usize {
        self.seen.iter().filter(|seen| seen.api_key == api_key).count()
    }
}
