//! Clients under random faults: each request ends once, in order, with its own response or with a correct report of
//! whether it was sent; no request is repeated endlessly; and the client recovers soon after the faults.

use std::collections::BTreeMap;

use proptest::prelude::*;
use rand::SeedableRng as _;
use rand::rngs::StdRng;

use super::super::*;
use super::world::*;

struct Chaos {
    world: World,
    random: StdRng,
    /// The requests that were sent: the body, and the connection.
    sent: BTreeMap<RequestId, (Vec<u8>, (i32, Purpose))>,
    /// The requests that have ended.
    ended: BTreeMap<RequestId, bool>,
    /// The last request of each connection that has ended.
    last_ended: BTreeMap<(i32, Purpose), RequestId>,
    /// How many requests were answered, failed although sent, and failed unsent.
    counts: [usize; 3],
}

impl Chaos {
    fn new(seed: u64) -> Self {
        let mut world = World::with(settings(), &[9001, 9002, 9100], seed);
        world.watch("orders");
        let random = StdRng::seed_from_u64(seed);
        Self {
            world,
            random,
            sent: BTreeMap::new(),
            ended: BTreeMap::new(),
            last_ended: BTreeMap::new(),
            counts: [0; 3],
        }
    }

    /// Sends requests and doubts leaders, as a fetcher or a writer would.
    fn send_requests(&mut self) {
        let Self { world, random, sent, .. } = self;
        for partition in 0..3 {
            let Some(leader) = world.brokers.leader("orders", partition) else { continue };
            let purpose = [Purpose::Fetch, Purpose::Produce, Purpose::Control][random.random_range(0..3)];
            if !world.is_ready(leader.node, purpose) || random.random_bool(0.5) {
                continue;
            }
            let mut body = vec![partition as u8; random.random_range(0..2000)];
            random.fill(&mut body[..]);
            body.extend((sent.len() as u64).to_be_bytes());
            let timeout = ms(random.random_range(50..3000));
            let id = world.brokers.send(leader.node, purpose, echo(&body), timeout, world.now);
            sent.insert(id, (body, (leader.node, purpose)));
            if random.random_bool(0.1) {
                world.brokers.doubt_leader("orders", partition, Some(leader), world.now);
            }
        }
        if random.random_bool(0.1) {
            world.brokers.any_node(world.now);
        }
    }

    /// Moves some bytes on some connections.
    fn move_bytes(&mut self) {
        for link in self.world.links() {
            let piece = match self.random.random_range(0..3) {
                0 => self.random.random_range(1..10),
                1 => self.random.random_range(1..3000),
                _ => usize::MAX,
            };
            match self.random.random_range(0..4) {
                0 => drop(self.world.write(link, piece)),
                1 => drop(self.world.serve(link)),
                2 => drop(self.world.read(link, piece)),
                _ => {}
            }
        }
    }

    fn fault(&mut self) {
        let links = self.world.links();
        let Self { world, random, .. } = self;
        let link = if links.is_empty() { None } else { Some(links[random.random_range(0..links.len())]) };
        let port = 9001 + random.random_range(0..3);
        match (random.random_range(0..8), link) {
            (0, Some(link)) => world.cut(link, "it was cut"),
            (1, Some(link)) => {
                // The broker sends random bytes.
                let wire = world.wires.get_mut(&link).unwrap();
                let count = random.random_range(1..20);
                wire.to_client.extend((0..count).map(|_| random.random_range(0..=255_u8)));
            }
            (2, Some(link)) => {
                // All bytes in transit are lost.
                world.wires.get_mut(&link).unwrap().to_broker.clear();
                world.wires.get_mut(&link).unwrap().to_client.clear();
                world.cut(link, "it lost everything");
            }
            (3, _) => drop(world.cluster.down.insert(port)),
            (4, _) => world.cluster.down.clear(),
            (5, _) => drop(world.cluster.silent.insert(port)),
            (6, _) => world.cluster.silent.clear(),
            (_, _) => {
                let partition = random.random_range(0..3);
                let leader = &mut world.cluster.topics.get_mut("orders").unwrap().1[partition];
                *leader = (random.random_range(1..=3), leader.1 + 1);
            }
        }
    }

    /// Ticks when a tick is due; and sometimes when none is due, which must not change the client's state.
    fn tick(&mut self) {
        let World { brokers, now, .. } = &mut self.world;
        let is_due = brokers.next_tick().is_none_or(|at| at <= *now);
        if !is_due && self.random.random_bool(0.7) {
            return;
        }
        let state = |brokers: &Brokers| {
            let output = brokers.links.keys().map(|link| {
                let mut slices = Vec::new();
                brokers.output(*link, &mut slices);
                slices.iter().map(|slice| slice.len()).sum::<usize>()
            });
            (brokers.acts.clone(), brokers.events.len(), output.collect::<Vec<_>>())
        };
        let before = state(brokers);
        brokers.tick(*now);
        if !is_due {
            assert_eq!(state(brokers), before, "a tick that was not due has changed the client's state");
        }
    }

    fn check_events(&mut self) {
        self.world.events.extend(std::iter::from_fn(|| self.world.brokers.next_event()));
        for event in std::mem::take(&mut self.world.events) {
            let (id, outcome) = match event {
                Event::Responded { id, version, body } => {
                    assert_eq!(version, 5);
                    assert_eq!(body.as_slice(), self.sent[&id].0, "{id:?} has the response to another request");
                    self.world.brokers.recycle(body.into_buffer());
                    (id, 0)
                }
                Event::Failed { id, sent, reason } => {
                    assert!(!reason.is_empty());
                    let body = &self.sent[&id].0;
                    let was_seen = self.world.seen.iter().any(|seen| seen.api_key == ECHO && seen.body == body[..]);
                    assert!(sent || !was_seen, "{id:?} was not sent, and yet a broker saw it");
                    (id, if sent { 1 } else { 2 })
                }
            };
            self.counts[outcome] += 1;
            assert_eq!(self.ended.insert(id, true), None, "{id:?} ended twice");
            let key = self.sent[&id].1;
            assert!(self.last_ended.insert(key, id).is_none_or(|last| last < id), "{id:?} ended out of order");
        }
    }

    fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            if self.random.random_bool(0.03) {
                self.fault();
            }
            self.send_requests();
            self.world.act();
            self.move_bytes();
            self.tick();
            self.check_events();
            if self.random.random_bool(0.3) {
                self.world.now += ms(self.random.random_range(0..40));
            }
            assert!(self.world.wires.len() <= 3 * 4 + 3, "too many connections");
        }
    }

    /// Ends the faults, and asserts that the client recovers.
    fn recover(&mut self) {
        self.world.cluster.down.clear();
        self.world.cluster.silent.clear();
        self.world.ticks = 0;
        let took = self.world.until(|world| {
            let leaders: Vec<_> = (0..3).map(|partition| world.leader(partition)).collect();
            let expected: Vec<_> = world.cluster.topics["orders"].1.iter().copied().map(Some).collect();
            let is_ready = leaders.iter().flatten().all(|(node, _)| world.is_ready(*node, Purpose::Fetch));
            // A stale leader is noticed when it is used.
            for partition in 0..3 {
                if leaders[partition as usize] != expected[partition as usize] {
                    let leader = world.brokers.leader("orders", partition);
                    world.brokers.doubt_leader("orders", partition, leader, world.now);
                }
            }
            is_ready && leaders == expected
        });
        assert!(took < Duration::from_secs(12), "{took:?}");
        assert!(self.world.ticks < 20_000, "{} ticks", self.world.ticks);
        self.world.pass(Duration::from_secs(5));
        self.check_events();
        assert_eq!(self.ended.len(), self.sent.len(), "a request has not ended");
    }
}

#[test]
fn every_outcome_of_a_request_occurs() {
    let mut counts = [0; 3];
    for seed in 0..40 {
        let mut chaos = Chaos::new(seed);
        chaos.run(1500);
        chaos.recover();
        counts = std::array::from_fn(|outcome| counts[outcome] + chaos.counts[outcome]);
    }
    assert!(counts.iter().all(|count| *count > 100), "answered, failed sent, failed unsent: {counts:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn every_request_ends_once_under_any_fault(seed in any::<u64>()) {
        let mut chaos = Chaos::new(seed);
        chaos.run(1500);
        chaos.recover();
    }
}

#[test]
fn same_seed_gives_the_same_run() {
    let trace = |seed| {
        let mut chaos = Chaos::new(seed);
        let start = chaos.world.now;
        chaos.run(800);
        let connects: Vec<_> =
            chaos.world.connects.iter().map(|(at, port, purpose)| (*at - start, *port, *purpose)).collect();
        (connects, chaos.counts, chaos.ended)
    };
    assert_eq!(trace(7), trace(7));
    assert_ne!(trace(7).0, trace(8).0);
}
