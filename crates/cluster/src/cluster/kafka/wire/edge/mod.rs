//! Sockets, TLS and name look-ups: does what [`Brokers`] asks for, without blocking.
//!
//! One thread drives its clients' connections by `poll`. A name is looked up on a thread of its own, since the system's
//! look-up blocks; its addresses are tried one after the other, starting with a different one after each failure to
//! connect (KIP-302). Attempts at a broker that does not answer are spaced across all clients of the process
//! ([`Contact`]).
//!
//! **Failure**: errors of a connection are reported to its [`Brokers`], which retries. Rejected certificates and
//! unknown names are reported as trouble that a person has to fix.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read as _;
use std::net::IpAddr;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use self::end::End;
use self::lookup::Lookups;
use self::socket::{Entry, Opening, Socket};
use super::brokers::{Act, Address, Brokers, Link};
use crate::cluster::Contact;
use crate::tls::Renewed;

mod end;
mod lookup;
mod settings;
mod socket;
#[cfg(test)]
mod tests;

pub use self::settings::{Family, SocketSettings};

/// The most addresses whose failures are remembered.
const TURNS_MAX: usize = 1_000;

/// Connections not polled for this long are read before timeouts are applied.
const READ_EVERY: Duration = Duration::from_secs(1);

/// The sockets of one thread's clients.
pub struct Edge {
    tls: Option<Arc<Renewed<rustls::ClientConfig>>>,
    settings: SocketSettings,
    sockets: Vec<Entry>,
    lookups: Option<Lookups>,
    /// How often connections to an address could not be opened.
    turns: BTreeMap<Address, usize>,
    /// What the process knows of the brokers.
    contact: Arc<Contact>,
    /// Ends a wait when it is readable.
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
    /// With TLS by this configuration (authorities, a certificate of the client's), or without TLS. A broker's
    /// certificate has to be for the host of its address.
    pub fn new(tls: Option<Arc<Renewed<rustls::ClientConfig>>>, settings: SocketSettings) -> Self {
        Self {
            tls,
            settings,
            sockets: Vec::new(),
            lookups: None,
            turns: BTreeMap::new(),
            contact: Arc::default(),
            bell: None,
            is_rung: false,
            read_at: None,
        }
    }

    /// The same, sharing knowledge of the brokers with other clients of the process.
    pub fn sharing(self, contact: &Arc<Contact>) -> Self {
        Self { contact: Arc::clone(contact), ..self }
    }

    /// Ends a wait whenever `bell` is readable, and drains it. `bell` has to be non-blocking.
    pub fn wake_by(&mut self, bell: UnixStream) {
        self.bell = Some(bell);
    }

    /// Does what can be done without blocking, and waits up to `wait` for something that the client can act upon: an
    /// event, a connection that became ready or broke, metadata, the time of [`Brokers::next_tick`], or the bell.
    /// Returns whether the bell rang.
    pub fn drive(&mut self, brokers: &mut Brokers, wait: Duration) -> bool {
        self.drive_all(&mut [brokers], wait)
    }

    /// The same for several clients of one thread. The connections of a dropped client are closed; those of a client
    /// that is merely not among `brokers` stay as they are.
    pub fn drive_all(&mut self, brokers: &mut [&mut Brokers], wait: Duration) -> bool {
        let before: Vec<u64> = brokers.iter().map(|brokers| brokers.news()).collect();
        let has_news = |brokers: &[&mut Brokers]| {
            brokers.iter().zip(&before).any(|(brokers, before)| brokers.news() != *before || brokers.has_events())
        };
        let mut now = clock();
        let until = now.checked_add(wait);
        if self.read_at.is_some_and(|at| now.saturating_duration_since(at) > READ_EVERY) {
            // Bytes that arrived since the last poll are not late.
            self.poll(brokers, Duration::ZERO);
            now = clock();
        }
        loop {
            let was_due = self.work(brokers, now);
            let is_over = was_due || has_news(brokers);
            let next =
                brokers.iter().filter_map(|brokers| brokers.next_tick()).chain(self.next_begin(brokers)).chain(until);
            let next = next.min();
            let pause = match (is_over, next) {
                (true, _) => Duration::ZERO,
                (false, Some(next)) => next.saturating_duration_since(now),
                (false, None) => wait,
            };
            let happened = self.poll(brokers, pause);
            now = clock();
            if happened {
                self.act(brokers, now);
            }
            let is_rung = std::mem::take(&mut self.is_rung);
            if is_over || is_rung || has_news(brokers) || until.is_some_and(|until| until <= now) {
                return is_rung;
            }
        }
    }

    /// Does what is due, and what can be done at once. Returns whether a client's tick was due.
    fn work(&mut self, brokers: &mut [&mut Brokers], now: Instant) -> bool {
        let mut was_due = false;
        for brokers in brokers.iter_mut() {
            was_due |= brokers.next_tick().is_some_and(|at| at <= now);
            brokers.tick(now);
        }
        self.begin_due(brokers, now);
        self.act(brokers, now);
        was_due
    }

    /// When the next attempt to open a connection may be made.
    fn next_begin(&self, brokers: &[&mut Brokers]) -> Option<Instant> {
        let driven = self.sockets.iter().filter(|entry| owner(brokers, &entry.owner).is_some());
        driven.filter_map(Entry::waits).map(|admitted| admitted.at).min()
    }

    /// Makes the waiting attempts that are due.
    fn begin_due(&mut self, brokers: &mut [&mut Brokers], now: Instant) {
        for place in 0..self.sockets.len() {
            if let Some(entry) = self.sockets.get(place)
                && entry.waits().is_some()
                && let Some(brokers) = owner_mut(brokers, &entry.owner)
            {
                self.begin(place, brokers, now);
            }
        }
    }

    /// Does what the clients ask for, and writes their output.
    fn act(&mut self, brokers: &mut [&mut Brokers], now: Instant) {
        for brokers in brokers.iter_mut() {
            while let Some(act) = brokers.next_act() {
                match act {
                    Act::Connect { link, address } => self.connect(brokers, link, address, now),
                    Act::Close { link } => self.close(brokers, link),
                }
            }
        }
        for entry in &mut self.sockets {
            if let Some(brokers) = owner_mut(brokers, &entry.owner) {
                entry.write(brokers, now);
            }
        }
        self.sockets.retain(|entry| {
            entry.owner.strong_count() > 0
                && owner(brokers, &entry.owner).is_none_or(|brokers| brokers.knows(entry.link))
        });
    }

    fn connect(&mut self, brokers: &mut Brokers, link: Link, address: Address, now: Instant) {
        let socket = Socket::Waiting(self.contact.admit(&address.to_string(), now, None));
        self.sockets.push(Entry { owner: brokers.alive(), link, address, socket, is_heard: false });
        self.begin(self.sockets.len() - 1, brokers, now);
    }

    /// Begins to open a connection, if the attempt may be made now.
    fn begin(&mut self, place: usize, brokers: &mut Brokers, now: Instant) {
        let Some(entry) = self.sockets.get_mut(place) else { return };
        let Some(admitted) = entry.waits() else { return };
        if !self.contact.is_due(&entry.address.to_string(), admitted, now) {
            return;
        }
        self.contact.tries();
        if let Ok(ip) = entry.address.host.parse::<IpAddr>() {
            entry.socket = Socket::Opening(Opening::new(vec![(ip, entry.address.port).into()], self.settings));
            return entry.advance(false, self.tls.as_deref(), brokers, now);
        }
        entry.socket = Socket::Named;
        if self.lookups.is_none() {
            self.lookups = Lookups::new().map_err(|error| tracing::warn!("cannot set up name look-ups: {error}")).ok();
        }
        let asked = self.lookups.as_mut().map(|lookups| lookups.ask(&entry.address));
        if !matches!(asked, Some(Ok(()))) {
            entry.end(End::passing("its name cannot be looked up: out of threads or file descriptors"), brokers, now);
        }
    }

    fn close(&mut self, brokers: &Brokers, link: Link) {
        let at = self.sockets.iter().position(|entry| entry.link == link && brokers.is(&entry.owner));
        let Some(entry) = at.map(|at| self.sockets.swap_remove(at)) else { return };
        if matches!(entry.socket, Socket::Opening(_)) {
            self.missed(entry.address);
        }
    }

    /// Makes the next connection to this name start with another of its IP addresses.
    fn missed(&mut self, address: Address) {
        if self.turns.len() < TURNS_MAX || self.turns.contains_key(&address) {
            *self.turns.entry(address).or_default() += 1;
        }
    }

    /// Waits for events, and handles them. Returns whether there were any.
    fn poll(&mut self, brokers: &mut [&mut Brokers], wait: Duration) -> bool {
        let mut polled = Vec::with_capacity(self.sockets.len() + 1);
        let mut places = Vec::with_capacity(self.sockets.len());
        for (place, entry) in self.sockets.iter().enumerate() {
            if let Some(brokers) = owner(brokers, &entry.owner)
                && let Some((stream, flags)) = entry.interest(brokers)
            {
                polled.push(PollFd::from_borrowed_fd(stream.as_fd(), flags));
                places.push(place);
            }
        }
        polled.extend(self.lookups.as_ref().map(|lookups| PollFd::from_borrowed_fd(lookups.done(), PollFlags::IN)));
        polled.extend(self.bell.as_ref().map(|bell| PollFd::from_borrowed_fd(bell.as_fd(), PollFlags::IN)));
        let wait = Timespec {
            tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(wait.subsec_nanos()),
        };
        let is_any = matches!(poll(&mut polled, Some(&wait)), Ok(1..));
        let now = clock();
        self.read_at = Some(now);
        if !is_any {
            return false;
        }
        let happened: Vec<PollFlags> = polled.iter().map(PollFd::revents).collect();
        drop(polled);
        for (place, flags) in places.iter().zip(&happened).filter(|(_, flags)| !flags.is_empty()) {
            if let Some(entry) = self.sockets.get_mut(*place)
                && let Some(brokers) = owner_mut(brokers, &entry.owner)
            {
                entry.happened(*flags, self.tls.as_deref(), brokers, now);
                if flags.contains(PollFlags::IN) && brokers.is_reached(entry.link) {
                    match std::mem::replace(&mut entry.is_heard, true) {
                        true => self.contact.heard(),
                        false => self.contact.reached(&entry.address.to_string()),
                    }
                }
            }
        }
        let mut others = happened.iter().skip(places.len()).map(|flags| !flags.is_empty());
        if self.lookups.is_some() && others.next() == Some(true) {
            self.looked_up(brokers, now);
        }
        if let Some(bell) = &mut self.bell
            && others.next() == Some(true)
        {
            self.is_rung = true;
            while matches!(bell.read(&mut [0; 64]), Ok(1..)) {}
        }
        true
    }

    /// Handles the names that were looked up.
    fn looked_up(&mut self, brokers: &mut [&mut Brokers], now: Instant) {
        let Some(lookups) = &mut self.lookups else { return };
        for (address, found) in lookups.take() {
            let turn = self.turns.get(&address).copied().unwrap_or(0);
            for entry in &mut self.sockets {
                if !matches!(entry.socket, Socket::Named) || entry.address != address {
                    continue;
                }
                let Some(brokers) = owner_mut(brokers, &entry.owner) else {
                    // Its client is not driven in this call and misses the result: it times out and asks again.
                    continue;
                };
                match &found {
                    Ok(addresses) => {
                        let mut addresses = addresses.clone();
                        let from = turn % addresses.len().max(1);
                        addresses.rotate_left(from);
                        entry.socket = Socket::Opening(Opening::new(addresses, self.settings));
                        entry.advance(false, self.tls.as_deref(), brokers, now);
                    }
                    Err(end) => entry.end(End { kind: end.kind, reason: end.reason.clone() }, brokers, now),
                }
            }
        }
    }
}

fn owner<'a>(brokers: &'a [&mut Brokers], owner: &Weak<()>) -> Option<&'a Brokers> {
    brokers.iter().find(|brokers| brokers.is(owner)).map(|brokers| &**brokers)
}

fn owner_mut<'a>(brokers: &'a mut [&mut Brokers], owner: &Weak<()>) -> Option<&'a mut Brokers> {
    brokers.iter_mut().find(|brokers| brokers.is(owner)).map(|brokers| &mut **brokers)
}

#[expect(clippy::disallowed_methods, reason = "the edge gives the time to the state machines")]
fn clock() -> Instant {
    Instant::now()
}
