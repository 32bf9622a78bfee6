//! The addresses of brokers: those from metadata, and the bootstrap addresses.

use std::collections::BTreeMap;

use super::types::Address;

/// Addresses by the broker's number. Bootstrap addresses have negative numbers: -1 is the first.
#[derive(Debug)]
pub struct Hosts {
    bootstrap: Vec<Address>,
    nodes: BTreeMap<i32, Address>,
}

impl Hosts {
    /// Starts with bootstrap addresses only.
    pub fn new(bootstrap: Vec<Address>) -> Self {
        Self { bootstrap, nodes: BTreeMap::new() }
    }

    /// A broker's address.
    pub fn address(&self, node: i32) -> Option<&Address> {
        match usize::try_from(-1_i64 - i64::from(node)) {
            Ok(index) => self.bootstrap.get(index),
            Err(_) => self.nodes.get(&node),
        }
    }

    /// Whether any broker has this address.
    pub fn contains(&self, address: &Address) -> bool {
        self.bootstrap.contains(address) || self.nodes.values().any(|known| known == address)
    }

    /// Replaces the brokers with those in metadata; returns the brokers whose address has changed.
    pub fn replace(&mut self, nodes: impl IntoIterator<Item = (i32, Address)>) -> Vec<i32> {
        let before = std::mem::replace(&mut self.nodes, nodes.into_iter().collect());
        let moved = before.into_iter().filter(|(node, old)| self.nodes.get(node).is_some_and(|new| new != old));
        moved.map(|(node, _)| node).collect()
    }

    /// The brokers from metadata in the order of their numbers, beginning after `node`, then from the lowest one on.
    pub fn nodes_after(&self, node: Option<i32>) -> impl Iterator<Item = i32> {
        let from = node.unwrap_or(-1).saturating_add(1);
        let (after, before) = (self.nodes.range(from..), self.nodes.range(..from));
        after.chain(before).map(|(node, _)| *node)
    }

    /// The numbers of the bootstrap addresses in the order of the addresses, beginning after `node`, then from the
    /// first one on.
    pub fn bootstrap_after(&self, node: Option<i32>) -> impl Iterator<Item = i32> {
        let count = self.bootstrap.len();
        let from = node.and_then(|node| usize::try_from(-i64::from(node)).ok()).unwrap_or(0);
        (0..count).map(move |index| -1 - ((index + from) % count) as i32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brokers_and_bootstrap_addresses_rotate() {
        let address = |port| Address { host: "h".into(), port };
        let mut hosts = Hosts::new(vec![address(1), address(2), address(3)]);
        let bootstrap = |hosts: &Hosts, node| hosts.bootstrap_after(node).collect::<Vec<_>>();
        assert_eq!(bootstrap(&hosts, None), [-1, -2, -3]);
        assert_eq!(bootstrap(&hosts, Some(-1)), [-2, -3, -1]);
        assert_eq!(bootstrap(&hosts, Some(-3)), [-1, -2, -3]);
        assert_eq!(bootstrap(&hosts, Some(5)), [-1, -2, -3]);
        assert_eq!((hosts.address(-3), hosts.address(-4), hosts.address(i32::MIN)), (Some(&address(3)), None, None));
        assert!(hosts.replace([(7, address(7)), (5, address(5)), (9, address(9))]).is_empty());
        let nodes = |node| hosts.nodes_after(node).collect::<Vec<_>>();
        assert_eq!(nodes(None), [5, 7, 9]);
        assert_eq!(nodes(Some(5)), [7, 9, 5]);
        assert_eq!(nodes(Some(9)), [5, 7, 9]);
        assert_eq!(nodes(Some(i32::MAX)).len(), 3);
        assert_eq!(nodes(Some(-2)), [5, 7, 9]);
        assert_eq!(hosts.replace([(7, address(8)), (9, address(9))]), [7]);
        assert_eq!((hosts.address(5), hosts.address(7)), (None, Some(&address(8))));
        assert!(hosts.contains(&address(8)) && hosts.contains(&address(1)) && !hosts.contains(&address(7)));
    }
}
