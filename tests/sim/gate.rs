//! A gate, simulated: a server that keeps marks, and the engine's way to it, in simulated time.
//!
//! Its marks are left in one step, as Redis does it. Between it and a lane, questions and answers are lost or late, so that
//! marks are left whose answer nobody has heard, some of them after the task that asked has given up. It goes down for
//! a while, and it may forget everything.

use std::collections::{BTreeMap, BTreeSet};

use ratchet::effect::gate::{Error, ErrorKind, Gate, GateRecord, GateVerdict, Identity, Session, SourcePartition};

use crate::judge::coverage::{self, faults};
use crate::kafka::{MS, SECOND, Time};
use crate::lies::{Lie, is_told};
use crate::random::Random;
use crate::world::{Fate, Process, Wire};

/// How long a lane waits for an answer.
const PATIENCE: Time = 2 * SECOND;
/// How much later than that a late question arrives.
const LATER: Time = SECOND;
/// When the last trouble begins. From then on nothing gets lost between it and its clients: all has to be read in time.
const TROUBLES_UNTIL: Time = 20 * SECOND;

/// What may go wrong with it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Troubles {
    /// At any question.
    pub link: Wire,
    /// How often it is down for a while.
    pub outages: u64,
    /// How often it forgets everything.
    pub flushes: u64,
}

impl Troubles {
    pub fn drawn(random: &mut Random) -> Self {
        let mut upto = |most: u64| if random.permille(600) { random.below(most) } else { 0 };
        let link =
            Wire { request_lost: upto(40), response_lost: upto(80), late: upto(40), slow: upto(40), silenced: 0 };
        let outages = random.below(4);
        Self { link, outages, flushes: if random.permille(300) { random.between(1, 3) } else { 0 } }
    }
}

/// What is asked.
#[derive(Clone)]
struct Question {
    partition: i32,
    place: String,
    asked: Vec<GateRecord>,
}

/// What becomes of an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Heard {
    /// The answer reaches the task that asks.
    Yes,
    /// It gets lost on its way.
    Lost,
    /// The question was given up before.
    TooLate,
}

/// Questions that arrive late.
type Later = Vec<(Time, Question)>;

/// The server.
#[derive(Default)]
pub struct Server {
    pub troubles: Troubles,
    marks: BTreeMap<Identity, String>,
    /// From when until when it is down.
    outages: Vec<(Time, Time)>,
    /// When it forgets everything.
    flushes: Vec<Time>,
    later: Later,
    /// The records, by partition and offset, that somebody has heard of as passed on elsewhere.
    elsewhere: BTreeSet<(i32, i64)>,
    /// Those of them that have left a mark since, by a question that was late. Marks have to be forgotten, or taken back, for
    /// that.
    pub strays: BTreeSet<(i32, i64)>,
}

impl Server {
    /// With these troubles, at times drawn from `random`.
    pub fn begin(&mut self, troubles: Troubles, random: &mut Random) {
        self.troubles = troubles;
        let drawn = (0..troubles.outages).map(|_| {
            let from = random.below(TROUBLES_UNTIL);
            (from, from + random.between(SECOND / 10, 8 * SECOND))
        });
        self.outages = drawn.collect();
        self.flushes = (0..troubles.flushes).map(|_| random.below(TROUBLES_UNTIL)).collect();
        self.flushes.sort_unstable();
    }

    /// Applies everything that has happened by now, in order. Returns whether marks were forgotten.
    fn advance(&mut self, now: Time) -> bool {
        let (mut arrived, later): (Later, Later) =
            std::mem::take(&mut self.later).into_iter().partition(|(at, _)| *at <= now);
        self.later = later;
        arrived.sort_by_key(|(at, _)| *at);
        let mut has_forgotten = false;
        for (at, question) in arrived {
            has_forgotten |= self.forget(at);
            self.answer(&question, Heard::TooLate);
        }
        self.forget(now) || has_forgotten
    }

    /// Forgets all marks if a flush was due by then. Returns whether there were any.
    fn forget(&mut self, upto: Time) -> bool {
        let flushed = self.flushes.iter().take_while(|at| **at <= upto).count();
        self.flushes.drain(..flushed);
        let had_marks = flushed > 0 && !self.marks.is_empty();
        if flushed > 0 {
            self.marks.clear();
        }
        had_marks
    }

    fn is_down(&self, now: Time) -> bool {
        self.outages.iter().any(|(from, until)| (*from..*until).contains(&now))
    }

    fn answer(&mut self, question: &Question, heard: Heard) -> Vec<GateVerdict> {
        let Question { partition, place, asked } = question;
        let answer = |GateRecord { identity, offset }: &GateRecord| match self.marks.get(identity) {
            Some(mark) if mark.starts_with(place) && !is_told(Lie::OwnMarkUnknown) => GateVerdict::Own,
            Some(_) if is_told(Lie::MarksNotAtOnce) && offset % 7 == 0 => GateVerdict::First,
            Some(_) => {
                if heard == Heard::Yes {
                    self.elsewhere.insert((*partition, *offset));
                }
                GateVerdict::Elsewhere
            }
            None => {
                self.marks.insert(*identity, format!("{place}{offset}"));
                let record = (*partition, *offset);
                if heard == Heard::TooLate && self.elsewhere.contains(&record) {
                    self.strays.insert(record);
                }
                GateVerdict::First
            }
        };
        asked.iter().map(answer).collect()
    }

    fn take_back(&mut self, place: &str, asked: &[GateRecord]) {
        for GateRecord { identity, offset } in asked {
            if self.marks.get(identity).is_some_and(|mark| *mark == format!("{place}{offset}")) {
                self.marks.remove(identity);
            }
        }
    }
}

/// The gate, as seen by one process.
pub struct Simulated {
    pub process: Process,
}

impl Gate for Simulated {
    fn session(&self) -> Box<dyn Session> {
        Box::new(Client { process: self.process.clone() })
    }
}

/// A lane's way to it.
struct Client {
    process: Process,
}

fn unavailable(message: &str) -> Error {
    Error { kind: ErrorKind::Transient, message: message.to_owned() }
}

impl Client {
    /// Has a question asked, unless it gets lost; late ones are `later`'s.
    fn exchange<T>(
        &mut self,
        ask: impl FnOnce(&mut Server, Heard) -> T,
        later: impl FnOnce(&mut Server, Time),
    ) -> Result<T, Error> {
        self.process.sleep(MS);
        let now = self.process.now();
        let fate = {
            let mut state = self.process.lock();
            if state.gate.advance(now) {
                state.reach(faults::GATE_FORGOT);
            }
            if state.gate.is_down(now) {
                state.reach(coverage::GATE_DOWN);
                return Err(unavailable("connection refused"));
            }
            if now < TROUBLES_UNTIL { state.gate_fate() } else { Fate::Fine }
        };
        match fate {
            Fate::Fine => Ok(ask(&mut self.process.lock().gate, Heard::Yes)),
            Fate::Slow => {
                self.process.lock().reach(faults::GATE_SLOW);
                self.process.sleep(SECOND);
                Ok(ask(&mut self.process.lock().gate, Heard::Yes))
            }
            Fate::RequestLost | Fate::Silenced => {
                self.process.lock().reach(faults::GATE_REQUEST_LOST);
                self.process.sleep(PATIENCE);
                Err(unavailable("no answer in time"))
            }
            Fate::ResponseLost => {
                let mut state = self.process.lock();
                ask(&mut state.gate, Heard::Lost);
                state.reach(coverage::GATE_UNHEARD);
                drop(state);
                self.process.sleep(PATIENCE);
                Err(unavailable("no answer in time"))
            }
            Fate::Late => {
                let mut state = self.process.lock();
                later(&mut state.gate, now + PATIENCE + LATER);
                state.reach(faults::GATE_LATE);
                drop(state);
                self.process.sleep(PATIENCE);
                Err(unavailable("no answer in time"))
            }
        }
    }
}

impl Session for Client {
    fn ask(
        &mut self,
        place: &SourcePartition<'_>,
        asked: &[GateRecord],
        answers: &mut Vec<GateVerdict>,
    ) -> Result<(), Error> {
        let question = Question { partition: place.partition, place: place.to_string(), asked: asked.to_vec() };
        let later = |server: &mut Server, at| server.later.push((at, question.clone()));
        *answers = self.exchange(|server, heard| server.answer(&question, heard), later)?;
        if answers.contains(&GateVerdict::Own) {
            self.process.lock().reach(coverage::GATE_OWN);
        }
        Ok(())
    }

    fn remove_marks(&mut self, place: &SourcePartition<'_>, asked: &[GateRecord]) -> Result<(), Error> {
        let place = place.to_string();
        self.exchange(|server, _| server.take_back(&place, asked), |_, _| {})?;
        self.process.lock().reach(coverage::GATE_TAKEN_BACK);
        Ok(())
    }

    fn reach(&mut self) -> Result<(), Error> {
        self.exchange(|_, _| (), |_, _| {})
    }
}
