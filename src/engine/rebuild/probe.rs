//! Reads the contents of a changelog: they must be known before an operator is advised to delete the topic.

use std::time::Duration;

use crate::cluster::{Cluster, Reader, RecordBatch, Settled};
use crate::format::{ChangelogOffset, POSITION_KEY, PositionRecord};
use crate::record::TopicPartition;

use super::choose::Contents;
use super::{Deadline, Error, refused};

/// How long a changelog may deliver no records before its end is reached.
const READ_WAIT: Duration = Duration::from_secs(60);
/// How long one read waits for records.
const POLL_WAIT: Duration = Duration::from_millis(20);
const READ_RECORDS_MAX: usize = 2048;
/// The number of offsets before the end that are read first. A position record is the last record of its transaction,
/// so it is usually among them.
const TAIL_OFFSETS: i64 = 1_000;

/// A changelog's start and end, and its last position record.
pub(super) fn contents<C: Cluster>(
    cluster: &C,
    changelog: &TopicPartition,
    settled: &Settled,
) -> Result<Contents, Error> {
    let (start, end) = (settled.changelog_start, settled.changelog_end);
    let (mut last, mut end_offset, mut span) = (None, end, TAIL_OFFSETS);
    while last.is_none() && end_offset > start {
        let from = start.max(ChangelogOffset(end_offset.0.saturating_sub(span)));
        read(cluster, changelog, (from, end_offset), |batch| {
            for record in
                (0..batch.len()).map(|index| batch.record(index)).filter(|record| record.offset < end_offset.0)
            {
                if record.key == Some(POSITION_KEY) {
                    last = record.value.map(<[u8]>::to_vec);
                }
            }
            Ok(())
        })?;
        (end_offset, span) = (from, span.saturating_mul(8));
    }
    match last.map(|bytes| PositionRecord::decode_either(&bytes)).transpose() {
        Ok(last) => Ok(Contents { start, end, last }),
        Err(error) => refused(format!("{changelog}: {error}")),
    }
}

/// Reads from one offset to another, before which no transaction is open. `on_batch` is called with every batch,
/// including empty ones.
pub(super) fn read<C: Cluster>(
    cluster: &C,
    changelog: &TopicPartition,
    (from, to): (ChangelogOffset, ChangelogOffset),
    mut on_batch: impl FnMut(&C::Batch) -> Result<(), Error>,
) -> Result<(), Error> {
    if from >= to {
        return Ok(());
    }
    let mut reader = cluster.reader(changelog, from.0)?;
    let mut batch = C::Batch::default();
    let mut deadline = Deadline::after(READ_WAIT);
    while reader.position() < to.0 {
        let before = reader.position();
        reader.read(&mut batch, READ_RECORDS_MAX, POLL_WAIT)?;
        on_batch(&batch)?;
        if reader.position() > before {
            deadline = Deadline::after(READ_WAIT);
        }
        deadline.check("reading the changelog")?;
    }
    Ok(())
}
