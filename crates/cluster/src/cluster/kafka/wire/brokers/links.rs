//! The channels of [`Brokers`]: opens and closes their connections, and reports the outcomes of their requests.
//!
//! A channel belongs to a broker and a [`Purpose`]: together they are its key. A link is the number of one connection
//! of a channel: a connection that is opened anew has another number. The edge carries out the operations on sockets.

use std::time::{Duration, Instant};

use super::Brokers;
use super::backoff::backoff;
use super::channel::{Channel, OpenConnection};
use super::metadata_messages::{METADATA, METADATA_VERSIONS, read_response, request_body};
use super::types::{Act, Address, Event, Link, Purpose, RequestId, Settings, Trouble, TroubleKind};
use crate::cluster::kafka::wire::connection::{Connection, Fault, Pool, Request, Response, Shared};
use crate::cluster::kafka::wire::login::Login;

/// The most characters of a cluster's id in a message; ids usually have 22.
const CLUSTER_CHARS_MAX: usize = 64;

impl Brokers {
    /// The channel of a link.
    pub(super) fn channel(&self, link: Link) -> Option<&Channel> {
        self.links.get(&link).and_then(|key| self.channels.get(key))
    }

    /// Applies `work` to a link's channel; `None` if the link is not in use.
    pub(super) fn with_channel<T>(
        &mut self,
        link: Link,
        now: Instant,
        work: impl FnOnce(&mut Channel, &mut Shared<'_>) -> T,
    ) -> Option<T> {
        let channel = self.links.get(&link).and_then(|key| self.channels.get_mut(key))?;
        let mut shared = shared(&self.settings, &mut self.pool, &mut self.random, now);
        Some(work(channel, &mut shared))
    }

    /// Opens a connection, unless it is open; if its backoff has not passed yet, schedules the attempt. If the broker's
    /// address is unknown, schedules a request for metadata instead.
    pub(super) fn open_or_schedule(&mut self, node: i32, purpose: Purpose, now: Instant) {
        let key = (node, purpose);
        if self.channels.get(&key).is_some_and(|channel| channel.open.is_some()) {
            return;
        }
        if self.hosts.address(node).is_none() {
            self.metadata.schedule(now, &self.settings, &mut self.random);
            self.request_due_metadata(now);
        } else if self.channels.get(&key).is_none_or(|channel| channel.can_open(now)) {
            self.open(node, purpose, now);
        } else if let Some(channel) = self.channels.get_mut(&key) {
            channel.is_wanted = true;
        }
    }

    fn open(&mut self, node: i32, purpose: Purpose, now: Instant) {
        let Some(address) = self.hosts.address(node).cloned() else { return };
        let link = Link(self.next_link);
        self.next_link += 1;
        self.links.insert(link, (node, purpose));
        self.acts.push_back(Act::Connect { link, address: address.clone() });
        let channel = self.channels.entry((node, purpose)).or_default();
        let connection = Connection::new(&self.settings, now);
        channel.open = Some(OpenConnection { link, address, started_at: now, connection });
        (channel.is_wanted, channel.retry_at) = (false, None);
    }

    /// Sends a request.
    ///
    /// # Errors
    /// The id under which the request fails, and why it cannot be sent.
    pub(super) fn try_send(
        &mut self,
        node: i32,
        purpose: Purpose,
        request: Request,
        timeout: Duration,
        now: Instant,
    ) -> Result<RequestId, (RequestId, String)> {
        let id = RequestId(self.next_request);
        self.next_request += 1;
        let open = self.channels.get_mut(&(node, purpose)).and_then(|channel| channel.open.as_mut());
        let Some(open) = open.filter(|open| open.connection.is_ready(now)) else {
            return Err((id, "the broker is not connected".to_owned()));
        };
        let mut shared = shared(&self.settings, &mut self.pool, &mut self.random, now);
        open.connection.send(id, request, timeout, &mut shared).map(|()| id).map_err(|reason| (id, reason))
    }

    /// Handles received bytes.
    pub(super) fn handle_input(&mut self, link: Link, bytes: usize, now: Instant) {
        let Some(key) = self.links.get(&link).copied() else { return };
        let Some(channel) = self.channels.get_mut(&key) else { return };
        let Some(open) = &mut channel.open else { return };
        let was_ready = open.connection.was_ready();
        let (metadata_request, events) = (self.metadata.pending_request(), &mut self.events);
        let (events_before, mut metadata_response) = (events.len(), None);
        let mut on_response = |response: Response| match response {
            response if Some(response.id) == metadata_request => metadata_response = Some(response),
            Response { id, version, body } => events.push_back(Event::Responded { id, version, body }),
        };
        let mut shared = shared(&self.settings, &mut self.pool, &mut self.random, now);
        let input_result = open.connection.filled(bytes, &mut on_response, &mut shared);
        let became_ready = input_result.is_ok() && !was_ready && open.connection.was_ready();
        let muted_until = open.connection.take_throttle().map(|throttle| now + throttle);
        if became_ready {
            self.trouble.take_if(|trouble| trouble.address == open.address);
        }
        if let Some(until) = muted_until {
            channel.mute(until);
        }
        let has_metadata = metadata_response.is_some();
        self.progress_count += u64::from(became_ready || has_metadata || self.events.len() > events_before);
        let metadata_result = metadata_response.map_or(Ok(()), |response| self.apply_metadata(response, now));
        if metadata_result.is_err() {
            self.metadata.request_failed(now, &self.settings, &mut self.random);
        }
        if let Err(fault) = input_result.and(metadata_result) {
            self.handle_loss(link, fault, true, now);
        } else if became_ready || has_metadata {
            self.request_due_metadata(now);
        }
    }

    /// Handles the response to a request for metadata.
    fn apply_metadata(&mut self, response: Response, now: Instant) -> Result<(), Fault> {
        let protocol_fault = |reason: String| Fault { kind: Some(TroubleKind::Protocol), reason };
        let metadata = read_response(response.body.as_slice(), response.version);
        let metadata = metadata.ok_or_else(|| protocol_fault("it sent malformed metadata".to_owned()))?;
        if let Some((known, reported)) = self.metadata.cluster_mismatch(&metadata) {
            let [known, reported] = [known, reported].map(|id| id.chars().take(CLUSTER_CHARS_MAX).collect::<String>());
            return Err(protocol_fault(format!(
                "it belongs to cluster {reported:?}, but the other brokers to {known:?}"
            )));
        }
        if metadata.nodes.is_empty() {
            // The broker has just started, and knows no brokers yet.
            self.metadata.request_failed(now, &self.settings, &mut self.random);
        } else {
            self.metadata.apply(&metadata, now, &self.settings, &mut self.random);
            self.replace_nodes(metadata.nodes);
            self.failure = None;
        }
        self.pool.put_response_buffer(response.body.into_buffer());
        Ok(())
    }

    /// Replaces the brokers' addresses with those in metadata. Open connections are kept: they work until they break.
    fn replace_nodes(&mut self, nodes: Vec<(i32, Address)>) {
        for node in self.hosts.replace(nodes) {
            let channels = self.channels.range_mut((node, Purpose::Fetch)..=(node, Purpose::Control));
            channels.for_each(|(_, channel)| (channel.failures, channel.retry_at) = (0, None));
        }
        let hosts = &self.hosts;
        self.channels.retain(|(node, _), channel| channel.open.is_some() || hosts.address(*node).is_some());
        self.trouble.take_if(|trouble| !hosts.contains(&trouble.address));
    }

    /// Handles the loss of a connection. `has_to_close`: whether the edge still has to close it.
    pub(super) fn handle_loss(&mut self, link: Link, fault: Fault, has_to_close: bool, now: Instant) {
        let Some(key) = self.links.remove(&link) else { return };
        let Some((channel, open)) = self.channels.get_mut(&key).and_then(|channel| {
            let open = channel.open.take()?;
            Some((channel, open))
        }) else {
            return;
        };
        if has_to_close {
            self.acts.push_back(Act::Close { link });
        }
        channel.failures = if open.connection.is_proven() { 1 } else { channel.failures.saturating_add(1) };
        channel.retry_at = Some(now + backoff(channel.failures, &self.settings, &mut self.random));
        let reason = format!("{}: {}", open.address, fault.reason);
        // A broker that requires a login closes the connection at the first request.
        let closed_at_first_request = !has_to_close && open.connection.was_ready() && !open.connection.is_proven();
        self.failure = Some(
            match closed_at_first_request && !self.metadata.has_response() && matches!(self.settings.login, Login::None)
            {
                true => format!("{reason}; it may require a login"),
                false => reason.clone(),
            },
        );
        tracing::debug!(node = key.0, "{reason}");
        self.progress_count += 1;
        if let Some(kind) = fault.kind {
            self.trouble = Some(Trouble { kind, address: open.address, message: fault.reason });
        }
        let metadata_request = self.metadata.pending_request();
        for (id, sent) in open.connection.into_pending() {
            match Some(id) == metadata_request {
                true => self.metadata.request_failed(now, &self.settings, &mut self.random),
                false => self.events.push_back(Event::Failed { id, sent, reason: reason.clone() }),
            }
        }
        if self.hosts.address(key.0).is_none() {
            self.channels.remove(&key);
        }
        if key.0 >= 0 {
            // A broker, not a bootstrap address: its partitions may have other leaders now.
            self.metadata.schedule(now, &self.settings, &mut self.random);
        }
        self.request_due_metadata(now);
    }

    /// Closes an idle connection.
    fn close_idle(&mut self, link: Link) {
        if let Some(key) = self.links.remove(&link)
            && let Some(channel) = self.channels.get_mut(&key)
        {
            // The broker has responded: what failed before says nothing about the next attempt.
            if channel.open.take().is_some_and(|open| open.connection.is_proven()) {
                (channel.failures, channel.retry_at) = (0, None);
            }
            self.acts.push_back(Act::Close { link });
        }
    }

    /// Ends connections that have timed out or are idle, and opens those that are due.
    pub(super) fn tick_channels(&mut self, now: Instant) {
        let mut ended = Vec::new();
        let mut due = Vec::new();
        for (key, channel) in &mut self.channels {
            let mut shared = shared(&self.settings, &mut self.pool, &mut self.random, now);
            ended.extend(channel.tick(&mut shared));
            if channel.is_wanted && channel.can_open(now) {
                due.push(*key);
            }
        }
        for (link, fault) in ended {
            match fault {
                Some(fault) => self.handle_loss(link, fault, true, now),
                None => self.close_idle(link),
            }
        }
        for (node, purpose) in due {
            self.open_or_schedule(node, purpose, now);
        }
    }

    /// Requests metadata if the request is due; opens a connection if no broker is ready. If no request is due,
    /// continues to seek a broker for a caller of [`Brokers::any_node`].
    pub(super) fn request_due_metadata(&mut self, now: Instant) {
        if !self.metadata.is_due(now) {
            if self.is_seeking {
                self.is_seeking = self.pick_node(None, now).is_none();
            }
            return;
        }
        let Some(node) = self.pick_node(self.metadata.avoided_node(), now) else { return };
        let Some(open) = self.channels.get(&(node, Purpose::Control)).and_then(|channel| channel.open.as_ref()) else {
            return;
        };
        let Some(version) = open.connection.versions().pick(METADATA, METADATA_VERSIONS) else {
            let (link, reason) = (open.link, "it is too old for this client".to_owned());
            self.handle_loss(link, Fault { kind: Some(TroubleKind::Protocol), reason }, true, now);
            return;
        };
        let body = request_body(self.metadata.topics(), version).into();
        let request = Request { api_key: METADATA, version, body };
        if let Ok(id) = self.try_send(node, Purpose::Control, request, self.settings.request_timeout, now) {
            self.metadata.request_sent(id, node, now);
        }
    }

    /// A broker with a ready [`Purpose::Control`] connection. If no such connection is ready, one is opened, unless
    /// another attempt started a short while ago. `avoided` is a broker whose responses did not help: the next broker's
    /// connection is opened even while the connection to `avoided` is ready.
    pub(super) fn pick_node(&mut self, avoided: Option<i32>, now: Instant) -> Option<i32> {
        if avoided.is_some() {
            let others = self.hosts.nodes_after(avoided).filter(|node| Some(*node) != avoided);
            let state = |node: i32| (node, self.channels.get(&(node, Purpose::Control)));
            let next = others.map(state).find(|(_, channel)| {
                channel.is_none_or(|channel| channel.is_ready(now) || channel.is_opening(now) || channel.can_open(now))
            });
            match next {
                Some((node, Some(channel))) if channel.is_ready(now) => return Some(node),
                Some((_, Some(channel))) if channel.is_opening(now) => return None,
                Some((node, _)) => {
                    self.open(node, Purpose::Control, now);
                    return None;
                }
                None => {}
            }
        }
        let mut control = self.channels.iter().filter(|((_, purpose), _)| *purpose == Purpose::Control);
        // Brokers from metadata are preferred to bootstrap addresses, and then a broker with few pending requests.
        let ready = control.clone().filter(|(_, channel)| channel.is_ready(now)).min_by_key(|((node, _), channel)| {
            let pending_count = channel.open.as_ref().map_or(0, |open| open.connection.pending_count());
            (*node < 0, pending_count, *node)
        });
        if let Some(((node, _), _)) = ready {
            return Some(*node);
        }
        if !control.any(|(_, channel)| channel.is_opening(now))
            && let Some(node) = self.next_candidate(now)
        {
            self.last_candidate = Some(node);
            self.open(node, Purpose::Control, now);
        }
        None
    }

    /// The next broker to attempt: a known broker, or a bootstrap address while all known brokers fail.
    fn next_candidate(&self, now: Instant) -> Option<i32> {
        let channel = |node: i32| self.channels.get(&(node, Purpose::Control));
        let can_open = |node: &i32| channel(*node).is_none_or(|channel| channel.can_open(now));
        if let Some(node) = self.hosts.nodes_after(self.last_candidate).find(can_open) {
            return Some(node);
        }
        let all_fail = self.hosts.nodes_after(None).all(|node| channel(node).is_some_and(Channel::is_failing));
        self.hosts.bootstrap_after(self.last_candidate).find(can_open).filter(|_| all_fail)
    }
}

fn shared<'a>(
    settings: &'a Settings,
    pool: &'a mut Pool,
    random: &'a mut rand::rngs::StdRng,
    now: Instant,
) -> Shared<'a> {
    Shared { now, settings, pool, random }
}
