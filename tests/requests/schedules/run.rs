//! One seed: processes with the layer, clients, services, faults; and what is wrong with what they did.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{self, BoxFuture, Either};
use http::header::{CONTENT_TYPE, LOCATION};
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full};
use ratchet::http::{Body, Guard, Idempotency, MayHaveRun, OnInDoubt, Outcome};
use tokio::runtime::{Builder, Handle, Runtime};
use tower_layer::Layer;
use tower_service::Service;

use super::store::{Line, Mistake, Simulated};
use super::world::{OUTSIDE, Process, World};

const PROCESSES: usize = 3;
const KEYS: u64 = 3;
const CLIENTS: u64 = 3;
const LEASE: Duration = Duration::from_secs(3);
const STORE_WAIT: Duration = Duration::from_secs(1);
/// Of a longer answer its digest is remembered.
const ANSWER_BYTES_MAX: usize = 100;
/// Faults happen within this time; then all is calm.
const TROUBLE: Duration = Duration::from_secs(20);
const END: Duration = Duration::from_secs(90);

/// What came of a seed.
pub struct Outcomes {
    pub wrong: Vec<String>,
    pub trace: u64,
    pub reached: Reached,
}

/// How often something happened that is to happen.
#[derive(Debug, Default)]
pub struct Reached(BTreeMap<&'static str, u64>);

impl Reached {
    pub fn note(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    pub fn add(&mut self, other: &Reached) {
        other.0.iter().for_each(|(what, count)| *self.0.entry(what).or_default() += count);
    }

    /// All of it was reached.
    pub fn check(&self) {
        let all = ["killed", "frozen", "cut off", "client gone", "done", "replayed", "released", "in_progress"];
        let more = ["in_doubt", "store_down", "not_remembered", "again after a kill", "two at once", "zombie", "calm"];
        let large = ["large, cut off", "large, its digest"];
        for what in all.into_iter().chain(more).chain(large) {
            assert!(self.0.contains_key(what), "{what} was never reached: {self:?}");
        }
    }
}

/// One run of the service.
#[derive(Debug)]
struct Run {
    key: u64,
    process: usize,
    begun: Duration,
    ended: Option<(Duration, End)>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    /// It has done its work, and said so.
    Answered,
    /// It has failed, and said so.
    Failed,
    /// Nobody knows.
    Unknown,
    /// Its process was killed.
    Killed,
}

/// What a client was given.
#[derive(Debug)]
struct Given {
    key: u64,
    at: Duration,
    outcome: Outcome,
    /// The run that it is the answer of; also where its body was too large to be remembered.
    run: String,
    process: usize,
}

#[derive(Default)]
struct Ledger {
    runs: Vec<Run>,
    given: Vec<Given>,
    reached: Reached,
}

type Book = Arc<Mutex<Ledger>>;

/// The service: each run notes itself.
#[derive(Clone)]
struct Shop {
    world: World,
    book: Book,
    process: usize,
}

impl Service<Request<Body>> for Shop {
    type Response = Response<Full<Bytes>>;
    type Error = std::convert::Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Shop { world, book, process } = self.clone();
        let key = request.headers()["idempotency-key"].to_str().expect("text").parse().expect("a number");
        Box::pin(async move {
            let number = {
                let mut book = book.lock().expect("no panic");
                book.runs.push(Run { key, process, begun: world.now(), ended: None });
                book.runs.len() - 1
            };
            let mut noted = Noted { world: world.clone(), book, number, end: End::Killed };
            let length = if world.chance(200) { world.up_to_ms(8_000) } else { world.up_to_ms(300) };
            world.sleep(process, length).await;
            let fate = world.below(100);
            noted.end = match fate {
                0..10 => End::Failed,
                10..18 => End::Unknown,
                _ => End::Answered,
            };
            if fate == 10 {
                // Without a word on the screen.
                panic::resume_unwind(Box::new("the service panics"));
            }
            let length = if world.chance(200) { ANSWER_BYTES_MAX + 1 } else { 1 };
            let mut answer = Response::new(Full::new(Bytes::from(vec![b'x'; length])));
            answer.headers_mut().insert(LOCATION, HeaderValue::from(number));
            match noted.end {
                End::Failed => *answer.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR,
                End::Unknown => {
                    *answer.status_mut() = http::StatusCode::GATEWAY_TIMEOUT;
                    answer.extensions_mut().insert(MayHaveRun);
                }
                End::Answered | End::Killed => {}
            }
            Ok(answer)
        })
    }
}

/// Notes how a run has ended, also if it is dropped.
struct Noted {
    world: World,
    book: Book,
    number: usize,
    end: End,
}

impl Drop for Noted {
    fn drop(&mut self) {
        let now = self.world.now();
        if let Ok(mut book) = self.book.lock() {
            book.runs[self.number].ended = Some((now, self.end));
        }
    }
}

/// A process with the layer.
struct Proxy {
    runtime: Runtime,
}

type Proxies = Arc<Mutex<Vec<Option<(Handle, Guard<Shop>)>>>>;

struct Simulation {
    world: World,
    book: Book,
    store: Simulated,
    outside: Runtime,
    proxies: Vec<Option<Proxy>>,
    /// What clients see of them.
    seen: Proxies,
    on_in_doubt: OnInDoubt,
    /// What is to happen, the last first.
    faults: Vec<(Duration, Fault)>,
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    Kill(usize),
    Start(usize),
    Freeze(usize, Duration),
    Calm,
}

fn runtime() -> Runtime {
    Builder::new_current_thread().build().expect("a runtime")
}

/// Runs a seed.
pub fn run(seed: u64, mistake: Option<Mistake>) -> Outcomes {
    let world = World::new(seed, PROCESSES);
    let is_quiet = world.chance(400);
    let bad = |bound: u64| if is_quiet { 0 } else { world.below(bound) };
    let line = Line { lost: bad(150), answer_lost: bad(150), slow: bad(100) };
    let on_in_doubt = if world.chance(400) { OnInDoubt::Refuse } else { OnInDoubt::Run };
    let outside = runtime();
    let store = Simulated::new(&world, outside.handle(), line, mistake);
    let (book, seen) = (Book::default(), Proxies::default());
    seen.lock().expect("no panic").resize_with(PROCESSES, || None);
    let proxies = (0..PROCESSES).map(|_| None).collect();
    let faults = faults(&world, is_quiet);
    let mut simulation = Simulation { world, book, store, outside, proxies, seen, on_in_doubt, faults };
    (0..PROCESSES).for_each(|process| simulation.start(process));
    simulation.clients();
    simulation.drive();
    simulation.judge(is_quiet)
}

fn faults(world: &World, is_quiet: bool) -> Vec<(Duration, Fault)> {
    let mut faults = vec![(TROUBLE, Fault::Calm)];
    let trouble = TROUBLE.as_millis() as u64;
    for process in 0..PROCESSES {
        for _ in 0..world.below(3) {
            let (at, down) = (world.up_to_ms(trouble), world.up_to_ms(4_000));
            faults.push((at, Fault::Kill(process)));
            faults.push((at + down, Fault::Start(process)));
        }
        for _ in 0..if is_quiet { 0 } else { world.below(3) } {
            faults.push((world.up_to_ms(trouble), Fault::Freeze(process, world.up_to_ms(9_000))));
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
        let surroundings = Arc::new(Process { world: self.world.clone(), number: process });
        let layer = Idempotency::new(self.store.clone())
            .lease(LEASE)
            .answer_bytes_max(ANSWER_BYTES_MAX)
            .store_wait(STORE_WAIT)
            .wait(Duration::from_millis(if self.world.chance(500) { 0 } else { 2_000 }))
            .on_in_doubt(self.on_in_doubt)
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
            for _ in 0..CLIENTS {
                let client = Client {
                    world: self.world.clone(),
                    book: Arc::clone(&self.book),
                    seen: Arc::clone(&self.seen),
                    key,
                    refuses: self.on_in_doubt == OnInDoubt::Refuse,
                };
                let begins = self.world.up_to_ms(15_000);
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
            Fault::Kill(process) => {
                self.reach("killed");
                self.seen.lock().expect("no panic")[process] = None;
                drop(self.proxies[process].take());
            }
            Fault::Start(process) => self.start(process),
            Fault::Freeze(process, length) => {
                self.reach("frozen");
                self.world.freeze(process, length);
                let world = self.world.clone();
                self.outside.spawn(async move { world.sleep(OUTSIDE, length).await });
            }
            Fault::Calm => {
                self.reach("calm");
                self.store.mend();
                (0..PROCESSES).for_each(|process| self.start(process));
            }
        }
    }
}

/// Wants something done, and repeats its request until it knows what has become of it.
struct Client {
    world: World,
    book: Book,
    seen: Proxies,
    key: u64,
    refuses: bool,
}

impl Client {
    async fn insist(&self) {
        loop {
            match self.ask().await {
                Some(Outcome::Done | Outcome::Replayed) => return,
                // Nobody will ever know.
                Some(Outcome::InDoubt) if self.refuses && self.world.now() > TROUBLE => return,
                _ => self.world.sleep(OUTSIDE, self.world.up_to_ms(1_500)).await,
            }
        }
    }

    /// Sends the request to one of the processes. `None`: no answer.
    async fn ask(&self) -> Option<Outcome> {
        let process = self.world.below(PROCESSES as u64) as usize;
        let (handle, mut guard) = self.seen.lock().expect("no panic")[process].clone()?;
        let request = Request::post("/charges").header("idempotency-key", self.key);
        let request = request.body(Full::new(Bytes::from_static(b"{}"))).expect("a request");
        let mut asked = handle.spawn(async move {
            let answer = guard.call(request).await.expect("it cannot fail");
            let (parts, body) = answer.into_parts();
            (parts, body.collect().await.expect("a body").to_bytes())
        });
        let patience = if self.world.chance(150) { self.world.up_to_ms(400) } else { Duration::from_secs(12) };
        let answered = future::select(&mut asked, self.world.sleep(OUTSIDE, patience)).await;
        let Either::Left((answered, _)) = answered else {
            asked.abort();
            self.book.lock().expect("no panic").reached.note("client gone");
            return None;
        };
        let Ok((parts, body)) = answered else {
            self.book.lock().expect("no panic").reached.note("cut off");
            return None;
        };
        let outcome = *parts.extensions.get::<Outcome>().expect("each answer has one");
        let mut book = self.book.lock().expect("no panic");
        book.reached.note(outcome.as_str());
        if outcome == Outcome::Replayed && parts.headers.contains_key(CONTENT_TYPE) {
            let said: serde_json::Value = serde_json::from_slice(&body).expect("a note in place of the body");
            book.reached.note(if said["sha256"].is_null() { "large, cut off" } else { "large, its digest" });
        }
        let run = parts.headers.get(LOCATION).map(|run| run.to_str().expect("text").to_owned());
        book.given.push(Given { key: self.key, at: self.world.now(), outcome, run: run.unwrap_or_default(), process });
        Some(outcome)
    }
}

impl Simulation {
    fn judge(self, is_quiet: bool) -> Outcomes {
        let Simulation { proxies, book, on_in_doubt, outside, .. } = self;
        // Whatever is at work ends here.
        drop((proxies, outside));
        let mut book = std::mem::take(&mut *book.lock().expect("no panic"));
        let mut hasher = DefaultHasher::new();
        format!("{:?} {:?}", book.runs, book.given).hash(&mut hasher);
        let mut wrong = Vec::new();
        for key in 0..KEYS {
            let mut runs: Vec<&Run> = book.runs.iter().filter(|run| run.key == key).collect();
            runs.sort_by_key(|run| run.begun);
            let is_final = |given: &&Given| matches!(given.outcome, Outcome::Done | Outcome::Replayed);
            let given: Vec<&Given> = book.given.iter().filter(|given| given.key == key).filter(is_final).collect();
            wrong.extend(judge_key(key, &runs, &given, on_in_doubt, is_quiet));
            let is_doubted = book.given.iter().any(|given| given.key == key && given.outcome == Outcome::InDoubt);
            if given.is_empty() && !(is_doubted && on_in_doubt == OnInDoubt::Refuse) {
                wrong.push(format!("key {key}: nobody was given an answer: {runs:?}"));
            }
            note(&mut book.reached, &runs, &given);
        }
        Outcomes { wrong, trace: hasher.finish(), reached: book.reached }
    }
}

fn end_of(run: &Run) -> (Duration, End) {
    run.ended.unwrap_or((END, End::Killed))
}

fn judge_key(key: u64, runs: &[&Run], given: &[&Given], on_in_doubt: OnInDoubt, is_quiet: bool) -> Vec<String> {
    let mut wrong = Vec::new();
    if let Some(first) = given.iter().min_by_key(|given| given.at) {
        for run in runs.iter().filter(|run| run.begun > first.at) {
            wrong.push(format!("key {key}: it was answered, and is carried out again: {first:?}, {run:?}"));
        }
        for other in given.iter().filter(|other| other.run != first.run) {
            wrong.push(format!("key {key}: two answers: {first:?}, {other:?}"));
        }
    }
    for (number, run) in runs.iter().enumerate() {
        for former in &runs[..number] {
            let (ended, end) = end_of(former);
            if is_quiet && ended > run.begun {
                wrong.push(format!("key {key}: two are at work at once, and nobody was silent: {former:?}, {run:?}"));
            }
            if on_in_doubt == OnInDoubt::Refuse && (ended > run.begun || end != End::Failed) {
                wrong.push(format!("key {key}: it may have been carried out, and is again: {former:?}, {run:?}"));
            }
        }
    }
    wrong
}

fn note(reached: &mut Reached, runs: &[&Run], given: &[&Given]) {
    for (number, run) in runs.iter().enumerate() {
        for former in &runs[..number] {
            let (ended, end) = end_of(former);
            if ended > run.begun {
                reached.note("two at once");
                // Its own answer is another one than what its client was given.
                let replayed = |given: &&&Given| given.process == former.process && given.outcome == Outcome::Replayed;
                if end == End::Answered && given.iter().any(|one| replayed(&one) && one.at >= ended) {
                    reached.note("zombie");
                }
            } else if end == End::Killed {
                reached.note("again after a kill");
            }
        }
    }
}
