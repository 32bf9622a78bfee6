//! Callbacks from librdkafka: for each record that was acknowledged, and each connection that broke.
//!
//! They are interceptors. Delivery reports of success would take each record through a queue to a thread of ours, to be
//! freed there; failures still are reports, as only those have each record's own error. And a broken connection
//! is not an error event: it is a log line, which settings may suppress and which is omitted when repeated.

use std::collections::HashSet;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::{Mutex, PoisonError};

use rdkafka::bindings as rd;

use super::super::errors::Code;
use super::conf::Conf;
use crate::cluster::{Error, ErrorKind};

/// The interceptors' name in librdkafka's logs.
const NAME: &CStr = c"ratchet";

/// Called with a record's opaque number and its offset, negative if unknown.
type OnDelivered = Box<dyn Fn(usize, i64) + Send + Sync>;

/// Both are called on librdkafka's threads and under its locks: they must not wait, nor call librdkafka.
struct Calls {
    delivered: OnDelivered,
    broken: Box<dyn Fn() + Send + Sync>,
    /// Connections that are established, by the broker's name and port.
    established: Mutex<HashSet<(CString, c_int)>>,
}

impl Calls {
    fn changed(&self, connection: (CString, c_int), state: &[u8]) {
        let mut established = self.established.lock().unwrap_or_else(PoisonError::into_inner);
        match state {
            b"UP" => drop(established.insert(connection)),
            // A connection that was never established has carried nothing.
            b"DOWN" if established.remove(&connection) => (self.broken)(),
            _ => {}
        }
    }
}

/// The callbacks, at a stable address.
pub(in super::super) struct Listener(Box<Calls>);

impl Listener {
    /// Calls `delivered` for each delivered record, and `broken` when a connection breaks.
    pub fn new(
        delivered: impl Fn(usize, i64) + Send + Sync + 'static,
        broken: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let (delivered, broken) = (Box::new(delivered), Box::new(broken));
        Self(Box::new(Calls { delivered, broken, established: Mutex::default() }))
    }

    /// Registers the callbacks with the client created from `conf`; the listener must outlive that client.
    pub(super) fn add_to(&self, conf: &mut Conf) -> Result<(), Error> {
        let calls: *const Calls = &raw const *self.0;
        // SAFETY: the configuration is alive; `calls` is only passed to the functions below.
        let code = unsafe {
            rd::rd_kafka_conf_interceptor_add_on_new(conf.raw(), NAME.as_ptr(), Some(on_new), calls.cast_mut().cast())
        };
        match code {
            Code::RD_KAFKA_RESP_ERR_NO_ERROR => Ok(()),
            code => Err(Error::new(ErrorKind::Refused, format!("librdkafka rejects the interceptor: {code:?}"))),
        }
    }
}

/// Called once, with the new client.
unsafe extern "C" fn on_new(
    client: *mut rd::rd_kafka_t,
    _conf: *const rd::rd_kafka_conf_t,
    calls: *mut c_void,
    _words: *mut c_char,
    _words_size: usize,
) -> Code {
    let name = NAME.as_ptr();
    // SAFETY: the client is alive; `calls` outlives it, by the promise of `add_to`.
    unsafe {
        match rd::rd_kafka_interceptor_add_on_broker_state_change(client, name, Some(on_state_change), calls) {
            Code::RD_KAFKA_RESP_ERR_NO_ERROR => {
                rd::rd_kafka_interceptor_add_on_acknowledgement(client, name, Some(on_acknowledgement), calls)
            }
            code => code,
        }
    }
}

/// Called for each record that was acknowledged or has failed.
unsafe extern "C" fn on_acknowledgement(
    _client: *mut rd::rd_kafka_t,
    message: *mut rd::rd_kafka_message_t,
    calls: *mut c_void,
) -> Code {
    // SAFETY: the message lives for the call; `calls` outlives the client, by the promise of `add_to`.
    let (message, calls) = unsafe { (&*message, &*calls.cast::<Calls>()) };
    if message.err == Code::RD_KAFKA_RESP_ERR_NO_ERROR {
        (calls.delivered)(message._private.addr(), message.offset);
    }
    Code::RD_KAFKA_RESP_ERR_NO_ERROR
}

/// Called whenever a broker's connection changes its state, before the requests that it carried are retried.
unsafe extern "C" fn on_state_change(
    _client: *mut rd::rd_kafka_t,
    _broker_id: i32,
    _protocol: *const c_char,
    name: *const c_char,
    port: c_int,
    state: *const c_char,
    calls: *mut c_void,
) -> Code {
    // SAFETY: both strings end in NUL and live for the call; `calls` outlives the client, by the promise of `add_to`.
    let (name, state, calls) = unsafe { (CStr::from_ptr(name), CStr::from_ptr(state), &*calls.cast::<Calls>()) };
    calls.changed((name.to_owned(), port), state.to_bytes());
    Code::RD_KAFKA_RESP_ERR_NO_ERROR
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn only_connections_that_were_established_break() {
        let breaks = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&breaks);
        let listener = Listener::new(
            |_, _| {},
            move || {
                counted.fetch_add(1, Ordering::Relaxed);
            },
        );
        let change = |name: &CStr, state: &[u8]| {
            listener.0.changed((name.to_owned(), 9092), state);
            breaks.load(Ordering::Relaxed)
        };
        let (broker, coordinator) = (c"a", c"TxnCoordinator");
        assert_eq!(change(broker, b"CONNECT"), 0);
        assert_eq!(change(broker, b"DOWN"), 0, "it was never established");
        assert_eq!(change(broker, b"UP"), 0);
        assert_eq!(change(coordinator, b"UP"), 0);
        // Repeatedly: librdkafka's log omits repetitions.
        for breaks in 1..=3 {
            assert_eq!(change(coordinator, b"DOWN"), breaks);
            assert_eq!(change(coordinator, b"DOWN"), breaks);
            assert_eq!(change(coordinator, b"UP"), breaks);
        }
        assert_eq!(change(broker, b"DOWN"), 4);
    }
}
