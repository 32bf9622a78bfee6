//! Sockets, TLS and name look-ups: carries out the operations of [`Brokers`], without blocking.
//!
//! One thread drives the connections of its clients, each of them a [`Brokers`], by `poll`. A name is looked up on a
//! thread of its own, since the system's look-up blocks; its addresses are attempted one after the other, starting with
//! a different one after each attempt that timed out (KIP-302). Connection attempts to a broker that does not respond
//! are spaced across all clients of the process ([`Contact`]).
//!
//! **Failure**: errors of a connection are reported to its [`Brokers`], which retries. Rejected certificates and
//! unknown names are reported as problems that a person has to fix.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read as _;
use std::net::IpAddr;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use self::failure::Failure;
use self::lookup::Lookups;
use self::socket::{Entry, Opening, Socket};
use super::brokers::{Act, Address, Brokers, Link};
use crate::cluster::Contact;
use crate::tls::Renewed;

mod failure;
mod lookup;
mod settings;
mod socket;
#[cfg(test)]
mod tests;

pub use self::settings::{Family, SocketSettings};

/// The most addresses whose failures are counted.
const FAILURES_MAX: usize = 1_000;

/// If connections were not polled for this long, they are read before timeouts are applied.
const READ_INTERVAL_MAX: Duration = Duration::from_secs(1);

/// The sockets of one thread's clients.
pub struct Edge {
    tls: Option<Arc<Renewed<rustls::ClientConfig>>>,
    settings: SocketSettings,
    sockets: Vec<Entry>,
    lookups: Option<Lookups>,
    /// How often a connection to an address was given up while its socket was being opened.
    open_failures: BTreeMap<Address, usize>,
    /// The process's knowledge about which brokers respond.
    contact: Arc<Contact>,
    /// Ends a wait once another thread has written to its other end.
    bell: Option<UnixStream>,
    /// Whether the bell has ended the wait.
    is_rung: bool,
    /// When connections were last read from.
    read_at: Option<Instant>,
}

impl fmt::Debug for Edge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Edge").field("sockets", &self.sockets.len()).finish_non_exhaustive()
    }
}

impl Edge {
    /// An edge with TLS by this configuration (authorities, possibly a client certificate), or without TLS. A broker's
    /// certificate has to be issued for the host of its address.
    pub fn new(tls: Option<Arc<Renewed<rustls::ClientConfig>>>, settings: SocketSettings) -> Self {
        Self {
            tls,
            settings,
            sockets: Vec::new(),
            lookups: None,
            open_failures: BTreeMap::new(),
            contact: Arc::default(),
            bell: None,
            is_rung: false,
            read_at: None,
        }
    }

    /// Makes the edge share its knowledge about which brokers respond with other clients of the process.
    pub fn sharing(self, contact: &Arc<Contact>) -> Self {
        Self { contact: Arc::clone(contact), ..self }
    }

    /// Ends a wait whenever `bell` is readable, and drains it. `bell` has to be non-blocking.
    pub fn wake_by(&mut self, bell: UnixStream) {
        self.bell = Some(bell);
    }

    /// Performs all work that does not block, and waits up to `wait` for anything that the client can react to: an
    /// event, a connection that became ready or broke, metadata, the time of [`Brokers::next_tick`], or the bell.
    /// Returns whether the bell rang.
    pub fn drive(&mut self, brokers: &mut Brokers, wait: Duration) -> bool {
        self.drive_all(&mut [brokers], wait)
    }

    /// Like [`Edge::drive`], for several clients of one thread. The connections of a dropped client are closed; those
    /// of a client that is merely not among `clients` stay open.
    pub fn drive_all(&mut self, clients: &mut [&mut Brokers], wait: Duration) -> bool {
        let before: Vec<u64> = clients.iter().map(|brokers| brokers.progress_count()).collect();
        let has_news = |clients: &[&mut Brokers]| {
            clients
                .iter()
                .zip(&before)
                .any(|(brokers, before)| brokers.progress_count() != *before || brokers.has_events())
        };
        let mut now = clock();
        let until = now.checked_add(wait);
        if self.read_at.is_some_and(|at| now.saturating_duration_since(at) > READ_INTERVAL_MAX) {
            // Responses that arrived since the last poll must not count as late.
            self.poll(clients, Duration::ZERO);
            now = clock();
        }
        loop {
            let was_due = self.tick(clients, now);
            let is_done = was_due || has_news(clients);
            let ticks = clients.iter().filter_map(|brokers| brokers.next_tick());
            let next = ticks.chain(self.next_attempt_at(clients)).chain(until).min();
            let pause = match (is_done, next) {
                (true, _) => Duration::ZERO,
                (false, Some(next)) => next.saturating_duration_since(now),
                (false, None) => wait,
            };
            let had_events = self.poll(clients, pause);
            now = clock();
            if had_events {
                self.act(clients, now);
            }
            let is_rung = std::mem::take(&mut self.is_rung);
            if is_done || is_rung || has_news(clients) || until.is_some_and(|until| until <= now) {
                return is_rung;
            }
        }
    }

    /// Ticks the clients, starts due attempts and carries out the clients' operations. Returns whether a client's tick
    /// was due.
    fn tick(&mut self, clients: &mut [&mut Brokers], now: Instant) -> bool {
        let mut was_due = false;
        for brokers in clients.iter_mut() {
            was_due |= brokers.next_tick().is_some_and(|at| at <= now);
            brokers.tick(now);
        }
        self.start_due_attempts(clients, now);
        self.act(clients, now);
        was_due
    }

    /// When the next attempt to open a connection may be made.
    fn next_attempt_at(&self, clients: &[&mut Brokers]) -> Option<Instant> {
        let driven = self.sockets.iter().filter(|entry| owner(clients, &entry.owner).is_some());
        driven.filter_map(Entry::admission).map(|admitted| admitted.at).min()
    }

    /// Starts the waiting attempts that are due.
    fn start_due_attempts(&mut self, clients: &mut [&mut Brokers], now: Instant) {
        for index in 0..self.sockets.len() {
            if let Some(entry) = self.sockets.get(index)
                && entry.admission().is_some()
                && let Some(brokers) = owner_mut(clients, &entry.owner)
            {
                self.start_attempt(index, brokers, now);
            }
        }
    }

    /// Carries out the clients' operations, and writes their output.
    fn act(&mut self, clients: &mut [&mut Brokers], now: Instant) {
        for brokers in clients.iter_mut() {
            while let Some(act) = brokers.next_act() {
                match act {
                    Act::Connect { link, address } => self.connect(brokers, link, address, now),
                    Act::Close { link } => self.close(brokers, link),
                }
            }
        }
        for entry in &mut self.sockets {
            if let Some(brokers) = owner_mut(clients, &entry.owner) {
                entry.write(brokers, now);
            }
        }
        self.sockets.retain(|entry| {
            entry.owner.strong_count() > 0
                && owner(clients, &entry.owner).is_none_or(|brokers| brokers.is_in_use(entry.link))
        });
    }

    fn connect(&mut self, brokers: &mut Brokers, link: Link, address: Address, now: Instant) {
        // At most half of the timeout is for waiting: the rest is for the attempt itself.
        let wait_max = brokers.connect_timeout() / 2;
        let socket = Socket::Waiting(self.contact.admit(&address.to_string(), now, wait_max));
        self.sockets.push(Entry { owner: brokers.identity(), link, address, socket, has_responded: false });
        self.start_attempt(self.sockets.len() - 1, brokers, now);
    }

    /// Starts to open a connection, if the attempt may be made now.
    fn start_attempt(&mut self, index: usize, brokers: &mut Brokers, now: Instant) {
        let Some(entry) = self.sockets.get_mut(index) else { return };
        let Some(admitted) = entry.admission() else { return };
        if !self.contact.is_due(&entry.address.to_string(), admitted, now) {
            return;
        }
        self.contact.count_attempt();
        if let Ok(ip) = entry.address.host.parse::<IpAddr>() {
            entry.socket = Socket::Opening(Opening::new(vec![(ip, entry.address.port).into()], self.settings));
            return entry.advance(false, self.tls.as_deref(), brokers, now);
        }
        entry.socket = Socket::LookingUp;
        if self.lookups.is_none() {
            self.lookups = Lookups::new().map_err(|error| tracing::warn!("cannot set up name look-ups: {error}")).ok();
        }
        let started = self.lookups.as_mut().map(|lookups| lookups.start(&entry.address));
        if !matches!(started, Some(Ok(()))) {
            let reason = "its name cannot be looked up: out of threads or file descriptors";
            entry.fail(Failure::temporary(reason), brokers, now);
        }
    }

    fn close(&mut self, brokers: &Brokers, link: Link) {
        let is_entry = |entry: &Entry| entry.link == link && brokers.is_identified_by(&entry.owner);
        let index = self.sockets.iter().position(is_entry);
        let Some(entry) = index.map(|index| self.sockets.swap_remove(index)) else { return };
        if matches!(entry.socket, Socket::Opening(_)) {
            self.count_open_failure(entry.address);
        }
    }

    /// Counts a failure, so that the next connection to this name starts with another of its IP addresses.
    fn count_open_failure(&mut self, address: Address) {
        if self.open_failures.len() < FAILURES_MAX || self.open_failures.contains_key(&address) {
            *self.open_failures.entry(address).or_default() += 1;
        }
    }

    /// Waits for events, and handles them. Returns whether any occurred.
    fn poll(&mut self, clients: &mut [&mut Brokers], wait: Duration) -> bool {
        let mut polled = Vec::with_capacity(self.sockets.len() + 1);
        let mut indices = Vec::with_capacity(self.sockets.len());
        for (index, entry) in self.sockets.iter().enumerate() {
            if let Some(brokers) = owner(clients, &entry.owner)
                && let Some((stream, flags)) = entry.interest(brokers)
            {
                polled.push(PollFd::from_borrowed_fd(stream.as_fd(), flags));
                indices.push(index);
            }
        }
        // After the sockets: the bell of the look-ups, if there are any, then this edge's bell.
        polled.extend(self.lookups.as_ref().map(|lookups| PollFd::from_borrowed_fd(lookups.bell(), PollFlags::IN)));
        polled.extend(self.bell.as_ref().map(|bell| PollFd::from_borrowed_fd(bell.as_fd(), PollFlags::IN)));
        let wait = Timespec {
            tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(wait.subsec_nanos()),
        };
        let had_events = matches!(poll(&mut polled, Some(&wait)), Ok(1..));
        let now = clock();
        self.read_at = Some(now);
        if !had_events {
            return false;
        }
        let events: Vec<PollFlags> = polled.iter().map(PollFd::revents).collect();
        drop(polled);
        for (index, flags) in indices.iter().zip(&events).filter(|(_, flags)| !flags.is_empty()) {
            if let Some(entry) = self.sockets.get_mut(*index)
                && let Some(brokers) = owner_mut(clients, &entry.owner)
            {
                entry.handle_events(*flags, self.tls.as_deref(), brokers, now);
                if flags.contains(PollFlags::IN) && brokers.was_ready(entry.link) {
                    // Only a connection's first response releases the attempts that wait for this address.
                    match std::mem::replace(&mut entry.has_responded, true) {
                        true => self.contact.note_response(),
                        false => self.contact.note_first_response(&entry.address.to_string()),
                    }
                }
            }
        }
        let mut other_events = events.iter().skip(indices.len()).map(|flags| !flags.is_empty());
        if self.lookups.is_some() && other_events.next() == Some(true) {
            self.handle_lookups(clients, now);
        }
        if let Some(bell) = &mut self.bell
            && other_events.next() == Some(true)
        {
            self.is_rung = true;
            while matches!(bell.read(&mut [0; 64]), Ok(1..)) {}
        }
        true
    }

    /// Handles the results of name look-ups.
    fn handle_lookups(&mut self, clients: &mut [&mut Brokers], now: Instant) {
        let Some(lookups) = &mut self.lookups else { return };
        for (address, result) in lookups.take_results() {
            let open_failures = self.open_failures.get(&address).copied().unwrap_or(0);
            for entry in &mut self.sockets {
                if !matches!(entry.socket, Socket::LookingUp) || entry.address != address {
                    continue;
                }
                let Some(brokers) = owner_mut(clients, &entry.owner) else {
                    // The client is not driven in this call and misses the result: its attempt times out and is
                    // repeated.
                    continue;
                };
                match &result {
                    Ok(addresses) => {
                        let mut addresses = addresses.clone();
                        let first = open_failures % addresses.len().max(1);
                        addresses.rotate_left(first);
                        entry.socket = Socket::Opening(Opening::new(addresses, self.settings));
                        entry.advance(false, self.tls.as_deref(), brokers, now);
                    }
                    Err(Failure { kind, reason }) => {
                        entry.fail(Failure { kind: *kind, reason: reason.clone() }, brokers, now);
                    }
                }
            }
        }
    }
}

/// The client with this identity, if it is among `clients`.
fn owner<'a>(clients: &'a [&mut Brokers], identity: &Weak<()>) -> Option<&'a Brokers> {
    clients.iter().find(|brokers| brokers.is_identified_by(identity)).map(|brokers| &**brokers)
}

fn owner_mut<'a>(clients: &'a mut [&mut Brokers], identity: &Weak<()>) -> Option<&'a mut Brokers> {
    clients.iter_mut().find(|brokers| brokers.is_identified_by(identity)).map(|brokers| &mut **brokers)
}

#[expect(clippy::disallowed_methods, reason = "the edge gives the time to the state machines")]
fn clock() -> Instant {
    Instant::now()
}
