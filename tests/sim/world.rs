//! One seed's world: the cluster, the processes that use it, time, and the wire between them.
//!
//! All waiting happens here ([`Process::sleep`]); the scheduler decides what runs next. A dead process neither waits
//! nor sends requests, so its objects can be dropped without a trace.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ratchet::engine::clock::Clock;

use crate::coroutine;
use crate::cut::Kept;
use crate::database::Server;
use crate::gate;
use crate::judge::coverage::{Memory, faults};
pub use crate::kafka::WALL_MS;
use crate::kafka::{Broker, Code, MS, Protocol, SECOND, Time};
use crate::net::Links;
use crate::provider;
use crate::random::Random;

/// Message of a panic that the schedule injects.
pub const INJECTED_PANIC: &str = "a panic injected by the schedule";

/// Marks a value at which the engine panics.
pub const POISON: &[u8] = br#","poison":true"#;
/// A value larger than this is never poisonous.
pub const POISONED_BYTES_MAX: usize = 1000;

/// Whether the engine panics when it sends this value.
pub fn is_poisonous(value: Option<&[u8]>) -> bool {
    let holds = |value: &[u8]| value.windows(POISON.len()).any(|part| part == POISON);
    value.is_some_and(|value| value.len() < POISONED_BYTES_MAX + POISON.len() && holds(value))
}

/// How long a client waits on a silent connection: longer than ending a transaction may take.
pub const SILENCE: Time = 3 * SECOND + SECOND / 2;

/// What may go wrong on the wire, in thousandths of all requests.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wire {
    /// The request does not arrive.
    pub request_lost: u64,
    /// The request takes effect, but its response is lost.
    pub response_lost: u64,
    /// The client sees the connection break, and the request arrives up to seconds later, beside any copy that the
    /// client has sent again. A live connection delivers nothing twice.
    pub late: u64,
    /// The request takes up to a second.
    pub slow: u64,
    /// The request takes effect, and its connection stays silent for longer than ending a transaction may take. For a
    /// request of librdkafka's part the response is lost.
    pub silenced: u64,
}

/// Why a request has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The broker returned this error.
    Code(Code),
    /// The connection broke: the request may have taken effect, or still may.
    Lost,
}

/// The code of a task.
pub type Body = Box<dyn FnOnce() + Send>;
type Request = Box<dyn FnOnce(&mut Broker) + Send>;

/// A task: something that runs like a thread.
pub struct Task {
    pub process: usize,
    pub wake: Time,
    /// Whether it does something else while a transaction is being committed.
    pub is_committing: bool,
}

/// A process as the world sees it.
#[derive(Default)]
pub struct ProcessState {
    pub is_dead: bool,
    pub frozen_until: Time,
    pub wall_offset_ms: i64,
    /// Its release of the topology, as an index.
    pub release: usize,
    /// How many more calls the engine makes before one panics.
    pub panics_after: Option<u64>,
}

/// The whole state of a world.
pub struct State {
    pub broker: Broker,
    pub links: Links,
    pub database: Server,
    pub provider: provider::Server,
    pub gate: gate::Server,
    pub random: Random,
    pub wire: Wire,
    /// Whether fetches return few records, slowly.
    pub backlogged: bool,
    pub processes: Vec<ProcessState>,
    pub tasks: Vec<Task>,
    /// Bodies of tasks that have not started, with their task numbers.
    pub unstarted: Vec<(usize, Body)>,
    /// The task that is running.
    pub running: usize,
    /// Delayed requests, which arrive with no client waiting.
    pub later: BTreeMap<(Time, u64), (&'static str, Request)>,
    /// Situations reached, and how often.
    pub reached: BTreeMap<&'static str, u64>,
    /// Which requests may have a fault, by number.
    pub troubled: Kept,
    /// The requests that had one.
    pub troubles: Vec<u64>,
    /// How many requests were made, and the seed of their fates.
    asked: u64,
    fates: u64,
    /// What is needed to recognise situations.
    pub memory: Memory,
    trace: u64,
    traced: u64,
    verbose: bool,
}

/// The world, shared.
#[derive(Clone)]
pub struct World(Arc<Mutex<State>>);

impl World {
    pub fn new(seed: u64, wire: Wire, verbose: bool) -> Self {
        Self(Arc::new(Mutex::new(State {
            broker: Broker::new(Protocol::V1),
            links: Links::default(),
            database: Server::new(),
            provider: provider::Server::new(seed),
            gate: gate::Server::default(),
            random: Random::new(seed),
            wire,
            backlogged: false,
            processes: Vec::new(),
            tasks: Vec::new(),
            unstarted: Vec::new(),
            running: 0,
            later: BTreeMap::new(),
            reached: BTreeMap::new(),
            troubled: Kept::default(),
            troubles: Vec::new(),
            asked: 0,
            fates: Random::new(seed ^ 0xfa7e).next(),
            memory: Memory::default(),
            trace: 0xcbf2_9ce4_8422_2325,
            traced: 0,
            verbose,
        })))
    }

    /// Never hold it while waiting.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new process.
    pub fn process(&self) -> Process {
        let mut state = self.lock();
        state.processes.push(ProcessState::default());
        Process { world: self.clone(), number: state.processes.len() - 1 }
    }
}

impl State {
    pub fn now(&self) -> Time {
        self.broker.now
    }

    /// A process's wall clock, milliseconds since the epoch.
    pub fn wall_ms(&self, process: usize) -> i64 {
        self.broker.wall_ms() + self.processes[process].wall_offset_ms
    }

    /// Adds an event to the trace.
    pub fn note(&mut self, what: &str, details: std::fmt::Arguments<'_>) {
        let mut mix = |byte: u8| self.trace = (self.trace ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        what.bytes().for_each(&mut mix);
        self.broker.now.to_le_bytes().into_iter().for_each(&mut mix);
        struct Mixer<'a>(&'a mut u64);
        impl std::fmt::Write for Mixer<'_> {
            fn write_str(&mut self, text: &str) -> std::fmt::Result {
                text.bytes().for_each(|byte| *self.0 = (*self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
                Ok(())
            }
        }
        let _ = std::fmt::Write::write_fmt(&mut Mixer(&mut self.trace), details);
        self.traced += 1;
        if self.verbose {
            let task = self.tasks.get(self.running).map_or(0, |task| task.process);
            println!("{:>12} p{task} t{:<3} {what} {details}", self.broker.now, self.running);
        }
    }

    /// The running task's note of whether it is within a commit.
    pub fn is_committing(&mut self) -> &mut bool {
        let running = self.running;
        &mut self.tasks[running].is_committing
    }

    /// Counts a situation.
    pub fn reach(&mut self, situation: &'static str) {
        *self.reached.entry(situation).or_default() += 1;
    }

    /// A hash over everything that happened, and the number of events.
    pub fn trace(&self) -> (u64, u64) {
        (self.trace, self.traced)
    }

    /// Schedules a request to arrive at `at`.
    pub fn later(&mut self, at: Time, what: &'static str, request: Request) {
        let number = self.later.len() as u64 + (self.traced << 20);
        self.later.insert((at, number), (what, request));
    }

    fn spawn(&mut self, process: usize, body: Body) -> usize {
        let wake = self.now();
        self.tasks.push(Task { process, wake, is_committing: false });
        self.unstarted.push((self.tasks.len() - 1, body));
        self.tasks.len() - 1
    }

    /// How long one way over the wire takes: mostly some hundred microseconds.
    pub fn latency(&mut self) -> Time {
        match self.random.below(100) {
            0..90 => self.random.between(50, 800),
            90..98 => self.random.between(MS, 10 * MS),
            _ => self.random.between(10 * MS, 60 * MS),
        }
    }
}

/// What a process can do in this world.
#[derive(Clone)]
pub struct Process {
    pub world: World,
    pub number: usize,
}

impl Process {
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.world.lock()
    }

    pub fn now(&self) -> Time {
        self.lock().now()
    }

    /// Whether nothing it does has an effect any more.
    pub fn is_dead(&self) -> bool {
        std::thread::panicking() || self.lock().processes[self.number].is_dead
    }

    /// Counts a call by the engine, and panics if the schedule wants this one to.
    pub fn maybe_panic(&self) {
        if self.is_dead() {
            return;
        }
        let mut state = self.lock();
        let left = &mut state.processes[self.number].panics_after;
        *left = left.map(|left| left.saturating_sub(1));
        if *left == Some(0) {
            *left = None;
            state.reach(faults::PANICKED);
            state.note("panic", format_args!("of process {}", self.number));
            drop(state);
            panic!("{INJECTED_PANIC}");
        }
    }

    /// Starts a task; returns its number, for [`Process::wake`].
    pub fn spawn(&self, body: impl FnOnce() + Send + 'static) -> usize {
        self.lock().spawn(self.number, Box::new(body))
    }

    /// Waits until `until`, or until woken.
    pub fn sleep_until(&self, until: Time) {
        if self.is_dead() {
            return;
        }
        let running = {
            let mut state = self.lock();
            let running = state.running;
            state.tasks[running].wake = until;
            running
        };
        coroutine::give_way();
        debug_assert_eq!(running, self.lock().running);
    }

    pub fn sleep(&self, length: Time) {
        let until = self.now() + length;
        self.sleep_until(until);
    }

    /// Waits briefly, so that other tasks can run in between.
    pub fn pause(&self) {
        let length = self.lock().random.between(1, 300);
        self.sleep(length);
    }

    /// Wakes a waiting task.
    pub fn wake(&self, task: usize) {
        let mut state = self.lock();
        let now = state.now();
        if let Some(task) = state.tasks.get_mut(task) {
            task.wake = task.wake.min(now);
        }
    }

    /// Sends a request and waits for its response.
    pub fn ask<T: 'static>(
        &self,
        what: &'static str,
        request: impl Fn(&mut Broker) -> Result<T, Code> + Clone + Send + 'static,
    ) -> Result<T, Broken> {
        if self.is_dead() {
            return Err(Broken::Lost);
        }
        let (there, back, fate, delay) = {
            let mut state = self.lock();
            let (there, back) = (state.latency(), state.latency());
            // A late join would replace a member's current claims with old ones, and what it has released since would
            // have no owner until the next rebalance. That is a weakness of Kafka's own, and not tested here.
            let fate = match state.fate() {
                Fate::Late if what == "join" => Fate::RequestLost,
                Fate::Silenced => Fate::ResponseLost,
                fate => fate,
            };
            state.suffers(fate, what);
            let delay = state.random.between(MS, 3 * SECOND);
            (there, back, fate, delay)
        };
        self.sleep(if fate == Fate::Slow { there + delay / 3 } else { there });
        let result = {
            let mut state = self.lock();
            if fate == Fate::Late {
                let (at, copy) = (state.now() + delay, request.clone());
                state.later(at, what, Box::new(move |broker| drop(copy(broker))));
            }
            let result = match fate {
                Fate::RequestLost | Fate::Late => Err(Broken::Lost),
                Fate::ResponseLost | Fate::Silenced => {
                    let _ = request(&mut state.broker);
                    Err(Broken::Lost)
                }
                Fate::Fine | Fate::Slow => request(&mut state.broker).map_err(Broken::Code),
            };
            if let Err(Broken::Code(code)) = result {
                state.rejected(self.number, what, code);
            }
            state.note(what, format_args!("{:?} {:?}", fate, result.as_ref().map(drop)));
            result
        };
        // The response is on its way, or lost.
        self.sleep(back);
        result
    }
}

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Fine,
    Slow,
    RequestLost,
    ResponseLost,
    Late,
    Silenced,
}

impl State {
    /// The fate of the next request, drawn from the seed and the request's number alone: leaving out one fault does
    /// not change the others.
    pub fn fate(&mut self) -> Fate {
        self.fate_of(self.wire)
    }

    /// Counts the fault that a request on the wire meets.
    pub fn suffers(&mut self, fate: Fate, what: &str) {
        faults::of_wire(fate, what).into_iter().for_each(|fault| self.reach(fault));
    }

    /// The fate of the next statement to the database, drawn in the same way.
    pub fn link_fate(&mut self) -> Fate {
        self.fate_of(self.database.troubles.link)
    }

    /// The fate of the next request to the provider, drawn in the same way.
    pub fn provider_fate(&mut self) -> Fate {
        self.fate_of(self.provider.troubles.link)
    }

    /// The fate of the next question to the gate, drawn in the same way.
    pub fn gate_fate(&mut self) -> Fate {
        self.fate_of(self.gate.troubles.link)
    }

    fn fate_of(&mut self, wire: Wire) -> Fate {
        self.asked += 1;
        let drawn = Random::new(self.fates ^ self.asked.wrapping_mul(0xd134_2543_de82_ef95)).below(1000);
        let fate = wire.drawn_fate(drawn);
        if fate == Fate::Fine || !self.troubled.has(self.asked) {
            return Fate::Fine;
        }
        self.troubles.push(self.asked);
        fate
    }
}

impl Wire {
    fn drawn_fate(self, drawn: u64) -> Fate {
        let Self { request_lost, response_lost, late, slow, silenced } = self;
        let fates = [
            (request_lost, Fate::RequestLost),
            (response_lost, Fate::ResponseLost),
            (late, Fate::Late),
            (slow, Fate::Slow),
            (silenced, Fate::Silenced),
        ];
        let mut below = 0;
        for (times, fate) in fates {
            below += times;
            if drawn < below {
                return fate;
            }
        }
        Fate::Fine
    }
}

impl Clock for Process {
    fn monotonic(&self) -> Duration {
        self.maybe_panic();
        Duration::from_micros(self.now())
    }

    fn wall_ms(&self) -> i64 {
        self.maybe_panic();
        self.lock().wall_ms(self.number)
    }

    fn wait(&self, length: Duration, stop: &AtomicBool) {
        let until = self.now() + length.as_micros() as Time;
        while self.now() < until && !stop.load(Ordering::Relaxed) && !self.is_dead() {
            self.sleep_until(until.min(self.now() + 20 * MS));
        }
    }
}
