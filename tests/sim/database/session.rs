//! The driver's part: the engine's traits on the simulated database, in simulated time.

use ratchet::effect::{
    Answer, ClaimedRow, CommitError, Effects, Error, ErrorKind, RedoBuilder, Rejected, RowKey, RowMark, Session, Sink,
    Step,
};
use ratchet::format::Token;

use crate::judge::coverage::{self, faults};
use crate::kafka::{MS, SECOND, Time};
use crate::lies::{Lie, is_told};
use crate::world::{Fate, Process};

use super::{Code, Server};

/// How long a statement waits for a lock.
const LOCK_TIMEOUT: Time = SECOND / 2;
/// How often it looks.
const LOCK_PAUSE: Time = 5 * MS;
/// How long a client waits on a silent connection.
const SILENCE: Time = 3 * SECOND;

/// How the sink decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// By the tasks' own positions.
    Position,
    /// By an inbox, which all partitions share.
    Inbox,
    /// By position, and statements return rows.
    Returning,
}

/// The database, as seen by one process.
pub struct Database {
    pub process: Process,
    pub kind: Kind,
}

impl Sink for Database {
    fn kind(&self) -> &'static str {
        "postgres"
    }

    fn answers(&self) -> bool {
        self.kind != Kind::Position
    }

    fn session(&self) -> Box<dyn Session> {
        Box::new(Client { process: self.process.clone(), kind: self.kind, connection: None })
    }
}

/// A lane's connection.
struct Client {
    process: Process,
    kind: Kind,
    connection: Option<u64>,
}

/// How much later, if Kafka is to commit before.
const LATER: Time = 30 * MS;

/// A step that is carried out later.
struct Postponed {
    key: RowKey,
    mark: RowMark,
    token: Token,
    next: i64,
    effects: Effects,
    redo: Vec<u8>,
}

impl Postponed {
    fn step(&self) -> Step<'_> {
        let Self { key, mark, token, next, effects, .. } = self;
        Step { key, mark, token: *token, next: *next, effects }
    }
}

/// Redos that are complete.
struct Kept<'a>(&'a [Postponed]);

impl RedoBuilder for Kept<'_> {
    fn redo(&mut self, step: usize, _answers: &[Answer]) -> Vec<u8> {
        self.0[step].redo.clone()
    }
}

/// Why a transaction was not carried out.
enum Trouble {
    Code(Code),
    Fenced(Vec<usize>),
    /// At the commit.
    RefusedAtCommit(String),
    /// After COMMIT was sent.
    Unknown,
}

impl From<Code> for Trouble {
    fn from(code: Code) -> Self {
        Self::Code(code)
    }
}

fn error(code: &Code) -> Error {
    let (kind, message) = match code {
        Code::Gone => (ErrorKind::Transient, "the connection was lost"),
        Code::Down => (ErrorKind::Transient, "there is no connecting"),
        Code::Locked => (ErrorKind::Transient, "another transaction holds the lock"),
        Code::Deadlock => (ErrorKind::Transient, "deadlock detected"),
        Code::Serialization => (ErrorKind::Transient, "could not serialize access"),
        Code::UndefinedTable => (ErrorKind::Permanent, "there is no such table"),
        Code::Refused(message) => (ErrorKind::Permanent, &message[..]),
    };
    Error { kind, message: message.to_owned() }
}

impl Client {
    /// The connection, made if there is none.
    fn connected(&mut self) -> Result<u64, Code> {
        if let Some(connection) = self.connection {
            return Ok(connection);
        }
        self.process.pause();
        let process = self.process.number;
        let connected = self.with(|server| server.connect(process));
        if connected.is_err() {
            let length = self.process.lock().random.between(MS, SECOND);
            self.process.sleep(length);
        }
        let connection = connected?;
        self.connection = Some(connection);
        Ok(connection)
    }

    /// Does something on the server at once.
    fn with<T>(&self, act: impl FnOnce(&mut Server) -> T) -> T {
        let mut state = self.process.lock();
        let now = state.now();
        state.database.advance(now);
        act(&mut state.database)
    }

    /// The client's end of the connection is gone; the server learns of it at `at`.
    fn lose(&mut self, at: Time) -> Code {
        if let Some(connection) = self.connection.take() {
            self.with(|server| server.close(connection, at));
        }
        Code::Gone
    }

    /// Has the server carry out a statement, which waits for locks.
    fn ask<T>(
        &mut self,
        what: &'static str,
        mut statement: impl FnMut(&mut Server, u64) -> Result<T, Code>,
    ) -> Result<T, Code> {
        if self.process.is_dead() {
            return Err(Code::Gone);
        }
        let connection = self.connected()?;
        let (fate, fails) = {
            let mut state = self.process.lock();
            let fate = state.link_fate();
            let serialization = state.database.troubles.serialization;
            let fails = state.random.permille(serialization);
            let fault = match fate {
                Fate::RequestLost | Fate::Late => Some(faults::STATEMENT_LOST),
                Fate::ResponseLost | Fate::Silenced => Some(faults::STATEMENT_UNANSWERED),
                Fate::Slow => Some(faults::STATEMENT_SLOW),
                Fate::Fine => None,
            };
            fault.into_iter().for_each(|fault| state.reach(fault));
            (fate, fails)
        };
        self.process.pause();
        if fate == Fate::Slow {
            let length = self.process.lock().random.below(SECOND / 2);
            self.process.sleep(length);
        }
        let now = self.process.now();
        if matches!(fate, Fate::RequestLost | Fate::Late) {
            return Err(self.lose(now));
        }
        if fails && what != "claim" && what != "look" {
            self.process.lock().reach(faults::NOT_SERIALIZED);
            return Err(Code::Serialization);
        }
        let began = now;
        let answer = loop {
            match self.with(|server| statement(server, connection)) {
                Err(Code::Locked) if self.process.now() < began + LOCK_TIMEOUT && !self.process.is_dead() => {
                    if self.process.now() == began {
                        let waits = if what == "claim" { coverage::CLAIM_WAITED } else { coverage::STATEMENT_WAITED };
                        self.process.lock().reach(waits);
                    }
                    self.process.sleep(LOCK_PAUSE);
                }
                answer => break answer,
            }
        };
        self.with(|server| server.stop_waiting(connection));
        self.process.lock().note(what, format_args!("{connection} {fate:?} {:?}", answer.as_ref().err()));
        self.process.pause();
        if matches!(fate, Fate::ResponseLost | Fate::Silenced) {
            let now = self.process.now();
            return Err(self.lose(now));
        }
        if answer.as_ref().is_err_and(|code| *code == Code::Gone) {
            self.connection = None;
        }
        answer
    }

    fn roll_back(&mut self) {
        if let Some(connection) = self.connection {
            self.with(|server| server.roll_back(connection));
        }
    }

    /// Begins a transaction and changes the steps' rows, in the order of their keys.
    fn begin(&mut self, steps: &[Step<'_>]) -> Result<(), Trouble> {
        self.ask("begin", |server, connection| server.begin(connection))?;
        let mut order: Vec<usize> = (0..steps.len()).collect();
        order.sort_by_key(|step| steps[*step].key);
        let compares = !is_told(Lie::RowNotCompared);
        let mut fenced = Vec::new();
        for number in order {
            let Step { key, mark, token, next, effects } = steps[number];
            if effects.is_empty() && is_told(Lie::SweepWithoutRow) {
                continue;
            }
            if !self.ask("update", |server, of| server.update(of, (key, mark), (token, next), compares))? {
                fenced.push(number);
            }
        }
        if fenced.is_empty() { Ok(()) } else { Err(Trouble::Fenced(fenced)) }
    }

    /// Carries out one record's effects.
    fn affect(&mut self, step: &Step<'_>, effect: usize, is_new: bool) -> Result<Answer, Code> {
        if !is_new {
            return Ok(Answer::InInbox);
        }
        let (token, effect) = (step.token, step.effects.get(effect));
        self.ask("effect", |server, connection| server.affect(connection, token, effect)).map(Answer::Done)
    }

    /// Puts identities into the inbox, in the order of their keys, those of one identity in the order of their records;
    /// of each effect of each step whether it was new.
    fn fill_inbox(&mut self, steps: &[Step<'_>]) -> Result<Vec<Vec<bool>>, Code> {
        let mut is_new: Vec<Vec<bool>> = steps.iter().map(|step| vec![true; step.effects.len()]).collect();
        if self.kind != Kind::Inbox {
            return Ok(is_new);
        }
        let of_step =
            |(number, step): (usize, &Step<'_>)| (0..step.effects.len()).map(move |at| (number, at)).collect();
        let mut all: Vec<(usize, usize)> = steps.iter().enumerate().flat_map(|of| -> Vec<_> { of_step(of) }).collect();
        all.sort_by_key(|(step, at)| steps[*step].effects.get(*at).identity());
        for (step, at) in all {
            let effect = steps[step].effects.get(at);
            is_new[step][at] = self.ask("know", |server, connection| server.know(connection, effect))?;
        }
        Ok(is_new)
    }

    /// Carries a transaction out some time later.
    fn postpone(&mut self, steps: &[Step<'_>], redos: &mut dyn RedoBuilder) {
        let own = |(number, step): (usize, &Step<'_>)| Postponed {
            key: step.key.clone(),
            mark: step.mark.clone(),
            token: step.token,
            next: step.next,
            effects: step.effects.clone(),
            redo: redos.redo(number, &[]),
        };
        let all: Vec<Postponed> = steps.iter().enumerate().map(own).collect();
        let mut client = Self { process: self.process.clone(), kind: self.kind, connection: None };
        self.process.spawn(move || {
            client.process.sleep(LATER);
            let steps: Vec<Step<'_>> = all.iter().map(Postponed::step).collect();
            let _ = client.attempt(&steps, &mut Kept(&all));
        });
    }

    fn attempt(&mut self, steps: &[Step<'_>], redos: &mut dyn RedoBuilder) -> Result<(), Trouble> {
        self.begin(steps)?;
        let is_new = self.fill_inbox(steps)?;
        for (number, step) in steps.iter().enumerate() {
            let mut answers = Vec::new();
            for (at, is_new) in is_new[number].iter().enumerate() {
                answers.push(self.affect(step, at, *is_new)?);
            }
            if self.kind == Kind::Position {
                answers.clear();
            }
            let redo = redos.redo(number, &answers);
            self.ask("redo", |server, connection| server.complete(connection, step.key, redo.clone()))?;
        }
        self.commit_open()
    }

    /// Sends COMMIT and waits for its answer.
    fn commit_open(&mut self) -> Result<(), Trouble> {
        let Some(connection) = self.connection else { return Err(Code::Gone.into()) };
        let (fate, there, delay) = {
            let mut state = self.process.lock();
            let fate = state.link_fate();
            (fate, state.random.between(50, 2 * MS), state.random.between(MS, 3 * SECOND))
        };
        let now = self.process.now();
        self.process.lock().note("COMMIT", format_args!("{connection} {fate:?}"));
        let arrives = now + if matches!(fate, Fate::Late | Fate::Slow) { delay } else { there };
        if fate == Fate::RequestLost {
            self.process.sleep(there);
            let now = self.process.now();
            self.lose(now);
            self.process.lock().reach(coverage::COMMIT_LOST);
            return Err(Trouble::Unknown);
        }
        let sent = self.with(|server| server.send_commit(connection, arrives));
        if fate == Fate::Late {
            self.process.sleep(there);
            self.lose(arrives + 1);
            self.process.lock().reach(coverage::COMMIT_LATE);
            return Err(Trouble::Unknown);
        }
        self.process.sleep(arrives - now);
        self.process.pause();
        let outcome = self.with(|server| server.outcome(sent)).unwrap_or(Err(Code::Gone));
        self.process.lock().note("COMMIT's outcome", format_args!("{connection} {outcome:?}"));
        if matches!(fate, Fate::ResponseLost | Fate::Silenced) {
            if outcome.is_ok() {
                self.process.lock().reach(coverage::COMMIT_UNANSWERED);
                self.process.lock().memory.sunk(self.process.number);
            }
            if fate == Fate::Silenced {
                self.process.lock().reach(faults::COMMIT_SILENT);
            }
            self.process.sleep(if fate == Fate::Silenced { SILENCE } else { MS });
            let now = self.process.now();
            self.lose(now);
            return Err(Trouble::Unknown);
        }
        match outcome {
            Ok(()) => {
                self.process.lock().memory.sunk(self.process.number);
                Ok(())
            }
            Err(Code::Refused(message)) => Err(Trouble::RefusedAtCommit(message)),
            Err(_) => {
                self.connection = None;
                Err(Trouble::Unknown)
            }
        }
    }

    /// Tries each record of the transaction with a savepoint before it, and rolls all of it back. The records that are
    /// refused.
    fn name_refused(&mut self, steps: &[Step<'_>]) -> Result<Vec<Rejected>, Trouble> {
        self.roll_back();
        self.begin(steps)?;
        let is_new = self.fill_inbox(steps)?;
        let mut refused = Vec::new();
        for (number, step) in steps.iter().enumerate() {
            for (at, is_new) in is_new[number].iter().enumerate() {
                match self.affect(step, at, *is_new) {
                    Err(Code::Refused(message)) => refused.push(Rejected { step: number, effect: at, message }),
                    other => drop(other?),
                }
            }
        }
        Ok(refused)
    }

    fn failed(&mut self, trouble: Trouble, steps: &[Step<'_>]) -> CommitError {
        let trouble = match trouble {
            Trouble::Code(Code::Refused(message)) => match self.name_refused(steps) {
                Ok(refused) if refused.is_empty() => Trouble::Code(Code::Refused(message)),
                Ok(refused) => {
                    self.roll_back();
                    self.process.lock().reach(coverage::RECORD_REFUSED);
                    return CommitError::Rejected(refused);
                }
                Err(trouble) => trouble,
            },
            trouble => trouble,
        };
        self.roll_back();
        match trouble {
            Trouble::Fenced(steps) => {
                self.process.lock().reach(coverage::ROW_FENCED);
                CommitError::Fenced(steps)
            }
            Trouble::Unknown => CommitError::Unknown(error(&Code::Gone)),
            Trouble::RefusedAtCommit(message) => {
                self.process.lock().reach(coverage::REFUSED_AT_COMMIT);
                let mut all = steps.iter().enumerate().filter(|(_, step)| !step.effects.is_empty());
                match (all.next(), all.next()) {
                    (Some((step, of)), None) if of.effects.len() == 1 => {
                        CommitError::Rejected(vec![Rejected { step, effect: 0, message }])
                    }
                    _ => CommitError::Refused(message),
                }
            }
            Trouble::Code(code) => CommitError::Held(error(&code)),
        }
    }
}

impl Session for Client {
    fn claim(&mut self, key: &RowKey, may_insert: bool) -> Result<Option<ClaimedRow>, Error> {
        self.process.maybe_panic();
        let claimed = self.ask("claim", |server, connection| server.claim(connection, key, may_insert));
        claimed.map_err(|code| error(&code))
    }

    fn look(&mut self, keys: &[RowKey]) -> Result<Vec<Option<RowMark>>, Error> {
        self.process.maybe_panic();
        self.ask("look", |server, connection| server.look(connection, keys)).map_err(|code| error(&code))
    }

    fn commit(&mut self, steps: &[Step<'_>], redos: &mut dyn RedoBuilder) -> Result<(), CommitError> {
        self.process.maybe_panic();
        if is_told(Lie::KafkaBeforeSink) && self.kind == Kind::Position {
            self.postpone(steps, redos);
            return Ok(());
        }
        self.process.lock().memory.sinks(self.process.number);
        let trouble = match self.attempt(steps, redos) {
            Ok(()) => {
                self.process.maybe_panic();
                return Ok(());
            }
            Err(trouble) => trouble,
        };
        if is_told(Lie::TagIgnored) && matches!(trouble, Trouble::Code(_) | Trouble::RefusedAtCommit(_)) {
            self.roll_back();
            return Ok(());
        }
        Err(self.failed(trouble, steps))
    }

    fn tidy(&mut self) -> Result<bool, Error> {
        Ok(false)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // A dead process's connections end as the schedule says.
        if !self.process.is_dead() {
            let now = self.process.now();
            self.lose(now);
        }
    }
}
