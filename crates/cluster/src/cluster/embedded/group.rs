//! A consumer group's protocol, pure: who is in it, who owns what, and which events each member gets.
//!
//! It is Kafka's cooperative rebalance without its network. A change of members or topics begins a
//! *round*; every member joins the round when it is served and has acknowledged all its earlier events;
//! when all have joined, the generation is incremented and every member gets its events: first
//! [`GroupEvent::Revoked`] with what it has to give up, then [`GroupEvent::Assigned`] with what is new to
//! it, possibly nothing. Revoked partitions still belong to their owner until it has acknowledged, which begins
//! another round in which others get them. Members keep reading all the while.
//!
//! Invariants: a partition has at most one owner; a member is only assigned partitions without an owner; loads
//! differ by at most one if subscriptions are alike, and no partition moves without need (sticky).
//! There are no sessions: a member that is not served delays a round, as the members' process is the
//! cluster's. A member that is gone (dropped, left, expelled) releases everything at once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::cluster::GroupEvent;
use crate::record::TopicPartition;

/// One group.
#[derive(Debug, Default)]
pub(super) struct Group {
    generation: i32,
    /// Whether a round is waiting for members to join it.
    gathering: bool,
    members: BTreeMap<u64, Membership>,
}

#[derive(Debug)]
struct Membership {
    topics: Vec<Arc<str>>,
    owned: BTreeSet<TopicPartition>,
    /// The member's events; the first one is kept until it is acknowledged.
    events: VecDeque<GroupEvent>,
    /// Whether the first event was delivered and awaits acknowledgement.
    delivered: bool,
    in_round: bool,
    /// The generation of the last round that it took part in; 0 before the first.
    generation: i32,
}

/// The result of serving a member.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Served {
    /// Deliver this event to it; no others before it is acknowledged.
    Event(GroupEvent),
    /// It has an event that it has not acknowledged yet.
    Pending,
    /// There is no event for it.
    Idle,
    /// It is not, or no longer, a member.
    Unknown,
}

impl Group {
    /// How many members it has.
    pub(super) fn members(&self) -> usize {
        self.members.len()
    }

    /// Adds a member and begins a round.
    pub(super) fn join(&mut self, id: u64, topics: &[Arc<str>]) {
        let membership = Membership {
            topics: distinct(topics),
            owned: BTreeSet::new(),
            events: VecDeque::new(),
            delivered: false,
            in_round: false,
            generation: 0,
        };
        self.members.insert(id, membership);
        self.begin_round();
    }

    /// Changes a member's subscription and begins a round; does nothing if it is not a member.
    pub(super) fn subscribe(&mut self, id: u64, topics: &[Arc<str>]) {
        if let Some(member) = self.members.get_mut(&id) {
            member.topics = distinct(topics);
            self.begin_round();
        }
    }

    /// Removes a member and frees what it owned. Returns whether it was one.
    pub(super) fn leave(&mut self, id: u64) -> bool {
        let was = self.members.remove(&id).is_some();
        if was {
            self.begin_round();
        }
        was
    }

    /// The members' ids.
    pub(super) fn member_ids(&self) -> Vec<u64> {
        self.members.keys().copied().collect()
    }

    /// The generation: the number of completed rounds.
    pub(super) fn generation(&self) -> i32 {
        self.generation
    }

    /// Whether `id` is a member.
    pub(super) fn is_member(&self, id: u64) -> bool {
        self.members.contains_key(&id)
    }

    /// Whether there are no members.
    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Begins a round if any member subscribes to `topic`, whose partitions have changed.
    pub(super) fn topic_changed(&mut self, topic: &str) {
        if self.members.values().any(|member| member.topics.iter().any(|t| &**t == topic)) {
            self.begin_round();
        }
    }

    /// The generation that `id` joined last, `None` if it has joined none or is not a member.
    pub(super) fn joined_generation(&self, id: u64) -> Option<i32> {
        self.members.get(&id).map(|member| member.generation).filter(|generation| *generation > 0)
    }

    /// Whether to accept a commit by this member in this generation; the error says why not.
    pub(super) fn check_commit(&self, id: u64, generation: i32) -> Result<(), String> {
        if !self.members.contains_key(&id) {
            return Err("the committing member is not in the group (unknown member)".to_owned());
        }
        if generation != self.generation {
            let current = self.generation;
            return Err(format!(
                "the commit is of generation {generation}, the group is at {current} (illegal generation)"
            ));
        }
        Ok(())
    }

    /// Serves the member: lets it join a round, and returns its next event.
    pub(super) fn serve(&mut self, id: u64, partition_count: impl Fn(&str) -> Option<i32>) -> Served {
        let Some(member) = self.members.get_mut(&id) else { return Served::Unknown };
        if member.delivered {
            return Served::Pending;
        }
        if member.events.is_empty() && self.gathering {
            member.in_round = true;
            if self.members.values().all(|member| member.in_round) {
                self.complete_round(partition_count);
            }
        }
        match self.members.get_mut(&id) {
            Some(member) => match member.events.front() {
                Some(event) => {
                    member.delivered = true;
                    Served::Event(event.clone())
                }
                None => Served::Idle,
            },
            None => Served::Unknown,
        }
    }

    /// Acknowledges the event that was delivered to the member. Returns `false` if there is none
    /// that this would acknowledge.
    pub(super) fn acknowledge(&mut self, id: u64, assigned: bool) -> bool {
        let Some(member) = self.members.get_mut(&id) else { return false };
        let fits = match member.events.front() {
            Some(GroupEvent::Assigned(_)) => assigned,
            Some(_) => !assigned,
            None => false,
        };
        if !fits || !member.delivered {
            return false;
        }
        member.delivered = false;
        if let Some(GroupEvent::Revoked(revoked)) = member.events.pop_front() {
            for partition in &revoked {
                member.owned.remove(partition);
            }
            self.begin_round();
        }
        true
    }

    fn begin_round(&mut self) {
        self.gathering = true;
        for member in self.members.values_mut() {
            member.in_round = false;
        }
    }

    fn complete_round(&mut self, partition_count: impl Fn(&str) -> Option<i32>) {
        self.gathering = false;
        self.generation += 1;
        let target = self.target(partition_count);
        let taken: BTreeSet<TopicPartition> = self.members.values().flat_map(|member| member.owned.clone()).collect();
        for (id, member) in &mut self.members {
            let wanted = &target[id];
            member.in_round = false;
            member.generation = self.generation;
            let revoked: Vec<_> = member.owned.difference(wanted).cloned().collect();
            let assigned: Vec<_> = wanted.difference(&taken).cloned().collect();
            if !revoked.is_empty() {
                member.events.push_back(GroupEvent::Revoked(revoked));
            }
            member.owned.extend(assigned.iter().cloned());
            member.events.push_back(GroupEvent::Assigned(assigned));
        }
    }

    /// Who should have what: each keeps its own, the rest goes to the least loaded, then as few moves as balance needs.
    fn target(&self, partition_count: impl Fn(&str) -> Option<i32>) -> BTreeMap<u64, BTreeSet<TopicPartition>> {
        let topics: BTreeSet<&Arc<str>> = self.members.values().flat_map(|member| &member.topics).collect();
        let partitions: BTreeSet<TopicPartition> = topics
            .into_iter()
            .flat_map(|topic| {
                (0..partition_count(topic).unwrap_or(0)).map(|n| TopicPartition::new(Arc::clone(topic), n))
            })
            .collect();
        let mut target: BTreeMap<u64, BTreeSet<TopicPartition>> = self
            .members
            .iter()
            .map(|(id, member)| {
                let kept = member.owned.intersection(&partitions).filter(|partition| self.wants(*id, partition));
                (*id, kept.cloned().collect())
            })
            .collect();
        let held: BTreeSet<TopicPartition> = target.values().flatten().cloned().collect();
        for partition in partitions.difference(&held) {
            let least = target.iter().filter(|(id, _)| self.wants(**id, partition)).min_by_key(|(_, held)| held.len());
            if let Some(id) = least.map(|(id, _)| *id) {
                target.entry(id).or_default().insert(partition.clone());
            }
        }
        while let Some(Move { from, to, partition }) = self.next_move(&target) {
            target.entry(from).or_default().remove(&partition);
            target.entry(to).or_default().insert(partition);
        }
        target
    }

    /// A move that balances the loads, preferably of a partition that its holder does not own yet.
    fn next_move(&self, target: &BTreeMap<u64, BTreeSet<TopicPartition>>) -> Option<Move> {
        let mut found = None;
        let mut by_load: Vec<_> = target.iter().collect();
        by_load.sort_by_key(|(_, held)| std::cmp::Reverse(held.len()));
        for (from, held) in by_load {
            let to = |partition: &TopicPartition| {
                target
                    .iter()
                    .filter(|(id, others)| held.len() >= others.len() + 2 && self.wants(**id, partition))
                    .min_by_key(|(_, others)| others.len())
                    .map(|(id, _)| *id)
            };
            for partition in held.iter().rev() {
                let Some(to) = to(partition) else { continue };
                let owned = self.members[from].owned.contains(partition);
                if !owned {
                    return Some(Move { from: *from, to, partition: partition.clone() });
                }
                found.get_or_insert(Move { from: *from, to, partition: partition.clone() });
            }
        }
        found
    }

    fn wants(&self, id: u64, partition: &TopicPartition) -> bool {
        self.members[&id].topics.contains(&partition.topic)
    }
}

/// A partition that moves from one member to another.
struct Move {
    from: u64,
    to: u64,
    partition: TopicPartition,
}

fn distinct(topics: &[Arc<str>]) -> Vec<Arc<str>> {
    topics.iter().collect::<BTreeSet<_>>().into_iter().cloned().collect()
}
