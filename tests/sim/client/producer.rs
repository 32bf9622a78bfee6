//! A transactional producer: records go out from a queue in the background, reports come in later, and the calls
//! that end a transaction wait. See `src/cluster/kafka/producer.rs` and `rdkafka_txnmgr.c` (protocol version 1).
//!
//! One produce request is under way at a time; `abort` throws away what is still queued.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ratchet::cluster::{self, DeliveryFailure, Error, Kind, Message, OffsetCommit, Ticket};

use crate::kafka::{Code, Identity, MS, Partition, Record, SECOND, Time};
use crate::world::{Broken, Process, WALL_MS};

use super::errors::{self, Action};
use super::member::{Metadata, committed};

/// For how long a transaction may be open, and how long ending one may take.
pub const TRANSACTION: Time = 3 * SECOND;
/// How long a record may take.
const DELIVERY: Time = 2 * SECOND;
/// How long opening a producer may take.
const INIT: Time = 30 * SECOND;
/// Added to a call's deadline before it is given up.
const GRACE: Time = 2 * SECOND;
/// Before the same request is made again.
const AGAIN: Time = 20 * MS;
/// Before a producer id is asked for again (`RD_KAFKA_IDEMP_PID_RETRY`...: 500 ms).
const INIT_AGAIN: Time = 500 * MS;
/// A connection that broke this shortly around the end of a transaction may have carried it.
const DOUBT: Time = SECOND;
/// Records in one request.
const BATCH: usize = 16;

/// A record on its way.
struct Outgoing {
    partition: Partition,
    ticket: Ticket,
    record: Record,
    since: Time,
}

/// What the background and the lane share.
#[derive(Default)]
struct Line {
    queue: VecDeque<Outgoing>,
    in_flight: usize,
    registered: BTreeSet<Partition>,
    /// Whether the coordinator knows of the transaction, or may.
    begun: bool,
    sequences: BTreeMap<Partition, i32>,
    failures: Vec<DeliveryFailure>,
    delivered: Vec<(u64, i64)>,
    /// Why the transaction, or the producer, has failed.
    failed: Option<(Action, String)>,
    broke_at: Option<Time>,
    closed: bool,
    thread: usize,
}

/// A transactional producer.
pub struct Producer {
    process: Process,
    id: String,
    who: Identity,
    line: Arc<Mutex<Line>>,
    ended: Option<(Time, Time)>,
    answered: bool,
}

fn lock(line: &Mutex<Line>) -> MutexGuard<'_, Line> {
    line.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Asks for a producer id until it is given. Whatever is open under it is aborted by that.
pub fn init(process: &Process, id: &Arc<str>) -> Result<Identity, Error> {
    let deadline = process.now() + INIT;
    loop {
        let asked = id.clone();
        let found = process.ask("init producer", move |broker| broker.init_producer(&asked, TRANSACTION));
        match found {
            Ok((producer, epoch)) => return Ok(Identity { id: id.clone(), producer, epoch }),
            Err(Broken::Code(Code::ProducerFenced | Code::InvalidProducerEpoch)) => {
                return Err(Error::new(Kind::Fenced, format!("opening the transactional id {id}: fenced")));
            }
            Err(_) if process.now() < deadline && !process.is_dead() => process.sleep(INIT_AGAIN),
            Err(_) => return Err(Error::new(Kind::Retry, format!("opening the transactional id {id}: no answer"))),
        }
    }
}

impl Producer {
    pub fn open(process: Process, id: &str) -> Result<Self, Error> {
        let who = init(&process, &id.into())?;
        let line = Arc::new(Mutex::new(Line::default()));
        let background = Background { process: process.clone(), who: who.clone(), line: line.clone() };
        lock(&line).thread = process.spawn(move || background.run());
        Ok(Self { process, id: id.to_owned(), who, line, ended: None, answered: true })
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        lock(&self.line)
    }

    fn in_doubt(&self) -> bool {
        let broke = self.line().broke_at;
        matches!((self.ended, broke), (Some((asked, answered)), Some(at)) if at >= asked && at <= answered + DOUBT)
    }

    /// Makes a transactional request until it has an answer that is one, or `deadline`; the error says so.
    fn ask<T: 'static>(
        &self,
        what: &'static str,
        deadline: Time,
        request: impl Fn(&mut crate::kafka::Broker, &Identity) -> Result<T, Code> + Clone + Send + 'static,
    ) -> Result<T, (Action, Broken)> {
        loop {
            let (who, request) = (self.who.clone(), request.clone());
            let broken = match self.process.ask(what, move |broker| request(broker, &who)) {
                Ok(answer) => return Ok(answer),
                Err(broken) => broken,
            };
            if broken == Broken::Lost {
                let now = self.process.now();
                self.line().broke_at = Some(now);
            }
            let action = errors::transactional(broken);
            if action == Action::Fatal {
                self.line().failed = Some((action, format!("{what}: {broken:?}")));
            }
            if action != Action::Retry || self.process.now() + AGAIN >= deadline || self.process.is_dead() {
                return Err((action, broken));
            }
            self.process.sleep(AGAIN);
        }
    }

    /// Waits for the deliveries.
    fn flush(&self, deadline: Time) -> Result<(), Error> {
        loop {
            {
                let line = self.line();
                if let Some((action, message)) = &line.failed {
                    let kind = if *action == Action::Fatal { Kind::Fenced } else { Kind::Abort };
                    return Err(Error::new(kind, message.clone()));
                }
                if line.queue.is_empty() && line.in_flight == 0 {
                    return Ok(());
                }
            }
            if self.process.now() >= deadline || self.process.is_dead() {
                return Err(Error::new(Kind::Abort, "the records were not delivered in time"));
            }
            self.process.sleep(MS);
        }
    }

    fn add_offsets(&mut self, offsets: &[OffsetCommit], group: &Metadata, deadline: Time) -> Result<(), Error> {
        let failed = |(_, broken): (Action, Broken)| {
            // Whatever this was, nothing has been committed.
            let stale = matches!(broken, Broken::Code(code) if errors::is_stale_membership(code));
            let fatal = !stale && errors::transactional(broken) == Action::Fatal;
            (
                stale,
                Error::new(if fatal { Kind::Fenced } else { Kind::Abort }, format!("adding the offsets: {broken:?}")),
            )
        };
        self.line().begun = true;
        let name = group.group.clone();
        let added = self.ask("add offsets", deadline, move |broker, who| broker.add_offsets(who, &name));
        let (name, member, generation) = (group.group.clone(), group.member.clone(), group.generation);
        let offsets = committed(offsets);
        let added = added.and_then(|()| {
            self.ask("commit offsets", deadline, move |broker, who| {
                broker.commit_offsets_transactional(who, &name, (&member, generation), &offsets)
            })
        });
        added.map_err(failed).map_err(|(stale, error)| {
            self.answered = stale;
            error
        })
    }

    fn commit_within(&mut self, offsets: &[OffsetCommit], group: &Metadata, deadline: Time) -> Result<(), Error> {
        self.flush(deadline)?;
        self.add_offsets(offsets, group, deadline)?;
        match self.ask("end commit", deadline, |broker, who| broker.end_transaction(who, true)) {
            Ok(_) => {
                self.answered = true;
                self.reset();
                Ok(())
            }
            Err((action, broken)) => {
                let kind = match action {
                    Action::Fatal => Kind::Fenced,
                    Action::Abort => Kind::Abort,
                    Action::Retry => {
                        self.process.lock().reach("a commit's outcome stayed unknown");
                        Kind::Unknown
                    }
                };
                Err(Error::new(kind, format!("committing the transaction: {broken:?}")))
            }
        }
    }

    /// The transaction has ended.
    fn reset(&self) {
        let mut line = self.line();
        line.registered.clear();
        line.begun = false;
        line.failed = None;
    }
}

impl cluster::Producer for Producer {
    type Metadata = Metadata;

    fn id(&self) -> &str {
        &self.id
    }

    fn begin(&mut self) -> Result<(), Error> {
        if self.in_doubt() {
            return Err(Error::new(Kind::Fenced, "a connection broke while the last transaction ended"));
        }
        match &self.line().failed {
            Some((_, message)) => Err(Error::new(Kind::Fenced, message.clone())),
            None => Ok(()),
        }
    }

    fn send(&mut self, ticket: Ticket, message: &Message<'_>) -> Result<(), Error> {
        let record = {
            let state = self.process.lock();
            let present = WALL_MS + (state.now() / MS) as i64;
            Record {
                timestamp: Some(message.timestamp.filter(|at| *at != 0).unwrap_or(present)),
                key: message.key.map(Into::into),
                value: message.value.map(Into::into),
                headers: message.headers.as_bytes().into(),
            }
        };
        let since = self.process.now();
        {
            let mut line = self.line();
            if let Some((action, message)) = &line.failed {
                let kind = if *action == Action::Fatal { Kind::Fenced } else { Kind::Abort };
                return Err(Error::new(kind, message.clone()));
            }
            let partition = Partition::new(message.topic, message.partition);
            line.queue.push_back(Outgoing { partition, ticket, record, since });
        }
        let thread = self.line().thread;
        self.process.wake(thread);
        Ok(())
    }

    fn in_flight(&self) -> usize {
        let line = self.line();
        line.queue.len() + line.in_flight
    }

    fn take_failures(&mut self) -> Vec<DeliveryFailure> {
        std::mem::take(&mut self.line().failures)
    }

    fn take_delivered(&mut self) -> Vec<(u64, i64)> {
        std::mem::take(&mut self.line().delivered)
    }

    fn commit(&mut self, offsets: &[OffsetCommit], group: Metadata) -> Result<(), Error> {
        let asked = self.process.now();
        self.answered = false;
        let committed = self.commit_within(offsets, &group, asked + TRANSACTION);
        self.ended = Some((asked, self.process.now()));
        committed
    }

    fn abort(&mut self) -> Result<(), Error> {
        let asked = self.process.now();
        self.line().queue.clear();
        // What is under way is waited for (`rd_kafka_txn_op_begin_abort` purges, and flushes).
        while self.line().in_flight > 0 && self.process.now() < asked + TRANSACTION && !self.process.is_dead() {
            self.process.sleep(MS);
        }
        let fatal = self.line().failed.as_ref().is_some_and(|(action, _)| *action == Action::Fatal);
        if fatal {
            return Err(Error::new(Kind::Fenced, "aborting the transaction: the producer is fenced"));
        }
        let begun = self.line().begun;
        let ended = match begun {
            false => Ok(()),
            true => self
                .ask("end abort", asked + TRANSACTION + GRACE, |broker, who| broker.end_transaction(who, false))
                .map(drop),
        };
        self.ended = Some((asked, self.process.now()));
        match ended {
            Ok(()) => {
                self.reset();
                Ok(())
            }
            Err((Action::Fatal, broken)) => Err(Error::new(Kind::Fenced, format!("aborting: {broken:?}"))),
            Err((_, broken)) => Err(Error::new(Kind::Unknown, format!("aborting: {broken:?}"))),
        }
    }

    fn is_fit(&self) -> bool {
        self.answered && !self.in_doubt()
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.line().closed = true;
        if !self.process.is_dead() {
            let thread = self.line().thread;
            self.process.wake(thread);
        }
    }
}

/// The thread that sends.
struct Background {
    process: Process,
    who: Identity,
    line: Arc<Mutex<Line>>,
}

impl Background {
    fn line(&self) -> MutexGuard<'_, Line> {
        lock(&self.line)
    }

    fn run(self) {
        loop {
            let (closed, idle) = {
                let line = self.line();
                (line.closed, line.queue.is_empty() || line.failed.is_some())
            };
            if closed || self.process.is_dead() {
                return;
            }
            if idle {
                self.process.sleep_until(Time::MAX);
                continue;
            }
            // Records of one call go out together: what is sent at once is one batch.
            self.process.pause();
            self.register();
            self.send();
        }
    }

    fn fail(&self, action: Action, broken: Broken) {
        let mut line = self.line();
        let message = format!("sending: {broken:?}");
        line.failed.get_or_insert((action, message));
    }

    /// Takes partitions into the transaction that it does not have yet.
    fn register(&self) {
        let new: Vec<Partition> = {
            let line = self.line();
            let new = line.queue.iter().map(|out| &out.partition).filter(|one| !line.registered.contains(one));
            new.cloned().collect::<BTreeSet<_>>().into_iter().collect()
        };
        if new.is_empty() {
            return;
        }
        self.line().begun = true;
        let (who, asked) = (self.who.clone(), new.clone());
        match self.process.ask("add partitions", move |broker| broker.add_partitions(&who, &asked)) {
            Ok(()) => self.line().registered.extend(new),
            Err(broken) => match errors::transactional(broken) {
                Action::Retry => {
                    self.note_break(broken);
                    self.drop_late();
                    self.process.sleep(AGAIN);
                }
                action => self.fail(action, broken),
            },
        }
    }

    fn note_break(&self, broken: Broken) {
        if broken == Broken::Lost {
            let now = self.process.now();
            self.line().broke_at = Some(now);
        }
    }

    /// Sends the first batch of one of the partitions that have any.
    fn send(&self) {
        let ready: Vec<Partition> = {
            let line = self.line();
            let ready = line.queue.iter().map(|out| &out.partition).filter(|one| line.registered.contains(one));
            ready.cloned().collect::<BTreeSet<_>>().into_iter().collect()
        };
        if ready.is_empty() {
            return;
        }
        let partition = ready[self.process.lock().random.below(ready.len() as u64) as usize].clone();
        let (batch, sequence) = {
            let mut line = self.line();
            let mut batch = Vec::new();
            let mut rest = VecDeque::new();
            for out in std::mem::take(&mut line.queue) {
                if out.partition == partition && batch.len() < BATCH { batch.push(out) } else { rest.push_back(out) }
            }
            line.queue = rest;
            line.in_flight = batch.len();
            (batch, line.sequences.get(&partition).copied().unwrap_or_default())
        };
        let records: Arc<[Record]> = batch.iter().map(|out| out.record.clone()).collect();
        loop {
            let (who, to, records) = (self.who.clone(), partition.clone(), records.clone());
            let sent = self.process.ask("produce", move |broker| broker.produce(&who, &to, sequence, &records));
            let broken = match sent {
                Ok(base) => return self.report(&batch, &partition, base),
                Err(broken) => broken,
            };
            self.note_break(broken);
            let in_time = batch.iter().all(|out| out.since + DELIVERY > self.process.now());
            match errors::produced(broken) {
                Action::Retry if in_time && !self.process.is_dead() => self.process.sleep(AGAIN),
                Action::Retry => return self.refuse(&batch, Action::Abort, broken),
                action => return self.refuse(&batch, action, broken),
            }
        }
    }

    fn report(&self, batch: &[Outgoing], partition: &Partition, base: i64) {
        let mut line = self.line();
        *line.sequences.entry(partition.clone()).or_default() += batch.len() as i32;
        line.in_flight = 0;
        for (index, out) in batch.iter().enumerate().filter(|(_, out)| out.ticket.report) {
            line.delivered.push((out.ticket.number, base + index as i64));
        }
    }

    fn refuse(&self, batch: &[Outgoing], action: Action, broken: Broken) {
        {
            let mut line = self.line();
            line.in_flight = 0;
            let refused = matches!(broken, Broken::Code(code) if errors::refuses_record(code));
            let message = format!("{broken:?}");
            line.failures.extend(batch.iter().map(|out| DeliveryFailure {
                number: out.ticket.number,
                refused,
                message: message.clone(),
            }));
        }
        self.fail(action, broken);
    }

    /// Records that have waited for too long fail.
    fn drop_late(&self) {
        let now = self.process.now();
        let late: Vec<Outgoing> = {
            let mut line = self.line();
            let is_late = line.queue.front().is_some_and(|out| out.since + DELIVERY <= now);
            if is_late { line.queue.drain(..).collect() } else { Vec::new() }
        };
        if !late.is_empty() {
            self.refuse(&late, Action::Abort, Broken::Lost);
        }
    }
}
