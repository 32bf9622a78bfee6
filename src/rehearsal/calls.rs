//! What a record would make a provider do: the same request, the same state machine and the same answers' meaning as in a
//! run, with a clock that jumps to each time that something is due. A call is carried through at once, so one at a time.
//!
//! What is not rehearsed is what only a run has: owners that die, several calls at once, a provider whose health other
//! calls show.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use crate::dedup::{Carried, Decision, Model, Reason, Rejection, Verdict};
use crate::effect::call::{
    Action, AttemptOutcome, Call, Class, Comparison, Event, FoundCall, Now, OnUnavailable, Outcome, Policy,
    RememberedOutcome, RetryAfter, Status, begin, is_replay_marker, names_key, next, resume,
};
use crate::effect::provider::RenderedRequest;
use crate::record::Record;
use crate::rendering::request::Requester;
use crate::topology::Topology;
use crate::topology::cases::{GivenAttempt, Silence};
use crate::topology::sink::terms::OnDuplicate;
use crate::topology::sink::{Http, Terms};

/// How often a call may be tried before its rehearsal ends: a provider that is never up again would hold for ever.
const ATTEMPTS_MAX: u32 = 10_000;

/// What a record made the provider do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Made {
    /// The method.
    pub method: &'static str,
    /// The address as the topology writes it, with the record's parts in it; empty if there was no request.
    pub address: String,
    /// How many attempts it made.
    pub attempts: u64,
    /// Whether each attempt of its identity and version, of former records too, carried the same key and bytes; `None` if
    /// none carried a key.
    pub is_same: Option<bool>,
    /// What is written to the topic of results.
    pub result: Option<Answered>,
}

/// What was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// The status code; `None` if the result is that the call has failed.
    pub status: Option<u16>,
    /// The body.
    pub body: Option<Vec<u8>>,
}

/// What is known of a version's call besides what the model remembers.
#[derive(Clone, Debug)]
struct Known {
    request: RenderedRequest,
    remembered: RememberedOutcome,
    result: Answered,
}

/// Calls a provider whose answers are given.
#[derive(Debug)]
pub struct Caller {
    requester: Requester,
    http: Http,
    /// What the next attempts come to; 200 without a body afterwards.
    answers: VecDeque<GivenAttempt>,
    known: HashMap<(String, i32, Vec<u8>), Known>,
    /// The monotonic clock.
    elapsed: Duration,
    made: Made,
}

impl Caller {
    /// For this topology's records; `None` if it does not call.
    pub fn new(topology: &Topology, answers: &[GivenAttempt]) -> Option<Self> {
        Some(Self {
            requester: Requester::new(topology)?,
            http: topology.http()?.clone(),
            answers: answers.iter().cloned().collect(),
            known: HashMap::new(),
            elapsed: Duration::ZERO,
            made: Made::default(),
        })
    }

    /// What the record that was judged last made the provider do.
    pub fn made(&self) -> &Made {
        &self.made
    }

    /// Judges the next record by its partition's model, and makes its call.
    pub fn judge(&mut self, model: &mut Model, record: &Record<'_>, wall_ms: i64) -> Decision {
        self.made = Made { method: self.http.method.as_str(), ..Made::default() };
        let decision = model.judge_and_carry(record, wall_ms, |rows, arena| {
            let Some(row) = rows.first().filter(|row| Terms::is_called_by(row.kind)) else { return Carried::Out };
            let request = match self.requester.render(record, rows, arena) {
                Ok(request) => request,
                Err(message) => return Carried::Refused(Rejection { reason: Reason::Rejected, message }),
            };
            let id = (record.topic.to_owned(), record.partition, arena[row.key.clone()].to_vec());
            // An attempt that may have acted is remembered under its version alone.
            self.known.remove(&id);
            self.carry(id, request, None, wall_ms)
        });
        if decision.verdict == Verdict::Duplicate && decision.reason != Reason::Replayed {
            return self.repeated(model, record, wall_ms, decision);
        }
        decision
    }

    /// A record whose identity, and version, was there before.
    fn repeated(&mut self, model: &mut Model, record: &Record<'_>, wall_ms: i64, decision: Decision) -> Decision {
        let [row] = model.rows() else { return decision };
        let is_called = Terms::is_called_by(row.kind);
        let id = (record.topic.to_owned(), record.partition, model.arena()[row.key.clone()].to_vec());
        let Some(known) = self.known.get(&id).filter(|_| is_called).cloned() else { return decision };
        let request = match self.requester.render(record, model.rows(), model.arena()) {
            Ok(request) => request,
            Err(_) => return decision,
        };
        if let RememberedOutcome::GivenUp { first_attempt_at_ms } = known.remembered {
            let found = FoundCall { first_attempt_at_ms, attempts: 0, may_have_acted: true };
            return match self.carry(id, request, Some(found), wall_ms) {
                Carried::Out | Carried::InInbox => {
                    Decision { verdict: Verdict::Forwarded, action: crate::dedup::Action::Forward, ..decision }
                }
                Carried::Refused(rejection) | Carried::Failed(rejection) => model.reject_last(rejection),
            };
        }
        if known.request.fingerprint.compare(&request.fingerprint) == Comparison::Different {
            let message = Reason::Conflict.meaning().to_owned();
            return model.reject_last(Rejection { reason: Reason::Conflict, message });
        }
        if self.http.terms.on_duplicate == OnDuplicate::Result {
            self.made.result = Some(known.result);
        }
        decision
    }

    /// Makes a record's call, and says what becomes of the record.
    fn carry(
        &mut self,
        id: (String, i32, Vec<u8>),
        request: RenderedRequest,
        found: Option<FoundCall>,
        wall_ms: i64,
    ) -> Carried {
        self.made.address = self.requester.shown().to_owned();
        let before = self.known.get(&id).map(|known| known.request.clone());
        let is_same = before.is_none_or(|before| before == request);
        self.made.is_same = request.key.is_some().then_some(is_same);
        let (call, outcome, answered) = self.call(found, wall_ms);
        let remembered = call.remembered_outcome(outcome);
        let result = match outcome {
            Outcome::Done => answered,
            _ => Answered { status: None, body: None },
        };
        if remembered != RememberedOutcome::AsBefore {
            self.known.insert(id, Known { request, remembered, result: result.clone() });
        }
        let reason = match outcome {
            Outcome::Done => {
                self.made.result = self.http.terms.result.is_some().then_some(result);
                return Carried::Out;
            }
            Outcome::Rejected => Reason::Rejected,
            Outcome::Conflict => Reason::Conflict,
            Outcome::InDoubt => Reason::InDoubt,
            Outcome::Unavailable => Reason::Unavailable,
        };
        let message = match outcome {
            Outcome::Rejected => "the provider refuses what the record asks for",
            _ => reason.meaning(),
        };
        let rejection = Rejection { reason, message: message.to_owned() };
        if remembered == RememberedOutcome::AsBefore { Carried::Refused(rejection) } else { Carried::Failed(rejection) }
    }

    /// Carries a call through. Transactions commit at once.
    fn call(&mut self, found: Option<FoundCall>, wall_ms: i64) -> (Call, Outcome, Answered) {
        let policy = self.http.terms.policy.clone();
        let now = |elapsed: Duration| {
            let passed_ms = i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX);
            Now { wall_ms: wall_ms.saturating_add(passed_ms), monotonic: elapsed }
        };
        let at = now(self.elapsed);
        let (mut call, action) = match found {
            Some(found) => resume(&policy, found, at),
            None => begin(&policy, None, at),
        };
        let mut action = Some(action);
        let mut answered = Answered { status: None, body: None };
        let (mut is_alive, mut tried) = (false, 0);
        loop {
            let at = now(self.elapsed);
            // The longest wait: what is rehearsed is the same every day.
            let step = |call, event, at| next(&policy, call, event, at, &mut |most| most);
            (call, action) = match action {
                Some(Action::Write(_)) => {
                    let (call, _) = step(call, Event::Written { since_ms: at.wall_ms }, at);
                    step(call, Event::Committed, at)
                }
                Some(Action::SendAt(due) | Action::Hold(due)) => {
                    self.elapsed = self.elapsed.max(due);
                    step(call, Event::Dispatch, now(self.elapsed))
                }
                Some(Action::Send { attempt }) => {
                    tried += 1;
                    self.made.attempts += 1;
                    let answer;
                    (answer, answered) = self.attempt(at);
                    is_alive |= shows_life(&policy, &answer);
                    // Nobody else is called, so nothing but this call's answers shows that the provider is alive, and
                    // nothing at all that it lets others in.
                    let holds = policy.on_unavailable == OnUnavailable::Hold && tried < ATTEMPTS_MAX;
                    let class = policy.answers.read(&answer, policy.key.is_some()).class;
                    let is_down = class == Class::Hold || holds && !is_alive;
                    step(call, Event::AttemptEnded { attempt, outcome: answer, is_down }, now(self.elapsed))
                }
                Some(Action::Settle(outcome)) => return (call, outcome, answered),
                None => unreachable!("each event of this call is answered by an action"),
            };
        }
    }

    /// The next attempt, and the time that it takes.
    fn attempt(&mut self, at: Now) -> (AttemptOutcome, Answered) {
        let none = Answered { status: None, body: None };
        match self.answers.pop_front() {
            None => (AttemptOutcome::Status(Status::of(200)), Answered { status: Some(200), body: None }),
            Some(GivenAttempt::Silent(Silence::NotSent)) => (AttemptOutcome::NotSent, none),
            Some(GivenAttempt::Silent(Silence::Lost)) => (AttemptOutcome::Lost, none),
            Some(GivenAttempt::Silent(Silence::Timeout)) => {
                self.elapsed += self.http.terms.timeout;
                (AttemptOutcome::Lost, none)
            }
            Some(GivenAttempt::Answered { code, body, headers }) => {
                let find = |wanted: &str| headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted));
                let bytes = body.as_deref().unwrap_or_default();
                let status = Status {
                    code,
                    retry_after: find("retry-after").and_then(|(_, value)| RetryAfter::parse(value, at.wall_ms)),
                    names_key: self.http.key.as_deref().is_some_and(|header| names_key(bytes, header)),
                    is_replayed: headers.iter().any(|(name, value)| is_replay_marker(name, value)),
                };
                (AttemptOutcome::Status(status), Answered { status: Some(code), body })
            }
        }
    }
}

/// Whether an answer shows that the provider is alive.
fn shows_life(policy: &Policy, answer: &AttemptOutcome) -> bool {
    let class = policy.answers.read(answer, policy.key.is_some()).class;
    let is_status = matches!(answer, AttemptOutcome::Status(_));
    is_status && matches!(class, Class::Done | Class::Rejected | Class::Conflict | Class::InProgress)
}
