//! Handlers: the engine's traits of a provider, played by the driver's own attempts in simulated time. They are made on a
//! task of their own for each lane, as the driver's are on a thread: it goes on while its lane waits, is frozen with its
//! process, and dies with it.

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use ratchet::effect::call::KeyWindow;
use ratchet::effect::provider::{self, AttemptEnd, CallNumber, Calls, HandlerReport};
use ratchet::provider::handler::{Attempt, Ended, Handler, Settings};
use tokio::sync::mpsc::UnboundedSender;

use crate::judge::coverage;
use crate::kafka::{MS, Time};
use crate::lies::{self, Lie};
use crate::world::Process;

use super::outside::Outside;
use super::session::{IN_FLIGHT, window};
use super::{Kind, TIMEOUT, work};

/// How long a task that has something to do waits at most.
const LOOK: Time = 20 * MS;
/// The largest reply that is kept.
const RESULT_MAX: usize = 64 << 10;

/// The handler, as seen by one process.
pub struct Provider {
    pub process: Process,
    pub kind: Kind,
    pub changelog: &'static str,
}

impl provider::Provider for Provider {
    fn kind(&self) -> &'static str {
        "handler"
    }

    fn calls(&self) -> Box<dyn Calls> {
        let outside = Arc::new(Outside::new(&self.process, self.kind, self.changelog));
        let (tell, told) = unbounded();
        let shared = Arc::new(Shared::default());
        let of_task = Arc::clone(&shared);
        let task = self.process.spawn(move || {
            let mut lane = Lane::new(outside, tell);
            while lane.go_on(&of_task) {}
        });
        Box::new(HandlerCalls { process: self.process.clone(), shared, task, told })
    }
}

/// What a lane and the task that makes its attempts have in common.
#[derive(Default)]
struct Shared(Mutex<Desk>);

#[derive(Default)]
struct Desk {
    /// What nobody has begun.
    queue: VecDeque<provider::Request>,
    heard: VecDeque<AttemptEnd>,
    committed: Vec<(CallNumber, i64)>,
    abandoned: Vec<CallNumber>,
    in_flight: usize,
    is_over: bool,
}

impl Shared {
    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lane's way to its handlers.
struct HandlerCalls {
    process: Process,
    shared: Arc<Shared>,
    task: usize,
    told: Receiver<HandlerReport>,
}

impl Calls for HandlerCalls {
    fn submit(&mut self, request: provider::Request) {
        self.process.maybe_panic();
        self.shared.desk().queue.push_back(request);
        self.process.wake(self.task);
    }

    fn take_end(&mut self) -> Option<AttemptEnd> {
        if self.process.is_dead() {
            return None;
        }
        let heard = self.shared.desk().heard.pop_front()?;
        self.process.lock().note("heard", format_args!("{} {} {:?}", heard.number, heard.attempt, heard.outcome));
        Some(heard)
    }

    fn withdraw(&mut self, number: CallNumber) -> bool {
        let queue = &mut self.shared.desk().queue;
        let at = queue.iter().position(|request| request.number == number);
        at.is_some_and(|at| queue.remove(at).is_some())
    }

    fn in_flight(&self) -> usize {
        self.shared.desk().in_flight
    }

    fn take_report(&mut self) -> Option<HandlerReport> {
        let told = self.told.try_recv().ok()?;
        self.process.lock().note("told", format_args!("{told:?}"));
        Some(told)
    }

    fn resume_after_commit(&mut self, number: CallNumber, first_attempt_at_ms: i64) {
        self.shared.desk().committed.push((number, first_attempt_at_ms));
        self.process.wake(self.task);
    }

    fn abandon(&mut self, number: CallNumber) {
        self.shared.desk().abandoned.push(number);
        self.process.wake(self.task);
    }
}

impl Drop for HandlerCalls {
    fn drop(&mut self) {
        self.shared.desk().is_over = true;
        self.process.wake(self.task);
    }
}

/// A function that is running.
struct Run {
    attempt: Attempt,
    number: CallNumber,
    numbered: u32,
    committed: UnboundedSender<i64>,
    began: Time,
    /// When it is overdue; `None` while it waits for a commit.
    deadline: Option<Time>,
    /// Whether nobody waits for it, and it goes on all the same: a lie.
    is_abandoned: bool,
}

/// The task that makes a lane's attempts.
struct Lane {
    outside: Arc<Outside>,
    handler: Handler,
    /// What is told goes to the lane once it is seen here.
    tell: Sender<HandlerReport>,
    told: (Sender<HandlerReport>, Receiver<HandlerReport>),
    runs: BTreeMap<CallNumber, Run>,
}

impl Lane {
    fn new(outside: Arc<Outside>, tell: Sender<HandlerReport>) -> Self {
        let clock = {
            let process = outside.process.clone();
            move || process.lock().wall_ms(process.number)
        };
        let settings = Settings {
            key_window: outside.kind.has_key().then(window).map(KeyWindow::per_step),
            timeout: Duration::from_micros(TIMEOUT),
            in_flight: IN_FLIGHT,
            rate: None,
            reply_bytes_max: Some(RESULT_MAX),
            database: None,
            clock: Arc::new(clock),
        };
        let handler = Handler::new(work::function(Arc::clone(&outside)), settings);
        Self { outside, handler, tell, told: unbounded(), runs: BTreeMap::new() }
    }

    /// Does what there is to do, and waits. `false`: its lane is gone.
    fn go_on(&mut self, shared: &Shared) -> bool {
        let process = self.outside.process.clone();
        let (committed, abandoned) = {
            let mut desk = shared.desk();
            if desk.is_over || process.is_dead() {
                return false;
            }
            (std::mem::take(&mut desk.committed), std::mem::take(&mut desk.abandoned))
        };
        let now = process.now();
        for number in abandoned {
            let Some(mut run) = self.runs.remove(&number) else { continue };
            process.lock().reach(coverage::ABANDONED);
            if lies::is_told(Lie::AbandonedGoesOn) {
                run.is_abandoned = true;
                let _ = run.committed.send(process.lock().wall_ms(process.number));
                self.runs.insert(number, run);
            }
        }
        for (number, first_attempt_at_ms) in committed {
            if let Some(run) = self.runs.get_mut(&number) {
                run.deadline = Some(now + TIMEOUT);
                // It waits for this.
                let _ = run.committed.send(first_attempt_at_ms);
            }
        }
        self.outside.fetch();
        self.begin(shared, now);
        self.poll(shared, now);
        shared.desk().in_flight = self.runs.len();
        let wake = match self.runs.is_empty() {
            true => Time::MAX,
            false => {
                let first = process.lock().provider.next_event().unwrap_or(Time::MAX);
                let deadline = self.runs.values().filter_map(|run| run.deadline).min().unwrap_or(Time::MAX);
                first.min(deadline).min(now + LOOK).max(now + 1)
            }
        };
        let has_work = !shared.desk().queue.is_empty() && self.runs.len() < IN_FLIGHT;
        process.sleep_until(if has_work { now + 1 } else { wake });
        true
    }

    /// Begins what there is room for.
    fn begin(&mut self, shared: &Shared, now: Time) {
        while self.runs.len() < IN_FLIGHT {
            let Some(request) = shared.desk().queue.pop_front() else { return };
            let (number, numbered) = (request.number, request.attempt);
            let made = Attempt::of(&self.handler, &request, &self.told.0);
            let (attempt, committed) = made.expect("only a handler's work comes here");
            if !request.journal.is_empty() {
                self.outside.process.lock().reach(coverage::RUN_AGAIN);
            }
            let deadline = Some(now + TIMEOUT);
            let is_abandoned = false;
            self.runs.insert(number, Run { attempt, number, numbered, committed, began: now, deadline, is_abandoned });
        }
    }

    /// Has each function go on as far as it can.
    fn poll(&mut self, shared: &Shared, now: Time) {
        let mut context = Context::from_waker(Waker::noop());
        let numbers: Vec<CallNumber> = self.runs.keys().copied().collect();
        for number in numbers {
            let Some(run) = self.runs.get_mut(&number) else { continue };
            let polled = Pin::new(&mut run.attempt).poll(&mut context);
            while let Ok(told) = self.told.1.try_recv() {
                if run.is_abandoned {
                    let process = &self.outside.process;
                    let _ = run.committed.send(process.lock().wall_ms(process.number));
                    continue;
                }
                run.deadline = None;
                let _ = self.tell.send(told);
            }
            let is_overdue = run.deadline.is_some_and(|deadline| deadline <= now);
            let ended = match polled {
                Poll::Ready(ended) => Some(ended),
                Poll::Pending if !is_overdue => continue,
                Poll::Pending => None,
            };
            let Some(run) = self.runs.remove(&number) else { continue };
            if run.is_abandoned {
                continue;
            }
            match (&ended, run.deadline) {
                (None, _) => self.outside.process.lock().reach(coverage::OVERDUE),
                (Some(_), None) => self.outside.process.lock().reach(coverage::DROPPED_IN_COMMIT),
                (Some(_), Some(_)) => {}
            }
            self.end(shared, run, ended, now);
        }
    }

    fn end(&self, shared: &Shared, run: Run, ended: Option<Ended>, now: Time) {
        let Run { attempt: made, number, numbered: attempt, began, .. } = run;
        let took = Duration::from_micros(now - began);
        let (answer, body, message) = match ended.unwrap_or_else(|| made.overdue(Duration::from_micros(TIMEOUT))) {
            Ended::Over { outcome: answer, body, message } => (answer, body, message),
            Ended::MustStopTask(reason) => {
                return drop(self.tell.send(HandlerReport::MustStopTask { number, attempt, reason }));
            }
        };
        shared.desk().heard.push_back(AttemptEnd { number, attempt, outcome: answer, body, message, duration: took });
    }
}
