//! The calls of a group's member and of a partition's reader.

use std::ffi::{CStr, c_char};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::Duration;

use rdkafka::bindings as rd;

use super::super::errors::{Code, Failure};
use super::client::Client;
use super::conversions::c_millis;
use super::list::List;
use super::queue::Queue;
use super::topic::Topic;

/// The offset that means none.
pub const NO_OFFSET: i64 = rd::RD_KAFKA_OFFSET_INVALID as i64;

/// Proof of membership at some moment.
pub struct GroupMetadata(NonNull<rd::rd_kafka_consumer_group_metadata_t>);

// SAFETY: plain memory that is owned.
unsafe impl Send for GroupMetadata {}

impl GroupMetadata {
    /// The C handle.
    pub(super) fn raw(&self) -> *const rd::rd_kafka_consumer_group_metadata_t {
        self.0.as_ptr()
    }

    /// The group.
    pub fn group_id(&self) -> String {
        // SAFETY: the metadata is alive, and its strings with it.
        unsafe { text(rd::rd_kafka_consumer_group_metadata_group_id(self.raw())) }.unwrap_or_default()
    }

    /// The member's id, empty until the group has given it one.
    pub fn member_id(&self) -> String {
        // SAFETY: as above.
        unsafe { text(rd::rd_kafka_consumer_group_metadata_member_id(self.raw())) }.unwrap_or_default()
    }

    /// The member's own name (KIP-345), if it has one.
    pub fn group_instance_id(&self) -> Option<String> {
        // SAFETY: as above.
        unsafe { text(rd::rd_kafka_consumer_group_metadata_group_instance_id(self.raw())) }
    }

    /// Whether the group has given the member an id.
    fn has_member_id(&self) -> bool {
        !self.member_id().is_empty()
    }

    /// The group's generation; negative if the member is in none.
    pub fn generation(&self) -> i32 {
        // SAFETY: the metadata is alive.
        unsafe { rd::rd_kafka_consumer_group_metadata_generation_id(self.raw()) }
    }
}

/// A copy of a C string; `None` for null.
///
/// # Safety
/// `text` is null, or ends with a zero and is alive.
unsafe fn text(text: *const c_char) -> Option<String> {
    // SAFETY: promised by the caller.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

impl Drop for GroupMetadata {
    fn drop(&mut self) {
        // SAFETY: owned.
        unsafe { rd::rd_kafka_consumer_group_metadata_destroy(self.0.as_ptr()) }
    }
}

impl Client {
    /// Subscribes to the list's topics, replacing the previous subscription.
    pub fn subscribe(&self, topics: &List) -> Option<Failure> {
        // SAFETY: client and list are alive; the list is copied.
        Failure::of(unsafe { rd::rd_kafka_subscribe(self.raw(), topics.raw()) })
    }

    /// Subscribes to nothing.
    pub fn unsubscribe(&self) -> Option<Failure> {
        // SAFETY: the client is alive.
        Failure::of(unsafe { rd::rd_kafka_unsubscribe(self.raw()) })
    }

    /// Whether revoked partitions were lost: they may already be another member's.
    pub fn has_lost_assignment(&self) -> bool {
        // SAFETY: the client is alive.
        unsafe { rd::rd_kafka_assignment_lost(self.raw()) != 0 }
    }

    /// The current membership; `None` until the group has given the member an id.
    pub fn group_metadata(&self) -> Option<GroupMetadata> {
        // SAFETY: the client is alive; what is returned is owned.
        let metadata = GroupMetadata(NonNull::new(unsafe { rd::rd_kafka_consumer_group_metadata(self.raw()) })?);
        metadata.has_member_id().then_some(metadata)
    }

    /// Adds partitions to the assignment, to be read from the list's offsets.
    pub fn assign_more(&self, partitions: &List) -> Option<Failure> {
        // SAFETY: client and list are alive; the list is copied, the error is owned.
        unsafe { Failure::take(rd::rd_kafka_incremental_assign(self.raw(), partitions.raw())) }
    }

    /// Takes partitions out of the assignment.
    pub fn unassign(&self, partitions: &List) -> Option<Failure> {
        // SAFETY: client and list are alive; the list is copied, the error is owned.
        unsafe { Failure::take(rd::rd_kafka_incremental_unassign(self.raw(), partitions.raw())) }
    }

    /// Takes all partitions out of the assignment.
    pub fn unassign_all(&self) -> Option<Failure> {
        // SAFETY: the client is alive; null means no partitions.
        Failure::of(unsafe { rd::rd_kafka_assign(self.raw(), ptr::null()) })
    }

    /// Stops reading the list's partitions; an error with one is stored in its element.
    pub fn pause(&self, partitions: &List) -> Option<Failure> {
        // SAFETY: client and list are alive for the call.
        Failure::of(unsafe { rd::rd_kafka_pause_partitions(self.raw(), partitions.raw()) })
    }

    /// Resumes reading the list's partitions; an error with one is stored in its element.
    pub fn resume(&self, partitions: &List) -> Option<Failure> {
        // SAFETY: client and list are alive for the call.
        Failure::of(unsafe { rd::rd_kafka_resume_partitions(self.raw(), partitions.raw()) })
    }

    /// Stores the positions of the list's partitions in it.
    pub fn position(&self, partitions: &List) -> Option<Failure> {
        // SAFETY: client and list are alive for the call.
        Failure::of(unsafe { rd::rd_kafka_position(self.raw(), partitions.raw()) })
    }

    /// Replaces each time in the list, in milliseconds since the epoch, by the offset of the first record with that
    /// timestamp or a later one. A partition without such a record gets a negative offset. A partition's error is stored in
    /// its element.
    pub fn offsets_at(&self, times: &List, wait: Duration) -> Option<Failure> {
        // SAFETY: client and list are alive for the call.
        Failure::of(unsafe { rd::rd_kafka_offsets_for_times(self.raw(), times.raw(), c_millis(wait)) })
    }

    /// Moves the list's partitions to its offsets, and waits for that; an error with one is stored in its element.
    pub fn seek(&self, partitions: &List, wait: Duration) -> Option<Failure> {
        // SAFETY: client and list are alive for the call; the error is owned.
        unsafe { Failure::take(rd::rd_kafka_seek_partitions(self.raw(), partitions.raw(), c_millis(wait))) }
    }

    /// Starts leaving the group. Events have to be acknowledged until [`Client::has_left`].
    pub fn leave(&self) -> Option<Failure> {
        // SAFETY: client and queue are alive; the error is owned.
        unsafe { Failure::take(rd::rd_kafka_consumer_close_queue(self.raw(), self.events())) }
    }

    /// Whether the group was left.
    pub fn has_left(&self) -> bool {
        // SAFETY: the client is alive.
        unsafe { rd::rd_kafka_consumer_closed(self.raw()) != 0 }
    }
}

/// A partition that is read into a queue for as long as this lives, outside any group.
pub struct Consuming {
    topic: Topic,
    partition: i32,
    /// Receives what is read.
    queue: Queue,
}

impl Consuming {
    /// Reads a partition of `topic` from `offset` on.
    pub fn begin(client: &Arc<Client>, topic: &CStr, partition: i32, offset: i64) -> Result<Self, Failure> {
        let (queue, topic) = (Queue::new(client), Topic::new(client, topic)?);
        // SAFETY: topic and queue are alive, and remain so until reading is stopped.
        let started = unsafe { rd::rd_kafka_consume_start_queue(topic.raw(), partition, offset, queue.raw()) };
        if started != 0 {
            // SAFETY: reads the calling thread's last error.
            let code = unsafe { rd::rd_kafka_last_error() };
            let unknown = || Failure::new(Code::RD_KAFKA_RESP_ERR__FAIL, "reading cannot be started");
            return Err(Failure::of(code).unwrap_or_else(unknown));
        }
        Ok(Self { topic, partition, queue })
    }

    /// The queue that receives what is read.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }
}

impl Drop for Consuming {
    fn drop(&mut self) {
        // SAFETY: the topic is alive, and this partition of it was started.
        unsafe { rd::rd_kafka_consume_stop(self.topic.raw(), self.partition) };
    }
}
