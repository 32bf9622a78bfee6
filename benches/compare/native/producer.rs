//! A producer that sends many records in one call. Only failures are reported.

use std::ffi::CString;
use std::ptr;
use std::time::Duration;

use rdkafka::bindings as rd;

use super::consumer::Consumer;
use super::{Properties, client, refused, taken};
use crate::failure::{Context as _, Outcome, fail};

/// How long a call may wait for the broker.
const CALL_MS: i32 = 30_000;
/// How long to wait before a full queue is tried again.
const FULL_STEP: Duration = Duration::from_micros(200);
/// RD_KAFKA_PARTITION_UA.
const PARTITION_UNASSIGNED: i32 = -1;

/// Writes to its topics.
pub struct Producer {
    raw: *mut rd::rd_kafka_t,
    events: *mut rd::rd_kafka_queue_t,
    topics: Vec<*mut rd::rd_kafka_topic_t>,
}

/// A topic of a producer.
#[derive(Clone, Copy, Debug)]
pub struct Topic(usize);

// SAFETY: librdkafka's handles may be used by any thread.
unsafe impl Send for Producer {}

/// A record to send. The compiler does not know that it borrows its key and value: see [`Producer::send`].
pub fn record(partition: i32, key: &[u8], value: &[u8]) -> rd::rd_kafka_message_t {
    rd::rd_kafka_message_t {
        err: rd::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR,
        rkt: ptr::null_mut(),
        partition,
        payload: value.as_ptr().cast_mut().cast(),
        len: value.len(),
        key: key.as_ptr().cast_mut().cast(),
        key_len: key.len(),
        offset: 0,
        _private: ptr::null_mut(),
    }
}

/// Where a batch goes.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    /// All of it to one partition.
    One(i32),
    /// Each record to its own.
    Own,
}

impl Producer {
    pub fn open(properties: Properties) -> Outcome<Producer> {
        let raw = client(rd::rd_kafka_type_t::RD_KAFKA_PRODUCER, properties)?;
        // SAFETY: the client is alive.
        let events = unsafe { rd::rd_kafka_queue_get_main(raw) };
        Ok(Producer { raw, events, topics: Vec::new() })
    }

    pub fn topic(&mut self, name: &str) -> Outcome<Topic> {
        let c_name = CString::new(name).context("topic")?;
        // SAFETY: the client is alive; it creates its own configuration.
        let raw = unsafe { rd::rd_kafka_topic_new(self.raw, c_name.as_ptr(), ptr::null_mut()) };
        if raw.is_null() {
            fail!("there can be no topic {name}");
        }
        self.topics.push(raw);
        Ok(Topic(self.topics.len() - 1))
    }

    /// To be called before the first transaction.
    pub fn init_transactions(&self) -> Outcome<()> {
        // SAFETY: the client is alive.
        unsafe { taken(rd::rd_kafka_init_transactions(self.raw, CALL_MS), "initialising transactions") }
    }

    pub fn begin(&self) -> Outcome<()> {
        // SAFETY: the client is alive.
        unsafe { taken(rd::rd_kafka_begin_transaction(self.raw), "beginning a transaction") }
    }

    /// Sends a whole batch; waits while the queue is full.
    ///
    /// # Safety
    /// Keys and values are readable.
    pub unsafe fn send(&self, topic: Topic, target: Target, batch: &mut Vec<rd::rd_kafka_message_t>) -> Outcome<()> {
        use rd::rd_kafka_resp_err_t as code;
        let (partition, flags) = match target {
            Target::One(partition) => (partition, rd::RD_KAFKA_MSG_F_COPY),
            Target::Own => (PARTITION_UNASSIGNED, rd::RD_KAFKA_MSG_F_COPY | rd::RD_KAFKA_MSG_F_PARTITION),
        };
        let topic = self.topics[topic.0];
        loop {
            let length = batch.len() as i32;
            // SAFETY: by the caller's promise; the topic is this client's, and everything is copied.
            let sent = unsafe { rd::rd_kafka_produce_batch(topic, partition, flags, batch.as_mut_ptr(), length) };
            if sent == length {
                return Ok(());
            }
            batch.retain(|message| message.err != code::RD_KAFKA_RESP_ERR_NO_ERROR);
            match batch.iter().find(|message| message.err != code::RD_KAFKA_RESP_ERR__QUEUE_FULL) {
                Some(message) => refused(message.err, "sending")?,
                None => std::thread::sleep(FULL_STEP),
            }
        }
    }

    /// Commits the transaction with these offsets of the consumer's topic; returns once it is committed.
    pub fn commit(&self, consumer: &Consumer, next: &[Option<i64>]) -> Outcome<()> {
        // SAFETY: all handles are alive, and what is created here is destroyed here.
        unsafe {
            let list = rd::rd_kafka_topic_partition_list_new(next.len() as i32);
            for (partition, offset) in next.iter().enumerate() {
                if let Some(offset) = offset {
                    let topic = consumer.topic().as_ptr();
                    let element = rd::rd_kafka_topic_partition_list_add(list, topic, partition as i32);
                    (*element).offset = *offset;
                }
            }
            let group = rd::rd_kafka_consumer_group_metadata(consumer.raw());
            let offsets = rd::rd_kafka_send_offsets_to_transaction(self.raw, list, group, CALL_MS);
            rd::rd_kafka_consumer_group_metadata_destroy(group);
            rd::rd_kafka_topic_partition_list_destroy(list);
            taken(offsets, "adding offsets")?;
            taken(rd::rd_kafka_commit_transaction(self.raw, CALL_MS), "committing")?;
        }
        self.check()
    }

    /// Waits until everything is acknowledged.
    pub fn flush(&self) -> Outcome<()> {
        // SAFETY: the client is alive.
        refused(unsafe { rd::rd_kafka_flush(self.raw, CALL_MS) }, "waiting for acknowledgements")?;
        self.check()
    }

    /// Fails if a record was not delivered. Reports are for errors only, and an error ends the run.
    pub fn check(&self) -> Outcome<()> {
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
        // SAFETY: owned; queue and topics are destroyed before their client.
        unsafe {
            rd::rd_kafka_queue_destroy(self.events);
            self.topics.drain(..).for_each(|topic| rd::rd_kafka_topic_destroy(topic));
            rd::rd_kafka_destroy(self.raw);
        }
    }
}
