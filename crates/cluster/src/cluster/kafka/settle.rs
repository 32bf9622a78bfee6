//! The queries that a takeover makes before it can restore, in the order of [`Settled`].
//!
//! Before them, the owner named in the committed offset's metadata is fenced, so that whatever it may have
//! left open ends at once: see [`super::fences`]. The order below does not depend on that.
//!
//! Three shared clients make all the queries, on a bounded number of threads ([`super::pool`]), however many tasks of
//! however many topologies settle at once: one that reads uncommitted records (it sees the end), one that reads committed
//! ones (it sees the last stable offset), and one that asks for the offsets of any group.
//!
//! **Failure**: temporary errors are retried until [`DEADLINE`] and then reported as [`ErrorKind::Retry`]; missing rights
//! are [`ErrorKind::Refused`] at once, and so is a topic still unknown after [`MISSING_WAIT`]: brokers learn of a new topic
//! one after the other, and one that lags behind gives the same response as for a topic that does not exist.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, TryRecvError};

use super::client::{ClientSettings, last_stamp};
use super::epochs::Groups;
use super::errors::Code;
use super::fences::Fences;
use super::native::{self, Client, Element, List, c_string, group_offsets, latest_time};
use super::pool::{Next, Pool, Query};
use super::probe::probe;
use super::properties::Properties;
use super::reader::with_eof_events;
use super::renewal::Renewal;
use super::threads::spawn;
use crate::cluster::{self, CommittedOffset, Detail, Error, ErrorKind, Inquiry, MISSING_WAIT, Settled, TopicId};
use crate::format::{ChangelogOffset, OffsetMetadata};
use crate::record::TopicPartition;

/// How long settling may take in all: the longest transaction, the broker's scan for expired ones,
/// and time for a broker to restart.
const DEADLINE: Duration = Duration::from_secs(60);
/// How long to wait for one response at most. The wait starts shorter and doubles with each one that does not come:
/// where nobody responds, others are not held up for long.
pub(super) const RESPONSE_MAX: Duration = Duration::from_secs(5);
const PATIENCE_MIN: Duration = Duration::from_millis(250);
/// How long to wait for the first response about a partition: its leader may be gone.
const LEADER_RESPONSE_MAX: Duration = Duration::from_secs(1);
/// Pause between two attempts.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// Pause before an offset is asked for again on which a transaction is pending.
const PENDING_PAUSE: Duration = Duration::from_millis(10);
/// First pause between two checks of the last stable offset: short, since markers trail a commit by a moment.
const LOOK_MIN: Duration = Duration::from_millis(2);
/// Longest pause between two checks of the last stable offset.
const LOOK_MAX: Duration = Duration::from_millis(50);

/// Fetch size for a single record; at least one batch is always fetched.
const LOOK_BYTES: &str = "4096";

/// Whether a query for a group's offsets waits until no transaction is pending on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stability {
    /// It waits.
    Stable,
    /// It does not: a pending offset counts as missing.
    Plain,
}

/// The clients used for queries, created when first needed.
pub(super) struct QueryClients {
    properties: Properties,
    ends: OnceLock<Arc<Client>>,
    stable_ends: OnceLock<Arc<Client>>,
    offsets: Mutex<Renewal<Client>>,
    epochs: Arc<Groups>,
    pool: Arc<Pool>,
}

impl QueryClients {
    /// Clients with a consumer's properties, which record the epochs that they learn in `epochs`.
    pub fn new(properties: &Properties, epochs: &Arc<Groups>) -> Self {
        // Requests are retried after the backoff: with the default, that is late by up to half a second.
        let properties = properties.with("retry.backoff.ms", "10").with("retry.backoff.max.ms", "20");
        let (ends, stable_ends, offsets) = (OnceLock::new(), OnceLock::new(), Mutex::default());
        let (epochs, pool) = (Arc::clone(epochs), Arc::default());
        Self { properties, ends, stable_ends, offsets, epochs, pool }
    }

    /// The client that sees partition ends, and describes topics.
    pub fn ends(&self) -> Result<Arc<Client>, Error> {
        init_once(&self.ends, || self.new_client())
    }

    /// A new client for one query.
    pub fn new_client(&self) -> Result<Arc<Client>, Error> {
        Client::new(&self.properties.with("isolation.level", "read_uncommitted"))
    }

    /// The properties of a client whose responses are all small: a frozen broker is detected within that time.
    fn brief(&self) -> Properties {
        self.properties.at_most("socket.timeout.ms", RESPONSE_MAX.as_millis() as u64)
    }

    /// The client that sees last stable offsets, and looks at single records.
    pub fn stable_ends(&self) -> Result<Arc<Client>, Error> {
        init_once(&self.stable_ends, || {
            let properties = with_eof_events(&self.brief()).with("fetch.message.max.bytes", LOOK_BYTES);
            // Brokers answer a connection's requests in order: a fetch that finds nothing must not hold up queries.
            Client::new(&properties.with("fetch.wait.max.ms", "0"))
        })
    }

    /// The client that queries the offsets of any group. It is in the first one that was queried, as it has to be in some
    /// group ([`group_offsets`]), and never subscribes.
    fn offsets(&self, group: &str) -> Result<Arc<Client>, Error> {
        let mut renewal = self.renewal();
        if let Some(client) = renewal.client(group, Instant::now()) {
            return Ok(client);
        }
        let client = Client::new(&self.brief().with("group.id", group))?;
        renewal.begin(&client, group, Instant::now());
        Ok(client)
    }

    fn renewal(&self) -> MutexGuard<'_, Renewal<Client>> {
        self.offsets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A query of `group` has failed: the next one uses a new client if this one is of no use any more.
    fn failed(&self, client: &Arc<Client>, group: &str, code: Code) {
        // Its threads end when it is dropped: not while the lock is held.
        let former = self.renewal().failed(client, group, code, Instant::now());
        drop(former);
    }

    /// To be kept by a caller for as long as it queries the offsets of `group`, again and again.
    pub fn caller(self: &Arc<Self>, group: &str) -> Caller {
        self.renewal().enter(group);
        Caller { clients: Arc::clone(self), group: group.to_owned() }
    }

    /// Opens the connections that a takeover in `group` will need, on a thread of its own.
    pub fn warm_up(self: &Arc<Self>, group: &str, topics: &[Arc<str>]) {
        let Some(topic) = topics.first() else { return };
        let (clients, group) = (Arc::clone(self), group.to_owned());
        let probe = TopicPartition::new(Arc::clone(topic), 0);
        let asked = spawn("kafka-warm-up", move || {
            // An error here comes up again, and is reported, where a result is needed.
            let ends = [clients.ends(), clients.stable_ends()].map(|client| watermarks(&client?, &probe, RESPONSE_MAX));
            let one = std::slice::from_ref(&probe);
            let _caller = clients.caller(&group);
            let offsets = clients.peek(&group, Stability::Plain, one, RESPONSE_MAX);
            let fine = ends.iter().all(Result::is_ok) && offsets.is_ok();
            tracing::debug!(fine, "the query clients are connected");
        });
        if let Err(error) = asked {
            tracing::debug!("{error}");
        }
    }

    /// What `group` has committed for `partitions`, for a caller that continues from there: the epochs are recorded.
    pub fn committed(
        &self,
        group: &str,
        stability: Stability,
        partitions: &[TopicPartition],
        wait: Duration,
    ) -> Result<Vec<Option<CommittedOffset>>, Error> {
        let Some(list) = self.peek(group, stability, partitions, wait)? else {
            return Ok(vec![None; partitions.len()]);
        };
        let epochs = self.epochs.of(group);
        let there = list.iter().filter(|element| element.offset() >= 0);
        there.for_each(|element| epochs.note_answer(&element.partition(), element.offset(), element.epoch()));
        // The coordinator has its own order; all partitions are there ([`group_offsets`]).
        let of = |partition: &TopicPartition| list.iter().find(|element| element.partition() == *partition);
        Ok(partitions.iter().map(|partition| of(partition).and_then(read)).collect())
    }

    /// What `group` has committed for `partitions`, without recording epochs; `None` if there is no such group.
    fn peek(
        &self,
        group: &str,
        stability: Stability,
        partitions: &[TopicPartition],
        wait: Duration,
    ) -> Result<Option<List>, Error> {
        let until = Instant::now() + wait;
        let asked = List::of(partitions, -1)?;
        let what = format!("querying the offsets of the group {group}");
        loop {
            let client = self.offsets(group)?;
            let left = until.saturating_duration_since(Instant::now());
            let list = match group_offsets(&client, group, &asked, stability == Stability::Stable, left) {
                Ok(list) => {
                    self.renewal().answered(&client, group);
                    list
                }
                Err(failure) => {
                    self.failed(&client, group, failure.code);
                    if failure.code == Code::RD_KAFKA_RESP_ERR_GROUP_ID_NOT_FOUND {
                        client.answered();
                        return Ok(None);
                    }
                    return Err(failure.plain(what));
                }
            };
            // Overall success does not mean success for each partition.
            match list.failure() {
                None => return Ok(Some(list)),
                Some((_, failure))
                    if failure.code == Code::RD_KAFKA_RESP_ERR_UNSTABLE_OFFSET_COMMIT
                        && Instant::now() + PENDING_PAUSE < until =>
                {
                    std::thread::sleep(PENDING_PAUSE);
                }
                Some((partition, failure)) => return Err(failure.plain(format_args!("{what}, {partition}"))),
            }
        }
    }
}

/// A caller that queries the offsets of a group.
pub(super) struct Caller {
    clients: Arc<QueryClients>,
    group: String,
}

impl Drop for Caller {
    fn drop(&mut self) {
        let former = self.clients.renewal().leave(&self.group);
        drop(former);
    }
}

/// The committed offset in an element of the response.
fn read(element: Element<'_>) -> Option<CommittedOffset> {
    let there = element.offset() >= 0;
    there.then(|| CommittedOffset { offset: element.offset(), metadata: element.metadata() })
}

fn init_once(
    cell: &OnceLock<Arc<Client>>,
    make: impl FnOnce() -> Result<Arc<Client>, Error>,
) -> Result<Arc<Client>, Error> {
    match cell.get() {
        Some(client) => Ok(Arc::clone(client)),
        // Two concurrent callers may both create one; the second is dropped.
        None => make().map(|client| Arc::clone(cell.get_or_init(|| client))),
    }
}

/// A [`Settled`] in the making, on a thread of the pool. See [`cluster::Settling`].
pub struct Settling {
    answer: Receiver<Result<Settled, Error>>,
    dropped: Arc<AtomicBool>,
}

impl Settling {
    /// Starts the queries, and looks for an owner to fence.
    pub(super) fn start(
        clients: &Arc<QueryClients>,
        fences: &Arc<Fences>,
        stamps: Option<ClientSettings>,
        inquiry: Inquiry,
    ) -> Self {
        let (done, answer) = crossbeam_channel::bounded(1);
        let dropped = Arc::new(AtomicBool::new(false));
        let takeover = Takeover {
            clients: Arc::clone(clients),
            _caller: clients.caller(&inquiry.group),
            fences: Arc::clone(fences),
            stamps,
            inquiry,
            deadline: Instant::now() + DEADLINE,
            dropped: Arc::clone(&dropped),
            done: done.clone(),
            learnt: Learnt::default(),
            patience: PATIENCE_MIN,
            pause: LOOK_MIN,
            missed: None,
        };
        if let Err(error) = clients.pool.submit(Box::new(takeover)) {
            let _ = done.send(Err(error));
        }
        Self { answer, dropped }
    }
}

impl cluster::Settling for Settling {
    fn poll(&mut self) -> Option<Result<Settled, Error>> {
        match self.answer.try_recv() {
            Ok(answer) => Some(answer),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                Some(Err(Error::new(ErrorKind::Retry, "settling ended without an answer")))
            }
        }
    }
}

impl Drop for Settling {
    fn drop(&mut self) {
        self.dropped.store(true, Ordering::Relaxed);
    }
}

/// The queries of a takeover, and their deadline.
struct Takeover {
    clients: Arc<QueryClients>,
    _caller: Caller,
    fences: Arc<Fences>,
    /// How markers are read, where brokers do not name a partition's latest timestamp.
    stamps: Option<ClientSettings>,
    inquiry: Inquiry,
    deadline: Instant,
    dropped: Arc<AtomicBool>,
    done: Sender<Result<Settled, Error>>,
    learnt: Learnt,
    /// How long to wait for the next response.
    patience: Duration,
    /// How long to pause before the next check of the last stable offset.
    pause: Duration,
    /// When a topic was first found to be unknown.
    missed: Option<Instant>,
}

/// What is known so far; it is learnt in this order.
#[derive(Default)]
struct Learnt {
    /// Whether the leaders were looked up again.
    leaders: bool,
    /// Whether the former owner was looked for.
    owner: bool,
    committed: Option<Option<CommittedOffset>>,
    input_id: Option<TopicId>,
    input: Option<(i64, i64)>,
    changelog: Option<(ChangelogOffset, ChangelogOffset)>,
    /// Whether all that was open on the changelog is decided.
    is_stable: bool,
    changelog_id: Option<TopicId>,
}

impl Query for Takeover {
    fn step(&mut self) -> Next {
        if self.dropped.load(Ordering::Relaxed) {
            return Next::Done;
        }
        let result = match self.ask() {
            Ok(None) => {
                self.missed = None;
                return Next::After(self.pause);
            }
            Err(error) if self.may_retry(&error) => {
                self.patience = (self.patience * 2).min(RESPONSE_MAX);
                return Next::Retry(RETRY_PAUSE);
            }
            Ok(Some(settled)) => Ok(settled),
            Err(error) => Err(error),
        };
        // Nobody is listening if the task was lost meanwhile.
        let _ = self.done.send(result);
        Next::Done
    }
}

impl Takeover {
    /// Queries what is not known yet; `None` while it has to wait for others' transactions.
    fn ask(&mut self) -> Result<Option<Settled>, Error> {
        if self.inquiry.is_doubted && !std::mem::replace(&mut self.learnt.leaders, true) {
            self.ask_for_leaders()?;
        }
        if !self.learnt.owner && self.learnt.committed.is_none() {
            self.learnt.owner = self.fence_former_owner();
        }
        let committed = match &self.learnt.committed {
            Some(committed) => committed.clone(),
            None => {
                let one = std::slice::from_ref(&self.inquiry.input);
                let mut found = self.clients.committed(&self.inquiry.group, Stability::Stable, one, self.patience)?;
                self.learnt.committed.insert(found.pop().flatten()).clone()
            }
        };
        let (clients, patience) = (&self.clients, self.patience);
        let ends = |partition| watermarks(&clients.ends()?, partition, patience);
        // Only now: an input never ends before the offset that was committed. If a topic is recreated between two
        // queries, the ends may be of one and the id of the other: it then looks recreated, or as if it had lost
        // records, which is doubted, and everything is queried again.
        let input_id = known(&mut self.learnt.input_id, || topic_id(clients, &self.inquiry.input))?;
        let (input_start, input_end) = known(&mut self.learnt.input, || ends(&self.inquiry.input))?;
        let (changelog_start, changelog_end) = known(&mut self.learnt.changelog, || {
            let (start, end) = ends(&self.inquiry.changelog)?;
            Ok((ChangelogOffset(start), ChangelogOffset(end)))
        })?;
        if !self.learnt.is_stable && !self.is_stable(changelog_end.0)? {
            return Ok(None);
        }
        self.learnt.is_stable = true;
        let changelog_id = known(&mut self.learnt.changelog_id, || topic_id(&self.clients, &self.inquiry.changelog))?;
        // Only now: the markers of everything that was open are written.
        let changelog_time = if self.inquiry.wants_time { self.changelog_time(changelog_end.0)? } else { None };
        let seen = self.inquiry.looks_from.map(|from| {
            let bounds = (changelog_start, changelog_end);
            probe(&self.clients.stable_ends()?, &self.inquiry.changelog, from, bounds, self.patience)
        });
        Ok(Some(Settled {
            committed,
            input_id,
            input_start,
            input_end,
            changelog_id,
            changelog_start,
            changelog_end,
            changelog_time,
            seen: seen.transpose()?,
        }))
    }

    /// The latest timestamp in the changelog; where brokers do not name it, that of its last marker.
    fn changelog_time(&self, end: i64) -> Result<Option<i64>, Error> {
        let changelog = &self.inquiry.changelog;
        match &self.stamps {
            None => latest_time(&self.clients.ends()?, changelog),
            // It takes a connection of its own.
            Some(client) => last_stamp(client, changelog, end, self.patience.max(LEADER_RESPONSE_MAX)),
        }
    }

    /// Looks up the partitions' leaders. A client sticks to the leader it knows for as long as that broker responds,
    /// and a broker that was cut off from the others does respond: with what it knew then.
    fn ask_for_leaders(&self) -> Result<(), Error> {
        for client in [self.clients.ends()?, self.clients.stable_ends()?] {
            for partition in [&self.inquiry.input, &self.inquiry.changelog] {
                client.ask_for_topic(&c_string(&partition.topic)?, LEADER_RESPONSE_MAX);
            }
        }
        Ok(())
    }

    /// Fences the owner named with the offset that was committed last, ignoring pending ones; returns
    /// whether that offset could be read. Any error here costs time and nothing else.
    fn fence_former_owner(&self) -> bool {
        let one = std::slice::from_ref(&self.inquiry.input);
        let committed = match self.clients.peek(&self.inquiry.group, Stability::Plain, one, self.patience) {
            Ok(list) => list.and_then(|list| list.iter().next().and_then(read)),
            Err(error) => {
                tracing::debug!("the former owner of {} is not known: {error}", self.inquiry.input);
                return false;
            }
        };
        let metadata = committed.and_then(|committed| OffsetMetadata::parse(&committed.metadata).ok().flatten());
        let owner = metadata.and_then(|metadata| metadata.owner);
        if let Some(owner) = owner.filter(|owner| self.inquiry.fencing.allows(owner)) {
            self.fences.fence(&owner);
        }
        true
    }

    /// Whether the changelog's last stable offset has reached `end`: everything that was open is decided.
    fn is_stable(&mut self, end: i64) -> Result<bool, Error> {
        let (_, stable) = watermarks(&self.clients.stable_ends()?, &self.inquiry.changelog, self.patience)?;
        if stable < end && self.is_over() {
            let message = format!(
                "a transaction has been open on {} for {} s (last stable offset {stable}, end {end}): it must end or \
                 time out first; one that hangs for good, as brokers before Kafka 3.6 may leave behind, is found by \
                 kafka-transactions.sh find-hanging --topic {} --partition {}, and ended by its abort",
                self.inquiry.changelog,
                DEADLINE.as_secs(),
                self.inquiry.changelog.topic,
                self.inquiry.changelog.partition
            );
            return Err(Error::new(ErrorKind::Retry, message));
        }
        self.pause = (self.pause * 2).min(LOOK_MAX);
        Ok(stable >= end)
    }

    /// Whether to try again after this error.
    fn may_retry(&mut self, error: &Error) -> bool {
        if !error.is_missing() {
            self.missed = None;
            return error.kind != ErrorKind::Refused && !self.is_over();
        }
        self.missed.get_or_insert_with(Instant::now).elapsed() < MISSING_WAIT && !self.is_over()
    }

    fn is_over(&self) -> bool {
        self.dropped.load(Ordering::Relaxed) || Instant::now() >= self.deadline
    }
}

/// The value if it is known, else the result of a query, which is kept.
fn known<T: Copy>(answer: &mut Option<T>, ask: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    match answer {
        Some(answer) => Ok(*answer),
        None => ask().map(|found| *answer.insert(found)),
    }
}

fn topic_id(clients: &QueryClients, partition: &TopicPartition) -> Result<TopicId, Error> {
    let topic = &*partition.topic;
    let outline = native::outline(&clients.ends()?, topic);
    let outline = outline.map_err(|failure| failure.plain(format_args!("describing the topic {topic}")))?;
    match outline {
        None => {
            Err(Error::new(ErrorKind::Refused, format!("the topic {topic} does not exist")).with(Some(Detail::Missing)))
        }
        Some(outline) if outline.id.is_known() => Ok(outline.id),
        // Clusters without topic ids are reported before anything starts.
        Some(_) => Err(Error::new(ErrorKind::Retry, format!("the broker gives no id for the topic {topic}"))),
    }
}

/// The first offset and the end of a partition.
///
/// A client that reads nothing sticks to the leaders that it knows, even if they are gone, until it looks up the topic.
/// And a broker that has not learnt of a topic yet gives the same response as for one that does not exist, so a missing
/// topic is looked up by name.
pub(super) fn watermarks(
    client: &Arc<Client>,
    partition: &TopicPartition,
    patience: Duration,
) -> Result<(i64, i64), Error> {
    let what = || format!("querying the ends of {partition}");
    let topic = c_string(&partition.topic)?;
    let ask = |wait| client.query_watermarks(&topic, partition.partition, wait);
    let again = |_| {
        client.ask_for_topic(&topic, LEADER_RESPONSE_MAX);
        ask(patience)
    };
    let error = match ask(LEADER_RESPONSE_MAX.min(patience)).or_else(again) {
        Ok(watermarks) => return Ok(watermarks),
        Err(failure) => client.explain(failure).plain(what()),
    };
    let outline = native::outline(client, &partition.topic).map_err(|failure| failure.plain(what()))?;
    match outline {
        Some(topic) if partition.partition < topic.partition_count && error.kind == ErrorKind::Refused => {
            Err(Error::new(ErrorKind::Retry, error.message))
        }
        _ => Err(error),
    }
}

/// Where the first open transaction on `partition` begins, queried within `wait`.
pub(super) fn open_transaction(
    clients: &QueryClients,
    partition: &TopicPartition,
    wait: Duration,
) -> Result<Option<i64>, Error> {
    let until = Instant::now() + wait;
    // In this order: anything that is committed in between is not taken for open.
    let end = end_before(&clients.ends()?, partition, until)?;
    let stable = end_before(&clients.stable_ends()?, partition, until)?;
    Ok((stable < end).then_some(stable))
}

/// The end of a partition, for a caller that must not wait beyond `until`. If the query fails, the remaining time is
/// spent on looking up the partition's present leader, so that the next attempt may succeed.
fn end_before(client: &Arc<Client>, partition: &TopicPartition, until: Instant) -> Result<i64, Error> {
    let topic = c_string(&partition.topic)?;
    let left = until.saturating_duration_since(Instant::now());
    let asked = client.query_watermarks(&topic, partition.partition, left / 4 * 3);
    asked.map(|(_, end)| end).map_err(|failure| {
        client.ask_for_topic(&topic, until.saturating_duration_since(Instant::now()));
        client.explain(failure).plain(format_args!("querying the end of {partition}"))
    })
}
