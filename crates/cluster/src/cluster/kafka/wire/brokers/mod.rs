//! One client's connections, the partitions' leaders, and which requests failed.
//!
//! A state machine: operations on sockets are [`Act`]s, input is passed in by link number, and the time is an argument.
//! Each client (a fetcher, a writer) has its own; [`super::edge::Edge`] or a simulation drives it.
//!
//! - A connection is opened on demand, one for each [`Use`], and again after it broke, with exponential back-off and
//!   jitter. It is closed after nine minutes without use: the broker would close it after ten, and a request that is
//!   under way just then would be lost.
//! - Metadata is requested when an unknown leader is looked up, when a leader is doubted, when a connection to a broker
//!   breaks, and by age. If a broker's answers do not help, another one is asked. While none of the known brokers can
//!   be reached, the bootstrap addresses are tried again (as KIP-899).
//! - Metadata of another cluster than before is rejected: a name may now point somewhere else.
//!
//! **Failure**: each request ends in exactly one [`Event`]. [`Event::Failed`] says whether any of it was written.
//! Trouble that a person has to fix is kept in [`Brokers::trouble`] as well, until the broker can be used again;
//! attempts continue meanwhile.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io::IoSlice;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use rand::SeedableRng as _;
use rand::rngs::StdRng;

pub use self::answer::{METADATA, METADATA_VERSIONS};
use self::hosts::Hosts;
use self::metadata::Metadata;
use self::place::Place;
pub use self::types::{Act, Address, Event, Leader, Link, NotAddress, RequestId, Settings, Trouble, TroubleKind, Use};
use super::connection::{Fault, Pool, Request, Versions};
pub use super::login::Login;

mod answer;
mod backoff;
mod hosts;
mod links;
mod metadata;
mod place;
#[cfg(test)]
pub(in crate::cluster::kafka) mod tests;
mod types;

/// The brokers as one client sees them.
pub struct Brokers {
    settings: Arc<Settings>,
    hosts: Hosts,
    metadata: Metadata,
    places: BTreeMap<(i32, Use), Place>,
    links: BTreeMap<Link, (i32, Use)>,
    acts: VecDeque<Act>,
    events: VecDeque<Event>,
    pool: Pool,
    random: StdRng,
    trouble: Option<Trouble>,
    failure: Option<String>,
    /// Whether any broker is wanted, and no connection was ready.
    is_seeking: bool,
    /// The broker that was last tried when any was wanted.
    tried: Option<i32>,
    next_request: u64,
    next_link: u64,
    /// How often there was something to act upon: see [`Brokers::news`].
    news: u64,
    /// The latest time that was passed in.
    clock: Option<Instant>,
    /// The time of the last tick.
    ticked: Option<Instant>,
    /// Dropped with this value, which the edge notices.
    alive: Arc<()>,
}

impl fmt::Debug for Brokers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { hosts, links, trouble, failure, .. } = self;
        let mut shown = f.debug_struct("Brokers");
        shown.field("hosts", hosts).field("links", links).field("trouble", trouble).field("failure", failure);
        shown.finish_non_exhaustive()
    }
}

impl Brokers {
    /// A client of the cluster at these addresses. Nothing is done before the first [`Brokers::tick`].
    pub fn new(settings: Arc<Settings>, bootstrap: Vec<Address>) -> Self {
        Self::with_random(settings, bootstrap, StdRng::from_seed(rand::random()))
    }

    /// The same, with its randomness (jitter, nonces of logins) from this seed: for simulations only.
    pub fn seeded(settings: Arc<Settings>, bootstrap: Vec<Address>, seed: u64) -> Self {
        Self::with_random(settings, bootstrap, StdRng::seed_from_u64(seed))
    }

    fn with_random(settings: Arc<Settings>, bootstrap: Vec<Address>, random: StdRng) -> Self {
        Self {
            pool: Pool::new(settings.response_bytes_max),
            settings,
            hosts: Hosts::new(bootstrap),
            metadata: Metadata::default(),
            places: BTreeMap::new(),
            links: BTreeMap::new(),
            acts: VecDeque::new(),
            events: VecDeque::new(),
            random,
            trouble: None,
            failure: None,
            is_seeking: false,
            tried: None,
            next_request: 0,
            next_link: 0,
            news: 0,
            clock: None,
            ticked: None,
            alive: Arc::new(()),
        }
    }

    /// Follows the leaders of these topics from now on, in addition to those before.
    pub fn watch(&mut self, topics: &[Arc<str>]) {
        let news = topics.iter().filter(|topic| self.metadata.watch(topic)).count();
        if let Some(clock) = self.clock.filter(|_| news > 0) {
            self.metadata.want_at_once(clock);
            self.pursue(clock);
        }
    }

    /// No longer follows a topic's leaders, and forgets what is known of it.
    pub fn unwatch(&mut self, topic: &str) {
        self.metadata.unwatch(topic);
    }

    /// The last known leader of a watched topic's partition. `None` while it is unknown or in doubt; then the next tick
    /// requests metadata, with back-off.
    pub fn leader(&self, topic: &str, partition: i32) -> Option<Leader> {
        self.metadata.leader(topic, partition)
    }

    /// A topic's error in the latest metadata, by Kafka's number: missing (3), denied (29). Known leaders stay valid: a
    /// broker may learn of a topic later than others.
    pub fn topic_error(&self, topic: &str) -> Option<i16> {
        self.metadata.error(topic)
    }

    /// A watched topic's id (KIP-516), zeros if the brokers give none; `None` while nothing is known.
    pub fn topic_id(&self, topic: &str) -> Option<[u8; 16]> {
        self.metadata.id(topic)
    }

    /// How many partitions a watched topic has; `None` while nothing is known.
    pub fn partition_count(&self, topic: &str) -> Option<usize> {
        self.metadata.partition_count(topic)
    }

    /// Requests metadata again soon, with back-off: because a broker said that it is not the leader, for example.
    /// `seen` is the leader that was wrong: if newer metadata has replaced it, nothing is requested. Else the partition
    /// has no leader until the next answer.
    pub fn doubt(&mut self, topic: &str, partition: i32, seen: Option<Leader>, now: Instant) {
        self.at(now);
        if self.metadata.doubt(topic, partition, seen) {
            self.metadata.want(now, &self.settings, &mut self.random);
            self.pursue(now);
        }
    }

    /// Opens the connection `use_` to `node` unless it is open. Returns the versions that the broker offers once
    /// requests can be sent; `None` until then, and while the connection is muted or renews its login.
    pub fn ready(&mut self, node: i32, use_: Use, now: Instant) -> Option<&Versions> {
        self.at(now);
        self.want_open(node, use_, now);
        let place = self.places.get(&(node, use_))?;
        place.is_ready(now).then(|| place.versions()).flatten()
    }

    /// Whether the connection `use_` to `node` was lost, or could not be opened, and has not been ready since; or the
    /// latest metadata does not contain the node.
    pub fn is_failing(&self, node: i32, use_: Use) -> bool {
        let place = self.places.get(&(node, use_));
        place.map_or_else(|| self.hosts.address(node).is_none(), Place::is_failing)
    }

    /// Sends nothing on this connection until `until`, because of a throttle time (KIP-219). This is for the reader of
    /// a Produce response; the throttle times of all other responses are applied when they arrive. Brokers mute only
    /// the connection on which the request came, and so does this.
    pub fn mute(&mut self, node: i32, use_: Use, until: Instant) {
        if let Some(place) = self.places.get_mut(&(node, use_)) {
            place.mute(until);
        }
    }

    /// Sends on a connection that is [`Brokers::ready`]; on any other the request fails unsent. Without a response
    /// within `timeout`, the connection is closed and all of its requests fail.
    pub fn send(&mut self, node: i32, use_: Use, request: Request, timeout: Duration, now: Instant) -> RequestId {
        self.at(now);
        self.post(node, use_, request, timeout, now).unwrap_or_else(|(id, reason)| {
            self.events.push_back(Event::Failed { id, sent: false, reason });
            id
        })
    }

    /// The number of any broker with a ready [`Use::Control`] connection; negative for a bootstrap address. If no
    /// connection is ready, one is opened: call again at the next tick.
    pub fn any(&mut self, now: Instant) -> Option<i32> {
        self.at(now);
        let node = self.pick(None, now);
        self.is_seeking = node.is_none();
        node
    }

    /// Requests metadata at once, even if no topic is watched.
    pub fn ask_for_nodes(&mut self, now: Instant) {
        self.at(now);
        self.metadata.want_at_once(now);
        self.pursue(now);
    }

    /// The brokers in the latest metadata.
    pub fn nodes(&self) -> Vec<i32> {
        self.hosts.nodes_after(None).collect()
    }

    /// The numbers of the bootstrap addresses.
    pub fn bootstrap(&self) -> impl Iterator<Item = i32> {
        self.hosts.bootstrap_after(None)
    }

    /// A broker's address.
    pub fn address(&self, node: i32) -> Option<&Address> {
        self.hosts.address(node)
    }

    /// The next event, in order.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The last trouble that a person has to fix, until the broker concerned can be used again.
    pub fn trouble(&self) -> Option<&Trouble> {
        self.trouble.as_ref()
    }

    /// Why the last connection broke or could not be opened, for the error of a caller that waits in vain; `None` once
    /// metadata has arrived after that.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// The latest time for the next [`Brokers::tick`]; if it has passed, at once. `None` before the first tick, which
    /// the caller has to make unprompted.
    pub fn next_tick(&self) -> Option<Instant> {
        let (ticked, clock) = (self.ticked?, self.clock?);
        if self.metadata.is_missed() {
            return Some(clock);
        }
        let seeks = self.is_seeking || self.metadata.due(&self.settings).is_some_and(|due| due <= ticked);
        let places = self.places.iter().flat_map(|((_, use_), place)| place.times(seeks && *use_ == Use::Control));
        places.chain(self.metadata.due(&self.settings)).filter(|at| *at > ticked).min()
    }

    /// Does what is due: timeouts, retries, metadata.
    pub fn tick(&mut self, now: Instant) {
        self.at(now);
        if self.ticked.is_none() && self.metadata.topics().len() > 0 {
            self.metadata.want_at_once(now);
        }
        self.ticked = Some(now);
        self.tick_places(now);
        self.metadata.look(now, &self.settings, &mut self.random);
        self.pursue(now);
    }

    /// An empty buffer for a request, reused if one is available.
    pub fn buffer(&mut self) -> Vec<u8> {
        self.pool.blank()
    }

    /// Takes a response's buffer back for reuse.
    pub fn recycle(&mut self, buffer: Vec<u8>) {
        self.pool.put(buffer);
    }

    /// What the edge has to do next.
    pub fn next_act(&mut self) -> Option<Act> {
        self.acts.pop_front()
    }

    /// Reports that a connection is open, including TLS.
    pub fn connected(&mut self, link: Link, now: Instant) {
        self.at(now);
        let done = self.on(link, now, |place, shared| place.connected(shared));
        if let Some(Err(fault)) = done {
            self.lose(link, fault, true, now);
        }
    }

    /// Reports that a connection could not be opened, or is broken: refused, reset, closed by the broker. `reason` says
    /// what the broker did: "it …". A link that is not (or no longer) known is ignored.
    pub fn broke(&mut self, link: Link, reason: &str, now: Instant) {
        self.at(now);
        self.lose(link, Fault::passing(reason), false, now);
    }

    /// Like [`Brokers::broke`], for trouble that a person has to fix.
    pub fn refused(&mut self, link: Link, kind: TroubleKind, reason: &str, now: Instant) {
        self.at(now);
        self.lose(link, Fault { kind: Some(kind), reason: reason.to_owned() }, false, now);
    }

    /// The buffer to read into; empty if the link is not (or no longer) known.
    pub fn input(&mut self, link: Link) -> &mut [u8] {
        let place = self.links.get(&link).and_then(|key| self.places.get_mut(key));
        place.and_then(Place::input).unwrap_or_default()
    }

    /// Reports that `bytes` were read into [`Brokers::input`].
    pub fn filled(&mut self, link: Link, bytes: usize, now: Instant) {
        self.at(now);
        self.take_in(link, bytes, now);
    }

    /// Appends the pending output, as slices in order, not necessarily all of it; nothing if the link is not (or no
    /// longer) known.
    pub fn output<'a>(&'a self, link: Link, slices: &mut Vec<IoSlice<'a>>) {
        if let Some(place) = self.place(link) {
            place.output(slices);
        }
    }

    /// Reports that `bytes` of the output were written, or may have been.
    pub fn written(&mut self, link: Link, bytes: usize, now: Instant) {
        self.at(now);
        self.on(link, now, |place, shared| place.written(bytes, shared));
    }

    /// Whether there is pending output.
    pub(super) fn has_output(&self, link: Link) -> bool {
        self.place(link).is_some_and(Place::has_output)
    }

    /// Whether the link is or was ready: its broker has answered.
    pub(super) fn is_reached(&self, link: Link) -> bool {
        self.place(link).and_then(|place| place.open.as_ref()).is_some_and(|open| open.connection.was_ready())
    }

    /// Whether the link is in use; the edge drops all others.
    pub(super) fn knows(&self, link: Link) -> bool {
        self.links.contains_key(&link)
    }

    /// A number that rises with each answer, each connection that became ready or broke, and each answer with metadata:
    /// the client then has something to act upon.
    pub fn news(&self) -> u64 {
        self.news
    }

    /// Whether there are events to be taken.
    pub(super) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Identifies this value for as long as it lives.
    pub(super) fn alive(&self) -> Weak<()> {
        Arc::downgrade(&self.alive)
    }

    /// Whether `alive` identifies this value.
    pub(super) fn is(&self, alive: &Weak<()>) -> bool {
        std::ptr::eq(Arc::as_ptr(&self.alive), alive.as_ptr())
    }

    fn at(&mut self, now: Instant) {
        self.clock = self.clock.max(Some(now));
    }
}
