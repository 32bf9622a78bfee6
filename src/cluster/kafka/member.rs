//! A group's member: subscribes, hands rebalances on to be answered later, and reads all of its
//! partitions through one queue.
//!
//! Invariants: a partition is read only between [`Member::start`] and the next pause, revocation or
//! loss; the records of a partition come with rising offsets from where it was started; while a group
//! event waits for its answer, nothing is read.
//!
//! **Failure**: what librdkafka mends by itself is told once as [`Kind::Retry`]; a position that the
//! broker no longer has (`auto.offset.reset=error`) and missing rights are [`Kind::Refused`].

use std::ptr::NonNull;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rdkafka::bindings as rd;

use super::batch::Batch;
use super::epochs::{Epochs, Stretches};
use super::errors::{Code, Failure};
use super::native::{Client, List, Queue, Signal, c_millis};
use super::properties::Properties;
use super::slots::{self, Slots};
use crate::cluster::{self, Error, GroupEvent, Kind};
use crate::record::TopicPartition;

/// How long a started partition's fetcher may take to come up, and a seek to be done.
const SEEK_DEADLINE: Duration = Duration::from_secs(5);
/// Between two attempts at a seek.
const SEEK_PAUSE: Duration = Duration::from_millis(2);
/// How long a leader may take to answer what only wakes its connection up.
const WAKE_DEADLINE: Duration = Duration::from_millis(100);
/// How long a broker may take to tell of topics.
const TOPICS_DEADLINE: Duration = Duration::from_millis(100);
/// For how long the same error is not told again.
const TELL_AGAIN: Duration = Duration::from_secs(10);

/// A member of a consumer group. See [`cluster::Member`].
pub struct Member {
    pub(super) client: Arc<Client>,
    pub(super) lane: Queue,
    slots: Slots,
    epochs: Arc<Epochs>,
    pub(super) pending: Option<GroupEvent>,
    troubles: Vec<Error>,
    told: Option<(Code, Instant)>,
    pub(super) left: bool,
    heartbeat_interval: Duration,
    /// When librdkafka's main thread was last woken up.
    woken: Instant,
    /// Whether librdkafka would join another rebalance late: see [`Member::wake`].
    joins_late: bool,
}

/// Proof of a membership as of some moment. See [`cluster::Member::metadata`].
pub struct Metadata {
    raw: NonNull<rd::rd_kafka_consumer_group_metadata_t>,
    epochs: Arc<Epochs>,
}

// SAFETY: plain memory that is owned.
unsafe impl Send for Metadata {}

impl Metadata {
    /// The C handle.
    pub(super) fn raw(&self) -> *const rd::rd_kafka_consumer_group_metadata_t {
        self.raw.as_ptr()
    }

    /// What is known for the group of the epochs before its offsets.
    pub(super) fn epochs(&self) -> &Epochs {
        &self.epochs
    }
}

impl Drop for Metadata {
    fn drop(&mut self) {
        // SAFETY: owned.
        unsafe { rd::rd_kafka_consumer_group_metadata_destroy(self.raw.as_ptr()) }
    }
}

impl Member {
    /// Joins the group of `properties` and subscribes to `topics`. What it reads is compared with the `epochs` that are
    /// known for the group, and noted there.
    pub(super) fn join(properties: &Properties, topics: &[Arc<str>], epochs: Arc<Epochs>) -> Result<Self, Error> {
        let client = Client::new(properties)?;
        let lane = Queue::new(&client);
        lane.wake_on_events();
        let member = Self {
            client,
            lane,
            slots: Slots::default(),
            epochs,
            pending: None,
            troubles: Vec::new(),
            told: None,
            left: false,
            heartbeat_interval: Duration::from_millis(properties.heartbeat_interval_ms()?),
            woken: Instant::now(),
            joins_late: false,
        };
        if !topics.is_empty() {
            member.subscribe_to(topics)?;
        }
        Ok(member)
    }

    fn subscribe_to(&self, topics: &[Arc<str>]) -> Result<(), Error> {
        let wanted: Vec<TopicPartition> =
            topics.iter().map(|topic| TopicPartition::new(Arc::clone(topic), -1)).collect();
        let list = List::of(&wanted, i64::from(rd::RD_KAFKA_OFFSET_INVALID))?;
        // SAFETY: client and list are alive; the list is copied.
        let failure = Failure::of(unsafe { rd::rd_kafka_subscribe(self.client.raw(), list.raw()) });
        failure.map_or(Ok(()), |failure| Err(failure.plain("subscribing")))
    }

    /// Wakes librdkafka's main thread, which sleeps for up to a second and only then looks whether a heartbeat is
    /// due: so a quiet member would hear of a rebalance that late.
    ///
    /// After a rebalance it asks for topics instead: until it has heard of some, librdkafka joins no other rebalance
    /// within a second of the last one, while a cooperative one is two in a row, and the partitions that move belong
    /// to nobody meanwhile.
    fn wake(&mut self) {
        if !self.joins_late && self.woken.elapsed() < self.heartbeat_interval {
            return;
        }
        if self.joins_late {
            self.joins_late = !self.client.ask_for_topics(TOPICS_DEADLINE);
        } else {
            // Asked of the main thread, which does everything else that is due then.
            let _ = self.membership();
        }
        self.woken = Instant::now();
    }

    /// Handles everything that librdkafka has to tell; stops at the first group event.
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
                    }
                    // SAFETY: the client is alive.
                    let lost = unsafe { rd::rd_kafka_assignment_lost(self.client.raw()) } != 0;
                    self.pending =
                        Some(if lost { GroupEvent::Lost(partitions) } else { GroupEvent::Revoked(partitions) });
                }
                Signal::Error(failure) => self.tell(failure)?,
                Signal::Deliveries | Signal::Other => {}
            }
        }
        Ok(())
    }

    /// An error of the background is told once, unless it stays for long.
    fn tell(&mut self, failure: Failure) -> Result<(), Error> {
        let recently = |(code, at): (Code, Instant)| code == failure.code && at.elapsed() < TELL_AGAIN;
        // One broker's connection going down is librdkafka's business; all of them down is told.
        let silent = failure.code == Code::RD_KAFKA_RESP_ERR__TRANSPORT || self.told.is_some_and(recently);
        if silent && !failure.fatal {
            tracing::debug!(target: "librdkafka", "{failure}");
            return Ok(());
        }
        self.told = Some((failure.code, Instant::now()));
        Err(failure.plain("the group's consumer"))
    }

    /// The membership as of now; `None` while the group has not given the member an id.
    pub(super) fn membership(&self) -> Option<Metadata> {
        // SAFETY: the client is alive; what is returned is owned.
        let raw = NonNull::new(unsafe { rd::rd_kafka_consumer_group_metadata(self.client.raw()) });
        let metadata = Metadata { raw: raw?, epochs: Arc::clone(&self.epochs) };
        // SAFETY: the metadata is alive, and its strings with it.
        let id = unsafe { rd::rd_kafka_consumer_group_metadata_member_id(metadata.raw()) };
        // SAFETY: as above; an id ends with a zero.
        (!id.is_null() && unsafe { *id } != 0).then_some(metadata)
    }

    /// Wakes the thread of the connection to the partition's leader. While nothing is fetched from a broker it sleeps
    /// for up to a second, and looks only then whether there is something to be fetched: so a lane's first partition
    /// would stand still for that long.
    fn wake_leader(&self, partition: &TopicPartition) {
        let Some(slot) = self.slots.get(partition) else { return };
        // The answer is of no interest: what is wrong there is met by the fetch, too.
        let _ = self.client.query_watermarks(&slot.name, partition.partition, WAKE_DEADLINE);
    }

    /// Makes a call that takes a list and puts errors into its elements, for one partition.
    fn on_partition(
        &self,
        partition: &TopicPartition,
        offset: i64,
        call: impl FnOnce(*mut rd::rd_kafka_t, &List) -> Option<Failure>,
    ) -> Result<Option<Failure>, Error> {
        let list = List::of(std::slice::from_ref(partition), offset)?;
        let failure = call(self.client.raw(), &list);
        Ok(failure.or_else(|| list.failure().map(|(_, failure)| failure)))
    }

    /// Tells librdkafka to take partitions, paused, through the lane's queue.
    fn assign(&self, partitions: &[TopicPartition]) -> Result<(), Error> {
        for partition in partitions {
            self.take_queue(partition)?;
            // Paused before there is anything to fetch, so that nothing is fetched for nothing.
            self.set_paused(partition, true)?;
        }
        // An explicit offset: a stored one would have to be fetched, and a pending transaction would hold
        // that up. Nothing is read from it, for `start` seeks.
        let list = List::of(partitions, 0)?;
        // SAFETY: client and list are alive; the list is copied, the error is taken over.
        let failure = unsafe { Failure::take(rd::rd_kafka_incremental_assign(self.client.raw(), list.raw())) };
        failure.map_or(Ok(()), |failure| Err(failure.plain("taking partitions over")))
    }

    /// Lets a partition's records come into the lane's queue instead of the group's.
    fn take_queue(&self, partition: &TopicPartition) -> Result<(), Error> {
        let Some(slot) = self.slots.get(partition) else { return Ok(()) };
        self.lane.take_partition(&slot.name, partition.partition).map_err(|failure| failure.plain(partition))
    }

    fn unassign(&self, partitions: &[TopicPartition]) -> Result<(), Error> {
        let list = List::of(partitions, i64::from(rd::RD_KAFKA_OFFSET_INVALID))?;
        // SAFETY: client and list are alive; the list is copied, the error is taken over.
        let failure = unsafe { Failure::take(rd::rd_kafka_incremental_unassign(self.client.raw(), list.raw())) };
        failure.map_or(Ok(()), |failure| Err(failure.plain("letting partitions go")))
    }

    fn set_paused(&self, partition: &TopicPartition, paused: bool) -> Result<(), Error> {
        let failure = self.on_partition(partition, 0, |client, list| {
            // SAFETY: client and list are alive for the call.
            Failure::of(unsafe {
                match paused {
                    true => rd::rd_kafka_pause_partitions(client, list.raw()),
                    false => rd::rd_kafka_resume_partitions(client, list.raw()),
                }
            })
        })?;
        let what = if paused { "pausing" } else { "resuming" };
        failure.map_or(Ok(()), |failure| Err(failure.plain(format_args!("{what} {partition}"))))
    }

    /// Notes under which leaders the transaction markers were written that the partitions' positions have passed.
    fn note_markers(&self) -> Result<(), Error> {
        let list = List::of(&self.slots.positioned(), -1)?;
        // SAFETY: client and list are alive for the call.
        let failure = Failure::of(unsafe { rd::rd_kafka_position(self.client.raw(), list.raw()) });
        for element in list.iter().filter(|element| failure.is_none() && element.failure().is_none()) {
            if let Some(epoch) = element.epoch().filter(|_| element.offset() > 0) {
                let mut passed = Stretches::default();
                passed.read(element.offset() - 1, epoch);
                self.epochs.note_read(&element.partition(), &mut passed);
            }
        }
        Ok(())
    }

    fn client_position(&self, partition: &TopicPartition) -> Option<i64> {
        let list = List::of(std::slice::from_ref(partition), -1).ok()?;
        // SAFETY: client and list are alive for the call.
        let failure = Failure::of(unsafe { rd::rd_kafka_position(self.client.raw(), list.raw()) });
        let position = list.iter().next().filter(|element| element.failure().is_none())?.offset();
        (failure.is_none() && position >= 0).then_some(position)
    }
}

/// Has the partition read from `offset` on. Where the epoch of the record before is known, the broker is asked first
/// whether it still has what was read up to there.
pub(super) fn seek(client: &Client, partition: &TopicPartition, offset: i64, epoch: Option<i32>) -> Result<(), Error> {
    let deadline = Instant::now() + SEEK_DEADLINE;
    loop {
        let mut list = List::new(1);
        list.push_in_epoch(partition, offset, epoch, None)?;
        // SAFETY: client and list are alive for the call; the error is taken over.
        let failure =
            unsafe { Failure::take(rd::rd_kafka_seek_partitions(client.raw(), list.raw(), c_millis(SEEK_DEADLINE))) };
        let failure = failure.or_else(|| list.failure().map(|(_, failure)| failure));
        let Some(failure) = failure else { return Ok(()) };
        // The fetcher comes up a moment after the assignment.
        let coming_up = matches!(
            failure.code,
            Code::RD_KAFKA_RESP_ERR__STATE
                | Code::RD_KAFKA_RESP_ERR__PREV_IN_PROGRESS
                | Code::RD_KAFKA_RESP_ERR__IN_PROGRESS
                | Code::RD_KAFKA_RESP_ERR__TIMED_OUT
        );
        if !coming_up || Instant::now() >= deadline {
            return Err(Error::new(Kind::Retry, format!("starting {partition} at {offset}: {failure}")));
        }
        thread::sleep(SEEK_PAUSE);
    }
}

impl cluster::Member for Member {
    type Batch = Batch;
    type Metadata = Metadata;

    fn poll(&mut self, batch: &mut Batch, records_max: usize, wait: Duration) -> Result<Option<GroupEvent>, Error> {
        batch.clear();
        self.wake();
        self.serve_group()?;
        if self.pending.is_some() {
            return Ok(self.pending.clone());
        }
        if let Some(trouble) = self.troubles.pop() {
            return Err(trouble);
        }
        let Self { lane, slots, troubles, .. } = self;
        let partitions = Arc::clone(&slots.partitions);
        batch.fill(lane, &partitions, records_max, wait, |message| slots.sort(message, troubles));
        for (partition, slot) in slots.iter_mut() {
            self.epochs.note_read(partition, &mut slot.read);
            if std::mem::take(&mut slot.unknown) {
                // Its fetcher has stopped: only a new member can ask again.
                let trouble = slots::unknown_epoch(&self.epochs, partition, slot.next, Kind::Fenced);
                slot.truncated = (trouble.kind == Kind::Refused).then_some(slot.next);
                troubles.push(trouble);
            }
        }
        Ok(None)
    }

    fn subscribe(&mut self, topics: &[Arc<str>]) -> Result<(), Error> {
        if !topics.is_empty() {
            return self.subscribe_to(topics);
        }
        // SAFETY: the client is alive.
        let failure = Failure::of(unsafe { rd::rd_kafka_unsubscribe(self.client.raw()) });
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
        self.pending = None;
        self.joins_late = true;
        self.unassign(partitions)
    }

    fn start(&mut self, partition: &TopicPartition, offset: i64) -> Result<(), Error> {
        let epoch = self.epochs.begin(partition, offset);
        let slot = self.slots.find(partition)?;
        slot.started = false;
        if epoch.is_some() && slot.truncated == Some(offset) {
            return Err(slots::truncated(partition, offset));
        }
        if slot.stopped {
            // A fetcher that met an offset which does not exist has stopped for good. Giving the partition a new
            // one means assigning it anew, which the group could take for the answer to a rebalance.
            return Err(Error::new(Kind::Fenced, format!("{partition} can only be read again by a new member")));
        }
        seek(&self.client, partition, offset, epoch)?;
        // Once more: had an earlier fetcher of this partition still been stopping, it took the queue back.
        self.take_queue(partition)?;
        self.set_paused(partition, false)?;
        self.wake_leader(partition);
        let slot = self.slots.find(partition)?;
        (slot.next, slot.started, slot.returned, slot.trusted) = (offset, true, false, true);
        Ok(())
    }

    fn pause(&mut self, partition: &TopicPartition) -> Result<(), Error> {
        self.slots.find(partition)?.started = false;
        self.set_paused(partition, true)
    }

    fn position(&self, partition: &TopicPartition) -> Option<i64> {
        let slot = self.slots.get(partition)?;
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
        // librdkafka tells the high watermark: while a transaction is open on the partition, it lies behind
        // the last stable offset that this reader can reach.
        self.client.cached_end(&slot.name, partition.partition)
    }

    fn metadata(&self) -> Result<Metadata, Error> {
        let unjoined =
            || Error::new(Kind::Abort, "the member has not joined its group yet: its commits would not be fenced");
        self.note_markers()?;
        let metadata = self.membership().ok_or_else(unjoined)?;
        // SAFETY: the metadata is alive.
        let generation = unsafe { rd::rd_kafka_consumer_group_metadata_generation_id(metadata.raw()) };
        (generation >= 0).then_some(metadata).ok_or_else(unjoined)
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
