//! librdkafka's main thread for a group member: joining, heartbeats, and the assignment handshake.
//!
//! After `rdkafka_cgrp.c` of librdkafka 2.12 (classic protocol, cooperative): `handle_assignment_cooperative`,
//! `incr_unassign_done`, `handle_Heartbeat`, `revoke_all_rejoin`, `max_poll_interval_check_tmr_cb`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::kafka::{Broker, Code, Joined, MS, Partition, SECOND, Subscription, Time};
use crate::world::{Broken, Process};

use super::assignor;

pub const HEARTBEAT: Time = 300 * MS;
pub const SESSION: Time = 2 * SECOND;
pub const MAX_POLL: Time = 6 * SECOND;
/// Pause between two attempts to join.
const JOIN_PAUSE: Time = 20 * MS;
/// How often to poll for the response to a join or sync.
const RESPONSE_POLL: Time = 3 * MS;

/// What the application must accept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Assigned(Vec<Partition>),
    Revoked(Vec<Partition>),
    Lost(Vec<Partition>),
}

/// State shared by the main thread and the application.
#[derive(Default)]
pub struct Shared {
    pub topics: Vec<Arc<str>>,
    pub member: Arc<str>,
    pub generation: i32,
    pub event: Option<Event>,
    pub resubscribed: bool,
    pub closing: bool,
    pub closed: bool,
    pub polled: Time,
    /// The coordinator's error about the membership in response to a commit.
    pub refused: Option<Code>,
    pub thread: usize,
}

/// A membership, shared.
#[derive(Clone)]
pub struct Membership {
    pub process: Process,
    pub group: Arc<str>,
    shared: Arc<Mutex<Shared>>,
}

/// The next step.
enum Next {
    Join,
    /// All partitions already have other owners.
    Lost,
    Close,
}

impl Membership {
    pub fn begin(process: Process, group: Arc<str>, topics: Vec<Arc<str>>) -> Self {
        let shared = Shared { topics, generation: -1, polled: process.now(), ..Shared::default() };
        let membership = Self { process: process.clone(), group, shared: Arc::new(Mutex::new(shared)) };
        let thread = Thread { to: membership.clone(), owned: Vec::new(), owned_generation: -1, heard: 0, beat: 0 };
        membership.lock().thread = process.spawn(move || thread.run());
        membership
    }

    /// Never to be held while waiting.
    pub fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the main thread after the application has accepted an event.
    pub fn wake(&self) {
        let thread = self.lock().thread;
        self.process.wake(thread);
    }
}

/// All partitions of all topics that any member subscribes to.
fn partitions(broker: &Broker, joined: &Joined) -> Vec<Partition> {
    let mut topics: Vec<&Arc<str>> = joined.members.iter().flat_map(|(_, said)| &said.topics).collect();
    topics.sort();
    topics.dedup();
    let count = |topic: &str| broker.topics.get(topic).map_or(0, |topic| topic.logs.len() as i32);
    let of =
        |topic: &Arc<str>| (0..count(topic)).map(|number| Partition::new(topic.clone(), number)).collect::<Vec<_>>();
    topics.into_iter().flat_map(of).collect()
}

/// The main thread.
struct Thread {
    to: Membership,
    owned: Vec<Partition>,
    owned_generation: i32,
    /// When the coordinator last accepted a heartbeat.
    heard: Time,
    /// When the next heartbeat is due.
    beat: Time,
}

impl Thread {
    fn run(mut self) {
        let mut next = Next::Join;
        loop {
            next = match next {
                Next::Join => self.join(),
                Next::Lost => self.lose(),
                Next::Close => return self.close(),
            };
        }
    }

    fn ask<T: 'static>(
        &self,
        what: &'static str,
        request: impl Fn(&mut Broker, &Arc<str>, &Arc<str>) -> Result<T, Code> + Clone + Send + 'static,
    ) -> Result<T, Broken> {
        let (group, member) = (self.to.group.clone(), self.to.lock().member.clone());
        self.to.process.ask(what, move |broker| {
            broker.group_coordinator()?;
            request(broker, &group, &member)
        })
    }

    fn is_closing(&self) -> bool {
        self.to.lock().closing || self.to.process.is_dead()
    }

    fn forget_member(&self) {
        self.to.lock().member = "".into();
    }

    /// Joins the group, and notifies the application of the result.
    fn join(&mut self) -> Next {
        if self.is_closing() {
            return Next::Close;
        }
        let topics = {
            let mut shared = self.to.lock();
            shared.resubscribed = false;
            shared.topics.clone()
        };
        if topics.is_empty() {
            self.to.process.sleep(HEARTBEAT);
            return Next::Join;
        }
        let subscription = Subscription { topics, owned: self.owned.clone(), generation: self.owned_generation };
        let result = self.ask("join", move |broker, group, member| {
            let times = (SESSION, MAX_POLL);
            Ok(broker.groups.join(broker.now, (group, member), subscription.clone(), times))
        });
        match result {
            Ok(Ok(())) => {}
            Ok(Err((Code::MemberIdRequired, id))) => {
                self.to.lock().member = id;
                // What was owned under another id is lost (JoinGroup error in the cooperative case).
                return if self.owned.is_empty() { Next::Join } else { Next::Lost };
            }
            failed => {
                if matches!(failed, Ok(Err((Code::UnknownMemberId, _)))) {
                    self.forget_member();
                }
                self.to.process.sleep(JOIN_PAUSE);
                return Next::Join;
            }
        }
        match self.await_response(|broker, group, member| broker.groups.take_joined(group, member)) {
            None => Next::Close,
            Some(Ok(joined)) => self.sync(joined),
            Some(Err(_)) => {
                self.forget_member();
                Next::Join
            }
        }
    }

    /// Assigns if this member is the leader, and gets its own assignment.
    fn sync(&mut self, joined: Joined) -> Next {
        self.to.lock().generation = joined.generation;
        let generation = joined.generation;
        let synced = self.ask("sync", move |broker, group, member| {
            let assignments = joined.is_leader.then(|| assignor::assign(&joined.members, &partitions(broker, &joined)));
            broker.groups.sync(broker.now, (group, member), generation, assignments)
        });
        let synced = match synced {
            Ok(()) => self.await_response(|broker, group, member| broker.groups.take_synced(group, member)),
            Err(Broken::Code(code)) => Some(Err(code)),
            Err(Broken::Lost) => Some(Err(Code::RebalanceInProgress)),
        };
        match synced {
            None => Next::Close,
            Some(Ok(assignment)) => self.take_over(assignment, generation),
            Some(Err(code)) => self.on_sync_error(code),
        }
    }

    fn on_sync_error(&mut self, code: Code) -> Next {
        match code {
            Code::IllegalGeneration => self.to.lock().generation = -1,
            Code::UnknownMemberId => self.forget_member(),
            _ => return Next::Join,
        }
        if self.owned.is_empty() { Next::Join } else { Next::Lost }
    }

    /// Polls for a response; `None` when the member is closed meanwhile.
    fn await_response<T>(
        &self,
        mut take: impl FnMut(&mut Broker, &str, &str) -> Option<Result<T, Code>>,
    ) -> Option<Result<T, Code>> {
        loop {
            if self.is_closing() {
                return None;
            }
            let member = self.to.lock().member.clone();
            let response = take(&mut self.to.process.lock().broker, &self.to.group, &member);
            if response.is_some() {
                return response;
            }
            self.to.process.sleep(RESPONSE_POLL);
        }
    }

    /// Notifies the application of revoked partitions first, then of new ones; after a revocation, the member
    /// rejoins.
    fn take_over(&mut self, assignment: Vec<Partition>, generation: i32) -> Next {
        self.heard = self.to.process.now();
        self.beat = self.heard + HEARTBEAT;
        let added: Vec<Partition> = assignment.iter().filter(|one| !self.owned.contains(one)).cloned().collect();
        let revoked: Vec<Partition> = self.owned.iter().filter(|one| !assignment.contains(one)).cloned().collect();
        self.owned_generation = generation;
        self.to.lock().refused = None;
        let rejoin = !revoked.is_empty();
        if rejoin {
            if !self.notify(Event::Revoked(revoked)) {
                return Next::Close;
            }
            self.owned.retain(|one| assignment.contains(one));
        }
        self.owned.extend(added.iter().cloned());
        if !self.notify(Event::Assigned(added)) {
            return Next::Close;
        }
        if rejoin { Next::Join } else { self.stay() }
    }

    /// Notifies the application and waits until it accepts; heartbeats continue. `false`: the member is closed.
    fn notify(&mut self, event: Event) -> bool {
        {
            let mut state = self.to.process.lock();
            state.note("event", format_args!("{event:?}"));
            let (Event::Assigned(moved) | Event::Revoked(moved) | Event::Lost(moved)) = &event;
            state.rebalanced(self.to.process.number, moved.len());
        }
        self.to.lock().event = Some(event);
        loop {
            if self.is_closing() {
                return false;
            }
            if self.to.lock().event.is_none() {
                return true;
            }
            self.to.process.sleep_until(self.beat);
            // Rebalances that the coordinator announces meanwhile wait: one is in progress already.
            match self.heartbeat() {
                Some(Code::UnknownMemberId) => self.forget_member(),
                Some(Code::IllegalGeneration) => self.to.lock().generation = -1,
                _ => {}
            }
        }
    }

    /// Sends a heartbeat if one is due.
    fn heartbeat(&mut self) -> Option<Code> {
        if self.to.process.now() < self.beat {
            return None;
        }
        self.beat = self.to.process.now() + HEARTBEAT;
        let generation = self.to.lock().generation;
        let beaten = self.ask("heartbeat", move |broker, group, member| {
            broker.groups.heartbeat(broker.now, group, member, generation)
        });
        match beaten {
            Ok(()) | Err(Broken::Code(Code::RebalanceInProgress)) => self.heard = self.to.process.now(),
            Err(_) => {}
        }
        match beaten {
            Err(Broken::Code(code)) => Some(code),
            Ok(()) | Err(Broken::Lost) => None,
        }
    }

    /// Stays in the group until something changes.
    fn stay(&mut self) -> Next {
        loop {
            let (closing, resubscribed, polled) = {
                let shared = self.to.lock();
                (shared.closing, shared.resubscribed, shared.polled)
            };
            let now = self.to.process.now();
            if closing || self.to.process.is_dead() {
                return Next::Close;
            }
            if resubscribed {
                return Next::Join;
            }
            if now > polled + MAX_POLL {
                let _ = self.ask("leave", |broker, group, member| broker.groups.leave(broker.now, group, member));
                self.forget_member();
                return Next::Lost;
            }
            if now > self.heard + SESSION {
                self.forget_member();
                return Next::Lost;
            }
            let refused = self.to.lock().refused.take();
            match refused.or_else(|| self.heartbeat()) {
                Some(Code::RebalanceInProgress) => return Next::Join,
                Some(Code::UnknownMemberId) => {
                    self.forget_member();
                    return Next::Lost;
                }
                Some(Code::IllegalGeneration) => {
                    self.to.lock().generation = -1;
                    return Next::Lost;
                }
                _ => {}
            }
            self.to.process.sleep_until(self.beat);
        }
    }

    fn lose(&mut self) -> Next {
        let owned = std::mem::take(&mut self.owned);
        self.owned_generation = -1;
        if !owned.is_empty() {
            self.to.process.lock().lost(self.to.process.number);
            if !self.notify(Event::Lost(owned)) {
                return Next::Close;
            }
        }
        Next::Join
    }

    fn close(self) {
        if self.to.process.is_dead() {
            return;
        }
        if !self.to.lock().member.is_empty() {
            let _ = self.ask("leave", |broker, group, member| broker.groups.leave(broker.now, group, member));
        }
        self.to.lock().closed = true;
    }
}
