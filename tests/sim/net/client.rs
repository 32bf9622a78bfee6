//! What a client's connections run on: simulated time, and the links.

use std::io::IoSlice;
use std::os::unix::net::UnixStream;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use ratchet::cluster::kafka::client::{Network, Networks};
use ratchet::cluster::kafka::wire::brokers::{Act, Brokers, Link};

use super::{Connection, End};
use crate::kafka::Time;
use crate::world::Process;

/// Of which only differences count.
#[expect(clippy::disallowed_methods, reason = "a base for the simulated clock")]
static BASE: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The networks of a process's clients.
pub struct Nets(pub Process);

impl Networks for Nets {
    fn open(&self) -> (Box<dyn Network>, u64) {
        let mut state = self.0.lock();
        let seed = state.random.next();
        let number = state.open_client(self.0.number);
        drop(state);
        (Box::new(Client { process: self.0.clone(), number, after_death: Duration::ZERO }), seed)
    }
}

/// One client.
struct Client {
    process: Process,
    number: usize,
    /// How long it has waited since its process died: nobody hears it, and it does not wait for ever.
    after_death: Duration,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.process.lock().close_client(self.number);
    }
}

fn instant(at: Time) -> Instant {
    *BASE + Duration::from_micros(at)
}

/// The first microsecond that is not before a time.
fn time(at: Instant) -> Time {
    at.saturating_duration_since(*BASE).as_nanos().div_ceil(1_000) as Time
}

impl Network for Client {
    fn now(&self) -> Instant {
        instant(self.process.now()) + self.after_death
    }

    fn wall_ms(&self) -> i64 {
        self.process.lock().wall_ms(self.process.number)
    }

    fn drive(&mut self, brokers: &mut Brokers, wait: Duration) -> bool {
        let before = brokers.progress_count();
        let until = time(self.now() + wait);
        loop {
            if self.process.is_dead() {
                self.after_death += wait.max(Duration::from_millis(1));
                brokers.tick(self.now());
                return false;
            }
            let now = self.now();
            let was_due = brokers.next_tick().is_some_and(|at| at <= now);
            brokers.tick(now);
            self.act(brokers);
            if self.hear(brokers) {
                self.act(brokers);
            }
            if was_due || brokers.progress_count() != before || self.process.now() >= until {
                return false;
            }
            let next = brokers.next_tick().map_or(until, |at| time(at).min(until));
            self.sleep_until(next);
        }
    }

    fn wake_by(&mut self, _: UnixStream) {
        unreachable!("a simulated member's events do not ring");
    }
}

impl Client {
    fn ends(&self) -> std::ops::RangeInclusive<End> {
        (self.number, Link(0))..=(self.number, Link(u64::MAX))
    }

    /// Waits for what arrives, until then.
    fn sleep_until(&self, until: Time) {
        let until = {
            let mut state = self.process.lock();
            let running = state.running;
            state.links.clients[self.number].waiting = Some(running);
            let heard = state.links.connections.range(self.ends()).filter_map(|(_, of)| of.next_at_client()).min();
            heard.map_or(until, |at| at.min(until))
        };
        self.process.sleep_until(until);
        self.process.lock().links.clients[self.number].waiting = None;
    }

    /// Does what the client wants done, and takes what it has written.
    fn act(&self, brokers: &mut Brokers) {
        let mut state = self.process.lock();
        while let Some(act) = brokers.next_act() {
            match act {
                Act::Connect { link, .. } => state.connect((self.number, link)),
                Act::Close { link } => {
                    if let Some(connection) = state.links.connections.get_mut(&(self.number, link)) {
                        connection.is_closed = true;
                    }
                }
            }
        }
        let now = instant(state.now());
        let is_open = |(_, of): &(&End, &Connection)| !of.is_closed && of.opens.is_none();
        let open: Vec<End> = state.links.connections.range(self.ends()).filter(is_open).map(|(end, _)| *end).collect();
        for end in open {
            let mut slices: Vec<IoSlice<'_>> = Vec::new();
            brokers.output(end.1, &mut slices);
            let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
            if !bytes.is_empty() {
                brokers.written(end.1, bytes.len(), now);
                state.write(end, &bytes);
            }
        }
    }

    /// Gives the client what has arrived. Whether anything has.
    fn hear(&self, brokers: &mut Brokers) -> bool {
        let mut state = self.process.lock();
        let now = state.now();
        let has_come = |(_, of): &(&End, &Connection)| of.next_at_client().is_some_and(|at| at <= now);
        let ends: Vec<End> = state.links.connections.range(self.ends()).filter(has_come).map(|(end, _)| *end).collect();
        for end in &ends {
            let Some(connection) = state.links.connections.get_mut(end) else { continue };
            if connection.opens.take_if(|at| *at <= now).is_some() {
                brokers.connected(end.1, instant(now));
            }
            let mut has_committed = false;
            while let Some(response) = connection.responses.pop_front_if(|response| response.at <= now) {
                fill(brokers, end.1, &response.bytes, instant(now));
                has_committed |= response.tells_commit;
            }
            if connection.breaks.take_if(|at| *at <= now).is_some() {
                connection.is_closed = true;
                brokers.broke(end.1, "it has cut the connection", instant(now));
            }
            if has_committed {
                state.memory.responded(self.process.number);
            }
        }
        !ends.is_empty()
    }
}

fn fill(brokers: &mut Brokers, link: Link, mut rest: &[u8], now: Instant) {
    while !rest.is_empty() {
        let room = brokers.input(link);
        if room.is_empty() {
            return;
        }
        let count = room.len().min(rest.len());
        room[..count].copy_from_slice(&rest[..count]);
        rest = &rest[count..];
        brokers.filled(link, count, now);
    }
}
