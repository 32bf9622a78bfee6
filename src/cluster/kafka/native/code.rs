//! librdkafka's error codes, with its own names and descriptions of them.

use std::ffi::CStr;

use rdkafka::bindings as rd;

/// librdkafka's error codes.
pub type Code = rd::rd_kafka_resp_err_t;

/// librdkafka's description of a code.
pub fn describe(code: Code) -> String {
    // SAFETY: a static string for every code.
    unsafe { CStr::from_ptr(rd::rd_kafka_err2str(code)) }.to_string_lossy().into_owned()
}

/// librdkafka's name for a code.
pub fn name(code: Code) -> String {
    // SAFETY: a static string for every code.
    unsafe { CStr::from_ptr(rd::rd_kafka_err2name(code)) }.to_string_lossy().into_owned()
}
