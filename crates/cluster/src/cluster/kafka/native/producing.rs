//! A transactional producer's calls. Records are handed over one by one, or many at once for one partition, which costs
//! half as much and is possible only for records without headers and timestamp.

use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::ptr;
use std::time::Duration;

use rdkafka::bindings as rd;

use super::super::errors::{Code, Failure};
use super::client::Client;
use super::consuming::GroupMetadata;
use super::conversions::c_millis;
use super::list::List;
use super::topic::Topic;
use crate::cluster::Message;
use crate::record::Headers;

impl Client {
    /// Ends what is open under the transactional id, and takes over the id.
    pub fn init_transactions(&self, wait: Duration) -> Option<Failure> {
        // SAFETY: the client is alive; the error is owned.
        unsafe { Failure::take(rd::rd_kafka_init_transactions(self.raw(), c_millis(wait))) }
    }

    /// Opens a transaction.
    pub fn begin_transaction(&self) -> Option<Failure> {
        // SAFETY: the client is alive; the error is owned.
        unsafe { Failure::take(rd::rd_kafka_begin_transaction(self.raw())) }
    }

    /// Adds a group's offsets to the transaction.
    pub fn send_offsets(&self, offsets: &List, group: &GroupMetadata, wait: Duration) -> Option<Failure> {
        // SAFETY: all three are alive; the error is owned.
        unsafe {
            let wait = c_millis(wait);
            Failure::take(rd::rd_kafka_send_offsets_to_transaction(self.raw(), offsets.raw(), group.raw(), wait))
        }
    }

    /// Commits the transaction, once everything was delivered.
    pub fn commit_transaction(&self, wait: Duration) -> Option<Failure> {
        // SAFETY: the client is alive; the error is owned.
        unsafe { Failure::take(rd::rd_kafka_commit_transaction(self.raw(), c_millis(wait))) }
    }

    /// Ends the transaction without effect.
    pub fn abort_transaction(&self, wait: Duration) -> Option<Failure> {
        // SAFETY: the client is alive; the error is owned.
        unsafe { Failure::take(rd::rd_kafka_abort_transaction(self.raw(), c_millis(wait))) }
    }

    /// How many records were handed over whose reports have not been handled yet.
    pub fn in_flight(&self) -> usize {
        // SAFETY: the client is alive.
        usize::try_from(unsafe { rd::rd_kafka_outq_len(self.raw()) }).unwrap_or(0)
    }
}

/// Records for one partition, to be handed over in one call; keys and values are copied then.
pub struct Batch<'a> {
    records: Vec<rd::rd_kafka_message_t>,
    _bytes: PhantomData<&'a [u8]>,
}

impl<'a> Batch<'a> {
    /// Room for this many records; reusable.
    pub fn with_capacity(records: usize) -> Self {
        Self { records: Vec::with_capacity(records), _bytes: PhantomData }
    }

    /// Adds a record; `opaque` is the number in its report.
    pub fn push(&mut self, key: &'a [u8], value: Option<&'a [u8]>, opaque: usize) {
        let (value, value_size) = c_bytes(value);
        self.records.push(rd::rd_kafka_message_t {
            err: Code::RD_KAFKA_RESP_ERR_NO_ERROR,
            rkt: ptr::null_mut(),
            partition: 0,
            payload: value.cast_mut(),
            len: value_size,
            key: key.as_ptr().cast_mut().cast(),
            key_len: key.len(),
            offset: 0,
            _private: ptr::without_provenance_mut(opaque),
        });
    }

    /// Whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }
}

impl Topic {
    /// Makes one attempt to hand over a record. `opaque` is the number in its report.
    pub fn produce(&self, opaque: usize, message: &Message<'_>) -> Option<Failure> {
        use rd::rd_kafka_vtype_t as part;
        let (key, key_size) = c_bytes(message.key);
        let (value, value_size) = c_bytes(message.value);
        let headers = c_headers(message.headers);
        let opaque: *mut c_void = ptr::without_provenance_mut(opaque);
        // SAFETY: client and topic are alive; each part is followed by what librdkafka's documentation says, then the
        // end marker. It copies key and value, and takes ownership of the headers unless it fails.
        let code = unsafe {
            rd::rd_kafka_producev(
                self.client().raw(),
                part::RD_KAFKA_VTYPE_RKT,
                self.raw(),
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
                // 0 means the current time, so a record with timestamp 0 gets the current time too.
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

    /// Makes one attempt to hand over records for a partition; those accepted are removed from the batch. Returns the
    /// worst failure of the others: any other one rather than a full queue, which accepts nothing after its first
    /// rejection.
    pub fn produce_all(&self, partition: i32, batch: &mut Batch<'_>) -> Option<Failure> {
        let records = &mut batch.records;
        let count = c_int::try_from(records.len()).expect("a batch is small");
        // SAFETY: topic, keys and values are alive; there are `count` records.
        unsafe {
            rd::rd_kafka_produce_batch(self.raw(), partition, rd::RD_KAFKA_MSG_F_COPY, records.as_mut_ptr(), count);
        }
        records.retain(|record| record.err != Code::RD_KAFKA_RESP_ERR_NO_ERROR);
        let codes = || records.iter().map(|record| record.err);
        let worst = codes().find(|code| *code != Code::RD_KAFKA_RESP_ERR__QUEUE_FULL).or(codes().next());
        worst.and_then(Failure::of)
    }
}

/// A record's headers in librdkafka's form; null for none.
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

/// Pointer and length for librdkafka; null for `None`.
fn c_bytes(bytes: Option<&[u8]>) -> (*const c_void, usize) {
    bytes.map_or((ptr::null(), 0), |bytes| (bytes.as_ptr().cast(), bytes.len()))
}
