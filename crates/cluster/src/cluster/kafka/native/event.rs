//! librdkafka's events: rebalances, errors, delivery reports, responses.

use std::ffi::CStr;
use std::ptr::NonNull;

use rdkafka::bindings as rd;

use super::super::errors::{Code, Failure};
use super::list;
use crate::record::TopicPartition;

/// One event, destroyed when it is dropped. Destroying a rebalance does not acknowledge it.
pub(in super::super) struct Event(NonNull<rd::rd_kafka_event_t>);

/// An event, decoded.
pub(in super::super) enum Signal {
    /// These partitions are to be taken over.
    Assign(Vec<TopicPartition>),
    /// These partitions are to be released.
    Revoke(Vec<TopicPartition>),
    /// Something went wrong in the background.
    Error(Failure),
    /// Deliveries that failed: see [`Event::undelivered`].
    Deliveries,
    /// A response, or nothing of interest.
    Other,
}

/// A record that was not delivered.
pub(in super::super) struct Undelivered {
    /// The opaque number that was given with it.
    pub opaque: usize,
    /// Why it was not delivered.
    pub failure: Failure,
}

impl Event {
    /// Takes ownership of an event; `None` for null.
    ///
    /// # Safety
    /// `raw` is null or an event that nobody else destroys.
    pub unsafe fn from_raw(raw: *mut rd::rd_kafka_event_t) -> Option<Self> {
        NonNull::new(raw).map(Self)
    }

    /// The C handle.
    pub fn raw(&self) -> *mut rd::rd_kafka_event_t {
        self.0.as_ptr()
    }

    /// Decodes it.
    pub fn signal(&self) -> Signal {
        // SAFETY: the event is owned and alive.
        match unsafe { rd::rd_kafka_event_type(self.raw()) } {
            rd::RD_KAFKA_EVENT_REBALANCE => self.rebalance(),
            rd::RD_KAFKA_EVENT_ERROR => self.failure().map_or(Signal::Other, Signal::Error),
            rd::RD_KAFKA_EVENT_DR => Signal::Deliveries,
            _ => Signal::Other,
        }
    }

    /// The error that the event stands for or carries.
    pub fn failure(&self) -> Option<Failure> {
        // SAFETY: the event is owned and alive, and the string with it.
        let (code, message, fatal) = unsafe {
            let message = rd::rd_kafka_event_error_string(self.raw());
            let message = (!message.is_null()).then(|| CStr::from_ptr(message).to_string_lossy().into_owned());
            // For any other event, the flag is read from memory with another meaning.
            let is_error = rd::rd_kafka_event_type(self.raw()) == rd::RD_KAFKA_EVENT_ERROR;
            let fatal = is_error && rd::rd_kafka_event_error_is_fatal(self.raw()) != 0;
            (rd::rd_kafka_event_error(self.raw()), message, fatal)
        };
        let mut failure = Failure::of(code)?;
        failure.fatal |= fatal;
        failure.message = message.filter(|message| !message.is_empty()).unwrap_or(failure.message);
        Some(failure)
    }

    /// Whether it says that the client has lost its connections to all brokers.
    pub fn says_all_brokers_are_down(&self) -> bool {
        // SAFETY: the event is owned and alive.
        let (kind, code) = unsafe { (rd::rd_kafka_event_type(self.raw()), rd::rd_kafka_event_error(self.raw())) };
        kind == rd::RD_KAFKA_EVENT_ERROR && code == Code::RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN
    }

    fn rebalance(&self) -> Signal {
        // SAFETY: the event is owned and alive, and its list with it.
        let (code, partitions) = unsafe {
            let list = rd::rd_kafka_event_topic_partition_list(self.raw());
            (rd::rd_kafka_event_error(self.raw()), list::elements(list).map(|e| e.partition()).collect())
        };
        match code {
            Code::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS => Signal::Assign(partitions),
            Code::RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS => Signal::Revoke(partitions),
            _ => self.failure().map_or(Signal::Other, Signal::Error),
        }
    }

    /// The records in it that were not delivered.
    pub fn undelivered(&self) -> impl Iterator<Item = Undelivered> {
        // SAFETY: the event is owned and alive, and its messages with it.
        let next = || unsafe { rd::rd_kafka_event_message_next(self.raw()).as_ref() };
        std::iter::from_fn(next).filter_map(|message| {
            Some(Undelivered { opaque: message._private.addr(), failure: Failure::of(message.err)? })
        })
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: owned.
        unsafe { rd::rd_kafka_event_destroy(self.raw()) }
    }
}
