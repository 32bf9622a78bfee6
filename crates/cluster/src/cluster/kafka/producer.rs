//! A transactional producer: records are sent from the lane's thread, delivery reports are received on a thread
//! that always polls, and every transactional call runs on a third thread, so that a call that never
//! returns blocks nothing else.
//!
//! Invariants: at most one call is in progress; a commit whose caller gave up before the offsets were
//! added never ends the transaction; a call that was given up keeps only the client alive until it
//! returns.
//!
//! **Failure**: see [`Failure::transactional`]. A commit that exceeds its deadline is
//! [`ErrorKind::Unknown`], unless the end of the transaction was certainly not requested yet. After a connection broke
//! around the end of a transaction, every further transaction is refused as [`ErrorKind::Fenced`]: a late copy of the
//! request could end it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

use hashbrown::HashMap;

use super::errors::Failure;
use super::limits::{INIT_DEADLINE, MEANWHILE_STEP};
use super::metadata::Metadata;
use super::native::{Client, List, Listener, SendBatch, Topic, c_string};
use super::properties::Properties;
use super::send::{Patience, SEND_RECORDS_MAX};
use super::threads::{CallOutcome, CallThread, PendingCall, Reports};
use crate::cluster::{self, DeliveryFailure, Error, ErrorKind, Expected, Message, OffsetCommit, Ticket};
use crate::record::TopicPartition;

/// How long each attempt waits for a first response.
const CONNECT_WAITS_MS: [u64; 7] = [8, 12, 20, 40, 80, 160, 320];
/// How long librdkafka waits within one attempt, so that a deadline is noticed in time.
const ATTEMPT: Duration = Duration::from_secs(5);
/// How long after its own deadline a call is given up.
const GRACE: Duration = Duration::from_secs(2);
/// Pause between two attempts at a call that may be repeated.
const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// How long a commit flushes its remaining records while the offsets are added.
const FLUSH_AHEAD: Duration = Duration::from_millis(100);
/// How long a broker usually takes to write a transaction's markers.
const MARKERS_WAIT: Duration = Duration::from_millis(3);
/// A transaction shorter than this is delayed if its partitions are rejected at first.
const SHORT_TRANSACTION: Duration = Duration::from_millis(50);

/// Phase of a commit: it has not requested the end of its transaction yet.
const PREPARING: u8 = 0;
/// Phase of a commit: it has requested the end, or is about to.
const ENDING: u8 = 1;
/// Phase of a commit: its caller gave up first, so it must not request the end.
const GIVEN_UP: u8 = 2;

/// A transactional producer. See [`cluster::Producer`].
pub struct Producer {
    id: String,
    client: Arc<Client>,
    caller: CallThread,
    reports: Arc<Reports>,
    topics: TopicHandles,
    delivery_timeout: Duration,
    transaction_timeout: Duration,
    /// Whether every request of the last commit got a response.
    was_commit_answered: bool,
    begun_at: Instant,
    /// The last transaction whose commit was requested.
    last_ended: Option<EndedTransaction>,
}

type TopicHandles = HashMap<Box<str>, Topic, ahash::RandomState>;

/// A transaction whose commit has returned.
#[derive(Clone, Copy)]
struct EndedTransaction {
    at: Instant,
    lasted: Duration,
}

impl EndedTransaction {
    /// How long to wait before the next transaction. The broker writes the markers after its response, and rejects the
    /// next transaction's partitions until then; librdkafka then retries after 20 ms, which no setting changes. A long
    /// transaction is not delayed by that: its partitions are added while its records are still being sent; but after a
    /// short transaction, the next is usually short too. Aborts are rare and not considered here.
    fn pause(self, now: Instant) -> Duration {
        if self.lasted >= SHORT_TRANSACTION {
            return Duration::ZERO;
        }
        (self.at + MARKERS_WAIT).saturating_duration_since(now)
    }
}

/// Connects the client to a broker before it looks up the coordinator: without a connection it would repeat the lookup
/// only half a second later (`rd_kafka_txn_coord_query`). The broker is chosen at random, now and then among those
/// known by name only (`rd_kafka_connect_any`); each query makes it choose again.
fn connect(client: &Client) {
    let _ = CONNECT_WAITS_MS.into_iter().any(|wait| client.ask_for_topics(Duration::from_millis(wait)));
}

impl Producer {
    /// Opens a producer; a transaction that was open under its id has been aborted.
    pub(super) fn open(properties: &Properties, id: &str) -> Result<Self, Error> {
        let transaction_timeout = Duration::from_millis(properties.transaction_timeout_ms()?);
        let delivery_timeout = Duration::from_millis(properties.delivery_timeout_ms()?);
        let reports = Arc::new(Reports::default());
        let (delivered, broke) = (Arc::clone(&reports), Arc::clone(&reports));
        let listener = Listener::new(
            move |opaque, offset| delivered.delivered(opaque, offset),
            move || broke.note_broken_connection(Instant::now()),
        );
        let client = Client::with(&properties.with("transactional.id", id), Some(listener))?;
        let caller = CallThread::start(Arc::clone(&client), Arc::clone(&reports))?;
        let what = format!("opening the transactional id {id}");
        let trouble = Arc::clone(&reports);
        let opened = caller.call(INIT_DEADLINE + GRACE, move |client| {
            connect(client);
            retry_until(Instant::now() + INIT_DEADLINE, |wait| {
                let failure = client.init_transactions(wait)?;
                // A timeout may be caused by a wrong password, which a retry does not help.
                Some(trouble.take_trouble().unwrap_or(failure))
            })
        });
        let failure = match opened {
            CallOutcome::Done(Ok(())) => None,
            CallOutcome::Done(Err(failure)) => Some(failure.transactional(&what, ErrorKind::Retry)),
            CallOutcome::GivenUp => Some(Error::new(ErrorKind::Retry, format!("{what}: no response"))),
        };
        if let Some(error) = failure {
            return Err(error);
        }
        let topics = HashMap::default();
        let id = id.to_owned();
        Ok(Self {
            id,
            client,
            caller,
            reports,
            topics,
            delivery_timeout,
            transaction_timeout,
            was_commit_answered: true,
            begun_at: Instant::now(),
            last_ended: None,
        })
    }

    /// Adds the offsets, on the calls' thread. Among the errors, only the group's rejection of the membership is
    /// certainly a response.
    fn add_offsets(
        client: &Client,
        offsets: &List,
        group: &Metadata,
        deadline: Instant,
        answered: &AtomicBool,
    ) -> Result<(), Error> {
        retry_until(deadline, |wait| client.send_offsets(offsets, group.proof(), wait))
            // Whatever the failure, no offset has been committed.
            .map_err(|failure| {
                answered.store(failure.is_stale_membership(), Ordering::Release);
                failure.transactional("adding the offsets to the transaction", ErrorKind::Abort)
            })
            .map_err(
                |error| {
                    if error.kind == ErrorKind::Unknown { Error::new(ErrorKind::Abort, error.message) } else { error }
                },
            )
    }

    /// Waits, on the calls' thread, until the records' offsets are known, if any offsets are expected. The end of
    /// the transaction reports failed records.
    fn check_deliveries(client: &Client, reports: &Reports, deadline: Instant) -> Result<(), Error> {
        if !reports.has_expectations() {
            return Ok(());
        }
        while !client.flush(FLUSH_AHEAD) && !reports.has_failed() {
            if Instant::now() >= deadline {
                return Err(Error::new(ErrorKind::Abort, "the records were not delivered in time"));
            }
        }
        let Some((number, offset)) = reports.find_loss() else { return Ok(()) };
        let message =
            format!("a record with number {number} was written at offset {offset}: its partition has lost records");
        Err(Error::new(ErrorKind::Abort, message))
    }

    /// Requests the commit, lets `wait` wait for it, and records the outcome.
    fn commit_with(
        &mut self,
        offsets: &[OffsetCommit],
        group: Metadata,
        wait: impl FnOnce(&Client, PendingCall<'_, Result<(), Error>>) -> CallOutcome<Result<(), Error>>,
    ) -> Result<(), Error> {
        const WHAT: &str = "committing the transaction";
        let mut list = List::new(offsets.len());
        for OffsetCommit { partition, committed } in offsets {
            let epoch = group.epochs().before(partition, committed.offset);
            list.push_in_epoch(partition, committed.offset, epoch, Some(&committed.metadata))?;
            // A claim or a release commits the same offset again.
            group.epochs().note_committed(partition, committed.offset, epoch);
        }
        let asked = Instant::now();
        self.reports.note_end_request(asked);
        let deadline = asked + self.transaction_timeout;
        let phase = Arc::new(AtomicU8::new(PREPARING));
        let shared = Arc::clone(&phase);
        let answered = Arc::new(AtomicBool::new(false));
        let (all_answered, reports) = (Arc::clone(&answered), Arc::clone(&self.reports));
        let pending = self.caller.begin(self.transaction_timeout + GRACE, move |client| {
            Self::add_offsets(client, &list, &group, deadline, &all_answered)?;
            Self::check_deliveries(client, &reports, deadline)?;
            let is_still_wanted =
                shared.compare_exchange(PREPARING, ENDING, Ordering::AcqRel, Ordering::Acquire).is_ok();
            if !is_still_wanted {
                return Err(Error::new(ErrorKind::Abort, "the commit was given up before the transaction ended"));
            }
            Self::end_transaction(client, deadline)
        });
        let committed = wait(&self.client, pending);
        let answered_at = Instant::now();
        self.reports.note_end_response(answered_at);
        self.last_ended = Some(EndedTransaction { at: answered_at, lasted: answered_at - self.begun_at });
        self.was_commit_answered = matches!(committed, CallOutcome::Done(Ok(()))) || answered.load(Ordering::Acquire);
        match committed {
            CallOutcome::Done(result) => result,
            CallOutcome::GivenUp => {
                let is_unrequested =
                    phase.compare_exchange(PREPARING, GIVEN_UP, Ordering::AcqRel, Ordering::Acquire).is_ok();
                let kind = if is_unrequested { ErrorKind::Abort } else { ErrorKind::Unknown };
                Err(Error::new(kind, format!("{WHAT}: no response")))
            }
        }
    }

    /// Ends the transaction, on the calls' thread.
    fn end_transaction(client: &Client, deadline: Instant) -> Result<(), Error> {
        retry_until(deadline, |wait| client.commit_transaction(wait))
            .map_err(|failure| failure.transactional("committing the transaction", ErrorKind::Unknown))
    }
}

/// The handle of the topic `name`, cached in `topics`.
fn topic<'t>(topics: &'t mut TopicHandles, client: &Arc<Client>, name: &str) -> Result<&'t Topic, Error> {
    if !topics.contains_key(name) {
        let topic = Topic::new(client, &c_string(name)?).map_err(|failure| failure.plain(name))?;
        topics.insert(name.into(), topic);
    }
    Ok(&topics[name])
}

/// Turns an error into `Fenced` if the producer can no longer be used: the rejected record is not the cause then.
fn fenced_if_in_doubt(reports: &Reports, error: Error) -> Error {
    let lost = error.kind == ErrorKind::Abort && reports.is_in_doubt();
    if lost { Error { kind: ErrorKind::Fenced, ..error } } else { error }
}

/// Repeats a call until the deadline, as long as its failures are retriable; `call` receives the time that it may wait.
fn retry_until(deadline: Instant, mut call: impl FnMut(Duration) -> Option<Failure>) -> Result<(), Failure> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let Some(failure) = call(left.min(ATTEMPT)) else { return Ok(()) };
        let again = failure.retriable && !failure.fatal && !failure.requires_abort;
        if !again || Instant::now() + RETRY_PAUSE >= deadline {
            return Err(failure);
        }
        std::thread::sleep(RETRY_PAUSE);
    }
}

impl cluster::Producer for Producer {
    type Metadata = Metadata;

    fn id(&self) -> &str {
        &self.id
    }

    fn begin(&mut self) -> Result<(), Error> {
        const WHAT: &str = "beginning a transaction";
        if self.reports.is_in_doubt() {
            let message = "a request of an earlier transaction may still take effect, the producer was fenced, or one \
                           of its threads has failed: a new producer is needed";
            return Err(Error::new(ErrorKind::Fenced, message));
        }
        if let Some(ended) = self.last_ended {
            std::thread::sleep(ended.pause(Instant::now()));
        }
        self.reports.clear_expectations();
        let begun = self.caller.call(ATTEMPT + GRACE, |client| client.begin_transaction());
        self.begun_at = Instant::now();
        match begun {
            CallOutcome::Done(None) => Ok(()),
            CallOutcome::Done(Some(failure)) => Err(failure.transactional(WHAT, ErrorKind::Unknown)),
            CallOutcome::GivenUp => Err(Error::new(ErrorKind::Unknown, format!("{WHAT}: no response"))),
        }
    }

    fn send(&mut self, ticket: Ticket, message: &Message<'_>) -> Result<(), Error> {
        let Self { client, topics, reports, delivery_timeout, .. } = self;
        let (topic, opaque) = (topic(topics, client, message.topic)?, Reports::opaque(ticket));
        let mut patience = Patience::new(*delivery_timeout);
        while let Some(failure) = topic.produce(opaque, message) {
            patience
                .wait_or_fail(&failure, message.topic, message.partition)
                .map_err(|error| fenced_if_in_doubt(reports, error))?;
        }
        Ok(())
    }

    fn send_all<'a>(
        &mut self,
        number: u64,
        to: &TopicPartition,
        records: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>,
    ) -> Result<(), Error> {
        let Self { client, topics, reports, delivery_timeout, .. } = self;
        let (topic, opaque) = (topic(topics, client, &to.topic)?, Reports::opaque(Ticket { number, report: false }));
        let (mut records, mut batch) = (records, SendBatch::with_capacity(SEND_RECORDS_MAX));
        loop {
            records.by_ref().take(SEND_RECORDS_MAX).for_each(|(key, value)| batch.push(key, value, opaque));
            if batch.is_empty() {
                return Ok(());
            }
            let mut patience = Patience::new(*delivery_timeout);
            // Records that are accepted leave the batch.
            while let Some(failure) = topic.produce_all(to.partition, &mut batch) {
                patience
                    .wait_or_fail(&failure, &to.topic, to.partition)
                    .map_err(|error| fenced_if_in_doubt(reports, error))?;
            }
        }
    }

    fn expect(&mut self, number: u64, expected: Expected) {
        self.reports.expect(number, expected);
    }

    fn in_flight(&self) -> usize {
        // A record counts as in flight until its delivery report was recorded.
        self.client.in_flight()
    }

    fn has_failed(&self) -> bool {
        self.reports.has_failed()
    }

    fn take_failures(&mut self) -> Vec<DeliveryFailure> {
        self.reports.take_failures()
    }

    fn take_delivered(&mut self) -> Vec<(u64, i64)> {
        self.reports.take_delivered()
    }

    fn commit(&mut self, offsets: &[OffsetCommit], group: Metadata) -> Result<(), Error> {
        self.commit_with(offsets, group, |client, pending| {
            // The records need not wait for the offsets to be added.
            if pending.is_accepted() {
                client.flush(FLUSH_AHEAD);
            }
            pending.wait()
        })
    }

    fn commit_while(
        &mut self,
        offsets: &[OffsetCommit],
        group: Metadata,
        meanwhile: &mut dyn FnMut(Duration),
    ) -> Result<(), Error> {
        self.commit_with(offsets, group, |client, mut pending| {
            loop {
                match pending.try_outcome() {
                    Ok(committed) => return committed,
                    Err(still) => pending = still,
                }
                // As in `commit`: a flush sends records that linger.
                let is_delivered = client.in_flight() == 0 || client.flush(MEANWHILE_STEP);
                meanwhile(if is_delivered { MEANWHILE_STEP } else { Duration::ZERO });
            }
        })
    }

    fn begins_in(&self) -> Duration {
        self.last_ended.map_or(Duration::ZERO, |ended| ended.pause(Instant::now()))
    }

    fn is_usable(&self) -> bool {
        self.was_commit_answered && !self.reports.is_in_doubt()
    }

    fn abort(&mut self) -> Result<(), Error> {
        const WHAT: &str = "aborting the transaction";
        let (asked, timeout) = (Instant::now(), self.transaction_timeout);
        self.reports.note_end_request(asked);
        let aborted = self
            .caller
            .call(timeout + GRACE, move |client| retry_until(asked + timeout, |wait| client.abort_transaction(wait)));
        self.reports.note_end_response(Instant::now());
        match aborted {
            CallOutcome::Done(result) => result.map_err(|failure| failure.transactional(WHAT, ErrorKind::Unknown)),
            CallOutcome::GivenUp => Err(Error::new(ErrorKind::Unknown, format!("{WHAT}: no response"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_transaction_waits_only_for_the_markers_of_a_short_one() {
        let at = Instant::now();
        let pause = |lasted, after| EndedTransaction { at, lasted }.pause(at + after);
        let (short, long) = (Duration::from_millis(49), Duration::from_millis(50));
        assert_eq!(pause(short, Duration::ZERO), MARKERS_WAIT);
        assert_eq!(pause(short, Duration::from_millis(1)), MARKERS_WAIT - Duration::from_millis(1));
        assert_eq!(pause(short, Duration::from_secs(1)), Duration::ZERO);
        assert_eq!(pause(long, Duration::ZERO), Duration::ZERO);
    }
}
