//! What librdkafka acknowledges, told record by record as the broker's answer comes in.
//!
//! An interceptor, not a delivery report: reports of success would take each record through a queue to a thread
//! of ours, to be freed there. Failures still are reports, for only those know each record's own error.

use std::ffi::{CStr, c_char, c_void};

use rdkafka::bindings as rd;

use super::super::errors::Code;
use super::Conf;
use crate::cluster::{Error, Kind};

/// What interceptors are called in librdkafka's logs.
const NAME: &CStr = c"ratchet";

/// What is to be done when a record was delivered: called with what the record was given to be known by and its
/// offset, negative where it is not known, on librdkafka's threads and under its locks: it must not wait, nor call
/// librdkafka.
type Told = Box<dyn Fn(usize, i64) + Send + Sync>;

/// A [`Told`] at an address of its own.
pub(in super::super) struct OnDelivered(Box<Told>);

impl OnDelivered {
    /// Calls `told` for each delivered record.
    pub fn new(told: impl Fn(usize, i64) + Send + Sync + 'static) -> Self {
        Self(Box::new(Box::new(told)))
    }

    /// Has the client that is made of `conf` call it; it must outlive that client.
    pub(super) fn add_to(&self, conf: &mut Conf) -> Result<(), Error> {
        let told: *const Told = &raw const *self.0;
        // SAFETY: the configuration is alive; `told` is only given back to the functions below.
        let code = unsafe {
            rd::rd_kafka_conf_interceptor_add_on_new(conf.raw(), NAME.as_ptr(), Some(on_new), told.cast_mut().cast())
        };
        match code {
            Code::RD_KAFKA_RESP_ERR_NO_ERROR => Ok(()),
            code => Err(Error::new(Kind::Refused, format!("librdkafka takes no interceptor: {code:?}"))),
        }
    }
}

/// Called once, with the new client.
unsafe extern "C" fn on_new(
    client: *mut rd::rd_kafka_t,
    _conf: *const rd::rd_kafka_conf_t,
    told: *mut c_void,
    _words: *mut c_char,
    _words_size: usize,
) -> Code {
    // SAFETY: the client is alive; `told` outlives it, by the promise of `add_to`.
    unsafe { rd::rd_kafka_interceptor_add_on_acknowledgement(client, NAME.as_ptr(), Some(on_acknowledgement), told) }
}

/// Called for each record that was acknowledged or has failed.
unsafe extern "C" fn on_acknowledgement(
    _client: *mut rd::rd_kafka_t,
    message: *mut rd::rd_kafka_message_t,
    told: *mut c_void,
) -> Code {
    // SAFETY: the message lives for the call; `told` outlives the client, by the promise of `add_to`.
    let (message, told) = unsafe { (&*message, &*told.cast::<Told>()) };
    if message.err == Code::RD_KAFKA_RESP_ERR_NO_ERROR {
        told(message._private.addr(), message.offset);
    }
    Code::RD_KAFKA_RESP_ERR_NO_ERROR
}
