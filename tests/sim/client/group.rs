//! What librdkafka's main thread does for a member of a group: joining, heartbeats, and the dance of assignments.
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
/// Between two attempts to join.
const JOIN_PAUSE: Time = 20 * MS;
/// Between two looks for an answer that comes by itself.
const LOOK: Time = 3 * MS;

/// What the application has to answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Assigned(Vec<Partition>),
    Revoked(Vec<Partition>),
    Lost(Vec<Partition>),
}

/// What the main thread and the application share.
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
    /// What the coordinator has said of the membership in answer to a commit.
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

/// What follows.
enum Next {
    Join,
    /// All partitions are another's already.
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

    /// Wakes the main thread: something was answered.
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
    /// When the coordinator last answered a heartbeat.
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

    /// Joins, and tells the application what that has come to.
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
        let asked = self.ask("join", move |broker, group, member| {
            let times = (SESSION, MAX_POLL);
            Ok(broker.groups.join(broker.now, (group, member), subscription.clone(), times))
        });
        match asked {
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
        match self.await_answer(|broker, group, member| broker.groups.take_joined(group, member)) {
            None => Next::Close,
            Some(Ok(joined)) => self.sync(joined),
            Some(Err(_)) => {
                self.forget_member();
                Next::Join
            }
        }
    }

    /// Assigns if that is this member's part, and learns what is its own.
    fn sync(&mut self, joined: Joined) -> Next {
        self.to.lock().generation = joined.generation;
        let generation = joined.generation;
        let synced = self.ask("sync", move |broker, group, member| {
            let assignments = joined.is_leader.then(|| assignor::assign(&joined.members, &partitions(broker, &joined)));
            broker.groups.sync(broker.now, (group, member), generation, assignments)
        });
        let synced = match synced {
            Ok(()) => self.await_answer(|broker, group, member| broker.groups.take_synced(group, member)),
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

    /// Waits for what comes by itself; `None` when the member is closed meanwhile.
    fn await_answer<T>(
        &self,
        mut take: impl FnMut(&mut Broker, &str, &str) -> Option<Result<T, Code>>,
    ) -> Option<Result<T, Code>> {
        loop {
            if self.is_closing() {
                return None;
            }
            let member = self.to.lock().member.clone();
            let answer = take(&mut self.to.process.lock().broker, &self.to.group, &member);
            if answer.is_some() {
                return answer;
            }
            self.to.process.sleep(LOOK);
        }
    }

    /// Tells what is new and what is to go: first that, then this, then the group is joined once more.
    fn take_over(&mut self, assignment: Vec<Partition>, generation: i32) -> Next {
        self.heard = self.to.process.now();
        self.beat = self.heard + HEARTBEAT;
        let added: Vec<Partition> = assignment.iter().filter(|one| !self.owned.contains(one)).cloned().collect();
        let revoked: Vec<Partition> = self.owned.iter().filter(|one| !assignment.contains(one)).cloned().collect();
        self.owned_generation = generation;
        self.to.lock().refused = None;
        let rejoin = !revoked.is_empty();
        if rejoin {
            if !self.tell(Event::Revoked(revoked)) {
                return Next::Close;
            }
            self.owned.retain(|one| assignment.contains(one));
        }
        self.owned.extend(added.iter().cloned());
        if !self.tell(Event::Assigned(added)) {
            return Next::Close;
        }
        if rejoin { Next::Join } else { self.stay() }
    }

    /// Tells the application something and waits for its answer; heartbeats go on. `false`: the member is closed.
    fn tell(&mut self, event: Event) -> bool {
        {
            let mut state = self.to.process.lock();
            state.note("event", format_args!("{event:?}"));
            let (Event::Assigned(told) | Event::Revoked(told) | Event::Lost(told)) = &event;
            state.told(self.to.process.number, told.len());
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
            // What the coordinator says meanwhile waits: a rebalance is in progress already.
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

    /// A member at work, until something changes.
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
            if !self.tell(Event::Lost(owned)) {
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
