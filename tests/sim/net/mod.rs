//! The network between clients and the cluster: requests and responses as bytes, whose frames arrive after a while, late,
//! or not at all.
//!
//! - `client`: what a client's connections run on; what the brokers say is `speech`
//!
//! A connection carries whole frames, in order: what the client makes of bytes in pieces is the business of the wire's
//! own simulation (`tests/sim/wire`). A broker takes one request of a connection at a time.
//!
//! A request that is lost breaks its connection. What was sent before the break is carried out all the same.

use std::collections::{BTreeMap, VecDeque};

use ratchet::cluster::kafka::wire::brokers::Link;

use crate::kafka::{Broker, Code, MS, SECOND, Time};
use crate::lies::{Lie, is_told};
use crate::speech::{self, Answer, Fetch, Incoming, Manners, Reply};
use crate::world::{Fate, SILENCE, State};

mod client;

pub use client::Nets;

/// The one broker.
const NODE: i32 = 1;

/// How it behaves: it only tells lies.
fn manners() -> Manners {
    Manners { skips_aborts: is_told(Lie::AbortSkipped), ..Manners::default() }
}

/// Carries out a request.
fn carry_out(broker: &mut Broker, incoming: &Incoming) -> Answer {
    speech::handle(broker, &mut manners(), NODE, incoming).expect("the client's requests make sense")
}

/// A connection: its client and the client's name for it.
type End = (usize, Link);

/// A request on its way.
struct Sent {
    at: Time,
    frame: Vec<u8>,
    fate: Fate,
}

/// A response on its way.
struct Response {
    at: Time,
    bytes: Vec<u8>,
    /// Whether it says that a transaction is committed.
    tells_commit: bool,
}

#[derive(Default)]
struct Connection {
    /// When the client hears that it is open, if it has not.
    opens: Option<Time>,
    /// When the client hears that it is broken.
    breaks: Option<Time>,
    /// Whether the client has closed it, or is gone.
    is_closed: bool,
    /// What the client has written of a frame that is not whole.
    partial: Vec<u8>,
    requests: VecDeque<Sent>,
    responses: VecDeque<Response>,
    /// The fetch that waits at the broker.
    waits: Option<Fetch>,
}

impl Connection {
    /// Whether nothing arrives any more of what the client writes from now on.
    fn is_cut(&self) -> bool {
        self.is_closed || self.breaks.is_some()
    }

    /// When the client hears of something.
    fn next_at_client(&self) -> Option<Time> {
        let response = self.responses.front().map(|response| response.at);
        [self.opens, self.breaks, response].into_iter().flatten().min().filter(|_| !self.is_closed)
    }
}

/// A client.
struct Client {
    process: usize,
    /// The task that waits for its connections.
    waiting: Option<usize>,
}

/// All connections.
#[derive(Default)]
pub struct Links {
    clients: Vec<Client>,
    connections: BTreeMap<End, Connection>,
}

impl Links {
    /// When something happens next at the brokers; `is_touched`: logs may have changed.
    pub fn next(&self, now: Time, is_touched: bool) -> Time {
        let next = |connection: &Connection| match &connection.waits {
            Some(_) if is_touched => now,
            Some(fetch) => fetch.until,
            None => connection.requests.front().map_or(Time::MAX, |sent| sent.at),
        };
        self.connections.values().map(next).min().unwrap_or(Time::MAX)
    }
}

impl State {
    fn open_client(&mut self, process: usize) -> usize {
        self.links.clients.push(Client { process, waiting: None });
        self.links.clients.len() - 1
    }

    /// Nobody hears any more what is said on its connections; what is under way to the brokers arrives.
    fn close_client(&mut self, client: usize) {
        for (_, connection) in self.links.connections.range_mut((client, Link(0))..=(client, Link(u64::MAX))) {
            connection.is_closed = true;
        }
    }

    fn connect(&mut self, end: End) {
        let opens = Some(self.now() + self.latency());
        self.links.connections.insert(end, Connection { opens, ..Connection::default() });
    }

    /// Breaks a connection: the client hears of it, and nothing else any more.
    fn cut(&mut self, end: End, after: Time) {
        let at = self.now() + after;
        let Some(connection) = self.links.connections.get_mut(&end).filter(|connection| !connection.is_cut()) else {
            return;
        };
        (connection.breaks, connection.opens, connection.waits) = (Some(at), None, None);
        connection.responses.clear();
        self.wake_client(end.0, at);
    }

    /// The client has written bytes.
    fn write(&mut self, end: End, bytes: &[u8]) {
        let Some(connection) = self.links.connections.get_mut(&end) else { return };
        connection.partial.extend_from_slice(bytes);
        while let Some(frame) =
            self.links.connections.get_mut(&end).and_then(|connection| take_frame(&mut connection.partial))
        {
            self.send(end, frame);
        }
    }

    fn send(&mut self, end: End, frame: Vec<u8>) {
        if self.links.connections[&end].is_cut() {
            return;
        }
        let incoming = Incoming::read(&frame).expect("the client sends requests");
        let (there, what, now) = (self.latency(), speech::name(&incoming), self.now());
        let fate = match self.fate() {
            Fate::Late if matches!(what, "fetch" | "find out" | "epoch ends") => Fate::RequestLost,
            fate => fate,
        };
        self.suffers(fate, what);
        let delay = self.random.between(MS, 3 * SECOND);
        match fate {
            Fate::RequestLost | Fate::Late => {
                self.note(what, format_args!("{fate:?}"));
                if what == "end commit" {
                    self.reach("the end of a transaction did not arrive, or not yet");
                }
                if fate == Fate::Late {
                    self.later(now + delay, what, Box::new(move |broker| drop(carry_out(broker, &incoming))));
                }
                return self.cut(end, there);
            }
            Fate::Fine | Fate::Slow | Fate::ResponseLost | Fate::Silenced => {}
        }
        let connection = self.links.connections.get_mut(&end).expect("checked above");
        let at = now + there + if fate == Fate::Slow { delay / 3 } else { 0 };
        let at = connection.requests.back().map_or(at, |last| last.at.max(at));
        connection.requests.push_back(Sent { at, frame, fate });
    }

    /// Has the brokers take what has arrived, and answer what waits and can be answered.
    pub fn serve(&mut self) {
        let now = self.now();
        let is_touched = std::mem::take(&mut self.broker.topics.is_touched);
        let is_due = |connection: &Connection| match &connection.waits {
            Some(fetch) => is_touched || fetch.until <= now,
            None => connection.requests.front().is_some_and(|sent| sent.at <= now),
        };
        let links = self.links.connections.iter();
        let due: Vec<End> = links.filter(|(_, connection)| is_due(connection)).map(|(end, _)| *end).collect();
        for end in due {
            self.serve_one(end);
        }
        self.links.connections.retain(|_, connection| !(connection.is_closed && connection.requests.is_empty()));
    }

    fn serve_one(&mut self, end: End) {
        loop {
            let now = self.now();
            let Some(connection) = self.links.connections.get_mut(&end) else { return };
            if connection.is_cut() {
                connection.waits = None;
            }
            if let Some(fetch) = &connection.waits {
                let Some((bytes, codes)) = fetch.answer(&self.broker, &mut manners(), NODE) else { return };
                connection.waits = None;
                let process = self.links.clients[end.0].process;
                let away = codes.into_iter().filter(|code| *code == Code::NotLeaderOrFollower);
                away.for_each(|code| self.rejected(process, "fetch", code));
                self.respond(end, bytes, false);
                continue;
            }
            let Some(sent) = connection.requests.pop_front_if(|sent| sent.at <= now) else { return };
            self.carry_out(end, &sent);
        }
    }

    /// Fetches return any number of records and bytes.
    fn scant(&mut self) -> (usize, usize) {
        let records_max = if self.backlogged {
            self.random.between(1, 2)
        } else if self.random.permille(300) {
            self.random.between(1, 8)
        } else {
            64
        };
        let bytes_max = if self.random.permille(300) { self.random.between(100, 2_000) } else { u64::from(u32::MAX) };
        (records_max as usize, bytes_max as usize)
    }

    fn carry_out(&mut self, end: End, sent: &Sent) {
        let incoming = Incoming::read(&sent.frame).expect("it was read before");
        let (what, process) = (speech::name(&incoming), self.links.clients[end.0].process);
        let answer = carry_out(&mut self.broker, &incoming);
        let bytes = match answer.reply {
            Reply::Now(bytes) => bytes,
            Reply::Later(mut fetch) => {
                fetch.scant = self.scant();
                match sent.fate {
                    Fate::ResponseLost => return self.cut(end, MS),
                    Fate::Silenced => return self.cut(end, SILENCE),
                    _ => {}
                }
                if let Some(connection) = self.links.connections.get_mut(&end) {
                    connection.waits = Some(fetch);
                }
                return;
            }
        };
        let is_done = answer.codes.is_empty();
        self.note(what, format_args!("{:?} {:?}", sent.fate, answer.codes));
        answer.codes.into_iter().for_each(|code| self.rejected(process, what, code));
        let is_committed = what == "end commit" && is_done;
        if is_committed {
            self.memory.decide(process);
            self.memory.sinks(process);
        }
        match sent.fate {
            Fate::ResponseLost => {
                if is_committed {
                    self.reach("the end of a transaction was decided, but the response was lost");
                }
                let after = self.latency();
                self.cut(end, after);
            }
            Fate::Silenced => {
                if is_committed {
                    self.reach("the end of a transaction was decided, but its connection fell silent");
                }
                self.cut(end, SILENCE);
            }
            _ => self.respond(end, bytes, is_committed),
        }
    }

    fn respond(&mut self, end: End, bytes: Vec<u8>, tells_commit: bool) {
        let at = self.now() + self.latency();
        let Some(connection) = self.links.connections.get_mut(&end).filter(|connection| !connection.is_cut()) else {
            return;
        };
        let at = connection.responses.back().map_or(at, |last| last.at.max(at));
        let mut framed = (bytes.len() as u32).to_be_bytes().to_vec();
        framed.extend(bytes);
        connection.responses.push_back(Response { at, bytes: framed, tells_commit });
        self.wake_client(end.0, at);
    }

    fn wake_client(&mut self, client: usize, at: Time) {
        if let Some(task) = self.links.clients[client].waiting {
            self.tasks[task].wake = self.tasks[task].wake.min(at);
        }
    }
}

/// Takes a whole frame off the front, without its length.
fn take_frame(bytes: &mut Vec<u8>) -> Option<Vec<u8>> {
    let end = 4 + u32::from_be_bytes(*bytes.first_chunk()?) as usize;
    (bytes.len() >= end).then(|| bytes.drain(..end).skip(4).collect())
}
