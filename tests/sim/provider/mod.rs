//! The simulated provider: it acts, remembers under a key what it has answered for as long as it honours one, and forgets
//! afterwards.
//!
//! A request lives on without its sender, and arrives whenever its way takes it: also when its sender is dead, or has
//! lost its task. So everything that happens on its side is an event with a time; a look at the provider has it
//! catch up first.

use std::collections::{BTreeMap, VecDeque};

use ratchet::effect::call::{AttemptOutcome, RetryAfter, Status};
use ratchet::effect::provider::{AttemptEnd, Body};

use crate::judge::coverage::faults;
use crate::kafka::{SECOND, Time};
use crate::random::Random;
use crate::world::Wire;

mod handler;
mod outside;
mod session;
mod table;
mod work;

pub use outside::{Begun, Known};
pub use session::{By, Kind, of};
pub use work::{Plan, Planned, undoes};

use table::{Said, Statement, Table};

/// For how long keys are honoured.
pub const HONOURED_FOR: Time = 4 * SECOND;
/// How long an attempt may take.
pub const TIMEOUT: Time = SECOND / 2;
/// By how much clocks are said to differ at most; a request lingers no longer than that on its way.
pub const MARGIN: Time = SECOND + SECOND / 2;
/// Amounts that it declines.
const DECLINED: std::ops::Range<u64> = 0..30;

/// What may go wrong at any request, apart from its way, in thousandths.
#[derive(Clone, Copy, Debug, Default)]
pub struct Troubles {
    /// What happens to requests and their answers on the way.
    pub link: Wire,
    /// It answers 503 and has not acted.
    pub busy: u64,
    /// It answers 429, sometimes with a time.
    pub throttled: u64,
    /// It answers 500, whether it has acted or not, and remembers nothing of that answer.
    pub failing: u64,
    /// It answers 500, and goes on answering that under the key.
    pub broken: u64,
    /// It takes longer than an attempt may.
    pub slow: u64,
    /// A handler's function panics, at any of some points.
    pub panicking: u64,
    /// It takes its time there.
    pub dawdling: u64,
    /// It has a time-out of its own for a step, and drops the step's future then, wherever that is.
    pub impatient: u64,
    /// Whether it declines what was done before, if the request has no key.
    pub knows_again: bool,
    /// Whether it remembers nothing under a key when it fails after it has acted, and declines what was done before.
    pub forgets: bool,
}

impl Troubles {
    /// Draws some, or none.
    pub fn drawn(random: &mut Random) -> Self {
        if random.permille(250) {
            return Self::default();
        }
        let mut upto = |most: u64| if random.permille(600) { random.below(most) } else { 0 };
        let link =
            Wire { request_lost: upto(60), response_lost: upto(60), late: upto(60), slow: upto(40), silenced: 0 };
        let (busy, throttled, failing, broken, slow) = (upto(80), upto(60), upto(60), upto(40), upto(40));
        Self { link, busy, throttled, failing, broken, slow, ..Self::default() }
    }

    /// Draws many that leave calls in doubt.
    pub fn unsure(random: &mut Random) -> Self {
        let mut upto = |most: u64| random.below(most);
        let link =
            Wire { request_lost: upto(60), response_lost: upto(300), late: upto(60), slow: upto(40), silenced: 0 };
        let (busy, throttled, failing, slow) = (upto(100), upto(60), upto(200), upto(500));
        Self { link, busy, throttled, failing: failing / 2, broken: failing / 2, slow, ..Self::default() }
    }

    /// The same for those that handlers call, who are themselves at fault at times.
    pub fn of_handlers(self, random: &mut Random) -> Self {
        if random.permille(400) {
            return Self { broken: 0, ..self };
        }
        // Nobody tells a handler that it will never find out.
        let (panicking, dawdling, knows_again) = (random.below(20), random.below(80), random.permille(300));
        // From a separate generator, so that other draws stay the same.
        let mut separate = Random::new(random.clone().next());
        let impatient = if separate.permille(600) { separate.below(200) } else { 0 };
        Self { broken: 0, panicking, dawdling, impatient, knows_again, ..self }
    }
}

/// Something that it has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Act {
    /// Under which key.
    pub key: Option<String>,
    /// What it was asked for.
    pub asked: Vec<u8>,
    /// Its number, which the answer tells.
    pub serial: u64,
    /// When.
    pub at: Time,
}

/// A request on its way.
#[derive(Clone, Debug)]
pub struct Request {
    pub client: u64,
    pub number: u64,
    pub attempt: u32,
    pub key: Option<String>,
    pub body: Vec<u8>,
    /// When it was sent.
    pub sent_at: Time,
    /// How long the answer takes; `None` if it is lost.
    pub back: Option<Time>,
}

/// What is remembered under a key.
#[derive(Clone, Debug)]
struct Remembered {
    since: Time,
    asked: Vec<u8>,
    /// `None` while it is under way.
    answer: Option<(u16, Vec<u8>)>,
}

enum Event {
    Arrives(Request),
    /// What was under way is done.
    Done(Request, u16, Vec<u8>),
    /// A client hears of an attempt.
    Heard(u64, AttemptEnd),
    /// A statement arrives at the database.
    Executes(Statement),
    /// The database learns that the client of a session is gone.
    Gone(table::Session),
    /// A client hears of what it has given this number.
    Mail(u64, u64, Mail),
}

/// What a step of a handler waits for.
#[derive(Clone, Debug)]
enum Mail {
    Heard(AttemptEnd),
    Said(Said),
    Alarm,
}

/// The provider.
pub struct Server {
    now: Time,
    events: BTreeMap<(Time, u64), Event>,
    counted: u64,
    keys: BTreeMap<String, Remembered>,
    acts: Vec<Act>,
    /// What clients have not taken yet.
    heard: BTreeMap<u64, VecDeque<AttemptEnd>>,
    mail: BTreeMap<u64, Vec<(u64, Mail)>>,
    table: Table,
    /// The steps that have begun.
    begun: Vec<Begun>,
    clients: u64,
    down_until: Time,
    random: Random,
    pub troubles: Troubles,
    /// What was asked for under keys that were not honoured any more.
    pub late: Vec<Vec<u8>>,
    /// Whether nothing was ever wrong with it but that it was down.
    pub is_reliable: bool,
    /// Situations reached, and how often.
    pub reached: BTreeMap<&'static str, u64>,
}

impl Server {
    pub fn new(seed: u64) -> Self {
        Self {
            now: 0,
            events: BTreeMap::new(),
            counted: 0,
            keys: BTreeMap::new(),
            acts: Vec::new(),
            heard: BTreeMap::new(),
            mail: BTreeMap::new(),
            table: Table::default(),
            begun: Vec::new(),
            clients: 0,
            down_until: 0,
            random: Random::new(seed ^ 0xca11),
            troubles: Troubles::default(),
            late: Vec::new(),
            is_reliable: false,
            reached: BTreeMap::new(),
        }
    }

    /// Everything that it has done.
    pub fn acts(&self) -> &[Act] {
        &self.acts
    }

    /// The steps that have begun.
    pub fn begun(&self) -> &[Begun] {
        &self.begun
    }

    /// When something happens next, if nobody asks for anything.
    fn next_event(&self) -> Option<Time> {
        self.events.keys().next().map(|(at, _)| *at)
    }

    /// Starts with these troubles.
    pub fn begin(&mut self, troubles: Troubles) {
        let Troubles {
            link,
            busy,
            throttled,
            failing,
            broken,
            slow,
            panicking,
            dawdling,
            impatient,
            knows_again,
            forgets,
        } = troubles;
        let Wire { request_lost, response_lost, late, slow: slow_link, silenced } = link;
        let of_link = request_lost + response_lost + late + slow_link + silenced;
        let of_itself = busy + throttled + failing + broken + slow + panicking + dawdling + impatient;
        self.is_reliable = of_link + of_itself == 0 && !knows_again && !forgets;
        self.troubles = troubles;
    }

    /// It is down until then.
    pub fn go_down(&mut self, until: Time) {
        self.down_until = self.down_until.max(until);
    }

    /// Nothing goes wrong any more.
    pub fn calm_down(&mut self) {
        // It has forgotten keys, so it goes on declining what was done before.
        self.troubles = Troubles { forgets: self.troubles.forgets, ..Troubles::default() };
        self.down_until = 0;
    }

    /// Counts a situation.
    fn reach(&mut self, situation: &'static str) {
        *self.reached.entry(situation).or_default() += 1;
    }

    fn client(&mut self) -> u64 {
        self.clients += 1;
        self.clients
    }

    fn is_down(&self) -> bool {
        self.now < self.down_until
    }

    fn at(&mut self, at: Time, event: Event) {
        self.counted += 1;
        self.events.insert((at, self.counted), event);
    }

    /// Catches up with the time.
    pub fn advance(&mut self, now: Time) {
        while let Some(first) = self.events.first_entry().filter(|first| first.key().0 <= now) {
            let ((at, _), event) = first.remove_entry();
            self.now = self.now.max(at);
            match event {
                Event::Arrives(request) => self.arrives(request),
                Event::Done(request, status, body) => {
                    if let Some(remembered) = request.key.as_ref().and_then(|key| self.keys.get_mut(key)) {
                        remembered.answer = Some((status, body.clone()));
                    }
                    self.answer(request, status, body, false);
                }
                Event::Heard(client, heard) => self.heard.entry(client).or_default().push_back(heard),
                Event::Executes(statement) => self.execute(statement),
                Event::Gone(session) => self.end_session(session),
                Event::Mail(client, number, mail) => self.mail.entry(client).or_default().push((number, mail)),
            }
        }
        self.now = self.now.max(now);
    }

    fn arrives(&mut self, request: Request) {
        if self.is_down() {
            return self.lost(request);
        }
        let Request { key, body, .. } = &request;
        if let Some(key) = key {
            let now = self.now;
            let honoured = self.keys.get(key).filter(|remembered| now < remembered.since + HONOURED_FOR);
            if self.keys.contains_key(key) && honoured.is_none() {
                self.late.push(body.clone());
            }
            match honoured {
                Some(remembered) if remembered.asked != *body => {
                    let said = b"the idempotency-key was used for another request".to_vec();
                    return self.answer(request, 422, said, false);
                }
                Some(Remembered { answer: Some((status, said)), .. }) => {
                    let (status, said) = (*status, said.clone());
                    if status == 500 {
                        self.reach(faults::FAILURE_REPEATED);
                    }
                    return self.answer(request, status, said, true);
                }
                Some(Remembered { answer: None, .. }) => return self.answer(request, 409, Vec::new(), false),
                None => {}
            }
        }
        self.acts_on(request);
    }

    fn acts_on(&mut self, request: Request) {
        let Troubles { busy, throttled, failing, broken, slow, knows_again, forgets, .. } = self.troubles;
        let drawn = self.random.below(1000);
        if drawn < busy {
            self.reach(faults::BUSY);
            return self.answer(request, 503, Vec::new(), false);
        }
        if drawn < busy + throttled {
            self.reach(faults::THROTTLED);
            return self.answer(request, 429, Vec::new(), false);
        }
        let declines_again = forgets || knows_again && request.key.is_none();
        if declines_again && self.acts.iter().any(|act| act.asked == request.body) {
            self.reach(faults::DECLINED_AGAIN);
            return self.answer(request, 422, b"done before".to_vec(), false);
        }
        if is_declined(&request.body) {
            self.remember(&request, Some((422, b"declined".to_vec())));
            return self.answer(request, 422, b"declined".to_vec(), false);
        }
        let fails = drawn < busy + throttled + failing;
        if fails && self.random.permille(500) {
            self.reach(faults::FAILED_BEFORE);
            return self.answer(request, 500, Vec::new(), false);
        }
        if !fails && drawn < busy + throttled + failing + broken {
            self.reach(faults::FAILED_FOR_GOOD);
            self.remember(&request, Some((500, Vec::new())));
            return self.answer(request, 500, Vec::new(), false);
        }
        let serial = self.acts.len() as u64;
        let Request { key, body, .. } = &request;
        self.acts.push(Act { key: key.clone(), asked: body.clone(), serial, at: self.now });
        let said = format!(r#"{{"serial":{serial}}}"#).into_bytes();
        if self.random.permille(slow) {
            self.reach(faults::TOOK_LONG);
            self.remember(&request, None);
            let at = self.now + TIMEOUT / 2 + self.random.below(2 * TIMEOUT);
            return self.at(at, Event::Done(request, 201, said));
        }
        if !(fails && forgets) {
            self.remember(&request, Some((201, said.clone())));
        }
        // It has acted, and says otherwise.
        if fails {
            self.reach(faults::FAILED_AFTER);
        }
        self.answer(request, if fails { 500 } else { 201 }, said, false);
    }

    fn remember(&mut self, request: &Request, answer: Option<(u16, Vec<u8>)>) {
        if let Some(key) = request.key.clone() {
            self.keys.insert(key, Remembered { since: self.now, asked: request.body.clone(), answer });
        }
    }

    fn answer(&mut self, request: Request, code: u16, body: Vec<u8>, is_replayed: bool) {
        let Request { client, number, attempt, sent_at, back: Some(back), .. } = request else {
            return self.lost(request);
        };
        let at = self.now + back;
        if at > sent_at + TIMEOUT {
            return self.lost(request);
        }
        let wants_wait = code == 429 && self.random.permille(500);
        let retry_after = wants_wait.then(|| RetryAfter::Seconds(self.random.below(2)));
        let names_key = code == 422 && body.starts_with(b"the idempotency-key");
        let answer = AttemptOutcome::Status(Status { code, retry_after, names_key, is_replayed });
        let took = std::time::Duration::from_micros(at - sent_at);
        self.at(
            at,
            Event::Heard(
                client,
                AttemptEnd { number, attempt, outcome: answer, body: Body::Whole(body), message: None, duration: took },
            ),
        );
    }

    /// The client gives it up.
    fn lost(&mut self, request: Request) {
        let Request { client, number, attempt, sent_at, .. } = request;
        let at = (sent_at + TIMEOUT).max(self.now);
        let took = std::time::Duration::from_micros(TIMEOUT);
        let message = Some("no answer".to_owned());
        let heard =
            AttemptEnd { number, attempt, outcome: AttemptOutcome::Lost, body: Body::None, message, duration: took };
        self.at(at, Event::Heard(client, heard));
    }
}

/// Whether the provider will never do what it is asked for.
pub fn is_declined(asked: &[u8]) -> bool {
    let value: serde_json::Value = serde_json::from_slice(asked).unwrap_or_default();
    // A handler's step says so itself.
    value["declined"] == true || value["amount"].as_u64().is_some_and(|amount| DECLINED.contains(&amount))
}
