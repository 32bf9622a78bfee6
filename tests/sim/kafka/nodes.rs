//! Several brokers: who leads which partition, who still believes it does, and what each has heard of the others.
//!
//! Where no partition has a [`Lead`], there is one broker, which leads and coordinates everything.

use std::collections::BTreeMap;

use super::{Broker, Code, Log, Partition, Time};

/// The broker that is there if there is only one.
pub const FIRST: i32 = 1;

/// A broker.
#[derive(Debug)]
pub struct Node {
    pub is_up: bool,
    /// Whether the others have noticed that it is not: Metadata does not have it then.
    pub is_given_up: bool,
    /// Leader and epoch of each partition as it has heard: what it answers to Metadata.
    view: BTreeMap<Partition, (i32, i32)>,
}

/// Who leads a partition.
#[derive(Debug, Default)]
pub struct Lead {
    pub leader: i32,
    /// Whether the leader has learnt that it is.
    pub is_led: bool,
    /// Brokers that were replaced and do not know it, and what they hold.
    pub replaced: Vec<(i32, Log)>,
    /// High watermark and last stable offset from some time ago.
    pub former: Option<(i64, i64)>,
    /// The leader knows its high watermark only by offset, and returns nothing until a follower has fetched
    /// (`LocalLog.read`).
    pub hides: bool,
}

/// Which coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seat {
    Transactions = 0,
    Groups = 1,
}

/// All brokers.
#[derive(Debug)]
pub struct Nodes {
    pub all: BTreeMap<i32, Node>,
    leads: BTreeMap<Partition, Lead>,
    /// Who coordinates transactions, who groups, and until when they load.
    pub seats: [(i32, Time); 2],
}

impl Default for Nodes {
    fn default() -> Self {
        Self::new(1)
    }
}

/// From what a broker answers.
pub struct Served<'a> {
    pub log: &'a Log,
    pub former: Option<(i64, i64)>,
    pub hides: bool,
}

impl Nodes {
    /// Brokers 1 to `count`.
    pub fn new(count: i32) -> Self {
        let node = |id| (id, Node { is_up: true, is_given_up: false, view: BTreeMap::new() });
        Self { all: (FIRST..=count).map(node).collect(), leads: BTreeMap::new(), seats: [(FIRST, 0); 2] }
    }

    /// A broker, which exists.
    pub fn node(&mut self, id: i32) -> &mut Node {
        self.all.get_mut(&id).expect("a broker of the cluster")
    }

    /// Who leads a partition, which exists.
    pub fn lead(&mut self, partition: &Partition) -> &mut Lead {
        self.leads.get_mut(partition).expect("a partition of several brokers")
    }

    /// Whether a partition has a leader that knows it.
    pub fn is_led(&self, partition: &Partition) -> bool {
        self.leads.get(partition).is_none_or(|lead| lead.is_led)
    }

    /// Whether a broker was replaced as the leader and does not know it: nobody follows it any more.
    pub fn is_replaced(&self, node: i32, partition: &Partition) -> bool {
        self.leads.get(partition).is_some_and(|lead| lead.replaced.iter().any(|(of, _)| *of == node))
    }

    /// Whether a broker has a coordinator's seat, and has loaded.
    pub fn seat(&self, seat: Seat, node: i32, now: Time) -> Result<(), Code> {
        match self.seats[seat as usize] {
            (at, _) if at != node => Err(Code::NotCoordinator),
            (_, until) if now < until => Err(Code::CoordinatorLoadInProgress),
            _ => Ok(()),
        }
    }

    /// The partitions.
    pub fn partitions(&self) -> Vec<Partition> {
        self.leads.keys().cloned().collect()
    }
}

impl Broker {
    /// Has the brokers lead a topic's partitions in turn; all of them know it. Followers fetch when they are told.
    pub fn spread(&mut self, topic: &str) {
        let ids: Vec<i32> = self.nodes.all.keys().copied().collect();
        for (number, log) in self.topics.get_mut(topic).into_iter().flat_map(|topic| topic.logs.iter_mut().enumerate())
        {
            log.lags = true;
            let lead = Lead { leader: ids[number % ids.len()], is_led: true, ..Lead::default() };
            self.nodes.leads.insert(Partition::new(topic, number as i32), lead);
        }
        self.gossip_all();
    }

    /// From what a broker answers for a partition, or the error: it has to be the leader, or believe it is, in the epoch
    /// that the client knows, which is -1 if it does not (KIP-320; `Partition.checkCurrentLeaderEpoch`).
    pub fn served(&self, node: i32, partition: &Partition, epoch: i32) -> Result<Served<'_>, Code> {
        self.leader(partition)?;
        let log = self.topics.log(partition).ok_or(Code::UnknownTopicOrPartition)?;
        if self.topics.get(&partition.topic).is_some_and(|topic| topic.is_denied) {
            return Err(Code::TopicAuthorizationFailed);
        }
        let lead = self.nodes.leads.get(partition);
        let held = lead.and_then(|lead| lead.replaced.iter().find(|(of, _)| *of == node));
        let hides = lead.is_some_and(|lead| lead.hides);
        let (log, former) = match (held, lead) {
            (Some((_, held)), _) => (held, None),
            (None, None) => (log, None),
            (None, Some(lead)) if lead.leader == node && lead.is_led => (log, lead.former),
            (None, Some(_)) => return Err(Code::NotLeaderOrFollower),
        };
        match epoch {
            -1 => Ok(Served { log, former, hides }),
            _ if epoch < log.epoch() => Err(Code::FencedLeaderEpoch),
            _ if epoch > log.epoch() => Err(Code::UnknownLeaderEpoch),
            _ => Ok(Served { log, former, hides }),
        }
    }

    /// Moves a partition to another leader. `cut`: where its log ends, if it lacks something; below the high watermark,
    /// that is an unclean election. `unaware`: the old leader goes on believing. `forgets`: the new one knows no epoch of
    /// which nothing was written.
    pub fn elect(&mut self, partition: &Partition, to: i32, cut: Option<i64>, (unaware, forgets): (bool, bool)) {
        let lead = self.nodes.leads.get_mut(partition).expect("a partition of several brokers");
        let log = self.topics.log_mut(partition).expect("it has a leader");
        let epoch = log.epoch();
        if unaware && lead.leader != to && lead.is_led {
            lead.replaced.push((lead.leader, log.clone()));
        }
        lead.replaced.retain(|(node, _)| *node != to);
        if let Some(cut) = cut {
            log.truncate(cut);
            lead.former = None;
        }
        if forgets {
            log.forget_unused_epochs();
        }
        log.begin_epoch(epoch + 1);
        (lead.leader, lead.is_led) = (to, true);
    }

    /// A broker hears of everything: it knows the leaders, and what it leads itself.
    pub fn gossip(&mut self, id: i32) {
        let mut view = BTreeMap::new();
        for (partition, lead) in &mut self.nodes.leads {
            let epoch = self.topics.log(partition).map_or(0, Log::epoch);
            view.insert(partition.clone(), (lead.leader, epoch));
            lead.replaced.retain(|(node, _)| *node != id);
            lead.is_led |= lead.leader == id;
        }
        self.nodes.node(id).view = view;
    }

    /// All of them do.
    pub fn gossip_all(&mut self) {
        let ids: Vec<i32> = self.nodes.all.keys().copied().collect();
        ids.into_iter().for_each(|id| self.gossip(id));
    }

    /// Leader and epoch of a partition as a broker has heard, the leader -1 if there is none; `None` if it has not heard
    /// of the partition.
    pub fn heard(&self, node: i32, partition: &Partition) -> Option<(i32, i32)> {
        if self.nodes.leads.is_empty() {
            let log = self.topics.log(partition)?;
            return Some((if self.leader(partition).is_ok() { FIRST } else { -1 }, log.epoch()));
        }
        self.nodes.all.get(&node)?.view.get(partition).copied()
    }
}
