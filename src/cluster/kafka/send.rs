//! Records on their way into librdkafka.
//!
//! **Failure**: a queue that is full is waited for ([`Patience`]); anything else is told at once.

use std::time::{Duration, Instant};

use super::errors::{Code, Failure};
use crate::cluster::{Error, Kind};

/// Records handed over in one call.
pub(super) const SEND_RECORDS_MAX: usize = 1024;
/// How often a full queue is tried again.
const QUEUE_STEP: Duration = Duration::from_millis(1);

/// For how long a full queue is waited for.
pub(super) struct Patience {
    max: Duration,
    since: Option<Instant>,
}

impl Patience {
    /// Waits for `max` altogether.
    pub fn new(max: Duration) -> Self {
        Self { max, since: None }
    }

    /// Waits a little if it is the queue that is full; else, or if that lasts for too long, what the failure means.
    pub fn endure(&mut self, failure: &Failure, topic: &str, partition: i32) -> Result<(), Error> {
        let what = format_args!("sending to {topic}:{partition}");
        if failure.refuses_record() {
            return Err(Error::new(Kind::Refused, format!("{what}: {failure}")));
        }
        if failure.code != Code::RD_KAFKA_RESP_ERR__QUEUE_FULL {
            let kind = match failure.code {
                Code::RD_KAFKA_RESP_ERR__FATAL | Code::RD_KAFKA_RESP_ERR__FENCED => Kind::Fenced,
                // A missing topic or partition concerns the task, not this record alone.
                _ => Kind::Abort,
            };
            return Err(Error::new(kind, format!("{what}: {failure}")));
        }
        if self.since.get_or_insert_with(Instant::now).elapsed() >= self.max {
            return Err(Error::new(Kind::Abort, format!("{what}: the queue has been full for too long")));
        }
        std::thread::sleep(QUEUE_STEP);
        Ok(())
    }
}
