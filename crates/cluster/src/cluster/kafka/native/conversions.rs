//! Converts strings, messages in buffers and milliseconds for C, and back.

use std::ffi::{CStr, CString, c_char, c_int};
use std::time::Duration;

use crate::cluster::{Error, ErrorKind};

/// Buffer size for librdkafka's error messages.
pub(super) const MESSAGE_BYTES_MAX: usize = 512;

/// `text` as a C string; topics and groups with a NUL byte cannot exist.
pub(in super::super) fn c_string(text: &str) -> Result<CString, Error> {
    CString::new(text).map_err(|_| Error::new(ErrorKind::Refused, format!("{text:?} holds a NUL byte")))
}

/// Whole milliseconds for C, at least one unless zero.
pub(in super::super) fn c_millis(duration: Duration) -> c_int {
    c_int::try_from(duration.as_micros().div_ceil(1000)).unwrap_or(c_int::MAX)
}

/// The message that librdkafka wrote into a buffer.
pub(super) fn read_message(buffer: &[c_char]) -> String {
    // SAFETY: librdkafka ends what it writes with NUL, and the buffer began as zeros.
    unsafe { CStr::from_ptr(buffer.as_ptr()) }.to_string_lossy().into_owned()
}
