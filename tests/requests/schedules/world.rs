//! Simulated time, and everything that happens in it, drawn from a seed.
//!
//! Whatever waits, waits for a timer. The driver lets all that is ready run, then goes to the next timer. So a seed always
//! gives the same schedule.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::future::BoxFuture;
use ratchet::http::Surroundings;
use ratchet::http::request::Token;
use tokio::sync::oneshot;

use crate::random::Random;

/// All of a run.
#[derive(Clone)]
pub struct World(Arc<Mutex<State>>);

pub struct State {
    pub now: Duration,
    pub random: Random,
    timers: BTreeMap<(Duration, u64), (usize, oneshot::Sender<()>)>,
    count: u64,
    /// Until when each process is frozen.
    frozen_until: Vec<Duration>,
}

/// Those that are never frozen: the store, the clients.
pub const OUTSIDE: usize = usize::MAX;

impl World {
    pub fn new(seed: u64) -> World {
        World(Arc::new(Mutex::new(State {
            now: Duration::ZERO,
            random: Random::new(seed),
            timers: BTreeMap::new(),
            count: 0,
            frozen_until: Vec::new(),
        })))
    }

    /// There are so many processes.
    pub fn has(&self, processes: usize) {
        self.lock().frozen_until.resize(processes, Duration::ZERO);
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no panic holds it")
    }

    pub fn now(&self) -> Duration {
        self.lock().now
    }

    pub fn below(&self, bound: u64) -> u64 {
        self.lock().random.below(bound)
    }

    /// True in so many of a thousand cases.
    pub fn chance(&self, of_thousand: u64) -> bool {
        self.below(1_000) < of_thousand
    }

    /// A time of up to so many milliseconds.
    pub fn up_to_ms(&self, bound: u64) -> Duration {
        Duration::from_micros(self.below(bound * 1_000 + 1))
    }

    /// Is ready after so long, and when the process is not frozen.
    pub fn sleep(&self, process: usize, length: Duration) -> BoxFuture<'static, ()> {
        let (sender, receiver) = oneshot::channel();
        {
            let mut state = self.lock();
            let at = (state.now + length, state.count);
            state.count += 1;
            state.timers.insert(at, (process, sender));
        }
        Box::pin(async move { receiver.await.expect("timers outlive those who wait") })
    }

    pub fn freeze(&self, process: usize, length: Duration) {
        let mut state = self.lock();
        state.frozen_until[process] = state.now + length;
    }

    pub fn is_frozen(&self, process: usize) -> bool {
        let state = self.lock();
        state.frozen_until[process] > state.now
    }

    /// Goes to the next timer; false if there is none before `end`.
    pub fn advance(&self, end: Duration) -> bool {
        loop {
            let mut state = self.lock();
            let Some((&at, _)) = state.timers.first_key_value().filter(|((at, _), _)| *at < end) else { return false };
            let (process, sender) = state.timers.remove(&at).expect("it was there");
            let thaws = state.frozen_until.get(process).copied().unwrap_or_default();
            if thaws > at.0 {
                let count = state.count;
                state.count += 1;
                state.timers.insert((thaws, count), (process, sender));
                continue;
            }
            state.now = state.now.max(at.0);
            drop(state);
            // The one that waited may be gone: then the next one is due.
            if sender.send(()).is_ok() {
                return true;
            }
        }
    }
}

/// A process' time and tokens.
pub struct Process {
    pub world: World,
    pub number: usize,
}

impl Surroundings for Process {
    fn now(&self) -> Duration {
        self.world.now()
    }

    fn sleep(&self, length: Duration) -> BoxFuture<'static, ()> {
        self.world.sleep(self.number, length)
    }

    fn token(&self) -> Token {
        let mut state = self.world.lock();
        let (high, low) = (state.random.next(), state.random.next());
        Token((u128::from(high) << 64 | u128::from(low)).to_be_bytes())
    }
}
