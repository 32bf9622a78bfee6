//! A client of the cluster: started, driven by its events, and destroyed on another thread.

use std::ffi::{CStr, CString, c_char, c_int};
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rdkafka::bindings as rd;

use super::super::errors::{Code, Failure};
use super::super::oauth::{Hears, Held, Source};
use super::super::properties::{Properties, Role};
use super::attempts::Attempts;
use super::conf::Conf;
use super::conversions::{MESSAGE_BYTES_MAX, c_millis, c_string, read_message};
use super::event::Event;
use super::listener::Listener;
use super::log;
use super::trouble::LastTrouble;
use crate::cluster::{Error, ErrorKind};

#[cfg(test)]
mod tests;

// SAFETY: as declared in `rdkafka_broker.h`.
unsafe extern "C" {
    /// What `rd_kafka_brokers_add` calls, which also keeps every list that it was ever given.
    fn rd_kafka_brokers_add0(client: *mut rd::rd_kafka_t, brokers: *const c_char, is_bootstrap: u8) -> c_int;
}

/// A client of the cluster, and the queue of its events.
pub(in super::super) struct Client {
    raw: NonNull<rd::rd_kafka_t>,
    events: NonNull<rd::rd_kafka_queue_t>,
    role: Role,
    /// Called by librdkafka for as long as the client lives.
    listener: Option<Listener>,
    /// The same.
    attempts: Arc<Attempts>,
    pub(super) last_trouble: LastTrouble,
    /// The source of its login's tokens, if it needs tokens.
    pub(super) token_source: Option<Arc<Source>>,
    /// The brokers of the configuration.
    bootstrap: CString,
}

// SAFETY: librdkafka's client and queue handles may be used from any thread (its documentation).
unsafe impl Send for Client {}
// SAFETY: as above.
unsafe impl Sync for Client {}

impl Client {
    /// Starts a client; it connects in the background.
    pub fn new(properties: &Properties) -> Result<Arc<Self>, Error> {
        Self::with(properties, None)
    }

    /// The same with a listener for deliveries and broken connections.
    pub fn with(properties: &Properties, listener: Option<Listener>) -> Result<Arc<Self>, Error> {
        let mut conf = properties.to_conf()?;
        if let Some(listener) = &listener {
            listener.add_to(&mut conf)?;
        }
        let attempts = Attempts::new(properties.contact());
        attempts.add_to(&mut conf)?;
        let raw = Self::start(conf, properties, &attempts)?;
        if properties.role() == Role::Consumer {
            // All events of a group's member come through one queue; fails if there is no group.
            // SAFETY: the client is alive.
            unsafe { rd::rd_kafka_poll_set_consumer(raw.as_ptr()) };
        }
        // SAFETY: the client is alive; without a group there is no consumer queue, but always a main one.
        let events = unsafe {
            NonNull::new(rd::rd_kafka_queue_get_consumer(raw.as_ptr()))
                .or_else(|| NonNull::new(rd::rd_kafka_queue_get_main(raw.as_ptr())))
                .expect("a client has a main queue")
        };
        if properties.makes_tokens() {
            // SAFETY: the client is alive; the error, if any, is taken over.
            let failure = unsafe { Failure::take(rd::rd_kafka_sasl_background_callbacks_enable(raw.as_ptr())) };
            if let Some(failure) = failure {
                tracing::warn!(target: "librdkafka", "tokens are refreshed late: {failure}");
            }
        }
        let client = Arc::new(Self {
            raw,
            events,
            role: properties.role(),
            listener,
            attempts,
            last_trouble: LastTrouble::new(properties.login()),
            token_source: properties.token_source().cloned(),
            bootstrap: c_string(properties.bootstrap())?,
        });
        if let Some(source) = &client.token_source {
            source.tell(&client);
        }
        Ok(client)
    }

    /// Creates the C client from `conf`, with which these attempts are registered.
    fn start(conf: Conf, properties: &Properties, attempts: &Attempts) -> Result<NonNull<rd::rd_kafka_t>, Error> {
        let (kind, events) = match properties.role() {
            Role::Consumer => (rd::rd_kafka_type_t::RD_KAFKA_CONSUMER, rd::RD_KAFKA_EVENT_REBALANCE),
            Role::Producer => (rd::rd_kafka_type_t::RD_KAFKA_PRODUCER, rd::RD_KAFKA_EVENT_DR),
        };
        let mut message = [0 as c_char; MESSAGE_BYTES_MAX];
        let mut conf = std::mem::ManuallyDrop::new(conf);
        // SAFETY: the configuration is alive; the client takes it over unless it fails.
        let raw = unsafe {
            rd::rd_kafka_conf_set_events(conf.raw(), events | rd::RD_KAFKA_EVENT_ERROR);
            rd::rd_kafka_conf_set_log_cb(conf.raw(), Some(log::forward));
            if properties.makes_tokens() {
                rd::rd_kafka_conf_enable_sasl_queue(conf.raw(), 1);
            }
            rd::rd_kafka_new(kind, conf.raw(), message.as_mut_ptr(), message.len())
        };
        NonNull::new(raw).ok_or_else(|| {
            // A client that fails after it has begun frees the interceptors, which are still the configuration's, too
            // (`rd_kafka_new`, behind `fail`). Destroying the configuration would free them again: it is leaked.
            if !attempts.has_begun() {
                drop(std::mem::ManuallyDrop::into_inner(conf));
            }
            let message = properties.redact(&read_message(&message));
            Error::new(ErrorKind::Refused, format!("no kafka client can be created with these properties: {message}"))
        })
    }

    /// The C handle, for calls that end before this value does.
    pub fn raw(&self) -> *mut rd::rd_kafka_t {
        self.raw.as_ptr()
    }

    /// The C handle of the queue of events.
    pub fn events(&self) -> *mut rd::rd_kafka_queue_t {
        self.events.as_ptr()
    }

    /// Writes a byte to `bell`, which must not block, whenever there is an event after there was none; `None` ends that.
    pub fn ring_on_events(&self, bell: Option<BorrowedFd<'_>>) {
        let (fd, byte) = (bell.map_or(-1, |bell| bell.as_raw_fd()), 0_u8);
        // SAFETY: the queue is alive; the byte is copied. A descriptor that was closed meanwhile is never read from.
        unsafe { rd::rd_kafka_queue_io_event_enable(self.events(), fd, ptr::from_ref(&byte).cast(), 1) }
    }

    /// The next event, waiting up to `wait` for it.
    pub fn next_event(&self, wait: Duration) -> Option<Event> {
        // SAFETY: the queue is alive, and the `Event` owns what is returned.
        let event = unsafe { Event::from_raw(rd::rd_kafka_queue_poll(self.events.as_ptr(), c_millis(wait))) }?;
        if event.says_all_brokers_are_down() {
            self.bootstrap_again();
        }
        Some(event)
    }

    /// Has the client begin with the brokers of the configuration again, if it knows no others any more. Brokers that
    /// were all fenced a moment ago, as after a freeze or an upgrade, list none in a response about topics. librdkafka
    /// then gives up every broker that it knows, and where the same response also cancels its own new beginning, which it
    /// does as it happens, it never connects again (confluentinc/librdkafka#5301).
    fn bootstrap_again(&self) {
        // SAFETY: the client is alive, and the string; brokers that it knows already are not added twice.
        unsafe { rd_kafka_brokers_add0(self.raw(), self.bootstrap.as_ptr(), 0) };
    }

    /// Has a producer send its queued records at once instead of after its linger time, and waits for the deliveries,
    /// `wait` at most; returns whether nothing is in flight any more.
    pub fn flush(&self, wait: Duration) -> bool {
        // SAFETY: the client is alive; records not delivered in time are still being sent.
        let flushed = unsafe { rd::rd_kafka_flush(self.raw.as_ptr(), c_millis(wait)) };
        flushed == Code::RD_KAFKA_RESP_ERR_NO_ERROR
    }

    /// Queries the first offset and the end of a partition.
    pub fn query_watermarks(&self, topic: &CStr, partition: i32, wait: Duration) -> Result<(i64, i64), Failure> {
        let (mut low, mut high) = (0, 0);
        // SAFETY: the client is alive and the out-pointers are valid for the call.
        let code = unsafe {
            rd::rd_kafka_query_watermark_offsets(
                self.raw(),
                topic.as_ptr(),
                partition,
                &mut low,
                &mut high,
                c_millis(wait),
            )
        };
        if let Some(failure) = Failure::of(code) {
            return Err(failure);
        }
        self.answered();
        Ok((low, high))
    }

    /// Queries a broker for the topics that the client knows, for the side effects of the response on the client;
    /// returns whether there was one.
    pub fn ask_for_topics(&self, wait: Duration) -> bool {
        // SAFETY: null means no single topic.
        unsafe { self.ask_metadata(ptr::null_mut(), wait) }
    }

    /// # Safety
    /// `topic` is null or alive.
    pub(super) unsafe fn ask_metadata(&self, topic: *mut rd::rd_kafka_topic_t, wait: Duration) -> bool {
        let mut answer = ptr::null();
        // SAFETY: the client is alive and the out-pointer is valid for the call; the response is owned.
        unsafe {
            let code = rd::rd_kafka_metadata(self.raw(), 0, topic, &mut answer, c_millis(wait));
            let answered = Failure::of(code).is_none();
            if answered {
                rd::rd_kafka_metadata_destroy(answer);
                self.note_login();
            }
            answered
        }
    }

    /// How long ago a broker last answered any client of the cluster; `None` if none ever has.
    pub fn heard_ago(&self) -> Option<Duration> {
        self.attempts.contact().heard_ago()
    }

    /// The end of a partition as given in the last fetch response.
    pub fn cached_end(&self, topic: &CStr, partition: i32) -> Option<i64> {
        let (mut low, mut high) = (-1, -1);
        // SAFETY: as above; the call only reads what is known.
        let code =
            unsafe { rd::rd_kafka_get_watermark_offsets(self.raw(), topic.as_ptr(), partition, &mut low, &mut high) };
        (Failure::of(code).is_none() && high >= 0).then_some(high)
    }
}

impl Hears for Client {
    /// librdkafka's broker threads wait for a first token before they connect, and log in by the last one.
    fn hear(&self, Held { token, principal, end_ms }: &Held) {
        let texts = [token.value(), principal].into_iter();
        let texts = texts.chain(token.extensions().iter().flat_map(|(key, value)| [key.as_str(), value]));
        // None of them holds a NUL: the token and its extensions are of visible characters.
        let owned: Vec<CString> = texts.map(|text| CString::new(text).unwrap_or_default()).collect();
        let mut texts: Vec<*const c_char> = owned.iter().map(|text| text.as_ptr()).collect();
        let mut message = [0 as c_char; MESSAGE_BYTES_MAX];
        // SAFETY: the client is alive; all strings end in NUL and outlive the call, which copies them; the pairs of
        // extensions are as many as is said, and the buffer has the given length.
        let code = unsafe {
            let (head, extensions) = texts.split_at_mut(2);
            rd::rd_kafka_oauthbearer_set_token(
                self.raw(),
                head[0],
                *end_ms,
                head[1],
                extensions.as_mut_ptr(),
                extensions.len(),
                message.as_mut_ptr(),
                message.len(),
            )
        };
        // Its message may hold the token.
        if let Some(failure) = Failure::of(code) {
            tracing::warn!(target: "librdkafka", "a token is not taken: {failure}");
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let (raw, events, role, attempts) = (self.raw, self.events, self.role, Arc::clone(&self.attempts));
        let handles = Handles { raw, events, role, _listener: self.listener.take(), attempts };
        handles
            .destroy_later(|destroy| thread::Builder::new().name("kafka-destroy".to_owned()).spawn(destroy).map(drop));
    }
}

/// Clients waiting to be destroyed. Until then they are intact: librdkafka's threads still call their listeners.
static TO_DESTROY: Mutex<Vec<Handles>> = Mutex::new(Vec::new());

fn next_to_destroy() -> Option<Handles> {
    TO_DESTROY.lock().unwrap_or_else(PoisonError::into_inner).pop()
}

/// The handles of a dropped client.
struct Handles {
    raw: NonNull<rd::rd_kafka_t>,
    events: NonNull<rd::rd_kafka_queue_t>,
    role: Role,
    _listener: Option<Listener>,
    attempts: Arc<Attempts>,
}

// SAFETY: as for `Client`.
unsafe impl Send for Handles {}

impl Handles {
    /// Has the client destroyed on another thread: librdkafka joins all of its own, which may be waiting for a broker
    /// that is gone, and nobody else should wait with it. If no thread can be started, it stays until the next one is.
    fn destroy_later(self, spawn: impl FnOnce(fn()) -> io::Result<()>) {
        TO_DESTROY.lock().unwrap_or_else(PoisonError::into_inner).push(self);
        if let Err(error) = spawn(|| std::iter::from_fn(next_to_destroy).for_each(Self::destroy)) {
            tracing::warn!("a kafka client stays in memory for now: no thread to destroy it: {error}");
        }
    }

    fn destroy(self) {
        self.attempts.close();
        // SAFETY: the handles are owned, and whatever came from the client held an `Arc` of it. A member
        // has already left its group, or does not want to.
        unsafe {
            rd::rd_kafka_queue_destroy(self.events.as_ptr());
            if self.role == Role::Producer {
                let all =
                    rd::RD_KAFKA_PURGE_F_QUEUE | rd::RD_KAFKA_PURGE_F_INFLIGHT | rd::RD_KAFKA_PURGE_F_NON_BLOCKING;
                rd::rd_kafka_purge(self.raw.as_ptr(), all);
            }
            rd::rd_kafka_destroy_flags(self.raw.as_ptr(), rd::RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
        }
    }
}
