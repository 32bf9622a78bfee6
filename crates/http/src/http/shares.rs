//! Bounds that all clients share, so that one client leaves room for others.
//!
//! A client may take another part of a bound only if it then has no more than is still free, or no more than
//! [`Limit::guaranteed`]. So the first client gets half of the bound, the next one half of the rest, and so on. A
//! client is identified by its address, which it cannot forge. Requests without an address count only towards the
//! total.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

/// The client of a request, to be put among the request's extensions. One client then leaves room for others within the
/// bounds on [requests](super::Idempotency::at_work_max) and their [bodies](super::Idempotency::bodies_bytes_max).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Peer(IpAddr);

impl Peer {
    /// The client at this address. All addresses of an IPv6 /64 network are one client.
    pub fn new(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
            }
            address => address,
        })
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            IpAddr::V4(address) => write!(f, "{address}"),
            IpAddr::V6(address) => write!(f, "{address}/64"),
        }
    }
}

/// A bound on an amount that all clients share.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// For all clients together.
    pub total: usize,
    /// The amount that one client may have even if less than that is still free, as long as it fits into the total.
    pub guaranteed: usize,
}

/// Why a share cannot grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// The bound has no room for this amount.
    All,
    /// The client would then have more than is still free, and more than [`Limit::guaranteed`].
    Share,
}

/// What is taken of one bound, in total and by each client.
#[derive(Debug, Default)]
pub struct Shares(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    used: usize,
    /// The amount that each client has.
    by_peer: HashMap<Peer, usize>,
    /// The number of refusals.
    refused: u64,
}

/// The use of a bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// How much of it is taken.
    pub used: usize,
    /// The number of refusals.
    pub refused: u64,
    /// The client that has the most of it, and how much.
    pub largest: Option<(Peer, usize)>,
}

/// The part of a bound that one request or one connection has, until this value is dropped.
#[derive(Debug)]
pub struct Share {
    shares: Arc<Shares>,
    peer: Option<Peer>,
    amount: usize,
}

impl Shares {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An empty share for this client.
    pub fn empty_share(self: &Arc<Self>, peer: Option<Peer>) -> Share {
        Share { shares: Arc::clone(self), peer, amount: 0 }
    }

    /// A share of the amount 1 for this client. If there is no room, the caller has to count the refusal
    /// ([`Self::count_refusal`]).
    pub fn take_one(self: &Arc<Self>, peer: Option<Peer>, limit: Limit) -> Result<Share, Full> {
        let mut share = self.empty_share(peer);
        share.try_grow(1, limit).map(|()| share)
    }

    /// Counts a refusal.
    pub fn count_refusal(&self) {
        self.state().refused += 1;
    }

    /// How much is taken.
    pub fn used(&self) -> usize {
        self.state().used
    }

    /// The use of the bound.
    pub fn usage(&self) -> Usage {
        let state = self.state();
        let largest = state.by_peer.iter().max_by_key(|(_, amount)| **amount).map(|(peer, amount)| (*peer, *amount));
        Usage { used: state.used, refused: state.refused, largest }
    }
}

impl Share {
    /// Takes this amount more; `false` if there is no room for it, which counts as a refusal.
    pub fn grow(&mut self, amount: usize, limit: Limit) -> bool {
        let grown = self.try_grow(amount, limit).is_ok();
        if !grown {
            self.shares.count_refusal();
        }
        grown
    }

    fn try_grow(&mut self, amount: usize, limit: Limit) -> Result<(), Full> {
        let mut state = self.shares.state();
        let used = state.used.saturating_add(amount);
        if used > limit.total {
            return Err(Full::All);
        }
        if let Some(peer) = self.peer {
            let peer_amount = state.by_peer.get(&peer).copied().unwrap_or_default() + amount;
            if peer_amount > limit.guaranteed.max(limit.total - used) {
                return Err(Full::Share);
            }
            state.by_peer.insert(peer, peer_amount);
        }
        state.used = used;
        self.amount += amount;
        Ok(())
    }

    /// Ties the share to these bytes: the share is given back when the last of them is dropped.
    pub fn hold(self, bytes: Bytes) -> Bytes {
        if bytes.is_empty() { bytes } else { Bytes::from_owner(HeldBytes { bytes, _share: self }) }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.amount == 0 {
            return;
        }
        let mut state = self.shares.state();
        state.used -= self.amount;
        if let Some(peer) = self.peer
            && let Some(peer_amount) = state.by_peer.get_mut(&peer)
        {
            *peer_amount -= self.amount;
            if *peer_amount == 0 {
                state.by_peer.remove(&peer);
            }
        }
    }
}

/// Bytes, and the share that counts them.
struct HeldBytes {
    bytes: Bytes,
    _share: Share,
}

impl AsRef<[u8]> for HeldBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(last: u8) -> Option<Peer> {
        Some(Peer::new(IpAddr::from([192, 0, 2, last])))
    }

    /// Takes shares of the amount 1 for this client until one is refused.
    fn take_all(shares: &Arc<Shares>, peer: Option<Peer>, total: usize) -> Vec<Share> {
        std::iter::from_fn(|| shares.take_one(peer, Limit { total, guaranteed: 1 }).ok()).collect()
    }

    #[test]
    fn client_gets_at_most_as_much_as_is_still_free() {
        let shares = Arc::default();
        let first = take_all(&shares, peer(1), 100);
        let second = take_all(&shares, peer(2), 100);
        assert_eq!((first.len(), second.len()), (50, 25), "half, and half of the rest");
        assert_eq!(shares.usage().largest, peer(1).map(|peer| (peer, 50)));
        drop(first);
        assert_eq!(take_all(&shares, peer(3), 100).len(), 37);
        drop(second);
        assert_eq!(
            (shares.used(), take_all(&shares, None, 100).len()),
            (0, 100),
            "without addresses there are no shares"
        );
        assert_eq!(shares.usage(), Usage::default());
    }

    #[test]
    fn client_without_a_share_gets_one_while_there_is_room() {
        let shares: Arc<Shares> = Arc::default();
        let one = shares.take_one(peer(1), Limit { total: 2, guaranteed: 1 });
        let limit = Limit { total: 2, guaranteed: 1 };
        assert_eq!(shares.take_one(peer(1), limit).unwrap_err(), Full::Share);
        let other = shares.take_one(peer(2), limit);
        assert_eq!(shares.take_one(peer(3), limit).unwrap_err(), Full::All);
        drop((one, other));
    }

    #[test]
    fn share_is_held_until_the_last_of_its_bytes_is_dropped() {
        let shares: Arc<Shares> = Arc::default();
        let mut share = shares.empty_share(peer(1));
        assert!(
            share.grow(4, Limit { total: 10, guaranteed: 0 }) && !share.grow(4, Limit { total: 10, guaranteed: 0 })
        );
        let mut bytes = share.hold(Bytes::from_static(b"body"));
        let tail = bytes.split_off(3);
        drop(bytes);
        assert_eq!((shares.used(), shares.usage().refused), (4, 1));
        drop(tail);
        assert_eq!(shares.used(), 0);
    }

    #[test]
    fn ipv6_network_is_one_client() {
        let client = |text: &str| Peer::new(text.parse().unwrap());
        assert_eq!(client("2001:db8:1:2::1"), client("2001:db8:1:2:ffff::"));
        assert_ne!(client("2001:db8:1:2::1"), client("2001:db8:1:3::1"));
        assert_eq!(
            (client("::ffff:192.0.2.1"), client("2001:db8::1").to_string()),
            (client("192.0.2.1"), "2001:db8::/64".to_owned())
        );
        assert_ne!(client("192.0.2.1"), client("192.0.2.2"));
    }
}
