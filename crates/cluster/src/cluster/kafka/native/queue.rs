//! Queues: a member reads all of its partitions through one queue; each admin call gets its response through another.

use std::ffi::{CStr, c_void};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::Duration;

use rdkafka::bindings as rd;

use super::super::errors::{Code, Failure};
use super::client::Client;
use super::conversions::c_millis;
use super::event::Event;

/// A queue of its own, into which partitions' queues are forwarded or responses are put.
pub(in super::super) struct Queue {
    raw: NonNull<rd::rd_kafka_queue_t>,
    client: Arc<Client>,
}

// SAFETY: as for `Client`.
unsafe impl Send for Queue {}

// SAFETY: as for `Client`: librdkafka locks its queues.
unsafe impl Sync for Queue {}

impl Queue {
    /// A new, empty queue.
    pub fn new(client: &Arc<Client>) -> Self {
        // SAFETY: the client is alive.
        let raw = unsafe { rd::rd_kafka_queue_new(client.raw()) };
        Self { raw: NonNull::new(raw).expect("librdkafka never returns null here"), client: Arc::clone(client) }
    }

    /// The client that it belongs to.
    pub fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// The C handle.
    pub fn raw(&self) -> *mut rd::rd_kafka_queue_t {
        self.raw.as_ptr()
    }

    /// The next event, waiting up to `wait` for it.
    pub fn next_event(&self, wait: Duration) -> Option<Event> {
        // SAFETY: the queue is alive, and the `Event` owns what is returned.
        unsafe { Event::from_raw(rd::rd_kafka_queue_poll(self.raw(), c_millis(wait))) }
    }

    /// Directs a partition's records into this queue, until the partition is released.
    pub fn take_partition(&self, topic: &CStr, partition: i32) -> Result<(), Failure> {
        // SAFETY: both queues are alive; the partition's handle is returned at once.
        unsafe {
            let queue = rd::rd_kafka_queue_get_partition(self.client.raw(), topic.as_ptr(), partition);
            if queue.is_null() {
                return Err(Failure::new(
                    Code::RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION,
                    "the client does not know this partition",
                ));
            }
            rd::rd_kafka_queue_forward(queue, self.raw());
            rd::rd_kafka_queue_destroy(queue);
        }
        Ok(())
    }

    /// Ends a wait on this queue: the one under way, or else the next one.
    pub fn wake(&self) {
        // SAFETY: the queue is alive.
        unsafe { rd::rd_kafka_queue_yield(self.raw()) }
    }

    /// Ends a wait on this queue whenever the client has an event.
    pub fn wake_on_events(&self) {
        // SAFETY: the callback only touches this queue, and is removed before the queue is destroyed.
        unsafe { rd::rd_kafka_queue_cb_event_enable(self.client.events(), Some(wake), self.raw().cast()) }
    }

    /// Reverts [`Queue::wake_on_events`].
    pub fn sleep_on_events(&self) {
        // SAFETY: the queue of events is alive; librdkafka swaps the callback under the queue's lock.
        unsafe { rd::rd_kafka_queue_cb_event_enable(self.client.events(), None, ptr::null_mut()) }
    }
}

/// Ends a wait on the queue that `queue` points to.
unsafe extern "C" fn wake(_client: *mut rd::rd_kafka_t, queue: *mut c_void) {
    // SAFETY: `wake_on_events` gave a queue that lives until the callback is removed.
    unsafe { rd::rd_kafka_queue_yield(queue.cast()) }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: owned; the client is still alive.
        unsafe { rd::rd_kafka_queue_destroy(self.raw()) }
    }
}
