//! librdkafka's error codes, with its names and descriptions of them. Both data paths describe a broker's error in the
//! same words.

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

/// librdkafka's description of an error code that a broker sends; `None` for success, and for an unknown code.
pub fn of_broker(code: i16) -> Option<String> {
    let code = Code::try_from(i32::from(code)).ok()?;
    // `END_ALL` only marks the end of the enumeration.
    let is_error = !matches!(code, Code::RD_KAFKA_RESP_ERR_NO_ERROR | Code::RD_KAFKA_RESP_ERR_END_ALL);
    is_error.then(|| describe(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_codes_of_errors_are_described() {
        assert_eq!(of_broker(3).as_deref(), Some("Broker: Unknown topic or partition"));
        assert_eq!(of_broker(-1).as_deref(), Some("Unknown broker error"));
        let end = Code::RD_KAFKA_RESP_ERR_END_ALL as i16;
        for none in [0, end, end + 1, i16::MAX] {
            assert_eq!(of_broker(none), None, "{none}");
        }
    }
}
