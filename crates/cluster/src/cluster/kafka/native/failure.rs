//! Converts librdkafka's error objects.

use std::ffi::CStr;

use rdkafka::bindings as rd;

use super::super::errors::Failure;

impl Failure {
    /// Takes ownership of an error object, `None` for null.
    ///
    /// # Safety
    /// `error` is null or an error object that nobody else destroys.
    pub unsafe fn take(error: *mut rd::rd_kafka_error_t) -> Option<Self> {
        if error.is_null() {
            return None;
        }
        // SAFETY: the object lives until it is destroyed here, and its string with it.
        unsafe {
            let failure = Self {
                code: rd::rd_kafka_error_code(error),
                message: CStr::from_ptr(rd::rd_kafka_error_string(error)).to_string_lossy().into_owned(),
                fatal: rd::rd_kafka_error_is_fatal(error) != 0,
                retriable: rd::rd_kafka_error_is_retriable(error) != 0,
                requires_abort: rd::rd_kafka_error_txn_requires_abort(error) != 0,
            };
            rd::rd_kafka_error_destroy(error);
            Some(failure)
        }
    }
}
