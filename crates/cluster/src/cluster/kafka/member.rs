//! A group's member: subscribes, passes rebalances on for later acknowledgement, and reads all of its
//! partitions through one queue.
//!
//! Invariants: a partition is read only between [`Member::start`] and the next pause, revocation or
//! loss; its records are returned in ascending order of offsets, beginning at the started
//! offset; while a group event is unacknowledged, no record is returned.
//!
//! **Failure**: an error from which librdkafka recovers is reported once as [`ErrorKind::Retry`]; a position that the
//! broker no longer has (`auto.offset.reset=error`) and missing rights are [`ErrorKind::Refused`].

use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::client::{self, FetchClient};
use super::epochs::{EpochRanges, Epochs};
use super::errors::{Code, Failure};
use super::metadata::Metadata;
use super::native::{self, Client, List, NO_OFFSET, Queue, Signal};
use super::path::Batch;
use super::properties::Properties;
use super::seek::seek;
use super::slots::{self, Slots};
use super::unreadable;
use crate::cluster::{self, Error, ErrorKind, GroupEvent, RecordBatch as _, Waker};
use crate::record::TopicPartition;

/// How long to wait for a leader's response to a request that only wakes up its connection.
const WAKE_DEADLINE: Duration = Duration::from_millis(100);
/// How long to wait for a broker to list topics.
const TOPICS_DEADLINE: Duration = Duration::from_millis(100);
/// Pause before the topics are requested again from brokers that have not listed them.
const TOPICS_PAUSE: Duration = Duration::from_millis(20);
/// The shortest wait for records or events.
const WAIT_MIN: Duration = Duration::from_millis(1);
/// How long the same error is not reported again.
const REPORT_AGAIN: Duration = Duration::from_secs(10);

/// A member of a consumer group. See [`cluster::Member`].
pub struct Member {
    pub(super) client: Arc<Client>,
    pub(super) queue: Arc<Queue>,
    slots: Slots,
    epochs: Arc<Epochs>,
    pub(super) pending_event: Option<GroupEvent>,
    errors: Vec<Error>,
    last_report: Option<(Code, Instant)>,
    pub(super) has_left: bool,
    heartbeat_interval: Duration,
    /// When librdkafka's main thread was last woken up.
    last_wake_at: Instant,
    /// Whether librdkafka would delay joining another rebalance: see [`Member::wake`].
    joins_late: bool,
    /// Reads the partitions, if librdkafka does not.
    wire: Option<WireReader>,
}

/// Reads a member's partitions on the wire: in librdkafka all partitions stay paused.
struct WireReader {
    client: FetchClient,
    /// Rings the bell that ends a wait of [`FetchClient::poll`]: when librdkafka has an event, or when the member is
    /// woken.
    ringer: Arc<UnixStream>,
    /// Receives the messages of librdkafka's queue, which are discarded.
    discarded: native::Batch,
    no_partitions: Arc<[TopicPartition]>,
}

impl WireReader {
    fn new(mut client: FetchClient) -> io::Result<Self> {
        let (bell, ringer) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        ringer.set_nonblocking(true)?;
        client.wake_by(bell);
        Ok(Self { client, ringer: Arc::new(ringer), discarded: native::Batch::default(), no_partitions: Arc::from([]) })
    }

    fn read(
        &mut self,
        queue: &Queue,
        epochs: &Epochs,
        batch: &mut client::Batch,
        (records_max, wait): (usize, Duration),
    ) -> Result<(), Error> {
        // A member that does not poll is removed from the group after `max.poll.interval.ms`. The queue can only
        // contain errors of partitions, which the wire detects itself.
        self.discarded.fill(queue, &self.no_partitions, 1, Duration::ZERO, |_| None);
        self.client.poll(batch, records_max, wait, Some(epochs))
    }
}

impl Member {
    /// Joins the group of `properties` and subscribes to `topics`. Records are checked against the group's known
    /// `epochs`, and their own epochs are recorded there. Reads with `fetch_client`, if given, instead of librdkafka.
    pub(super) fn join(
        properties: &Properties,
        topics: &[Arc<str>],
        epochs: Arc<Epochs>,
        fetch_client: Option<FetchClient>,
    ) -> Result<Self, Error> {
        let heartbeat_interval = Duration::from_millis(properties.heartbeat_interval_ms()?);
        let client = Client::new(properties)?;
        let queue = Arc::new(Queue::new(&client));
        let wire = fetch_client
            .map(WireReader::new)
            .transpose()
            .map_err(|error| Error::new(ErrorKind::Retry, format!("no sockets for a member: {error}")))?;
        match &wire {
            Some(wire) => client.ring_on_events(Some(wire.ringer.as_fd())),
            None => queue.wake_on_events(),
        }
        let member = Self {
            client,
            queue,
            slots: Slots::default(),
            epochs,
            pending_event: None,
            errors: Vec::new(),
            last_report: None,
            has_left: false,
            heartbeat_interval,
            last_wake_at: Instant::now(),
            joins_late: false,
            wire,
        };
        if !topics.is_empty() {
            member.subscribe_to(topics)?;
        }
        Ok(member)
    }

    fn subscribe_to(&self, topics: &[Arc<str>]) -> Result<(), Error> {
        let wanted: Vec<TopicPartition> =
            topics.iter().map(|topic| TopicPartition::new(Arc::clone(topic), -1)).collect();
        let failure = self.client.subscribe(&List::of(&wanted, NO_OFFSET)?);
        failure.map_or(Ok(()), |failure| Err(failure.plain("subscribing")))
    }

    /// Wakes librdkafka's main thread, which sleeps for up to a second before it checks whether a heartbeat is due: an
    /// idle member would learn of a rebalance only then.
    ///
    /// After a rebalance, queries the topics instead: without a response to that, librdkafka joins no other rebalance
    /// within a second of the last one. But a cooperative rebalance consists of two in a row, and the partitions that
    /// move have no owner meanwhile.
    fn wake(&mut self) {
        if !self.joins_late && self.last_wake_at.elapsed() < self.heartbeat_interval {
            return;
        }
        if self.joins_late {
            self.joins_late = !self.client.ask_for_topics(TOPICS_DEADLINE);
        } else {
            // This call wakes the main thread, which then does all work that is due.
            let _ = self.membership();
        }
        self.last_wake_at = Instant::now();
    }

    /// How long until [`Member::wake`] has something to do. Never zero: a poll without a wait uses up a wake-up.
    fn wakes_in(&self) -> Duration {
        let until_heartbeat = self.heartbeat_interval.saturating_sub(self.last_wake_at.elapsed());
        if self.joins_late { TOPICS_PAUSE } else { until_heartbeat.max(WAIT_MIN) }
    }

    /// Handles librdkafka's pending events; stops at the first group event.
    pub(super) fn serve_group(&mut self) -> Result<(), Error> {
        while self.pending_event.is_none()
            && let Some(event) = self.client.next_event(Duration::ZERO)
        {
            match event.signal() {
                Signal::Assign(partitions) => self.pending_event = Some(GroupEvent::Assigned(partitions)),
                Signal::Revoke(partitions) => {
                    for partition in &partitions {
                        if let Ok(slot) = self.slots.find(partition) {
                            slot.is_started = false;
                        }
                        if let Some(wire) = &mut self.wire {
                            wire.client.pause(partition);
                        }
                    }
                    let lost = self.client.has_lost_assignment();
                    self.pending_event =
                        Some(if lost { GroupEvent::Lost(partitions) } else { GroupEvent::Revoked(partitions) });
                }
                Signal::Error(failure) => self.report(failure)?,
                Signal::Deliveries | Signal::Other => {}
            }
        }
        Ok(())
    }

    /// Reports a background error once, or again if it persists.
    fn report(&mut self, failure: Failure) -> Result<(), Error> {
        let is_recent = |(code, at): (Code, Instant)| code == failure.code && at.elapsed() < REPORT_AGAIN;
        // librdkafka handles the loss of one broker's connection itself; the loss of all connections is reported.
        let is_ignored = failure.code == Code::RD_KAFKA_RESP_ERR__TRANSPORT || self.last_report.is_some_and(is_recent);
        if is_ignored && !failure.fatal {
            tracing::debug!(target: "librdkafka", "{failure}");
            return Ok(());
        }
        self.last_report = Some((failure.code, Instant::now()));
        Err(failure.plain("the group's consumer"))
    }

    /// The current membership; `None` until the group has given the member an id.
    pub(super) fn membership(&self) -> Option<Metadata> {
        Some(Metadata::new(self.client.group_metadata()?, Arc::clone(&self.epochs)))
    }

    /// Wakes the thread of the connection to the partition's leader. While no partition is fetched from a broker, this
    /// thread sleeps for up to a second before it checks for partitions to fetch: the first partition of a lane would
    /// be read that much later.
    fn wake_leader(&self, partition: &TopicPartition) {
        let Some(slot) = self.slots.get(partition) else { return };
        // The response does not matter: the fetch meets any error, too.
        let _ = self.client.query_watermarks(&slot.name, partition.partition, WAKE_DEADLINE);
    }

    /// Makes a call that takes a list and puts errors into its elements, for a single partition.
    fn call_on_partition(
        &self,
        partition: &TopicPartition,
        offset: i64,
        call: impl FnOnce(&Client, &List) -> Option<Failure>,
    ) -> Result<Option<Failure>, Error> {
        let list = List::of(std::slice::from_ref(partition), offset)?;
        let failure = call(&self.client, &list);
        Ok(failure.or_else(|| list.failure().map(|(_, failure)| failure)))
    }

    /// Assigns partitions to librdkafka, paused, and directs their records into this member's queue.
    fn assign(&self, partitions: &[TopicPartition]) -> Result<(), Error> {
        for partition in partitions {
            self.take_queue(partition)?;
            // Paused before the assignment, so that no record is fetched in vain.
            self.set_paused(partition, true)?;
        }
        // An explicit offset: librdkafka would have to query a committed offset, and a pending transaction would delay
        // that. No record is read from this offset, since `start` seeks.
        let failure = self.client.assign_more(&List::of(partitions, 0)?);
        failure.map_or(Ok(()), |failure| Err(failure.plain("taking over partitions")))
    }

    /// Directs a partition's records into this member's queue instead of the group's.
    fn take_queue(&self, partition: &TopicPartition) -> Result<(), Error> {
        let Some(slot) = self.slots.get(partition) else { return Ok(()) };
        self.queue.take_partition(&slot.name, partition.partition).map_err(|failure| failure.plain(partition))
    }

    fn unassign(&self, partitions: &[TopicPartition]) -> Result<(), Error> {
        let failure = self.client.unassign(&List::of(partitions, NO_OFFSET)?);
        failure.map_or(Ok(()), |failure| Err(failure.plain("releasing partitions")))
    }

    fn set_paused(&self, partition: &TopicPartition, paused: bool) -> Result<(), Error> {
        let call = if paused { Client::pause } else { Client::resume };
        let failure = self.call_on_partition(partition, 0, call)?;
        let what = if paused { "pausing" } else { "resuming" };
        failure.map_or(Ok(()), |failure| Err(failure.plain(format_args!("{what} {partition}"))))
    }

    /// Records the leader epochs of the transaction markers that the partitions' positions have passed.
    fn note_markers(&self) -> Result<(), Error> {
        let list = List::of(&self.slots.positioned(), -1)?;
        let failure = self.client.position(&list);
        for element in list.iter().filter(|element| failure.is_none() && element.failure().is_none()) {
            if let Some(epoch) = element.epoch().filter(|_| element.offset() > 0) {
                let mut passed = EpochRanges::default();
                passed.read(element.offset() - 1, epoch);
                self.epochs.note_read(&element.partition(), &mut passed);
            }
        }
        Ok(())
    }

    fn read_queue(&mut self, batch: &mut native::Batch, records_max: usize, wait: Duration) {
        let Self { queue, slots, errors, .. } = self;
        let partitions = Arc::clone(&slots.partitions);
        batch.fill(queue, &partitions, records_max, wait, |message| slots.accept(message, errors));
        for (partition, slot) in slots.iter_mut() {
            self.epochs.note_read(partition, &mut slot.read_ranges);
            if std::mem::take(&mut slot.is_epoch_unknown) {
                // The partition's fetcher has stopped: only a new member can repeat the request.
                let error = slots::unknown_epoch(&self.epochs, partition, slot.next_offset, ErrorKind::Fenced);
                slot.truncated_at = (error.kind == ErrorKind::Refused).then_some(slot.next_offset);
                errors.push(error);
            }
        }
    }

    /// Stops events from ending a wait.
    pub(super) fn stop_waking(&self) {
        match &self.wire {
            Some(_) => self.client.ring_on_events(None),
            None => self.queue.sleep_on_events(),
        }
    }

    fn client_position(&self, partition: &TopicPartition) -> Option<i64> {
        let list = List::of(std::slice::from_ref(partition), -1).ok()?;
        let failure = self.client.position(&list);
        let position = list.iter().next().filter(|element| element.failure().is_none())?.offset();
        (failure.is_none() && position >= 0).then_some(position)
    }
}

impl cluster::Member for Member {
    type Batch = Batch;
    type Metadata = Metadata;

    fn poll(&mut self, batch: &mut Batch, records_max: usize, wait: Duration) -> Result<Option<GroupEvent>, Error> {
        let mut began = Instant::now();
        let until = began + wait;
        loop {
            self.wake();
            let served = self.serve_group().and_then(|()| self.errors.pop().map_or(Ok(()), Err));
            if served.is_err() || self.pending_event.is_some() {
                batch.clear();
                return served.map(|()| self.pending_event.clone());
            }
            let wait = until.saturating_duration_since(began).min(self.wakes_in());
            match &mut self.wire {
                Some(wire) => wire.read(&self.queue, &self.epochs, batch.as_wire(), (records_max, wait))?,
                None => self.read_queue(batch.as_librdkafka(), records_max, wait),
            }
            let now = Instant::now();
            // If the wait ended early, the caller has to check why. Otherwise librdkafka is woken, and the wait
            // continues.
            if !batch.is_empty() || now < began + wait || now >= until {
                return Ok(None);
            }
            began = now;
        }
    }

    fn waker(&self) -> Waker {
        match &self.wire {
            Some(wire) => {
                let ringer = Arc::clone(&wire.ringer);
                // If the socket is full, the bell is ringing already.
                Arc::new(move || _ = (&*ringer).write(&[0]))
            }
            None => {
                let queue = Arc::downgrade(&self.queue);
                Arc::new(move || queue.upgrade().iter().for_each(|queue| queue.wake()))
            }
        }
    }

    fn subscribe(&mut self, topics: &[Arc<str>]) -> Result<(), Error> {
        if !topics.is_empty() {
            return self.subscribe_to(topics);
        }
        let failure = self.client.unsubscribe();
        failure.map_or(Ok(()), |failure| Err(failure.plain("unsubscribing")))
    }

    fn accept_assigned(&mut self, partitions: &[TopicPartition]) -> Result<(), Error> {
        self.slots.add(partitions)?;
        self.pending_event = None;
        self.joins_late = true;
        self.assign(partitions)
    }

    fn accept_revoked(&mut self, partitions: &[TopicPartition]) -> Result<(), Error> {
        self.slots.remove(partitions);
        if let Some(wire) = &mut self.wire {
            partitions.iter().for_each(|partition| wire.client.remove(partition));
        }
        self.pending_event = None;
        self.joins_late = true;
        self.unassign(partitions)
    }

    fn start(&mut self, partition: &TopicPartition, offset: i64) -> Result<(), Error> {
        let epoch = self.epochs.begin(partition, offset);
        let slot = self.slots.find(partition)?;
        if let Some(wire) = &mut self.wire {
            wire.client.start(partition, offset, epoch)?;
            (slot.next_offset, slot.is_started) = (offset, true);
            return Ok(());
        }
        slot.is_started = false;
        if epoch.is_some() && slot.truncated_at == Some(offset) {
            return Err(unreadable::truncated(partition, offset));
        }
        if slot.has_stopped {
            // A fetcher that met an offset which does not exist has stopped for good. A new
            // fetcher needs a new assignment, which the group could take for the response to a rebalance.
            return Err(Error::new(ErrorKind::Fenced, format!("{partition} can only be read again by a new member")));
        }
        seek(&self.client, partition, offset, epoch)?;
        // Repeated: an earlier fetcher of this partition, while it was stopping, may have taken the queue back.
        self.take_queue(partition)?;
        self.set_paused(partition, false)?;
        self.wake_leader(partition);
        let slot = self.slots.find(partition)?;
        (slot.next_offset, slot.is_started, slot.has_returned, slot.is_position_trusted) = (offset, true, false, true);
        Ok(())
    }

    fn pause(&mut self, partition: &TopicPartition) -> Result<(), Error> {
        self.slots.find(partition)?.is_started = false;
        if let Some(wire) = &mut self.wire {
            wire.client.pause(partition);
            return Ok(());
        }
        self.set_paused(partition, true)
    }

    fn position(&self, partition: &TopicPartition) -> Option<i64> {
        let slot = self.slots.get(partition)?;
        if let Some(wire) = &self.wire {
            return wire.client.position(partition).filter(|position| *position > slot.next_offset);
        }
        let returned = slot.has_returned.then_some(slot.next_offset);
        if !slot.is_position_trusted || !slot.is_started {
            return returned;
        }
        // The client's position also passes transaction markers.
        let passed = self.client_position(partition).filter(|passed| *passed >= slot.next_offset);
        returned.max(passed)
    }

    fn end(&self, partition: &TopicPartition) -> Option<i64> {
        let slot = self.slots.get(partition)?;
        if let Some(wire) = &self.wire {
            return wire.client.high_watermark(partition);
        }
        // librdkafka gives the high watermark: while a transaction is open on the partition, it lies beyond
        // the last stable offset, which is as far as this reader gets.
        self.client.cached_end(&slot.name, partition.partition)
    }

    fn end_heard_ago(&self, partition: &TopicPartition) -> Option<Duration> {
        match &self.wire {
            Some(wire) => wire.client.heard_ago(partition),
            // librdkafka does not tell which broker has responded.
            None => self.client.heard_ago(),
        }
    }

    fn is_member(&self) -> bool {
        self.membership().is_some()
    }

    fn has_more(&self) -> bool {
        // librdkafka does not report the last stable offset.
        self.wire.as_ref().is_some_and(|wire| wire.client.has_more())
    }

    fn metadata(&self) -> Result<Metadata, Error> {
        let not_joined =
            || Error::new(ErrorKind::Abort, "the member has not joined its group yet: its commits would not be fenced");
        if self.wire.is_none() {
            self.note_markers()?;
        }
        let metadata = self.membership().ok_or_else(not_joined)?;
        (metadata.proof().generation() >= 0).then_some(metadata).ok_or_else(not_joined)
    }

    fn leave(mut self) -> Result<(), Error> {
        self.close()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::debug!("{error}");
        }
    }
}
