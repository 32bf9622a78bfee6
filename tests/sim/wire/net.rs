//! One client on its links to the brokers, and the clock.

use std::time::Instant;

use ratchet_testkit::random::Random;

use super::client::brokers::Brokers;
use super::cluster::Cluster;
use super::links::{Links, Weather};

/// The links of one client.
pub struct Net {
    pub links: Links,
    /// How often, once in so many steps of a link, it is cut; 0 for never.
    pub cut_once_in: usize,
    now: u64,
    base: Instant,
    /// Which client it is: another one, once the one before is gone.
    client: usize,
}

impl Net {
    /// No links yet; the time is zero.
    #[expect(clippy::disallowed_methods, reason = "a base for the simulated clock, of which only differences count")]
    pub fn new(weather: Weather, seed: u64) -> Self {
        let base = Instant::now();
        Self { links: Links::new(base, weather, seed), cut_once_in: 0, now: 0, base, client: 0 }
    }

    /// The time in microseconds.
    pub fn micros(&self) -> u64 {
        self.now
    }

    /// The time.
    pub fn now(&self) -> Instant {
        self.links.at(self.now)
    }

    /// The client is gone, and its links with it.
    pub fn renew(&mut self) {
        self.links.cut_client(self.client, self.now);
        self.client += 1;
    }

    /// Lets time pass: to `until` at most, or to what comes before.
    pub fn pass(&mut self, until: u64) {
        let next = self.links.next(&[], self.now).unwrap_or(u64::MAX);
        self.now = next.min(until).max(self.now + 1);
    }

    /// The microsecond of a time.
    pub fn micros_of(&self, at: Instant) -> u64 {
        at.duration_since(self.base).as_micros() as u64
    }

    /// Does everything that is due on all links.
    pub fn step(&mut self, brokers: &mut Brokers, cluster: &mut Cluster, random: &mut Random) {
        brokers.tick(self.now());
        self.links.serve(self.client, brokers, cluster, self.now);
        for (node, _) in cluster.broker.nodes.all.iter().filter(|(_, node)| !node.is_up) {
            self.links.cut_node(*node, self.now);
        }
        for end in self.links.held() {
            if self.cut_once_in > 0 && random.once_in(self.cut_once_in) {
                self.links.cut(end, true, self.now);
            }
        }
        self.links.deliver_to_brokers(cluster, self.now);
        self.links.deliver_to_client(self.client, brokers, self.now);
    }
}
