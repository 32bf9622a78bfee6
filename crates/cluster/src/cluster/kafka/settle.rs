//! The queries that a takeover makes before it can restore, in the order of [`Settled`].
//!
//! Before these queries, the owner named in the committed offset's metadata is fenced, so that a transaction that it
//! may have left open ends at once: see [`super::fences`]. The order of the queries does not depend on that.
//!
//! Three shared clients make all the queries, on a bounded number of threads ([`super::pool`]), however many tasks of
//! however many topologies settle at once: one that reads uncommitted records (it sees the end), one that reads
//! committed records (it sees the last stable offset), and one that queries the offsets of any group.
//!
//! **Failure**: temporary errors are retried until [`DEADLINE`] and then reported as [`ErrorKind::Retry`]; missing
//! rights are [`ErrorKind::Refused`] at once, and so is a topic still unknown after [`MISSING_WAIT`]: brokers learn of
//! a new topic one after the other, and a broker that lags behind responds as if the topic did not exist.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, TryRecvError};

use super::client::{ClientSettings, last_broker_timestamp};
use super::epochs::Groups;
use super::errors::Code;
use super::fences::Fences;
use super::native::{self, Client, Element, List, c_string, group_offsets, latest_time};
use super::pool::{Pool, Query, StepResult};
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
/// The longest wait for one response. The wait starts shorter and doubles with each missing response, so that brokers
/// that do not respond delay other queries only a little.
pub(super) const RESPONSE_MAX: Duration = Duration::from_secs(5);
const PATIENCE_MIN: Duration = Duration::from_millis(250);
/// How long to wait for the first response about a partition: its leader may be down.
const LEADER_RESPONSE_MAX: Duration = Duration::from_secs(1);
/// Pause between two attempts.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// Pause before an offset with a pending transaction is queried again.
const PENDING_PAUSE: Duration = Duration::from_millis(10);
/// First pause between two checks of the last stable offset: short, since markers are written right after a commit.
const CHECK_PAUSE_MIN: Duration = Duration::from_millis(2);
/// Longest pause between two checks of the last stable offset.
const CHECK_PAUSE_MAX: Duration = Duration::from_millis(50);

/// Fetch size for a single record; at least one batch is always fetched.
const PROBE_BYTES: &str = "4096";

/// Whether a query for a group's offsets waits until no transaction is pending on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stability {
    /// It waits.
    Stable,
    /// It does not wait: a pending offset counts as missing.
    Plain,
}

/// The clients for queries, created when first needed.
pub(super) struct QueryClients {
    properties: Properties,
    ends: OnceLock<Arc<Client>>,
    stable_ends: OnceLock<Arc<Client>>,
    offsets: Mutex<Renewal<Client>>,
    epochs: Arc<Groups>,
    pool: Arc<Pool>,
}

impl QueryClients {
    /// Clients with a consumer's properties, which record the epochs of committed offsets in `epochs`.
    pub fn new(properties: &Properties, epochs: &Arc<Groups>) -> Self {
        // Requests are retried after the backoff: the default is up to half a second.
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

    /// The properties of a client whose responses are all small: a short timeout detects a frozen broker soon.
    fn with_short_timeout(&self) -> Properties {
        self.properties.at_most("socket.timeout.ms", RESPONSE_MAX.as_millis() as u64)
    }

    /// The client that sees last stable offsets, and reads single records.
    pub fn stable_ends(&self) -> Result<Arc<Client>, Error> {
        init_once(&self.stable_ends, || {
            let properties = with_eof_events(&self.with_short_timeout()).with("fetch.message.max.bytes", PROBE_BYTES);
            // Brokers respond to a connection's requests in order: a fetch without records must not delay queries.
            Client::new(&properties.with("fetch.wait.max.ms", "0"))
        })
    }

    /// The client that queries the offsets of any group. Since it has to be in some group ([`group_offsets`]), it is in
    /// the first group that was queried; it never subscribes.
    fn offsets(&self, group: &str) -> Result<Arc<Client>, Error> {
        let mut renewal = self.renewal();
        if let Some(client) = renewal.client(group, Instant::now()) {
            return Ok(client);
        }
        let client = Client::new(&self.with_short_timeout().with("group.id", group))?;
        renewal.begin(&client, group, Instant::now());
        Ok(client)
    }

    fn renewal(&self) -> MutexGuard<'_, Renewal<Client>> {
        self.offsets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a query of `group` has failed, and replaces the client if it can no longer be used.
    fn note_failure(&self, client: &Arc<Client>, group: &str, code: Code) {
        // Dropping a client ends its threads: this must not happen while the lock is held.
        let former = self.renewal().note_failure(client, group, code, Instant::now());
        drop(former);
    }

    /// Registers a caller that repeatedly queries the offsets of `group`, until the result is dropped.
    pub fn querier(self: &Arc<Self>, group: &str) -> OffsetQuerier {
        self.renewal().add_caller(group);
        OffsetQuerier { clients: Arc::clone(self), group: group.to_owned() }
    }

    /// Opens the connections that a takeover in `group` will need, on a thread of its own.
    pub fn warm_up(self: &Arc<Self>, group: &str, topics: &[Arc<str>]) {
        let Some(topic) = topics.first() else { return };
        let (clients, group) = (Arc::clone(self), group.to_owned());
        let probe = TopicPartition::new(Arc::clone(topic), 0);
        let started = spawn("kafka-warm-up", move || {
            // An error here occurs again, and is reported, where a result is needed.
            let ends = [clients.ends(), clients.stable_ends()].map(|client| watermarks(&client?, &probe, RESPONSE_MAX));
            let one = std::slice::from_ref(&probe);
            let _querier = clients.querier(&group);
            let offsets = clients.query_committed(&group, Stability::Plain, one, RESPONSE_MAX);
            let is_connected = ends.iter().all(Result::is_ok) && offsets.is_ok();
            tracing::debug!(fine = is_connected, "the query clients are connected");
        });
        if let Err(error) = started {
            tracing::debug!("{error}");
        }
    }

    /// The offsets that `group` has committed for `partitions`, for a caller that continues from there: their epochs
    /// are recorded.
    pub fn committed(
        &self,
        group: &str,
        stability: Stability,
        partitions: &[TopicPartition],
        wait: Duration,
    ) -> Result<Vec<Option<CommittedOffset>>, Error> {
        let Some(list) = self.query_committed(group, stability, partitions, wait)? else {
            return Ok(vec![None; partitions.len()]);
        };
        let epochs = self.epochs.of(group);
        let committed = list.iter().filter(|element| element.offset() >= 0);
        committed.for_each(|element| epochs.note_queried(&element.partition(), element.offset(), element.epoch()));
        // The coordinator's order may differ; all partitions are listed ([`group_offsets`]).
        let of = |partition: &TopicPartition| list.iter().find(|element| element.partition() == *partition);
        Ok(partitions.iter().map(|partition| of(partition).and_then(committed_offset)).collect())
    }

    /// The offsets that `group` has committed for `partitions`, without recording epochs; `None` if the group does not
    /// exist.
    fn query_committed(
        &self,
        group: &str,
        stability: Stability,
        partitions: &[TopicPartition],
        wait: Duration,
    ) -> Result<Option<List>, Error> {
        let until = Instant::now() + wait;
        let queried = List::of(partitions, -1)?;
        let what = format!("querying the offsets of the group {group}");
        loop {
            let client = self.offsets(group)?;
            let left = until.saturating_duration_since(Instant::now());
            let list = match group_offsets(&client, group, &queried, stability == Stability::Stable, left) {
                Ok(list) => {
                    self.renewal().note_response(&client, group);
                    list
                }
                Err(failure) => {
                    self.note_failure(&client, group, failure.code);
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
pub(super) struct OffsetQuerier {
    clients: Arc<QueryClients>,
    group: String,
}

impl Drop for OffsetQuerier {
    fn drop(&mut self) {
        let former = self.clients.renewal().remove_caller(&self.group);
        drop(former);
    }
}

/// The committed offset in an element of the response.
fn committed_offset(element: Element<'_>) -> Option<CommittedOffset> {
    let is_committed = element.offset() >= 0;
    is_committed.then(|| CommittedOffset { offset: element.offset(), metadata: element.metadata() })
}

fn init_once(
    cell: &OnceLock<Arc<Client>>,
    make: impl FnOnce() -> Result<Arc<Client>, Error>,
) -> Result<Arc<Client>, Error> {
    match cell.get() {
        Some(client) => Ok(Arc::clone(client)),
        // Two concurrent callers may both create a client; the second one is dropped.
        None => make().map(|client| Arc::clone(cell.get_or_init(|| client))),
    }
}

/// The queries for a [`Settled`], which run on a thread of the pool. See [`cluster::Settling`].
pub struct Settling {
    result: Receiver<Result<Settled, Error>>,
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
        let (done, result) = crossbeam_channel::bounded(1);
        let dropped = Arc::new(AtomicBool::new(false));
        let takeover = Takeover {
            clients: Arc::clone(clients),
            _querier: clients.querier(&inquiry.group),
            fences: Arc::clone(fences),
            stamps,
            inquiry,
            deadline: Instant::now() + DEADLINE,
            dropped: Arc::clone(&dropped),
            done: done.clone(),
            findings: Findings::default(),
            patience: PATIENCE_MIN,
            pause: CHECK_PAUSE_MIN,
            missing_since: None,
        };
        if let Err(error) = clients.pool.submit(Box::new(takeover)) {
            let _ = done.send(Err(error));
        }
        Self { result, dropped }
    }
}

impl cluster::Settling for Settling {
    fn poll(&mut self) -> Option<Result<Settled, Error>> {
        match self.result.try_recv() {
            Ok(result) => Some(result),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                Some(Err(Error::new(ErrorKind::Retry, "settling ended without a result")))
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
    _querier: OffsetQuerier,
    fences: Arc<Fences>,
    /// The settings of the client that reads markers, if brokers do not report a partition's latest timestamp.
    stamps: Option<ClientSettings>,
    inquiry: Inquiry,
    deadline: Instant,
    dropped: Arc<AtomicBool>,
    done: Sender<Result<Settled, Error>>,
    findings: Findings,
    /// How long to wait for the next response.
    patience: Duration,
    /// How long to pause before the next check of the last stable offset.
    pause: Duration,
    /// Since when a topic has been unknown.
    missing_since: Option<Instant>,
}

/// The results so far, in the order of the queries.
#[derive(Default)]
struct Findings {
    /// Whether the leaders were looked up again.
    has_looked_up_leaders: bool,
    /// Whether the former owner was looked for.
    has_sought_owner: bool,
    committed: Option<Option<CommittedOffset>>,
    input_id: Option<TopicId>,
    input: Option<(i64, i64)>,
    changelog: Option<(ChangelogOffset, ChangelogOffset)>,
    /// Whether all transactions that were open on the changelog have ended.
    is_stable: bool,
    changelog_id: Option<TopicId>,
}

impl Query for Takeover {
    fn step(&mut self) -> StepResult {
        if self.dropped.load(Ordering::Relaxed) {
            return StepResult::Done;
        }
        let result = match self.query_missing() {
            Ok(None) => {
                self.missing_since = None;
                return StepResult::After(self.pause);
            }
            Err(error) if self.may_retry(&error) => {
                self.patience = (self.patience * 2).min(RESPONSE_MAX);
                return StepResult::Retry(RETRY_PAUSE);
            }
            Ok(Some(settled)) => Ok(settled),
            Err(error) => Err(error),
        };
        // The receiver is gone if the task was lost meanwhile.
        let _ = self.done.send(result);
        StepResult::Done
    }
}

impl Takeover {
    /// Makes the queries whose results are missing; `None` while other owners' transactions are open.
    fn query_missing(&mut self) -> Result<Option<Settled>, Error> {
        if self.inquiry.is_doubted && !std::mem::replace(&mut self.findings.has_looked_up_leaders, true) {
            self.look_up_leaders()?;
        }
        if !self.findings.has_sought_owner && self.findings.committed.is_none() {
            self.findings.has_sought_owner = self.fence_former_owner();
        }
        let committed = match &self.findings.committed {
            Some(committed) => committed.clone(),
            None => {
                let one = std::slice::from_ref(&self.inquiry.input);
                let mut found = self.clients.committed(&self.inquiry.group, Stability::Stable, one, self.patience)?;
                self.findings.committed.insert(found.pop().flatten()).clone()
            }
        };
        let (clients, patience) = (&self.clients, self.patience);
        let ends = |partition| watermarks(&clients.ends()?, partition, patience);
        // Only now: an input never ends before the offset that was committed. If a topic is recreated between two
        // queries, the ends may belong to one topic and the id to the other: the topic then seems to be recreated, or
        // to have lost records, and everything is queried again.
        let input_id = get_or_query(&mut self.findings.input_id, || topic_id(clients, &self.inquiry.input))?;
        let (input_start, input_end) = get_or_query(&mut self.findings.input, || ends(&self.inquiry.input))?;
        let (changelog_start, changelog_end) = get_or_query(&mut self.findings.changelog, || {
            let (start, end) = ends(&self.inquiry.changelog)?;
            Ok((ChangelogOffset(start), ChangelogOffset(end)))
        })?;
        if !self.findings.is_stable && !self.is_stable(changelog_end.0)? {
            return Ok(None);
        }
        self.findings.is_stable = true;
        let changelog_id =
            get_or_query(&mut self.findings.changelog_id, || topic_id(&self.clients, &self.inquiry.changelog))?;
        // Only now: the markers of all transactions that were open are written.
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

    /// The latest timestamp in the changelog; if brokers do not report it, the timestamp of the last marker.
    fn changelog_time(&self, end: i64) -> Result<Option<i64>, Error> {
        let changelog = &self.inquiry.changelog;
        match &self.stamps {
            None => latest_time(&self.clients.ends()?, changelog),
            // This query needs a connection of its own.
            Some(client) => last_broker_timestamp(client, changelog, end, self.patience.max(LEADER_RESPONSE_MAX)),
        }
    }

    /// Looks up the partitions' leaders again. A client uses the leader that it knows as long as this broker responds,
    /// and a broker that is cut off from the others does respond, with outdated offsets.
    fn look_up_leaders(&self) -> Result<(), Error> {
        for client in [self.clients.ends()?, self.clients.stable_ends()?] {
            for partition in [&self.inquiry.input, &self.inquiry.changelog] {
                client.ask_for_topic(&c_string(&partition.topic)?, LEADER_RESPONSE_MAX);
            }
        }
        Ok(())
    }

    /// Fences the owner named with the last committed offset, ignoring pending offsets; returns whether that offset
    /// could be read. An error here only costs time.
    fn fence_former_owner(&self) -> bool {
        let one = std::slice::from_ref(&self.inquiry.input);
        let committed = match self.clients.query_committed(&self.inquiry.group, Stability::Plain, one, self.patience) {
            Ok(list) => list.and_then(|list| list.iter().next().and_then(committed_offset)),
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

    /// Whether the changelog's last stable offset has reached `end`: all transactions that were open have ended.
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
        self.pause = (self.pause * 2).min(CHECK_PAUSE_MAX);
        Ok(stable >= end)
    }

    /// Whether to repeat the query after this error.
    fn may_retry(&mut self, error: &Error) -> bool {
        if !error.is_missing() {
            self.missing_since = None;
            return error.kind != ErrorKind::Refused && !self.is_over();
        }
        self.missing_since.get_or_insert_with(Instant::now).elapsed() < MISSING_WAIT && !self.is_over()
    }

    fn is_over(&self) -> bool {
        self.dropped.load(Ordering::Relaxed) || Instant::now() >= self.deadline
    }
}

/// The value if it is known, otherwise the result of `query`, which is stored.
fn get_or_query<T: Copy>(value: &mut Option<T>, query: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    match value {
        Some(value) => Ok(*value),
        None => query().map(|found| *value.insert(found)),
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
/// A client that reads no records uses the leaders that it knows, even if they are down, until it looks up the topic.
/// And a broker that has not learnt of a topic yet responds as if it did not exist, so a missing topic is looked up by
/// name.
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
    // In this order: a transaction that is committed between the two queries does not seem to be open.
    let end = end_before(&clients.ends()?, partition, until)?;
    let stable = end_before(&clients.stable_ends()?, partition, until)?;
    Ok((stable < end).then_some(stable))
}

/// The end of a partition, for a caller that must not wait beyond `until`. If the query fails, the remaining time is
/// used to look up the partition's present leader, so that the next attempt may succeed.
fn end_before(client: &Arc<Client>, partition: &TopicPartition, until: Instant) -> Result<i64, Error> {
    let topic = c_string(&partition.topic)?;
    let left = until.saturating_duration_since(Instant::now());
    let asked = client.query_watermarks(&topic, partition.partition, left / 4 * 3);
    asked.map(|(_, end)| end).map_err(|failure| {
        client.ask_for_topic(&topic, until.saturating_duration_since(Instant::now()));
        client.explain(failure).plain(format_args!("querying the end of {partition}"))
    })
}
