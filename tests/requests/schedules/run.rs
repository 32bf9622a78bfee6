//! One seed: processes with the layer, clients, services, faults; and what is wrong with what they did.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use ratchet::http::{Idempotency, OnInDoubt};
use tokio::runtime::{Builder, Runtime};
use tower_layer::Layer;

use super::client::{Client, Proxies};
use super::judge::Case;
use super::ledger::{Book, END, Reached};
use super::mistake::Mistake;
use super::shop::{ANSWER_BYTES_MAX, DECLINES, GRACE, Shop};
use super::store::Simulated;
use super::terms::{Kind, Terms};
use super::world::{OUTSIDE, Process, World};

const KEYS: u64 = 3;
/// Clients of each key, and those that come when all is calm: to find what is remembered, or forgotten.
const CLIENTS: u64 = 3;
const LATE_CLIENTS: u64 = 2;
const LEASE: Duration = Duration::from_secs(3);
const STORE_WAIT: Duration = Duration::from_secs(1);
/// Faults happen within this time; then all is calm, but for the clock.
pub const TROUBLE: Duration = Duration::from_secs(20);
/// Nobody begins, and no clock is set, after that.
const LAST: Duration = Duration::from_secs(70);
/// A clock is set by so much, in milliseconds; the second one is less than a lease has left.
const SET_MS: u64 = 20_000;
const SET_QUIETLY_MS: u64 = 900;
/// How often a layer has to have looked what is to be forgotten.
const TIDIED: Duration = Duration::from_secs(15);

/// What came of a seed.
pub struct Outcomes {
    pub wrong: Vec<String>,
    pub trace: u64,
    pub reached: Reached,
}

/// A process with the layer.
struct Proxy {
    runtime: Runtime,
}

struct Simulation {
    world: World,
    book: Book,
    store: Simulated,
    outside: Runtime,
    proxies: Vec<Option<Proxy>>,
    /// What clients see of them.
    seen: Proxies,
    terms: Terms,
    /// What is to happen, the last first.
    faults: Vec<(Duration, Fault)>,
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    Kill(usize),
    Start(usize),
    Freeze(usize, Duration),
    Clock(i64),
    Calm,
}

fn runtime() -> Runtime {
    Builder::new_current_thread().build().expect("a runtime")
}

/// Runs a seed.
pub fn run(seed: u64, mistake: Option<Mistake>) -> Outcomes {
    let world = World::new(seed);
    let terms = Terms::draw(&world);
    let outside = runtime();
    let store = Simulated::new(&world, outside.handle(), (terms.kind, terms.line), mistake);
    let (book, seen) = (Book::default(), Proxies::default());
    let processes = terms.processes();
    world.has(processes);
    seen.lock().expect("no panic").resize_with(processes, || None);
    let proxies = (0..processes).map(|_| None).collect();
    let faults = faults(&world, &terms);
    let mut simulation = Simulation { world, book, store, outside, proxies, seen, terms, faults };
    (0..processes).for_each(|process| simulation.start(process));
    simulation.clients();
    simulation.drive();
    simulation.judge()
}

/// By how much a clock is set, forth or back.
fn set(world: &World, most_ms: u64) -> i64 {
    let by_ms = i64::try_from(world.below(most_ms + 1)).expect("seconds");
    if world.chance(500) { by_ms } else { -by_ms }
}

fn faults(world: &World, terms: &Terms) -> Vec<(Duration, Fault)> {
    let mut faults = vec![(TROUBLE, Fault::Calm)];
    let trouble = TROUBLE.as_millis() as u64;
    for process in 0..terms.processes() {
        for _ in 0..world.below(3) {
            let (at, down) = (world.up_to_ms(trouble), world.up_to_ms(4_000));
            faults.push((at, Fault::Kill(process)));
            faults.push((at + down, Fault::Start(process)));
        }
        for _ in 0..if terms.is_quiet { 0 } else { world.below(3) } {
            faults.push((world.up_to_ms(trouble), Fault::Freeze(process, world.up_to_ms(9_000))));
        }
    }
    if terms.kind == Kind::Shared {
        let most_ms = if terms.is_quiet { SET_QUIETLY_MS } else { SET_MS };
        for _ in 0..world.below(3) {
            faults.push((world.up_to_ms(LAST.as_millis() as u64), Fault::Clock(set(world, most_ms))));
        }
    }
    faults.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
    faults
}

impl Simulation {
    fn start(&mut self, process: usize) {
        if self.proxies[process].is_some() {
            return;
        }
        // While it was closed nobody has seen its clock.
        if self.terms.kind == Kind::Embedded && self.world.chance(300) {
            self.set_clock(set(&self.world, SET_MS));
        }
        let surroundings = Arc::new(Process { world: self.world.clone(), number: process });
        let layer = Idempotency::new(self.store.clone())
            .lease(LEASE)
            .grace(GRACE)
            .answer_bytes_max(ANSWER_BYTES_MAX)
            .store_wait(STORE_WAIT)
            .wait(Duration::from_millis(if self.world.chance(500) { 0 } else { 2_000 }))
            .retention(self.terms.retention)
            .on_in_doubt(self.terms.on_in_doubt)
            .released([DECLINES])
            .on_store_down(self.terms.on_store_down)
            .surroundings(surroundings);
        let shop = Shop { world: self.world.clone(), book: Arc::clone(&self.book), process };
        let (runtime, guard) = (runtime(), layer.layer(shop));
        self.seen.lock().expect("no panic")[process] = Some((runtime.handle().clone(), guard));
        self.proxies[process] = Some(Proxy { runtime });
    }

    fn reach(&self, what: &'static str) {
        self.book.lock().expect("no panic").reached.note(what);
    }

    fn clients(&self) {
        for key in 0..KEYS {
            for number in 0..CLIENTS + LATE_CLIENTS {
                let client = Client {
                    world: self.world.clone(),
                    book: Arc::clone(&self.book),
                    seen: Arc::clone(&self.seen),
                    key,
                    number: key * (CLIENTS + LATE_CLIENTS) + number,
                    refuses: self.terms.on_in_doubt == OnInDoubt::Refuse,
                };
                let begins = match number {
                    0..CLIENTS => self.world.up_to_ms(15_000),
                    _ => TROUBLE + self.world.up_to_ms((LAST - TROUBLE).as_millis() as u64),
                };
                self.outside.spawn(async move {
                    client.world.sleep(OUTSIDE, begins).await;
                    client.insist().await;
                });
            }
        }
        // Nobody waits for longer than until something happens.
        for (at, _) in &self.faults {
            let (world, at) = (self.world.clone(), *at);
            self.outside.spawn(async move { world.sleep(OUTSIDE, at).await });
        }
    }

    fn drive(&mut self) {
        loop {
            self.settle();
            let now = self.world.now();
            while let Some((_, fault)) = self.faults.pop_if(|(at, _)| *at <= now) {
                self.inflict(fault);
            }
            if !self.world.advance(END) {
                return;
            }
        }
    }

    /// Has everything run that is ready.
    fn settle(&self) {
        let turn = async || {
            for _ in 0..6 {
                tokio::task::yield_now().await;
            }
        };
        for _ in 0..2 {
            for (process, proxy) in self.proxies.iter().enumerate() {
                if let Some(proxy) = proxy.as_ref().filter(|_| !self.world.is_frozen(process)) {
                    proxy.runtime.block_on(turn());
                }
            }
            self.outside.block_on(turn());
        }
    }

    fn inflict(&mut self, fault: Fault) {
        match fault {
            Fault::Kill(process) => self.kill(process),
            Fault::Start(process) => self.start(process),
            Fault::Freeze(process, length) => {
                self.reach("frozen");
                self.world.freeze(process, length);
                let world = self.world.clone();
                self.outside.spawn(async move { world.sleep(OUTSIDE, length).await });
            }
            Fault::Clock(by_ms) => self.set_clock(by_ms),
            Fault::Calm => {
                self.reach("calm");
                self.store.mend();
                (0..self.proxies.len()).for_each(|process| self.start(process));
            }
        }
    }

    fn kill(&mut self, process: usize) {
        self.reach("killed");
        self.seen.lock().expect("no panic")[process] = None;
        let was_there = self.proxies[process].take().is_some();
        self.book.lock().expect("no panic").kills.push(self.world.now());
        if self.terms.kind == Kind::Shared || !was_there {
            return;
        }
        self.store.close();
        // With the machine.
        if self.world.chance(600) {
            let lost = self.store.crash();
            let mut book = self.book.lock().expect("no panic");
            book.reached.note("crashed");
            book.crashes.push(self.world.now());
            for (what, is_so) in [("writes lost", lost.writes > 0), ("reservation lost", lost.has_reservation)] {
                if is_so {
                    book.reached.note(what);
                }
            }
        }
    }

    fn set_clock(&self, by_ms: i64) {
        self.reach(if by_ms < 0 { "clock set back" } else { "clock set forth" });
        self.store.set_clock(by_ms);
    }
}

impl Simulation {
    fn judge(self) -> Outcomes {
        let Simulation { proxies, book, store, terms, outside, .. } = self;
        let (clock, untidy) = (store.clock(), untidy(&store, &book));
        // Whatever is at work ends here.
        drop((proxies, outside));
        let mut book = std::mem::take(&mut *book.lock().expect("no panic"));
        let mut hasher = DefaultHasher::new();
        format!("{:?} {:?}", book.runs, book.given).hash(&mut hasher);
        let mut wrong: Vec<String> = untidy.into_iter().map(|what| format!("{terms:?}: {what}")).collect();
        let mut reached = std::mem::take(&mut book.reached);
        for key in 0..KEYS {
            let case = Case::of(key, &book, (terms, &clock), LEASE);
            wrong.extend(case.wrong());
            case.note(&book.crashes, &mut reached);
        }
        if store.has_tidied() {
            reached.note("tidied");
        }
        Outcomes { wrong, trace: hasher.finish(), reached }
    }
}

/// What is still there that was to be forgotten, though somebody has used the layer for long enough.
fn untidy(store: &Simulated, book: &Book) -> Option<String> {
    let book = book.lock().expect("no panic");
    // Nobody is frozen any more at the first, and has looked several times since the last.
    let is_used = book.given.iter().any(|given| given.asked > TROUBLE * 3 / 2 && given.asked < END - 2 * TIDIED);
    let is_looked_at = store.tidied().iter().any(|at| *at > END - TIDIED);
    match (is_used, is_looked_at, store.over(TIDIED)) {
        (false, _, _) | (true, true, 0) => None,
        (true, false, _) => Some("nobody looks what is to be forgotten".to_owned()),
        (true, true, over) => Some(format!("{over} that were to be forgotten are still there")),
    }
}
