//! librdkafka's C interface, as far as the harness uses it: for the floor, which nothing on the same library can be
//! expected to beat, and for the load's generator and reader, which should leave the cores to the contenders.

pub mod consumer;
pub mod producer;

use std::ffi::{CStr, CString, c_char, c_void};
use std::slice;

use rdkafka::bindings as rd;

use crate::failure::{Context as _, Failure, Outcome, fail};

/// A client's properties.
pub type Properties<'a> = &'a [(&'a str, &'a str)];

/// A client with these properties.
fn client(kind: rd::rd_kafka_type_t, properties: Properties) -> Outcome<*mut rd::rd_kafka_t> {
    let mut words = [0 as c_char; 512];
    // SAFETY: strings end in NUL and the buffer has the given length; the client takes over the configuration.
    unsafe {
        let conf = rd::rd_kafka_conf_new();
        for (name, value) in properties {
            let (name, value) = (CString::new(*name).context("name")?, CString::new(*value).context("value")?);
            let set = rd::rd_kafka_conf_set(conf, name.as_ptr(), value.as_ptr(), words.as_mut_ptr(), words.len());
            if set != rd::rd_kafka_conf_res_t::RD_KAFKA_CONF_OK {
                fail!("{}", CStr::from_ptr(words.as_ptr()).to_string_lossy());
            }
        }
        // Reports as events, so that a commit waits on the count of records in flight and not in steps.
        rd::rd_kafka_conf_set_events(conf, rd::RD_KAFKA_EVENT_DR | rd::RD_KAFKA_EVENT_ERROR);
        let raw = rd::rd_kafka_new(kind, conf, words.as_mut_ptr(), words.len());
        if raw.is_null() {
            fail!("{}", CStr::from_ptr(words.as_ptr()).to_string_lossy());
        }
        Ok(raw)
    }
}

/// Takes over an error object.
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

/// An error if librdkafka refused a call.
fn refused(code: rd::rd_kafka_resp_err_t, what: &str) -> Outcome<()> {
    if code == rd::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
        return Ok(());
    }
    Err(format!("{code:?}")).context(what)
}

/// A message's key; empty if there is none.
pub fn key(message: &rd::rd_kafka_message_t) -> &[u8] {
    // SAFETY: key and payload live as long as their message and have the lengths that it says.
    unsafe { bytes(message.key, message.key_len) }
}

/// A message's value; empty if there is none.
pub fn payload(message: &rd::rd_kafka_message_t) -> &[u8] {
    // SAFETY: as above.
    unsafe { bytes(message.payload, message.len) }
}

/// # Safety
/// The bytes are null, or live as long as `'a`.
unsafe fn bytes<'a>(at: *mut c_void, length: usize) -> &'a [u8] {
    if at.is_null() {
        return &[];
    }
    // SAFETY: by the caller's promise.
    unsafe { slice::from_raw_parts(at.cast(), length) }
}
