//! Finds the first committed record of a changelog from an offset on, using a shared client.
//!
//! **Failure**: a record that cannot be read in time, or no longer exists, is [`ErrorKind::Retry`]; a missing right is
//! [`ErrorKind::Refused`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::native::Batch;
use super::native::{Client, c_string};
use super::reader::Reader;
use crate::cluster::{Error, ErrorKind, RecordBatch, Seen, SeenRecord};
use crate::format::ChangelogOffset;
use crate::record::TopicPartition;

/// How long to wait for a leader's response to a request that only wakes up its connection.
const WAKE_DEADLINE: Duration = Duration::from_millis(100);

/// The first committed record of `changelog` from `from` on. The changelog holds the offsets from `start` to `end`, and
/// all transactions in them have ended.
pub(super) fn probe(
    client: &Arc<Client>,
    changelog: &TopicPartition,
    from: ChangelogOffset,
    (start, end): (ChangelogOffset, ChangelogOffset),
    patience: Duration,
) -> Result<Seen, Error> {
    if !(start..end).contains(&from) {
        return Ok(Seen { from, first: None });
    }
    let deadline = Instant::now() + patience;
    let mut reader = Reader::with_client(client, changelog, from.0, None)?;
    // The thread of the leader's connection sleeps for up to a second while nothing is fetched. The response does not
    // matter: the fetch meets any error, too.
    let _ = client.query_watermarks(&c_string(&changelog.topic)?, changelog.partition, WAKE_DEADLINE);
    let mut batch = Batch::default();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        // If records were removed meanwhile, a new attempt may succeed.
        reader.read(&mut batch, 1, left).map_err(|error| match error.is_denied() {
            true => error,
            false => Error { kind: ErrorKind::Retry, ..error },
        })?;
        let first = (!batch.is_empty()).then(|| SeenRecord::of(&batch.record(0)));
        if first.is_some() || reader.position() >= end.0 {
            return Ok(Seen { from, first: first.filter(|first| first.offset < end) });
        }
        if left.is_zero() {
            return Err(Error::new(
                ErrorKind::Retry,
                format!("looking at {changelog} from offset {from} on: no response"),
            ));
        }
    }
}
