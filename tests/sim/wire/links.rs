//! Links between clients and brokers: bytes take time, arrive in pieces of any size, and a link may be cut at any byte.
//!
//! What was written before a cut may still arrive, as far as some byte, and much later: the client has long given up, and
//! the broker executes a **late copy**.
//!
//! A broker takes one request of a connection at a time, in order (`SocketServer` mutes the channel meanwhile).

use std::collections::{BTreeMap, VecDeque};
use std::io::IoSlice;
use std::time::{Duration, Instant};

use kafka_protocol::messages::ApiKey;
use ratchet_testkit::random::Random;

use super::client::brokers::{Act, Brokers, Link};
use super::cluster::Cluster;
use super::speech::{Answer, Fetch, Incoming, Reply};
use super::throttles::{self, Quiet};

/// A client of the brokers, and one of its links.
pub type End = (usize, Link);

/// Bytes under way, and when they arrive.
type Pipe = VecDeque<(u64, Vec<u8>)>;

/// The longest throttle time that brokers say; they allow themselves a second and more.
const THROTTLE_MS_MAX: usize = 200;

/// A connection.
#[derive(Default)]
struct Wire {
    node: i32,
    /// When the client hears that it is open, if it has not.
    opens: Option<u64>,
    /// Whether the client still has it.
    is_held: bool,
    /// When the client hears that it is broken.
    breaks: Option<u64>,
    /// Whether nothing arrives at the broker that the client writes from now on.
    is_cut: bool,
    to_broker: Pipe,
    to_client: Pipe,
    /// What the broker has read, and not handled.
    read: Vec<u8>,
    /// The fetch that waits at the broker.
    waits: Option<Fetch>,
    quiet: Quiet,
}

impl Wire {
    /// Whether something comes to the broker now, or is there: a request that waits, or one behind it.
    fn is_due_at_broker(&self, now: u64) -> bool {
        let comes = self.to_broker.front().is_some_and(|(at, _)| *at <= now);
        comes || self.waits.is_some() || frame_bytes(&self.read).is_some()
    }

    /// Whether the client hears something now.
    fn is_due_at_client(&self, now: u64) -> bool {
        let front = self.to_client.front().map(|(at, _)| *at);
        self.is_held && [self.opens, self.breaks, front].into_iter().flatten().any(|at| at <= now)
    }

    /// Whether the client still hears what the broker says.
    fn is_heard(&self) -> bool {
        self.is_held && self.breaks.is_none()
    }
}

/// How the network is. "Once in so many" is 0 for never.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    /// How long bytes take at most, microseconds.
    pub delay_max: u64,
    /// How much later what was under way when a link was cut arrives at most.
    pub late_max: u64,
    /// How often a connection is refused, once in so many.
    pub refuse_once_in: usize,
    /// How often a response is held up for long, once in so many.
    pub hold_once_in: usize,
    /// How often a bit of a response is turned, once in so many bits. Nothing is right then any more.
    pub garbles_once_in: usize,
    /// How often a response says a throttle time, once in so many.
    pub throttles_once_in: usize,
    /// The largest piece, bytes.
    pub piece_max: usize,
}

impl Weather {
    /// Nothing goes wrong, and nothing takes long.
    pub const FAIR: Self = Self {
        delay_max: 200,
        late_max: 1,
        refuse_once_in: 0,
        hold_once_in: 0,
        garbles_once_in: 0,
        throttles_once_in: 0,
        piece_max: 1 << 20,
    };
}

/// All links.
pub struct Links {
    wires: BTreeMap<End, Wire>,
    pub weather: Weather,
    random: Random,
    base: Instant,
    /// How often links were cut while clients held them, and requests handled that nobody waited for.
    pub cuts: usize,
    pub late: usize,
    /// How often clients heard a throttle time, and the first that did not heed it.
    pub throttles: usize,
    pub unheeded: Option<String>,
}

impl Links {
    pub fn new(base: Instant, weather: Weather, seed: u64) -> Self {
        Self {
            wires: BTreeMap::new(),
            weather,
            random: Random::new(seed),
            base,
            cuts: 0,
            late: 0,
            throttles: 0,
            unheeded: None,
        }
    }

    /// A simulated time as the client takes it.
    pub fn at(&self, now: u64) -> Instant {
        self.base + Duration::from_micros(now)
    }

    fn delay(&mut self, now: u64) -> u64 {
        now + 1 + self.random.next() % self.weather.delay_max
    }

    fn happens(&mut self, once_in: usize) -> bool {
        once_in > 0 && self.random.once_in(once_in)
    }

    /// How much of so many bytes goes at once: all of it, or less.
    fn piece(&mut self, bytes: usize) -> usize {
        let most = bytes.min(self.weather.piece_max);
        if self.random.once_in(3) { 1 + self.random.below(most) } else { most }
    }

    /// When something happens next after `now`, except to clients that are `deaf`.
    pub fn next(&self, deaf: &[usize], now: u64) -> Option<u64> {
        let of = |(end, wire): (&End, &Wire)| {
            let hears = wire.is_held && !deaf.contains(&end.0);
            let to_client = [wire.opens, wire.breaks, wire.to_client.front().map(|(at, _)| *at)];
            let to_client = to_client.into_iter().flatten().filter(|_| hears).min();
            let to_broker = wire.to_broker.front().map(|(at, _)| *at);
            let waits = wire.waits.as_ref().map(|fetch| fetch.until).filter(|until| *until > now);
            to_client.into_iter().chain(to_broker).chain(waits).min()
        };
        self.wires.iter().filter_map(of).min()
    }

    /// Does what a client wants done, and takes what it has written.
    pub fn serve(&mut self, client: usize, brokers: &mut Brokers, cluster: &Cluster, now: u64) {
        while let Some(act) = brokers.next_act() {
            match act {
                Act::Connect { link, address } => self.connect((client, link), &address.host, cluster, now),
                Act::Close { link } => self.cut((client, link), false, now),
            }
        }
        let is_open = |(end, wire): &(&End, &Wire)| end.0 == client && wire.is_held && wire.opens.is_none();
        let open: Vec<End> = self.wires.iter().filter(is_open).map(|(end, _)| *end).collect();
        for end in open {
            let mut slices: Vec<IoSlice<'_>> = Vec::new();
            brokers.output(end.1, &mut slices);
            let mut bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
            if bytes.is_empty() {
                continue;
            }
            // The socket takes some of it now and then.
            bytes.truncate(self.piece(bytes.len()));
            brokers.written(end.1, bytes.len(), self.at(now));
            let at = self.delay(now);
            let Some(wire) = self.wires.get_mut(&end) else { continue };
            if !wire.quiet.written(bytes.len(), now) {
                let node = wire.node;
                self.unheeded.get_or_insert(format!("a request was sent to node {node} within its throttle time"));
            }
            // What comes after lost bytes must not be taken for what follows on those before.
            if !wire.is_cut {
                let at = wire.to_broker.back().map_or(at, |(last, _)| at.max(*last));
                wire.to_broker.push_back((at, bytes));
            }
        }
    }

    fn connect(&mut self, end: End, host: &str, cluster: &Cluster, now: u64) {
        let node = host.strip_prefix("node").and_then(|number| number.parse().ok()).unwrap_or(0);
        let is_up = cluster.is_up(node);
        let refused = !is_up || self.happens(self.weather.refuse_once_in);
        let at = self.delay(now);
        let mut wire = Wire { node, is_held: true, ..Wire::default() };
        match refused {
            true => wire.breaks = Some(at),
            false => wire.opens = Some(at),
        }
        self.wires.insert(end, wire);
    }

    /// Cuts a link: what is under way to the broker may arrive late, up to some byte; `tells`: the client hears of it.
    pub fn cut(&mut self, end: End, tells: bool, now: u64) {
        let breaks = self.delay(now);
        let late = now + self.random.next() % self.weather.late_max;
        let Some(wire) = self.wires.get_mut(&end) else { return };
        if !wire.is_held || tells && wire.breaks.is_some() {
            return;
        }
        self.cuts += usize::from(tells);
        let bytes: Vec<u8> = wire.to_broker.drain(..).flat_map(|(_, bytes)| bytes).collect();
        let kept = match self.random.below(3) {
            0 => self.random.below(bytes.len() + 1),
            _ => bytes.len(),
        };
        let is_early = self.random.once_in(2);
        let at = if is_early { breaks } else { late };
        if kept > 0 {
            wire.to_broker.push_back((at, bytes[..kept].to_vec()));
        }
        // What was under way to the client arrives up to some byte.
        let answers: Vec<u8> = wire.to_client.drain(..).flat_map(|(_, bytes)| bytes).collect();
        let heard = self.random.below(answers.len() + 1);
        if tells && heard > 0 {
            wire.to_client.push_back((breaks, answers[..heard].to_vec()));
        }
        wire.breaks = tells.then_some(breaks);
        (wire.is_held, wire.is_cut) = (tells, true);
        wire.waits = None;
    }

    /// The links that clients hold, to be cut.
    pub fn held(&self) -> Vec<End> {
        self.wires.iter().filter(|(_, wire)| wire.is_heard()).map(|(end, _)| *end).collect()
    }

    /// Cuts all links to a broker.
    pub fn cut_node(&mut self, node: i32, now: u64) {
        let ends: Vec<End> = self.wires.iter().filter(|(_, wire)| wire.node == node).map(|(end, _)| *end).collect();
        ends.into_iter().for_each(|end| self.cut(end, true, now));
    }

    /// Cuts all links of a client that is gone.
    pub fn cut_client(&mut self, client: usize, now: u64) {
        let ends: Vec<End> = self.wires.keys().filter(|end| end.0 == client).copied().collect();
        ends.into_iter().for_each(|end| self.cut(end, false, now));
    }

    /// Brings what is due to the brokers, and has them answer.
    pub fn deliver_to_brokers(&mut self, cluster: &mut Cluster, now: u64) {
        let is_due = |(end, wire): (&End, &Wire)| wire.is_due_at_broker(now).then_some(*end);
        let ends: Vec<End> = self.wires.iter().filter_map(is_due).collect();
        for end in ends {
            let Some(mut wire) = self.wires.remove(&end) else { continue };
            let is_up = cluster.is_up(wire.node);
            while let Some((_, bytes)) = wire.to_broker.pop_front_if(|(at, _)| *at <= now) {
                if is_up {
                    wire.read.extend(bytes);
                } else {
                    // It has lost that, and what is around it.
                    wire.is_cut = true;
                    wire.read.clear();
                    wire.to_broker.clear();
                }
            }
            let is_closed = is_up && !self.handle(&mut wire, cluster, now);
            self.wires.insert(end, wire);
            if is_closed {
                self.cut(end, true, now);
            }
        }
        self.wires.retain(|_, wire| wire.is_held || !wire.to_broker.is_empty());
    }

    /// What a broker does about a connection. Whether it leaves it open.
    fn handle(&mut self, wire: &mut Wire, cluster: &mut Cluster, now: u64) -> bool {
        loop {
            if let Some(fetch) = &wire.waits {
                let Some(answer) = cluster.answer(wire.node, fetch, now) else { return true };
                let of = (ApiKey::Fetch, fetch.version);
                wire.waits = None;
                self.respond(wire, of, answer, now);
            }
            let Some(frame) = frame(&mut wire.read) else { return true };
            self.late += usize::from(!wire.is_heard());
            let Some(incoming) = Incoming::read(&frame) else { return false };
            let Some(Answer { reply, .. }) = cluster.handle(wire.node, &incoming, now) else { return false };
            match reply {
                Reply::Now(answer) => self.respond(wire, (incoming.api, incoming.version), answer, now),
                Reply::Later(fetch) => wire.waits = Some(fetch).filter(|_| wire.is_heard()),
            }
        }
    }

    /// Sends a response to a request of this key and version, if the client still hears it.
    fn respond(&mut self, wire: &mut Wire, of: (ApiKey, i16), mut answer: Vec<u8>, now: u64) {
        if !wire.is_heard() {
            return;
        }
        let throttle_ms = self.happens(self.weather.throttles_once_in).then(|| 1 + self.random.below(THROTTLE_MS_MAX));
        let throttle_ms = throttle_ms.filter(|ms| throttles::say(of.0, of.1, &mut answer, *ms as i32));
        wire.quiet.sent(4 + answer.len(), throttle_ms.map(|ms| ms as u64 * 1_000));
        let at = self.delay(now);
        let mut at = wire.to_client.back().map_or(at, |(last, _)| at.max(*last));
        if self.happens(self.weather.hold_once_in) {
            at += self.random.next() % 300_000;
        }
        let mut bytes = (answer.len() as u32).to_be_bytes().to_vec();
        bytes.extend(answer);
        let bits = bytes.len() * 8;
        for _ in 0..bits.checked_div(self.weather.garbles_once_in).map_or(0, |turned| turned + 1) {
            let bit = self.random.below(bits);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        let piece = self.piece(bytes.len());
        for piece in bytes.chunks(piece) {
            wire.to_client.push_back((at, piece.to_vec()));
            at += self.random.next() % (self.weather.delay_max / 4 + 1);
        }
    }

    /// Brings what is due to a client. Whether anything was.
    pub fn deliver_to_client(&mut self, client: usize, brokers: &mut Brokers, now: u64) -> bool {
        let is_due = |(end, wire): (&End, &Wire)| (end.0 == client && wire.is_due_at_client(now)).then_some(*end);
        let ends: Vec<End> = self.wires.iter().filter_map(is_due).collect();
        let time = self.at(now);
        let mut any = false;
        for end in ends {
            let Some(mut wire) = self.wires.remove(&end) else { continue };
            if wire.is_held && wire.opens.take_if(|at| *at <= now).is_some() {
                brokers.connected(end.1, time);
                any = true;
            }
            while wire.is_held
                && let Some((_, bytes)) = wire.to_client.pop_front_if(|(at, _)| *at <= now)
            {
                any = true;
                self.fill(end.1, &mut wire.quiet, &bytes, brokers, now);
            }
            if wire.is_held && wire.breaks.is_some_and(|at| at <= now) && wire.to_client.is_empty() {
                wire.is_held = false;
                wire.breaks = None;
                brokers.broke(end.1, "it has cut the connection", time);
                any = true;
            }
            self.wires.insert(end, wire);
        }
        any
    }

    /// Gives bytes to the client as it has room. A client that has closed the link, which is among its acts, has none.
    fn fill(&mut self, link: Link, quiet: &mut Quiet, mut rest: &[u8], brokers: &mut Brokers, now: u64) {
        while !rest.is_empty() {
            let room = brokers.input(link);
            if room.is_empty() {
                return;
            }
            let count = self.piece(room.len().min(rest.len()));
            room[..count].copy_from_slice(&rest[..count]);
            rest = &rest[count..];
            let mut begun: Vec<IoSlice<'_>> = Vec::new();
            brokers.output(link, &mut begun);
            let begun = begun.iter().map(|slice| slice.len()).sum();
            self.throttles += usize::from(quiet.heard(count, begun, now));
            brokers.filled(link, count, self.at(now));
        }
    }
}

/// The size of the frame at the front, with its length, if it is whole.
fn frame_bytes(read: &[u8]) -> Option<usize> {
    let bytes = 4 + u32::from_be_bytes(*read.first_chunk()?) as usize;
    (read.len() >= bytes).then_some(bytes)
}

/// Takes a whole frame off the front, without its length.
fn frame(read: &mut Vec<u8>) -> Option<Vec<u8>> {
    let bytes = frame_bytes(read)?;
    Some(read.drain(..bytes).skip(4).collect())
}
