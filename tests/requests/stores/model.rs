//! The rules themselves as a store, in memory.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ratchet::format::request::RequestEntry;
use ratchet::http::request::entry::{self, Change};
use ratchet::http::request::operator::{Decision, ListFilter, ListedRequest, Settle, Settled};
use ratchet::http::request::{Answer, Error, Found, Id, Reply, Reservation, StillHeld, Store, Token, Wanted};

#[derive(Default)]
pub struct Model {
    entries: Mutex<HashMap<Id, RequestEntry>>,
}

fn now_ms() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis()).expect("before 10,000")
}

impl Model {
    fn change<T>(&self, id: Id, rule: impl FnOnce(Option<&RequestEntry>, i64) -> (T, Change)) -> Result<T, Error> {
        let mut entries = self.entries.lock().expect("no panic");
        let (said, change) = rule(entries.get(&id), now_ms());
        match change {
            Change::None => {}
            Change::Put(entry) => drop(entries.insert(id, entry)),
            Change::Remove => drop(entries.remove(&id)),
        }
        Ok(said)
    }
}

impl Settle for Model {
    fn list<'a>(&'a self, filter: &'a ListFilter) -> Reply<'a, Vec<ListedRequest>> {
        Box::pin(async {
            let (entries, now) = (self.entries.lock().expect("no panic"), now_ms());
            let requests = entries.iter().filter_map(|(id, entry)| entry::listed_request(*id, entry, [0; 16], now));
            Ok(filter.first_of(requests.filter(|request| filter.matches(request)).collect()))
        })
    }

    fn settle<'a>(&'a self, id: Id, decision: &'a Decision, token: Token) -> Reply<'a, Settled> {
        Box::pin(async move { self.change(id, |entry, now| entry::settle(entry, decision, token, [0; 16], now)) })
    }
}

impl Store for Model {
    fn reserve<'a>(&'a self, wanted: &'a Wanted) -> Reply<'a, Found> {
        Box::pin(async { self.change(wanted.held.id, |entry, now| entry::reserve(entry, wanted, [0; 16], now)) })
    }

    fn extend(&self, held: Reservation, lease: Duration) -> Reply<'_, StillHeld> {
        Box::pin(async move { self.change(held.id, |entry, now| entry::extend(entry, held, lease, now)) })
    }

    fn complete<'a>(&'a self, held: Reservation, answer: &'a Answer, retention: Duration) -> Reply<'a, StillHeld> {
        Box::pin(async move { self.change(held.id, |entry, now| entry::complete(entry, held, answer, retention, now)) })
    }

    fn release(&self, held: Reservation) -> Reply<'_, StillHeld> {
        Box::pin(async move { self.change(held.id, |entry, now| entry::release(entry, held, now)) })
    }

    fn tidy(&self) -> Reply<'_, usize> {
        Box::pin(async {
            let mut entries = self.entries.lock().expect("no panic");
            let (before, now) = (entries.len(), now_ms());
            entries.retain(|_, entry| entry::current(Some(entry), now).is_some());
            Ok(before - entries.len())
        })
    }

    fn check(&self) -> Reply<'_, ()> {
        Box::pin(async { Ok(()) })
    }
}
