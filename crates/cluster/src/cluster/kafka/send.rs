//! Waiting for room in librdkafka's queue of records.
//!
//! **Failure**: while the queue is full, [`Patience`] waits; any other error is returned at once.

use std::time::{Duration, Instant};

use super::errors::{Code, Failure};
use crate::cluster::{Error, ErrorKind};

/// Maximum number of records handed over in one call.
pub(super) const SEND_RECORDS_MAX: usize = 1024;
/// How often to retry while the queue is full.
const QUEUE_STEP: Duration = Duration::from_millis(1);

/// How long to wait for a full queue.
pub(super) struct Patience {
    max: Duration,
    since: Option<Instant>,
}

impl Patience {
    /// Waits for `max` in total.
    pub fn new(max: Duration) -> Self {
        Self { max, since: None }
    }

    /// Waits a little if the queue is full; returns an error for any other failure, or if the queue is full for too
    /// long.
    pub fn wait_or_fail(&mut self, failure: &Failure, topic: &str, partition: i32) -> Result<(), Error> {
        let what = format_args!("sending to {topic}:{partition}");
        if failure.refuses_record() {
            return Err(Error::new(ErrorKind::Refused, format!("{what}: {failure}")));
        }
        if failure.code != Code::RD_KAFKA_RESP_ERR__QUEUE_FULL {
            let kind = match failure.code {
                Code::RD_KAFKA_RESP_ERR__FATAL | Code::RD_KAFKA_RESP_ERR__FENCED => ErrorKind::Fenced,
                // A missing topic or partition concerns the task, not this record alone.
                _ => ErrorKind::Abort,
            };
            return Err(Error::new(kind, format!("{what}: {failure}")));
        }
        if self.since.get_or_insert_with(Instant::now).elapsed() >= self.max {
            return Err(Error::new(ErrorKind::Abort, format!("{what}: the send buffer has been full for too long")));
        }
        std::thread::sleep(QUEUE_STEP);
        Ok(())
    }
}
