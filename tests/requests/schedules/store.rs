//! A simulated store: the rules themselves, behind a line that is slow, and loses what is sent and what is answered.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ratchet::format::request::{RequestEntry, RequestState};
use ratchet::http::OnInDoubt;
use ratchet::http::request::entry::{self, Change};
use ratchet::http::request::{Answer, Error, Found, Held, Id, Kept, Reply, Store, Token, Wanted};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::world::{OUTSIDE, World};

/// What a store may do wrong. That a lease is extended for whoever asks does no harm here, and is left to the stores' suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// An answer is remembered whoever brings it: what almost all others do.
    CompleteByKeyAlone,
    /// A reservation is given back whoever does it.
    ReleaseByKeyAlone,
    /// A lease that is extended ends all the same.
    LeaseNotExtended,
    /// A lease that lasts is taken over.
    LeaseIgnored,
    /// It is looked whether a request is reserved, and reserved some moments later.
    LookedThenReserved,
    /// An answer is said to be remembered, and is not.
    AnswerLost,
    /// An answer replaces the one that is there.
    AnswerReplaced,
    /// A request whose lease is over is taken over where nobody may.
    DoubtIgnored,
    /// What is answered is forgotten when it is given back.
    AnswerReleased,
}

pub const MISTAKES: [Mistake; 9] = [
    Mistake::CompleteByKeyAlone,
    Mistake::ReleaseByKeyAlone,
    Mistake::LeaseNotExtended,
    Mistake::LeaseIgnored,
    Mistake::LookedThenReserved,
    Mistake::AnswerLost,
    Mistake::AnswerReplaced,
    Mistake::DoubtIgnored,
    Mistake::AnswerReleased,
];

/// How bad the line is, in thousandths of the calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct Line {
    pub lost: u64,
    pub answer_lost: u64,
    pub slow: u64,
}

/// The store, and the line to it. What is sent goes on when its sender is gone, or does not wait any longer.
#[derive(Clone)]
pub struct Simulated {
    inner: Arc<Inner>,
    outside: Handle,
}

struct Inner {
    world: World,
    line: Mutex<Line>,
    mistake: Option<Mistake>,
    entries: Mutex<HashMap<Id, RequestEntry>>,
}

/// What is sent.
enum Call {
    Reserve(Wanted),
    Extend(Held, Duration),
    Complete(Held, Answer, Duration),
    Release(Held),
}

/// What is answered.
enum Said {
    Found(Found),
    Kept(Kept),
}

impl Simulated {
    pub fn new(world: &World, outside: &Handle, line: Line, mistake: Option<Mistake>) -> Simulated {
        let inner = Inner { world: world.clone(), line: Mutex::new(line), mistake, entries: Mutex::default() };
        Simulated { inner: Arc::new(inner), outside: outside.clone() }
    }

    /// From now on nothing is lost, and nothing is slow.
    pub fn mend(&self) {
        *self.inner.line.lock().expect("no panic") = Line::default();
    }

    async fn send(&self, call: Call) -> Result<Said, Error> {
        let (inner, (reply, said)) = (Arc::clone(&self.inner), oneshot::channel());
        self.outside.spawn(async move {
            let line = *inner.line.lock().expect("no panic");
            inner.way(line).await;
            if inner.world.chance(line.lost) {
                return;
            }
            let said = inner.carry_out(call).await;
            inner.way(line).await;
            if !inner.world.chance(line.answer_lost) {
                // Nobody may wait for it any more.
                let _ = reply.send(said);
            }
        });
        said.await.map_err(|_| Error::Unavailable("the line broke".to_owned()))
    }

    async fn kept(&self, call: Call) -> Result<Kept, Error> {
        match self.send(call).await? {
            Said::Kept(kept) => Ok(kept),
            Said::Found(found) => panic!("{found:?}"),
        }
    }
}

impl Inner {
    async fn way(&self, line: Line) {
        let bound = if self.world.chance(line.slow) { 3_000 } else { 3 };
        let length = self.world.up_to_ms(bound);
        self.world.sleep(OUTSIDE, length).await;
    }

    fn now_ms(&self) -> i64 {
        i64::try_from(self.world.now().as_millis()).expect("a short run")
    }

    fn entry(&self, id: Id) -> Option<RequestEntry> {
        self.entries.lock().expect("no panic").get(&id).cloned()
    }

    fn put(&self, id: Id, change: Change) {
        let mut entries = self.entries.lock().expect("no panic");
        match change {
            Change::None => {}
            Change::Put(entry) => drop(entries.insert(id, entry)),
            Change::Remove => drop(entries.remove(&id)),
        }
    }

    fn makes(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    /// The holder, where it is not asked who it is.
    fn holder(&self, held: Held, by_key_alone: bool) -> Held {
        let entry = self.entry(held.id).filter(|_| by_key_alone);
        entry.map_or(held, |entry| Held { token: Token(entry.token), ..held })
    }

    async fn carry_out(&self, call: Call) -> Said {
        match call {
            Call::Reserve(wanted) => Said::Found(self.reserve(wanted).await),
            Call::Extend(held, lease) => {
                let (kept, change) = entry::extend(self.entry(held.id).as_ref(), held, lease, self.now_ms());
                if !self.makes(Mistake::LeaseNotExtended) {
                    self.put(held.id, change);
                }
                Said::Kept(kept)
            }
            Call::Complete(held, answer, retention) => Said::Kept(self.complete(held, &answer, retention)),
            Call::Release(held) => {
                let (by_key, forgets) = (self.makes(Mistake::ReleaseByKeyAlone), self.makes(Mistake::AnswerReleased));
                let held = self.holder(held, by_key || forgets);
                let (kept, change) = entry::release(self.entry(held.id).as_ref(), held, self.now_ms());
                self.put(held.id, if forgets { Change::Remove } else { change });
                Said::Kept(kept)
            }
        }
    }

    async fn reserve(&self, mut wanted: Wanted) -> Found {
        let id = wanted.held.id;
        let mut before = self.entry(id);
        if self.makes(Mistake::LeaseIgnored)
            && let Some(RequestEntry { state: RequestState::Reserved { lease_until_ms, .. }, .. }) = &mut before
        {
            *lease_until_ms = 0;
        }
        if self.makes(Mistake::DoubtIgnored) {
            wanted.on_in_doubt = OnInDoubt::Run;
        }
        let (found, change) = entry::reserve(before.as_ref(), &wanted, [0; 16], self.now_ms());
        if self.makes(Mistake::LookedThenReserved) {
            self.world.sleep(OUTSIDE, Duration::from_millis(2)).await;
        }
        self.put(id, change);
        found
    }

    fn complete(&self, held: Held, answer: &Answer, retention: Duration) -> Kept {
        let replaces = self.makes(Mistake::AnswerReplaced);
        let held = self.holder(held, replaces || self.makes(Mistake::CompleteByKeyAlone));
        let mut before = self.entry(held.id);
        if let Some(RequestEntry { state, .. }) = before.as_mut().filter(|_| replaces) {
            *state = RequestState::Reserved { lease_until_ms: i64::MAX, run: [0; 16] };
        }
        let (kept, change) = entry::complete(before.as_ref(), held, answer, retention, self.now_ms());
        if !self.makes(Mistake::AnswerLost) {
            self.put(held.id, change);
        }
        kept
    }
}

impl Store for Simulated {
    fn reserve<'a>(&'a self, wanted: &'a Wanted) -> Reply<'a, Found> {
        Box::pin(async {
            match self.send(Call::Reserve(*wanted)).await? {
                Said::Found(found) => Ok(found),
                Said::Kept(kept) => panic!("{kept:?}"),
            }
        })
    }

    fn extend(&self, held: Held, lease: Duration) -> Reply<'_, Kept> {
        Box::pin(self.kept(Call::Extend(held, lease)))
    }

    fn complete<'a>(&'a self, held: Held, answer: &'a Answer, retention: Duration) -> Reply<'a, Kept> {
        Box::pin(self.kept(Call::Complete(held, answer.clone(), retention)))
    }

    fn release(&self, held: Held) -> Reply<'_, Kept> {
        Box::pin(self.kept(Call::Release(held)))
    }

    fn tidy(&self) -> Reply<'_, usize> {
        Box::pin(async { Ok(0) })
    }

    fn check(&self) -> Reply<'_, ()> {
        Box::pin(async { Ok(()) })
    }
}
