//! Topic handles, which save a lookup by name.

use std::ffi::CStr;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::Duration;

use rdkafka::bindings as rd;

use super::super::errors::{Code, Failure};
use super::client::Client;

/// A topic's handle, which saves looking up its name for each record.
pub(in super::super) struct Topic {
    raw: NonNull<rd::rd_kafka_topic_t>,
    client: Arc<Client>,
}

// SAFETY: as for `Client`.
unsafe impl Send for Topic {}

impl Topic {
    /// The topic `name`, whether it exists or not.
    pub fn new(client: &Arc<Client>, name: &CStr) -> Result<Self, Failure> {
        // SAFETY: the client is alive; a null configuration means the client's defaults.
        let raw = unsafe { rd::rd_kafka_topic_new(client.raw(), name.as_ptr(), ptr::null_mut()) };
        // SAFETY: reads the calling thread's last error.
        let raw = NonNull::new(raw).ok_or_else(|| {
            let code = unsafe { rd::rd_kafka_last_error() };
            Failure::of(code)
                .unwrap_or_else(|| Failure::new(Code::RD_KAFKA_RESP_ERR__FAIL, "the topic handle could not be created"))
        })?;
        Ok(Self { raw, client: Arc::clone(client) })
    }

    /// The client that it belongs to.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The C handle.
    pub fn raw(&self) -> *mut rd::rd_kafka_topic_t {
        self.raw.as_ptr()
    }
}

impl Drop for Topic {
    fn drop(&mut self) {
        // SAFETY: owned; the client is still alive.
        unsafe { rd::rd_kafka_topic_destroy(self.raw()) }
    }
}

impl Client {
    /// Queries a broker for this topic alone. From the response the client learns which brokers there are, which is the
    /// controller, and who leads the topic's partitions; returns whether there was one.
    pub fn ask_for_topic(self: &Arc<Self>, topic: &CStr, wait: Duration) -> bool {
        // SAFETY: the topic is alive for the call.
        Topic::new(self, topic).is_ok_and(|topic| unsafe { self.ask_metadata(topic.raw(), wait) })
    }
}
