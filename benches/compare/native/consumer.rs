//! A consumer of one topic that takes what is there in one call.

use std::ffi::{CStr, CString};

use rdkafka::bindings as rd;

use super::{Properties, client, refused};
use crate::failure::{Context as _, Outcome, fail};

/// Messages that were read; they live until they are cleared.
#[derive(Default)]
pub struct Messages(Vec<*mut rd::rd_kafka_message_t>);

impl Messages {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those from `start` on.
    pub fn from(&self, start: usize) -> impl Iterator<Item = &rd::rd_kafka_message_t> {
        // SAFETY: they are owned, and destroyed only in `clear`.
        self.0[start..].iter().map(|&message| unsafe { &*message })
    }

    pub fn clear(&mut self) {
        for message in self.0.drain(..) {
            // SAFETY: owned, and no longer borrowed.
            unsafe { rd::rd_kafka_message_destroy(message) }
        }
    }
}

impl Drop for Messages {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Reads some partitions of a topic.
pub struct Consumer {
    raw: *mut rd::rd_kafka_t,
    topic: CString,
    /// All of its partitions' records arrive here.
    queue: *mut rd::rd_kafka_queue_t,
    partitions: Vec<*mut rd::rd_kafka_queue_t>,
}

// SAFETY: librdkafka's handles may be used by any thread.
unsafe impl Send for Consumer {}

impl Consumer {
    /// Reads the partitions in `own` from `offset` on, which may be one of librdkafka's logical ones.
    pub fn open(properties: Properties, topic: &str, own: &[i32], offset: i32) -> Outcome<Consumer> {
        let raw = client(rd::rd_kafka_type_t::RD_KAFKA_CONSUMER, properties)?;
        let topic = CString::new(topic).context("topic")?;
        // SAFETY: the client is alive and names end in NUL; the queues are owned.
        unsafe {
            rd::rd_kafka_poll_set_consumer(raw);
            let queue = rd::rd_kafka_queue_new(raw);
            let list = rd::rd_kafka_topic_partition_list_new(own.len() as i32);
            for &partition in own {
                let element = rd::rd_kafka_topic_partition_list_add(list, topic.as_ptr(), partition);
                (*element).offset = i64::from(offset);
            }
            let assigned = rd::rd_kafka_assign(raw, list);
            rd::rd_kafka_topic_partition_list_destroy(list);
            refused(assigned, "assigning partitions")?;
            let mut partitions = Vec::new();
            for &partition in own {
                let one = rd::rd_kafka_queue_get_partition(raw, topic.as_ptr(), partition);
                if one.is_null() {
                    fail!("partition {partition} has no queue");
                }
                rd::rd_kafka_queue_forward(one, queue);
                partitions.push(one);
            }
            Ok(Consumer { raw, topic, queue, partitions })
        }
    }

    /// Takes what is there, up to `most`; waits for a first record if there is none.
    pub fn take(&self, into: &mut Messages, most: usize, wait_ms: i32) -> Outcome<()> {
        // A call with room for many would wait until all of it is filled.
        if self.call(into, most, 0)? == 0 && self.call(into, 1, wait_ms)? > 0 {
            self.call(into, most - 1, 0)?;
        }
        Ok(())
    }

    fn call(&self, into: &mut Messages, most: usize, wait_ms: i32) -> Outcome<usize> {
        let before = into.len();
        into.0.reserve(most);
        // SAFETY: there is room for `most`, and librdkafka says how many it has written.
        let taken = unsafe {
            let room = into.0.as_mut_ptr().add(before);
            let taken = rd::rd_kafka_consume_batch_queue(self.queue, wait_ms, room, most);
            let taken = usize::try_from(taken).unwrap_or(0);
            into.0.set_len(before + taken);
            taken
        };
        into.from(before).try_for_each(|message| refused(message.err, "reading"))?;
        Ok(taken)
    }

    /// The client, for its group's metadata.
    pub(super) fn raw(&self) -> *mut rd::rd_kafka_t {
        self.raw
    }

    pub(super) fn topic(&self) -> &CStr {
        &self.topic
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        // SAFETY: owned; the queues are destroyed before their client.
        unsafe {
            self.partitions.drain(..).for_each(|queue| rd::rd_kafka_queue_destroy(queue));
            rd::rd_kafka_queue_destroy(self.queue);
            rd::rd_kafka_consumer_close(self.raw);
            rd::rd_kafka_destroy(self.raw);
        }
    }
}
