//! Records as librdkafka holds them: a batch owns the messages, and a [`Record`] borrows their bytes
//! without copying key or value.
//!
//! Invariants: every message is destroyed once, by [`Batch::clear`] or on drop, before the client that it
//! came from (the batch holds an `Arc` of it); `messages`, `partition_indexes` and `headers_at`
//! have one element per record.
//!
//! **Failure**: a message that stands for an error never gets into a batch, nor does one whose headers cannot be read;
//! it is passed to the caller's closure.

use std::ffi::{CStr, c_char, c_void};
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::Duration;

use rdkafka::bindings as rd;

use super::super::errors::{Code, Failure};
use super::super::unpack::shadowed;
use super::super::wire::headers as wire_headers;
use super::client::Client;
use super::conversions::c_millis;
use super::queue::Queue;
use crate::cluster::RecordBatch;
use crate::record::{HeaderBuf, Headers, Record, TopicPartition};

/// Records that were read. See [`RecordBatch`].
#[derive(Default)]
pub struct Batch {
    messages: Vec<*mut rd::rd_kafka_message_t>,
    partition_indexes: Vec<u32>,
    headers_at: Vec<Range<usize>>,
    headers: HeaderBuf,
    partitions: Arc<[TopicPartition]>,
    client: Option<Arc<Client>>,
}

// SAFETY: the messages are owned and may be read and destroyed from any thread.
unsafe impl Send for Batch {}

/// A message on its way into a batch.
#[derive(Clone, Copy)]
pub(in super::super) struct Incoming<'a> {
    message: &'a rd::rd_kafka_message_t,
    /// Why its headers cannot be read, if they cannot.
    unreadable: Option<&'a Failure>,
}

impl Incoming<'_> {
    /// Identifies the topic more cheaply than its name. Valid for as long as the
    /// topic's partitions are assigned.
    pub fn topic_handle(&self) -> usize {
        self.message.rkt.addr()
    }

    /// The topic's name.
    pub fn topic(&self) -> &str {
        if self.message.rkt.is_null() {
            return "";
        }
        // SAFETY: the message holds its topic, and the topic its name; Kafka's topic names are ASCII.
        unsafe { CStr::from_ptr(rd::rd_kafka_topic_name(self.message.rkt)) }.to_str().unwrap_or("")
    }

    /// The partition.
    pub fn partition(&self) -> i32 {
        self.message.partition
    }

    /// The offset; for an error, where it happened.
    pub fn offset(&self) -> i64 {
        self.message.offset
    }

    /// The epoch of the leader that wrote the record; negative if unknown.
    pub fn epoch(&self) -> i32 {
        // SAFETY: the message is alive, and only read.
        unsafe { rd::rd_kafka_message_leader_epoch(self.message) }
    }

    /// The error that it stands for, if it is not a readable record.
    pub fn failure(&self) -> Option<Failure> {
        if let Some(unreadable) = self.unreadable {
            return Some(unreadable.clone());
        }
        let mut failure = Failure::of(self.message.err)?;
        // SAFETY: for an error, the message owns a string with librdkafka's message, or none.
        let text = unsafe { rd::rd_kafka_message_errstr(self.message) };
        if !text.is_null() {
            // SAFETY: as above; it ends in NUL.
            failure.message = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
        }
        Some(failure)
    }

    /// Whether it is a readable record.
    pub fn is_record(&self) -> bool {
        self.message.err == Code::RD_KAFKA_RESP_ERR_NO_ERROR && self.unreadable.is_none()
    }

    /// Whether it is an error that librdkafka does not know of: librdkafka reads on after it.
    pub fn is_passed_over(&self) -> bool {
        self.unreadable.is_some()
    }
}

impl Batch {
    /// Destroys all messages and keeps the memory.
    pub fn clear(&mut self) {
        for message in self.messages.drain(..) {
            // SAFETY: owned, and destroyed only here.
            unsafe { rd::rd_kafka_message_destroy(message) }
        }
        self.partition_indexes.clear();
        self.headers_at.clear();
        self.headers.clear();
        self.client = None;
    }

    /// Clears the batch, then takes what is in `queue`, up to `records_max`, waiting up to `wait` for
    /// a first record. `sort` returns which of `partitions` a message is from, or `None` to drop it.
    pub(in super::super) fn fill(
        &mut self,
        queue: &Queue,
        partitions: &Arc<[TopicPartition]>,
        records_max: usize,
        wait: Duration,
        mut sort: impl FnMut(Incoming<'_>) -> Option<u32>,
    ) {
        self.clear();
        self.partitions = Arc::clone(partitions);
        self.client = Some(Arc::clone(queue.client()));
        // A call with room for many waits until it is full: so wait for one, then take the rest. The call that waits
        // comes first: any other that finds nothing would use up a wake-up, and the wait would not end.
        if self.take(queue, records_max.min(1), wait, &mut sort) > 0 {
            self.take(queue, records_max - self.len(), Duration::ZERO, &mut sort);
        }
    }

    /// One call to librdkafka; returns how many messages came, dropped ones included.
    fn take(
        &mut self,
        queue: &Queue,
        max: usize,
        wait: Duration,
        sort: &mut impl FnMut(Incoming<'_>) -> Option<u32>,
    ) -> usize {
        let before = self.messages.len();
        self.messages.reserve(max);
        // SAFETY: there is room for `max` pointers after `before`, and librdkafka returns how many it wrote.
        let taken = unsafe {
            let room = self.messages.as_mut_ptr().add(before);
            let taken = rd::rd_kafka_consume_batch_queue(queue.raw(), c_millis(wait), room, max);
            let taken = usize::try_from(taken).unwrap_or(0);
            self.messages.set_len(before + taken);
            taken
        };
        let mut kept = before;
        for index in before..before + taken {
            let raw = self.messages[index];
            // SAFETY: the message is owned and alive; it is destroyed or kept below.
            let headers = unsafe { FoundHeaders::of(raw) };
            // SAFETY: as above.
            let message = Incoming { message: unsafe { &*raw }, unreadable: headers.as_ref().err() };
            let partition_index = sort(message).filter(|_| message.is_record());
            match partition_index.zip(headers.ok()) {
                Some((partition_index, headers)) => {
                    self.partition_indexes.push(partition_index);
                    self.messages[kept] = raw;
                    kept += 1;
                    self.copy_headers(&headers);
                }
                // SAFETY: owned, and never touched again: its slot is overwritten or cut off.
                None => unsafe { rd::rd_kafka_message_destroy(raw) },
            }
        }
        // SAFETY: `kept` messages are owned; those after them were destroyed or moved.
        unsafe { self.messages.set_len(kept) };
        taken
    }

    /// Copies the headers of the message that was added last: librdkafka keeps them in a form of its own, which takes
    /// many times as much memory.
    fn copy_headers(&mut self, found: &FoundHeaders) {
        let start = self.headers.byte_len();
        match found {
            FoundHeaders::None => {}
            // SAFETY: the list is owned, and outlives the use of what it returns.
            FoundHeaders::Listed(list) => (0..)
                .map_while(|index| unsafe { header_at(list.0.as_ptr(), index) })
                .for_each(|(name, value)| self.headers.push(name, value)),
            FoundHeaders::Read(headers) => self.headers.extend(headers.as_headers()),
        }
        self.headers_at.push(start..self.headers.byte_len());
    }
}

impl Batch {
    /// Whether the broker has set the timestamp of the record at `index`, when it appended the record.
    pub fn is_stamped(&self, index: usize) -> bool {
        let mut kind = rd::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE;
        // SAFETY: the message is owned and lives until the batch is cleared, which needs `&mut`.
        unsafe { rd::rd_kafka_message_timestamp(self.messages[index], &mut kind) };
        kind == rd::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_LOG_APPEND_TIME
    }
}

/// librdkafka's list of headers.
struct HeaderList(NonNull<rd::rd_kafka_headers_t>);

impl Drop for HeaderList {
    fn drop(&mut self) {
        // SAFETY: owned.
        unsafe { rd::rd_kafka_headers_destroy(self.0.as_ptr()) }
    }
}

/// A message's headers.
enum FoundHeaders {
    None,
    Listed(HeaderList),
    /// librdkafka reads at most 100,000 of a record, so these were decoded here.
    Read(HeaderBuf),
}

impl FoundHeaders {
    /// Takes the headers out of a message.
    ///
    /// # Safety
    /// The message is alive, and nobody else uses it meanwhile.
    unsafe fn of(message: *mut rd::rd_kafka_message_t) -> Result<Self, Failure> {
        let mut list = ptr::null_mut();
        // SAFETY: by the caller's promise; a message that stands for an error has none.
        let mut detach = || unsafe {
            match (*message).err {
                Code::RD_KAFKA_RESP_ERR_NO_ERROR => rd::rd_kafka_message_detach_headers(message, &mut list),
                _ => Code::RD_KAFKA_RESP_ERR__NOENT,
            }
        };
        let Some(failure) = Failure::of(detach()) else {
            return Ok(NonNull::new(list).map_or(Self::None, |list| Self::Listed(HeaderList(list))));
        };
        if failure.code == Code::RD_KAFKA_RESP_ERR__NOENT {
            return Ok(Self::None);
        }
        // Again, to see which bytes it reads: they belong to the message and live as long.
        let (_, bytes) = shadowed(detach);
        // SAFETY: as above.
        let bytes = bytes.map(|(start, len)| unsafe { std::slice::from_raw_parts(start, len) });
        match bytes.and_then(wire_headers::read_headers) {
            Some(headers) => Ok(Self::Read(headers)),
            None => Err(Failure::new(failure.code, "the headers of the record there cannot be read")),
        }
    }
}

/// The name and the value of the header at `index`, `None` after the last.
///
/// # Safety
/// `headers` is a list that lives for `'a`.
unsafe fn header_at<'a>(headers: *const rd::rd_kafka_headers_t, index: usize) -> Option<(&'a [u8], Option<&'a [u8]>)> {
    let (mut name, mut value, mut size): (*const c_char, *const c_void, usize) = (ptr::null(), ptr::null(), 0);
    // SAFETY: by the caller's promise; the out-pointers are valid, and what they get lives for `'a`.
    unsafe {
        match rd::rd_kafka_header_get_all(headers, index, &mut name, &mut value, &mut size) {
            Code::RD_KAFKA_RESP_ERR_NO_ERROR => Some((header_name(name, value), bytes(value, size))),
            _ => None,
        }
    }
}

/// What librdkafka keeps before a header's name (`rdkafka_header.h`): the sizes of the whole header and of the value,
/// the size of the name, and a pointer to the value, which follows the name and its NUL.
#[repr(C)]
struct BeforeName {
    all_size: usize,
    _value_size: usize,
    name_size: usize,
    value: *const c_void,
}

/// A header's name, whatever bytes it has: librdkafka's call returns it as a string, which ends at its first NUL. The
/// size is in memory right before the name; if that memory does not look as expected, the string is all that is
/// known.
///
/// # Safety
/// Both are from one of librdkafka's headers, which lives for `'a`.
unsafe fn header_name<'a>(name: *const c_char, value: *const c_void) -> &'a [u8] {
    // SAFETY: by the caller's promise; a header ends with its name and its value, preceded by the fields above.
    unsafe {
        let text = CStr::from_ptr(name).to_bytes();
        let before = name.cast::<u8>().sub(size_of::<BeforeName>()).cast::<BeforeName>().read_unaligned();
        let behind = name.wrapping_add(before.name_size).wrapping_add(1).cast::<c_void>();
        let is_known = before.value == value
            && before.name_size >= text.len()
            && before.all_size >= before.name_size
            && (value.is_null() || behind == value);
        if is_known { std::slice::from_raw_parts(name.cast(), before.name_size) } else { text }
    }
}

/// `size` bytes at `start`, `None` for null.
///
/// # Safety
/// `start` is null or points to that many bytes that live for `'a`.
unsafe fn bytes<'a>(start: *const c_void, size: usize) -> Option<&'a [u8]> {
    // SAFETY: by the caller's promise.
    (!start.is_null()).then(|| unsafe { std::slice::from_raw_parts(start.cast::<u8>(), size) })
}

impl RecordBatch for Batch {
    fn partitions(&self) -> &[TopicPartition] {
        &self.partitions
    }

    fn partition_index(&self, index: usize) -> usize {
        self.partition_indexes[index] as usize
    }

    fn len(&self) -> usize {
        self.messages.len()
    }

    fn record(&self, index: usize) -> Record<'_> {
        // SAFETY: the message is owned and lives until the batch is cleared, which needs `&mut`.
        let message = unsafe { &*self.messages[index] };
        let mut kind = rd::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE;
        // SAFETY: as above; key and payload are null or have the given length.
        let (timestamp, key, value) = unsafe {
            (
                rd::rd_kafka_message_timestamp(message, &mut kind),
                bytes(message.key, message.key_len),
                bytes(message.payload, message.len),
            )
        };
        let known = kind != rd::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE && timestamp != -1;
        let headers = self.headers_at[index].clone();
        let headers = &self.headers.as_headers().as_bytes()[headers];
        let source = &self.partitions[self.partition_index(index)];
        Record {
            topic: &source.topic,
            partition: source.partition,
            offset: message.offset,
            timestamp: known.then_some(timestamp),
            key,
            value,
            headers: Headers::from_bytes(headers),
        }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.clear();
    }
}
