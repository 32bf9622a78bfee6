//! The group coordinator: the classic protocol, and fencing of commits by membership.
//!
//! A join or a sync completes later: the member polls [`Groups::take_joined`] or [`Groups::take_synced`] for the
//! response. Rules of `GroupMetadataManager.classicGroup*` and `ClassicGroup`.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::offsets::{Offsets, Repeater};
use super::{Code, Committed, Partition, Time};

/// What a member sends when it joins (the consumer protocol's subscription).
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Subscription {
    pub topics: Vec<Arc<str>>,
    pub owned: Vec<Partition>,
    /// The generation in which it acquired them.
    pub generation: i32,
}

/// The response to a join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    pub generation: i32,
    /// All members if this one is the leader, else none.
    pub members: Vec<(Arc<str>, Subscription)>,
    pub is_leader: bool,
}

#[derive(Debug)]
struct Member {
    subscription: Subscription,
    session: Time,
    rebalance: Time,
    deadline: Time,
    joining: bool,
    syncing: bool,
    joined: Option<Result<Joined, Code>>,
    synced: Option<Result<Vec<Partition>, Code>>,
    assignment: Vec<Partition>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Empty,
    /// Members must join before the deadline.
    Preparing(Time),
    /// The leader must assign, and all members sync, before the deadline.
    Completing(Time),
    Stable,
}

#[derive(Debug)]
struct Group {
    state: State,
    generation: i32,
    members: BTreeMap<Arc<str>, Member>,
    /// Member ids that were given out and not yet used (KIP-394), and when they expire.
    pending: BTreeMap<Arc<str>, Time>,
    leader: Option<Arc<str>>,
    numbers: u64,
    offsets: Offsets,
}

/// All groups.
#[derive(Debug, Default)]
pub struct Groups {
    groups: BTreeMap<Arc<str>, Group>,
}

impl Groups {
    /// How many members a group has.
    pub fn members(&self, group: &str) -> usize {
        self.groups.get(group).map_or(0, |group| group.members.len())
    }

    /// Requests to join; an unknown client is given a member id first (MEMBER_ID_REQUIRED, KIP-394). The response
    /// comes by [`Groups::take_joined`].
    pub fn join(
        &mut self,
        now: Time,
        (group, member): (&Arc<str>, &str),
        subscription: Subscription,
        (session, rebalance): (Time, Time),
    ) -> Result<(), (Code, Arc<str>)> {
        let group = self.groups.entry(group.clone()).or_insert_with(Group::new);
        if member.is_empty() {
            group.numbers += 1;
            let id: Arc<str> = format!("member-{}", group.numbers).into();
            group.pending.insert(id.clone(), now + session);
            return Err((Code::MemberIdRequired, id));
        }
        let id: Arc<str> = member.into();
        let is_new = group.pending.remove(&id).is_some();
        let Some(known) = group.members.get_mut(&id) else {
            if !is_new {
                return Err((Code::UnknownMemberId, id));
            }
            let fresh = Member::new(subscription, session, rebalance, now);
            group.members.insert(id, fresh);
            group.rebalance(now);
            group.complete_join_if_all(now);
            return Ok(());
        };
        // A member that sends nothing new gets the current state; the leader's rejoin always starts a rebalance
        // (`classicGroupJoinExistingMember`).
        let same = known.subscription == subscription;
        let is_leader = group.leader.as_ref() == Some(&id);
        known.subscription = subscription;
        known.deadline = now + known.session;
        let respond_at_once = match group.state {
            State::Completing(_) => same,
            State::Stable => same && !is_leader,
            State::Empty | State::Preparing(_) => false,
        };
        if respond_at_once {
            let response = group.response(&id);
            group.members.get_mut(&id).expect("found above").joined = Some(Ok(response));
            return Ok(());
        }
        known.joining = true;
        known.joined = None;
        group.rebalance(now);
        group.complete_join_if_all(now);
        Ok(())
    }

    /// The response to a join, once there is one.
    pub fn take_joined(&mut self, group: &str, member: &str) -> Option<Result<Joined, Code>> {
        match self.member(group, member) {
            Ok(member) => member.joined.take(),
            Err(code) => Some(Err(code)),
        }
    }

    /// Submits the leader's assignment, or requests the member's own. The response comes by [`Groups::take_synced`].
    pub fn sync(
        &mut self,
        now: Time,
        (group, member): (&str, &str),
        generation: i32,
        assignments: Option<Vec<(Arc<str>, Vec<Partition>)>>,
    ) -> Result<(), Code> {
        let group = self.groups.get_mut(group).ok_or(Code::UnknownMemberId)?;
        let current = group.generation;
        let known = group.members.get_mut(member).ok_or(Code::UnknownMemberId)?;
        if generation != current {
            return Err(Code::IllegalGeneration);
        }
        match group.state {
            State::Empty => Err(Code::UnknownMemberId),
            State::Preparing(_) => Err(Code::RebalanceInProgress),
            State::Stable => {
                known.synced = Some(Ok(known.assignment.clone()));
                known.deadline = now + known.session;
                Ok(())
            }
            State::Completing(_) => {
                known.syncing = true;
                known.synced = None;
                if let Some(assignments) = assignments.filter(|_| group.leader.as_deref() == Some(member)) {
                    group.assign(now, assignments);
                }
                Ok(())
            }
        }
    }

    /// The response to a sync, once there is one.
    pub fn take_synced(&mut self, group: &str, member: &str) -> Option<Result<Vec<Partition>, Code>> {
        match self.member(group, member) {
            Ok(member) => member.synced.take(),
            Err(code) => Some(Err(code)),
        }
    }

    /// Shows that a member is alive; REBALANCE_IN_PROGRESS tells it to join (`classicGroupHeartbeat`).
    pub fn heartbeat(&mut self, now: Time, group: &str, member: &str, generation: i32) -> Result<(), Code> {
        let group = self.groups.get_mut(group).ok_or(Code::UnknownMemberId)?;
        let current = group.generation;
        let known = group.members.get_mut(member).ok_or(Code::UnknownMemberId)?;
        if generation != current {
            return Err(Code::IllegalGeneration);
        }
        known.deadline = now + known.session;
        match group.state {
            State::Preparing(_) => Err(Code::RebalanceInProgress),
            State::Empty => Err(Code::UnknownMemberId),
            // Also between join and sync: members may send heartbeats once they have the join's response.
            State::Completing(_) | State::Stable => Ok(()),
        }
    }

    /// A member leaves on its own.
    pub fn leave(&mut self, now: Time, group: &str, member: &str) -> Result<(), Code> {
        let group = self.groups.get_mut(group).ok_or(Code::UnknownMemberId)?;
        if group.pending.remove(member).is_none() && !group.members.contains_key(member) {
            return Err(Code::UnknownMemberId);
        }
        group.remove(now, member);
        Ok(())
    }

    /// Removes members whose session has expired, and ends rebalances that have waited long enough.
    pub fn expire(&mut self, now: Time) {
        for group in self.groups.values_mut() {
            let gone: Vec<Arc<str>> =
                group.pending.iter().filter(|(_, until)| **until <= now).map(|(id, _)| id.clone()).collect();
            for id in gone {
                group.pending.remove(&id);
                group.complete_join_if_all(now);
            }
            // A member that waits for a response cannot send heartbeats (`ClassicGroupMember.hasSatisfiedHeartbeat`).
            let silent = |member: &Member| member.deadline <= now && !member.joining && !member.syncing;
            let gone: Vec<Arc<str>> =
                group.members.iter().filter(|(_, member)| silent(member)).map(|(id, _)| id.clone()).collect();
            gone.iter().for_each(|id| group.remove(now, id));
            match group.state {
                State::Preparing(deadline) if deadline <= now => group.complete_join(now),
                // A member that has not synced in time is removed (KAFKA-13063, `expirePendingSync`).
                State::Completing(deadline) if deadline <= now => {
                    let late: Vec<Arc<str>> =
                        group.members.iter().filter(|(_, member)| !member.syncing).map(|(id, _)| id.clone()).collect();
                    late.iter().for_each(|id| group.remove(now, id));
                }
                _ => {}
            }
        }
    }

    pub fn next_deadline(&self) -> Option<Time> {
        let of = |group: &Group| {
            let members = group.members.values().filter(|member| !member.joining && !member.syncing);
            let waits = match group.state {
                State::Preparing(deadline) | State::Completing(deadline) => Some(deadline),
                State::Empty | State::Stable => None,
            };
            members.map(|member| member.deadline).chain(group.pending.values().copied()).chain(waits).min()
        };
        self.groups.values().filter_map(of).min()
    }

    /// Commits offsets outside any transaction (`ClassicGroup.validateOffsetCommit`): a group with members accepts
    /// commits only from members of its generation; one without accepts anybody's that name no generation.
    pub fn commit(
        &mut self,
        now: Time,
        group: &Arc<str>,
        (member, generation): (&str, i32),
        offsets: &[(Partition, Committed)],
    ) -> Result<(), Code> {
        if generation >= 0 && !self.groups.contains_key(group) {
            return Err(Code::IllegalGeneration);
        }
        let group = self.groups.entry(group.clone()).or_insert_with(Group::new);
        let is_empty = group.state == State::Empty;
        // From anybody, such as an administrator, if there are no members.
        let by_nobody = generation < 0 && is_empty;
        if !by_nobody && (generation >= 0 || !member.is_empty()) {
            group.check(member, generation)?;
            if matches!(group.state, State::Completing(_)) {
                return Err(Code::RebalanceInProgress);
            }
        } else if !is_empty {
            return Err(Code::UnknownMemberId);
        }
        group.offsets.commit(offsets);
        if let Some(known) = group.members.get_mut(member) {
            known.deadline = now + known.session;
        }
        Ok(())
    }

    /// Commits offsets with a transaction (KIP-447): fenced by member id and generation if the client names them. A
    /// client that names neither is not fenced at all (`ClassicGroup.validateOffsetCommit`, `isTransactional`).
    pub fn commit_transactional(
        &mut self,
        group: &Arc<str>,
        (member, generation): (&str, i32),
        producer: (i64, i16),
        (offsets, late): (&[(Partition, Committed)], bool),
    ) -> Result<(), Code> {
        if generation >= 0 && !self.groups.contains_key(group) {
            return Err(Code::IllegalGeneration);
        }
        let group = self.groups.entry(group.clone()).or_insert_with(Group::new);
        let by_nobody = generation < 0 && (group.state == State::Empty || member.is_empty());
        if !by_nobody {
            group.check(member, generation)?;
        }
        group.offsets.commit_transactional(producer, offsets, (group.generation, late))
    }

    /// A transaction's marker for the group's offsets.
    pub fn end_transaction(&mut self, group: &str, producer: i64, epoch: i16, commit: bool) {
        if let Some(group) = self.groups.get_mut(group) {
            group.offsets.end(producer, epoch, commit);
        }
    }

    /// What the group has committed. With `stable`, UNSTABLE_OFFSET_COMMIT if a transaction is pending (KIP-447).
    pub fn committed(&self, group: &str, partition: &Partition, stable: bool) -> Result<Option<Committed>, Code> {
        let Some(group) = self.groups.get(group) else { return Ok(None) };
        if stable && group.offsets.is_pending(partition) {
            return Err(Code::UnstableOffsetCommit);
        }
        Ok(group.offsets.get(partition).cloned())
    }

    /// The coordinator returns to old offsets of the group. Returns for how many partitions.
    pub fn fall_back(&mut self, group: &str) -> usize {
        self.groups.get_mut(group).map_or(0, |group| group.offsets.fall_back())
    }

    /// All that transactions have committed to a group, in order, and in which generation it was taken.
    pub fn decided(&self, group: &str) -> impl Iterator<Item = (&Committed, i32)> {
        self.groups.get(group).into_iter().flat_map(|group| group.offsets.decided())
    }

    /// Who has committed this again, if anybody has.
    pub fn repeated_by(&self, group: &str, partition: &Partition, committed: &Committed) -> Option<Repeater> {
        self.groups.get(group)?.offsets.repeated_by(partition, committed)
    }

    /// Whether an offset lies where a partition's offsets were committed again after going back.
    pub fn is_committed_again(&self, group: &str, partition: &Partition, offset: i64) -> bool {
        self.groups.get(group).is_some_and(|group| group.offsets.is_committed_again(partition, offset))
    }

    /// Deletes a group without members, and its offsets.
    pub fn delete(&mut self, group: &str) -> Result<(), Code> {
        match self.groups.get(group) {
            None => Err(Code::GroupIdNotFound),
            Some(found) if found.state != State::Empty => Err(Code::NonEmptyGroup),
            Some(_) => {
                self.groups.remove(group);
                Ok(())
            }
        }
    }

    /// A topic was deleted: its committed offsets are dropped.
    pub fn forget_topic(&mut self, topic: &str) {
        self.groups.values_mut().for_each(|group| group.offsets.forget_topic(topic));
    }

    fn member(&mut self, group: &str, member: &str) -> Result<&mut Member, Code> {
        self.groups.get_mut(group).and_then(|group| group.members.get_mut(member)).ok_or(Code::UnknownMemberId)
    }
}

impl Member {
    fn new(subscription: Subscription, session: Time, rebalance: Time, now: Time) -> Self {
        let deadline = now + session;
        Self {
            subscription,
            session,
            rebalance,
            deadline,
            joining: true,
            syncing: false,
            joined: None,
            synced: None,
            assignment: Vec::new(),
        }
    }
}

impl Group {
    fn new() -> Self {
        Self {
            state: State::Empty,
            generation: 0,
            members: BTreeMap::new(),
            pending: BTreeMap::new(),
            leader: None,
            numbers: 0,
            offsets: Offsets::default(),
        }
    }

    fn check(&self, member: &str, generation: i32) -> Result<(), Code> {
        match self.members.contains_key(member) {
            false => Err(Code::UnknownMemberId),
            true if generation != self.generation => Err(Code::IllegalGeneration),
            true => Ok(()),
        }
    }

    /// Makes all members rejoin, unless that is already in progress.
    fn rebalance(&mut self, now: Time) {
        if matches!(self.state, State::Preparing(_)) {
            return;
        }
        for member in self.members.values_mut().filter(|member| member.syncing) {
            (member.syncing, member.synced) = (false, Some(Err(Code::RebalanceInProgress)));
            member.deadline = now + member.session;
        }
        let longest = self.members.values().map(|member| member.rebalance).max().unwrap_or_default();
        self.state = State::Preparing(now + longest);
    }

    fn complete_join_if_all(&mut self, now: Time) {
        let all = self.pending.is_empty() && self.members.values().all(|member| member.joining);
        if matches!(self.state, State::Preparing(_)) && all {
            self.complete_join(now);
        }
    }

    /// Starts the next generation with the members that have joined (`completeClassicGroupJoin`).
    fn complete_join(&mut self, now: Time) {
        self.members.retain(|_, member| member.joining);
        self.generation += 1;
        if self.members.is_empty() {
            self.state = State::Empty;
            self.leader = None;
            return;
        }
        if self.leader.as_ref().is_none_or(|leader| !self.members.contains_key(leader)) {
            self.leader = self.members.keys().next().cloned();
        }
        let longest = self.members.values().map(|member| member.rebalance).max().unwrap_or_default();
        self.state = State::Completing(now + longest);
        let ids: Vec<Arc<str>> = self.members.keys().cloned().collect();
        for id in ids {
            let response = self.response(&id);
            let member = self.members.get_mut(&id).expect("listed above");
            (member.joining, member.joined) = (false, Some(Ok(response)));
            member.assignment.clear();
            member.deadline = now + member.session;
        }
    }

    fn response(&self, id: &Arc<str>) -> Joined {
        let is_leader = self.leader.as_ref() == Some(id);
        let all = self.members.iter().filter(|_| is_leader);
        let members = all.map(|(id, member)| (id.clone(), member.subscription.clone())).collect();
        Joined { generation: self.generation, members, is_leader }
    }

    fn assign(&mut self, now: Time, assignments: Vec<(Arc<str>, Vec<Partition>)>) {
        for (id, partitions) in assignments {
            if let Some(member) = self.members.get_mut(&id) {
                member.assignment = partitions;
            }
        }
        self.state = State::Stable;
        for member in self.members.values_mut() {
            if std::mem::take(&mut member.syncing) {
                member.synced = Some(Ok(member.assignment.clone()));
            }
            member.deadline = now + member.session;
        }
    }

    fn remove(&mut self, now: Time, id: &str) {
        self.members.remove(id);
        if self.leader.as_deref() == Some(id) {
            self.leader = self.members.keys().next().cloned();
        }
        self.rebalance(now);
        self.complete_join_if_all(now);
    }
}

#[cfg(test)]
#[path = "groups_tests.rs"]
mod tests;
