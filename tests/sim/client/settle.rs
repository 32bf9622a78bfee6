//! The queries of a takeover, made in tasks of their own: see `crates/cluster/src/cluster/kafka/settle.rs`, which uses
//! the same order.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ratchet::cluster::kafka::client::{ClientSettings, last_broker_timestamp};
use ratchet::cluster::{self, CommittedOffset, Error, ErrorKind, Fencing, Seen, SeenRecord, Settled, TopicId};
use ratchet::format::{ChangelogOffset, OffsetMetadata};

use crate::judge::coverage;
use crate::kafka::{Broker, Code, Isolation, MS, Partition, SECOND, Target, Time};
use crate::world::{Broken, Process};

use super::{Fences, errors, ours};

const DEADLINE: Time = 60 * SECOND;
const RETRY_PAUSE: Time = 50 * MS;
/// Pause between two stable fetches while offsets are pending (`retry.backoff.ms`).
const STABLE_PAUSE: Time = 10 * MS;
const LOOK_MIN: Time = 2 * MS;
const LOOK_MAX: Time = 50 * MS;
/// The longest wait for the last marker, after which the changelog's leader is queried again.
const STAMP_PATIENCE: Duration = Duration::from_secs(2);

type Outcome = Shared<Settled>;
/// A result that one task passes to another.
type Shared<T> = Arc<Mutex<Option<Result<T, Error>>>>;

/// A pending [`Settled`].
pub struct Settling {
    outcome: Outcome,
    dropped: Arc<Mutex<bool>>,
}

/// What is queried.
pub struct Query {
    pub process: Process,
    pub fences: Fences,
    pub group: Arc<str>,
    pub input: Partition,
    pub changelog: Partition,
    pub fencing: Fencing,
    pub wants_time: bool,
    /// The settings of the client that reads the changelog's last marker.
    pub brokers: ClientSettings,
    pub looks_from: Option<ChangelogOffset>,
    pub waits: Waits,
}

/// What a takeover waits for, and does, so that nobody else can write any more.
#[derive(Clone, Copy)]
pub struct Waits {
    /// Whether it waits for pending offsets.
    pub offsets: bool,
    /// Whether it waits for the changelog's open transaction, up to the end found before.
    pub transaction: bool,
    /// Which end that is.
    pub end: Isolation,
    /// Whether it ends what the former owner has open.
    pub fences: bool,
}

impl Waits {
    /// The right ones.
    pub const RIGHT: Self = Self { offsets: true, transaction: true, end: Isolation::Uncommitted, fences: true };
}

impl Settling {
    pub fn start(query: Query) -> Self {
        let (outcome, dropped): (Outcome, _) = (Outcome::default(), Arc::new(Mutex::new(false)));
        let deadline = query.process.now() + DEADLINE;
        let queries = Arc::new(Queries { query, deadline, dropped: dropped.clone() });
        let shared = outcome.clone();
        // In parallel with the queries that must come in order.
        let fencing = queries.clone();
        if fencing.query.waits.fences {
            queries.query.process.spawn(move || fencing.fence_former_owner());
        }
        queries.query.process.clone().spawn(move || {
            let settled = queries.run();
            queries.query.process.lock().note("settled", format_args!("{:?} {settled:?}", queries.query.input));
            *shared.lock().unwrap_or_else(PoisonError::into_inner) = Some(settled);
        });
        Self { outcome, dropped }
    }
}

impl cluster::Settling for Settling {
    fn poll(&mut self) -> Option<Result<Settled, Error>> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for Settling {
    fn drop(&mut self) {
        *self.dropped.lock().unwrap_or_else(PoisonError::into_inner) = true;
    }
}

struct Queries {
    query: Query,
    deadline: Time,
    dropped: Arc<Mutex<bool>>,
}

impl Queries {
    fn run(self: &Arc<Self>) -> Result<Settled, Error> {
        let Query { group, input, changelog, waits, .. } = &self.query;
        let (name, of) = (group.clone(), input.clone());
        let stable = waits.offsets;
        let committed = self.retry("stable fetch", move |broker| broker.fetch_offset(&name, &of, stable))?;
        let committed = committed.map(|found| CommittedOffset { offset: found.offset, metadata: found.metadata });
        // Only now: an input's end is never below its committed offset.
        let shared: Shared<(TopicId, i64, i64)> = Shared::default();
        let (queries, setter) = (self.clone(), shared.clone());
        self.query.process.spawn(move || {
            let input = queries.ask_input();
            *setter.lock().unwrap_or_else(PoisonError::into_inner) = Some(input);
        });
        let (start, end) = self.ends(changelog, waits.end)?;
        let (changelog_start, changelog_end) = (ChangelogOffset(start), ChangelogOffset(end));
        if waits.transaction {
            self.wait_stable(changelog_end.0)?;
        }
        let changelog_id = self.topic_id(changelog)?;
        let changelog_time = if self.query.wants_time { self.changelog_time(changelog_end.0)? } else { None };
        let seen = match self.query.looks_from {
            Some(from) => Some(self.look(from, (changelog_start, changelog_end))?),
            None => None,
        };
        let (input_id, input_start, input_end) = self.await_shared(&shared)?;
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

    /// The latest timestamp in the changelog; if brokers do not name it, the timestamp of the last marker.
    fn changelog_time(&self, end: i64) -> Result<Option<i64>, Error> {
        let Query { process, changelog, brokers, .. } = &self.query;
        if process.lock().broker.names_latest_time {
            let of = changelog.clone();
            return self.retry("latest time", move |broker| broker.latest_time(&of));
        }
        loop {
            match last_broker_timestamp(brokers, &ours(changelog), end, STAMP_PATIENCE) {
                Err(error) if error.kind == ErrorKind::Retry && !self.is_over() => {}
                answer => {
                    if matches!(answer, Ok(Some(_))) {
                        process.lock().reach(coverage::MARKER_READ);
                    }
                    return answer;
                }
            }
        }
    }

    /// The changelog's first committed record from an offset on.
    fn look(&self, from: ChangelogOffset, (start, end): (ChangelogOffset, ChangelogOffset)) -> Result<Seen, Error> {
        if !(start..end).contains(&from) {
            return Ok(Seen { from, first: None });
        }
        let of = self.query.changelog.clone();
        let first = self.retry("look", move |broker| {
            let mut first = None;
            broker.fetch(&of, from.0, Isolation::Committed, 1, |offset, record| {
                let [key, value] = [&record.key, &record.value].map(|part| part.as_ref().map(|bytes| bytes.to_vec()));
                first = Some(SeenRecord { offset: ChangelogOffset(offset), key, value });
            })?;
            Ok(first)
        })?;
        Ok(Seen { from, first: first.filter(|first| first.offset < end) })
    }

    /// The input topic's id, and the partition's first offset and end.
    fn ask_input(&self) -> Result<(TopicId, i64, i64), Error> {
        let id = self.topic_id(&self.query.input)?;
        let (start, end) = self.ends(&self.query.input, Isolation::Uncommitted)?;
        Ok((id, start, end))
    }

    fn await_shared<T>(&self, shared: &Shared<T>) -> Result<T, Error> {
        loop {
            if let Some(result) = shared.lock().unwrap_or_else(PoisonError::into_inner).take() {
                return result;
            }
            if self.query.process.is_dead() {
                return Err(Error::new(ErrorKind::Retry, "settling ended without a result"));
            }
            self.query.process.sleep(MS);
        }
    }

    fn fence_former_owner(&self) {
        let Query { process, fences, group, input, fencing, .. } = &self.query;
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
            let (_, stable) = self.ends(&self.query.changelog, Isolation::Committed)?;
            if stable >= end {
                return Ok(());
            }
            if self.is_over() {
                let message = format!("a transaction has been open on {:?} for too long", self.query.changelog);
                return Err(Error::new(ErrorKind::Retry, message));
            }
            if pause == LOOK_MIN {
                let changelog = Target::Log(self.query.changelog.clone());
                let mut state = self.query.process.lock();
                state.takeover_met("a takeover found an open transaction on the changelog", &changelog);
            }
            self.query.process.sleep(pause);
            pause = (pause * 2).min(LOOK_MAX);
        }
    }

    fn ends(&self, partition: &Partition, isolation: Isolation) -> Result<(i64, i64), Error> {
        let partition = partition.clone();
        self.retry("ends", move |broker| broker.ends(&partition, isolation))
    }

    fn topic_id(&self, partition: &Partition) -> Result<TopicId, Error> {
        let topic = partition.topic.clone();
        let found = self.retry("topic id", move |broker| {
            broker.topics.get(&topic).map(|topic| topic.id).ok_or(Code::UnknownTopicOrPartition)
        })?;
        Ok(TopicId(found.to_be_bytes()))
    }

    /// Retries a request until it succeeds, is refused, or time is up.
    fn retry<T: 'static>(
        &self,
        what: &'static str,
        ask: impl Fn(&mut Broker) -> Result<T, Code> + Clone + Send + 'static,
    ) -> Result<T, Error> {
        loop {
            let broken = match self.query.process.ask(what, ask.clone()) {
                Ok(result) => return Ok(result),
                Err(broken) => broken,
            };
            let error = match broken {
                Broken::Code(code) => errors::plain(code, format!("{what}: {code:?}")),
                Broken::Lost => Error::new(ErrorKind::Retry, format!("{what}: no response")),
            };
            if error.kind == ErrorKind::Refused || self.is_over() {
                return Err(error);
            }
            let unstable = broken == Broken::Code(Code::UnstableOffsetCommit);
            if unstable {
                let offsets = Target::Offsets(self.query.group.clone());
                self.query.process.lock().takeover_met("a takeover found pending offsets", &offsets);
            }
            self.query.process.sleep(if unstable { STABLE_PAUSE } else { RETRY_PAUSE });
        }
    }

    fn is_over(&self) -> bool {
        let dropped = *self.dropped.lock().unwrap_or_else(PoisonError::into_inner);
        dropped || self.query.process.now() >= self.deadline || self.query.process.is_dead()
    }
}
