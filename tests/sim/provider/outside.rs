//! What a handler's steps ask for: calls of the simulated provider, and transactions of the simulated database. Each waits
//! for its answer by being polled.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use ratchet::StepError;
use ratchet::effect::call::{AttemptOutcome, RetryAfter, Status};
use ratchet::effect::provider::{AttemptEnd, Body};
use ratchet::provider::handler::{Key, StepOutcome};

use crate::judge::coverage::{self, faults};
use crate::kafka::{MS, Partition, SECOND, Time};
use crate::world::{Fate, INJECTED_PANIC, Process, State};

use super::table::{LOCK_WAIT, Row, Said, Statement, What};
use super::{Event, Kind, Mail, Request, Server, TIMEOUT, table};

/// The longest time-out of a function's own; half of them are as short as a commit takes.
const PATIENCE_MAX: Time = TIMEOUT;
const PATIENCE_SHORT: Time = 30 * MS;

/// A step that begins: what the judge has to know of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begun {
    pub partition: i32,
    /// What it asks for.
    pub asked: Vec<u8>,
    /// What the function knows of the steps before it, in their order: names and outcomes.
    pub known: Vec<(String, Known)>,
    /// The end of the changelog, whatever may be read of it.
    pub changelog_end: i64,
    /// The transactions there that nobody has decided to commit: their producers, and where they begin.
    pub undecided: Vec<(i64, i64)>,
    /// Whether its function was told that it has certainly not happened, and is to be tried again.
    pub was_put_off: bool,
}

/// A step's outcome.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Known {
    /// It is done, with this result as JSON.
    Done(String),
    /// It was refused: why.
    Refused(String),
}

/// A step of a record.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    pub partition: i32,
    /// What is asked for.
    pub body: &'a str,
    /// Whether it will be refused.
    pub is_declined: bool,
    pub known: &'a Mutex<Vec<(String, Known)>>,
}

/// The way of one lane's handlers to all that is outside.
pub struct Outside {
    pub process: Process,
    pub kind: Kind,
    pub client: u64,
    changelog: &'static str,
    mail: Mutex<BTreeMap<u64, Mail>>,
    numbers: AtomicU64,
}

impl Outside {
    pub fn new(process: &Process, kind: Kind, changelog: &'static str) -> Self {
        let client = process.lock().provider.client();
        let process = process.clone();
        Self { process, kind, client, changelog, mail: Mutex::default(), numbers: AtomicU64::new(0) }
    }

    fn mail(&self) -> MutexGuard<'_, BTreeMap<u64, Mail>> {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in what has arrived.
    pub fn fetch(&self) {
        let mut state = self.process.lock();
        let now = state.now();
        state.provider.advance(now);
        let all = state.provider.mail.remove(&self.client).unwrap_or_default();
        let heard = state.provider.heard.remove(&self.client).unwrap_or_default();
        drop(state);
        let heard = heard.into_iter().map(|heard| (heard.number, Mail::Heard(heard)));
        self.mail().extend(all.into_iter().chain(heard));
    }

    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    async fn answer(&self, number: u64) -> Mail {
        poll_fn(|_| self.mail().remove(&number).map_or(Poll::Pending, Poll::Ready)).await
    }

    /// Lets time pass, as a function that is slow does; or panics, if it does that.
    pub async fn dawdle(&self) {
        let number = self.number();
        {
            let mut state = self.process.lock();
            let super::Troubles { panicking, dawdling, .. } = state.provider.troubles;
            if state.random.permille(panicking) {
                state.reach(faults::HANDLER_PANICKED);
                state.note("panic", format_args!("of a handler"));
                drop(state);
                panic!("{INJECTED_PANIC}");
            }
            if !state.random.permille(dawdling) {
                return;
            }
            state.reach(faults::HANDLER_SLOW);
            let at = state.now() + state.random.below(TIMEOUT + TIMEOUT / 4);
            state.provider.at(at, Event::Mail(self.client, number, Mail::Alarm));
        }
        self.answer(number).await;
    }

    /// Waits for a step, mostly for as long as it takes. `None` if the function has not waited for it to its end: its future
    /// is dropped, wherever it was.
    pub async fn patiently<T>(&self, step: impl Future<Output = T>) -> Option<T> {
        let number = self.number();
        let mut step = pin!(step);
        {
            let mut state = self.process.lock();
            let impatient = state.provider.troubles.impatient;
            if impatient > 0 && state.random.permille(impatient) {
                let most = if state.random.permille(500) { PATIENCE_SHORT } else { PATIENCE_MAX };
                let at = state.now() + state.random.below(most);
                state.provider.at(at, Event::Mail(self.client, number, Mail::Alarm));
            }
        }
        let came = poll_fn(|context| match step.as_mut().poll(context) {
            Poll::Ready(came) => Poll::Ready(Some(came)),
            Poll::Pending => self.mail().remove(&number).map_or(Poll::Pending, |_| Poll::Ready(None)),
        });
        came.await
    }

    /// What a function makes of a step that it has not waited for: whatever comes to its mind. `None`: it goes on as if
    /// nothing were missing.
    pub fn without_step(&self) -> Option<StepError> {
        let mut state = self.process.lock();
        state.reach(coverage::STEP_DROPPED);
        match state.random.below(4) {
            0 => Some(StepError::again("the step takes too long")),
            1 => Some(StepError::rejected("the step takes too long")),
            2 => Some(StepError::unknown("the step takes too long")),
            _ => None,
        }
    }

    /// Counts a situation.
    pub fn reach(&self, situation: &'static str) {
        self.process.lock().reach(situation);
    }

    /// A step begins.
    fn begins(&self, state: &mut State, asked: Asked<'_>) -> usize {
        let Asked { partition, body, known, .. } = asked;
        let known = known.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let changelog = Partition::new(self.changelog, partition);
        let number = state.provider.begun.len();
        let Some(log) = state.broker.topics.log(&changelog) else { return number };
        let coordinator = &state.broker.coordinator;
        let undecided = log.open().filter(|(producer, _)| !coordinator.commits(*producer)).collect();
        let changelog_end = log.end();
        state.note("step", format_args!("{body} after {known:?}"));
        let asked = body.as_bytes().to_vec();
        let was_put_off = false;
        state.provider.begun.push(Begun { partition, asked, known, changelog_end, undecided, was_put_off });
        number
    }

    /// A step that calls the provider: gives the number of what it has done.
    pub async fn call(&self, asked: Asked<'_>, key: &Key) -> Result<u64, StepError> {
        // At once: the key's window was looked at.
        let (begun, sent) = self.send(asked, key);
        let came = match sent {
            None => Told::Again(StepError::again("the provider is down")),
            Some(number) => {
                let Mail::Heard(heard) = self.answer(number).await else { panic!("a call is answered as a call") };
                self.dawdle().await;
                read(&heard)
            }
        };
        match came {
            Told::Again(error) => {
                let mut state = self.process.lock();
                state.provider.begun.get_mut(begun).into_iter().for_each(|begun| begun.was_put_off = true);
                Err(error)
            }
            Told::Other(told) => told,
        }
    }

    /// Sends a call, unless the provider is down; says which step has begun.
    fn send(&self, asked: Asked<'_>, key: &Key) -> (usize, Option<u64>) {
        let mut state = self.process.lock();
        let begun = self.begins(&mut state, asked);
        let now = state.now();
        state.provider.advance(now);
        if state.provider.is_down() {
            return (begun, None);
        }
        let (there, back) = (state.random.between(50, 3 * MS), state.random.between(50, 3 * MS));
        let (fate, delay) = (state.provider_fate(), state.random.between(MS, SECOND));
        let (client, number) = (self.client, self.number());
        let key = self.kind.has_key().then(|| key.to_string());
        let body = asked.body.as_bytes().to_vec();
        state.note("call", format_args!("{number} {fate:?}"));
        let request = Request { client, number, attempt: 0, key, body, sent_at: now, back: Some(back) };
        state.provider.send(request, fate, (there, delay));
        (begun, Some(number))
    }

    /// A step that is a transaction of the database.
    pub async fn transact(&self, asked: Asked<'_>, key: &Key) -> Result<StepOutcome, StepError> {
        let until = {
            let mut state = self.process.lock();
            self.begins(&mut state, asked);
            state.now() + LOCK_WAIT
        };
        self.dawdle().await;
        let mut session = Session { outside: self, of: (self.client, self.number()), is_open: true };
        let asked_for = asked.body.as_bytes().to_vec();
        let begin = What::Begin { session: session.of, key: key.to_string(), asked: asked_for, until };
        let serial = match self.ask(begin).await {
            Said::Began(serial) => serial,
            Said::Found(row) => return session.end(Ok(came(row))),
            Said::Committed | Said::Failed => return Err(StepError::again("the database cannot do it now")),
        };
        self.dawdle().await;
        let row = match asked.is_declined {
            true => Row::Refused("declined".to_owned()),
            false => Row::Done(serial),
        };
        let said = self.ask(What::Commit(serial, row.clone())).await;
        match said {
            Said::Committed => session.end(Ok(came(row))),
            _ => Err(StepError::again("the commit was not answered")),
        }
    }

    async fn ask(&self, what: What) -> Said {
        let number = self.number();
        {
            let mut state = self.process.lock();
            let now = state.now();
            state.provider.advance(now);
            let (there, back) = (state.random.between(50, 3 * MS), state.random.between(50, 3 * MS));
            let (fate, delay) = (state.provider_fate(), state.random.between(MS, SECOND));
            state.note("statement", format_args!("{number} {fate:?} {what:?}"));
            let statement = Statement { client: self.client, number, back: Some(back), what };
            state.provider.carry(statement, fate, (now + there, delay));
        }
        let Mail::Said(said) = self.answer(number).await else { panic!("a statement is answered as one") };
        said
    }
}

/// A session with the database. The server learns at some time that it was dropped.
struct Session<'a> {
    outside: &'a Outside,
    of: table::Session,
    is_open: bool,
}

impl Session<'_> {
    /// Nothing of it is open any more.
    fn end<T>(&mut self, came: T) -> T {
        self.is_open = false;
        came
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        if self.is_open {
            let mut state = self.outside.process.lock();
            let at = state.now() + state.random.below(SECOND);
            state.provider.at(at, Event::Gone(self.of));
        }
    }
}

impl Server {
    /// Sends a request on its way, which takes `there`; one that is late takes longer by `delay`.
    pub(super) fn send(&mut self, request: Request, fate: Fate, (there, delay): (Time, Time)) {
        faults::of_call(fate).into_iter().for_each(|fault| self.reach(fault));
        let sent_at = request.sent_at;
        let there = match fate {
            Fate::Slow => there + delay / 3,
            // Long after its sender has given it up.
            Fate::Late => TIMEOUT + delay,
            _ => there,
        };
        match fate {
            Fate::RequestLost => self.lost(request),
            Fate::Late => {
                self.lost(request.clone());
                self.at(sent_at + there, Event::Arrives(Request { client: 0, back: None, ..request }));
            }
            Fate::ResponseLost | Fate::Silenced => {
                self.at(sent_at + there, Event::Arrives(Request { back: None, ..request }));
            }
            Fate::Fine | Fate::Slow => self.at(sent_at + there, Event::Arrives(request)),
        }
    }

    /// The same for a statement to the database.
    fn carry(&mut self, statement: Statement, fate: Fate, (arrives_at, delay): (Time, Time)) {
        faults::of_row(fate).into_iter().for_each(|fault| self.reach(fault));
        let Statement { client, number, .. } = statement;
        let is_heard = matches!(fate, Fate::Fine | Fate::Slow);
        if !is_heard {
            let at = self.now + TIMEOUT;
            self.at(at, Event::Mail(client, number, Mail::Said(Said::Failed)));
        }
        let back = statement.back.filter(|_| is_heard);
        let statement = Statement { back, ..statement };
        match fate {
            Fate::RequestLost => {}
            Fate::Late => self.at(arrives_at + TIMEOUT + delay, Event::Executes(statement)),
            Fate::Slow => self.at(arrives_at + delay / 3, Event::Executes(statement)),
            Fate::Fine | Fate::ResponseLost | Fate::Silenced => self.at(arrives_at, Event::Executes(statement)),
        }
    }
}

fn came(row: Row) -> StepOutcome {
    match row {
        Row::Done(serial) => StepOutcome::Done(serial.to_string().into_bytes()),
        Row::Refused(reason) => StepOutcome::Rejected(reason),
    }
}

/// What a call tells its function.
enum Told {
    /// It has certainly not acted, and is to be tried again.
    Again(StepError),
    Other(Result<u64, StepError>),
}

/// What somebody who writes a handler makes of an answer.
fn read(heard: &AttemptEnd) -> Told {
    let AttemptOutcome::Status(Status { code, retry_after, .. }) = heard.outcome else {
        return Told::Other(Err(StepError::unknown("no answer")));
    };
    match code {
        201 => Told::Other(serial(&heard.body).ok_or_else(|| StepError::unknown("an answer without a number"))),
        422 => Told::Other(Err(StepError::rejected("declined"))),
        429 | 503 => {
            let error = StepError::again("busy");
            Told::Again(match retry_after {
                Some(RetryAfter::Seconds(seconds)) => error.after(std::time::Duration::from_secs(seconds)),
                _ => error,
            })
        }
        code => Told::Other(Err(StepError::unknown(format!("the provider answered {code}")))),
    }
}

fn serial(body: &Body) -> Option<u64> {
    let Body::Whole(body) = body else { return None };
    let value: serde_json::Value = serde_json::from_slice(body).ok()?;
    value["serial"].as_u64()
}
