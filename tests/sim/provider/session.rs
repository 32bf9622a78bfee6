//! The driver's part: the engine's traits on the simulated provider, in simulated time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ratchet::effect::call::{AttemptOutcome, KeyWindow};
use ratchet::effect::provider::{self, AttemptEnd, Body, CallNumber, Calls, Payload};

use crate::judge::coverage;
use crate::kafka::{MS, SECOND, Time};
use crate::world::Process;

use super::{HONOURED_FOR, MARGIN, Request, Server, TIMEOUT, handler};

/// How many requests of a lane are on the wire at most.
pub const IN_FLIGHT: usize = 8;

/// Who calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum By {
    /// ratchet itself, by HTTP: once for a record.
    Http,
    /// A handler, in each of its steps.
    Handler,
}

/// What a topology and its provider have agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Keys; most calls have no reservation of their own.
    Granted,
    /// Keys, and a reservation before each call.
    Reserved,
    /// Keys; what may have happened is done again once its key is not honoured any more.
    Renewed,
    /// No keys: what may have happened goes to the dead letters.
    Keyless,
    /// No keys: what may have happened is done again.
    Again,
}

impl Kind {
    /// Whether the provider honours keys.
    pub fn has_key(self) -> bool {
        matches!(self, Self::Granted | Self::Reserved | Self::Renewed)
    }

    /// Whether calls may go without reservations of their own.
    pub fn is_granted(self) -> bool {
        matches!(self, Self::Granted | Self::Renewed)
    }

    /// Whether something may be done twice.
    pub fn repeats(self) -> bool {
        matches!(self, Self::Again | Self::Renewed)
    }
}

/// The provider, as seen by one process.
pub struct Provider {
    pub process: Process,
    pub kind: Kind,
}

impl provider::Provider for Provider {
    fn kind(&self) -> &'static str {
        "http"
    }

    fn calls(&self) -> Box<dyn Calls> {
        let client = self.process.lock().provider.client();
        let (process, kind) = (self.process.clone(), self.kind);
        Box::new(Client { process, kind, client, queue: VecDeque::new(), on_wire: 0, ready: VecDeque::new() })
    }
}

/// A lane's way to it.
struct Client {
    process: Process,
    kind: Kind,
    client: u64,
    queue: VecDeque<provider::Request>,
    on_wire: usize,
    ready: VecDeque<AttemptEnd>,
}

impl Client {
    fn with<T>(&self, act: impl FnOnce(&mut Server) -> T) -> T {
        let mut state = self.process.lock();
        let now = state.now();
        state.provider.advance(now);
        act(&mut state.provider)
    }

    /// Puts on the wire what there is room for.
    fn pump(&mut self) {
        if self.process.is_dead() {
            return;
        }
        while self.on_wire < IN_FLIGHT {
            let Some(request) = self.queue.pop_front() else { return };
            self.send(&request);
        }
    }

    fn send(&mut self, request: &provider::Request) {
        let provider::Request { number, attempt, first_attempt_at_ms, payload: asks, .. } = request;
        let Payload::Http(rendered) = asks else { panic!("{asks:?} goes to a provider") };
        let wall_ms = {
            let state = self.process.lock();
            state.wall_ms(self.process.number)
        };
        let is_late = self.kind.has_key() && !window().allows(*first_attempt_at_ms, wall_ms);
        let is_down = self.with(|server| server.is_down());
        if is_late || is_down {
            let answer = if is_late { AttemptOutcome::TooLate } else { AttemptOutcome::NotSent };
            if is_late {
                self.process.lock().reach(coverage::TOO_LATE);
            }
            let (body, message, took) = (Body::None, Some("not sent".to_owned()), Duration::ZERO);
            return self.ready.push_back(AttemptEnd {
                number: *number,
                attempt: *attempt,
                outcome: answer,
                body,
                message,
                duration: took,
            });
        }
        let mut state = self.process.lock();
        if *state.is_committing() {
            state.reach(coverage::SENT_MEANWHILE);
        }
        let (there, back) = (state.random.between(50, 3 * MS), state.random.between(50, 3 * MS));
        let (fate, delay) = (state.provider_fate(), state.random.between(MS, SECOND));
        let key = rendered.key.as_ref().map(ToString::to_string);
        let sent_at = state.now();
        let body = rendered.body.clone().unwrap_or_default();
        state.note("call", format_args!("{number} {attempt} {fate:?} {}", String::from_utf8_lossy(&body)));
        let (client, number, attempt) = (self.client, *number, *attempt);
        let request = Request { client, number, attempt, key, body, sent_at, back: Some(back) };
        self.on_wire += 1;
        state.provider.send(request, fate, (there, delay));
    }
}

impl Calls for Client {
    fn submit(&mut self, request: provider::Request) {
        self.process.maybe_panic();
        self.queue.push_back(request);
        self.pump();
    }

    fn take_end(&mut self) -> Option<AttemptEnd> {
        if self.process.is_dead() {
            return None;
        }
        let client = self.client;
        let heard = self.with(|server| server.heard.entry(client).or_default().pop_front());
        if let Some(heard) = heard {
            self.on_wire -= 1;
            self.process.lock().note("heard", format_args!("{} {} {:?}", heard.number, heard.attempt, heard.outcome));
            self.pump();
            return Some(heard);
        }
        self.pump();
        self.ready.pop_front()
    }

    fn withdraw(&mut self, number: CallNumber) -> bool {
        let Some(at) = self.queue.iter().position(|request| request.number == number) else { return false };
        self.queue.remove(at);
        true
    }

    fn in_flight(&self) -> usize {
        self.on_wire
    }
}

/// The window of the provider's keys.
pub fn window() -> KeyWindow {
    let of = |time: Time| Duration::from_micros(time);
    KeyWindow::new(of(HONOURED_FOR), of(TIMEOUT), of(MARGIN)).expect("it has room")
}

/// The driver's settings are the topology's: nothing to share but the process. A handler's steps are to be committed in this
/// changelog.
pub fn of(process: &Process, (by, kind): (By, Kind), changelog: &'static str) -> Arc<dyn provider::Provider> {
    let process = process.clone();
    match by {
        By::Http => Arc::new(Provider { process, kind }),
        By::Handler => Arc::new(handler::Provider { process, kind, changelog }),
    }
}
