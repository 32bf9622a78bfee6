//! A takeover's questions, asked on a thread of their own: see `src/cluster/kafka/settle.rs`, whose order this is.

use std::sync::{Arc, Mutex, PoisonError};

use ratchet::cluster::{self, CommittedOffset, Error, Fencing, Kind, Seen, SeenRecord, Settled, TopicId};
use ratchet::format::OffsetMetadata;

use crate::kafka::{Broker, Code, Isolation, MS, Partition, SECOND, Target, Time};
use crate::world::{Broken, Process};

use super::{Fences, errors};

const DEADLINE: Time = 60 * SECOND;
const RETRY_PAUSE: Time = 50 * MS;
/// Between two stable fetches while something is pending (`retry.backoff.ms`).
const STABLE_PAUSE: Time = 10 * MS;
const LOOK_MIN: Time = 2 * MS;
const LOOK_MAX: Time = 50 * MS;

type Answer = Told<Settled>;
/// What one task tells another.
type Told<T> = Arc<Mutex<Option<Result<T, Error>>>>;

/// A [`Settled`] in the making.
pub struct Settling {
    answer: Answer,
    dropped: Arc<Mutex<bool>>,
}

/// What is asked.
pub struct Question {
    pub process: Process,
    pub fences: Fences,
    pub group: Arc<str>,
    pub input: Partition,
    pub changelog: Partition,
    pub fencing: Fencing,
    pub asks_time: bool,
    pub looks_from: Option<i64>,
    pub waits: Waits,
}

/// What is waited for, so that nobody else can write any more.
#[derive(Clone, Copy)]
pub struct Waits {
    /// Whether offsets that are pending are.
    pub offsets: bool,
    /// Whether the changelog's open transaction is, once its end was asked for.
    pub transaction: bool,
    /// Which end that is.
    pub end: Isolation,
}

impl Waits {
    /// As it has to be.
    pub const RIGHT: Self = Self { offsets: true, transaction: true, end: Isolation::Uncommitted };
}

impl Settling {
    pub fn start(question: Question) -> Self {
        let (answer, dropped): (Answer, _) = (Answer::default(), Arc::new(Mutex::new(false)));
        let deadline = question.process.now() + DEADLINE;
        let asking = Arc::new(Asking { question, deadline, dropped: dropped.clone() });
        let told = answer.clone();
        // Side by side with what must come in order.
        let fencing = asking.clone();
        asking.question.process.spawn(move || fencing.fence_former_owner());
        asking.question.process.clone().spawn(move || {
            let settled = asking.answer();
            asking.question.process.lock().note("settled", format_args!("{:?} {settled:?}", asking.question.input));
            *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(settled);
        });
        Self { answer, dropped }
    }
}

impl cluster::Settling for Settling {
    fn poll(&mut self) -> Option<Result<Settled, Error>> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for Settling {
    fn drop(&mut self) {
        *self.dropped.lock().unwrap_or_else(PoisonError::into_inner) = true;
    }
}

struct Asking {
    question: Question,
    deadline: Time,
    dropped: Arc<Mutex<bool>>,
}

impl Asking {
    fn answer(self: &Arc<Self>) -> Result<Settled, Error> {
        let Question { group, input, changelog, waits, .. } = &self.question;
        let (asked, of) = (group.clone(), input.clone());
        let stable = waits.offsets;
        let committed = self.persist("stable fetch", move |broker| broker.fetch_offset(&asked, &of, stable))?;
        let committed = committed.map(|found| CommittedOffset { offset: found.offset, metadata: found.metadata });
        // Only now: an input never ends before the offset that was committed.
        let told: Told<(TopicId, i64, i64)> = Told::default();
        let (asking, tells) = (self.clone(), told.clone());
        self.question.process.spawn(move || {
            let input = asking.ask_input();
            *tells.lock().unwrap_or_else(PoisonError::into_inner) = Some(input);
        });
        let (changelog_start, changelog_end) = self.ends(changelog, waits.end)?;
        if waits.transaction {
            self.wait_stable(changelog_end)?;
        }
        let changelog_id = self.topic_id(changelog)?;
        let of = changelog.clone();
        let changelog_time = match self.question.asks_time {
            true => self.persist("latest time", move |broker| broker.latest_time(&of))?,
            false => None,
        };
        let seen = match self.question.looks_from {
            Some(from) => Some(self.look(from, (changelog_start, changelog_end))?),
            None => None,
        };
        let (input_id, input_start, input_end) = self.await_told(&told)?;
        Ok(Settled {
            committed,
            input_id,
            input_start,
            input_end,
            changelog_id,
            changelog_start,
            changelog_end,
            changelog_time,
            seen,
        })
    }

    /// The changelog's first committed record from an offset on.
    fn look(&self, from: i64, (start, end): (i64, i64)) -> Result<Seen, Error> {
        if !(start..end).contains(&from) {
            return Ok(Seen { from, first: None });
        }
        let of = self.question.changelog.clone();
        let first = self.persist("look", move |broker| {
            let mut first = None;
            broker.fetch(&of, from, Isolation::Committed, 1, |offset, record| {
                let [key, value] = [&record.key, &record.value].map(|part| part.as_ref().map(|bytes| bytes.to_vec()));
                first = Some(SeenRecord { offset, key, value });
            })?;
            Ok(first)
        })?;
        Ok(Seen { from, first: first.filter(|first| first.offset < end) })
    }

    /// The input topic's id, and the partition's first offset and end.
    fn ask_input(&self) -> Result<(TopicId, i64, i64), Error> {
        let id = self.topic_id(&self.question.input)?;
        let (start, end) = self.ends(&self.question.input, Isolation::Uncommitted)?;
        Ok((id, start, end))
    }

    fn await_told<T>(&self, told: &Told<T>) -> Result<T, Error> {
        loop {
            if let Some(answer) = told.lock().unwrap_or_else(PoisonError::into_inner).take() {
                return answer;
            }
            if self.question.process.is_dead() {
                return Err(Error::new(Kind::Retry, "settling ended without an answer"));
            }
            self.question.process.sleep(MS);
        }
    }

    fn fence_former_owner(&self) {
        let Question { process, fences, group, input, fencing, .. } = &self.question;
        let (group, input) = (group.clone(), input.clone());
        let committed = process.ask("plain fetch", move |broker| broker.fetch_offset(&group, &input, false));
        let Ok(Some(committed)) = committed else { return };
        let owner = OffsetMetadata::parse(&committed.metadata).ok().flatten().and_then(|metadata| metadata.owner);
        if let Some(owner) = owner.filter(|owner| fencing.allows(owner)) {
            fences.fence(process, &owner);
        }
    }

    fn wait_stable(&self, end: i64) -> Result<(), Error> {
        let mut pause = LOOK_MIN;
        loop {
            let (_, stable) = self.ends(&self.question.changelog, Isolation::Committed)?;
            if stable >= end {
                return Ok(());
            }
            if self.is_over() {
                let message = format!("a transaction has been open on {:?} for too long", self.question.changelog);
                return Err(Error::new(Kind::Retry, message));
            }
            if pause == LOOK_MIN {
                let changelog = Target::Log(self.question.changelog.clone());
                let mut state = self.question.process.lock();
                state.takeover_met("a takeover met an open transaction on the changelog", &changelog);
            }
            self.question.process.sleep(pause);
            pause = (pause * 2).min(LOOK_MAX);
        }
    }

    fn ends(&self, partition: &Partition, isolation: Isolation) -> Result<(i64, i64), Error> {
        let partition = partition.clone();
        self.persist("ends", move |broker| broker.ends(&partition, isolation))
    }

    fn topic_id(&self, partition: &Partition) -> Result<TopicId, Error> {
        let topic = partition.topic.clone();
        let found = self.persist("topic id", move |broker| {
            broker.topics.get(&topic).map(|topic| topic.id).ok_or(Code::UnknownTopicOrPartition)
        })?;
        Ok(TopicId(found.to_be_bytes()))
    }

    /// Asks again until there is an answer, a refusal, or no time left.
    fn persist<T: 'static>(
        &self,
        what: &'static str,
        ask: impl Fn(&mut Broker) -> Result<T, Code> + Clone + Send + 'static,
    ) -> Result<T, Error> {
        loop {
            let broken = match self.question.process.ask(what, ask.clone()) {
                Ok(answer) => return Ok(answer),
                Err(broken) => broken,
            };
            let error = match broken {
                Broken::Code(code) => errors::plain(code, format!("{what}: {code:?}")),
                Broken::Lost => Error::new(Kind::Retry, format!("{what}: no answer")),
            };
            if error.kind == Kind::Refused || self.is_over() {
                return Err(error);
            }
            let unstable = broken == Broken::Code(Code::UnstableOffsetCommit);
            if unstable {
                let offsets = Target::Offsets(self.question.group.clone());
                self.question.process.lock().takeover_met("a takeover met pending offsets", &offsets);
            }
            self.question.process.sleep(if unstable { STABLE_PAUSE } else { RETRY_PAUSE });
        }
    }

    fn is_over(&self) -> bool {
        let dropped = *self.dropped.lock().unwrap_or_else(PoisonError::into_inner);
        dropped || self.question.process.now() >= self.deadline || self.question.process.is_dead()
    }
}
