//! How many partitions an input had when its topology was last at work, where somebody may have added some since: to the
//! input, and, by hand, to its changelog, so that both have as many. Its own partitions refuse that, each by itself; the
//! new ones know nothing of it, and would begin.
//!
//! Only an input is looked at of whose last partition nothing was ever committed, though something was of others. There
//! it takes a look at the end of one partition of the changelog: each position record has the count.
//!
//! **Failure**: what cannot be read says nothing. The tasks' own refusals are what the promise rests on.

use std::time::Duration;

use crate::cluster::{self, Cluster, CommittedOffset, Kind, Reader, RecordBatch, TopicDescription};
use crate::format::{OffsetMetadata, POSITION_KEY, PositionRecord};
use crate::record::TopicPartition;

/// How far before the end of the changelog the first look goes, in offsets.
const REACH_MIN: i64 = 256;
/// How much further each look goes than the one before.
const REACH_GROWTH: i64 = 16;
/// Records taken in one read.
const READ_RECORDS_MAX: usize = 2048;
/// How long one read waits for something.
const READ_WAIT: Duration = Duration::from_millis(50);
/// After so many reads in a row that bring nothing, what was found is all: a transaction may be open for long.
const IDLE_READS_MAX: u32 = 40;

/// The input's former count of partitions, if there is reason to ask and something to tell it. `committed` is what the
/// group has committed, by partition.
pub fn count<C: Cluster>(
    cluster: &C,
    changelog: (&str, &TopicDescription),
    committed: &[Option<CommittedOffset>],
) -> Result<Option<u32>, cluster::Error> {
    let is_ours = |committed: &Option<CommittedOffset>| {
        committed.as_ref().is_some_and(|found| matches!(OffsetMetadata::parse(&found.metadata), Ok(Some(_))))
    };
    let Some(known) = committed.iter().position(is_ours) else { return Ok(None) };
    let (name, description) = changelog;
    if committed.last().is_some_and(is_ours) || known >= description.partition_count.max(0) as usize {
        return Ok(None);
    }
    match last_count(cluster, &TopicPartition::new(name, known as i32)) {
        // That it may not be read is told elsewhere.
        Err(error) if error.kind == Kind::Refused => Ok(None),
        found => found,
    }
}

/// What the changelog's last position record has for the count.
fn last_count<C: Cluster>(cluster: &C, changelog: &TopicPartition) -> Result<Option<u32>, cluster::Error> {
    let (start, end) = cluster.bounds(changelog)?;
    let mut reach = REACH_MIN;
    loop {
        let from = start.max(end - reach);
        let found = count_between(cluster, changelog, (from, end))?;
        if found.is_some() || from <= start {
            return Ok(found);
        }
        reach *= REACH_GROWTH;
    }
}

fn count_between<C: Cluster>(
    cluster: &C,
    changelog: &TopicPartition,
    (from, end): (i64, i64),
) -> Result<Option<u32>, cluster::Error> {
    let mut reader = cluster.reader(changelog, from)?;
    let (mut batch, mut found, mut idle) = (C::Batch::default(), None, 0);
    while reader.position() < end && idle < IDLE_READS_MAX {
        reader.read(&mut batch, READ_RECORDS_MAX, READ_WAIT)?;
        idle = if batch.is_empty() { idle + 1 } else { 0 };
        for record in (0..batch.len()).map(|index| batch.record(index)) {
            let position = record.value.filter(|_| record.key == Some(POSITION_KEY)).map(PositionRecord::decode);
            found = position.and_then(Result::ok).map(|position| position.task_count).or(found);
        }
    }
    Ok(found)
}
