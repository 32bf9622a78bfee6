//! Records on their way into librdkafka: one by one, or many at once to one partition, which costs half as much
//! and is open only to records that have no headers and no time of their own.
//!
//! **Failure**: a queue that is full is waited for ([`Patience`]); anything else is told at once.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::time::{Duration, Instant};

use rdkafka::bindings as rd;

use super::errors::{Code, Failure};
use super::native::Client;
use super::threads::Reports;
use crate::cluster::{Error, Kind, Message, Ticket};
use crate::record::Headers;

/// Records handed over in one call.
pub(super) const SEND_RECORDS_MAX: usize = 1024;
/// How often a full queue is tried again.
const QUEUE_STEP: Duration = Duration::from_millis(1);

/// A record's headers as librdkafka takes them; null for none.
fn c_headers(headers: Headers<'_>) -> *mut rd::rd_kafka_headers_t {
    if headers.is_empty() {
        return ptr::null_mut();
    }
    // SAFETY: the list is new; it copies names and values, whose lengths are given.
    unsafe {
        let list = rd::rd_kafka_headers_new(headers.iter().count());
        for header in headers.iter() {
            let (value, size) = header.value.map_or((ptr::null(), 0), |value| (value.as_ptr(), value.len()));
            let name = header.name;
            rd::rd_kafka_header_add(
                list,
                name.as_ptr().cast(),
                name.len().cast_signed(),
                value.cast(),
                size.cast_signed(),
            );
        }
        list
    }
}

/// Bytes as librdkafka takes them; null for null.
fn c_bytes(bytes: Option<&[u8]>) -> (*const c_void, usize) {
    bytes.map_or((ptr::null(), 0), |bytes| (bytes.as_ptr().cast(), bytes.len()))
}

/// Hands a record over, once.
///
/// # Safety
/// `topic` is a topic of `client`.
pub(super) unsafe fn produce(
    client: &Client,
    topic: *mut rd::rd_kafka_topic_t,
    ticket: Ticket,
    message: &Message<'_>,
) -> Option<Failure> {
    use rd::rd_kafka_vtype_t as part;
    let (key, key_size) = c_bytes(message.key);
    let (value, value_size) = c_bytes(message.value);
    let headers = c_headers(message.headers);
    let opaque: *mut c_void = ptr::without_provenance_mut(Reports::opaque(ticket));
    // SAFETY: each part is followed by what librdkafka's documentation says, and the end. It copies key
    // and value, and takes the headers over unless it fails.
    let code = unsafe {
        rd::rd_kafka_producev(
            client.raw(),
            part::RD_KAFKA_VTYPE_RKT,
            topic,
            part::RD_KAFKA_VTYPE_PARTITION,
            message.partition,
            part::RD_KAFKA_VTYPE_MSGFLAGS,
            rd::RD_KAFKA_MSG_F_COPY,
            part::RD_KAFKA_VTYPE_KEY,
            key,
            key_size,
            part::RD_KAFKA_VTYPE_VALUE,
            value,
            value_size,
            part::RD_KAFKA_VTYPE_HEADERS,
            headers,
            // 0 stands for the present, so a record that says 0 gets the present too.
            part::RD_KAFKA_VTYPE_TIMESTAMP,
            message.timestamp.unwrap_or(0),
            part::RD_KAFKA_VTYPE_OPAQUE,
            opaque,
            part::RD_KAFKA_VTYPE_END,
        )
    };
    let failure = Failure::of(code)?;
    if !headers.is_null() {
        // SAFETY: still ours, as the call failed.
        unsafe { rd::rd_kafka_headers_destroy(headers) }
    }
    Some(failure)
}

/// A record of [`cluster::Producer::send_all`] as librdkafka takes it, which copies key and value.
pub(super) fn c_message(key: &[u8], value: Option<&[u8]>, opaque: usize) -> rd::rd_kafka_message_t {
    let (value, value_size) = c_bytes(value);
    rd::rd_kafka_message_t {
        err: Code::RD_KAFKA_RESP_ERR_NO_ERROR,
        rkt: ptr::null_mut(),
        partition: 0,
        payload: value.cast_mut(),
        len: value_size,
        key: key.as_ptr().cast_mut().cast(),
        key_len: key.len(),
        offset: 0,
        _private: ptr::without_provenance_mut(opaque),
    }
}

/// Hands records over, once; those that are not taken have an error afterwards.
///
/// # Safety
/// `topic` is alive, and so are keys and values.
pub(super) unsafe fn produce_batch(
    topic: *mut rd::rd_kafka_topic_t,
    partition: i32,
    batch: &mut [rd::rd_kafka_message_t],
) {
    let count = c_int::try_from(batch.len()).expect("a batch is small");
    // SAFETY: by the caller's promise; as many messages as is said.
    unsafe { rd::rd_kafka_produce_batch(topic, partition, rd::RD_KAFKA_MSG_F_COPY, batch.as_mut_ptr(), count) };
}

/// For how long a full queue is waited for.
pub(super) struct Patience {
    max: Duration,
    since: Option<Instant>,
}

impl Patience {
    /// Waits for `max` altogether.
    pub fn new(max: Duration) -> Self {
        Self { max, since: None }
    }

    /// Waits a little if it is the queue that is full; else, or if that lasts for too long, what the failure means.
    pub fn endure(&mut self, failure: &Failure, topic: &str, partition: i32) -> Result<(), Error> {
        let what = format_args!("sending to {topic}:{partition}");
        if failure.refuses_record() {
            return Err(Error::new(Kind::Refused, format!("{what}: {failure}")));
        }
        if failure.code != Code::RD_KAFKA_RESP_ERR__QUEUE_FULL {
            let kind = match failure.code {
                Code::RD_KAFKA_RESP_ERR__FATAL | Code::RD_KAFKA_RESP_ERR__FENCED => Kind::Fenced,
                // A missing topic or partition concerns the task, not this record alone.
                _ => Kind::Abort,
            };
            return Err(Error::new(kind, format!("{what}: {failure}")));
        }
        if self.since.get_or_insert_with(Instant::now).elapsed() >= self.max {
            return Err(Error::new(Kind::Abort, format!("{what}: the queue has been full for too long")));
        }
        std::thread::sleep(QUEUE_STEP);
        Ok(())
    }
}
