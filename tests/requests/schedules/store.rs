//! A simulated store: the rules themselves, behind a line that is slow, and loses what is sent and what is answered; with
//! a clock of its own, and a disk.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use ratchet::format::request::{RequestEntry, RequestState};
use ratchet::http::OnInDoubt;
use ratchet::http::request::entry::{self, Change};
use ratchet::http::request::{Answer, Error, Found, Id, Reply, Reservation, StillHeld, Store, Token, Wanted};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::clock::Clock;
use super::memory::{Lost, Memory};
use super::mistake::Mistake;
use super::terms::Kind;
use super::world::{OUTSIDE, World};

/// How many entries are removed at once: so few that it takes several times.
const TIDY_MAX: usize = 2;

/// How bad the line is, in thousandths of the calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct Line {
    pub lost: u64,
    pub answer_lost: u64,
    pub slow: u64,
}

/// The store, and the line to it. What is sent goes on when its sender is gone, or does not wait any longer; unless the
/// store is a part of the process that is gone.
#[derive(Clone)]
pub struct Simulated {
    inner: Arc<Inner>,
    outside: Handle,
}

struct Inner {
    world: World,
    kind: Kind,
    line: Mutex<Line>,
    mistake: Option<Mistake>,
    memory: Mutex<Memory>,
    clock: Mutex<Clock>,
    /// How often it was opened: leases of before are over, and nothing is heard of what was asked before.
    opened: Mutex<u64>,
    /// When it was tidied, and how many were removed.
    tidied: Mutex<Vec<(Duration, usize)>>,
}

/// What is sent.
enum Call {
    Reserve(Wanted),
    Extend(Reservation, Duration),
    Complete(Reservation, Answer, Duration),
    Release(Reservation),
    Tidy,
}

/// What is answered.
enum Said {
    Found(Found),
    StillHeld(StillHeld),
    Removed(usize),
    Failed(Error),
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().expect("no panic")
}

impl Simulated {
    pub fn new(world: &World, outside: &Handle, (kind, line): (Kind, Line), mistake: Option<Mistake>) -> Simulated {
        let inner = Inner {
            world: world.clone(),
            kind,
            line: Mutex::new(line),
            mistake,
            memory: Mutex::default(),
            clock: Mutex::new(Clock::new()),
            opened: Mutex::new(0),
            tidied: Mutex::default(),
        };
        Simulated { inner: Arc::new(inner), outside: outside.clone() }
    }

    /// From now on nothing is lost, and nothing is slow.
    pub fn mend(&self) {
        *lock(&self.inner.line) = Line::default();
    }

    /// Its clock is set by so much.
    pub fn set_clock(&self, by_ms: i64) {
        lock(&self.inner.clock).set(self.inner.world.now(), by_ms);
    }

    /// All that its clock has shown.
    pub fn clock(&self) -> Clock {
        lock(&self.inner.clock).clone()
    }

    /// The process that it is a part of is gone.
    pub fn close(&self) {
        *lock(&self.inner.opened) += 1;
    }

    /// The machine has crashed, after it was closed: some of what was not synced is lost.
    pub fn crash(&self) -> Lost {
        let mut memory = lock(&self.inner.memory);
        let kept = self.inner.world.below(memory.unsynced() as u64 + 1) as usize;
        memory.crash(kept)
    }

    /// When somebody has looked what is to be forgotten.
    pub fn tidied(&self) -> Vec<Duration> {
        lock(&self.inner.tidied).iter().map(|(at, _)| *at).collect()
    }

    /// Whether anything was removed then.
    pub fn has_tidied(&self) -> bool {
        lock(&self.inner.tidied).iter().any(|(_, removed)| *removed > 0)
    }

    /// The number of entries that were to be forgotten at least `ago` before now.
    pub fn over(&self, ago: Duration) -> usize {
        let now_ms = self.inner.now_ms() - i64::try_from(ago.as_millis()).expect("a short time");
        lock(&self.inner.memory).over(now_ms)
    }

    async fn send(&self, call: Call) -> Result<Said, Error> {
        let (inner, (reply, said)) = (Arc::clone(&self.inner), oneshot::channel());
        let opened = *lock(&inner.opened);
        self.outside.spawn(async move {
            let line = *lock(&inner.line);
            inner.way(line).await;
            if inner.world.chance(line.lost) || *lock(&inner.opened) != opened {
                return;
            }
            let said = inner.carry_out(call).await;
            inner.way(line).await;
            if !inner.world.chance(line.answer_lost) {
                // Nobody may wait for it any more.
                let _ = reply.send(said);
            }
        });
        match said.await {
            Ok(Said::Failed(error)) => Err(error),
            Ok(said) => Ok(said),
            Err(_) => Err(Error::Unavailable("the line broke".to_owned())),
        }
    }

    async fn still_held(&self, call: Call) -> Result<StillHeld, Error> {
        match self.send(call).await? {
            Said::StillHeld(still_held) => Ok(still_held),
            _ => panic!("another answer"),
        }
    }
}

impl Inner {
    async fn way(&self, line: Line) {
        let bound = if self.world.chance(line.slow) { 3_000 } else { 3 };
        let length = self.world.up_to_ms(bound);
        // What is a part of a process is frozen with it.
        let of = if self.kind == Kind::Embedded { 0 } else { OUTSIDE };
        self.world.sleep(of, length).await;
    }

    fn now_ms(&self) -> i64 {
        lock(&self.clock).at(self.world.now())
    }

    fn entry(&self, id: Id) -> Option<RequestEntry> {
        lock(&self.memory).get(id)
    }

    fn makes(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    /// Names the process that has it open, where its end ends its leases.
    fn run(&self) -> [u8; 16] {
        u128::from(*lock(&self.opened)).to_be_bytes()
    }

    fn put(&self, id: Id, change: Change) {
        lock(&self.memory).put(id, change, self.makes(Mistake::TidiedByOldTime));
    }

    fn sync(&self) {
        lock(&self.memory).sync();
    }

    /// The holder, where it is not asked who it is.
    fn holder(&self, held: Reservation, by_key_alone: bool) -> Reservation {
        let entry = self.entry(held.id).filter(|_| by_key_alone);
        entry.map_or(held, |entry| Reservation { token: Token(entry.token), ..held })
    }

    async fn carry_out(&self, call: Call) -> Said {
        match call {
            Call::Reserve(wanted) => match self.reserve(wanted).await {
                Found::InProgress if self.makes(Mistake::BusyIsDown) => {
                    Said::Failed(Error::Unavailable("somebody has it".to_owned()))
                }
                found => Said::Found(found),
            },
            Call::Extend(held, lease) => {
                let (still_held, change) = entry::extend(self.entry(held.id).as_ref(), held, lease, self.now_ms());
                if !self.makes(Mistake::LeaseNotExtended) {
                    self.put(held.id, change);
                }
                Said::StillHeld(still_held)
            }
            Call::Complete(held, answer, retention) => {
                let still_held = self.complete(held, &answer, retention);
                if !self.makes(Mistake::AnswerNotSynced) {
                    self.sync();
                }
                Said::StillHeld(still_held)
            }
            Call::Release(held) => {
                let (by_key, forgets) = (self.makes(Mistake::ReleaseByKeyAlone), self.makes(Mistake::AnswerReleased));
                let held = self.holder(held, by_key || forgets);
                let (still_held, change) = entry::release(self.entry(held.id).as_ref(), held, self.now_ms());
                self.put(held.id, if forgets { Change::Remove } else { change });
                Said::StillHeld(still_held)
            }
            Call::Tidy => Said::Removed(self.tidy()),
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
        let (found, change) = entry::reserve(before.as_ref(), &wanted, self.run(), self.now_ms());
        if self.makes(Mistake::LookedThenReserved) {
            self.world.sleep(OUTSIDE, Duration::from_millis(2)).await;
        }
        let is_synced = wanted.on_in_doubt == OnInDoubt::Refuse && change != Change::None;
        self.put(id, change);
        if is_synced && !self.makes(Mistake::DoubtNotSynced) {
            self.sync();
        }
        found
    }

    fn complete(&self, held: Reservation, answer: &Answer, retention: Duration) -> StillHeld {
        let replaces = self.makes(Mistake::AnswerReplaced);
        let held = self.holder(held, replaces || self.makes(Mistake::CompleteByKeyAlone));
        let mut before = self.entry(held.id);
        if let Some(RequestEntry { state, .. }) = before.as_mut().filter(|_| replaces) {
            *state = RequestState::Reserved { lease_until_ms: i64::MAX, run: [0; 16] };
        }
        let (still_held, mut change) = entry::complete(before.as_ref(), held, answer, retention, self.now_ms());
        if let Change::Put(entry) = &mut change
            && self.makes(Mistake::NeverForgotten)
        {
            entry.remembered_until_ms = i64::MAX;
        }
        if !self.makes(Mistake::AnswerLost) {
            self.put(held.id, change);
        }
        still_held
    }

    fn tidy(&self) -> usize {
        let now = self.world.now();
        let now_ms = match self.mistake {
            Some(Mistake::TidiedTooSoon) => i64::MAX,
            Some(Mistake::TidiedByAnotherClock) => Clock::new().at(now),
            _ => self.now_ms(),
        };
        let removed = if self.makes(Mistake::NotTidied) { 0 } else { lock(&self.memory).tidy(now_ms, TIDY_MAX) };
        lock(&self.tidied).push((now, removed));
        removed
    }
}

impl Store for Simulated {
    fn reserve<'a>(&'a self, wanted: &'a Wanted) -> Reply<'a, Found> {
        Box::pin(async {
            match self.send(Call::Reserve(*wanted)).await? {
                Said::Found(found) => Ok(found),
                _ => panic!("another answer"),
            }
        })
    }

    fn extend(&self, held: Reservation, lease: Duration) -> Reply<'_, StillHeld> {
        Box::pin(self.still_held(Call::Extend(held, lease)))
    }

    fn complete<'a>(&'a self, held: Reservation, answer: &'a Answer, retention: Duration) -> Reply<'a, StillHeld> {
        Box::pin(self.still_held(Call::Complete(held, answer.clone(), retention)))
    }

    fn release(&self, held: Reservation) -> Reply<'_, StillHeld> {
        Box::pin(self.still_held(Call::Release(held)))
    }

    fn tidy(&self) -> Reply<'_, usize> {
        Box::pin(async {
            match self.send(Call::Tidy).await? {
                Said::Removed(count) => Ok(count),
                _ => panic!("another answer"),
            }
        })
    }

    fn check(&self) -> Reply<'_, ()> {
        Box::pin(async { Ok(()) })
    }
}
