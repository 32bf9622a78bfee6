//! A group's member: subscribes, passes rebalances on to be acknowledged later, and reads all of its
//! partitions through one queue.
//!
//! Invariants: a partition is read only between [`Member::start`] and the next pause, revocation or
//! loss; a partition's records come in ascending offsets from where it was started; while a group
//! event is unacknowledged, nothing is read.
//!
//! **Failure**: an error from which librdkafka recovers is reported once as [`ErrorKind::Retry`]; a position that the
//! broker no longer has (`auto.offset.reset=error`) and missing rights are [`ErrorKind::Refused`].

use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::client::{self, Reading};
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
/// Pause before brokers that have not listed the topics are asked again.
const TOPICS_PAUSE: Duration = Duration::from_millis(20);
/// The shortest wait for records or events.
const WAIT_MIN: Duration = Duration::from_millis(1);
/// How long the same error is not reported again.
const REPORT_AGAIN: Duration = Duration::from_secs(10);

/// A member of a consumer group. See [`cluster::Member`].
pub struct Member {
    pub(super) client: Arc<Client>,
    pub(super) lane: Arc<Queue>,
    slots: Slots,
    epochs: Arc<Epochs>,
    pub(super) pending: Option<GroupEvent>,
    troubles: Vec<Error>,
    reported: Option<(Code, Instant)>,
    pub(super) left: bool,
    heartbeat_interval: Duration,
    /// When librdkafka's main thread was last woken up.
    woken: Instant,
    /// Whether librdkafka would join another rebalance late: see [`Member::wake`].
    joins_late: bool,
    /// What reads the partitions, if not librdkafka.
    wire: Option<OnWire>,
}

/// A member that reads on the wire: in librdkafka all partitions stay paused.
struct OnWire {
    reading: Reading,
    /// Rings the bell that ends a wait of [`Reading::poll`]: when librdkafka has an event, or somebody wakes the member.
    ringer: Arc<UnixStream>,
    /// What comes from the lane's queue all the same.
    nothing: native::Batch,
    nowhere: Arc<[TopicPartition]>,
}

impl OnWire {
    fn new(mut reading: Reading) -> io::Result<Self> {
        let (bell, ringer) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        ringer.set_nonblocking(true)?;
        reading.wake_by(bell);
        Ok(Self { reading, ringer: Arc::new(ringer), nothing: native::Batch::default(), nowhere: Arc::from([]) })
    }

    fn read(
        &mut self,
        lane: &Queue,
        epochs: &Epochs,
        batch: &mut client::Batch,
        (records_max, wait): (usize, Duration),
    ) -> Result<(), Error> {
        // A member that does not ask for records is out of the group after `max.poll.interval.ms`. What there is are
        // errors of partitions, which the wire meets itself.
        self.nothing.fill(lane, &self.nowhere, 1, Duration::ZERO, |_| None);
        self.reading.poll(batch, records_max, wait, Some(epochs))
    }
}

impl Member {
    /// Joins the group of `properties` and subscribes to `topics`. What it reads is checked against the `epochs`
    /// known for the group, and recorded there. Reads by `reading` if there is one.
    pub(super) fn join(
        properties: &Properties,
        topics: &[Arc<str>],
        epochs: Arc<Epochs>,
        reading: Option<Reading>,
    ) -> Result<Self, Error> {
        let heartbeat_interval = Duration::from_millis(properties.heartbeat_interval_ms()?);
        let client = Client::new(properties)?;
        let lane = Arc::new(Queue::new(&client));
        let wire = reading
            .map(OnWire::new)
            .transpose()
            .map_err(|error| Error::new(ErrorKind::Retry, format!("no sockets for a member: {error}")))?;
        match &wire {
            Some(wire) => client.ring_on_events(Some(wire.ringer.as_fd())),
            None => lane.wake_on_events(),
        }
        let member = Self {
            client,
            lane,
            slots: Slots::default(),
            epochs,
            pending: None,
            troubles: Vec::new(),
            reported: None,
            left: false,
            heartbeat_interval,
            woken: Instant::now(),
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

    /// Wakes librdkafka's main thread, which sleeps for up to a second and only then checks whether a heartbeat is
    /// due: a quiet member would learn of a rebalance that late.
    ///
    /// After a rebalance it queries the topics instead: until it has a response, librdkafka joins no other rebalance
    /// within a second of the last one, while a cooperative rebalance consists of two in a row, and the partitions that
    /// move have no owner meanwhile.
    fn wake(&mut self) {
        if !self.joins_late && self.woken.elapsed() < self.heartbeat_interval {
            return;
        }
        if self.joins_late {
            self.joins_late = !self.client.ask_for_topics(TOPICS_DEADLINE);
        } else {
            // A call to the main thread, which then does everything else that is due.
            let _ = self.membership();
        }
        self.woken = Instant::now();
    }

    /// How long until [`Member::wake`] has something to do. Never zero: a poll without a wait uses up a wake-up.
    fn wakes_in(&self) -> Duration {
        let until_heartbeat = self.heartbeat_interval.saturating_sub(self.woken.elapsed());
        if self.joins_late { TOPICS_PAUSE } else { until_heartbeat.max(WAIT_MIN) }
    }

    /// Handles librdkafka's pending events; stops at the first group event.
    pub(super) fn serve_group(&mut self) -> Result<(), Error> {
        while self.pending.is_none()
            && let Some(event) = self.client.next_event(Duration::ZERO)
        {
            match event.signal() {
                Signal::Assign(partitions) => self.pending = Some(GroupEvent::Assigned(partitions)),
                Signal::Revoke(partitions) => {
                    for partition in &partitions {
                        if let Ok(slot) = self.slots.find(partition) {
                            slot.started = false;
                        }
                        if let Some(wire) = &mut self.wire {
                            wire.reading.pause(partition);
                        }
                    }
                    let lost = self.client.has_lost_assignment();
                    self.pending =
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
        let recently = |(code, at): (Code, Instant)| code == failure.code && at.elapsed() < REPORT_AGAIN;
        // One broker's lost connection is librdkafka's business; losing all of them is reported.
        let silent = failure.code == Code::RD_KAFKA_RESP_ERR__TRANSPORT || self.reported.is_some_and(recently);
        if silent && !failure.fatal {
            tracing::debug!(target: "librdkafka", "{failure}");
            return Ok(());
        }
        self.reported = Some((failure.code, Instant::now()));
        Err(failure.plain("the group's consumer"))
    }

    /// The current membership; `None` until the group has given the member an id.
    pub(super) fn membership(&self) -> Option<Metadata> {
        Some(Metadata::new(self.client.group_metadata()?, Arc::clone(&self.epochs)))
    }

    /// Wakes the thread of the connection to the partition's leader. While nothing is fetched from a broker, it sleeps
    /// for up to a second and only then checks whether there is something to fetch: a lane's first partition
    /// would not move for that long.
    fn wake_leader(&self, partition: &TopicPartition) {
        let Some(slot) = self.slots.get(partition) else { return };
        // The response does not matter: the fetch meets any error, too.
        let _ = self.client.query_watermarks(&slot.name, partition.partition, WAKE_DEADLINE);
    }

    /// Makes a call that takes a list and puts errors into its elements, for a single partition.
    fn on_partition(
        &self,
        partition: &TopicPartition,
        offset: i64,
        call: impl FnOnce(&Client, &List) -> Option<Failure>,
    ) -> Result<Option<Failure>, Error> {
        let list = List::of(std::slice::from_ref(partition), offset)?;
        let failure = call(&self.client, &list);
        Ok(failure.or_else(|| list.failure().map(|(_, failure)| failure)))
    }

    /// Has librdkafka take over partitions, paused, through the lane's queue.
    fn assign(&self, partitions: &[TopicPartition]) -> Result<(), Error> {
        for partition in partitions {
            self.take_queue(partition)?;
            // Paused before there is anything to fetch, so that nothing is fetched in vain.
            self.set_paused(partition, true)?;
        }
        // An explicit offset: a stored one would have to be fetched, and a pending transaction would delay
        // that. Nothing is read from it, since `start` seeks.
        let failure = self.client.assign_more(&List::of(partitions, 0)?);
        failure.map_or(Ok(()), |failure| Err(failure.plain("taking over partitions")))
    }

    /// Directs a partition's records into the lane's queue instead of the group's.
    fn take_queue(&self, partition: &TopicPartition) -> Result<(), Error> {
        let Some(slot) = self.slots.get(partition) else { return Ok(()) };
        self.lane.take_partition(&slot.name, partition.partition).map_err(|failure| failure.plain(partition))
    }

    fn unassign(&self, partitions: &[TopicPartition]) -> Result<(), Error> {
        let failure = self.client.unassign(&List::of(partitions, NO_OFFSET)?);
        failure.map_or(Ok(()), |failure| Err(failure.plain("releasing partitions")))
    }

    fn set_paused(&self, partition: &TopicPartition, paused: bool) -> Result<(), Error> {
        let call = if paused { Client::pause } else { Client::resume };
        let failure = self.on_partition(partition, 0, call)?;
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

    fn read_lane(&mut self, batch: &mut native::Batch, records_max: usize, wait: Duration) {
        let Self { lane, slots, troubles, .. } = self;
        let partitions = Arc::clone(&slots.partitions);
        batch.fill(lane, &partitions, records_max, wait, |message| slots.sort(message, troubles));
        for (partition, slot) in slots.iter_mut() {
            self.epochs.note_read(partition, &mut slot.read);
            if std::mem::take(&mut slot.unknown) {
                // Its fetcher has stopped: only a new member can ask again.
                let trouble = slots::unknown_epoch(&self.epochs, partition, slot.next, ErrorKind::Fenced);
                slot.truncated = (trouble.kind == ErrorKind::Refused).then_some(slot.next);
                troubles.push(trouble);
            }
        }
    }

    /// Events end no wait any more.
    pub(super) fn stop_waking(&self) {
        match &self.wire {
            Some(_) => self.client.ring_on_events(None),
            None => self.lane.sleep_on_events(),
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
            let attended = self.serve_group().and_then(|()| self.troubles.pop().map_or(Ok(()), Err));
            if attended.is_err() || self.pending.is_some() {
                batch.clear();
                return attended.map(|()| self.pending.clone());
            }
            let wait = until.saturating_duration_since(began).min(self.wakes_in());
            match &mut self.wire {
                Some(wire) => wire.read(&self.lane, &self.epochs, batch.by_wire(), (records_max, wait))?,
                None => self.read_lane(batch.by_librdkafka(), records_max, wait),
            }
            let now = Instant::now();
            // A wait ends early for a reason. Otherwise librdkafka is woken, and the wait goes on.
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
                // A full socket rings already.
                Arc::new(move || _ = (&*ringer).write(&[0]))
            }
            None => {
                let lane = Arc::downgrade(&self.lane);
                Arc::new(move || lane.upgrade().iter().for_each(|lane| lane.wake()))
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
        self.pending = None;
        self.joins_late = true;
        self.assign(partitions)
    }

    fn accept_revoked(&mut self, partitions: &[TopicPartition]) -> Result<(), Error> {
        self.slots.remove(partitions);
        if let Some(wire) = &mut self.wire {
            partitions.iter().for_each(|partition| wire.reading.remove(partition));
        }
        self.pending = None;
        self.joins_late = true;
        self.unassign(partitions)
    }

    fn start(&mut self, partition: &TopicPartition, offset: i64) -> Result<(), Error> {
        let epoch = self.epochs.begin(partition, offset);
        let slot = self.slots.find(partition)?;
        if let Some(wire) = &mut self.wire {
            wire.reading.start(partition, offset, epoch)?;
            (slot.next, slot.started) = (offset, true);
            return Ok(());
        }
        slot.started = false;
        if epoch.is_some() && slot.truncated == Some(offset) {
            return Err(unreadable::truncated(partition, offset));
        }
        if slot.stopped {
            // A fetcher that met an offset which does not exist has stopped for good. A new
            // fetcher needs a new assignment, which the group could take for the response to a rebalance.
            return Err(Error::new(ErrorKind::Fenced, format!("{partition} can only be read again by a new member")));
        }
        seek(&self.client, partition, offset, epoch)?;
        // Again: an earlier fetcher of this partition that was still stopping may have taken back the queue.
        self.take_queue(partition)?;
        self.set_paused(partition, false)?;
        self.wake_leader(partition);
        let slot = self.slots.find(partition)?;
        (slot.next, slot.started, slot.returned, slot.trusted) = (offset, true, false, true);
        Ok(())
    }

    fn pause(&mut self, partition: &TopicPartition) -> Result<(), Error> {
        self.slots.find(partition)?.started = false;
        if let Some(wire) = &mut self.wire {
            wire.reading.pause(partition);
            return Ok(());
        }
        self.set_paused(partition, true)
    }

    fn position(&self, partition: &TopicPartition) -> Option<i64> {
        let slot = self.slots.get(partition)?;
        if let Some(wire) = &self.wire {
            return wire.reading.position(partition).filter(|position| *position > slot.next);
        }
        let returned = slot.returned.then_some(slot.next);
        if !slot.trusted || !slot.started {
            return returned;
        }
        // The client's position also passes transaction markers.
        let passed = self.client_position(partition).filter(|passed| *passed >= slot.next);
        returned.max(passed)
    }

    fn end(&self, partition: &TopicPartition) -> Option<i64> {
        let slot = self.slots.get(partition)?;
        if let Some(wire) = &self.wire {
            return wire.reading.end(partition);
        }
        // librdkafka gives the high watermark: while a transaction is open on the partition, it lies beyond
        // the last stable offset, which is as far as this reader gets.
        self.client.cached_end(&slot.name, partition.partition)
    }

    fn end_heard_ago(&self, partition: &TopicPartition) -> Option<Duration> {
        match &self.wire {
            Some(wire) => wire.reading.heard_ago(partition),
            // librdkafka does not say of which broker it has heard.
            None => self.client.heard_ago(),
        }
    }

    fn is_member(&self) -> bool {
        self.membership().is_some()
    }

    fn has_more(&self) -> bool {
        // Of librdkafka nobody hears up to where a partition can be read at read_committed.
        self.wire.as_ref().is_some_and(|wire| wire.reading.has_more())
    }

    fn metadata(&self) -> Result<Metadata, Error> {
        let unjoined =
            || Error::new(ErrorKind::Abort, "the member has not joined its group yet: its commits would not be fenced");
        if self.wire.is_none() {
            self.note_markers()?;
        }
        let metadata = self.membership().ok_or_else(unjoined)?;
        (metadata.proof().generation() >= 0).then_some(metadata).ok_or_else(unjoined)
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
