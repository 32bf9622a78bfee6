//! One client's connections, the partitions' leaders, and which requests failed.
//!
//! A state machine: operations on sockets are [`Act`]s, input is passed in with the number of its connection (a
//! [`Link`]), and the time is an argument. Each client (a fetcher, a writer) has its own. The edge, which is
//! [`super::edge::Edge`] or a simulation, carries out the operations, and calls [`Brokers::tick`] when a tick is due.
//!
//! - A connection is opened on demand, one for each broker and [`Purpose`], and opened again after it broke, with
//!   exponential backoff and jitter. It is closed after nine minutes without use: the broker would close it after ten,
//!   and a request sent at that moment would be lost.
//! - Metadata is requested when an unknown leader is looked up, when a leader is doubted, when a connection to a broker
//!   breaks, and by age. If a broker's responses do not help, the next request goes to another broker. While none of
//!   the known brokers can be reached, the bootstrap addresses are attempted again (as in KIP-899).
//! - Metadata of a different cluster is rejected: a broker's name may now point to another machine.
//!
//! **Failure**: each request ends in exactly one [`Event`]. [`Event::Failed`] says whether any of it was written.
//! A problem that a person has to fix is available from [`Brokers::trouble`] as well, until the broker can be used
//! again; meanwhile the attempts continue.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io::IoSlice;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use rand::SeedableRng as _;
use rand::rngs::StdRng;

use self::channel::Channel;
use self::hosts::Hosts;
use self::metadata::Metadata;
pub use self::metadata_messages::{METADATA, METADATA_VERSIONS};
pub use self::types::{
    Act, Address, Event, InvalidAddress, Leader, Link, Purpose, RequestId, Settings, Trouble, TroubleKind,
};
use super::connection::{Fault, Pool, Request, Versions};
pub use super::login::Login;

mod backoff;
mod channel;
mod hosts;
mod links;
mod metadata;
mod metadata_messages;
#[cfg(test)]
pub(in crate::cluster::kafka) mod tests;
mod types;

/// One client's view of the brokers, and its connections to them.
pub struct Brokers {
    settings: Arc<Settings>,
    hosts: Hosts,
    metadata: Metadata,
    /// By the broker's number and the purpose. A channel stays while its connection is closed and opened anew.
    channels: BTreeMap<(i32, Purpose), Channel>,
    /// The connections that are open or being opened, each with the key of its channel.
    links: BTreeMap<Link, (i32, Purpose)>,
    /// Operations that the edge has not taken yet.
    acts: VecDeque<Act>,
    /// Outcomes of requests that the client has not taken yet.
    events: VecDeque<Event>,
    pool: Pool,
    random: StdRng,
    /// The last problem that a person has to fix: see [`Brokers::trouble`].
    trouble: Option<Trouble>,
    /// Why a connection failed last, for messages: see [`Brokers::failure`].
    failure: Option<String>,
    /// Whether a caller of [`Brokers::any_node`] found no ready connection.
    is_seeking: bool,
    /// The broker that was tried last when any broker would do.
    last_candidate: Option<i32>,
    next_request: u64,
    next_link: u64,
    /// See [`Brokers::progress_count`].
    progress_count: u64,
    /// The latest time that was passed in.
    clock: Option<Instant>,
    /// The time of the last tick.
    ticked_at: Option<Instant>,
    /// The edge holds a [`Weak`] reference to it, and so notices that this value was dropped.
    identity: Arc<()>,
}

impl fmt::Debug for Brokers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { hosts, links, trouble, failure, .. } = self;
        let mut fields = f.debug_struct("Brokers");
        fields.field("hosts", hosts).field("links", links).field("trouble", trouble).field("failure", failure);
        fields.finish_non_exhaustive()
    }
}

impl Brokers {
    /// A client of the cluster at these bootstrap addresses. No connection is opened before the first
    /// [`Brokers::tick`].
    pub fn new(settings: Arc<Settings>, bootstrap: Vec<Address>) -> Self {
        Self::with_random(settings, bootstrap, StdRng::from_seed(rand::random()))
    }

    /// Like [`Brokers::new`], with the random numbers (jitter, nonces of logins) from this seed: for simulations only.
    pub fn seeded(settings: Arc<Settings>, bootstrap: Vec<Address>, seed: u64) -> Self {
        Self::with_random(settings, bootstrap, StdRng::seed_from_u64(seed))
    }

    fn with_random(settings: Arc<Settings>, bootstrap: Vec<Address>, random: StdRng) -> Self {
        Self {
            pool: Pool::new(settings.response_bytes_max),
            settings,
            hosts: Hosts::new(bootstrap),
            metadata: Metadata::default(),
            channels: BTreeMap::new(),
            links: BTreeMap::new(),
            acts: VecDeque::new(),
            events: VecDeque::new(),
            random,
            trouble: None,
            failure: None,
            is_seeking: false,
            last_candidate: None,
            next_request: 0,
            next_link: 0,
            progress_count: 0,
            clock: None,
            ticked_at: None,
            identity: Arc::new(()),
        }
    }

    /// Follows the leaders of these topics from now on, in addition to the topics watched before.
    pub fn watch(&mut self, topics: &[Arc<str>]) {
        let new_topics = topics.iter().filter(|topic| self.metadata.watch(topic)).count();
        if let Some(clock) = self.clock.filter(|_| new_topics > 0) {
            self.metadata.schedule_at_once(clock);
            self.request_due_metadata(clock);
        }
    }

    /// No longer follows a topic's leaders, and forgets its metadata.
    pub fn unwatch(&mut self, topic: &str) {
        self.metadata.unwatch(topic);
    }

    /// The last known leader of a watched topic's partition. `None` while it is unknown or in doubt (see
    /// [`Brokers::doubt_leader`]); then the next tick requests metadata, with backoff.
    pub fn leader(&self, topic: &str, partition: i32) -> Option<Leader> {
        self.metadata.leader(topic, partition)
    }

    /// A topic's error in the latest metadata, by Kafka's number: missing (3), denied (29). Known leaders stay valid: a
    /// broker may learn of a topic later than others.
    pub fn topic_error(&self, topic: &str) -> Option<i16> {
        self.metadata.error(topic)
    }

    /// A watched topic's id (KIP-516), zeros if the brokers report no id; `None` while the topic's metadata is unknown.
    pub fn topic_id(&self, topic: &str) -> Option<[u8; 16]> {
        self.metadata.id(topic)
    }

    /// How many partitions a watched topic has; `None` while the topic's metadata is unknown.
    pub fn partition_count(&self, topic: &str) -> Option<usize> {
        self.metadata.partition_count(topic)
    }

    /// Requests metadata again soon, with backoff: for example, because a broker responded that it is not the leader.
    /// `leader` is the leader that proved wrong: if metadata names another leader by now, no metadata is requested.
    /// Otherwise the leader is in doubt: [`Brokers::leader`] does not return it until the response to a later request
    /// names it again, or any response names another leader.
    pub fn doubt_leader(&mut self, topic: &str, partition: i32, leader: Option<Leader>, now: Instant) {
        self.advance_clock(now);
        if self.metadata.doubt(topic, partition, leader) {
            self.metadata.schedule(now, &self.settings, &mut self.random);
            self.request_due_metadata(now);
        }
    }

    /// Opens the connection to `node` for `purpose` unless it is open. Returns the versions that the broker offers once
    /// requests can be sent; `None` until then, and while the connection is muted or renews its login.
    pub fn ensure_ready(&mut self, node: i32, purpose: Purpose, now: Instant) -> Option<&Versions> {
        self.advance_clock(now);
        self.open_or_schedule(node, purpose, now);
        let channel = self.channels.get(&(node, purpose))?;
        channel.is_ready(now).then(|| channel.versions()).flatten()
    }

    /// Whether a connection to `node` for `purpose` was lost or could not be opened, and no open connection has become
    /// ready since. Without an attempt so far: whether the node's address is unknown.
    pub fn is_failing(&self, node: i32, purpose: Purpose) -> bool {
        let channel = self.channels.get(&(node, purpose));
        channel.map_or_else(|| self.hosts.address(node).is_none(), Channel::is_failing)
    }

    /// Sends no request on this connection until `until`, because of a throttle time (KIP-219). To be called by the
    /// code that decodes Produce responses; the throttle times of all other responses are applied when they arrive.
    /// Like the broker, this mutes only the connection on which the request was sent.
    pub fn mute(&mut self, node: i32, purpose: Purpose, until: Instant) {
        if let Some(channel) = self.channels.get_mut(&(node, purpose)) {
            channel.mute(until);
        }
    }

    /// Sends a request on a connection for which [`Brokers::ensure_ready`] has returned versions; on any other
    /// connection the request fails unsent. Without a response within `timeout`, the connection is closed and all its
    /// requests fail.
    pub fn send(
        &mut self,
        node: i32,
        purpose: Purpose,
        request: Request,
        timeout: Duration,
        now: Instant,
    ) -> RequestId {
        self.advance_clock(now);
        self.try_send(node, purpose, request, timeout, now).unwrap_or_else(|(id, reason)| {
            self.events.push_back(Event::Failed { id, sent: false, reason });
            id
        })
    }

    /// The number of any broker with a ready [`Purpose::Control`] connection; negative for a bootstrap address. If no
    /// such connection is ready, one is opened: call again at the next tick.
    pub fn any_node(&mut self, now: Instant) -> Option<i32> {
        self.advance_clock(now);
        let node = self.pick_node(None, now);
        self.is_seeking = node.is_none();
        node
    }

    /// Requests metadata at once, even if no topic is watched.
    pub fn request_metadata_now(&mut self, now: Instant) {
        self.advance_clock(now);
        self.metadata.schedule_at_once(now);
        self.request_due_metadata(now);
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

    /// The last problem that a person has to fix, until the broker concerned can be used again.
    pub fn trouble(&self) -> Option<&Trouble> {
        self.trouble.as_ref()
    }

    /// Why a connection last broke or could not be opened, for the message of a timeout; `None` if metadata has arrived
    /// since then.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// The time by which [`Brokers::tick`] must be called next; if it has passed, at once. `None` if no tick is
    /// needed, and before the first tick, which the caller makes on its own.
    pub fn next_tick(&self) -> Option<Instant> {
        let (ticked_at, clock) = (self.ticked_at?, self.clock?);
        if self.metadata.has_unscheduled_lookup() {
            return Some(clock);
        }
        let metadata_at = self.metadata.next_request_at(&self.settings);
        let wants_any_broker = self.is_seeking || metadata_at.is_some_and(|at| at <= ticked_at);
        let channel_times = self
            .channels
            .iter()
            .flat_map(|((_, purpose), channel)| channel.tick_times(wants_any_broker && *purpose == Purpose::Control));
        channel_times.chain(metadata_at).filter(|at| *at > ticked_at).min()
    }

    /// Performs the work that is due: timeouts, retries, metadata.
    pub fn tick(&mut self, now: Instant) {
        self.advance_clock(now);
        if self.ticked_at.is_none() && self.metadata.topics().len() > 0 {
            self.metadata.schedule_at_once(now);
        }
        self.ticked_at = Some(now);
        self.tick_channels(now);
        self.metadata.schedule_if_needed(now, &self.settings, &mut self.random);
        self.request_due_metadata(now);
    }

    /// An empty buffer for a request, reused if one is available.
    pub fn buffer(&mut self) -> Vec<u8> {
        self.pool.take_request_buffer()
    }

    /// Takes a response's buffer back for reuse.
    pub fn recycle(&mut self, buffer: Vec<u8>) {
        self.pool.put_response_buffer(buffer);
    }

    /// The next operation for the edge.
    pub fn next_act(&mut self) -> Option<Act> {
        self.acts.pop_front()
    }

    /// Reports that a connection is open, including TLS.
    pub fn connected(&mut self, link: Link, now: Instant) {
        self.advance_clock(now);
        let result = self.with_channel(link, now, |channel, shared| channel.connected(shared));
        if let Some(Err(fault)) = result {
            self.handle_loss(link, fault, true, now);
        }
    }

    /// Reports that a connection could not be opened, or is broken: reset, say, or closed by the broker. `reason`
    /// refers to the broker as "it": "it closed the connection". A link that is not (or no longer) in use is ignored.
    pub fn broke(&mut self, link: Link, reason: &str, now: Instant) {
        self.advance_clock(now);
        self.handle_loss(link, Fault::temporary(reason), false, now);
    }

    /// Like [`Brokers::broke`], for a problem that a person has to fix.
    pub fn refused(&mut self, link: Link, kind: TroubleKind, reason: &str, now: Instant) {
        self.advance_clock(now);
        self.handle_loss(link, Fault { kind: Some(kind), reason: reason.to_owned() }, false, now);
    }

    /// The buffer to read into; empty if the link is not (or no longer) in use.
    pub fn input(&mut self, link: Link) -> &mut [u8] {
        let channel = self.links.get(&link).and_then(|key| self.channels.get_mut(key));
        channel.and_then(Channel::input).unwrap_or_default()
    }

    /// Reports that `bytes` were read into [`Brokers::input`].
    pub fn filled(&mut self, link: Link, bytes: usize, now: Instant) {
        self.advance_clock(now);
        self.handle_input(link, bytes, now);
    }

    /// Appends the pending output, as slices in order, not necessarily all of it; no slices if the link is not (or no
    /// longer) in use.
    pub fn output<'a>(&'a self, link: Link, slices: &mut Vec<IoSlice<'a>>) {
        if let Some(channel) = self.channel(link) {
            channel.output(slices);
        }
    }

    /// Reports that the socket, or TLS before it, has taken this many bytes of the output: from now on they may reach
    /// the broker.
    pub fn written(&mut self, link: Link, bytes: usize, now: Instant) {
        self.advance_clock(now);
        self.with_channel(link, now, |channel, shared| channel.written(bytes, shared));
    }

    /// Whether there is pending output.
    pub(super) fn has_output(&self, link: Link) -> bool {
        self.channel(link).is_some_and(Channel::has_output)
    }

    /// Whether the link is or was ready: its broker has responded.
    pub(super) fn was_ready(&self, link: Link) -> bool {
        self.channel(link).and_then(|channel| channel.open.as_ref()).is_some_and(|open| open.connection.was_ready())
    }

    /// Whether the link is in use; the edge drops all others.
    pub(super) fn is_in_use(&self, link: Link) -> bool {
        self.links.contains_key(&link)
    }

    /// A counter that rises whenever something has happened that a client may wait for: a response to its request or a
    /// response with metadata has arrived, or a connection became ready or broke.
    pub fn progress_count(&self) -> u64 {
        self.progress_count
    }

    /// Whether [`Brokers::next_event`] would return an event.
    pub(super) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// See [`Settings::connect_timeout`].
    pub(super) fn connect_timeout(&self) -> Duration {
        self.settings.connect_timeout
    }

    /// Identifies this value for as long as it lives.
    pub(super) fn identity(&self) -> Weak<()> {
        Arc::downgrade(&self.identity)
    }

    /// Whether `identity` identifies this value.
    pub(super) fn is_identified_by(&self, identity: &Weak<()>) -> bool {
        std::ptr::eq(Arc::as_ptr(&self.identity), identity.as_ptr())
    }

    fn advance_clock(&mut self, now: Instant) {
        self.clock = self.clock.max(Some(now));
    }
}
