//! Places for clients' connections. Their number is bounded, and each client has a share of them: it may take another
//! place only if it then holds at most as many places as are still free. (For its first place, one free place is
//! enough.) If places have no shares, a client may take all of them.
//!
//! If all places are taken when a new connection arrives, the connection that has been idle longest is closed. If there
//! are free places, but the client already has its share, the connection that has been idle longest among the client's
//! own is closed; if all of these are at work, the new connection is refused. If connections at work take all places, a
//! new connection waits until one of them becomes idle or ends. A connection is at work while it has a request, and
//! once it has become a web socket.

use std::collections::HashMap;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::activity::Activity;
use crate::http::Peer;
use crate::http::proxying::{Full, Limit, Share, Shares};
use crate::observe::OneConnection;

/// The interval between two searches for an idle connection while all places are taken.
const SEARCH_INTERVAL: Duration = Duration::from_millis(50);

/// All places.
pub struct Places {
    max: usize,
    /// Whether each client's address has its own share of the places.
    has_shares: bool,
    /// Counts the places that are taken, in total and by each client.
    shares: Arc<Shares>,
    open: Mutex<OpenConnections>,
    /// Notifies a connection that waits for a place.
    freed: Notify,
}

/// The open connections, by a number that each gets in turn.
#[derive(Default)]
struct OpenConnections {
    last_number: u64,
    all: HashMap<u64, TakenPlace>,
}

/// The place of an open connection.
struct TakenPlace {
    peer: Option<Peer>,
    activity: Arc<Activity>,
    /// `None` once the place is free for another connection, while this one is being closed.
    share: Option<Share>,
}

/// A connection's place, which is freed when its last holder is dropped.
pub struct Place {
    number: u64,
    places: Arc<Places>,
    /// The activity on the connection.
    pub activity: Arc<Activity>,
    /// Counts the connection in the metrics.
    _counted: OneConnection,
}

impl Places {
    /// This many places; `has_shares` says whether each address has a share of them.
    pub fn new(max: usize, has_shares: bool) -> Arc<Self> {
        let (shares, open, freed) = (Arc::default(), Mutex::default(), Notify::new());
        Arc::new(Self { max, has_shares, shares, open, freed })
    }

    /// The shares of the places.
    pub fn shares(&self) -> &Arc<Shares> {
        &self.shares
    }

    fn open(&self) -> MutexGuard<'_, OpenConnections> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a connection from this address, after a wait if necessary; `None` if the client has its share, and
    /// all of its connections are at work.
    pub async fn take(self: &Arc<Self>, address: IpAddr, counted: OneConnection) -> Option<Place> {
        let peer = self.has_shares.then(|| Peer::new(address));
        let limit = Limit { total: self.max, guaranteed: 1 };
        let mut is_refusal_counted = false;
        loop {
            // Enabled before the places are looked at, so that a place freed in between is not missed.
            let mut freed = pin!(self.freed.notified());
            freed.as_mut().enable();
            let full = match self.shares.take_one(peer, limit) {
                Ok(share) => return Some(self.add(peer, share, counted)),
                Err(full) => full,
            };
            if !is_refusal_counted {
                self.shares.count_refusal();
                is_refusal_counted = true;
            }
            let is_closed = match full {
                Full::Share => self.close_longest_idle(|taken| taken.peer == peer),
                Full::All => self.close_longest_idle(|_| true),
            };
            match full {
                _ if is_closed => {}
                Full::Share => return None,
                Full::All => drop(tokio::time::timeout(SEARCH_INTERVAL, freed).await),
            }
        }
    }

    fn add(self: &Arc<Self>, peer: Option<Peer>, share: Share, counted: OneConnection) -> Place {
        let activity = Arc::new(Activity::new());
        let taken = TakenPlace { peer, activity: Arc::clone(&activity), share: Some(share) };
        let mut open = self.open();
        open.last_number += 1;
        let number = open.last_number;
        open.all.insert(number, taken);
        drop(open);
        Place { number, places: Arc::clone(self), activity, _counted: counted }
    }

    /// Closes the selected connection that has been idle longest, and frees its place at once, since closing takes a
    /// moment. Returns whether one was idle.
    fn close_longest_idle(&self, is_selected: impl Fn(&TakenPlace) -> bool) -> bool {
        let mut open = self.open();
        let selected = open.all.values_mut().filter(|taken| is_selected(taken));
        let longest =
            selected.filter_map(|taken| Some((taken.activity.idle_since()?, taken))).min_by_key(|(since, _)| *since);
        let Some((_, taken)) = longest else { return false };
        // If a request has arrived in the meantime, the caller searches again.
        if taken.activity.close_if_idle() {
            taken.share = None;
        }
        true
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let taken = self.places.open().all.remove(&self.number);
        drop(taken);
        self.places.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::observe::Metrics;

    struct Room(Arc<Places>, Metrics);

    impl Room {
        fn new(max: usize, has_shares: bool) -> Self {
            Self(Places::new(max, has_shares), Metrics::new())
        }

        async fn place(&self, last: u8) -> Option<Place> {
            self.0.take(IpAddr::from([192, 0, 2, last]), self.1.connection()).await
        }
    }

    #[tokio::test]
    async fn longest_idle_connection_is_closed_when_all_places_are_taken() {
        let room = Room::new(3, false);
        let mut all = Vec::new();
        for _ in 0..3 {
            all.push(room.place(1).await.unwrap());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let busy = all[0].activity.begin(false);
        let fourth = room.place(2).await.unwrap();
        let closed: Vec<bool> = all.iter().map(|place| place.activity.is_closing()).collect();
        assert_eq!(closed, [false, true, false], "the first one is at work");
        assert_eq!((room.0.shares.used(), room.0.shares.usage().refused), (3, 1));
        let all_busy = [&all[2], &fourth].map(|place| place.activity.begin(false));
        assert!(room.place(2).now_or_never().is_none(), "all are at work");
        let (fifth, ()) = tokio::join!(room.place(2), async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            drop(all.remove(0));
        });
        assert!(fifth.is_some());
        drop((busy, all_busy, all, fourth, fifth));
        assert_eq!((room.0.shares.used(), room.0.open().all.len()), (0, 0));
    }

    #[tokio::test]
    async fn client_with_its_share_closes_its_own_connections() {
        let room = Room::new(8, true);
        let (mut all, mut busy) = (Vec::new(), Vec::new());
        for _ in 0..4 {
            all.push(room.place(1).await.unwrap());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let other = room.place(2).await.unwrap();
        all.push(room.place(1).await.unwrap());
        assert!(all[0].activity.is_closing() && !other.activity.is_closing(), "its own longest idle connection closes");
        busy.extend(all[1..].iter().map(|place| place.activity.begin(false)));
        assert!(room.place(1).await.is_none(), "all of its share is at work");
        assert!(room.place(3).await.is_some(), "there is room for other clients");
    }
}
