//! librdkafka's log lines, as tracing events of the target `librdkafka`.

use std::ffi::{CStr, c_char, c_int};

use rdkafka::bindings as rd;

/// librdkafka's log callback; called on its threads. Levels are those of syslog.
///
/// # Safety
/// `facility` and `line` are strings that end in NUL and live for the call.
pub(super) unsafe extern "C" fn forward(
    _client: *const rd::rd_kafka_t,
    level: c_int,
    facility: *const c_char,
    line: *const c_char,
) {
    // SAFETY: by the caller's promise.
    let (facility, line) =
        unsafe { (CStr::from_ptr(facility).to_string_lossy(), CStr::from_ptr(line).to_string_lossy()) };
    match level {
        // A broker that cannot be reached is told as an error event too, once, to whom it concerns.
        0..=4 => tracing::warn!(target: "librdkafka", "{facility}: {line}"),
        5 | 6 => tracing::info!(target: "librdkafka", "{facility}: {line}"),
        _ => tracing::debug!(target: "librdkafka", "{facility}: {line}"),
    }
}
