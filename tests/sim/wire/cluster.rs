//! The brokers: who leads which partition, who still believes it does, and what each has heard of the others.

use std::collections::BTreeMap;

use kafka_protocol::messages::ApiKey;

use super::log::Log;
use super::random::Random;
use super::sessions::Sessions;
use super::transactions::Transactions;

pub const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
pub const LEADER_NOT_AVAILABLE: i16 = 5;
pub const NOT_LEADER_OR_FOLLOWER: i16 = 6;
pub const TOPIC_AUTHORIZATION_FAILED: i16 = 29;
pub const FENCED_LEADER_EPOCH: i16 = 74;
pub const UNKNOWN_LEADER_EPOCH: i16 = 75;

/// The cluster.
pub struct Cluster {
    pub nodes: BTreeMap<i32, Node>,
    pub topics: BTreeMap<String, Topic>,
    pub random: Random,
    /// Coordinators and groups.
    pub transactions: Transactions,
    /// How often, once in so many times, a response shows a high watermark and a last stable offset from before the
    /// read; 0 for never.
    pub former_once_in: usize,
    /// How often what is fetched is damaged on its way; 0 for never.
    pub damages_once_in: usize,
    /// Whether a first batch that is larger than the limits is cut off, as before KIP-74.
    pub cuts_first: bool,
    /// Another replica that leaders point to instead of returning records, -1 for none (KIP-392).
    pub prefers: i32,
    /// What was fetched so far.
    pub fetches: Fetches,
    /// The requests that brokers do not offer, as if they did not know them.
    pub hidden: Vec<ApiKey>,
}

/// How often was fetched: without a session, or opening one, or in one; alone; and how many partitions were named.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fetches {
    pub full: usize,
    pub alone: usize,
    pub incremental: usize,
    pub named: usize,
}

/// A broker.
#[derive(Debug)]
pub struct Node {
    pub is_up: bool,
    /// Whether the others have noticed that it is not: Metadata does not have it then.
    pub is_given_up: bool,
    pub sessions: Sessions,
    /// Leader and epoch of each partition as it has heard: what it answers to Metadata.
    view: BTreeMap<(String, i32), (i32, i32)>,
}

/// A topic.
#[derive(Default)]
pub struct Topic {
    pub id: [u8; 16],
    /// Whether the client may not read it.
    pub is_denied: bool,
    pub partitions: Vec<Partition>,
}

/// A partition.
#[derive(Default)]
pub struct Partition {
    pub log: Log,
    /// -1 if there is none.
    pub leader: i32,
    pub epoch: i32,
    /// Whether the leader has learnt that it is.
    pub is_led: bool,
    /// Brokers that were replaced and do not know it: their epoch and what they hold.
    pub replaced: Vec<(i32, i32, Log)>,
    /// High watermark and last stable offset from some time ago.
    pub former: Option<(i64, i64)>,
    /// The leader knows its high watermark only by offset, and returns nothing until a follower has fetched
    /// (`LocalLog.read`).
    pub hides: bool,
}

/// What a broker answers from.
pub struct Role<'a> {
    pub log: &'a Log,
    pub former: Option<(i64, i64)>,
    pub hides: bool,
}

impl Cluster {
    /// Brokers 1 to `nodes`.
    pub fn new(nodes: i32, seed: u64) -> Self {
        let node = |_| Node { is_up: true, is_given_up: false, sessions: Sessions::new(1_000), view: BTreeMap::new() };
        let nodes = (1..=nodes).map(|id| (id, node(id))).collect();
        Self {
            nodes,
            topics: BTreeMap::new(),
            random: Random::new(seed),
            transactions: Transactions::new(false, i16::MAX - 1, seed),
            former_once_in: 0,
            damages_once_in: 0,
            cuts_first: false,
            prefers: -1,
            fetches: Fetches::default(),
            hidden: Vec::new(),
        }
    }

    /// Adds a topic, led by the brokers in turn; all of them know it.
    pub fn create(&mut self, name: &str, partitions: usize) {
        let ids: Vec<i32> = self.nodes.keys().copied().collect();
        let one = |number: usize| {
            let mut log = Log::default();
            log.begin_epoch(0);
            Partition { log, leader: ids[number % ids.len()], is_led: true, ..Partition::default() }
        };
        let mut id = [0; 16];
        id[..8].copy_from_slice(&self.random.number().to_be_bytes());
        let partitions = (0..partitions).map(one).collect();
        self.topics.insert(name.to_owned(), Topic { id, is_denied: false, partitions });
        self.gossip_all();
    }

    /// A broker, which exists.
    pub fn node(&mut self, id: i32) -> &mut Node {
        self.nodes.get_mut(&id).expect("a broker of the cluster")
    }

    /// A partition, which exists.
    pub fn partition(&mut self, topic: &str, number: i32) -> &mut Partition {
        &mut self.topics.get_mut(topic).expect("a topic of the cluster").partitions[number as usize]
    }

    /// Every partition.
    pub fn partitions(&self) -> Vec<(String, i32)> {
        let of = |(name, topic): (&String, &Topic)| {
            (0..topic.partitions.len() as i32).map(|number| (name.clone(), number)).collect::<Vec<_>>()
        };
        self.topics.iter().flat_map(of).collect()
    }

    /// Whether this response shows what was before the read.
    pub fn shows_former(&mut self) -> bool {
        self.former_once_in > 0 && self.random.once_in(self.former_once_in)
    }

    /// Whether what is fetched now is damaged.
    pub fn damages(&mut self) -> bool {
        self.damages_once_in > 0 && self.random.once_in(self.damages_once_in)
    }

    /// From what a broker answers for a partition, or the error code: it has to be the leader, or believe it is, in the
    /// epoch that the client knows (KIP-320; `Partition.checkCurrentLeaderEpoch`).
    pub fn role(&self, node: i32, topic: &str, number: i32, epoch: i32) -> Result<Role<'_>, i16> {
        let topic = self.topics.get(topic).ok_or(UNKNOWN_TOPIC_OR_PARTITION)?;
        if topic.is_denied {
            return Err(TOPIC_AUTHORIZATION_FAILED);
        }
        let partition = topic.partitions.get(number as usize).ok_or(UNKNOWN_TOPIC_OR_PARTITION)?;
        let leads = partition.leader == node && partition.is_led;
        let replaced = partition.replaced.iter().find(|(of, ..)| *of == node);
        let (own, log, former) = match replaced {
            Some((_, own, log)) => (*own, log, None),
            None if leads => (partition.epoch, &partition.log, partition.former),
            None => return Err(NOT_LEADER_OR_FOLLOWER),
        };
        match epoch {
            -1 => Ok(Role { log, former, hides: partition.hides }),
            _ if epoch < own => Err(FENCED_LEADER_EPOCH),
            _ if epoch > own => Err(UNKNOWN_LEADER_EPOCH),
            _ => Ok(Role { log, former, hides: partition.hides }),
        }
    }

    /// Moves a partition to another leader. `cut`: where its log ends, if it lacks something; below the high watermark,
    /// that is an unclean election. `unaware`: the old leader goes on believing.
    pub fn elect(&mut self, topic: &str, number: i32, to: i32, cut: Option<i64>, unaware: bool) {
        let forgets = self.random.once_in(2);
        let partition = self.partition(topic, number);
        let (old, epoch) = (partition.leader, partition.epoch);
        if unaware && old != to && partition.is_led {
            let held = partition.log.clone();
            partition.replaced.push((old, epoch, held));
        }
        partition.replaced.retain(|(node, ..)| *node != to);
        if let Some(cut) = cut {
            partition.log.truncate(cut);
            partition.former = None;
        }
        if forgets {
            partition.log.forget_unused_epochs();
        }
        (partition.leader, partition.epoch) = (to, epoch + 1);
        partition.log.begin_epoch(epoch + 1);
        partition.is_led = true;
    }

    /// A broker hears of everything: it knows the leaders, and what it leads itself.
    pub fn gossip(&mut self, id: i32) {
        let mut view = BTreeMap::new();
        for (name, topic) in &mut self.topics {
            for (number, partition) in (0..).zip(&mut topic.partitions) {
                view.insert((name.clone(), number), (partition.leader, partition.epoch));
                partition.replaced.retain(|(node, ..)| *node != id);
                partition.is_led |= partition.leader == id;
            }
        }
        self.node(id).view = view;
    }

    /// All of them do.
    pub fn gossip_all(&mut self) {
        let ids: Vec<i32> = self.nodes.keys().copied().collect();
        ids.into_iter().for_each(|id| self.gossip(id));
    }

    /// Leader and epoch of a partition as a broker has heard; `None` if it has not heard of the partition.
    pub fn heard(&self, id: i32, topic: &str, number: i32) -> Option<(i32, i32)> {
        self.nodes.get(&id)?.view.get(&(topic.to_owned(), number)).copied()
    }
}
