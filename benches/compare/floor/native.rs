//! The calls of librdkafka that the floor makes.

use std::ffi::{CStr, CString, c_char};
use std::ptr;
use std::time::Duration;

use rdkafka::bindings as rd;

use super::{RawMessage, refused};
use crate::failure::{Context as _, Failure, Outcome, fail};

/// One call that waits for the broker.
const CALL_MS: i32 = 30_000;
/// A full queue is tried again so soon.
const FULL_STEP: Duration = Duration::from_micros(200);

/// Reads its partitions from where its group left off, or from their start.
pub struct Consumer {
    raw: *mut rd::rd_kafka_t,
    topic: CString,
    /// All of its partitions' records arrive here.
    queue: *mut rd::rd_kafka_queue_t,
    partitions: Vec<*mut rd::rd_kafka_queue_t>,
}

impl Consumer {
    pub fn open(brokers: &str, group: &str, topic: &str, own: &[i32]) -> Outcome<Consumer> {
        let properties = [
            ("bootstrap.servers", brokers),
            ("group.id", group),
            ("enable.auto.commit", "false"),
            ("auto.offset.reset", "earliest"),
            ("isolation.level", "read_committed"),
            ("fetch.queue.backoff.ms", "5"),
            ("queued.min.messages", "1000000"),
            ("queued.max.messages.kbytes", "65536"),
            ("check.crcs", "false"),
        ];
        let raw = client(rd::rd_kafka_type_t::RD_KAFKA_CONSUMER, &properties)?;
        let topic = CString::new(topic).context("topic")?;
        // SAFETY: the client is alive and names end in NUL; the queues are owned.
        unsafe {
            rd::rd_kafka_poll_set_consumer(raw);
            let queue = rd::rd_kafka_queue_new(raw);
            let list = rd::rd_kafka_topic_partition_list_new(own.len() as i32);
            for &partition in own {
                let element = rd::rd_kafka_topic_partition_list_add(list, topic.as_ptr(), partition);
                (*element).offset = i64::from(rd::RD_KAFKA_OFFSET_STORED);
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
    pub fn take(&self, into: &mut Vec<RawMessage>, most: usize, wait_ms: i32) -> Outcome<()> {
        // A call with room for many waits until all of it is filled.
        if self.call(into, most, 0)? == 0 && self.call(into, 1, wait_ms)? > 0 {
            self.call(into, most - 1, 0)?;
        }
        Ok(())
    }

    fn call(&self, into: &mut Vec<RawMessage>, most: usize, wait_ms: i32) -> Outcome<usize> {
        let before = into.len();
        into.reserve(most);
        // SAFETY: there is room for `most`, and librdkafka says how many it has written.
        let taken = unsafe {
            let taken = rd::rd_kafka_consume_batch_queue(self.queue, wait_ms, into.as_mut_ptr().add(before), most);
            let taken = usize::try_from(taken).unwrap_or(0);
            into.set_len(before + taken);
            taken
        };
        for &message in &into[before..] {
            // SAFETY: it was taken a moment ago.
            refused(unsafe { (*message).err }, "reading")?;
        }
        Ok(taken)
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        // SAFETY: owned. The client is left to the end of the process, which is near.
        unsafe {
            self.partitions.drain(..).for_each(|queue| rd::rd_kafka_queue_destroy(queue));
            rd::rd_kafka_queue_destroy(self.queue);
            rd::rd_kafka_consumer_close(self.raw);
        }
    }
}

/// Writes in transactions.
pub struct Producer {
    raw: *mut rd::rd_kafka_t,
    events: *mut rd::rd_kafka_queue_t,
}

/// A topic of a producer that outlives it.
pub struct Topic(*mut rd::rd_kafka_topic_t);

impl Producer {
    pub fn open(brokers: &str, id: &str) -> Outcome<Producer> {
        let properties = [
            ("bootstrap.servers", brokers),
            ("transactional.id", id),
            ("linger.ms", "5"),
            ("batch.size", "1000000"),
            ("batch.num.messages", "100000"),
            ("queue.buffering.max.messages", "10000000"),
            ("queue.buffering.max.kbytes", "2000000"),
            ("delivery.report.only.error", "true"),
        ];
        let raw = client(rd::rd_kafka_type_t::RD_KAFKA_PRODUCER, &properties)?;
        // SAFETY: the client is alive.
        unsafe {
            taken(rd::rd_kafka_init_transactions(raw, CALL_MS), "initialising transactions")?;
            Ok(Producer { raw, events: rd::rd_kafka_queue_get_main(raw) })
        }
    }

    pub fn topic(&self, name: &str) -> Outcome<Topic> {
        let c_name = CString::new(name).context("topic")?;
        // SAFETY: the client is alive; it makes a configuration of its own.
        let raw = unsafe { rd::rd_kafka_topic_new(self.raw, c_name.as_ptr(), ptr::null_mut()) };
        if raw.is_null() {
            fail!("there can be no topic {name}");
        }
        Ok(Topic(raw))
    }

    pub fn begin(&self) -> Outcome<()> {
        // SAFETY: the client is alive.
        unsafe { taken(rd::rd_kafka_begin_transaction(self.raw), "beginning a transaction") }
    }

    /// Hands a batch over, all of it.
    ///
    /// # Safety
    /// Keys and values are readable.
    pub unsafe fn send(&self, topic: &Topic, partition: i32, batch: &mut Vec<rd::rd_kafka_message_t>) -> Outcome<()> {
        use rd::rd_kafka_resp_err_t as code;
        loop {
            let length = batch.len();
            // SAFETY: by the caller's promise; the topic is this client's, and all is copied.
            let sent = unsafe {
                rd::rd_kafka_produce_batch(
                    topic.0,
                    partition,
                    rd::RD_KAFKA_MSG_F_COPY,
                    batch.as_mut_ptr(),
                    length as i32,
                )
            };
            if sent == length as i32 {
                return Ok(());
            }
            batch.retain(|message| message.err != code::RD_KAFKA_RESP_ERR_NO_ERROR);
            match batch.iter().find(|message| message.err != code::RD_KAFKA_RESP_ERR__QUEUE_FULL) {
                Some(message) => refused(message.err, "sending")?,
                None => std::thread::sleep(FULL_STEP),
            }
        }
    }

    /// Commits the transaction with these offsets of the consumer's topic; returns when it stands.
    pub fn commit(&self, consumer: &Consumer, next: &[Option<i64>]) -> Outcome<()> {
        // SAFETY: all handles are alive, and what is made here is destroyed here.
        unsafe {
            let list = rd::rd_kafka_topic_partition_list_new(next.len() as i32);
            for (partition, offset) in next.iter().enumerate() {
                if let Some(offset) = offset {
                    let topic = consumer.topic.as_ptr();
                    let element = rd::rd_kafka_topic_partition_list_add(list, topic, partition as i32);
                    (*element).offset = *offset;
                }
            }
            let group = rd::rd_kafka_consumer_group_metadata(consumer.raw);
            let offsets = rd::rd_kafka_send_offsets_to_transaction(self.raw, list, group, CALL_MS);
            rd::rd_kafka_consumer_group_metadata_destroy(group);
            rd::rd_kafka_topic_partition_list_destroy(list);
            taken(offsets, "adding offsets")?;
            taken(rd::rd_kafka_commit_transaction(self.raw, CALL_MS), "committing")?;
        }
        self.failures()
    }

    /// Delivery reports are for errors only, and an error ends the run.
    fn failures(&self) -> Outcome<()> {
        loop {
            // SAFETY: the queue is alive and the event is destroyed here.
            unsafe {
                let event = rd::rd_kafka_queue_poll(self.events, 0);
                if event.is_null() {
                    return Ok(());
                }
                let (kind, code) = (rd::rd_kafka_event_type(event), rd::rd_kafka_event_error(event));
                rd::rd_kafka_event_destroy(event);
                if kind == rd::RD_KAFKA_EVENT_DR {
                    refused(code, "delivering")?;
                    fail!("a record was not delivered");
                }
            }
        }
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        // SAFETY: owned. Client and topics are left to the end of the process.
        unsafe { rd::rd_kafka_queue_destroy(self.events) }
    }
}

/// A client with these properties.
fn client(kind: rd::rd_kafka_type_t, properties: &[(&str, &str)]) -> Outcome<*mut rd::rd_kafka_t> {
    let mut words = [0 as c_char; 512];
    // SAFETY: strings end in NUL and the buffer is as long as is said; the client takes the configuration over.
    unsafe {
        let conf = rd::rd_kafka_conf_new();
        for (name, value) in properties {
            let (name, value) = (CString::new(*name).context("name")?, CString::new(*value).context("value")?);
            let set = rd::rd_kafka_conf_set(conf, name.as_ptr(), value.as_ptr(), words.as_mut_ptr(), words.len());
            if set != rd::rd_kafka_conf_res_t::RD_KAFKA_CONF_OK {
                fail!("{}", CStr::from_ptr(words.as_ptr()).to_string_lossy());
            }
        }
        // Reports as events: then a commit waits on the count of what is under way and not in steps.
        rd::rd_kafka_conf_set_events(conf, rd::RD_KAFKA_EVENT_DR | rd::RD_KAFKA_EVENT_ERROR);
        let raw = rd::rd_kafka_new(kind, conf, words.as_mut_ptr(), words.len());
        if raw.is_null() {
            fail!("{}", CStr::from_ptr(words.as_ptr()).to_string_lossy());
        }
        Ok(raw)
    }
}

/// Takes an error object over.
///
/// # Safety
/// It is null or owned by the caller.
unsafe fn taken(error: *mut rd::rd_kafka_error_t, what: &str) -> Outcome<()> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: by the caller's promise.
    let words = unsafe {
        let words = CStr::from_ptr(rd::rd_kafka_error_string(error)).to_string_lossy().into_owned();
        rd::rd_kafka_error_destroy(error);
        words
    };
    Err(Failure(format!("{what}: {words}")))
}
