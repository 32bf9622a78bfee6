//! Links between each two of three brokers and to the controller, which can be cut one by one while clients still reach
//! all brokers.
//!
//! All brokers know each other by one name and port. Where a name leads depends on who looks it up: each broker has its
//! own hosts file, in which the name of another resolves to an address that only the proxy between the two listens on.
//! The port is the same for all of them.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use crate::kafka::{Broker, Peers, run_folder};
use crate::proxy::{Condition, Proxy};

/// The ends of links.
const BROKERS: std::ops::RangeInclusive<u32> = 1..=3;
/// The broker that is also the controller.
pub const CONTROLLER: u32 = 1;
/// How many ports are tried: one has to be free at three addresses.
const PORT_ATTEMPTS_MAX: usize = 20;

/// A proxy for each link, by source and destination.
pub struct Links {
    between: BTreeMap<(u32, u32), Proxy>,
    to_controller: BTreeMap<u32, Proxy>,
    hosts: BTreeMap<u32, PathBuf>,
}

impl Links {
    pub fn new() -> Links {
        let mut links = Links { between: BTreeMap::new(), to_controller: BTreeMap::new(), hosts: BTreeMap::new() };
        for to in BROKERS {
            links.between.extend(BROKERS.zip(links_to_one()).map(|(from, proxy)| ((from, to), proxy)));
        }
        for from in BROKERS {
            let path = run_folder().join(format!("hosts-of-{from}"));
            let peers = BROKERS.map(|to| format!("{} {}\n", address_for(from), name(to)));
            let text: String = peers.chain(["127.0.0.1 localhost\n".to_owned()]).collect();
            fs::write(&path, text).expect("the run's folder is writable");
            links.hosts.insert(from, path);
            links.to_controller.insert(from, Proxy::start());
        }
        links
    }

    /// How the broker of this number is known, and how it finds the others.
    pub fn peers(&self, number: u32) -> Peers {
        let port = self.between[&(number, number)].port();
        Peers { advertised: format!("{}:{port}", name(number)), hosts: self.hosts[&number].clone() }
    }

    /// How the broker of this number reaches the controller.
    pub fn voter(&self, number: u32) -> String {
        format!("{CONTROLLER}@127.0.0.1:{}", self.to_controller[&number].port())
    }

    /// Makes the links to this broker end there.
    pub fn lead_to(&self, number: u32, broker: &Broker) {
        for from in BROKERS {
            self.between[&(from, number)].forward_to(broker.behind_peers());
            if number == CONTROLLER {
                self.to_controller[&from].forward_to(broker.controller());
            }
        }
    }

    /// Cuts the link between two brokers, both ways. Connections stay open, and nothing passes until [`Links::mend`].
    pub fn cut(&self, one: u32, other: u32) {
        self.between[&(one, other)].set_condition(Condition::BlackHole);
        self.between[&(other, one)].set_condition(Condition::BlackHole);
    }

    /// Cuts a broker off from the controller, though not from the broker in the same process.
    pub fn cut_from_controller(&self, number: u32) {
        self.to_controller[&number].set_condition(Condition::BlackHole);
    }

    /// Lets everything pass again.
    pub fn mend(&self) {
        self.between
            .values()
            .chain(self.to_controller.values())
            .for_each(|proxy| proxy.set_condition(Condition::Clear));
    }
}

/// Proxies on one port, one at the address of each source.
fn links_to_one() -> Vec<Proxy> {
    for _ in 0..PORT_ATTEMPTS_MAX {
        let mut port = 0;
        let ways: Result<Vec<Proxy>, _> = BROKERS
            .map(|from| {
                let proxy = Proxy::start_at(SocketAddr::from((address_for(from), port)))?;
                port = proxy.port();
                Ok::<_, std::io::Error>(proxy)
            })
            .collect();
        if let Ok(ways) = ways {
            return ways;
        }
    }
    panic!("no port was free at all addresses in {PORT_ATTEMPTS_MAX} attempts");
}

/// Where a broker's links start: a loopback address that only this broker uses.
fn address_for(from: u32) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 1, from as u8)
}

fn name(number: u32) -> String {
    format!("broker-{number}")
}
