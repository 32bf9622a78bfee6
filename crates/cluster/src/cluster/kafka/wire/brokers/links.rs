//! The connections of [`Brokers`]: which are open, which are to be opened, and the outcomes of their requests.

use std::time::{Duration, Instant};

use super::Brokers;
use super::answer::{METADATA, METADATA_VERSIONS, answer, question};
use super::backoff::backoff;
use super::place::{Open, Place};
use super::types::{Act, Address, Event, Link, RequestId, Settings, Trouble, TroubleKind, Use};
use crate::cluster::kafka::wire::connection::{Answer, Connection, Fault, Pool, Request, Shared};
use crate::cluster::kafka::wire::login::Login;

/// The most characters of a cluster's id in a message; ids usually have 22.
const CLUSTER_CHARS_MAX: usize = 64;

impl Brokers {
    /// The place of a link.
    pub(super) fn place(&self, link: Link) -> Option<&Place> {
        self.links.get(&link).and_then(|key| self.places.get(key))
    }

    /// Applies `work` to a link's place; `None` if the link is not known.
    pub(super) fn on<T>(
        &mut self,
        link: Link,
        now: Instant,
        work: impl FnOnce(&mut Place, &mut Shared<'_>) -> T,
    ) -> Option<T> {
        let place = self.links.get(&link).and_then(|key| self.places.get_mut(key))?;
        let mut shared = shared(&self.settings, &mut self.pool, &mut self.random, now);
        Some(work(place, &mut shared))
    }

    /// Opens a connection, unless it is open; if it was tried a short while ago, opens it later.
    pub(super) fn want_open(&mut self, node: i32, use_: Use, now: Instant) {
        let key = (node, use_);
        if self.places.get(&key).is_some_and(|place| place.open.is_some()) {
            return;
        }
        if self.hosts.address(node).is_none() {
            self.metadata.want(now, &self.settings, &mut self.random);
            self.pursue(now);
        } else if self.places.get(&key).is_none_or(|place| place.is_free(now)) {
            self.open(node, use_, now);
        } else if let Some(place) = self.places.get_mut(&key) {
            place.is_wanted = true;
        }
    }

    fn open(&mut self, node: i32, use_: Use, now: Instant) {
        let Some(address) = self.hosts.address(node).cloned() else { return };
        let link = Link(self.next_link);
        self.next_link += 1;
        self.links.insert(link, (node, use_));
        self.acts.push_back(Act::Connect { link, address: address.clone() });
        let place = self.places.entry((node, use_)).or_default();
        let connection = Connection::new(&self.settings, now);
        place.open = Some(Open { link, address, since: now, connection });
        (place.is_wanted, place.retry_at) = (false, None);
    }

    /// Sends a request.
    ///
    /// # Errors
    /// Why it cannot be sent.
    pub(super) fn post(
        &mut self,
        node: i32,
        use_: Use,
        request: Request,
        timeout: Duration,
        now: Instant,
    ) -> Result<RequestId, (RequestId, String)> {
        let id = RequestId(self.next_request);
        self.next_request += 1;
        let open = self.places.get_mut(&(node, use_)).and_then(|place| place.open.as_mut());
        let Some(open) = open.filter(|open| open.connection.is_ready(now)) else {
            return Err((id, "the broker is not connected".to_owned()));
        };
        let mut shared = shared(&self.settings, &mut self.pool, &mut self.random, now);
        open.connection.send(id, request, timeout, &mut shared).map(|()| id).map_err(|reason| (id, reason))
    }

    /// Handles received bytes.
    pub(super) fn take_in(&mut self, link: Link, bytes: usize, now: Instant) {
        let Some(key) = self.links.get(&link).copied() else { return };
        let Some(place) = self.places.get_mut(&key) else { return };
        let Some(open) = &mut place.open else { return };
        let was_ready = open.connection.was_ready();
        let (asked, events, mut told) = (self.metadata.question(), &mut self.events, None);
        let count = events.len();
        let mut take = |answer: Answer| match answer {
            answer if Some(answer.id) == asked => told = Some(answer),
            Answer { id, version, body } => events.push_back(Event::Answered { id, version, body }),
        };
        let mut shared = shared(&self.settings, &mut self.pool, &mut self.random, now);
        let filled = open.connection.filled(bytes, &mut take, &mut shared);
        let is_new = filled.is_ok() && !was_ready && open.connection.was_ready();
        let throttled = open.connection.throttled().map(|throttle| now + throttle);
        if is_new {
            self.trouble.take_if(|trouble| trouble.address == open.address);
        }
        if let Some(until) = throttled {
            place.mute(until);
        }
        let is_told = told.is_some();
        self.news += u64::from(is_new || is_told || self.events.len() > count);
        let heard = told.map_or(Ok(()), |told| self.hear(told, now));
        if heard.is_err() {
            self.metadata.failed(now, &self.settings, &mut self.random);
        }
        if let Err(fault) = filled.and(heard) {
            self.lose(link, fault, true, now);
        } else if is_new || is_told {
            self.pursue(now);
        }
    }

    /// Handles the answer to a request for metadata.
    fn hear(&mut self, told: Answer, now: Instant) -> Result<(), Fault> {
        let protocol = |reason: String| Fault { kind: Some(TroubleKind::Protocol), reason };
        let heard = answer(told.body.as_slice(), told.version);
        let heard = heard.ok_or_else(|| protocol("it sent malformed metadata".to_owned()))?;
        if let Some((ours, theirs)) = self.metadata.other_cluster(&heard) {
            let [ours, theirs] = [ours, theirs].map(|id| id.chars().take(CLUSTER_CHARS_MAX).collect::<String>());
            return Err(protocol(format!("it belongs to cluster {theirs:?}, but the other brokers to {ours:?}")));
        }
        if heard.nodes.is_empty() {
            // The broker has just started, and knows no brokers yet.
            self.metadata.failed(now, &self.settings, &mut self.random);
        } else {
            self.metadata.heard(&heard, now, &self.settings, &mut self.random);
            self.move_to(heard.nodes);
            self.failure = None;
        }
        self.pool.put(told.body.into_buffer());
        Ok(())
    }

    /// Takes the brokers' addresses from metadata. Open connections are kept: they work until they break.
    fn move_to(&mut self, nodes: Vec<(i32, Address)>) {
        for node in self.hosts.replace(nodes) {
            let places = self.places.range_mut((node, Use::Fetch)..=(node, Use::Control));
            places.for_each(|(_, place)| (place.failures, place.retry_at) = (0, None));
        }
        let hosts = &self.hosts;
        self.places.retain(|(node, _), place| place.open.is_some() || hosts.address(*node).is_some());
        self.trouble.take_if(|trouble| !hosts.holds(&trouble.address));
    }

    /// Handles the end of a connection; `closes`: the edge has to close it.
    pub(super) fn lose(&mut self, link: Link, fault: Fault, closes: bool, now: Instant) {
        let Some(key) = self.links.remove(&link) else { return };
        let Some((place, open)) = self.places.get_mut(&key).and_then(|place| {
            let open = place.open.take()?;
            Some((place, open))
        }) else {
            return;
        };
        if closes {
            self.acts.push_back(Act::Close { link });
        }
        place.failures = if open.connection.is_proven() { 1 } else { place.failures.saturating_add(1) };
        place.retry_at = Some(now + backoff(place.failures, &self.settings, &mut self.random));
        let reason = format!("{}: {}", open.address, fault.reason);
        // A broker that wants a login closes the connection at the first request.
        let is_cut = !closes && open.connection.was_ready() && !open.connection.is_proven();
        self.failure = Some(match is_cut && self.metadata.is_new() && matches!(self.settings.login, Login::None) {
            true => format!("{reason}; it may require a login"),
            false => reason.clone(),
        });
        tracing::debug!(node = key.0, "{reason}");
        self.news += 1;
        if let Some(kind) = fault.kind {
            self.trouble = Some(Trouble { kind, address: open.address, message: fault.reason });
        }
        let asked = self.metadata.question();
        for (id, sent) in open.connection.into_lost() {
            match Some(id) == asked {
                true => self.metadata.failed(now, &self.settings, &mut self.random),
                false => self.events.push_back(Event::Failed { id, sent, reason: reason.clone() }),
            }
        }
        if self.hosts.address(key.0).is_none() {
            self.places.remove(&key);
        }
        if key.0 >= 0 {
            // Its partitions may have other leaders now.
            self.metadata.want(now, &self.settings, &mut self.random);
        }
        self.pursue(now);
    }

    /// Closes an idle connection.
    fn rest(&mut self, link: Link) {
        if let Some(key) = self.links.remove(&link)
            && let Some(place) = self.places.get_mut(&key)
        {
            place.open = None;
            self.acts.push_back(Act::Close { link });
        }
    }

    /// Ends expired and idle connections, and opens those that are due.
    pub(super) fn tick_places(&mut self, now: Instant) {
        let mut over = Vec::new();
        let mut wanted = Vec::new();
        for (key, place) in &mut self.places {
            let mut shared = shared(&self.settings, &mut self.pool, &mut self.random, now);
            over.extend(place.tick(&mut shared));
            if place.is_wanted && place.is_free(now) {
                wanted.push(*key);
            }
        }
        for (link, fault) in over {
            match fault {
                Some(fault) => self.lose(link, fault, true, now),
                None => self.rest(link),
            }
        }
        for (node, use_) in wanted {
            self.want_open(node, use_, now);
        }
    }

    /// Requests metadata if it is due; opens a connection if no broker is ready.
    pub(super) fn pursue(&mut self, now: Instant) {
        if !self.metadata.is_due(now) {
            if self.is_seeking {
                self.is_seeking = self.pick(None, now).is_none();
            }
            return;
        }
        let Some(node) = self.pick(self.metadata.avoided(), now) else { return };
        let Some(open) = self.places.get(&(node, Use::Control)).and_then(|place| place.open.as_ref()) else { return };
        let Some(version) = open.connection.versions().pick(METADATA, METADATA_VERSIONS) else {
            let (link, reason) = (open.link, "it is too old for this client".to_owned());
            self.lose(link, Fault { kind: Some(TroubleKind::Protocol), reason }, true, now);
            return;
        };
        let body = question(self.metadata.topics(), version).into();
        let request = Request { api_key: METADATA, version, body };
        if let Ok(id) = self.post(node, Use::Control, request, self.settings.request_timeout, now) {
            self.metadata.asked(id, node, now);
        }
    }

    /// A broker with a ready [`Use::Control`] connection. If no connection is ready, one is opened, unless another is
    /// just being opened. `avoided` is a broker whose answers did not help: the next broker's connection is opened even
    /// while that of `avoided` is ready.
    pub(super) fn pick(&mut self, avoided: Option<i32>, now: Instant) -> Option<i32> {
        if avoided.is_some() {
            let others = self.hosts.nodes_after(avoided).filter(|node| Some(*node) != avoided);
            let state = |node: i32| (node, self.places.get(&(node, Use::Control)));
            let next = others.map(state).find(|(_, place)| {
                place.is_none_or(|place| place.is_ready(now) || place.is_promising(now) || place.is_free(now))
            });
            match next {
                Some((node, Some(place))) if place.is_ready(now) => return Some(node),
                Some((_, Some(place))) if place.is_promising(now) => return None,
                Some((node, _)) => {
                    self.open(node, Use::Control, now);
                    return None;
                }
                None => {}
            }
        }
        let mut control = self.places.iter().filter(|((_, use_), _)| *use_ == Use::Control);
        let ready = control.clone().filter(|(_, place)| place.is_ready(now)).min_by_key(|((node, _), place)| {
            let unanswered = place.open.as_ref().map_or(0, |open| open.connection.unanswered());
            (*node < 0, unanswered, *node)
        });
        if let Some(((node, _), _)) = ready {
            return Some(*node);
        }
        if !control.any(|(_, place)| place.is_promising(now))
            && let Some(node) = self.candidate(now)
        {
            self.tried = Some(node);
            self.open(node, Use::Control, now);
        }
        None
    }

    /// The next broker to be tried: a known one, or a bootstrap address while all known ones fail.
    fn candidate(&self, now: Instant) -> Option<i32> {
        let place = |node: i32| self.places.get(&(node, Use::Control));
        let is_free = |node: &i32| place(*node).is_none_or(|place| place.is_free(now));
        if let Some(node) = self.hosts.nodes_after(self.tried).find(is_free) {
            return Some(node);
        }
        let all_fail = self.hosts.nodes_after(None).all(|node| place(node).is_some_and(Place::is_failing));
        self.hosts.bootstrap_after(self.tried).find(is_free).filter(|_| all_fail)
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
