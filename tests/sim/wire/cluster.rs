//! The brokers as the wire's simulation has them: `kafka` says what they do, `speech` how they say it.

use ratchet_testkit::random::Random;

use super::kafka::{Broker, Lead, Log, Nodes, Partition, Protocol, Settings};
use super::speech::{self, Answer, Fetch, Incoming, Manners};

/// The cluster.
pub struct Cluster {
    pub broker: Broker,
    pub manners: Manners,
}

impl Cluster {
    /// Brokers 1 to `nodes`.
    pub fn new(nodes: i32, protocol: Protocol, seed: u64) -> Self {
        let mut broker = Broker::new(protocol);
        broker.nodes = Nodes::new(nodes);
        let manners = Manners { random: Random::new(seed), sessions_max: 1_000, ..Manners::default() };
        Self { broker, manners }
    }

    /// Adds a topic, led by the brokers in turn; all of them know it.
    pub fn create(&mut self, name: &str, partitions: i32, compacted: bool) {
        let settings = Settings { compacted, delete_retention: 0, message_bytes_max: 1 << 20, stamps: false };
        self.broker.topics.create(name, partitions, settings).expect("a new topic");
        self.broker.spread(name);
    }

    /// A partition's log.
    pub fn log(&mut self, partition: &Partition) -> &mut Log {
        self.broker.topics.log_mut(partition).expect("a partition of the cluster")
    }

    /// Who leads a partition.
    pub fn lead(&mut self, partition: &Partition) -> &mut Lead {
        self.broker.nodes.lead(partition)
    }

    /// Moves a partition to another leader; see [`Broker::elect`]. It may know less of former leaders.
    pub fn elect(&mut self, partition: &Partition, to: i32, cut: Option<i64>, unaware: bool) {
        let forgets = self.manners.random.once_in(2);
        self.broker.elect(partition, to, cut, (unaware, forgets));
    }

    /// Whether a broker is up.
    pub fn is_up(&self, node: i32) -> bool {
        self.broker.nodes.all.get(&node).is_some_and(|node| node.is_up)
    }

    /// All of them are, from now on.
    pub fn wake_all(&mut self) {
        self.broker.nodes.all.values_mut().for_each(|node| node.is_up = true);
    }

    /// Handles a request at a broker at time `now`; `None`: the connection is closed.
    pub fn handle(&mut self, node: i32, incoming: &Incoming, now: u64) -> Option<Answer> {
        self.broker.now = now;
        speech::handle(&mut self.broker, &mut self.manners, node, incoming)
    }

    /// The response to a fetch that waits at a broker, if there is one at time `now`.
    pub fn answer(&mut self, node: i32, fetch: &Fetch, now: u64) -> Option<Vec<u8>> {
        self.broker.now = now;
        fetch.answer(&self.broker, &mut self.manners, node).map(|(response, _)| response)
    }
}
