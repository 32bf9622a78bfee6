//! Looks at what a changelog holds from an offset on: its first committed record there, using a shared client.
//!
//! **Failure**: what cannot be read in time, or is no longer there, is [`ErrorKind::Retry`]; a missing right is
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

/// What `changelog`, which holds `start` to `end`, all of it decided, has from `from` on.
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
    let mut reader = Reader::on(client, changelog, from.0, None)?;
    // The thread of the leader's connection sleeps for up to a second while nothing is fetched. The response does not
    // matter: the fetch meets any error, too.
    let _ = client.query_watermarks(&c_string(&changelog.topic)?, changelog.partition, WAKE_DEADLINE);
    let mut batch = Batch::default();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        // Records that were removed meanwhile are no reason to stop.
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
                format!("looking at {changelog} from offset {from} on: no answer"),
            ));
        }
    }
}
