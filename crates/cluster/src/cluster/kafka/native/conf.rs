//! A client's configuration, as librdkafka takes it and checks it.

use std::ffi::{CString, c_char};
use std::ptr::NonNull;

use rdkafka::bindings as rd;

use super::super::oauth;
use super::super::properties::{Properties, check_mechanism};
use super::conversions::{MESSAGE_BYTES_MAX, c_string, read_message};
use crate::cluster::{Error, ErrorKind};

/// A client's configuration, being built.
pub(in super::super) struct Conf(NonNull<rd::rd_kafka_conf_t>);

impl Conf {
    /// librdkafka's defaults.
    pub fn new() -> Self {
        // SAFETY: only allocates; librdkafka aborts when out of memory.
        Self(NonNull::new(unsafe { rd::rd_kafka_conf_new() }).expect("librdkafka never returns null here"))
    }

    /// The C handle.
    pub fn raw(&mut self) -> *mut rd::rd_kafka_conf_t {
        self.0.as_ptr()
    }

    /// Sets one property.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), Error> {
        let (c_name, c_value) = (c_string(name)?, CString::new(value).unwrap_or_default());
        let mut message = [0 as c_char; MESSAGE_BYTES_MAX];
        // SAFETY: all strings end in NUL and the buffer has the given length.
        let result = unsafe {
            rd::rd_kafka_conf_set(
                self.0.as_ptr(),
                c_name.as_ptr(),
                c_value.as_ptr(),
                message.as_mut_ptr(),
                message.len(),
            )
        };
        match result {
            rd::rd_kafka_conf_res_t::RD_KAFKA_CONF_OK => Ok(()),
            rd::rd_kafka_conf_res_t::RD_KAFKA_CONF_UNKNOWN => {
                Err(Error::new(ErrorKind::Refused, format!("{name} is no kafka property that librdkafka knows")))
            }
            rd::rd_kafka_conf_res_t::RD_KAFKA_CONF_INVALID => {
                let message = read_message(&message);
                let message = if value.is_empty() { message } else { message.replace(value, "***") };
                Err(Error::new(
                    ErrorKind::Refused,
                    format!("the kafka property {name} has an invalid value: {message}"),
                ))
            }
        }
    }
}

impl Drop for Conf {
    fn drop(&mut self) {
        // SAFETY: owned, and not given to a client.
        unsafe { rd::rd_kafka_conf_destroy(self.0.as_ptr()) }
    }
}

impl Properties {
    /// The properties as a librdkafka configuration.
    pub fn to_conf(&self) -> Result<Conf, Error> {
        let mut conf = Conf::new();
        for (name, value) in self.iter().filter(|(name, _)| !oauth::is_own(name)) {
            conf.set(name, value)?;
        }
        Ok(conf)
    }
}

/// Checks that librdkafka knows this property and accepts this value; no message contains it. How tokens are asked for is
/// not librdkafka's business, and checked with all properties together.
pub fn takes(property: &str, value: &str) -> Result<(), Error> {
    check_mechanism(property, value)?;
    if oauth::is_own(property) { Ok(()) } else { Conf::new().set(property, value) }
}
