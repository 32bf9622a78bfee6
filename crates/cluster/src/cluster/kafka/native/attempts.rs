//! The attempts of a librdkafka client to connect, each admitted by [`Contact`], and the answers to the client.
//!
//! librdkafka has a thread for each broker. It looks up the broker's name now and then, creates a socket for each attempt,
//! and receives the answers. An attempt waits in the callback that creates the socket: the thread holds none of
//! librdkafka's locks there.
//!
//! Invariant: what is given to librdkafka here outlives the client.
//!
//! **Failure**: none. The threads of a client that is being destroyed do not wait.

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rdkafka::bindings as rd;

use super::super::errors::Code;
use super::conf::Conf;
use crate::cluster::{Contact, Error, ErrorKind, THREAD_WAIT_MAX};

/// The interceptor's name in librdkafka's logs.
const NAME: &CStr = c"ratchet-contact";
/// The shortest time between two attempts of a thread, also at a broker that answers each time and then closes the
/// connection.
const APART_MIN: Duration = Duration::from_millis(100);

// SAFETY: as declared in `rdkafka.h`.
unsafe extern "C" {
    fn rd_kafka_conf_set_resolve_cb(conf: *mut rd::rd_kafka_conf_t, resolve: Resolve);
}

/// Looks up a host, or frees what that returned if there is none.
///
/// # Safety
/// As for `getaddrinfo` and `freeaddrinfo`.
type Resolve = unsafe extern "C" fn(
    host: *const c_char,
    port: *const c_char,
    hints: *const libc::addrinfo,
    found: *mut *mut libc::addrinfo,
    client: *mut c_void,
) -> c_int;

/// What all of a client's threads know.
pub(super) struct Attempts {
    contact: Arc<Contact>,
    /// Whether librdkafka has begun to create the client.
    begun: AtomicBool,
    closing: AtomicBool,
}

/// What one of librdkafka's threads knows of its broker.
#[derive(Default)]
struct OfThread {
    /// Where it connects to.
    address: String,
    /// When it made its last attempt.
    tried: Option<Instant>,
    /// Whether that was answered.
    is_heard: bool,
}

thread_local! {
    static THREAD: RefCell<OfThread> = RefCell::default();
}

impl Attempts {
    pub fn new(contact: &Arc<Contact>) -> Arc<Self> {
        let (begun, closing) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Self { contact: Arc::clone(contact), begun, closing })
    }

    /// What is known of the brokers.
    pub fn contact(&self) -> &Contact {
        &self.contact
    }

    /// Registers with the client that is created from `conf`; this value must outlive it.
    pub fn add_to(self: &Arc<Self>, conf: &mut Conf) -> Result<(), Error> {
        let this: *mut c_void = Arc::as_ptr(self).cast_mut().cast();
        // SAFETY: the configuration is alive; `this` is only passed to the functions below.
        let code = unsafe {
            rd::rd_kafka_conf_set_opaque(conf.raw(), this);
            rd::rd_kafka_conf_set_socket_cb(conf.raw(), Some(create_socket));
            rd_kafka_conf_set_resolve_cb(conf.raw(), resolve);
            rd::rd_kafka_conf_interceptor_add_on_new(conf.raw(), NAME.as_ptr(), Some(on_new), this)
        };
        match code {
            Code::RD_KAFKA_RESP_ERR_NO_ERROR => Ok(()),
            code => Err(Error::new(ErrorKind::Refused, format!("librdkafka rejects the interceptor: {code:?}"))),
        }
    }

    /// Whether librdkafka has begun to create the client: since then the interceptors of the configuration are the client's.
    pub fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }

    /// The client is about to be destroyed.
    pub fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
        self.contact.wake();
    }

    /// Waits until this thread may make an attempt, or its client closes.
    fn begin(&self) {
        let (address, tried) = THREAD.with_borrow(|thread| (thread.address.clone(), thread.tried));
        if let Some(left) = tried.map(|tried| APART_MIN.saturating_sub(tried.elapsed())) {
            std::thread::sleep(left);
        }
        let admitted = self.contact.admit(&address, Instant::now(), THREAD_WAIT_MAX);
        self.contact.wait(&address, admitted, || self.closing.load(Ordering::Relaxed));
        self.contact.count_attempt();
        THREAD.with_borrow_mut(|thread| (thread.tried, thread.is_heard) = (Some(Instant::now()), false));
    }

    /// This thread's broker has answered.
    fn answered(&self) {
        THREAD.with_borrow_mut(|thread| match std::mem::replace(&mut thread.is_heard, true) {
            true => self.contact.note_response(),
            false => self.contact.note_first_response(&thread.address),
        });
    }
}

/// Called by a broker's thread when it is about to connect.
///
/// # Safety
/// `client` is what [`Attempts::add_to`] has registered.
unsafe extern "C" fn create_socket(domain: c_int, kind: c_int, protocol: c_int, client: *mut c_void) -> c_int {
    // SAFETY: outlives the client, by the promise of `add_to`.
    let attempts = unsafe { &*client.cast::<Attempts>() };
    attempts.begin();
    // SAFETY: a plain system call.
    unsafe { libc::socket(domain, kind | libc::SOCK_CLOEXEC, protocol) }
}

/// Called by a broker's thread to look up the broker's name, and then to free what was found.
///
/// # Safety
/// As for `getaddrinfo`, or as for `freeaddrinfo` where `host` is null.
unsafe extern "C" fn resolve(
    host: *const c_char,
    port: *const c_char,
    hints: *const libc::addrinfo,
    found: *mut *mut libc::addrinfo,
    _client: *mut c_void,
) -> c_int {
    // SAFETY: both texts end with zero, or are null; the system gets what librdkafka would give it itself.
    unsafe {
        if host.is_null() {
            libc::freeaddrinfo(*found);
            return 0;
        }
        let port_text = if port.is_null() { "".into() } else { CStr::from_ptr(port).to_string_lossy() };
        let host_text = CStr::from_ptr(host).to_string_lossy();
        // As the wire writes it.
        let address = match host_text.contains(':') {
            true => format!("[{host_text}]:{port_text}"),
            false => format!("{host_text}:{port_text}"),
        };
        THREAD.with_borrow_mut(|thread| thread.address = address);
        libc::getaddrinfo(host, port, hints, found)
    }
}

/// Called once, with the new client.
///
/// # Safety
/// `client` is alive, and `attempts` is what [`Attempts::add_to`] has registered.
unsafe extern "C" fn on_new(
    client: *mut rd::rd_kafka_t,
    _conf: *const rd::rd_kafka_conf_t,
    attempts: *mut c_void,
    _words: *mut c_char,
    _words_size: usize,
) -> Code {
    // SAFETY: the client is alive; `attempts` outlives it, by the promise of `add_to`.
    unsafe {
        (*attempts.cast::<Attempts>()).begun.store(true, Ordering::Relaxed);
        rd::rd_kafka_interceptor_add_on_response_received(client, NAME.as_ptr(), Some(on_response), attempts)
    }
}

/// Called for each request that has ended: by the thread of its broker if that has answered.
///
/// # Safety
/// `attempts` is what [`Attempts::add_to`] has registered.
unsafe extern "C" fn on_response(
    _client: *mut rd::rd_kafka_t,
    _socket: c_int,
    _broker: *const c_char,
    _broker_id: i32,
    _api: i16,
    _version: i16,
    _correlation: i32,
    size: usize,
    _took_us: i64,
    error: Code,
    attempts: *mut c_void,
) -> Code {
    if error == Code::RD_KAFKA_RESP_ERR_NO_ERROR && size > 0 {
        // SAFETY: outlives the client, by the promise of `add_to`.
        unsafe { &*attempts.cast::<Attempts>() }.answered();
    }
    Code::RD_KAFKA_RESP_ERR_NO_ERROR
}

#[cfg(test)]
mod tests;
