//! Makes librdkafka read a partition from an offset on, and waits until it is ready.

use std::thread;
use std::time::{Duration, Instant};

use super::errors::Code;
use super::native::{Client, List};
use crate::cluster::{Error, ErrorKind};
use crate::record::TopicPartition;

/// How long a started partition's fetcher may take to become ready, and a seek to complete.
const SEEK_DEADLINE: Duration = Duration::from_secs(5);
/// Pause between two attempts at a seek.
const SEEK_PAUSE: Duration = Duration::from_millis(2);

/// Makes librdkafka read the partition from `offset` on. If the epoch of the record before the offset is known,
/// the broker is first asked whether it still has the records that were read up to there.
pub(super) fn seek(client: &Client, partition: &TopicPartition, offset: i64, epoch: Option<i32>) -> Result<(), Error> {
    let deadline = Instant::now() + SEEK_DEADLINE;
    loop {
        let mut list = List::new(1);
        list.push_in_epoch(partition, offset, epoch, None)?;
        let failure = client.seek(&list, SEEK_DEADLINE);
        let failure = failure.or_else(|| list.failure().map(|(_, failure)| failure));
        let Some(failure) = failure else { return Ok(()) };
        // The fetcher is ready a moment after the assignment.
        let is_starting = matches!(
            failure.code,
            Code::RD_KAFKA_RESP_ERR__STATE
                | Code::RD_KAFKA_RESP_ERR__PREV_IN_PROGRESS
                | Code::RD_KAFKA_RESP_ERR__IN_PROGRESS
                | Code::RD_KAFKA_RESP_ERR__TIMED_OUT
        );
        if !is_starting || Instant::now() >= deadline {
            return Err(Error::new(ErrorKind::Retry, format!("starting {partition} at {offset}: {failure}")));
        }
        thread::sleep(SEEK_PAUSE);
    }
}
